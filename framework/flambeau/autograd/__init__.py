"""Automatic differentiation: the tape, its engine, and the functions to ask it for derivatives."""

from __future__ import annotations

from .._on_demand import names_on_demand

_HOME = {
    "backward": "_api", "grad": "_api", "Function": "function", "gradcheck": "gradcheck", "gradgradcheck": "gradcheck",
    "no_grad": "grad_mode", "enable_grad": "grad_mode", "set_grad_enabled": "grad_mode", "inference_mode": "grad_mode",
    "detect_anomaly": "anomaly_mode", "set_detect_anomaly": "anomaly_mode", "Variable": "variable",
    "DeviceType": "profiler_util", "_profiler_enabled": "profiler", "_disable_profiler": "profiler", "kineto_available": "profiler",
    "NestedIOFunction": "function", "set_multithreading_enabled": "grad_mode", "GradcheckError": "gradcheck",
}  # fmt: skip
_SUBMODULES = (
    "function", "functional", "gradcheck", "grad_mode", "anomaly_mode", "graph", "forward_ad", "variable", "profiler", "profiler_util",
)  # fmt: skip


__getattr__, __dir__ = names_on_demand(
    __name__,
    {f".{home}": [name for name in _HOME if _HOME[name] == home] for home in _HOME.values()},
    modules=_SUBMODULES,
    make={"__all__": sorted(name for name in {*_HOME, *_SUBMODULES} if name[0] != "_")}.get,
)

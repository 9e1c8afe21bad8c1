"""Automatic differentiation: the tape, its engine, and the functions to ask it for derivatives."""

from __future__ import annotations

from typing import Any

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


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__all__":
        found = sorted(name for name in {*_HOME, *_SUBMODULES} if name[0] != "_")
    elif name in _HOME:
        found = getattr(import_module(f".{_HOME[name]}", __name__), name)
    elif name in _SUBMODULES:
        found = import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module 'flambeau.autograd' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_SUBMODULES})

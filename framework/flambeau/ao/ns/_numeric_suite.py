"""Compare a model with its quantized one, made by the flows of eager quantization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fb

from ...nn import Module
from ...tensor import Tensor
from ..nn.quantized import DeQuantize, FloatFunctional, QFunctional
from ..quantization.quantization_mappings import get_default_compare_output_module_list
from ..quantization.quantize import _observer_forward_hook

__all__ = [
    "Logger", "OutputLogger", "Shadow", "ShadowLogger", "compare_model_outputs", "compare_model_stub", "compare_weights",
    "get_logger_dict", "get_matching_activations", "prepare_model_outputs", "prepare_model_with_stubs",
]  # fmt: skip


def _matching(float_names: Any, names: Any, end: str) -> dict[str, str]:
    """For each of `names` that ends in `end`, the one of `float_names` that it comes from."""
    found = {}
    for name in names:
        if name != end and not name.endswith("." + end):
            continue
        place = name[: -len(end)].rstrip(".")
        place = place.removesuffix("._packed_params")
        for other in (f"{place}.{end}", f"{place}.weight" if end == "_packed_params" else "", f"{place}.0.{end}", f"{place}.0.weight"):
            if other and other.lstrip(".") in float_names:
                found[name] = other.lstrip(".")
                break
    return found


def compare_weights(float_dict: dict[str, Any], quantized_dict: dict[str, Any]) -> dict[str, dict[str, Tensor]]:
    """The weights of a model and of its quantized one: ``{name: {"float": ..., "quantized": ...}}``, by names of the quantized.

    Args:
        float_dict, quantized_dict: their `state_dict`.
    """
    found: dict[str, dict[str, Tensor]] = {}
    for name, other in _matching(float_dict, quantized_dict, "weight").items():
        found[name] = {"float": float_dict[other], "quantized": quantized_dict[name]}
    for name, other in _matching(float_dict, quantized_dict, "_packed_params").items():
        found[name] = {"float": float_dict[other], "quantized": quantized_dict[name][0]}
    return found


# -- loggers -----------------------------------------------------------------------------------------------------------------


class Logger(Module):
    """The base of what keeps tensors in `stats`."""

    def __init__(self) -> None:
        super().__init__()
        self.stats: dict[str, list[Any]] = {}
        self.dtype = fb.quint8                        # so that it can stand for an observer

    def forward(self, x: Any) -> Any:
        """What passes: a subclass keeps it."""
        return x


class OutputLogger(Logger):
    """Keeps all tensors that pass, in ``stats["tensor_val"]``."""

    def __init__(self) -> None:
        super().__init__()
        self.stats["tensor_val"] = []

    def forward(self, x: Any) -> Any:
        """Keep `x` and return it."""
        self.stats["tensor_val"].append(x)
        return x


class ShadowLogger(Logger):
    """Keeps the results of a quantized module and of its shadow, in ``stats["quantized"]`` and ``stats["float"]``."""

    def __init__(self) -> None:
        super().__init__()
        self.stats["float"] = []
        self.stats["quantized"] = []

    def forward(self, x: Any, y: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Keep `x`, the quantized module's, and `y`; of several results the first."""
        for name, value in (("quantized", x), ("float", y)):
            first = value[0] if isinstance(value, (list, tuple)) else value
            self.stats[name].append(first.detach())


class Shadow(Module):
    """A quantized module beside the dense one it comes from: both get the same numbers, and a logger their results.

    Args:
        q_module, float_module: the two.
        logger_cls: makes the logger, as `ShadowLogger` does.
    """

    def __init__(self, q_module: Any, float_module: Any, logger_cls: Callable[[], Any]) -> None:
        super().__init__()
        self.orig_module, self.shadow_module = q_module, float_module
        self.dequant, self.logger = DeQuantize(), logger_cls()

    def _both(self, method: str | None, operands: list[Any], *rest: Any) -> Any:
        def numbers(x: Any) -> Any:
            if isinstance(x, (list, tuple)):
                return type(x)(map(numbers, x))
            return x.dequantize() if isinstance(x, Tensor) and x.is_quantized else x

        made = [
            (module if method is None else getattr(module, method))(*given, *rest)
            for module, given in ((self.orig_module, operands), (self.shadow_module, [numbers(x) for x in operands]))
        ]
        self.logger(*made)
        return made[0]

    def forward(self, *x: Any) -> Any:
        """The quantized module's result."""
        return self._both(None, list(x))

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """``x + y`` of a `QFunctional`."""
        return self._both("add", [x, y])

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x + y`` with a number, of a `QFunctional`."""
        return self._both("add_scalar", [x], y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x * y`` of a `QFunctional`."""
        return self._both("mul", [x, y])

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x * y`` with a number, of a `QFunctional`."""
        return self._both("mul_scalar", [x], y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """The tensors one after the other, of a `QFunctional`."""
        return self._both("cat", [list(x)], dim)

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """``relu(x + y)`` of a `QFunctional`."""
        return self._both("add_relu", [x, y])


# -- whole models ------------------------------------------------------------------------------------------------------------


def get_logger_dict(mod: Module, prefix: str = "") -> dict[str, dict[str, Any]]:
    """What the loggers within `mod` have kept: ``{name + ".stats": stats}``."""
    found: dict[str, dict[str, Any]] = {}
    for name, module in mod.named_modules(prefix=prefix):
        if isinstance(module, Logger):
            found[(name.rpartition(".")[0] + ".stats").lstrip(".")] = module.stats
    return found


def prepare_model_with_stubs(float_module: Module, q_module: Module, module_swap_list: Any, logger_cls: Callable[[], Any]) -> None:
    """Put `Shadow` in place of modules of `q_module`, each with its counterpart of `float_module`.

    Args:
        module_swap_list: the classes of the dense modules.
        logger_cls: makes the logger of each.
    """
    dense = dict(float_module.named_children())
    swapped = {}
    for name, module in q_module.named_children():
        other = dense.get(name)
        if other is None:
            continue
        if type(other) in module_swap_list:
            swapped[name] = Shadow(module, other, logger_cls)
        else:
            prepare_model_with_stubs(other, module, module_swap_list, logger_cls)
    for name, shadow in swapped.items():
        q_module._modules[name] = shadow


def compare_model_stub(
    float_model: Module, q_model: Module, module_swap_list: Any, *data: Any, logger_cls: Callable[[], Any] = ShadowLogger
) -> dict[str, dict[str, Any]]:
    """Run `q_model` on `data`, beside each quantized module its counterpart of `float_model`, and give what both made.

    Args:
        module_swap_list: the classes of the dense modules.
        logger_cls: makes the logger of each.
    """
    prepare_model_with_stubs(float_model, q_model, module_swap_list, logger_cls)
    q_model(*data)
    return get_logger_dict(q_model)


def prepare_model_outputs(
    float_module: Module, q_module: Module, logger_cls: Callable[[], Any] = OutputLogger, allow_list: Any = None
) -> None:
    """Put loggers of results into `float_module` and `q_module`, in place of observers.

    Args:
        logger_cls: makes each.
        allow_list: the classes of modules that get one.
    """
    allowed = get_default_compare_output_module_list() if allow_list is None else set(allow_list)
    for model in (float_module, q_module):
        _log(model, allowed, logger_cls)


def _log(module: Any, allowed: set[Any], logger_cls: Callable[[], Any]) -> None:
    for child in module.children():
        if isinstance(child, (FloatFunctional, QFunctional)):
            child.activation_post_process = logger_cls()
        elif type(child) in allowed and type(child) is not fb.nn.Sequential:
            hooked = _observer_forward_hook in child._forward_hooks.values()
            child.activation_post_process = logger_cls()
            if not hooked:
                child.register_forward_hook(_observer_forward_hook)
        else:
            _log(child, allowed, logger_cls)


def get_matching_activations(float_module: Module, q_module: Module) -> dict[str, dict[str, Any]]:
    """What the loggers of both models have kept where both have one: ``{name: {"float": ..., "quantized": ...}}``."""
    dense, quantized = get_logger_dict(float_module), get_logger_dict(q_module)
    found = {}
    for name, stats in quantized.items():
        if name in dense and "tensor_val" in stats and len(stats["tensor_val"]) and len(dense[name]["tensor_val"]):
            found[name] = {"float": dense[name]["tensor_val"], "quantized": stats["tensor_val"]}
    return {name: pair for name, pair in found.items() if any(isinstance(t, Tensor) and t.is_quantized for t in pair["quantized"])}


def compare_model_outputs(
    float_model: Module, q_model: Module, *data: Any, logger_cls: Callable[[], Any] = OutputLogger, allow_list: Any = None
) -> dict[str, dict[str, Any]]:
    """Run `float_model` and `q_model` on `data` and give the results of modules that both have; see `prepare_model_outputs`."""
    prepare_model_outputs(float_model, q_model, logger_cls, allow_list)
    float_model(*data)
    q_model(*data)
    return get_matching_activations(float_model, q_model)

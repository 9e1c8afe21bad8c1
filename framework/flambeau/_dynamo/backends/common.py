"""Backends made of compilers of graphs of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["aot_autograd"]


def aot_autograd(**kwargs: Any) -> Callable[[Any, Any], Any]:
    """A backend for `compile` that gives functions graphs of operators, forward and backward apart.

    Args:
        kwargs: of `aot_module_simplified`: `fw_compiler`, and perhaps `bw_compiler`, `partition_fn`, `decompositions`,
            `inference_compiler`.
    Raises: TypeError if `fw_compiler` is missing.
    """
    if "fw_compiler" not in kwargs:
        raise TypeError("aot_autograd: fw_compiler is missing, a function of a GraphModule and example inputs that returns a function")

    def backend(gm: Any, example_inputs: Any) -> Any:
        from ..._functorch.aot_autograd import aot_module_simplified

        return aot_module_simplified(gm, example_inputs, **kwargs)

    return backend

"""Operations as modules: what a quantized model calls in place of ``+``, ``*`` and ``cat``, so that results can be observed."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from ....nn import Identity, Module
from ....nn import functional as F
from ....ops._quantized.layers import computed
from ....tensor import Tensor
from . import _operations as operations
from ._base import ScaledModule, output_scale

__all__ = ["FXFloatFunctional", "FloatFunctional", "QFunctional"]


class FloatFunctional(Module):
    """Operations on dense tensors whose results an observer looks at; `convert` makes a `QFunctional` of it.

    >>> fb.ao.nn.quantized.FloatFunctional().add(fb.tensor(3.0), fb.tensor(4.0))
    tensor(7.)
    """

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = Identity()

    def forward(self, x: Any) -> Any:
        raise RuntimeError("FloatFunctional is not intended to use the 'forward'. Please use the underlying operation")

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """``x + y``."""
        return self.activation_post_process(fb.add(x, y))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x + y`` with a number."""
        return fb.add(x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x * y``."""
        return self.activation_post_process(fb.mul(x, y))

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x * y`` with a number."""
        return fb.mul(x, y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """The tensors one after the other along `dim`."""
        return self.activation_post_process(fb.cat(x, dim=dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """``relu(x + y)``."""
        return self.activation_post_process(F.relu(fb.add(x, y)))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x @ y``."""
        return self.activation_post_process(fb.matmul(x, y))


class FXFloatFunctional(Module):
    """The same operations without an observer, for models that are traced."""

    def forward(self, x: Any) -> Any:
        raise RuntimeError("FloatFunctional is not intended to use the 'forward'. Please use the underlying operation")

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """``x + y``."""
        return fb.add(x, y)

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x + y`` with a number."""
        return fb.add(x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x * y``."""
        return fb.mul(x, y)

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x * y`` with a number."""
        return fb.mul(x, y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """The tensors one after the other along `dim`."""
        return fb.cat(x, dim=dim)

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """``relu(x + y)``."""
        return F.relu(fb.add(x, y))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x @ y``."""
        return fb.matmul(x, y)


class QFunctional(ScaledModule):
    """Operations on quantized tensors, quantized with the module's `scale` and `zero_point`.

    >>> q = fb.quantize_per_tensor(fb.tensor([3.0]), 1.0, 0, fb.quint8)
    >>> fb.ao.nn.quantized.QFunctional().add(q, q).dequantize()
    tensor([6.])
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.zero_point = 1.0, 0
        self.activation_post_process = Identity()

    def _get_name(self) -> str:
        return "QFunctional"

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}"

    def forward(self, x: Any) -> Any:
        raise RuntimeError("Functional is not intended to use the 'forward'. Please use the underlying operation")

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """``x + y``."""
        return self.activation_post_process(operations.add(x, y, self.scale, self.zero_point))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x + y`` with a number: the same integers, as far as a zero point for the sum is one of the dtype's."""
        return self.activation_post_process(operations.add_scalar(x, y))

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x * y``."""
        return self.activation_post_process(operations.mul(x, y, self.scale, self.zero_point))

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x * y`` with a number: the same integers, in the other direction for a negative one."""
        return self.activation_post_process(operations.mul_scalar(x, y))

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """The tensors one after the other along `dim`."""
        made = computed("cat", lambda *parts: fb.cat(parts, dim=dim), list(x), self.scale, self.zero_point)
        return self.activation_post_process(made)

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """``relu(x + y)``."""
        return self.activation_post_process(F.relu(operations.add(x, y, self.scale, self.zero_point)))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x @ y``."""
        return self.activation_post_process(operations.matmul(x, y, self.scale, self.zero_point))

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> QFunctional:
        """The quantized module of an observed `FloatFunctional`."""
        if type(mod) is not FloatFunctional:
            raise AssertionError(f"QFunctional.from_float expects an instance of FloatFunctional, got {type(mod).__name__}")
        made = cls()
        made.scale, made.zero_point = output_scale(mod.activation_post_process)
        return made

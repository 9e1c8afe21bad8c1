"""What tests need: `assert_close` compares tensors, numbers and containers of them, `make_tensor` makes random inputs."""

from __future__ import annotations

from ._comparison import assert_allclose, assert_close
from ._creation import make_tensor

__all__ = ["assert_allclose", "assert_close", "make_tensor"]

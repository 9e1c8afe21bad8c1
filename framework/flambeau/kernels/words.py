"""The words that kernels may use beside Python's operators.

A word has a meaning only inside a kernel: `exp` is the exponential of one number there. Loops have words of their own besides: the
kinds of numbers (`float32`, `int64`, ...), which convert to them, `local`, and `independent` and others around a ``range``.

>>> from flambeau.kernels.words import exp, where
>>> exp
<word exp>
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau_kernels import vocabulary as _vocabulary
from flambeau_kernels.engine import language as _language

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


_OF_LOOPS = (
    "independent", "brief", "rolled", "repeated", "unroll", "flags", "local", "prefetch", "bool8", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64", "float32", "float64",
)  # fmt: skip
__all__ = [*_vocabulary.__all__, *_OF_LOOPS]  # pyright: ignore[reportUnsupportedDunderAll]  # noqa: PLE0604
globals().update({name: getattr(_vocabulary, name) for name in _vocabulary.__all__})
globals().update({name: getattr(_language, name) for name in _OF_LOOPS})

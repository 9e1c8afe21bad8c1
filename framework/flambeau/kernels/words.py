"""The words that formulas and loops may use beside Python's operators, to import them from where they are found.

A word has a meaning only inside a kernel: `exp` is the exponential of one number there.

>>> from flambeau.kernels.words import exp, where
>>> exp
<word exp>
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau_kernels import vocabulary as _vocabulary

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


__all__ = list(_vocabulary.__all__)  # pyright: ignore[reportUnsupportedDunderAll]
globals().update({name: getattr(_vocabulary, name) for name in __all__})

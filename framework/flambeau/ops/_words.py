"""The Tensor reading of the vocabulary of formulas: each word is the public function of that name."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..tensor import Tensor
from ._spec import OPS

# Words whose op has another name.
OTHER_NAMES = {"nearbyint": "round", "bit_not": "bitwise_not", "ndtr": "special.ndtr"}


def fill_tensor_words(words: dict[str, Any]) -> None:
    """Map every word that a public op answers to to that op."""
    from flambeau_kernels import vocabulary

    from ._derive import find

    for word in (*vocabulary.WORDS, *vocabulary.HOST_WORDS):
        key = OTHER_NAMES.get(word, word)
        op = find(key) or find(key.replace("special_", "special.", 1))
        if op is not None:
            tensors_only = getattr(getattr(op, "check", None), "__name__", "") == "check_tensors"
            words[word] = _number_or(op.function, word, tensors_only)
    sign, imag = words["sign"], words["imag"]
    words["conj"] = _conj
    words["fma"] = lambda x, y, z: x * y + z
    words["where"] = _where
    words["special_polygamma"] = lambda n, x: OPS["polygamma_of"].function(x, n=n)
    words["round_to_float16"] = lambda x: x.to(dtypes.float16).to(x.dtype)
    words["round_to_bfloat16"] = lambda x: x.to(dtypes.bfloat16).to(x.dtype)
    words["imag"] = lambda x: imag(x) if x.is_complex() else x.new_zeros(x.shape)    # which the function refuses
    words["sign"] = lambda x: x.sgn() if isinstance(x, Tensor) and x.is_complex() else sign(x)


def _conj(x: Any) -> Any:
    return x.conj() if isinstance(x, Tensor) else x.conjugate() if isinstance(x, complex) else x


def _where(condition: Any, x: Any, y: Any) -> Any:
    if not isinstance(condition, Tensor):
        return x if condition else y
    return OPS["where"].function(condition, x, y)


def _number_or(fn: Any, word: str, tensors_only: bool = False) -> Any:
    """`fn`, except that numbers alone are answered by numpy, and made Tensors beside one if `tensors_only`."""

    def call(*args: Any) -> Any:
        found = next((a for a in args if isinstance(a, Tensor)), None)
        if found is not None:
            if tensors_only:
                args = tuple(a if isinstance(a, Tensor) else found.new_full((), a) for a in args)
            return fn(*args)
        from flambeau_kernels.reference import WORDS_READ

        with np.errstate(all="ignore"):
            return np.asarray(WORDS_READ[word](*(np.asarray(a) for a in args))).item()

    return call

"""The scalar vocabulary: the words a formula may use beside Python's operators.

A word has no meaning of its own. A `Formula` is given meaning by binding it to a reading of the vocabulary:
numpy (`reference.py`), compiled (`engine/`), or Tensors (`flambeau.ops`). The words exist as importable names so that
formulas can be read, linted and navigated like any other Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

WORDS = (  # noqa: SIM905  # lines of words are easier to read than a list of strings
    "abs sqrt rsqrt exp exp2 expm1 log log2 log10 log1p log1p_exp sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh "
    "erf erfc erfinv ndtr normal_density sigmoid pow lgamma digamma floor ceil trunc nearbyint copysign fmod remainder floor_divide where "
    "minimum maximum fmin fmax isnan isinf isfinite logical_not logical_and logical_or logical_xor signbit hypot nextafter "
    "sign fma real imag conj angle round_to_float16 round_to_bfloat16"
).split()

HOST_WORDS = (  # noqa: SIM905
    "special_i0 special_i0e special_i1 special_i1e special_ndtri special_zeta special_polygamma special_entr "
    "special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_modified_bessel_k0 "
    "special_modified_bessel_k1 special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_erfcx "
    "special_log_ndtr special_spherical_bessel_j0 special_airy_ai igamma igammac gcd lcm ldexp frexp_mantissa "
    "frexp_exponent bit_not orthogonal"
).split()


class Word:
    """A name of the vocabulary, before any reading is bound to it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: object) -> object:
        raise TypeError(f"{self.name} is a word of the formula vocabulary; bind the formula to a reading first")

    def __repr__(self) -> str:
        return f"<word {self.name}>"


if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


globals().update({name: Word(name) for name in (*WORDS, *HOST_WORDS)})
__all__ = [*WORDS, *HOST_WORDS]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]  # made by the line above

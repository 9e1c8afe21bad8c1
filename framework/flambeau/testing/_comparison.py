"""`assert_close`: tensors, numbers and containers of them, compared with a message that says where they differ most."""

from __future__ import annotations

import cmath
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import flambeau as fb
from flambeau import Tensor

__all__ = ["assert_allclose", "assert_close", "default_tolerances"]

# dtype -> rtol, atol; all others 0
_TOLERANCES = {
    fb.float16: (1e-3, 1e-5),
    fb.bfloat16: (1.6e-2, 1e-5),
    fb.float32: (1.3e-6, 1e-5),
    fb.float64: (1e-7, 1e-7),
    fb.complex32: (1e-3, 1e-5),
    fb.complex64: (1.3e-6, 1e-5),
    fb.complex128: (1e-7, 1e-7),
}
_OF_NUMBER = {float: fb.float64, complex: fb.complex128, int: fb.int64}


@dataclass(frozen=True)
class _Options:
    """What a comparison asks for; see `assert_close`."""

    allow_subclasses: bool
    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool


class _Mismatch(Exception):
    """A difference, with its place in the containers, outermost first."""

    def __init__(self, kind: type[Exception], text: str, place: tuple[Any, ...] = ()) -> None:
        super().__init__(text)
        self.kind, self.text, self.place = kind, text, place


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Check that ``|actual - expected| <= atol + rtol * |expected|`` for every element, and that the attributes agree.

    Args:
        actual, expected: tensors, numpy arrays, numbers, None, or sequences and mappings of such; of related types.
        allow_subclasses: whether one may be of a subclass of the other's type.
        rtol, atol: relative and absolute tolerance, both or neither; by default those of the dtype, 1.3e-6 and 1e-5 in float32.
        equal_nan: whether nan equals nan.
        check_device, check_dtype, check_layout, check_stride: which attributes must be the same.
        msg: the text of the error, or a function that makes it of the usual text.
    Raises: AssertionError where they differ; ValueError if only one tolerance is given; TypeError for types that cannot be
        compared.

    >>> fb.testing.assert_close(fb.tensor([1.0, 2.0]), fb.tensor([1.0, 2.5]))
    Traceback (most recent call last):
    ...
    AssertionError: Tensor-likes are not close!
    <BLANKLINE>
    Mismatched elements: 1 / 2 (50.0%)
    Greatest absolute difference: 0.5 at index (1,) (up to 1e-05 allowed)
    Greatest relative difference: 0.20000000298023224 at index (1,) (up to 1.3e-06 allowed)
    """
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}.")
    options = _Options(allow_subclasses, rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride)
    try:
        _compare(actual, expected, options)
    except _Mismatch as mismatch:
        text = mismatch.text
        if mismatch.place:
            text += "\n\nThe failure occurred for item " + "".join(f"[{key!r}]" for key in mismatch.place)
        if mismatch.kind is AssertionError and msg is not None:
            text = msg(text) if callable(msg) else msg
        raise mismatch.kind(text) from None


def assert_allclose(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = True, msg: str = ""
) -> None:
    """`assert_close` without looking at dtype and device; deprecated.

    Args:
        actual, expected: tensors, or what `fb.as_tensor` makes tensors of.
        rtol, atol: tolerances, both or neither.
        equal_nan: whether nan equals nan.
        msg: the text of the error.
    """
    warnings.warn(
        "`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a future release. "
        "Please use `torch.testing.assert_close()` instead.",
        FutureWarning,
        stacklevel=2,
    )
    actual = actual if isinstance(actual, Tensor) else fb.as_tensor(actual)
    expected = expected if isinstance(expected, Tensor) else fb.as_tensor(expected, dtype=actual.dtype)
    if rtol is None and atol is None:
        rtol, atol = default_tolerances(actual, expected)
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=True,
        check_dtype=False,
        check_stride=False,
        msg=msg or None,
    )


def default_tolerances(*values: Any) -> tuple[float, float]:
    """The larger ones of the default rtol and atol of the values' dtypes."""
    pairs = [_TOLERANCES.get(value if isinstance(value, fb.dtype) else value.dtype, (0.0, 0.0)) for value in values]
    return max(rtol for rtol, _ in pairs), max(atol for _, atol in pairs)


def _compare(actual: Any, expected: Any, options: _Options) -> None:
    """Compare two values of any kind.

    Raises: _Mismatch.
    """
    if actual is None or expected is None:
        if actual is not expected:
            raise _Mismatch(AssertionError, f"None mismatch: {actual} is not {expected}")
    elif _both(actual, expected, (str, bytes)):
        raise _not_comparable(actual, expected)
    elif _both(actual, expected, Sequence):
        if len(actual) != len(expected):
            raise _Mismatch(AssertionError, f"The length of the sequences mismatch: {len(actual)} != {len(expected)}")
        _compare_items(range(len(actual)), actual, expected, options)
    elif _both(actual, expected, Mapping):
        _compare_keys(actual, expected)
        _compare_items(sorted(expected, key=repr), actual, expected, options)
    elif _both(actual, expected, (bool, np.bool_)):
        if bool(actual) is not bool(expected):
            raise _Mismatch(AssertionError, f"Booleans mismatch: {bool(actual)} is not {bool(expected)}")
    elif _both(actual, expected, (int, float, complex, np.number)):
        _compare_numbers(actual, expected, options)
    else:
        _compare_tensors(_as_tensor(actual, expected, options), _as_tensor(expected, actual, options), options)


def _both(actual: Any, expected: Any, kinds: Any) -> bool:
    return isinstance(actual, kinds) and isinstance(expected, kinds)


def _compare_items(keys: Any, actual: Any, expected: Any, options: _Options) -> None:
    for key in keys:
        try:
            _compare(actual[key], expected[key], options)
        except _Mismatch as mismatch:
            raise _Mismatch(mismatch.kind, mismatch.text, (key, *mismatch.place)) from None


def _compare_keys(actual: Any, expected: Any) -> None:
    missing, additional = expected.keys() - actual.keys(), actual.keys() - expected.keys()
    if missing or additional:
        raise _Mismatch(
            AssertionError,
            "The keys of the mappings do not match:\n"
            f"Missing keys in the actual mapping: {sorted(missing, key=repr)}\n"
            f"Additional keys in the actual mapping: {sorted(additional, key=repr)}",
        )


def _not_comparable(actual: Any, expected: Any) -> _Mismatch:
    return _Mismatch(
        TypeError,
        f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.",
    )


def _compare_numbers(actual: Any, expected: Any, options: _Options) -> None:
    actual, expected = (value.item() if isinstance(value, np.number) else value for value in (actual, expected))
    if options.check_dtype and type(actual) is not type(expected):
        raise _Mismatch(AssertionError, f"The (d)types do not match: {type(actual)} != {type(expected)}.")
    rtol, atol = options.rtol, options.atol
    if rtol is None or atol is None:
        rtol, atol = default_tolerances(*(_OF_NUMBER[type(value)] for value in (actual, expected)))
    difference = abs(actual - expected)
    if actual == expected or options.equal_nan and cmath.isnan(actual) and cmath.isnan(expected):
        return
    if cmath.isfinite(difference) and difference <= atol + rtol * abs(expected):
        return
    relative = difference / abs(expected) if expected != 0 else math.inf
    raise _scalars(actual, expected, difference, relative, rtol, atol)


def _scalars(actual: Any, expected: Any, difference: Any, relative: Any, rtol: float, atol: float) -> _Mismatch:
    exact = rtol == atol == 0
    return _Mismatch(
        AssertionError,
        f"Scalars are not {'equal' if exact else 'close'}!\n\n"
        f"Expected {expected} but got {actual}.\n"
        f"Absolute difference: {difference}{'' if exact else f' (up to {atol} allowed)'}\n"
        f"Relative difference: {relative}{'' if exact else f' (up to {rtol} allowed)'}",
    )


def _as_tensor(value: Any, other: Any, options: _Options) -> Tensor:
    """`value` as a tensor, if its type and that of `other` are related.

    Raises: _Mismatch.
    """
    related = (
        isinstance(value, type(other)) or isinstance(other, type(value))
        if options.allow_subclasses
        else type(value) is type(other)
    )
    if not related or isinstance(value, (int, float, complex, str, bytes)):
        raise _not_comparable(value, other)
    if isinstance(value, Tensor):
        return value
    try:
        return fb.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(value, np.ndarray):
            raise _Mismatch(ValueError, f"No tensor can be constructed from type {type(value)}: {error}") from error
        raise _not_comparable(value, other) from error


def _compare_tensors(actual: Tensor, expected: Tensor, options: _Options) -> None:
    def same(name: str, ours: Any, theirs: Any) -> None:
        if ours != theirs:
            raise _Mismatch(
                AssertionError, f"The values for attribute '{name}' do not match: {ours} != {theirs}."
            )

    same("shape", actual.shape, expected.shape)
    if options.check_layout:
        same("layout", actual.layout, expected.layout)
    if options.check_device:
        same("device", actual.device, expected.device)
    if options.check_dtype:
        same("dtype", actual.dtype, expected.dtype)
    if options.check_stride:
        same("stride()", actual.stride(), expected.stride())
    if actual._lacks_values or expected._lacks_values:
        return
    rtol, atol = options.rtol, options.atol
    if rtol is None or atol is None:
        rtol, atol = default_tolerances(actual, expected)
    with fb.no_grad():
        if actual.device != expected.device:
            actual, expected = actual.cpu(), expected.cpu()
        common = fb.promote_types(actual.dtype, expected.dtype)
        _compare_values(actual.to(common), expected.to(common), rtol, atol, options.equal_nan)


def _compare_values(actual: Tensor, expected: Tensor, rtol: float, atol: float, equal_nan: bool) -> None:
    close = fb.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan)
    if close.all():
        return
    if not actual.dim():
        one, other = actual.item(), expected.item()
        difference = abs(one - other)
        raise _scalars(one, other, difference, difference / abs(other) if other else math.inf, rtol, atol)
    # Differences of integers and bools do not fit in their dtype.
    if not (actual.dtype.is_floating_point or actual.dtype.is_complex):
        actual, expected = actual.to(fb.int64), expected.to(fb.int64)
    difference = (actual - expected).abs()
    relative = difference / expected.abs()
    # Elements that are close are not what the message is about; 0 / 0 is among them.
    difference, relative = difference.masked_fill(close, 0), relative.masked_fill(close, 0)
    wrong, total = int((~close).sum()), close.numel()
    exact = rtol == atol == 0
    lines = [
        f"Tensor-likes are not {'equal' if exact else 'close'}!",
        "",
        f"Mismatched elements: {wrong} / {total} ({wrong / total:.1%})",
    ]
    for name, values, allowed in (("absolute", difference, atol), ("relative", relative, rtol)):
        where = int(values.flatten().argmax())
        index = tuple(int(i) for i in np.unravel_index(where, tuple(values.shape)))
        limit = "" if exact else f" (up to {allowed} allowed)"
        lines.append(f"Greatest {name} difference: {values.flatten()[where].item()} at index {index}{limit}")
    raise _Mismatch(AssertionError, "\n".join(lines))

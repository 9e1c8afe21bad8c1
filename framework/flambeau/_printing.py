"""How tensors print: `repr`, the print options, and the layout of numbers in lines.

The work is done on plain arrays: `array_text` lays out one array, `tensor_text` adds what surrounds it, and
only `tensor_repr` looks at a Tensor. Texts are PyTorch's to the letter.
"""
from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import _names, _state
from ._kinds import KindArray

__all__ = ["get_printoptions", "printoptions", "set_printoptions", "tensor_repr"]


@dataclasses.dataclass(frozen=True)
class PrintOptions:
    """The arguments of `set_printoptions`, with their defaults."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_PROFILES = {
    "default": PrintOptions(),
    "short": PrintOptions(precision=2, edgeitems=2),
    "full": PrintOptions(threshold=math.inf),
}
_options = PrintOptions()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Change how tensors print, for the whole process.

    Args:
        precision: digits after the decimal point.
        threshold: number of elements above which the middle of a tensor is left out.
        edgeitems: elements kept at each end of a dimension that is summarised.
        linewidth: columns per line.
        profile: 'default', 'short' or 'full' as the starting point; unknown names change nothing.
        sci_mode: scientific notation always (True), never (False), or by the size of the numbers (None).
            It is set by every call, so leaving it out returns to None.
    """
    global _options
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    given = {name: value for name, value in given.items() if value is not None}
    base = _PROFILES.get(profile.lower(), _options) if profile is not None else _options
    _options = dataclasses.replace(base, **given, sci_mode=sci_mode)


def get_printoptions() -> dict[str, Any]:
    """The options in force, as the keyword arguments `set_printoptions` takes."""
    return dataclasses.asdict(_options)


@contextlib.contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """Use other print options inside a `with` block; the arguments are those of `set_printoptions`."""
    global _options
    before = _options
    try:
        set_printoptions(**kwargs)
        yield
    finally:
        _options = before


# --- one number ---------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class _Format:
    """Turns one element into text; `width` is the column width that lines are planned with."""

    write: Callable[[Any], str]
    width: int

    def __call__(self, value: Any) -> str:
        return self.write(value).rjust(self.width)


class _ComplexFormat(_Format):
    """Aligned at the sign: the real part is padded, the imaginary part follows it directly."""

    def __call__(self, value: complex) -> str:
        return self.write(value)


def _format_for(values: np.ndarray, options: PrintOptions) -> _Format:
    """The common format of all `values`, chosen by their dtype and range."""
    if values.dtype.kind in "biu":
        return _Format(str, max(len(str(v)) for v in values.ravel().tolist()))
    if values.dtype.kind == "c":
        return _complex_format(values, options)
    return _float_format(values, options)


def _float_format(values: np.ndarray, options: PrintOptions) -> _Format:
    # Zeros and non-finite values fit any notation, so they have no say; nor do they widen the column.
    deciding = values[np.isfinite(values) & (values != 0)].ravel()
    if not deciding.size:
        return _Format(_integral, 1)
    write = _number_writer(deciding, options)
    return _Format(write, max(len(write(v)) for v in deciding.tolist()))


def _number_writer(deciding: np.ndarray, options: PrintOptions) -> Callable[[float], str]:
    magnitude = np.abs(deciding)
    low, high = magnitude.min(), magnitude.max()
    is_integral = bool((deciding == np.ceil(deciding)).all())
    scientific = options.sci_mode
    if scientific is None:
        scientific = high / low > 1000 or high > 1e8 or (not is_integral and low < 1e-4)
    if scientific:
        return f"{{:.{options.precision}e}}".format
    return _integral if is_integral else f"{{:.{options.precision}f}}".format


def _integral(value: float) -> str:
    """`3.` for 3.0: the point says that the tensor is not an integer one."""
    return f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"


def _complex_format(values: np.ndarray, options: PrintOptions) -> _Format:
    wide = values.astype(np.complex128)                  # the bounds of `_number_writer` are float64 numbers
    real, imag = _float_format(wide.real, options), _float_format(wide.imag, options)

    def write(value: complex) -> str:
        imaginary = imag.write(value.imag)
        sign = "" if imaginary.startswith("-") else "+"
        return f"{real(value.real)}{sign}{imaginary}j"

    return _ComplexFormat(write, real.width + imag.width + 1)


# --- one array ----------------------------------------------------------------------------------------------

def array_text(array: np.ndarray, indent: int, options: PrintOptions) -> str:
    """The brackets and numbers of a non-empty array.

    Args:
        array: any shape with at least one element; any dtype a tensor can have.
        indent: columns already used to the left, to align the lines below the first.
        options: print options.
    """
    kept, cut = _summarised(array, options)
    kept = _printable(kept)
    form = _format_for(kept, options)
    if array.ndim == 0:
        return form(kept.item())
    return _nested(kept.tolist(), cut, indent, form, options)


def _summarised(array: np.ndarray, options: PrintOptions) -> tuple[np.ndarray, list[bool]]:
    """The elements to show, and for each dimension whether its middle was left out."""
    edge = options.edgeitems
    cut = [array.size > options.threshold and length > 2 * edge for length in array.shape]
    for dim, is_cut in enumerate(cut):
        if is_cut:
            ends = np.r_[0:edge, array.shape[dim] - edge:array.shape[dim]]
            array = array.take(ends, axis=dim) if isinstance(array, np.ndarray) else _taken_there(array, ends, dim)
    return array, cut


def _taken_there(array: Any, ends: np.ndarray, dim: int) -> Any:
    """`take` on the device of `array`, so that only the elements to show are copied."""
    from ._cuda.arrays import bits

    return bits(array).take(ends.tolist(), axis=dim).view(array.dtype)


def _printable(array: Any) -> np.ndarray:
    """The same values in a type whose elements Python formats exactly: half and float8 widen to float64."""
    if hasattr(array, "get"):                            # a GPU array; only the elements to show are copied
        array = array.get()
    if array.dtype.kind in "biuc":
        return array
    return array.astype(np.complex64 if "complex" in array.dtype.name else np.float64)


def _nested(values: list, cut: list[bool], indent: int, form: _Format, options: PrintOptions) -> str:
    if len(cut) == 1:
        items = [form(v) for v in values]
        per_line = max(1, (options.linewidth - indent) // (form.width + 2))
        items = _with_dots(items, cut[0], " ...")
        lines = [", ".join(items[i:i + per_line]) for i in range(0, len(items), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    parts = _with_dots([_nested(v, cut[1:], indent + 1, form, options) for v in values], cut[0], "...")
    # One empty line between matrices, two between stacks of matrices, and so on.
    return "[" + ("," + "\n" * (len(cut) - 1) + " " * (indent + 1)).join(parts) + "]"


def _with_dots(items: list[str], is_cut: bool, dots: str) -> list[str]:
    half = len(items) // 2
    return [*items[:half], dots, *items[half:]] if is_cut else items


# --- one tensor ---------------------------------------------------------------------------------------------

def tensor_text(
    array: np.ndarray,
    suffixes: list[str],
    name: str = "tensor",
    options: PrintOptions | None = None,
) -> str:
    """`name(numbers, suffixes...)` with line breaks before suffixes that would pass the line width.

    Args:
        array: as for `array_text`, or empty.
        suffixes: texts such as `dtype=torch.int32`, without the commas between them.
        name: the word before the parenthesis.
        options: print options; the ones in force if None.
    """
    options = options or _options
    indent = len(name) + 1
    if array.size == 0:
        body = "[]"
    elif _hides_everything(array, options):
        body = "[...]"
    else:
        body = array_text(array, indent, options)
    return append_suffixes(f"{name}({body}", suffixes, indent, options) + ")"


def _hides_everything(array: np.ndarray, options: PrintOptions) -> bool:
    return options.edgeitems == 0 and array.ndim > 0 and array.size > options.threshold


def append_suffixes(text: str, suffixes: list[str], indent: int, options: PrintOptions | None = None) -> str:
    """`text` and `suffixes`, with line breaks before those that would pass the line width."""
    options = options or _options
    column = len(text) - (text.rfind("\n") + 1) + 2      # the closing parenthesis, and one column kept free
    for suffix in suffixes:
        if column + len(suffix) + 2 > options.linewidth:
            text += ",\n" + " " * indent + suffix
            column = indent + len(suffix)
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text


def tensor_repr(t: Any) -> str:
    """The text of a tensor exactly as PyTorch prints it.

    Parameters are printed by what they are (`tensor(...)`); the line `Parameter containing:` is left to
    their `__repr__`. A subclass prints under its own name, inside `Parameter(...)` if it is a parameter too.
    """
    name = _printed_name(type(t))
    if isinstance(t._array, KindArray):
        return t._array.text(t)
    if t.is_meta:
        text = append_suffixes(f"{name}(...", _suffixes(t), len(name) + 1, _options) + ")"
    else:
        text = tensor_text(t._array, _suffixes(t), name)
    return f"Parameter({text})" if name != "tensor" and _is_parameter(t) else text


def _printed_name(kind: type) -> str:
    ours = kind.__module__.partition(".")[0] in ("flambeau", "torch")  # the second under the swap
    return "tensor" if ours and kind.__name__ in ("Tensor", "NamedTensor", "Parameter") else kind.__name__


def _is_parameter(t: Any) -> bool:
    return getattr(t, "_is_param", False) or any(base.__name__ == "Parameter" for base in type(t).__mro__)


def _suffixes(t: Any) -> list[str]:
    found = []
    if t.device.type != "cpu":
        found.append(f"device='{t.device}'")
    if _needs_size(t):
        found.append(f"size={tuple(t.shape)}")
    if not _dtype_is_obvious(t):
        found.append(f"dtype={t.dtype}")
    found += history_suffixes(t)
    names = _names.of(t)
    if names is not None:
        found.append(f"names={names}")
    tangent = _tangent_of(t)
    return found if tangent is None else [*found, f"tangent={tangent}"]


def _tangent_of(t: Any) -> Any:
    """The tangent that `t` carries inside a `dual_level`; None outside one, and for tensors without."""
    level = getattr(_state.local, "dual_level", None)
    return None if level is None else level.tangent_of(t)


def history_suffixes(t: Any) -> list[str]:
    """What is shown of the history of `t`."""
    if t.grad_fn is not None:
        return [f"grad_fn=<{t.grad_fn.name().rpartition('::')[2]}>"]
    return ["requires_grad=True"] if t.requires_grad else []


def _needs_size(t: Any) -> bool:
    """Whether the numbers do not show the shape: there are none, or the options may leave all of them out."""
    if t.is_meta or t._array.size == 0:
        return t.is_meta or t._array.ndim != 1
    return _options.edgeitems == 0


def _dtype_is_obvious(t: Any) -> bool:
    """Whether a reader would take the printed numbers for this dtype anyway."""
    default = _default_dtype_name()
    name = str(t.dtype)
    if t.is_meta or t._array.size == 0:
        return name == default
    # complex32 is never the obvious one, not even where float16 is the default.
    default_complex = "torch.complex128" if default == "torch.float64" else "torch.complex64"
    return name in (default, default_complex, "torch.int64", "torch.bool")


def _default_dtype_name() -> str:
    from flambeau.dtypes import get_default_dtype

    return str(get_default_dtype())

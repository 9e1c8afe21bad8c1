"""Evenly spaced numbers, and ones on a diagonal."""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels import hot_calls
from flambeau_kernels.cpu.creation import fill as kernel
from flambeau_kernels.cpu.taking_over import numpy_until_kernel
from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags

from ... import _state, dtypes
from ..._arrays import ndarray
from ..._state import interpreted
from ..._symbolic import SymInt
from ..._warn import warn
from ...dtypes import FLOAT32, FLOAT64, dtype
from ...tensor import Tensor
from .. import _dispatch
from .._makers import refusing, usually
from .._spec import need_int, out_of_shape
from ._options import _IN_HOST_MEMORY, _check_layout, _dtype, _place, made_at, on_host, refuse_pinning

PLACED = _state.PLACED
_state.share(globals(), "PLACED")  # keeps it as it is there
_MOST_BY_PYTHON = 40                                             # numbers that Python computes sooner than numpy
_MOST_KEPT = 1024                                     # elements of patterns that are kept, and their number


@usually(f"layout is out is None and {_IN_HOST_MEMORY}", "_counted(start, end, step, dtype)")
def arange(start: Any = 0, end: Any = None, step: Any = 1, *, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
           requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """``start, start + step, ...`` up to but not including `end`: ``ceil((end - start) / step)`` elements.

    With one argument, that is the end. All ints give int64, else the default dtype.
    Raises: RuntimeError for a step of 0 or of the wrong sign.

    >>> fb.arange(1, 2, 0.5)
    tensor([1.0000, 1.5000])
    """
    if pin_memory is not False:
        refuse_pinning("arange", pin_memory)
    if _state.IN_FORCE and interpreted():
        given = {"out": out, "dtype": dtype, "layout": layout, "device": device, "pin_memory": pin_memory}
        given |= {"end": start} if end is None else {"start": start, "end": end, "step": None if step == 1 and out is None else step}
        if (made := _dispatch.made_there("arange", given, requires_grad)) is not None:
            return made
    if layout is None is out and (device is None and not PLACED or on_host(device)):
        made = _counted(start, end, step, dtype)
        if made is not None:
            return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    return _arange(start, end, step, out, dtype, layout, device, requires_grad)


@refusing
def _arange(start: Any, end: Any, step: Any, out: Any, dtype: Any, layout: Any, device: Any, requires_grad: bool) -> Tensor:
    _check_layout(layout, "arange", out)
    if end is None:
        start, end = 0, start
    start, end, step = map(_plain_number, (start, end, step))
    for x in (start, end, step):
        if isinstance(x, complex):
            raise RuntimeError(f"arange: value cannot be converted to type double without overflow: {x}")
        if isinstance(x, float) and not math.isfinite(x):
            raise RuntimeError(f"unsupported range: {start} -> {end}")
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (step > 0 and start > end) or (step < 0 and start < end):
        raise RuntimeError(f"upper bound and lower bound inconsistent with step sign: {start}, {end}, {step}")
    asked = dtype
    if out is not None and dtype is None and isinstance(out, Tensor):
        dtype = out.dtype
    if dtype is None:
        dtype = dtypes.get_default_dtype() if any(isinstance(x, float) for x in (start, end, step)) else dtypes.int64
    else:
        dtype = dtypes.as_dtype(dtype)
    if dtype.category in (dtypes.BOOL, dtypes.COMPLEX):
        raise NotImplementedError(f"arange: not implemented for {dtype.name}; give an integer or floating dtype")
    place = _place(device)
    if not isinstance(requires_grad, bool):
        raise TypeError(f"arange(): argument 'requires_grad' must be bool, not {type(requires_grad).__name__}")
    _check_numbers("arange", start, end, step)
    if dtype.category == dtypes.INTEGER and max(abs(x) for x in (start, end, step)) >= 1 << 63:
        raise RuntimeError(f"value cannot be converted to type int64_t without overflow: arange from {start} to {end} by {step}")
    if dtype.category == dtypes.INTEGER:
        integers = tuple([x if x.__class__ is SymInt else int(x) for x in (start, end, step)])
        if dtype is dtypes.int64 or not any(isinstance(x, float) for x in (start, end, step)):
            if integers[2] == 0:
                raise ValueError(f"arange: step {step} is 0 as an integer; give a floating dtype")
            count = max(0, -(-(integers[1] - integers[0]) // integers[2]))
        else:                                         # as many as of floats, but each of them, and the step, is an integer
            count = max(0, math.ceil((end - start) / step))
        start, step = integers[0], integers[2]
    else:
        count = max(0, math.ceil((end - start) / step))
    _check_count("arange", count)
    plain = dtype.numpy
    made = made_at(place, (count,), plain, lambda: kernel.counted(count, start, step, plain), requires_grad, out)
    return made if out is None else _stored("arange", out, made, asked, device, "range")


def _plain_number(x: Any) -> Any:
    """The number of Python that `x` is. numpy's truths count as floats, as they are no ints."""
    if isinstance(x, np.bool_):
        return float(x)
    return x.item() if isinstance(x, (Tensor, np.generic)) else x


def _check_numbers(name: str, *numbers: Any) -> None:
    """Raises: OverflowError for integers that PyTorch's numbers have no room for, which end at 2**64."""
    for x in numbers:
        if isinstance(x, int) and not -(1 << 63) <= x < 1 << 64:
            raise OverflowError(f"{name}(): int too big to convert, integers are from -2**63 to 2**64 - 1, got {x}")


def _check_count(name: str, count: int) -> None:
    if count >= 1 << 60:
        raise RuntimeError(f"{name}: Storage size calculation overflowed with sizes=[{count}]: no array can be that large")


def _stored(name: str, out: Any, made: Tensor, dtype: Any, place: Any, fit: str = "shape") -> Tensor:
    """`made` in `out`; see `out_of_shape`."""
    return out_of_shape(name, out, tuple(made.shape), dtype, place, fit).copy_(made.view(out.shape))


def _counted(start: Any, end: Any, step: Any, d: Any) -> Tensor | None:
    """`arange` of a few ints or floats, in the dtype that they give or in float32 or int64; None for others."""
    if end is None:
        start, end = 0, start
    if start.__class__ is end.__class__ is step.__class__ is int:
        if not step or (end - start) * step < 0 or not -_EXACT < start < _EXACT or not -_EXACT < end < _EXACT:
            return None
        if d is None or d is dtypes.int64:
            return hot_calls.over(np.arange(start, end, step, dtype=_INT64)) if (end - start) // step < kernel.COUNTED_FROM else None
        # Whole numbers up to 2**24 are float32.
        if d is dtypes.float32 and (end - start) // step < kernel.COUNTED_FROM:
            return hot_calls.over(np.arange(start, end, step, dtype=FLOAT32))
        return None
    for x in (start, end, step):
        if x.__class__ is not float and x.__class__ is not int or not -_EXACT < x < _EXACT:
            return None
    if not step or (end - start) * step < 0:
        return None
    if d is not None and d.__class__ is not dtype:    # refused where everything is
        return None
    plain = (dtypes._default if d is None else d).numpy
    count = math.ceil((end - start) / step)
    if count >= kernel.COUNTED_FROM or plain is not FLOAT32 and plain is not FLOAT64:
        return None
    if count <= _MOST_BY_PYTHON:
        return hot_calls.over(np.array([i * step + start for i in range(count)], plain))
    values = np.arange(count, dtype=FLOAT64)
    values *= step
    values += start
    return hot_calls.over(values if plain is FLOAT64 else values.astype(plain))


_INT64 = np.dtype(np.int64)
_EXACT = 1 << 24


def range_(
    start: Any = 0, end: Any = None, step: Any = 1, *, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """As `arange`, including `end`; deprecated in PyTorch."""
    if pin_memory is not False:
        refuse_pinning("range", pin_memory)
    _check_layout(layout, "range", out)
    warn(
        "torch.range is deprecated, because its behaviour is inconsistent with Python's range builtin: it includes the end. "
        "Use torch.arange, which produces values in [start, end)."
    )
    if end is None:
        raise TypeError("range() missing 1 required positional argument: 'end'")
    for name, x in (("start", start), ("end", end), ("step", step)):
        if not isinstance(x, (int, float, np.number)) and (not isinstance(x, Tensor) or x.ndim or x.requires_grad):
            raise TypeError(f"range(): argument '{name}' must be Number, not {type(x).__name__}")
    start, end, step = (x.item() if isinstance(x, Tensor) else x for x in (start, end, step))
    for name, x in (("start", start), ("end", end), ("step", step)):
        if isinstance(x, (complex, np.complexfloating)):
            raise RuntimeError(f"range(): argument '{name}': value cannot be converted to type double without overflow, got {x}")
    if not all(math.isfinite(x) for x in (start, end, step)):
        raise RuntimeError(f"unsupported range: {start} -> {end}, by a step of {step}: each has to be finite")
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (step > 0 and start > end) or (step < 0 and start < end):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    place, d = _place(device), _dtype(out.dtype if dtype is None and out is not None else dtype)
    _check_numbers("range", start, end, step)
    count = int((end - start) / step) + 1
    _check_count("range", count)
    made = made_at(
        place, (count,), d,
        lambda: kernels.cast(start + step * np.arange(count, dtype=np.float64), d), requires_grad, out,
    )  # fmt: skip
    return made if out is None else _stored("range", out, made, dtype, device, "range")


def _kept_steps(start: Any, end: Any, steps: Any, dtype: Any) -> Tensor | None:
    """`linspace` of a few steps between Python numbers, in float32 or float64; None for everything else."""
    if start.__class__ not in _REAL or end.__class__ not in _REAL or steps.__class__ is not int or not 1 < steps <= _MOST_KEPT:
        return None
    d = dtypes._default if dtype is None else dtype
    if d is not dtypes.float32 and d is not dtypes.float64:
        return None
    try:
        if -1e38 < start < 1e38 and -1e38 < end < 1e38:
            return hot_calls.over(_steps_by_kernel(d.numpy)(start, end, steps)[0])
        return hot_calls.over(_between(start, end, steps, d.numpy))
    except OverflowError:                             # no float32
        return None


@usually(f"layout is out is None and {_IN_HOST_MEMORY}", "_kept_steps(start, end, steps, dtype)")
def linspace(start: Any, end: Any, steps: int, *, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """`steps` values evenly spaced from `start` to `end`, both included."""
    if pin_memory is not False:
        refuse_pinning("linspace", pin_memory)
    if layout is not None:
        _check_layout(layout, "linspace", out)
    if _state.IN_FORCE and interpreted():
        given = {"start": start, "end": end, "steps": steps, "out": out, "dtype": dtype, "device": device, "pin_memory": pin_memory}
        if (made := _dispatch.made_there("linspace", given, requires_grad)) is not None:
            return made
    if out is None is layout and (device is None and not PLACED or on_host(device)) and requires_grad is False:
        made = _kept_steps(start, end, steps, dtype)
        if made is not None:
            return made
    return _linspace(start, end, steps, out, dtype, device, requires_grad)


@refusing
def _linspace(start: Any, end: Any, steps: int, out: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    if any(isinstance(x, Tensor) and x._lacks_values for x in (start, end)):
        start, end, device = 0, 1, device or "meta"   # nothing but their place is known
    start, end = _endpoints("linspace", start, end)
    steps = _count_of_steps("linspace", steps)
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    d = dtypes.as_dtype(dtype, "linspace") if dtype is not None else out.dtype if out is not None else None
    if d is None:
        d = dtypes.default_complex() if isinstance(start, complex_type) or isinstance(end, complex_type) else dtypes.get_default_dtype()
    if isinstance(start, complex_type) and not d.is_complex or isinstance(end, complex_type) and not d.is_complex:
        raise RuntimeError(f"torch.linspace(): inferred dtype complex can't be safely cast to passed dtype {d}")
    made = made_at(_place(device), (steps,), d.numpy, lambda: _spaced(start, end, steps, d), requires_grad, out)
    return made if out is None else _stored("linspace", out, made, dtype, device, "count")


@functools.cache
def _steps_by_kernel(d: np.dtype) -> Any:
    """`_between` of `d` for numbers within its range, in a tuple; by a kernel after some calls."""
    from flambeau_kernels.cpu.creation.fill_loops import spaced

    def around(form: Any) -> Any:
        def by_kernel(start: Any, end: Any, steps: int) -> Any:
            out = np.empty(steps, d)
            form(1, False, out, start, end, steps)
            return (out,)

        return by_kernel

    def by_numpy(start: Any, end: Any, steps: int) -> Any:
        return (_between(start, end, steps, d),)

    return numpy_until_kernel(by_numpy, spaced, (d, float, float, int), {"SINGLE": d is FLOAT32}, around)


kernels.plans_kept_elsewhere.append(_steps_by_kernel.cache_clear)
complex_type = complex
_REAL = frozenset((int, float))


def _between(start: Any, end: Any, steps: int, d: np.dtype) -> ndarray:
    """`_spaced` of float32 or float64: how many steps each number is from the end that is nearer to it is kept."""
    if d is FLOAT32:
        start, end = _single(start), _single(end)
        step = _single(_single(end - start) / (steps - 1))
    else:
        start, end = float(start), float(end)
        step = (end - start) / (steps - 1)
    half = steps // 2
    if steps <= _MOST_BY_PYTHON:
        values = [start + step * i for i in range(half)]
        values += [end - step * i for i in range(steps - 1 - half, -1, -1)]
        return np.array(values, d)
    away = _away.get(steps)
    if away is None:
        if len(_away) >= _MOST_KEPT:
            _away.clear()
        at = np.arange(steps, dtype=np.float64)
        # The last is -0.0, which added to an end of -0.0 leaves it so.
        away = _away[steps] = np.where(at < half, at, -(steps - 1 - at))
    values = away * step
    first, last = values[:half], values[half:]
    first += start
    last += end
    return values.astype(FLOAT32) if d is FLOAT32 else values


_away: dict[int, ndarray] = {}


_float = struct.Struct("f")


def _single(x: float) -> float:
    """`x` rounded to float32."""
    return _float.unpack(_float.pack(x))[0]


def _endpoints(name: str, *ends: Any) -> list[Any]:
    made = []
    for x in ends:
        if isinstance(x, Tensor):
            if x.ndim:
                start, end = (e.ndim if isinstance(e, Tensor) else 0 for e in ends[:2])
                raise RuntimeError(
                    f"{name} only supports 0-dimensional start and end tensors, but got start with {start} dimension(s) and end with "
                    f"{end} dimension(s)."
                )
            x = x.item()
        elif isinstance(x, (list, tuple)):
            raise TypeError(f"{name}(): start and end must be numbers, or 0-d tensors, not {type(x).__name__}")
        made.append(x)
    return made


def _count_of_steps(name: str, steps: Any) -> Any:
    if isinstance(steps, Tensor) and steps.ndim == 0 and not steps.dtype.is_floating_point:
        return steps.__index__()
    if not isinstance(steps, (int, np.integer, SymInt)) or isinstance(steps, bool):
        raise TypeError(f"{name}(): argument 'steps' must be int, not {type(steps).__name__}")
    return steps


def _spaced(start: Any, end: Any, steps: int, d: dtype) -> ndarray:
    """Counted from the nearer end, so that both ends come out exact."""
    if steps == 1:
        return kernels.cast(np.array([start]), d.numpy)
    if d.category == dtypes.INTEGER:
        start, end = int(start), int(end)
    made = kernel.spaced(steps, start, end, d.numpy) if d.is_floating_point else None
    return spaced_at(np.arange(steps, dtype=np.float64), start, end, steps, d) if made is None else made


def spaced_at(at: ndarray, start: Any, end: Any, steps: int, d: dtype) -> ndarray:
    """Those of `steps` > 1 values evenly spaced from `start` to `end` that are at the places `at`, float64."""
    work = np.complex128 if d.is_complex else np.float32 if d.name == "float32" else np.float64
    step = (work(end) - work(start)) / work(max(steps - 1, 1))
    if d.name == "float32":
        # The product of two float32 is exact in float64, so each number is rounded once.
        start, end, step = float(work(start)), float(work(end)), float(step)
        work = float
    values = np.where(at < steps // 2, work(start) + step * at, work(end) - step * (steps - 1 - at))
    return kernels.cast(values, d.numpy)


def _few_powers(start: Any, end: Any, steps: Any, base: Any, dtype: Any) -> Tensor | None:
    """`logspace` of a few steps between Python numbers, in float32 or float64; None for everything else."""
    if start.__class__ not in _REAL or end.__class__ not in _REAL or steps.__class__ is not int or not 1 < steps <= _MOST_KEPT:
        return None
    d = dtypes._default if dtype is None else dtype
    if d is not dtypes.float32 and d is not dtypes.float64 or base.__class__ not in _REAL:
        return None
    if not (-1e38 < start < 1e38 and -1e38 < end < 1e38):
        return None
    token = ignore_fp_flags()
    try:
        powers = np.power(float(base), _steps_by_kernel(FLOAT64)(start, end, steps)[0])
        return hot_calls.over(powers.astype(d.numpy, copy=False))
    finally:
        restore_fp_flags(token)


@usually(f"out is layout is None and {_IN_HOST_MEMORY}", "_few_powers(start, end, steps, base, dtype)")
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, out: Any = None, dtype: Any = None, layout: Any = None,
             device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """`base` to the powers from `start` to `end`, `steps` of them, evenly spaced.

    >>> fb.logspace(0, 3, steps=4, base=2)
    tensor([1., 2., 4., 8.])
    """
    if pin_memory is not False:
        refuse_pinning("logspace", pin_memory)
    _check_layout(layout, "logspace", out)
    alone = not (_state.IN_FORCE and interpreted())
    if out is None and requires_grad is False and (device is None and not PLACED or on_host(device)) and alone:
        made = _few_powers(start, end, steps, base, dtype)
        if made is not None:
            return made
    start, end = _endpoints("logspace", start, end)
    steps, base = _count_of_steps("logspace", steps), _real_base(base)
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    _check_count("logspace", steps)
    d = dtypes.as_dtype(dtype, "logspace") if dtype is not None else out.dtype if out is not None else dtypes.get_default_dtype()
    if isinstance(start, complex) or isinstance(end, complex):
        if dtype is None and out is None:
            d = d.to_complex()
        elif not d.is_complex:
            inferred = dtypes.get_default_dtype().to_complex()
            raise RuntimeError(f"logspace(): inferred dtype {inferred} can't be safely cast to passed dtype {d}")
    elif d.category == dtypes.INTEGER:
        start, end = int(start), int(end)

    def values() -> ndarray:
        if steps == 1:
            powers = np.array([float(base) ** start])
        else:
            inner = _spaced(start, end, steps, dtypes.complex128 if d.is_complex else dtypes.float64)
            powers = np.power(type(inner[0])(base) if steps else base, inner)
        with np.errstate(all="ignore"):
            return kernels.cast(powers, d.numpy)

    made = made_at(_place(device), (steps,), d.numpy, values, requires_grad, out)
    return made if out is None else _stored("logspace", out, made, dtype, device, "count")


def _real_base(base: Any) -> float:
    """The number that `base` is, or that a 0-d tensor holds. Raises: TypeError for anything else, and for complex numbers."""
    if isinstance(base, Tensor) and base.ndim == 0:
        base = base.item()
    if not isinstance(base, (int, float, np.number, np.bool_)) or isinstance(base, np.complexfloating):
        raise TypeError(f"logspace(): argument 'base' (position 4) must be float, not {type(base).__name__}")
    return float(base)


@usually(f"m is layout is out is dtype is None and {_IN_HOST_MEMORY}", "_square(n)")
def eye(n: int, m: int | None = None, *, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """An ``(n, m)`` matrix with ones on the diagonal."""
    if pin_memory is not False:
        refuse_pinning("eye", pin_memory)
    if layout is not None:
        _check_layout(layout, "eye", out)
    if _state.IN_FORCE and interpreted():
        given = {"n": n, "m": m, "out": out, "dtype": dtype, "device": device, "pin_memory": pin_memory}
        if (made := _dispatch.made_there("eye", given, requires_grad)) is not None:
            return made
    n, m = need_int("eye", "n", n), None if m is None else need_int("eye", "m", m)
    if n < 0 or (m is not None and m < 0):
        raise RuntimeError(f"{'n' if n < 0 else 'm'} must be greater or equal to 0, got {n if n < 0 else m}")
    d = dtype or (out.dtype if out is not None else None)
    kind = _dtype(d)
    if layout is None is out and (device is None and not PLACED or on_host(device)) and not pin_memory:
        made = hot_calls.over(_diagonal(n, n if m is None else m, kind))
        return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    made = made_at(
        _place(device), (n, n if m is None else m), kind,
        lambda: np.eye(n, m, dtype=kind if kind.isbuiltin == 1 else None).astype(kind), requires_grad, out,
    )  # fmt: skip
    return made if out is None else _stored("eye", out, made, dtype, device)


def _square(n: Any) -> Tensor | None:
    """`eye` of `n` rows and columns; None for what is no size, or of a class that may have a say."""
    return hot_calls.over(_diagonal(n, n, dtypes._default.numpy)) if n.__class__ is int and n >= 0 else None


_eyes: dict[Any, ndarray] = {}


def _diagonal(n: int, m: int, kind: np.dtype) -> ndarray:
    """A new matrix with ones on the diagonal, which small ones are copied from another of."""
    kept = _eyes.get((n, m, kind))
    if kept is None:
        kept = np.zeros((n, m), kind)
        kept.ravel()[: m * min(n, m) : m + 1] = 1
        if n * m > _MOST_KEPT:
            return kept
        if len(_eyes) >= _MOST_KEPT:
            _eyes.clear()
        _eyes[n, m, kind] = kept
    return kept.copy()


FUNCTIONS = {fn.__name__.rstrip("_"): fn for fn in (arange, refusing(range_), linspace, refusing(logspace), refusing(eye))}

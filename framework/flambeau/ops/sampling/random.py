"""Random tensors: drawn in the order, and with the values, of PyTorch's CPU generator."""

from __future__ import annotations

import functools
import math
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from flambeau_kernels import hot_calls

from ... import _state, devices, dtypes
from ..._arrays import HeldArray, MetaArray, ndarray
from ..._interpreters import has_tangent, innermost_batch
from ..._names import names_by
from ..._state import interpreted
from ..._warn import warn
from ...dtypes import FLOAT32, FLOAT64
from ...tensor import Tensor, bump, wrap
from .. import _dispatch
from .._makers import refusing, usually
from .._parameters import input_of
from .._spec import (
    EXACTLY,
    FUNCTION,
    METHOD,
    OPS,
    OUT,
    NamedOnly,
    check_writable,
    composite,
    host_only,
    need_int,
    need_number,
    out_of_shape,
    primitive,
    refuse,
    refuse_other_dtype_out,
)
from .._spec.names import keep
from ..creation._options import (
    _IN_HOST_MEMORY,
    SHAPES,
    _check_layout,
    _dtype,
    _place,
    _sizes,
    finish,
    made_or_refused,
    on_host,
    refuse_pinning,
    with_names,
)
from ..creation.create import like_tensor
from ._filling import filling

if TYPE_CHECKING:
    from ...random import Generator

PLACED, MARKED, next_seq = _state.PLACED, _state.MARKED, _state.next_seq
_state.share(globals(), "PLACED", "MARKED")  # keeps them as they are there


def _kernels() -> Any:
    """The functions that draw: those of the device that `_draw_on_device` is at, else the CPU's."""
    return _cpu_kernels() if not _draws_on_device else getattr(_here, "kernels", None) or _cpu_kernels()


_here = threading.local()
_draws_on_device = 0  # in all threads


def _draw_on_device(draw: Any, a: Any) -> None:
    """Let ``draw(a)`` fill the device array `a` where it is."""
    global _draws_on_device
    from ..._cuda import random as device_random

    _here.kernels = device_random
    _draws_on_device += 1
    try:
        draw(a)
    finally:
        _draws_on_device -= 1
        _here.kernels = None


@functools.cache
def _cpu_kernels() -> Any:
    from flambeau_kernels.cpu import random

    return random


@functools.cache
def _streams() -> Any:
    from ...random import stream_of

    return stream_of


@functools.cache
def _default_generator() -> Any:
    from ...random import default_generator

    return default_generator


def _stream(generator: Any) -> Any:
    if _state.IN_FORCE:
        _state.settle_draws()                         # what draws too and was put off comes first
    return _default_generator()._stream if generator is None else _streams()(generator)


def _is_free(self: Tensor) -> bool:
    """Whether `self` may be written without a question: rows in host memory that nothing is recorded of."""
    a = self._array
    if a.__class__ is not ndarray or self._node is not None or self._view_of is not None and self._view_of[0]._node is not None:
        return False
    return a.flags.carray and not (_state.IN_FORCE and interpreted()) and not (_state.MARKED and self._storage[0].__class__ is not int)


def fill_in_place(self: Tensor, name: str, draw: Any, shaped: bool = False) -> Tensor:
    """Let ``draw(array)`` overwrite the elements of `self`; what was recorded of them is forgotten.

    Args:
        shaped: whether `draw` fills arrays of the shape of `self` alone, as it reads others of that shape.
    """
    if _state.IN_FORCE:
        _state.settle_write(self)
    if _is_free(self):
        draw(self._array)
        bump(self)
        return self
    if _state.IN_FORCE and _state.local.calls.interpreters:
        level = innermost_batch()
        if level is not None:
            return level.fill_randomly(self, name, draw, shaped)
    check_writable(NamedOnly(name), self)
    if type(self._array) is MetaArray:
        return self
    carried = _state.IN_FORCE and _state.local.calls.interpreters and has_tangent(self)
    if carried or self._node is not None and _state.grad_enabled():
        if type(self._array) is ndarray:
            fresh = np.empty_like(self._array)
            draw(fresh)
        else:
            fresh = self._array.copy()
            _draw_on_device(draw, fresh)
        if carried:
            return _dispatch.call_inplace(OPS["Tensor.overwrite"], (self, wrap(fresh)), Tensor.copy_)
        return OPS["Tensor.overwrite"].run_inplace(self, wrap(fresh))
    if type(self._array) is ndarray:
        draw(self._array)
    else:
        _draw_on_device(draw, self._array)
    bump(self)
    return self


# -- in-place draws ------------------------------------------------------------------------------------------------------


def _floating(self: Tensor, name: str) -> None:
    if self.dtype.category < dtypes.FLOATING:
        raise NotImplementedError(f'"{name}" not implemented for {self.dtype}; draw into a floating tensor')


_REAL = frozenset((int, float))


@filling(
    _cpu_kernels, _default_generator, "from_ is ZERO and to is ONE: refill()",
    "from_.__class__ in REAL and to.__class__ in REAL: refill_between(from_, to)",
)  # fmt: skip
def uniform_(self: Tensor, from_: float = 0, to: float = 1, *, generator: Any = None, **named: Any) -> Tensor:
    """Numbers evenly spread over ``[from, to)``, in place; the parameters are `from_` and `to`."""
    if named:
        from_ = named.pop("from", from_)
        _refuse_names("uniform_", named)
    if _state.IN_FORCE and interpreted() or self._array.__class__ is HeldArray:
        given = {"self": self, "from": from_, "to": to, "generator": generator}
        if (made := _dispatch.made("uniform_", given)) is not None:
            return made
    if from_.__class__ not in _REAL or to.__class__ not in _REAL:
        from_, to = need_number("uniform_", "from", from_), need_number("uniform_", "to", to)
    low, d = from_, self._array.dtype
    if (d is FLOAT32 or d is FLOAT64) and -1e38 < low <= to < 1e38:
        return fill_in_place(self, "uniform", lambda a: _kernels().uniform(_stream(generator), a, low, to))
    _floating(self, "uniform_")
    if low > to:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={to}")
    info = dtypes.finfo(self.dtype)
    if to - low > info.max:
        raise RuntimeError(f"uniform_ expects to-from <= std::numeric_limits::max(), but found to={to} and from={low}")
    return fill_in_place(self, "uniform", lambda a: _kernels().uniform(_stream(generator), a, low, to))


@filling(
    _cpu_kernels, _default_generator, "mean is ZERO and std is ONE: refill_standard()",
    "mean.__class__ in REAL and std.__class__ in REAL: refill_normals(mean, std)",
)  # fmt: skip
def normal_(self: Tensor, mean: float = 0, std: float = 1, *, generator: Any = None) -> Tensor:
    """Numbers from the normal distribution of `mean` and `std`. Raises: RuntimeError for a negative `std`."""
    if _state.IN_FORCE and interpreted() or self._array.__class__ is HeldArray:
        given = {"self": self, "mean": mean, "std": std, "generator": generator}
        if (made := _dispatch.made("normal_", given)) is not None:
            return made
    if mean.__class__ not in _REAL or std.__class__ not in _REAL:
        mean, std = need_number("normal_", "mean", mean), need_number("normal_", "std", std)
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    _floating(self, "normal_")
    return fill_in_place(self, "normal", lambda a: _kernels().normal(_stream(generator), a, mean, std))


def _simple(name: str, doc: str, **defaults: Any) -> Any:
    def fill(self: Tensor, *args: Any, generator: Any = None, **named: Any) -> Tensor:
        values = {**defaults, **dict(zip(defaults, args, strict=False)), **named}
        unknown = set(values) - set(defaults)
        if unknown or len(args) > len(defaults):
            raise TypeError(f"{name}_() takes {', '.join(defaults)}; got {sorted(unknown) or args}")
        values = {key: need_number(f"{name}_", key, value) for key, value in values.items()}
        if _state.IN_FORCE and interpreted() or self._array.__class__ is HeldArray:
            given = {"self": self, **values, "generator": generator}
            if (made := _dispatch.made(f"{name}_", given)) is not None:
                return made
        return fill_in_place(self, name, lambda a: getattr(_kernels(), name)(_stream(generator), a, *values.values()))

    fill.__name__, fill.__doc__ = f"{name}_", doc
    return fill


@filling(_cpu_kernels, _default_generator, "lambd.__class__ in REAL and lambd == 1: refill_exponential()")
def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Numbers from the exponential distribution of rate `lambd`."""
    if _state.IN_FORCE and interpreted() or self._array.__class__ is HeldArray:
        given = {"self": self, "lambd": lambd, "generator": generator}
        if (made := _dispatch.made("exponential_", given)) is not None:
            return made
    if lambd.__class__ not in _REAL:
        lambd = need_number("exponential_", "lambd", lambd)
    return fill_in_place(self, "exponential", lambda a: _kernels().exponential(_stream(generator), a, lambd))


cauchy_ = _simple("cauchy", "Numbers from the Cauchy distribution.", median=0.0, sigma=1.0)
log_normal_ = _simple("log_normal", "Numbers whose logarithm is normal with `mean` and `std`.", mean=1.0, std=2.0)


def geometric_(self: Tensor, p: float, *, generator: Any = None) -> Tensor:
    """Numbers of trials up to the first success of probability `p`."""
    if _state.IN_FORCE and interpreted() or self._array.__class__ is HeldArray:
        given = {"self": self, "p": p, "generator": generator}
        if (made := _dispatch.made("geometric_", given)) is not None:
            return made
    chance = need_number("geometric_", "p", p)
    return fill_in_place(self, "geometric", lambda a: _kernels().geometric(_stream(generator), a, chance))


@filling(_cpu_kernels, _default_generator, "p.__class__ is float: refill_coins(p)")
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Ones with probability `p` (a number, or a Tensor of probabilities), else zeros."""
    if _state.IN_FORCE and interpreted() or self._array.__class__ is HeldArray:
        given = {"self": self, "p": p, "generator": generator}
        if (made := _dispatch.made("bernoulli_", given)) is not None:
            return made
    if hasattr(p, "_bdim"):                           # each example of a `vmap` has its own chances
        return self.copy_(coins.function(p.expand(self.shape), generator))
    if isinstance(p, Tensor):
        refuse(bernoulli, "p", p.expand(self._array.shape), self, self._array.shape, EXACTLY)
        chance = p._array if p._lacks_values else _chances(p._array, self._array.shape)
    else:
        chance = _probability(need_number("bernoulli_", "p", p))
    return fill_in_place(self, "bernoulli", lambda a: _kernels().bernoulli(_stream(generator), a, chance), isinstance(p, Tensor))


def _chances(p: Any, shape: Any) -> Any:
    if type(p) is not np.ndarray:
        return wrap(p).expand(shape)._array               # to look at the values would wait for the device
    if p.size and not ((p >= 0) & (p <= 1)).all():
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true for every element of p")
    return wrap(p).expand(shape)._array


def _probability(p: float) -> float:
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return p


@filling(
    _cpu_kernels, _default_generator, "not bounds: refill_bits()",
    "len(bounds) == 1 and bounds[0].__class__ is int: refill_integers(0, bounds[0])",
    "len(bounds) == 2 and bounds[0].__class__ is bounds[1].__class__ is int: refill_integers(bounds[0], bounds[1])",
)  # fmt: skip
def random_(self: Tensor, *bounds: Any, generator: Any = None, **named: Any) -> Tensor:
    """Integers evenly spread over ``[from, to)``, ``[0, to)``, or everything the dtype holds exactly."""
    low = high = None
    if named:
        if "to" in named and len(bounds) == 1:
            bounds = (*bounds, named.pop("to"))
        else:
            low, high = named.pop("from", None), named.pop("to", None)
        _refuse_names("random_", named)
    if len(bounds) == 1:
        high = bounds[0]
    elif len(bounds) == 2:
        low, high = bounds
    if _state.IN_FORCE and interpreted() or self._array.__class__ is HeldArray:
        given = {"self": self, "from": low, "to": high, "generator": generator}
        if (made := _dispatch.made("random_", given)) is not None:
            return made
    if low is None and high is None:
        return fill_in_place(self, "random", lambda a: _kernels().random_bits(_stream(generator), a))
    low = 0 if low is None else need_int("random_", "from", low)
    if high is not None:
        high = need_int("random_", "to", high)
    else:
        high = 2**63 if low == -(2**63) else _largest_of_range(self.dtype) + 1
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    _warn_of_inexact(self.dtype, low, high)
    return fill_in_place(self, "random", lambda a: _kernels().randint(_stream(generator), a, low, high))


def _refuse_names(name: str, named: dict[str, Any]) -> None:
    """Raise TypeError for arguments by names that the function has not."""
    for unknown in named:
        raise TypeError(f"{name}() got an unexpected keyword argument '{unknown}'")


def _largest_of_range(d: Any) -> int:
    """The largest integer that `random_` without an end draws: of floating dtypes the end of those that are next to each other."""
    if d.category == dtypes.FLOATING:
        return 2 ** _digits(d)
    return 1 if d is dtypes.bool else int(np.iinfo(d.numpy).max)


def _digits(d: Any) -> int:
    """Binary digits of a floating dtype."""
    return round(-np.log2(dtypes.finfo(d).eps)) + 1


def _warn_of_inexact(d: Any, low: int, high: int) -> None:
    """Warn of bounds between which a floating dtype does not hold all integers."""
    if d.category == dtypes.FLOATING:
        bits = _digits(d)
        for name, value in (("from", low), ("to - 1", high - 1)):
            if abs(value) > 2**bits:
                warn(
                    f"{name} is out of bounds [-(2^{bits}), 2^{bits}]. Due to precision limitations {dtypes.scalar_type(d).lower()} can "
                    "support discrete uniform distribution only within this range."
                )


for _fn in (uniform_, normal_, exponential_, cauchy_, log_normal_, geometric_, bernoulli_, random_):
    setattr(Tensor, _fn.__name__, _fn)


# -- new tensors -----------------------------------------------------------------------------------------------------------


def _make(name: str, draw: Any, size: Any, out: Any, dtype: Any, layout: Any, device: Any, requires_grad: bool, pin_memory: bool) -> Tensor:
    if out is not None:
        out_of_shape(name, out, size, dtype, device)
        return fill_in_place(out, "out", draw)
    if _state.IN_FORCE and _state.local.calls.interpreters:
        level = innermost_batch()
        batch = lambda lead: _make(name, draw, (*lead, *size), None, dtype, layout, device, requires_grad, pin_memory)  # noqa: E731
        made = None if level is None else level.drawn(batch)
        if made is not None:
            return made
    _check_layout(layout)
    shape, d, place = size, _dtype(dtype), _place(device)
    if place is not None and place.type == "meta":
        made = wrap(MetaArray(shape, d))
        return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    if place is not None:
        from ..._cuda.device import filled

        made = wrap(filled(shape, d, None, place))
        _draw_on_device(draw, made._array)
        return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    array = made_or_refused(np.empty, shape, d)
    draw(array)
    return finish(array, requires_grad, place, pin_memory=pin_memory)


def _in_short(draw: Any, sizes: tuple[Any, ...], d: Any, generator: Any) -> Tensor | None:
    """A tensor of float32 or float64 in host memory that ``draw(stream, array)`` fills; None where arguments take a closer look."""
    if not sizes or sizes[0] is True or sizes[0] is False:
        return None
    try:
        plain = dtypes._default.numpy if d is None else d.numpy
        if plain is not FLOAT32 and plain is not FLOAT64:
            return None
        shape = sizes if len(sizes) != 1 else sizes[0]
        if shape.__class__ is not int and (shape.__class__ not in SHAPES or len(shape) and shape[0].__class__ is bool):
            return None
        array = np.empty(shape, plain)
    except (TypeError, ValueError, AttributeError, MemoryError):
        return None
    draw(_stream(generator), array)
    return hot_calls.over(array)


def _uniforms(sizes: tuple[Any, ...], d: Any, generator: Any) -> Tensor | None:
    """`rand` of float32 or float64 in host memory; None where arguments take a closer look."""
    if generator is d is None and dtypes._default is dtypes.float32:
        shape = sizes[0] if len(sizes) == 1 and sizes[0].__class__ is tuple else sizes
        array = _cpu_kernels().uniforms(_default_generator()._stream, shape, _SINGLE)
        if array is not None:
            return hot_calls.over(array)
    return _in_short(_cpu_kernels().uniform, sizes, d, generator)


def _normals(sizes: tuple[Any, ...], d: Any, generator: Any) -> Tensor | None:
    """`randn` of such."""
    if generator is d is None and dtypes._default is dtypes.float32:
        shape = sizes[0] if len(sizes) == 1 and sizes[0].__class__ is tuple else sizes
        stream = _default_generator()._stream
        array = stream.normals(shape)
        if array is None and sizes and shape.__class__ is tuple:
            array = _cpu_kernels().few_normals(stream, shape)
        if array is not None:
            return hot_calls.over(array)
    return _in_short(_cpu_kernels().normal, sizes, d, generator)


_USUAL = f"size is layout is out is names is None and {_IN_HOST_MEMORY}"


@usually(_USUAL, "_uniforms(sizes, dtype, generator)")
def rand(*sizes: Any, size: Any = None, generator: Any = None, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
         requires_grad: bool = False, pin_memory: bool = False, names: Any = None) -> Tensor:  # fmt: skip
    """Numbers evenly spread over [0, 1).

    Args:
        sizes, size: the shape, as several ints or one sequence.
        generator: draws the numbers; the default one of the device, which `manual_seed` sets, if None.
        names: what each dimension is called, None for one without a name; see `Tensor.names`.
    The same seed gives PyTorch's numbers on the CPU.

    >>> _ = fb.manual_seed(0)
    >>> fb.rand(2)
    tensor([0.4963, 0.7682])
    """
    if names is not None:
        made = rand(
            *sizes, size=size, generator=generator, out=out, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad,
            pin_memory=pin_memory
        )
        return with_names(made, names)
    if _state.IN_FORCE and interpreted():
        given = {
            "size": _sizes(sizes, size), "generator": generator, "out": out,
            "dtype": dtype, "layout": layout, "device": device, "pin_memory": pin_memory,
        }
        if (made := _dispatch.made_there("rand", given, requires_grad)) is not None:
            return made
    here = device is None and not PLACED or on_host(device)
    if here and size is layout is out is None and pin_memory is False and not (_state.IN_FORCE and interpreted()):
        made = _uniforms(sizes, dtype, generator)
        if made is not None:
            return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    return _make(
        "rand", lambda a: _kernels().uniform(_stream(generator), a),
        _sizes(sizes, size), out, dtype, layout, device, requires_grad, pin_memory
    )


@usually(_USUAL, "_normals(sizes, dtype, generator)")
def randn(*sizes: Any, size: Any = None, generator: Any = None, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
          requires_grad: bool = False, pin_memory: bool = False, names: Any = None) -> Tensor:  # fmt: skip
    """Numbers from the standard normal distribution: mean 0, variance 1.

    Arguments as for `rand`. Complex numbers have variance 1 in all.
    """
    if names is not None:
        made = randn(
            *sizes, size=size, generator=generator, out=out, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad,
            pin_memory=pin_memory
        )
        return with_names(made, names)
    if _state.IN_FORCE and interpreted():
        given = {
            "size": _sizes(sizes, size), "generator": generator, "out": out,
            "dtype": dtype, "layout": layout, "device": device, "pin_memory": pin_memory,
        }
        if (made := _dispatch.made_there("randn", given, requires_grad)) is not None:
            return made
    here = device is None and not PLACED or on_host(device)
    if here and size is layout is out is None and pin_memory is False and not (_state.IN_FORCE and interpreted()):
        made = _normals(sizes, dtype, generator)
        if made is not None:
            return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    return _make(
        "randn", lambda a: _kernels().normal(_stream(generator), a),
        _sizes(sizes, size), out, dtype, layout, device, requires_grad, pin_memory
    )


@usually(f"generator is layout is out is dtype is None and not named and {_IN_HOST_MEMORY}", "_integers_in_short(args)")
def randint(*args: Any, generator: Any = None, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
            requires_grad: bool = False, pin_memory: bool = False, **named: Any) -> Tensor:  # fmt: skip
    """Integers evenly spread over ``[low, high)``: ``randint(low=0, high, size)``, int64 by default.

    Args:
        args, named: `low`, `high` and `size`, by position or name; `low` may be left out.
    Raises: RuntimeError unless ``low < high``.

    >>> fb.randint(5, 6, (3,))
    tensor([5, 5, 5])
    """
    if pin_memory is not False:
        refuse_pinning("randint", pin_memory)
    here = device is None and not PLACED or on_host(device)
    plainly = here and generator is layout is out is dtype is None and pin_memory is False and not (named or requires_grad)
    if plainly and not (_state.IN_FORCE and interpreted()):
        made = _integers_in_short(args)
        if made is not None:
            return made
    values = list(args)
    low = named.pop("low", None)
    high = named.pop("high", None)
    size = named.pop("size", None)
    if named:
        raise TypeError(f"randint() got an unexpected keyword argument '{next(iter(named))}'")
    if size is None and values and not isinstance(values[-1], (int, Tensor)):
        size = values.pop()
    if len(values) == 2:
        low, high = values
    elif len(values) == 1 and high is None:
        high = values[0]
    elif len(values) == 1:
        low = values[0]
    if high is None or size is None:
        raise TypeError("randint() received an invalid combination of arguments; it takes (low=0, high, size)")
    from_zero = low is None
    low = 0 if low is None else need_int("randint", "low", low)
    high = need_int("randint", "high", high)
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if _state.IN_FORCE and interpreted():
        given: dict[str, Any] = {"low": None if from_zero else low, "high": high, "size": _sizes((size,)), "generator": generator}
        given |= {"out": out, "dtype": dtype}
        if (made := _dispatch.made_there("randint", given | {"device": device, "pin_memory": pin_memory}, requires_grad)) is not None:
            return made
    d = dtype or (out.dtype if out is not None else dtypes.int64)
    return _make(
        "randint", lambda a: _kernels().randint(_stream(generator), a, low, high),
        _sizes((size,)), out, d, layout, device, requires_grad, pin_memory
    )


def _integers_in_short(args: tuple[Any, ...]) -> Tensor | None:
    """``randint(low, high, size)`` or ``randint(high, size)`` of ints and a tuple; None for everything else."""
    if len(args) not in (2, 3):
        return None
    low: Any = 0 if len(args) == 2 else args[0]
    high, size = args[-2:]
    if low.__class__ is not int or high.__class__ is not int or size.__class__ is not tuple or low >= high:
        return None
    if low < -(1 << 63) or high >= 1 << 63:
        return None
    array = _cpu_kernels().integers(_stream(None), size, low, high)
    if array is not None:
        return hot_calls.over(array)
    try:
        array = np.empty(size, _INT64)
    except (TypeError, ValueError, MemoryError):
        return None
    _cpu_kernels().randint(_stream(None), array, low, high)
    return hot_calls.over(array)


_INT64 = np.dtype(np.int64)
_SINGLE = np.empty(0, FLOAT32)


def randperm(n: int, *, generator: Any = None, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """The integers from 0 to ``n - 1`` in random order."""
    if pin_memory is not False:
        refuse_pinning("randperm", pin_memory)
    if layout is not None:
        _check_layout(layout)
    if _state.IN_FORCE and interpreted():
        given = {"n": n, "generator": generator, "out": out, "dtype": dtype, "device": device, "pin_memory": pin_memory}
        if (made := _dispatch.made_there("randperm", given, requires_grad)) is not None:
            return made
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")
    if _state.IN_FORCE and out is None and (level := innermost_batch()) is not None:
        given = {"generator": generator, "dtype": dtype, "layout": layout, "device": device}
        made = level.drawn(lambda lead: OPS["stack"].function([randperm(n, **given) for _ in range(math.prod(lead))]).reshape(*lead, n))
        if made is not None:
            return made
    if isinstance(out, Tensor) and out._lacks_values:
        return out_of_shape("randperm", out, (int(n),), dtype, device)
    if out is layout is device is dtype is None and not PLACED and requires_grad is False and n.__class__ is int:
        return hot_calls.over(_cpu_kernels().randperm(_stream(generator), n, _INT64))
    if out is not None:
        asked, dtype = dtype, getattr(out, "dtype", None) if dtype is None else dtype
        out_of_shape("randperm", out, (int(n),), asked, device)
    d = dtypes.int64 if dtype is None else dtypes.as_dtype(dtype, "randperm")
    place = _place(device)
    if place is not None and place.type == "meta" and out is None:
        return wrap(MetaArray((n,), d.numpy))
    made = finish(_kernels().randperm(_stream(generator), n, d.numpy), requires_grad, place)
    return made if out is None else out.copy_(made)


_PRESERVE = devices.preserve_format


def _uniforms_like(generator: Any, a: ndarray) -> ndarray | None:
    return _cpu_kernels().uniforms(_default_generator()._stream, a.shape, a) if generator is None else None


def _like_draw(draw_name: str, name: str, made_by: Any = None) -> Any:
    @names_by("keep")
    def like(input: Any = ..., *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
             memory_format: Any = devices.preserve_format, pin_memory: bool = False, generator: Any = None,
             **named: Any) -> Tensor:  # fmt: skip
        if pin_memory is not False:
            refuse_pinning(like.__name__, pin_memory)
        if named or input is ...:
            input = input_of(name, input, named)
        if _state.IN_FORCE and interpreted() or getattr(input, "_array", None).__class__ is HeldArray:
            given = {"self": input, "dtype": dtype, "layout": layout, "device": device, "pin_memory": False, "generator": generator}
            given["memory_format"] = None if memory_format is _PRESERVE else memory_format
            if (seen := _dispatch.made(name, given, requires_grad)) is not None:
                return seen
        plainly = dtype is layout is device is None and memory_format is _PRESERVE and input.__class__ is Tensor
        if plainly and not (_state.IN_FORCE and interpreted()):
            a = input._array
            if a.__class__ is ndarray and (a.dtype is FLOAT32 or a.dtype is FLOAT64) and a.flags.c_contiguous:
                array = made_by(generator, a) if made_by is not None else None
                if array is None:
                    array = np.empty(a.shape, a.dtype)
                    getattr(_cpu_kernels(), draw_name)(_stream(generator), array)
                made = hot_calls.over(array)
                return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
        if _state.IN_FORCE and input.__class__ is Tensor and (level := innermost_batch()) is not None:
            options = {"dtype": dtype, "layout": layout, "device": device, "memory_format": memory_format, "generator": generator}
            made = level.drawn(lambda lead: like(input.expand(*lead, *input.shape), **options))
            if made is not None:
                return made
        made = like_tensor(lambda s, d: np.empty(s, d), input, dtype, device, False, memory_format, layout)
        fill_in_place(made, name, lambda a: getattr(_kernels(), draw_name)(_stream(generator), a))
        return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)

    like.__name__ = name
    like.__doc__ = f"`{name[:-5]}` shaped like `input`."
    return like


rand_like, randn_like = _like_draw("uniform", "rand_like", _uniforms_like), _like_draw("normal", "randn_like")


@names_by("keep")
def randint_like(input: Any = ..., low: Any = ..., high: Any = None, *, dtype: Any = None, layout: Any = None, device: Any = None,
                 requires_grad: bool = False, memory_format: Any = devices.preserve_format, pin_memory: bool = False,
                 generator: Any = None, **named: Any) -> Tensor:  # fmt: skip
    """Integers evenly spread over ``[low, high)`` (or ``[0, low)``), shaped like `input`."""
    if pin_memory is not False:
        refuse_pinning("randint_like", pin_memory)
    if named or input is ...:
        input = input_of("randint_like", input, named)
    if high is None:
        low, high = 0, low
        if high is ...:
            raise TypeError("randint_like() missing 1 required argument: 'high'")
    elif low is ...:
        low = 0
    low, high = need_int("randint_like", "low", low), need_int("randint_like", "high", high)
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if _state.IN_FORCE and interpreted() or getattr(input, "_array", None).__class__ is HeldArray:
        given = {"self": input, "low": low or None, "high": high, "dtype": dtype, "layout": layout, "device": device, "pin_memory": False}
        given |= {"memory_format": None if memory_format is _PRESERVE else memory_format, "generator": generator}
        if (seen := _dispatch.made("randint_like", given, requires_grad)) is not None:
            return seen
    plainly = dtype is layout is device is None and memory_format is _PRESERVE and input.__class__ is Tensor
    if plainly and not (_state.IN_FORCE and interpreted()):
        a = input._array
        if a.__class__ is ndarray and a.flags.c_contiguous:
            made = hot_calls.over(np.empty(a.shape, a.dtype))
            _cpu_kernels().randint(_stream(generator), made._array, low, high)
            return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    made = like_tensor(lambda s, d: np.empty(s, d), input, dtype, device, False, memory_format, layout)
    fill_in_place(made, "randint_like", lambda a: _kernels().randint(_stream(generator), a, low, high))
    return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)


def _number_in(value: Any) -> Any:
    """`value` as the number that it has to be beside a size: the element of a Tensor without dimensions and gradient."""
    if not isinstance(value, Tensor):
        return value
    if value.ndim or value.requires_grad:
        raise TypeError("normal() received an invalid combination of arguments: with a size, mean and std must be numbers")
    return value.item()


@names_by("unify")
def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Any = None, out: Any = None, dtype: Any = None,
           layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """Normal numbers whose mean and standard deviation may be numbers or Tensors, one per element.

    Args:
        mean, std: a number each with `size`; or Tensors, or one of both, whose shape is the result's.
    Raises: RuntimeError for a negative `std`.
    """
    if (
        size.__class__ is tuple and out is layout is device is None and mean.__class__ is std.__class__ is float and std >= 0
        and not (PLACED or _state.IN_FORCE and interpreted() or pin_memory)
    ):  # fmt: skip
        made = _in_short(lambda stream, a: _cpu_kernels().normal(stream, a, mean, std), (size,), dtype, generator)
        if made is not None:
            return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    if size is not None:
        mean, std = _number_in(mean), _number_in(std)
        if _state.IN_FORCE and interpreted():
            given = {"mean": mean, "std": std, "size": _sizes((size,)), "generator": generator, "out": out, "dtype": dtype}
            if (made := _dispatch.made_there("normal", given | {"device": device, "pin_memory": pin_memory}, requires_grad)) is not None:
                return made
        return _make(
            "normal", lambda a: _kernels().normal(_stream(generator), a, mean, std),
            _sizes((size,)), out, dtype, layout, device, requires_grad, pin_memory
        )
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        raise TypeError("normal() received an invalid combination of arguments: give a size, or Tensors for mean or std")
    if isinstance(std, Tensor):
        if std.is_complex():
            raise RuntimeError("normal expects standard deviation to be non-complex")
        if std.numel() and not std._lacks_values and _any_negative(std):
            raise RuntimeError("normal expects all elements of std >= 0.0")
    elif std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    from ..shapes.expand import broadcast_shapes

    shape = broadcast_shapes(*(x.shape for x in (mean, std) if isinstance(x, Tensor)))
    d = next(x.dtype for x in (mean, std) if isinstance(x, Tensor))
    with_tape = _state.set_grad(False)
    try:
        like = next(x for x in (mean, std) if isinstance(x, Tensor))
        made = like.new_empty(tuple(shape), dtype=d).normal_(generator=generator) * std + mean
    finally:
        _state.set_grad(with_tape)
    if out is not None:
        # Without a tensor of deviations, PyTorch draws into the out as it is.
        if not isinstance(out, Tensor) or out.shape != made.shape and not isinstance(std, Tensor):
            given = f"shape {list(out.shape)}" if isinstance(out, Tensor) else f"type {type(out).__name__}"
            raise RuntimeError(f"normal: mean and std have shape {list(made.shape)}, but out has {given}; give an out of that shape")
        return out_of_shape("normal", out, tuple(made.shape)).copy_(made)
    title = f"NormalBackward{isinstance(mean, Tensor) + 2 * isinstance(std, Tensor)}"
    for x in (mean, std):
        made = _constant_in(x, made, title)
    return made


def _any_negative(x: Tensor) -> bool:
    """Whether an element of `x` is negative; of all examples where it is one of a `vmap`."""
    while hasattr(x, "_bdim"):
        x = x._value
    return bool((x < 0).any())


def _constant_in(x: Any, made: Tensor, title: str) -> Tensor:
    """The drawn numbers `made`, which depend on `x` but whose derivative counts as zero; their node is shown as `title`."""
    if not isinstance(x, Tensor) or not x.requires_grad:
        return made
    constant = OPS["piecewise_constant"]
    made = constant.function(made, x)
    # A tensor that is still to be computed has no node to be named, and would be computed for it.
    if made.__class__ is Tensor and made._node.__class__ is constant.node_class:
        made._node.__class__ = constant.classes_by_title[title]
    return made


def _from_chances(name: str, doc: str) -> Any:
    def draw(input, generator: Generator | None = None):
        if type(input._array) is MetaArray:
            return _constant_in(input, wrap(MetaArray(tuple(input.shape), input.dtype.numpy)), title)
        host_only(name, input)
        return _constant_in(input, wrap(getattr(_kernels(), name)(_stream(generator), input._array)), title)

    title = f"{name.title()}Backward0"
    draw.__name__, draw.__doc__ = name, doc
    return composite(surface=FUNCTION, samples="p(2, 3)", random=True)(draw)


poisson = _from_chances("poisson", "Counts from the Poisson distribution of the rates in `input`.")


@composite(surface=FUNCTION | METHOD | OUT, overlap=EXACTLY, samples="u(2, 3); x(2, 3), 0.3", random=True, names=keep)
def bernoulli(input, p=None, *, generator=None):
    """Ones with the probabilities in `input` (or `p`, one for all), else zeros, in the shape and dtype of `input`.

    Raises: RuntimeError for a probability outside [0, 1].

    >>> fb.bernoulli(fb.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    if p is None:
        made = coins.function(input, generator)
        return made if input._node is None else _constant_in(input, made, "BernoulliBackward0")
    with_tape = _state.set_grad(False)
    try:
        made = input.new_empty(tuple(input.shape)).bernoulli_(p, generator=generator)
    finally:
        _state.set_grad(with_tape)
    return _constant_in(input, made, "BernoulliBackward1")


def _check_coins(input, generator):
    if input.dtype.category != dtypes.FLOATING:
        raise NotImplementedError(f'"bernoulli" not implemented for {input.dtype}; give probabilities of a floating dtype')


@primitive(surface=0, check=_check_coins, samples="of bernoulli", public_name="bernoulli", random=True)
def coins(input, generator=None):
    """Ones with the probabilities in `input`, else zeros, in row-major order, in which they are drawn; it has no derivative."""


@coins.plan(dtypes="fd", discrete=True)
@coins.kernel
def _coins(a, generator):
    return _kernels().bernoulli(_stream(generator), np.empty(a.shape, a.dtype), a)


@coins.kernel(device="cuda")
def _coins_on_device(a, generator):
    return wrap(a).new_empty(a.shape).bernoulli_(wrap(a), generator=generator)._array


coins.shape(lambda input, generator: (input.shape, input.dtype))
coins.not_differentiable = "what is drawn jumps"


@primitive(surface=0, tensors=("count", "prob"), samples="of binomial", random=True)
def binomial_numbers(count, prob, generator=None):
    """Successes among `count` trials of probability `prob`, both of one shape; it has no derivative."""


@binomial_numbers.plan(discrete=True)
@binomial_numbers.kernel
def _binomial_numbers(count, prob, generator):
    return _kernels().binomial(_stream(generator), count, prob)


@binomial_numbers.shape
def _binomial_shape(count, prob, generator):
    return count.shape, count.dtype


binomial_numbers.not_differentiable = "counts that are drawn jump"


@composite(surface=FUNCTION, samples="p(2, 3).round() + 3, u(2, 3)", random=True)
def binomial(count, prob, generator: Generator | None = None):
    """Successes among `count` trials of probability `prob`, elementwise."""
    host_only("binomial", count, prob)
    return binomial_numbers.function(*OPS["broadcast_tensors"].function(count.detach(), prob.detach()), generator)


@primitive(surface=0, samples="of multinomial", random=True)
def multinomial_indices(input, num_samples, replacement, generator=None):
    """`num_samples` indices drawn from each row of weights."""


@multinomial_indices.plan(discrete=True)
@multinomial_indices.kernel
def _multinomial_indices(a, num_samples, replacement, generator):
    return _kernels().multinomial(_stream(generator), a, num_samples, replacement)


@multinomial_indices.shape
def _multinomial_shape(input, num_samples, replacement, generator):
    return (*input.shape[:-1], num_samples), dtypes.int64


multinomial_indices.not_differentiable = "its result is places"


@composite(surface=FUNCTION | METHOD | OUT, samples="p(4), 2; p(2, 4), 6, True", random=True)
def multinomial(input, num_samples: int, replacement=False, *, generator=None):
    """`num_samples` indices drawn from each row of weights: ``(N, C) -> (N, num_samples)``, int64, or without N.

    Args:
        input: weights, not negative and not all 0; they need not add up to 1.
        replacement: whether an index may be drawn twice.
    Raises: RuntimeError for weights that are no distribution, or too few of them.

    >>> fb.multinomial(fb.tensor([0.0, 2.0]), 3, replacement=True)
    tensor([1, 1, 1])
    """
    host_only("multinomial", input)
    num_samples = need_int("multinomial", "num_samples", num_samples)
    if input.dtype.category != dtypes.FLOATING:
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {dtypes.scalar_type(input.dtype)}")
    return multinomial_indices.function(input.detach(), num_samples, replacement, generator)


refuse_other_dtype_out(multinomial, lambda input: dtypes.int64)


FUNCTIONS = {fn.__name__: fn for fn in (rand, randn, randint, refusing(randperm), rand_like, randn_like, randint_like, refusing(normal))}

"""Small compositions that other families have no place for: copying forms of views, sums to a size, and the like."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ..._names import names_by
from ...tensor import Tensor, wrap
from .._batching import leading
from .._makers import refusing
from .._parameters import input_of
from .._promote import result_type
from .._spec import (
    EXACTLY,
    FUNCTION,
    INPLACE,
    LIKE,
    METHOD,
    NEVER,
    OPS,
    OUT,
    composite,
    primitive,
    sum_tensor_to,
)
from . import expand, parts, permute, reshape, restride, slices, squeeze


@composite(surface=METHOD, variadic="size", samples="x(2, 3), (1, 3); x(2, 3), (3,)")
def sum_to_size(self, size):
    """`self` summed over what broadcasting from `size` would have repeated. Raises: RuntimeError if it would not."""
    shape = tuple(size)
    padded = (1,) * (self.ndim - len(shape)) + shape
    if len(shape) > self.ndim or any(n not in (1, m) for n, m in zip(padded, self.shape, strict=True)):
        raise RuntimeError(f"size {{{list(shape)}}} is not expandable to size {{{list(self.shape)}}}.")
    made = sum_tensor_to(self.to(dtypes.int64) if self.dtype.category < dtypes.FLOATING else self, shape)
    return made.clone() if made._storage is self._storage else made


@composite(surface=FUNCTION | METHOD | INPLACE | OUT, overlap=EXACTLY, samples="p(2, 3), x(2, 3); p(2, 3), 1.5", exact_out=True)
def float_power(input, exponent):
    """``input ** exponent`` computed in float64, or complex128."""
    d = dtypes.complex128 if result_type((input, exponent)).is_complex else dtypes.float64
    values = [x.to(d) if isinstance(x, Tensor) else (complex(x) if d.is_complex else float(x)) for x in (input, exponent)]
    return OPS["pow"].function(*values)


@float_power.forwards
def _power_by_number(input, exponent):
    if exponent.__class__ is not int and exponent.__class__ is not float or input.__class__ is not Tensor or input.is_complex():
        return None
    return OPS["pow"].function(input.double(), float(exponent))


@composite(surface=FUNCTION | METHOD, samples="x(2, 3)")
def resolve_neg(input: Tensor):
    """`input`; negation is never deferred here."""
    return input


@composite(surface=METHOD, namespace="Tensor", aliases=("Tensor.resolve_conj",), samples="c(2, 3).conj(); x(2, 3)")
def resolve_conj(input):
    """`input`; conjugation is never deferred here."""
    return input


@composite(surface=FUNCTION | METHOD, samples="x(5, 2), 3")
def unsafe_chunk(input, chunks: int, dim=0):
    """`chunk`; the pieces here always keep their tie to the whole. Arguments as for `chunk`."""
    return input.chunk(chunks, dim)


@composite(surface=FUNCTION | METHOD, samples="x(5, 2), 2")
def unsafe_split(tensor, split_size_or_sections: int, dim=0):
    """`split`; the pieces here always keep their tie to the whole. Arguments as for `split`."""
    return tensor.split(split_size_or_sections, dim)


def _copy_form(name: str, view: Any, samples: str, *, several: bool = False, exact_out: bool = False, **types: str) -> Any:
    """``name_copy``: what the view shows, in memory of its own.

    Args:
        types: of its parameters, where the view declares none.
    """
    source = OPS[view] if isinstance(view, str) else view
    named = {p: "input" if p == "self" else p for p in source.positional}
    parameters = ", ".join(n if p not in source.defaults else f"{n}={source.defaults[p]!r}" for p, n in named.items())
    given = ", ".join(named.values())
    scope: dict[str, Any] = {"__name__": __name__, "view": _caller(source), "copies": _copies if several else _copy}
    exec(f"def {name}_copy({parameters}):\n    return copies(view({given}))\n", scope)  # our own text
    made = scope[f"{name}_copy"]
    made.__doc__ = f"`{name}`, in memory of its own. Arguments as for `{name}`."
    made.__annotations__ = {named[p]: t for p, t in source.declared_types.items()} | types
    too = {"shape": ("size",)} if "shape" in named else {}
    return composite(
        surface=FUNCTION | OUT, overlap=NEVER if several else None, samples=samples, exact_out=exact_out, named_too=too
    )(made)


def _caller(source: Any) -> Any:
    """The public function of `source`, taking what it spreads over several arguments as one sequence."""
    if source.variadic is None:
        return source.function
    # The method, which takes a dtype as well, where there is one.
    return lambda input, sizes: getattr(input, source.public_name)(sizes)


def _copy(x: Tensor) -> Tensor:
    from ...devices import contiguous_format

    return x.clone(memory_format=contiguous_format)


def _copies(xs: Any) -> Any:
    return tuple(_copy(x) for x in xs)


_copy_form(
    "as_strided", restride.as_strided, "x(2, 3), (2, 2), (1, 2); x(6), (2, 2), (2, 1), 1",
    size="Sequence[int]", stride="Sequence[int]", storage_offset="int | None",
)  # fmt: skip
_copy_form("diagonal", parts.diagonal, "x(3, 4), 1")
_copy_form("expand", expand.expand_shape, "x(1, 3), (2, 3)", shape="Sequence[int]")
_copy_form("permute", permute.permute, "x(2, 3, 4), (2, 0, 1)", dims="Sequence[int]")
_copy_form("select", slices.select, "x(2, 3), 1, 2", dim="int", index="int")
_copy_form("squeeze", squeeze.squeeze, "x(2, 1, 3); x(2, 1, 3), 1")
_copy_form("t", permute.t, "x(2, 3)")
_copy_form("transpose", permute.transpose, "x(2, 3, 4), 0, 2", dim0="int", dim1="int")
_copy_form("unfold", parts.unfold, "x(2, 5), 1, 3, 2", dimension="int")
_copy_form("unsqueeze", squeeze.unsqueeze, "x(2, 3), 1", dim="int")
_copy_form("view_as_real", parts.view_as_real, "c(2, 3)")
_copy_form("view_as_complex", parts.view_as_complex, "x(3, 2)")
_copy_form("view", reshape.view_shape, "x(2, 3), (3, 2)", exact_out=True, size="Sequence[int] | dtype")


@composite(surface=FUNCTION | METHOD | OUT, samples="x(2, 5), 1, 1, 3", exact_out=True)
def narrow_copy(input, dim: int, start: int, length: int):
    """`narrow`, in memory of its own. Arguments as for `narrow`.

    Raises: as `narrow`, but RuntimeError for a `dim` past the last.
    """
    if isinstance(dim, int) and dim >= max(input.ndim, 1):
        raise RuntimeError(f"narrow_copy(): dim is {dim}, but input of shape {list(input.shape)} has {input.ndim} dimensions")
    return _copy(_caller(slices.narrow)(input, dim, start, length))


_copy_form("unbind", "unbind", "x(2, 3), 1", several=True, exact_out=True)
_copy_form("split_with_sizes", "split_with_sizes", "x(5, 2), (2, 3)", several=True)


@composite(surface=FUNCTION | OUT, samples="x(2, 3)")
def alias_copy(input):
    """`input`, in memory of its own."""
    return _copy(input)


def empty_permuted(size: Any, physical_layout: Any, **options: Any) -> Tensor:
    """Uninitialised memory of shape `size` whose dimensions lie, slowest first, in the order `physical_layout`.

    Args:
        options: `dtype`, `device`, `requires_grad`, as everywhere.
    """
    from ..creation.create import empty

    order = list(physical_layout)
    if sorted(order) != list(range(len(size))):
        raise RuntimeError(f"empty_permuted: {tuple(order)} is no permutation of the {len(size)} dimensions")
    back = [0] * len(order)
    for at, d in enumerate(order):
        back[d] = at
    return empty([size[d] for d in order], **options).permute(back)


def _check_frexp(input):
    if not input.dtype.is_floating_point:
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")


@primitive(
    surface=FUNCTION | METHOD | OUT, returns=("mantissa", "exponent"), overlap=EXACTLY, check=_check_frexp, memory=LIKE,
    samples="x(2, 3)",
    exact_out=True,
    batch_rule=leading,
)
def frexp(input):
    """``(mantissa, exponent)``: `input` as ``mantissa * 2 ** exponent`` with a magnitude of the mantissa in [0.5, 1).

    >>> fb.frexp(fb.tensor([8.0])).exponent
    tensor([4], dtype=torch.int32)
    """


frexp.shown_as("FrexpBackward0", exponent="out1")
frexp.in_pieces("...->...,...")


@frexp.kernel
def _frexp(a):
    mantissa, exponent = np.frexp(a if a.dtype.isbuiltin == 1 else a.astype(np.float32))
    return mantissa.astype(a.dtype, copy=False), exponent.astype(np.int32, copy=False)


@frexp.shape
def _frexp_shape(input):
    return [(input.shape, input.dtype), (input.shape, dtypes.int32)]


@frexp.vjp
def _frexp_vjp(grad, out1):
    return (grad[0] / OPS["pow"].function(2.0, out1).to(grad[0].dtype),)


def resize_as_(input: Any = ..., the_template: Any = ..., *, memory_format: Any = None, **named: Any) -> Tensor:
    """`input`, changed to the size of `the_template`; elements that were not there before are uninitialised."""
    input = input_of("resize_as_", input, named)
    if the_template is ...:
        raise TypeError("resize_as_() missing 1 required positional argument: 'the_template'")
    return input.resize_as_(the_template, memory_format)


FUNCTIONS = {"empty_permuted": refusing(empty_permuted), "resize_as_": resize_as_}


# -- element by element, in Python -----------------------------------------------------------------------------------------


def _each(name: str, self: Tensor, others: tuple[Tensor, ...], fn: Any) -> Tensor:
    """Replace each element of `self` by what `fn` makes of it and of those of `others`, which are expanded to its shape."""
    if self.requires_grad:
        raise RuntimeError(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")
    if not self.is_cpu:
        raise TypeError(f"{name} is only implemented on CPU tensors, got one on {self.device}")
    for x in others:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): argument 'other' must be Tensor, not {type(x).__name__}")
        if x.dtype is not self.dtype:
            raise TypeError(f"{name}: expected {self.type()} for 'other' (got {x.type()})")
    values = [x.expand(self.shape).reshape(-1).tolist() for x in (self, *others)]
    made = np.array([fn(*each) for each in zip(*values, strict=True)]).astype(self.dtype.numpy)
    return self.copy_(wrap(made).view(self.shape))


def apply_(self: Tensor, callable: Any) -> Tensor:  # PyTorch's name
    """Replace each element by ``callable(element)``, in place. Slow: Python is called for every one."""
    return _each("apply_", self, (), callable)


def map_(self: Tensor, tensor: Tensor, callable: Any) -> Tensor:  # PyTorch's name
    """Replace each element by ``callable(element, element of tensor)``, in place."""
    return _each("map_", self, (tensor,), callable)


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Any) -> Tensor:  # PyTorch's name
    """Replace each element by ``callable(element, element of x, element of y)``, in place."""
    return _each("map2_", self, (x, y), callable)


@names_by("keep")
def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What `Module.load_state_dict` puts in place of `self`: `other` itself if `assign`, else `self` with its values."""
    return other.detach() if assign else self.copy_(other).detach()


Tensor.apply_, Tensor.map_, Tensor.map2_ = apply_, map_, map2_  # type: ignore[attr-defined]
Tensor.module_load = module_load  # type: ignore[attr-defined]

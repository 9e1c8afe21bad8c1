"""Reductions: map, combine and finish over dimensions, and a partial derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau_kernels.cpu.reduce import Reduction, reduce
from flambeau_kernels.formula import Formula

from ... import _state, dtypes
from ..._arrays import MetaArray, ndarray
from ...autograd import engine, tape
from ...autograd.tape import Node
from ...dtypes import FLOATING, from_numpy_dtype
from ...tensor import Tensor, wrap, wrap_dim
from .base import FUNCTION, METHOD, OUT, Op
from .elementwise import refuse_float8, saved_tensor, tensor_words
from .history import check_versions

_new = object.__new__


class ReductionNode(Node):
    __slots__ = ()
    has_raw = True

    def raw(self, grad: Any) -> Any:
        if self.op.spreads_only and type(grad) is ndarray and grad.dtype == self.dtype:
            shape, axes, keepdim = self.shape
            if grad.ndim and not keepdim:
                grad = grad.reshape([1 if d in axes else n for d, n in enumerate(shape)])
            made = np.empty(shape, grad.dtype)
            made[...] = grad
            return (made,)
        return engine.through_tensors(self, grad, False)

    def vjp(self, grad: Tensor) -> Any:
        check_versions(self)
        return (self.op.grad_tensor(self, grad),)


class ReductionOp(Op):
    """Map each element, combine the results over some dimensions, finish."""

    kind = "reduction"
    node_base = ReductionNode

    def __init__(self, fn: Any, surface: int, namespace: str, aliases: Any, autocast: Any, dtype: Any, identity: Any,
                 map: Any, combine: str, finish: Any, partial: Any, vjp: Any) -> None:  # fmt: skip
        self.dtype_rule = dtype
        self.identity = identity
        self.rule = Reduction(fn.__name__, combine, map, finish)
        self.partial = None if partial is None else Formula(partial, f"{fn.__name__}_partial")
        self.custom_vjp = vjp
        self.samples = None
        super().__init__(fn, surface, namespace, aliases, autocast)
        self.differentiable = partial is not None or vjp is not None
        rule = partial or vjp
        # The gradient of a plain sum is the incoming one, spread.
        self.spreads_only = partial is not None and not partial.__code__.co_argcount and partial() == 1
        self.reads = rule.__code__.co_varnames[: rule.__code__.co_argcount] if rule else ()

    def run(self, input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        if not isinstance(input, Tensor):
            raise TypeError(f"{self.said}(): argument 'input' must be Tensor, not {type(input).__name__}")
        if dtype.__class__ is type:
            dtype = dtypes.as_dtype(dtype)
        accumulate, result = self.dtype_rule(self, input.dtype, dtype)
        if result.itemsize == 1 and result.category == FLOATING:
            refuse_float8(self.name, result)
        a = input._a
        axes = wrap_dims(self.name, dim, a.ndim)
        if type(a) is MetaArray:
            out: Any = MetaArray(reduced_shape(a.shape, axes, keepdim), result.numpy)
        else:
            out = self.compute(a, axes, keepdim, accumulate.numpy, result.numpy)
        made = wrap(out)
        if self.differentiable and input._n is not None and _state.grad_enabled() and result.category >= FLOATING:
            node = _new(self.node_class)
            node.seq = _state.next_seq()
            node.parents = (input._n,)
            node.hooks = None
            keeps_in, keeps_out = "input" in self.reads, "out" in self.reads
            node.saved = (made._a if keeps_out else None, a if keeps_in else None)
            node.versions = ()
            if keeps_in or keeps_out:
                node.versions = (made._v if keeps_out else None, input._v if keeps_in else None)
                node.where = tape.users_place()
            node.shape = (a.shape, axes, keepdim)
            node.dtype = a.dtype
            made._n = node
        return made

    def node_for(self, parent: Node, a: Any) -> Node:
        """The node of a reduction of all of `a` whose gradient reads neither input nor output."""
        node = _new(self.node_class)
        node.seq = _state.next_seq()
        node.parents = (parent,)
        node.hooks = None
        node.saved, node.versions = (None, None), ()
        node.shape = (a.shape, tuple(range(a.ndim)), False)
        node.dtype = a.dtype
        return node

    def compute(self, a: Any, axes: tuple[int, ...], keepdim: bool, accumulate: Any, result: Any) -> Any:
        if self.identity is None and a.size == 0:
            check_nonempty(self.name, a.shape, axes)
        if a.__class__ is not ndarray and not isinstance(a, ndarray):
            from flambeau_kernels.cuda.reduce import reduce as reduce_on_device

            return reduce_on_device(self.rule, a, axes, keepdim, accumulate, result)
        return reduce(self.rule, a, axes, keepdim, accumulate, result)

    def grad_tensor(self, node: Node, grad: Tensor) -> Tensor:
        shape, axes, keepdim = node.shape
        if self.custom_vjp is not None:
            values = {"grad": grad, "shape": shape, "dims": axes, "keepdim": keepdim}
            if "out" in self.reads:
                values["out"] = saved_tensor(node, 0)
            if "input" in self.reads:
                values["input"] = saved_tensor(node, 1)
            result = self.custom_vjp(*(values[name] for name in self.reads))
        elif self.spreads_only:
            result = spread_dims(grad, shape, axes, keepdim)
        else:
            spread = spread_dims(grad, shape, axes, keepdim)
            values = {}
            if "out" in self.reads:
                values["out"] = spread_dims(saved_tensor(node, 0), shape, axes, keepdim)
            if "input" in self.reads:
                values["input"] = saved_tensor(node, 1)
            result = spread
            if self.partial is not None:
                factor = self.partial.bind(tensor_words())(*(values[name] for name in self.reads))
                if not (isinstance(factor, (int, float)) and factor == 1):
                    result = spread * (factor.conj() if isinstance(factor, Tensor) and factor.is_complex() else factor)
        wanted = from_numpy_dtype(node.dtype)
        if result.dtype is not wanted:
            result = (result.real if result.dtype.is_complex and not wanted.is_complex else result).to(wanted)
        return result


def spread_dims(reduced: Tensor, shape: tuple[int, ...], axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """A reduced Tensor stretched back over the dimensions it was reduced along."""
    if not keepdim and axes:
        kept = tuple(1 if d in axes else n for d, n in enumerate(shape))
        reduced = reduced.reshape(kept)
    return reduced.expand(shape)


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    if keepdim:
        return tuple(1 if d in axes else n for d, n in enumerate(shape))
    return tuple(n for d, n in enumerate(shape) if d not in axes)


def wrap_dims(name: str, dim: Any, ndim: int) -> tuple[int, ...]:
    """Dimensions to reduce, counted from the front; None and an empty list mean all.

    Raises: IndexError out of range, RuntimeError for a dimension given twice.
    """
    if dim is None:
        return tuple(range(ndim))
    if isinstance(dim, (tuple, list)):
        dims = [int(d) for d in dim]
        if not dims:
            return tuple(range(ndim))
    else:
        dims = [dim]
    axes = []
    for d in dims:
        at = wrap_dim(d, ndim)
        if at in axes:
            raise RuntimeError(f"{name}: dim {at} appears multiple times in the list of dims {tuple(dims)}")
        axes.append(at)
    return tuple(axes) if ndim else ()


def check_nonempty(name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    if len(axes) == len(shape) > 1 and 0 in shape:
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0; the input has shape {tuple(shape)}"
        )
    for d in axes:
        if shape[d] == 0:
            raise IndexError(
                f"{name}(): Expected reduction dim {d} to have non-zero size, but the input has shape {tuple(shape)}; "
                "specify a dim with elements"
            )
    if not axes and 0 in shape:
        raise RuntimeError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0")


def sum_dtype(op: Any, given: Any, dtype: Any) -> tuple[Any, Any]:
    """Integers and bools add up in int64, others in their own dtype, unless `dtype` says otherwise."""
    if dtype is not None:
        return dtype, dtype
    if given.category < FLOATING:
        return dtypes.int64, dtypes.int64
    return given, given


def same_dtype(op: Any, given: Any, dtype: Any) -> tuple[Any, Any]:
    return given, given


def bool_dtype(op: Any, given: Any, dtype: Any) -> tuple[Any, Any]:
    return given, dtypes.uint8 if given is dtypes.uint8 else dtypes.bool


def floating_dtype(op: Any, given: Any, dtype: Any) -> tuple[Any, Any]:
    """Only floating and complex values, or a floating `dtype`. Raises: RuntimeError otherwise."""
    wanted = dtype or given
    if wanted.category < FLOATING:
        said = f"dtype={wanted.name}" if dtype is not None else f"an input of dtype {given.name}"
        raise RuntimeError(
            f"{op.said}(): could not infer output dtype: {op.said} needs a floating point or complex dtype, got {said}; "
            f"give dtype=torch.float32"
        )
    return wanted, wanted


def reduction(
    surface: int = FUNCTION | METHOD | OUT,
    dtype: Any = sum_dtype,
    identity: Any = None,
    map: Any = None,  # the term of the field
    combine: str = "add",
    finish: Any = None,
    partial: Any = None,
    vjp: Any = None,
    namespace: str = "",
    aliases: tuple[str, ...] = (),
    autocast: str | None = None,
) -> Callable[[Any], ReductionOp]:
    """Declare a reduction over `dim`; the decorated function gives signature and documentation.

    Args:
        dtype: ``rule(op, input dtype, dtype=) -> (accumulate, result)``.
        identity: value of an empty reduction; None refuses it.
        map: formula applied to each element first, defined by `def`, so that kernels can contain it.
        combine: 'add', 'mul', 'max', 'min', 'and', 'or'.
        finish: ``finish(total, count)``, by `def` too: on arrays, and on the numbers of a kernel.
        partial: derivative with respect to an element, of the names it reads (`out`, `input`).
        vjp: the gradient as a Tensor expression of names among grad, out, input, shape, dims, keepdim.
    """
    return lambda fn: ReductionOp(
        fn, surface, namespace, aliases, autocast, dtype, identity, map, combine, finish, partial, vjp
    )

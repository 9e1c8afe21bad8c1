"""Reductions: map, combine and finish over dimensions, and a partial derivative."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Unpack

import numpy as np

from flambeau_kernels.cpu.reductions.along import MOST, SEVERAL, SEVERAL_OR_NONE, Along
from flambeau_kernels.cpu.reductions.reduce import NUMPY_UP_TO, Reduction, count_of, reduce
from flambeau_kernels.cpu.shapes import move
from flambeau_kernels.formula import Formula
from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags

from ... import _state, dtypes
from ..._arrays import MetaArray, ndarray
from ..._inference import refuse_write
from ...autograd import engine
from ...autograd.making import making, seen_from
from ...autograd.tape import Node
from ...dtypes import FLOATING, from_numpy_dtype
from ...tensor import Tensor, bump, wrap, wrap_dim
from .base import FUNCTION, METHOD, OUT, Autocast, Facts, Op
from .derivatives import saved_tensor, tensor_words
from .elementwise import refuse_float8
from .history import check_versions, named_tensors
from .nodes import indented, written
from .plans import Plan
from .shapes import elsewhere
from .writing import with_dtype_of, write_out

_FLOATS = (dtypes.float32, dtypes.float64)
_OF_MATRIX = (-2, -1, 0, 1)


# What pieces of a reduced dimension give parts of.
_PARTS = {"add": "sum", "mul": "product", "max": "max", "min": "min", "and": "min", "or": "max"}


def _of_transposed(dim: Any) -> Any:
    """The dimensions of the transposed matrix that `dim` of a matrix are; what is none of them stays, to be refused."""
    if dim.__class__ is tuple or dim.__class__ is list:
        return tuple([_of_transposed(d) for d in dim])
    return 1 - dim % 2 if dim.__class__ is int and dim in _OF_MATRIX else dim


class ReductionNode(Node):
    __slots__ = ()
    has_array_vjp = True

    def vjp_on_arrays(self, grad: Any) -> Any:
        op = self.op
        if grad.__class__ is MetaArray and op.spreads_only:
            return (MetaArray(self.shape[0], self.dtype),)
        if grad.__class__ is not ndarray or grad.dtype is not self.dtype or not (op.spreads_only or op.array_vjp_rule):
            return engine.through_tensors(self, grad)
        shape, axes, keepdim = self.shape
        found = aligned(grad, shape, axes, keepdim)
        if op.array_vjp_rule is not None:
            if self.versions:
                check_versions(self)
            out, input = self.saved
            if out is not None:
                out = aligned(out, shape, axes, keepdim)
            token = ignore_fp_flags()
            try:
                found = op.array_vjp_rule(found, out, input, count_of(shape, axes))
            finally:
                restore_fp_flags(token)
            if found is None:
                return engine.through_tensors(self, grad)
            if found.shape == shape and found.__class__ is ndarray:
                return (found,)
        made = np.empty(shape, self.dtype)
        if made.size < move.FROM or not move.into(made, np.broadcast_to(found, shape)):
            made[...] = found
        return (made,)

    def saved_by_name(self) -> dict[str, Any]:
        check_versions(self)
        shape, axes, keepdim = self.shape
        kept = named_tensors(self, ("result", "input"), (self, *self.parents)) if self.versions else {}
        return kept | {"input_shape": tuple(shape), "dim": axes, "keepdim": keepdim}

    def _hides(self) -> frozenset[str]:
        # Of the two overloads, that without `dim` has none to show; and who reads the input itself does not ask for its shape.
        whole = frozenset(("dim", "keepdim")) if self.op.node_classes and self.title == self.op.node_class.title else frozenset()
        return self.hidden | whole | (frozenset(("input_shape",)) if "input" in self.op.reads else frozenset())

    def vjp(self, grad: Tensor) -> Any:
        check_versions(self)
        return (self.op.grad_tensor(self, grad),)


class ReductionOp(Op):
    """Map each element, combine the results over some dimensions, finish."""

    kind = "reduction"
    elements = "reduced"
    node_base = ReductionNode

    def __init__(self, fn: Any, surface: int, namespace: str, aliases: Any, autocast: Any, dtype: Any, identity: Any,
                 map: Any, combine: str, finish: Any, partial: Any, vjp: Any, samples: str = "",
                 none_by_empty: bool = False) -> None:  # fmt: skip
        self.none_by_empty = none_by_empty
        self.dtype_rule = dtype
        self.identity = identity
        self.rule = Reduction(fn.__name__, combine, map, finish)
        self.partial = None if partial is None else Formula(partial, f"{fn.__name__}_partial")
        self.custom_vjp = vjp
        super().__init__(fn, surface, namespace, aliases, autocast)
        self.samples = samples
        self.differentiable = partial is not None or vjp is not None
        rule = partial or vjp
        self.array_vjp_rule: Any = None
        # The gradient of a plain sum is the incoming one, spread.
        self.spreads_only = partial is not None and not partial.__code__.co_argcount and partial() == 1
        self.reads = rule.__code__.co_varnames[: rule.__code__.co_argcount] if rule else ()
        self.saved_names = tuple([name for name in self.reads if name in ("out", "input")])
        self.in_rows = self.rows_of
        along, (input, dim, *rest) = Along("fold", self.rule, self.kinds, dims=SEVERAL_OR_NONE if none_by_empty else SEVERAL), self.params
        with_dtype = "dtype" in rest
        if not {*rest} - {"keepdim", "dtype"}:

            @self.launches
            def _(table: Any, a: Any, dim: Any, keepdim: Any = False, dtype: Any = None) -> Any:
                return table.call(along.call, a, dim, keepdim) if dtype is None else None

        call = f"ALONG.enter({input}, {dim}, {'keepdim' if 'keepdim' in rest else False})"
        self.plan(self._found_by(along), native=f"{call} if dtype is None else None" if with_dtype else call, names={"ALONG": along})
        self.plan(self._for_large, by="strides", after=True)

    def axes_of(self, dim: Any, ndim: int) -> tuple[int, ...]:
        """The dimensions that `dim` means, counted from the front. Raises: as `wrap_dims`."""
        if self.none_by_empty and isinstance(dim, (tuple, list)) and not dim:
            return ()
        return wrap_dims(self.name, dim, ndim)

    def vjp_on_arrays(self, fn: Any) -> Any:
        """The vjp on arrays: ``fn(grad, out, input, count)``.

        `grad` and `out` broadcast against `input`; what the vjp does not read is None, and `count` elements were reduced to
        each. It returns the gradient, whole (a new array) or still to be spread; or None to leave it to the vjp.
        """
        self.array_vjp_rule = fn
        return fn

    def ways(self, asked: Any) -> list[Any]:
        found = super().ways(asked)
        if found is not None:
            return found
        (x,), rule = asked.operands, self.rule
        dims = self.axes_of(asked.named["dim"], x.ndim)
        ways, kept = [asked.replicated()], bool(asked.named.get("keepdim", False))
        averages = rule.finish is not None and rule.finish(6.0, 3) == 2.0
        parts = _PARTS[rule.combine] if rule.finish is None else "avg" if averages else None
        for d, size in enumerate(x.shape):
            if d not in dims:
                ways.append(asked.way({0: d}, d if kept else d - sum(other < d for other in dims)))
            elif parts is not None and (size % asked.count == 0 if averages else asked.pieces_are_full(size)):
                ways.append(asked.way({0: d}, parts))
        if rule.combine == "add" and rule.term is None and (rule.finish is None or averages):
            ways.append(asked.way({0: "sum"}, "sum"))
        return ways

    def kinds(self, dtype: np.dtype) -> tuple[np.dtype, np.dtype] | None:
        """The dtypes that elements of `dtype` are accumulated in and that the result has; None if they are refused."""
        try:
            accumulate, result = self.dtype_rule(self, from_numpy_dtype(dtype), None)
        except (RuntimeError, NotImplementedError):
            return None
        return accumulate.numpy, result.numpy

    def _found_by(self, along: Along) -> Any:
        """The plan of small arrays for which `along` had no answer at first."""

        def rule(a: Any, dim: Any, keepdim: Any = False, dtype: Any = None) -> Any:
            if dtype is not None:
                if dtype not in _FLOATS or a.dtype.kind not in "fiub" or a.size > MOST:
                    return None
                return along(a.astype(dtype.numpy), dim, keepdim)
            if a.size > NUMPY_UP_TO:
                return None
            found = along.learn(a, dim, keepdim)
            if found is None and a.ndim == 2 and keepdim is False and a.flags.f_contiguous:
                # A transposed matrix, which numpy adds up in the order of its memory too.
                found = along.call(a.T, _of_transposed(dim), keepdim)
            return found

        return rule

    def history_lines(self) -> list[str]:
        """Lines of its answer that record the result `made`."""
        input, dim, *rest = self.params
        return [
            f"if {input}._node is not None:",
            f"    _ndim = {input}._array.ndim",
            f"    _axes = ({dim} % _ndim,) if {dim}.__class__ is int and _ndim else OP.axes_of({dim}, _ndim)",
            f"    OP.record(made, {input}, _axes, {'keepdim' if 'keepdim' in rest else False}, {dim} is None)",
        ]

    def run_out(self, out: Any, *args: Any) -> Any:
        input = args[0]
        if self.dtype_of_out and isinstance(out, Tensor):
            args = with_dtype_of(self, out, args)
        if self.truth_out and isinstance(out, Tensor) and out.dtype in (dtypes.bool, dtypes.uint8):
            made = self.enter_among_others(args)
            return write_out(self, out, made if made.dtype is out.dtype else made.to(out.dtype), args)
        if _state.MARKED and isinstance(out, Tensor):
            refuse_write(out)
        plain = out.__class__ is Tensor and out._node is None and out._view_of is None
        if plain and isinstance(input, Tensor) and out._storage is not input._storage:
            made = self.answer(*args)
            if made is not None and made._node is None:
                a, to = made._array, out._array
                if to.__class__ is ndarray and to.dtype is a.dtype and to.shape == a.shape and to.flags.carray:
                    to[...] = a
                    bump(out)
                    return out
        return super().run_out(out, *args)

    def run(self, input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        if not isinstance(input, Tensor):
            raise TypeError(f"{self.public_name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        answer = NotImplemented if input._array.__class__ is ndarray else elsewhere(self, (input, dim, keepdim, dtype))
        if answer is not NotImplemented:
            return answer
        if dtype.__class__ is type:
            dtype = dtypes.as_dtype(dtype)
        accumulate, result = self.dtype_rule(self, input.dtype, dtype)
        if result.itemsize == 1 and result.category == FLOATING:
            refuse_float8(self.name, result)
        a = input._array
        axes = self.axes_of(dim, a.ndim)
        if type(a) is MetaArray:
            out: Any = MetaArray(reduced_shape(a.shape, axes, keepdim), result.numpy)
        else:
            out = self.compute(a, axes, keepdim, accumulate.numpy, result.numpy)
        made = wrap(out)
        if input._node is not None:
            self.record(made, input, axes, keepdim, dim is None)
        return made

    def _for_large(self, input: Tensor, dim: Any = None, keepdim: Any = False, dtype: Any = None) -> Plan | None:
        """The plan of large arrays of one layout, which have a compiled kernel."""
        a = input._array
        if a.size <= NUMPY_UP_TO or dtype is not None or not a.flags.c_contiguous:
            return None
        accumulate, result = self.dtype_rule(self, input.dtype, None)
        axes = self.axes_of(dim, a.ndim)
        run = self.rule.plans.find(a, self.rule, axes, keepdim, accumulate.numpy, result.numpy)
        if run is None or result.itemsize == 1 and result.category == FLOATING:
            return None
        return Plan(run, self, lambda _, input: (input, axes, keepdim, dim is None))

    @cached_property
    def record(self) -> Any:
        """``fn(made, input, axes, keepdim, whole)``, which gives `made`, the reduction of `input`, its history, if it is to have one.

        `whole` says that no dimension was given.
        """
        along = self.node_class_for(self.params[0], "dim")
        kept = [f"{made}.{{}}" if name in self.reads else "None" for name, made in (("out", "made"), ("input", "input"))]
        saved, versions = (f"({', '.join(value.format(slot) for value in kept)})" for slot in ("_array", "_storage"))
        saves = versions != "(None, None)"
        lines = [
            f"if {not self.differentiable} or not (GRAD or local.grad) or made._array.dtype.kind in 'biu':",
            "    made._node = None",
            "    return",
            *making(
                "(input._node,)", saved, versions if saves else "()", "(input._array.shape, axes, keepdim)", "input._array.dtype",
                cls="Node" if along == "Node" else f"(Node if whole else {along})", place=seen_from(3) if saves else None,
            ),
        ]  # fmt: skip
        return written(self, "record", ["def record(made, input, axes, keepdim, whole):", *indented(lines)])

    def history(self, made: Tensor, kept: Any, *args: Any) -> None:
        """`record`, as plans call it: a reduction keeps nothing."""
        self.record(made, *args)

    def of_rows(self, args: Any, out: Any, moments: Any, how: Any) -> Tensor:
        made, input = wrap(out), args[0]
        if input._node is not None:
            self.record(made, input, how.axes, args[2], args[1] is None)
        return made

    def rows_of(self, input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
        """`in_rows` of reductions that add up in a written order."""
        from flambeau_kernels.cpu.row_programs import Total

        from .in_rows import InRows

        kind = input.dtype
        if not Total.takes(self.rule, kind.numpy) or self.dtype_rule(self, kind, dtype) != (kind, kind):
            return None
        axes = self.axes_of(dim, input._array.ndim)
        return InRows(axes, lambda name, to, moments: Total(self.rule, name("input"), to))

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
    return with_dims(reduced, shape, axes, keepdim).expand(shape)


def with_dims(reduced: Tensor, shape: tuple[int, ...], axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """What was reduced from `shape` along `axes`, with these dimensions as size 1: `aligned`, of a Tensor."""
    if keepdim or not axes:
        return reduced
    return reduced.reshape(tuple(1 if d in axes else n for d, n in enumerate(shape)))


def aligned(reduced: np.ndarray, shape: tuple[int, ...], axes: tuple[int, ...], keepdim: bool) -> np.ndarray:
    """What was reduced from `shape` along `axes`, with these dimensions as size 1."""
    if keepdim or reduced.ndim == 0:
        return reduced
    return reduced.reshape([1 if d in axes else n for d, n in enumerate(shape)])


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
        dims = list(dim)
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
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' "
            f"argument. The input has shape {tuple(shape)}"
        )
    for d in axes:
        if shape[d] == 0:
            raise IndexError(
                f"{name}(): Expected reduction dim {d} to have non-zero size. The input has shape {tuple(shape)}; "
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
        which = "Input" if dtype is None else "Optional"
        raise RuntimeError(
            f"{op.public_name}(): could not infer output dtype. {which} dtype must be either a floating point or complex dtype. "
            f"Got: {dtypes.scalar_type(wanted)}. Give dtype=torch.float32"
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
    autocast: Autocast = None,
    samples: str = "",
    none_by_empty: bool = False,
    **facts: Unpack[Facts],
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
        samples: calls to try it with, see `samples.py`.
        none_by_empty: whether an empty list of dimensions means none of them; others take all.
        facts: as for every kind, see `Facts`.
    """

    def declare(fn: Any) -> ReductionOp:
        op = ReductionOp(
            fn, surface, namespace, aliases, autocast, dtype, identity, map, combine, finish, partial, vjp, samples, none_by_empty
        )
        op.state(facts)
        return op

    return declare

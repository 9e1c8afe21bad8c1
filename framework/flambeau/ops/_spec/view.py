"""Views: primitives whose result shares the memory of their first argument."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Unpack

import numpy as np

from flambeau_kernels import STORE_COMPILED_FROM, hot_calls, store
from flambeau_kernels.arithmetic import PLUS
from flambeau_kernels.cpu.shapes.order import is_ordered_last

from ... import _state
from ..._arrays import MetaArray, contiguous_strides, ndarray, restride
from ..._inference import refuse_write
from ...autograd import engine
from ...autograd.making import making
from ...autograd.tape import Leaf, Node, is_of_nobody, leaf_of_nobody, nobody
from ...devices import channels_last, channels_last_3d
from ...tensor import Tensor, bump, storage_buffer
from .base import VIEWED, Autocast, Facts
from .history import forget_dead_views, register_view, renew_views
from .memory import CHANNELS, in_memory_order
from .nodes import indented, written
from .primitive import PrimitiveNode, PrimitiveOp
from .shapes import elsewhere
from .writing import check_recorded, check_view

GRAD = _state.GRAD
_state.share(globals(), "GRAD")                       # keeps it as it is there
_new = object.__new__
_local = _state.local


class ViewNode(PrimitiveNode):
    """A node of one parent whose rule on arrays mostly reads a shape and plain arguments."""

    __slots__ = ()

    def vjp_on_arrays(self, grad: Any) -> Any:
        if self.versions or grad.__class__ is not ndarray:
            return self.general_vjp_on_arrays(grad)
        op = self.op
        saved = self.saved
        if op.array_vjp_rule is None:                       # a part, see `ViewOp.shows_part`
            full_grad = np.zeros(saved[0], grad.dtype)
            put_part(op.kernel_rule(full_grad, *saved[1:]), grad)
            return (full_grad,)
        found = op.array_vjp_rule(*[grad if at is None else saved[at] for at in op.array_vjp_sources])
        return engine.through_tensors(self, grad) if found is None else found

    def add_piece(self, full_grad: Any, grad: Any) -> bool:
        """Add `grad` where this view lies in `full_grad`, which spares an array of zeros. Returns whether that was done."""
        if self.versions or full_grad.__class__ is not ndarray or grad.__class__ is not ndarray or full_grad.dtype != grad.dtype:
            return False
        PLUS.into(self.op.kernel_rule(full_grad, *self.saved[1:]), grad)
        return True


class ViewOp(PrimitiveOp):
    """A primitive whose kernel returns a view of its first argument's memory."""

    kind = "view"
    node_base = ViewNode
    is_view = True
    several = False  # whether the kernel gives several views
    shows_storage = False  # whether it may show what the first argument does not
    may_be_tensor = ""  # the parameter whose Tensors `check` makes numbers of; it does nothing else
    sized_by = ""  # the parameter that is the shape of the result
    piece_rule: Any = None  # ``fn(index, ndim, *args) -> op, args``: which view is one of several
    builtin = ""  # the launcher of `hot_calls` that answers usual calls: ``(source, *arguments, op, whether operations are recorded)``
    cut_along = ""  # where several views are parts of the whole: the parameter that is the dimension
    cut_into = ""  # and the one that is the tuple of their sizes along it, if they do not lack the dimension

    def piece(self, fn: Any) -> Any:
        """Say which view op gives one of several views alone, so that the gradient of each costs nothing for the others."""
        self.piece_rule = fn
        return fn

    def cuts(self, along: str, into: str = "") -> None:
        """Say that the views are all parts along the dimension that is the parameter `along`: of the sizes `into`, or without it.

        So one native call makes all of them.
        """
        self.cut_along, self.cut_into = along, into

    @property
    def is_written_out(self) -> bool:
        """Whether entry points make the view themselves: the calls of `run` would be a third of the time."""
        return not (self.forwarded or self.planned or self.check is not None and not self.may_be_tensor or "run" in self.__dict__)

    @property
    def answers_plain_tensors_alone(self) -> bool:
        return self.is_written_out or super().answers_plain_tensors_alone

    def answering(self, is_tensor: Any) -> list[str]:
        """`run`, written out where it makes one view of a plain Tensor."""
        if not self.is_written_out:
            return super().answering(is_tensor)
        first, *rest = self.params
        arguments = "".join(f", {name}" for name in rest)
        made = f"_kernel({first}._array{arguments})"
        # numpy takes a bool for a dimension; `run` says what is wrong with one.
        numbers = dict.fromkeys((self.may_be_tensor, *(n for n in rest if self.defaults.get(n).__class__ is int)))
        plain = "".join(f" and {name}.__class__ is int" for name in numbers if name)
        if self.cut_along:
            return [f"if {is_tensor(first)}{plain}:", f"    return cut_up({first}, ({''.join(f'{name}, ' for name in rest)}))"]
        rest = f"({''.join(f'{name}, ' for name in rest)})"
        native = [] if not self.builtin else [
            f"made = hot_calls.{self.builtin}({first}{arguments}, OP, GRAD or local.grad)",
            "if made is not None:",
            f"    return made if made._node is None else with_history(made, {first}, {rest})",
        ]
        return [f"if {is_tensor(first)}{plain}:", *indented(native), f"    return _of({first}, {made}, {rest})"]

    def ways(self, asked: Any) -> list[Any]:
        from .pieces import view_ways

        return super().ways(asked) or view_ways(asked)

    def shows_part(self) -> None:
        """Say that the view shows some elements, each once: its gradient lies in zeros of the whole, where the view would be."""
        self.node_class.has_array_vjp = self.node_class.more_than_rule = True

    def finish(self, args: Any, result: Any) -> Any:
        source = args[0]
        return self.of(source, result, args[1:])

    def of(self, source: Tensor, array: Any, rest: Any) -> Any:
        """The view of `source` whose array is `array`, or the views of several; `rest` are the op's other arguments."""
        if self.several:
            return self.pieces(source, array, rest)
        node = source._node
        recorded = GRAD or _local.grad
        # As `is_of_nobody` says, without a call.
        registered = recorded and (node is None or node.__class__ is not Leaf or node.tensor is not nobody)
        made = hot_calls.view_of(source, array, self, rest, registered)
        if made is None:
            made = _view_of(source, array, self, rest, registered)
        if self.vjp_rule is None:
            made._view_of = None                          # no view to autograd, nor to PyTorch: to write to it is not recorded
        elif node is not None:
            self.with_history(made, source, rest)
        return made

    @cached_property
    def usual(self) -> Any:
        """``fn(*args)``: the view that the launcher `builtin` makes, with its history; None where it refuses, also what is no Tensor."""
        first, *rest = self.params
        given = ", ".join(self.params)
        lines = [
            f"made = hot_calls.{self.builtin}({given}, OP, GRAD or local.grad)",
            f"return made if made is None or made._node is None else with_history(made, {first}, ({', '.join(rest)},))",
        ]
        return written(
            self, "usual", [f"def usual({given}):", *indented(lines)], with_history=self.with_history, hot_calls=hot_calls
        )

    @cached_property
    def with_history(self) -> Any:
        """``fn(made, source, rest)``: the view `made` of `source`, which has a history, with one of its own."""
        lines = ["if not (GRAD or local.grad):", "    made._node = leaf_of_nobody()", *self._recorded(), "return made"]
        return written(
            self, "with_history", ["def with_history(made, source, rest):", *indented(lines)],
            leaf_of_nobody=leaf_of_nobody, record_view=self.record_view,
        )  # fmt: skip

    def _recorded(self) -> list[str]:
        """The other case of `with_history`."""
        if not self.saves_plainly or "record_view" in self.__dict__:
            return ["else:", "    record_view(made, source, rest)"]
        return ["else:", *indented(self._saving("source._array.shape"))]

    def _saving(self, shape: str) -> list[str]:
        """Lines that give `made` a node which saves what lies where in `source`, and reads nothing else."""
        rest = self.params[1:]
        named = [f"{', '.join(rest)}, = rest"] if rest else []
        return [*named, *making("(source._node,)", f"({', '.join((shape, *rest))},)", cls=self.chosen_class or "Node")]

    def record_view(self, made: Tensor, source: Tensor, rest: Any) -> None:
        """Give `made` a node that leads to that of `source`."""
        if self.saves_plainly:
            self.save_shape(made, source, source._array.shape, rest)
        else:
            self.record((made,), (source, *rest), False)

    @cached_property
    def save_shape(self) -> Any:
        """``fn(made, source, shape, rest)``: gives `made` a node that saves `shape` for that of `source`."""
        # Names in `rest` are those of parameters, one of which may be called `shape`.
        return written(self, "save_shape", ["def save_shape(made, source, _whole, rest):", *indented(self._saving("_whole"))])

    def part(self, index: int) -> _Part:
        """One of several views as an op of its own."""
        for i in range(len(self.parts), index + 1):
            self.parts.append(_Part(self, i))
        return self.parts[index]

    @cached_property
    def cut_up(self) -> Any:
        """``fn(source, rest)``: the views of several for the other arguments `rest`, of which `cuts` says what they are."""
        lines = [
            f"{', '.join(self.params[1:])}, = rest",
            f"made = hot_calls.views_of(source, {self.cut_along}, {self.cut_into or None}, parts, rest, GRAD or local.grad)"
            " if source._node is None else None",
            f"return pieces(source, rest, {self.cut_along}, {self.cut_into or None}) if made is None else made",
        ]
        return written(
            self, "cut_up", ["def cut_up(source, rest):", *indented(lines)], parts=self.parts, pieces=self._cut_up, hot_calls=hot_calls
        )

    def _cut_up(self, source: Tensor, rest: Any, dim: Any, sizes: Any) -> tuple[Tensor, ...]:
        """`cut_up` for a source with a history, and where the native call has refused."""
        made = _all_parts(source, dim, sizes, self.parts, rest)
        if made is None:
            return self.pieces(source, self.kernel_rule(source._array, *rest), rest)
        if source._node is not None:
            self._give_history(made, source, rest)
        return made

    def of_all_parts(self, source: Tensor, dim: int, sizes: tuple[int, ...], rests: list[Any]) -> tuple[Tensor, ...] | None:
        """The views that this op makes of all parts of `source` along `dim`, of these sizes; `rests` are its other arguments for each.

        None where they have to be made one by one.
        """
        made = _all_parts(source, dim, sizes, self, rests)
        if made is not None and source._node is not None:
            for view, rest in zip(made, rests, strict=True):
                self.with_history(view, source, rest)
        return made

    def pieces(self, source: Tensor, arrays: Any, rest: Any) -> tuple[Tensor, ...]:
        """`of` for several views."""
        node = source._node
        recorded = GRAD or _local.grad
        registered = recorded and (node is None or not is_of_nobody(node))
        parts, made = self.parts, []
        for i in range(len(parts), len(arrays)):
            parts.append(_Part(self, i))
        for array, part in zip(arrays, parts, strict=False):
            view = hot_calls.view_of(source, array, part, rest, registered)
            if view is None:
                view = _view_of(source, array, part, rest, registered)
            made.append(view)
        if node is not None:
            self._give_history(made, source, rest)
        return tuple(made)

    def _give_history(self, views: Any, source: Tensor, rest: Any) -> None:
        """Give each of several `views` of `source`, which has a history, one of its own."""
        if GRAD or _local.grad:
            self.save_parts(views, self.parts, source, rest)
        else:
            for view in views:
                view._node = leaf_of_nobody()

    @cached_property
    def save_parts(self) -> Any:
        """``fn(views, parts, source, rest)``: gives each of `views`, made by these `parts`, a node that saves which part it is."""
        lines = [
            "def save_parts(views, parts, source, rest):",
            "    parents, shape = (source._node,), source._array.shape",
            "    for view, part in zip(views, parts):",
            *indented(indented(making("parents", "(part, rest, shape)", to="view._node", cls="Part"))),
        ]
        return written(self, "save_parts", lines, Part=self.node_class_of_parts)

    @cached_property
    def node_class_of_parts(self) -> Any:
        """The class of the nodes of its `parts`."""
        return type(self.node_class.__name__, (PartNode,), {"__slots__": ()})

    @cached_property
    def parts(self) -> list[_Part]:
        """The ops that each of several views is made by, as far as there were so many."""
        return []

    def run(self, *args: Any) -> Any:
        if getattr(args[0], "_array", None).__class__ is not ndarray:
            answer = elsewhere(self, args)
            if answer is not NotImplemented:
                return answer
        if not isinstance(args[0], Tensor):
            raise TypeError(f"{self.public_name}(): argument '{self.params[0]}' (position 1) must be Tensor, not {type(args[0]).__name__}")
        if self.check is not None:
            args = self.check(*args) or args
        return self.finish(args, self.kernel_rule(args[0]._array, *args[1:]))

    def run_inplace(self, target: Tensor, *args: Any) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Make `target` itself the view: its shape and strides change, its memory does not."""
        if getattr(target, "_array", None).__class__ is not ndarray:
            answer = elsewhere(self, (target, *args), target, True)
            if answer is not NotImplemented:
                return answer
        if _state.MARKED:
            refuse_write(target)
        check_recorded(target)
        recorded = target._node is not None and _state.grad_enabled()
        if recorded:
            check_view(self, target)
        made = self.run(target, *args)
        target._array = made._array
        link = target._view_of
        if link is not None:
            target._view_of = made._view_of
        bump(target)
        if recorded:
            target._node = made._node                       # a gradient that is retained stays that of the former shape
            renew_views(target if link is None else link[0], target)
        elif link is not None and target._node is not None and not is_of_nobody(target._node):
            renew_views(link[0])
        return target


def _all_parts(source: Tensor, dim: Any, sizes: Any, ops: Any, rest: Any) -> tuple[Tensor, ...] | None:
    """What `hot_calls.views_of` makes, also of a source with a history, whose nodes are missing, and of one with many views."""
    node = source._node
    registered = (GRAD or _local.grad) and (node is None or not is_of_nobody(node))
    made = hot_calls.views_of(source, dim, sizes, ops, rest, registered)
    if made is None and registered and forget_dead_views(source._storage):
        made = hot_calls.views_of(source, dim, sizes, ops, rest, registered)
    return made


def _view_of(source: Tensor, array: Any, op: Any, rest: Any, registered: bool) -> Tensor:
    """What `hot_calls.view_of` makes: a view without a node, which the storage knows of if it is to be `registered`."""
    made = _new(Tensor)
    made._array = array if array.__class__ is not ndarray or array.size else _placed(source, array, op, rest)
    made._storage = source._storage
    made._node = None
    before = source._view_of
    made._view_of = (source, op, rest, None) if before is None else (before[0], op, rest, before)
    if registered:
        register_view(made)
    return made


def _placed(source: Tensor, array: ndarray, op: Any, rest: Any) -> ndarray:
    """`array`, a view of `source` without elements, where it begins in memory: numpy forgets that, but `resize_` goes on there."""
    a = source._array
    strides = a.strides if a.size or any(a.strides) else contiguous_strides(a.shape, a.itemsize)
    shadow = MetaArray(a.shape, a.dtype, strides, source.storage_offset() * a.itemsize)
    made = op.kernel_rule(shadow, *rest)
    return restride(array, made.shape, made.strides, made.offset, storage_buffer(source))


class _Part:
    """One of several views an op makes, as an op of its own: its history is the piece's, not the whole's."""

    __slots__ = ("index", "source")
    refusal: str | None = (
        "It comes of an operation that returns several views, whose history could not be kept apart. Use the out-of-place form, or "
        "take the view by indexing"
    )

    def __init__(self, source: ViewOp, index: int) -> None:
        self.source = source
        self.index = index

    @property
    def maker(self) -> str:
        """What makes the views, as errors name it: the node that they would share without its ``Backward0``."""
        return self.source.node_class.title.removesuffix("Backward0")

    def run(self, tensor: Tensor, *args: Any) -> Tensor:
        return (self.source.interpreted if _state.IN_FORCE and _state.interpreted() else self.source.run)(tensor, *args)[self.index]

    interpreted = run

    def kernel_rule(self, a: Any, *args: Any) -> Any:
        """The piece of the array `a`."""
        return self.source.kernel_rule(a, *args)[self.index]

    def record(self, made: Tensor, args: Any) -> None:
        self.source.save_parts((made,), (self,), args[0], tuple(args[1:]))


def put_part(part: Any, grad: Any) -> None:
    """Store `grad` in the `part` of an array."""
    if part.size < STORE_COMPILED_FROM:
        part[...] = grad
    else:
        store(part, grad)


class PartNode(Node):
    """Puts the gradient of one piece back into zeros of the whole."""

    __slots__ = ()
    has_array_vjp = more_than_rule = True

    def vjp_on_arrays(self, grad: Any) -> Any:
        if grad.__class__ is not ndarray:
            return engine.through_tensors(self, grad)
        part, args, shape = self.saved
        full_grad = np.zeros(shape, grad.dtype)
        if grad.ndim == len(shape):                       # pieces that are joined again, in the order of their memory
            full_grad = in_memory_order(full_grad, CHANNELS, (grad,))
        op, places = part.source.piece_rule(part.index, len(shape), *args)
        put_part(op.kernel_rule(full_grad, *places), grad)
        return (full_grad,)

    def add_piece(self, full_grad: Any, grad: Any) -> bool:
        """As `ViewNode.add_piece`."""
        if full_grad.__class__ is not ndarray or grad.__class__ is not ndarray or full_grad.dtype != grad.dtype:
            return False
        part, args, _ = self.saved
        op, places = part.source.piece_rule(part.index, full_grad.ndim, *args)
        PLUS.into(op.kernel_rule(full_grad, *places), grad)
        return True

    counts = True

    @property
    def saved_as(self) -> Any:
        return self.saved[0].source.node_class.saved_as if type(self.saved) is tuple else {}

    def _hides(self) -> frozenset[str]:
        return self.saved[0].source.node_class.hidden if type(self.saved) is tuple else frozenset()

    def saved_by_name(self) -> dict[str, Any]:
        part, args, shape = self.saved
        return {"input_shape": tuple(shape), **dict(zip(part.source.params[1:], args, strict=True))}

    def name(self) -> str:
        return self.saved[0].source.node_class.title if type(self.saved) is tuple else "PartBackward0"

    def vjp(self, grad: Tensor) -> Any:
        part, args, shape = self.saved
        full_grad = grad.new_zeros(shape)
        if type(grad) is Tensor and len(shape) in (4, 5) and grad.ndim == len(shape) and is_ordered_last(grad._array):
            full_grad = full_grad.contiguous(memory_format=channels_last if len(shape) == 4 else channels_last_3d)
        op, places = part.source.piece_rule(part.index, len(shape), *args)
        (op.interpreted if _state.interpreted() else op.run)(full_grad, *places).copy_(grad)
        return (full_grad,)


def view(
    surface: int = VIEWED,
    namespace: str = "",
    aliases: tuple[str, ...] = (),
    check: Any = None,
    autocast: Autocast = None,
    variadic: str | None = None,
    several: bool = False,
    operator: str | None = None,
    samples: str = "",
    builtin: str = "",
    **facts: Unpack[Facts],
) -> Callable[[Any], ViewOp]:
    """Declare an op that returns a view, or `several`; its kernel maps the array (and the other arguments) to views of it.

    `builtin` is the launcher that answers usual calls, if there is one; see `ViewOp.builtin`.
    """

    def declare(fn: Any) -> ViewOp:
        op = ViewOp(fn, surface, namespace, aliases, autocast, (fn.__code__.co_varnames[0],), None, None, check)
        op.variadic = variadic
        op.several, op.builtin = several, builtin
        op.operator, op.samples = operator, samples
        op.state(facts)
        return op

    return declare

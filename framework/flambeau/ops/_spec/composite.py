"""Composites: functions of other ops."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, Unpack

import flambeau_kernels as kernels

from ... import _state
from ...autograd import engine
from ...autograd.tape import OutputNode
from ...tensor import Tensor, bump, wrap
from .base import FUNCTION, OPS, Autocast, Facts, Op, Overlap
from .history import rebase
from .overlap import refuse_shared
from .region import Region
from .shapes import elsewhere
from .writing import check_inplace, check_view, check_writable, forget_overwritten, nodes_since


class CompositeOp(Op):
    """Other ops, composed; derivatives and devices follow from theirs."""

    kind = "composite"

    def run_inplace(self, target: Tensor, *args: Any) -> Tensor:
        answer = elsewhere(self, (target, *args), target, True) if self.by_kind else NotImplemented
        if answer is not NotImplemented:
            return answer
        if self.inplace_view is not None:
            return self.inplace_view(target, *args)
        found = None if self.forwards_to is None else self.forwards_to(target, *args)
        if found is not None:
            op, given = found
            return _stored_by(op)(*given)
        tensors = [a for a in args if isinstance(a, Tensor)]
        if _state.grad_enabled() and any(t._node is not None for t in (target, *tensors)):
            return self._run_recorded(target, args)
        return super().run_inplace(target, *args)

    def _run_recorded(self, target: Tensor, args: tuple[Any, ...]) -> Tensor:
        """Compute, record and store in `target`: several operations may have read it, not only the last."""
        check_writable(self, target)
        check_view(self, target)
        if self.overlap:
            refuse_shared(self, target, target._array.shape, (None, *args))
        begin = _state.next_seq()
        result = self.run(_read_anew(target), *args)
        if result._array is target._array:
            bump(target)
            return target
        check_inplace(self, target, result)
        made = nodes_since(begin, [result._node])
        for node in made:
            forget_overwritten(node, target)
        if target._view_of is not None or not made:
            return OPS["Tensor.overwrite"].run_inplace(target, result)
        kernels.store(target._array, result._array)
        bump(target)
        rebase(target, result._node)
        return target

    def run(self, *args: Any) -> Any:
        count = len(self.positional)
        return self.fn(*args[:count], **dict(zip(self.keyword_only, args[count:], strict=True)))

    def result_shown_as(self, title: str) -> None:
        """Name the node of each result `title`, as PyTorch's operator has it, in the place of the last part that made it."""
        fn: Callable[..., Any] = self.fn

        def named(*args: Any, **more: Any) -> Any:
            if not _state.grad_enabled():
                return fn(*args, **more)
            begin = _state.next_seq()
            made = fn(*args, **more)
            for x in made if isinstance(made, tuple) else (made,):
                if x.__class__ is Tensor:
                    entitle(x, title, begin)
                elif (later := entitled_later.get(x.__class__)) is not None and all(x is not a for a in args):
                    later(x, title)
            return made

        self.fn = wraps(fn)(named)


# How results get their title that have no node yet, by their class.
entitled_later: dict[type, Callable[[Any, str], None]] = {}


def entitle(result: Tensor, title: str, begin: int = -1) -> None:
    """Name the node of `result` `title`, if it was made after the number `begin` was given out."""
    node = result._node
    if node is not None and node.seq > begin:
        node = node.parents[0] if isinstance(node, OutputNode) else node
        node.__class__ = _entitled(node.__class__, title)


@cache
def _entitled(node_class: Any, title: str) -> Any:
    """The class of nodes that are as those of `node_class`, and named `title`."""
    return type(title, (node_class,), {"title": title, "__slots__": ()})


def _read_anew(target: Tensor) -> Tensor:
    """`target`; of a view, another one of the same place: what is written goes round the node that hooks of the view are on."""
    if target._view_of is None or target._node is None or _state.interpreted():
        return target
    base = target._view_of[0]
    made = wrap(target._array, None if base._node is None else Region.of(target, base).node(base))
    made._storage, made._view_of = target._storage, target._view_of
    return made


@cache
def _stored_by(op: Op) -> Any:
    from .. import _entry

    return _entry.make_inplace(op)


def composite(
    surface: int = FUNCTION,
    namespace: str = "",
    aliases: tuple[str, ...] = (),
    autocast: Autocast = None,
    variadic: str | None = None,
    numpy_names: bool | None = None,
    overlap: Overlap = None,
    operator: str | None = None,
    reads_parts: bool | Callable[..., bool] = False,
    one_node: bool = False,
    samples: str = "",
    **facts: Unpack[Facts],
) -> Callable[[Any], CompositeOp]:
    """Declare an op made of other ops; the decorated function is its definition.

    Args:
        numpy_names: whether numpy's names for parameters are taken too (see `ops/_parameters.py`). None: outside of
            `nn.functional`, most of which PyTorch has in Python.
        overlap: which operands may share memory with what is written, see `Op`.
        operator: which operator of `torch.ops.aten` it is, see `Op`.
        reads_parts: whether rules read what it makes on its way, not its arguments and results alone, so that dispatch modes see its parts
            where a history is recorded; or a function of its parameters that says so.
        one_node: whether recorders of graphs have it as one node though PyTorch has no such operator, for its parts have other bits.
        samples: calls to try it with, see `samples.py`.
        facts: as for every kind, see `Facts`.
    """

    def declare(fn: Any) -> CompositeOp:
        op = CompositeOp(fn, surface, namespace, aliases, autocast)
        op.variadic = variadic
        op.set_overlap(overlap)
        if numpy_names is not None:
            op.numpy_names = numpy_names
        op.operator, op.reads_parts, op.one_node, op.samples = operator, reads_parts, one_node, samples
        op.state(facts)
        return op

    return declare


# -- update rules --------------------------------------------------------------------------------------------------------

engine._add = lambda a, b: OPS["add"].interpreted(a, b, 1)

"""The history of views and of what is written in place, and the check that nothing saved was overwritten."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from flambeau_kernels import hot_calls

from ... import _state
from ..._arrays import ndarray
from ..._interpreters import has_tangent
from ...autograd import engine, tape
from ...autograd.making import new_node
from ...autograd.tape import Node, Overwritten
from ...devices import channels_last, channels_last_3d
from ...tensor import Tensor, wrap
from .region import Region


def without_derivative(operation: str, result: Tensor, *operands: Any) -> Tensor:
    """`result` of `operation`, with a history if an operand has one: backward through it raises NotImplementedError.

    Raises: NotImplementedError at once if an operand has a tangent, which would be lost.
    """
    interpreted = _state.IN_FORCE and _state.local.calls.interpreters
    if interpreted and any(isinstance(x, Tensor) and has_tangent(x) for x in operands):
        refuse_tangent(operation)
    parents = tuple(x._node for x in operands if isinstance(x, Tensor) and x._node is not None)
    if parents and _state.grad_enabled():
        result._node = new_node(tape.undefined(operation), parents)
    return result


def refuse_tangent(operation: str) -> None:
    """Raise NotImplementedError for an operand of `operation` with a tangent, which no rule carries on."""
    raise NotImplementedError(
        f"Trying to use forward AD with {operation} that does not support it because it has not been implemented; "
        "detach its operands, or call it outside"
    )


def rebase(tensor: Tensor, node: Node) -> None:
    """Make `node` the history of `tensor`, of its base, and of every other view of that base."""
    tape.note_writer(tensor._storage, node.name())
    link = tensor._view_of
    if link is None:
        follow(tensor, node)
        renew_views(tensor)
    else:
        base = link[0]
        region = Region.of(tensor, base)
        follow(base, CopySlices.make(region, base._node, node))
        follow(tensor, region.node(base))
        renew_views(base, tensor)


def follow(tensor: Tensor, node: Node) -> None:
    """Let `node` be the history of `tensor`, which has been written."""
    tensor._node = node
    retained = tensor.__dict__.get("_retains_grad")
    if retained is not None:
        retained.follow(node)


def renew_views(base: Tensor, written: Tensor | None = None) -> None:
    """Make the history of the views of `base` but `written` anew, from that of `base` and from where they lie in it now."""
    for ref in list(base._storage[tape.VIEWS] or ()):
        view = ref()
        if view is not None and view is not written and view._view_of is not None and view._view_of[0] is base:
            _renew(view, Region.of(view, base).node(base))


def _renew(view: Tensor, node: Node) -> None:
    """Let `node` be the history of `view`, of whose base something else has been written."""
    retained = view.__dict__.get("_retains_grad")
    if retained is not None:
        retained.renew(node)
    view._node = node


class CopySlices(Node):
    """A base after an in-place operation on one of its views: that operation inside the view, nothing outside."""

    __slots__ = ()
    title = "CopySlices"
    has_array_vjp = True

    @staticmethod
    def make(region: Region, before: Node | None, node: Node) -> CopySlices:
        """The node of a base whose history was `before`, when `node` was recorded of the view at `region`."""
        return new_node(CopySlices, (before, *node.parents[1:]), (region, node, node.parents[0] is not None), (None, None, None))

    def name(self) -> str:
        return f"torch::autograd::{self.title}"

    def vjp_on_arrays(self, grad: Any) -> Any:
        region, node, through = self.saved
        if grad.__class__ is not ndarray or not node.has_array_vjp or _state.transformed():
            return engine.through_tensors(self, grad)
        base_grad, part = region.in_array(grad)
        with _everything_wanted():
            inner = node.vjp_on_arrays(np.array(part))
        part[...] = inner[0] if through and inner[0] is not None else 0
        return (base_grad, *inner[1:])

    def vjp(self, grad: Tensor) -> Any:
        region, node, through = self.saved
        base_grad, part = region.in_tensor(grad)
        with _everything_wanted():
            inner = node.vjp(part.clone())
        if through and inner[0] is not None:
            part.copy_(inner[0])
        else:
            part.zero_()
        return (base_grad, *inner[1:])


@contextlib.contextmanager
def _everything_wanted() -> Iterator[None]:
    """What is wanted of a `CopySlices` says nothing about the node inside, which still names the parent it had before."""
    running = _state.local.backward
    before, running.wanted = running.wanted, None
    try:
        yield
    finally:
        running.wanted = before


def earlier_view(view: Tensor, base: Tensor) -> Node:
    """The history of `view`, which was taken before `base` required grad."""
    node = new_node(tape.EarlierView, (base._node,))
    node.place = Region.of(view, base).node(base)
    node.record, node.count = base._storage, base._storage[tape.COUNT]
    return node


def register_view(view: Tensor) -> None:
    """Remember `view` with its storage, so that in-place operations can renew its history."""
    record = view._storage
    views = record[tape.VIEWS]
    if views is None:
        views = record[tape.VIEWS] = []
    elif len(views) >= hot_calls.MOST_VIEWS and not len(views) & (len(views) - 1):
        views[:] = [ref for ref in views if ref() is not None]
    views.append(weakref.ref(view))


def forget_dead_views(record: list[Any]) -> bool:
    """Let the storage `record` forget the views that are gone; whether there were any."""
    views = record[tape.VIEWS]
    if views is None:
        return False
    before = len(views)
    views[:] = [ref for ref in views if ref() is not None]
    return len(views) < before


def check_versions(node: Node) -> None:
    """Raise RuntimeError if something `node` saved has been written, or detached in place, since."""
    seq = node.seq
    for record in node.versions:
        if record is None:
            continue
        if record.__class__ is tuple:
            for each in record:
                if each is not None and each[1] > seq:
                    _look_closer(node, record)
        elif record[1] > seq:
            _look_closer(node, record)
    for value in node.saved:
        if type(value) is Overwritten:
            raise_overwritten(node, None)


def _look_closer(node: Node, record: Any) -> None:
    """As `check_versions` for one record whose stamp is younger than `node`, or for those of a list of tensors."""
    seq = node.seq
    saved = [s for s, v in zip(node.saved, node.versions, strict=False) if v is record]
    records = record if record.__class__ is tuple else (record,)
    for r in records:
        if r is None:
            continue
        for value in saved[0] if records is record and isinstance(saved[0], list) else saved:
            if tape.was_detached(r, value, node):
                where = node.made_at()
                raise RuntimeError(
                    "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_().This is not supported, please "
                    f"use out-of-place `.detach()` instead\n{node.name()} saved it"
                    + (f" at {tape.shown_line(where)}" if where else "")
                )
        if tape.written_at(r) > seq:
            raise_overwritten(node, record)


def raise_overwritten(node: Node, record: Any) -> None:
    index = next((i for i, v in enumerate(node.versions) if v is record), 0)
    saved = next((s for s, v in zip(node.saved, node.versions, strict=False) if v is record), None)
    if record.__class__ is tuple:  # of a list of tensors
        at = next(i for i, r in enumerate(record) if r is not None and tape.written_at(r) > node.seq)
        saved, record = saved[at] if isinstance(saved, (list, tuple)) else saved, record[at]
    shape = list(saved.shape) if hasattr(saved, "shape") else "unknown"
    where = node.made_at()
    op = node.op
    names = ("result", *op.params) if op.kind == "elementwise" else getattr(op, "saved_names", ())
    what = names[index] if index < len(names) else f"operand {index}"
    saver = f"{node.name()} saved its {what} (shape {shape})" + (f" at {tape.shown_line(where)}" if where else "")
    writer = "its own in-place form" if record is None else tape.shown_writer(record)
    known = where is not None and (record is None or tape.has_writer(record))
    raise RuntimeError(
        f"one of the variables needed for gradient computation has been modified by an inplace operation: {saver}, and {writer} "
        "overwrote it. Use the out-of-place form there, or clone() what is modified"
        + ("" if known else ". Run the forward under autograd.detect_anomaly() to see both lines")
    )


def named_tensors(node: Any, names: tuple[str, ...], histories: tuple[Any, ...]) -> dict[str, Any]:
    """What `node` has saved, each by its name; arrays become Tensors with the history of their place in `histories`."""
    made: dict[str, Any] = {}
    records = node.versions or (None,) * len(node.saved)
    for name, value, record, history in zip(names, node.saved, records, histories, strict=False):
        if record is not None:
            made[name] = wrap(value, history)
            made[name]._storage = record
        elif value is not None:
            made[name] = value
    return made


def whole_gradients(run: Any, rule: Any, grad: Any, given: Sequence[Any], wanted: Sequence[bool]) -> tuple[Any, ...]:
    """`gradients_of` for an op that is one node of a graph: in an order that follows from the operands, whoever computes them.

    Args:
        rule: ``rule()`` gives the same as operations on Tensors, or functions that do: for transforms, modes and fake tensors.
    """
    if _state.are_seen():
        made = [g() if callable(g) and not isinstance(g, Tensor) and want else g for g, want in zip(rule(), wanted, strict=True)]
        found: Any = [g if want else None for g, want in zip(made, wanted, strict=True)]
    elif _state.local.recording.inference:            # in which nothing has a history, and no history may be of what was made in it
        from ...autograd import inference_mode

        with inference_mode(False):
            own = [x.clone() if isinstance(x, Tensor) and x.is_inference() else x for x in (grad, *given)]
            found = gradients_of(run, own[0], own[1:], wanted)
    else:
        found = gradients_of(run, grad, given, wanted)
    return tuple([None if g is None else _in_order_of(g, x) for g, x in zip(found, given, strict=True)])


def _in_order_of(g: Tensor, x: Tensor) -> Tensor:
    """`g` in the order of `x`, if that has its channels last, else row by row."""
    order = {4: channels_last, 5: channels_last_3d}.get(x.ndim)
    if order is None or x.is_contiguous() or not x.is_contiguous(memory_format=order):
        return g.contiguous()
    return g.contiguous(memory_format=order)


def gradients_of(run: Any, grad: Any, given: Sequence[Any], wanted: Sequence[bool]) -> tuple[Any, ...]:
    """The gradients of ``run(*given)`` by what is `wanted` of `given`, None in the place of the rest.

    Plain calls get what the kernels of a plain backward give, and calls of which a history is recorded can be differentiated again.
    """
    from ...autograd import grad as gradient

    if any(interpreter.kind == "vmap" for interpreter in _state.local.calls.interpreters):
        return _of_each_example(run, grad, given, wanted)
    before = _state.set_grad(True)
    arriving = grad if isinstance(grad, (list, tuple)) else (grad,)
    again = before and any(isinstance(x, Tensor) and x.requires_grad for x in (*given, *arriving))
    try:
        # Names of their own, for one of them may have been computed from another.
        own = [_with_history_of_its_own(x) if want else x for x, want in zip(given, wanted, strict=True)]
        made = run(*own)
    finally:
        _state.set_grad(before)
    found = iter(gradient(made, [x for x, want in zip(own, wanted, strict=True) if want], grad, create_graph=again, allow_unused=True))
    return tuple([next(found) if want else None for want in wanted])


def _of_each_example(run: Any, grad: Any, given: Sequence[Any], wanted: Sequence[bool]) -> tuple[Any, ...]:
    """`gradients_of` inside a mapped function, whose tensors record a history for transforms alone."""
    from ...func.transforms import vjp

    at = [i for i, want in enumerate(wanted) if want]

    def run_on_wanted(*own: Any) -> Any:
        new = dict(zip(at, own, strict=True))
        return run(*[new.get(i, x) for i, x in enumerate(given)])

    _, back = vjp(run_on_wanted, *[given[i] for i in at])
    found = dict(zip(at, back(grad), strict=True))
    return tuple([found.get(i) for i in range(len(given))])


def _with_history_of_its_own(x: Tensor) -> Tensor:
    """`x` as another tensor that requires grad, so that a gradient of it is not one of other uses of `x`."""
    return x.view_as(x) if x.requires_grad else x.detach().requires_grad_()

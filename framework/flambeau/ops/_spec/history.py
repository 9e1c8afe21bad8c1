"""The history of views and of what is written in place, and the check that nothing saved was overwritten."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ... import _arrays, _state
from ..._arrays import ndarray
from ...autograd import tape
from ...autograd.tape import Node, Overwritten
from ...tensor import Tensor, wrap


def replay(link: Any, tensor: Tensor) -> Tensor:
    """Take the view described by `link` of `tensor`, which has the shape of the link's base."""
    _, op, args, before = link
    if before is not None:
        tensor = replay(before, tensor)
    return op.interpreted(tensor, *args) if _state.SLOW else op.run(tensor, *args)


def rebase(tensor: Tensor, node: Node) -> None:
    """Make `node` the history of `tensor`, of its base, and of every other view of that base."""
    link = tensor._b
    base = tensor
    tape.note_writer(tensor._v, node.name())
    if link is None:
        tensor._n = node
    else:
        base = link[0]
        base._n = CopySlices.make(base, link, node)
    views = tensor._v[tape.VIEWS]
    if not views:
        return
    for ref in list(views):
        view = ref()
        if view is not None and view._b is not None and view._b[0] is base:
            view._n = replay(view._b, base)._n


class CopySlices(Node):
    """A base after an in-place operation on one of its views: that operation inside the view, nothing outside."""

    __slots__ = ()
    title = "CopySlices"

    @staticmethod
    def make(base: Tensor, link: Any, node: Node) -> CopySlices:
        made = CopySlices()
        made.seq = _state.next_seq()
        made.parents = (base._n, *node.parents[1:])
        made.hooks = None
        steps = None if _arrays.is_c_contiguous(base._a) or not _arrays.is_dense(base._a) else base.stride()
        made.saved = ((None, *link[1:]), node, node.parents[0] is not None, steps)
        made.versions = (None,) * len(made.saved)
        return made

    def name(self) -> str:
        return self.title

    def vjp(self, grad: Tensor) -> Any:
        link, node, through, steps = self.saved
        # Laid out like the base, for views that count in the storage.
        whole = grad.clone() if steps is None else grad.new_empty_strided(grad.shape, steps).copy_(grad)
        region = replay(link, whole)
        # The inner node still names the parent it had before, so what is wanted of this one says nothing about it.
        before, _state.local.wanted = _state.local.wanted, None
        try:
            inner = _raw_as_tensors(node, region) if self.is_raw(node) else node.vjp(region.clone())
        finally:
            _state.local.wanted = before
        if through and inner[0] is not None:
            region.copy_(inner[0])
        else:
            region.zero_()
        return (whole, *inner[1:])

    @staticmethod
    def is_raw(node: Node) -> bool:
        """Whether the rule of `node` may run on arrays."""
        return node.has_raw and not _state.SLOW and not _state.grad_enabled()


def _raw_as_tensors(node: Node, region: Tensor) -> list[Any]:
    return [None if g is None else wrap(g) for g in node.raw(np.array(region._a))]


def register_view(view: Tensor) -> None:
    """Remember `view` with its storage, so that in-place operations can renew its history."""
    record = view._v
    views = record[tape.VIEWS]
    if views is None:
        views = record[tape.VIEWS] = []
    elif len(views) >= 32 and not len(views) & (len(views) - 1):
        views[:] = [ref for ref in views if ref() is not None]
    views.append(weakref.ref(view))


def check_versions(node: Node) -> None:
    """Raise RuntimeError if something `node` saved has been written, or detached in place, since."""
    seq = node.seq
    for record in node.versions:
        if record is not None and (record.__class__ is tuple or record[1] > seq):
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
        for value in saved[0] if records is record else saved:
            if tape.was_detached(r, value, node):
                where = node.made_at()
                raise RuntimeError(
                    f"Trying to use a saved tensor that has been detached in-place, i.e. with .detach_(): {node.name()} saved it"
                    + (f" at {tape.shown_line(where)}" if where else "")
                    + ". Use out-of-place .detach() instead"
                )
        if tape.written_at(r) > seq:
            raise_overwritten(node, record)


def raise_overwritten(node: Node, record: Any) -> None:
    index = next((i for i, v in enumerate(node.versions) if v is record), 0)
    saved = next((s for s, v in zip(node.saved, node.versions, strict=False) if v is record), None)
    if record.__class__ is tuple:  # of a list of tensors
        at = next(i for i, r in enumerate(record) if tape.written_at(r) > node.seq)
        saved, record = saved[at], record[at]
    shape = list(saved.shape) if isinstance(saved, ndarray) else "unknown"
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

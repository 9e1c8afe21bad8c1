"""The tape: one node per recorded operation, and what it keeps for the way back.

Each op has a subclass of `Node`, made with the op, so a node stores only what differs between calls. `parents` has one
entry per differentiable argument: the node that made it, its `Leaf`, or None. `saved` holds arrays, `versions` the storage
records they belong to; no node refers to a tensor, so the tape makes no reference cycles.
"""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any

from .. import _state

next_seq = _state.next_seq
OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Fields of a storage record, `Tensor._v`. The last is there once an operation with history, or any under anomaly mode,
# has written in place: its name and the user's line.
COUNT, STAMP, BUFFER, VIEWS, WRITER = range(5)


def users_line() -> tuple[str, int] | None:
    """File and number of the innermost line outside Flambeau, in 0.2 us."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith((OWN_FOLDER, "<flambeau")):
            return filename, frame.f_lineno
        frame = frame.f_back
    return None


def shown_line(place: tuple[str, int] | None) -> str:
    """A place from `users_line` with the text that stands there, for messages."""
    if place is None:
        return "an unknown line"
    import linecache

    text = linecache.getline(*place).strip()
    return f"{place[0]}:{place[1]}{': ' if text else ''}{text}"


class Overwritten:
    """Stands for an input that its own in-place operation destroyed."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Node:
    """One recorded operation.

    `raw(grad)` maps an output gradient array to one per parent; `vjp(grad)` does the same on Tensors and is itself
    differentiable. An op without a raw rule is differentiated through `vjp` with recording switched off.
    """

    __slots__ = ("seq", "parents", "saved", "versions", "hooks", "shape", "dtype", "__dict__", "__weakref__")
    op: Any = None
    lengths: Any = None
    add_piece: Any = None
    title = "Node"
    has_raw = False
    adds_piece = False  # a view of a part: `add_piece(whole, grad)` adds the gradient of that part to that of the whole

    def raw(self, grad: Any) -> Any:
        raise NotImplementedError(f"{self.title} has no raw rule")

    def vjp(self, grad: Any) -> Any:
        raise NotImplementedError(f"the derivative for '{self.name()}' is not implemented")

    # -- the public face, PyTorch's grad_fn ----------------------------------------------------------------------------

    def name(self) -> str:
        return self.title

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        return tuple(edge_of(parent) for parent in self.parents)

    @property
    def metadata(self) -> dict[str, Any]:
        return self.__dict__.setdefault("metadata_dict", {})

    def register_hook(self, fn: Any) -> Any:
        """Call ``fn(grad_inputs, grad_outputs)`` after this node's backward; a returned tuple replaces `grad_inputs`."""
        return add_hook(self, "post", fn)

    def register_prehook(self, fn: Any) -> Any:
        """Call ``fn(grad_outputs)`` before this node's backward; a returned tuple replaces `grad_outputs`."""
        return add_hook(self, "pre", fn)

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"

    def __lt__(self, other: Any) -> bool:
        return self.seq > other.seq


class Leaf(Node):
    """Where gradients of a leaf tensor arrive. Holds the tensor weakly: a leaf nobody keeps needs no gradient."""

    __slots__ = ("tensor",)
    title = "torch::autograd::AccumulateGrad"

    def name(self) -> str:
        return self.title

    @property
    def variable(self) -> Any:
        return self.tensor()

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self):#x}>"


def leaf_node(tensor: Any) -> Leaf:
    node = Leaf()
    node.seq = -next_seq()  # older than every recorded node, and no two alike
    node.parents = ()
    node.hooks = None
    node.tensor = weakref.ref(tensor)
    return node


class OutputNode(Node):
    """One result of an operation with several: passes its gradient to slot `index` of the operation's node."""

    __slots__ = ("index",)

    def name(self) -> str:
        return self.parents[0].name()

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        return self.parents[0].next_functions


def output_node(node: Node, index: int) -> OutputNode:
    made = OutputNode()
    made.seq = next_seq()
    made.parents = (node,)
    made.hooks = None
    made.index = index
    return made


def edge_of(parent: Any) -> tuple[Any, int]:
    if parent is None:
        return None, 0
    if type(parent) is OutputNode:
        return parent.parents[0], parent.index
    return parent, 0


# -- hooks ---------------------------------------------------------------------------------------------------------------


class RemovableHandle:
    """Returned by every hook registration; `remove()` takes the hook away. Also a context manager."""

    next_id = 0

    def __init__(self, hooks: dict[int, Any], *, extra_dict: Any = None) -> None:
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        self.hooks_ref = hooks
        extra = extra_dict if isinstance(extra_dict, (list, tuple)) else [extra_dict]
        self.extra = [d for d in extra if d is not None]

    def remove(self) -> None:
        for table in (self.hooks_ref, *self.extra):
            if table is not None:
                table.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __getstate__(self) -> Any:
        return self.hooks_ref, self.id

    def __setstate__(self, state: Any) -> None:
        self.hooks_ref, self.id = state
        self.extra = []


def add_hook(node: Node, kind: str, fn: Any) -> RemovableHandle:
    """Attach `fn` to `node`. Kinds: 'tensor' and 'retain' see the gradient, 'pre'/'post' the node's, 'accumulated' the leaf."""
    if node.hooks is None:
        node.hooks = {}
    table = node.hooks.setdefault(kind, {})
    handle = RemovableHandle(table)
    table[handle.id] = fn
    return handle

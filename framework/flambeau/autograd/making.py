"""The one text that makes nodes of the tape.

`making` gives its lines, for texts that are written for one operation (`ops/_spec/nodes.py`, entry points), and `new_node` and
others are functions of it, for everything that is called less often. Leaves are no records of operations: `tape` has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import _state
from .._inference import refuse_saving
from . import tape

__all__ = ["if_read", "making", "new_node", "node_of_fused", "output_node", "seen_from"]


def making(
    parents: str,
    saved: str | None = "()",
    versions: str | None = "()",
    shape: str | None = "0",
    dtype: str | None = None,
    to: str | None = "made._node",
    cls: str = "Node",
    name: str = "node",
    place: list[str] | None = None,
) -> list[str]:
    """Lines that make a node and call it `name`; they refer to `next_seq`, `refuse_saving` and MARKED.

    Args:
        parents, saved, versions, shape, dtype: text of what its slots get; None leaves a slot empty.
        to: what else it is stored in.
        cls: text of its class.
        place: lines that note the line of the program, see `seen_from`. Nodes that save nothing have none.
    """
    slots = {"parents": parents, "hooks": "None", "shape": shape, "saved": saved, "versions": versions, "dtype": dtype}
    return [
        f"{name} = {f'{to} = ' if to else ''}{cls if cls.isidentifier() else f'({cls})'}()",
        f"{name}.seq = next_seq()",
        *(f"{name}.{slot} = {value}" for slot, value in slots.items() if value is not None),
        *(place or []),
        *(["if MARKED:", f"    refuse_saving({name})"] if versions not in (None, "()") else []),
    ]


def if_read(value: str, readers: Sequence[str], nodes: Sequence[str], otherwise: str = "None") -> str:
    """Text of `value`, which a node saves if a gradient that is asked for reads it, and `otherwise` in its place.

    Args:
        readers: text of the nodes of those operands whose gradients read it.
        nodes: those of all operands, one of which is there.
    """
    if not readers or value == otherwise:
        return otherwise
    if len(readers) == len(nodes):
        return value
    return f"({value} if {' or '.join(f'{n} is not None' for n in readers)} else {otherwise})"


def seen_from(frames: int) -> list[str]:
    """Lines that note in ``node`` the line of the program, whose code is `frames` calls up as a rule."""
    return [
        f"frame = getframe({frames})",
        "code = frame.f_code",
        "node.where = (code, frame.f_lasti) if OWN_FILES.get(code.co_filename) is False else users_place(frame.f_back)",
    ]


def _function(head: str, lines: list[str]) -> Any:
    names: dict[str, Any] = {
        "next_seq": _state.next_seq, "refuse_saving": refuse_saving, "users_place": tape.users_place,
        "OutputNode": tape.OutputNode,
    }  # fmt: skip
    _state.share(names, "MARKED")
    text = f"def {head}:\n" + "".join(f"    {line}\n" for line in lines) + "    return node\n"
    exec(compile(text, f"<flambeau {head.partition('(')[0]}>", "exec"), names)  # our own text
    return names[head.partition("(")[0]]


# A node of the class `cls`, which leads to the nodes `parents` and keeps the line of the program; the other arguments as for `making`.
new_node: Callable[..., Any] = _function(
    "new_node(cls, parents, saved=(), versions=(), shape=0, dtype=None)",
    making("parents", "saved", "versions", "shape", "dtype", to=None, cls="cls", place=["node.where = users_place()"]),
)

# One of a whole that knows the line of the program, and what the node has saved.
node_of_fused: Callable[..., Any] = _function(
    "node_of_fused(cls, parents, versions, shape, dtype, where)",
    [*making("parents", None, "versions", "shape", "dtype", to=None, cls="cls", place=["node.where = where"])],
)

# The node of the result `index` of the operation that the node `of` is of.
output_node: Callable[..., Any] = _function(
    "output_node(of, index)",
    [*making("(of,)", None, None, None, to=None, cls="OutputNode"), "node.index = index"],
)

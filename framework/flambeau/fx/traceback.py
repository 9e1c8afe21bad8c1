"""Meta data of the node that is being run, which nodes that it makes take over."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .node import Node

__all__ = [
    "annotate", "annotate_fn", "format_stack", "get_current_meta", "get_current_replay_node", "has_preserved_node_meta",
    "preserve_node_meta", "reset_grad_fn_seq_nr", "set_current_meta", "set_current_replay_node", "set_grad_fn_seq_nr",
    "set_stack_trace",
]  # fmt: skip


class _Local(threading.local):
    def __init__(self) -> None:
        self.meta: dict[str, Any] = {}
        self.preserving = False
        self.replayed: Any = None


_local = _Local()


@contextlib.contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """A region in which nodes that are made take over the meta data of the one that is run."""
    before, meta = _local.preserving, _local.meta
    _local.preserving, _local.meta = enable, copy.copy(meta)
    try:
        yield
    finally:
        _local.preserving, _local.meta = before, meta


def has_preserved_node_meta() -> bool:
    """Whether meta data is taken over."""
    return _local.preserving


@contextlib.contextmanager
def set_current_meta(node: Node, pass_name: str = "") -> Iterator[None]:
    """A region in which `node` is run."""
    if not _local.preserving or not node.meta:
        yield
        return
    before = _local.meta
    _local.meta = node.meta.copy()
    try:
        yield
    finally:
        _local.meta = before


def get_current_meta() -> dict[str, Any]:
    """The meta data of the node that is run."""
    return _local.meta


def set_stack_trace(stack: list[str]) -> None:
    """Note the lines of the program for nodes that are made from here on."""
    if _local.preserving and stack:
        _local.meta["stack_trace"] = "".join(stack)


def set_grad_fn_seq_nr(seq_nr: int) -> None:
    """Note the number of the autograd node that nodes belong to, those inside each other as a list."""
    if _local.preserving:
        _local.meta["grad_fn_seq_nr"] = [*_local.meta.get("grad_fn_seq_nr", []), seq_nr]
        _local.meta["in_grad_fn"] = _local.meta.get("in_grad_fn", 0) + 1


def reset_grad_fn_seq_nr() -> None:
    """Undo the innermost `set_grad_fn_seq_nr`."""
    if not _local.preserving:
        return
    level = _local.meta.get("in_grad_fn", 0)
    if level <= 1:
        _local.meta.pop("in_grad_fn", None)
        _local.meta.pop("grad_fn_seq_nr", None)
    else:
        _local.meta["in_grad_fn"] = level - 1
        _local.meta["grad_fn_seq_nr"] = _local.meta["grad_fn_seq_nr"][:-1]


def format_stack() -> list[str]:
    """The lines of the program that the node that is run came from, or those that run now."""
    if _local.preserving:
        return [_local.meta.get("stack_trace", "")]
    import traceback

    return traceback.format_list(traceback.extract_stack()[:-1])


@contextlib.contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """A region whose nodes carry these entries in ``meta["custom"]``."""
    before = _local.meta.get("custom")
    _local.meta["custom"] = {**(before or {}), **annotation_dict}
    try:
        yield
    finally:
        if before is None:
            _local.meta.pop("custom", None)
        else:
            _local.meta["custom"] = before


def annotate_fn(annotation_dict: dict[str, Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`annotate` for the body of a function."""
    import functools

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def annotated(*args: Any, **kwargs: Any) -> Any:
            with annotate(annotation_dict):
                return fn(*args, **kwargs)

        return annotated

    return decorate


@contextlib.contextmanager
def set_current_replay_node(node: Node | None) -> Iterator[None]:
    """A region in which `node` is replayed."""
    before, _local.replayed = _local.replayed, node
    try:
        yield
    finally:
        _local.replayed = before


def get_current_replay_node() -> Node | None:
    """The node that is replayed."""
    return _local.replayed

"""Anomaly mode: where in the forward a failing backward comes from, and which operation made the first nan."""

from __future__ import annotations

import contextlib
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

from .. import _state
from .._interpreters import Interpreter
from ..ops import _dispatch
from ..tensor import Tensor
from .graph import nodes_behind
from .tape import OWN_FOLDER, Node, OutputNode, add_hook, note_writer, users_place

__all__ = ["detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_detect_anomaly"]

_local = _state.local


class _Watching(Interpreter):
    """The interpreter that notes where each node was recorded, and where memory was overwritten."""

    kind = "anomaly"
    takes_names = True

    def __init__(self, check_nan: bool) -> None:
        self.check_nan = check_nan

    def run(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        if op.kind == "composite":
            return NotImplemented
        result = _dispatch.interpret(op, args, out, inplace)
        stack = None
        for r in result if isinstance(result, tuple) else (result,):
            node = r._node if isinstance(r, Tensor) else None
            node = node.parents[0] if type(node) is OutputNode else node
            if isinstance(node, Node) and node.parents and "trace" not in node.__dict__:
                stack = stack or _users_stack()
                node.where, node.__dict__["trace"] = users_place(), stack
                parent = _running()
                if parent is not None:
                    node.__dict__["made_by"] = parent
        if inplace or out is not None:
            target = args[0] if inplace else out
            for t in target if isinstance(target, (tuple, list)) else (target,):
                note_writer(t._storage, f"{op.name}{'_' if inplace else ''}")
        return result


def _users_stack() -> traceback.StackSummary:
    """The calls that led here, without those inside Flambeau."""
    frames = traceback.extract_stack()
    return traceback.StackSummary.from_list([f for f in frames if not f.filename.startswith((OWN_FOLDER, "<flambeau"))])


def _running() -> Any:
    return getattr(_local, "running_node", None)


@contextlib.contextmanager
def watching(roots: Any) -> Iterator[None]:
    """While a backward from `roots` runs: check what each node returns, and say where a failing one was recorded."""
    level = next((x for x in _local.calls.interpreters if isinstance(x, _Watching)), None)
    if level is None:
        yield
        return
    handles = []
    before = _running()
    for node in nodes_behind(roots):
        if node.parents and type(node) is not OutputNode:
            handles.append(add_hook(node, "pre", _entering(node)))
            if level.check_nan:
                handles.append(add_hook(node, "post", _checking(node)))
    _local.running_node = None
    try:
        yield
    except Exception:
        node = _running()
        if node is not None and node is not before:
            _warn_about(node)
        raise
    finally:
        _local.running_node = before
        for h in handles:
            h.remove()


def _entering(node: Node) -> Any:
    def note(grads: Any) -> None:
        _local.running_node = node

    return note


def _checking(node: Node) -> Any:
    def check(grads: Any, outs: Any) -> None:
        for i, g in enumerate(grads):
            if isinstance(g, Tensor) and (g.is_floating_point() or g.is_complex()) and not g._lacks_values and bool((g != g).any()):
                raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")

    return check


def _warn_about(node: Any) -> None:
    trace = node.__dict__.get("trace")
    if trace is None:
        text = "No forward pass information available. Enable detect anomaly during forward pass for more information."
    else:
        text = "Traceback of forward call that caused the error:\n" + "".join(trace.format())
    warnings.warn(f"Error detected in {node.name()}. {text}", stacklevel=2)
    made_by = node.__dict__.get("made_by")
    if made_by is not None and made_by.__dict__.get("trace") is not None:
        warnings.warn(
            f"\n\nPrevious calculation was induced by {made_by.name()}. Traceback of forward call that induced the previous "
            f"calculation:\n{''.join(made_by.__dict__['trace'].format())}",
            stacklevel=2,
        )


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on in this thread."""
    return any(isinstance(x, _Watching) for x in _local.calls.interpreters)


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode looks for nan."""
    level = next((x for x in _local.calls.interpreters if isinstance(x, _Watching)), None)
    return True if level is None else level.check_nan


def _set(mode: bool, check_nan: bool) -> None:
    level = next((x for x in _local.calls.interpreters if isinstance(x, _Watching)), None)
    if level is not None:
        _dispatch.pop(level)
    if mode:
        _dispatch.push(_Watching(check_nan))


class set_detect_anomaly:  # PyTorch's name
    """Switch anomaly mode on or off; as a context manager, until the end of the region.

    Args:
        check_nan: whether a backward raises when an operation returns nan.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.before = (is_anomaly_enabled(), is_anomaly_check_nan_enabled())
        _set(bool(mode), check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        _set(*self.before)


class detect_anomaly:  # PyTorch's name
    """A region in anomaly mode: a backward that fails, or makes nan, says which forward line it belongs to.

    Operations take many times longer; for debugging only.
    """

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self.before = (is_anomaly_enabled(), is_anomaly_check_nan_enabled())
        _set(True, self.check_nan)

    def __exit__(self, *_: object) -> None:
        _set(*self.before)

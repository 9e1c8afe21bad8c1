"""Execution traces: which call ran inside which, on which tensors, as a graph that other tools replay."""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from typing import Any

from .. import _state
from ..autograd._recorder import FUNCTION, USER, Recorder, Wanted, _sequence, aten_name, described
from ..tensor import Tensor

__all__ = ["ExecutionTraceObserver"]


class _ITraceObserver(ABC):
    """What a profile starts and stops together with itself."""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def cleanup(self) -> None: ...


class ExecutionTraceObserver(_ITraceObserver):
    """Writes what runs between `start` and `stop` to a file, one node for each call, in the format of Chakra's execution traces."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._tracer: _Tracer | None = None
        self.extra_resources_collection = False

    def register_callback(self, output_file_path: str) -> ExecutionTraceObserver:
        """Say which file to write. Raises: RuntimeError if it cannot be written."""
        try:
            with open(output_file_path, "a"):
                pass
        except OSError as error:
            raise RuntimeError(f"ExecutionTraceObserver.register_callback: cannot write {output_file_path!r}: {error}") from error
        self._path = output_file_path
        return self

    def unregister_callback(self) -> None:
        """Stop, and forget the file."""
        self.stop()
        self._path = None

    @property
    def is_registered(self) -> bool:
        """Whether there is a file to write."""
        return self._path is not None

    def is_running(self) -> bool:
        """Whether calls are being written down."""
        return self._tracer is not None

    def start(self) -> None:
        """Begin to write down calls of this thread; without a file nothing happens."""
        if self._path is not None and self._tracer is None:
            around = _state.observer()
            self._tracer = _Tracer(Wanted() if around is None else around.wanted)
            self._tracer.start()

    def stop(self) -> None:
        """Stop, and write the file."""
        tracer, self._tracer = self._tracer, None
        if tracer is not None and self._path is not None:
            tracer.stop()
            with open(self._path, "w") as file:
                json.dump(tracer.trace(), file, indent=1)

    def cleanup(self) -> None:
        """`unregister_callback`, for a profile that has ended."""
        self.unregister_callback()

    def get_output_file_path(self) -> str | None:
        """The file that is written, or None."""
        return self._path

    def set_extra_resource_collection(self, val: bool) -> None:
        """Whether resources of compiled code would be collected beside the file; there are none here."""
        self.extra_resources_collection = val

    def get_resources_dir(self, can_create: bool = False) -> str | None:
        """The folder for resources beside the file, or None without one.

        Args:
            can_create: make the folder if it is not there.
        """
        if self._path is None or not self.extra_resources_collection:
            return None
        folder = os.path.splitext(self._path)[0] + "_resources"
        if can_create:
            os.makedirs(folder, exist_ok=True)
        return folder if os.path.isdir(folder) else None


class _Tracer(Recorder):
    """Writes down calls as nodes of an execution trace, and records for the profile around it what that wants."""

    def __init__(self, wanted: Wanted) -> None:
        super().__init__(wanted)
        self._record, self.observe = self.observe, self._observe_as_node
        self.nodes: list[dict[str, Any]] = []
        self.parents = [2]
        self._numbers: dict[int, tuple[Any, int]] = {}
        self._next = iter(range(3, 1 << 62)).__next__

    def _observe_as_node(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool, run: Any) -> Any:
        return self._as_node(aten_name(op, inplace), FUNCTION, args, lambda: self._record(op, args, out, inplace, run))

    def observe_function(self, name: str, run: Any, args: tuple[Any, ...], kwargs: dict[str, Any], plain: bool = False) -> Any:
        given = (*args, *kwargs.values())
        return self._as_node(name, FUNCTION, given, lambda: Recorder.observe_function(self, name, run, args, kwargs, plain))

    def _as_node(self, name: str, scope: int, args: Any, run: Any) -> Any:
        number, parent = self._next(), self.parents[-1]
        given = self._values(args)
        self.parents.append(number)
        result = None
        try:
            result = run()
        finally:
            self.parents.pop()
            made = self._values(result if isinstance(result, (tuple, list)) else (result,))
            self.nodes.append(_node(number, name, parent, given, made, scope, _sequence(result)))
        return result

    def begins_node(self, node: Any) -> None:
        super().begins_node(node)
        self.parents.append(self._next())

    def ends_node(self, node: Any, grad: Any, grads: Any) -> None:
        super().ends_node(node, grad, grads)
        self._leave(node, grad if isinstance(grad, list) else (grad,), grads or ())

    def ends_leaf(self, node: Any) -> None:
        super().ends_leaf(node)
        self._leave(node, (node.tensor(),), ())

    def _leave(self, node: Any, given: Any, made: Any) -> None:
        number = self.parents.pop()
        self.nodes.append(_node(number, node.name(), self.parents[-1], self._values(given), self._values(made), 1, node.seq))

    def region(self, name: str, began: int, args: str | None = None) -> None:
        super().region(name, began, args)
        self.nodes.append(_node(self._next(), name, self.parents[-1], _NOTHING, _NOTHING, USER, -1))

    def _number_of(self, thing: Any) -> int:
        """A number of `thing`, the same whenever it is seen; the object is kept, so that no other takes its place."""
        known = self._numbers.get(id(thing))
        if known is None:
            known = self._numbers[id(thing)] = (thing, self._next())
        return known[1]

    def _values(self, args: Any) -> dict[str, list[Any]]:
        values, shapes, types, strides = [], [], [], []
        for a in args:
            shape, stride, kind, text = described(a)
            if isinstance(a, Tensor):
                storage = self._number_of(a._storage)
                values.append([self._number_of(a), storage, a.storage_offset(), a.numel(), a.element_size(), str(a.device)])
                kind = f"Tensor({kind})"
            else:
                values.append(a if isinstance(a, (bool, int, float, str)) or a is None else text)
                kind = {"Scalar": type(a).__name__.capitalize(), "": "None"}.get(kind, kind)
            shapes.append(shape)
            strides.append(stride)
            types.append(kind)
        return {"values": values, "shapes": shapes, "types": types, "strides": strides}

    def trace(self) -> dict[str, Any]:
        """The whole trace; nodes are in the order in which they were numbered."""
        process = _node(1, "[pytorch|profiler|execution_trace|process]", 1, _NOTHING, _NOTHING, USER, -1)
        thread = _node(2, "[pytorch|profiler|execution_trace|thread]", 1, _NOTHING, _NOTHING, USER, -1)
        nodes = sorted([process, thread, *self.nodes], key=lambda node: node["id"])
        return {
            "schema": "1.1.1-chakra.0.0.4", "pid": self.pid, "time": time.strftime("%Y-%m-%d %H:%M:%S"),
            "start_ts": self.began // 1000, "nodes": nodes, "finish_ts": self.ended // 1000,
        }  # fmt: skip


_NOTHING: dict[str, list[Any]] = {"values": [], "shapes": [], "types": [], "strides": []}


def _node(number: int, name: str, parent: int, given: Any, made: Any, scope: int, sequence: int) -> dict[str, Any]:
    attributes = {"rf_id": ("uint64", number), "seq_id": ("int64", sequence), "scope": ("uint64", scope), "tid": ("uint64", 1)}
    return {
        "id": number, "name": name, "ctrl_deps": parent, "inputs": given, "outputs": made,
        "attrs": [{"name": key, "type": kind, "value": value} for key, (kind, value) in attributes.items()],
    }  # fmt: skip

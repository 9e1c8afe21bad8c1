"""A backward that always takes the same way: its nodes are run one after the other, without looking for the order.

The engine finds the order of nodes while it runs. In a program that is replayed (`_replay`) the nodes are new in each call, and
their order is the same. So the first backward writes down what the engine would do, and the next ones do that: the same rules on the
same arrays, sums in the same order, gradients of leaves at the end. What looks otherwise than it did is left to the engine; nothing has
been changed before that is known.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

import numpy as np

from flambeau_kernels.quiet import hush, unhush

from .. import _state
from .._arrays import ndarray
from ..autograd import engine, tape
from ..ops._spec import Op
from ..tensor import Tensor

# Bytes that nodes have saved. The engine lets go of them one after the other, a written order of all at the end.
MOST_SAVED = 1 << 24


class ScheduledBackward:
    """``backward()`` of a single element, whose nodes are the same ones in each call."""

    def __init__(self) -> None:
        self.run: Any = None
        self.leaves: list[tuple[Tensor, Any]] = []    # that gradients go to, held because nodes hold them weakly
        self.refused = False                          # whether the engine does all of it

    def __call__(self, root: Tensor) -> None:
        """What ``root.backward()`` does."""
        if self.run is None and not self.refused:
            self._write(root)
        if self.run is None or not self.run(root):
            root.backward()

    def _write(self, root: Tensor) -> None:
        if root._array.__class__ is not ndarray or root._array.size != 1 or root._node is None or not _is_plain(root._node):
            self.refused = True
            return
        writing = _Writing(root)
        self.refused = writing.refused
        if not self.refused:
            self.leaves, self.run = writing.leaves, writing.function()


def _is_plain(root: Any) -> bool:
    """Whether the engine would run nothing but the rules of the nodes that lead from `root` to leaves."""
    seen, stack, saved = {root}, [root], 0
    while stack:
        node = stack.pop()
        if node.hooks or node.__class__ is tape.OutputNode:
            return False
        if node.__class__ is tape.Leaf:
            tensor = node.tensor()
            if tensor is None or tensor._array.__class__ is not ndarray:
                return False
            continue
        # Rules of ops have no side effects; what programs have written may.
        if node.looks_around or not isinstance(getattr(node, "op", None), Op) or not node.has_raw or node.saved is engine.FREED:
            return False
        saved += sum(a.nbytes for a in node.saved or () if a.__class__ is ndarray)
        for parent in node.parents:
            if parent is not None and parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return saved <= MOST_SAVED


class _Writing:
    """Follows the nodes from `root` as the engine does, and writes down the way."""

    def __init__(self, root: Tensor) -> None:
        self.scope: dict[str, Any] = {
            "ndarray": ndarray, "empty": np.empty, "hush": hush, "unhush": unhush, "plus": engine.PLUS, "into": engine.PLUS.into,
            "FREED": engine.FREED, "accumulate": engine.accumulate_grad, "call": engine._TO_LEAVES[0], "set_grad": _state.set_grad,
            "local": _state.local, "shape": root._array.shape, "dtype": root._array.dtype,
        }  # fmt: skip
        self.find: list[str] = ["n0 = root._node"]
        self.tests: list[str] = []
        self.lines: list[str] = []
        self.free: list[str] = []
        self.leaves: list[tuple[Tensor, Any]] = []
        self.refused = False                          # gradients are of several kinds
        self.names: dict[Any, str] = {}
        self._follow(root._node)

    def _follow(self, root: Any) -> None:
        self._found(root, "root._node")
        arrived = {root: "g0"}
        added: set[Any] = set()                       # nodes whose sum is an array of its own
        arrays: dict[Any, Any] = {}
        arrays[root] = np.ones(self.scope["shape"], self.scope["dtype"])
        heap: list[tuple[int, Any]] = [(-root.seq, root)]
        at_leaves: list[tuple[Any, str]] = []
        count = 1
        quiet = hush()
        before = _state.local.asked
        try:
            while heap:
                _, node = heappop(heap)
                gradient, name = arrived.pop(node), self.names[node]
                if node.__class__ is tape.Leaf:
                    at_leaves.append((node, gradient))
                    continue
                grads = list(node.raw(arrays.pop(node)))
                self.lines += [f"a = {name}.raw({gradient})", f"{gradient} = None"]
                if node.versions:
                    self.free.append(f"{name}.saved = FREED")
                for place, (parent, grad) in enumerate(zip(node.parents, grads, strict=False)):
                    if parent is None or grad is None:
                        continue
                    if grad.__class__ is not ndarray or parent in arrays and arrays[parent].dtype != grad.dtype:
                        self.refused = True
                        return
                    if parent not in self.names:
                        self._found(parent, f"{name}.parents[{place}]")
                    else:
                        self.tests.append(f"{name}.parents[{place}] is not {self.names[parent]}")
                    if parent not in arrived:
                        arrived[parent], arrays[parent] = f"g{count}", grad
                        self.lines.append(f"g{count} = a[{place}]")
                        self.lines.append(f"if g{count}.__class__ is not ndarray: return False")
                        count += 1
                        heappush(heap, (-parent.seq, parent))
                        continue
                    self.lines.append(f"if a[{place}].__class__ is not ndarray: return False")
                    have = arrived[parent]
                    if parent in added:
                        self.lines.append(f"into({have}, a[{place}])")
                        engine.PLUS.into(arrays[parent], grad)
                    else:
                        added.add(parent)
                        self.lines.append(f"{have} = plus({have}, a[{place}])")
                        arrays[parent] = engine.PLUS(arrays[parent], grad)
        finally:
            unhush(quiet)
            _state.set_grad(before)
        self.lines.append("a = None")
        self.ends = [line for leaf, gradient in at_leaves for line in
                     (f"grad, {gradient} = {gradient}, None", f"accumulate({self.names[leaf]}, grad, call)")]  # fmt: skip

    def _found(self, node: Any, where: str) -> None:
        at = len(self.names)
        name = self.names[node] = f"n{at}"
        if at:
            self.find.append(f"{name} = {where}")
        if node.__class__ is tape.Leaf:
            tensor = node.tensor()
            self.leaves.append((tensor, node))
            self.scope[f"l{at}"], self.scope[f"p{at}"] = node, tensor
            self.tests += [f"{name} is not l{at}", f"{name}.hooks", f"p{at}._node is not l{at}"]
        else:
            self.scope[f"C{at}"] = node.__class__
            self.tests += [f"{name}.__class__ is not C{at}", f"{name}.hooks"]

    def function(self) -> Any:
        """``f(root)``: whether it was the same way; if not, nothing has been done."""
        text = "\n".join([
            "def scheduled(root):", *[f"    {line}" for line in self.find],
            f"    if {' or '.join(self.tests)}: return False",
            "    g0 = empty(shape, dtype)", "    g0[...] = 1", "    before = local.asked", "    quiet = hush()", "    try:",
            *[f"        {line}" for line in [*self.lines, *self.free, *self.ends]],
            "    finally:", "        unhush(quiet)", "        set_grad(before)", "    return True",
        ])  # fmt: skip
        exec(compile(text, "<flambeau backward>", "exec"), self.scope)  # the text is made of names of this class's own
        return self.scope["scheduled"]

"""The gradients of a chain of elementwise operations by one kernel.

A chain that is computed by one kernel has the history that its operations have: a node for each of them (`History.record`), in
the same order, with the same names and parents, where hooks can be put and second derivatives taken. What the nodes have saved is
computed when somebody asks for it. The engine asks the `Group` of a node first, which runs all nodes of the chain by one kernel,
unless a hook, a target or a recording of the gradient itself has to meet them one after the other.

The kernel does what the engine would do: it applies the rules of the operations from the newest to the oldest, and adds what
arrives at a node in that order, to what had arrived there before. So the bits are the same.

A derivative reads values that a chain does not keep. They are computed again from operands that operations of the chain save anyway;
what depends on others, which a program may overwrite, is kept. Of the ways to choose what is kept the one with the fewest arrays is taken.
"""

from __future__ import annotations

import functools
import math
from heapq import heapify, heappush
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.formula import Formula

from .._arrays import MetaArray, contiguous_strides, is_c_contiguous, like_strides, ndarray, plain_dtype
from ..autograd import tape
from ..autograd.engine import FREED, arrive
from ..autograd.making import node_of_fused
from ..ops._spec.derivatives import ElementwiseNode
from ..ops._spec.shapes import sum_to
from ..tensor import Tensor, wrap
from ._background import Kernel, stand_in
from ._cut import Flow
from ._formulas import Text, is_real, widens

_new = object.__new__
_MOST_KERNELS = 8                                     # of one chain: which gradients arrive and are wanted seldom changes


class _InGroup(tape.Node):
    """A node of a chain, beside what it is by its operation. `kept` is what it has saved, once somebody has asked for that."""

    __slots__ = ()
    more_than_rule = True

    @property
    def saved(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]  # a slot of other nodes
        found = self.kept
        if found is None:
            found = self.kept = self.group.saved_by(self)
        return found

    @saved.setter
    def saved(self, value: Any) -> None:
        self.kept = value
        if value is FREED:
            self.group.note_freed()

    kept: Any
    at: int


@functools.cache
def _node_class(op: Any) -> Any:
    """The class of an operation's nodes in chains."""
    base = op.node_class
    return type(base.__name__, (_InGroup, base), {"__slots__": ("group", "at", "kept")})


class Saver:
    """What one operation of a chain leaves for its derivative; `parents` are refs, or None."""

    __slots__ = ("dtypes", "make", "op", "parents", "reads", "saved", "saves", "shapes")

    def __init__(self, step: Any) -> None:
        op = self.op = step.op
        self.make = _node_class(op)
        self.parents = [
            ref if isinstance(look, Tensor) and look.requires_grad else None for ref, look in zip(step.refs, step.looks, strict=True)
        ]
        wanted = {r for name, parent in zip(op.params, self.parents, strict=True) if parent is not None for r in op.reads_of(name)}
        # By place: the result, and then the operands.
        self.reads = ("out" in wanted, *[name in wanted for name in op.params])
        # The same with the numbers of values; whether any of them is one.
        self.saved = [(ref, reads and ref.__class__ is int) for ref, reads in zip((step.first, *step.refs), self.reads, strict=True)]
        self.saves = any(reads for _, reads in self.saved)
        self.shapes = tuple([look._array.shape if isinstance(look, Tensor) else None for look in step.looks])
        self.dtypes = tuple([plain_dtype(look._array.dtype) if isinstance(look, Tensor) else None for look in step.looks])


class History:
    """How the operations `steps` of a chain are recorded, and what they keep.

    Args:
        steps: operations with one result each, of one shape and dtype.
        values: numbers of those results that become tensors.
    `kept` are numbers of further results that the chain's kernel has to give, for the derivative alone.
    """

    def __init__(self, steps: list[Any], values: tuple[int, ...]) -> None:
        self.steps, self.visible = list(steps), frozenset(values)
        self.places = {step.first: k for k, step in enumerate(steps)}
        self.savers = [Saver(step) if step.results[0].requires_grad else None for step in steps]
        looks = steps[0].results[0]
        self.shape, self.dtype = looks._array.shape, plain_dtype(looks._array.dtype)
        self.read: set[int] = set()                   # values and operands that derivatives read
        for step, saver in zip(steps, self.savers, strict=True):
            if saver is not None:
                places = (step.first, *step.refs)
                self.read.update(ref for ref, reads in zip(places, saver.reads, strict=True) if reads and ref.__class__ is int)
        # What operations save may not be overwritten; it is there when the derivative is computed, or that is an error.
        self.there = {ref for ref in self.read if ref not in self.places or ref in self.visible}
        self.kept = tuple(sorted(self._kept()))
        self.sources = self._sources()
        self.kernels: dict[Any, Any] = {}
        self._recording: Any = None                   # what `record` is written as

    def _kept(self) -> set[int]:
        flow = Flow()
        for step in self.steps:
            value = step.first
            if value in self.there:
                continue
            flow.add((value, 0), (value, 1), 1.0)
            for ref in step.refs:
                if ref.__class__ is int and ref not in self.there:
                    flow.add((ref, 1) if ref in self.places else "start", (value, 0), math.inf)
            if value in self.read:
                flow.add((value, 1), "end", math.inf)
        near = flow.cut("start", "end")
        return {step.first for step in self.steps if (step.first, 0) in near and (step.first, 1) not in near}

    def _sources(self) -> tuple[int, ...]:
        """The values and operands that the others are computed from again."""
        found: set[int] = set()
        seen: set[int] = set()
        waiting = list(self.read)
        while waiting:
            ref = waiting.pop()
            if ref in seen:
                continue
            seen.add(ref)
            if ref in self.there or ref in self.kept:
                found.add(ref)
            else:
                waiting += [r for r in self.steps[self.places[ref]].refs if r.__class__ is int]
        return tuple(sorted(found))

    def record(self, operands: dict[int, Tensor], made: dict[int, Tensor], kept: dict[int, Any]) -> list[Any]:
        """Give the results `made` of one call their histories.

        Args:
            operands: the tensors that the chain reads.
            made: its results that become tensors.
            kept: arrays of `kept`.
        Returns: the nodes, by step; None for those without a history.
        """
        if self._recording is None:                   # which results become tensors is the same in each call
            self._recording = self._written(frozenset(made))
        return self._recording(operands, made, kept)

    def _written(self, made: frozenset[int]) -> Any:
        """`record` as a text without loops, for results of which those numbered `made` become tensors."""
        scope: dict[str, Any] = {"Group": Group, "history": self, "node_of_fused": node_of_fused}
        lines = ["group = Group(history)"]
        names: dict[int, str] = {}                    # of tensors

        def tensor(ref: int) -> str:
            if ref not in names:
                names[ref] = f"t{len(names)}"
                lines.append(f"{names[ref]} = {'made' if ref in made else 'operands'}[{ref}]")
            return names[ref]

        def parent(ref: int | None) -> str:
            if ref is None:
                return "None"
            if ref not in self.places:
                return f"{tensor(ref)}._node"
            at = self.places[ref]
            return "None" if self.savers[at] is None else f"n{at}"

        waiting = 0
        for k, (step, saver) in enumerate(zip(self.steps, self.savers, strict=True)):
            if saver is None:
                continue
            parents = [parent(ref) for ref in saver.parents]
            versions = ""
            if saver.saves:
                kept_by = [
                    f"{tensor(ref)}._storage" if reads and (ref in made or ref not in self.places) else "None" for ref, reads in saver.saved
                ]  # fmt: skip
                versions = f"{', '.join(kept_by)},"
                waiting += 1
            scope |= {f"make{k}": saver.make, f"shapes{k}": saver.shapes, f"dtypes{k}": saver.dtypes, f"where{k}": step.where}
            lines += [
                f"n{k} = node_of_fused(make{k}, ({', '.join(parents)},), ({versions}), shapes{k}, dtypes{k}, where{k})",
                f"n{k}.group, n{k}.at, n{k}.kept = group, {k}, None",
            ]  # fmt: skip
            if step.first in made:
                lines.append(f"{tensor(step.first)}._node = n{k}")
        nodes = ", ".join(["None" if saver is None else f"n{k}" for k, saver in enumerate(self.savers)])
        lines += [f"group.nodes = nodes = [{nodes}]", f"group.waiting = {waiting}"]
        there = [ref for ref in self.sources if ref not in self.kept]
        found = [(ref, tensor(ref)) for ref in there]
        arrays = [*[f"{ref}: {name}._array" for ref, name in found], *[f"{ref}: kept[{ref}]" for ref in self.sources if ref in self.kept]]
        records = [f"{ref}: {name}._storage" for ref, name in found]
        lines += [f"group.arrays = {{{', '.join(arrays)}}}", f"group.records = {{{', '.join(records)}}}", "return nodes"]
        text = "\n".join(["def record(operands, made, kept):", *[f"    {line}" for line in lines]])
        exec(compile(text, "<flambeau history>", "exec"), scope)  # the text is made of names of this method's own
        return scope["record"]


class Group:
    """The nodes of one call of a chain, by place; None for operations without a history.

    `arrays` has what the derivatives read, or what that is computed from; `records` the storage records of what programs can write to.
    `is_early` says that its kernel was not there yet.
    """

    __slots__ = ("arrays", "history", "is_early", "nodes", "records", "waiting")

    def __init__(self, history: History) -> None:
        self.history = history
        self.nodes: list[Any] = []
        self.arrays: dict[int, Any] = {}
        self.records: dict[int, Any] = {}
        self.waiting = 0                              # nodes that have not been freed
        self.is_early = False

    def note_freed(self) -> None:
        """A node has let go of what it saved."""
        self.waiting -= 1
        if self.waiting <= 0:
            self.arrays, self.records = {}, {}

    # -- one after the other

    def saved_by(self, node: Any) -> tuple[Any, ...]:
        """What `node` would have saved, had its operation run by itself."""
        saver, step = self.history.savers[node.at], self.history.steps[node.at]
        assert saver is not None                      # it has a node
        saved: list[Any] = []
        versions = list(node.versions)
        for i, (ref, reads) in enumerate(zip((step.first, *step.refs), saver.reads, strict=True)):
            if not reads:
                saved.append(None)
            elif ref.__class__ is int:
                saved.append(self._value(ref))
                if versions[i] is None:
                    versions[i] = wrap(saved[-1])._storage
            else:
                saved.append(ref.value)
        node.versions = tuple(versions)
        return tuple(saved)

    def _value(self, ref: int) -> Any:
        """The array of a value, computed again by its operation if it was not kept."""
        found = self.arrays.get(ref)
        history = self.history
        if found is None:
            step = history.steps[history.places[ref]]
            for r in step.refs:
                if r.__class__ is int:
                    self._check(r)
            operands = tuple([self._value(r) if r.__class__ is int else r.value for r in step.refs])
            found = np.empty(history.shape, history.dtype)
            step.op.launch(operands, found, history.dtype)
            self.arrays[ref] = found
        return found

    def _check(self, ref: int) -> None:
        """Raise RuntimeError if the tensor that others are computed again from was written to since."""
        record = self.records.get(ref)
        if record is not None and tape.written_at(record) > next(n.seq for n in self.nodes if n is not None):
            raise RuntimeError(
                "compile: one of the variables needed for gradient computation has been modified by an inplace operation: values of a "
                f"chain of operations are computed again for its derivative from a tensor of shape {list(self.arrays[ref].shape)}, and "
                f"{tape.shown_writer(record)} overwrote it. Use the out-of-place form there, or clone() what is modified"
            )

    # -- at once

    def run(self, node: Any, grad: Any, pending: Any, heap: Any, owned: Any, call: Any, keep_graph: bool) -> bool:
        """Run `node`, at which `grad` has arrived, and all that follows from it in the chain. Returns whether that was possible.

        The others are those of the engine's loop: gradients that wait at their nodes, the order of nodes, those whose gradient
        is an array of their own, and what backward was asked for.
        """
        if self.is_early:
            return False
        history, nodes = self.history, self.nodes
        wanted, places = call.wanted, call.places
        arriving = {node.at: grad}
        for other in nodes[: node.at]:
            if other is not None:
                if other.hooks or other.kept is not None or other in places:
                    return False
                if other in pending:
                    arriving[other.at] = pending[other]
        if node.hooks or node.kept is not None:
            return False
        shape, dtype = history.shape, history.dtype
        for array in arriving.values():
            if array.__class__ is not ndarray or array.dtype != dtype or array.shape != shape or not _in_rows(array):
                return False
        asked = None if wanted is None else tuple([other in wanted for other in nodes[: node.at]])
        slots: dict[Any, int] = {}                    # of nodes outside, by their first place
        edges: list[Any] = []
        for saver, other in zip(history.savers[: node.at + 1], nodes, strict=False):
            if saver is not None:
                for ref, parent in zip(saver.parents, other.parents, strict=True):
                    if ref is not None and ref not in history.places:
                        edges.append(slots.setdefault(parent, len(slots)) if wanted is None or parent in wanted else None)
        have = [pending.get(parent) for parent in slots]
        adds = tuple([
            None if h is None else h.__class__ is ndarray and h.dtype == dtype and h.shape == shape and _in_rows(h) for h in have
        ])  # fmt: skip
        name = (tuple(sorted(arriving)), asked, tuple(edges), adds)
        kernel = history.kernels.get(name)
        if kernel is None:
            if len(history.kernels) >= _MOST_KERNELS:
                return False
            kernel = history.kernels[name] = GradientKernel(history, name)
        runs = [nodes[k] for k in kernel.runs]
        for one in runs:
            for record in one.versions:
                if record is not None and record[1] > one.seq:
                    return False                      # its own rule says what is wrong, if anything is
        for ref in kernel.sources:
            record = self.records.get(ref)
            if record is not None and record[1] > runs[-1].seq:
                return False
        results = kernel(arriving, have, self.arrays)
        if results is None:                           # it is being compiled, and no other ones are to be, for what is left of it
            self.is_early = True
            return False
        gone = {nodes[k] for k in arriving if k != node.at}
        if gone:
            for other in gone:
                del pending[other]
            heap[:] = [entry for entry in heap if entry[1] not in gone]
            heapify(heap)
        parents = list(slots)
        for slot, is_sum, array in results:
            parent = parents[slot]
            if is_sum:
                if parent not in pending:
                    heappush(heap, (-parent.seq, parent))
                pending[parent] = array
                owned.add(parent)
            else:
                arrive(pending, heap, owned, parent, array, False)
        if not keep_graph:
            for one in runs:
                if one.versions:
                    one.saved = FREED
        return True


def _in_rows(array: Any) -> bool:
    """Whether gradients by `array` lie in memory row by row: it does, or it is one number at every place."""
    return is_c_contiguous(array) or not any(array.strides)


def has_gradients(step: Any) -> bool:
    """Whether the gradients of an elementwise operation are formulas, whose results lie in memory row by row if what arrives does."""
    op, looks = step.op, step.results[0]._array
    general = op.node_class.general_vjp_on_arrays
    if general is not ElementwiseNode.general_vjp_on_arrays or not {"gradient", "grad_array"}.isdisjoint(op.__dict__):
        return False
    if op.record is not op.written_record:
        return False
    rows = contiguous_strides(looks.shape, looks.itemsize)
    for i, (name, a) in enumerate(zip(op.params, step.looks, strict=True)):
        if isinstance(a, Tensor):
            array = a._array
            if not is_c_contiguous(array) or like_strides(looks.shape, looks.itemsize, [array]) != rows:
                return False
            if a.requires_grad and not (op.has_gradient(name) and is_real(op.gradient(i)[0])):
                return False
            if a.requires_grad and looks.itemsize == 2 and widens(op.gradient(i)[0]):
                return False
    return True


class GradientKernel:
    """The gradients of a chain where they arrive at `arriving`.

    Args:
        history: the chain.
        name: places where gradients arrive; which nodes are wanted, or None for all; for each operand with a history, in order, the
            number of the node outside that it belongs to, or None; for each of these nodes, whether the kernel can add to what has
            arrived there, or None if nothing has.
    `runs` are the places of the nodes that it stands for, from the newest; `sources` what it reads of the chain's values.
    """

    def __init__(self, history: History, name: Any) -> None:
        arriving, asked, edges, adds = name
        self.history, self.arriving = history, arriving
        self.runs: list[int] = []
        text = Text("fused_backward", history.steps[0].results[0].dtype)
        values: dict[int, str] = {}                   # names of values that were computed again
        given: set[int] = set()

        def value(ref: int) -> str:
            if ref in values:
                return values[ref]
            if ref in history.there or ref in history.kept:
                given.add(ref)
                found = text.operand(("value", ref))
            else:
                step = history.steps[history.places[ref]]
                formula, refs = formula_of(step)
                found = text.line(formula, [argument(formula, refs, i) for i in range(len(refs))])
            values[ref] = found
            return found

        def argument(formula: Formula, refs: Any, i: int) -> str:
            return value(refs[i]) if refs[i].__class__ is int else text.constant(refs[i].value, formula, i, refs)

        grads: dict[int, str] = {k: text.operand(("grad", k)) for k in arriving}
        totals: dict[int, str] = {}                   # by node outside
        summed: set[int] = set()                      # those of them at which several gradients arrive
        self.results: list[Any] = []                  # node outside, whether that is all it has and nobody else's, and what it is
        all_shapes = [history.shape] * len(adds)
        numbers = iter(edges)
        outside: dict[tuple[int, int], Any] = {}
        for k in range(max(arriving) + 1):
            saver = history.savers[k]
            for i, ref in enumerate(saver.parents if saver is not None else ()):
                if ref is not None and ref not in history.places:
                    outside[k, i] = next(numbers)
        for k in range(max(arriving), -1, -1):
            saver, step = history.savers[k], history.steps[k]
            if k not in grads or saver is None or asked is not None and k < len(asked) and not asked[k]:
                continue
            self.runs.append(k)
            for i, ref in enumerate(saver.parents):
                if ref is None:
                    continue
                at = history.places.get(ref)
                if at is None and outside[k, i] is None or at is not None and asked is not None and not asked[at]:
                    continue
                piece = self._piece(text, saver, step, i, grads[k], value)
                if at is not None:
                    grads[at] = piece if at not in grads else text.sum(grads[at], piece)
                    continue
                slot = outside[k, i]
                if saver.shapes[i] != history.shape or adds[slot] is False:
                    all_shapes[slot] = saver.shapes[i]
                    self.results.append((slot, False, piece))
                elif slot not in totals and adds[slot] is None:
                    totals[slot] = piece
                else:
                    totals[slot] = text.sum(totals[slot] if slot in totals else text.operand(("have", slot)), piece)
                    summed.add(slot)
        self.shapes = all_shapes
        # An array that arrives at several nodes is not to be added to in place. Nor is one that arrives alone: the engine adds to sums
        # alone, and where only a part is added to, zeros around that keep their signs.
        once = [piece for _, _, piece in self.results] + list(totals.values())
        own = {slot for slot, piece in totals.items() if once.count(piece) == 1 and piece not in text.names_of_operands}
        self.results += [(slot, slot in own & summed, piece) for slot, piece in totals.items()]
        self.sources = tuple(sorted(given))
        outputs = dict.fromkeys(piece for _, _, piece in self.results if piece not in text.names_of_operands)
        self.outputs = tuple(outputs)
        self.operands = text.operands
        self.passed = {name: operand for operand, name in text.names.items() if operand[0] != "number"}
        self.formula: Any = text.formula(self.outputs) if self.outputs else None
        self._kernel: Kernel | None = None
        self.text = text.shown(self.outputs) if self.outputs else ""

    def _piece(self, text: Text, saver: Saver, step: Any, i: int, grad: str, value: Any) -> str:
        """The gradient of operand `i` by that of the result."""
        formula, reads, constant = saver.op.gradient(i)
        if constant is not None and constant == 1:
            return grad
        refs = [None, *[(step.first, *step.refs)[r] for r in reads]]
        return text.line(
            formula,
            [grad, *[value(r) if r.__class__ is int else text.constant(r.value, formula, at, refs) for at, r in enumerate(refs) if at]],
        )

    def _ready(self, operands: list[Any]) -> bool:
        """Whether the kernel for such operands is compiled; else it is about to be."""
        if self._kernel is None:
            history, formula = self.history, self.formula
            out = stand_in(MetaArray(history.shape, history.dtype))
            given = tuple([stand_in(x) if x.__class__ is ndarray else np.asarray(x) for x in operands])
            self._kernel = Kernel(lambda: kernels.planned(formula, given, (out,) * len(self.outputs), history.dtype))
        return self._kernel.ready()

    def __call__(self, arriving: dict[int, Any], have: Any, values: dict[int, Any]) -> list[Any] | None:
        """For what arrives outside, in order: the number of the node, whether the array is all that has arrived there, the array.

        None while the kernel is being compiled.
        """
        history = self.history

        def found(operand: Any) -> Any:
            kind, key = operand
            return arriving[key] if kind == "grad" else have[key] if kind == "have" else values[key] if kind == "value" else key.value

        outs: tuple[Any, ...] = ()
        if self.formula is not None:
            operands = [found(operand) for operand in self.operands]
            if not self._ready(operands):
                return None
            outs = tuple([np.empty(history.shape, history.dtype) for _ in self.outputs])
            kernels.launch(self.formula, tuple(operands), outs, history.dtype)
        arrays = dict(zip(self.outputs, outs, strict=True))
        made = []
        for slot, is_sum, piece in self.results:
            array = arrays[piece] if piece in arrays else found(self.passed[piece])
            made.append((slot, is_sum, sum_to(array, self.shapes[slot])))
        return made


def formula_of(step: Any) -> tuple[Formula, Any]:
    """The formula of a step and its operands, refs; the shorter one where keyword-only arguments have their defaults."""
    op, refs = step.op, step.refs
    if op.of_elements is not None:
        return op.of_elements, refs
    count = len(op.positional)
    usual = all(ref.__class__ is not int and ref.value == d for ref, d in zip(refs[count:], op.keyword_defaults, strict=True))
    return (op.short, refs[:count]) if op.short is not None and usual else (op.formula, refs)

"""A backward that always takes the same way: its nodes are run one after the other, without looking for the order.

The engine finds the order of nodes while it runs. In a program that is replayed (`_replay`) the nodes are new in each call, and
their order is the same. So the first backward writes down what the engine would do, and the next ones do that: the same rules on the
same arrays, sums in the same order, gradients of leaves at the end. What looks otherwise than it did is left to the engine; nothing has
been changed before that is known.
"""

from __future__ import annotations

import itertools
import sys
import threading
from heapq import heappop, heappush
from typing import Any

import numpy as np

from flambeau_kernels import hot_calls
from flambeau_kernels.engine.calls import launch_table
from flambeau_kernels.engine.calls.direct import builtin
from flambeau_kernels.formula import Formula
from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags

from .. import _state, dtypes
from .._arrays import ndarray
from ..autograd import engine, tape
from ..ops._spec import Op
from ..ops._spec.nodes import tensor_names
from ..ops._spec.primitive import PrimitiveOp
from ..tensor import Tensor, wrap
from ._array_runs import MOST_SAVED, NO_LAUNCHES, NOT_HERE, NOT_YET, TABULATED_AT, StepOnArrays, arguments_of
from ._backward import formula_of
from ._formulas import Number
from ._launches import (
    LaunchTable,
    Unknown,
    gradients_in,
    python_gradients_in,
    python_step_in,
    step_in,
)
from ._refs import tensors_in
from ._steps import Constant, Step


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
        if node.more_than_rule or not isinstance(getattr(node, "op", None), Op) or not node.has_array_vjp or node.saved is engine.FREED:
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
            "ndarray": ndarray, "one": np.ones(root._array.shape, root._array.dtype), "ignore_fp_flags": ignore_fp_flags,
            "restore_fp_flags": restore_fp_flags, "plus": engine.PLUS, "into": engine.PLUS.into,
            "FREED": engine.FREED, "accumulate": engine.accumulate_grad, "call": engine._TO_LEAVES[0], "set_grad": _state.set_grad,
            "local": _state.local, "owns": engine._owns, "references": sys.getrefcount, "alone": _REFERENCES_ALONE, "wrap": wrap,
        }  # fmt: skip
        self.walk: list[str] = ["n0 = root._node"]  # lines that go from node to node and turn back at the first that is another
        self.tests: list[str] = []
        self.lines: list[str] = []
        self.free: list[str] = []
        self.leaves: list[tuple[Tensor, Any]] = []
        self.refused = False                          # gradients are of several kinds
        self.names: dict[Any, str] = {}
        # What the lines do, in order: ("rule", node, its gradient), ("take", gradient, place) or ("add", gradient, place).
        self.events: list[tuple[str, Any, Any]] = []
        self.given: list[str] = []                    # the gradients of leaves, in order
        self._follow(root._node)

    def _follow(self, root: Any) -> None:
        self._found(root, "root._node")
        arrived = {root: "g0"}
        added: set[Any] = set()                       # nodes whose sum is an array of its own
        arrays: dict[Any, Any] = {}
        arrays[root] = self.scope["one"].copy()
        heap: list[tuple[int, Any]] = [(-root.seq, root)]
        at_leaves: list[tuple[Any, str]] = []
        count = 1
        quiet = ignore_fp_flags()
        before = _state.local.recording.asked
        try:
            while heap:
                _, node = heappop(heap)
                gradient, name = arrived.pop(node), self.names[node]
                if node.__class__ is tape.Leaf:
                    at_leaves.append((node, gradient))
                    continue
                grads = list(node.vjp_on_arrays(arrays.pop(node)))
                self.lines += [f"a = {name}.vjp_on_arrays({gradient})", f"{gradient} = None"]
                self.events.append(("rule", node, gradient))
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
                        self._same(parent, name, place)
                    if parent not in arrived:
                        arrived[parent], arrays[parent] = f"g{count}", grad
                        self.lines.append(f"g{count} = a[{place}]")
                        self.lines.append(f"if g{count}.__class__ is not ndarray: return False")
                        self.events.append(("take", f"g{count}", place))
                        count += 1
                        heappush(heap, (-parent.seq, parent))
                        continue
                    self.lines.append(f"if a[{place}].__class__ is not ndarray: return False")
                    have = arrived[parent]
                    self.events.append(("add more" if parent in added else "add", have, place))
                    if parent in added:
                        self.lines.append(f"into({have}, a[{place}])")
                        engine.PLUS.into(arrays[parent], grad)
                    else:
                        added.add(parent)
                        self.lines.append(f"{have} = plus({have}, a[{place}])")
                        arrays[parent] = engine.PLUS(arrays[parent], grad)
        finally:
            restore_fp_flags(quiet)
            _state.set_grad(before)
        self.lines.append("a = None")
        self.given = [gradient for _, gradient in at_leaves]
        self.ends = [line for leaf, gradient in at_leaves for line in self._given(self.names[leaf], gradient)]

    def _given(self, name: str, gradient: str) -> list[str]:
        """Lines that give a leaf what has arrived: as it is if it is the first and has memory of its own, laid out as usual."""
        at = name[1:]
        usual = self.scope[f"p{at}"]._array
        lines = [f"grad, {gradient} = {gradient}, None"]
        if not usual.flags.c_contiguous:
            return [*lines, f"accumulate({name}, grad, call)"]
        self.scope[f"u{at}"], self.scope[f"d{at}"] = usual, usual.dtype
        return [
            *lines,
            f"if p{at}._gradient is None and p{at}._array is u{at} and grad.dtype is d{at} and grad.flags.carray "
            "and (grad.base is None or owns(grad)) and references(grad) <= alone: "
            f"p{at}._gradient = wrap(grad)",
            f"else: accumulate({name}, grad, call)",
        ]

    def _found(self, node: Any, where: str) -> None:
        at = len(self.names)
        name = self.names[node] = f"n{at}"
        if at:
            self.walk.append(f"{name} = {where}")
        if node.__class__ is tape.Leaf:
            tensor = node.tensor()
            self.leaves.append((tensor, node))
            self.scope[f"l{at}"], self.scope[f"p{at}"] = node, tensor
            self._ask(f"{name} is not l{at}", f"{name}.hooks", f"p{at}._node is not l{at}")
        else:
            self.scope[f"C{at}"] = node.__class__
            self._ask(f"{name}.__class__ is not C{at}", f"{name}.hooks")

    def _same(self, parent: Any, name: str, place: int) -> None:
        self._ask(f"{name}.parents[{place}] is not {self.names[parent]}")

    def _ask(self, *tests: str) -> None:
        self.tests += tests
        self.walk.append(f"if {' or '.join(tests)}: return False")

    def body(self, before: list[str], shorter: list[str] | None = None) -> list[str]:
        """Lines that run the nodes, and then give leaves their gradients; `before` come first.

        Those of `shorter` are tried in the place of both, and leave None in `found` where they have done nothing.
        """
        computed = [*before, "g0 = one.copy()", *self.lines, *self.free]
        if shorter is not None:
            computed = [*shorter, "if found is None:", *[f"    {line}" for line in computed]]
        lines = [*computed, *self.ends]
        return [
            "before = local.recording.asked", "quiet = ignore_fp_flags()", "try:", *[f"    {line}" for line in lines],
            "finally:", "    restore_fp_flags(quiet)", "    set_grad(before)",
        ]  # fmt: skip

    def function(self) -> Any:
        """``f(root)``: whether it was the same way; if not, nothing has been done."""
        lines = [*self.walk, *self.body([]), "return True"]
        return _compiled("def scheduled(root):", lines, self.scope)


def _references_alone() -> int:
    """What `sys.getrefcount` says of an array that only a variable refers to."""
    grad = np.empty(1)
    return sys.getrefcount(grad)


_REFERENCES_ALONE = _references_alone()


def _compiled(head: str, lines: list[str], scope: dict[str, Any]) -> Any:
    text = "\n".join([head, *[f"    {line}" for line in lines]])
    exec(compile(text, "<flambeau step>", "exec"), scope)  # the text is made of names of this module's own
    return scope[head[4 : head.index("(")]]


# -- forward and backward on arrays --------------------------------------------------------------------------------------

_CONSTANTS = (int, float, bool, str, type(None), slice, dtypes.dtype, np.dtype, tape.Unread)


class ArrayStep:
    """A program and the backward from one of its values, on arrays: the operations make no tensors, and no nodes.

    The nodes of a first run are used again: each call puts what they save into them, runs their rules, and takes it out. So rules and
    their order are those of the engine.

    Args:
        steps: of the program.
        root: the number of the value that backward begins at, the only one that is asked for.
        changing: places of inputs that are other tensors in each call; gradients of theirs are left to the engine.
    """

    def __init__(self, steps: list[Step], root: int, changing: list[int]) -> None:
        self.steps, self.root, self.changing = steps, root, changing
        self.lock = threading.Lock()                  # the nodes are there once
        self.run: Any = None
        self.is_new = True
        self.calls = 0
        self.table: LaunchTable | None = None         # what the text has instead of calls, see `_tabulate`
        self.why = NOT_YET                            # there is none
        self._written: Any = None                     # of the text: what writes it, its parts, and what nodes save

    def _build(self, inputs: Any) -> None:
        """Find the nodes by running the operations, which has no effects."""
        steps, root = self.steps, self.root
        if any(inputs[at]._node is not None for at in self.changing):
            return
        values: dict[int, Any] = {}
        for step in steps:
            if step.several is not None:
                return
            values[step.first] = step.op.enter(*arguments_of(step, values, inputs))
        end = values[root]
        if end._array.__class__ is not ndarray or end._array.size != 1 or end._node is None or not _is_plain(end._node):
            return
        own = {id(value._node): value for value in values.values() if value._node is not None}
        writing = _OverNodes(end, own)
        if not writing.refused:
            self._write(steps, inputs, values, root, writing)
            self.leaves = writing.leaves

    def _write(self, steps: list[Step], inputs: Any, values: dict[int, Any], root: int, writing: Any) -> None:
        scope = writing.scope
        known: dict[int, str] = {}                    # names of arrays
        known.update({id(x._array): f"i{at}" for at, x in enumerate(inputs)})
        known.update({id(value._array): f"v{number}" for number, value in values.items()})
        forward = [f"i{at} = inputs[{at}]._array" for at in range(len(inputs))]
        for step in steps:
            at = step.first
            scope[f"slow{at}"] = StepOnArrays(step)
            given = ", ".join([_named(ref) for ref in tensors_in(step.refs)])
            slow = f"slow{at}({given})"
            rule, arguments = _rule_of(step)
            if rule is None:
                forward.append(f"v{at} = {slow}")
                continue
            scope[f"F{at}"] = rule
            names = []
            for k, ref in enumerate(arguments):
                names.append(_named(ref) if ref.__class__ is int else f"c{at}_{k}")
                if ref.__class__ is not int:
                    scope[names[-1]] = ref.value
            called = f"F{at}.direct" if isinstance(rule, Formula) else f"F{at}"
            forward += [f"v{at} = {called}({', '.join(names)})", f"if v{at} is None: v{at} = {slow}"]
        saves: list[str] = []
        saved: dict[Any, Any] = {}                    # what nodes save: names of arrays, or constants in lists
        for node, name in writing.names.items():
            if node.__class__ is tape.Leaf:
                continue
            parts = []
            for value in node.saved or ():
                if value.__class__ is ndarray:
                    if id(value) not in known:
                        return                        # a residual, which only the operation itself can make
                    parts.append(known[id(value)])
                elif _is_constant(value):
                    parts.append(f"s{len(scope)}")
                    scope[parts[-1]] = value
                else:
                    return
            # In this call nothing can have been written since.
            node.versions = tuple([None if record is None else _unwritten() for record in node.versions])
            saved[node] = None if node.saved is None else [
                name if value.__class__ is ndarray else [value] for name, value in zip(parts, node.saved, strict=True)
            ]  # fmt: skip
            if node.saved is None:
                continue
            save = f"{name}.saved = ({', '.join(parts)}{',' * (len(parts) == 1)})"
            free = f"{name}.saved = FREED" if node.versions else ""
            if not self._call_rule(node, name, parts, save, free, writing):
                saves.append(save)
                writing.keep(free)
        writing.free = [line for line in writing.kept if line]
        self._written = writing, forward[: len(inputs)], [*forward[len(inputs) :], *saves], saved
        self._compile(None)
        for node in writing.names:
            if node.__class__ is not tape.Leaf and node.versions:
                node.saved = engine.FREED

    def _compile(self, shorter: list[str] | None) -> None:
        """Write the text; the lines `shorter` are tried before the operations and rules, see `_Writing.body`."""
        writing, inputs, computed, _ = self._written
        body = writing.body(computed, shorter)
        lines = [*inputs, *[line.replace("return False", "return None") for line in body]]
        lines = [f"if {' or '.join(writing.tests)}: return None", *lines, f"return wrap(v{self.root}, n0)"]
        self.run = _compiled("def step_on_arrays(inputs):", lines, writing.scope)

    def _tabulate(self, inputs: Any) -> None:
        """Let one native call do what operations and rules do, as far as is known of them what they launch.

        Builtins come to formulas and operations that are called often, so this is asked for again; the table with the fewest entries of
        Python is kept. Where it refuses, the lines of the text are run.
        """
        if not launch_table.available():
            self.why = NOT_HERE
            return
        quiet, before = ignore_fp_flags(), _state.local.recording.asked
        try:
            table, results = self._table([x._array for x in inputs])
        except Unknown as error:
            self.why = str(error)
            return
        finally:
            restore_fp_flags(quiet)
            _state.set_grad(before)
        self.why = NO_LAUNCHES
        if not table.native or self.table is not None and len(table.others) >= len(self.table.others):
            return
        writing = self._written[0]
        writing.scope |= {"walk": table.finish(list(results.values())), "hot_calls": hot_calls}
        given = ", ".join([*[f"i{at}" for at in range(len(inputs))], "one.copy()"])
        self._compile([
            f"found = walk({given}) if hot_calls.generation == {hot_calls.generation} else None",
            "if found is not None:", f"    {', '.join(results)}, = found", "    found = 0",
        ])  # fmt: skip
        self.table = table

    def _table(self, arrays: list[Any]) -> tuple[LaunchTable, dict[str, Any]]:
        """The operations and rules on `arrays` and the first gradient, as a table; by name the loss and the gradients of leaves."""
        writing, _, _, saved = self._written
        seed = writing.scope["one"].copy()
        table = LaunchTable([*arrays, seed])
        known: dict[int, Any] = {-1 - at: a for at, a in enumerate(arrays)}
        for step in self.steps:
            made = step_in(table, step, known.__getitem__)
            known[step.first] = made if made is not None else python_step_in(table, step, known.__getitem__, _in_python(step))
        named = {_named(ref): array for ref, array in known.items()}
        gradients, grads = {"g0": seed}, ()
        for at, (what, of, more) in enumerate(writing.events):
            if what == "rule":
                follow = itertools.takewhile(lambda event: event[0] != "rule", writing.events[at + 1 :])
                places = {place for _, _, place in follow}
                kept = saved[of]
                given = None if kept is None else tuple([one[0] if one.__class__ is list else named[one] for one in kept])
                wanted = [k in places for k in range(len(of.parents))]
                grads = gradients_in(table, of, gradients[more], given or ())
                if grads is None or any(asked and grad is None for asked, grad in zip(wanted, grads, strict=True)):
                    grads = python_gradients_in(table, of, gradients[more], given or (), wanted)
            elif what == "take":
                gradients[of] = grads[more]
            else:
                plus, both = engine.PLUS.formula, (gradients[of], grads[more])
                made = table.formula(plus, *both) if what == "add" else table.call(builtin(plus, "direct_"), *both)
                if made is None:
                    raise Unknown("a sum of gradients")
                gradients[of] = made
        return table, {_named(self.root): known[self.root], **{name: gradients[name] for name in writing.given}}

    def _call_rule(self, node: Any, name: str, saved: list[str], save: str, free: str, writing: Any) -> bool:
        """Let the text call the node's rule itself, if that is a function of one gradient and of what is saved. The node stays empty then.

        What the rule leaves to the node, the node does.
        """
        op = node.op
        rule = op.array_vjp_rule if isinstance(op, PrimitiveOp) else None
        if rule is None or op.array_vjp_of_first or op.array_vjp_of_all or node.lengths is not None:
            return False
        call = next((at for at, line in enumerate(writing.lines) if line.startswith(f"a = {name}.vjp_on_arrays(")), None)
        if call is None:
            return False
        gradient = writing.lines[call][len(f"a = {name}.vjp_on_arrays(") : -1]
        places = {parameter: k for k, parameter in enumerate(tensor_names(op))}
        given: list[str] = []
        sources: list[Any] = op.array_vjp_sources
        for at in sources:
            if at is None:
                given.append(gradient)
            elif at.__class__ is int:
                given.append(saved[at])
            else:
                given.append(str(node.parents[places[at[6:]]] is not None))
        found = [
            "None" if parent is None else f"a[{k}]() if a[{k}].__class__ is function else a[{k}]" for k, parent in enumerate(node.parents)
        ]  # fmt: skip
        writing.scope[f"R{name}"], writing.scope["function"] = rule, type(lambda: None)
        again = [save, f"a = {name}.vjp_on_arrays({gradient})", *([free] if free else [])]
        writing.lines[call : call + 1] = [
            f"a = R{name}({', '.join(given)})",
            f"if a.__class__ is not tuple or len(a) != {len(node.parents)}:", *[f"    {line}" for line in again],
            f"else: a = ({', '.join([*found, ''])})",
        ]  # fmt: skip
        return True

    def __call__(self, *inputs: Tensor) -> Any:
        """The value that backward began at, or None: then nothing has been done."""
        if self.run is None and not self.is_new or not self.lock.acquire(blocking=False):
            return None
        try:
            if self.is_new:
                self.is_new = False
                self._build(inputs)
                if self.run is None:
                    self.why = "nodes are made anew in each call"
            self.calls += 1
            if self.calls in TABULATED_AT and self.run is not None:
                self._tabulate(inputs)
            return None if self.run is None else self.run(inputs)
        finally:
            self.lock.release()


def _named(ref: int) -> str:
    """What an array is called in the text of a step."""
    return f"v{ref}" if ref >= 0 else f"i{-1 - ref}"


def _unwritten() -> Any:
    """The record of a storage that was never written to."""
    record = wrap(np.empty(0))._storage
    record[tape.STAMP] = -1
    return record


def _is_constant(value: Any) -> bool:
    return all(map(_is_constant, value)) if value.__class__ is tuple else value.__class__ in _CONSTANTS


class _OverNodes(_Writing):
    """The way through nodes that are used again; all but leaves are of values in `own`."""

    def __init__(self, root: Tensor, own: dict[int, Any]) -> None:
        self.own, self.kept = own, []
        super().__init__(root)
        self.tests = self.tests or ["False"]

    def keep(self, line: str) -> None:
        self.kept.append(line)

    def _found(self, node: Any, where: str) -> None:
        super()._found(node, where)
        name = self.names[node]
        if node.__class__ is tape.Leaf:
            self.tests.remove(f"{name} is not l{name[1:]}")
            self.tests[self.tests.index(f"{name}.hooks")] = f"l{name[1:]}.hooks"
            self.scope[name] = node
            return
        self.scope[name] = node
        self.tests.remove(f"{name}.__class__ is not C{name[1:]}")
        if id(node) not in self.own:
            self.refused = True

    def _same(self, parent: Any, name: str, place: int) -> None:
        """The parents of a node are what they were."""


def _in_python(step: Step) -> Any:
    """A function of the arrays among the arguments of a step that gives the array of its result."""
    rule, arguments = _rule_of(step)
    slow = StepOnArrays(step)
    if rule is None or not all(ref.__class__ is int or isinstance(ref, (Constant, Number)) for ref in arguments):
        return slow
    places = tensors_in(step.refs)

    def computed(*arrays: Any) -> Any:
        values = dict(zip(places, arrays, strict=True))
        given = [values[ref] if ref.__class__ is int else ref.value for ref in arguments]
        made = rule.direct(*given) if isinstance(rule, Formula) else rule(*given)
        return slow(*arrays) if made is None else made

    return computed


def _rule_of(step: Step) -> tuple[Any, Any]:
    """What computes a step on arrays or gives None, and its arguments, refs; None if only the operation does."""
    op = step.op
    if op.kind == "elementwise" and "run" not in op.__dict__ and "launch" not in op.__dict__ and _is_one_dtype(step):
        return formula_of(step)
    return op.on_arrays, step.refs


def _is_one_dtype(step: Step) -> bool:
    kinds = {look.dtype for look in (*step.looks, *step.results) if isinstance(look, Tensor)}
    return len(kinds) == 1

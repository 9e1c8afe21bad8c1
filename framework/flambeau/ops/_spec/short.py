"""What primitive ops need in every call, written out for each of them: the short way, the history of results, and the way back.

A short way is a rule on arrays that answers the usual arguments and returns None for all others, before having done
anything: ``@op.short``. A rule that stores in an array, and says whether it did, gives the in-place form one too:
``@op.stores``. The text around them unpacks tensors, wraps the result and records; whatever is odd (a list, a number
where a Tensor should be, another device, memory in common) goes the general way, which has the checks and the errors.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import _arrays, _state
from ..._arrays import ndarray
from ..._kinds import NoStrides
from ...autograd import engine, tape
from ...tensor import Tensor, one_memory
from .history import check_versions
from .memory import in_memory_order
from .strict import STRICT, check_refused, store_refused

# What a rule may raise on arguments it was not made for.
REFUSED = (AttributeError, TypeError, ValueError, IndexError, OverflowError, RuntimeWarning)


def compiled(op: Any, name: str, lines: list[str], **constants: Any) -> Any:
    """The function that `lines` of text define, with the given constants."""
    from .. import _entry

    constants.update(
        OP=op, Node=op.node_class, new=object.__new__, Tensor=Tensor, ndarray=ndarray, next_seq=_state.next_seq,
        users_place=tape.users_place, getframe=sys._getframe, OWN_FILES=tape.OWN_FILES, holds_arrays=tape.holds_arrays,
        records_of=tape.records_of, REFUSED=REFUSED, asarray=np.asarray, check_refused=check_refused,
    )  # fmt: skip
    text = f"def make({', '.join(constants)}):\n" + "".join(f"    {line}\n" for line in lines) + f"    return {name}\n"
    return _entry.compile_text(text, f"{op.qualified} {name}", constants)


def indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def refused(op: Any, operands: Sequence[str], errors: str = "REFUSED") -> list[str]:
    """Lines that leave a call whose short way raised to the general way, which says what is wrong."""
    if not STRICT:
        return [f"except {errors}:", "    return None"]
    given = ", ".join(op.params)
    return [f"except {errors} as _error:", f"    check_refused(OP, {tuple(operands)}, ({given},), _error)", "    return None"]


def _refused_store(op: Any) -> list[str]:
    if not STRICT:
        return ["except REFUSED:", "    pass"]
    given = ", ".join(op.params)
    return ["except REFUSED as _error:", f"    return store_refused(OP, {tuple(tensor_names(op))}, ({given},), _error, general)"]


def arrays_of(kinds: str, *tensors: Any) -> list[Any] | None:
    """The arrays of Tensors without history, all of one dtype of these `kinds` (numpy's characters); None if one is not that."""
    dtype = tensors[0]._array.dtype
    if dtype.char not in kinds:
        return None
    found = []
    for t in tensors:
        a = t._array
        if a.dtype is not dtype or t._node is not None or a.__class__ is not ndarray:
            return None
        found.append(a)
    return found


def tensor_names(op: Any) -> list[str]:
    """The tensor parameters, in order."""
    return [name for name in op.params if name in op.tensor_params]


def history(op: Any) -> Any:
    """``fn(made, kept, *args)``, which records the one result `made` of single tensors, or tensors left out."""
    lines = [f"def history(made, _kept, {', '.join(op.params)}):", *(f"    {line}" for line in _record(op, list(op.params), 3))]
    return compiled(op, "history", lines)


def histories(op: Any) -> Any:
    """``fn(outs, kept, *args)``, which records several results of single tensors, or tensors left out."""
    lines = [
        f"def history(outs, kept, {', '.join(op.params)}):",
        *(f"    {line}" for line in _record(op, list(op.params), 3, several=True)),
        "        attach(node, outs)",
    ]
    return compiled(op, "history", lines, attach=_attach)


def _attach(node: Any, outs: Any) -> None:
    """Make `node` the history of those of `outs` that have gradients."""
    made: list[Any] = []
    for i, o in enumerate(outs):
        if o._array.dtype.kind in "biu":
            made.append(None)
        else:
            o._node = tape.output_node(node, i)
            made.append(weakref.ref(o._node))
    node.__dict__["outputs"] = made
    node.__dict__["metas"] = [(o._array.shape, _arrays.plain_dtype(o._array.dtype)) for o in outs]


def _record(op: Any, args: list[str], frames: int, several: bool = False) -> list[str]:
    """Lines that record `made`, or `outs` if there are `several`, of `args`, the user's code being `frames` calls up as a rule."""
    tensors = tensor_names(op)
    optional = [name for name in tensors if name in op.defaults]
    nodes = [f"n{i}" for i in range(len(tensors))]
    lines = [
        f"{node} = None if {name} is None else {name}._node" if name in optional else f"{node} = {name}._node"
        for node, name in zip(nodes, tensors, strict=True)
    ]
    given = dict(zip(op.params, args, strict=True))
    kept = [_saved(op, name, optional, given, several) for name in op.saved_names]
    counted = "any([o._array.dtype.kind not in 'biu' for o in outs])" if several else "made._array.dtype.kind not in 'biu'"
    saved, versions = "".join(f"{value}, " for value, _ in kept), "".join(f"{version}, " for _, version in kept)
    if all(version == "None" for _, version in kept):
        versions = f"*(({versions}) if any(map(holds_arrays, node.saved)) else ()),"
    return [
        *lines,
        f"if ({' or '.join(f'{node} is not None' for node in nodes)}) and (GRAD or local.grad) and {counted}:",
        f"    node = {'' if several else 'made._node = '}new(Node)",
        "    node.seq = next_seq()",
        f"    frame = getframe({frames})",
        "    code = frame.f_code",
        "    node.where = (code, frame.f_lasti) if OWN_FILES.get(code.co_filename) is False else users_place()",
        f"    node.parents = ({', '.join(nodes)},)",
        "    node.hooks = None",
        f"    node.shape = {'len(outs)' if several else 0}",
        f"    node.saved = ({saved})",
        f"    node.versions = ({versions})",
        "    if MARKED:",
        "        refuse_saving(node)",
    ]


def _saved(op: Any, name: str, optional: list[str], given: dict[str, str], several: bool) -> tuple[str, str]:
    """Text of what a node keeps under `name`, and of the storage record it belongs to."""
    if name == "out" or name[:3] == "out" and name[3:].isdigit():
        made = f"outs[{name[3:] or 0}]" if several else "made"
        return f"{made}._array", f"{made}._storage"
    if name == "kept" and op.keeps:
        return "_kept", "None"  # ops have parameters of the name without the underscore
    if name in op.params:
        if name == op.index_tensors:
            return given[name], f"records_of({given[name]})"
        if name not in op.tensor_params:
            return given[name], "None"
        texts = (f"{name}._array", f"{name}._storage")
    else:
        parameter, _, what = name.rpartition("_")
        if parameter not in op.params or what not in ("shape", "dtype", "device"):
            raise TypeError(f"{op.name}: its vjp asks for {name!r}, which is neither a parameter nor an output")
        name = parameter
        texts = (f"{name}._array.shape" if what == "shape" else f"{name}.{what}", "None")
    if name in optional:
        return f"(None if {name} is None else {texts[0]})", f"(None if {name} is None else {texts[1]})"
    return texts


def are_arrays(grads: Any) -> bool:
    """Whether the gradients of several outputs are arrays of the host; None where there is none."""
    return all([g is None or g.__class__ is ndarray for g in grads])  # noqa: C419  # a generator takes three times as long


def raw(op: Any, general: Any) -> Any:
    """``fn(node, grad) -> gradients of its parents`` by the rule on arrays; `general` answers for nodes with lists of tensors."""
    tensors = tensor_names(op)
    saved = [f"s{i}" for i in range(len(op.saved_names))]
    of_tensors = [s for s, name in zip(saved, op.saved_names, strict=True) if name in tensors or name[:3] == "out"]
    given = ", ".join(
        "first" if at is None else f"s{at}" if at.__class__ is int else f"p{tensors.index(at[6:])} is not None" for at in op.raw_sources
    )
    found, parents = ([f"{kind}{i}" for i in range(len(tensors))] for kind in "gp")
    lines = [
        f"first = {'grad[0] if node.shape else grad' if op.raw_of_first else 'grad'}",
        f"if not ({'are_arrays(grad)' if op.raw_of_all else 'first.__class__ is ndarray'}) or node.lengths is not None:",
        "    return general(node, grad)",
        "seq = node.seq",
        "for record in node.versions:",
        "    if record is not None and (record.__class__ is tuple or record[1] > seq):",
        "        check_versions(node)",
        "        break",
        *([f"{', '.join(saved)}, = node.saved"] if saved else []),
        *([f"if {' or '.join(f'{s}.__class__ is Overwritten' for s in of_tensors)}:", "    check_versions(node)"] if of_tensors else []),
        f"{', '.join(parents)}, = node.parents if local.wanted is None else wanted_parents(node)",
        "try:",
        f"    found = rule({given})",
        "except NoStrides:",                          # what was saved is no strided memory
        "    return through_tensors(node, grad)",
        "if found is None:",
        "    return through_tensors(node, grad)",
        f"if found.__class__ is not tuple or len(found) != {len(tensors)}:",
        "    return OP.line_up(node, found)",
        f"{', '.join(found)}, = found",
    ]
    made = [f"None if {p} is None or {g} is None else {g}() if {g}.__class__ is FUNCTION else {g}, "
            for g, p in zip(found, parents, strict=True)]  # fmt: skip
    body = ["def raw(node, grad):", *indented(lines), f"    return ({''.join(made)})"]
    return compiled(
        op, "raw", body, rule=op.raw_rule, general=general, check_versions=check_versions, wanted_parents=engine.wanted_parents,
        through_tensors=engine.through_tensors, are_arrays=are_arrays, NoStrides=NoStrides, Overwritten=tape.Overwritten,
        FUNCTION=type(lambda: None),
    )  # fmt: skip


def _unpack(op: Any, wraps: str | None, otherwise: str) -> tuple[list[str], list[str], list[str]]:
    """Lines that bring tensors down to arrays and count the dimension `wraps` from the front, or go on `otherwise`.

    Then the arguments of a rule, and those of the history.
    """
    lines, given, kept = [], [], list(op.params)
    for i, name in enumerate(op.params):
        if name in op.tensor_params:
            array = f"a_{name}"
            fetch = [f"{array} = {name}._array", f"if {array}.__class__ is not ndarray:", f"    return {otherwise}"]
            if name in op.defaults:
                lines += [f"{array} = None", f"if {name} is not None:", *(f"    {line}" for line in fetch)]
            else:
                lines += fetch
            given.append(array)
        elif name == wraps:
            kept[i] = "front"
            given.append("front")
        else:
            given.append(name)
    if wraps is not None:
        ndim = f"a_{tensor_names(op)[0]}.ndim"
        lines += [f"front = {wraps} + {ndim} if {wraps} < 0 else {wraps}", f"if not 0 <= front < {ndim}:", f"    return {otherwise}"]
    return lines, given, kept


def _ordered(op: Any) -> list[str]:
    """Lines that give the result ``o`` the order of memory which the declaration says, where an operand is not row-major."""
    if op.memory is None:
        return []
    arrays = [f"a_{name}" for name in op.ordering]
    rows = [f"{a}.flags.c_contiguous" if name not in op.defaults else f"({a} is None or {a}.flags.c_contiguous)"
            for a, name in zip(arrays, op.ordering, strict=True)]  # fmt: skip
    return [
        f"if not ({' and '.join(rows)}):",
        f"    o = in_memory_order(o, MEMORY, [a for a in ({', '.join(arrays)},) if a is not None])",
    ]


def on_arrays(op: Any, rule: Any, wraps: str | None) -> Any:
    """``fn(*args) -> Tensor or None`` by the rule ``rule(*args with arrays) -> array or None``."""
    lines, given, kept = _unpack(op, wraps, "None")
    body = [
        f"def short({', '.join(op.params)}):",
        "    try:",
        *(f"        {line}" for line in lines),
        f"        o = rule({', '.join(given)})",
        "        if o.__class__ is not ndarray:",
        "            if o is None:",
        "                return None",
        "            o = asarray(o)",
        *(f"        {line}" for line in _ordered(op)),
        *(f"    {line}" for line in refused(op, tensor_names(op))),
        "    made = new(Tensor)",
        "    made._array = o",
        "    made._storage = new_record() if MARKING else [0, 0, None, None]",
        "    made._view_of = made._node = None",
    ]
    if op.vjp_rule is not None:
        body += [f"    {line}" for line in _record(op, kept, 2)]
    return compiled(op, "short", [*body, "    return made"], rule=rule, MEMORY=op.memory, in_memory_order=in_memory_order)


def short_in_place(op: Any, store: Any, wraps: str | None, general: Any) -> Any:
    """``run_inplace`` of `op` by ``store(array, *args with arrays) -> whether it stored``, else by `general`."""
    target, *others = tensor_names(op)
    lines, given, _ = _unpack(op, wraps, f"general({', '.join(op.params)})")
    free = "".join(
        f" and ({name} is None or {name}._node is None and not one_memory({name}, {target}))"
        if name in op.defaults
        else f" and {name}._node is None and not one_memory({name}, {target})"
        for name in others
    )
    body = [
        f"def run_inplace({', '.join(op.params)}):",
        "    try:",
        *(f"        {line}" for line in lines),
        f"        base = {target}._view_of",
        f"        marked = MARKED and {target}._storage[0].__class__ is not int",
        f"        if not marked and {target}._node is None and (base is None or base[0]._node is None){free} and a_{target}.flags.carray:",
        f"            if store({', '.join(given)}):",
        f"                v = {target}._storage",
        "                v[0] += 1",
        "                v[1] = next_seq()",
        f"                return {target}",
        *(f"    {line}" for line in _refused_store(op)),
        f"    return general({', '.join(op.params)})",
    ]
    return compiled(op, "run_inplace", body, store=store, general=general, one_memory=one_memory, store_refused=store_refused)

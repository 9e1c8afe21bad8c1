"""The history of results and the way back, written out for each primitive op: the only texts that make its nodes."""

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
from ...autograd.making import if_read, making, new_node, output_node, seen_from
from ...tensor import Tensor, wrap
from .history import check_versions


def written(op: Any, name: str, lines: list[str], **constants: Any) -> Any:
    """The function that `lines` of text define, with the given constants."""
    from .. import _entry

    constants.update(
        op.named_node_classes, OP=op, Tensor=Tensor, ndarray=ndarray, next_seq=_state.next_seq,
        users_place=tape.users_place, getframe=sys._getframe, OWN_FILES=tape.OWN_FILES, holds_arrays=tape.holds_arrays,
        records_of=tape.records_of, asarray=np.asarray, attach=attach, OutputNode=tape.OutputNode, weak=weakref.ref,
        plain_dtype=_arrays.plain_dtype, unread=tape.unread, **op.chosen_from,
    )  # fmt: skip
    text = f"def make({', '.join(constants)}):\n" + "".join(f"    {line}\n" for line in lines) + f"    return {name}\n"
    return _entry.compile_text(text, f"{op.qualified} {name}", constants)


def indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def tensor_names(op: Any) -> list[str]:
    """The tensor parameters, in order."""
    return [name for name in op.params if name in op.tensor_params]


def history(op: Any) -> Any:
    """``fn(made, kept, *args)``, which records the one result `made` of single tensors, or tensors left out."""
    lines = [f"def history(made, _kept, {', '.join(op.params)}):", *(f"    {line}" for line in record(op, list(op.params), 3))]
    return written(op, "history", lines)


def record_as(op: Any, made: Tensor, parents: tuple[Any, ...], saved: tuple[Any, ...], versions: tuple[Any, ...] = ()) -> None:
    """Give `made` the node that `op` would record: `saved` is what its rules read, in their order, `versions` its storage records."""
    made._node = new_node(op.node_class, parents, saved, versions)


def recorded_as(op: Any, array: Any, parents: tuple[Any, ...], saved: tuple[Any, ...], versions: tuple[Any, ...] = ()) -> Tensor:
    """A Tensor of `array` with the node that `op` would record, as `record_as` says, where histories are recorded."""
    made = wrap(array)
    if _state.GRAD or _state.local.grad:
        record_as(op, made, parents, saved, versions)
    return made


def histories(op: Any) -> Any:
    """``fn(outs, kept, *args)``, which records several results of single tensors, or tensors left out."""
    lines = [
        f"def history(outs, _kept, {', '.join(op.params)}):",
        *(f"    {line}" for line in record(op, list(op.params), 3, several=True)),
    ]
    return written(op, "history", lines)


def attach(node: Any, outs: Any) -> None:
    """Make `node` the history of those of `outs` that have gradients."""
    made: list[Any] = []
    for i, o in enumerate(outs):
        if o._array.dtype.kind in "biu":
            made.append(None)
        else:
            o._node = output_node(node, i)
            made.append(weakref.ref(o._node))
    node.__dict__["outputs"] = made
    node.__dict__["metas"] = [(o._array.shape, _arrays.plain_dtype(o._array.dtype)) for o in outs]


def record(op: Any, args: list[str], frames: int, several: bool = False, lists: bool = False) -> list[str]:
    """Lines that record `made`, or `outs` if there are `several`, of `args`, the user's code being `frames` calls up as a rule.

    Args:
        lists: whether the operand is a list of Tensors, of which ``_noded`` says whether one has a history.
    """
    tensors = tensor_names(op)
    if lists:
        return _record_list(op, tensors[0], args)
    optional = [name for name in tensors if name in op.defaults]
    nodes = [f"n{i}" for i in range(len(tensors))]
    lines = [
        f"{node} = None if {name} is None else {name}._node" if name in optional else f"{node} = {name}._node"
        for node, name in zip(nodes, tensors, strict=True)
    ]
    given = dict(zip(op.params, args, strict=True))
    node_of = dict(zip(tensors, nodes, strict=True))
    kept = [_if_read(op, name, node_of, *_saved(op, name, optional, given, several)) for name in op.saved_names]
    saved, versions = "".join(f"{value}, " for value, _ in kept), "".join(f"{version}, " for _, version in kept)
    if all(version == "None" for _, version in kept):
        # Plain arguments may be arrays; sizes, kinds, and dimensions that were counted anew are not.
        open_ones = [value for value, _ in kept if value == "_kept" or value in op.params]
        versions = f"*(({versions}) if any(map(holds_arrays, ({', '.join(open_ones)},))) else ())," if open_ones else ""
    count = len(op.returns) if several and op.returns else 0
    counted = "made._array.dtype.kind not in 'biu'"
    if several:
        counted = "any([_o._array.dtype.kind not in 'biu' for _o in outs])"
    if count:
        counted = "(" + " or ".join(f"outs[{i}]._array.dtype.kind not in 'biu'" for i in range(count)) + ")"
    return [
        *lines,
        f"if ({' or '.join(f'{node} is not None' for node in nodes)}) and (GRAD or local.grad) and {counted}:",
        *indented(
            making(
                f"({', '.join(nodes)},)", f"({saved})", f"({versions})", f"{count or 'len(outs)' if several else 0}",
                to=None if several else "made._node",
                cls=op.chosen_class or "Node",
                place=seen_from(frames) if versions else None,  # which only an error of what was overwritten tells
            )
        ),
        *(indented(_attached(count)) if count else ["    attach(node, outs)"] if several else []),
    ]


def _attached(count: int) -> list[str]:
    """The lines of `attach` for so many results."""
    lines: list[str] = []
    for i in range(count):
        lines += [
            f"_d{i} = outs[{i}]._array.dtype",
            f"_w{i} = None",
            f"if _d{i}.kind not in 'biu':",
            *indented(making("(node,)", None, None, None, to=f"outs[{i}]._node", cls="OutputNode", name="_to")),
            f"    _to.index = {i}",
            f"    _w{i} = weak(_to)",
        ]
    metas = ", ".join(f"(outs[{i}]._array.shape, plain_dtype(_d{i}))" for i in range(count))
    return [*lines, f"node.__dict__ = {{'outputs': [{', '.join(f'_w{i}' for i in range(count))}], 'metas': [{metas}]}}"]


def _record_list(op: Any, name: str, args: list[str]) -> list[str]:
    """`record` of the list of Tensors `name`, of which rules read the shapes."""
    given = dict(zip(op.params, args, strict=True)) | {f"{name}_shape": f"[_a.shape for _a in a_{name}]"}
    return [
        "if _noded and (GRAD or local.grad) and made._array.dtype.kind not in 'biu':",
        *indented(making(f"(*[_x._node for _x in {name}],)", f"({''.join(f'{given[n]}, ' for n in op.saved_names)})")),
        f"    node.lengths = {{{name!r}: len(a_{name})}}",
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


def _if_read(op: Any, name: str, nodes: dict[str, str], value: str, version: str) -> tuple[str, str]:
    """`_saved` of what is kept under `name` if the gradient of an operand that has one of the `nodes` reads it."""
    if not op.is_withheld(name):
        return value, version
    readers, every = [node for operand, node in nodes.items() if name in op.reads_of(operand)], tuple(nodes.values())
    in_its_place = f"unread({value})" if name in op.tensor_params or name[:3] == "out" else "None"
    return if_read(value, readers, every, in_its_place), if_read(version, readers, every)


def are_arrays(grads: Any) -> bool:
    """Whether the gradients of several outputs are arrays of the host; None where there is none."""
    return all([g is None or g.__class__ is ndarray for g in grads])  # noqa: C419  # a generator takes three times as long


def vjp_on_arrays(op: Any, general: Any) -> Any:
    """``fn(node, grad) -> gradients of its parents`` by the rule on arrays; `general` answers for nodes with lists of tensors."""
    tensors = tensor_names(op)
    saved = [f"s{i}" for i in range(len(op.saved_names))]
    of_tensors = [s for s, name in zip(saved, op.saved_names, strict=True) if name in tensors or name[:3] == "out"]
    given = ", ".join(
        "first" if at is None else f"s{at}" if at.__class__ is int else f"p{tensors.index(at[6:])} is not None"
        for at in op.array_vjp_sources
    )
    found, parents = ([f"{kind}{i}" for i in range(len(tensors))] for kind in "gp")
    lines = [
        f"first = {'grad[0] if node.shape else grad' if op.array_vjp_of_first else 'grad'}",
        f"if not ({'are_arrays(grad)' if op.array_vjp_of_all else 'first.__class__ is ndarray'}) or node.lengths is not None:",
        "    return general(node, grad)",
        "seq = node.seq",
        "for record in node.versions:",
        "    if record is not None and (record.__class__ is tuple or record[1] > seq):",
        "        check_versions(node)",
        "        break",
        *([f"{', '.join(saved)}, = node.saved"] if saved else []),
        *([f"if {' or '.join(f'{s}.__class__ is Overwritten' for s in of_tensors)}:", "    check_versions(node)"] if of_tensors else []),
        f"{', '.join(parents)}, = node.parents if local.backward.wanted is None else wanted_parents(node)",
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
    body = ["def vjp_on_arrays(node, grad):", *indented(lines), f"    return ({''.join(made)})"]
    return written(
        op, "vjp_on_arrays", body, rule=op.array_vjp_rule, general=general, check_versions=check_versions,
        wanted_parents=engine.wanted_parents,
        through_tensors=engine.through_tensors, are_arrays=are_arrays, NoStrides=NoStrides, Overwritten=tape.Overwritten,
        FUNCTION=type(lambda: None),
    )  # fmt: skip



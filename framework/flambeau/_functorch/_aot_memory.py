"""How a function uses the memory of its inputs: which of them share it, what it writes, and which results look at it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import flambeau as fb

from .._arrays import contiguous_strides
from ..fx.experimental.proxy_tensor import _owner
from ..tensor import Tensor

__all__ = ["Arguments", "Look", "Result", "Use", "have_a_base", "shared"]


@dataclass(frozen=True)
class Look:
    """How a tensor looks at the memory of another one: `offset` is counted in its own elements, from the other's first."""

    dtype: Any
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    conjugate: bool

    @staticmethod
    def of(x: Tensor, source: Tensor) -> Look:
        """How `x` looks at the memory of `source`, which is its own."""
        offset = x.storage_offset() - source.storage_offset() * source.element_size() // x.element_size()
        return Look(x.dtype, tuple(x.shape), x.stride(), offset, x.is_conj())

    def bound(self, number: Callable[[Any], int]) -> Look:
        """The same, with sizes that `number` gives for symbolic ones."""
        shape, stride = tuple(map(number, self.shape)), tuple(map(number, self.stride))
        return Look(self.dtype, shape, stride, number(self.offset), self.conjugate)

    def at(self, source: Tensor) -> Tensor:
        """The view of `source` that looks so; it has the history of a view if `source` has one."""
        if source.dtype is not self.dtype:
            are_parts = source.dtype.is_complex and source.dtype.to_real() is self.dtype
            source = fb.view_as_real(source) if are_parts else source.view(self.dtype)
        is_whole = not self.offset and source.numel() == math.prod(self.shape) and source.is_contiguous()
        if is_whole and self.stride == contiguous_strides(self.shape, 1):
            made = source.view(self.shape)
        else:
            made = source.as_strided(self.shape, self.stride, source.storage_offset() + self.offset)
        return made.conj() if self.conjugate else made


def shared(leaves: Sequence[Any]) -> list[list[int]]:
    """The places of leaves that share memory with others, a list for each memory; what has no storage of its own shares none."""
    places: dict[int, list[int]] = {}
    for i, x in enumerate(leaves):
        if isinstance(x, Tensor):
            places.setdefault(id(_owner(x._array)), []).append(i)
    return [found for found in places.values() if len(found) > 1]


class Arguments:
    """The arguments of a function's graphs: its leaves, but what shares written memory is viewed out of one argument.

    `places` says of each leaf which argument it is part of, and how it looks at it, None for an argument of its own.
    """

    def __init__(self, leaves: Sequence[Any], groups: Sequence[list[int]]) -> None:
        self.groups = [list(group) for group in groups]
        firsts = {group[0]: group for group in self.groups}
        later = {i for group in self.groups for i in group[1:]}
        self.of_argument = [firsts.get(i, [i]) for i in range(len(leaves)) if i not in later]
        given = self.of(leaves)
        at = {i: a for a, group in enumerate(self.of_argument) for i in group}
        merged = {i for group in self.groups for i in group}
        self.places = [(at[i], Look.of(x, given[at[i]]) if i in merged else None) for i, x in enumerate(leaves)]

    def of(self, leaves: Sequence[Any]) -> list[Any]:
        """The arguments for `leaves`. Raises: RuntimeError where leaves share memory and the history of one is not that of the others."""
        return [leaves[group[0]] if len(group) == 1 else _base([leaves[i] for i in group]) for group in self.of_argument]

    def note_written(self, at: int, leaves: Sequence[Any]) -> None:
        """Count a write to leaves that are no views of the argument `at`, though they share its memory."""
        group = self.of_argument[at]
        if len(group) > 1 and not _have_one_base([leaves[i] for i in group]):
            fb.autograd.graph.increment_version([leaves[i] for i in group])

    def leaves(self, arguments: Sequence[Any]) -> list[Any]:
        """The leaves that `arguments` hold."""
        return [arguments[at] if look is None else look.at(arguments[at]) for at, look in self.places]


def _have_one_base(members: list[Tensor]) -> bool:
    bases = [x if x._base is None else x._base for x in members]
    return all(base is bases[0] for base in bases)


def have_a_base(members: list[Tensor]) -> bool:
    """Whether there is a tensor, with all their history, of which all of `members`, which share memory, are views."""
    if _have_one_base(members):
        return True
    return not any(x.requires_grad for x in members) and all(x.dtype is members[0].dtype for x in members)


def _base(members: list[Tensor]) -> Tensor:
    """A tensor of which all of `members`, which share memory, are views."""
    if _have_one_base(members):
        return members[0] if members[0]._base is None else members[0]._base
    if not have_a_base(members):
        raise RuntimeError(
            "aot_function: inputs share memory that the function writes to, and are no views of one tensor: "
            f"they have shapes {[tuple(x.shape) for x in members]}; give copies, or views of one tensor"
        )
    storage = members[0].untyped_storage()
    count = storage.nbytes() // members[0].element_size()
    return fb.empty(0, dtype=members[0].dtype, device=members[0].device).set_(storage, 0, (count,), (1,))


class Result(NamedTuple):
    """What a result of the function is.

    `kind` is "value" for memory of its own, "constant" for what is no tensor, "leaf" for the input `at` itself, "again" for the result
    `at` once more, "input" for a view of the argument `at`, and "inner" for a view of the memory `at` of those that results share.
    `tracked` says whether it has history, `apart` whether it is no view of what it shares memory with, as `detach` gives.
    """

    kind: str
    at: int
    look: Look | None
    tracked: bool
    apart: bool = False


@dataclass
class Use:
    """What a function does with its arguments.

    Attributes:
        copied: arguments whose new value has history in place of theirs: in the graph, a copy is written to.
        gains: arguments without history that get one by what is written to them.
        changed: how arguments look whose shape, strides or place the function changes.
        results: of each result what it is.
        inner: for each memory that results share, the result whose base it is, and whether that is the result itself.
        written: arguments whose memory is written to, as far as versions say.
    """

    copied: list[int] = field(default_factory=list)
    gains: list[int] = field(default_factory=list)
    changed: dict[int, Look] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    inner: list[tuple[int, bool]] = field(default_factory=list)
    written: list[int] = field(default_factory=list)

    @staticmethod
    def of(flat: Callable[..., list[Any]], arguments: Arguments, fakes: list[Any], wanted: list[bool], mode: Any) -> Use:
        """What `flat`, run on the leaves that `fakes` hold, does; derivatives by those that are `wanted` are asked for."""
        use = Use()
        with mode:
            given = [x.clone() if asked else x for x, asked in zip(fakes, wanted, strict=True)]
            tensors = [i for i, x in enumerate(given) if isinstance(x, Tensor)]
            before = {i: (given[i]._version, given[i].grad_fn, given[i].requires_grad, Look.of(given[i], given[i])) for i in tensors}
            leaves = arguments.leaves(given)
            seen = flat(*leaves)
        for i in tensors:
            version, node, tracked, look = before[i]
            x, now = given[i], Look.of(given[i], given[i])
            is_written = x._version != version
            if (now.shape, now.stride) != (look.shape, look.stride) and arguments.places[arguments.of_argument[i][0]][1] is None:
                use.changed[i] = Look(now.dtype, now.shape, now.stride, x.storage_offset() - fakes[i].storage_offset(), False)
            if is_written:
                use.written.append(i)
            if is_written and wanted[i] and x.grad_fn is not node:
                use.copied.append(i)
            elif is_written and not wanted[i] and x.requires_grad and not tracked and any(wanted):
                use.gains.append(i)
        use._classify(seen, given, leaves)
        return use

    def _classify(self, seen: list[Any], given: list[Any], leaves: list[Any]) -> None:
        memory = {id(_owner(x._array)): i for i, x in enumerate(given) if isinstance(x, Tensor)}
        of_results: dict[int, list[int]] = {}
        for k, y in enumerate(seen):
            if isinstance(y, Tensor) and y.requires_grad and next(j for j, z in enumerate(seen) if z is y) == k:
                of_results.setdefault(id(_owner(y._array)), []).append(k)
        inner: dict[int, int] = {}
        for owner, group in of_results.items():
            if owner in memory or len(group) < 2:
                continue
            bases = [seen[k] if seen[k]._base is None else seen[k]._base for k in group]
            if all(base is bases[0] for base in bases):
                itself = next((k for k in group if seen[k] is bases[0]), None)
                inner[owner] = len(self.inner)
                self.inner.append((group[0], False) if itself is None else (itself, True))
        for k, y in enumerate(seen):
            self.results.append(self._result(k, y, seen, given, leaves, memory, inner))

    def _result(
        self, k: int, y: Any, seen: list[Any], given: list[Any], leaves: list[Any], memory: dict[int, int], inner: dict[int, int],
    ) -> Result:  # fmt: skip
        if not isinstance(y, Tensor):
            return Result("constant", k, None, False)
        leaf = next((i for i, x in enumerate(leaves) if x is y), None)
        if leaf is not None:
            return Result("leaf", leaf, None, y.requires_grad)
        first = next(j for j, z in enumerate(seen) if z is y)
        if first != k:
            return Result("again", first, None, y.requires_grad)
        owner = id(_owner(y._array))
        if owner in memory:
            return Result("input", memory[owner], Look.of(y, given[memory[owner]]), y.requires_grad, y._base is None)
        if owner in inner and self.inner[inner[owner]] != (k, True):
            base = seen[k]._base
            return Result("inner", inner[owner], Look.of(y, base), True)
        return Result("value", k, None, y.requires_grad)

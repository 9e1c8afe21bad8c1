"""``mode="reduce-overhead"``: a program that was the same in several calls runs without the Python that recorded it.

What is assumed then, and by `verify_every` looked at, is in docs/compile.md. What can be seen is checked: a call is replayed only if

- its arguments are tensors and plain values that look as before, and the same ones are the same object;
- gradients are recorded as before, in the same modes, and the module is in the same mode of training;
- the function was one recording, from its beginning to its end, and read the same tensors besides its arguments, in the calls before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _state, dtypes
from .._arrays import ndarray
from ..dtypes import uint8
from ..nn import Module
from ..nn.parameter import Parameter
from ..ops._dispatch import public_function
from ..tensor import Tensor
from ..utils import _pytree as pytree
from ._formulas import Number
from ._graphs import is_default
from ._recorder import Constant, Recorder, Step

STABLE_AFTER = 3                                      # calls that have been alike
_PLAIN = {int, float, bool, str, type(None), dtypes.dtype}
_local = _state.local


class Replay:
    """One program, and where what it reads comes from and what it computes goes.

    `sources` has for each input the place among the arguments, or a tensor that is no argument; `results` for each part of the
    result a `Value` for what was computed, an `Argument`, or the plain value itself.
    """

    def __init__(self, program: Any, sources: list[Any], results: list[Any], spec: Any) -> None:
        self.program, self.sources, self.results, self.spec = program, sources, results, spec
        self.held = [(x, x._array, _looks(x)) for x in sources if isinstance(x, Tensor)]
        self.is_one = spec.is_leaf()
        self.seen = 1                                 # calls that were alike
        self.replayed = 0
        self.run: Any = None

    def is_as(self, other: Replay) -> bool:
        """Whether the other call was like the one before."""
        return (
            self.program is other.program and self.spec == other.spec and self.results == other.results
            and len(self.sources) == len(other.sources)
            and all(a is b or a.__class__ is int and a == b for a, b in zip(self.sources, other.sources, strict=True))
        )  # fmt: skip

    def still_holds(self) -> bool:
        """Whether the tensors that are no arguments look as they did."""
        for x, array, looks in self.held:
            if (x._array is not array or (x._node is not None) is not looks[-1]) and _looks(x) != looks:
                return False
        return True

    def __call__(self, leaves: list[Any]) -> Any:
        """The result for the parts of the arguments."""
        if self.run is None:
            self.run = _written(self)
        self.replayed += 1
        made = self.run(leaves)
        return made[0] if self.is_one else pytree.tree_unflatten(made, self.spec)


class Value(NamedTuple):
    """A part of a result that is computed."""

    number: int


class Argument(NamedTuple):
    """A part of a result that is an argument."""

    place: int


def _written(replay: Replay) -> Any:
    """The program as a function of the parts of the arguments, which gives the parts of the result: calls of the public functions."""
    program = replay.program
    scope: dict[str, Any] = {}

    def held(value: Any) -> str:
        name = f"h{len(scope)}"
        scope[name] = value
        return name

    inputs = [f"leaves[{x}]" if x.__class__ is int else held(x) for x in replay.sources]

    def name_of(ref: Any) -> str:
        if ref.__class__ is int:
            return inputs[-1 - ref] if ref < 0 else f"t{ref}"
        if ref.__class__ is Constant or ref.__class__ is Number:
            return held(ref.value)
        within = ", ".join([name_of(r) for r in ref])
        return f"[{within}]" if isinstance(ref, list) else f"({within},)" if within else "()"

    lines = []
    for part in program.fused or program.steps:
        if not isinstance(part, Step):
            lines.append(f"    {''.join(f't{v}, ' for v in part.values)} = {held(part.run)}([{', '.join(map(name_of, part.operands))}])")
            continue
        op, refs = part.op, list(part.refs)
        count = len(op.positional)
        named = [
            f"{name}={name_of(ref)}" for name, ref in zip(op.keyword_only, refs[count:], strict=True) if not _is_default(op, name, ref)
        ]  # fmt: skip
        refs = refs[:count]
        while refs and op.positional[len(refs) - 1] in op.defaults and _is_default(op, op.positional[len(refs) - 1], refs[-1]):
            refs.pop()
        results = f"t{part.first}" if part.several is None else "".join(f"t{part.first + i}, " for i in range(len(part.twins)))
        lines.append(f"    {results} = {held(public_function(op))}({', '.join([*map(name_of, refs), *named])})")
    parts = [
        f"t{r.number}" if r.__class__ is Value else f"leaves[{r.place}]" if r.__class__ is Argument else held(r) for r in replay.results
    ]  # fmt: skip
    text = "\n".join(["def replay(leaves):", *lines, f"    return [{', '.join(parts)}]"])
    exec(compile(text, "<flambeau replay>", "exec"), scope)  # the text is made of names of this function's own
    return scope["replay"]


def _is_default(op: Any, name: str, ref: Any) -> bool:
    return ref.__class__ is Constant and is_default(op, name, ref.value)


def parts_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The parts of arguments, and their structure; None for that of tensors alone."""
    if not kwargs and all(a.__class__ is Tensor for a in args):
        return args, None
    return pytree.tree_flatten((args, kwargs))


def signature_of(fn: Any, leaves: Any, spec: Any) -> Any:
    """What calls of `fn` have to have in common; None for arguments whose looks do not say enough."""
    key: list[Any] = [_local.asked, _local.inference, dtypes._default, spec and str(spec), fn.training if isinstance(fn, Module) else None]
    first: dict[int, int] = {}
    for place, a in enumerate(leaves):
        kind = a.__class__
        if kind is Tensor or kind is Parameter:
            if a._array.__class__ is not ndarray:
                return None
            array = a._array
            key += (first.setdefault(id(a), place), array.shape, array.strides, array.dtype, a._node is not None)
        elif kind in _PLAIN:
            key += (kind, repr(a))
        else:
            return None
    return tuple(key)


def _looks(a: Tensor) -> Any:
    array = a._array
    return array.shape, array.strides, array.dtype, a._node is not None


def replay_of(recorder: Recorder, leaves: list[Any], result: Any) -> Replay | None:
    """How the call that `recorder` has seen could be replayed; None if it was not one recording that gives all results."""
    if recorder.flushes != 1 or recorder.last is None:
        return None
    program, inputs, wanted, alive = recorder.last
    places = {id(a): place for place, a in reversed([*enumerate(leaves)]) if isinstance(a, Tensor)}
    sources = [places.get(id(x), x) for x in inputs]
    numbers = {id(tensor): number for number, tensor in zip(wanted, alive, strict=True)}
    parts, spec = pytree.tree_flatten(result)
    results: list[Any] = []
    for part in parts:
        if id(part) in numbers:
            results.append(Value(numbers[id(part)]))
        elif id(part) in places:
            results.append(Argument(places[id(part)]))
        elif part.__class__ in _PLAIN:
            results.append(part)
        else:
            return None
    if len(alive) > sum(r.__class__ is Value for r in results):
        return None                                   # somebody else keeps a result
    return Replay(program, sources, results, spec)


def check(replayed: Any, recorded: Any, title: str) -> None:
    """Raise RuntimeError unless what replaying gives is, to the bit, what the function gives."""
    for at, (a, b) in enumerate(zip(pytree.tree_leaves(replayed), pytree.tree_leaves(recorded), strict=True)):
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            x, y = (t.detach().contiguous().view(-1).view(uint8) if t.ndim and t.numel() else t.detach() for t in (a, b))
            same = a.shape == b.shape and a.dtype is b.dtype and x.equal(y)
        else:
            same = a == b
        if not same:
            raise RuntimeError(
                f"compile(mode='reduce-overhead'): result {at} of {title} is another than its recording gives: the function depends on "
                "something that its arguments do not show, see docs/compile.md; compile it without the mode, or call "
                "torch.compiler.reset() when that changes"
            )

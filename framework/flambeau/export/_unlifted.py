"""What a module of an exported program does beside running its graph: it checks inputs, and keeps its mode."""

from __future__ import annotations

import ast
import dataclasses
import re
from typing import Any

from ..fx.experimental._sources import FUNCTIONS
from ..tensor import Tensor
from .dynamic_shapes import _UNBOUNDED


@dataclasses.dataclass
class Guard:
    """What one leaf of the inputs has to be.

    Args:
        at: which leaf.
        name: what messages call it.
        value: what it has to equal, for a constant.
        shape, dtype: those of a Tensor; None for a constant.
        open_sizes: by dimension the least and the largest size, where more than one is taken.
        hinted: those of these dimensions that have no name.
    """

    at: int
    name: str
    value: Any = None
    shape: tuple[int, ...] | None = None
    dtype: Any = None
    open_sizes: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    hinted: list[int] = dataclasses.field(default_factory=list)

    @property
    def shown_sizes(self) -> dict[int, tuple[int, int]]:
        """`open_sizes` as `range_constraints` have them: from 2 on without a name, though less is taken where the graph holds for it."""
        return {d: (max(low, 2) if d in self.hinted else low, high) for d, (low, high) in self.open_sizes.items()}

    def check(self, leaves: list[Any]) -> None:
        """Raise AssertionError unless the graph holds for this one of the `leaves`."""
        given = leaves[self.at]
        if self.shape is None:
            if given is not self.value and given != self.value:
                raise AssertionError(f"Guard failed: {self.name} == {self.value!r}, got {given!r}")
            return
        if not isinstance(given, Tensor):
            raise AssertionError(f"Guard failed: {self.name} is a Tensor, got {type(given).__name__}")
        if given.dtype != self.dtype:
            raise AssertionError(f"Guard failed: {self.name}.dtype == {self.dtype}, got {given.dtype}")
        if given.ndim != len(self.shape):
            raise AssertionError(f"Guard failed: {self.name}.ndim == {len(self.shape)}, got {given.ndim}")
        for d, n in enumerate(self.shape):
            low, high = self.open_sizes.get(d, (n, n))
            size, whose = given.shape[d], f"{self.name}.size()[{d}]"
            if low == high != size:
                raise AssertionError(f"Guard failed: {whose} == {n}, got {size}")
            if size < low:
                raise AssertionError(f"Guard failed: {whose} >= {low}, got {size}")
            if size > high and high < _UNBOUNDED:
                raise AssertionError(f"Guard failed: {whose} <= {high}, got {size}")


@dataclasses.dataclass
class Relation:
    """What has to hold between sizes of inputs.

    Args:
        text: an expression of ``n0``, ``n1`` ... in Python, as `ShapeEnv` writes it.
        sizes: which leaf and dimension each of these is.
        names: what messages call the leaves.

    Raises: ValueError for an `text` with more than numbers, comparisons and functions of numbers: it may come from a file.
    """

    text: str
    sizes: list[tuple[int, int]]
    names: list[str]

    def __post_init__(self) -> None:
        tree = ast.parse(self.text, mode="eval")
        called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        for node in ast.walk(tree):
            known = FUNCTIONS if id(node) in called else [f"n{i}" for i in range(len(self.sizes))]
            power = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
            if (
                not isinstance(node, _OF_NUMBERS)
                or isinstance(node, ast.Name) and node.id not in known
                or isinstance(node, ast.Constant) and not isinstance(node.value, (int, float))
                or power and not (isinstance(node.right, ast.Constant) and node.right.value <= _LARGEST_POWER)  # type: ignore[attr-defined]
            ):
                raise ValueError(f"{self.text!r} is no relation of sizes")
        self._code = compile(tree, "<flambeau relation>", "eval")

    def check(self, leaves: list[Any]) -> None:
        """Raise AssertionError unless the sizes of the `leaves` are related as the graph takes them to be."""
        values = {f"n{i}": leaves[at].shape[d] for i, (at, d) in enumerate(self.sizes)}
        if eval(self._code, {"__builtins__": {}, **FUNCTIONS}, values):  # of nothing but numbers, see above
            return
        calls = [f"{name}.size()[{d}]" for name, (_, d) in zip(self.names, self.sizes, strict=True)]
        condition = re.sub(r"\bn(\d+)\b", lambda found: calls[int(found[1])], self.text)
        got = ", ".join(f"{c} = {n}" for c, n in zip(calls, values.values(), strict=True))
        raise AssertionError(f"Guard failed: {condition}, got {got}")


_OF_NUMBERS = (
    ast.Expression, ast.Compare, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.IfExp, ast.Call, ast.Name, ast.Constant, ast.Load,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
_LARGEST_POWER = 8                                    # of what files say: more would take for ever


def keep_mode(made: Any, spec: Any, guards: list[Any]) -> Any:
    """`made`, which checks its inputs before each call and refuses `train` and `eval`: they would change nothing."""
    from .exported_program import flat_inputs

    def check(module: Any, args: Any, kwargs: Any) -> None:
        leaves = flat_inputs(spec, args, kwargs)
        for guard in guards:
            guard.check(leaves)

    made.register_forward_pre_hook(check, with_kwargs=True)
    cls = type(made)

    def refuse(name: str) -> Any:
        def method(self: Any, *args: Any) -> Any:
            raise NotImplementedError(f"Calling {name}() is not supported yet: the graph has the mode that it was exported in")

        return method

    cls.train, cls.eval = refuse("train"), refuse("eval")
    return made

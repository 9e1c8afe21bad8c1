"""What a module of an exported program does beside running its graph: it checks inputs, and keeps its mode."""

from __future__ import annotations

import dataclasses
from typing import Any

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
    """

    at: int
    name: str
    value: Any = None
    shape: tuple[int, ...] | None = None
    dtype: Any = None
    open_sizes: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)

    def check(self, given: Any) -> None:
        """Raise AssertionError unless the graph holds for `given`."""
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


def keep_mode(made: Any, spec: Any, guards: list[Guard]) -> Any:
    """`made`, which checks its inputs before each call and refuses `train` and `eval`: they would change nothing."""
    from .exported_program import flat_inputs

    def check(module: Any, args: Any, kwargs: Any) -> None:
        leaves = flat_inputs(spec, args, kwargs)
        for guard in guards:
            guard.check(leaves[guard.at])

    made.register_forward_pre_hook(check, with_kwargs=True)
    cls = type(made)

    def refuse(name: str) -> Any:
        def method(self: Any, *args: Any) -> Any:
            raise NotImplementedError(f"Calling {name}() is not supported yet: the graph has the mode that it was exported in")

        return method

    cls.train, cls.eval = refuse("train"), refuse("eval")
    return made

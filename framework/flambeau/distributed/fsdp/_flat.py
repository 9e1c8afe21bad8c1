"""The parameters of a module as one flat parameter, of which each process has an equal piece."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import flambeau as fb

from ...nn.parameter import Parameter
from ._group import ShardedParameter
from ._shards import Layout

__all__ = ["FlatHandle", "FlatParameter", "Part"]


class FlatParameter(Parameter):
    """The piece of a process of the flattened parameters of a module."""


class Part(NamedTuple):
    """One of the flattened parameters: its name from the wrapped module on, where it is, and its place in the flat one."""

    name: str
    places: list[tuple[Any, str]]
    parameter: Any
    shape: tuple[int, ...]
    begin: int
    end: int


class FlatHandle(ShardedParameter):
    """One flat parameter, and the views of it that modules have while it is whole.

    Args:
        named: name, places and value of each parameter, in their order.
        at, count: which piece this process has, and of how many.
        keeps_originals: whether modules keep their own parameters, whose values are views into the piece between uses.
        owner: the module that has the flat parameter otherwise.
    """

    def __init__(self, named: list[tuple[str, list[tuple[Any, str]], Any]], at: int, count: int, keeps_originals: bool, owner: Any) -> None:
        dtypes, needs = {p.dtype for _, _, p in named}, {p.requires_grad for _, _, p in named}
        if len(dtypes) > 1:
            raise ValueError(f"Must flatten tensors with uniform dtype but got {sorted(map(str, dtypes))}")
        if len(needs) > 1 and not keeps_originals:
            raise ValueError("Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`")
        self.parts, begin = [], 0
        for name, places, parameter in named:
            self.parts.append(Part(name, places, parameter, tuple(parameter.shape), begin, begin + parameter.numel()))
            begin += parameter.numel()
        self.name, self.places, self.owner = "_flat_param", [], owner
        self.keeps_originals, self.at, self.dtype = keeps_originals, at, named[0][2].dtype
        self.gradient_dtype = self.dtype              # lower where gradients stay in the dtype of reductions
        self.layout = Layout((math.ceil(begin / count) * count,), 0, count)
        self.attributes: dict[str, Any] = {}
        self.unsharded: Any = None
        self.held: Any = None
        self.after_forward: Any = None
        with fb.no_grad():
            values = fb.cat([*[p.detach().reshape(-1) for _, _, p in named], named[0][2].new_zeros(self.layout.shape[0] - begin)])
            self.sharded = FlatParameter(self.layout.piece(values, at), True in needs)
        self.show(self.sharded)

    # -- the piece

    def spread(self, local: Any) -> Any:
        return local

    def local(self) -> Any:
        return self.sharded.detach()

    def take(self) -> None:
        """The flat parameter stays the same object."""

    def add_gradient(self, piece: Any) -> None:
        self.collect_gradients()
        if self.sharded.grad is None:
            self.sharded._gradient = piece            # `grad` takes no other dtype than the parameter's
        else:
            self.sharded.grad.add_(piece)
        if self.keeps_originals:
            self._show_gradients()

    def within(self, part: Part) -> tuple[int, int]:
        """Where the elements of `part` that this process has lie in its piece."""
        first = self.at * self.layout.step
        begin, end = max(part.begin - first, 0), min(part.end - first, self.layout.step)
        return begin, max(begin, end)

    def _show_gradients(self) -> None:
        for part in self.parts:
            begin, end = self.within(part)
            if part.parameter.requires_grad and begin < end:
                part.parameter._gradient = self.sharded.grad[begin:end]

    def collect_gradients(self) -> None:
        """Take over what programs have done to the gradients of the parameters."""
        if self.keeps_originals and all(p.parameter.grad is None for p in self.parts):
            self.sharded.grad = None

    # -- what modules have

    def show(self, parameter: Any) -> None:
        if parameter is self.unsharded and parameter is not None:
            with fb.enable_grad():
                self._show_views(parameter)
            return
        for part in self.parts:
            if self.keeps_originals:
                begin, end = self.within(part)
                with fb.no_grad():
                    grad, part.parameter.grad = part.parameter.grad, None
                    part.parameter.data = self.sharded.detach()[begin:end]
                    if grad is not None and tuple(grad.shape) == tuple(part.parameter.shape):
                        part.parameter._gradient = grad
            for module, key in part.places:
                if self.keeps_originals:
                    module._parameters[key] = part.parameter
                else:
                    module._parameters.pop(key, None)
                    module.__dict__.pop(key, None)
        if not self.keeps_originals:
            self.owner._parameters["_flat_param"] = self.sharded

    def _show_views(self, unsharded: Any) -> None:
        for part in self.parts:
            view = unsharded[part.begin : part.end].view(part.shape)
            for module, key in part.places:
                if self.keeps_originals:
                    module._parameters[key] = view
                else:
                    module.__dict__[key] = view

    # -- whole parameters, for programs

    def show_parameters(self, gradients: Any = None) -> dict[int, Any]:
        """Let the modules have whole parameters that programs may change; returns them by the place of their part."""
        made = {}
        for at, part in enumerate(self.parts):
            values = self.unsharded.detach()[part.begin : part.end].view(part.shape)
            if self.keeps_originals:
                parameter = part.parameter
                with fb.no_grad():
                    parameter.grad = None
                    parameter.data = values
            else:
                parameter = Parameter(values, part.parameter.requires_grad)
            if gradients is not None:
                parameter.grad = gradients[part.begin : part.end].view(part.shape)
            for module, key in part.places:
                module.__dict__.pop(key, None)
                module._parameters[key] = parameter
            made[at] = parameter
        if not self.keeps_originals:
            self.owner._parameters.pop("_flat_param", None)
        return made

    def store(self, shown: dict[int, Any]) -> None:
        """Take over the values of the whole parameters that `show_parameters` gave."""
        for at, parameter in shown.items():
            part = self.parts[at]
            begin, end = self.within(part)
            first = self.at * self.layout.step
            if begin < end:
                values = parameter.detach().reshape(-1)[first + begin - part.begin : first + end - part.begin]
                self.sharded.detach()[begin:end].copy_(values)

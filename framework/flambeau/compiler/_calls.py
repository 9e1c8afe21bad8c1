"""What steps of a backend's graph call beside operations: what writes to memory, makes tensors, or sets the mode of recording gradients.

Each is found by its identity in the tree of steps, as an operation is. `enter` runs it, and `node` is what the graph says of it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .. import _state
from ..devices import CPU, device
from ..fx.node import Node
from ..ops._dispatch import call_setitem, public_function
from ..ops._spec import OPS
from ..tensor import Tensor
from ..utils._pytree import tree_unflatten

_META = device("meta")


class Called:
    """What a step calls that is no operation.

    `params` are names of arguments, and `sizes` has those whose numbers may be inputs of graphs, and whether these are sizes or else any
    numbers; see `_sizes`.
    """

    kind = "call"
    shares_memory = random = False
    bounds_of_elements = None
    params: tuple[str, ...] = ()
    sizes: Mapping[str, bool] = MappingProxyType({})
    like: Any = None                                  # an operation that has these parameters
    bodies: tuple[Any, ...] = ()                      # the last steps of graphs within the graph; see `_bodies`
    takes_numbers = False                             # whether numbers that are inputs of the graph may be handed to these
    qualified = public_name = ""

    def enter(self, *args: Any) -> Any:
        """What it gives: a tensor, several, or None."""
        raise NotImplementedError

    def look(self, *args: Any) -> Any:
        """What it gives for tensors without memory."""
        return self.enter(*args)

    def writes(self, args: list[Any]) -> list[Any]:
        """Arguments that it writes to, where counts of writes do not tell."""
        return []

    def form(self) -> Any:
        """What it has in common with calls that differ in numbers alone: those of its bodies are told beside it."""
        return self

    def node(self, graph: Any, args: list[Any]) -> Any:
        """The call in `graph` with these nodes and constants."""
        raise NotImplementedError


class InPlace(Called):
    """The in-place form of an operation: ``x.add_(y)``."""

    def __init__(self, op: Any) -> None:
        self.like, self.params = op, op.params
        self.method = "copy_" if op is OPS["Tensor.overwrite"] else f"{op.name}_"
        self.public_name = self.qualified = self.method

    def enter(self, *args: Any) -> Any:
        return self.like.enter_inplace(*args)

    def writes(self, args: list[Any]) -> list[Any]:
        return args[:1]

    def node(self, graph: Any, args: list[Any]) -> Any:
        from ._graphs import written_arguments

        if self.method == "copy_":
            return graph.call_method("copy_", tuple(args))
        given, kwargs = written_arguments(self.like, args)
        if hasattr(Tensor, self.method):
            return graph.call_method(self.method, tuple(given), kwargs)
        from ..nn import functional

        return graph.call_function(getattr(functional, self.method), tuple(given), kwargs)


class Into(Called):
    """An operation whose result is stored in the tensor ``out``, the last argument."""

    def __init__(self, op: Any) -> None:
        self.like, self.params = op, (*op.params, "out")
        self.public_name, self.qualified = op.public_name, op.qualified

    def enter(self, *args: Any) -> Any:
        return self.like.run_out(args[-1], *args[:-1])

    def writes(self, args: list[Any]) -> list[Any]:
        return args[-1:]

    def node(self, graph: Any, args: list[Any]) -> Any:
        from ._graphs import written_arguments

        given, kwargs = written_arguments(self.like, args[:-1])
        return graph.call_function(public_function(self.like), tuple(given), {**kwargs, "out": args[-1]})


class _Stored(Called):
    """``x[key] = value``."""

    params = ("input", "key", "value")
    sizes = MappingProxyType({"key": True})
    qualified = public_name = "Tensor.__setitem__"

    def enter(self, *args: Any) -> None:
        call_setitem(*args)

    def writes(self, args: list[Any]) -> list[Any]:
        return args[:1]

    def node(self, graph: Any, args: list[Any]) -> Any:
        return graph.call_function(operator.setitem, tuple(args))


def _sizes_of(arguments: Any) -> dict[str, bool]:
    """By name, arguments of a schema that are sizes, or else any numbers."""
    kinds = {a.name: a.type.text() for a in arguments}
    return {name: "SymInt" in kind for name, kind in kinds.items() if "SymInt" in kind or kind in ("Scalar", "Scalar?", "float")}


class _OfSchema(Called):
    """An operator with a schema.

    Args:
        count: how many arguments are given in order; the others have these `names`.
    """

    def __init__(self, arguments: Any, count: int, names: tuple[str, ...]) -> None:
        self.names = names
        self.params = (*[a.name for a in arguments[:count]], *names)
        self.sizes = _sizes_of(arguments)
        self._written = [k for k, name in enumerate(self.params) if any(a.name == name and a.is_write for a in arguments)]

    def writes(self, args: list[Any]) -> list[Any]:
        return [args[k] for k in self._written]

    def _apart(self, args: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments that are given in order, and those by name."""
        count = len(args) - len(self.names)
        return tuple(args[:count]), dict(zip(self.names, args[count:], strict=True))


class Made(_OfSchema):
    """A function that makes a tensor, or fills one, as the operator that it is: ``torch.zeros(3)``, ``x.zero_()``."""

    def __init__(self, overload: Any, count: int, names: tuple[str, ...]) -> None:
        super().__init__(overload._schema.arguments, count, names)
        self.overload = overload
        self.public_name = self.qualified = overload._schema.name.partition("::")[2]

    def enter(self, *args: Any) -> Any:
        given, kwargs = self._apart(args)
        return self.overload(*given, **kwargs)

    def look(self, *args: Any) -> Any:
        given, kwargs = self._apart(args)
        return self.overload(*given, **({**kwargs, "device": _META} if "device" in kwargs else kwargs))

    def node(self, graph: Any, args: list[Any]) -> Any:
        import flambeau

        given, kwargs = self._apart(args)
        # Functions that make tensors say where and how, whether the program has or not.
        usual = {"device": CPU, "pin_memory": False}
        kwargs = {name: value for name, value in kwargs.items() if value is not None and (name not in usual or value != usual[name])}
        if given and isinstance(given[0], Node) and hasattr(Tensor, self.public_name):
            return graph.call_method(self.public_name, given, kwargs)
        return graph.call_function(getattr(flambeau, self.public_name, self.overload), given, kwargs)


class Defined(_OfSchema):
    """An operator that a program has defined."""

    def __init__(self, operator: Any, count: int, names: tuple[str, ...]) -> None:
        super().__init__(operator.schema.arguments, count, names)
        self.operator = operator
        self.public_name = self.qualified = operator.dotted

    def enter(self, *args: Any) -> Any:
        return self.operator.interpret(*self._apart(args))

    def node(self, graph: Any, args: list[Any]) -> Any:
        given, kwargs = self.operator.schema.without_defaults(*self._apart(args))
        return graph.call_function(self.operator.overload, given, kwargs)


class Allowed(Called):
    """A function of the program that is one node; its arguments have the structure `spec`."""

    def __init__(self, fn: Any, spec: Any) -> None:
        self.fn, self.spec = fn, spec
        self.params = tuple([str(k) for k in range(spec.num_leaves)])
        self.public_name = self.qualified = fn.__qualname__

    def enter(self, *leaves: Any) -> Any:
        args, kwargs = tree_unflatten(leaves, self.spec)
        return self.fn(*args, **kwargs)

    def node(self, graph: Any, args: list[Any]) -> Any:
        given, kwargs = tree_unflatten(args, self.spec)
        return graph.call_function(self.fn, tuple(given), kwargs)


class GradMode(Called):
    """Gradients are recorded from here on, or not."""

    params = ("mode",)
    public_name = qualified = "_set_grad_enabled"

    def enter(self, mode: bool) -> None:
        _state.set_grad(mode)

    def node(self, graph: Any, args: list[Any]) -> Any:
        from .. import _C

        return graph.call_function(_C._set_grad_enabled, tuple(args))


in_place, into = functools.cache(InPlace), functools.cache(Into)
made_by, defined = functools.cache(Made), functools.cache(Defined)
allowed = functools.cache(Allowed)
STORED, GRAD_MODE = _Stored(), GradMode()

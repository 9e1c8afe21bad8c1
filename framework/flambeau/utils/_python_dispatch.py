"""Modes that see every op below compositions: `TorchDispatchMode`."""

from __future__ import annotations

import functools
from typing import Any

from .. import _aten, _state
from .._interpreters import DECOMPOSE, Interpreter
from .._ops import CalledOperator
from ..ops import _dispatch
from ..ops._spec import OPS, OUT, Op
from ..tensor import Tensor
from ._pytree import tree_leaves

__all__ = ["BaseTorchDispatchMode", "OpOverload", "TorchDispatchMode", "is_traceable_wrapper_subclass"]

_local = _state.local


class OpOverload(CalledOperator):
    """An op without counterpart among PyTorch's operators, as `__torch_dispatch__` is given it: ``prims.<name>``, callable."""

    namespace = "prims"

    def __init__(self, op: Op, inplace: bool, out: bool) -> None:  # by `overload_of`
        self.op, self.inplace, self.out = op, inplace, out
        self._opname, self._overloadname = f"{op.name}{'_' if inplace else ''}", "out" if out else "default"
        self.__name__ = self.__qualname__ = f"{self._opname}.{self._overloadname}"

    @property
    def overloadpacket(self) -> PrimsPacket:
        return PrimsPacket(self.op, self.inplace)

    @property
    def tags(self) -> list[Any]:
        return [_aten.Tag.nondeterministic_seeded] if self.op.random else []

    @property
    def _schema(self) -> Any:
        return _aten.schema_of(self.op, self.inplace, self.out)

    def name(self) -> str:
        return f"prims::{self._opname}" + (".out" if self.out else "")

    def answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op."""
        op, out = self.op, kwargs.get("out")
        given = {**op.defaults, **dict(zip(op.params, args, strict=False)), **kwargs}
        values = tuple(given[n] for n in op.params)
        return _dispatch.interpret(op, values, values[0] if self.inplace else out, self.inplace)

    def __repr__(self) -> str:
        return f"<OpOverload(op='prims.{self._opname}', overload='{self._overloadname}')>"

    def __str__(self) -> str:
        return f"prims.{self.__name__}"

    def __deepcopy__(self, memo: Any) -> OpOverload:
        return self

    def __reduce__(self) -> Any:
        return _overload, (self.op.qualified, self.inplace, self.out)


@functools.cache
def overload_of(op: Op, inplace: bool, out: bool) -> OpOverload:
    """The overload of `op` that stores in its first argument, writes to ``out``, or does neither. There is one of each."""
    return OpOverload(op, inplace, out)


class PrimsPacket(CalledOperator):
    """The overloads of one op that has no counterpart among PyTorch's operators: ``torch.ops.prims.<name>``."""

    def __init__(self, op: Op, inplace: bool = False) -> None:
        self.op, self.inplace = op, inplace
        self.__name__ = self.__qualname__ = f"{op.name}{'_' if inplace else ''}"
        self._qualified_op_name = f"prims::{self.__name__}"

    @property
    def default(self) -> OpOverload:
        return overload_of(self.op, self.inplace, False)

    @property
    def out(self) -> OpOverload:
        if self.inplace or not self.op.surface & OUT:
            raise AttributeError(f"The underlying op of 'prims.{self.__name__}' has no overload name 'out'", name="out", obj=self)
        return overload_of(self.op, False, True)

    def overloads(self) -> list[str]:
        """The names of the overloads."""
        return ["default", "out"] if not self.inplace and self.op.surface & OUT else ["default"]

    def answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the overload that the arguments ask for."""
        return (self.default if kwargs.get("out") is None else self.out).answer(args, kwargs)

    def __str__(self) -> str:
        return f"prims.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='prims.{self.__name__}')>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrimsPacket) and (self.op, self.inplace) == (other.op, other.inplace)

    def __hash__(self) -> int:
        return hash((self.op, self.inplace))


def prims_packet(name: str) -> PrimsPacket | None:
    """What ``torch.ops.prims.<name>`` is; None if no op has that name."""
    op = _aten.op_named(name)
    if op is not None:
        return PrimsPacket(op)
    op = _aten.op_named(name[:-1]) if name.endswith("_") else None
    return None if op is None else PrimsPacket(op, True)


def _overload(name: str, inplace: bool, out: bool) -> OpOverload:
    """What `OpOverload` is pickled as."""
    return overload_of(OPS[name], inplace, out)


def seen_as(op: Op, args: tuple[Any, ...], out: Any = None, inplace: bool = False) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """What a mode is given for a call: an operator, its arguments and those by name; None for compositions that are taken apart."""
    # What such a composition saves for backward comes from its parts, which are to be seen then.
    found = None if op.reads_parts and _is_recorded(args) and reads_parts(op, args) else _aten.operator_of(op, args, out, inplace)
    if found is not None:
        return found
    if op.kind == "composite":
        return None, args, {}
    kwargs = {} if out is None or inplace else {"out": out}
    return overload_of(op, inplace, bool(kwargs)), args, kwargs


def reads_parts(op: Op, args: tuple[Any, ...]) -> bool:
    """Whether the backward pass of a call of `op` reads what the op makes on its way."""
    found = op.reads_parts
    return bool(found(*args) if callable(found) else found)


def _is_recorded(args: tuple[Any, ...]) -> bool:
    return _state.grad_enabled() and any(isinstance(x, Tensor) and x._node is not None for x in tree_leaves(args))


class TorchDispatchMode(Interpreter):
    """A context in which `__torch_dispatch__` of this object answers every op of the thread.

    Ops are shown as PyTorch's operators (`torch.ops.aten`). Compositions that PyTorch takes apart are taken apart here too.
    """

    kind = "dispatch"
    takes_names = True
    sees_backward = True
    sees_makers = True

    def __init__(self, _dispatch_key: Any = None) -> None:
        pass

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: define __torch_dispatch__(self, func, types, args=(), kwargs=None)")

    def __enter__(self) -> Any:
        _dispatch.push(self)
        return self

    def __exit__(self, *_: object) -> None:
        _dispatch.pop(self)

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        return cls(*args, **kwargs)

    # -- as an interpreter

    def run(self, op: Op, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        if op.in_parts is not None and out is None:
            return DECOMPOSE
        func, args, kwargs = seen_as(op, args, out, inplace)
        return NotImplemented if func is None else self._asked(func, args, kwargs)

    def run_maker(self, call: Any) -> Any:
        return self._asked(*call)

    def _asked(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        types = tuple({type(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and type(x) is not Tensor})
        return self.__torch_dispatch__(func, types, args, kwargs)

    def run_operator(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if operator.is_composition:
            return NotImplemented
        args, kwargs = operator.schema.without_defaults(args, kwargs)
        operands = tree_leaves((args, list(kwargs.values())))
        types = tuple({type(x) for x in operands if isinstance(x, Tensor) and type(x) is not Tensor})
        rule = operator.torch_dispatch.get(type(self))
        if rule is not None:
            return rule(self, operator.overload, types, args, kwargs)
        return self.__torch_dispatch__(operator.overload, types, args, kwargs)


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that changes nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_dispatch_mode_stack() -> list[Any]:
    return [x for x in _local.calls.interpreters if isinstance(x, TorchDispatchMode)]


def _get_current_dispatch_mode() -> Any:
    found = _get_current_dispatch_mode_stack()
    return found[-1] if found else None


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether `t` is a subclass that can be taken apart by ``__tensor_flatten__`` and put together again."""
    return isinstance(t, Tensor) and hasattr(t, "__tensor_flatten__") and hasattr(type(t), "__tensor_unflatten__")


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    return issubclass(t, Tensor) and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def transform_subclass(t: Any, callback: Any, outer_size: Any = None, outer_stride: Any = None) -> Any:
    """`t` rebuilt from ``callback(name, tensor)`` of each tensor it holds."""
    names, context = t.__tensor_flatten__()
    changed = {n: callback(n, getattr(t, n)) for n in names}
    return type(t).__tensor_unflatten__(changed, context, t.size() if outer_size is None else outer_size,
                                        t.stride() if outer_stride is None else outer_stride)  # fmt: skip

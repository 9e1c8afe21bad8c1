"""Tensors whose dimensions have names: a class of operands that answers ops by the rules of names that these declare.

A tensor becomes a `NamedTensor` when it gets a name, and a plain one when it loses the last. So it is asked like any operand of a
subclass, and plain tensors pay nothing. Below the rules ops are what they always are, for names are no business of kernels or autograd.
"""

from __future__ import annotations

from typing import Any

from .. import _names, _state
from .._kinds import KindArray
from .._names import DROP, EXPERIMENTAL, Names
from .._warn import warn_once
from ..tensor import Tensor, wrap_dim
from . import _dispatch
from ._spec import OPS, Op
from ._spec import names as rules
from ._spec.names import DIMS, NamedCall, no_names

_local = _state.local
_new = object.__new__
_OF_VALUES = frozenset(("elementwise", "reduction", "primitive"))  # kinds of ops whose results are no views of their operands


class NamedTensor(Tensor):
    """A tensor with names of dimensions, which are an attribute of the instance; at least one is not None."""

    __slots__ = ()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What happens to functions that are no ops, and to ops behind a mode that has left them to classes."""
        if any(t is not cls and t is not Tensor for t in types):
            return NotImplemented
        calls = _local.calls
        if not hasattr(func, "flambeau_op"):
            return _answer_function(func, args, kwargs or {})
        before, calls.modes = calls.modes, ()
        try:
            return func(*args, **(kwargs or {}))
        finally:
            calls.modes = before

    @classmethod
    def _answer_op(cls, op: Op, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        """The result of `op`, with the names that its rule gives. Raises: RuntimeError where it has none, or names do not go together."""
        return _answer(op, args, out, inplace)

    def flatten(self, *args: Any, **kwargs: Any) -> Tensor:
        """``flatten(dims, out_dim)``: the consecutive dimensions `dims`, a list of names, as one that is called `out_dim`."""
        args = (*args, *(kwargs.pop(name) for name in ("dims", "out_dim")[len(args) :] if name in kwargs))
        if len(args) == 3:                            # the first and the last, as in `flatten(start_dim, end_dim, out_dim)`
            first, last = [wrap_dim(NamedCall("flatten", {"input": self}).counted(d), self._array.ndim) for d in args[:2]]
            args = (list(range(first, last + 1)), args[2])
        return Tensor.flatten(self, *args, **kwargs)

    @property
    def data(self) -> Tensor:
        """A tensor over the same memory without history; assigning puts other memory of this shape in the place of this tensor's."""
        return set_names(plain(self).data, self.names)

    @data.setter
    def data(self, value: Tensor) -> None:
        if isinstance(value, Tensor):
            _same_shape(self, tuple(value.shape), "data")
        Tensor.data.__set__(self, value)  # type: ignore[attr-defined]  # a property

    def resize_(self, *sizes: Any, **options: Any) -> Tensor:
        """The tensor as it is. Raises: RuntimeError where its shape would change."""
        size = options.get("size", sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes)
        return _same_shape(self, tuple(size), "resize_")

    def resize_as_(self, the_template: Tensor, memory_format: Any = None) -> Tensor:
        """The tensor as it is. Raises: RuntimeError where its shape would change."""
        return _same_shape(self, tuple(the_template.shape), "resize_as_")

    def size(self, dim: Any = None, axis: Any = None) -> Any:
        """The shape, or the extent of the dimension `dim`, which may be given by name."""
        return Tensor.size(self, *[NamedCall("size", {"input": self}).counted(d) for d in (dim, axis)])

    def stride(self, dim: Any = None, axis: Any = None) -> Any:
        """Steps in memory along each dimension, or along `dim`, which may be given by name."""
        return Tensor.stride(self, *[NamedCall("stride", {"input": self}).counted(d) for d in (dim, axis)])

    def __iter__(self) -> Any:
        return iter(self.unbind(0))

    def set_(self, *_: Any, **__: Any) -> Tensor:
        """Raises: RuntimeError: what the tensor looks at then has other dimensions than those that have names."""
        raise no_names("set_", self)

    def __reduce_ex__(self, protocol: int) -> Any:
        raise RuntimeError(
            "NYI: Named tensors don't support serialization. Please drop names via `tensor = tensor.rename(None)` before serialization."
        )


def _same_shape(tensor: Tensor, size: tuple[int, ...], name: str) -> Tensor:
    if size != tuple(tensor.shape):
        raise RuntimeError(f"{name}: Cannot resize named tensor with shape {list(tensor.shape)} to {list(size)}. {DROP}")
    return tensor


def set_names(tensor: Tensor, names: Names) -> Tensor:
    """`tensor` itself, whose dimensions are called `names` from here on; these have been checked.

    Raises: NotImplementedError for an instance of another subclass, and for what is no strided memory.
    """
    named = any(name is not None for name in names)
    attributes: Any = tensor.__dict__
    if tensor.__class__ is NamedTensor:
        if named:
            attributes["_names"] = names
        else:
            tensor.__class__ = Tensor
            del attributes["_names"]
    elif named:
        if tensor.__class__ is not Tensor or isinstance(tensor._array, KindArray):
            raise _no_place_for(names, tensor)
        warn_once(EXPERIMENTAL)
        _state.note_overriding()
        tensor.__class__ = NamedTensor
        attributes["_names"] = names
    return tensor


def _no_place_for(names: Names, tensor: Tensor) -> NotImplementedError:
    return NotImplementedError(
        f"names are for plain strided tensors, not for one of {type(tensor).__name__} with layout {tensor.layout}; its names would have "
        f"been {_names.listed(names)}"
    )


def plain(x: Any) -> Any:
    """`x`, or where it is a named tensor one without names over the same memory, with the same history."""
    if x.__class__ is not NamedTensor:
        return x
    made = _new(Tensor)
    made._array, made._storage, made._node, made._view_of = x._array, x._storage, x._node, x._view_of
    return made


def _answer(op: Op, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
    calls = _local.calls
    name = f"{op.public_name}_" if inplace else op.public_name
    call = NamedCall(name, dict(zip(op.params, args, strict=True)))
    targets = [args[0]] if inplace else [x for x in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(x, Tensor)]
    for interpreter in calls.interpreters:
        if not interpreter.takes_names:
            raise no_names(f"{name} under {interpreter.kind or type(interpreter).__name__}", *call.operands, *targets)
    if op.names is None:
        raise no_names(name, *call.operands, *targets)
    for param in DIMS:
        if param in call.args:
            call[param] = call.counted(call[param])
    found = op.names(call)
    if not inplace:
        _check_out(targets, found)
    given = tuple(call.args.values())
    twins: list[tuple[Tensor, Tensor]] = []
    if op.kind in _OF_VALUES and out is None and not inplace and not calls.interpreters:
        # Builtins take no others than plain tensors; what is viewed or written has to be the tensor itself.
        given = tuple([_twin(a, twins) for a in given])
    calls.classes_off += 1
    try:
        result = _dispatch.interpret(op, given, args[0] if inplace else out, inplace)
    finally:
        calls.classes_off -= 1
    if inplace:
        return set_names(result, found or (None,) * result.ndim)
    if out is not None:
        for x in targets:
            set_names(x, found or (None,) * x.ndim)
        return result
    return _with_names(result, found, [*call.operands, *[t for _, t in twins]], twins)


def _twin(a: Any, twins: list[tuple[Tensor, Tensor]]) -> Any:
    """`a` with plain tensors in the place of named ones, which are noted."""
    if a.__class__ is NamedTensor:
        made = plain(a)
        twins.append((a, made))
        return made
    if isinstance(a, (list, tuple)) and any(x.__class__ is NamedTensor for x in a):
        return type(a)([_twin(x, twins) for x in a])
    return a


def _check_out(targets: list[Tensor], names: Names | None) -> None:
    """Raise RuntimeError where a tensor that takes a result has names, and others than the result."""
    for x in targets:
        if x.has_names() and x.names != (names or (None,) * x.ndim):
            raise RuntimeError(
                f"Name mismatch: specified out tensor with names {_names.listed(x.names)} are not the same as the computed output names "
                f"{_names.listed(names or (None,) * x.ndim)}. Please rename the out tensor's dims with `Tensor.rename`."
            )


def _with_names(result: Any, names: Names | None, operands: list[Tensor], twins: list[tuple[Tensor, Tensor]]) -> Any:
    """`result`, each tensor in which is called `names`; in the place of an operand comes a view of it where those differ."""
    if isinstance(result, (tuple, list)):
        made = [_with_names(x, names, operands, twins) for x in result]
        return type(result)(made)
    if not isinstance(result, Tensor):
        return result
    for named, twin in twins:
        if result is twin:
            result = named
    wanted = names or (None,) * result.ndim
    if len(wanted) != result.ndim:
        raise RuntimeError(f"a result of {result.ndim} dimensions cannot have the names {_names.listed(wanted)}: its op has a wrong rule")
    if any(result is x for x in operands):
        return result if result.names == wanted else renamed(result, wanted)
    return set_names(result, wanted)


def renamed(tensor: Tensor, names: Names) -> Tensor:
    """A view of `tensor` whose dimensions are called `names`, which have been checked.

    Raises: NotImplementedError for an instance of a subclass that wants a say in operations, and for what is no strided memory.
    """
    calls = _local.calls
    if calls.interpreters and not all(x.takes_names for x in calls.interpreters):
        raise no_names(f"rename under {calls.interpreters[-1].kind or type(calls.interpreters[-1]).__name__}", tensor)
    if tensor.__class__ is not NamedTensor and tensor.__class__ not in _dispatch.SINGLE or isinstance(tensor._array, KindArray):
        raise _no_place_for(names, tensor)
    calls.classes_off += 1
    try:
        made = _dispatch.interpret(OPS["alias"], (tensor,))
    finally:
        calls.classes_off -= 1
    return set_names(made, names)


def _answer_function(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a function that is no op: it runs without regard to names, and says by `names_rule` which its result has."""
    name = getattr(func, "__name__", "")
    # Of a property `func` is its `__get__`.
    word = getattr(func, "names_rule", "") or getattr(getattr(getattr(func, "__self__", None), "fget", None), "names_rule", "")
    if word == "by_itself":
        return func(*args, **kwargs)
    rule = getattr(rules, word) if word else None
    out = kwargs.get("out")
    call = NamedCall(name, {**{str(i): a for i, a in enumerate(args)}, **{k: v for k, v in kwargs.items() if k != "out"}})
    found = rule(call) if rule is not None and call.operands else None
    targets = [out] if isinstance(out, Tensor) else []
    _check_out(targets, found)
    calls = _local.calls
    calls.classes_off += 1
    try:
        result = func(*args, **kwargs)
    finally:
        calls.classes_off -= 1
    if targets and result is out or rule is not None and name.endswith("_") and args and result is args[0]:
        return set_names(result, found or (None,) * result.ndim)
    if rule is None:
        made = result if isinstance(result, (tuple, list)) else (result,)
        if any(isinstance(x, Tensor) and not any(x is a for a in call.operands) for x in made):
            raise no_names(_name_of(func), *call.operands)
        return result
    return _with_names(result, found, call.operands, [])


def _name_of(func: Any) -> str:
    """What users call the function, method or property behind `func`."""
    meant = (func, getattr(func, "__self__", func))   # the second where it is the `__get__` of a property
    return next((name for name, member in Tensor.__dict__.items() if any(member is x for x in meant)), func.__name__)

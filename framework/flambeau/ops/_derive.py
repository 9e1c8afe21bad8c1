"""From op record to public surface: which functions and methods there are, and which family of modules declares them.

A start of the package puts names on `Tensor` by the generated index alone. What declares ops and writes their entry points is loaded
with the first operation or tensor, by the functions that need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..tensor import Tensor
from . import _index

if TYPE_CHECKING:
    from ._spec import Op


def _find_method(name: str) -> tuple[Op | None, bool]:
    """The op behind the method `name`, and whether it is its in-place form."""
    from ._spec import OPS

    if not _loaded:
        key = _index.METHODS.get(name)
        if key is not None:
            return OPS[key], False
        key = _index.INPLACE.get(name[:-1]) if name.endswith("_") else None
        return (None, False) if key is None else (OPS[key], True)
    op = _METHODS.get(name)
    if op is not None:
        return op, False
    if name.endswith("_"):
        op = _METHODS_INPLACE.get(name[:-1])
    return op, True


_METHODS: dict[str, Op] = {}
_METHODS_INPLACE: dict[str, Op] = {}
_loaded = False


def load(family: str) -> Any:
    """The module of declarations `family`. What an import that fails had declared is taken back, so that it can begin anew."""
    from importlib import import_module

    try:
        return import_module(f"flambeau.ops.{family}")
    except BaseException:                             # Ctrl-C too: the next call loads it anew
        from ._spec.base import forget_unfinished

        forget_unfinished()
        raise


def load_family_of(key: str) -> bool:
    """Import the family that declares the op `key`, by the generated index or, failing that, by importing all of them."""
    from ._spec.base import OPS

    family = _index.FAMILY.get(key)
    if family is not None:
        load(family)
    elif not _loaded:
        load_all()
    return key in OPS


def load_all() -> None:
    """Import every family and index what they declared."""
    global _loaded
    if _loaded:
        return
    from . import FAMILIES
    from ._spec import INPLACE, METHOD, OPS

    for family in FAMILIES:
        load(family)
    for key, op in OPS.items():
        bare = key.rpartition(".")[2]
        home = key.rpartition(".")[0]
        if home not in ("", "Tensor") and home != op.namespace:
            continue
        if op.surface & METHOD and (home in ("", "Tensor") or bare == op.name or home == op.namespace):
            _METHODS.setdefault(bare, op)
        if op.surface & INPLACE:
            _METHODS_INPLACE.setdefault(bare, op)
    _loaded = True
    for name in method_names():  # what was declared since the index was generated
        if name not in Tensor.__dict__ or is_unbuilt(name):
            setattr(Tensor, name, _Unmade(name))


def install_methods() -> None:
    """Give `Tensor` every method that is made, or whose family is loaded, when it is first asked for."""
    for name in (*_index.METHODS, *(f"{name}_" for name in _index.INPLACE)):
        if name not in Tensor.__dict__:
            setattr(Tensor, name, _Unmade(name))
    for name, family in _index.LATE.items():
        if name not in Tensor.__dict__:
            setattr(Tensor, name, _Late(name, family))
    for name in _index.UNBUILT:
        if name not in Tensor.__dict__:
            setattr(Tensor, name, _Unbuilt(name))
    # A class with `__getattr__` reads even its slots ten times slower.
    del Tensor.__getattr__


class _Late:
    """An attribute of Tensor that its family puts in this one's place when it is imported."""

    __slots__ = ("name", "family")

    def __init__(self, name: str, family: str) -> None:
        self.name, self.family = name, family

    def _load(self) -> None:
        load(self.family)
        if Tensor.__dict__.get(self.name) is self:
            raise RuntimeError(f"flambeau.ops.{self.family} does not define Tensor.{self.name}; run python .ci/make_stubs.py")

    def __get__(self, tensor: Any, cls: type) -> Any:
        self._load()
        return getattr(cls if tensor is None else tensor, self.name)

    def __set__(self, tensor: Any, value: Any) -> None:
        self._load()
        setattr(tensor, self.name, value)


def is_loaded_later(attribute: Any) -> bool:
    """Whether a member of Tensor stands for one that its family defines when it is imported."""
    return isinstance(attribute, _Late)


class _Unmade:
    """A method of Tensor that is made, and takes this one's place, when it is first asked for."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, tensor: Any, cls: type) -> Any:
        found = method(self.name)
        setattr(Tensor, self.name, found)
        return found if tensor is None else found.__get__(tensor, cls)


class _Unbuilt:
    """An attribute that PyTorch documents and Tensor lacks: asking for it is noted for `swap.report()`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, tensor: Any, cls: type) -> Any:
        from .. import _missing

        raise _missing.attribute_error("torch.Tensor", self.name, cls if tensor is None else tensor)


def is_unbuilt(name: str) -> bool:
    """Whether `Tensor.name` only says that it is missing."""
    return type(Tensor.__dict__.get(name)) is _Unbuilt


def method(name: str) -> Any:
    """What `Tensor.name` is, or None when no op declares it."""
    op, inplace = _find_method(name)
    if op is None:
        return None
    from . import _entry

    return _entry.make_inplace(op) if inplace else op.method


def method_names() -> list[str]:
    load_all()
    return [*_METHODS, *(f"{name}_" for name in _METHODS_INPLACE)]


def find(key: str) -> Op | None:
    """The op of the public name `key`, its family loaded if need be; None when there is none.

    Packages look for names of later versions, so what the index does not have is missing: no families are loaded to look for it.
    """
    from ._spec import OPS

    op = OPS.get(key)
    if op is None and key in _index.FAMILY:
        load_family_of(key)
        op = OPS.get(key)
    return op


def lookup(namespace: str, name: str) -> Any:
    """The public function `name` of `namespace`, or None."""
    from . import _entry
    from ._spec import FUNCTION, INPLACE

    op = find(f"{namespace}.{name}" if namespace else name)
    if op is not None and op.surface & FUNCTION:
        return op.function
    if name.endswith("_") and not name.endswith("__"):
        op = find(f"{namespace}.{name[:-1]}" if namespace else name[:-1])
        if op is not None and op.surface & INPLACE and op.surface & FUNCTION:
            return _entry.make_inplace(op, FUNCTION)
    return None


def function_names(namespace: str) -> list[str]:
    from ._spec import FUNCTION, OPS

    load_all()
    prefix = f"{namespace}." if namespace else ""
    return [
        key[len(prefix) :]
        for key, op in OPS.items()
        if key.startswith(prefix) and "." not in key[len(prefix) :] and op.surface & FUNCTION
    ]


def install_operator(name: str, op_name: str, swapped: bool = False, inplace: bool = False) -> None:
    """Give `Tensor` the operator method `name`, made on first use; unknown operands give NotImplemented."""

    made: Any = None

    def first_use(self: Any, other: Any) -> Any:
        nonlocal made
        if made is None:                              # programs may keep what they found here and call it again
            from . import _entry

            made = _entry.make_operator(name, op_name, swapped, inplace)
            if Tensor.__dict__.get(name) is first_use:
                setattr(Tensor, name, made)
        return made(self, other)

    first_use.__name__ = name
    setattr(Tensor, name, first_use)
    _late_operators[name] = first_use, (op_name, swapped, inplace)


# Operators as they stand on Tensor until they are used, and what makes them.
_late_operators: dict[str, tuple[Any, tuple[str, bool, bool]]] = {}


def make_operators() -> None:
    """Make all operators now, for programs that ask what `Tensor.__rsub__` is: those who override functions are given that."""
    from . import _entry

    while _late_operators:
        name, (first_use, how) = _late_operators.popitem()
        if Tensor.__dict__.get(name) is first_use:
            setattr(Tensor, name, _entry.make_operator(name, *how))


def install_item(name: str) -> None:
    """Give `Tensor` the method `name`, which a module of that name replaces by the real one when it is loaded."""

    def first_use(self: Any, *args: Any) -> Any:
        load(f"indexing.{name.strip('_')}")           # puts the real method on Tensor
        return getattr(self, name)(*args)

    first_use.__name__ = name
    if name not in Tensor.__dict__:
        setattr(Tensor, name, first_use)


def install_unary(name: str, op_name: str) -> None:
    """Give `Tensor` the operator method `name` of one operand, made on first use."""

    def first_use(self: Any) -> Any:
        from ._spec import OPS

        method = OPS[op_name].method
        if Tensor.__dict__.get(name) is first_use:
            setattr(Tensor, name, method)
        return method(self)

    first_use.__name__ = name
    setattr(Tensor, name, first_use)


def earlier_view(view: Tensor, base: Tensor) -> Any:
    """The history of `view`, which was taken before its `base` required grad."""
    from ._spec.history import earlier_view

    return earlier_view(view, base)


def install_invert() -> None:
    """Give `Tensor` the operator ``~``, which is `bitwise_not` and refuses other dtypes as Python refuses other types."""

    def __invert__(self: Any) -> Any:
        try:
            return self.bitwise_not()
        except NotImplementedError:
            if self.dtype.category < dtypes.FLOATING:
                raise
            raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors") from None

    Tensor.__invert__ = __invert__


def public(namespace: str, name: str) -> Any:
    """The public function `name` of `namespace`: an op's, or one of the plain functions op modules list; or None."""
    if not namespace:
        if name.startswith("_foreach_"):
            from . import _foreach

            return _foreach.function(name)
        family = _index.PLAIN.get(name)
        if family is not None:
            return load(family).FUNCTIONS[name]
    return lookup(namespace, name)


def plain_functions() -> dict[str, tuple[str, Any]]:
    """Name -> family and function, of the functions that are listed in a family's FUNCTIONS rather than declared."""
    from . import FAMILIES

    load_all()
    found: dict[str, tuple[str, Any]] = {}
    for family in FAMILIES:
        listed = getattr(load(family), "FUNCTIONS", {})
        found.update({name: (family, fn) for name, fn in listed.items()})
    return found

"""Containers: modules and parameters in sequences and mappings that a parent module sees into."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import flambeau as fb

from ..._warn import warn
from ..parameter import Parameter
from .module import Module, _indented

__all__ = ["Container", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"]


def _position(index: Any, length: int) -> int:
    """`index` counted from the start. Raises IndexError outside of ``[-length, length)``."""
    position = operator.index(index)
    if not -length <= position < length:
        raise IndexError(f"index {position} is out of range for {length} element(s)")
    return position % length


def _check_iterable(values: Any, method: str) -> None:
    if not isinstance(values, Iterable):
        raise TypeError(f"{method} should be called with an iterable, but got {type(values).__name__}")


def _pairs(values: Any, kind: str) -> Iterator[tuple[Any, Any]]:
    """The key/value pairs of a mapping or of an iterable of pairs."""
    if hasattr(values, "items"):
        yield from values.items()
        return
    if not isinstance(values, Iterable):
        raise TypeError(f"{kind}.update expects a mapping or key/value pairs, but got {type(values).__name__}")
    for i, pair in enumerate(values):
        if not isinstance(pair, Iterable):
            raise TypeError(f"{kind} update sequence element #{i} should be a pair, is {type(pair).__name__}")
        pair = tuple(pair)
        if len(pair) != 2:
            raise ValueError(f"{kind} update sequence element #{i} has length {len(pair)}; 2 is required")
        yield pair


class Container(Module):
    """A module with the modules that are given by name. Warns: FutureWarning, as `Module` does all it does.

    Args:
        kwargs: modules, or None, by name.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        warn(
            "`nn.Container` is deprecated. All of its functionality is now implemented in `nn.Module`. Subclass that instead.",
            FutureWarning,
        )
        for name, module in kwargs.items():
            self.add_module(name, module)


class _Numbered(Module):
    """Children under the names "0", "1", ... that are kept without gaps."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    if TYPE_CHECKING:

        def __getitem__(self, index: int | slice) -> Any: ...

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def _key(self, index: Any) -> str:
        """The name of the child at `index`."""
        position = _position(index, len(self))
        return next(islice(self._modules, position, None))

    def _renumber(self, modules: Iterable[Module | None]) -> None:
        self._modules = {str(i): module for i, module in enumerate(modules)}

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: int | slice) -> None:
        positions = range(len(self))[index] if isinstance(index, slice) else [_position(index, len(self))]
        doomed = set(positions)
        self._renumber([m for i, m in enumerate(self._modules.values()) if i not in doomed])

    def pop(self, key: int | slice) -> Any:
        """Remove and return the child at `key`."""
        value = self[key]
        del self[key]
        return value

    def append(self, module: Module) -> Any:
        """Add `module` at the end. Returns self."""
        self.add_module(str(len(self)), module)
        return self

    def _insert(self, index: int, module: Module) -> None:
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._renumber(modules)


class Sequential(_Numbered):
    """Feeds its input through its modules one after the other.

    Args:
        *args: modules, or one OrderedDict that names them.

    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> net(fb.ones(5, 3)).shape
    torch.Size([5, 1])
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], OrderedDict) else enumerate(args)
        for name, module in named:
            self.add_module(str(name), module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)  # pyright: ignore[reportOptionalCall]  # calling None raises
        return input

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._key(index)]

    def __delitem__(self, index: int | slice) -> None:
        if isinstance(index, slice):
            for key in list(self._modules)[index]:
                delattr(self, key)
        else:
            delattr(self, self._key(index))
        self._renumber(self._modules.values())

    def insert(self, index: int, module: Module) -> Sequential:
        """Put `module` before position `index`, from ``-len`` to ``len``. Returns self."""
        if not isinstance(module, Module):
            raise AssertionError(f"Sequential.insert expects a Module, got {type(module).__name__}")
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Sequential.insert: index {index} is out of range for {len(self)} module(s)")
        self._insert(index, module)
        return self

    def extend(self, sequential: Iterable[Module]) -> Sequential:
        """Append all modules of `sequential`. Returns self."""
        for module in list(sequential):
            self.append(module)
        return self

    def __add__(self, other: Sequential) -> Sequential:
        return self._copy().__iadd__(other)

    def __iadd__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"only a Sequential can be added to a Sequential, got {type(other).__name__}")
        return self.extend(other)

    def _copy(self) -> Sequential:
        """A Sequential of the same modules, numbered."""
        return Sequential(*self)

    def _check_factor(self, other: Any) -> None:
        if not isinstance(other, int):
            raise TypeError(f"a Sequential can be repeated an int number of times, not {other!r}")
        if other <= 0:
            raise ValueError(f"a Sequential can be repeated a positive number of times, not {other}")

    def __mul__(self, other: int) -> Sequential:
        self._check_factor(other)
        return Sequential(*list(self) * other)

    def __rmul__(self, other: int) -> Sequential:
        return self * other

    def __imul__(self, other: int) -> Sequential:
        self._check_factor(other)
        return self.extend(list(self) * (other - 1))


class ModuleList(_Numbered):
    """A list of modules that are registered as children. It has no forward.

    Args:
        modules: an iterable of modules.
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            children: list[Any] = list(self._modules.values())
            return type(self)(children[index])
        return self._modules[self._key(index)]

    def insert(self, index: int, module: Module) -> None:
        """Put `module` before position `index`."""
        self._insert(index, module)

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Append all of `modules`. Returns self."""
        _check_iterable(modules, "ModuleList.extend")
        for module in list(modules):
            self.append(module)
        return self

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList(chain(self, other))

    def __repr__(self) -> str:
        """Runs of children that print alike are shown once: ``(0-5): 6 x Linear(...)``."""
        runs: list[tuple[int, int, str]] = []
        for i, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1] = (runs[-1][0], i, text)
            else:
                runs.append((i, i, text))
        lines = [
            f"\n  ({first}-{last}): {last - first + 1} x {_indented(text, 2)}"
            if last > first
            else f"\n  ({first}): {_indented(text, 2)}"
            for first, last, text in runs
        ]
        return f"{self._get_name()}(" + "".join(lines) + ("\n)" if lines else ")")


class ModuleDict(Module):
    """A dictionary of modules that are registered as children, in order. It has no forward.

    Args:
        modules: a mapping from names to modules, or an iterable of such pairs.
    """

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Remove all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Remove and return the module under `key`."""
        return self._modules.pop(key)

    def keys(self) -> Any:
        """The names."""
        return self._modules.keys()

    def items(self) -> Any:
        """The pairs of name and module."""
        return self._modules.items()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add all of `modules`, a mapping or pairs; those under the same names are replaced."""
        for key, module in list(_pairs(modules, "ModuleDict")):
            self[key] = module


class _ParameterContainer(Module):
    """Values kept as attributes; tensors among them are turned into parameters."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{type(self).__name__} should not be called: it holds parameters and has no forward")

    def _lines(self) -> Iterator[str]:
        for name, value in self._named_values():
            yield f"  ({name}): {_indented(self._describe(value), 2)}"

    def _named_values(self) -> Iterable[tuple[Any, Any]]:
        raise NotImplementedError

    def _describe(self, value: Any) -> str:
        if not isinstance(value, fb.Tensor):
            return f"Object of type: {type(value).__name__}"
        kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
        size = "x".join(map(str, value.shape))
        place = f" ({value.device})" if value.device.type not in ("cpu",) else ""
        return f"{kind} containing: [{self._tensor_type(value)} of size {size}{place}]"

    def _tensor_type(self, value: Any) -> str:
        return str(value.dtype)

    def extra_repr(self) -> str:
        return "\n".join(self._lines())


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, fb.Tensor) and not isinstance(value, Parameter) else value


class ParameterList(_ParameterContainer):
    """A list of parameters (and other values) that the parent module sees. Tensors become parameters.

    Args:
        values: an iterable of tensors, parameters or any other objects.
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)([self[i] for i in range(len(self))[index]])
        return getattr(self, str(_position(index, len(self))))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(_position(index, len(self))), _as_parameter(value))

    def __iter__(self) -> Iterator[Any]:
        return iter(self[i] for i in range(len(self)))

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, value: Any) -> ParameterList:
        """Add `value` at the end. Returns self."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Append all of `values`. Returns self."""
        if not isinstance(values, Iterable) or isinstance(values, fb.Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def _named_values(self) -> Iterable[tuple[Any, Any]]:
        return enumerate(self)


class ParameterDict(_ParameterContainer):
    """A dictionary of parameters (and other values) that the parent module sees. Tensors become parameters.

    Args:
        parameters: a mapping, or an iterable of key/value pairs. Keys are strings. A mapping that promises no
            order (anything but an OrderedDict or a ParameterDict) is taken in sorted order.
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _check_key(self, key: Any) -> str:
        if not isinstance(key, str):
            raise TypeError(f"a key of a ParameterDict must be a string, got {key!r} of type {type(key).__name__}")
        # A name of the class, such as "keys", is allowed as a key: getattr would find the method.
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._check_key(key))

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, self._check_key(key), _as_parameter(value))
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._check_key(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def copy(self) -> ParameterDict:
        """A ParameterDict of the same parameters."""
        return ParameterDict(OrderedDict((k, self[k]) for k in self._keys))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value under `key`, which is `default` if there was none."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Remove everything."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Remove and return the value under `key`."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the pair that was added last."""
        key, _ = self._keys.popitem()
        # Put back for __delitem__, which forgets the key and the attribute together.
        self._keys[key] = None
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value under `key`, or `default`."""
        return self[key] if key in self else default  # noqa: SIM401 - this is get

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new ParameterDict with `default` under each of `keys`."""
        return ParameterDict((k, default) for k in keys)

    def keys(self) -> Any:
        """The keys."""
        return self._keys.keys()

    def items(self) -> Iterator[tuple[str, Any]]:
        """The pairs of key and value."""
        return ((k, self[k]) for k in self._keys)

    def values(self) -> Iterator[Any]:
        """The values."""
        return (self[k] for k in self._keys)

    def update(self, parameters: Any) -> None:
        """Add all of `parameters`, a mapping or pairs; values under the same keys are replaced."""
        pairs = list(_pairs(parameters, "ParameterDict"))
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            pairs.sort(key=lambda pair: pair[0])
        for key, value in pairs:
            self[key] = value

    def __or__(self, other: Any) -> ParameterDict:
        copy = self.copy()
        copy.update(other)
        return copy

    def __ror__(self, other: Any) -> Any:
        copy = other.copy()
        copy.update(self)
        return copy

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self

    def _named_values(self) -> Iterable[tuple[Any, Any]]:
        return self.items()

    def _tensor_type(self, value: Any) -> str:
        return value.type()

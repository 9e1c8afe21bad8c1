"""Modules of settings: their names may be set, patched, saved and loaded, and no others.

A setting is a name of the module, or of a group in it: ``triton.cudagraphs`` is `cudagraphs` of the group `triton`. Reading one is reading
an attribute, and costs what that costs.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import io
import pickle
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, NoReturn

__all__ = ["Group", "Settings", "settings_of"]

_MISSING: Any = object()


def _shown(module: str) -> str:
    """The name of a module as programs write it."""
    return f"torch.{module.partition('.')[2]}"


class Group:
    """Settings whose names begin with that of the group and a dot; what is no setting can be neither read nor set."""

    def __init__(self, **settings: Any) -> None:
        self.__dict__.update(settings)

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__":                          # what Python asks for, as when it makes a copy
            raise AttributeError(name)
        raise AttributeError(f"{self.__dict__.get('_title', 'settings')}.{name} does not exist")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dict__ and name not in self.__dict__.get("_names", ()):
            raise AttributeError(f"{self.__dict__.get('_title', 'settings')}.{name} does not exist")
        self.__dict__[name] = value


class Settings(ModuleType):
    """A module of settings, some of which have other names."""

    def __getattr__(self, name: str) -> Any:
        found = self._find(name)
        if found is None or found[1] not in found[0]:
            raise self._unknown(name)
        return found[0][found[1]]

    def __setattr__(self, name: str, value: Any) -> None:
        if name[:2] == "__":
            super().__setattr__(name, value)
            return
        place, key = self._place_of(name)
        place[key] = value

    def __delattr__(self, name: str) -> None:
        if name[:2] == "__":
            super().__delattr__(name)
            return
        found = self._find(name)
        if found is None:
            raise KeyError(name)
        del found[0][found[1]]

    def _find(self, name: str) -> tuple[dict[str, Any], str] | None:
        """Where a setting is, and its name there; None if there is none."""
        own = self.__dict__
        name = own["_ALIASES"].get(name, name)
        if name not in own["_DEFAULTS"]:
            return None
        group, dot, rest = name.partition(".")
        return (own[group].__dict__, rest) if dot else (own, name)

    def _place_of(self, name: str) -> tuple[dict[str, Any], str]:
        found = self._find(name)
        if found is None:
            raise self._unknown(name)
        return found

    def _unknown(self, name: str) -> AttributeError:
        return AttributeError(f"{_shown(self.__name__)}.{name} does not exist")

    def names(self) -> list[str]:
        """All settings, those of a group with its name before a dot."""
        return list(self.__dict__["_DEFAULTS"])

    def is_setting(self, name: str) -> bool:
        """Whether there is a setting of this name, such as ``max_autotune`` or ``triton.cudagraphs``."""
        return self._find(name) is not None

    def get_type(self, name: str) -> Any:
        """The type of a setting's values; `typing.Any` where it has several. Raises: KeyError for a name that is no setting."""
        if self._find(name) is None:
            raise KeyError(name)
        default = self.__dict__["_DEFAULTS"][self.__dict__["_ALIASES"].get(name, name)]
        return Any if default is None or name in self.__dict__["_OF_SEVERAL_TYPES"] else type(default)

    def _is_default(self, name: str) -> bool:
        place, key = self._place_of(name)
        return place.get(key, _MISSING) == self.__dict__["_DEFAULTS"][self.__dict__["_ALIASES"].get(name, name)]

    def get_config_copy(self) -> dict[str, Any]:
        """The settings by name, which may be changed without changing any; `load_config` takes them."""
        found = {name: self._place_of(name) for name in self.__dict__["_DEFAULTS"]}
        return {name: _copied(place[key]) for name, (place, key) in found.items() if key in place}

    def to_dict(self) -> dict[str, Any]:
        """`get_config_copy`, under a name that PyTorch is giving up."""
        return self._old_copy("to_dict")

    def shallow_copy_dict(self) -> dict[str, Any]:
        """`get_config_copy`, under a name that PyTorch is giving up."""
        return self._old_copy("shallow_copy_dict")

    def _old_copy(self, name: str) -> dict[str, Any]:
        warnings.warn(
            f"config.{name}() is deprecated and gives a copy; use get_config_copy(), and load_config to change settings",
            FutureWarning, stacklevel=3,
        )  # fmt: skip
        return self.get_config_copy()

    def save_config_portable(self, *, ignore_private_configs: bool = True) -> dict[str, Any]:
        """The settings that can be written to a file, by name: no functions, and no names that begin with ``_`` unless asked for."""
        found = self.get_config_copy().items()
        return {name: v for name, v in found if _is_plain(v) and not (ignore_private_configs and _is_private(name))}

    get_serializable_config_copy = save_config_portable

    def save_config(self) -> bytes:
        """The settings that can be written to a file, as bytes for `load_config`."""
        return pickle.dumps(self.save_config_portable(ignore_private_configs=False), protocol=4)

    def load_config(self, maybe_pickled_config: bytes | Mapping[str, Any]) -> None:
        """Set the settings of `save_config` or `get_config_copy`; of names that are none, a warning tells.

        Bytes are data: reading them runs nothing. Raises: `pickle.UnpicklingError` for others than those of `save_config`.
        """
        given = maybe_pickled_config
        wanted = _Plain(io.BytesIO(given)).load() if isinstance(given, bytes) else given
        for name, value in wanted.items():
            found = self._find(name)
            if found is None:
                warnings.warn(f"key {name} with value {value} is not understood by this config", stacklevel=2)
            else:
                found[0][found[1]] = value

    def codegen_config(self) -> str:
        """The program that sets what is set to other values than the defaults, a line each."""
        title = _shown(self.__name__)
        found = [(name, *self._place_of(name)) for name in self.__dict__["_DEFAULTS"]]
        lines = [(name, place[key]) for name, place, key in found if key in place and not self._is_default(name)]
        return "\n".join([f"{title}.{name} = {value!r}" for name, value in lines if not callable(value) and not _is_private(name)])

    def get_hash(self) -> bytes:
        """16 bytes that are others where a setting is another."""
        values = sorted((name, repr(value)) for name, value in self.get_config_copy().items())
        return hashlib.md5(repr(values).encode(), usedforsecurity=False).digest()

    def patch(self, arg1: Any = None, arg2: Any = None, **changes: Any) -> Patch:
        """A context, or a decorator of a function or class, with other settings.

        They are given as ``patch("verbose", True)``, ``patch({"verbose": True})`` or ``patch(verbose=True)``.

        Raises: AttributeError when it is entered with a name that is no setting; AssertionError for other arguments.
        """
        if arg1 is None:
            assert arg2 is None, "patch: a value without a name; write patch(name, value) or patch(name=value)"
            return Patch(self, changes)
        assert not changes, "cannot pass both positional and keyword arguments to patch"
        if isinstance(arg1, str):
            return Patch(self, {arg1: arg2})
        assert arg2 is None, "first argument must be a string when passing 2 positional args to patch"
        assert isinstance(arg1, dict), f"patch: expected a name or a dict of settings, got {type(arg1).__name__}"
        return Patch(self, arg1)


class Patch:
    """A context or decorator in which settings of a module are others; it may be entered again after it has ended."""

    def __init__(self, module: Settings, changes: Mapping[str, Any]) -> None:
        self.module, self.changes = module, dict(changes)
        self.before: list[tuple[dict[str, Any], str, Any]] = []

    def __enter__(self) -> None:
        found = [(*self.module._place_of(name), value) for name, value in self.changes.items()]
        self.before = [(place, key, place.get(key, _MISSING)) for place, key, _ in found]
        for place, key, value in found:
            place[key] = value

    def __exit__(self, *error: object) -> None:
        for place, key, value in reversed(self.before):
            if value is _MISSING:                     # it was deleted
                place.pop(key, None)
            else:
                place[key] = value

    def __call__(self, fn: Callable[..., Any]) -> Any:
        if isinstance(fn, type):
            return self._of_class(fn)

        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with Patch(self.module, self.changes):    # for calls of `fn` by itself
                return fn(*args, **kwargs)

        return wrapper

    def _of_class(self, cls: type) -> type:
        """`cls`, a class of tests, which run with the settings."""
        patch, set_up, tear_down = Patch(self.module, self.changes), cls.__dict__.get("setUpClass"), cls.__dict__.get("tearDownClass")

        def begin(cls: Any) -> None:
            patch.__enter__()
            set_up.__get__(None, cls)() if set_up is not None else super(base, cls).setUpClass()

        def end(cls: Any) -> None:
            try:
                tear_down.__get__(None, cls)() if tear_down is not None else super(base, cls).tearDownClass()
            finally:
                patch.__exit__()

        base: Any = cls
        base.setUpClass, base.tearDownClass = classmethod(begin), classmethod(end)
        return cls


class _Plain(pickle.Unpickler):
    """Reads numbers, text and containers of them."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"load_config: the bytes name {module_name}.{global_name}, and settings are plain values")


def _is_private(name: str) -> bool:
    return name.rpartition(".")[2][0] == "_"


def _is_plain(value: Any) -> bool:
    """Whether it is a number, text, None, or a container of such."""
    if isinstance(value, dict):
        return all(_is_plain(k) and _is_plain(v) for k, v in value.items())
    if type(value) in (list, tuple, set, frozenset):
        return all(_is_plain(v) for v in value)
    return value is None or type(value) in (bool, int, float, str)


def _copied(value: Any) -> Any:
    return copy.deepcopy(value) if isinstance(value, (list, dict, set)) and _is_plain(value) else value


def settings_of(
    module: str, others: tuple[str, ...], aliases: Mapping[str, str] | None = None, more: Mapping[str, Any] | None = None,
    of_several_types: Iterable[str] = (),
) -> Settings:  # fmt: skip
    """Let the module of this name be one of settings: those that it has so far, also in a `Group`, and `more`. Returns: it.

    Args:
        others: names in it that are no settings; those that begin with ``_`` are none.
        aliases: other names of settings.
        more: settings by name, with their values; of a group with its name before a dot.
        of_several_types: settings that take values of other types than the default has.
    """
    itself = sys.modules[module]
    place = vars(itself)
    groups: dict[str, dict[str, Any]] = {}
    for name, value in (more or {}).items():
        group, dot, rest = name.partition(".")
        if dot:
            groups.setdefault(group, {})[rest] = value
        else:
            place[name] = value
    own = [name for name in place if name in (more or {}) or name[0] != "_" and name not in others]
    defaults = {name: place[name] for name in own if not isinstance(place[name], Group)}
    for name in {**{name: None for name in own if isinstance(place[name], Group)}, **groups}:
        known = {**vars(place[name] if name in place else Group()), **groups.get(name, {})}
        place[name] = Group(**known, _title=f"{_shown(module)}.{name}", _names=frozenset(known))
        defaults.update({f"{name}.{key}": value for key, value in known.items()})
    place["_ALIASES"], place["_OF_SEVERAL_TYPES"] = dict(aliases or {}), frozenset(of_several_types)
    place["_DEFAULTS"] = {name: _copied(value) for name, value in defaults.items()}
    place["_SETTINGS"] = frozenset(defaults)
    itself.__class__ = Settings
    return itself                                     # type: ignore[return-value]  # it has just become one

"""What a function goes by beside its arguments, and whether it does something that replaying it would leave out.

A replay (see `_replay`) runs no Python. It gives what the function would give if all that the function reads is what it was, and if the
function does nothing but compute. Both are looked at, and calls of which it cannot be said run as they are.

- `Witness` is told by Python of every function that one call runs. Python functions are noted, and those of C have to be known to have
  no effect: others print, wait, draw numbers or read the clock.
- `Surroundings` goes from the compiled function through cells, globals, attributes, containers and modules, as far as the noted functions
  name them, and keeps which objects are there. While all of them are the same objects, the functions take the way that was recorded.
  What a function writes to is among them, so one that counts its calls, or keeps something of each, does not stay the same and is not
  replayed. Objects whose contents cannot be compared, such as files, iterators and arrays of numpy, are refused. Tensors among them have to
  look as they did, for code may go by that without an operation on them; what their looks do not show is noted when it is asked for.

Contents are compared by one pass over all containers, ``all(map(is_, chain(first, end, second, end, ...), kept))``, in some 15 ns an
object; what functions look up by name is compared one by one.
"""

from __future__ import annotations

import builtins
import collections
import dis
import gc
import inspect
import os
import re
import sys
import sysconfig
import types
import weakref
from collections.abc import Iterable
from functools import cache, partial
from itertools import chain, compress
from operator import attrgetter, is_
from typing import Any

import numpy as np

import flambeau_kernels

from .. import dtypes
from .._kinds import KindArray
from ..devices import Size, device, layout, memory_format
from ..nn.modules import module as modules
from ..nn.parameter import Parameter
from ..optim.lr_scheduler import LRScheduler
from ..optim.optimizer import Optimizer
from ..tensor import Tensor

_MOST_OBJECTS = 20_000                                # that are looked at for one function
_MISSING: Any = object()
_END = (object(),)                                    # of a container, among the objects that are compared in one pass

# -- whose code it is ----------------------------------------------------------------------------------------------------


def _folder(path: str) -> str:
    return os.path.join(os.path.abspath(path), "")


_STDLIB = sysconfig.get_path("stdlib")
_OURS = (_folder(os.path.dirname(os.path.dirname(__file__))), _folder(os.path.dirname(flambeau_kernels.__file__)))
_LIBRARY = (_folder(_STDLIB), _folder(os.path.dirname(np.__file__)))
_INSTALLED = tuple(_folder(sysconfig.get_path(name)) for name in ("purelib", "platlib"))  # which may be inside of the library's folder
_IMPORTS = "<frozen importlib._bootstrap>"
_USED = re.compile(r"[/\\](?:site|dist)-packages[/\\](?:llvmlite|ml_dtypes|numba|cupy|cupy_backends)[/\\]")  # by kernels of ours
# Parts of the library that do nothing but call what they are given.
_PASSING_ON = {os.path.join(_STDLIB, name) for name in (
    "contextlib.py", "functools.py", "collections/__init__.py", "_collections_abc.py", "enum.py", "types.py", "typing.py",
    "dataclasses.py", "operator.py",
)}  # fmt: skip
# The modules among these with classes whose methods read attributes that no code of the program names.
_WITH_CLASSES = frozenset(("collections", "contextlib", "functools", "enum", "types", "dataclasses", "operator"))


@cache
def _owner(filename: str) -> str:
    """Whose code a file has: "ours", the "library"'s, or the "program"'s."""
    if filename.startswith("<"):
        return "ours" if filename.startswith("<flambeau") else "library" if filename.startswith("<frozen") else "program"
    path = os.path.abspath(filename)
    if path.startswith(_OURS):
        return "ours"
    if path.startswith(_LIBRARY[1:]) or _USED.search(path):
        return "library"
    return "library" if path.startswith(_LIBRARY) and not path.startswith(_INSTALLED) else "program"


@cache
def _owner_of_text(module: str) -> str:
    """Whose code a text is that was compiled without a file, ``<string>``, by the name of its module.

    So are methods of dataclasses and named tuples, programs of ``python -c``, and what programs give to `exec`.
    """
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return "library" if module.startswith("namedtuple_") else "program"
    return _owner(file)


def _owner_in(frame: Any) -> str:
    """Whose code runs in `frame`."""
    filename = frame.f_code.co_filename
    return _owner_of_text(str(frame.f_globals.get("__name__"))) if filename == "<string>" else _owner(filename)


def _is_ours(frame: Any) -> bool:
    """Whether what runs in `frame` is ours, or of the library and called by ours."""
    while frame is not None:
        owner = _owner_in(frame)
        if owner != "library":
            return owner == "ours"
        frame = frame.f_back
    return False


@cache
def _is_class_of_ours(cls: type) -> bool:
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return file is not None and _owner(file) == "ours"


def _is_of_c(cls: type) -> bool:
    """Whether the class is no Python class, so that instances may hold what no attribute shows."""
    if not cls.__flags__ & 1 << 9 or cls.__flags__ & 1 << 8:  # Py_TPFLAGS_HEAPTYPE, Py_TPFLAGS_IMMUTABLETYPE
        return True
    return not any(name in base.__dict__ for base in cls.__mro__[:-1] for name in ("__slots__", "__dict__", "__weakref__"))


# -- what a call runs ----------------------------------------------------------------------------------------------------

# Functions of C that change nothing but the containers they are given, which are looked at, and give the same for the same.
_FREE_OF_EFFECTS: dict[str, frozenset[str] | None] = {
    "builtins": frozenset((
        "abs", "all", "any", "ascii", "bin", "callable", "chr", "divmod", "format", "getattr", "hasattr", "hex", "isinstance",
        "issubclass", "iter", "len", "max", "min", "next", "oct", "ord", "pow", "repr", "round", "sorted", "sum", "__build_class__",
    )),
    "math": None, "cmath": None, "_operator": None, "itertools": None, "_functools": None,
}  # fmt: skip
_CONTAINERS = (list, dict, set, collections.OrderedDict, collections.defaultdict, collections.Counter, collections.deque)
_PLAIN_CLASSES = (*_CONTAINERS, tuple, frozenset, str, bytes, int, float, complex, bool, range, slice, object)
# Names by which code asks for attributes that it does not name.
_BY_NAME = frozenset(("getattr", "hasattr", "setattr", "delattr", "__dict__", "attrgetter", "methodcaller", "__getattribute__"))


# What tensors are asked for that changes between calls which look alike, or cannot be compared.
_UNSTEADY = (
    "_version", "_base", "_is_view", "data_ptr", "storage_offset", "storage", "untyped_storage", "is_shared", "output_nr",
    "_backward_hooks",
)  # fmt: skip
_SET = re.compile(r"set_|enable_|use_|seed|manual_seed")  # names of functions of ours that change a setting,
_GET = re.compile(r"get_|is_|are_|current_|initial_seed|\w+_(?:enabled|count)$")  # and of those that give one


@cache
def _facts() -> dict[Any, str]:
    """The code of what tensors are asked for, and its name: those of `_UNSTEADY`, the gradient and the history."""
    found = {}
    for name in (*_UNSTEADY, "grad", "grad_fn"):
        member = getattr(Tensor, name)                # makes it, if nobody has used it yet
        member = getattr(member, "fget", member)
        found[member.__code__] = name
    return found


@cache
def _is_setting(code: Any) -> str:
    """Whether a function of a module of ours, by its name, changes a setting, "set", or gives one, "get"."""
    return "set" if _SET.match(code.co_name) else "get" if _GET.match(code.co_name) else ""


class Witness:
    """Notes which code of the program one call runs: ``with Witness() as seen: f()``.

    Attributes:
        codes: of the program's functions that ran.
        settings: functions of ours that give a setting, each with its arguments.
        asked: tensors whose gradient or history was asked for, each with the name of that.
        refused: what cannot be replayed, or None.
    """

    def __init__(self) -> None:
        self.codes: set[Any] = set()
        self.settings: list[tuple[Any, ...]] = []
        self.asked: list[tuple[weakref.ref[Tensor], str]] = []  # weak, because what a call keeps is not replayed
        self.refused: str | None = None
        self.is_paused = False                        # while something runs that a replay runs too
        self._importing: Any = None                   # the frame of an import by our code, which may run finders of the program

    def __enter__(self) -> Witness:
        self.is_watching = sys.getprofile() is None
        self.collects = gc.isenabled()
        if self.is_watching:
            gc.disable()                              # finalizers and callbacks of collections are nothing that the call runs
            sys.setprofile(self._note)
        else:
            self.refused = "a profiler is running"
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_watching:
            sys.setprofile(None)
            if self.collects:
                gc.enable()

    def _note(self, frame: Any, event: str, called: Any) -> None:
        if self.is_paused:
            return
        if self._importing is not None:
            if event == "return" and frame is self._importing:
                self._importing = None
            return
        if event == "call":
            code = frame.f_code
            if code.co_filename == _IMPORTS and _is_ours(frame):
                self._importing = frame
                return
            owner = _owner_in(frame)
            if owner == "program" or owner == "library" and code.co_filename not in _PASSING_ON and not _is_ours(frame):
                self.codes.add(code)
            elif owner == "ours" and (code in _facts() or _is_setting(code)) and not _is_ours(frame.f_back):
                self._note_question(frame, code)
        elif event == "c_call" and frame.f_code.co_filename not in _PASSING_ON and not _is_ours(frame):
            self._note_builtin(called)

    def _note_question(self, frame: Any, code: Any) -> None:
        """The program asks a tensor, or for a setting, or changes one."""
        fact = _facts().get(code)
        if fact in _UNSTEADY:
            self.refused = f"it asks for {fact} of a tensor"
            return
        given = frame.f_locals
        if fact is not None:
            self.asked.append((weakref.ref(given["self"]), fact))
            return
        asked = frame.f_globals.get(code.co_name)
        if getattr(asked, "__code__", None) is not code:  # a method, or a function in a function
            return
        args = [given[name] for name in code.co_varnames[: code.co_argcount]]
        if code.co_flags & inspect.CO_VARARGS:
            args += given[code.co_varnames[code.co_argcount + code.co_kwonlyargcount]]
        looks_at_them = not all(map(_is_plain, args))
        if _is_setting(code) == "set" or code.co_kwonlyargcount and not looks_at_them:
            self.refused = f"it calls {code.co_name}"
        elif not looks_at_them and (asked, *args) not in self.settings:
            self.settings.append((asked, *args))

    def _note_builtin(self, called: Any) -> None:
        of = getattr(called, "__self__", None)
        if called is sys.setprofile:                  # the end of the witness
            return
        if isinstance(of, types.ModuleType) or of is None:
            name = getattr(called, "__name__", "")
            module = getattr(called, "__module__", None)
            if module is None:                        # a method of a class, called with its instance as an argument
                owner = getattr(called, "__objclass__", None)
                if owner not in _PLAIN_CLASSES and owner is not type and not issubclass(owner or int, Tensor):
                    self.refused = f"it calls {name}"
                return
            names = _FREE_OF_EFFECTS.get(module, ())
            if names is not None and name not in names:
                self.refused = f"it calls {module}.{name}"
        elif not (isinstance(of, type) and (of in _PLAIN_CLASSES or not _is_of_c(of)) or type(of) in _PLAIN_CLASSES
                  or isinstance(of, Tensor)):  # fmt: skip
            self.refused = f"it calls {called.__name__} of a {type(of).__name__}"


# -- what it reads -------------------------------------------------------------------------------------------------------

_PLAIN = {
    int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented), slice, range, dtypes.dtype, device, Size,
    memory_format, layout,
}  # fmt: skip
_OF_C = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    types.MethodWrapperType, types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip
# What is done to these in a call is done in a replay too, by themselves; all else of them counts.
_SUBJECTS: dict[type, frozenset[str]] = {Optimizer: frozenset(("step", "zero_grad")), LRScheduler: frozenset(("step",))}
_REGISTRIES = ("_parameters", "_buffers", "_modules")
_DESCRIBED = frozenset(("__name__", "__qualname__", "__doc__", "__module__"))
_MARKS = ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__")  # of classes, which no function goes by


def _is_plain(x: Any) -> bool:
    """Whether there is nothing to be looked at in `x`."""
    return type(x) in _PLAIN or isinstance(x, (np.generic, np.dtype))


def looks_of(a: Tensor) -> Any:
    """What code may go by that asks nothing but what a tensor looks like; the last is whether it has a node."""
    array = a._array
    itself = id(array) if isinstance(array, KindArray) else None  # whose parts are not compared
    place = array.__class__, getattr(array, "device", None)
    return array.shape, getattr(array, "strides", None), array.dtype, place, itself, a.requires_grad, a.is_leaf, a._node is not None


class _Tensors:
    """Tensors, and how they look: ``same()`` says whether they still look so."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.arrays: list[Any] = []
        self.nodes: list[Any] = []
        self.looks: list[Any] = []

    def add(self, x: Tensor) -> None:
        self.tensors.append(x)
        self.arrays.append(x._array)
        self.nodes.append(x._node)
        self.looks.append(looks_of(x))

    def leave_out(self, others: list[Tensor]) -> None:
        """Do not compare `others`, which somebody else does."""
        ids = {*map(id, others)}
        kept = [id(x) not in ids for x in self.tensors]
        columns = self.tensors, self.arrays, self.nodes, self.looks
        self.tensors, self.arrays, self.nodes, self.looks = [[*compress(column, kept)] for column in columns]

    def same(self) -> bool:
        if all(map(is_, map(_ARRAY_OF, self.tensors), self.arrays)) and all(map(is_, map(_NODE_OF, self.tensors), self.nodes)):
            return True
        # Other memory, as `data` and loaded checkpoints give it, may look the same.
        if [*map(looks_of, self.tensors)] != self.looks:
            return False
        self.arrays, self.nodes = [*map(_ARRAY_OF, self.tensors)], [*map(_NODE_OF, self.tensors)]
        return True


_ARRAY_OF, _NODE_OF = attrgetter("_array"), attrgetter("_node")


def _outcome(function: Any, args: tuple[Any, ...]) -> Any:
    """What `function` gives; the class of what it raises, such as that there is no process group."""
    try:
        return function(*args)
    except (RuntimeError, ValueError, TypeError) as error:
        return type(error)


class _Refused(Exception):
    """What a function reads cannot be compared."""


class Surroundings:
    """What a call of `fn` has read beside its arguments; ``same()`` says whether it still is what it was.

    Args:
        fn: the compiled function or module.
        seen: of a call of it.
    Attributes:
        refused: why it cannot be said, or None.
        codes: what ran.
        asks_gradients: whether it asks some tensor for its gradient.
        tensors: those that have to look as they did.
    """

    def __init__(self, fn: Any, seen: Witness) -> None:
        self.refused, self.codes = seen.refused, seen.codes
        self.asks_gradients = any(name == "grad" for _, name in seen.asked)
        self._tests: list[str] = ["not modules._watching_all"]
        self._scope: dict[str, Any] = {
            "is_": is_, "chain": chain, "MISSING": _MISSING, "modules": modules, "END": _END, "outcome": _outcome,
        }  # fmt: skip
        self._names: dict[int, str] = {}              # of objects in the text
        self._passed: list[str] = []                  # texts of containers that are compared in one pass,
        self._contents: list[Any] = []                # and what was in them
        self._empty: list[str] = []                   # texts of containers that nothing is in
        self._typed: list[str] = []                   # texts of objects whose class may be set
        self._known: dict[int, Any] = {}
        self._classes: set[type] = set()
        self.tensors = _Tensors()
        self._matched, matches_places = _matched_in(seen.codes)
        self._words = frozenset(name for code in seen.codes for name in code.co_names) | self._matched
        self._asked = frozenset().union(self._matched, *map(_asked_in, seen.codes))
        self._by_name = matches_places or not _BY_NAME.isdisjoint(self._words)
        self._reached: set[Any] = set()
        self._waiting: list[Any] = [fn]
        if self.refused is None:
            try:
                self._methods_of_tensors()
                self._follow()
                self._answers(seen)
            except _Refused as why:
                self.refused = str(why)
        self.same: Any = self._compiled() if self.refused is None else lambda: False
        for unused in (self._names, self._known, self._classes, self._tests, self._passed, self._typed, self._empty):
            unused.clear()

    def is_after(self, seen: Witness | None) -> bool:
        """Whether all is what it was after one more call too, of which nothing else was `seen`; None for a call like those before."""
        return (seen is None or seen.refused is None and seen.codes <= self.codes) and self.same()

    def _follow(self) -> None:
        if modules._watching_all:
            raise _Refused("hooks of all modules are set")
        while self._waiting:
            if len(self._known) > _MOST_OBJECTS:
                raise _Refused("it reads too many objects")
            self._look(self._waiting.pop())
        missed = [code.co_name for code in self.codes - self._reached]
        if missed:
            raise _Refused(f"it is not known where {min(missed)} comes from")

    def _methods_of_tensors(self) -> None:
        """What the code names or uses as an operator of tensors, which a program may have replaced, or may yet."""
        have = Tensor.__dict__
        used = self._words.union({f"__{word}__" for word in self._words}, *map(_operators_in, self.codes))
        names = sorted(used & have.keys() - {*_MARKS})
        if names:
            self._scope["methods"] = (*map(have.get, names),)
            self._tests.append(f"(*map({self._held(have.get)}, {self._held((*names,))}),) == methods")
            self._waiting += [
                f for f in map(have.get, names) if isinstance(f, types.FunctionType) and _owner(f.__code__.co_filename) != "ours"
            ]  # fmt: skip

    def _answers(self, seen: Witness) -> None:
        """What the program was told when it asked for settings, and for gradients and histories of tensors that are found here."""
        for function, *args in seen.settings:
            value = _outcome(function, (*args,))
            if not _is_plain(value) and not isinstance(value, type):
                raise _Refused(f"it calls {function.__name__}, which gives a {type(value).__name__}")
            self._tests.append(f"outcome({self._held(function)}, {self._held((*args,))}) == {self._held(value)}")
        for ref, name in seen.asked:
            x = ref()
            if x is None or id(x) not in self._known:
                continue                              # an argument, see `_replay`, or made in the call
            if name == "grad":
                gradient = getattr(x, "_gradient", None)  # which what operations have made may lack
                self._tests.append(f"getattr({self._held(x)}, '_gradient', None) is {self._held(gradient)}")
                self._then(gradient)
            elif x.grad_fn is not None:
                raise _Refused("it asks for grad_fn of a tensor")
        self._follow()

    def _compiled(self) -> Any:
        tests = self._tests
        if self.tensors.tensors:
            self._scope["looking"] = self.tensors
            tests = [*tests, "not looking.tensors or looking.same()"]
        if self._empty:
            tests = [*tests, f"not ({' or '.join(self._empty)})"]
        if self._typed:
            self._passed.append(f"({', '.join(self._typed)},)")
            self._contents += [self._scope[text.partition(".")[0]].__class__ for text in self._typed]
        if self._passed:
            self._scope["kept"] = tuple(self._contents)
            tests = [*tests, f"all(map(is_, chain({', '.join(self._passed)}), kept))"]
        text = "\n".join(["def same():", *[f"    if not ({test}): return False" for test in tests], "    return True"])
        exec(compile(text, "<flambeau surroundings>", "exec"), self._scope)  # the text is made of names of this class's own
        return self._scope["same"]

    # -- the text

    def _held(self, value: Any) -> str:
        """The name of an object in the text."""
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"o{len(self._names)}"
            self._scope[name] = value
        return name

    def _is_still(self, text: str, value: Any) -> None:
        """`text` has to give the object `value`, which is looked at too."""
        self._tests.append(f"{text} is {self._held(value)}")
        self._then(value)

    def _then(self, value: Any) -> None:
        if not _is_plain(value):
            self._waiting.append(value)

    def _all_of(self, values: Any, text: str) -> None:
        """What `text` gives has to be these objects."""
        if not values:
            if text.isidentifier():                   # the values of a dict are as empty as the dict
                self._empty.append(text)
            return
        self._passed += (text, "END")
        self._contents += (*values, *_END)

    # -- objects

    def _look(self, x: Any) -> None:
        if id(x) in self._known or _is_plain(x):
            return
        self._known[id(x)] = x
        kind = type(x)
        if isinstance(x, modules.Module):
            self._module(x)
        elif issubclass(kind, Tensor) and (kind is Tensor or kind is Parameter or not _is_class_of_ours(kind)):
            self._tensor(x)
        elif kind is types.FunctionType:
            self._function(x)
        elif kind is types.MethodType:
            self._waiting += (x.__self__, x.__func__)
        elif kind is partial:
            self._waiting += (x.func, x.args, x.keywords)
            self._attributes(x)
        elif kind is staticmethod or kind is classmethod:
            self._waiting.append(x.__func__)
        elif kind is property:
            self._waiting += [f for f in (x.fget, x.fset, x.fdel) if f is not None]
        elif isinstance(x, types.ModuleType):
            self._python_module(x)
        elif isinstance(x, type):
            self._class(x)
        elif kind in _OF_C:
            of = getattr(x, "__self__", None)
            if not isinstance(of, (types.ModuleType, type(None), type)):
                self._waiting.append(of)
        elif (subject := next((cls for cls in _SUBJECTS if isinstance(x, cls)), None)) is not None:
            public = {name for name in (*dir(kind), *x.__dict__) if not name.startswith("__")}
            others = self._asked & public - _SUBJECTS[subject]
            if others:
                raise _Refused(f"it uses {min(others)}, which a {kind.__name__} has")
        elif isinstance(x, (tuple, frozenset, *_CONTAINERS)):
            self._container(x)
        else:
            self._instance(x)

    def _container(self, x: Any) -> None:
        name = self._held(x)
        values: Iterable[Any] = x
        if isinstance(x, dict):
            values = x.values()
            self._all_of(x, name)
            self._all_of(values, f"{name}.values()")
            if isinstance(x, collections.defaultdict):
                self._is_still(f"{name}.default_factory", x.default_factory)
        elif not x:
            if type(x) not in (tuple, frozenset):
                self._all_of(x, name)
        elif isinstance(x, set):                      # the order may be another after changes back and forth
            self._scope[f"k{len(self._tests)}"] = {*map(id, x)}
            self._tests.append(f"{{*map(id, {name})}} == k{len(self._tests)}")
            self._held(tuple(x))                      # whose ids they are
        elif not isinstance(x, (tuple, frozenset)):
            self._all_of(x, name)
        for value in values:
            self._then(value)
        if type(x) not in _PLAIN_CLASSES:
            self._instance(x)

    def _module(self, x: modules.Module) -> None:
        """Its parts, and those attributes that are named; all of them where methods of ours name them."""
        self._typed.append(f"{self._held(x)}.__class__")
        have = x.__dict__
        space = self._held(have)
        self._all_of(have, space)
        mine = [cls for cls in type(x).__mro__ if cls is not modules.Module and _is_class_of_ours(cls)]
        if mine or self._by_name:
            self._all_of(have.values(), f"{space}.values()")
            for value in have.values():
                self._then(value)
        else:
            for word in sorted((self._words | {*_REGISTRIES, "training", "_watched"}) & have.keys()):
                self._is_still(f"{space}.get({word!r}, MISSING)", have[word])
        self._class(type(x))

    def _tensor(self, x: Tensor) -> None:
        """Its looks and attributes; names of dimensions, and whether the gradient is retained, are among these."""
        self.tensors.add(x)
        self._attributes(x)
        if x.__dict__:
            self._all_of(x.__dict__.values(), f"{self._held(x.__dict__)}.values()")
        base = getattr(x, "_view_of", None)
        if base is not None:                          # which says whether a view that was made without recording requires gradients
            self._then(base[0])
        if type(x) is not Tensor and type(x) is not Parameter:
            self._instance(x)

    def _function(self, x: types.FunctionType) -> None:
        if _owner(x.__code__.co_filename) == "ours":
            if "__wrapped__" in x.__dict__:           # of a function that is compiled, or runs without gradients
                have = x.__dict__
                self._waiting.append(have["__wrapped__"])
                self._all_of(have, self._held(have))
                self._all_of(have.values(), f"{self._held(have)}.values()")
                for word in sorted(self._asked & have.keys()):  # others lead into the compiler
                    self._then(have[word])
            for cell in x.__closure__ or ():
                if cell.cell_contents.__class__ is types.FunctionType:
                    self._waiting.append(cell.cell_contents)
            return
        name = self._held(x)
        self._tests.append(f"{name}.__code__ is {self._held(x.__code__)}")
        self._attributes(x)
        self._described(x)
        if not self._ran(x.__code__):
            return                                    # it was there, and not called
        self._is_still(f"{name}.__defaults__", x.__defaults__)
        self._is_still(f"{name}.__kwdefaults__", x.__kwdefaults__)
        for cell in x.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:                        # not filled yet
                raise _Refused(f"a variable of {x.__qualname__} has no value yet") from None
            self._is_still(f"{self._held(cell)}.cell_contents", value)
        space = self._held(x.__globals__)
        for word in sorted(_names_of(x.__code__)):
            if word in x.__globals__:
                self._is_still(f"{space}.get({word!r}, MISSING)", x.__globals__[word])
            elif hasattr(builtins, word):
                self._tests.append(f"{word!r} not in {space}")
                self._is_still(f"{self._held(builtins.__dict__)}.get({word!r})", getattr(builtins, word))
            elif word in sys.modules:                 # imported inside
                self._then(sys.modules[word])

    def _ran(self, code: Any) -> bool:
        """Note that the code, and what is defined in it, is known. Returns whether some of it ran."""
        ran = code in self.codes
        self._reached.add(code)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                ran = self._ran(constant) or ran
        return ran

    def _python_module(self, x: types.ModuleType) -> None:
        file = getattr(x, "__file__", None)
        owner = "library" if file is None else _owner(file)
        if owner == "ours":
            self._module_of_ours(x)
            return
        if owner == "program" and self._by_name and "__dict__" not in self._words:
            raise _Refused(f"it may ask the module {x.__name__} for attributes that it does not name")
        space = self._held(x.__dict__)
        for word in sorted(self._words & x.__dict__.keys()):
            self._is_still(f"{space}.get({word!r}, MISSING)", x.__dict__[word])

    def _module_of_ours(self, x: types.ModuleType) -> None:
        """What is found by name is to be what it is; but ours does what it does."""
        space = self._held(x.__dict__)
        for word in sorted(self._words & x.__dict__.keys()):
            value = x.__dict__[word]
            self._tests.append(f"{space}.get({word!r}, MISSING) is {self._held(value)}")
            if isinstance(value, (types.ModuleType, types.FunctionType, type)):
                self._then(value)
            elif x.__name__.startswith("flambeau.backends.") and _is_class_of_ours(type(value)) and hasattr(value, "__dict__"):
                self._attributes(value)               # settings, as those of backends.cuda.matmul

    def _class(self, x: type) -> None:
        """What instances find there: functions that ran, and what the code names."""
        if type(x) is not type and x not in self._classes:
            self._class(type(x))                      # where attributes of the class itself may be
        for cls in x.__mro__:
            if cls in self._classes or _is_of_c(cls) or _is_class_of_ours(cls):
                continue
            self._classes.add(cls)
            space = self._held(cls.__dict__)
            self._tests.append(f"len({space}) == {len(cls.__dict__)}")
            self._described(cls)
            for word, value in cls.__dict__.items():
                if word not in _MARKS and (word in self._words or self._by_name or self._has_run(value)):
                    self._is_still(f"{space}.get({word!r}, MISSING)", value)

    def _has_run(self, x: Any) -> bool:
        """Whether a member of a class is a function that ran, or may call one that did."""
        if isinstance(x, property):
            return any(map(self._has_run, (x.fget, x.fset, x.fdel)))
        x = getattr(x, "__func__", x)
        if isinstance(x, types.FunctionType):
            return x.__code__ in self.codes or _owner(x.__code__.co_filename) == "ours"
        return hasattr(x, "__get__") and type(x) not in _OF_C

    def _described(self, x: Any) -> None:
        """The name and the text of a function or class, if the code asks for them."""
        for word in sorted(self._asked & _DESCRIBED):
            self._is_still(f"{self._held(x)}.{word}", getattr(x, word))

    def _attributes(self, x: Any) -> None:
        """Those of an instance that the code names; all of them where methods of the library may."""
        have = x.__dict__
        space = self._held(have)
        self._all_of(have, space)
        by_name = self._by_name or any(cls.__module__ in _WITH_CLASSES and not _is_of_c(cls) for cls in type(x).__mro__)
        for word in sorted(have.keys() if by_name else self._words & have.keys()):
            self._is_still(f"{space}.get({word!r}, MISSING)", have[word])

    def _instance(self, x: Any) -> None:
        kind = type(x)
        if kind is types.SimpleNamespace:
            self._attributes(x)
            return
        if any(_is_of_c(cls) and cls not in _PLAIN_CLASSES for cls in kind.__mro__):
            raise _Refused(f"it reads a {kind.__module__}.{kind.__qualname__}, whose contents cannot be compared")
        if _is_class_of_ours(kind):
            raise _Refused(f"it reads a {kind.__qualname__}, whose contents are not compared")
        self._typed.append(f"{self._held(x)}.__class__")
        self._class(kind)
        if hasattr(x, "__dict__"):
            self._attributes(x)
        for cls in kind.__mro__:
            for word, member in cls.__dict__.items():
                if isinstance(member, types.MemberDescriptorType) and (word in self._words or self._by_name):
                    value = getattr(x, word, _MISSING)
                    if value is _MISSING:
                        raise _Refused(f"the attribute {word} has no value yet")
                    self._is_still(f"{self._held(member)}.__get__({self._held(x)})", value)


@cache
def _asked_in(code: Any) -> frozenset[str]:
    """Names of attributes that the code asks for, and those that it may ask for by name."""
    found = {str(each.argval) for each in dis.get_instructions(code) if each.opname.endswith(("_ATTR", "_METHOD"))}
    if not _BY_NAME.isdisjoint(code.co_names):
        found |= {name for name in code.co_consts if isinstance(name, str)}
    return frozenset(found)


def _matched_in(codes: Iterable[Any]) -> tuple[frozenset[str], bool]:
    """Names of attributes in class patterns of ``match``, and whether patterns have attributes without a name, by `__match_args__`."""
    found: set[str] = set()
    by_place = False
    for code in codes:
        counts = _class_patterns(code)
        if counts:
            found.update(name for names in code.co_consts if isinstance(names, tuple) for name in names if isinstance(name, str))
            by_place = by_place or max(counts) > 0
    return frozenset(found), by_place


@cache
def _class_patterns(code: Any) -> tuple[int, ...]:
    """How many attributes without a name each class pattern of the code has."""
    return tuple(each.arg or 0 for each in dis.get_instructions(code) if each.opname == "MATCH_CLASS")


_BINARY = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul", "&": "and", "|": "or",
    "^": "xor", "<<": "lshift", ">>": "rshift", "[]": "getitem",
}  # fmt: skip
_COMPARED = {"<": ("lt", "gt"), ">": ("gt", "lt"), "<=": ("le", "ge"), ">=": ("ge", "le"), "==": ("eq",), "!=": ("ne",)}
_OTHER_OPERATORS = {
    "UNARY_NEGATIVE": ("neg",), "UNARY_POSITIVE": ("pos",), "UNARY_INVERT": ("invert",), "BINARY_SUBSCR": ("getitem",),
    "BINARY_SLICE": ("getitem",), "STORE_SUBSCR": ("setitem",), "STORE_SLICE": ("setitem",), "CONTAINS_OP": ("contains",),
}  # fmt: skip


@cache
def _operators_in(code: Any) -> frozenset[str]:
    """Names of the methods by which tensors answer the operators in the code."""
    found: set[str] = set()
    for each in dis.get_instructions(code):
        if each.opname == "BINARY_OP":
            name = _BINARY.get(each.argrepr.removesuffix("="), "")
            found.update((name, f"r{name}", f"i{name}") if each.argrepr.endswith("=") else (name, f"r{name}"))
        elif each.opname == "COMPARE_OP":
            found.update(_COMPARED.get(each.argrepr, ()))
        else:
            found.update(_OTHER_OPERATORS.get(each.opname, ()))
    return frozenset(f"__{name}__" for name in found)


def _names_of(code: Any) -> set[str]:
    """Names in the code, and in what is defined in it."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names_of(constant)
    return found

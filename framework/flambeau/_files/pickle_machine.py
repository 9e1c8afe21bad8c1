"""A pickle machine that only makes data.

Python's own unpickler imports what a file names and calls it. This one runs the same instructions, but every
step that could reach code (`GLOBAL`, `REDUCE`, `NEWOBJ`, `BUILD`, persistent ids) is put to a `Policy`, and
whatever the policy does not know ends the load. There is no instruction that imports, and none that calls an
object the policy did not choose.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any

__all__ = ["Ignorant", "Policy", "UnpicklingError", "run"]

# A pickle names what it made before in two bytes. Where this is copied or hashed, a short file could ask for any amount of
# memory and time: 64 nested pairs are 2**64 steps. So what it may ask for beyond being read is in proportion to its length.
_STEPS_PER_BYTE = 4
_FREE_STEPS = 1_000_000

_LONGEST_NAME = 1000  # characters of module and name together
_MOST_NAMES = 10_000


class Policy:
    """What a load may find, call and change. The answers here refuse everything.

    Attributes:
        left: steps that copying and hashing may still take; `run` sets it.
    """

    left: float = 0

    def spend(self, steps: int) -> None:
        """Count `steps` of copying or hashing. Raises: UnpicklingError when a file asks for more than its length allows."""
        self.left -= steps
        if self.left < 0:
            raise UnpicklingError(
                "load: the file copies or hashes the same values over and over, far more than its length; it is damaged or "
                "means harm"
            )

    def check_key(self, key: Any) -> Any:
        """`key`, if hashing it ends soon. Raises: UnpicklingError."""
        if type(key) is str:
            return key
        parts = [key]
        while parts:
            part = parts.pop()
            self.spend(1)
            if isinstance(part, (tuple, frozenset)):
                parts.extend(part)
            elif type(part) is int:
                self.spend(part.bit_length() // 64)
        return key

    def find_global(self, module: str, name: str) -> Any:
        """The object that ``module.name`` stands for. Raises: UnpicklingError unless it is allowed."""
        raise UnpicklingError(f"load: {module}.{name} is not allowed")

    def call(self, function: Any, args: tuple[Any, ...]) -> Any:
        """The value of ``function(*args)`` for a `function` from `find_global`. Raises: UnpicklingError if not allowed."""
        raise UnpicklingError(f"load: calling {function!r} is not allowed")

    def new(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A bare instance of `cls`. Raises: UnpicklingError if not allowed."""
        raise UnpicklingError(f"load: making {cls!r} is not allowed")

    def set_state(self, obj: Any, state: Any) -> None:
        """Give `obj` its attributes. Raises: UnpicklingError if not allowed."""
        raise UnpicklingError(f"load: changing a {type(obj).__name__} is not allowed")

    def persistent(self, key: Any) -> Any:
        """What the persistent id `key` stands for."""
        raise UnpicklingError("load: there is no data beside this pickle, but it refers to some")

    def fill(self, obj: Any, items: list[Any]) -> bool:
        """Put `items` into a container that is no list, dict or set, if allowed; returns whether it was."""
        return False


def run(data: bytes, policy: Policy, at: int = 0) -> tuple[Any, int]:
    """Run the pickle that starts at byte `at` of `data`; returns what it makes and where it ends.

    Raises: UnpicklingError for a malformed pickle or anything `policy` does not allow; EOFError if it ends early.
    """
    machine = _Machine(data, policy, at)
    policy.left = _FREE_STEPS + _STEPS_PER_BYTE * (len(data) - at)
    try:
        return machine.run(), machine.at
    except (IndexError, KeyError, struct.error, UnicodeDecodeError, TypeError, ValueError, OverflowError,
            RecursionError) as error:
        raise UnpicklingError(
            f"load: the pickle is malformed near byte {machine.at}: {type(error).__name__}: {error}"
        ) from error


class _Machine:
    def __init__(self, data: bytes, policy: Policy, at: int) -> None:
        self.data, self.end = data, len(data)
        self.policy = policy
        self.at = at
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.running = True

    def run(self) -> Any:
        data, end, steps = self.data, self.end, _STEPS
        while self.running:
            at = self.at
            if at >= end:
                raise EOFError("load: the pickle ends early; the file is damaged or was not fully written")
            step = steps.get(data[at])
            if step is None:
                raise UnpicklingError(
                    f"load: pickle instruction {bytes([data[at]])!r} at byte {at} is not one of those that "
                    "protocols 2 to 5 use for data; this is no .pt file, or a damaged one"
                )
            self.at = at + 1
            step(self)
        return self.stack.pop()

    # -- reading arguments

    def take(self, size: int) -> bytes:
        start, self.at = self.at, self.at + size
        if self.at > self.end:
            self.at = start
            raise EOFError(f"load: the pickle ends inside a value of {size} bytes")
        return self.data[start : self.at]

    def small(self) -> int:
        """``number(_UINT8)``, which is most of what there is, in half the time."""
        at = self.at
        if at >= self.end:
            self.take(1)
        self.at = at + 1
        return self.data[at]

    def number(self, form: struct.Struct) -> Any:
        return form.unpack(self.take(form.size))[0]

    def line(self) -> str:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise EOFError("load: the pickle ends inside a name")
        start, self.at = self.at, end + 1
        return self.data[start:end].decode()

    def since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.marks.pop()
        return items

    # -- the stack and the memo

    def proto(self) -> None:
        protocol = self.number(_UINT8)
        if protocol > 5:
            raise UnpicklingError(f"load: pickle protocol {protocol} is not known; 2 to 5 are")

    def stop(self) -> None:
        self.running = False

    def mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def pop(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.since_mark()

    def put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def put_small(self) -> None:
        self.memo[self.small()] = self.stack[-1]

    def push_small(self) -> None:
        self.stack.append(self.small())

    def push_text(self) -> None:
        data, start = self.data, self.at + 4
        end = start + int.from_bytes(data[self.at : start], "little")
        if end > self.end:
            self.take(self.number(_UINT32))
        self.at = end
        self.stack.append(str(data[start:end], "utf-8", "surrogatepass"))

    # -- containers

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise IndexError("stack underflow")
        items = self.stack[-count:]
        del self.stack[-count:]
        self.stack.append(tuple(items))

    def append(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(items)
        elif not self.policy.fill(target, items):
            raise UnpicklingError(f"load: cannot append to a {type(target).__name__}")

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, dict):
            for key, value in zip(items[::2], items[1::2], strict=True):
                target[self.policy.check_key(key)] = value
        elif not self.policy.fill(target, items):
            raise UnpicklingError(f"load: cannot set items of a {type(target).__name__}")

    def add_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is set:
            target.update(map(self.policy.check_key, items))
        elif not self.policy.fill(target, items):
            raise UnpicklingError(f"load: cannot add to a {type(target).__name__}")

    def make_dict(self) -> None:
        items = self.since_mark()
        self.stack.append({})
        self.set_items(items)

    # -- what the policy decides

    def find(self) -> None:
        module, name = self.line(), self.line()
        self.stack.append(self.policy.find_global(_PYTHON_2_MODULES.get(module, module), name))

    def stack_find(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if type(name) is not str or type(module) is not str:
            raise UnpicklingError("load: a global's name must be text")
        if len(module) + len(name) > _LONGEST_NAME:
            raise UnpicklingError(f"load: the file names a global by more than {_LONGEST_NAME} characters")
        self.stack.append(self.policy.find_global(module, name))

    def reduce(self) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        if type(args) is not tuple:
            raise UnpicklingError("load: the arguments of a call must be a tuple")
        self.stack.append(self.policy.call(function, args))

    def new(self, with_kwargs: bool) -> None:
        kwargs = self.stack.pop() if with_kwargs else {}
        args, cls = self.stack.pop(), self.stack.pop()
        if type(args) is not tuple or type(kwargs) is not dict:
            raise UnpicklingError("load: the arguments of a new object must be a tuple and a dict")
        self.stack.append(self.policy.new(cls, args, kwargs))

    def build(self) -> None:
        state = self.stack.pop()
        self.policy.set_state(self.stack[-1], state)

    def persistent(self) -> None:
        self.stack.append(self.policy.persistent(self.stack.pop()))


# Protocol 2 uses the names that modules had then.
_PYTHON_2_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}

_UINT8, _UINT16, _UINT32, _UINT64 = struct.Struct("<B"), struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<Q")
_INT32, _FLOAT64 = struct.Struct("<i"), struct.Struct(">d")


def _push(value: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    def step(machine: _Machine) -> None:
        machine.stack.append(value(machine))

    return step


def _long(size: struct.Struct) -> Callable[[_Machine], int]:
    return lambda m: int.from_bytes(m.take(m.number(size)), "little", signed=True)


def _bytes(size: struct.Struct) -> Callable[[_Machine], bytes]:
    return lambda m: m.take(m.number(size))


def _text(size: struct.Struct) -> Callable[[_Machine], str]:
    return lambda m: m.take(m.number(size)).decode("utf-8", "surrogatepass")


_STEPS: dict[int, Callable[[_Machine], None]] = {
    ord(opcode): step
    for opcode, step in {
        "\x80": _Machine.proto,
        "\x95": lambda m: m.number(_UINT64) and None,  # FRAME: the sizes of frames are advice
        ".": _Machine.stop,
        "(": _Machine.mark,
        "0": _Machine.pop,
        "1": lambda m: m.since_mark() and None,
        "2": _push(lambda m: m.stack[-1]),
        "N": lambda m: m.stack.append(None),
        "\x88": lambda m: m.stack.append(True),
        "\x89": lambda m: m.stack.append(False),
        "J": _push(lambda m: m.number(_INT32)),
        "K": _Machine.push_small,
        "M": _push(lambda m: m.number(_UINT16)),
        "\x8a": _push(_long(_UINT8)),
        "\x8b": _push(_long(_UINT32)),
        "G": _push(lambda m: m.number(_FLOAT64)),
        "X": _Machine.push_text,
        "\x8c": _push(_text(_UINT8)),
        "\x8d": _push(_text(_UINT64)),
        # str of Python 2
        "T": _push(_text(_UINT32)),
        "U": _push(_text(_UINT8)),
        "B": _push(_bytes(_UINT32)),
        "C": _push(_bytes(_UINT8)),
        "\x8e": _push(_bytes(_UINT64)),
        "\x96": _push(lambda m: bytearray(m.take(m.number(_UINT64)))),
        ")": lambda m: m.stack.append(()),
        "\x85": lambda m: m.tuple_of(1),
        "\x86": lambda m: m.tuple_of(2),
        "\x87": lambda m: m.tuple_of(3),
        "t": lambda m: _close(m, tuple),
        "]": lambda m: m.stack.append([]),
        "l": lambda m: _close(m, list),
        "a": lambda m: m.append([m.stack.pop()]),
        "e": lambda m: m.append(m.since_mark()),
        "}": lambda m: m.stack.append({}),
        "d": _Machine.make_dict,
        "s": lambda m: _set_one(m),
        "u": lambda m: m.set_items(m.since_mark()),
        "\x8f": _push(lambda m: set()),
        "\x90": lambda m: m.add_items(m.since_mark()),
        "\x91": lambda m: _close(m, lambda items: frozenset(map(m.policy.check_key, items))),
        "q": _Machine.put_small,
        "r": lambda m: m.put(m.number(_UINT32)),
        "\x94": lambda m: m.put(len(m.memo)),
        "h": lambda m: m.stack.append(m.memo[m.small()]),
        "j": _push(lambda m: m.memo[m.number(_UINT32)]),
        "c": _Machine.find,
        "\x93": _Machine.stack_find,
        "R": _Machine.reduce,
        "\x81": lambda m: m.new(with_kwargs=False),
        "\x92": lambda m: m.new(with_kwargs=True),
        "b": _Machine.build,
        "Q": _Machine.persistent,
    }.items()
}


def _close(machine: _Machine, make: Callable[[list[Any]], Any]) -> None:
    items = machine.since_mark()
    machine.stack.append(make(items))


def _set_one(machine: _Machine) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.set_items([key, value])


class Unknown:
    """Stands for something a pickle would make; `name` is the global it came from, if it came from one directly."""

    def __init__(self, name: str = "") -> None:
        self.name = name


class Ignorant(Policy):
    """Allows everything and makes nothing: globals, calls and persistent ids all give an `Unknown`.

    Attributes:
        names: the globals met, as ``module.name``, each once and in order (the keys of a dict).
        keys: the persistent ids met, in order.
    """

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.keys: list[Any] = []

    def find_global(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        self.names[full] = None
        if len(self.names) > _MOST_NAMES:
            raise UnpicklingError(f"load: the file names more than {_MOST_NAMES} globals; it is damaged or means harm")
        return Unknown(full)

    def call(self, function: Any, args: tuple[Any, ...]) -> Any:
        return Unknown()

    def new(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return Unknown()

    def set_state(self, obj: Any, state: Any) -> None:
        pass

    def persistent(self, key: Any) -> Any:
        self.keys.append(key)
        return Unknown()

    def fill(self, obj: Any, items: list[Any]) -> bool:
        return isinstance(obj, Unknown)

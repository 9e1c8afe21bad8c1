"""Kernels of the kernel language for CUDA, by `numba.cuda`: as `kernels.py` has them for the CPU, with a chunk for each thread.

numba has no addresses on a device, so a pointer is the name of an array, which is known when the kernel is compiled, and a
number of elements in it. Vectors and addresses are refused, as Python's own reading of the language (`engine/language/interpret.py`) does.
"""

from __future__ import annotations

import ast
import inspect
import re
from types import FunctionType
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import VectorKind
from flambeau_kernels.engine.language.lower_code import Pointer, Variable, say
from flambeau_kernels.engine.launching import call, loops
from flambeau_kernels.numba_engine import device_words
from flambeau_kernels.numba_engine.device import Kernel, Memory
from flambeau_kernels.numba_engine.device_words import NUMPY
from flambeau_kernels.numba_engine.kernels import PythonCode, PythonLowering, Run
from flambeau_kernels.scalar.symbols import F64, I64, Kind, Symbol

__all__ = ["device_kernel", "run"]

MOST_BLOCKS = 1 << 14
_THREADS = 64                                         # a chunk has loops of its own, so few threads keep a processor busy
_kernels: dict[str, Kernel] = {}


def run(function: FunctionType, chunks: int, args: dict[str, Any], constants: dict[str, Any],
        written: frozenset[str] | None = None) -> None:
    """Run chunks ``0 ... chunks - 1`` of a kernel on the current stream.

    Args:
        args: the parameters after the first by name: contiguous arrays of the device, ints and floats.
        written: those whose elements it may store to; None: all.
    """
    types = {name: type(a) if isinstance(a, (int, float)) else a.dtype.name for name, a in args.items()}
    constant_values = sorted((k, call.described(v)) for k, v in constants.items())
    key = repr((call.description(function), written and sorted(written), [(k, str(t)) for k, t in types.items()], constant_values))
    kernel = _kernels.get(key)
    if kernel is None:
        kernel = _kernels[key] = device_kernel(function, call.marked(types, written), constants)
    given: list[Any] = []
    for name, a in args.items():
        if types[name] is int:
            given.append(np.int64(a))
        elif types[name] is float:
            given.append(np.float64(a))
        else:
            given.append(Memory(a.data.ptr, a.size, loops.Operand(a.dtype.name, "c").llvm))
    kernel(chunks, given, MOST_BLOCKS, _THREADS)


def device_kernel(function: FunctionType, types: dict[str, Any], constants: dict[str, Any]) -> Kernel:
    """The kernel as Python for `numba.cuda`, for arguments of `types`: names of dtypes (of pointers), ``int`` or ``float``.

    Raises: NotInLanguage; Unsupported for instructions that a device has no function of.
    """
    code = _DeviceCode()
    lowering = _DeviceLowering(code, function, 32)
    scope: dict[str, Any] = dict(constants)
    first, *_ = inspect.signature(function).parameters
    lowering.bind(scope, first, Symbol(code, "%chunk", I64))
    for name, kind in types.items():
        if kind in (int, float):
            lowering.bind(scope, name, Symbol(code, f"%given_{name}", I64 if kind is int else F64))
        else:
            lowering.bind(scope, name, _Place(lowering.number(0), kind, f"given_{name}"))
    lowering.function_body(function, scope)
    symbol = "kernel_" + re.sub(r"\W", "_", function.__name__)
    parameters = ", ".join(["n", *(f"given_{name}" for name in types)])
    lines = [f"def {symbol}({parameters}):", *code.memory, "    for chunk in range(cuda.grid(1), n, cuda.gridsize(1)):",
             "        chunk = np.int64(chunk)", *code.lines_of()]  # fmt: skip
    return Kernel(function.__name__, symbol, "\n".join(lines) + "\n")


class _Place(Pointer):
    """Element `address` of the array called `array`."""

    __slots__ = ("array",)

    def __init__(self, address: Symbol, dtype: str | Kind, array: str) -> None:
        super().__init__(address, dtype)
        self.array = array


class _DeviceCode(PythonCode):
    """The lines of a function for `numba.cuda`: each instruction is one of its own."""

    def __init__(self) -> None:
        super().__init__(False)
        self.arrays = 0

    def array(self, llvm: str, count: int) -> Any:
        raise AssertionError("memory of a call has a name here")

    def local(self, llvm: str, count: int) -> str:
        """The name of memory of a thread."""
        self.arrays += 1
        name = f"memory{self.arrays}"
        self.memory.append(f"    {name} = cuda.local.array({count}, np.{NUMPY[llvm]})")
        return name

    def lines_of(self) -> list[str]:
        made: list[str] = []
        for one in self.text:
            if isinstance(one, Run):
                made += ["    " * (one.indent + 1) + line for line in self._run(one)]
            else:
                made.append("    " * (one[0] + 1) + one[1])
        return made

    def _run(self, run: Run) -> list[str]:
        made = [f"{name[1:]} = {slot}" for slot, name in run.reads.items()]
        for line in run.lines:
            made += _lines(line.strip())
        if run.sets:                                  # all at once: one may be given what another one held
            values = [device_words.value(name, self.kinds[slot].replace("ptr", "i64")) for slot, name in run.sets.items()]
            made.append(f"{', '.join(run.sets)} = {', '.join(values)}")
        return made


def _lines(text: str) -> list[str]:
    to, _, what = text.partition(" = ")
    if what.startswith("element "):
        _, array, at = what.split(" ")
        return [f"{to[1:]} = {array}[{device_words.value(at, 'i64')}]"]
    if text.startswith("assign "):
        _, llvm, array, at, value = text.split(" ")
        return [f"{array}[{device_words.value(at, 'i64')}] = {device_words.value(value, llvm)}"]
    return device_words.statement(text)


class _DeviceLowering(PythonLowering):
    """As on the CPU, but for memory."""

    def __init__(self, code: _DeviceCode, function: FunctionType, register_bits: int) -> None:
        super().__init__(code, function, register_bits)
        self.memory = code
        self.held: dict[str, str] = {}                # arrays that variables point into

    # Memory
    def set(self, variable: Variable, value: Any, name: str) -> None:
        if variable.dtype is None:
            super().set(variable, value, name)
            return
        if not isinstance(value, _Place) or value.dtype != variable.dtype:
            self.refuse(f"{name} is a pointer to {variable.dtype} and cannot hold {say(value)}")
        if self.held.setdefault(variable.slot, value.array) != value.array:
            self.refuse(f"{name} points into one array; on a device it cannot point into another one later")
        self.code.set(variable, value.address)

    def get(self, variable: Variable) -> Any:
        if variable.dtype is None:
            return super().get(variable)
        return _Place(Symbol(self.code, self.code.get(variable).name, I64), variable.dtype, self.held[variable.slot])

    def place(self, pointer: Any, index: Any) -> tuple[_Place, Symbol]:
        if not isinstance(pointer, _Place):
            self.refuse(f"only pointers have elements, got {say(pointer)}")
        return pointer, self.offset(pointer, index)

    def offset(self, pointer: Pointer, index: Any) -> Symbol:
        return pointer.address + self.index(index)

    def load(self, pointer: Any, index: Any) -> Symbol:
        where, at = self.place(pointer, index)
        raw = self.code.instruction(I64, f"element {where.array} {at.name}")
        assert isinstance(where.dtype, str)
        return loops.widen_real(self.code, raw.name, loops.Operand(where.dtype, "c"))

    def store(self, pointer: Any, index: Any, value: Any) -> None:
        where, at = self.place(pointer, index)
        self.check_written(where)
        assert isinstance(where.dtype, str)
        made = loops.narrow_real(self.as_kind(value, where.kind, "an element"), loops.Operand(where.dtype, "c"))
        self.code.effect(f"assign {where.llvm} {where.array} {at.name} {made}")

    def binary(self, op: ast.operator, a: Any, b: Any) -> Any:
        if isinstance(a, _Place) and isinstance(op, (ast.Add, ast.Sub)):
            return _Place(self.offset(a, b if isinstance(op, ast.Add) else -self.index(b)), a.dtype, a.array)
        return super().binary(op, a, b)

    def call_local(self, kind: Kind | str, count: int) -> Pointer:
        if isinstance(kind, VectorKind):
            self.refuse("vectors on a device")
        dtype = kind if isinstance(kind, str) else kind.name
        return _Place(self.number(0), dtype, self.memory.local(loops.Operand(dtype, "c").llvm, count))

    def call_pointer(self, address: Symbol, kind: Kind | str) -> Pointer:
        self.refuse("pointers to addresses on a device")

    def call_bitcast(self, value: Any, kind: Kind) -> Any:
        if isinstance(value, Pointer):
            self.refuse("pointers to one memory of two dtypes on a device")
        return super().call_bitcast(value, kind)

    def call_run(self, address: Symbol, chunk: Any, arguments: Pointer) -> None:
        self.refuse("kernels at addresses on a device")

    def call_prefetch(self, place: Pointer) -> None:
        """Nothing: there are no lines to be fetched."""

    def call_broadcast(self, value: Any, count: int) -> Symbol:
        self.refuse("vectors on a device")

    def call_load(self, place: Pointer, index: Any, count: int, first: Any = None, other: Any = None) -> Symbol:
        self.refuse("vectors on a device")

    # Statements
    def after_for(self, counter: str) -> None:
        # In the simulator Python's ranges count in Python's integers.
        self.code.statement(f"{counter} = np.int64({counter})")

"""Kernels for CUDA that `numba.cuda` compiles: formulas, as `cuda/loops.py` has them for LLVM, and the kernel language.

A kernel is the text of a Python function, with a line for each instruction of the formula (`device_words.py`). Threads take every
so-many-th element, or chunk. numba's own simulator, which it is with NUMBA_ENABLE_CUDASIM=1, runs the same text as Python, over the
memory of the device that FLAMBEAU_CUDA_SIMULATOR simulates.
"""

from __future__ import annotations

import ctypes
import hashlib
import linecache
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flambeau_kernels.engine.launching import loops
from flambeau_kernels.engine.launching.loops import Operand
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.numba_engine import device_words
from flambeau_kernels.numba_engine.device_words import NUMPY
from flambeau_kernels.scalar.complexes import PARTS

__all__ = ["NUMPY", "Kernel", "Memory", "count_of", "formula_kernel", "numbers_of", "why_none"]

# Threads of a block; the simulator starts a thread of Python for each.
THREADS = 256
_SIMULATED_THREADS = 4


def why_none() -> str:
    """Why numba can compile nothing for the device that there is; an empty text if it can."""
    from flambeau_kernels.cuda import device

    try:
        from numba import cuda
    except ImportError as error:
        return f"numba.cuda cannot be imported ({error})"
    if device_words.simulated() != device.simulated():
        simulated = "FLAMBEAU_CUDA_SIMULATOR" if device.simulated() else "NUMBA_ENABLE_CUDASIM"
        return f"of {simulated} and {'NUMBA_ENABLE_CUDASIM' if device.simulated() else 'FLAMBEAU_CUDA_SIMULATOR'} only the first is set"
    return "" if device_words.simulated() or cuda.is_available() else "numba.cuda finds no device, or no toolkit to compile with"


class Memory:
    """Memory of a device as numba takes it: `count` numbers from an address on."""

    def __init__(self, address: int, count: int, llvm_type: str) -> None:
        self.dtype = np.dtype(NUMPY[llvm_type])
        self.address, self.count = address, count
        self.__cuda_array_interface__ = {
            "shape": (count,), "typestr": self.dtype.str, "data": (address, False), "strides": None, "version": 3, "stream": None,
        }  # fmt: skip

    def taken(self) -> Any:
        """The argument of a kernel."""
        from numba import cuda

        if not device_words.simulated():
            return cuda.as_cuda_array(self)
        bytes_there = (ctypes.c_char * (self.count * self.dtype.itemsize)).from_address(self.address)
        return _Simulated(np.frombuffer(memoryview(bytes_there), self.dtype))


class _Simulated:
    """Memory as the simulator's kernels find it, which copy arrays of numpy there and back; so operands may be one memory."""

    __slots__ = ("host",)

    def __init__(self, host: np.ndarray) -> None:
        self.host = host

    def __getitem__(self, at: Any) -> Any:
        return self.host[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        self.host[at] = value


class Kernel:
    """The text of a kernel, ``symbol(n, ...)``, whose `n` elements or chunks are shared by threads; `name` is what users call it."""

    __slots__ = ("_compiled", "name", "symbol", "text")

    def __init__(self, name: str, symbol: str, text: str) -> None:
        self.name, self.symbol, self.text = name, symbol, text
        self._compiled: Any = None

    def function(self) -> Any:
        """The Python function, which `numba.cuda.jit` takes."""
        file = f"<numba.cuda {self.name} {hashlib.sha256(self.text.encode()).hexdigest()[:16]}>"
        scope = {**device_words.scope(), "__name__": __name__}
        exec(compile(self.text, file, "exec"), scope)
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(True), file)
        return scope[self.symbol]

    def ptx(self, signature: Any, capability: tuple[int, int] = (8, 0)) -> str:
        """PTX for arguments of numba's types, which needs numba's toolkit and no device."""
        from numba import cuda

        text, _ = cuda.compile_ptx(self.function(), signature, cc=capability)  # pyright: ignore[reportPrivateImportUsage]  # documented
        return text

    def __call__(self, count: int, arguments: Sequence[Any], most_blocks: int, threads: int = THREADS) -> None:
        """Launch threads for `count` elements on the current stream; what is a `Memory` among `arguments` is given as one."""
        from numba import cuda

        if self._compiled is None:
            if llvm.is_shown(self.name):
                print(f"# numba.cuda, {self.name}\n{self.text}", file=sys.stderr)
            self._compiled = cuda.jit(_quiet(self.function()) if device_words.simulated() else self.function())
        given = [a.taken() if isinstance(a, Memory) else a for a in arguments]
        if device_words.simulated():
            self._compiled[1, min(count, _SIMULATED_THREADS)](np.int64(count), *given)
            return
        import cupy  # pyright: ignore[reportMissingImports]  # an extra

        blocks = min(-(-count // threads), most_blocks)
        stream = cuda.external_stream(cupy.cuda.get_current_stream().ptr)
        self._compiled[blocks, threads, stream](np.int64(count), *given)


def _quiet(function: Callable[..., None]) -> Callable[..., None]:
    """`function` for threads of the simulator, without numpy's warnings of what overflows."""
    scope = function.__globals__
    scope["inner"] = function                         # the simulator looks for `cuda` among the globals of what it runs
    exec("def run(*args):\n    with np.errstate(all='ignore'):\n        inner(*args)\n", scope)
    return scope["run"]


def count_of(size: int, dims: Sequence[tuple[int, int]] | None, parts: int) -> int:
    """How many numbers of memory an operand of `size` elements reaches over: contiguous, or along `dims`, in steps of its type."""
    if dims is None:
        return size * parts
    return sum((n - 1) * abs(step) for n, step in dims) + parts


def numbers_of(number: np.ndarray, operand: Operand) -> list[Any]:
    """A number as the arguments of a kernel: numbers of the types that instructions know, two for a complex one."""
    stored = np.dtype(NUMPY[operand.llvm])
    return list(np.atleast_1d(np.asarray(number)).view(stored))


# -- formulas ------------------------------------------------------------------------------------------------------------


def formula_kernel(name: str, function: Callable[..., object], inputs: tuple[Operand, ...], outs: tuple[Operand, ...], compute: str,
                   dims: int, access: str) -> Kernel:  # fmt: skip
    """The kernel that runs `function` (bound to the compiled words) in `compute` over the operands.

    Arguments: the number of elements; for each operand its memory, or a number ('n' in `access`; two of a complex one); the lengths of
    all dimensions but the outermost; the strides of each 'g' operand, in numbers of its type.
    Raises: Unsupported.
    """
    loops.check_dtypes(inputs, outs, compute)
    block, values = loops.trace(name, function, inputs, outs, compute, scales=False, careful=True)
    operands = (*inputs, *outs)
    parameters = ["n"]
    for k, operand in enumerate(operands):
        parameters.append(f"a{k}" if access[k] != "n" else f"x{k}")
        if access[k] == "n" and operand.dtype in PARTS:
            parameters.append(f"y{k}")
    body = []
    if "g" in access:
        parameters += [f"l{d}" for d in range(1, dims)]
        parameters += [f"s{k}_{d}" for k, a in enumerate(access) if a == "g" for d in range(dims)]
        rest = "i"
        for d in range(dims - 1, 0, -1):
            body += [f"d{d} = {rest} % l{d}", f"q{d} = {rest} // l{d}"]
            rest = f"q{d}"
        body.append(f"d0 = {rest}")
    for k, operand in enumerate(operands):
        if access[k] == "w":
            body.append(f"o{k} = i" if operand.parts == 1 else f"o{k} = 2 * i")
        elif access[k] == "g":
            body.append(f"o{k} = " + " + ".join(f"d{d} * s{k}_{d}" for d in range(dims)))
    for k, operand in enumerate(inputs):
        if access[k] != "n":
            body.append(f"x{k} = a{k}[o{k}]")
            if operand.dtype in PARTS:
                body.append(f"y{k} = a{k}[o{k} + 1]")
    for line in block.lines:
        body += device_words.statement(line)
    for k, (names, operand) in enumerate(zip(values, outs, strict=True), start=len(inputs)):
        for part, made in enumerate(names):
            body.append(f"a{k}[o{k}{' + 1' if part else ''}] = {device_words.value(made, operand.llvm)}")
    symbol = re.sub(r"\W", "_", f"{name}_{compute}")
    lines = [f"def {symbol}({', '.join(parameters)}):", "    for i in range(cuda.grid(1), n, cuda.gridsize(1)):"]
    return Kernel(name, symbol, "\n".join([*lines, *(f"        {line}" for line in body)]) + "\n")

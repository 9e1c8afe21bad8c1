"""Launching: the plan for arrays of one layout is made once and kept; it holds the kernel, its grid and its constant arguments."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import flambeau_kernels
from flambeau_kernels import engines
from flambeau_kernels.engine.launching import plan
from flambeau_kernels.engine.launching.loops import Operand
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.formula import Formula
from flambeau_kernels.scalar.symbols import Unsupported
from flambeau_kernels.scalar.words import READING

from . import device, loops, ptx
from .loops import THREADS, Walk
from .program import Program, device_text, host_text

__all__ = ["Kernel", "cast", "copy", "launch", "planned_kernel", "refuse_to_compile", "width"]

MOST_PLANS = 4096
# Blocks of a launch; threads that are left go on with the elements after them.
MOST_BLOCKS = 1 << 14

_HALF = frozenset(("float16", "bfloat16"))
_plans: dict[Any, Any] = {}
_shown: set[Program] = set()  # whose text FLAMBEAU_SHOW_KERNELS has had printed
_kernels: dict[Any, Any] = {}  # by all that decides the text
flambeau_kernels.plans_kept_elsewhere.append(_plans.clear)


def launch(formula: Formula, inputs: tuple[Any, ...], outs: tuple[Any, ...], compute: np.dtype) -> None:
    """Evaluate `formula` at every element of `outs`, arrays of a device, as `flambeau_kernels.launch` does on the host.

    Numbers and host arrays without dimensions may be among `inputs`. Under the numpy backend, and for what the compiled tier
    has no code for, the device's array library evaluates the reference.
    Raises: NotImplementedError for a formula that neither of them has.
    """
    if not outs[0].size:
        return
    facts: list[Any] = [formula, compute]
    for x in (*inputs, *outs):
        if hasattr(x, "strides") and x.ndim:
            facts += (x.shape, x.strides, x.dtype)
        else:
            facts.append(x.dtype if _on_device(x) else None)
    key = tuple(facts)
    found = _plans.get(key)
    if found is None:
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        found = _plans[key] = _prepare(formula, inputs, outs, compute)
    if found.__class__ is str:
        _by_expressions(formula, inputs, outs, compute, found)
    else:
        found(inputs, outs)


def _on_device(x: Any) -> bool:
    """Whether `x` is an array of a device; host arrays of bfloat16 and smaller raise when they are asked for their buffer."""
    return not isinstance(x, (np.ndarray, np.generic)) and hasattr(getattr(x, "data", None), "ptr")


def planned_kernel(formula: Formula, inputs: tuple[Any, ...], outs: tuple[Any, ...], compute: np.dtype) -> Program:
    """The text of the kernel that `launch` runs on such arrays. Raises: Unsupported."""
    return _program(formula, inputs, outs, compute)[0]


def _by_expressions(formula: Formula, inputs: Any, outs: Any, compute: np.dtype, reason: str) -> None:
    wide = flambeau_kernels._WIDE.get(compute) or compute
    # An array without dimensions on the host would not do for cupy, a number of its dtype does.
    operands = tuple(x if _on_device(x) else flambeau_kernels.cast(np.asarray(x), wide)[()] for x in inputs)
    try:
        flambeau_kernels.reference_launch(formula, operands, outs, compute)
    except (TypeError, AttributeError) as error:
        raise NotImplementedError(f"{formula.name}: no kernel for CUDA ({reason}), nor does cupy have it") from error


def _prepare(formula: Formula, inputs: Any, outs: Any, compute: np.dtype) -> Any:
    """A callable on ``(inputs, outs)``, or why there is no kernel."""
    for x in inputs:
        if getattr(x, "ndim", 0) and not _on_device(x):
            raise TypeError(f"{formula.name}: an array of shape {x.shape} on the host meets arrays on the device")
    if flambeau_kernels.backend() == "numpy":
        return "the numpy backend compiles nothing"
    reason = llvm.available()
    if reason is not None:
        return reason
    if engines.chosen().jits_for_devices:
        by_numba = _by_numba(formula, inputs, outs, compute)
        if by_numba is not None:
            return by_numba
    try:
        program, constants, numbers = _program(formula, inputs, outs, compute)
    except Unsupported as unsupported:
        return f"no code for {unsupported}"
    kernel = Kernel.of(program)
    if llvm.is_shown(formula.name) and program not in _shown:
        _shown.add(program)
        print(f"; kernel {formula.name} for CUDA\n{ptx.compile_ptx(device_text(program))}", file=sys.stderr)
    blocks = min(-(-outs[0].size // THREADS), MOST_BLOCKS)

    def run(inputs: Any, outs: Any) -> None:
        arguments: list[int] = []
        for x, wide in zip(inputs, numbers, strict=True):
            if wide is None:
                arguments.append(x.data.ptr)
            else:
                arguments += bits_of(x, wide)
        arguments += [out.data.ptr for out in outs]
        kernel(blocks, arguments + constants)

    return run


def bits_of(number: Any, dtype: np.dtype) -> list[int]:
    """`number` as slots of a kernel that takes it as `dtype`: one, or two for a complex one."""
    raw = np.asarray(flambeau_kernels.cast(np.asarray(number), dtype)).tobytes()
    size = len(raw) if dtype.kind != "c" else len(raw) // 2
    return [int.from_bytes(raw[k : k + size], "little") for k in range(0, len(raw), size)]


class _Number:
    """What the planner sees of a number: an array without dimensions."""

    __slots__ = ("dtype",)
    shape = strides = ()
    ndim = 0

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class _Walked:
    """What a kernel of some arrays depends on, and the merged dimensions that it goes along.

    Attributes:
        numbers: for each input the dtype that it is given in if it is a number.
        access: as that of `Walk`.
    """

    inputs: tuple[Operand, ...]
    outs: tuple[Operand, ...]
    kind: str
    dims: Sequence[tuple[int, tuple[int, ...]]]
    access: str
    numbers: list[np.dtype | None]

    @property
    def walk(self) -> Walk:
        return Walk(len(self.dims) if "g" in self.access else 1, width(self.dims), self.access)


def _walked(inputs: Any, outs: Any, compute: np.dtype) -> _Walked:
    wide = flambeau_kernels._WIDE.get(compute, compute)
    on_device = [_on_device(x) for x in inputs]
    numbers: list[np.dtype | None] = [None if there else wide for there in on_device]
    stand_ins: list[Any] = [x if there else _Number(wide) for x, there in zip(inputs, on_device, strict=True)]
    where = plan.layout(outs[0].shape, stand_ins, list(outs))
    access = "".join(
        "n" if k < len(numbers) and numbers[k] is not None else "w" if len(where.dims) == 1 and a == "c" else "g"
        for k, a in enumerate(where.access)
    )
    operands = tuple(Operand(a.dtype.name, "g") for a in (*stand_ins, *outs))
    kind = "float32" if compute.name in _HALF else wide.name
    return _Walked(operands[: len(inputs)], operands[len(inputs) :], kind, where.dims, access, numbers)


def _made_once(formula: Formula, walked: _Walked, how: str, make: Callable[[Callable[..., object]], Any]) -> Any:
    """What ``make(bound formula)`` has made for operands and a walk like these."""
    key = (how, formula.key, formula.name, walked.inputs, walked.outs, walked.kind, walked.walk)
    made = _kernels.get(key)
    if made is None:
        try:
            made = _kernels[key] = make(formula.bind(READING))
        except (TypeError, AttributeError) as error:  # a formula that calls numpy itself, say
            raise Unsupported(f"a formula that is not plain arithmetic ({error})") from error
    return made


def _program(formula: Formula, inputs: Any, outs: Any, compute: np.dtype) -> tuple[Program, list[int], list[np.dtype | None]]:
    """The kernel, its constant arguments, and for each input the dtype it is given in if it is a number."""
    walked = _walked(inputs, outs, compute)
    program = _made_once(formula, walked, "llvm", lambda bound: loops.kernel(
        formula.name, bound, walked.inputs, walked.outs, walked.kind, walked.walk))  # fmt: skip
    constants = [int(outs[0].size)]
    if "g" in walked.access:
        constants += [n for n, _ in walked.dims[1:]]
        constants += [steps[k] for k, a in enumerate(walked.access) if a == "g" for _, steps in walked.dims]
    return program, constants, walked.numbers


def _by_numba(formula: Formula, inputs: Any, outs: Any, compute: np.dtype) -> Callable[..., None] | None:
    """A callable on ``(inputs, outs)`` that runs what numba.cuda compiles; None where it can compile nothing, or not this."""
    from flambeau_kernels.numba_engine import device as by_numba

    if by_numba.why_none():
        return None
    walked = _walked(inputs, outs, compute)
    try:
        kernel: by_numba.Kernel = _made_once(formula, walked, "numba", lambda bound: by_numba.formula_kernel(
            formula.name, bound, walked.inputs, walked.outs, walked.kind, walked.walk.dims, walked.access))  # fmt: skip
    except Unsupported:
        return None
    size, access, dims = int(outs[0].size), walked.access, walked.dims
    units = [np.dtype(by_numba.NUMPY[o.llvm]).itemsize for o in (*walked.inputs, *walked.outs)]
    counts = [
        by_numba.count_of(size, [(n, steps[k] // units[k]) for n, steps in dims] if access[k] == "g" else None, operand.parts)
        for k, operand in enumerate((*walked.inputs, *walked.outs))
    ]
    constants = [np.int64(n) for n, _ in dims[1:]] if "g" in access else []
    constants += [np.int64(steps[k] // units[k]) for k, a in enumerate(access) if a == "g" for _, steps in dims]

    def run(inputs: Any, outs: Any) -> None:
        arguments: list[Any] = []
        for k, (x, operand) in enumerate(zip((*inputs, *outs), (*walked.inputs, *walked.outs), strict=True)):
            if access[k] == "n":
                number = walked.numbers[k]
                assert number is not None
                arguments += by_numba.numbers_of(flambeau_kernels.cast(np.asarray(x), number), operand)
            else:
                arguments.append(by_numba.Memory(x.data.ptr, counts[k], operand.llvm))
        kernel(size, [*arguments, *constants], MOST_BLOCKS)

    return run


def width(dims: Sequence[tuple[int, tuple[int, ...]]]) -> bool:
    """Whether numbers of elements or offsets along `dims` need 64 bits."""
    count, farthest = 1, 0
    for n, steps in dims:
        count *= n
        farthest += (n - 1) * max(abs(s) for s in steps)
    return max(count, farthest) >= 1 << 31


def refuse_to_compile(what: str) -> None:
    """Raise NotImplementedError under the numpy backend, which compiles nothing, for `what` cupy has no expression."""
    if flambeau_kernels.backend() == "numpy":
        raise NotImplementedError(f"{what}: CUDA tensors have no expression of it under FLAMBEAU_BACKEND=numpy; choose llvm")


class Kernel:
    """A program that can be launched, on the devices where it has been, or in the simulator."""

    __slots__ = ("by_device", "program")
    _made: dict[Program, Kernel] = {}  # of the class

    def __init__(self, program: Program) -> None:
        self.program = program
        self.by_device: dict[int, Callable[[int, list[int]], None]] = {}

    @classmethod
    def of(cls, program: Program) -> Kernel:
        """The kernel of `program`, made once."""
        found = cls._made.get(program)
        if found is None:
            found = cls._made[program] = cls(program)
        return found

    def __call__(self, blocks: int, arguments: list[int]) -> None:
        """Launch `blocks` blocks on the current stream of the current device; `arguments` are addresses and integers."""
        if device.simulated():
            run = self.by_device.get(-1) or self._on_host()
        else:
            import cupy  # pyright: ignore[reportMissingImports]  # an extra

            at = cupy.cuda.runtime.getDevice()
            run = self.by_device.get(at) or self._on_device(cupy, at)
        run(blocks, arguments)

    def _on_host(self) -> Callable[[int, list[int]], None]:
        program = self.program
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)(
            llvm.compile_ir(host_text(program), program.symbol)
        )

        def run(blocks: int, arguments: list[int]) -> None:
            slots = (ctypes.c_uint64 * max(len(arguments), 1))(*[a & 0xFFFFFFFFFFFFFFFF for a in arguments])
            function(ctypes.addressof(slots), blocks, program.threads)

        self.by_device[-1] = run
        return run

    def _on_device(self, cupy: Any, at: int) -> Callable[[int, list[int]], None]:
        program = self.program
        facts = cupy.cuda.runtime.getDeviceProperties(at)
        text = ptx.compile_ptx(device_text(program), (facts["major"], facts["minor"]))
        module = cupy.cuda.function.Module()
        module.load(text.encode())
        function = module.get_function(program.symbol)

        def run(blocks: int, arguments: list[int]) -> None:
            function((blocks, 1, 1), (program.threads, 1, 1), tuple([np.uint64(a & 0xFFFFFFFFFFFFFFFF) for a in arguments]))

        self.by_device[at] = run
        return run


# -- copies --------------------------------------------------------------------------------------------------------------


def _itself(x: Any) -> Any:
    return x


SAME = Formula(_itself, "copy")


def copy(out: Any, source: Any) -> None:
    """Store `source`, a device array or a number, in the device array `out`, broadcast and converted as C converts."""
    if not out.size:
        return
    name = out.dtype.name
    if getattr(source, "dtype", None) == out.dtype and name not in _COPIED:
        kind = _BY_SIZE[out.dtype.itemsize]  # bits that are not looked at
        out, source = out.view(kind), source.view(kind) if _on_device(source) else np.asarray(source).view(kind)
    if flambeau_kernels.backend() == "numpy":
        number = not _on_device(source)
        out[...] = flambeau_kernels.cast(np.asarray(source), out.dtype)[()] if number else source.astype(out.dtype)
        return
    given: np.dtype = getattr(source, "dtype", out.dtype)
    compute: np.dtype = flambeau_kernels._WIDE.get(given) or given
    if out.dtype == np.float16 and compute.itemsize > 4 and compute.kind == "f":
        # Our kernels round by way of float32, which would round twice.
        out[...] = source.astype(np.float16) if _on_device(source) else flambeau_kernels.cast(np.asarray(source), out.dtype)
        return
    launch(SAME, (source,), (out,), compute)


_COPIED = frozenset(
    ["bool", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
_BY_SIZE = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def cast(a: Any, dtype: np.dtype) -> Any:
    """The device array `a` as `dtype`; itself if it is that already."""
    if a.dtype == dtype:
        return a
    out = a.__class__(a.shape, dtype)
    copy(out, a)
    return out

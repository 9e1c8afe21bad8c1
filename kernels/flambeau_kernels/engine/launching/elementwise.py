"""The compiled tier's front door: find or make the plan for a launch, and run it."""
from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau_kernels
from flambeau_kernels import UFUNC_COMPILED_FROM, engines, memory
from flambeau_kernels.engine.launching import journal, loops, native, plan
from flambeau_kernels.engine.launching.loops import Operand
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime import pool
from flambeau_kernels.engine.runtime.allocator import LARGE, _thread
from flambeau_kernels.formula import Formula
from flambeau_kernels.scalar.symbols import Unsupported
from flambeau_kernels.scalar.words import OF_ELEMENTS

# Cost of a formula beyond which numpy's ufunc is more than a memory stream (exp, pow, ...).
CHEAP = 8
# Per formula; shapes that change every step must not pile up.
MOST_PLANS = 512

_HALF = frozenset(("float16", "bfloat16"))
_shown: set[str] = set()


def launch(formula: Formula, inputs: tuple[Any, ...], outs: tuple[Any, ...], compute: np.dtype) -> bool:
    """Evaluate `formula` as `flambeau_kernels.launch` says. False: not taken, nothing was written.

    The choice depends on the shapes, strides and dtypes of the arguments and on settings, never on values.
    """
    if outs[0].nbytes >= LARGE and not getattr(_thread, "done", False):
        memory.keep_freed()
    plans = _made(formula).plans
    arrays = []
    facts: list[Any] = [compute]
    for x in (*inputs, *outs):
        if type(x) is not np.ndarray:
            if not isinstance(x, (float, int, complex, np.generic)):
                return False
            x = np.asarray(x)
        arrays.append(x)
        facts += (x.shape, x.strides, x.dtype)
    key = tuple(facts)
    found = plans.get(key)
    if found is None:
        if len(plans) >= MOST_PLANS:
            plans.clear()
        found = plans[key] = prepare(formula, arrays[:len(inputs)], arrays[len(inputs):], compute)[0]
    if type(found) is str:
        return False
    for out in outs:
        if not out.flags.writeable:
            return False
    found(*arrays)
    return True


def planned(formula: Formula, inputs: tuple[Any, ...], outs: tuple[Any, ...], compute: np.dtype, often: bool = False) -> Any:
    """As `flambeau_kernels.planned`."""
    if outs[0].nbytes >= LARGE:
        memory.keep_freed()
    found = prepare(formula, list(inputs), list(outs), compute, often)[0]
    return None if type(found) is str else found


def specialise(formula: Formula, inputs: tuple[Any, ...], out: np.ndarray, compute: np.dtype, compile: bool = True) -> bool:
    """As `flambeau_kernels.specialise`."""
    from flambeau_kernels.engine.calls import direct

    return direct.specialise(formula, inputs, out, compute, compile)


def calls_repay() -> bool:
    """As `flambeau_kernels.calls_repay`."""
    from flambeau_kernels.engine.calls import direct

    return direct.repays()


# What a backend's launch may offer.
launch.planned, launch.specialise, launch.calls_repay = planned, specialise, calls_repay  # type: ignore[attr-defined]


class _Made:
    """Kept in a formula's `compiled`: plans by shapes, strides and dtypes; kernels by dtypes and access."""

    __slots__ = ("engine", "kernels", "plans")

    def __init__(self) -> None:
        self.engine = engines.chosen()
        self.plans: dict[tuple[Any, ...], Any] = {}   # a callable on the arrays, or why there is none
        self.kernels: dict[tuple[Any, ...], loops.Kernel | str] = {}  # or why there is none


def _made(formula: Formula) -> _Made:
    made = formula.compiled
    if made is None or made.engine is not engines.chosen():
        made = formula.compiled = _Made()
    return made


def explain(formula: Formula, inputs: tuple[Any, ...], outs: tuple[Any, ...], compute: np.dtype) -> str:
    """In words, which tier a launch takes and why; for the compiled tier, its loops, chunks and LLVM IR."""
    arrays = [np.asarray(x) for x in inputs]
    found, account = prepare(formula, arrays, list(outs), compute)
    if account is None:
        return f"{formula.name}: numpy tier: {found}"
    return f"{formula.name}: compiled tier{engines.account()}\n{account()}"


def prepare(formula: Formula, inputs: list[np.ndarray], outs: list[np.ndarray],
            compute: np.dtype, pays: bool = False) -> tuple[Any, Callable[[], str] | None]:
    """A callable on the arrays, and what writes an account of it; or the reason there is none, and None. `pays`: for few elements too."""
    reason = llvm.available() or _does_not_fit(formula, inputs, outs, compute, pays)
    if reason is not None:
        return reason, None
    try:
        where = plan.packing(plan.layout(outs[0].shape, inputs, outs), inputs)
        kernel = _kernel(formula, where, inputs, outs, compute)
    except Unsupported as unsupported:
        return f"no code for {unsupported}", None
    reason = None if pays else _does_not_pay(formula, outs[0].size, kernel.cost, compute,
                           {a.dtype for a in (*inputs, *outs) if a.ndim})
    if reason is not None:
        return reason, None
    try:
        address = compiled(kernel)
    except Unsupported as unsupported:
        return f"no code for {unsupported}", None
    except engines.Refused as error:                  # of which the program has been warned
        return f"LLVM refused the kernel: {error}", None
    except RuntimeError as error:                      # LLVM, or what it made, cannot be loaded
        warnings.warn(f"{formula.name}: no kernel, the numpy tier runs: {error}", UserWarning, 3)
        return f"no kernel: {error}", None
    _show(formula, kernel)
    table = plan.table(where, address, kernel.cost, sum(a.itemsize for a in (*inputs, *outs)))
    account = functools.partial(_account, where, kernel, table)
    operands = ", ".join(f"{a.dtype.name} {a.shape}" for a in (*inputs, *outs))
    journal.name(table, lambda: f"loop {formula.name} computing in {compute.name}: {operands}")
    return native.runner(table), account


def row_loop(formula: Formula, inputs: tuple[str, ...], out: str, compute: np.dtype) -> int | None:
    """Address of the loop (see `loops.py`) that runs `formula` over rows without gaps; None where there is no code for it.

    The loop is the one that `launch` runs on whole arrays without gaps, so results have the same bits. `inputs` and `out` are
    names of dtypes.
    """
    if llvm.available() is not None:
        return None
    try:
        kernel = _kernel_for(formula, tuple(Operand(dtype, "c") for dtype in (*inputs, out)), len(inputs), compute)
        return compiled(kernel)
    except (Unsupported, RuntimeError):                # launch says what LLVM refused
        return None


def compiled(kernel: loops.Kernel) -> int:
    """The address of the loop `kernel`, compiled by the engine of the backend."""
    if engines.chosen().name != "numba":
        try:
            return llvm.compile_ir(kernel.text, kernel.symbol, kernel.level)
        except engines.Refused:
            if not llvm.numba_stands_in():
                raise
    from flambeau_kernels.numba_engine import loops as numba_loops

    return numba_loops.address(kernel)


def is_kept(kernel: loops.Kernel) -> bool:
    """Whether the cache has the loop `kernel`, so that `compiled` would load it."""
    return engines.chosen().name != "numba" and llvm.is_cached(kernel.text, kernel.level)


def _does_not_fit(formula: Formula, inputs: list[np.ndarray], outs: list[np.ndarray], compute: np.dtype,
                  pays: bool = False) -> str | None:
    shape = outs[0].shape
    if any(o.shape != shape for o in outs):
        return "outputs of different shapes"
    least = flambeau_kernels.smallest_compiled(formula, compute)
    if outs[0].size < least and not pays:
        specialised = flambeau_kernels.has_one_answer(formula, compute)
        later = "; later calls of an op that is called often are compiled, to the same bits" if specialised else ""
        return f"{outs[0].size} elements; the compiled tier pays from {least}{later}"
    for a in inputs:
        lengths = zip(a.shape[::-1], shape[::-1], strict=False)
        if a.ndim > len(shape) or any(n not in (1, m) for n, m in lengths):
            return f"an input of shape {a.shape} does not broadcast to {shape}"
    if any(not a.dtype.isnative for a in (*inputs, *outs)):
        return "an array in foreign byte order"
    return None


def pays_from(formula: Formula, cost: int, compute: np.dtype, stored: set[np.dtype]) -> int:
    """Elements from which a loop of `cost` over arrays of the dtypes `stored` is worth its launch."""
    # numpy computes half types one element at a time.
    one_stream = (formula.ufunc is not None and cost <= CHEAP and stored == {compute}
                  and compute.name not in _HALF and flambeau_kernels.has_one_answer(formula, compute))
    return UFUNC_COMPILED_FROM if one_stream else 0


def _does_not_pay(formula: Formula, elements: int, cost: int, compute: np.dtype,
                  stored: set[np.dtype]) -> str | None:
    if elements < pays_from(formula, cost, compute, stored):
        return f"{elements} elements of one ufunc; the compiled tier pays from {UFUNC_COMPILED_FROM}"
    return None


def _kernel(formula: Formula, where: plan.Layout, inputs: list[np.ndarray], outs: list[np.ndarray],
            compute: np.dtype) -> loops.Kernel:
    arrays = (*inputs, *outs)
    operands = tuple(Operand(a.dtype.name, access) for a, access in zip(arrays, where.access, strict=True))
    return _kernel_for(formula, operands, len(inputs), compute)


def _kernel_for(formula: Formula, operands: tuple[Operand, ...], count: int, compute: np.dtype) -> loops.Kernel:
    """The loop over operands, the first `count` of which are inputs."""
    kind = "float32" if compute.name in _HALF else compute.name
    kernels = _made(formula).kernels
    key = (kind, *operands)
    if key not in kernels:
        try:
            kernels[key] = _trace(formula, operands, count, kind)
        except Unsupported as unsupported:
            kernels[key] = str(unsupported)
    found = kernels[key]
    if isinstance(found, str):
        raise Unsupported(found)
    return found


def _trace(formula: Formula, operands: tuple[Operand, ...], count: int, compute: str) -> loops.Kernel:
    inputs, outs = tuple(operands[:count]), tuple(operands[count:])
    try:
        machine = llvm.machine()
        return loops.kernel(formula.name, formula.bind(OF_ELEMENTS), inputs, outs, compute, machine.scales, formula.thorough,
                            machine.register_bits)
    except (TypeError, AttributeError) as error:      # a formula that calls numpy itself, say
        raise Unsupported(f"a formula that is not plain arithmetic ({error})") from error


def _account(where: plan.Layout, kernel: loops.Kernel, table: np.ndarray) -> str:
    dims = " x ".join(str(n) for n, _ in where.dims)
    chunks = int(table[native.CHUNKS])
    return (f"  dimensions {dims} after merging, access {where.access} (contiguous, scalar, distance of two, general)\n"
            f"  {chunks} chunk{'s' * (chunks != 1)} for up to {pool.get_num_threads()} threads; "
            f"{'without' if table[native.RELEASE] else 'with'} the GIL; cost {kernel.cost}\n{_text(kernel)}")


def _text(kernel: loops.Kernel) -> str:
    """What the engine compiles."""
    if engines.chosen().name == "numba":
        from flambeau_kernels.numba_engine import loops as numba_loops

        return numba_loops.function(kernel).shown()
    return kernel.text


def _show(formula: Formula, kernel: loops.Kernel) -> None:
    """Print formula, IR and assembly when FLAMBEAU_SHOW_KERNELS names the formula, once."""
    if kernel.text not in _shown and llvm.is_shown(formula.name):
        _shown.add(kernel.text)
        if engines.chosen().name == "numba":
            print(_text(kernel), file=sys.stderr)
            return
        llvm.show(formula.name, formula.fn, kernel.text, kernel.level)

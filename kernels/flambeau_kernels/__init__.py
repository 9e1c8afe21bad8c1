"""Arrays in, arrays out: the kernels below Flambeau's tensors.

`launch` runs an elementwise formula on whichever tier its shapes, dtypes and the settings choose. Nothing here knows
about tensors, gradients or devices other than by the arrays it is given.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import ml_dtypes
import numpy as np

from . import engines, quiet
from .engines import plans_kept_elsewhere
from .formula import Formula
from .reference import WORDS_READ
from .takeover import FORMULA, Waiting, of_elements

__all__ = ["Formula", "backend", "cpu_backend", "hot_calls", "launch", "set_backend"]

# What narrow types compute in; keyed by dtype, whose hash is cheap where its name is not.
_WIDE = {np.dtype(narrow): np.dtype(np.float32) for narrow in (
    np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e8m0fnu,
)} | {np.dtype(ml_dtypes.complex32): np.dtype(np.complex64)}  # fmt: skip
# Below this many elements numpy's own loops answer sooner than a compiled kernel is found and launched.
COMPILED_FROM = 1024
# The same for formulas that are several numpy calls, with their temporaries.
SEVERAL_COMPILED_FROM = 256

_COMPLEX32 = np.dtype(ml_dtypes.complex32)
_WITH_ONE_NAN = {np.dtype(t) for t in (ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e8m0fnu)}

_chosen = os.environ.get("FLAMBEAU_BACKEND", "llvm")
# A formula that is one cheap ufunc reads and writes memory just as numpy does, until threads share the work.
UFUNC_COMPILED_FROM = 32768
_CHEAP_UFUNCS = frozenset((np.add, np.subtract, np.multiply, np.true_divide, np.negative))

_compiled: Any = None  # the engine's launch, once something large enough has asked for it


def backend() -> str:
    """The name of the backend that was chosen: 'llvm' (the compiled tiers of CPU and CUDA), 'numba', 'numpy', 'cuda' or a plug-in's."""
    return _chosen


def cpu_backend() -> str:
    """The name of the backend whose kernels compute arrays of the CPU: under 'cuda' that is 'llvm'."""
    return _backend


def set_backend(name: str) -> None:
    """Choose the backend for later calls.

    'cuda' is 'llvm' where there is a CUDA device.
    Raises: ValueError for a name nobody provides; RuntimeError, saying what is missing, for 'cuda' without a device and for 'numba'
    where it is not installed.
    """
    global _chosen, _backend, _compiled
    _backend, _compiled = _checked_name(name), None
    _chosen = name
    engines.choose(engines.ENGINES.get(_backend) or engines.of_plug_in())
    hot_calls.start_over()
    forget_plans()


def forget_plans() -> None:
    """Let everyone plan anew; for when something changes that plans depend on: the backend, the default dtype."""
    for forget in plans_kept_elsewhere:
        forget()


def _checked_name(name: str) -> str:
    """What `cpu_backend` is under the backend `name`. Refuses one that is not there, before anything is changed."""
    if name in ("llvm", "numpy") or name in plugin_names():
        return name
    if name == "cuda":
        from .cuda import device

        if device.library() is None:
            raise RuntimeError(
                f"FLAMBEAU_BACKEND=cuda: there is no CUDA device: {device.why_none()}. It takes an NVIDIA driver and the extra "
                "flambeau[cuda]; FLAMBEAU_CUDA_SIMULATOR=1 stands in for a device in tests"
            )
        return "llvm"
    if name == "numba":
        from importlib.util import find_spec

        if find_spec("numba") is None:
            raise RuntimeError("FLAMBEAU_BACKEND=numba: numba is not installed, which Flambeau depends on: pip install numba")
        return "numba"
    raise ValueError(f"FLAMBEAU_BACKEND: no backend named {name!r}; there are llvm, numba, numpy, cuda {plugin_names()}")


def plugin_names() -> list[str]:
    """Names under the entry point group ``flambeau.backends`` beyond our own."""
    from importlib.metadata import entry_points

    return [entry.name for entry in entry_points(group="flambeau.backends")]


def _not_taken(formula: Formula, inputs: Any, outs: Any, compute: Any) -> bool:
    return False


def _load_compiled() -> Any:
    """The compiled tier of the backend: ``launch(formula, inputs, outs, compute) -> taken``."""
    global _compiled
    if not engines.chosen().compiles and _backend in engines.ENGINES:
        from . import memory

        memory.keep_freed()
        _compiled = _not_taken
    elif _backend in engines.ENGINES:
        from .engine import launch as engine_launch

        _compiled = engine_launch
    else:
        from importlib.metadata import entry_points

        _compiled = next(entry for entry in entry_points(group="flambeau.backends") if entry.name == _backend).load()
    return _compiled


def smallest_compiled(formula: Formula, compute: np.dtype) -> int:
    """Elements from which the compiled tier is asked to run `formula` in `compute`.

    Where tiers differ in the last bit the answer must not depend on what has run before, so one of them has all sizes.
    """
    if has_one_answer(formula, compute):
        return COMPILED_FROM if formula.ufunc is not None else SEVERAL_COMPILED_FROM
    return 1


def has_one_answer(formula: Formula, compute: np.dtype) -> bool:
    """Whether all tiers give the same bits for `formula`: those of integers do."""
    return compute.kind in "iu" or compute.kind != "c" and formula.exact


def launch(formula: Formula, inputs: tuple[Any, ...], outs: tuple[Any, ...], compute: np.dtype) -> None:
    """Evaluate `formula` at every element of `outs`.

    Args:
        inputs: arrays, or Python or numpy scalars, broadcastable to the shape of `outs`; converted to `compute` first.
        outs: one allocated array per result of the formula; results are converted to its dtype.
        compute: dtype to calculate in; for half types float32 is used and only results are rounded.
    """
    size = outs[0].size
    if size >= SEVERAL_COMPILED_FROM or size and smallest_compiled(formula, compute) == 1:
        run = _compiled
        if run is None and not _is_numpys(formula, inputs, outs, compute):
            run = _load_compiled()
        if run is not None and run(formula, inputs, outs, compute):
            return
    if outs[0].__class__ is not np.ndarray and hasattr(outs[0], "get"):
        from .cuda.launch import launch as launch_on_device

        launch_on_device(formula, inputs, outs, compute)
        return
    reference_launch(formula, inputs, outs, compute)


def is_left_to_numpy(formula: Formula, inputs: tuple[Any, ...], out: Any, compute: np.dtype) -> bool:
    """Whether the numpy tier computes this launch."""
    return out.size < numpys_below(formula, (*inputs, out), compute)


def numpys_below(formula: Formula, arrays: tuple[Any, ...], compute: np.dtype) -> int:
    """Elements below which numpy computes `formula` of operands and results of the dtypes of `arrays`, numbers among them."""
    return UFUNC_COMPILED_FROM if _is_numpys_ufunc(formula, arrays, compute) else SEVERAL_COMPILED_FROM


def _is_numpys(formula: Formula, inputs: tuple[Any, ...], outs: tuple[Any, ...], compute: np.dtype) -> bool:
    """Whether the engine would leave the launch to numpy, as far as can be said without loading it, which takes 40 ms."""
    return outs[0].size < UFUNC_COMPILED_FROM and _is_numpys_ufunc(formula, (*inputs, *outs), compute)


def _is_numpys_ufunc(formula: Formula, arrays: tuple[Any, ...], compute: np.dtype) -> bool:
    """Whether `formula` is a ufunc as quick as a kernel, until threads share the work, and has nothing to convert."""
    return (
        engines.chosen().compiles
        and formula.ufunc in _CHEAP_UFUNCS
        and compute.isbuiltin == 1
        and compute.kind == "f"
        and compute.itemsize > 2
        and all(a.dtype == compute for a in arrays if getattr(a, "ndim", 0))
    )


def planned(formula: Formula, inputs: tuple[Any, ...], outs: tuple[Any, ...], compute: np.dtype, often: bool = False) -> Any:
    """What runs `launch` on arrays of just these shapes, strides and dtypes: a callable on them, inputs first.

    None where the compiled tier does not take them. Numbers among `inputs` are to be 0-d arrays.

    Args:
        often: it is called so often that compiling pays for few elements too; for formulas of one answer (`has_one_answer`).
    """
    if often and outs[0].size and has_one_answer(formula, compute):
        plan = getattr(_compiled or _load_compiled(), "planned", None)
        return None if plan is None else plan(formula, inputs, outs, compute, True)
    if outs[0].size < smallest_compiled(formula, compute) or _compiled is None and _is_numpys(formula, inputs, outs, compute):
        return None
    run = _compiled or _load_compiled()
    plan = getattr(run, "planned", None)
    return None if plan is None else plan(formula, inputs, outs, compute)


def specialise(formula: Formula, inputs: tuple[Any, ...], out: Any, compute: np.dtype, compile: bool = True) -> bool:
    """Let `formula.direct` answer for operands like `inputs`, if the compiled tier takes them. They just ran on it.

    Args:
        inputs: arrays and numbers, as for `launch`.
        out: an array of the result's dtype, which like `compute` must follow from the formula and the dtypes of `inputs`.
        compile: whether the loop may be compiled; else only one that the cache has is taken.
    Returns: whether there are operands of such dtypes, and such classes of numbers, for which it answers then.
    """
    specialise_it = getattr(_compiled or _load_compiled(), "specialise", None)
    return specialise_it is not None and specialise_it(formula, inputs, out, compute, compile)


def calls_repay() -> bool:
    """Count a call that a formula's builtins could have answered, and say whether `specialise` is worth its price by now.

    For formulas whose loops are compiled already: what is to be had is the code that looks at operands, to the same bits as without.
    """
    repay = getattr(_compiled or _load_compiled(), "calls_repay", None)
    return repay is None or repay()


def reference_launch(formula: Formula, inputs: tuple[Any, ...], outs: tuple[Any, ...], compute: np.dtype) -> None:
    """`launch` by numpy expressions: slow, simple, and what the other tiers are compared with."""
    compute = _WIDE.get(compute, compute)
    token = quiet.ignore_fp_flags()
    try:
        args = [x if x.__class__ is np.ndarray and x.dtype is compute else cast(x, compute) for x in inputs]
        if formula.ufunc is not None and len(outs) == 1 and outs[0].dtype == compute:
            if all(x.flags.c_contiguous for x in args) and outs[0].flags.c_contiguous:
                formula.ufunc(*args, out=outs[0], casting="unsafe")
            else:
                # From one stride to another numpy 2.4's `negative` reads the wrong elements, so its result is a new array.
                outs[0][...] = formula.ufunc(*args)
            return
        results = formula.bind(WORDS_READ)(*args)
        for out, result in zip(outs, results if len(outs) > 1 else (results,), strict=True):
            out[...] = cast(result, out.dtype)
    finally:
        quiet.restore_fp_flags(token)


def cast(x: Any, dtype: np.dtype) -> Any:
    """`x` as an array of `dtype`; floats to integers truncate, complex to real drops the imaginary part.

    Narrow floats are reached, and left, by way of the dtype they compute in, as in PyTorch: what numpy and ml_dtypes do at once has
    differed between their versions.
    """
    array: Any = np.asarray(x) if not hasattr(x, "astype") else x
    if array.dtype == dtype:
        return array
    if array.__class__ is not np.ndarray and hasattr(array, "get"):
        from .cuda.launch import cast as cast_on_device

        return cast_on_device(array, dtype)
    if array.dtype.kind == "c" and dtype.kind not in "cb" and dtype != _COMPLEX32:
        array = array.real
    if array.dtype == _COMPLEX32 and dtype.kind != "V":
        array = array.astype(np.complex64)
        array = array if dtype.kind in "cb" else array.real
    between = _WIDE.get(array.dtype) or _WIDE.get(dtype)
    if between is None and (dtype.kind not in "iu" or array.dtype.kind in "biu"):
        return array.astype(dtype)
    token = quiet.ignore_fp_flags()                                  # PyTorch says nothing about nan or what is too large
    try:
        if between is not None and between != array.dtype:
            has_one_nan = array.dtype in _WITH_ONE_NAN
            array = array.astype(between)
            if has_one_nan and dtype.kind in "iu":
                array = np.where(np.isnan(array), 0, array)          # as PyTorch, where other nans become the lowest integer
        if dtype.kind == "V" and dtype.itemsize == 1:
            array = _into_float8(array, dtype.name)
        return array.astype(dtype, copy=False)
    finally:
        quiet.restore_fp_flags(token)


def store(out: Any, a: Any) -> None:
    """Write `a`, an array of the same shape, to `out`, converted to its dtype as `cast` does."""
    if out.size >= STORE_COMPILED_FROM and a.__class__ is np.ndarray and out.__class__ is np.ndarray:
        if a.dtype == out.dtype:
            from .cpu.shapes import move

            if move.into(out, a):
                return
        compute = _computed_for_copy(a.dtype, out.dtype)
        # A plain copy of few elements is quickest as a call of the C library; of many, all threads take part, and copies to
        # an address a little further on in its page do not stall.
        plain = a.dtype == out.dtype and a.flags.c_contiguous and out.flags.c_contiguous
        if compute is not None and not (plain and out.size < UFUNC_COMPILED_FROM):
            run = _compiled or _load_compiled()
            if run(_SAME, (a,), (out,), compute):
                if a.dtype != out.dtype:
                    specialise(conversion(out.dtype), (a,), out, compute)
                return
    if out.__class__ is not np.ndarray and hasattr(out, "get"):
        from .cuda.launch import copy as copy_on_device

        copy_on_device(out, a)
        return
    out[...] = cast(a, out.dtype)


def converted(a: Any, dtype: np.dtype) -> Any:
    """A new array of what `store` makes of `a` as another `dtype`, if this has been done to arrays like it; or None."""
    return (conversion(dtype)).direct(a)


def recast(a: Any, dtype: np.dtype) -> Any:
    """The array `a` as another `dtype`: by numpy, or by a kernel once this has been asked for often."""
    made = (conversion(dtype)).direct(a)
    if made is None:
        made = cast(a, dtype)
        note_conversion(a, made)
    return made


_conversion = Waiting(FORMULA)


def note_conversion(a: Any, made: Any) -> None:
    """Let `converted` take arrays like `a`, of which numpy has made `made`, once that repays and if it would give the same bits."""
    old, new = a.dtype, made.dtype
    may_compile = _conversion.paid_for(of_elements(a.size), (old, new, a.flags.c_contiguous))
    if may_compile is None:
        return
    if old in _HALVES or new in _HALVES:
        if (compute := _computed_for_copy(old, new)) is not None:
            specialise(conversion(new), (a,), made, compute, may_compile)
        return
    if old.kind == "c" or new.kind == "c":
        return                                            # numpy says what becomes of parts, and of fractions in few bits
    if new.kind in "iu" and old.kind not in "biu" and not (old in _REALS and new in _INTEGERS and _cuts_as_kernels_do()):
        return
    if old.kind == "V" or new.kind == "V":
        return                                            # rounding twice is not rounding once
    specialise(conversion(new), (a,), made, new, may_compile)


@functools.cache
def _cuts_as_kernels_do() -> bool:
    """Whether numpy makes the lowest integer of what no integer stands for, which the processor decides."""
    token = quiet.ignore_fp_flags()
    made = np.array([np.nan, 1e30, -1e30] * 8).astype(np.int64)
    quiet.restore_fp_flags(token)
    return bool((made == np.iinfo(np.int64).min).all())


_conversions: dict[np.dtype, Formula] = {}


def conversion(dtype: np.dtype) -> Formula:
    """The formula of one operand that leaves it as it is, for results of `dtype`."""
    return _conversions.get(dtype) or _conversions.setdefault(dtype, Formula(lambda x: x, f"to_{dtype.name}"))


# Elements from which compiled loops store: they convert half types as vectors, and walk transposed arrays in tiles.
STORE_COMPILED_FROM = 4096
_SAME = Formula(lambda x: x, "store")
_COPIED = {np.dtype(t) for t in (np.float32, np.float64, np.int8, np.uint8, np.int16, np.int32, np.int64)}
_HALVES = {np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)}
_FLOAT32 = np.dtype(np.float32)
_CUT = {np.dtype(t) for t in (np.int8, np.uint8, np.int16, np.int32, np.int64)}  # what halves are cut to by way of an int32 or an int64
_REALS, _INTEGERS = {np.dtype(np.float32), np.dtype(np.float64)}, {np.dtype(np.int32), np.dtype(np.int64)}


def _computed_for_copy(old: np.dtype, new: np.dtype) -> np.dtype | None:
    """The dtype a copy computes in; None where numpy is to do it."""
    if old == new:
        return old if old in _COPIED else None
    if new in _HALVES:
        return _FLOAT32 if old in _HALVES or old in _REALS or old.kind == "b" or old in _CUT else None
    if old in _HALVES:
        if new in _REALS:
            return new
        return _FLOAT32 if new.kind == "b" or new in _CUT and _cuts_as_kernels_do() else None
    return np.dtype(np.float64) if {old, new} <= _REALS else None


def _into_float8(array: Any, name: str) -> Any:
    """`array` with the values that `name` cannot hold replaced as PyTorch's conversion does."""
    if name == "float8_e4m3fn":  # no infinity: the largest value stands for all beyond it
        return np.clip(array, -448, 448)
    if name == "float8_e8m0fnu":  # powers of two only, neither sign nor zero
        return np.maximum(np.abs(array), np.float32(2.0**-127))
    return array


_backend = _checked_name(_chosen)
engines.choose(engines.ENGINES.get(_backend) or engines.of_plug_in())

if os.environ.get("FLAMBEAU_STRICT", "").strip() not in ("", "0"):
    from .own_dtypes import checked

    launch = checked(launch)  # before others take it from here

from . import hot_calls  # noqa: E402  # needs the names above

if os.environ.get("FLAMBEAU_CPU"):
    from .engine.machine_code import processors

    processors.chosen()  # an unknown name is refused at once

if os.environ.get("FLAMBEAU_GUARD_MEMORY", "").strip() not in ("", "0"):
    from .engine.runtime import allocator

    allocator.adopt_thread()  # from the first array on

"""Compiled kernels as Python callables: ``form(chunks, release, *arguments)``.

The callable is a builtin whose body is generated here. It puts the arguments into slots of eight bytes (the
data pointer of an array, an integer, a float), gives up the GIL where that pays, and hands the chunks to the
pool. The object code of a kernel is found on disk by its bytecode and that of the functions it calls, so a
second process neither reads its source nor lowers it.
"""
from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from flambeau_kernels import engines
from flambeau_kernels.engine.language import Kernel, OnlyRead
from flambeau_kernels.engine.launching import journal, native
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime import pool
from flambeau_kernels.engine.runtime.never_freed import never_freed
from flambeau_kernels.formula import Formula

# Slots of the table behind a builtin.
FUNCTION, COUNT, RING, KINDS_AT = 0, 1, 10, 16
(POOL, PARALLEL, NONE, INCREF, SAVE, RESTORE, AS_INTEGER, AS_FLOAT) = range(2, 10)
(NDARRAY, IS_SUBCLASS, OCCURRED, REFUSE, TYPE_ERROR) = range(11, 16)
_POINTER, _INTEGER, _FLOAT = 0, 1, 2


def form(kernel: Kernel, types: tuple[Any, ...], constants: dict[str, Any]) -> Any:
    """The compiled form of `kernel` for arguments of `types` (dtypes, ``int``, ``float``) and `constants`."""
    given = named(kernel, types, constants)
    place = address(kernel, given, constants)
    table = np.zeros(KINDS_AT + len(given), np.int64)
    table[FUNCTION], table[COUNT] = place, len(given)
    table[KINDS_AT:] = [{int: _INTEGER, float: _FLOAT}.get(t, _POINTER) for t in given.values()]
    for slot, value in _process_addresses():
        table[slot] = value
    journal.name(table, functools.partial(_account, kernel, given, constants))
    if not native.struct_matches():
        return functools.partial(_run_by_ctypes, table)
    return native.new_builtin()(ctypes.addressof(_method()), table, None)


def named(kernel: Kernel, types: tuple[Any, ...], constants: dict[str, Any]) -> dict[str, Any]:
    """The names of dtypes, int or float, of `kernel`'s arguments by their names. Raises: TypeError where they do not fit."""
    code = kernel.function.__code__
    names = [n for n in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount] if n not in constants]
    given = [t.name if isinstance(t, np.dtype) else t for t in types]
    for t in given:
        if not isinstance(t, str) and t not in (int, float):
            raise TypeError(f"{kernel!r}: arguments are numpy arrays, int or float, got {t.__name__}")
    if len(names) - 1 != len(given):
        raise TypeError(f"{kernel!r}: {len(names) - 1} arguments wanted, {len(given)} given: {names[1:]}")
    return marked(dict(zip(names[1:], given, strict=True)), kernel.written)


def marked(types: dict[str, Any], written: frozenset[str] | None) -> dict[str, Any]:
    """`types` by parameter, of which those that are not `written` may not be stored to."""
    if written is None:
        return types
    return {name: OnlyRead(t, name) if isinstance(t, str) and name not in written else t for name, t in types.items()}


def _account(kernel: Kernel, types: dict[str, Any], constants: dict[str, Any]) -> str:
    """The kernel with its source, and the types it was compiled for."""
    code = kernel.function.__code__
    text = ", ".join(f"{name}: {t if isinstance(t, str) else t.__name__}" for name, t in types.items())
    chosen = "".join(f", {name}={getattr(value, 'name', value)}" for name, value in constants.items())
    file = "/".join(code.co_filename.replace(os.sep, "/").split("/")[-3:])
    return f"kernel {kernel.name}({text}{chosen}), {file}:{code.co_firstlineno}"


def address(kernel: Kernel, types: dict[str, Any], constants: dict[str, Any]) -> int:
    """Where the code of `kernel` is, ``void f(i64 chunk, ptr arguments)``: for pointers to what `types` names, int and float."""
    symbol = "kernel_" + re.sub(r"\W", "_", kernel.name)
    machine = llvm.machine()
    if engines.chosen().name == "numba":
        return _by_numba(kernel, symbol, types, constants)
    level = _level(kernel)

    def text() -> str:
        from flambeau_kernels.engine.language import lower

        made = lower.module_text(kernel.function, symbol, types, constants, kernel.aliased, machine.scales,
                                 machine.register_bits)
        if llvm.is_shown(kernel.name):                # which means as well that the cache had no object
            llvm.show(kernel.name, kernel.function, made, level)
        return made

    try:
        return llvm.compile_lazily(_facts(kernel, types, constants), text, symbol, level)
    except engines.Refused:
        if not llvm.numba_stands_in():
            raise
        return _by_numba(kernel, symbol, types, constants)


def _by_numba(kernel: Kernel, symbol: str, types: dict[str, Any], constants: dict[str, Any]) -> int:
    from flambeau_kernels.numba_engine import kernels

    return kernels.address(kernel.function, symbol, types, constants)


def is_cached(kernel: Kernel, types: dict[str, Any], constants: dict[str, Any]) -> bool:
    """Whether `address` would find the code on disk rather than compile it."""
    return llvm.is_cached(_facts(kernel, types, constants), _level(kernel))


def _level(kernel: Kernel) -> int:
    return llvm.PLAIN if kernel.in_vectors else llvm.EVERYTHING if kernel.thorough else llvm.LOOPS


def _facts(kernel: Kernel, types: dict[str, Any], constants: dict[str, Any]) -> str:
    """Text that changes whenever the code of this form of the kernel would."""
    names_of_types = {name: t if isinstance(t, str) else t.__name__ for name, t in types.items()}
    values = sorted((k, described(v)) for k, v in constants.items())
    written = () if kernel.written is None else (sorted(kernel.written),)  # what has been refused is not in the cache
    facts = (description(kernel.function), kernel.aliased, names_of_types, values, _sources(), *written)
    return "|".join(map(repr, facts))


@functools.cache
def _sources() -> str:
    """A digest that changes with the lowering and the elementary functions."""
    engine = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    facts = []
    for root in (engine, os.path.join(os.path.dirname(engine), "scalar")):
        for folder, _, names in sorted(os.walk(root)):
            found = [(name, os.stat(os.path.join(folder, name))) for name in sorted(names) if name.endswith(".py")]
            facts += [(folder[len(root) :], name, status.st_size, status.st_mtime_ns) for name, status in found]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def description(function: FunctionType, seen: frozenset[int] = frozenset()) -> str:
    """Text that changes whenever the function, its constants or a function it calls does."""
    if id(function) in seen:
        return function.__name__
    seen |= {id(function)}
    parts = [_code(function.__code__), repr(function.__defaults__)]
    outside, names = function.__globals__, _names(function.__code__)
    parts += [f"{name}={described(outside[name], seen)}" for name in names if name in outside]
    for module in (outside[name] for name in names if isinstance(outside.get(name), ModuleType)):
        # What a function names of a module stands beside the module's name among its own names.
        parts += [f"{module.__name__}.{name}={described(vars(module)[name], seen)}" for name in names if name in vars(module)]
    parts += [described(cell.cell_contents, seen) for cell in function.__closure__ or ()]
    return "|".join(parts)


def described(value: Any, seen: frozenset[int] = frozenset()) -> str:
    if isinstance(value, FunctionType):
        return description(value, seen)
    if isinstance(value, Formula):
        return value.key
    if isinstance(value, (tuple, list)):              # of functions, say: their addresses are other ones in each process
        return f"({', '.join(described(v, seen) for v in value)})"
    if isinstance(value, (set, frozenset)):           # in no fixed order
        return f"{{{', '.join(sorted(described(v, seen) for v in value))}}}"
    return getattr(value, "__name__", "") if isinstance(value, type(os)) else repr(value)


def _code(code: CodeType) -> str:
    constants = [described(c) if not isinstance(c, CodeType) else _code(c) for c in code.co_consts]
    return f"{code.co_name} {code.co_code.hex()} {constants} {code.co_names} {code.co_varnames}"


def _names(code: CodeType) -> list[str]:
    inner = [name for c in code.co_consts if isinstance(c, CodeType) for name in _names(c)]
    return [*code.co_names, *inner]


@functools.cache
def _process_addresses() -> tuple[tuple[int, int], ...]:
    record, parallel = pool.entry()
    python, address = ctypes.pythonapi, native.address_of
    return ((POOL, record), (PARALLEL, parallel), (NONE, id(None)), (INCREF, address(python.Py_IncRef)),
            (SAVE, address(python.PyEval_SaveThread)), (RESTORE, address(python.PyEval_RestoreThread)),
            (RING, journal.address()), (AS_INTEGER, address(python.PyLong_AsLongLong)), (AS_FLOAT, address(python.PyFloat_AsDouble)),
            (NDARRAY, id(np.ndarray)), (IS_SUBCLASS, address(python.PyType_IsSubtype)), (OCCURRED, address(python.PyErr_Occurred)),
            (REFUSE, address(python.PyErr_SetString)), (TYPE_ERROR, id(TypeError)))


@functools.cache
def _method() -> native.MethodDef:
    return never_freed(native.MethodDef(b"run_kernel", llvm.compile_symbols(_TEXT, ("run",), llvm.WRITTEN)["run"], 0x80, None))


def _run_by_ctypes(table: np.ndarray, chunks: int, release: bool, *args: Any) -> None:
    """The same without a builtin, for interpreters whose arrays look different inside."""
    slots = np.zeros(max(1, len(args)), np.int64)
    for k, arg in enumerate(args):
        if isinstance(arg, np.ndarray):
            slots[k] = arg.ctypes.data
        elif isinstance(arg, float):
            slots.view(np.float64)[k] = arg
        else:
            slots[k] = arg
    pool.parallel(int(table[FUNCTION]), slots.ctypes.data, chunks)


slot = native.slot


def _message(name: str, text: str) -> str:
    return f'@{name} = internal constant [{len(text) + 1} x i8] c"{text}\\00"'


_TEXT = f"""
{_message("miscounted.text", "a kernel was given another number of arguments than it was compiled for")}
{_message("no.array.text", "a kernel was given something else where it was compiled for an array")}

; The arguments are looked at before anything runs: a kernel follows what it is given.
define ptr @run(ptr %self, ptr %args, i64 %nargs) {{
entry:
  %plan.at = getelementptr i8, ptr %self, i64 {native.DATA_OFFSET}
  %plan = load ptr, ptr %plan.at
{slot("fn", FUNCTION, "ptr")}{slot("count", COUNT)}{slot("integer", AS_INTEGER, "ptr")}
{slot("float", AS_FLOAT, "ptr")}{slot("pool", POOL, "ptr")}{slot("parallel", PARALLEL, "ptr")}
{slot("ndarray", NDARRAY, "ptr")}{slot("occurred", OCCURRED, "ptr")}
  %room = add i64 %count, 2
  %counted = icmp eq i64 %nargs, %room
  br i1 %counted, label %begin, label %refuse
begin:
  %slots = alloca i64, i64 %room
  %chunks.o = load ptr, ptr %args
  %chunks = call i64 %integer(ptr %chunks.o)
  %release.at = getelementptr ptr, ptr %args, i64 1
  %release.o = load ptr, ptr %release.at
  %release = call i64 %integer(ptr %release.o)
  %first = getelementptr ptr, ptr %args, i64 2
  %kinds = getelementptr i64, ptr %plan, i64 {KINDS_AT}
  br label %collect
collect:
  %k = phi i64 [0, %begin], [%knext, %next]
  %left = icmp slt i64 %k, %count
  br i1 %left, label %one, label %ready
one:
  %a.at = getelementptr ptr, ptr %first, i64 %k
  %a = load ptr, ptr %a.at
  %to = getelementptr i64, ptr %slots, i64 %k
  %kind.at = getelementptr i64, ptr %kinds, i64 %k
  %kind = load i64, ptr %kind.at
  switch i64 %kind, label %array [i64 {_INTEGER}, label %whole
                                  i64 {_FLOAT}, label %real]
array:
  %class.at = getelementptr i8, ptr %a, i64 {native.TYPE_OFFSET}
  %class = load ptr, ptr %class.at
  %exact = icmp eq ptr %class, %ndarray
  br i1 %exact, label %take, label %derived
derived:
{slot("subclass", IS_SUBCLASS, "ptr")}
  %is.array = call i32 %subclass(ptr %class, ptr %ndarray)
  %may = icmp ne i32 %is.array, 0
  br i1 %may, label %take, label %refuse
take:
  %data.at = getelementptr i8, ptr %a, i64 {native.DATA_OFFSET}
  %data = load i64, ptr %data.at
  store i64 %data, ptr %to
  br label %next
whole:
  %n = call i64 %integer(ptr %a)
  store i64 %n, ptr %to
  br label %next
real:
  %x = call double %float(ptr %a)
  store double %x, ptr %to
  br label %next
next:
  %knext = add i64 %k, 1
  br label %collect
ready:
  %error = call ptr %occurred()
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %run.it, label %fail
run.it:
{slot("jring", RING, "ptr")}{journal.ir("j", "%plan", "%chunks")}
  %several = icmp sgt i64 %chunks, 1
  %asked = icmp ne i64 %release, 0
  %long = or i1 %several, %asked
  br i1 %long, label %free, label %held
free:
{slot("save", SAVE, "ptr")}{slot("restore", RESTORE, "ptr")}
  %state = call ptr %save()
  %r1 = call i64 %parallel(ptr %pool, ptr %fn, ptr %slots, i64 %chunks)
  call void %restore(ptr %state)
  br label %done
held:
  %r2 = call i64 %parallel(ptr %pool, ptr %fn, ptr %slots, i64 %chunks)
  br label %done
done:
{slot("none", NONE, "ptr")}{slot("incref", INCREF, "ptr")}
  call void %incref(ptr %none)
  ret ptr %none
refuse:
  %text = phi ptr [@miscounted.text, %entry], [@no.array.text, %derived]
{slot("say", REFUSE, "ptr")}{slot("type_error", TYPE_ERROR, "ptr")}
  call void %say(ptr %type_error, ptr %text)
  br label %fail
fail:
  ret ptr null
}}
"""

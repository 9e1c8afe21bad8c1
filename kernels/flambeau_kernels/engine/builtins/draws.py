"""Builtins that make an array of a few random numbers: sizes, memory and the kernel's call at once."""
from __future__ import annotations

from flambeau_kernels.engine.builtins import pyabi
from flambeau_kernels.engine.builtins.fastcall import Code, Module
from flambeau_kernels.engine.builtins.shapes import integer, require_type, start
from flambeau_kernels.engine.launching import call, journal

MOST_NORMALS = 4096                                   # numbers drawn while the interpreter lock is held
MOST = 1024                                           # of kernels with room for the words of as many
LEAST_NORMALS = 16                                    # numbers that are made by that kernel
EXTRA = 3                                             # arguments of a kernel behind the number of elements, at most


def normals(module: Module, name: str) -> None:
    """Add the builtin ``(table, state, position, tuple of sizes) -> float32 array``.

    `table` is that of the compiled `cpu.random.loops.draw_normals`, which gets its arguments: the words in `state`, of which
    `position` are used up. The caller sees to it that nobody else draws from them, and counts on.
    """
    code = start(name, 4)
    table, state, place, sizes = (code.element("%args", k, "ptr") for k in range(4))
    for item, kind in ((table, "ndarray"), (state, "ndarray"), (place, "int"), (sizes, "tuple")):
        require_type(code, item, kind)
    shape, dims, position = _shape(code, place, sizes, MOST_NORMALS)
    code.require(code.let(f"icmp uge i64 %count.next, {LEAST_NORMALS}"))
    _draw(code, table, state, position, code.slot("float32"), dims, shape, ("double 0.0", "double 1.0"))
    module.functions.append(code.text())


def draws(module: Module, name: str) -> None:
    """Add the builtin ``(table, state, position, tuple of sizes, like, numbers) -> array of the dtype of the array `like``.

    As `normals`, for any kernel that has a state, the result, a position and the number of elements for its first arguments;
    `numbers`, an array of `EXTRA` words, are the bits of the others. The caller sees to it that `like` is what the kernel fills.
    """
    code = start(name, 6)
    table, state, place, sizes, like, numbers = (code.element("%args", k, "ptr") for k in range(6))
    kinds = ("ndarray", "ndarray", "int", "tuple", "ndarray", "ndarray")
    for item, kind in zip((table, state, place, sizes, like, numbers), kinds, strict=True):
        require_type(code, item, kind)
    shape, dims, position = _shape(code, place, sizes, MOST)
    given = code.field(numbers, pyabi.DATA, "ptr")
    extra = tuple(f"i64 {code.element(given, k, 'i64')}" for k in range(EXTRA))
    _draw(code, table, state, position, code.field(like, pyabi.DTYPE, "ptr"), dims, shape, extra)
    module.functions.append(code.text())


def redraws(module: Module, name: str) -> None:
    """Add the builtin ``(table, state, position, array, numbers) -> array``: `draws` into a writable `array` in C order."""
    code = start(name, 5)
    table, state, place, made, numbers = (code.element("%args", k, "ptr") for k in range(5))
    for item, kind in zip((table, state, place, made, numbers), ("ndarray", "ndarray", "int", "ndarray", "ndarray"), strict=True):
        require_type(code, item, kind)
    position = integer(code, place, code.let("alloca i32"))
    wanted = pyabi.C_CONTIGUOUS | pyabi.ALIGNED | pyabi.WRITEABLE
    flags = code.let(f"and i32 {code.field(made, pyabi.FLAGS, 'i32')}, {wanted}")
    code.require(code.let(f"icmp eq i32 {flags}, {wanted}"))
    count = code.let(f"call i64 @count(ptr {made})")
    code.require(code.let(f"icmp ult i64 {code.let(f'sub i64 {count}, 1')}, {MOST}"))
    given = code.field(numbers, pyabi.DATA, "ptr")
    extra = tuple(f"i64 {code.element(given, k, 'i64')}" for k in range(EXTRA))
    _fill(code, table, state, position, made, count, extra)
    code.do(f"call void {code.slot('incref')}(ptr {made})", f"ret ptr {made}")
    module.functions.append(code.text())


def _shape(code: Code, place: str, sizes: str, most: int) -> tuple[str, str, str]:
    """The sizes in a C array, how many there are, and the position; ``%count.next`` elements, of which there may be `most`."""
    overflow, shape = code.let("alloca i32"), code.let(f"alloca [{pyabi.MOST_DIMS} x i64]")
    n = code.field(sizes, pyabi.LENGTH, "i64")
    code.require(code.let(f"icmp ult i64 {code.let(f'sub i64 {n}, 1')}, {pyabi.MOST_DIMS}"))
    position = integer(code, place, overflow)
    items = code.let(f"getelementptr i8, ptr {sizes}, i64 {pyabi.TUPLE_ITEMS}")
    code.do("br label %sizes")
    code.label("sizes")
    code.do("br label %size")
    code.label("size")
    code.do("%i = phi i64 [0, %sizes], [%i.next, %size.done]", "%count = phi i64 [1, %sizes], [%count.next, %size.done]")
    item = code.element(items, "%i", "ptr")
    require_type(code, item, "int")
    length = integer(code, item, overflow)
    code.require(code.let(f"icmp ult i64 {code.let(f'sub i64 {length}, 1')}, {most}"))
    code.do(f"%count.next = mul i64 %count, {length}")
    code.require(code.let(f"icmp ule i64 %count.next, {most}"))
    code.do(f"store i64 {length}, ptr {code.let(f'getelementptr i64, ptr {shape}, i64 %i')}", "br label %size.done")
    code.label("size.done")
    code.do("%i.next = add nuw nsw i64 %i, 1", f"%more = icmp slt i64 %i.next, {n}",
            "br i1 %more, label %size, label %counted, !llvm.loop !0")
    code.label("counted")
    return shape, code.let(f"trunc i64 {n} to i32"), position


def _draw(code: Code, table: str, state: str, position: str, dtype: str, dims: str, shape: str, extra: tuple[str, ...]) -> None:
    """Return a new array that the kernel of `table` has filled."""
    made = code.let(f"call ptr @new_array(ptr %table, ptr {dtype}, i32 {dims}, ptr {shape})")
    code.return_null_if_null(made)
    _fill(code, table, state, position, made, "%count.next", extra)
    code.do(f"ret ptr {made}")


def _fill(code: Code, table: str, state: str, position: str, made: str, count: str, extra: tuple[str, ...]) -> None:
    """Let the kernel of `table` fill the array `made` of `count` elements."""
    plan = code.field(table, pyabi.DATA, "ptr")
    code.do(f"%jring = load ptr, ptr {code.let(f'getelementptr i64, ptr {plan}, i64 {call.RING}')}",
            *(line.strip() for line in journal.ir("j", plan, "1").strip().splitlines()))
    slots = code.let(f"alloca [{4 + len(extra)} x i64]")  # of `call`
    given = ((f"ptr {code.field(state, pyabi.DATA, 'ptr')}"), f"ptr {code.field(made, pyabi.DATA, 'ptr')}", f"i64 {position}",
             f"i64 {count}", *extra)
    for k, value in enumerate(given):
        code.do(f"store {value}, ptr {code.let(f'getelementptr i64, ptr {slots}, i64 {k}')}")
    kernel = code.let(f"load ptr, ptr {code.let(f'getelementptr i64, ptr {plan}, i64 {call.FUNCTION}')}")
    code.do(f"call void {kernel}(i64 0, ptr {slots})")

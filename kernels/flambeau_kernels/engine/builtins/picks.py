"""Builtins that pick, store or add elements of small arrays at places that an array of int64 names.

Places are all looked at before anything is written, and one out of range is refused, so that the fallback says what is
wrong. An array counts as ``(outer, n, inner)``, `n` being the length of the dimension that is indexed.
"""
from __future__ import annotations

from collections.abc import Callable

from flambeau_kernels.engine.builtins import pyabi
from flambeau_kernels.engine.builtins.fastcall import C_ORDER, Code, Module
from flambeau_kernels.engine.builtins.products import rounded_to_bfloat16, widened_bfloat16
from flambeau_kernels.engine.builtins.shapes import dimension, integer, loop, require_type, start

MOST = 1 << 15                                        # elements moved; more repay threads, and should not hold the lock
PICK, PUT, ADD = "pick", "put", "add"
MOST_WIDENED = 1 << 14                                # elements of an array of halves that something is added to: it is widened as a whole
# What is moved is so many bits, whatever they mean; what is added is of these.
_MOVED = {"float32": 32, "float64": 64, "int64": 64, "bfloat16": 16, "float16": 16, "int32": 32, "int16": 16, "int8": 8, "uint8": 8,
          "bool": 8}  # fmt: skip
_ADDED = {"float32": "float", "float64": "double", "int64": "i64"}
_HALVES = ("bfloat16", "float16")
_DTYPES = {PICK: tuple(_MOVED), PUT: tuple(_MOVED), ADD: (*_ADDED, *_HALVES)}


def picks(module: Module) -> None:
    """Add the builtins that move elements by index, of all dtypes of 1, 2, 4 and 8 bytes, or add floats and int64.

    Halves are added in float32, and rounded once all have been added.

    ``pick_along(array, dim, index)`` is `gather`, of an index of the array's shape but for `dim`. ``put_along(array, dim,
    index, values)`` and ``add_along`` are `scatter` and `scatter_add` in place, of values of the shape of the index;
    ``put_slices`` and ``add_slices`` are `index_copy` and `index_add` in place, of a vector. They give the array back.
    ``pick_slices(array, dim, index)`` is `index_select` by an index of any shape, whose dimensions come in the place of `dim`.
    ``pick_pairs(matrix, rows, columns)`` is ``matrix[rows, columns]``, where negative places count from the end.
    """
    module.needs.add("declare i64 @llvm.umax.i64(i64, i64)")
    module.functions += [_product(), _alike(), _within(), _separate(), _pick_pair()]
    module.functions += [_move(does, f"i{bits}") for does in (PICK, PUT) for bits in sorted({*_MOVED.values()})]
    module.functions += [_move(ADD, kind) for kind in (*_ADDED, *_HALVES)]
    module.functions += [_add_halves(kind) for kind in _HALVES]
    _slices(module, "pick_slices")
    for does in (PICK, PUT, ADD):
        _along(module, f"{does}_along", does, slices=False)
    for does in (PUT, ADD):
        _along(module, f"{does}_slices", does, slices=True)
    _pairs(module, "pick_pairs")


def _along(module: Module, name: str, does: str, slices: bool) -> None:
    code = start(name, 3 if does is PICK else 4)
    overflow = code.let("alloca i32")
    array, number, index = (code.element("%args", k, "ptr") for k in range(3))
    dtype = _require_array(code, array, C_ORDER if does is PICK else C_ORDER | pyabi.WRITEABLE, _DTYPES[does])
    require_type(code, number, "int")
    _require_places(code, index)
    ndim = _dims(code, array)
    d = dimension(code, integer(code, number, overflow), ndim)
    behind = code.let(f"add i64 {d}, 1")
    values = code.element("%args", 3, "ptr") if does is not PICK else index
    if does is not PICK:
        code.require(code.let(f"call i1 @fits(ptr %table, ptr {values}, ptr {dtype}, i32 {C_ORDER})"))
    # What is picked or stored has the array's shape, but for the dimension meant.
    code.require(code.let(f"icmp eq i64 {_dims(code, values)}, {ndim}"))
    lengths, moved = code.field(array, pyabi.SHAPE, "ptr"), code.field(values, pyabi.SHAPE, "ptr")
    for first, last in (("0", d), (behind, ndim)):
        code.require(code.let(f"call i1 @alike(ptr {lengths}, ptr {moved}, i64 {first}, i64 {last})"))
    m, n = code.element(moved, d, "i64"), code.element(lengths, d, "i64")
    if slices:
        code.require(code.let(f"icmp eq i64 {_dims(code, index)}, 1"))
        code.require(code.let(f"icmp eq i64 {code.element(code.field(index, pyabi.SHAPE, 'ptr'), 0, 'i64')}, {m}"))
    elif does is not PICK:
        code.require(code.let(f"call i1 @same_shape(ptr {index}, ptr {values})"))
    count = _require_count(code, values)
    places = count if not slices else m
    data = code.field(index, pyabi.DATA, "ptr")
    code.require(code.let(f"call i1 @within(ptr {data}, i64 {places}, i64 0, i64 {n})"))
    outer = code.let(f"call i64 @product(ptr {lengths}, i64 0, i64 {d})")
    inner = code.let(f"call i64 @product(ptr {lengths}, i64 {behind}, i64 {ndim})")
    steps = ("0", "1", "0") if slices else (code.let(f"mul i64 {m}, {inner}"), inner, "1")
    size = code.field(dtype, pyabi.ITEM_SIZE, "i64")
    all = code.let(f"call i64 @count(ptr {array})")
    if does is PICK:
        made = code.let(f"call ptr @new_array(ptr %table, ptr {dtype}, i32 {code.field(index, pyabi.NDIM, 'i32')}, ptr {moved})")
        code.return_null_if_null(made)
        to, of = made, array
    else:
        bytes = code.let(f"mul i64 {all}, {size}")
        for other, length in ((index, code.let(f"mul i64 {places}, 8")), (values, code.let(f"mul i64 {count}, {size}"))):
            code.require(code.let(f"call i1 @separate(ptr {array}, i64 {bytes}, ptr {other}, i64 {length})"))
        to, of = array, values
    operands = ", ".join([f"ptr {code.field(to, pyabi.DATA, 'ptr')}", f"ptr {data}", f"ptr {code.field(of, pyabi.DATA, 'ptr')}",
                          *(f"i64 {k}" for k in (outer, m, inner, n, *steps))])  # fmt: skip
    if does is ADD:
        _add(code, dtype, operands, all)
    else:
        _move_bits(code, size, does, operands)
    if does is not PICK:
        code.do(f"call void {code.slot('incref')}(ptr {to})")
    code.do(f"ret ptr {to}")
    module.functions.append(code.text())


def _slices(module: Module, name: str) -> None:
    code = start(name, 3)
    overflow, shape = code.let("alloca i32"), code.let(f"alloca [{pyabi.MOST_DIMS} x i64]")
    array, number, index = (code.element("%args", k, "ptr") for k in range(3))
    dtype = _require_array(code, array, C_ORDER, _DTYPES[PICK])
    require_type(code, number, "int")
    _require_places(code, index)
    ndim, more = _dims(code, array), _dims(code, index)
    for dims in (ndim, more):
        code.require(code.let(f"icmp ule i64 {dims}, {pyabi.MOST_DIMS // 2}"))
    d = dimension(code, integer(code, number, overflow), ndim)
    behind = code.let(f"add i64 {d}, 1")
    lengths, own = (code.field(item, pyabi.SHAPE, "ptr") for item in (array, index))
    outer = code.let(f"call i64 @product(ptr {lengths}, i64 0, i64 {d})")
    inner = code.let(f"call i64 @product(ptr {lengths}, i64 {behind}, i64 {ndim})")
    m, n, data = _require_count(code, index), code.element(lengths, d, "i64"), code.field(index, pyabi.DATA, "ptr")
    # None of the three is large, so that their product does not overflow.
    for length in (outer, inner):
        code.require(code.let(f"icmp ult i64 {code.let(f'sub i64 {length}, 1')}, {MOST}"))
    count = code.let(f"mul i64 {code.let(f'mul i64 {outer}, {inner}')}, {m}")
    code.require(code.let(f"icmp ule i64 {count}, {MOST}"))
    code.require(code.let(f"call i1 @within(ptr {data}, i64 {m}, i64 0, i64 {n})"))
    at = "0"
    for k, (lengths_of, first, last) in enumerate(((lengths, "0", d), (own, "0", more), (lengths, behind, ndim))):
        i, done = loop(code, f"length.{k}.", code.let(f"sub i64 {last}, {first}"))
        length = code.element(lengths_of, code.let(f"add i64 {i}, {first}"), "i64")
        to = code.let(f"add i64 {i}, {at}")
        code.do(f"store i64 {length}, ptr {code.let(f'getelementptr i64, ptr {shape}, i64 {to}')}")
        done()
        at = d if not k else code.let(f"add i64 {d}, {more}")
    together = code.let(f"add i64 {ndim}, {more}")
    dims = code.let(f"trunc i64 {code.let(f'sub i64 {together}, 1')} to i32")
    made = code.let(f"call ptr @new_array(ptr %table, ptr {dtype}, i32 {dims}, ptr {shape})")
    code.return_null_if_null(made)
    operands = ", ".join([f"ptr {code.field(made, pyabi.DATA, 'ptr')}", f"ptr {data}", f"ptr {code.field(array, pyabi.DATA, 'ptr')}",
                          *(f"i64 {k}" for k in (outer, m, inner, n, "0", "1", "0"))])  # fmt: skip
    _move_bits(code, code.field(dtype, pyabi.ITEM_SIZE, "i64"), PICK, operands)
    code.do(f"ret ptr {made}")
    module.functions.append(code.text())


def _pairs(module: Module, name: str) -> None:
    code = start(name, 3)
    array, rows, columns = (code.element("%args", k, "ptr") for k in range(3))
    dtype = _require_array(code, array, C_ORDER, _DTYPES[PICK])
    for index in (rows, columns):
        _require_places(code, index)
    code.require(code.let(f"icmp eq i64 {_dims(code, array)}, 2"))
    code.require(code.let(f"call i1 @same_shape(ptr {rows}, ptr {columns})"))
    count = _require_count(code, rows)
    lengths = code.field(array, pyabi.SHAPE, "ptr")
    n, m = code.element(lengths, 0, "i64"), code.element(lengths, 1, "i64")
    places = [code.field(index, pyabi.DATA, "ptr") for index in (rows, columns)]
    for place, length in zip(places, (n, m), strict=True):
        least = code.let(f"sub i64 0, {length}")
        code.require(code.let(f"call i1 @within(ptr {place}, i64 {count}, i64 {least}, i64 {length})"))
    shape = code.field(rows, pyabi.SHAPE, "ptr")
    made = code.let(f"call ptr @new_array(ptr %table, ptr {dtype}, i32 {code.field(rows, pyabi.NDIM, 'i32')}, ptr {shape})")
    code.return_null_if_null(made)
    to, of = (code.field(item, pyabi.DATA, "ptr") for item in (made, array))
    size = code.field(dtype, pyabi.ITEM_SIZE, "i64")
    i, done = loop(code, "pair", count)
    place = code.let(f"call i64 @pair(i64 {code.element(places[0], i, 'i64')}, i64 {code.element(places[1], i, 'i64')}, "
                     f"i64 {n}, i64 {m})")  # fmt: skip
    source, target = (code.let(f"getelementptr i8, ptr {p}, i64 {code.let(f'mul i64 {k}, {size}')}") for p, k in ((of, place), (to, i)))
    _for_each_size(code, size, lambda bits: code.do(f"store {bits} {code.let(f'load {bits}, ptr {source}')}, ptr {target}"))
    done()
    code.do(f"ret ptr {made}")
    module.functions.append(code.text())


# -- checks --------------------------------------------------------------------------------------------------------------


def _require_array(code: Code, item: str, flags: int, dtypes: tuple[str, ...]) -> str:
    """The dtype of `item`, which must be an array of one of these, with these flags."""
    require_type(code, item, "ndarray")
    has = code.let(f"and i32 {code.field(item, pyabi.FLAGS, 'i32')}, {flags}")
    code.require(code.let(f"icmp eq i32 {has}, {flags}"))
    dtype = code.field(item, pyabi.DTYPE, "ptr")
    known = "false"
    for kind in dtypes:
        known = code.let(f"or i1 {known}, {code.let(f'icmp eq ptr {dtype}, {code.slot(kind)}')}")
    code.require(known)
    return dtype


def _require_places(code: Code, item: str) -> None:
    code.require(code.let(f"call i1 @fits(ptr %table, ptr {item}, ptr {code.slot('int64')}, i32 {C_ORDER})"))


def _require_count(code: Code, item: str) -> str:
    """The number of elements of `item`, not 0 and not large."""
    count = code.let(f"call i64 @count(ptr {item})")
    code.require(code.let(f"icmp ult i64 {code.let(f'sub i64 {count}, 1')}, {MOST}"))
    return count


def _dims(code: Code, item: str) -> str:
    return code.let(f"sext i32 {code.field(item, pyabi.NDIM, 'i32')} to i64")


def _move_bits(code: Code, size: str, does: str, operands: str) -> None:
    _for_each_size(code, size, lambda bits: code.do(f"call void @move.{does}.{bits}({operands})"))


def _add(code: Code, dtype: str, operands: str, count: str) -> None:
    """Add to an array of `count` elements."""
    for kind in (*_ADDED, *_HALVES):
        code.branch(code.let(f"icmp eq ptr {dtype}, {code.slot(kind)}"), f"is.{kind}", f"not.{kind}")
        code.label(f"is.{kind}")
        if kind in _HALVES:
            code.require(code.let(f"icmp ule i64 {count}, {MOST_WIDENED}"))
            code.do(f"call void @add.{kind}({operands}, i64 {count})")
        else:
            code.do(f"call void @move.{ADD}.{kind}({operands})")
        code.do("br label %written")
        code.label(f"not.{kind}")
    code.do("br label %written")
    code.label("written")


def _for_each_size(code: Code, size: str, write: Callable[[str], None]) -> None:
    """What `write` writes for the integer of each `size`, a number of bytes."""
    for bits in sorted({*_MOVED.values()}):
        code.branch(code.let(f"icmp eq i64 {size}, {bits // 8}"), f"is.{bits}", f"not.{bits}")
        code.label(f"is.{bits}")
        write(f"i{bits}")
        code.do("br label %written")
        code.label(f"not.{bits}")
    code.do("br label %written")
    code.label("written")


# -- functions they call -------------------------------------------------------------------------------------------------


def _product() -> str:
    """The product of the lengths from one dimension up to another."""
    code = Code("internal i64 @product(ptr %lengths, i64 %first, i64 %last)")
    code.do("br label %head")
    code.label("head")
    code.do("%i = phi i64 [%first, %entry], [%i.next, %step]", "%p = phi i64 [1, %entry], [%p.next, %step]")
    code.branch(code.let("icmp slt i64 %i, %last"), "step", "done")
    code.label("step")
    code.do(f"%p.next = mul i64 %p, {code.element('%lengths', '%i', 'i64')}", "%i.next = add i64 %i, 1",
            "br label %head, !llvm.loop !0")
    code.label("done")
    code.do("ret i64 %p")
    return code.text()


def _alike() -> str:
    """Whether two shapes agree from one dimension up to another."""
    code = Code("internal i1 @alike(ptr %a, ptr %b, i64 %first, i64 %last)")
    code.do("br label %head")
    code.label("head")
    code.do("%i = phi i64 [%first, %entry], [%i.next, %step]")
    code.branch(code.let("icmp slt i64 %i, %last"), "look", "yes")
    code.label("look")
    lengths = [code.element(shape, "%i", "i64") for shape in ("%a", "%b")]
    code.branch(code.let(f"icmp eq i64 {lengths[0]}, {lengths[1]}"), "step", "no")
    code.label("step")
    code.do("%i.next = add i64 %i, 1", "br label %head, !llvm.loop !0")
    code.label("yes")
    code.do("ret i1 true")
    code.label("no")
    code.do("ret i1 false")
    return code.text()


def _within() -> str:
    """Whether all places, of which there are some, lie in ``[least, n)``: the largest of them tells, as they count from `least`."""
    code = Code("internal i1 @within(ptr %places, i64 %count, i64 %least, i64 %n)")
    width = code.let("sub i64 %n, %least")
    code.do("br label %place")
    code.label("place")
    code.do("%i = phi i64 [0, %entry], [%i.next, %place]", "%worst = phi i64 [0, %entry], [%worst.next, %place]")
    above = code.let(f"sub i64 {code.element('%places', '%i', 'i64')}, %least")
    code.do(f"%worst.next = call i64 @llvm.umax.i64(i64 %worst, i64 {above})", "%i.next = add nuw nsw i64 %i, 1",
            "%more = icmp ult i64 %i.next, %count", "br i1 %more, label %place, label %done")
    code.label("done")
    code.do(f"ret i1 {code.let(f'icmp ult i64 %worst.next, {width}')}")
    return code.text()


def _separate() -> str:
    """Whether two arrays have no memory in common."""
    code = Code("internal i1 @separate(ptr %a, i64 %a.bytes, ptr %b, i64 %b.bytes)")
    a, b = (code.let(f"ptrtoint ptr {code.field(item, pyabi.DATA, 'ptr')} to i64") for item in ("%a", "%b"))
    before = code.let(f"icmp ule i64 {code.let(f'add i64 {a}, %a.bytes')}, {b}")
    after = code.let(f"icmp ule i64 {code.let(f'add i64 {b}, %b.bytes')}, {a}")
    code.do(f"ret i1 {code.let(f'or i1 {before}, {after}')}")
    return code.text()


def _pick_pair() -> str:
    """Where in a matrix of ``(n, m)`` a row and a column meet; below zero they count from the end."""
    code = Code("internal i64 @pair(i64 %row, i64 %column, i64 %n, i64 %m) alwaysinline")
    at = [code.let(f"select i1 {code.let(f'icmp slt i64 {k}, 0')}, i64 {code.let(f'add i64 {k}, {n}')}, i64 {k}")
          for k, n in (("%row", "%n"), ("%column", "%m"))]  # fmt: skip
    before = code.let(f"mul i64 {at[0]}, %m")
    code.do(f"ret i64 {code.let(f'add i64 {before}, {at[1]}')}")
    return code.text()


def _add_halves(kind: str) -> str:
    """Add to an array of `count` halves as a whole, in float32: its elements are rounded when all has been added."""
    code = Code(f"internal void @add.{kind}({_POINTERS}, {_NUMBERS}, i64 %count)")
    wide = code.let(f"alloca [{MOST_WIDENED} x float]")
    i, done = loop(code, "widen", "%count", vectors=True)
    code.do(f"store float {_read(code, '%to', i, kind)}, ptr {code.let(f'getelementptr float, ptr {wide}, i64 {i}')}")
    done()
    numbers = ", ".join(f"i64 %{name}" for name in _NUMBER_NAMES)
    code.do(f"call void @move.{ADD}.{kind}(ptr {wide}, ptr %places, ptr %of, {numbers})")
    i, done = loop(code, "round", "%count", vectors=True)
    total = code.element(wide, i, "float")
    stored = "half" if kind == "float16" else "i16"
    value = code.let(f"fptrunc float {total} to half") if kind == "float16" else rounded_to_bfloat16(code, total)
    code.do(f"store {stored} {value}, ptr {code.let(f'getelementptr {stored}, ptr %to, i64 {i}')}")
    done()
    code.do("ret void")
    return code.text()


def _read(code: Code, data: str, index: str, kind: str) -> str:
    """Element `index` of the array at `data`; a half as a float."""
    if kind == "bfloat16":
        return widened_bfloat16(code, data, index)
    if kind == "float16":
        return code.let(f"fpext half {code.element(data, index, 'half')} to float")
    return code.element(data, index, _ADDED.get(kind, kind))


_NUMBER_NAMES = ("outer", "m", "inner", "n", "so", "sm", "si")
_NUMBERS = ", ".join(f"i64 %{name}" for name in _NUMBER_NAMES)
_POINTERS = "ptr noalias %to, ptr noalias readonly %places, ptr noalias readonly %of"


def _move(does: str, kind: str) -> str:
    """Visit the places in row-major order; `so`, `sm` and `si` are the steps of the index.

    There are three loops: of single elements along the last dimension, of slices, and of everything else. `kind` is an integer for what
    is moved, else a dtype; halves are added to floats.
    """
    code = Code(f"internal void @move.{does}.{kind}({_POINTERS}, {_NUMBERS})")
    code.branch(code.let("icmp eq i64 %inner, 1"), "single", "several")
    code.label("single")
    _visit(code, does, kind, "single", inner="1", separate=False)
    code.do("ret void")
    code.label("several")
    code.branch(code.let("icmp eq i64 %si, 0"), "together", "separate")
    for name in ("together", "separate"):
        code.label(name)
        _visit(code, does, kind, name, inner="%inner", separate=name == "separate")
        code.do("ret void")
    return code.text()


def _visit(code: Code, does: str, kind: str, name: str, inner: str, separate: bool) -> None:
    """The loops for a number of neighbours `inner`, which have a place each if they go `separate`."""
    llvm = "float" if kind in _HALVES else _ADDED.get(kind, kind)
    o, outer_done = loop(code, f"{name}.outer.", "%outer")
    k, along_done = loop(code, f"{name}.along.", "%m")
    row = code.let(f"add i64 {code.let(f'mul i64 {o}, %m')}, {k}")
    line = code.let(f"mul i64 {row}, {inner}")
    first = code.let(f"add i64 {code.let(f'mul i64 {o}, %so')}, {code.let(f'mul i64 {k}, %sm')}")
    before = code.let(f"mul i64 {o}, %n")
    common = None if separate else code.let(f"add i64 {before}, {code.element('%places', first, 'i64')}")
    if inner == "1":
        i, inner_done = "0", None
    else:
        i, inner_done = loop(code, f"{name}.inner.", inner, vectors=not separate)
    place = common or code.let(f"add i64 {before}, {code.element('%places', code.let(f'add i64 {first}, {i}'), 'i64')}")
    far = code.let(f"add i64 {code.let(f'mul i64 {place}, {inner}')}, {i}")
    near = code.let(f"add i64 {line}, {i}")
    read, written = (far, near) if does is PICK else (near, far)
    value = _read(code, "%of", read, kind)
    target = code.let(f"getelementptr {llvm}, ptr %to, i64 {written}")
    if does is ADD:
        value = code.let(f"{'add' if kind == 'int64' else 'fadd'} {llvm} {code.let(f'load {llvm}, ptr {target}')}, {value}")
    code.do(f"store {llvm} {value}, ptr {target}")
    if inner_done is not None:
        inner_done()
    along_done()
    outer_done()

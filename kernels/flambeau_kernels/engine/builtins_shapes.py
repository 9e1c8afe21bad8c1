"""Builtins that move elements, or give them another shape: joining a few small arrays, and views of contiguous ones."""
from __future__ import annotations

from flambeau_kernels.engine import pyabi
from flambeau_kernels.engine.fastcall import C_ORDER, Code, Module

MOST_JOINED = 8                                       # arrays; numpy's cost for each is small beside that of a call
MOST_BYTES = 65536                                    # of a result: larger ones repay threads
MOST_PIECES = 256                                     # calls of memcpy, which are slow for a few bytes each
_EIGHT, _FOUR = ("float64", "int64"), ("float32",)    # dtypes by the bytes of an element


def join(module: Module, name: str, new_dimension: bool) -> None:
    """Add the builtin ``(list of arrays, dim) -> array``: one after another along `dim`, or along a new one there.

    The arrays are of one dtype, in C order, none of them empty, and of one shape but for the length of `dim`.
    """
    code = start(name)
    overflow, shape = code.let("alloca i32"), code.let(f"alloca [{pyabi.MOST_DIMS} x i64]")
    listing, number = code.element("%args", 0, "ptr"), code.element("%args", 1, "ptr")
    require_type(code, listing, "list")
    require_type(code, number, "int")
    n = code.field(listing, pyabi.LENGTH, "i64")
    code.require(code.let(f"icmp ult i64 {code.let(f'sub i64 {n}, 1')}, {MOST_JOINED}"))
    items = code.field(listing, pyabi.LIST_ITEMS, "ptr")
    wanted = integer(code, number, overflow)

    first = code.element(items, 0, "ptr")
    require_type(code, first, "ndarray")
    dtype = code.field(first, pyabi.DTYPE, "ptr")
    same = {k: code.let(f"icmp eq ptr {dtype}, {code.slot(k)}") for k in _EIGHT + _FOUR}
    eight = code.let(f"or i1 {same[_EIGHT[0]]}, {same[_EIGHT[1]]}")
    code.require(code.let(f"or i1 {eight}, {same[_FOUR[0]]}"))
    item = code.let(f"select i1 {eight}, i64 8, i64 4")
    ndim = code.let(f"sext i32 {code.field(first, pyabi.NDIM, 'i32')} to i64")
    dims = code.let(f"add i64 {ndim}, {int(new_dimension)}")
    code.require(code.let(f"icmp ult i64 {code.let(f'sub i64 {dims}, 1')}, {pyabi.MOST_DIMS}"))
    counted = code.let(f"add i64 {wanted}, {dims}")   # from the front, where `wanted` is negative
    code.require(code.let(f"icmp ult i64 {counted}, {code.let(f'mul i64 {dims}, 2')}"))
    backward = code.let(f"icmp slt i64 {wanted}, 0")
    d = code.let(f"select i1 {backward}, i64 {counted}, i64 {wanted}")
    lengths = code.field(first, pyabi.SHAPE, "ptr")
    elements, along = _sizes(code, items, n, first, dtype, lengths, ndim, "-1" if new_dimension else d)
    size = code.let(f"mul i64 {elements}, {item}")
    code.require(code.let(f"icmp ule i64 {size}, {MOST_BYTES}"))

    outer = _product(code, lengths, d)
    code.require(code.let(f"icmp ule i64 {code.let(f'mul i64 {outer}, {n}')}, {MOST_PIECES}"))
    _copy(code, shape, lengths, code.let(f"mul i64 {d}, 8"))
    here = code.let(f"getelementptr i64, ptr {shape}, i64 {d}")
    code.do(f"store i64 {n if new_dimension else along}, ptr {here}")
    rest = code.let(f"getelementptr i64, ptr {lengths}, i64 {d if new_dimension else code.let(f'add i64 {d}, 1')}")
    behind = code.let(f"sub i64 {dims}, {code.let(f'add i64 {d}, 1')}")
    _copy(code, code.let(f"getelementptr i64, ptr {here}, i64 1"), rest, code.let(f"mul i64 {behind}, 8"))
    made = code.let(f"call ptr @new_array(ptr %table, ptr {dtype}, i32 {code.let(f'trunc i64 {dims} to i32')}, ptr {shape})")
    code.return_null_if_null(made)
    _pieces(code, items, n, outer, code.field(made, pyabi.DATA, "ptr"), size, item)
    code.do(f"ret ptr {made}")
    module.functions.append(code.text())


def view(module: Module, name: str) -> None:
    """Add the builtin ``(array, tuple of sizes) -> view`` of an array in C order that is not empty.

    One size may be -1, which is worked out.
    """
    code = start(name)
    overflow, shape = code.let("alloca i32"), code.let(f"alloca [{pyabi.MOST_DIMS} x i64]")
    array, sizes = code.element("%args", 0, "ptr"), code.element("%args", 1, "ptr")
    require_type(code, sizes, "tuple")
    require_type(code, array, "ndarray")
    flags = code.field(array, pyabi.FLAGS, "i32")
    ordered = code.let(f"and i32 {flags}, {pyabi.C_CONTIGUOUS}")
    code.require(code.let(f"icmp ne i32 {ordered}, 0"))
    n = code.field(sizes, pyabi.LENGTH, "i64")
    code.require(code.let(f"icmp ult i64 {code.let(f'sub i64 {n}, 1')}, {pyabi.MOST_DIMS}"))
    count = code.let(f"call i64 @count(ptr {array})")
    # A size is no more than that, nor is the product of those before: it does not overflow.
    code.require(code.let(f"icmp ult i64 {code.let(f'sub i64 {count}, 1')}, {1 << 31}"))
    items = code.let(f"getelementptr i8, ptr {sizes}, i64 {pyabi.TUPLE_ITEMS}")
    code.do("br label %sizes")
    code.label("sizes")
    code.do("br label %size")
    code.label("size")
    code.do("%i = phi i64 [0, %sizes], [%i.next, %size.done]", "%product = phi i64 [1, %sizes], [%product.next, %size.done]",
            "%open = phi i64 [-1, %sizes], [%open.next, %size.done]")
    item = code.element(items, "%i", "ptr")
    require_type(code, item, "int")
    given = integer(code, item, overflow)
    unknown = code.let(f"icmp eq i64 {given}, -1")
    length = code.let(f"select i1 {unknown}, i64 1, i64 {given}")
    code.require(code.let(f"icmp ult i64 {code.let(f'sub i64 {length}, 1')}, {count}"))
    code.do(f"%product.next = mul i64 %product, {length}")
    code.require(code.let(f"icmp ule i64 %product.next, {count}"))
    taken = code.let("icmp ne i64 %open, -1")
    code.require(code.let(f"xor i1 {code.let(f'and i1 {taken}, {unknown}')}, true"))
    code.do(f"%open.next = select i1 {unknown}, i64 %i, i64 %open",
            f"store i64 {length}, ptr {code.let(f'getelementptr i64, ptr {shape}, i64 %i')}", "br label %size.done")
    code.label("size.done")
    code.do("%i.next = add nuw nsw i64 %i, 1", f"%more = icmp slt i64 %i.next, {n}",
            "br i1 %more, label %size, label %counted, !llvm.loop !0")
    code.label("counted")
    inferred = code.let("icmp ne i64 %open.next, -1")
    code.branch(inferred, "infer", "given")
    code.label("infer")
    quotient = code.let(f"udiv i64 {count}, %product.next")
    code.do(f"store i64 {quotient}, ptr {code.let(f'getelementptr i64, ptr {shape}, i64 %open.next')}",
            f"%whole = mul i64 {quotient}, %product.next", "br label %given")
    code.label("given")
    code.do("%all = phi i64 [%product.next, %counted], [%whole, %infer]")
    code.require(code.let(f"icmp eq i64 %all, {count}"))

    dtype = code.field(array, pyabi.DTYPE, "ptr")
    kept = code.let(f"and i32 {flags}, {pyabi.C_CONTIGUOUS | pyabi.ALIGNED | pyabi.WRITEABLE}")
    code.do(f"call void {code.slot('incref')}(ptr {dtype})")  # numpy takes this reference over
    made = code.let(f"call ptr {code.slot('new_array')}(ptr {code.slot('ndarray')}, ptr {dtype}, "
                    f"i32 {code.let(f'trunc i64 {n} to i32')}, ptr {shape}, ptr null, "
                    f"ptr {code.field(array, pyabi.DATA, 'ptr')}, i32 {kept}, ptr null)")
    code.return_null_if_null(made)
    code.do(f"call void {code.slot('incref')}(ptr {array})")  # and this one
    status = code.let(f"call i32 {code.slot('set_base')}(ptr {made}, ptr {array})")
    failed = code.let(f"icmp ne i32 {status}, 0")
    code.branch(failed, "baseless", "based")
    code.label("baseless")
    code.do(f"call void {code.slot('decref')}(ptr {made})", "ret ptr null")
    code.label("based")
    code.do(f"ret ptr {made}")
    module.functions.append(code.text())


def start(name: str, arguments: int = 2) -> Code:
    """The exported function `fb_<name>` up to the check of the number of arguments."""
    code = Code(f"ptr @fb_{name}(ptr %self, ptr %args, i64 %nargs)")
    code.do(f"%table.at = getelementptr i8, ptr %self, i64 {pyabi.DATA}", "%table = load ptr, ptr %table.at")
    code.require(code.let(f"icmp eq i64 %nargs, {arguments}"))
    return code


def require_type(code: Code, item: str, name: str) -> None:
    """`item` must be exactly of the type of that name."""
    code.require(code.let(f"icmp eq ptr {code.field(item, pyabi.TYPE, 'ptr')}, {code.slot(name)}"))


def integer(code: Code, item: str, overflow: str) -> str:
    """The value of a Python int, which must be one of 64 bits."""
    value = code.let(f"call i64 {code.slot('int_value')}(ptr {item}, ptr {overflow})")
    code.require(code.let(f"icmp eq i32 {code.let(f'load i32, ptr {overflow}')}, 0"))
    return value


def _copy(code: Code, to: str, of: str, size: str) -> None:
    code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {of}, i64 {size}, i1 false)")


def _sizes(code: Code, items: str, n: str, first: str, dtype: str, lengths: str, ndim: str, free: str) -> tuple[str, str]:
    """Elements of all arrays, and the sum of their lengths along dimension `free`, the one that may differ."""
    code.do("br label %arrays")
    code.label("arrays")
    code.do("br label %array")
    code.label("array")
    code.do("%k = phi i64 [0, %arrays], [%k.next, %alike]", "%along = phi i64 [0, %arrays], [%along.next, %alike]",
            "%elements = phi i64 [0, %arrays], [%elements.next, %alike]")
    item = code.element(items, "%k", "ptr")
    code.require(code.let(f"call i1 @fits(ptr %table, ptr {item}, ptr {dtype}, i32 {C_ORDER})"))
    same = code.let(f"icmp eq i32 {code.field(item, pyabi.NDIM, 'i32')}, {code.field(first, pyabi.NDIM, 'i32')}")
    code.require(same)
    count = code.let(f"call i64 @count(ptr {item})")
    code.require(code.let(f"icmp ult i64 {code.let(f'sub i64 {count}, 1')}, {MOST_BYTES}"))
    shape = code.field(item, pyabi.SHAPE, "ptr")
    code.do("br label %lengths")
    code.label("lengths")
    code.do("br label %length")
    code.label("length")
    code.do("%i = phi i64 [0, %lengths], [%i.next, %same]", "%own = phi i64 [0, %lengths], [%own.next, %same]")
    code.branch(code.let(f"icmp slt i64 %i, {ndim}"), "compare", "alike")
    code.label("compare")
    length = code.element(shape, "%i", "i64")
    equal = code.let(f"icmp eq i64 {length}, {code.element(lengths, '%i', 'i64')}")
    is_free = code.let(f"icmp eq i64 %i, {free}")
    code.branch(code.let(f"or i1 {equal}, {is_free}"), "same", "refuse")
    code.label("same")
    code.do(f"%own.next = select i1 {is_free}, i64 {length}, i64 %own", "%i.next = add nuw nsw i64 %i, 1",
            "br label %length, !llvm.loop !0")
    code.label("alike")
    code.do("%along.next = add i64 %along, %own", f"%elements.next = add i64 %elements, {count}",
            "%k.next = add nuw nsw i64 %k, 1", f"%k.more = icmp slt i64 %k.next, {n}",
            "br i1 %k.more, label %array, label %measured, !llvm.loop !0")
    code.label("measured")
    return "%elements.next", "%along.next"


def _product(code: Code, lengths: str, d: str) -> str:
    """The product of the first `d` lengths."""
    code.do("br label %before")
    code.label("before")
    code.do("br label %outer")
    code.label("outer")
    code.do("%o = phi i64 [0, %before], [%o.next, %outer.step]", "%p = phi i64 [1, %before], [%p.next, %outer.step]")
    code.branch(code.let(f"icmp slt i64 %o, {d}"), "outer.step", "outer.done")
    code.label("outer.step")
    code.do(f"%p.next = mul i64 %p, {code.element(lengths, '%o', 'i64')}", "%o.next = add nuw nsw i64 %o, 1",
            "br label %outer, !llvm.loop !0")
    code.label("outer.done")
    return "%p"


def _pieces(code: Code, items: str, n: str, outer: str, to: str, size: str, item: str) -> None:
    """Copy the `outer` pieces of every array to their places in `to`, whose `size` bytes lie in as many rows."""
    row = code.let(f"udiv i64 {size}, {outer}")
    code.do("br label %sources")
    code.label("sources")
    code.do("br label %source")
    code.label("source")
    code.do("%s = phi i64 [0, %sources], [%s.next, %copied]", "%skip = phi i64 [0, %sources], [%skip.next, %copied]")
    array = code.element(items, "%s", "ptr")
    of = code.field(array, pyabi.DATA, "ptr")
    whole = code.let(f"mul i64 {code.let(f'call i64 @count(ptr {array})')}, {item}")
    piece = code.let(f"udiv i64 {whole}, {outer}")
    code.do("br label %pieces")
    code.label("pieces")
    code.do("br label %piece")
    code.label("piece")
    code.do("%r = phi i64 [0, %pieces], [%r.next, %piece]", f"%into = mul i64 %r, {row}", "%at = add i64 %into, %skip",
            f"%from = mul i64 %r, {piece}")
    _copy(code, code.let(f"getelementptr i8, ptr {to}, i64 %at"), code.let(f"getelementptr i8, ptr {of}, i64 %from"), piece)
    code.do("%r.next = add nuw nsw i64 %r, 1", f"%r.more = icmp slt i64 %r.next, {outer}",
            "br i1 %r.more, label %piece, label %copied, !llvm.loop !0")
    code.label("copied")
    code.do(f"%skip.next = add i64 %skip, {piece}", "%s.next = add nuw nsw i64 %s, 1", f"%s.more = icmp slt i64 %s.next, {n}",
            "br i1 %s.more, label %source, label %joined, !llvm.loop !0")
    code.label("joined")

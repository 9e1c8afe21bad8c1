"""Builtins that move elements, or give them another shape: joining a few small arrays, and views of contiguous ones."""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from flambeau_kernels.engine.builtins import pyabi
from flambeau_kernels.engine.builtins.fastcall import C_ORDER, Code, Module

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
    copy(code, shape, lengths, code.let(f"mul i64 {d}, 8"))
    here = code.let(f"getelementptr i64, ptr {shape}, i64 {d}")
    code.do(f"store i64 {n if new_dimension else along}, ptr {here}")
    rest = code.let(f"getelementptr i64, ptr {lengths}, i64 {d if new_dimension else code.let(f'add i64 {d}, 1')}")
    behind = code.let(f"sub i64 {dims}, {code.let(f'add i64 {d}, 1')}")
    copy(code, code.let(f"getelementptr i64, ptr {here}, i64 1"), rest, code.let(f"mul i64 {behind}, 8"))
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

    kept = code.let(f"and i32 {flags}, {pyabi.C_CONTIGUOUS | pyabi.ALIGNED | pyabi.WRITEABLE}")
    _return_view(code, array, n, shape, "null", code.field(array, pyabi.DATA, "ptr"), kept)
    module.functions.append(code.text())


def restrided(module: Module, name: str) -> None:
    """Add the builtin ``(array, shape, strides in bytes, bytes to skip) -> view`` for tuples that stay inside the memory."""
    code = start(name, 4)
    overflow, shape, strides = code.let("alloca i32"), *room(code, 2)
    array, sizes, steps, skipped = (code.element("%args", k, "ptr") for k in range(4))
    for item, kind in ((array, "ndarray"), (sizes, "tuple"), (steps, "tuple"), (skipped, "int")):
        require_type(code, item, kind)
    n = code.field(sizes, pyabi.LENGTH, "i64")
    code.require(code.let(f"icmp ule i64 {n}, {pyabi.MOST_DIMS}"))
    code.require(code.let(f"icmp eq i64 {n}, {code.field(steps, pyabi.LENGTH, 'i64')}"))
    skip = integer(code, skipped, overflow)
    items = [code.let(f"getelementptr i8, ptr {given}, i64 {pyabi.TUPLE_ITEMS}") for given in (sizes, steps)]
    i, done = loop(code, "dimension", n)
    for given, into in zip(items, (shape, strides), strict=True):
        item = code.element(given, i, "ptr")
        require_type(code, item, "int")
        put(code, into, i, integer(code, item, overflow))
    done()
    data = code.let(f"getelementptr i8, ptr {code.field(array, pyabi.DATA, 'ptr')}, i64 {skip}")
    _return_view(code, array, n, shape, strides, data, _writeable(code, array))
    module.functions.append(code.text())


def unsqueeze(module: Module, name: str) -> None:
    """Add the builtin ``(array, dim) -> view`` with a dimension of size 1, whose stride is that of a dimension around the next."""
    code = start(name)
    overflow, shape, strides = code.let("alloca i32"), *room(code, 2)
    array, number = code.element("%args", 0, "ptr"), code.element("%args", 1, "ptr")
    require_type(code, array, "ndarray")
    require_type(code, number, "int")
    ndim = code.let(f"sext i32 {code.field(array, pyabi.NDIM, 'i32')} to i64")
    dims = code.let(f"add i64 {ndim}, 1")
    code.require(code.let(f"icmp ule i64 {dims}, {pyabi.MOST_DIMS}"))
    d = dimension(code, integer(code, number, overflow), dims)
    lengths, steps = code.field(array, pyabi.SHAPE, "ptr"), code.field(array, pyabi.STRIDES, "ptr")
    before, behind = code.let(f"mul i64 {d}, 8"), code.let(f"mul i64 {code.let(f'sub i64 {ndim}, {d}')}, 8")
    for given, into in ((lengths, shape), (steps, strides)):
        copy(code, into, given, before)
        copy(code, code.let(f"getelementptr i64, ptr {into}, i64 {code.let(f'add i64 {d}, 1')}"),
              code.let(f"getelementptr i64, ptr {given}, i64 {d}"), behind)
    put(code, shape, d, "1")
    code.branch(code.let(f"icmp slt i64 {d}, {ndim}"), "inside", "last")
    code.label("inside")
    around = code.let(f"mul i64 {code.element(lengths, d, 'i64')}, {code.element(steps, d, 'i64')}")
    code.do("br label %known")
    code.label("last")
    own = code.field(code.field(array, pyabi.DTYPE, "ptr"), pyabi.ITEM_SIZE, "i64")
    code.do("br label %known")
    code.label("known")
    code.do(f"%step = phi i64 [{around}, %inside], [{own}, %last]")
    put(code, strides, d, "%step")
    _return_view(code, array, dims, shape, strides, code.field(array, pyabi.DATA, "ptr"), _writeable(code, array))
    module.functions.append(code.text())


def transposed(module: Module, name: str) -> None:
    """Add the builtin ``(array, dim, dim) -> view`` with two dimensions exchanged."""
    code = start(name, 3)
    overflow, shape, strides = code.let("alloca i32"), *room(code, 2)
    array, *numbers = (code.element("%args", k, "ptr") for k in range(3))
    require_type(code, array, "ndarray")
    for number in numbers:
        require_type(code, number, "int")
    ndim = code.let(f"sext i32 {code.field(array, pyabi.NDIM, 'i32')} to i64")
    one, other = (dimension(code, integer(code, number, overflow), ndim) for number in numbers)
    for offset, into in ((pyabi.SHAPE, shape), (pyabi.STRIDES, strides)):
        given = code.field(array, offset, "ptr")
        copy(code, into, given, code.let(f"mul i64 {ndim}, 8"))
        put(code, into, one, code.element(given, other, "i64"))
        put(code, into, other, code.element(given, one, "i64"))
    _return_view(code, array, ndim, shape, strides, code.field(array, pyabi.DATA, "ptr"), _writeable(code, array))
    module.functions.append(code.text())


def permuted(module: Module, name: str) -> None:
    """Add the builtin ``(array, tuple of dims) -> view`` with all dimensions in another order."""
    code = start(name)
    overflow, shape, strides, seen = code.let("alloca i32"), *room(code, 2), code.let("alloca i64")
    array, order = code.element("%args", 0, "ptr"), code.element("%args", 1, "ptr")
    require_type(code, array, "ndarray")
    require_type(code, order, "tuple")
    ndim = code.let(f"sext i32 {code.field(array, pyabi.NDIM, 'i32')} to i64")
    code.require(code.let(f"icmp eq i64 {code.field(order, pyabi.LENGTH, 'i64')}, {ndim}"))
    items = code.let(f"getelementptr i8, ptr {order}, i64 {pyabi.TUPLE_ITEMS}")
    code.do(f"store i64 0, ptr {seen}")
    i, done = loop(code, "dimension", ndim)
    item = code.element(items, i, "ptr")
    require_type(code, item, "int")
    d = dimension(code, integer(code, item, overflow), ndim)
    bit, before = code.let(f"shl i64 1, {d}"), code.let(f"load i64, ptr {seen}")
    code.require(code.let(f"icmp eq i64 {code.let(f'and i64 {before}, {bit}')}, 0"))
    code.do(f"store i64 {code.let(f'or i64 {before}, {bit}')}, ptr {seen}")
    for offset, into in ((pyabi.SHAPE, shape), (pyabi.STRIDES, strides)):
        put(code, into, i, code.element(code.field(array, offset, "ptr"), d, "i64"))
    done()
    _return_view(code, array, ndim, shape, strides, code.field(array, pyabi.DATA, "ptr"), _writeable(code, array))
    module.functions.append(code.text())


def select(module: Module, name: str) -> None:
    """Add the builtin ``(array, dim, index) -> view`` of what is at `index` along a dimension, without that."""
    code = start(name, 3)
    overflow, shape, strides = code.let("alloca i32"), *room(code, 2)
    array, *numbers = (code.element("%args", k, "ptr") for k in range(3))
    require_type(code, array, "ndarray")
    for number in numbers:
        require_type(code, number, "int")
    ndim = code.let(f"sext i32 {code.field(array, pyabi.NDIM, 'i32')} to i64")
    d = dimension(code, integer(code, numbers[0], overflow), ndim)
    lengths, steps = code.field(array, pyabi.SHAPE, "ptr"), code.field(array, pyabi.STRIDES, "ptr")
    at = dimension(code, integer(code, numbers[1], overflow), code.element(lengths, d, "i64"))
    behind = code.let(f"add i64 {d}, 1")
    bytes_before, bytes_behind = code.let(f"mul i64 {d}, 8"), code.let(f"mul i64 {code.let(f'sub i64 {ndim}, {behind}')}, 8")
    for given, into in ((lengths, shape), (steps, strides)):
        copy(code, into, given, bytes_before)
        copy(code, code.let(f"getelementptr i64, ptr {into}, i64 {d}"), code.let(f"getelementptr i64, ptr {given}, i64 {behind}"),
             bytes_behind)
    skip = code.let(f"mul i64 {at}, {code.element(steps, d, 'i64')}")
    data = code.let(f"getelementptr i8, ptr {code.field(array, pyabi.DATA, 'ptr')}, i64 {skip}")
    _return_view(code, array, code.let(f"sub i64 {ndim}, 1"), shape, strides, data, _writeable(code, array))
    module.functions.append(code.text())


def part(module: Module, name: str) -> None:
    """Add the builtin ``(array, key) -> view`` for a tuple of ints, slices that do not go back, None and at most one Ellipsis.

    The stride of a new dimension is that of one around the next, as `unsqueeze` gives it.
    """
    code = start(name)
    overflow, shape, strides = code.let("alloca i32"), *room(code, 2)
    source, into, skip, taken, dots, bound = (code.let("alloca i64") for _ in range(6))
    array, key = code.element("%args", 0, "ptr"), code.element("%args", 1, "ptr")
    require_type(code, array, "ndarray")
    require_type(code, key, "tuple")
    ndim = code.let(f"sext i32 {code.field(array, pyabi.NDIM, 'i32')} to i64")
    n = code.field(key, pyabi.LENGTH, "i64")
    code.require(code.let(f"icmp ule i64 {code.let(f'add i64 {n}, {ndim}')}, {pyabi.MOST_DIMS}"))
    items = code.let(f"getelementptr i8, ptr {key}, i64 {pyabi.TUPLE_ITEMS}")
    lengths, steps = code.field(array, pyabi.SHAPE, "ptr"), code.field(array, pyabi.STRIDES, "ptr")
    for count in (source, into, skip, taken, dots):
        code.do(f"store i64 0, ptr {count}")
    rest = _dimensions_left(code, items, n, ndim, taken, dots)

    walk = _Walk(code, array, ndim, rest, lengths, steps, shape, strides, source, into, skip, bound, overflow)
    i, done = loop(code, "item", n)
    item = code.element(items, i, "ptr")
    number, piece, new, _ = _kinds_of_key(code, item)
    d, at = code.let(f"load i64, ptr {source}"), code.let(f"load i64, ptr {into}")
    code.branch(number, "number", "no.number")
    code.label("number")
    walk.pick(item, d)
    code.do("br label %placed")
    code.label("no.number")
    code.branch(piece, "piece", "no.piece")
    code.label("piece")
    walk.cut(item, d, at)
    code.do("br label %placed")
    code.label("no.piece")
    code.branch(new, "new", "open")
    code.label("new")
    walk.insert(d, at)
    code.do("br label %placed")
    code.label("open")
    walk.keep_rest()
    code.do("br label %placed")
    code.label("placed")
    done()
    code.branch(code.let(f"icmp eq i64 {code.let(f'load i64, ptr {dots}')}, 0"), "behind", "whole")
    code.label("behind")
    walk.keep_rest()
    code.do("br label %whole")
    code.label("whole")
    data = code.let(f"getelementptr i8, ptr {code.field(array, pyabi.DATA, 'ptr')}, i64 {code.let(f'load i64, ptr {skip}')}")
    _return_view(code, array, code.let(f"load i64, ptr {into}"), shape, strides, data, _writeable(code, array))
    module.functions.append(code.text())


def _dimensions_left(code: Code, items: str, n: str, ndim: str, taken: str, dots: str) -> str:
    """How many dimensions the Ellipsis among the `n` items of a key stands for, or are left behind the key. `dots` counts the former."""
    i, done = loop(code, "kind", n)
    number, piece, new, open_ended = _kinds_of_key(code, code.element(items, i, "ptr"))
    takes = code.let(f"or i1 {number}, {piece}")
    code.require(code.let(f"or i1 {takes}, {code.let(f'or i1 {new}, {open_ended}')}"))
    for count, counts in ((taken, takes), (dots, open_ended)):
        _advance(code, count, code.let(f"zext i1 {counts} to i64"))
    done()
    code.require(code.let(f"icmp ule i64 {code.let(f'load i64, ptr {dots}')}, 1"))
    rest = code.let(f"sub i64 {ndim}, {code.let(f'load i64, ptr {taken}')}")
    code.require(code.let(f"icmp sge i64 {rest}, 0"))
    return rest


class _Walk(NamedTuple):
    """What code that goes through a key reads and writes: values of an array of `ndim` dimensions, and memory for those of the view.

    `source` and `into` hold how many dimensions of the array and of the view are done, `skip` the bytes before the view.
    """

    code: Code
    array: str
    ndim: str
    rest: str
    lengths: str
    steps: str
    shape: str
    strides: str
    source: str
    into: str
    skip: str
    bound: str
    overflow: str

    def pick(self, item: str, d: str) -> None:
        """Leave out dimension `d` but for the int `item`."""
        code = self.code
        index = dimension(code, integer(code, item, self.overflow), code.element(self.lengths, d, "i64"))
        _advance(code, self.skip, code.let(f"mul i64 {index}, {code.element(self.steps, d, 'i64')}"))
        _advance(code, self.source, "1")

    def cut(self, item: str, d: str, at: str) -> None:
        """Make dimension `at` of what the slice `item` leaves of dimension `d`."""
        code = self.code
        length, own = code.element(self.lengths, d, "i64"), code.element(self.steps, d, "i64")
        begin = _bound(code, code.field(item, pyabi.START, "ptr"), "0", length, self.bound, self.overflow)
        end = _bound(code, code.field(item, pyabi.STOP, "ptr"), length, length, self.bound, self.overflow)
        step = _bound(code, code.field(item, pyabi.STEP, "ptr"), "1", None, self.bound, self.overflow)
        code.require(code.let(f"icmp ult i64 {code.let(f'sub i64 {step}, 1')}, {1 << 31}"))
        # None of them is none of numpy's views that know where they are.
        code.require(code.let(f"icmp slt i64 {begin}, {end}"))
        reached = code.let(f"sub i64 {code.let(f'sub i64 {end}, {begin}')}, 1")
        rounds = code.let(f"udiv i64 {reached}, {step}")
        put(code, self.shape, at, code.let(f"add i64 {rounds}, 1"))
        put(code, self.strides, at, code.let(f"mul i64 {own}, {step}"))
        _advance(code, self.skip, code.let(f"mul i64 {begin}, {own}"))
        for count in (self.source, self.into):
            _advance(code, count, "1")

    def insert(self, d: str, at: str) -> None:
        """Make dimension `at` a new one, before dimension `d`."""
        code = self.code
        put(code, self.shape, at, "1")
        code.branch(code.let(f"icmp slt i64 {d}, {self.ndim}"), "inside", "last")
        code.label("inside")
        around = code.let(f"mul i64 {code.element(self.lengths, d, 'i64')}, {code.element(self.steps, d, 'i64')}")
        code.do("br label %known")
        code.label("last")
        own_size = code.field(code.field(self.array, pyabi.DTYPE, "ptr"), pyabi.ITEM_SIZE, "i64")
        code.do("br label %known")
        code.label("known")
        code.do(f"%step = phi i64 [{around}, %inside], [{own_size}, %last]")
        put(code, self.strides, at, "%step")
        _advance(code, self.into, "1")

    def keep_rest(self) -> None:
        """Take over the dimensions that the key does not speak of."""
        code = self.code
        d, at = code.let(f"load i64, ptr {self.source}"), code.let(f"load i64, ptr {self.into}")
        for given, made in ((self.lengths, self.shape), (self.steps, self.strides)):
            copy(code, code.let(f"getelementptr i64, ptr {made}, i64 {at}"), code.let(f"getelementptr i64, ptr {given}, i64 {d}"),
                 code.let(f"mul i64 {self.rest}, 8"))
        for count in (self.source, self.into):
            _advance(code, count, self.rest)


def _kinds_of_key(code: Code, item: str) -> tuple[str, str, str, str]:
    """Whether the `item` of a key is an int, a slice, None, the Ellipsis."""
    kind = code.field(item, pyabi.TYPE, "ptr")
    of_kind = (code.let(f"icmp eq ptr {kind}, {code.slot(name)}") for name in ("int", "slice"))
    itself = (code.let(f"icmp eq ptr {item}, {code.slot(name)}") for name in ("None", "Ellipsis"))
    return *of_kind, *itself  # pyright: ignore[reportReturnType]  # two of each


def _advance(code: Code, count: str, by: str) -> None:
    """Add `by` to what lies at `count`."""
    before = code.let(f"load i64, ptr {count}")
    code.do(f"store i64 {code.let(f'add i64 {before}, {by}')}, ptr {count}")


def _bound(code: Code, item: str, otherwise: str, length: str | None, room: str, overflow: str) -> str:
    """The number that is a bound of a slice, `otherwise` for None. From 0 to `length` if there is one: a negative counts from the end."""
    given, known = code.fresh("given"), code.fresh("bounded")
    code.do(f"store i64 {otherwise}, ptr {room}")
    code.branch(code.let(f"icmp eq ptr {item}, {code.slot('None')}"), known, given)
    code.label(given)
    require_type(code, item, "int")
    value = integer(code, item, overflow)
    if length is not None:
        counted = code.let(f"select i1 {code.let(f'icmp slt i64 {value}, 0')}, i64 {code.let(f'add i64 {value}, {length}')}, i64 {value}")
        least = code.let(f"select i1 {code.let(f'icmp slt i64 {counted}, 0')}, i64 0, i64 {counted}")
        value = code.let(f"select i1 {code.let(f'icmp sgt i64 {least}, {length}')}, i64 {length}, i64 {least}")
    code.do(f"store i64 {value}, ptr {room}", f"br label %{known}")
    code.label(known)
    return code.let(f"load i64, ptr {room}")


def expand(module: Module, name: str) -> None:
    """Add the builtin ``(array, tuple of sizes) -> view`` that repeats dimensions of size 1; -1 keeps a size."""
    code = start(name)
    overflow, shape, strides = code.let("alloca i32"), *room(code, 2)
    array, sizes = code.element("%args", 0, "ptr"), code.element("%args", 1, "ptr")
    require_type(code, array, "ndarray")
    require_type(code, sizes, "tuple")
    ndim = code.let(f"sext i32 {code.field(array, pyabi.NDIM, 'i32')} to i64")
    n = code.field(sizes, pyabi.LENGTH, "i64")
    code.require(code.let(f"icmp ule i64 {n}, {pyabi.MOST_DIMS}"))
    extra = code.let(f"sub i64 {n}, {ndim}")
    code.require(code.let(f"icmp sge i64 {extra}, 0"))
    items = code.let(f"getelementptr i8, ptr {sizes}, i64 {pyabi.TUPLE_ITEMS}")
    lengths, steps = code.field(array, pyabi.SHAPE, "ptr"), code.field(array, pyabi.STRIDES, "ptr")
    i, done = loop(code, "dimension", n)
    item = code.element(items, i, "ptr")
    require_type(code, item, "int")
    wanted = integer(code, item, overflow)
    own = code.let(f"sub i64 {i}, {extra}")
    code.branch(code.let(f"icmp slt i64 {own}, 0"), "new", "old")
    code.label("new")
    code.require(code.let(f"icmp sge i64 {wanted}, 0"))
    put(code, shape, i, wanted)
    put(code, strides, i, "0")
    code.do("br label %placed")
    code.label("old")
    have = code.element(lengths, own, "i64")
    keeps = code.let(f"or i1 {code.let(f'icmp eq i64 {wanted}, -1')}, {code.let(f'icmp eq i64 {wanted}, {have}')}")
    repeats = code.let(f"and i1 {code.let(f'icmp eq i64 {have}, 1')}, {code.let(f'icmp sge i64 {wanted}, 0')}")
    code.require(code.let(f"or i1 {keeps}, {repeats}"))
    put(code, shape, i, code.let(f"select i1 {keeps}, i64 {have}, i64 {wanted}"))
    put(code, strides, i, code.let(f"select i1 {keeps}, i64 {code.element(steps, own, 'i64')}, i64 0"))
    code.do("br label %placed")
    code.label("placed")
    done()
    _return_view(code, array, n, shape, strides, code.field(array, pyabi.DATA, "ptr"), _writeable(code, array))
    module.functions.append(code.text())


def steps(module: Module, name: str) -> None:
    """Add the builtin ``(array) -> tuple``: strides in elements of an array that is not empty."""
    code = start(name, 1)
    array = code.element("%args", 0, "ptr")
    require_type(code, array, "ndarray")
    code.require(code.let(f"icmp ne i64 {code.let(f'call i64 @count(ptr {array})')}, 0"))
    size = code.field(code.field(array, pyabi.DTYPE, "ptr"), pyabi.ITEM_SIZE, "i64")
    code.require(code.let(f"icmp sgt i64 {size}, 0"))
    ndim = code.let(f"sext i32 {code.field(array, pyabi.NDIM, 'i32')} to i64")
    strides = code.field(array, pyabi.STRIDES, "ptr")
    made = code.let(f"call ptr {code.slot('new_tuple')}(i64 {ndim})")
    code.return_null_if_null(made)
    first = code.let(f"getelementptr i8, ptr {made}, i64 {pyabi.TUPLE_ITEMS}")
    i, done = loop(code, "dimension", ndim)
    step = code.let(f"sdiv i64 {code.element(strides, i, 'i64')}, {size}")
    number = code.let(f"call ptr {code.slot('new_int')}(i64 {step})")
    code.return_null_if_null(number, made)
    code.do(f"store ptr {number}, ptr {code.let(f'getelementptr ptr, ptr {first}, i64 {i}')}")
    done()
    code.do(f"ret ptr {made}")
    module.functions.append(code.text())


def address(module: Module, name: str) -> None:
    """Add the builtin ``(array) -> int``: where its first element is."""
    code = start(name, 1)
    array = code.element("%args", 0, "ptr")
    require_type(code, array, "ndarray")
    place = code.let(f"ptrtoint ptr {code.field(array, pyabi.DATA, 'ptr')} to i64")
    made = code.let(f"call ptr {code.slot('new_int')}(i64 {place})")
    code.do(f"ret ptr {made}")
    module.functions.append(code.text())


def room(code: Code, count: int) -> list[str]:
    """Memory on the stack for `count` shapes."""
    return [code.let(f"alloca [{pyabi.MOST_DIMS} x i64]") for _ in range(count)]


def put(code: Code, into: str, index: str, value: str) -> None:
    code.do(f"store i64 {value}, ptr {code.let(f'getelementptr i64, ptr {into}, i64 {index}')}")


def _writeable(code: Code, array: str) -> str:
    return code.let(f"and i32 {code.field(array, pyabi.FLAGS, 'i32')}, {pyabi.WRITEABLE}")


def dimension(code: Code, wanted: str, dims: str) -> str:
    """`wanted` counted from the front; it must be one of `dims`."""
    counted = code.let(f"add i64 {wanted}, {dims}")
    code.require(code.let(f"icmp ult i64 {counted}, {code.let(f'mul i64 {dims}, 2')}"))
    return code.let(f"select i1 {code.let(f'icmp slt i64 {wanted}, 0')}, i64 {counted}, i64 {wanted}")


def loop(code: Code, name: str, n: str, vectors: bool = False) -> tuple[str, Callable[[], None]]:
    """Open a loop over 0 ... `n` - 1, which LLVM may make into `vectors`; what is returned beside its number closes it."""
    code.do(f"br label %{name}.start")
    code.label(f"{name}.start")
    code.do(f"br label %{name}")
    code.label(name)
    code.do(f"%{name}.i = phi i64 [0, %{name}.start], [%{name}.next, %{name}.step]")
    code.branch(code.let(f"icmp slt i64 %{name}.i, {n}"), f"{name}.body", f"{name}.done")
    code.label(f"{name}.body")

    def done() -> None:
        code.do(f"br label %{name}.step")
        code.label(f"{name}.step")
        code.do(f"%{name}.next = add nuw nsw i64 %{name}.i, 1", f"br label %{name}{'' if vectors else ', !llvm.loop !0'}")
        code.label(f"{name}.done")

    return f"%{name}.i", done


def _return_view(code: Code, array: str, dims: str, shape: str, strides: str, data: str, flags: str) -> None:
    """Return an array of `dims` dimensions at `data`, in the memory of `array`; `strides` may be null, for C order."""
    dtype = code.field(array, pyabi.DTYPE, "ptr")
    made = view_in(code, array, dtype, code.let(f"trunc i64 {dims} to i32"), shape, strides, data, flags)
    code.do(f"ret ptr {made}")


def view_in(
    code: Code, array: str, dtype: str, dims: str, shape: str, strides: str, data: str, flags: str, undo: str | None = None
) -> str:
    """An array of `dims` dimensions at `data`, in the memory of `array`. Where there is none the reference `undo` is given back."""
    code.do(f"call void {code.slot('incref')}(ptr {dtype})")  # numpy takes this reference over
    made = code.let(f"call ptr {code.slot('new_array')}(ptr {code.slot('ndarray')}, ptr {dtype}, "
                    f"i32 {dims}, ptr {shape}, ptr {strides}, ptr {data}, i32 {flags}, ptr null)")
    code.return_null_if_null(made, undo)
    code.do(f"call void {code.slot('incref')}(ptr {array})")  # and this one
    status = code.let(f"call i32 {code.slot('set_base')}(ptr {made}, ptr {array})")
    failed, based = code.fresh("baseless"), code.fresh("based")
    code.branch(code.let(f"icmp ne i32 {status}, 0"), failed, based)
    code.label(failed)
    for reference in (made, *([undo] if undo else [])):
        code.do(f"call void {code.slot('decref')}(ptr {reference})")
    code.do("ret ptr null")
    code.label(based)
    return made


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


def copy(code: Code, to: str, of: str, size: str) -> None:
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
    bytes = code.let(f"mul i64 {code.let(f'call i64 @count(ptr {array})')}, {item}")
    piece = code.let(f"udiv i64 {bytes}, {outer}")
    code.do("br label %pieces")
    code.label("pieces")
    code.do("br label %piece")
    code.label("piece")
    code.do("%r = phi i64 [0, %pieces], [%r.next, %piece]", f"%into = mul i64 %r, {row}", "%at = add i64 %into, %skip",
            f"%from = mul i64 %r, {piece}")
    copy(code, code.let(f"getelementptr i8, ptr {to}, i64 %at"), code.let(f"getelementptr i8, ptr {of}, i64 %from"), piece)
    code.do("%r.next = add nuw nsw i64 %r, 1", f"%r.more = icmp slt i64 %r.next, {outer}",
            "br i1 %r.more, label %piece, label %copied, !llvm.loop !0")
    code.label("copied")
    code.do(f"%skip.next = add i64 %skip, {piece}", "%s.next = add nuw nsw i64 %s, 1", f"%s.more = icmp slt i64 %s.next, {n}",
            "br i1 %s.more, label %source, label %joined, !llvm.loop !0")
    code.label("joined")

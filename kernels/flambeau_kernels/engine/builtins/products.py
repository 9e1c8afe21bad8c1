"""Builtins around matrix products, computed by the BLAS that numpy brought along.

They answer only where numpy calls the same routine in the same way, so that results have numpy's bits: a product with a single row or
column is gemv, of one of each dot. That of a matrix with itself is numpy's syrk, and refused.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from flambeau_kernels import hot_calls
from flambeau_kernels.engine.builtins import pyabi
from flambeau_kernels.engine.builtins.fastcall import (
    BFLOAT16,
    MOST_ELEMENTS,
    MOST_PRODUCTS,
    MOST_THIN_PRODUCTS,
    REALS,
    Code,
    Module,
    Part,
    Real,
    entry,
)
from flambeau_kernels.engine.builtins.shapes import loop

MOST_OUTER = 4096                                     # elements of all products of two vectors
ROW_MAJOR, AS_IS, TRANSPOSED = 101, 111, 112          # CBLAS's names for layouts


@dataclasses.dataclass(frozen=True)
class Matrix:
    """A 2-D operand: rows and columns as the product sees them; layout, leading length, address for BLAS."""

    rows: str
    columns: str
    layout: str
    leading: str
    data: str


def matmul(module: Module, name: str, transposed: Sequence[bool]) -> None:
    """Add the builtin of a 2-D product; `transposed` says of each operand whether its transpose is meant.

    Operands may lie in memory row by row or column by column; the product of a matrix with itself is refused, and so is one with a
    single number.
    """
    module.functions += [_matmul_part(name, real, transposed) for real in REALS]
    module.functions.append(entry(name, 2))


def matmul_and_halves(module: Module, name: str, turned: bool) -> None:
    """As `matmul`, of row-major matrices of bfloat16 too: summed in float32, and rounded once.

    `turned` says whether the transpose of the second is meant.
    """
    module.functions += [_matmul_part(name, real, (False, turned)) for real in REALS]
    module.functions.append(_product_of_halves(name, turned, biased=False))
    module.functions.append(entry(name, 2, (*REALS, BFLOAT16)))


def _matmul_part(name: str, real: Real, transposed: Sequence[bool]) -> str:
    code = Part(name, real)
    shape = code.let("alloca [2 x i64]")
    a, b = (_matrix(code, code.argument(k), transposed[k]) for k in range(2))
    code.require(code.let(f"icmp eq i64 {a.columns}, {b.rows}"))
    code.require(code.let(f"icmp ne ptr {a.data}, {b.data}"))
    _require_size(code, a.rows, b.columns, a.columns)
    code.do(f"store i64 {a.rows}, ptr {shape}")
    code.do(f"store i64 {b.columns}, ptr {code.let(f'getelementptr i64, ptr {shape}, i64 1')}")
    made = code.new_array(2, shape)
    _multiply(code, a, b, code.data(made))
    code.do(f"ret ptr {made}")
    return code.text()


def _product_of_halves(name: str, turned: bool, biased: bool) -> str:
    """The product of two matrices of bfloat16, plus a vector where it is `biased`, which is rounded once."""
    code = Part(name, BFLOAT16)
    shape = code.let("alloca [2 x i64]")
    # With two rows and columns or more, no operand has more than half as many elements as there are multiplications.
    most = hot_calls.MOST_PRODUCTS_WITHOUT_BLAS
    wide = [code.let(f"alloca [{length} x float]") for length in (most // 2, most // 2, most)]
    lengths = []
    for k in range(2):
        item = code.argument(k)
        code.require_array(item)
        code.require(code.let(f"icmp eq i32 {code.field(item, pyabi.NDIM, 'i32')}, 2"))
        at = code.field(item, pyabi.SHAPE, "ptr")
        lengths.append((code.element(at, 0, "i64"), code.element(at, 1, "i64")))
    (rows, inner), (same, columns) = lengths[0], lengths[1][:: -1 if turned else 1]
    code.require(code.let(f"icmp eq i64 {inner}, {same}"))
    _require_product_size(code, rows, columns, inner, most)
    added = ""
    if biased:
        bias = code.argument(2)
        code.require_array(bias)
        code.require(code.let(f"icmp eq i32 {code.field(bias, pyabi.NDIM, 'i32')}, 1"))
        code.require(code.let(f"icmp eq i64 {code.element(code.field(bias, pyabi.SHAPE, 'ptr'), 0, 'i64')}, {columns}"))
        added = code.data(bias)
    for k, (length, other) in enumerate(lengths):
        data = code.data(code.argument(k))
        i, done = loop(code, f"widen{k}", code.let(f"mul i64 {length}, {other}"), vectors=True)
        code.do(f"store float {widened_bfloat16(code, data, i)}, ptr {code.let(f'getelementptr float, ptr {wide[k]}, i64 {i}')}")
        done()
    code.do(f"store i64 {rows}, ptr {shape}")
    code.do(f"store i64 {columns}, ptr {code.let(f'getelementptr i64, ptr {shape}, i64 1')}")
    made = code.new_array(2, shape)
    b = Matrix(inner, columns, str(TRANSPOSED if turned else AS_IS), lengths[1][1], wide[1])
    _gemm(code, Matrix(rows, inner, str(AS_IS), inner, wide[0]), b, wide[2])
    out = code.data(made)
    r, next_row = loop(code, "row", rows)
    begin = code.let(f"mul i64 {r}, {columns}")
    c, done = loop(code, "round", columns, vectors=True)
    at = code.let(f"add i64 {begin}, {c}")
    total = code.element(wide[2], at, "float")
    if biased:
        total = code.let(f"fadd float {total}, {widened_bfloat16(code, added, c)}")
    code.do(f"store i16 {rounded_to_bfloat16(code, total)}, ptr {code.let(f'getelementptr i16, ptr {out}, i64 {at}')}")
    done()
    next_row()
    code.do(f"ret ptr {made}")
    return code.text()


def widened_bfloat16(code: Code, data: str, index: str) -> str:
    """Element `index` of the bfloat16 at `data`, as a float."""
    half = code.element(data, index, "i16")
    bits = code.let(f"shl i32 {code.let(f'zext i16 {half} to i32')}, 16")
    return code.let(f"bitcast i32 {bits} to float")


def rounded_to_bfloat16(code: Code, value: str) -> str:
    """The bits of `value`, a float, as bfloat16; nans are quiet and keep their sign, as everywhere."""
    bits = code.let(f"bitcast float {value} to i32")
    high = code.let(f"lshr i32 {bits}, 16")
    carry = code.let(f"add i32 {code.let(f'and i32 {high}, 1')}, {0x7FFF}")
    rounded = code.let(f"lshr i32 {code.let(f'add i32 {bits}, {carry}')}, 16")
    nan = code.let(f"or i32 {high}, {0x7FC0}")
    chosen = code.let(f"select i1 {code.let(f'fcmp ord float {value}, {value}')}, i32 {rounded}, i32 {nan}")
    return code.let(f"trunc i32 {chosen} to i16")


def _matrix(code: Part, item: str, transposed: bool) -> Matrix:
    code.require_array(item, pyabi.ALIGNED)
    code.require(code.let(f"icmp eq i32 {code.field(item, pyabi.NDIM, 'i32')}, 2"))
    flags = code.field(item, pyabi.FLAGS, "i32")
    dense = code.let(f"and i32 {flags}, {pyabi.C_CONTIGUOUS | pyabi.F_CONTIGUOUS}")
    code.require(code.let(f"icmp ne i32 {dense}, 0"))
    by_rows = code.let(f"icmp ne i32 {code.let(f'and i32 {flags}, {pyabi.C_CONTIGUOUS}')}, 0")
    shape = code.field(item, pyabi.SHAPE, "ptr")
    rows, columns = code.element(shape, 0, "i64"), code.element(shape, 1, "i64")
    leading = code.let(f"select i1 {by_rows}, i64 {columns}, i64 {rows}")
    data = code.data(item)
    straight, turned = (TRANSPOSED, AS_IS) if transposed else (AS_IS, TRANSPOSED)
    layout = code.let(f"select i1 {by_rows}, i32 {straight}, i32 {turned}")
    if transposed:
        rows, columns = columns, rows
    return Matrix(rows, columns, layout, leading, data)


def _require_size(code: Code, rows: str, columns: str, inner: str) -> None:
    """Not large, and no product of a row or column with a single number, which numpy computes by another routine."""
    thin = _is_one(code, rows, columns)
    for length, least in ((rows, "1"), (columns, "1"), (inner, code.let(f"select i1 {thin}, i64 2, i64 1"))):
        above = code.let(f"sub i64 {length}, {least}")
        code.require(code.let(f"icmp ult i64 {above}, {MOST_ELEMENTS}"))
    products = code.let(f"mul i64 {code.let(f'mul i64 {rows}, {columns}')}, {inner}")
    code.require(code.let(f"icmp sle i64 {products}, {code.let(f'select i1 {thin}, i64 {MOST_THIN_PRODUCTS}, i64 {MOST_PRODUCTS}')}"))


def _is_one(code: Code, *lengths: str) -> str:
    """Whether any of the lengths is 1."""
    first, *others = (code.let(f"icmp eq i64 {length}, 1") for length in lengths)
    for other in others:
        first = code.let(f"or i1 {first}, {other}")
    return first


def _multiply(code: Part, a: Matrix, b: Matrix, out: str) -> None:
    """out = a @ b, on row-major `out`, by the routine that numpy calls for these sizes."""
    one_row, one_column = _is_one(code, a.rows), _is_one(code, b.columns)
    names = ("matrices", "row", "column", "both", "tall", "multiplied")
    matrices, row, column, both, tall, done = (code.fresh(name) for name in names)
    code.branch(one_row, row, tall)
    code.label(tall)
    code.branch(one_column, column, matrices)
    code.label(row)
    wide = code.fresh("wide")
    code.branch(one_column, both, wide)
    code.label(wide)
    _gemv(code, b, a.data, out, transposed=True)
    code.do(f"br label %{done}")
    code.label(column)
    _gemv(code, a, b.data, out, transposed=False)
    code.do(f"br label %{done}")
    code.label(both)
    llvm = code.real.llvm
    total = code.let(f"call {llvm} {code.slot(code.real.letter + 'dot')}(i64 {a.columns}, ptr {a.data}, i64 1, ptr {b.data}, i64 1)")
    code.do(f"store {llvm} {total}, ptr {out}", f"br label %{done}")
    code.label(matrices)
    _gemm(code, a, b, out)
    code.do(f"br label %{done}")
    code.label(done)


def _gemv(code: Part, a: Matrix, x: str, out: str, transposed: bool) -> None:
    """out = a @ x, or a.T @ x, of contiguous vectors."""
    llvm = code.real.llvm
    as_it_lies = code.let(f"icmp eq i32 {a.layout}, {AS_IS}")
    # The routine is told how the matrix lies, row by row.
    down, along = (code.let(f"select i1 {as_it_lies}, i64 {p}, i64 {q}") for p, q in ((a.rows, a.columns), (a.columns, a.rows)))
    straight, turned = (TRANSPOSED, AS_IS) if transposed else (AS_IS, TRANSPOSED)
    layout = code.let(f"select i1 {as_it_lies}, i32 {straight}, i32 {turned}")
    code.do(f"call void {code.slot(code.real.letter + 'gemv')}(i32 {ROW_MAJOR}, i32 {layout}, i64 {down}, i64 {along}, {llvm} 1.0, "
            f"ptr {a.data}, i64 {a.leading}, ptr {x}, i64 1, {llvm} 0.0, ptr {out}, i64 1)")  # fmt: skip


def _require_product_size(code: Code, rows: str, columns: str, inner: str, most: int) -> None:
    """Neither thin nor large; a length is bounded before it is multiplied, so nothing overflows."""
    for length, least in ((rows, 2), (columns, 2), (inner, 1)):
        above = code.let(f"sub i64 {length}, {least}")
        code.require(code.let(f"icmp ult i64 {above}, {MOST_ELEMENTS}"))
    products = code.let(f"mul i64 {code.let(f'mul i64 {rows}, {columns}')}, {inner}")
    code.require(code.let(f"icmp sle i64 {products}, {most}"))


def _gemm(code: Part, a: Matrix, b: Matrix, out: str) -> None:
    """out = a @ b, on row-major `out`."""
    llvm = code.real.llvm
    code.do(f"call void {code.slot(code.real.letter + 'gemm')}(i32 {ROW_MAJOR}, i32 {a.layout}, i32 {b.layout}, "
            f"i64 {a.rows}, i64 {b.columns}, i64 {a.columns}, {llvm} 1.0, ptr {a.data}, i64 {a.leading}, "
            f"ptr {b.data}, i64 {b.leading}, {llvm} 0.0, ptr {out}, i64 {b.columns})")


def batches(module: Module, name: str) -> None:
    """Add the builtin of the products of two batches of matrices, 3-D and C-contiguous, with no lengths of 1 but of the batch."""
    module.functions += [_batches_part(name, real) for real in REALS]
    module.functions.append(entry(name, 2))


def _batches_part(name: str, real: Real) -> str:
    code = Part(name, real)
    shape = code.let("alloca [3 x i64]")
    a, b = code.argument(0), code.argument(1)
    lengths = []
    for item in (a, b):
        code.require_array(item)
        code.require(code.let(f"icmp eq i32 {code.field(item, pyabi.NDIM, 'i32')}, 3"))
        at = code.field(item, pyabi.SHAPE, "ptr")
        lengths.append([code.element(at, k, "i64") for k in range(3)])
    (count, rows, inner), (others, same, columns) = lengths
    code.require(code.let(f"icmp eq i64 {count}, {others}"))
    code.require(code.let(f"icmp eq i64 {inner}, {same}"))
    of, by = code.data(a), code.data(b)
    code.require(code.let(f"icmp ne ptr {of}, {by}"))
    for length, least in ((count, 1), (rows, 2), (inner, 2), (columns, 2)):
        code.require(code.let(f"icmp ult i64 {code.let(f'sub i64 {length}, {least}')}, {hot_calls.MOST_THIN_PRODUCTS}"))
    sizes = [code.let(f"mul i64 {p}, {q}") for p, q in ((rows, inner), (inner, columns), (rows, columns))]
    each = code.let(f"mul i64 {sizes[0]}, {columns}")
    code.require(code.let(f"icmp ult i64 {each}, {hot_calls.MOST_PRODUCTS_OF_MANY}"))
    code.require(code.let(f"icmp ule i64 {code.let(f'mul i64 {each}, {count}')}, {hot_calls.MOST_THIN_PRODUCTS}"))
    for k, length in enumerate((count, rows, columns)):
        code.do(f"store i64 {length}, ptr {code.let(f'getelementptr i64, ptr {shape}, i64 {k}')}")
    made = code.new_array(3, shape)
    out = code.data(made)
    code.do("br label %start")
    code.label("start")
    code.do("br label %product")
    code.label("product")
    code.do("%k = phi i64 [0, %start], [%k.next, %product]")
    first, second, to = (
        code.let(f"getelementptr {real.llvm}, ptr {data}, i64 {code.let(f'mul i64 %k, {size}')}")
        for data, size in zip((of, by, out), sizes, strict=True)
    )
    _gemm(code, Matrix(rows, inner, str(AS_IS), inner, first), Matrix(inner, columns, str(AS_IS), columns, second), to)
    code.do("%k.next = add nuw nsw i64 %k, 1", f"%k.more = icmp slt i64 %k.next, {count}",
            "br i1 %k.more, label %product, label %done")
    code.label("done")
    code.do(f"ret ptr {made}")
    return code.text()


def outer(module: Module, name: str) -> None:
    """Add the builtin of all products of an element of a vector and one of another."""
    module.functions += [_outer_part(name, real) for real in REALS]
    module.functions.append(entry(name, 2))


def _outer_part(name: str, real: Real) -> str:
    code = Part(name, real)
    shape = code.let("alloca [2 x i64]")
    a, b = code.argument(0), code.argument(1)
    lengths = []
    for k, item in enumerate((a, b)):
        code.require_array(item)
        code.require(code.let(f"icmp eq i32 {code.field(item, pyabi.NDIM, 'i32')}, 1"))
        lengths.append(code.element(code.field(item, pyabi.SHAPE, "ptr"), 0, "i64"))
        code.require(code.let(f"icmp ule i64 {lengths[k]}, {MOST_OUTER}"))
        code.do(f"store i64 {lengths[k]}, ptr {code.let(f'getelementptr i64, ptr {shape}, i64 {k}')}")
    rows, columns = lengths
    code.require(code.let(f"icmp ule i64 {code.let(f'mul i64 {rows}, {columns}')}, {MOST_OUTER}"))
    made = code.new_array(2, shape)
    of, by, out = code.data(a), code.data(b), code.data(made)
    i, rows_done = loop(code, "row", rows)
    x = code.element(of, i, real.llvm)
    line = code.let(f"mul i64 {i}, {columns}")
    k, columns_done = loop(code, "column", columns)
    product = code.let(f"fmul {real.llvm} {x}, {code.element(by, k, real.llvm)}")
    at = code.let(f"add i64 {line}, {k}")
    code.do(f"store {real.llvm} {product}, ptr {code.let(f'getelementptr {real.llvm}, ptr {out}, i64 {at}')}")
    columns_done()
    rows_done()
    code.do(f"ret ptr {made}")
    return code.text()


def linear(module: Module, name: str) -> None:
    """Add the builtin ``(x, weight, bias) -> x @ weight.T + bias``, x C-contiguous, not 0-d."""
    for real in REALS:
        module.functions.append(_bias_rows(real, name))
        module.functions.append(_linear_part(name, real))
    module.functions.append(_product_of_halves(name, turned=True, biased=True))
    module.functions.append(entry(name, 3, (*REALS, BFLOAT16)))


def _linear_part(name: str, real: Real) -> str:
    code = Part(name, real)
    shape = code.let(f"alloca [{pyabi.MOST_DIMS} x i64]")
    x, bias = code.argument(0), code.argument(2)
    code.require_array(x)
    w = _matrix(code, code.argument(1), transposed=True)  # (features in, features out)
    code.require_array(bias)
    code.require(code.let(f"icmp eq i32 {code.field(bias, pyabi.NDIM, 'i32')}, 1"))
    width = code.element(code.field(bias, pyabi.SHAPE, "ptr"), 0, "i64")
    code.require(code.let(f"icmp eq i64 {width}, {w.columns}"))
    ndim = code.field(x, pyabi.NDIM, "i32")
    code.require(code.let(f"icmp sge i32 {ndim}, 1"))
    last = code.let(f"sub i64 {code.let(f'sext i32 {ndim} to i64')}, 1")
    x_shape = code.field(x, pyabi.SHAPE, "ptr")
    code.require(code.let(f"icmp eq i64 {code.element(x_shape, last, 'i64')}, {w.rows}"))
    code.require(code.let(f"icmp sgt i64 {w.rows}, 0"))
    rows = code.let(f"sdiv i64 {code.let(f'call i64 @count(ptr {x})')}, {w.rows}")
    _require_size(code, rows, w.columns, w.rows)
    size = code.let(f"mul i64 {last}, 8")
    code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {shape}, ptr {x_shape}, i64 {size}, i1 false)",
            f"store i64 {w.columns}, ptr {code.let(f'getelementptr i64, ptr {shape}, i64 {last}')}")
    made = code.new_array(ndim, shape)
    out = code.data(made)
    left = Matrix(rows, w.rows, str(AS_IS), w.rows, code.data(x))
    _multiply(code, left, w, out)
    arguments = f"ptr {out}, ptr {code.data(bias)}, i64 {rows}, i64 {w.columns}"
    code.do(f"call void @{name}.bias.{real.name}({arguments})", f"ret ptr {made}")
    return code.text()


def _bias_rows(real: Real, name: str) -> str:
    """Add the bias to every row of the product. BLAS could start from it, but would round in another order."""
    llvm = real.llvm
    code = Code(f"internal void @{name}.bias.{real.name}(ptr noalias %out, ptr noalias %bias, i64 %rows, i64 %columns)")
    code.do("br label %row")
    code.label("row")
    code.do("%r = phi i64 [0, %entry], [%r.next, %row.end]", "%base = mul i64 %r, %columns", "br label %column")
    code.label("column")
    code.do("%c = phi i64 [0, %row], [%c.next, %column]", "%at = add i64 %base, %c")
    place = code.let(f"getelementptr {llvm}, ptr %out, i64 %at")
    product = code.let(f"load {llvm}, ptr {place}")
    total = code.let(f"fadd {llvm} {product}, {code.element('%bias', '%c', llvm)}")
    code.do(f"store {llvm} {total}, ptr {place}", "%c.next = add nuw nsw i64 %c, 1",
            "%c.more = icmp slt i64 %c.next, %columns", "br i1 %c.more, label %column, label %row.end")
    code.label("row.end")
    code.do("%r.next = add nuw nsw i64 %r, 1", "%r.more = icmp slt i64 %r.next, %rows",
            "br i1 %r.more, label %row, label %done")
    code.label("done")
    code.do("ret void")
    return code.text()

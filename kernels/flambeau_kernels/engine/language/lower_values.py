"""Values of the kernel language and what operators do to them (see `lower.py`): numbers, vectors and memory."""
from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any, NoReturn

from flambeau_kernels.engine.language import OnlyRead, VectorKind, vector_kind
from flambeau_kernels.engine.language.lower_code import PTR, Code, NotInLanguage, Pointer, Variable, say
from flambeau_kernels.engine.launching import loops
from flambeau_kernels.scalar import symbols as sy
from flambeau_kernels.scalar.symbols import BOOL, F64, I64, Kind, Symbol, literal, select
from flambeau_kernels.scalar.words import READING

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift}
_COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne), ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le), ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge)}
_PREDICATES = {"==": ("oeq", "eq"), "!=": ("une", "ne"), "<": ("olt", "slt"), "<=": ("ole", "sle"),
               ">": ("ogt", "sgt"), ">=": ("oge", "sge")}


# Instructions for vectors; a shift to the right is an arithmetic one for signed integers.
_OF_FLOATS = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_OF_TRUTHS = {ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor"}
_OF_INTEGERS = {**_OF_TRUTHS, ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.LShift: "shl", ast.RShift: "lshr"}


class Values:
    """What can be done with values, written into `code`."""

    def __init__(self, code: Code, function: FunctionType, register_bits: int):
        self.code = code
        self.register_bits = register_bits
        self.at: tuple[FunctionType, int] = (function, 0)

    def refuse(self, what: str) -> NoReturn:
        function, line = self.at
        raise NotInLanguage(f"{function.__code__.co_filename}:{line}, in kernel code {function.__name__}: {what}")

    def set(self, variable: Variable, value: Any, name: str) -> None:
        if variable.dtype is not None:
            if not isinstance(value, Pointer) or value.dtype != variable.dtype:
                self.refuse(f"{name} is a pointer to {variable.dtype} and cannot hold {say(value)}")
            value = value.address
        value = self.as_kind(value, variable.kind, name)
        self.code.effect(f"store {variable.kind.llvm} {value.name}, ptr {variable.slot}")

    def as_kind(self, value: Any, kind: Kind, name: str) -> Symbol:
        """`value` as `kind`, where that is the same kind or a Python number."""
        if isinstance(value, (bool, int, float)):
            return self.constant(value, kind)
        if isinstance(value, Symbol) and value.kind == kind:
            return value
        convert = "" if not isinstance(value, Symbol) else "; compare it" if kind == BOOL else f"; write {kind.name}(...)"
        return self.refuse(f"{name} is {kind.name} and cannot hold {say(value)}{convert}")

    def get(self, variable: Variable) -> Any:
        value = self.code.instruction(variable.kind, f"load {variable.kind.llvm}, ptr {variable.slot}")
        return value if variable.dtype is None else Pointer(value, variable.dtype)

    def offset(self, pointer: Pointer, index: Any) -> Symbol:
        i = self.index(index)
        return self.code.emit(PTR, f"getelementptr {pointer.llvm}, ptr {pointer.address.name}, i64 {i.name}")

    def index(self, value: Any) -> Symbol:
        if isinstance(value, int):
            return self.constant(value, I64)
        if isinstance(value, Symbol) and value.kind.family in "iub":
            return value.to(I64)
        if isinstance(value, tuple):
            self.refuse(f"memory has one index, as in x[row * width + column], and {len(value)} are given")
        return self.refuse(f"an index is an integer, got {say(value)}")

    def load(self, pointer: Any, index: Any) -> Symbol:
        if not isinstance(pointer, Pointer):
            self.refuse(f"only pointers have elements, got {say(pointer)}")
        address = self.offset(pointer, index)
        align = "" if isinstance(pointer.dtype, VectorKind) else ", align 1"
        text = f"load {pointer.llvm}, ptr {address.name}{align}{self.code.group}"
        if isinstance(pointer.dtype, Kind):
            return self.code.instruction(pointer.dtype, text)
        # The type of the raw value is written by `text`; what it means is told by the dtype.
        raw = self.code.instruction(PTR, text)
        return loops.widen_real(self.code, raw.name, loops.Operand(pointer.dtype, "c"))

    def store(self, pointer: Any, index: Any, value: Any) -> None:
        if not isinstance(pointer, Pointer):
            self.refuse(f"only pointers have elements, got {say(pointer)}")
        self.check_written(pointer)
        value = self.as_kind(value, pointer.kind, "an element")
        name = value.name
        if isinstance(pointer.dtype, str):
            name = loops.narrow_real(value, loops.Operand(pointer.dtype, "c"))
        align = "" if isinstance(pointer.dtype, VectorKind) else ", align 1"
        address = self.offset(pointer, index)
        self.code.effect(f"store {pointer.llvm} {name}, ptr {address.name}{align}{self.code.group}")

    def check_written(self, pointer: Pointer) -> None:
        if isinstance(pointer.dtype, OnlyRead):
            self.refuse(f"elements of {pointer.dtype.parameter} are stored to, which mutates_args does not name")

    def binary(self, op: ast.operator, a: Any, b: Any) -> Any:
        if isinstance(a, Pointer) and isinstance(op, (ast.Add, ast.Sub)):
            return Pointer(self.offset(a, self.index(b) if isinstance(op, ast.Add) else -self.index(b)), a.dtype)
        if isinstance(a, Pointer) or isinstance(b, Pointer):
            self.refuse("pointers can only be moved by + and -")
        if any(isinstance(v, Symbol) and isinstance(v.kind, VectorKind) for v in (a, b)):
            a, b = self.as_vectors(a, b)
            name = (_OF_FLOATS if a.kind.family == "f" else _OF_TRUTHS if a.kind.family == "b" else _OF_INTEGERS).get(type(op))
            if name is None:
                self.refuse("vectors have + - *, those of floats also /, of integers & | ^ << >>, of truth values only & | ^")
            name = "ashr" if name == "lshr" and a.kind.family == "i" else name
            return self.code.emit(a.kind, f"{name} {a.kind.llvm} {a.name}, {b.name}")
        is_integral = isinstance(op, (ast.FloorDiv, ast.Mod)) and any(isinstance(v, Symbol) for v in (a, b))
        if is_integral:
            a, b = sy.pair(a, b)
            if a.kind.family in "iu":                 # of non-negative numbers
                name = "udiv" if isinstance(op, ast.FloorDiv) else "urem"
                return self.code.emit(a.kind, f"{name} {a.kind.llvm} {a.name}, {b.name}")
        shift = isinstance(op, (ast.LShift, ast.RShift))
        if shift and isinstance(a, Symbol) and isinstance(b, int):
            return (sy.shift_left if isinstance(op, ast.LShift) else sy.shift_right)(a, b)
        return _BINARY[type(op)](a, b)

    def as_vectors(self, *values: Any) -> list[Any]:
        kind: Any = next(v.kind for v in values if isinstance(v, Symbol) and isinstance(v.kind, VectorKind))
        return [v if isinstance(v, Symbol) and v.kind == kind else self.splat(v, kind) for v in values]

    def splat(self, value: Any, kind: Any) -> Symbol:
        one = self.as_kind(value, kind.of, "a lane")
        first = self.code.emit(kind, f"insertelement {kind.llvm} poison, {kind.of.llvm} {one.name}, i64 0")
        zeros = f"<{kind.count} x i32> zeroinitializer"
        return self.code.emit(kind, f"shufflevector {kind.llvm} {first.name}, {kind.llvm} poison, {zeros}")

    def compare(self, op: ast.cmpop, a: Any, b: Any) -> Any:
        if isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
            if isinstance(a, (Symbol, Pointer)):
                return isinstance(op, (ast.IsNot, ast.NotIn))
            table = {ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.In: lambda x, y: x in y,
                     ast.NotIn: lambda x, y: x not in y}
            return table[type(op)](a, b)
        sign, plain = _COMPARISONS[type(op)]
        if any(isinstance(v, Symbol) and isinstance(v.kind, VectorKind) for v in (a, b)):
            a, b = self.as_vectors(a, b)
            word = "fcmp" if a.kind.family == "f" else "icmp"
            predicate = _PREDICATES[sign][word == "icmp"]
            predicate = predicate.replace("s", "u") if a.kind.family == "u" else predicate
            return self.code.emit(vector_kind(BOOL, a.kind.count),
                                  f"{word} {predicate} {a.kind.llvm} {a.name}, {b.name}")
        return plain(a, b)

    def truth(self, value: Any) -> Symbol:
        if isinstance(value, Symbol):
            return value.to(BOOL)
        return self.constant(bool(value), BOOL)

    def smaller(self, function: Any, a: Any, b: Any) -> Any:
        if not isinstance(a, Symbol) and not isinstance(b, Symbol):
            return function(a, b)
        a, b = sy.pair(a, b)
        return select(b < a if function is min else b > a, b, a)

    def converted(self, value: Any, kind: Kind) -> Symbol:
        if isinstance(kind, VectorKind):
            return self.convert_vector(value, kind)
        if isinstance(value, (bool, int, float)):
            return self.constant(value, kind)
        if isinstance(value, Pointer) and kind is I64:
            return self.code.emit(I64, f"ptrtoint ptr {value.address.name} to i64")
        if not isinstance(value, Symbol):
            return self.refuse(f"{say(value)} cannot be converted to {kind.name}")
        if kind.family == "i" and value.kind.family == "f":
            return sy.to_integer(value, kind)
        return value.to(kind)

    def convert_vector(self, value: Any, kind: VectorKind) -> Symbol:
        if not isinstance(value, Symbol) or not isinstance(value.kind, VectorKind):
            return self.splat(value, kind)
        old, new = value.kind.of, kind.of
        if old == new:
            return value
        if old.family == new.family == "f":
            word = "fpext" if new.bits > old.bits else "fptrunc"
        elif new.family == "f":
            word = "sitofp" if old.family == "i" else "uitofp"
        elif old.family == "f":
            word = "fptosi" if new.family == "i" else "fptoui"
        elif new.bits == old.bits:                    # the same bits, read otherwise
            return Symbol(self.code, value.name, kind)
        else:
            word = "trunc" if new.bits < old.bits else "sext" if old.family == "i" else "zext"
        return self.code.emit(kind, f"{word} {value.kind.llvm} {value.name} to {kind.llvm}")

    def word(self, name: str, args: list[Any]) -> Any:
        vectors = [a.kind for a in args if isinstance(a, Symbol) and isinstance(a.kind, VectorKind)]
        if vectors:
            return self.vector_word(name, args)
        if name == "fma":                             # in kernels it is the instruction, rounded once
            return sy.fma(*self.symbols(args))
        return READING[name](*args)

    def symbols(self, args: list[Any]) -> list[Symbol]:
        kind = next(a.kind for a in args if isinstance(a, Symbol))
        return [a if isinstance(a, Symbol) else self.constant(a, kind) for a in args]

    def vector_word(self, name: str, args: list[Any]) -> Symbol:
        """Words that are one instruction on vectors."""
        if name == "where":
            yes, no = self.as_vectors(args[1], args[2])
            text = f"select {args[0].kind.llvm} {args[0].name}, {yes.kind.llvm} {yes.name}, {no.kind.llvm} {no.name}"
            return self.code.emit(yes.kind, text)
        kind: Any = next(a.kind for a in args if isinstance(a, Symbol) and isinstance(a.kind, VectorKind))
        if kind.family in "iu":
            return self.integer_word(name, kind, args)
        found = {"fma": "fma", "minimum": "minimum", "maximum": "maximum", "fmin": "minnum", "fmax": "maxnum",
                 "abs": "fabs", "sqrt": "sqrt", "floor": "floor", "nearbyint": "nearbyint"}.get(name)
        if found is None:
            self.refuse(f"{name} of vectors")
        values = self.as_vectors(*args)
        full = f"@llvm.{found}.v{kind.count}f{kind.bits}"
        self.code.needs.add(f"declare {kind.llvm} {full}({', '.join([kind.llvm] * len(values))})")
        return self.code.emit(kind, f"call {kind.llvm} {full}({', '.join(f'{kind.llvm} {v.name}' for v in values)})")

    def integer_word(self, name: str, kind: Any, args: list[Any]) -> Symbol:
        """`minimum`, `maximum` and `abs` of vectors of integers."""
        sign = "s" if kind.family == "i" else "u"
        found = {"minimum": f"{sign}min", "maximum": f"{sign}max", "abs": "abs"}.get(name)
        if found is None:
            self.refuse(f"{name} of vectors of integers")
        if name == "abs" and sign == "u":
            return args[0]
        values = self.as_vectors(*args)
        given = ", ".join([f"{kind.llvm} {v.name}" for v in values] + ["i1 false"] * (name == "abs"))
        full = f"@llvm.{found}.v{kind.count}i{kind.bits}"
        self.code.needs.add(f"declare {kind.llvm} {full}({', '.join([kind.llvm] * len(values) + ['i1'] * (name == 'abs'))})")
        return self.code.emit(kind, f"call {kind.llvm} {full}({given})")

    def number(self, value: Any) -> Symbol:
        """A Python number as a value of the kernel; values stay as they are."""
        if isinstance(value, Symbol):
            return value
        if isinstance(value, bool):
            return self.constant(value, BOOL)
        if isinstance(value, (int, float)):
            return self.constant(value, I64 if isinstance(value, int) else F64)
        return self.refuse(f"a number is needed here, got {say(value)}")

    def constant(self, value: Any, kind: Kind) -> Symbol:
        if isinstance(kind, VectorKind):
            return self.splat(Symbol(self.code, literal(value, kind.of), kind.of), kind)
        return Symbol(self.code, literal(value, kind), kind)

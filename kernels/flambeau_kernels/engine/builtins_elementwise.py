"""Elementwise builtins: a formula over arrays of one shape, numbers and 0-d arrays, in one loop."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from flambeau_kernels.engine import pyabi
from flambeau_kernels.engine.fastcall import C_ORDER, REALS, Code, Module, Part, Real, entry
from flambeau_kernels.scalar.symbols import Block, Symbol


@dataclasses.dataclass(frozen=True)
class Elementwise:
    """A formula over arrays of one shape, in one loop.

    Args:
        operands: a letter for each argument: `a` an array of the first one's shape, `x` that, a 0-d array or a Python
            number. The first is always `a`, and there is at most one `x`.
        formula: from one `Symbol` per argument to one result, or to a tuple of results, for which the builtin
            returns a tuple of arrays.
        in_place: write the result to the first argument, and return that.
    """

    operands: str
    formula: Callable[..., Any]
    in_place: bool = False

    @property
    def arguments(self) -> int:
        return len(self.operands)


def elementwise(module: Module, name: str, op: Elementwise) -> None:
    """Add the builtin `name` to `module`. Raises Unsupported for a formula the compiled words cannot say."""
    parts = [_elementwise_part(module, name, op, real) for real in REALS]
    module.functions += [*parts, entry(name, op.arguments)]


def _elementwise_part(module: Module, name: str, op: Elementwise, real: Real) -> str:
    loop = _Loops(module, f"{name}.{real.name}", op, real)
    code = Part(name, real)
    scalar = code.let("alloca double")
    first = code.argument(0)
    code.require_array(first, C_ORDER | (pyabi.WRITEABLE if op.in_place else 0))
    count = code.count(first)
    open_operand = op.operands.find("x")
    for k, letter in enumerate(op.operands[1:], start=1):
        if letter == "a":
            _require_alike(code, first, code.argument(k), count, op)
    if open_operand < 0:
        _finish(code, loop, first, count, {})
    else:
        _array_or_number(code, loop, first, count, open_operand, scalar)
    return code.text()


def _array_or_number(code: Part, loop: _Loops, first: str, count: str, k: int, scalar: str) -> None:
    """The ways on for argument `k`, which may be an array of the same shape, a 0-d array or a number."""
    op = loop.op
    item = code.argument(k)
    is_array = code.let(f"icmp eq ptr {code.field(item, pyabi.TYPE, 'ptr')}, {code.slot('ndarray')}")
    code.branch(is_array, "array", "number")

    code.label("number")
    _finish(code, loop, first, count, {k: _number(code, k, scalar)})

    code.label("array")
    code.require_array(item)
    code.branch(code.let(f"icmp eq i32 {code.field(item, pyabi.NDIM, 'i32')}, 0"), "single", "alike")
    code.label("single")
    if op.in_place:
        _require_apart(code, first, count, item, "1")
    value = code.let(f"load {loop.real.llvm}, ptr {code.data(item)}")
    _finish(code, loop, first, count, {k: value})
    code.label("alike")
    _require_alike(code, first, item, count, op)
    _finish(code, loop, first, count, {})


def _require_alike(code: Part, first: str, item: str, count: str, op: Elementwise) -> None:
    """`item` is an array that the loop can read beside `first`."""
    code.require_array(item)
    code.require(code.let(f"call i1 @same_shape(ptr {first}, ptr {item})"))
    if op.in_place:
        _require_apart(code, first, count, item, count)


def _require_apart(code: Part, first: str, count: str, item: str, item_count: str) -> None:
    """Writing `first` must not change what is yet to be read of `item`."""
    sizes = [code.let(f"mul i64 {n}, {code.real.size}") for n in (count, item_count)]
    code.require(code.let(f"call i1 @apart(ptr {first}, i64 {sizes[0]}, ptr {item}, i64 {sizes[1]})"))


def _number(code: Part, k: int, scalar: str) -> str:
    """Argument `k`, a Python number, in this part's dtype."""
    code.require(code.let(f"call i1 @number(ptr %table, ptr {code.argument(k)}, ptr {scalar})"))
    return code.from_double(code.let(f"load double, ptr {scalar}"), code.real)


def _finish(code: Part, loop: _Loops, first: str, count: str, numbers: dict[int, str]) -> None:
    """Make the outputs, run the loop, return. Arguments not in `numbers` are arrays, checked already."""
    function = loop.function(frozenset(numbers))
    values = [f"{loop.real.llvm} {numbers[k]}" if k in numbers
              else f"ptr {code.data(code.argument(k))}" for k in range(loop.op.arguments)]
    if loop.op.in_place:
        code.do(f"call void @{function}({', '.join([*values, *values[:1], f'i64 {count}'])})",
                f"call void {code.slot('incref')}(ptr {first})", f"ret ptr {first}")
        return
    shape = (code.field(first, pyabi.NDIM, "i32"), code.field(first, pyabi.SHAPE, "ptr"))
    answer, outs = _outputs(code, loop, shape)
    data = [f"ptr {code.data(out)}" for out in outs]
    code.do(f"call void @{function}({', '.join([*values, *data, f'i64 {count}'])})", f"ret ptr {answer}")


def _outputs(code: Part, loop: _Loops, shape: tuple[str, str]) -> tuple[str, list[str]]:
    """What to return, and the arrays in it: one new array, or a tuple of several."""
    if loop.results == 1:
        made = code.new_array(*shape)
        return made, [made]
    answer = code.let(f"call ptr {code.slot('new_tuple')}(i64 {loop.results})")
    code.return_null_if_null(answer)
    outs = []
    for k in range(loop.results):
        outs.append(code.new_array(*shape, undo=answer))
        # The tuple owns it from here on, so a later failure frees it with the tuple.
        code.do(f"call i32 {code.slot('set_item')}(ptr {answer}, i64 {k}, ptr {outs[-1]})")
    return answer, outs


class _Loops:
    """The loops of one builtin and dtype, one for each set of arguments that are numbers."""

    def __init__(self, module: Module, name: str, op: Elementwise, real: Real):
        self.module, self.name, self.op, self.real = module, name, op, real
        self.block = Block(real.kind, module.scales)
        arguments = [Symbol(self.block, f"%x{k}", real.kind) for k in range(op.arguments)]
        results = op.formula(*arguments)
        results = results if isinstance(results, tuple) else (results,)
        self.values = [r if isinstance(r, Symbol) else self.block.constant(r, real.kind) for r in results]
        self.results = len(results)
        self._made: dict[frozenset[int], str] = {}
        module.needs |= self.block.needs

    def function(self, numbers: frozenset[int]) -> str:
        """Name of the loop that gets the arguments in `numbers` as values and the others as addresses."""
        if numbers not in self._made:
            name = f"{self.name}.{''.join('n' if k in numbers else 'a' for k in range(self.op.arguments))}"
            self.module.functions.append(self._text(name, numbers))
            self._made[numbers] = name
        return self._made[numbers]

    def _text(self, name: str, numbers: frozenset[int]) -> str:
        llvm = self.real.llvm
        parameters = [f"{llvm} %x{k}" if k in numbers else f"ptr %p{k}" for k in range(self.op.arguments)]
        parameters += [f"ptr %o{k}" for k in range(self.results)]
        group = self.module.mark()
        access = f"align {self.real.size}, !llvm.access.group {group}"
        code = Code(f"internal void @{name}({', '.join(parameters)}, i64 %n)")
        code.branch(code.let("icmp sgt i64 %n, 0"), "body", "done")
        code.label("body")
        code.do("%i = phi i64 [0, %entry], [%next, %body]")
        for k in range(self.op.arguments):
            if k not in numbers:
                at = code.let(f"getelementptr {llvm}, ptr %p{k}, i64 %i")
                code.do(f"%x{k} = load {llvm}, ptr {at}, {access}")
        code.do(*(line.strip() for line in self.block.lines))
        for k, value in enumerate(self.values):
            at = code.let(f"getelementptr {llvm}, ptr %o{k}, i64 %i")
            code.do(f"store {llvm} {value.name}, ptr {at}, {access}")
        code.do("%next = add nuw nsw i64 %i, 1", "%more = icmp slt i64 %next, %n",
                f"br i1 %more, label %body, label %done, !llvm.loop {self.module.loop_mark(group)}")
        code.label("done")
        code.do("ret void")
        return code.text()

"""Straight-line code as a function that numba's functions call: `intrinsic`.

The instructions are those of a `scalar.symbols.Block`. numba's extension interface lets an intrinsic write instructions where it
is called; here they are written as the block has them, with names that are new in the function around.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic as numba_intrinsic
from numba.extending import models, register_model

from flambeau_kernels.scalar.symbols import Unsupported

__all__ = ["READ", "SHARED", "WRITTEN", "intrinsic", "numba_type"]

# After a load, and after a store: what the one reads no other one writes before that, so that numba may make vectors of a loop.
READ = ", !alias.scope !flambeau.read, !noalias !flambeau.written"
WRITTEN = ", !alias.scope !flambeau.written, !noalias !flambeau.read"

# Names that begin so mean the same in all that a function calls: memory that instructions `at_entry` have reserved.
SHARED = "%flambeau."

_NAME = re.compile(r"%[A-Za-z_][\w.]*")
_SYMBOL = re.compile(r"@([\w.]+)")
_numbers = itertools.count()

_SCALARS = {
    "i1": types.boolean, "i8": types.int8, "i16": types.int16, "i32": types.int32, "i64": types.int64,
    "float": types.float32, "double": types.float64, "ptr": types.voidptr,
}  # fmt: skip
_LLVM: dict[str, ir.Type] = {"half": ir.HalfType(), "float": ir.FloatType(), "double": ir.DoubleType()}


class Vector(types.Type):
    """A machine vector between two pieces of straight-line code; `llvm` is its type in their text."""

    def __init__(self, llvm: str) -> None:
        self.llvm = llvm
        super().__init__(name=f"vector {llvm}")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: Vector) -> None:
        super().__init__(manager, fe_type, _llvm_type(fe_type.llvm))


@functools.cache
def numba_type(llvm: str) -> Any:
    """numba's type of values that LLVM calls `llvm`."""
    return Vector(llvm) if llvm.startswith("<") else _SCALARS[llvm]


def _llvm_type(text: str) -> ir.Type:
    if text.startswith("<"):
        count, _, of = text.strip("<>").partition(" x ")
        return ir.VectorType(_llvm_type(of), int(count))
    return _LLVM[text] if text in _LLVM else ir.IntType(int(text[1:]))


class _Text(ir.Instruction):
    """Instructions as text, in the place of one that has no value."""

    def __init__(self, parent: ir.Block, text: str) -> None:
        super().__init__(parent, ir.VoidType(), "text", ())
        self.text = text

    def descr(self, buf: list[str]) -> None:
        buf.append(self.text)


class _Made(ir.Value):
    """A value that a `_Text` has made, for the instructions after it."""

    def __init__(self, name: str, type: ir.Type) -> None:
        self.name, self.type = name, type

    def get_reference(self) -> str:
        return self.name

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


class _Declared:
    """A function that instructions call, as text, among the globals of a module."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text

    def __str__(self) -> str:
        return self.text


def intrinsic(
    name: str, inputs: Sequence[tuple[str, str]], lines: Iterable[str], needs: Iterable[str], outs: Sequence[tuple[str, str]],
    at_entry: bool = False,
) -> Callable[..., Any]:
    """A function for code that numba compiles: it runs `lines` and gives what they made.

    Args:
        inputs: names (``%x0``) of the values that `lines` use and LLVM's types of them, in the order of the arguments.
        needs: declarations of what `lines` call.
        outs: names, or constants, and types of the results: none, one, or those of a tuple.
        at_entry: whether the instructions stand at the beginning of the function around, as memory of a call does.
    Raises: Unsupported if something is called that numba cannot link.
    """
    text = "\n".join(lines)
    declared = [_declaration(need) for need in _called(text, sorted(needs))]
    results = [numba_type(llvm) for _, llvm in outs]
    result = types.void if not results else results[0] if len(results) == 1 else types.Tuple(results)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for one in declared:
            if one.name not in builder.module.globals:
                builder.module.add_global(one)
        mark = f"%b{next(_numbers)}."
        scoped = _scoped(builder.module, text)
        known = {given: value.get_reference() for (given, _), value in zip(inputs, args, strict=True)}

        def renamed(found: re.Match[str]) -> str:
            return found[0] if found[0].startswith(SHARED) else known.get(found[0]) or mark + found[0][1:]

        if at_entry:
            with builder.goto_entry_block():
                _write(builder, _NAME.sub(renamed, scoped))
        else:
            _write(builder, _NAME.sub(renamed, scoped))
        made = [_Made(_NAME.sub(renamed, name), context.get_value_type(t)) for (name, _), t in zip(outs, results, strict=True)]
        if not made:
            return context.get_dummy_value()
        return made[0] if len(made) == 1 else context.make_tuple(builder, signature.return_type, made)

    signature = result(*(numba_type(llvm) for _, llvm in inputs))
    # numba counts the parameters of the function that types a call.
    scope: dict[str, Any] = {"answer": (signature, code)}
    parameters = "".join(f", a{k}" for k in range(len(inputs)))
    exec(f"def {name}(typing_context{parameters}):\n    return answer\n", scope)
    return numba_intrinsic(scope[name])


def _scoped(module: ir.Module, text: str) -> str:
    """`text` with the metadata of `module` that `READ` and `WRITTEN` stand for."""
    if READ not in text and WRITTEN not in text:
        return text
    domain = module.add_metadata(["flambeau"])
    for name in ("read", "written"):
        scope = module.add_metadata([module.add_metadata([f"flambeau {name}", domain])])
        text = text.replace(f"!flambeau.{name}", scope.get_reference())
    return text


def _write(builder: Any, text: str) -> None:
    if not text:
        return
    place = builder.block.instructions
    instruction = _Text(builder.block, text.strip() + "\n")
    if builder.block.is_terminated:                   # the entry block, which ends in a jump by now
        place.insert(0, instruction)
    else:
        place.append(instruction)
        builder.position_at_end(builder.block)


def _declaration(need: str) -> _Declared:
    found = _SYMBOL.search(need)
    if found is None:
        raise Unsupported(f"what numba cannot link: {need[:60]}")
    # Each function of numba is a module that is linked with others, so what a module defines is its own.
    return _Declared(found[1], re.sub(r"^define (?!internal )", "define internal ", need))


def _called(text: str, needs: list[str]) -> list[str]:
    """Declarations, and the definitions that `text` calls or that those call."""
    defined = {_defined(need): need for need in needs if need.startswith("define ")}
    called: list[str] = []
    texts = [text]
    while texts:
        some = texts.pop()
        met = [name for name in defined if name in some]
        texts += [defined.pop(name) for name in met]
        called += texts[len(texts) - len(met):]
    return [*(need for need in needs if not need.startswith("define ")), *called]


def _defined(need: str) -> str:
    found = _SYMBOL.search(need)
    assert found is not None
    return f"@{found[1]}("

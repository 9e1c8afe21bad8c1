"""Score and mask functions as text of the kernel language.

A function is run once with scalars that hold nothing (0-d meta tensors), while an interpreter notes every op it comes to: an
elementwise op has a formula, which the kernel language calls; an index into a tensor of the program becomes a load. What is
anything else raises `Untraceable`, and the caller computes with plain ops. The derivative by the score follows from the
gradients that the ops declare, backwards through what was noted.
"""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

import flambeau as fb
from flambeau_kernels.cpu.attention.tiles import QUERIES
from flambeau_kernels.engine import language
from flambeau_kernels.formula import Formula
from flambeau_kernels.scalar.symbols import KINDS
from flambeau_kernels.vocabulary import where

from ... import _interpreters, _state
from ..._arrays import ndarray
from ...ops._spec import ElementwiseOp
from ...tensor import Tensor

__all__ = ["Traced", "Untraceable", "trace"]

PLACES = ("b", "h", "i", "j")
_HALVES = (fb.float16, fb.bfloat16)
# Numbers that formulas simplify with, or that decide what they mean.
_IN_TEXT = frozenset((0.0, 0.5, 1.0, -1.0, 2.0, float("inf"), -float("inf")))


class Untraceable(Exception):
    """A function does something that the kernel language has no words for; the message says what."""


class Value(NamedTuple):
    """A scalar that the traced function made: its variable in the text, its dtype, and whether it follows from the score, or from
    a tensor whose gradient is wanted."""

    name: str
    dtype: Any
    of_score: bool = False


class Step(NamedTuple):
    """One line of the text, and for values that follow from the score how their gradient goes on."""

    out: Value
    text: str
    op: Any = None
    args: tuple[Any, ...] = ()                           # Values and numbers


class Part(NamedTuple):
    """A tensor of the program with some of its dimensions indexed: an index or None for each."""

    tensor: Tensor
    indices: tuple[Any, ...]


class Wanted(NamedTuple):
    """A tensor whose gradient the function of the kernel language adds up, from the place `begin` of all sums on."""

    tensor: int                                          # among those that are read
    begin: int
    index: str                                           # text: the place of an element
    variable: str


class Traced(NamedTuple):
    """A function of the kernel language and the table it reads: see `flex_tiles.Changes`."""

    function: FunctionType
    grad: FunctionType
    spread: FunctionType | None
    wanted: list[Wanted]
    numbers: np.ndarray
    places: list[int]
    tensors: list[Tensor]
    text: str


class _Tracer(_interpreters.Interpreter):
    """Notes the ops that a function of scalars comes to."""

    kind = "flex_attention"

    def __init__(self, working: Any, sizes: tuple[int, int, int, int]) -> None:
        self.working = working
        self.extents = dict(zip(PLACES, sizes, strict=True))
        self.known: dict[int, Any] = {}
        self.held: list[Any] = []                        # so that no id is used twice
        self.steps: list[Step] = []
        self.loads: list[str] = []                       # lines before the loops: pointers, strides, sizes
        self.globals: dict[str, Any] = {}
        self.formulas: dict[int, str] = {}
        self.tensors: list[Tensor] = []
        self.places: list[int] = []
        self.numbers: list[int] = [0]
        self.loaded: dict[Any, Value] = {}
        self.checks = False
        self.parameters: dict[float, str] = {}
        self.wanted: list[Wanted] = []
        self.sums = 0                                    # elements of all wanted gradients

    # -- what functions are given

    def scalar(self, name: str, dtype: Any, of_score: bool = False) -> Tensor:
        return self.remember(Value(name, dtype, of_score))

    def remember(self, value: Any, shape: tuple[int, ...] = ()) -> Tensor:
        made = fb.empty(shape, dtype=value.tensor.dtype if isinstance(value, Part) else value.dtype, device="meta")
        self.known[id(made)] = value
        self.held.append(made)
        return made

    # -- ops

    def run(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        flat = [x for a in args for x in (a if isinstance(a, (tuple, list)) else (a,))]
        if not any(isinstance(a, Tensor) and (id(a) in self.known or a._lacks_values) for a in flat):
            return NotImplemented                        # between tensors of the program: computed now
        if op.kind == "composite":
            return _interpreters.DECOMPOSE
        if out is not None or inplace:
            raise Untraceable(f"{op.public_name} writes to a tensor")
        if isinstance(op, ElementwiseOp):
            return self.elementwise(op, args)
        rule = getattr(self, "do_" + op.name.removeprefix("Tensor."), None)
        if rule is None:
            raise Untraceable(f"{op.public_name} is no elementwise op")
        return rule(op, *args)

    def value(self, x: Any, operation: str) -> Any:
        """What is known of an operand: a Value, or the number it is."""
        if isinstance(x, (bool, int, float)):
            return x
        if not isinstance(x, Tensor):
            raise Untraceable(f"{operation} is given {type(x).__name__}")
        found = self.known.get(id(x))
        if isinstance(found, Value):
            return found
        if found is not None or x.ndim:
            raise Untraceable(f"{operation} is given a tensor of shape {tuple(x.shape)}, not a scalar")
        if x._lacks_values:
            raise Untraceable(f"{operation} is given a tensor that the function creates from one of its arguments")
        return self.load(Part(x, ()))

    def elementwise(self, op: ElementwiseOp, args: tuple[Any, ...]) -> Tensor:
        values = [self.value(a, op.public_name) for a in args]
        _, compute, result, shape, _ = op.prepare(args)
        if shape:
            raise Untraceable(f"{op.public_name} makes a tensor of shape {shape}")
        for dtype in (compute, result):
            self.check_dtype(dtype, op.public_name)
        if result in _HALVES:
            raise Untraceable(f"{op.public_name} rounds to {result}")
        count = len(op.positional)
        formula, given = op.formula, values
        if op.short is not None and all(a is d or a == d for a, d in zip(values[count:], op.keyword_defaults, strict=True)):
            formula, given = op.short, values[:count]
        of_score = result.is_floating_point and any(isinstance(v, Value) and v.of_score for v in values)
        kind = self.kind_of(compute)
        # A whole exponent is a product of few factors only where it stays a number.
        as_it_is = [op.name == "pow" and k == 1 and not isinstance(v, Value) for k, v in enumerate(given)]
        operands = [_number(v) if plain else self.as_kind(v, kind) for v, plain in zip(given, as_it_is, strict=True)]
        text = f"{self.kind_of(result)}({self.formula(formula)}({', '.join(operands)}))"
        return self.add(text, result, of_score, op, tuple(values))

    def do_to_copy(self, op: Any, input: Any, dtype: Any, *rest: Any) -> Tensor:
        value = self.value(input, op.public_name)
        if any(r is not None for r in rest):
            raise Untraceable("to() is told a device or a memory format")
        if dtype is None or dtype is value.dtype:
            return input
        self.check_dtype(dtype, op.public_name)
        if dtype in _HALVES:
            raise Untraceable(f"to() rounds to {dtype}")
        return self.add(f"{self.kind_of(dtype)}({value.name})", dtype, value.of_score and dtype.is_floating_point, "copy", (value,))

    def do_clone(self, op: Any, input: Any, *rest: Any) -> Tensor:
        return input

    def do_masked_fill_number(self, op: Any, input: Any, mask: Any, value: Any) -> Tensor:
        from ...ops.pointwise.ternary import choose

        return self.elementwise(choose, (mask, value, input))

    do_masked_fill_tensor = do_masked_fill_number

    def do_index(self, op: Any, input: Any, indices: Any) -> Tensor:
        """``tensor[index, ...]``: an element, or a tensor with fewer dimensions."""
        found = self.known.get(id(input))
        part = found if isinstance(found, Part) else Part(input, (None,) * input.ndim)
        if isinstance(found, Value) or input._lacks_values and found is None:
            raise Untraceable("the function indexes a tensor that it creates from one of its arguments")
        free = [d for d, index in enumerate(part.indices) if index is None]
        filled = list(part.indices)
        for d, index in zip(free, (*indices, *(None,) * len(free)), strict=False):
            if index is None:
                continue
            value = self.value(index, "an index")
            if value.dtype is fb.bool or value.dtype.is_floating_point:
                raise Untraceable(f"an index is {value.dtype}")
            filled[d] = value
        return self.rest(Part(part.tensor, tuple(filled)))

    def do_basic_index(self, op: Any, input: Any, key: Any) -> Tensor:
        """``tensor[index][3]``: numbers in the place of dimensions that are left."""
        part = self.known.get(id(input))
        if not isinstance(part, Part):
            raise Untraceable("the function takes a view of a scalar")
        free = [d for d, index in enumerate(part.indices) if index is None]
        filled = list(part.indices)
        key = key if isinstance(key, tuple) else (key,)
        for d, index in zip(free, key, strict=False):
            if isinstance(index, int) and not isinstance(index, bool):
                size = part.tensor.shape[d]
                if not -size <= index < size:
                    raise Untraceable(f"index {index} is out of bounds for a dimension of size {size}")
                filled[d] = index % size
            elif index != slice(None):
                raise Untraceable(f"the function takes the part [{index}] of a tensor")
        return self.rest(Part(part.tensor, tuple(filled)))

    def rest(self, part: Part) -> Tensor:
        shape = tuple(n for n, index in zip(part.tensor.shape, part.indices, strict=True) if index is None)
        if shape:
            return self.remember(part, shape)
        value = self.load(part)
        found = next((t for t in self.held if self.known[id(t)] is value), None)
        return self.remember(value) if found is None else found

    # -- text

    def add(self, text: str, dtype: Any, of_score: bool, op: Any, args: tuple[Any, ...]) -> Tensor:
        value = Value(f"x{len(self.steps)}", dtype, of_score)
        self.steps.append(Step(value, text, op, args))
        return self.remember(value)

    def formula(self, formula: Formula) -> str:
        name = self.formulas.get(id(formula))
        if name is None:
            name = self.formulas[id(formula)] = f"f{len(self.formulas)}_{formula.name}"
            self.globals[name] = formula
        return name

    def kind_of(self, dtype: Any) -> str:
        kind = "float32" if dtype in _HALVES else dtype.numpy.name
        self.globals["to_" + kind] = KINDS[kind]
        return "to_" + kind

    def as_kind(self, value: Any, kind: str) -> str:
        if isinstance(value, Value):
            return value.name if "to_" + value.dtype.numpy.name == kind else f"{kind}({value.name})"
        number = KINDS[kind.removeprefix("to_")].family
        value = bool(value) if number == "b" else int(value) if number in "iu" else float(value)
        if isinstance(value, float) and value not in _IN_TEXT and value == value:
            return f"{kind}({self.parameter(value)})"
        return f"{kind}({_number(value)})"

    def parameter(self, value: float) -> str:
        """A number that is read from the table, so that another one needs no other kernel."""
        name = self.parameters.get(value)
        if name is None:
            name = self.parameters[value] = f"number{len(self.parameters)}"
            self.globals["float64"] = KINDS["float64"]
            self.loads.append(f"{name} = bitcast(table[{self.slot(int(np.float64(value).view(np.int64)))}], float64)")
        return name

    def check_dtype(self, dtype: Any, operation: str) -> None:
        if dtype.numpy.name not in KINDS and dtype not in _HALVES:
            raise Untraceable(f"{operation} computes in {dtype}")

    def slot(self, number: int) -> int:
        self.numbers.append(number)
        return len(self.numbers) - 1

    def load(self, part: Part) -> Value:
        """The element of a tensor of the program."""
        tensor = part.tensor
        array = tensor._array
        if array.__class__ is not ndarray or not tensor.numel():
            raise Untraceable("the function reads a tensor that is empty, or is not an array of the CPU")
        wanted = tensor.requires_grad and _state.grad_enabled()
        if wanted and not tensor.is_leaf:
            raise Untraceable("the function reads a tensor that has a history, which plain ops continue")
        self.check_dtype(tensor.dtype, "a tensor that the function reads")
        key = (id(array), array.strides, array.__array_interface__["data"][0], tuple(part.indices))
        found = self.loaded.get(key)
        if found is not None:
            return found
        k = len(self.tensors)
        self.tensors.append(tensor)
        self.places.append(self.slot(0))
        self.loads.append(f"p{k} = pointer(table[{self.places[-1]}], {array.dtype.name!r})")
        terms, names = [], []
        for d, index in enumerate(part.indices):
            term, name = self.term(k, d, index, array.shape[d], array.strides[d] // array.itemsize)
            terms += term
            names.append(name)
        kind = self.kind_of(tensor.dtype)
        value = Value(f"x{len(self.steps)}", tensor.dtype, wanted)
        if wanted:
            self.want(k, tensor, names, value.name)
        self.steps.append(Step(value, f"{kind}(p{k}[{' + '.join(terms) or '0'}])"))
        self.loaded[key] = value
        return value

    def want(self, k: int, tensor: Tensor, names: list[str], variable: str) -> None:
        """Note that the gradient at a tensor is to be added up, in an array in C order."""
        terms, step = [], 1
        for d in reversed(range(tensor.ndim)):
            self.loads.append(f"row{k}_{d} = table[{self.slot(step)}]")
            terms.append(f"{names[d]} * row{k}_{d}")
            step *= tensor.shape[d]
        self.loads.append(f"begin{k} = table[{self.slot(self.sums)}]")
        self.wanted.append(Wanted(k, self.sums, " + ".join([f"begin{k}", *terms]), variable))
        self.sums += tensor.numel()

    def term(self, k: int, d: int, index: Any, size: int, step: int) -> tuple[list[str], str]:
        """What an index adds to the place of an element, and the index; one that may be out of range is looked at."""
        if isinstance(index, int):
            self.loads += [f"index{k}_{d} = table[{self.slot(index)}]", f"at{k}_{d} = table[{self.slot(index * step)}]"]
            return [f"at{k}_{d}"], f"index{k}_{d}"
        name = index.name
        if self.extents.get(name, size + 1) > size:
            self.loads.append(f"size{k}_{d} = table[{self.slot(size)}]")
            self.checks = True
            place = f"n{k}_{d}"
            self.steps.append(Step(Value(place, fb.int64), f"to_int64({name})"))
            self.globals["to_int64"] = KINDS["int64"]
            counted = f"where({place} < 0, {place} + size{k}_{d}, {place})"
            self.steps.append(Step(Value(f"c{k}_{d}", fb.int64), counted))
            self.steps.append(Step(Value(f"o{k}_{d}", fb.bool), f"(c{k}_{d} < 0) | (c{k}_{d} >= size{k}_{d})"))
            self.steps.append(Step(Value("wrong", fb.int64), f"wrong | to_int64(o{k}_{d})"))
            name = f"w{k}_{d}"
            self.steps.append(Step(Value(name, fb.int64), f"where(o{k}_{d}, to_int64(0), c{k}_{d})"))
        elif index.dtype is not fb.int64:
            name = f"to_int64({name})"
            self.globals["to_int64"] = KINDS["int64"]
        if step in (0, 1):
            return [name] if step else [], name
        self.loads.append(f"step{k}_{d} = table[{self.slot(step)}]")
        return [f"{name} * step{k}_{d}"], name

    def derivative(self, of: Value) -> tuple[list[str], dict[str, str]]:
        """Lines for the derivatives of `of`, and the variables that hold them, by those of the score and of tensors' elements."""
        if not of.of_score:
            return [], {}
        sums: dict[str, str] = {of.name: "1.0"}
        lines: list[str] = []
        count = 0
        for step in reversed(self.steps):
            grad = sums.get(step.out.name)
            if grad is None or not step.out.of_score:
                continue
            kind = self.kind_of(step.out.dtype)
            for k, arg in enumerate(step.args):
                if not isinstance(arg, Value) or not arg.of_score:
                    continue
                text = f"{kind}({grad})"
                if step.op != "copy":
                    if not step.op.has_gradient(step.op.params[k]):
                        raise Untraceable(f"the derivative of {step.op.public_name} is not there")
                    formula, reads, constant = step.op.gradient(k)
                    if constant is None:
                        values = (step.out, *step.args)
                        given = [self.as_kind(values[r], kind) for r in reads]
                        text = f"{self.formula(formula)}({', '.join([text, *given])})"
                    elif constant != 1:
                        text = f"{text} * {_number(constant)}"
                text = f"{self.kind_of(arg.dtype)}({text})"
                name = f"g{count}"
                count += 1
                before = sums.get(arg.name)
                lines.append(f"{name} = {text}" if before is None else f"{name} = {before} + {text}")
                sums[arg.name] = name
        return lines, sums


def _number(value: Any) -> str:
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return f'float("{value}")'
    return repr(value)


_texts: dict[Any, FunctionType] = {}


def _function(name: str, tracer: _Tracer, lines: list[str]) -> FunctionType:
    """The function of the kernel language with this text; the same text with the same formulas gives the same object."""
    text = "\n".join(lines) + "\n"
    used = {word: value for word, value in tracer.globals.items() if word in text}
    key = (text, *((word, value if isinstance(value, float) else id(value)) for word, value in used.items()))
    found = _texts.get(key)
    if found is None:
        words = {n: getattr(language, n) for n in ("bitcast", "independent", "rolled", "pointer", "widened")}
        scope: dict[str, Any] = {**words, "where": where, "QUERIES": QUERIES, "__name__": __name__, **used}
        file = f"<flambeau flex_attention {len(_texts)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)  # lowering reads the source
        exec(compile(text, file, "exec"), scope)
        found = _texts[key] = scope[name]
    return found


def trace(
    score_mod: Callable[..., Any] | None, mask_mod: Callable[..., Any] | None, working: Any, sizes: tuple[int, int, int, int]
) -> Traced:
    """What changes a tile of scores as `score_mod` does, and hides those that `mask_mod` hides.

    Args:
        working: the dtype of scores, float32 or float64.
        sizes: batches, heads, queries and keys.
    Raises: Untraceable where a function does what the kernel language has no words for.
    """
    tracer = _Tracer(working, sizes)
    score = Value("s", working, True)
    given = [tracer.remember(score), *(tracer.scalar(name, fb.int64) for name in PLACES)]
    changed = score if score_mod is None else _asked(tracer, score_mod, given)
    # Before the mask is asked, so that the table begins in the same way with a mask and without.
    backward, slopes = tracer.derivative(changed)
    slope = slopes.get("s", "0.0")
    seen = None if mask_mod is None else _asked(tracer, mask_mod, given[1:])
    if seen is not None and seen.dtype is not fb.bool:
        raise Untraceable(f"mask_mod gives {seen.dtype}, not bool")
    made = changed.name if changed.dtype is working else f"KIND({changed.name})"
    if seen is not None:
        made, slope = f"where({seen.name}, {made}, KIND(-INF))", f"where({seen.name}, KIND({slope}), KIND(0.0))"
    tracer.globals["INF"] = math.inf
    functions = []
    for name, lines, last in (
        ("change_scores", [], []), ("change_scores_and_slopes", backward, [f"factors[k * QUERIES + r] = KIND({slope})"]),
    ):  # fmt: skip
        before = ["KIND = widened(scores)", *tracer.loads, *(["wrong = 0"] if tracer.checks else [])]
        inside = ["i = first_row + r", "s = scores[k * QUERIES + r]", *(f"{step.out.name} = {step.text}" for step in tracer.steps)]
        inside += [*lines, f"scores[k * QUERIES + r] = {made}", *last]
        text = [
            f"def {name}(scores, factors, table, b, h, first_row, first_key, rows, keys):", *(f"    {line}" for line in before),
            "    for k in rolled(range(keys)):", "        j = first_key + k", "        for r in independent(range(rows)):",
            *(f"            {line}" for line in inside),
        ]  # fmt: skip
        if tracer.checks:
            text += ["    if wrong != 0:", "        table[0] = 1"]
        functions.append(_function(name, tracer, text))
    spread = _spreading(tracer, backward, slopes) if tracer.wanted else None
    text = "; ".join([*(f"{step.out.name} = {step.text}" for step in tracer.steps), f"score = {made}"])
    numbers = np.array(tracer.numbers, np.int64)
    return Traced(functions[0], functions[1], spread, tracer.wanted, numbers, tracer.places, tracer.tensors, text)


def _spreading(tracer: _Tracer, backward: list[str], slopes: dict[str, str]) -> FunctionType:
    """What adds the gradients at tensors to their sums, from a tile of scores and the slopes of what they were changed to."""
    before = ["KIND = widened(scores)", *tracer.loads, *(["wrong = 0"] if tracer.checks else [])]
    inside = ["i = first_row + r", "s = scores[k * QUERIES + r]", *(f"{step.out.name} = {step.text}" for step in tracer.steps)]
    inside += [*backward, "slope = slopes[k * QUERIES + r]"]
    for one in tracer.wanted:
        name = f"place{one.tensor}"
        # Where the slope is 0, as where a mask hides the score, the derivative may be anything.
        added = f"where(slope == KIND(0), KIND(0), slope * KIND({slopes.get(one.variable, '0.0')}))"
        inside += [f"{name} = {one.index}", f"sums[{name}] = sums[{name}] + {added}"]
    text = [
        "def spread_slopes(scores, slopes, table, sums, b, h, first_row, first_key, rows, keys):", *(f"    {line}" for line in before),
        "    for k in rolled(range(keys)):", "        j = first_key + k", "        for r in rolled(range(rows)):",
        *(f"            {line}" for line in inside),
    ]  # fmt: skip
    return _function("spread_slopes", tracer, text)


def _asked(tracer: _Tracer, mod: Callable[..., Any], given: list[Tensor]) -> Value:
    """What `mod` makes of scalars."""
    name = getattr(mod, "__name__", repr(mod))
    _interpreters.push(tracer)
    try:
        made = mod(*given)
    except Untraceable as error:
        raise Untraceable(f"{name}: {error}") from None
    except Exception as error:
        # It may look at values, which scalars without any do not have. Plain ops ask it again, and raise what it raises there.
        raise Untraceable(f"{name} raises {type(error).__name__} for scalars without values: {error}") from error
    finally:
        _interpreters.pop(tracer)
    value = tracer.known.get(id(made)) if isinstance(made, Tensor) else None
    if not isinstance(value, Value):
        raise Untraceable(f"{name} gives a {type(made).__name__} that does not follow from its arguments")
    return value

"""Graphs for many sizes: which numbers of a recorded path are inputs of the graph that a backend of the program's own is given.

A path is for one size of each input, and so are its constants: ``x.reshape(x.shape[0] // 2, -1)`` records the number that Python has
computed. Paths that differ in such numbers alone have the same `Form`. When a second path of a form comes, the numbers in which it
differs from the first become inputs of its graph, before the tensor whose sizes they are; what the backend makes of that graph serves
all later paths of the form whose other numbers are the same, and nothing is compiled for them. ``compile(..., dynamic=True)`` and
`mark_dynamic` make inputs of sizes at the first path; ``dynamic=False`` makes none but marked ones.

So there is no symbolic tracing, and nothing to guard: each call is recorded, and the recording says whether a graph is its own.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from typing import Any, NamedTuple

from .. import _aten
from .._arrays import is_c_contiguous
from ..devices import Size
from ..nn.parameter import Parameter
from ..tensor import Tensor
from . import _explain
from ._calls import Called
from ._steps import Constant, Step, numbers_in

# Parameters that take sizes, of functions that are no operators, or that operators call by another name.
_SIZES = {"key", "split_size_or_sections", "shape", "size", "sizes", "output_size", "scale_factor"}
_SPECIAL = (0, 1)                                     # sizes that other rules hold for: nothing is there, or it is broadcast


class Form(NamedTuple):
    """A path with its numbers apart.

    `key` is what paths of the form have in common. `numbers` are sizes of inputs, of which `sizes` gives the input and the dimension,
    and then numbers among constants; `is_size` says of each whether it is, or may become, a size.
    """

    key: Any
    numbers: tuple[Any, ...]
    sizes: tuple[tuple[int, int], ...]
    is_size: tuple[bool, ...]


class Symbols(NamedTuple):
    """Which numbers of a form are inputs of a graph.

    `indices` has for each number that of its symbol, or None. By index, `values` are symbolic numbers, and `numbers` what they are at hand.
    """

    indices: tuple[int | None, ...]
    values: tuple[Any, ...]
    numbers: tuple[Any, ...]

    def before(self, form: Form) -> dict[int | None, list[int]]:
        """By the number of an input, symbols that come before it: those of its sizes; under None those that are the size of none."""
        found: dict[int | None, list[int]] = {}
        met: set[int] = set()
        for i, index in enumerate(self.indices):
            if index is not None and index not in met:
                met.add(index)
                found.setdefault(form.sizes[i][0] if i < len(form.sizes) else None, []).append(index)
        return found

    def constants(self, form: Form, steps: list[Step], nodes: dict[int, Any]) -> dict[int, Any]:
        """By the identity of constants of the path, their values with `nodes` in the place of numbers that are inputs.

        By the identity of a step with bodies that take numbers, the same for their constants.
        """
        numbers = iter([n if at is None else nodes[at] for n, at in zip(form.numbers, self.indices, strict=True)][len(form.sizes) :])

        def visit(ref: Any, found: dict[int, Any]) -> None:
            if ref.__class__ is Constant:
                found[id(ref)] = _put_back(ref.value, numbers)
            elif ref.__class__ is not int:
                for one in ref:
                    visit(one, found)

        def of_path(steps: list[Step]) -> dict[int, Any]:
            found: dict[int, Any] = {}
            for one in steps:
                taken = _open_parameters(one.op)
                for name, ref in zip(one.op.params, one.refs, strict=True):
                    if name in taken:
                        visit(ref, found)
                if isinstance(one.op, Called) and one.op.takes_numbers:
                    found[id(one)] = {at: value for body in one.op.bodies for at, value in of_path(body.path()).items()}
            return found

        return of_path(steps)


def form_of(step: Step, wanted: tuple[int, ...], inputs: list[Tensor], ambient: Any) -> Form:
    """The form of the path that ends in `step`, whose values `wanted` are asked for. `ambient` is what else decides over results."""
    steps = step.path()
    used = sorted({-1 - n for one in steps for n in numbers_in(one.refs) if n < 0})
    sizes = tuple([(at, d) for at in used for d in range(inputs[at]._array.ndim)])
    numbers: list[Any] = [inputs[at]._array.shape[d] for at, d in sizes]
    is_size = [True] * len(sizes)
    key: list[Any] = [ambient, wanted, tuple([(at, *_looks(inputs[at])) for at in used])]

    def describe(steps: list[Step], is_open: bool) -> Any:
        for one in steps:
            bodies = _bodies_of(one.op)
            yield one.op.form() if bodies else one.op
            yield len(one.results)
            taken = _open_parameters(one.op) if is_open else {}
            for name, ref in zip(one.op.params, one.refs, strict=True):
                yield _apart(ref, numbers, name in taken)
                is_size.extend([taken.get(name, False)] * (len(numbers) - len(is_size)))
            for body in bodies:
                yield tuple(describe(body.path(), is_open and one.op.takes_numbers))

    key += describe(steps, True)
    return Form(tuple(key), tuple(numbers), sizes, tuple(is_size))


def _bodies_of(op: Any) -> tuple[Any, ...]:
    return op.bodies if isinstance(op, Called) else ()


def _looks(x: Tensor) -> tuple[Any, ...]:
    """What tensors in the same place have in common, beside sizes: strides where they do not follow from these."""
    array = x._array
    return isinstance(x, Parameter), x.dtype, x.requires_grad, array.ndim, "dense" if is_c_contiguous(array) else _order(array)


def _order(array: Any) -> Any:
    """Dimensions from the outermost to the innermost, where the array is all of its memory; else its strides."""
    order = sorted(range(array.ndim), key=lambda d: -array.strides[d])
    step = array.itemsize
    for d in reversed(order):
        if array.shape[d] != 1 and array.strides[d] != step:
            return "strides", array.strides
        step *= array.shape[d]
    return tuple(order)


@functools.cache
def _open_parameters(op: Any) -> dict[str, bool]:
    """Parameters of `op` whose numbers may be inputs of graphs, and whether these are sizes or else any numbers.

    Which dimension an operation works on, and how often it does something, decides what it is.
    """
    if isinstance(op, Called):
        return dict(op.sizes) if op.like is None else _open_parameters(op.like)
    found = {name: True for name in op.params if name in _SIZES}
    operator = _aten.name_of(op)
    for overload in _aten.index().get(operator, ()) if operator is not None else ():
        try:
            schema = _aten.schema(operator, overload)  # type: ignore[arg-type]  # None has no overloads
        except AttributeError:                        # one without a schema
            continue
        for argument in schema.arguments:
            kind = argument.type.text()
            if argument.name in op.params and ("SymInt" in kind or kind in ("Scalar", "Scalar?")):
                found[argument.name] = found.get(argument.name, False) or "SymInt" in kind
    return found


def _apart(ref: Any, numbers: list[Any], is_open: bool) -> Any:
    """What tells an argument from others; numbers in it are put into `numbers` if it `is_open`, and their kind is told."""
    if ref.__class__ is int:
        return ref
    if ref.__class__ is not Constant:
        return ref.__class__, tuple([_apart(one, numbers, is_open) for one in ref])
    return Constant, _taken_out(ref.value, numbers, is_open)


def _taken_out(value: Any, numbers: list[Any], is_open: bool) -> Any:
    kind = value.__class__
    if kind is int or kind is float:
        if is_open:
            numbers.append(value)
            return kind
        return kind, repr(value)                      # which tells zeros, and has a NaN equal itself
    if kind is slice:
        return kind, tuple([_taken_out(n, numbers, is_open) for n in (value.start, value.stop, value.step)])
    if kind in (tuple, list, Size):
        return kind, tuple([_taken_out(one, numbers, is_open) for one in value])
    return kind, value


def _put_back(value: Any, numbers: Iterator[Any]) -> Any:
    """`value`, of a constant, with the next of `numbers` in the place of each number."""
    kind = value.__class__
    if kind is int or kind is float:
        return next(numbers)
    if kind is slice:
        return slice(*[_put_back(n, numbers) for n in (value.start, value.stop, value.step)])
    if kind in (tuple, list, Size):
        found = [_put_back(one, numbers) for one in value]
        return found if kind is list else tuple(found)
    return value


def symbols_of(form: Form, earlier: list[Form], inputs: list[Tensor], varied: set[tuple[int, int]], dynamic: bool | None) -> Symbols | None:
    """Which numbers of `form` are inputs of its graph; None for none.

    Args:
        earlier: the same form of paths that graphs have been compiled for.
        varied: dimensions of inputs that have had several sizes, also in paths of other forms.
        dynamic: of `compile`.
    """
    for x in inputs:
        _check_ranges(x)
    indices = _indices(form, earlier, inputs, varied, dynamic)
    if not any(at is not None for at in indices):
        return None
    if importlib.util.find_spec("sympy") is None:
        _explain.warn("compile: a graph for many sizes needs symbols, so each size has a graph of its own: pip install flambeau[symbolic]")
        return None
    from ..fx.experimental._dim_constraints import DimDynamic
    from ..fx.experimental._shape_env import ShapeEnv
    from ..fx.experimental._sources import ConstantSource

    env = ShapeEnv()
    values: dict[int, Any] = {}
    for place, (n, at) in enumerate(zip(form.numbers, indices, strict=True)):
        if at is None or at in values:
            continue
        source = ConstantSource(f"number{at}")
        if n.__class__ is float:
            values[at] = env.create_symfloatnode(env.create_unspecified_symbol(n, source), hint=n, source=source)
        else:
            known = env.create_symbol if place < len(form.sizes) else env.create_unspecified_symbol
            values[at] = env.create_symintnode(known(n, source, DimDynamic.DYNAMIC), hint=n, source=source)
    numbers = {at: n for n, at in zip(form.numbers, indices, strict=True) if at is not None}
    return Symbols(indices, tuple(values.values()), tuple([numbers[at] for at in values]))


def _indices(
    form: Form, earlier: list[Form], inputs: list[Tensor], varied: set[tuple[int, int]], dynamic: bool | None
) -> tuple[int | None, ...]:
    from .._dynamo import config

    at_once = dynamic is True or dynamic is None and not config.assume_static_by_default
    later = dynamic is not False and config.automatic_dynamic_shapes
    symbols: dict[Any, int] = {}                      # by what tells them apart
    found: list[int | None] = []

    def index_of(name: Any) -> int:
        return symbols.setdefault(name, len(set(symbols.values())))

    for i, n in enumerate(form.numbers):
        history = n, tuple([old.numbers[i] for old in earlier])
        differs = any(old != n for old in history[1])
        name: Any = None                              # of the symbol
        if form.is_size[i] and n in _SPECIAL:
            pass
        elif i < len(form.sizes):
            at, d = form.sizes[i]
            how = _marked(inputs[at], d, config.force_parameter_static_shapes)
            if how is None:
                how = later and (differs or (at, d) in varied)
                name = i if how else history if at_once else None  # equal ones are one symbol where nothing else is known of them
            elif how:
                name = i
            if name is not None:
                symbols.setdefault(history, index_of(name))
        elif n.__class__ is float:
            name = (float, repr(n), history[1]) if differs and later and not config.specialize_float else None
        elif history in symbols and (differs or not earlier):
            name = history                            # a size that Python has asked for
        elif differs and later and not config.specialize_int:
            name = int, history
        found.append(None if name is None else index_of(name))
    return tuple(found)


def _marked(x: Tensor, d: int, force_static_parameters: bool) -> bool | None:
    """Whether the size of a dimension is an input or never one; None where nothing says so."""
    marks = x.__dict__
    if d in marks.get("_dynamo_static_indices", ()) or force_static_parameters and isinstance(x, Parameter):
        return False
    return True if d in marks.get("_dynamo_dynamic_indices", ()) or d in marks.get("_dynamo_weak_dynamic_indices", ()) else None


def _check_ranges(x: Tensor) -> None:
    """Raise ConstraintViolationError if a size of `x` is not in the range that `mark_dynamic` gave it."""
    for d, (least, most) in x.__dict__.get("_dynamo_dynamic_ranges", {}).items():
        n = x._array.shape[d]
        if least is not None and n < least or most is not None and n > most:
            from ..fx.experimental.symbolic_shapes import ConstraintViolationError

            bounds = f"[{0 if least is None else least}, {'inf' if most is None else most}]"
            raise ConstraintViolationError(
                f"{n} not in range {bounds}, which mark_dynamic gave to dimension {d} of a tensor of shape {tuple(x._array.shape)}; mark "
                "it with other min= and max=, or give a tensor of a size between them"
            )


class Varied:
    """Which sizes of inputs have changed between paths of one part of a function, whatever these do."""

    def __init__(self) -> None:
        self._met: dict[Any, set[tuple[int, ...]]] = {}  # by what the input is, its shapes

    def note(self, inputs: list[Tensor], names: Any) -> set[tuple[int, int]]:
        """Note inputs of a path. Returns: their dimensions that have had other sizes before."""
        found = set()
        for at, x in enumerate(inputs):
            shape = x._array.shape
            met = self._met.setdefault((names.of(x) or at, len(shape)), set())
            found |= {(at, d) for d, n in enumerate(shape) if any(old[d] != n for old in met)}
            met.add(shape)
        return found


def values_of(form: Form, symbols: Symbols | None, made_for: Form) -> list[Any] | None:
    """The values of `symbols` with which a graph made for one form is that of another; None if it is not."""
    values: list[Any] = [] if symbols is None else [None] * len(symbols.values)
    indices = (None,) * len(form.numbers) if symbols is None else symbols.indices
    for i, (n, own, at) in enumerate(zip(form.numbers, made_for.numbers, indices, strict=True)):
        if at is None:
            if n != own if n.__class__ is int else repr(n) != repr(own):
                return None
        elif form.is_size[i] and n in _SPECIAL or values[at] is not None and values[at] != n:
            return None
        else:
            values[at] = n
    return values

"""What is said of the sizes of inputs, and what a recording says of them: the symbols to make, their relations and ranges."""

from __future__ import annotations

from typing import Any

from .._dynamo.exc import UserError
from ..tensor import Tensor
from ._unlifted import Relation
from .dynamic_shapes import _UNBOUNDED, Dim, _DimHint, _DimHintType


class OpenSizes:
    """The sizes of inputs that are said to be open.

    Args:
        tensors, names: the Tensors among the inputs, and how messages call them.
        sizes: what is said of them, see `sizes_of_inputs`.
        error: the exception for what the recording does not hold.
    """

    def __init__(
        self, tensors: list[Tensor], names: list[str], sizes: dict[int, dict[int, Any]], error: type[Exception] = UserError
    ) -> None:
        self.tensors, self.names, self.sizes, self.error = tensors, names, sizes, error

    def of(self, x: Tensor) -> set[int]:
        """The dimensions of `x` that are said to be open."""
        return {d for d, what in self.sizes.get(id(x), {}).items() if _is_open(what)}

    def closed(self, x: Tensor) -> set[int]:
        """The dimensions of `x` that are said to be closed."""
        return {d for d, what in self.sizes.get(id(x), {}).items() if not _is_open(what)}

    def relate(self, fakes: Any) -> None:
        """Let sizes of one `Dim`, and those that follow from it, be related."""
        first: dict[int, Any] = {}
        roots = self._claims(fakes)
        for at, d, dim, _ in roots:
            size = self.tensors[at].shape[d]
            if not dim.min <= size <= dim.max:
                raise self.error(f"export: the example has size {size} for Dim {dim.__name__}, which is not in [{dim.min}, {dim.max}]")
        for _, _, dim, n in roots:
            if dim.root is None:
                known = first.setdefault(id(dim), n)
                if known is not n and not bool(known == n):
                    raise self.error(f"export: the example inputs have different sizes for Dim {dim.__name__}: {int(known)} and {int(n)}")
        for _, _, dim, n in roots:
            if dim.root is None:
                continue
            base = first.get(id(dim.root))
            if base is None:
                # The size that others follow from is no input: this one says what it is.
                if (int(n) - dim.offset) % dim.factor:
                    raise self.error(f"export: the example has size {int(n)} where Dim {dim.__name__} is meant")
                if dim.factor != 1:
                    bool((n - dim.offset) % dim.factor == 0)
            elif not bool(base * dim.factor + dim.offset == n):
                raise self.error(f"export: the example has size {int(n)} where Dim {dim.__name__} is {int(base) * dim.factor + dim.offset}")

    def _claims(self, fakes: Any) -> list[tuple[int, int, Dim, Any]]:
        """Sizes that have a `Dim`: position of the input, dimension, the Dim, and the size."""
        found = []
        for at, (x, fake) in enumerate(zip(self.tensors, fakes, strict=True)):
            for d, what in self.sizes.get(id(x), {}).items():
                if isinstance(what, Dim):
                    found.append((at, d, what, fake.shape[d]))
        return found

    def bounds(self, env: Any, fakes: Any) -> list[dict[int, tuple[int, int]]]:
        """For each Tensor among the inputs: the range of each open size.

        Raises: UserError for sizes that were to be open, or wider, than the program is.
        """
        wrong, fixes = self._unsaid_relations(env, fakes)
        made: list[dict[int, tuple[int, int]]] = []
        for x, name_of_input, fake in zip(self.tensors, self.names, fakes, strict=True):
            declared, ranges = self.sizes.get(id(x), {}), {}
            for d, what in declared.items():
                if not _is_open(what):
                    continue
                name = what.__name__ if isinstance(what, Dim) else f"{name_of_input}.shape[{d}]"
                low, high = range_of(env, fake.shape[d])
                if low == high:
                    if isinstance(what, Dim) or what.type is _DimHintType.DYNAMIC:
                        wrong.append(f"  - You marked {name} as dynamic but your code specialized it to be a constant ({low})")
                        fixes.append(f"  {name} = {low}")
                    continue
                least = what.min or 0
                most = what.max if what.max is not None else _UNBOUNDED
                if isinstance(what, Dim) and what.root is None and (low > max(least, 2) or high < most):
                    wrong.append(f"  - Not all values of {name} in the range [{least}, {most}] satisfy the program, but [{low}, {high}]")
                    bounds = [f"min={low}"] + ([] if high >= _UNBOUNDED else [f"max={high}"])
                    fixes.append(f"  {name} = Dim('{name}', {', '.join(bounds)})")
                ranges[d] = (max(low if low > 2 else 0, least), min(high, most))
            made.append(ranges)
        wrong += self._unsaid_conditions(env, fakes)
        if wrong:
            raise self.error("\n".join(["Constraints violated!", *wrong, *["Suggested fixes:"][: len(fixes)], *dict.fromkeys(fixes)]))
        return made

    def _unsaid_relations(self, env: Any, fakes: Any) -> tuple[list[str], list[str]]:
        """What is wrong, and how to mend it, where the size of one `Dim` follows from that of another, which was not said."""
        wrong, fixes, owners = [], [], {}
        for _, _, dim, n in self._claims(fakes):
            if dim.root is None and not isinstance(n, int):
                expr = env.replace(n.node._expr)
                if expr.is_symbol:
                    known = owners.setdefault(expr, dim)
                    if known is not dim:
                        wrong.append(f"  - The values of {dim.__name__} and {known.__name__} must always be equal")
                        fixes.append(f"  {dim.__name__} = {known.__name__}")
        for _, _, dim, n in self._claims(fakes):
            expr = None if dim.root is not None or isinstance(n, int) else env.replace(n.node._expr)
            if expr is not None and not expr.is_symbol and not expr.is_number:
                other = next((owners[s] for s in expr.free_symbols if s in owners), None)
                if other is not None:
                    text = str(expr.subs({s: d.__name__ for s, d in owners.items()}))
                    wrong.append(f"  - The values of {dim.__name__} = {text} are tied to those of {other.__name__}")
                    fixes.append(f"  {dim.__name__} = {text}")
        return wrong, fixes


    def _unsaid_conditions(self, env: Any, fakes: Any) -> list[str]:
        """What is wrong where the program itself chooses by the size of a `Dim` in a way that no range says."""
        owners = {}
        for _, _, dim, n in self._claims(fakes):
            if dim.root is None and not isinstance(n, int):
                owners.setdefault(env.replace(n.node._expr), dim.__name__)
        wrong = []
        for guard in env.unsaid_guards():
            named = {s: owners[s] for s in guard.expr.free_symbols if s in owners}
            if guard.sloc.by_program and named:
                names = " and ".join(sorted(named.values()))
                condition = env.written(guard.expr, {s: str(s) for s in guard.expr.free_symbols} | named)
                wrong.append(f"  - Not all values of {names} satisfy {condition}, asked in {guard.sloc.maybe_user_loc}")
        return wrong

    def relations(self, env: Any, fakes: Any, leaves: list[int]) -> list[Relation]:
        """What the program takes for granted of open sizes beyond their ranges; `leaves` are the places of Tensors among the inputs."""
        symbols: dict[Any, tuple[int, int]] = {}      # the input and dimension that give each
        follow = []                                   # sizes that are given by those of others
        for at, (x, fake) in enumerate(zip(self.tensors, fakes, strict=True)):
            for d in sorted(self.of(x)):
                expr = None if isinstance(fake.shape[d], int) else env.replace(fake.shape[d].node._expr)
                if expr is None or expr.is_number or expr.is_Symbol and symbols.setdefault(expr, (at, d)) == (at, d):
                    continue
                follow.append((at, d, expr))
        made = [self._relation(env, expr, symbols, leaves, (at, d)) for at, d, expr in follow if expr.free_symbols <= symbols.keys()]
        for guard in env.unsaid_guards():
            # An operator that was told of two sizes that they differ asks again when it runs, and does the same for equal ones.
            asked_again = guard.size_oblivious and guard.expr.func.__name__ == "Unequality"
            if not asked_again and guard.expr.free_symbols <= symbols.keys():
                made.append(self._relation(env, guard.expr, symbols, leaves))
        return [relation for i, relation in enumerate(made) if relation not in made[:i]]

    def _relation(self, env: Any, expr: Any, symbols: Any, leaves: list[int], equal_to: tuple[int, int] | None = None) -> Relation:
        """That `expr` holds, or is the size `equal_to`."""
        used = sorted(expr.free_symbols, key=str)
        text = env.written(expr, {s: f"n{i}" for i, s in enumerate(used)})
        places = [symbols[s] for s in used]
        if equal_to is not None:
            text, places = f"n{len(places)} == {text}", [*places, equal_to]
        return Relation(text, [(leaves[at], d) for at, d in places], [self.names[at] for at, _ in places])


def _is_open(what: Any) -> bool:
    return what is not None and not (isinstance(what, _DimHint) and what.type is _DimHintType.STATIC)


def range_of(env: Any, n: Any) -> tuple[int, int]:
    """The least and the largest value that the program holds for of a size."""
    if isinstance(n, int):
        return n, n
    expr = env.replace(n.node._expr)
    if expr.is_number:
        return int(expr), int(expr)
    found = env.bound_sympy(expr)
    low = max(int(found.lower), 0)
    high = int(found.upper) if found.upper.is_finite and found.upper < _UNBOUNDED else _UNBOUNDED
    return low, high

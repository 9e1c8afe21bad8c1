"""What is said of the sizes of inputs, and what a recording says of them: the symbols to make, their relations and ranges."""

from __future__ import annotations

from typing import Any

from .._dynamo.exc import UserError
from ..fx.experimental._dim_constraints import ConstraintViolationError
from ..tensor import Tensor
from ._unlifted import Relation
from .dynamic_shapes import _UNBOUNDED, Dim, _DimHint, _DimHintType


class _Complaints:
    """What is wrong with what was said of sizes, and how to mend it."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.texts: list[str] = []
        self.fixes: dict[str, str] = {}               # by name

    def add(self, name: str, text: str, fix: str | None = None, unless_mended: bool = False) -> None:
        """A complaint of the size `name`; `unless_mended` one that another fix of this size makes up for."""
        if unless_mended and name in self.fixes or text in self.texts:
            return
        if name not in self.names:
            self.names.append(name)
        self.texts.append(text)
        if fix is not None:
            self.fixes.setdefault(name, fix)

    def message(self) -> str:
        """All of it."""
        lines = [f'Constraints violated ({", ".join(self.names)})! For more information, run with TORCH_LOGS="+dynamic".']
        lines += [f"  - {text}" for text in self.texts]
        return "\n".join([*lines, *["Suggested fixes:"][: len(self.fixes)], *(f"  {fix}" for fix in self.fixes.values())])


def _written(name: str, least: int, most: int) -> str:
    """A range as an inequality, with a space before it; nothing for that of all sizes."""
    lower, upper = f"{least} <= " if least else "", f" <= {most}" if most < _UNBOUNDED else ""
    return f" {lower}{name}{upper}" if lower or upper else ""


class OpenSizes:
    """The sizes of inputs that are said to be open.

    Args:
        tensors, names: the Tensors among the inputs, and how messages call them.
        sizes: what is said of them, see `sizes_of_inputs`.
        sources: the Tensors as expressions of ``L``, the parameters by name.
        error: the exception for what the recording does not hold.
    Raises: UserError for a name with two ranges.
    """

    def __init__(
        self, tensors: list[Tensor], names: list[str], sizes: dict[int, dict[int, Any]], sources: list[str] | None = None,
        error: type[Exception] = UserError,
    ) -> None:  # fmt: skip
        self.tensors, self.names, self.sizes, self.error = tensors, names, sizes, error
        self.sources = [f"L[{name!r}]" for name in names] if sources is None else sources
        known: dict[str, Dim] = {}
        for declared in sizes.values():
            for what in declared.values():
                if isinstance(what, Dim):
                    dim = what.root or what
                    other = known.setdefault(dim.__name__, dim)
                    if (other.min, other.max) != (dim.min, dim.max):
                        raise UserError(f"Found different definitions {dim} and {other} for the same symbolic dimension {other}!")

    def _source(self, at: int, d: int) -> str:
        return f"{self.sources[at]}.size()[{d}]"

    def of(self, x: Tensor) -> set[int]:
        """The dimensions of `x` that are said to be open."""
        return {d for d, what in self.sizes.get(id(x), {}).items() if _is_open(what)}

    def hinted(self, x: Tensor) -> list[int]:
        """The dimensions of `x` that are said to be open without a name."""
        return [d for d, what in self.sizes.get(id(x), {}).items() if _is_open(what) and isinstance(what, _DimHint)]

    def closed(self, x: Tensor) -> set[int]:
        """The dimensions of `x` that are said to be closed."""
        return {d for d, what in self.sizes.get(id(x), {}).items() if not _is_open(what)}

    def relate(self, fakes: Any) -> None:
        """Let sizes of one `Dim`, and those that follow from it, be related."""
        first: dict[str, tuple[Any, str]] = {}        # the size of each name, and where it is
        claims = self._claims(fakes)
        for at, d, dim, _ in claims:
            size = self.tensors[at].shape[d]
            if not dim.min <= size <= dim.max:
                raise ConstraintViolationError(f"{size} not in range [{dim.min}, {'int_oo' if dim.max >= _UNBOUNDED else dim.max}]")
        for at, d, dim, n in claims:
            if dim.root is None:
                known, where = first.setdefault(dim.__name__, (n, self._source(at, d)))
                if known is not n and not bool(known == n):
                    raise self.error(f"{self._source(at, d)} = {int(n)} is not equal to {where} = {int(known)}")
        for at, d, dim, n in claims:
            if dim.root is None:
                continue
            base, _ = first.get(dim.root.__name__, (None, ""))
            if base is None:
                # The size that others follow from is no input: this one says what it is.
                size = self.tensors[at].shape[d]          # to ask a symbol for its number would make a constant of it
                if (size - dim.offset) % dim.factor:
                    root = dim.root.__name__
                    raise self.error(
                        f"Expected shape[{d}] = {size} of input Tensor to be of the form {dim.__name__}, where {root} is an integer"
                    )
                if dim.factor != 1:
                    bool((n - dim.offset) % dim.factor == 0)
            elif not bool(base * dim.factor + dim.offset == n):
                raise self.error(
                    f"Expected input {self._source(at, d)} to be equal to {dim.__name__}, where {dim.root.__name__} = {int(base)}, "
                    f"but got {int(n)}"
                )

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
        found = _Complaints()
        self._unsaid_relations(env, fakes, found)
        made: list[dict[int, tuple[int, int]]] = []
        for at, (x, fake) in enumerate(zip(self.tensors, fakes, strict=True)):
            declared, ranges = self.sizes.get(id(x), {}), {}
            for d, what in declared.items():
                if not _is_open(what):
                    continue
                source = self._source(at, d)
                name = what.__name__ if isinstance(what, Dim) else source
                low, high = range_of(env, fake.shape[d])
                if low == high:
                    if isinstance(what, Dim) or what.type is _DimHintType.DYNAMIC:
                        found.add(name, f"You marked {name} as dynamic but your code specialized it to be a constant ({low}). If you're "
                                  "using mark_dynamic, either remove it or use maybe_mark_dynamic. If you're using Dim.DYNAMIC, replace it "
                                  "with either Dim.STATIC or Dim.AUTO.", f"{name} = {low}" if name.isidentifier() else None)  # fmt: skip
                    continue
                least = what.min or 0
                most = what.max if what.max is not None else _UNBOUNDED
                if isinstance(what, Dim) and what.root is None and (low > max(least, 2) or high < most):
                    upper = "IntInfinity()" if high >= _UNBOUNDED else str(high)
                    fix = [f"min={low}"] * (low > 2) + [f"max={high}"] * (high < _UNBOUNDED)
                    found.add(name, f"Not all values of {name} = {source} in the specified range{_written(name, least, most)} satisfy the "
                              f"generated guard {low} <= {source} and {source} <= {upper}", f"{name} = Dim('{name}', {', '.join(fix)})",
                              unless_mended=True)  # fmt: skip
                follows = isinstance(what, Dim) and what.root is not None
                ranges[d] = (least if follows else max(low if low > 2 else 0, least), min(high, most))
            made.append(ranges)
        self._unsaid_conditions(env, fakes, found)
        if found.texts:
            raise self.error(found.message())
        return made

    def _unsaid_relations(self, env: Any, fakes: Any, found: _Complaints) -> None:
        """What is wrong, and how to mend it, where the size of one `Dim` follows from that of another, which was not said."""
        owners: dict[Any, tuple[str, str]] = {}       # by symbol: the name, and where it is
        claims = [(dim.__name__, self._source(at, d), n) for at, d, dim, n in self._claims(fakes) if dim.root is None]
        open_ones = [(name, source, env.replace(n.node._expr)) for name, source, n in claims if not isinstance(n, int)]
        for name, source, expr in open_ones:
            if expr.is_symbol:
                known, where = owners.setdefault(expr, (name, source))
                if known != name:
                    found.add(name, f"The values of {name} = {source} and {known} = {where} must always be equal.", f"{name} = {known}")
        for name, source, expr in open_ones:
            if not expr.is_symbol and not expr.is_number:
                known, where = next((owners[s] for s in expr.free_symbols if s in owners), ("", ""))
                if known:
                    text = str(expr.subs({s: owner for s, (owner, _) in owners.items()}))
                    found.add(name, f"The values of {name} = {source} must always be related to the values of {known} = {where} by "
                              f"{name} = {text}.", f"{name} = {text}")  # fmt: skip

    def _unsaid_conditions(self, env: Any, fakes: Any, found: _Complaints) -> None:
        """What is wrong where the program itself chooses by the size of a `Dim` in a way that no range says."""
        owners = {}
        for _, _, dim, n in self._claims(fakes):
            if dim.root is None and not isinstance(n, int):
                owners.setdefault(env.replace(n.node._expr), dim.__name__)
        for guard in env.unsaid_guards():
            named = {s: owners[s] for s in guard.expr.free_symbols if s in owners}
            if guard.sloc.by_program and named:
                names = " and ".join(sorted(named.values()))
                condition = env.written(guard.expr, {s: str(s) for s in guard.expr.free_symbols} | named)
                found.add(names, f"Not all values of {names} satisfy {condition}, asked in {guard.sloc.maybe_user_loc}")

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


_NO_MEMORY = 1 << 56  # elements: that there may not be more says nothing, for no Tensor has so many


def range_of(env: Any, n: Any) -> tuple[int, int]:
    """The least and the largest value that the program holds for of a size."""
    if isinstance(n, int):
        return n, n
    expr = env.replace(n.node._expr)
    if expr.is_number:
        return int(expr), int(expr)
    found = env.bound_sympy(expr)
    low = max(int(found.lower), 0)
    high = int(found.upper) if found.upper.is_finite and found.upper < _NO_MEMORY else _UNBOUNDED
    return low, high

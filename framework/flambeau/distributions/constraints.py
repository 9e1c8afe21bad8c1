"""Regions over which a parameter or a sample is valid. ``constraint.check(value)`` tells, event by event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fb

__all__ = [
    "Constraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "independent",
    "integer_interval",
    "interval",
    "half_open_interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "MixtureSameFamilyConstraint",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_semidefinite",
    "positive_definite",
    "positive_integer",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
    "unit_interval",
]


class Constraint:
    """A region in which a variable is valid.

    Attributes:
        is_discrete: whether the region holds separate points.
        event_dim: how many of the last dimensions make one event; `check` reduces over them.
    """

    is_discrete: Any = False
    event_dim: Any = 0

    def check(self, value: fb.Tensor) -> fb.Tensor:
        """A bool tensor of the shape of `value` without its event dimensions: whether each event is in the region."""
        raise NotImplementedError(f"{type(self).__name__}.check")

    def __repr__(self) -> str:
        return type(self).__name__.removeprefix("_") + "()"


class _Dependent(Constraint):
    """A region that depends on other variables, such as a support that depends on parameters."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:
        return _known(self._is_discrete, "is_discrete")

    @property
    def event_dim(self) -> int:
        return _known(self._event_dim, "event_dim")

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        """A copy with other settings."""
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value: fb.Tensor) -> fb.Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


def _known(value: Any, name: str) -> Any:
    if value is NotImplemented:
        raise NotImplementedError(f".{name} cannot be determined statically")
    return value


def is_dependent(constraint: Constraint) -> bool:
    """Whether the region depends on other variables, so that it cannot be checked by itself."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property of a distribution that is a constraint; asked of the class it stands for a dependent one.

    Args:
        fn: the function that makes the constraint, of the distribution.

    Use as ``@dependent_property`` or ``@dependent_property(is_discrete=..., event_dim=...)``.
    """

    def __init__(
        self,
        fn: Callable[[Any], Any] | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ) -> None:
        property.__init__(self, fn)
        _Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn: Callable[[Any], Any]) -> _DependentProperty:
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _IndependentConstraint(Constraint):
    """`base_constraint` with some more of the last dimensions counted as one event, valid if all its parts are."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        if not isinstance(base_constraint, Constraint):
            raise AssertionError(f"independent: base_constraint must be a Constraint, got {base_constraint!r}")
        if not isinstance(reinterpreted_batch_ndims, int) or reinterpreted_batch_ndims < 0:
            raise AssertionError(f"independent: reinterpreted_batch_ndims must be a non-negative int, got {reinterpreted_batch_ndims!r}")
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: fb.Tensor) -> fb.Tensor:
        valid = self.base_constraint.check(value)
        joined = self.reinterpreted_batch_ndims
        if valid.dim() < joined:
            expected = self.base_constraint.event_dim + joined
            raise ValueError(f"Expected value.dim() >= {expected} but got {value.dim()}")
        return valid.reshape((*valid.shape[: valid.dim() - joined], -1)).all(-1)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """`base_constraint` of the components of a mixture: a value is valid if it is for every component."""

    def __init__(self, base_constraint: Constraint) -> None:
        if not isinstance(base_constraint, Constraint):
            raise AssertionError(f"MixtureSameFamilyConstraint: base_constraint must be a Constraint, got {base_constraint!r}")
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> bool:
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:
        return self.base_constraint.event_dim

    def check(self, value: fb.Tensor) -> fb.Tensor:
        valid = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        if valid.dim() < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return valid.reshape((*valid.shape[: value.dim() - self.event_dim], -1)).all(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


# One number


class _Boolean(Constraint):
    """0 or 1."""

    is_discrete = True

    def check(self, value: fb.Tensor) -> fb.Tensor:
        return (value == 0) | (value == 1)


class _Real(Constraint):
    """Any number; nan is none."""

    def check(self, value: fb.Tensor) -> fb.Tensor:
        return value == value


class _Bounded(Constraint):
    """A region between bounds, whose text names them."""

    _bounds: tuple[str, ...] = ()

    def __repr__(self) -> str:
        bounds = ", ".join(f"{name}={getattr(self, name)}" for name in self._bounds)
        return f"{type(self).__name__.removeprefix('_')}({bounds})"


class _Above(_Bounded):
    _bounds = ("lower_bound",)

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class _Below(_Bounded):
    _bounds = ("upper_bound",)

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound


class _Between(_Bounded):
    _bounds = ("lower_bound", "upper_bound")

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class _GreaterThan(_Above):
    """Numbers above `lower_bound`."""

    def check(self, value: fb.Tensor) -> fb.Tensor:
        return self.lower_bound < value


class _GreaterThanEq(_Above):
    """Numbers at or above `lower_bound`."""

    def check(self, value: fb.Tensor) -> fb.Tensor:
        return self.lower_bound <= value


class _LessThan(_Below):
    """Numbers below `upper_bound`."""

    def check(self, value: fb.Tensor) -> fb.Tensor:
        return value < self.upper_bound


class _Interval(_Between):
    """Numbers from `lower_bound` to `upper_bound`, both included."""

    def check(self, value: fb.Tensor) -> fb.Tensor:
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_Between):
    """Numbers from `lower_bound`, included, to `upper_bound`, excluded."""

    def check(self, value: fb.Tensor) -> fb.Tensor:
        return (self.lower_bound <= value) & (value < self.upper_bound)


class _IntegerInterval(_Between):
    """Whole numbers from `lower_bound` to `upper_bound`, both included."""

    is_discrete = True

    def check(self, value: fb.Tensor) -> fb.Tensor:
        return (value % 1 == 0) & (self.lower_bound <= value) & (value <= self.upper_bound)


class _IntegerLessThan(_Below):
    """Whole numbers up to `upper_bound`, included."""

    is_discrete = True

    def check(self, value: fb.Tensor) -> fb.Tensor:
        return (value % 1 == 0) & (value <= self.upper_bound)


class _IntegerGreaterThan(_Above):
    """Whole numbers from `lower_bound`, included."""

    is_discrete = True

    def check(self, value: fb.Tensor) -> fb.Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound)


# Vectors


class _OneHot(Constraint):
    """Vectors with one 1 among zeros."""

    is_discrete = True
    event_dim = 1

    def check(self, value: fb.Tensor) -> fb.Tensor:
        binary = (value == 0) | (value == 1)
        return binary.all(-1) & value.sum(-1).eq(1)


class _Simplex(Constraint):
    """Vectors of numbers that are not negative and add up to 1, to within 1e-6."""

    event_dim = 1

    def check(self, value: fb.Tensor) -> fb.Tensor:
        return fb.all(value >= 0, dim=-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    """Vectors of whole numbers that are not negative and add up to at most `upper_bound`.

    Numbers of trials may differ by batch entry, and those below the largest need not be used up.
    """

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, x: fb.Tensor) -> fb.Tensor:
        return (x >= 0).all(dim=-1) & (x.sum(dim=-1) <= self.upper_bound)


# Matrices


class _LowerTriangular(Constraint):
    """Matrices that are 0 above the diagonal."""

    event_dim = 2

    def check(self, value: fb.Tensor) -> fb.Tensor:
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(Constraint):
    """Lower-triangular matrices with a positive diagonal."""

    event_dim = 2

    def check(self, value: fb.Tensor) -> fb.Tensor:
        lower = (value.tril() == value).flatten(-2).all(-1)
        return lower & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(Constraint):
    """Lower-triangular matrices with a positive diagonal and rows of length 1."""

    event_dim = 2

    def check(self, value: fb.Tensor) -> fb.Tensor:
        # Adding up a row of squares loses some roundings for each column.
        tolerance = fb.finfo(value.dtype).eps * value.size(-1) * 10
        unit_rows = (fb.linalg.norm(value.detach(), dim=-1) - 1).abs().le(tolerance).all(dim=-1)
        return _LowerCholesky().check(value) & unit_rows


class _Square(Constraint):
    """Square matrices."""

    event_dim = 2

    def check(self, value: fb.Tensor) -> fb.Tensor:
        return fb.full(value.shape[:-2], value.shape[-2] == value.shape[-1], dtype=fb.bool, device=value.device)


class _Symmetric(_Square):
    """Square matrices that equal their transposes, to within 1e-6."""

    def check(self, value: fb.Tensor) -> fb.Tensor:
        square = super().check(value)
        return fb.isclose(value, value.mT, atol=1e-6).all(-2).all(-1) if square.all() else square


class _PositiveSemidefinite(_Symmetric):
    """Symmetric matrices without negative eigenvalues."""

    def check(self, value: fb.Tensor) -> fb.Tensor:
        symmetric = super().check(value)
        return fb.linalg.eigvalsh(value).ge(0).all(-1) if symmetric.all() else symmetric


class _PositiveDefinite(_Symmetric):
    """Symmetric matrices that have a Cholesky factor."""

    def check(self, value: fb.Tensor) -> fb.Tensor:
        symmetric = super().check(value)
        return fb.linalg.cholesky_ex(value).info.eq(0) if symmetric.all() else symmetric


# Several regions side by side


class _Cat(Constraint):
    """Regions `cseq` for consecutive stretches, of `lengths`, of dimension `dim`."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        if not all(isinstance(c, Constraint) for c in cseq):
            raise AssertionError(f"cat: cseq must hold constraints, got {list(cseq)}")
        self.cseq = list(cseq)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"cat: {len(self.lengths)} lengths for {len(self.cseq)} constraints")
        self.dim = dim

    @property
    def is_discrete(self) -> bool:
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:
        return max(c.event_dim for c in self.cseq)

    def check(self, value: fb.Tensor) -> fb.Tensor:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"cat: dim is {self.dim}, value has {value.dim()} dimensions")
        parts = value.split(self.lengths, self.dim)
        return fb.cat([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


class _Stack(Constraint):
    """Regions `cseq`, one for each entry of dimension `dim`."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        if not all(isinstance(c, Constraint) for c in cseq):
            raise AssertionError(f"stack: cseq must hold constraints, got {list(cseq)}")
        self.cseq = list(cseq)
        self.dim = dim

    @property
    def is_discrete(self) -> bool:
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:
        # A negative dim counts from the end and so is one of the event's dimensions.
        return max(c.event_dim for c in self.cseq) + (self.dim + max(c.event_dim for c in self.cseq) < 0)

    def check(self, value: fb.Tensor) -> fb.Tensor:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"stack: dim is {self.dim}, value has {value.dim()} dimensions")
        parts = value.unbind(self.dim)
        return fb.stack([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack

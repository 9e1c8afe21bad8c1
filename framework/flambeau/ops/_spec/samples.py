"""Calls to try an op with, read from the text on its declaration.

``samples="x(2, 3), 1; x(2, 3, 4), (0, 2), keepdim=True"`` are two calls. Each is the text of arguments over these words, all of which
draw from a generator of their own, so the same call has the same numbers in every process:

=================  =============================================================================================
``x(*shape)``      floating numbers between -2 and 2; ``low=`` and ``high=`` set other bounds
``p(*shape)``      positive ones, from 0.3 to 2, with the same options; ``u`` between 0.05 and 0.95
``d(*shape)``      distinct ones, some way from each other, so that no order or maximum is near another
``k(*shape)``      positive ones that never require grad: what an op has no derivative for
``c(*shape)``      complex ones
``i(n, *shape)``   integers from 0 to n - 1; ``perm(*shape)`` places that differ along every dimension
``b(*shape)``      Booleans; with ``some=True``, one of each row is true
``signs(*shape)``  1 and -1
``sq``, ``sym``    matrices far from singular, square or symmetric, and ``spd`` positive definite: the last size twice
``logs(*shape)``   logarithms of chances, which add up to 1 along the last dimension
``real``           the dtype of the floating numbers; ``fb`` is the package
=================  =============================================================================================

Symmetric matrices and chances have a `projection`, a function on tensors that leaves them as they are: what is differentiated along
them goes through it, so that a small change of one is one still.

``samples="of conv2d"`` says that the calls of another op reach this one, which programs cannot call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...tensor import Tensor
from .base import FUNCTION, METHOD, OPS, Op

__all__ = ["Sample", "function_of", "reached_by", "samples_of"]


class Sample(NamedTuple):
    """One call: ``function_of(op)(*args, **kwargs)``."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def tensors(self) -> list[Tensor]:
        """The floating and complex tensors among the arguments that have a derivative, also in sequences."""
        found: list[Tensor] = []
        for value in (*self.args, *self.kwargs.values()):
            found += [t for t in (value if isinstance(value, (tuple, list)) else (value,)) if _may_require_grad(t)]
        return found

    def with_tensors(self, tensors: list[Tensor]) -> Sample:
        """The same call of others in the place of `tensors`."""
        given = iter(tensors)

        def other(value: Any) -> Any:
            if isinstance(value, (tuple, list)):
                return type(value)(other(v) for v in value) if any(map(_may_require_grad, value)) else value
            return next(given) if _may_require_grad(value) else value

        return Sample(tuple(map(other, self.args)), {name: other(value) for name, value in self.kwargs.items()})


def _may_require_grad(value: Any) -> bool:
    if not isinstance(value, Tensor) or getattr(value, "is_constant_sample", False):
        return False
    return value.dtype.is_floating_point or value.dtype.is_complex


def reached_by(op: Op) -> str:
    """The name of the op whose calls reach this one, or ''."""
    text = op.samples if isinstance(op.samples, str) else ""
    return text[3:].strip() if text.startswith("of ") else ""


def function_of(op: Op) -> Any:
    """What samples are arguments of: the public function, the method where there is none, or the op."""
    if op.surface & FUNCTION:
        return op.function
    if op.surface & METHOD:
        return op.method
    if op.surface:
        return getattr(Tensor, f"{op.name.removeprefix('Tensor.')}_")
    return op.function


def samples_of(op: Op, dtype: Any = None, seed: int = 0) -> list[Sample]:
    """The calls that the declaration of `op` gives, with tensors of `dtype` (float64 by default) drawn from `seed`.

    Elementwise ops give the bounds of their numbers; they are called with tensors of one shape, and of shapes that broadcast.
    """
    import flambeau as fb

    words = _Words(fb, dtype or fb.float64, seed)
    name = reached_by(op)
    if name:
        return samples_of(OPS[name], dtype, seed)
    if op.kind == "elementwise" and not isinstance(op.samples, str):
        low, high = op.samples or (-2.0, 2.0)
        kept = {n: op.defaults[n] for n in op.keyword_only if n in op.defaults}
        shapes = [[(2, 3)] * len(op.positional)]
        if len(op.positional) > 1:
            shapes.append([(2, 3), (3,), (2, 1), (), (1, 1)][: len(op.positional)])
        return [Sample(tuple(words.x(*shape, low=low, high=high) for shape in given), kept) for given in shapes]
    scope = {"collect": lambda *args, **kwargs: Sample(args, kwargs), "fb": fb, "real": words.real, **words.by_name()}
    with fb.no_grad():
        return [eval(f"collect({text})", scope) for text in (op.samples or "").split(";") if text.strip()]


class _Words:
    """What the text of a sample may say, drawing from one generator."""

    def __init__(self, fb: Any, real: Any, seed: int) -> None:
        self.fb, self.real = fb, real
        self.rng = np.random.default_rng(seed)

    def by_name(self) -> dict[str, Any]:
        names = ("x", "p", "u", "d", "k", "c", "i", "perm", "b", "signs", "sq", "sym", "spd", "logs")
        return {name: getattr(self, name) for name in names}

    def _tensor(self, values: Any) -> Any:
        return self.fb.tensor(values, dtype=self.real)

    def x(self, *shape: int, low: float = -2.0, high: float = 2.0) -> Any:
        return self._tensor(self.rng.uniform(low, high, shape))

    def p(self, *shape: int, low: float = 0.3, high: float = 2.0) -> Any:
        return self._tensor(self.rng.uniform(low, max(high, low + 1), shape))

    def u(self, *shape: int) -> Any:
        return self._tensor(self.rng.uniform(0.05, 0.95, shape))

    def d(self, *shape: int) -> Any:
        count = int(np.prod(shape))
        return self._tensor((self.rng.permutation(count).reshape(shape) - count / 2 + 0.3) * 0.25)

    def k(self, *shape: int) -> Any:
        made = self.p(*shape)
        made.is_constant_sample = True
        return made

    def c(self, *shape: int) -> Any:
        values = self.rng.uniform(-2, 2, shape) + 1j * self.rng.uniform(-2, 2, shape)
        return self.fb.tensor(values, dtype=self.real.to_complex())

    def i(self, n: int, *shape: int) -> Any:
        return self.fb.tensor(self.rng.integers(0, n, shape))

    def perm(self, *shape: int) -> Any:
        places = sum(np.arange(n).reshape([-1] + [1] * (len(shape) - d - 1)) for d, n in enumerate(shape))
        return self.fb.tensor(places % max(shape))

    def b(self, *shape: int, some: bool = False) -> Any:
        values = self.rng.integers(0, 2, shape).astype(bool)
        if some:
            values[..., 0] = True
        return self.fb.tensor(values)

    def signs(self, *shape: int) -> Any:
        made = self._tensor(self.rng.integers(0, 2, shape) * 2 - 1)
        made.is_constant_sample = True
        return made

    def sq(self, *shape: int) -> Any:
        n = shape[-1]
        return self._tensor(self.rng.uniform(-0.4, 0.4, (*shape, n)) + np.diag(np.arange(1, n + 1)))

    def sym(self, *shape: int) -> Any:
        return self._projected(_symmetric, self.sq(*shape))

    def spd(self, *shape: int) -> Any:
        made = self.sq(*shape)
        return self._projected(_symmetric, made @ made.mT + self._tensor(np.eye(shape[-1])))

    def logs(self, *shape: int) -> Any:
        return self._projected(_normalized, self.x(*shape))

    def _projected(self, projection: Any, values: Any) -> Any:
        made = projection(values)
        made.projection = projection
        return made


def _symmetric(t: Any) -> Any:
    return (t + t.mT) / 2


def _normalized(t: Any) -> Any:
    return t.log_softmax(-1)

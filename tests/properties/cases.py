"""The calls of every declared op, and what the tests of properties ask of results."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

import flambeau as fb
from flambeau.ops import _derive, _spec
from flambeau.ops._spec.samples import Sample, function_of, reached_by, samples_of

_derive.load_all()
OPS = list(dict.fromkeys(_spec.OPS.values()))

EVERYTHING = os.environ.get("FLAMBEAU_TEST_EVERY_OP") == "1"

# Ops that draw: the same seed gives the same numbers, but not by another way of calling, nor for a shifted argument.
RANDOM = {
    *(f"nn.functional.{name}" for name in ("gumbel_softmax", "feature_alpha_dropout", "rrelu", "rrelu_")),
    *(f"nn.functional.{kind}" for kind in ("dropout", "alpha_dropout", "dropout1d", "dropout2d", "dropout3d")),
    *(f"{kind}{end}" for kind in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "rrelu") for end in ("", "_")),
    "gamma_numbers", "dirichlet_numbers", "poisson", "bernoulli", "binomial", "multinomial", "svd_lowrank", "pca_lowrank", "lobpcg",
    "rrelu_slopes", "binomial_numbers", "multinomial_indices",
}


# Ops that take or give sparse or quantized tensors: what is asked here is asked of strided memory. They have folders of tests of their own.
OTHER_KINDS = "flambeau.ops.kinds.sparse", "flambeau.ops.kinds.quantize"


class Case(NamedTuple):
    """The `at`-th call that the declaration of `op` gives."""

    op: Any
    at: int

    @property
    def name(self) -> str:
        return f"{self.op.qualified}-{self.at}"

    def sample(self, dtype: Any = None) -> Sample:
        """The call, with new tensors of the same numbers each time."""
        return samples_of(self.op, dtype)[self.at]

    def call(self, sample: Sample) -> Any:
        fb.manual_seed(0)
        return function_of(self.op)(*sample.args, **sample.kwargs)


def cases(draws: bool = True) -> list[Case]:
    """A case for each call of each op; without those that draw numbers unless `draws`.

    The reference tier, which is tried with its own tests, takes the first call of each op alone here, unless FLAMBEAU_TEST_EVERY_OP=1.
    """
    first_alone = os.environ.get("FLAMBEAU_BACKEND") == "numpy" and not EVERYTHING
    found = []
    for op in OPS:
        if reached_by(op) or op.qualified == "cuda" or op.fn.__module__ in OTHER_KINDS or (not draws and op.qualified in RANDOM):
            continue
        found += [Case(op, at) for at in range(min(len(samples_of(op)), 1 if first_alone else 99))]
    return found


def tensors_in(result: Any) -> list[fb.Tensor]:
    """The tensors of a result or of arguments, also in sequences."""
    if isinstance(result, fb.Tensor):
        return [result]
    return [t for value in result for t in tensors_in(value)] if isinstance(result, (tuple, list)) else []


def mapped(fn: Any, sample: Sample) -> Sample:
    """The same call with ``fn(tensor)`` in the place of each tensor."""

    def other(value: Any) -> Any:
        if isinstance(value, fb.Tensor):
            return fn(value)
        return type(value)(map(other, value)) if isinstance(value, (tuple, list)) and tensors_in(value) else value

    return Sample(tuple(map(other, sample.args)), {name: other(value) for name, value in sample.kwargs.items()})


def looks(t: fb.Tensor) -> tuple[Any, ...]:
    return tuple(t.shape), t.dtype, t.stride()


def bits(t: fb.Tensor) -> bytes:
    return np.ascontiguousarray(t.detach().resolve_conj().resolve_neg().numpy()).tobytes()

"""Calls of every registered op, found by trying: the first arguments of a few simple kinds that the op takes on the CPU."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import flambeau as fb
from flambeau.ops import _derive
from flambeau.ops._spec import OPS, Op

__all__ = ["call", "is_random", "ops", "outcome"]

MOST_TRIES = 400
_RANDOM = (
    "dropout",
    "rrelu",
    "multinomial",
    "bernoulli",
    "binomial",
    "poisson",
    "fractional",
    "rand",
    "normal_like",
    "gumbel",
    "svd_lowrank",
    "pca_lowrank",
)


def matrix() -> fb.Tensor:
    """Sixteen numbers in (0, 1), none equal, of full rank."""
    return ((fb.arange(16.0) * 7 % 16 + 1.5) / 18).reshape(4, 4)


KINDS = {
    "matrix": matrix,
    "image": lambda: fb.cat([matrix().reshape(1, 1, 4, 4), matrix().T.reshape(1, 1, 4, 4)], 1),
    "batch": lambda: fb.stack([matrix(), matrix().T]),
    "vector": lambda: matrix()[0].clone(),
    "integers": lambda: fb.tensor([[0, 2, 1, 3], [3, 1, 2, 0], [1, 0, 3, 2], [2, 3, 0, 1]]),
    "places": lambda: fb.tensor([1, 3, 0]),
    "truths": lambda: matrix() > 0.5,
    "complex": lambda: fb.complex(matrix(), matrix().T),
    "volume": lambda: matrix().reshape(1, 1, 2, 2, 4),
    "one": lambda: 1,
    "none": lambda: 0,
    "half": lambda: 0.5,
    "two": lambda: 2,
    "pair": lambda: (2, 2),
    "pairs": lambda: (1, 1),
    "list": lambda: [matrix(), matrix().T],
    "yes": lambda: True,
    "string": lambda: "sum",
    "axes": lambda: (0, 1),
    "long": lambda: (1, 0, 2, 1),
}
TENSORS = ("matrix", "image", "batch", "vector", "integers", "truths", "complex", "volume")
NUMBERS = ("one", "none", "two", "half", "pair", "pairs", "axes", "yes", "string", "long")
BY_NAME = {
    "index": ("places", "integers"),
    "indices": ("places", "integers"),
    "mask": ("truths",),
    "condition": ("truths",),
    "target": ("integers", "places", "matrix", "vector"),
    "tensors": ("list",),
    "operands": ("list",),
    "value": ("half", *TENSORS),
    "dim": ("one", "none", "axes"),
    "dims": ("axes", "one"),
    "shifts": ("one",),
    "size": ("pair", "one", "long"),
    "sizes": ("pair", "one"),
    "k": ("two",),
    "p": ("half", "two"),
    "n": ("two",),
    "sections": ("two",),
    "chunks": ("two",),
    "kernel_size": ("two", "pair"),
    "output_size": ("two", "pair"),
    "weight": TENSORS,
    "bias": ("vector",),
    "shape": ("long", "pair"),
    "normalized_shape": ("long", "pair"),
    "num_classes": ("two",),
    "reduce": ("string",),
    "equation": ("string",),
}


def ops() -> dict[str, Op]:
    """Every op by the name of its function, those without a public form left out."""
    _derive.load_all()
    return {op.qualified: op for op in OPS.values() if op.surface & 3 and op.name not in ("cpu", "cuda")}


def is_random(op: Op) -> bool:
    return any(word in op.name for word in _RANDOM)


def _candidates(op: Op) -> Iterator[dict[str, str]]:
    wanted = [name for name in op.params if name not in op.defaults]
    kinds = []
    for at, name in enumerate(wanted):
        kinds.append(
            BY_NAME.get(name)
            or (TENSORS if at == 0 or name in getattr(op, "tensor_params", ()) else (*TENSORS[:5], *NUMBERS))
        )
    yield from (
        dict(zip(wanted, chosen, strict=True))
        for chosen in itertools.islice(itertools.product(*kinds), MOST_TRIES)
    )


def call(op: Op) -> tuple[dict[str, str], Any] | None:
    """Kinds of arguments that `op` takes on the CPU, and what it makes of them; None if none of those tried are right."""
    for kinds in _candidates(op):
        try:
            made = _run(op, kinds, "cpu")
        except Exception:  # any complaint means: other arguments
            continue
        if any(isinstance(x, fb.Tensor) and x.numel() for x in _flat(made)) or isinstance(
            made, (bool, int, float)
        ):
            return kinds, made
    return None


def _run(op: Op, kinds: dict[str, str], device: str) -> Any:
    values = {name: _placed(KINDS[kind](), device) for name, kind in kinds.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if op.variadic in values:
            spread = values.pop(op.variadic)
            return op.function(
                *values.values(), *(spread if isinstance(spread, (tuple, list)) else (spread,))
            )
        positional = [values.pop(name) for name in op.positional if name in values]
        return op.function(*positional, **values)


def _placed(value: Any, device: str) -> Any:
    if isinstance(value, fb.Tensor):
        return value.to(device)
    return [v.to(device) for v in value] if isinstance(value, list) else value


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [x for v in value for x in _flat(v)]
    return [value]


def outcome(op: Op) -> str:
    """'works', 'refused' (NotImplementedError), 'unknown' (no arguments found), or what went wrong."""
    found = call(op)
    if found is None:
        return "unknown"
    kinds, expected = found
    try:
        made = _run(op, kinds, "cuda")
    except NotImplementedError:
        return "refused"
    except Exception as error:  # what is raised is the outcome
        return f"{type(error).__name__}: {error}"[:300]
    if is_random(op):
        return "works"
    for e, m in itertools.zip_longest(_flat(expected), _flat(made)):
        problem = _differ(e, m)
        if problem:
            return f"{problem} for {kinds}"
    return "works"


def _differ(e: Any, m: Any) -> str:
    if not isinstance(e, fb.Tensor):
        return (
            ""
            if e == m
            or e is m
            or isinstance(e, float)
            and abs(e - m) < 1e-6
            or not isinstance(e, (bool, int, float))
            else f"{m} instead of {e}"
        )
    if not isinstance(m, fb.Tensor):
        return f"a {type(m).__name__} instead of a tensor"
    if m.device.type != "cuda":
        return f"a result on {m.device}"
    if (m.dtype, m.shape) != (e.dtype, e.shape):
        return f"{m.dtype} {tuple(m.shape)} instead of {e.dtype} {tuple(e.shape)}"
    wide = fb.complex128 if e.is_complex() else fb.float64
    a, b = m.detach().cpu().to(wide).numpy(), e.detach().to(wide).numpy()
    return (
        ""
        if np.allclose(a, b, 2e-5, 2e-5, equal_nan=True)
        else f"other values, {np.nanmax(np.abs(a - b))} apart"
    )

"""Calls whose results the engines are compared by: every formula of the registry, and a call for each family of kernels.

`python engine_calls.py file.npz some|all`, which `test_engines.py` runs on each engine, writes their results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import flambeau as fb
from flambeau.nn import functional as F
from flambeau.ops import _derive, _spec
from flambeau.ops._spec.samples import function_of, reached_by, samples_of

__all__ = ["CALLS", "DTYPES", "EXACT", "calls", "formulas", "results"]

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "complex64")
SPECIAL = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, 6e-8, 65000.0)
ELEMENTS = 1500  # above what numpy computes on all engines
ROWS, COLUMNS = 40, 301


def formulas() -> list[Any]:
    """Elementwise operations, whose kernels are made from a formula."""
    _derive.load_all()
    return [op for op in dict.fromkeys(_spec.OPS.values()) if op.kind == "elementwise" and not reached_by(op)]


def _operands(op: Any, dtype: Any) -> tuple[list[Any], dict[str, Any]]:
    """Those of the first call that the declaration of `op` gives, with many elements, and special values in the first one."""
    sample, rng = samples_of(op, dtype)[0], np.random.default_rng(0)
    bounds = None if isinstance(op.samples, str) else op.samples or (-2.0, 2.0)
    given: list[Any] = []
    for value in sample.args:
        if isinstance(value, fb.Tensor):
            if bounds is not None and value.dtype is dtype:
                numbers = rng.uniform(bounds[0], bounds[1], ELEMENTS)
                if dtype.is_floating_point and not any(isinstance(v, fb.Tensor) for v in given):
                    numbers[: len(SPECIAL)] = SPECIAL
                value = fb.tensor(numbers).to(dtype)
            else:
                value = value.reshape(-1).repeat(-(-ELEMENTS // value.numel()))[:ELEMENTS].clone()
        given.append(value)
    return given, sample.kwargs


def _drawn(dtype: Any) -> Any:
    """Numbers with ties among them, none of them a negative zero."""
    fb.manual_seed(0)
    return ((fb.randn(ROWS, COLUMNS) * 50).round().div(16) + 0.0).to(dtype)


def _whole(x: Any) -> Any:
    return x.round() + 0


def _places(high: int, *shape: int) -> Any:
    fb.manual_seed(1)
    return fb.randint(0, high, shape)


# What moves, chooses, compares, counts or draws has one answer, to the bit, on every engine.
EXACT: dict[str, Callable[[Any], Any]] = {
    "accumulate at places": lambda x: fb.zeros(50, COLUMNS, dtype=x.dtype).index_add(
        0, _places(50, ROWS), _whole(x)
    ),
    "cat": lambda x: fb.cat([x, x[:, ::2]], 1),
    "cummax": lambda x: x.cummax(1),
    "cummin of columns": lambda x: x.cummin(0),
    "copy of columns": lambda x: x.t().contiguous(),
    "cumsum of whole numbers": lambda x: _whole(x).cumsum(1),
    "extremes of rows": lambda x: (x.amax(1), x.amin(1), x.argmax(1), x.argmin(1)),
    "extremes of columns": lambda x: x.max(0),
    "fill": lambda x: fb.full_like(x, 3),
    "flip": lambda x: x.flip(1),
    "gather": lambda x: x.gather(1, _places(COLUMNS, ROWS, 70)),
    "index": lambda x: x[_places(ROWS, 90)],
    "index_put": lambda x: x.index_put((_places(ROWS, 5),), x[:5] * 0),
    "kthvalue": lambda x: x.kthvalue(7, 1)[0],
    "masked_select": lambda x: x.masked_select(x > 1),
    "max_pool2d": lambda x: F.max_pool2d(x[:36].reshape(1, 4, 9, COLUMNS), 3, 2, return_indices=True),
    "median": lambda x: x.median(1)[0],
    "nonzero": lambda x: x.nonzero(),
    "pad": lambda x: F.pad(x[None], (3, 5), "reflect"),
    "roll": lambda x: x.roll(5, 1),
    "scatter": lambda x: x.scatter(1, fb.arange(50).flip(0).expand(ROWS, 50), x[:, :50]),
    "searchsorted": lambda x: fb.searchsorted(x.sort(1)[0], x[:, :99].contiguous()),
    "sort": lambda x: x.sort(1, stable=True),
    "sums of whole numbers": lambda x: (_whole(x).sum(1), _whole(x).sum(0)),
    "topk": lambda x: x.topk(9, 1)[0],
    "tril": lambda x: x.tril(7),
    "unique": lambda x: fb.unique(x),
}

# What rounds on its way.
CALLS: dict[str, Callable[[Any], Any]] = {
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x[:36].reshape(1, 4, 9, COLUMNS), (4, 50)),
    "attention": lambda x: F.scaled_dot_product_attention(
        *(x[None, None, :, k : k + 64] / 9 for k in (0, 64, 128))
    ),
    "avg_pool2d": lambda x: F.avg_pool2d(x[:36].reshape(1, 4, 9, COLUMNS), 3, 2),
    "batch_norm": lambda x: F.batch_norm(x.reshape(4, 10, COLUMNS), None, None, training=True),
    "cross_entropy": lambda x: F.cross_entropy(x, _places(COLUMNS, ROWS)),
    "cumprod": lambda x: (1 + x / 50).cumprod(1),
    "cumsum": lambda x: x.cumsum(0),
    "fft": lambda x: fb.view_as_real(fb.fft.rfft(x)),
    "group_norm": lambda x: F.group_norm(x.reshape(4, 10, COLUMNS), 5),
    "interpolate": lambda x: F.interpolate(x[:36].reshape(1, 4, 9, COLUMNS), (20, 77), mode="bilinear"),
    "layer_norm": lambda x: F.layer_norm(x, (COLUMNS,)),
    "log_softmax": lambda x: x.log_softmax(1),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "mean": lambda x: (x.mean(1), x.mean(0)),
    "mse_loss": lambda x: F.mse_loss(x, x.flip(0)),
    "norm": lambda x: (x.norm(dim=1), x.norm()),
    "products": lambda x: x @ x.t(),
    "prod": lambda x: (1 + x / 50).prod(1),
    "rms_norm": lambda x: F.rms_norm(x, (COLUMNS,)),
    "softmax": lambda x: x.softmax(1),
    "softmax of columns": lambda x: x.softmax(0),
    "sum": lambda x: (x.sum(1), x.sum(0), x.sum()),
    "var": lambda x: (x.var(1), x.std(0)),
}


def results(given: Any) -> list[Any]:
    """The tensors of a result."""
    return [given] if isinstance(given, fb.Tensor) else [t for one in given for t in results(one)]


def calls(every: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names of calls and what makes them; unless `every`, some of each sort, in dtypes that take turns."""
    found = formulas()
    for k, op in list(enumerate(found))[:: 1 if every else 12]:
        for name in DTYPES if every else (DTYPES[k // 12 % len(DTYPES)],):
            yield f"{op.qualified}|{name}", lambda op=op, name=name: _called(op, getattr(fb, name))
    for table, dtypes in ((EXACT, DTYPES[:-1]), (CALLS, DTYPES[:4])):
        for k, (family, fn) in list(enumerate(table.items()))[:: 1 if every else 6]:
            for name in dtypes if every else (dtypes[k // 6 % len(dtypes)],):
                yield f"{family}|{name}", lambda fn=fn, name=name: fn(_drawn(getattr(fb, name)))


def _called(op: Any, dtype: Any) -> Any:
    args, kwargs = _operands(op, dtype)
    return function_of(op)(*args, **kwargs)


def main(path: str, how: str) -> None:
    made: dict[str, Any] = {}
    for name, call in calls(how == "all"):
        fb.manual_seed(0)
        try:
            found = results(call())
        except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError) as error:
            made[f"{name}|{type(error).__name__}|"] = np.empty(0, np.uint8)
            continue
        for k, t in enumerate(found):
            array = np.ascontiguousarray(t.detach().resolve_conj().resolve_neg()._array)
            made[f"{name}|{k}|{array.dtype.name}"] = array.reshape(-1).view(np.uint8)
    np.savez(path, **made)


if __name__ == "__main__":
    main(*sys.argv[1:])

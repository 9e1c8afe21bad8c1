"""Choices and repetitions: graphs within the graph, which If, Loop and Scan run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fb

from .._higher_order_ops.associative_scan import associative_scan_op
from .._higher_order_ops.cond import cond_op
from .._higher_order_ops.map import map_op
from .._higher_order_ops.scan import scan_op
from .._higher_order_ops.while_loop import while_loop_op
from ._graph import Graph, Value

__all__ = ["CONTROL_FLOW"]

# Runs a graph module of the program on values, which become nodes: what it gives.
Run = Callable[[Any, Sequence[Value]], list[Value]]


def _choice(g: Graph, run: Run, pred: Any, true_graph: Any, false_graph: Any, operands: Sequence[Value]) -> tuple[Value, ...]:
    if not isinstance(pred, Value):
        return tuple(run(true_graph if pred else false_graph, operands))
    condition = g.reshape(g.cast(pred, fb.bool), [])._replace(shape=())
    then_branch, made = g.within("then_graph", [], lambda: run(true_graph, operands))
    else_branch, _ = g.within("else_graph", [], lambda: run(false_graph, operands))
    return _as_tuple(g.op(
        "If", condition, outputs=len(made), dtype=tuple(x.dtype for x in made), then_branch=then_branch, else_branch=else_branch
    ))  # fmt: skip


def _while(g: Graph, run: Run, cond_graph: Any, body_graph: Any, carried: Sequence[Any], additional: Sequence[Value]) -> tuple[Value, ...]:
    first = [g.like(x, None) if not isinstance(x, Value) else x for x in carried]

    def goes_on(values: Sequence[Value]) -> Value:
        return g.reshape(g.cast(run(cond_graph, [*values, *additional])[0], fb.bool), [])._replace(shape=())

    def step(at: Value, before: Value, *values: Value) -> list[Value]:
        made = run(body_graph, [*values, *additional])
        return [goes_on(made), *made]

    inputs = [(fb.int64, ()), (fb.bool, ()), *((x.dtype, x.shape) for x in first)]
    body, _ = g.within("loop_body", inputs, step)
    return _as_tuple(g.op("Loop", None, goes_on(first), *first, outputs=len(first), dtype=tuple(x.dtype for x in first), body=body))


def _scan(
    g: Graph, run: Run, graph: Any, init: Sequence[Value], xs: Sequence[Value], dim: int, reverse: bool, additional: Sequence[Value]
) -> tuple[Value, ...]:
    def step(*values: Value) -> list[Value]:
        return run(graph, [*values, *additional])

    return repeat(g, step, init, xs, dim, reverse)


def _map(g: Graph, run: Run, graph: Any, xs: Sequence[Value], args: Sequence[Value], additional: Sequence[Value]) -> tuple[Value, ...]:
    return repeat(g, lambda *values: run(graph, [*values, *args, *additional]), [], xs, 0, False)


def _associative_scan(
    g: Graph, run: Run, graph: Any, xs: Sequence[Value], dim: int, reverse: bool, additional: Sequence[Value]
) -> tuple[Value, ...]:
    def step(*values: Value) -> list[Value]:
        made = run(graph, [*values, *additional])
        return [*made, *made]                         # what is carried on, and the result

    ends = (-1, 1 << 62) if reverse else (0, 1)
    rest = (-(1 << 62), -1) if reverse else (1, 1 << 62)
    first = [g.op("Slice", x, [ends[0]], [ends[1]], [dim]) for x in xs]
    begun = [g.op("Squeeze", x, [dim], shape=_without(y.shape, dim)) for x, y in zip(first, xs, strict=True)]
    others = [g.op("Slice", x, [rest[0]], [rest[1]], [dim])._replace(shape=x.shape) for x in xs]
    made = repeat(g, step, begun, others, dim, reverse, dim)[len(xs) :]
    pairs = [(y, x) if reverse else (x, y) for x, y in zip(first, made, strict=True)]
    return tuple(g.op("Concat", *pair, axis=dim) for pair in pairs)


def repeat(
    g: Graph, step: Callable[..., Sequence[Value]], init: Sequence[Value], xs: Sequence[Value], dim: int, reverse: bool, out_dim: int = 0
) -> tuple[Value, ...]:
    """A Scan: `step` of what is carried, `init` at first, and of each part of `xs` along `dim` gives what is carried on, and results.

    Returns: what is carried in the end, and the results stacked along `out_dim`, in the places of what they were made of.
    """
    inputs = [(x.dtype, x.shape) for x in init] + [(x.dtype, _without(x.shape, dim)) for x in xs]
    body, made = g.within("scan_body", inputs, step)
    # Not every runtime knows other axes than the first, and the way back.
    parts = [_turned(g, _moved(g, x, dim % x.ndim, 0), reverse) for x in xs]
    found = _as_tuple(g.op(
        "Scan", *init, *parts, outputs=len(made), dtype=tuple(x.dtype for x in made), body=body, num_scan_inputs=len(xs)
    ))  # fmt: skip
    whole = [y._replace(shape=None if x.shape is None else (None, *x.shape)) for x, y in zip(made, found, strict=True)]
    results = [_turned(g, y, reverse) for y in whole[len(init) :]]
    return (*found[: len(init)], *(_moved(g, y, 0, out_dim % y.ndim) if out_dim else y for y in results))


def _moved(g: Graph, x: Value, source: int, to: int) -> Value:
    order = [d for d in range(x.ndim) if d != source]
    order.insert(to, source)
    return g.transpose(x, order)


def _turned(g: Graph, x: Value, reverse: bool) -> Value:
    """`x` from its end on along its first dimension, if `reverse`."""
    return g.op("Slice", x, [-1], [-(1 << 62)], [0], [-1])._replace(shape=x.shape) if reverse else x


def _without(shape: Any, dim: int) -> Any:
    if shape is None:
        return None
    dim %= len(shape)
    return (*shape[:dim], *shape[dim + 1 :])


def _as_tuple(made: Any) -> tuple[Value, ...]:
    return (made,) if isinstance(made, Value) else tuple(made)


CONTROL_FLOW: dict[Any, Callable[..., tuple[Value, ...]]] = {
    cond_op: _choice, while_loop_op: _while, scan_op: _scan, map_op: _map, associative_scan_op: _associative_scan,
}  # fmt: skip

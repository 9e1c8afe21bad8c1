"""The functional collectives as operators, ``torch.ops.c10d_functional.*``; groups go by their names."""

from __future__ import annotations

import functools
from typing import Any

import flambeau as fb

from ... import _functional_collectives as functional
from ... import distributed_c10d as c10d

__all__ = ["operator"]


def _group(name: str) -> Any:
    found = next((group for group in c10d._world.groups if group.group_name == name), None)
    if found is None:
        raise ValueError(f"c10d_functional: there is no process group {name!r}")
    return found


@functools.cache
def _library() -> Any:
    from ....library import Library

    made = Library("c10d_functional", "DEF")
    for schema, run in (
        ("all_reduce(Tensor input, str reduce_op, str group_name) -> Tensor",
         lambda x, op, name: functional.all_reduce(x, op, _group(name))),
        ("all_gather_into_tensor(Tensor input, int group_size, str group_name) -> Tensor",
         lambda x, size, name: functional.all_gather_tensor(x, 0, _group(name))),
        ("reduce_scatter_tensor(Tensor input, str reduce_op, int group_size, str group_name) -> Tensor",
         lambda x, op, size, name: functional.reduce_scatter_tensor(x, op, 0, _group(name))),
        ("all_to_all_single(Tensor input, SymInt[] output_split_sizes, SymInt[] input_split_sizes, str group_name) -> Tensor",
         lambda x, outs, ins, name: functional.all_to_all_single(x, outs, ins, _group(name))),
        ("broadcast(Tensor input, int src, str group_name) -> Tensor",
         lambda x, src, name: functional.broadcast(x, src, _group(name))),
    ):  # fmt: skip
        made.define(schema)
        made.impl(schema.partition("(")[0], run, "CompositeExplicitAutograd")
    return made


def operator(name: str) -> Any:
    """The operator of a functional collective."""
    _library()
    return getattr(fb.ops.c10d_functional, name)

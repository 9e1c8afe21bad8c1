"""Functions of plain tensors, used on the pieces of spread ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau as fb

from ....utils import _pytree as pytree
from .._dtensor import DTensor
from ..placement_types import Placement

__all__ = ["local_map"]


def local_map(
    func: Callable[..., Any] | None = None,
    out_placements: Any = None,
    in_placements: Any = None,
    in_grad_placements: Any = None,
    device_mesh: Any = None,
    *,
    redistribute_inputs: bool = False,
) -> Any:
    """`func` on the pieces of spread arguments, its results spread as `out_placements` say.

    Args:
        func: takes plain tensors; left out, this is a decorator.
        out_placements: placements of the result, or a tuple with those of each of several; None for what is no tensor.
        in_placements: those that each argument has to have; None for what is no spread tensor.
        in_grad_placements: those of the gradients of arguments.
        device_mesh: of all arguments; that of the first spread one by default.
        redistribute_inputs: bring arguments to `in_placements` where they are in others.
    Raises: ValueError for an argument with other placements; AssertionError for placements that do not fit, or other meshes.
    """
    if func is None:
        return functools.partial(
            local_map, out_placements=out_placements, in_placements=in_placements, in_grad_placements=in_grad_placements,
            device_mesh=device_mesh, redistribute_inputs=redistribute_inputs,
        )  # fmt: skip

    def called(*args: Any, **kwargs: Any) -> Any:
        flat, structure = pytree.tree_flatten(args)
        mesh, spread = device_mesh, any(isinstance(x, DTensor) for x in flat)
        if in_placements is not None and len(in_placements) != len(flat):
            raise AssertionError(f"in_placements length {len(in_placements)} does not match the number of input args {len(flat)}!")
        pieces = []
        for at, x in enumerate(flat):
            wanted = None if in_placements is None else in_placements[at]
            if not isinstance(x, DTensor):
                if wanted is not None and spread and isinstance(x, fb.Tensor):
                    raise AssertionError(f"Non-DTensor input {x} expects None placements but received {wanted}!")
                pieces.append(x)
                continue
            mesh = mesh or x.device_mesh
            if x.device_mesh != mesh:
                raise AssertionError(f"arg {x} in local_map has a mismatched device mesh: {x.device_mesh}, expected {mesh}!")
            if in_placements is not None:
                if wanted is None:
                    raise AssertionError(f"DTensor input {x} expects placements but received {wanted}!")
                if tuple(wanted) != x.placements:
                    if not redistribute_inputs:
                        raise ValueError(
                            f"arg {x} in local_map has a mismatched placements: arg placements is {x.placements} but the input placements "
                            f"is {tuple(wanted)}! If redistribute_inputs is wanted, set redistribute_inputs=True to local_map."
                        )
                    x = x.redistribute(mesh, wanted)
            grads = None if in_grad_placements is None else in_grad_placements[at]
            pieces.append(x.to_local(grad_placements=grads))
        made = func(*pytree.tree_unflatten(pieces, structure), **kwargs)
        if not spread:
            return made
        found, shape = pytree.tree_flatten(made)
        placed = out_placements if _is_several(out_placements) else (out_placements,)
        if len(placed) != len(found):
            raise AssertionError(
                f"local_map requires one PlacementType be provided for each output value, received {len(placed)} out_placements but "
                f"{len(found)} is expected!"
            )
        wrapped = []
        for value, wanted in zip(found, placed, strict=True):
            if not isinstance(value, fb.Tensor):
                if wanted is not None:
                    raise AssertionError(f"Non-tensor output {value} expects None placements but received {wanted}!")
                wrapped.append(value)
            elif isinstance(value, DTensor):
                raise AssertionError(f"Non-tensor output expected but received DTensor {value}: local_map takes the pieces of results")
            else:
                wrapped.append(DTensor.from_local(value, mesh, wanted))
        return pytree.tree_unflatten(wrapped, shape)

    return functools.update_wrapper(called, func) if hasattr(func, "__name__") else called


def _is_several(placements: Any) -> bool:
    """Whether there are placements for each of several results: a tuple of sequences, or of None."""
    return isinstance(placements, tuple) and not any(isinstance(p, Placement) for p in placements)

"""Changes of exported programs."""

from __future__ import annotations

from typing import Any

from ...devices import device
from ...tensor import Tensor
from ...utils import _pytree as pytree
from ..exported_program import ExportedProgram

__all__ = ["move_to_device_pass"]


def move_to_device_pass(ep: ExportedProgram, location: Any) -> ExportedProgram:
    """`ep` with its state, constants and example inputs on another device, and with what its graph says of devices.

    Args:
        location: a device, or a dict from devices as they are to devices as they are to be.
    """

    def moved(place: Any) -> Any:
        if isinstance(location, dict):
            return device(location.get(str(place), location.get(place, place)))
        return device(location)

    def to_there(x: Any) -> Any:
        return x.to(moved(x.device)) if isinstance(x, Tensor) else x

    for home in (ep._state_dict, ep._constants, ep._buffers_left_out):
        for name, value in home.items():
            home[name] = value if not isinstance(value, Tensor) else _in_place_of(value, to_there(value))
    for node in ep.graph.nodes:
        if "device" in node.kwargs and node.kwargs["device"] is not None:
            node.kwargs = {**node.kwargs, "device": moved(node.kwargs["device"])}
    ep.graph_module.recompile()
    ep.example_inputs = pytree.tree_map(to_there, ep.example_inputs)
    return ep


def _in_place_of(value: Any, there: Tensor) -> Tensor:
    """`there` as a parameter where `value` is one."""
    from ...nn.parameter import Parameter

    return Parameter(there.detach(), value.requires_grad) if isinstance(value, Parameter) and there is not value else there

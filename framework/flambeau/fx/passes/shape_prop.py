"""Shapes and dtypes of values in a graph, found by running it."""

from __future__ import annotations

from typing import Any, NamedTuple

from ... import devices
from ...tensor import Tensor
from ..graph_module import GraphModule
from ..interpreter import Interpreter
from ..node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its values. `stride` counts elements."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


_FORMATS = (devices.contiguous_format, devices.channels_last, devices.channels_last_3d)


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    strided = result.layout is devices.strided        # else there are no strides, and no memory format
    memory_format = None
    if include_contiguity and strided:
        ranks = {devices.channels_last: 4, devices.channels_last_3d: 5}
        for candidate in _FORMATS:
            if ranks.get(candidate, result.ndim) == result.ndim and result.is_contiguous(memory_format=candidate):
                memory_format = candidate
                break
    strides = tuple(result.stride()) if strided else ()
    quantized = result.is_quantized
    parameters = _quantization_of(result) if quantized else {}
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, strides, memory_format, quantized, parameters)


def _quantization_of(x: Tensor) -> dict[str, Any]:
    """How the integers of a quantized tensor are read: its scheme, and scale and zero point, lists of them where channels differ."""
    scheme = x.qscheme()
    if scheme in (devices.per_tensor_affine, devices.per_tensor_symmetric):
        return {"qscheme": scheme, "scale": x.q_scale(), "zero_point": x.q_zero_point()}
    scales, zero_points = x.q_per_channel_scales(), x.q_per_channel_zero_points()
    return {"qscheme": scheme, "scale": scales.tolist(), "zero_point": zero_points.tolist(), "axis": x.q_per_channel_axis()}


class OnFakes(Interpreter):
    """Runs a graph with tensors of a `FakeTensorMode` in the place of the module's parameters and buffers; with them, if that is None."""

    def __init__(self, module: GraphModule, mode: Any) -> None:
        super().__init__(module)
        self._mode = mode

    def fetch_attr(self, target: str) -> Any:
        """What stands for the attribute `target`, if it is a tensor."""
        found = super().fetch_attr(target)
        return self._mode.from_tensor(found) if self._mode is not None and isinstance(found, Tensor) else found

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """What the module gives, with fake parameters and buffers in the place of its own."""
        if self._mode is None:
            return super().call_module(target, args, kwargs)
        from ...func import functional_call

        module = super().fetch_attr(target)
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return functional_call(module, {name: self._mode.from_tensor(t) for name, t in tensors.items()}, args, kwargs)


class ShapeProp(OnFakes):
    """Runs a graph and notes in ``node.meta["tensor_meta"]`` what its values are, and in ``node.meta["type"]`` of which class.

    Args:
        gm: the GraphModule.
        fake_mode: run it with tensors of this mode, which have no values.

    >>> gm = fb.fx.symbolic_trace(fb.nn.Linear(3, 4))
    >>> _ = fb.fx.passes.shape_prop.ShapeProp(gm).propagate(fb.ones(2, 3))
    >>> gm.graph.output_node().meta["tensor_meta"].shape
    torch.Size([2, 4])
    """

    def __init__(self, gm: GraphModule, fake_mode: Any = None) -> None:
        super().__init__(gm, fake_mode)
        self.fake_mode = fake_mode
        self.real_module = self.module

    def run_node(self, n: Node) -> Any:
        """The value of `n`, noted. Raises: RuntimeError that names `n`, from whatever it raises."""
        try:
            result = super().run_node(n)
        except Exception as error:
            raise RuntimeError(f"ShapeProp error for: node={n.format_node()} with meta={n.meta}") from error
        found = False

        def describe(value: Any) -> Any:
            nonlocal found
            if isinstance(value, Tensor):
                found = True
                return _extract_tensor_metadata(value)
            return value

        described = map_aggregate(result, describe)
        if found:
            n.meta["tensor_meta"] = described
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the module on `args`; returns its result."""
        if self.fake_mode is not None:
            args = tuple(self.fake_mode.from_tensor(a) if isinstance(a, Tensor) else a for a in args)
            with self.fake_mode:
                return super().run(*args)
        return super().run(*args)

"""A quantizer made of others."""

from __future__ import annotations

from typing import Any

from ....fx import GraphModule
from .quantizer import QuantizationAnnotation, Quantizer

__all__ = ["ComposableQuantizer"]


class ComposableQuantizer(Quantizer):
    """Asks several quantizers, in order; what one has annotated, those after it leave as it is.

    Raises: RuntimeError if one changes what another has said.
    """

    def __init__(self, quantizers: list[Quantizer]) -> None:
        super().__init__()
        self.quantizers = quantizers
        self._annotations: dict[Any, tuple[int, QuantizationAnnotation]] = {}

    def _record(self, model: GraphModule, quantizer: Quantizer) -> None:
        for node in model.graph.nodes:
            annotation = node.meta.get("quantization_annotation")
            if annotation is None:
                continue
            if node in self._annotations and self._annotations[node][0] != id(annotation):
                raise RuntimeError(f"Quantizer {type(quantizer).__name__} has changed annotations on node {node}")
            self._annotations[node] = id(annotation), annotation

    def annotate(self, model: GraphModule) -> GraphModule:
        """The annotations of all quantizers."""
        for quantizer in self.quantizers:
            quantizer.annotate(model)
            self._record(model, quantizer)
        return model

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """The changes of all quantizers, one after the other."""
        for quantizer in self.quantizers:
            model = quantizer.transform_for_annotation(model)
        return model

    def validate(self, model: GraphModule) -> None:
        """Let each quantizer check the graph."""
        for quantizer in self.quantizers:
            quantizer.validate(model)

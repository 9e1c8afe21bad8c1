"""Tensors in notebooks: what they are, what their numbers are like, and the numbers."""

from __future__ import annotations

import html
from typing import Any

from .devices import strided

__all__ = ["tensor_html"]

_BARS = 24
_WIDTH, _HEIGHT = 5, 32  # of a bar, in pixels


def tensor_html(tensor: Any) -> str:
    """A line on shape, dtype and device, one on range, mean and non-finite values with a histogram, and the printed tensor."""
    facts = [f"shape {tuple(tensor.shape)}", str(tensor.dtype), str(tensor.device)]
    if tensor.requires_grad:
        facts.append("requires grad")
    parts = [f"<b>{type(tensor).__name__}</b> " + " · ".join(map(html.escape, facts))]
    stored = _stored(tensor.detach())
    if not tensor._lacks_values and stored.numel() and not tensor.is_complex():
        parts.append(_numbers(stored))
    parts.append(f"<pre>{html.escape(repr(tensor))}</pre>")
    return "<div>" + "<br>".join(parts) + "</div>"


def _stored(tensor: Any) -> Any:
    """The elements that `tensor` stores, where it is sparse or nested, or it."""
    if tensor.is_nested:
        return tensor.values()
    if tensor.layout is not strided:
        return tensor._values() if tensor.is_sparse else tensor.values()
    return tensor.dequantize() if tensor.is_quantized else tensor


def _numbers(tensor: Any) -> str:
    import numpy as np

    values = tensor.cpu().double().numpy().ravel()
    finite = values[np.isfinite(values)]
    text = []
    if finite.size:
        text.append(f"from {finite.min():.4g} to {finite.max():.4g}, mean {finite.mean():.4g}")
    if finite.size < values.size:
        text.append(f"<b>{values.size - finite.size} of {values.size} not finite</b>")
    bars = _histogram(finite) if finite.size > 1 and finite.min() < finite.max() else ""
    return " · ".join(text) + " " + bars


def _histogram(values: Any) -> str:
    import numpy as np

    counts, edges = np.histogram(values, bins=_BARS)
    rows = []
    for i, count in enumerate(counts):
        height = round(_HEIGHT * count / counts.max())
        title = f"{count} from {edges[i]:.4g} to {edges[i + 1]:.4g}"
        place = f'x="{i * _WIDTH}" y="{_HEIGHT - height}" width="{_WIDTH - 1}" height="{height}"'
        rows.append(f"<rect {place}><title>{title}</title></rect>")
    size = f'width="{_BARS * _WIDTH}" height="{_HEIGHT}"'
    return f'<svg {size} fill="currentColor" opacity="0.6">{"".join(rows)}</svg>'

"""Embeddings: rows of a table, looked up by index."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .. import functional as F
from .. import init
from ..parameter import Parameter
from .module import Module

__all__ = ["Embedding", "EmbeddingBag"]


def _checked_padding_idx(name: str, padding_idx: int | None, num_embeddings: int) -> int | None:
    """`padding_idx` counted from the start."""
    if padding_idx is None:
        return None
    if not -num_embeddings <= padding_idx < num_embeddings:
        # PyTorch raises AssertionError for exactly this.
        raise AssertionError(f"{name}: padding_idx={padding_idx} must be within num_embeddings={num_embeddings}")
    return padding_idx % num_embeddings


class _Table(Module):
    """What both embeddings have: `weight` (num_embeddings, embedding_dim), whose row `padding_idx` stays zero."""

    def _make_weight(self, given: fb.Tensor | None, freeze: bool, device: Any, dtype: Any) -> None:
        shape = (self.num_embeddings, self.embedding_dim)
        if given is None:
            self.weight = Parameter(fb.empty(shape, device=device, dtype=dtype), requires_grad=not freeze)
            self.reset_parameters()
            return
        if tuple(given.shape) != shape:
            raise AssertionError(
                f"{type(self).__name__}: the weight has shape {tuple(given.shape)}, "
                f"num_embeddings and embedding_dim say {shape}"
            )
        self.weight = Parameter(given, requires_grad=not freeze)

    def reset_parameters(self) -> None:
        """Draw from the standard normal distribution; the padding row is zero."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            with fb.no_grad():
                self.weight[self.padding_idx].fill_(0)


class Embedding(_Table):
    """The rows of a learned table at the given indices.

    Args:
        num_embeddings: number of rows.
        embedding_dim: length of a row.
        padding_idx: a row that is zero at first and gets no gradient; negative counts from the end.
        max_norm: rows whose `norm_type`-norm is larger are scaled down to it, in place, when looked up.
        scale_grad_by_freq: whether a row's gradient is divided by how often it occurs in the batch.
        sparse: whether the gradient of the table is a sparse tensor, for `SparseAdam`, `SGD` and `Adagrad`.
    Shapes: integers ``(*) -> (*, embedding_dim)``.

    >>> nn.Embedding(10, 4, padding_idx=0)(fb.tensor([[0, 3]])).shape
    torch.Size([1, 2, 4])
    """

    __constants__ = [
        "num_embeddings",
        "embedding_dim",
        "padding_idx",
        "max_norm",
        "norm_type",
        "scale_grad_by_freq",
        "sparse",
    ]

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: fb.Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = _checked_padding_idx("Embedding", padding_idx, num_embeddings)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self._make_weight(_weight, _freeze, device, dtype)
        self.sparse = sparse

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        weight = self._parameters.get("weight")       # see `Module._weight_and_bias`
        return F.embedding(
            input,
            self.weight if weight is None else weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            parts.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq is not False:
            parts.append(f"scale_grad_by_freq={self.scale_grad_by_freq}")
        if self.sparse is not False:
            parts.append("sparse=True")
        return ", ".join(parts)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: fb.Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """An Embedding of the given rows, which training leaves alone if `freeze`."""
        _check_rows(embeddings)
        rows, columns = embeddings.shape
        return cls(
            rows,
            columns,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight=embeddings,
            _freeze=freeze,
        )


def _check_rows(embeddings: fb.Tensor) -> None:
    if embeddings.dim() != 2:
        raise AssertionError(f"from_pretrained: expected a 2-dimensional table, got {tuple(embeddings.shape)}")


class EmbeddingBag(_Table):
    """Sums, means or maxima of bags of rows of a learned table, without making the rows one by one.

    Args:
        mode: ``'sum'``, ``'mean'`` or ``'max'``.
        include_last_offset: whether the offsets end with the number of indices.
    The others as for `Embedding`.
    Shapes: integers ``(B, N) -> (B, embedding_dim)``: each row is a bag; or indices ``(M,)`` and offsets ``(B,)`` ->
        ``(B, embedding_dim)``: bag i begins at offset i. `per_sample_weights`, for ``'sum'``, has the input's shape.
    """

    __constants__ = [
        "num_embeddings",
        "embedding_dim",
        "max_norm",
        "norm_type",
        "scale_grad_by_freq",
        "mode",
        "sparse",
        "include_last_offset",
        "padding_idx",
    ]

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: fb.Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.padding_idx = _checked_padding_idx("EmbeddingBag", padding_idx, num_embeddings)
        self._make_weight(_weight, False, device, dtype)
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def forward(self, input: fb.Tensor, offsets: fb.Tensor | None = None, per_sample_weights: fb.Tensor | None = None) -> fb.Tensor:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            parts.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq is not False:
            parts.append(f"scale_grad_by_freq={self.scale_grad_by_freq}")
        parts.append(f"mode={self.mode!r}")
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        return ", ".join(parts)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: fb.Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """An EmbeddingBag of the given rows, which training leaves alone if `freeze`."""
        _check_rows(embeddings)
        rows, columns = embeddings.shape
        made = cls(
            rows,
            columns,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            _weight=embeddings,
            include_last_offset=include_last_offset,
            padding_idx=padding_idx,
        )
        made.weight.requires_grad = not freeze
        return made

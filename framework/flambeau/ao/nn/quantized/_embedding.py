"""Embeddings whose weight is quantized; their results are dense."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from ....nn import Module
from ....nn import functional as F
from ....nn import modules as float_modules
from ....tensor import Tensor
from ._base import observed_weight, quantize_weight

__all__ = ["Embedding", "EmbeddingBag", "EmbeddingPackedParams"]


class EmbeddingPackedParams(Module):
    """The quantized weight of an embedding, one entry of `state_dict`.

    Args:
        dtype: `quint8`.
    Raises: NotImplementedError for weights of four bits, which are not built.
    """

    _version = 1

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: Any = fb.quint8) -> None:
        super().__init__()
        if dtype is not fb.quint8:
            raise NotImplementedError(f"Unsupported dtype for quantized embedding & embedding bag: {dtype}; use quint8")
        self.dtype = dtype
        rows = fb.ones(num_embeddings), fb.zeros(num_embeddings)
        self.set_weight(fb.quantize_per_channel(fb.zeros(num_embeddings, embedding_dim), *rows, 0, dtype))

    def set_weight(self, weight: Tensor) -> None:
        """Keep the quantized `weight`, ``(num_embeddings, embedding_dim)``."""
        self.__dict__["_packed_weight"] = weight

    def _weight(self) -> Tensor:
        """The quantized weight."""
        return self.__dict__["_packed_weight"]

    def forward(self, x: Any) -> Any:
        """`x` itself."""
        return x

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_weight"] = self._weight()

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: Any, unexpected_keys: Any, error_msgs: Any
    ) -> None:
        for name in ("dtype", "_packed_weight"):
            if prefix + name not in state_dict:
                missing_keys.append(prefix + name)
        if prefix + "_packed_weight" in state_dict:
            self.dtype = state_dict.get(prefix + "dtype", self.dtype)
            self.set_weight(state_dict[prefix + "_packed_weight"])

    def __repr__(self) -> str:
        return repr(self._weight())


class Embedding(Module):
    """Rows of a table that is kept in quint8, a scale for each row; the results are float32.

    Args:
        num_embeddings, embedding_dim: the table's shape.
        dtype: `quint8`.
        The others are those of `nn.Embedding`, and are not looked at.

    >>> table = fb.ao.nn.quantized.Embedding(num_embeddings=10, embedding_dim=12)
    >>> table(fb.tensor([9, 6, 5, 7])).shape
    torch.Size([4, 12])
    """

    _version = 1
    float_class: Any = float_modules.Embedding

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None,
        dtype: Any = fb.quint8,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.dtype = num_embeddings, embedding_dim, dtype
        self._packed_params = EmbeddingPackedParams(num_embeddings, embedding_dim, dtype)
        if _weight is not None:
            if list(_weight.shape) != [num_embeddings, embedding_dim]:
                raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
            self._packed_params.set_weight(_weight)

    def set_weight(self, w: Tensor) -> None:
        """Give the module a quantized weight."""
        self._packed_params.set_weight(w)

    def weight(self) -> Tensor:
        """The quantized weight."""
        return self._packed_params._weight()

    def _get_name(self) -> str:
        return "QuantizedEmbedding"

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def extra_repr(self) -> str:
        return (
            f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}, dtype={self.dtype}, "
            f"qscheme={self.weight().qscheme()}"
        )

    def forward(self, indices: Tensor) -> Tensor:
        """The rows of `indices`, ``(*, embedding_dim)``."""
        return F.embedding(indices, self.weight().dequantize())

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The quantized module of one of `torch.nn` with a `qconfig` whose weight has float zero points per row.

        Raises: AssertionError for another module or scheme.
        """
        if not isinstance(mod, cls.float_class):
            raise AssertionError(f"nnq.{cls.__name__}.from_float only works for {cls.float_class.__name__}, got {type(mod).__name__}")
        if getattr(mod, "qconfig", None) is None:
            raise AssertionError("Embedding input float module must have qconfig defined; use float_qparams_weight_only_qconfig")
        observer = observed_weight(mod, mod.weight)
        if observer.dtype is not fb.quint8:
            raise AssertionError(f"The only supported weight dtype for nnq.{cls.__name__} is torch.quint8, got {observer.dtype}")
        made = cls(mod.num_embeddings, mod.embedding_dim, **cls._options(mod))
        made.set_weight(quantize_weight(mod.weight, observer))
        return made

    @staticmethod
    def _options(mod: Any) -> dict[str, Any]:
        return {}

    @classmethod
    def from_reference(cls, ref_embedding: Any) -> Any:
        """The quantized module of a reference one, which has `get_quantized_weight`."""
        made = cls(ref_embedding.num_embeddings, ref_embedding.embedding_dim, **cls._options(ref_embedding))
        made.set_weight(ref_embedding.get_quantized_weight())
        return made


class EmbeddingBag(Embedding):
    """Sums of rows of a table that is kept in quint8; see `nn.EmbeddingBag` and `Embedding`."""

    float_class = float_modules.EmbeddingBag

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "sum", sparse: bool = False, _weight: Tensor | None = None,
        include_last_offset: bool = False, dtype: Any = fb.quint8,
    ) -> None:  # fmt: skip
        super().__init__(num_embeddings, embedding_dim, _weight=_weight, dtype=dtype)
        self.mode, self.include_last_offset = mode, include_last_offset
        self.pruned_weights = False

    def _get_name(self) -> str:
        return "QuantizedEmbeddingBag"

    def forward(self, indices: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The sums of the bags, ``(bags, embedding_dim)``; see `nn.functional.embedding_bag`."""
        return F.embedding_bag(
            indices, self.weight().dequantize(), offsets, mode="sum", per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
        )  # fmt: skip

    @staticmethod
    def _options(mod: Any) -> dict[str, Any]:
        return {"include_last_offset": getattr(mod, "include_last_offset", False)}

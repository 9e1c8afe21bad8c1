"""The functional form of what layers compute: ``flambeau.nn.functional``, usually imported as ``F``.

Functions come from the op registry, on first use: those declared in this namespace, and those that are
public here and at the top level alike (``F.conv2d`` is ``torch.conv2d``).
"""

from __future__ import annotations

from typing import Any

from .._on_demand import in_dict_too

# Public in this namespace too, under the name of the op at the top level.
_SHARED = frozenset((
    "adaptive_avg_pool1d", "adaptive_max_pool1d", "alpha_dropout", "avg_pool1d", "bilinear",
    "binary_cross_entropy_with_logits", "celu", "celu_", "channel_shuffle", "conv1d", "conv2d", "conv3d",
    "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss",
    "cosine_similarity", "ctc_loss", "dropout", "dropout_", "feature_alpha_dropout", "hardshrink",
    "hinge_embedding_loss", "kl_div", "log_softmax", "logsigmoid", "margin_ranking_loss",
    "native_channel_shuffle", "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle",
    "poisson_nll_loss", "prelu", "relu", "relu_", "rrelu", "rrelu_", "selu", "selu_", "sigmoid", "softmax",
    "tanh", "threshold", "threshold_", "triplet_margin_loss",
))  # fmt: skip

# What later versions of PyTorch have here.
_NEWER = frozenset((
    "ScalingType", "SwizzleType", "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d_with_indices", "assert_int_or_pair", "linear_cross_entropy", "scaled_grouped_mm", "scaled_mm",
))  # fmt: skip


def __getattr__(name: str) -> Any:
    from ..ops import _derive

    found = _names() if name == "__all__" else _derive.lookup("nn.functional", name)
    if found is None and name in _SHARED:
        found = _derive.lookup("", name)
    if found is None and name in _NEWER:
        from . import _newer_functional

        found = getattr(_newer_functional, name)
    if found is None:
        import sys

        from .. import _missing

        raise _missing.attribute_error(__name__, name, sys.modules[__name__])
    globals()[name] = found
    return found


def _names() -> list[str]:
    from ..ops import _derive

    shared = [name for name in _SHARED if _derive.lookup("", name) is not None]
    return sorted({*_derive.function_names("nn.functional"), *shared})


def __dir__() -> list[str]:
    return sorted({*globals(), *_names()})


in_dict_too(__name__)

"""Scripted modules rewritten for phones. Nothing is rewritten here: each call says which public function does what the pass does."""

from __future__ import annotations

import enum
from typing import Any, NoReturn

from .. import _missing

__all__ = ["LintCode", "MobileOptimizerType", "generate_mobile_module_lints", "optimize_for_mobile"]


class MobileOptimizerType(enum.Enum):
    """The passes of `optimize_for_mobile`, for its list of passes to leave out."""

    CONV_BN_FUSION = 0
    INSERT_FOLD_PREPACK_OPS = 1
    REMOVE_DROPOUT = 2
    FUSE_ADD_RELU = 3
    HOIST_CONV_PACKED_PARAMS = 4
    VULKAN_AUTOMATIC_GPU_TRANSFER = 6


class LintCode(enum.Enum):
    """What `generate_mobile_module_lints` finds fault with."""

    BUNDLED_INPUT = 1
    REQUIRES_GRAD = 2
    DROPOUT = 3
    BATCHNORM = 4


def optimize_for_mobile(
    script_module: Any, optimization_blocklist: set[MobileOptimizerType] | None = None, preserved_methods: list[Any] | None = None,
    backend: str = "CPU",
) -> NoReturn:  # fmt: skip
    """Not built: raises NotImplementedError with what to use instead.

    Args:
        script_module: a `jit.ScriptModule`.
        optimization_blocklist: the passes to leave out.
        preserved_methods: methods to keep beside `forward`.
        backend: "CPU", "Vulkan" or "Metal".
    Raises: TypeError for what is no ScriptModule; NotImplementedError.
    """
    _check(script_module)
    raise _missing.not_built(
        "utils.mobile_optimizer.optimize_for_mobile",
        "nn.utils.fusion.fuse_conv_bn_eval folds batch norms into convolutions, module.eval() leaves dropout out, and torch.compile fuses "
        "what follows; kernels pack weights themselves",
    )


def generate_mobile_module_lints(script_module: Any) -> NoReturn:
    """Not built: raises NotImplementedError.

    Args:
        script_module: a `jit.ScriptModule`.
    Raises: TypeError for what is no ScriptModule; NotImplementedError.
    """
    _check(script_module)
    raise _missing.not_built(
        "utils.mobile_optimizer.generate_mobile_module_lints",
        "module.parameters() tell which require grad, and module.modules() which layers there are",
    )


def _check(module: Any) -> None:
    from ..jit import ScriptModule

    if not isinstance(module, ScriptModule):
        raise TypeError(f"Got {type(module)}, but ScriptModule is expected.")

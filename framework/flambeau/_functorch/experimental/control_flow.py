"""Control flow as functions: `cond` and `map`, as PyTorch's ``functorch.experimental.control_flow`` has them."""

from ..._higher_order_ops import cond, map

__all__ = ["cond", "map"]

"""Where values of compiled programs come from, as guards name it."""

from ..fx.experimental._sources import (
    ConstantSource,
    LocalSource,
    Source,
    TensorProperty,
    TensorPropertySource,
)

__all__ = ["ConstantSource", "LocalSource", "Source", "TensorProperty", "TensorPropertySource"]

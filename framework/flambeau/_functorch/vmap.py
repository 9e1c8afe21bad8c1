"""`vmap` under the name of PyTorch's module: the module of ours, so what a package replaces here is used.

The package around stands for ``functorch`` too, where `vmap` is the function; so the module can be called as that.
"""

import sys
from types import ModuleType
from typing import Any

from ..func import batching, vmap


class _Vmap(ModuleType):
    """The module, which is called as the function is."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return vmap(*args, **kwargs)


# In `func` the name is that of the function.
_module = sys.modules[batching.__package__ + ".vmap"]
_module.__class__ = _Vmap
sys.modules[__name__] = _module

"""Finding and registering backends of `compile`."""

from ...compiler import list_backends
from ...compiler._backends import lookup_backend, register_backend

__all__ = ["list_backends", "lookup_backend", "register_backend"]

"""Transforms under the name by which programs import them from PyTorch's insides."""

from ..func import debug_unwrap, functionalize, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from ..fx.experimental.proxy_tensor import make_fx

__all__ = ["debug_unwrap", "functionalize", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "make_fx", "vjp", "vmap"]

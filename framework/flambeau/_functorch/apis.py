"""Transforms under the name by which programs import them from PyTorch's insides."""

from ..func import grad, grad_and_value, vmap
from .experimental import chunk_vmap

__all__ = ["chunk_vmap", "grad", "grad_and_value", "vmap"]

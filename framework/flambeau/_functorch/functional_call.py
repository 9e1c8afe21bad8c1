"""Modules as functions of their parameters under the name by which programs import them from PyTorch's insides."""

from ..func import functional_call, stack_module_state

__all__ = ["functional_call", "stack_module_state"]

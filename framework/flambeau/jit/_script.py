"""Where PyTorch keeps `script` and its classes."""

from __future__ import annotations

from . import Attribute, script, script_method
from ._modules import RecursiveScriptModule, ScriptFunction, ScriptModule

__all__ = ["Attribute", "RecursiveScriptModule", "ScriptFunction", "ScriptModule", "script", "script_method"]

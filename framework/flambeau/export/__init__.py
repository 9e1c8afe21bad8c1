"""Programs without Python: the operators of a module with its state, open sizes and all, which can be saved and loaded."""

from __future__ import annotations

from . import decomp_utils, dynamic_shapes, exported_program, graph_signature, passes
from ._draft import draft_export
from ._files import load, register_dataclass, save
from ._trace import export, export_for_training
from .decomp_utils import CustomDecompTable
from .dynamic_shapes import AdditionalInputs, Constraint, Dim, ShapesCollection, dims
from .exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature, default_decompositions
from .graph_signature import ExportBackwardSignature, ExportGraphSignature
from .unflatten import FlatArgsAdapter, UnflattenedModule, unflatten

__all__ = [
    "AdditionalInputs", "Constraint", "CustomDecompTable", "Dim", "ExportBackwardSignature", "ExportGraphSignature", "ExportedProgram",
    "FlatArgsAdapter", "ModuleCallEntry", "ModuleCallSignature", "ShapesCollection", "UnflattenedModule", "decomp_utils",
    "default_decompositions", "dims", "draft_export", "dynamic_shapes", "export", "export_for_training", "exported_program",
    "graph_signature", "load", "passes", "register_dataclass", "save", "unflatten",
]  # fmt: skip

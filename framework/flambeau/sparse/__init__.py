"""Functions of sparse tensors: ``flambeau.sparse``. Those that compute come from the op registry, on first use."""

from __future__ import annotations

from typing import Any

from .._on_demand import names_on_demand
from ._checks import as_sparse_gradcheck as as_sparse_gradcheck
from ._checks import check_sparse_tensor_invariants as check_sparse_tensor_invariants

__all__ = [  # operations are found by `__getattr__`
    "addmm", "as_sparse_gradcheck", "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "spsolve",
    "sum",
]  # fmt: skip


def _make(name: str) -> Any:
    from ..ops import _derive
    from ..ops.creation.convert import SparseTensorMeta, typed_tensor

    found = _derive.lookup("sparse", name)
    if found is None:
        found = typed_tensor(name, SparseTensorMeta)
    if found is not None:
        globals()[name] = found
    return found


def _listed() -> list[str]:
    from ..ops.creation.convert import typed_tensors

    return [*__all__, *typed_tensors()]


__getattr__, __dir__ = names_on_demand(
    __name__,
    {
        ".semi_structured": (
            "SparseSemiStructuredTensor", "SparseSemiStructuredTensorCUSPARSELT", "SparseSemiStructuredTensorCUTLASS",
            "to_sparse_semi_structured",
        )
    },
    modules=("semi_structured",),
    make=_make,
    listed=_listed,
)  # fmt: skip

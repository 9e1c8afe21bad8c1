"""Functions of sparse tensors: ``flambeau.sparse``. Those that compute come from the op registry, on first use."""

from __future__ import annotations

from typing import Any

from ._checks import as_sparse_gradcheck as as_sparse_gradcheck
from ._checks import check_sparse_tensor_invariants as check_sparse_tensor_invariants

__all__ = [  # operations are found by `__getattr__`
    "addmm", "as_sparse_gradcheck", "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "spsolve",
    "sum",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    from ..ops import _derive
    from ..ops.creation.convert import SparseTensorMeta, typed_tensor

    found = _derive.lookup("sparse", name)
    if found is None:
        found = typed_tensor(name, SparseTensorMeta)
    if found is None:
        import sys

        from .. import _missing

        raise _missing.attribute_error(__name__, name, sys.modules[__name__])
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

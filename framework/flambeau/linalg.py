"""Linear algebra: ``flambeau.linalg``. Functions come from the op registry, on first use."""

from __future__ import annotations

from typing import Any

from ._on_demand import in_dict_too
from .ops.linear_algebra._lapack import LinAlgError as LinAlgError


def __getattr__(name: str) -> Any:
    from .ops import _derive

    found = ["LinAlgError", *_derive.function_names("linalg")] if name == "__all__" else _derive.lookup("linalg", name)
    if found is None:
        import sys

        from . import _missing

        raise _missing.attribute_error(__name__, name, sys.modules[__name__])
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    from .ops import _derive

    return sorted({*globals(), *_derive.function_names("linalg")})


in_dict_too(__name__)

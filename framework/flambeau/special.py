"""Special functions: ``flambeau.special``. They come from the op registry, on first use."""

from __future__ import annotations

from typing import Any

from ._on_demand import in_dict_too


def __getattr__(name: str) -> Any:
    from .ops import _derive

    found = _derive.function_names("special") if name == "__all__" else _derive.lookup("special", name)
    if found is None:
        import sys

        from . import _missing

        raise _missing.attribute_error(__name__, name, sys.modules[__name__])
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    from .ops import _derive

    return sorted({*globals(), *_derive.function_names("special")})


in_dict_too(__name__)

"""The named tuples that operations with several results return: ``return_types.max``, ``return_types.topk``, ...

``max_out`` and the like are PyTorch's types of what is returned where `out` was given, which is the same type here.
"""

from __future__ import annotations

from typing import Any

from ._on_demand import names_on_demand

_WITHOUT_OUT = frozenset({"histogramdd", "_lu_with_info"})


def _make(name: str) -> Any:
    from .ops import _results

    if name == "all_return_types":
        return [_results.named_result(known) for known in _results.names() if not known.startswith("_")]
    plain = name.removesuffix("_out")
    return None if plain != name and plain in _WITHOUT_OUT else _results.named_result(plain)


def _listed() -> list[str]:
    from .ops import _results

    known = _results.names()
    return [*known, *(f"{name}_out" for name in known if name not in _WITHOUT_OUT), "all_return_types"]


def pytree_register_structseq(cls: Any) -> None:
    """Nothing: `utils._pytree` goes into all named tuples. Raises: TypeError for what is no class of named tuples."""
    if not (isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")):
        raise TypeError(f"return_types.pytree_register_structseq: needs a class of named tuples, got {cls!r}")


__getattr__, __dir__ = names_on_demand(__name__, make=_make, listed=_listed)

"""Named results: the tuples that operations with several results return."""

from __future__ import annotations

from typing import Any

from ._spec import OPS

_RESULTS: dict[str, type] = {}


def named_result(name: str) -> type | None:
    """The named tuple that op `name` returns, or None."""
    from ._derive import load_all

    load_all()
    if name not in _RESULTS:
        fields = next((op.returns for op in OPS.values() if op.name == name and getattr(op, "returns", None)), None)
        if not fields:
            return None
        return_type(name, fields)
    return _RESULTS.get(name)


def names() -> list[str]:
    """Those that `named_result` knows."""
    from ._derive import load_all

    load_all()
    return sorted({*_RESULTS, *(op.name for op in OPS.values() if getattr(op, "returns", None))})


def return_type(name: str, fields: tuple[str, ...]) -> type:
    """The named tuple an op with several results returns, ``torch.return_types.<name>``: one class for each name."""
    found = _RESULTS.get(name)
    if found is None:
        found = _RESULTS[name] = _make_return_type(name, fields)
    return found


def _make_return_type(name: str, fields: tuple[str, ...]) -> type:
    from operator import itemgetter

    def new(cls: type, values: Any) -> Any:
        return tuple.__new__(cls, values)

    def show(self: Any) -> str:
        body = ",\n".join(f"{f}={v!r}" for f, v in zip(fields, self, strict=True))
        return f"torch.return_types.{name}(\n{body})"

    def reduce(self: Any) -> Any:
        return rebuild_return_type, (name, fields, tuple(self))

    members: dict[str, Any] = {f: property(itemgetter(i)) for i, f in enumerate(fields)}
    members.update(
        __slots__=(), __new__=new, __repr__=show, __reduce__=reduce, _fields=fields, n_fields=len(fields),
        n_sequence_fields=len(fields), n_unnamed_fields=0, __module__="torch.return_types",
    )  # fmt: skip
    return type(name, (tuple,), members)


def rebuild_return_type(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return return_type(name, fields)(values)

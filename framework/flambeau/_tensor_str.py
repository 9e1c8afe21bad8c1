"""Private names of PyTorch's printing that other packages call."""

from __future__ import annotations

from typing import Any

from . import _printing
from ._on_demand import names_on_demand
from ._printing import PrintOptions, get_printoptions, printoptions, set_printoptions

__all__ = ["get_printoptions", "printoptions", "set_printoptions"]


def _str(self: Any, *, tensor_contents: str | None = None) -> str:
    """The text of a tensor; `tensor_contents` in place of its numbers where given."""
    if tensor_contents is None:
        return _printing.tensor_repr(self)
    return _add_suffixes(f"tensor({tensor_contents}", _printing._suffixes(self), len("tensor("), False)


_str_intern = _str


def _tensor_str(self: Any, indent: int) -> str:
    """The numbers of a tensor as nested brackets; lines after the first are indented by `indent` columns."""
    array = self.detach().resolve_conj().resolve_neg().cpu().numpy()
    return "[]" if array.size == 0 else _printing.array_text(array, indent, _options())


def _add_suffixes(tensor_str: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    """`tensor_str`, which lacks the closing parenthesis, with `suffixes` such as ``dtype=torch.int32`` and the parenthesis.

    Args:
        indent: columns before suffixes that begin a line.
        force_newline: put the first suffix on a line of its own.
    """
    if force_newline and suffixes:
        tensor_str += ",\n" + " " * indent + suffixes[0]
        suffixes = suffixes[1:]
    return _printing.append_suffixes(tensor_str, suffixes, indent, _options()) + ")"


def _options() -> PrintOptions:
    return _printing._options


# Made anew each time, for `set_printoptions` puts other options in their place.
__getattr__, __dir__ = names_on_demand(
    __name__, make=lambda name: _options() if name == "PRINT_OPTS" else None, listed=lambda: ("PRINT_OPTS",)
)

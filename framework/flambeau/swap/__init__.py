"""Flambeau under the name of PyTorch: `import torch` and all that is below it.

>>> from flambeau import swap
>>> swap.install()
>>> import torch
>>> torch.__version__
'2.7.0+flambeau'
>>> swap.uninstall()

The same without touching the program: `FLAMBEAU_AS_TORCH=1 python script.py`, `python -m flambeau script.py`,
and `%load_ext flambeau.swap` in a notebook. An installed PyTorch stays untouched unless one of these is used.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any

from .. import _missing, _state
from .._missing import Asked
from . import _paths, _pickles
from ._alias import Alias

__all__ = [
    "Asked",
    "Report",
    "finder",
    "install",
    "installed",
    "load_ipython_extension",
    "report",
    "uninstall",
    "unload_ipython_extension",
]

_torch = Alias(
    "torch",
    "flambeau",
    f"{_missing.API_VERSION}.0+flambeau",
    hidden=frozenset({"swap"}),
    homes={"ops": "flambeau._ops"},  # `flambeau.ops` is where operations are declared
    # Packages that serve several frameworks look at `type(x).__mro__` for a class of this module and name, so as to import none of them.
    # Other classes keep the module that they are pickled under.
    renamed={
        "flambeau.tensor": ("Tensor",),
        "flambeau.nn.parameter": ("Parameter",),
        "flambeau.utils.data.dataloader": ("DataLoader",),
        "flambeau.utils.data.dataset": ("Dataset", "IterableDataset"),
        # What pickles of tensors name, so that PyTorch reads them too.
        "flambeau.devices": ("Size", "device", "layout", "memory_format"),
        "flambeau.dtypes": ("dtype",),
        **_pickles.CALLED,
    },
    beside={"functorch": "flambeau._functorch"},
    inner=_paths.INNER,
    moved=_paths.MOVED,
)


# A loop over names is one line of the program, and one of the printed report, which names so many of them.
_NAMES_A_LINE = 3


def _names(found: list[Asked]) -> str:
    names = ", ".join(asked.feature for asked in found[:_NAMES_A_LINE])
    more = len(found) - _NAMES_A_LINE
    return names if more <= 0 else f"{names} and {more} more"


class Report(list[Asked]):
    """The names that were asked for and are not there; printed, a line for each place in the program."""

    def __str__(self) -> str:
        if not self:
            return "flambeau.swap: everything the program asked of torch was there"
        parts = [self._part("used", "used and not there"), self._part("looked for", "looked for and not there")]
        parts.append(self._part("runs eagerly", "not built, and run eagerly instead"))
        return "\n".join(filter(None, parts))

    def _part(self, how: str, title: str) -> str:
        asked = [one for one in self if one.how == how]
        places: dict[tuple[str, int, str], list[Asked]] = {}
        for one in asked:
            newer = f"{_missing.newer_than_documented()}, not built; " if _missing.is_newer(one.feature) else ""
            places.setdefault((one.file, one.line, newer), []).append(one)
        rows = [
            f"  {_names(found)}  ({newer}docs page {found[0].page})  {file}:{line}" for (file, line, newer), found in places.items()
        ]
        return "\n".join([f"flambeau.swap: {len(asked)} {title}", *rows]) if rows else ""

    __repr__ = __str__


def install() -> None:
    """From now on `import torch` gives Flambeau in this process. A second call does nothing.

    Raises: RuntimeError if PyTorch has already been imported.
    """
    _torch.install()
    _state.reducer = _pickles.reduced
    _disarm()
    if os.environ.get("FLAMBEAU_SWAP_REPORT") == "1":
        atexit.unregister(_print_report)
        atexit.register(_print_report)


def uninstall() -> None:
    """Undo `install`: `sys.modules` and the import path hold for `torch` what they held before it.

    Objects the program already holds go on working. Does nothing if nothing is installed.
    """
    _torch.uninstall()
    _state.reducer = None
    _disarm()
    atexit.unregister(_print_report)


def installed() -> bool:
    """Whether `import torch` gives Flambeau."""
    return _torch.installed


def finder() -> Alias:
    """The finder that `install` puts on `sys.meta_path`."""
    return _torch


def report() -> Report:
    """What the program asked for that is not there, in the order it was first asked, with file and line.

    Looks are told from uses: `hasattr(torch, "x")` and `importlib.util.find_spec("torch.x")` are listed as "looked for".
    What is not built but needs no other answer than the eager one (`torch.compile`) is listed as "runs eagerly", once.
    """
    return Report(_missing.noted())


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext flambeau.swap`."""
    install()


def unload_ipython_extension(ipython: Any) -> None:
    """`%unload_ext flambeau.swap`."""
    uninstall()


def _disarm() -> None:
    """Take out the finder that FLAMBEAU_AS_TORCH=1 put in place to wait for the first `import torch`."""
    waiting = sys.modules.get("_flambeau_as_torch")
    if waiting is not None:
        waiting.disarm()


def _print_report() -> None:
    print(report(), file=sys.stderr)

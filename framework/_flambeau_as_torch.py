"""What `flambeau-as-torch.pth` loads at interpreter start when FLAMBEAU_AS_TORCH is set.

Only a finder is put in place: Flambeau, and numpy with it, are imported when something first asks for torch.
`typing` is not imported either: every process started under the variable would pay for it.
"""

from __future__ import annotations

import os
import sys

_ON, _OFF = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


class _Waiting:
    """Hands the first question about torch to `flambeau.swap`, and is gone."""

    def find_spec(self, fullname: str, path=None, target=None):
        if fullname.partition(".")[0] not in ("torch", "functorch"):
            return None
        return _swap_in().find_spec(fullname, path, target)

    def find_distributions(self, context):
        if context.name is not None and context.name.lower() != "torch":
            return ()
        return _swap_in().find_distributions(context)


_waiting = _Waiting()


def arm() -> None:
    """Wait for the first question about torch, if FLAMBEAU_AS_TORCH says so.

    Raises: ValueError for a value that is neither on nor off; RuntimeError if torch is already imported.
    """
    value = os.environ.get("FLAMBEAU_AS_TORCH", "")
    if value.lower() in _OFF:
        return
    if value.lower() not in _ON:
        raise ValueError(f"FLAMBEAU_AS_TORCH is {value!r}; set it to 1 to import Flambeau as torch, or to 0")
    if sys.modules.get("torch") is not None:
        raise RuntimeError("FLAMBEAU_AS_TORCH=1: something imported torch at interpreter start, before this")
    if _waiting not in sys.meta_path:
        sys.meta_path.insert(0, _waiting)


def disarm() -> None:
    """Stop waiting."""
    if _waiting in sys.meta_path:
        sys.meta_path.remove(_waiting)


def _swap_in():
    import flambeau.swap

    # Installing disarms; an import that fails leaves us in place, so that no real torch slips in.
    flambeau.swap.install()
    return flambeau.swap.finder()


arm()

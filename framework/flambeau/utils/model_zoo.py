"""The former home of `hub.load_state_dict_from_url`."""

from __future__ import annotations

from .. import hub
from .._on_demand import names_on_demand
from ..hub import load_state_dict_from_url

__all__ = ["load_url"]

load_url = load_state_dict_from_url

__getattr__, __dir__ = names_on_demand(
    __name__, make=lambda name: hub.tqdm if name == "tqdm" else None, listed=lambda: {"tqdm"}.intersection(dir(hub))
)

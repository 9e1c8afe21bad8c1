"""The former home of `hub.load_state_dict_from_url`."""

from __future__ import annotations

from ..hub import load_state_dict_from_url

__all__ = ["load_url"]

load_url = load_state_dict_from_url

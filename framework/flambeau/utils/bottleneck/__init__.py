"""``python -m flambeau.utils.bottleneck script.py [args]``: a first look at where a script spends its time."""

from __future__ import annotations

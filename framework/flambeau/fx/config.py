"""Settings of graphs."""

from __future__ import annotations

from .._setting_modules import settings_of

# Bars of the progress of passes; there are none.
disable_progress = True
verbose_progress = False
do_not_emit_stack_traces = False

patch = settings_of(__name__, ("annotations", "settings_of")).patch

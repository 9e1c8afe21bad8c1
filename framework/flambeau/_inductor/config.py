"""Settings of PyTorch's code generator. All are kept as set; docs/compile.md says what those in this file mean here.

The others, in `_without_effect.py`, choose between what is not there. Setting what is none raises AttributeError.
"""

from __future__ import annotations

import os
from typing import Any

from .._setting_modules import Group, settings_of
from ._without_effect import OF_SEVERAL_TYPES, WITHOUT_EFFECT

debug = False                                         # write the debug folder of every recording
freezing = False                                      # compute once what follows from parameters
max_autotune = False                                  # time calls with kernels and without
compile_threads = int(os.environ.get("TORCHINDUCTOR_COMPILE_THREADS", 2))  # with 1, calls wait for kernels
# Functions of a graph that change it: of the program's functions; of the operators of it and its derivative; of those of either alone.
pre_grad_custom_pass: Any = None
joint_custom_pre_pass: Any = None
joint_custom_post_pass: Any = None
post_grad_custom_pre_pass: Any = None
post_grad_custom_post_pass: Any = None
triton: Any = Group(cudagraphs=False)                 # what is compiled while it is set is replayed, as by mode="reduce-overhead"
trace: Any = Group(enabled=False, debug_dir=None)     # write the debug folder, below `debug_dir`

_settings = settings_of(
    __name__, ("annotations", "os", "Any", "Group", "settings_of", "OF_SEVERAL_TYPES", "WITHOUT_EFFECT"), None, WITHOUT_EFFECT,
    OF_SEVERAL_TYPES,
)  # fmt: skip
patch, names, is_setting, get_type = _settings.patch, _settings.names, _settings.is_setting, _settings.get_type

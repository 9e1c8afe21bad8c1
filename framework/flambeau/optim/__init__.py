"""Optimizers, learning-rate schedulers (`lr_scheduler`) and weight averaging (`swa_utils`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._on_demand import in_dict_too, names_on_demand

if TYPE_CHECKING:  # checkers follow imports; a program loads the optimizers that it asks for
    from . import lr_scheduler, swa_utils
    from ._adafactor import Adafactor
    from ._muon import Muon
    from .adadelta import Adadelta
    from .adagrad import Adagrad
    from .adam import Adam
    from .adamax import Adamax
    from .adamw import AdamW
    from .asgd import ASGD
    from .lbfgs import LBFGS
    from .nadam import NAdam
    from .optimizer import Optimizer
    from .radam import RAdam
    from .rmsprop import RMSprop
    from .rprop import Rprop
    from .sgd import SGD
    from .sparse_adam import SparseAdam

_HOMES = {
    "._adafactor": ("Adafactor",),
    "._muon": ("Muon",),
    ".adadelta": ("Adadelta",),
    ".adagrad": ("Adagrad",),
    ".adam": ("Adam",),
    ".adamax": ("Adamax",),
    ".adamw": ("AdamW",),
    ".asgd": ("ASGD",),
    ".lbfgs": ("LBFGS",),
    ".nadam": ("NAdam",),
    ".optimizer": ("Optimizer",),
    ".radam": ("RAdam",),
    ".rmsprop": ("RMSprop",),
    ".rprop": ("Rprop",),
    ".sgd": ("SGD",),
    ".sparse_adam": ("SparseAdam",),
}
_MODULES = ("lr_scheduler", "swa_utils", *(home[1:] for home in _HOMES))


__getattr__, __dir__ = names_on_demand(__name__, _HOMES, modules=_MODULES)
in_dict_too(__name__)


__all__ = [
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam", "Optimizer",
    "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam", "lr_scheduler", "swa_utils",
]

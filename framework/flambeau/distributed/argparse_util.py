"""Arguments of command lines whose defaults come from variables of the environment: ``--nnodes`` from ``PET_NNODES``."""

from __future__ import annotations

import os
from argparse import Action
from typing import Any

__all__ = ["check_env", "env"]


class env(Action):  # PyTorch's name
    """An action that keeps the argument; its default is what the variable PET_<DEST> says, if there is one.

    Args:
        dest: the name of the result.
        default: what it is without argument and variable.
        required: whether one of the two must be there.
    """

    def __init__(self, dest: str, default: Any = None, required: bool = False, **kwargs: Any) -> None:
        default = os.environ.get(f"PET_{dest.upper()}", default)
        super().__init__(dest=dest, default=default, required=required and not default, **kwargs)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, values)


class check_env(Action):  # PyTorch's name
    """An action that sets True; its default is whether the variable PET_<DEST> is a number that is not 0.

    Args:
        dest: the name of the result.
        default: what it is without argument and variable.
    """

    def __init__(self, dest: str, default: Any = False, **kwargs: Any) -> None:
        named = os.environ.get(f"PET_{dest.upper()}")
        super().__init__(dest=dest, const=True, default=default if named is None else bool(int(named)), nargs=0, **kwargs)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, self.const)

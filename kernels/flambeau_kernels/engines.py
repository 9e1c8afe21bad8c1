"""What the engine of a backend can do: kernels ask for these properties, never for its name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = [
    "ENGINES", "Engine", "Refused", "account", "chosen", "choose", "kept", "kept_in", "of_plug_in", "plans_kept_elsewhere", "take_over",
    "taken_over",
]  # fmt: skip


class Engine:
    """The engine behind a backend of the CPU.

    Attributes:
        name: of the backend, or 'plug-in' for one that a program brings.
        compiles: formulas and kernels of the kernel language run as machine code.
        launches: small calls are answered by builtins of generated text, without Python between.
        multiplies: matrix products run on generated microkernels where these are faster than BLAS.
        jits_for_devices: formulas and kernels for CUDA are functions that numba.cuda compiles, where it can.
    """

    __slots__ = ("name", "compiles", "launches", "multiplies", "jits_for_devices")

    def __init__(self, name: str, compiles: bool, launches: bool, multiplies: bool, jits_for_devices: bool = False) -> None:
        self.name, self.compiles, self.launches, self.multiplies = name, compiles, launches, multiplies
        self.jits_for_devices = jits_for_devices


class Refused(RuntimeError):
    """The engine made no code of one kernel, of which the program has been warned. Callers take another way where there is one."""


ENGINES = {
    "llvm": Engine("llvm", compiles=True, launches=True, multiplies=True),
    "numba": Engine("numba", compiles=True, launches=False, multiplies=False, jits_for_devices=True),
    "numpy": Engine("numpy", compiles=False, launches=False, multiplies=False),
}


_chosen = ENGINES["llvm"]
_problem: str | None = None


def chosen() -> Engine:
    """The engine of the backend that was chosen, or what took its place."""
    return _chosen


def choose(engine: Engine) -> None:
    """For `flambeau_kernels.set_backend`, which forgets what was planned for another one."""
    global _chosen
    _chosen = ENGINES["numba"] if engine is ENGINES["llvm"] and _problem is not None else engine


def take_over(problem: str) -> None:
    """Let numba's engine stand in for llvm's from now on, which fails its self-test by `problem`."""
    global _problem
    _problem = problem
    choose(_chosen)


def taken_over() -> str | None:
    """Why numba's engine stands in for the llvm backend's, or None."""
    return _problem


def account() -> str:
    """For `explain`: which engine compiled, where it is not llvm's, and why."""
    return "" if _chosen.name == "llvm" else f", by {_chosen.name}" + (f", as {_problem}" if _problem else "")


def of_plug_in() -> Engine:
    """A plug-in has formulas of its own; everything else is computed as without it, but for the compiled kernels."""
    return Engine("plug-in", compiles=False, launches=False, multiplies=True)


# -- what is kept of an engine ----------------------------------------------------------------------------------------------


# Called when another backend is chosen, by those who keep kernels, or plans that have some.
plans_kept_elsewhere: list[Callable[[], Any]] = []


def kept(most: int | None = None) -> Callable[[Callable[..., Any]], Any]:
    """As `functools.lru_cache`, for functions whose results have compiled kernels: forgotten when another engine is chosen."""

    def keeping(function: Callable[..., Any]) -> Any:
        made = functools.lru_cache(most)(function)
        plans_kept_elsewhere.append(made.cache_clear)
        return made

    return keeping


def kept_in(made: dict[Any, Any]) -> dict[Any, Any]:
    """The dictionary `made`, which is emptied when another engine is chosen."""
    plans_kept_elsewhere.append(made.clear)
    return made

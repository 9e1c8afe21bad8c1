"""What the engine of a backend can do: kernels ask for these properties, never for its name."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ENGINES", "Engine", "chosen", "choose", "of_plug_in"]


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine behind a backend of the CPU.

    Attributes:
        name: of the backend, or 'plug-in' for one that a program brings.
        compiles: formulas and kernels of the kernel language run as machine code.
        launches: small calls are answered by builtins of generated text, without Python between.
        multiplies: matrix products run on generated microkernels where these are faster than BLAS.
    """

    name: str
    compiles: bool
    launches: bool
    multiplies: bool


ENGINES = {
    "llvm": Engine("llvm", compiles=True, launches=True, multiplies=True),
    "numba": Engine("numba", compiles=True, launches=False, multiplies=False),
    "numpy": Engine("numpy", compiles=False, launches=False, multiplies=False),
}


_chosen = ENGINES["llvm"]


def chosen() -> Engine:
    """The engine of the backend that was chosen, or what took its place."""
    return _chosen


def choose(engine: Engine) -> None:
    """For `flambeau_kernels.set_backend`, which forgets what was planned for another one."""
    global _chosen
    _chosen = engine


def of_plug_in() -> Engine:
    """A plug-in has formulas of its own; everything else is computed as without it, but for the compiled kernels."""
    return Engine("plug-in", compiles=False, launches=False, multiplies=True)

"""How this installation computes."""

from __future__ import annotations


def show() -> str:
    """A few lines of text: versions, kernels, threads."""
    import numpy as np

    import flambeau_kernels as kernels

    from . import __version__
    from ._settings import get_num_threads

    return (
        f"Flambeau {__version__}, built with:\n  - numpy {np.__version__}\n  - kernels: {kernels.backend()}\n"
        f"  - threads: {get_num_threads()}\n"
    )


def parallel_info() -> str:
    """A few lines of text about threads."""
    from ._settings import get_num_interop_threads, get_num_threads

    return f"kernel threads: {get_num_threads()}\nthreads between operations: {get_num_interop_threads()}\n"

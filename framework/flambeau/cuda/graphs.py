"""CUDA graphs: named by programs, not built."""

from __future__ import annotations

from typing import Any, NoReturn

from .. import _missing

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]

_ADVICE = "launch the work eagerly"


class CUDAGraph:
    """Work recorded once and launched as a whole. Raises: NotImplementedError when made."""

    def __init__(self, keep_graph: bool = False) -> None:
        raise _missing.not_built("cuda.CUDAGraph", _ADVICE)

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("cuda.CUDAGraph.capture_begin", _ADVICE)

    def capture_end(self) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("cuda.CUDAGraph.capture_end", _ADVICE)

    def replay(self) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("cuda.CUDAGraph.replay", _ADVICE)

    def reset(self) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("cuda.CUDAGraph.reset", _ADVICE)

    def pool(self) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("cuda.CUDAGraph.pool", _ADVICE)

    def enable_debug_mode(self) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("cuda.CUDAGraph.enable_debug_mode", _ADVICE)

    def debug_dump(self, debug_path: str) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("cuda.CUDAGraph.debug_dump", _ADVICE)


class graph:  # PyTorch's name
    """A context that records work into a `CUDAGraph`. Raises: NotImplementedError when made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise _missing.not_built("cuda.graph", _ADVICE)


def graph_pool_handle() -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("cuda.graph_pool_handle", _ADVICE)


def make_graphed_callables(callables: Any, sample_args: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("cuda.make_graphed_callables", _ADVICE)


def is_current_stream_capturing() -> bool:
    """Whether work is being recorded: never."""
    return False

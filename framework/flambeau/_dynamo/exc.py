"""Errors of compiling that programs name in `except` clauses."""

from __future__ import annotations

from typing import Any

__all__ = [
    "BackendCompilerFailed", "CondOpArgsMismatchError", "FailOnRecompileLimitHit", "InternalTorchDynamoError", "InvalidBackend",
    "RecompileError", "RecompileLimitExceeded", "ResetRequired", "ShortenTraceback", "TorchDynamoException", "TorchRuntimeError",
    "UncapturedHigherOrderOpError", "Unsupported", "UserError",
]  # fmt: skip


class TorchDynamoException(RuntimeError):
    """Compiling failed."""


class InternalTorchDynamoError(TorchDynamoException):
    """The compiler itself failed."""


class ResetRequired(TorchDynamoException):
    """Settings were changed after compiling."""


class RecompileError(TorchDynamoException):
    """A function would be compiled once more than allowed."""


class ShortenTraceback(TorchDynamoException):
    """Compiling failed, and the traceback is cut to the program's part."""


class BackendCompilerFailed(ShortenTraceback):
    """A backend failed on a graph: `backend_name` with `inner_exception`.

    Args:
        backend_fn: the backend's function, or its name.
        inner_exception: what it raised.
        advice: what is said behind it.
    """

    def __init__(self, backend_fn: Any, inner_exception: Exception, advice: str = "") -> None:
        self.backend_name = backend_fn if isinstance(backend_fn, str) else getattr(backend_fn, "__name__", "?")
        self.inner_exception = inner_exception
        super().__init__(f"backend={self.backend_name!r} raised:\n{type(inner_exception).__name__}: {inner_exception}{advice}")


class TorchRuntimeError(TorchDynamoException):
    """An operation failed while its result's shape was worked out."""


class Unsupported(TorchDynamoException):
    """The program does what cannot be compiled."""


class RecompileLimitExceeded(Unsupported):
    """A function was compiled as often as allowed, and the whole of it had to be one graph."""


class FailOnRecompileLimitHit(Exception):
    """A function was compiled as often as allowed, and `config.fail_on_recompile_limit_hit` says that this is an error."""


class UncapturedHigherOrderOpError(TorchDynamoException):
    """A function that is an argument of an operator could not be recorded."""


class CondOpArgsMismatchError(TorchDynamoException):
    """The branches of `cond` have other parameters or results."""


class UserError(Unsupported):
    """The program asks for what cannot be compiled."""


class InvalidBackend(TorchDynamoException):
    """There is no backend of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Invalid backend: {name!r}; see `torch._dynamo.list_backends()`, and 'inductor' or 'eager' run eagerly"
        )

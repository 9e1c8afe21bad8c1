"""Errors of compiling that programs name in `except` clauses; only `InvalidBackend` is ever raised."""

from __future__ import annotations

__all__ = [
    "BackendCompilerFailed", "InternalTorchDynamoError", "InvalidBackend", "RecompileError", "ResetRequired",
    "TorchDynamoException", "TorchRuntimeError", "Unsupported", "UserError",
]  # fmt: skip


class TorchDynamoException(RuntimeError):
    """Compiling failed."""


class InternalTorchDynamoError(TorchDynamoException):
    """The compiler itself failed."""


class ResetRequired(TorchDynamoException):
    """Settings were changed after compiling."""


class RecompileError(TorchDynamoException):
    """A function would be compiled once more than allowed."""


class BackendCompilerFailed(TorchDynamoException):
    """A backend failed on a graph."""


class TorchRuntimeError(TorchDynamoException):
    """An operation failed while its result's shape was worked out."""


class Unsupported(TorchDynamoException):
    """The program does what cannot be compiled."""


class UserError(Unsupported):
    """The program asks for what cannot be compiled."""


class InvalidBackend(TorchDynamoException):
    """There is no backend of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Invalid backend: {name!r}; see `torch._dynamo.list_backends()`, and 'inductor' or 'eager' run eagerly"
        )

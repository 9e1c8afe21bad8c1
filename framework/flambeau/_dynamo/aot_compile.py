"""A compiled function as a program of its own, for arguments of one kind: `aot_compile` of what `compile` returns, and files of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..nn.modules.module import Module

__all__ = ["AOTCompiledFunction"]


class _Forward(Module):
    """A function as the forward of a module that has nothing of its own."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.__dict__["_fn"] = fn

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["_fn"](*args, **kwargs)


class AOTCompiledFunction:
    """A function that was recorded once, for arguments of the looks of an example; it runs no Python of the original.

    Tensors that the function reads beside its arguments are those that it read when it was recorded; in a file they have the values of
    the time of saving. A file holds the recorded program and its tensors as data, see `export.save`, and no code.
    """

    def __init__(self, program: Any) -> None:
        from ..compiler import compile

        self._program = program
        self._compiled = compile(program.module(), backend="inductor")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function gives. Raises: RuntimeError for arguments that the program does not hold for."""
        try:
            return self._compiled(*args, **kwargs)
        except AssertionError as error:
            if not str(error).startswith("Guard failed"):
                raise
            raise RuntimeError(f"GuardManager check failed, reason: {error}; call aot_compile again for such arguments") from error

    def save_compiled_function(self, path: str, external_data: Any = None) -> None:
        """Write the program to `path`, for `torch.compiler.load_compiled_function`; `external_data` is accepted, all tensors are in it."""
        from .. import export

        export.save(self._program, path)

    def disable_guard_check(self) -> None:
        """Take arguments as they come from here on, without a look at their shapes and dtypes."""
        from ..compiler import compile

        self._compiled = compile(self._program.module(check_guards=False), backend="inductor")


def aot_compile(fn: Callable[..., Any], fullgraph: bool, example_inputs: tuple[tuple[Any, ...], dict[str, Any]]) -> AOTCompiledFunction:
    """`fn` recorded for arguments like ``(args, kwargs)``, the `example_inputs`.

    Raises: RuntimeError unless `fullgraph`, or where Python asks for a value of a tensor.
    """
    from .. import export

    if not fullgraph:
        raise RuntimeError("Graph breaks are not supported with aot compile. Please use torch.compile(fullgraph=True).")
    args, kwargs = example_inputs
    return AOTCompiledFunction(export.export(_Forward(fn), tuple(args), dict(kwargs)))


def load_compiled_function(file: Any) -> AOTCompiledFunction:
    """What `AOTCompiledFunction.save_compiled_function` wrote to `file`, which is open for reading."""
    from .. import export

    return AOTCompiledFunction(export.load(file))

"""`compile_fx`, by which backends of programs hand a graph to the compiler, and `compile_fx_inner`, for graphs of operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..fx.graph_module import GraphModule
from ._passes import Passes, passes_of

__all__ = ["compile_fx", "compile_fx_inner"]


def compile_fx_inner(
    gm: GraphModule, example_inputs: Sequence[Any], compile_region_name: str | None = None, **kwargs: Any,
) -> Callable[..., Any]:  # fmt: skip
    """A graph of operators compiled, as a function of one list of its inputs, which says so by `_boxed_call`; it gives a list.

    Args:
        gm: a graph of operators, as `aot_function` gives it to compilers.
        example_inputs, compile_region_name, kwargs: taken for PyTorch's sake.
    """
    from .._functorch.aot_autograd import make_boxed_func

    return make_boxed_func(_as_lists(gm, dict.fromkeys(Passes._fields)))


def compile_fx(
    model_: GraphModule,
    example_inputs_: Sequence[Any],
    inner_compile: Callable[..., Any] = compile_fx_inner,
    config_patches: dict[str, Any] | None = None,
    decompositions: dict[Any, Any] | None = None,
    ignore_shape_env: bool = False,
    compile_region_name: str | None = None,
) -> Callable[..., Any]:
    """A graph compiled: a function of its inputs that gives what the graph gives, a tuple as a list.

    Args:
        model_: a graph, such as a backend of `compile` is given.
        example_inputs_: values of its inputs, real or fake.
        inner_compile: makes a function of a graph of operators and its example inputs, see `aot_function`; it is called for the graph
            and, where inputs require grad, for its derivative.
        config_patches: settings of `_inductor.config` by name.
        decompositions: what operators are recorded as for an `inner_compile` of the program's own.
        ignore_shape_env, compile_region_name: taken for PyTorch's sake.
    Raises: AttributeError for a name that is no setting.

    >>> from flambeau._inductor.compile_fx import compile_fx
    >>> fb.compile(lambda x: x * 2, backend=lambda graph, inputs: compile_fx(graph, inputs))(fb.ones(2))
    tensor([2., 2.])
    """
    _check(config_patches)
    passes = passes_of(config_patches)
    if passes is not None:
        return passes.compile(model_, example_inputs_, inner_compile, decompositions)
    if inner_compile is compile_fx_inner:
        return _as_lists(model_, config_patches)
    from .._functorch.aot_autograd import aot_module_simplified

    return aot_module_simplified(model_, example_inputs_, inner_compile, decompositions=decompositions)


def _check(settings: dict[str, Any] | None) -> None:
    from . import config

    for name in settings or ():
        if not config.is_setting(name):
            raise AttributeError(f"torch._inductor.config.{name} does not exist")


def _as_lists(gm: GraphModule, settings: dict[str, Any] | None) -> Callable[..., Any]:
    from ..compiler import compile

    compiled = compile(gm, backend="inductor", options=settings)

    def run(*inputs: Any) -> Any:
        made = compiled(*inputs)
        return list(made) if isinstance(made, tuple) else made

    return run

"""What hooks need besides the module: putting them in order, and the gates that see gradients pass."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import flambeau as fb

from ..._warn import warn
from ...autograd.tape import RemovableHandle

Hooks = Iterable[Callable[..., Any]]


def add_hook(
    hooks: OrderedDict[int, Any],
    hook: Callable[..., Any],
    prepend: bool = False,
    marks: Iterable[OrderedDict[int, bool]] = (),
) -> RemovableHandle:
    """Put `hook` into `hooks`, last or first, and its id into each of `marks`."""
    marks = tuple(marks)
    handle = RemovableHandle(hooks, extra_dict=marks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    for mark in marks:
        mark[handle.id] = True
    return handle


@cache
def _gate() -> type:
    """The identity on some tensors; `visit` is shown the gradients and may replace them. Its name is in `grad_fn`.

    Gradients that nobody sent are zeros behind the gate, and those of inputs also to those who visit it.
    """

    class BackwardHookFunction(fb.autograd.Function):
        @staticmethod
        def forward(ctx: Any, visit: Callable[[tuple[Any, ...]], tuple[Any, ...]], is_of_inputs: bool, *tensors: Any) -> Any:
            ctx.visit, ctx.is_of_inputs = visit, is_of_inputs
            ctx.kinds = [(tuple(t.shape), t.dtype, t.device) for t in tensors]
            ctx.set_materialize_grads(False)
            passed = tuple(t.view_as(t) for t in tensors)
            ctx.mark_non_differentiable(*[p for p, t in zip(passed, tensors, strict=True) if not t.requires_grad])
            return passed

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            if ctx.is_of_inputs:
                return (None, None, *ctx.visit(_filled(grads, ctx.kinds)))
            return (None, None, *_filled(ctx.visit(grads), ctx.kinds))

    return BackwardHookFunction


def _filled(grads: tuple[Any, ...], kinds: list[tuple[Any, Any, Any]]) -> tuple[Any, ...]:
    """`grads` with zeros for None."""
    return tuple(
        fb.zeros(shape, dtype=dtype, device=device) if g is None else g for g, (shape, dtype, device) in zip(grads, kinds, strict=True)
    )


def _pass_gate(visit: Callable[..., Any], is_of_inputs: bool, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int]]:
    """`values` with its tensors led through a gate, and where the tensors are; nothing when none needs a gradient."""
    where = [i for i, v in enumerate(values) if isinstance(v, fb.Tensor)]
    if not (fb.is_grad_enabled() and any(values[i].requires_grad for i in where)):
        return values, []
    passed = list(values)
    for i, tensor in zip(where, _gate().apply(visit, is_of_inputs, *(values[i] for i in where)), strict=True):
        passed[i] = tensor
    return tuple(passed), where


class BackwardGates:
    """Runs a module's full backward hooks as gradients leave and enter one forward call of it.

    `pre_hooks(module, grad_output)` run when the gradients of all outputs are there, `hooks(module,
    grad_input, grad_output)` when those of all inputs are. A call none of whose inputs needs a gradient has
    no second moment; its hooks then run at the first, with None for every input.
    """

    def __init__(self, module: Any, hooks: Hooks, pre_hooks: Hooks) -> None:
        self.module = module
        self.hooks = list(hooks)
        self.pre_hooks = list(pre_hooks)
        self.grad_output: tuple[Any, ...] | None = None
        self.input_count = 0
        self.input_where: list[int] = []
        self.output_count = 0
        self.output_where: list[int] = []

    def on_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The positional inputs, watched."""
        self.input_count = len(args)
        passed, self.input_where = _pass_gate(self._leave, True, args)
        return passed

    def on_outputs(self, result: Any) -> Any:
        """The result, watched: a tensor or a tuple of them; anything else is warned about and left alone."""
        if isinstance(result, fb.Tensor):
            return self._watch((result,))[0]
        if not isinstance(result, tuple):
            warnings.warn(
                "backward hooks watch a Tensor or a tuple of Tensors, but the module returned a "
                f"{type(result).__name__}; the hooks of {type(self.module).__name__} will not run",
                stacklevel=4,
            )
            return result
        passed = self._watch(result)
        return type(result)(*passed) if hasattr(result, "_fields") else type(result)(passed)

    def _watch(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        self.output_count = len(values)
        # Set before the gate: the backward pass of a gate reads it.
        self.output_where = [i for i, v in enumerate(values) if isinstance(v, fb.Tensor)]
        passed, _ = _pass_gate(self._enter, False, values)
        return passed

    def _enter(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        grad_output = _spread(grads, self.output_where, self.output_count)
        for hook in self.pre_hooks:
            grad_output = _replaced("grad_output", grad_output, hook(self.module, grad_output))
        self.grad_output = grad_output
        if not self.input_where:
            warn(
                "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs require "
                f"gradients: those of {type(self.module).__name__} see None for every input"
            )
            self._run_hooks((None,) * self.input_count)
        return tuple(grad_output[i] for i in self.output_where)

    def _leave(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        grad_input = self._run_hooks(_spread(grads, self.input_where, self.input_count))
        return tuple(grad_input[i] for i in self.input_where)

    def _run_hooks(self, grad_input: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.grad_output is None:
            # Gradients came in past the outputs, as under double backward: not this module's backward pass.
            return grad_input
        for hook in self.hooks:
            returned = hook(self.module, grad_input, self.grad_output)
            if returned is not None and not self.input_where:
                raise RuntimeError(
                    "a full backward hook returned gradients, but no input of "
                    f"{type(self.module).__name__} requires a gradient; return None"
                )
            grad_input = _replaced("grad_input", grad_input, returned)
        self.grad_output = None
        return grad_input


def warn_of_what_is_missed(args: tuple[Any, ...], result: Any, last: Any) -> None:
    """Warn where deprecated hooks on the operation `last` see other gradients than those of the module's inputs and outputs."""
    outputs = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(x, fb.Tensor) for x in outputs):
        where, what = "on a Module that does not return a single Tensor or a tuple of Tensors", "grad_output"
    elif not all(isinstance(x, fb.Tensor) for x in args):
        where, what = "on a Module that does not take as input a single Tensor or a tuple of Tensors", "grad_input"
    elif len({x.grad_fn for x in outputs if x.grad_fn is not None}) > 1:
        where, what = "when outputs are generated by different autograd Nodes", "grad_output"
    elif {x.grad_fn for x in args if x.grad_fn is not None} != {node for node, _ in last.next_functions}:
        where, what = "when the forward contains multiple autograd Nodes", "grad_input"
    else:
        return
    warn(
        f"Using a non-full backward hook {where} is deprecated and will be removed in future versions. This hook will be missing some "
        f"{what}. Please use register_full_backward_hook to get the documented behavior.",
        FutureWarning,
    )


def _spread(grads: tuple[Any, ...], where: list[int], count: int) -> tuple[Any, ...]:
    full: list[Any] = [None] * count
    for i, grad in zip(where, grads, strict=True):
        full[i] = grad
    return tuple(full)


def _replaced(what: str, old: tuple[Any, ...], returned: Any) -> tuple[Any, ...]:
    """What a backward hook's return value makes of `old`: None keeps it."""
    if returned is None:
        return old
    new = (returned,) if isinstance(returned, fb.Tensor) else tuple(returned)
    if len(new) != len(old):
        raise RuntimeError(f"a backward hook returned {len(new)} gradients for {what}, which has {len(old)}")
    wrong = next((x for x in new if x is not None and not isinstance(x, fb.Tensor)), None)
    if wrong is not None:
        raise TypeError(f"expected a Tensor or None for each gradient in {what}, but a backward hook returned {type(wrong).__name__!r}")
    return new

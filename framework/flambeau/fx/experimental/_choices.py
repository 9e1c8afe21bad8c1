"""The derivative of a choice that `make_fx` records."""

from __future__ import annotations

import functools
from typing import Any

from ...tensor import Tensor
from ..graph_module import GraphModule

__all__ = ["cond_op", "differentiable_choice"]


def cond_op() -> Any:
    """The operator that nodes of choices call."""
    from ..._higher_order_ops.cond import cond_op

    return cond_op


def differentiable_choice(recorder: Any, pred: Any, graphs: tuple[GraphModule, ...], given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """`chosen` of tensors with history: its derivative is a choice between the derivatives of both graphs."""
    import flambeau

    from ... import autograd

    class Choice(autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: Tensor) -> tuple[Tensor, ...]:
            ctx.save_for_backward(*given)
            ctx.set_materialize_grads(False)          # zeros would be no part of the program
            result = recorder.chosen(pred, graphs, given)
            ctx.mark_non_differentiable(*[x for x in result if not x.is_floating_point() and not x.is_complex()])
            return tuple(result)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
            given = ctx.saved_tensors
            at = [k for k, wanted in enumerate(ctx.needs_input_grad) if wanted]
            results = [k for k, grad in enumerate(grads) if grad is not None]

            def derivative(graph: GraphModule, *operands: Tensor) -> tuple[Tensor, ...]:
                inputs, grads = operands[: len(given)], operands[len(given) :]
                with autograd.enable_grad():
                    # Views, through which derivatives of derivatives go on where the graph of this runs.
                    inputs = tuple([x.view(x.shape).requires_grad_() if k in at else x for k, x in enumerate(inputs)])
                    made = graph(*inputs)
                    pairs = [(made[k], grad) for k, grad in zip(results, grads, strict=True) if made[k].requires_grad]
                    wanted = [inputs[k] for k in at]
                    found: Any = [None] * len(at)
                    if pairs:
                        found = autograd.grad([y for y, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True)
                return tuple([flambeau.zeros_like(x) if g is None else g for g, x in zip(found, wanted, strict=True)])

            made = cond_op()(pred, *[functools.partial(derivative, graph) for graph in graphs], (*given, *[grads[k] for k in results]))
            result: list[Any] = [None] * len(given)
            for k, grad in zip(at, made, strict=True):
                result[k] = grad
            return tuple(result)

    return Choice.apply(*given)

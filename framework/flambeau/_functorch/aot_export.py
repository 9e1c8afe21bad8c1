"""Graphs of operators to take elsewhere, made before anything runs: `aot_export_module`, `aot_export_joint_simple`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import autograd
from .._state import grad_enabled
from .._subclasses.fake_tensor import FakeTensorMode
from ..func.modules import functional_call
from ..fx._codegen import _PyTreeCodeGen, _PyTreeInfo
from ..fx.experimental._sources import ConstantSource
from ..fx.experimental.proxy_tensor import _owner
from ..fx.graph_module import GraphModule
from ..fx.node import Node
from ..nn import Module
from ..tensor import Tensor
from ..utils import _pytree as pytree
from .aot_autograd import graph_without_writes, joint_function

__all__ = ["BackwardSignature", "GraphSignature", "aot_export_joint_simple", "aot_export_module"]


@dataclasses.dataclass
class BackwardSignature:
    """Which results of a graph are gradients, by their names: of which parameters, of which inputs; and which result is the loss."""

    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


@dataclasses.dataclass
class GraphSignature:
    """What inputs and results of a graph are, by their names in it.

    Parameters and buffers have their full names in the module. Results are the new values of buffers, parameters and inputs that the module
    writes to, what it returns, and the gradients that `backward_signature` names.
    """

    parameters: list[str]
    buffers: list[str]
    user_inputs: list[str]
    user_outputs: list[str]
    inputs_to_parameters: dict[str, str]
    inputs_to_buffers: dict[str, str]
    buffers_to_mutate: dict[str, str]
    parameters_to_mutate: dict[str, str]
    user_inputs_to_mutate: dict[str, str]
    in_spec: Any
    out_spec: Any
    backward_signature: BackwardSignature | None
    input_tokens: list[str]
    output_tokens: list[str]


def _fakes(args: Sequence[Any], symbolic_from: int | None = None) -> tuple[FakeTensorMode, Callable[[], list[Any]]]:
    """A mode, and a function that gives fake tensors of the looks of `args`, new ones each time.

    From the argument `symbolic_from` on sizes are symbols; none are if that is None. Fake tensors among `args` stay as they are.
    """
    mode = next((x.fake_mode for x in args if hasattr(x, "fake_mode")), None)
    if mode is None:
        mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=None if symbolic_from is None else _new_env())
    first = len(args) if mode.shape_env is None or symbolic_from is None else symbolic_from

    def fake(at: int, x: Any) -> Any:
        if not isinstance(x, Tensor) or hasattr(x, "fake_mode"):
            return x
        if at < first:
            return mode.from_tensor(x, static_shapes=True)
        return mode.from_tensor(x, static_shapes=False, source=ConstantSource(f"arg{at}"))

    return mode, lambda: [fake(at, x) for at, x in enumerate(args)]


def _new_env() -> Any:
    from ..fx.experimental.symbolic_shapes import ShapeEnv  # which needs sympy

    return ShapeEnv()


def _results(graph: GraphModule) -> list[Any]:
    (output,) = graph.graph.find_nodes(op="output")
    return list(output.args[0])


def _name(node: Any) -> str:
    return node.name if isinstance(node, Node) else str(node)


def aot_export_module(
    mod: Module,
    args: Iterable[Any],
    *,
    decompositions: dict[Any, Any] | None = None,
    trace_joint: bool,
    output_loss_index: int | None = None,
    pre_dispatch: bool = False,
    dynamic_shapes: bool | None = None,
    kwargs: dict[str, Any] | None = None,
) -> tuple[GraphModule, GraphSignature]:
    """The graph of operators that the forward of `mod` computes, and a `GraphSignature`; nothing is run.

    Args:
        mod: a module whose forward returns a tuple of tensors.
        args, kwargs: values of the arguments, real tensors or fake ones.
        decompositions: what operators are recorded as, see `make_fx`.
        trace_joint: let the graph also give gradients of parameters and of inputs that require grad, by one result, the loss.
        output_loss_index: which result that is.
        pre_dispatch: for graphs without derivatives; operators such as ``linear`` are whole in these, with it and without.
        dynamic_shapes: let sizes of inputs be symbols, so that the graph runs at other sizes, those for which its guards hold.
    Raises: RuntimeError if the forward returns no tuple, if no loss is named, if another result requires grad, or for
        `pre_dispatch` with `trace_joint`.

    Inputs of the graph are parameters, buffers, and the tensors of `args` and `kwargs`. It writes to nothing: new values come first.

    >>> class Net(fb.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.w = fb.nn.Parameter(fb.ones(2))
    ...     def forward(self, x):
    ...         return ((self.w * x).sum(),)
    >>> graph, signature = fb._functorch.aot_autograd.aot_export_module(Net(), (fb.ones(2),), trace_joint=True, output_loss_index=0)
    >>> signature.inputs_to_parameters, list(signature.backward_signature.gradients_to_parameters.values())
    ({'arg0_1': 'w'}, ['w'])
    """
    if pre_dispatch and trace_joint:
        raise RuntimeError("aot_export_module: pre_dispatch=True is not supported with trace_joint=True; leave one of them out")
    if trace_joint and output_loss_index is None:
        raise RuntimeError(
            "aot_export_module: with trace_joint=True one of the results must be a scalar loss: name it by output_loss_index"
        )
    parameters, buffers = dict(mod.named_parameters()), dict(mod.named_buffers())
    names = [*parameters, *buffers]
    args = tuple(args)
    given, in_spec = pytree.tree_flatten((args, kwargs or {}))
    leaves = [*parameters.values(), *buffers.values(), *given]
    spec: list[Any] = []

    def flat(*values: Any) -> list[Any]:
        a, k = pytree.tree_unflatten(list(values[len(names) :]), in_spec)
        made = functional_call(mod, dict(zip(names, values, strict=False)), a, k)
        if not isinstance(made, (tuple, list)):
            raise RuntimeError("aot_export_module: the forward must return a tuple, got " + type(made).__name__)
        results, structure = pytree.tree_flatten(made)
        spec[:] = [structure]
        return results

    mode, fakes = _fakes(leaves, len(names) if dynamic_shapes else None)
    wanted = [isinstance(x, Tensor) and x.requires_grad and trace_joint for x in leaves]
    traced = flat
    if trace_joint:
        with mode:
            back = _only_the_loss(flat(*fakes()), output_loss_index)
        joint = joint_function(flat, wanted, back)

        def traced(*values: Any) -> list[Any]:
            results = joint(*values, None)            # the derivative of a scalar begins at 1
            count = len(results) - len(wanted)
            return [*results[:count], *[g for g, asked in zip(results[count:], wanted, strict=True) if asked]]

    with autograd.set_grad_enabled(trace_joint and grad_enabled()):
        graph, written = graph_without_writes(mode, traced, fakes(), [], decompositions, "arg")
    whole = pytree.tree_structure(((*[0] * len(names), *args), kwargs or {}))
    return graph, _signature(graph, written, list(parameters), list(buffers), wanted, whole, spec[0], output_loss_index)


def _only_the_loss(results: list[Any], at: Any) -> list[bool]:
    """For each result whether it is the loss. Raises: RuntimeError if that is no scalar, or another one requires grad."""
    for i, y in enumerate(results):
        if i != at and isinstance(y, Tensor) and y.requires_grad:
            raise RuntimeError(
                f"aot_export_module: result {i} requires grad and is not the loss, which is result {at}: only the loss may; "
                "call detach() on the others"
            )
    if not 0 <= at < len(results) or not isinstance(results[at], Tensor) or results[at].numel() != 1:
        raise RuntimeError(f"aot_export_module: output_loss_index={at} names no scalar among {len(results)} results")
    return [i == at for i in range(len(results))]


def _signature(
    graph: GraphModule, written: list[int], parameters: list[str], buffers: list[str], wanted: list[bool], in_spec: Any, out_spec: Any,
    loss: int | None,
) -> GraphSignature:  # fmt: skip
    inputs = [node.name for node in graph.graph.find_nodes(op="placeholder")]
    names = [*parameters, *buffers, *inputs[len(parameters) + len(buffers) :]]
    results = [_name(node) for node in _results(graph)]
    first, second = len(parameters), len(parameters) + len(buffers)
    new = list(zip(results, written, strict=False))
    count = out_spec.num_leaves
    outputs, gradients = results[len(written) : len(written) + count], results[len(written) + count :]
    asked = [i for i, is_wanted in enumerate(wanted) if is_wanted]
    backward = None
    if loss is not None and gradients:
        of = list(zip(gradients, asked, strict=True))
        backward = BackwardSignature(
            {g: names[i] for g, i in of if i < second}, {g: names[i] for g, i in of if i >= second}, outputs[loss],
        )  # fmt: skip
    return GraphSignature(
        parameters=parameters,
        buffers=buffers,
        user_inputs=inputs[second:],
        user_outputs=outputs,
        inputs_to_parameters=dict(zip(inputs[:first], parameters, strict=True)),
        inputs_to_buffers=dict(zip(inputs[first:second], buffers, strict=True)),
        buffers_to_mutate={value: names[i] for value, i in new if first <= i < second},
        parameters_to_mutate={value: names[i] for value, i in new if i < first},
        user_inputs_to_mutate={value: names[i] for value, i in new if i >= second},
        in_spec=in_spec,
        out_spec=out_spec,
        backward_signature=backward,
        input_tokens=[],
        output_tokens=[],
    )


def aot_export_joint_simple(
    func: Callable[..., Any], args: tuple[Any, ...], *, trace_joint: bool, num_params_buffers: int = 0,
    decompositions: dict[Any, Any] | None = None,
) -> GraphModule:  # fmt: skip
    """The graph of operators of a simple function, with that of its derivative if `trace_joint`; nothing is run.

    Args:
        func: a function of tensors that returns a tuple of tensors, none of them an input or a view of one, and writes to no input.
        args: its arguments, real tensors or fake ones.
        trace_joint: with an input that requires grad, the graph takes a list of inputs and a list of gradients of results,
            and gives results and gradients of inputs, None for those that require none. Else it takes inputs and gives results.
        num_params_buffers: taken for PyTorch's sake.
        decompositions: what operators are recorded as, see `make_fx`.
    Raises: RuntimeError for functions that are not simple.
    """
    if any(pytree.tree_leaves(x) != [x] for x in args if not isinstance(x, Tensor)):
        raise RuntimeError("aot_export_joint_simple: an argument is a container of others, which is not supported; give its tensors")
    mode, fakes = _fakes(args)
    inputs = fakes()
    versions = [x._version if isinstance(x, Tensor) else 0 for x in inputs]
    with mode:
        results = func(*inputs)
    if not isinstance(results, (tuple, list)):
        raise RuntimeError(f"aot_export_joint_simple: the function must return a tuple or list, got {type(results).__name__}")
    if any(isinstance(x, Tensor) and x._version != version for x, version in zip(inputs, versions, strict=True)):
        raise RuntimeError("aot_export_joint_simple: the function writes to an input, which is not supported; let it write to a copy")
    owners = {id(_owner(x._array)) for x in inputs if isinstance(x, Tensor)}
    if any(isinstance(y, Tensor) and id(_owner(y._array)) in owners for y in results):
        raise RuntimeError("aot_export_joint_simple: a result is an input or a view of one, which is not supported; return a copy")
    wanted = [isinstance(x, Tensor) and x.requires_grad and trace_joint for x in inputs]
    back = [isinstance(y, Tensor) and y.requires_grad and trace_joint for y in results]

    def flat(*values: Any) -> list[Any]:
        return list(func(*values))

    if not any(back):
        with autograd.no_grad():
            return graph_without_writes(mode, flat, fakes(), [], decompositions, "arg")[0]
    with mode:
        tangents = [y.detach().clone() for y, comes in zip(results, back, strict=True) if comes]
    joint, _ = graph_without_writes(mode, joint_function(flat, wanted, back), fakes(), tangents, decompositions, "primals")
    in_spec = pytree.tree_structure(([0] * len(inputs), [0] * len(tangents)))
    out_spec = pytree.tree_structure([0] * len(_results(joint)))
    joint.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(["primals", "tangents"], in_spec, out_spec)))
    joint.recompile()
    return joint

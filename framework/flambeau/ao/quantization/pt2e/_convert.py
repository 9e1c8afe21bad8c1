"""From a prepared graph to one that quantizes: `quantize` and `dequantize` in the place of each observer, as operators on integers."""

from __future__ import annotations

import functools
import operator
from typing import Any

import flambeau as fb

from ....fx import GraphModule, Node
from ..fx import _decomposed  # noqa: F401  # defines the operators
from ..observer import _is_activation_post_process
from ..utils import is_per_channel

__all__ = ["convert", "fold_constants"]

_decomposed_ops: Any = fb.ops.quantized_decomposed
_INTEGERS = {fb.quint8: fb.uint8, fb.qint8: fb.int8, fb.qint32: fb.int32}
_DTYPES = (fb.uint8, fb.int8, fb.uint16, fb.int16, fb.int32)
_EPSILON = 1.1920928955078125e-07  # of float32: the smallest scale of what is quantized anew in each call


def _is_observer(model: GraphModule, node: Node) -> bool:
    return node.op == "call_module" and (
        _is_activation_post_process(found := model.get_submodule(str(node.target))) or hasattr(found, "calculate_qparams")
    )


def convert(model: GraphModule) -> None:
    """Replace the calls of observers in `model`."""
    for node in list(model.graph.nodes):
        if _is_observer(model, node):
            _replace(model, node)
    _read_each_once(model)
    model.graph.eliminate_dead_code()
    model.delete_all_unused_submodules()
    model.graph.lint()
    model.recompile()


def _replace(model: GraphModule, node: Node) -> None:
    observer: Any = model.get_submodule(str(node.target))
    source: Any = node.args[0]
    dtype = _INTEGERS.get(observer.dtype, observer.dtype)
    graph = model.graph
    with graph.inserting_before(node):
        if dtype is fb.float16:
            half = graph.call_function(_decomposed_ops.convert_element_type.no_fuse, (source, fb.float16))
            made = graph.call_function(_decomposed_ops.convert_element_type.no_fuse, (half, fb.float))
        elif dtype not in _DTYPES:
            made = source
        elif getattr(observer, "is_dynamic", False):
            made = _quantized_anew(graph, source, observer, dtype)
        else:
            made = _quantized(model, source, observer, dtype)
    if "val" in source.meta:
        made.meta.setdefault("val", source.meta["val"])
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _quantized_anew(graph: Any, source: Node, observer: Any, dtype: Any) -> Node:
    symmetric = observer.qscheme in (fb.per_tensor_symmetric, fb.per_channel_symmetric)
    choose = _decomposed_ops.choose_qparams_symmetric.tensor if symmetric else _decomposed_ops.choose_qparams.tensor
    bounds = observer.quant_min, observer.quant_max
    eps = float(getattr(observer, "eps", _EPSILON))
    found = graph.call_function(choose, (source, *bounds, eps, dtype))
    scale, zero_point = (graph.call_function(operator.getitem, (found, i)) for i in range(2))
    given = scale, zero_point, *bounds, dtype
    integers = graph.call_function(_decomposed_ops.quantize_per_tensor.tensor, (source, *given))
    return graph.call_function(_decomposed_ops.dequantize_per_tensor.tensor, (integers, *given))


def _quantized(model: GraphModule, source: Node, observer: Any, dtype: Any) -> Node:
    graph = model.graph
    scale, zero_point = observer.calculate_qparams()
    bounds = observer.quant_min, observer.quant_max
    if is_per_channel(observer.qscheme):
        names = [_new_buffer(model, stem, value) for stem, value in (("_scale_", scale), ("_zero_point_", zero_point.to(fb.int64)))]
        given: Any = (*map(graph.get_attr, names), int(observer.ch_axis), *bounds, dtype)
        kind = "per_channel"
    else:
        given = float(scale), int(zero_point), *bounds, dtype
        kind = "per_tensor"
    integers = graph.call_function(getattr(_decomposed_ops, f"quantize_{kind}").default, (source, *given))
    return graph.call_function(getattr(_decomposed_ops, f"dequantize_{kind}").default, (integers, *given))


def _new_buffer(model: GraphModule, stem: str, value: Any) -> str:
    count = 0
    while hasattr(model, f"{stem}{count}"):
        count += 1
    model.register_buffer(f"{stem}{count}", value.detach().clone())
    return f"{stem}{count}"


def _starts(node: Node, word: str) -> bool:
    return node.op == "call_function" and str(node.target).startswith(f"quantized_decomposed.{word}")


def _read_each_once(model: GraphModule) -> None:
    """A `dequantize` for each node that reads its result: then a backend may take each with what reads it."""
    for node in list(model.graph.nodes):
        if not _starts(node, "dequantize"):
            continue
        for reader in list(node.users)[1:]:
            with model.graph.inserting_after(node):
                again = model.graph.node_copy(node)
            reader.replace_input_with(node, again)


def fold_constants(model: GraphModule) -> None:
    """Quantize weights for good: the model keeps integers in their place."""
    constant: dict[Node, Any] = {}
    with fb.no_grad():
        for node in list(model.graph.nodes):
            if node.op == "get_attr":
                constant[node] = functools.reduce(getattr, str(node.target).split("."), model)
            elif node.op == "call_function" and node.all_input_nodes and all(n in constant for n in node.all_input_nodes):
                if _starts(node, "dequantize") or not (_starts(node, "quantize") or _leads_to_quantize(node)):
                    continue
                values = fb.fx.node.map_arg((node.args, node.kwargs), constant.__getitem__)
                constant[node] = node.target(*values[0], **values[1])  # type: ignore[operator]
    count = 0
    for node in list(model.graph.nodes):
        if node in constant and _starts(node, "quantize"):
            while hasattr(model, f"_frozen_param{count}"):
                count += 1
            model.register_buffer(f"_frozen_param{count}", constant[node])
            with model.graph.inserting_before(node):
                frozen = model.graph.get_attr(f"_frozen_param{count}")
            node.replace_all_uses_with(frozen)
    model.graph.eliminate_dead_code()
    _drop_unread(model)
    model.graph.lint()
    model.recompile()


def _leads_to_quantize(node: Node) -> bool:
    """Whether all that is made of `node` is quantized: then what is between need not be kept."""
    return bool(node.users) and all(_starts(user, "quantize") or _leads_to_quantize(user) for user in node.users)


def _drop_unread(model: GraphModule) -> None:
    """Take out the parameters that were read for quantized weights alone."""
    read = {str(node.target) for node in model.graph.nodes if node.op == "get_attr"}
    for path, _ in list(model.named_parameters(remove_duplicate=False)):
        if path not in read:
            *parents, name = path.split(".")
            del model.get_submodule(".".join(parents))._parameters[name]

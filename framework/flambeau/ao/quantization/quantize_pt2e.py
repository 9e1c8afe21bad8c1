"""Quantization of exported programs: a quantizer annotates the graph, observers see data, and operators on integers take their place.

The program is exported first: ``torch.export.export(model, inputs).module()``. `prepare_pt2e` puts in the observers that a quantizer
asks for (`prepare_qat_pt2e` fake quantizations, for training), and `convert_pt2e` ``quantized_decomposed.quantize_*`` and
``dequantize_*``, of which a backend makes layers on integers.
"""

from __future__ import annotations

from typing import Any

from ...fx import GraphModule
from .pt2e import _batch_norm, _convert, _prepare
from .pt2e.export_utils import model_is_exported
from .quantizer import Quantizer

__all__ = ["convert_pt2e", "prepare_pt2e", "prepare_qat_pt2e"]

_KEY = "quantized_training"  # in `meta`: the convolutions that batch norms follow, see `_batch_norm.train_as_folded`


def _of_program(function: str, model: Any) -> GraphModule:
    if isinstance(model, GraphModule) and model_is_exported(model):
        return model
    raise AssertionError(f"{function}: expected the module of an exported program, torch.export.export(...).module(), got {type(model)}")


def prepare_pt2e(model: GraphModule, quantizer: Quantizer) -> GraphModule:
    """The program with observers, to be run on some data before `convert_pt2e`.

    Batch norms are folded into the convolutions before them.

    Args:
        model: the module of an exported program, in evaluation mode. It is changed.
        quantizer: annotates the graph, such as `XNNPACKQuantizer`.
    Raises: AssertionError for another model.

    >>> from flambeau.ao.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e
    >>> from flambeau.ao.quantization.quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
    >>> program = fb.export.export(fb.nn.Linear(2, 1).eval(), (fb.ones(1, 2),)).module()
    >>> prepared = prepare_pt2e(program, XNNPACKQuantizer().set_global(get_symmetric_quantization_config()))
    >>> _ = prepared(fb.tensor([[0.5, -1.0]]))
    >>> convert_pt2e(prepared)(fb.tensor([[0.5, -1.0]])).shape
    torch.Size([1, 1])
    """
    model = _of_program("prepare_pt2e", model)
    _batch_norm.fold(model)
    return _prepared(model, quantizer, is_qat=False)


def prepare_qat_pt2e(model: GraphModule, quantizer: Quantizer) -> GraphModule:
    """The program with fake quantizations, to be trained before `convert_pt2e`.

    Convolutions that a batch norm follows are trained with the weight that folding it will give.

    Args:
        model: the module of an exported program, in training mode. It is changed.
        quantizer: annotates the graph.
    Raises: AssertionError for another model.
    """
    return _prepared(_of_program("prepare_qat_pt2e", model), quantizer, is_qat=True)


def _prepared(model: GraphModule, quantizer: Quantizer, is_qat: bool) -> GraphModule:
    model = quantizer.transform_for_annotation(model)
    quantizer.annotate(model)
    quantizer.validate(model)
    if is_qat:
        model.meta[_KEY] = _batch_norm.train_as_folded(model)
    _prepare.prepare(model, quantizer, is_qat)
    return model


def convert_pt2e(model: GraphModule, use_reference_representation: bool = False, fold_quantize: bool = True) -> GraphModule:
    """The prepared program with ``quantized_decomposed`` operators in the place of observers.

    Args:
        model: a program from `prepare_pt2e`, that has seen data, or from `prepare_qat_pt2e`, trained. It is changed.
        use_reference_representation: computations in integers in the place of quantize and dequantize; not built.
        fold_quantize: keep quantized weights in the place of weights.
    Raises: ValueError for another `fold_quantize`; NotImplementedError for `use_reference_representation`.
    """
    if not isinstance(use_reference_representation, bool):
        raise ValueError(f"Unexpected argument type for `use_reference_representation`, please make sure you intend to pass argument "
                         f"{use_reference_representation} to convert_pt2e")  # fmt: skip
    if use_reference_representation:
        raise NotImplementedError("convert_pt2e: use_reference_representation=True, computations in integers, is not built")
    model = _of_program("convert_pt2e", model)
    pairs = model.meta.pop(_KEY, [])
    if pairs:
        _batch_norm.fold_trained(model, pairs)
    _convert.convert(model)
    if fold_quantize:
        _convert.fold_constants(model)
    return model

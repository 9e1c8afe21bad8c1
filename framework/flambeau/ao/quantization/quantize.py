"""Eager quantization: observers go into a model, which sees some data, and then modules that compute with integers take their places."""

from __future__ import annotations

import copy
import inspect
import itertools
import warnings
from typing import Any

import flambeau as fb

from ...nn import Dropout, Module
from ..nn import intrinsic
from ..nn.quantized import FloatFunctional, FXFloatFunctional
from .observer import _is_activation_post_process
from .qconfig import (
    _add_module_to_qconfig_obs_ctr,
    _assert_valid_qconfig,
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
    float_qparams_weight_only_qconfig_4bit,
)
from .quantization_mappings import (
    DEFAULT_MODULE_TO_ACT_POST_PROCESS,
    get_default_dynamic_quant_module_mappings,
    get_default_qat_module_mappings,
    get_default_qconfig_propagation_list,
    get_default_static_quant_module_mappings,
    get_default_static_quant_reference_module_mappings,
    no_observer_set,
)
from .stubs import DeQuantStub, QuantWrapper
from .utils import get_qparam_dict

__all__ = [
    "add_quant_dequant", "convert", "default_eval_fn", "get_default_custom_config_dict", "prepare", "prepare_qat", "propagate_qconfig_",
    "quantize", "quantize_dynamic", "quantize_qat", "swap_module",
]  # fmt: skip


def get_default_custom_config_dict() -> dict[str, dict[Any, Any]]:
    """Which classes are written out to be observed, and what they become: LSTM and MultiheadAttention."""
    from ..nn import quantizable
    from ..nn.quantized import _rnn as quantized

    return {
        "float_to_observed_custom_module_class": {
            fb.nn.LSTM: quantizable.LSTM, fb.nn.MultiheadAttention: quantizable.MultiheadAttention
        },
        "observed_to_quantized_custom_module_class": {
            quantizable.LSTM: quantized.LSTM, quantizable.MultiheadAttention: quantized.MultiheadAttention
        },
    }  # fmt: skip


# -- who gets which qconfig --------------------------------------------------------------------------------------------------


def propagate_qconfig_(
    module: Module, qconfig_dict: dict[Any, Any] | None = None, prepare_custom_config_dict: dict[str, Any] | None = None
) -> None:
    """Give each module within `module` an attribute `qconfig`: its own, that of its name or class, or that of what it is in.

    Args:
        qconfig_dict: from names or classes of modules to QConfigs; "" for all.
        prepare_custom_config_dict: "non_traceable_module_name" and "non_traceable_module_class" are left out.
    """
    _propagate(module, qconfig_dict or {}, None, "", prepare_custom_config_dict or {})


def _propagate(module: Module, given: dict[Any, Any], parent: Any, prefix: str, custom: dict[str, Any]) -> None:
    qconfig = given.get(type(module), parent)
    qconfig = given.get(prefix, qconfig)
    qconfig = getattr(module, "qconfig", qconfig)
    _assert_valid_qconfig(qconfig, module)
    made = _add_module_to_qconfig_obs_ctr(qconfig, module)
    module.qconfig = made
    for name, child in module.named_children():
        full = f"{prefix}.{name}" if prefix else name
        skipped = full in custom.get("non_traceable_module_name", ()) or type(child) in custom.get("non_traceable_module_class", ())
        if not skipped:
            _propagate(child, given, made, full, custom)


# -- observers ---------------------------------------------------------------------------------------------------------------


def _observer_forward_hook(self: Any, input: Any, output: Any) -> Any:
    """Show results to the module's observer."""
    return self.activation_post_process(output)


def _observer_forward_pre_hook(self: Any, input: Any) -> Any:
    """Show the input to the module's observer."""
    return self.activation_post_process(input[0])


def _observe(module: Any, qconfig: Any, special: Any = None, first: bool = True) -> None:
    """Give `module` an observer of its results."""
    made = qconfig.activation() if special is None else special()
    module.add_module("activation_post_process", made)
    module.register_forward_hook(_observer_forward_hook, prepend=first)


def _add_observer_(module: Any, allowed: set[Any], replaceable: Any, custom: dict[Any, Any]) -> None:
    for name, child in list(module.named_children()):
        qconfig = getattr(child, "qconfig", None)
        if isinstance(child, Dropout) or _is_activation_post_process(child):
            continue
        if isinstance(child, (FloatFunctional, FXFloatFunctional)):
            if qconfig is not None and hasattr(child, "activation_post_process"):
                child.activation_post_process = qconfig.activation()
        elif isinstance(child, intrinsic._FusedModule) and type(child) in allowed or replaceable is not None and type(child) in replaceable:
            if qconfig is not None:
                _observe(child, qconfig)
        elif type(child) in DEFAULT_MODULE_TO_ACT_POST_PROCESS and child.training and qconfig is not None:
            _observe(child, qconfig, DEFAULT_MODULE_TO_ACT_POST_PROCESS[type(child)])
        elif qconfig is not None and type(child) in custom:
            observed = custom[type(child)].from_float(child)
            setattr(module, name, observed)
            if custom[type(child)] not in no_observer_set():
                _observe(observed, qconfig)
        elif qconfig is not None and type(child) in allowed and _is_leaf(child) and type(child) not in (DeQuantStub, fb.nn.Sequential):
            _observe(child, qconfig)
        else:
            _add_observer_(child, allowed, replaceable, custom)


def _is_leaf(module: Module) -> bool:
    """Whether it has no modules within, but for a fake quantization of its own."""
    return all(map(_is_activation_post_process, module.children()))


def prepare(
    model: Module, inplace: bool = False, allow_list: Any = None, observer_non_leaf_module_list: Any = None,
    prepare_custom_config_dict: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Put observers into `model`, for static quantization after training; run it on some data then, and `convert` it.

    Args:
        model: in evaluation mode; modules with an attribute `qconfig`, or within one that has it, get observers of their results.
        inplace: change `model` itself.
        allow_list: classes of modules that get an observer; those that have a quantized counterpart by default.
        observer_non_leaf_module_list: classes of modules with others in them that get an observer.
        prepare_custom_config_dict: ``{"float_to_observed_custom_module_class": {class: class}}``; see `get_default_custom_config_dict`.
    Warns: UserWarning where no module has a `qconfig`.

    >>> model = fb.nn.Sequential(fb.nn.Linear(4, 4)).eval()
    >>> model.qconfig = fb.ao.quantization.default_qconfig
    >>> seen = fb.ao.quantization.prepare(model)
    >>> _ = seen(fb.ones(2, 4))
    """
    custom = get_default_custom_config_dict() if prepare_custom_config_dict is None else prepare_custom_config_dict
    if not inplace:
        model = copy.deepcopy(model)
    propagate_qconfig_(model, qconfig_dict=None)
    if not any(getattr(m, "qconfig", None) for m in model.modules()):
        warnings.warn(
            "None of the submodule got qconfig applied. Make sure you passed correct configuration through `qconfig_dict` or by "
            "assigning the `.qconfig` attribute directly on submodules", stacklevel=2,
        )  # fmt: skip
    allowed = set(get_default_qconfig_propagation_list() if allow_list is None else allow_list)
    replaced = custom.get("float_to_observed_custom_module_class", {})
    _add_observer_(model, allowed, observer_non_leaf_module_list, replaced)
    if _is_leaf(model) and type(model) in allowed and getattr(model, "qconfig", None) and not hasattr(model, "activation_post_process"):
        _observe(model, model.qconfig)
    return model


def _remove_activation_post_process(module: Any) -> None:
    """Take the observer of results, and its hook, from `module`."""
    if isinstance(getattr(module, "activation_post_process", None), Module) and _is_activation_post_process(module.activation_post_process):
        delattr(module, "activation_post_process")
    for hooks, hook in ((module._forward_pre_hooks, _observer_forward_pre_hook), (module._forward_hooks, _observer_forward_hook)):
        for key in [key for key, value in hooks.items() if value is hook]:
            del hooks[key]


def _remove_qconfig(module: Any) -> None:
    for child in module.children():
        _remove_qconfig(child)
    if hasattr(module, "qconfig"):
        del module.qconfig
    _remove_activation_post_process(module)


# -- conversion --------------------------------------------------------------------------------------------------------------


def convert(
    module: Module, mapping: dict[Any, Any] | None = None, inplace: bool = False, remove_qconfig: bool = True, is_reference: bool = False,
    convert_custom_config_dict: dict[str, Any] | None = None, use_precomputed_fake_quant: bool = False,
) -> Any:  # fmt: skip
    """Put modules that compute with integers in place of observed ones, each made by the `from_float` of its class.

    Args:
        module: what `prepare` or `prepare_qat` made, having seen data.
        mapping: from classes to classes; that of static quantization by default.
        inplace: change `module` itself.
        remove_qconfig: take the attributes `qconfig` and observers that are left away.
        is_reference: put reference layers there, which compute with the numbers of quantized weights.
        convert_custom_config_dict: ``{"observed_to_quantized_custom_module_class": {class: class}}``.
        use_precomputed_fake_quant: take weights' scales as fake quantizations have them.
    """
    custom = get_default_custom_config_dict() if convert_custom_config_dict is None else convert_custom_config_dict
    if not inplace:
        module = copy.deepcopy(module)
    if mapping is None:
        mapping = get_default_static_quant_reference_module_mappings() if is_reference else get_default_static_quant_module_mappings()
    replaced = custom.get("observed_to_quantized_custom_module_class", {})
    _convert(module, mapping, replaced, use_precomputed_fake_quant, is_reference)
    if remove_qconfig:
        _remove_qconfig(module)
    return module


def _convert(module: Any, mapping: dict[Any, Any], custom: dict[Any, Any], use_precomputed: bool, is_reference: bool) -> None:
    swapped = {}
    for name, child in module.named_children():
        if not isinstance(child, intrinsic._FusedModule) and type(child) not in custom:
            _convert(child, mapping, custom, use_precomputed, is_reference)
        swapped[name] = _swapped(child, mapping, custom, use_precomputed, is_reference)
    for name, child in swapped.items():
        module._modules[name] = child


def swap_module(
    mod: Any, mapping: dict[Any, Any], custom_module_class_mapping: dict[Any, Any], use_precomputed_fake_quant: bool = False
) -> Any:
    """The quantized counterpart of `mod`, or `mod` where it has none or no `qconfig`; hooks go over to it.

    Args:
        mapping: from classes to classes with `from_float`.
        custom_module_class_mapping: from classes to classes with `from_observed`.
        use_precomputed_fake_quant: see `convert`.
    """
    return _swapped(mod, mapping, custom_module_class_mapping, use_precomputed_fake_quant, False)


def _swapped(mod: Any, mapping: dict[Any, Any], custom_module_class_mapping: dict[Any, Any], use_precomputed: bool, reference: bool) -> Any:
    if getattr(mod, "qconfig", None) is None:
        return mod
    made = mod
    if type(mod) in custom_module_class_mapping:
        made = custom_module_class_mapping[type(mod)].from_observed(mod)
    elif type(mod) in mapping:
        make = mapping[type(mod)].from_float
        taken = inspect.signature(make).parameters    # classes of a program do not take all of these
        if reference and "weight_qparams" in taken:
            made = make(mod, weight_qparams=_weight_qparams(mod))
        elif reference and "weight_qparams_dict" in taken:
            qparams = {name: _weight_qparams(mod, name) for name in mod._parameters if name.startswith("weight")}
            made = make(mod, weight_qparams_dict={**qparams, "is_decomposed": False})
        else:
            made = make(mod, use_precomputed_fake_quant=use_precomputed) if "use_precomputed_fake_quant" in taken else make(mod)
    if made is not mod:
        for hook in mod._forward_pre_hooks.values():
            made.register_forward_pre_hook(hook)
        for hook in mod._forward_hooks.values():
            if hook is not _observer_forward_hook:
                made.register_forward_hook(hook)
        place = next((t.device for t in itertools.chain(mod.parameters(), mod.buffers())), None)
        if place is not None and place.type != "cpu":
            made.to(place)
    return made


# -- whole flows -------------------------------------------------------------------------------------------------------------


def add_quant_dequant(module: Any) -> Any:
    """`module` with a `QuantWrapper` around each innermost module that has a `qconfig`."""
    if not module._modules and getattr(module, "qconfig", None):
        return QuantWrapper(module)
    for name, child in module.named_children():
        module._modules[name] = add_quant_dequant(child)
    return module


def default_eval_fn(model: Module, calib_data: Any) -> None:
    """Run `model` on the first part of each pair of `calib_data`."""
    for data, _target in calib_data:
        model(data)


def quantize(model: Module, run_fn: Any, run_args: Any, mapping: dict[Any, Any] | None = None, inplace: bool = False) -> Any:
    """Static quantization after training, in one call: `prepare`, ``run_fn(model, *run_args)``, `convert`.

    Args:
        mapping: from classes to classes; that of static quantization by default.
    """
    mapping = get_default_static_quant_module_mappings() if mapping is None else mapping
    if not inplace:
        model = copy.deepcopy(model)
    model.eval()
    prepare(model, inplace=True)
    run_fn(model, *run_args)
    convert(model, mapping, inplace=True)
    return model


def quantize_dynamic(
    model: Module, qconfig_spec: Any = None, dtype: Any = fb.qint8, mapping: dict[Any, Any] | None = None, inplace: bool = False
) -> Any:
    """`model` with quantized weights; inputs of its layers are quantized when they run.

    Args:
        qconfig_spec: a dictionary from names or classes of modules to QConfigs, or a set of names or classes; by default linear and
            recurrent layers, with `quint8` embeddings.
        dtype: of the weights where no QConfig is given: `qint8`, `float16`, `quint8` or `quint4x2`.
        mapping: from classes to classes.
        inplace: change `model` itself.
    Raises: ValueError for other dtypes; RuntimeError for a set with a dtype that it says nothing of.

    >>> fb.ao.quantization.quantize_dynamic(fb.nn.Sequential(fb.nn.Linear(4, 2)))
    Sequential(
      (0): DynamicQuantizedLinear(in_features=4, out_features=2, dtype=torch.qint8, qscheme=torch.per_tensor_affine)
    )
    """
    by_dtype = {
        fb.qint8: default_dynamic_qconfig, fb.float16: float16_dynamic_qconfig, fb.quint8: float_qparams_weight_only_qconfig,
        fb.quint4x2: float_qparams_weight_only_qconfig_4bit,
    }  # fmt: skip
    if qconfig_spec is None:
        layers = (fb.nn.Linear, fb.nn.LSTM, fb.nn.GRU, fb.nn.LSTMCell, fb.nn.RNNCell, fb.nn.GRUCell)
        tables = (fb.nn.EmbeddingBag, fb.nn.Embedding)
        kinds = {fb.qint8: layers, fb.float16: layers, fb.quint8: tables, fb.quint4x2: tables[:1]}.get(dtype)
        if kinds is None:
            raise ValueError(f"Don't know how to quantize with default settings for {dtype}. Provide full qconfig please")
        qconfig_spec = dict.fromkeys(kinds, by_dtype[dtype])
    elif isinstance(qconfig_spec, set):
        if dtype not in by_dtype:
            raise RuntimeError(f"Unknown dtype specified for quantize_dynamic: {dtype}")
        qconfig_spec = dict.fromkeys(qconfig_spec, by_dtype[dtype])
    mapping = get_default_dynamic_quant_module_mappings() if mapping is None else mapping
    if not inplace:
        model = copy.deepcopy(model)
    model.eval()
    propagate_qconfig_(model, qconfig_spec)
    convert(model, mapping, inplace=True)
    return model


def prepare_qat(model: Module, mapping: dict[Any, Any] | None = None, inplace: bool = False) -> Any:
    """Put fake quantizations into `model`, for quantization aware training; train it then, and `convert` it in evaluation mode.

    Args:
        model: in training mode, with attributes `qconfig`.
        mapping: from classes to classes that round their weights.
        inplace: change `model` itself.
    Raises: AssertionError for a model in evaluation mode.
    """
    if not model.training:
        raise AssertionError("prepare_qat only works on models in training mode")
    mapping = get_default_qat_module_mappings() if mapping is None else mapping
    if not inplace:
        model = copy.deepcopy(model)
    propagate_qconfig_(model, qconfig_dict=None)
    convert(model, mapping=mapping, inplace=True, remove_qconfig=False)
    prepare(model, observer_non_leaf_module_list=set(mapping.values()), inplace=True)
    return model


def quantize_qat(model: Module, run_fn: Any, run_args: Any, inplace: bool = False) -> Any:
    """Quantization aware training, in one call: `prepare_qat`, ``run_fn(model, *run_args)``, `convert`."""
    if not inplace:
        model = copy.deepcopy(model)
    model.train()
    prepare_qat(model, inplace=True)
    run_fn(model, *run_args)
    convert(model, inplace=True)
    return model


def _weight_qparams(mod: Any, name: str = "weight") -> dict[str, Any]:
    """How the weight `name` of `mod` is quantized: by its fake quantization, or by an observer that its `qconfig` makes."""
    observer = getattr(mod, "weight_fake_quant", None)
    if observer is None:
        observer = mod.qconfig.weight()
        observer(getattr(mod, name))
    return get_qparam_dict(observer)

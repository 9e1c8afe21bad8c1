"""Functions of `nn.functional` as scripts have them: with types, and in operators of `torch.ops.aten`.

The functions here are never called: their source is compiled. Source of what they compute: the documentation of each function.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import flambeau as torch

from .._jit_internal import BroadcastingList1, BroadcastingList2, BroadcastingList3  # texts of pools name all
from ..nn import functional as F
from ..ops._entry import compile_text
from ..tensor import Tensor
from ._operators import schemas_of

__all__ = ["ByType", "Choice", "enter_form", "form_of"]

aten = torch.ops.aten

_FORMS: dict[int, Any] = {}


class Choice:
    """Two forms of a function, or choices of more; which one a call is of, an argument says that is known while compiling."""

    def __init__(self, argument: str, at: int, if_true: Any, if_false: Any) -> None:
        self.argument, self.at, self.if_true, self.if_false = argument, at, if_true, if_false


class ByType:
    """Forms of a function by the kind of the type of an argument; the first where it is not given."""

    def __init__(self, argument: str, at: int, forms: dict[str, Callable[..., Any]]) -> None:
        self.argument, self.at, self.forms = argument, at, forms


def form_of(fn: Any) -> Any:
    """The form of a public function, or several; None where an operator computes it, or it is compiled from its own source."""
    found: Any = _FORMS.get(id(fn))
    op = getattr(fn, "flambeau_op", None)
    if found is None and op is not None and op.scripted_as:
        found = _form(_by_schema(fn.__name__, op.scripted_as))
    return found


def enter_form(fn: Any, form: Any) -> None:
    """Let `form` be the form of the public function `fn`."""
    _FORMS[id(fn)] = form


def _form(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Let `fn` be the form of the public function of its name."""
    fn.__module__ = "torch.nn.functional"
    if not fn.__name__.startswith("_"):
        _FORMS[id(getattr(F, fn.__name__))] = fn
    return fn


def _written(name: str, parameters: str, result: str, *lines: str) -> Callable[..., Any]:
    """A function of this text."""
    body = "".join(f"        {line}\n" for line in lines)
    text = f"def make():\n    def {name}({parameters}) -> {result}:\n{body}    return {name}\n"
    return compile_text(text, f"form of {name}", {}, globals())


_KINDS = {"Optional[Tensor]": "Tensor | None", "List[int]": "list[int]"}
_OF_ALL = {"inplace": "bool", "size_average": "bool | None", "reduce": "bool | None", "reduction": "str"}


def _by_schema(name: str, operator: str) -> Callable[..., Any]:
    """The function that calls an operator with its own arguments: its parameters are the public function's, their types the operator's."""
    base, _, overload = operator.partition(".")
    schema = next(s for s in schemas_of(f"aten::{base}") if s.overload_name == overload)
    params = inspect.signature(getattr(F, name)).parameters
    kinds, given = dict(_OF_ALL), []
    for argument in schema.arguments:
        own = {"self": next(iter(params)), "train": "training"}.get(argument.name, argument.name)
        if own == "reduction":
            given.append("_reduction_of(size_average, reduce, reduction)" if "reduce" in params else "_reduction_code(reduction)")
        elif own in params:
            kind, default = str(argument.type), params[own].default
            scalar = "float" if default is inspect.Parameter.empty else type(default).__name__
            kinds[own] = scalar if kind in ("Scalar", "number") else _KINDS.get(kind, kind)
            given.append(own)
        elif own.startswith("cudnn"):
            given.append("True")
    listed = []
    for own, p in params.items():
        if own in kinds:                              # others are newer than the operator
            default = float(p.default) if kinds[own] == "float" and p.default is not p.empty else p.default
            listed.append(f"{own}: {kinds[own]}" + ("" if p.default is p.empty else f" = {default!r}"))
    call = f"({', '.join(given)})"
    chosen = f"aten.{base}_{call} if inplace else aten.{base}{call}" if "inplace" in params else f"aten.{base}{call}"
    return _written(name, ", ".join(listed), "Tensor", f"return {chosen}")


def _choice(name: str, at: int, if_true: Callable[..., Any], if_false: Callable[..., Any]) -> None:
    for fn in (if_true, if_false):
        fn.__module__ = "torch.nn.functional"
    _FORMS[id(getattr(F, name))] = Choice("return_indices", at, if_true, if_false)


@_form
def _reduction_code(reduction: str) -> int:
    if reduction == "none":
        code = 0
    elif reduction == "mean":
        code = 1
    elif reduction == "sum":
        code = 2
    else:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return code


@_form
def _reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> int:
    if size_average is None and reduce is None:
        return _reduction_code(reduction)
    average = True if size_average is None else size_average
    reduced = True if reduce is None else reduce
    if not reduced:
        return 0
    return 1 if average else 2


# -- activations ---------------------------------------------------------------------------------------------------------


@_form
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return aten.hardtanh_(input, min_val, max_val) if inplace else aten.hardtanh(input, min_val, max_val)


@_form
def softsign(input: Tensor) -> Tensor:
    return input / (input.abs() + 1)


@_form
def tanhshrink(input: Tensor) -> Tensor:
    return input - input.tanh()


@_form
def logsigmoid(input: Tensor) -> Tensor:
    return aten.log_sigmoid(input)


@_form
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None) -> Tensor:
    if dim is None:
        dim = 0 if input.dim() in (0, 1, 3) else 1
    return aten.softmax(input, dim, dtype)


@_form
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None) -> Tensor:
    if dim is None:
        dim = 0 if input.dim() in (0, 1, 3) else 1
    return aten.softmax(-input, dim, dtype)


@_form
def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None) -> Tensor:
    if dim is None:
        dim = 0 if input.dim() in (0, 1, 3) else 1
    return aten.log_softmax(input, dim, dtype)


@_form
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    noise = -torch.empty_like(logits, memory_format=torch.contiguous_format).exponential_().log()
    soft = ((logits + noise) / tau).softmax(dim)
    if hard:
        index = soft.max(dim, keepdim=True)[1]
        sharp = torch.zeros_like(logits, memory_format=torch.contiguous_format).scatter_(dim, index, 1.0)
        return sharp - soft.detach() + soft
    return soft


# -- dropout -------------------------------------------------------------------------------------------------------------


@_form
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    return aten.dropout_(input, p, training) if inplace else aten.dropout(input, p, training)


@_form
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    batched = input.dim() == 3
    whole = input if batched else input.unsqueeze(0)
    made = aten.feature_dropout_(whole, p, training) if inplace else aten.feature_dropout(whole, p, training)
    return made if batched else made.squeeze(0)


@_form
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return aten.feature_dropout_(input, p, training) if inplace else aten.feature_dropout(input, p, training)


@_form
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return aten.feature_dropout_(input, p, training) if inplace else aten.feature_dropout(input, p, training)


# -- normalization and embedding -----------------------------------------------------------------------------------------


@_form
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    squares = input.mul(input)
    if input.dim() == 3:
        padded = aten.pad(squares.unsqueeze(1), [0, 0, size // 2, (size - 1) // 2])
        means = aten.avg_pool2d(padded, [size, 1], [1, 1]).squeeze(1)
    else:
        shape = input.size()
        flat = squares.view([shape[0], 1, shape[1], shape[2], -1])
        padded = aten.pad(flat, [0, 0, 0, 0, size // 2, (size - 1) // 2])
        means = aten.avg_pool3d(padded, [size, 1, 1], [1, 1, 1]).squeeze(1).view(shape)
    return input / means.mul(alpha).add(k).pow(beta)


@_form
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    return input / input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)


@_form
def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    at = -1
    if padding_idx is not None:
        at = padding_idx + weight.size(0) if padding_idx < 0 else padding_idx
    if max_norm is not None:
        input = input.contiguous()
        with torch.no_grad():
            aten.embedding_renorm_(weight, input, max_norm, norm_type)
    return aten.embedding(weight, input, at, scale_grad_by_freq, sparse)


@_form
def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None, norm_type: float = 2,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    if input.dim() == 2:
        starts = torch.arange(0, input.numel(), input.size(1), dtype=input.dtype, device=input.device)
        flat = input.reshape(-1)
        per_sample_weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    else:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor, but got None")
        starts = offsets
        flat = input
    if mode == "sum":
        how = 0
    elif mode == "mean":
        how = 1
    else:
        how = 2
    if max_norm is not None:
        with torch.no_grad():
            aten.embedding_renorm_(weight, flat, max_norm, norm_type)
    return aten.embedding_bag(
        weight, flat, starts, scale_grad_by_freq, how, sparse, per_sample_weights, include_last_offset, padding_idx
    )[0]


# -- pooling -------------------------------------------------------------------------------------------------------------


for _rank in (1, 2, 3):
    _ints = f"BroadcastingList{_rank}[int]"
    _windows = (
        f"input: Tensor, kernel_size: {_ints}, stride: {_ints} | None = None, padding: {_ints} = 0, dilation: {_ints} = 1, "
        "ceil_mode: bool = False, return_indices: bool = False"
    )
    _step, _given = "step: list[int] = [] if stride is None else stride", "(input, kernel_size, step, padding, dilation, ceil_mode)"
    _choice(
        f"max_pool{_rank}d", 6,
        _written(
            f"_max_pool{_rank}d_with_indices", _windows, "tuple[Tensor, Tensor]", _step,
            f"return aten.max_pool{_rank}d_with_indices{_given}",
        ),
        _written(f"_max_pool{_rank}d", _windows, "Tensor", _step, f"return aten.max_pool{_rank}d{_given}"),
    )  # fmt: skip
    # Of one dimension the size is given; of more, None stands for the one that there is.
    _sizes = f"output_size: BroadcastingList{_rank}[int{' | None' if _rank > 1 else ''}]"
    _pooled = f"pool{_rank}d(input, {'_sizes_of(input, output_size)' if _rank > 1 else 'output_size'})"
    _asked = f"input: Tensor, {_sizes}, return_indices: bool = False"
    _choice(
        f"adaptive_max_pool{_rank}d", 2,
        _written(f"_adaptive_max_pool{_rank}d_both", _asked, "tuple[Tensor, Tensor]", f"return aten.adaptive_max_{_pooled}"),
        _written(f"_adaptive_max_pool{_rank}d", _asked, "Tensor", f"return aten.adaptive_max_{_pooled}[0]"),
    )  # fmt: skip
    if _rank > 1:
        _form(_written(f"adaptive_avg_pool{_rank}d", f"input: Tensor, {_sizes}", "Tensor", f"return aten.adaptive_avg_{_pooled}"))


@_form
def _sizes_of(input: Tensor, output_size: list[int | None]) -> list[int]:
    found: list[int] = []
    first = input.dim() - len(output_size)
    for i, n in enumerate(output_size):
        found.append(input.size(first + i) if n is None else n)
    return found


# Unpooling, and maxima of windows that are drawn, in each number of dimensions.
for _rank in (1, 2, 3):
    _unpooled = {
        1: "aten.max_unpool2d(input.unsqueeze(-1), indices.unsqueeze(-1), [sizes[0], 1]).squeeze(-1)",
        2: "aten.max_unpool2d(input, indices, sizes)", 3: "aten.max_unpool3d(input, indices, sizes, steps, padding)",
    }[_rank]  # fmt: skip
    _form(_written(
        f"max_unpool{_rank}d",
        f"input: Tensor, indices: Tensor, kernel_size: BroadcastingList{_rank}[int], stride: BroadcastingList{_rank}[int] | None = None, "
        f"padding: BroadcastingList{_rank}[int] = 0, output_size: list[int] | None = None",
        "Tensor",
        "steps = kernel_size if stride is None else stride",
        f"least = [(input.size(i - {_rank}) - 1) * steps[i] + kernel_size[i] - 2 * padding[i] for i in range({_rank})]",
        "sizes = least",
        "if output_size is not None:",
        f"    sizes = output_size[2:] if len(output_size) == {_rank + 2} else output_size",
        f"    if len(sizes) != {_rank}:",
        f"        raise ValueError('output_size should be a sequence containing {_rank} or {_rank + 2} elements, but it has a length of '"
        " + str(len(sizes)))",
        f"    for i in range({_rank}):",
        "        if sizes[i] <= least[i] - steps[i] or sizes[i] >= least[i] + steps[i]:",
        "            raise ValueError('invalid output_size ' + str(sizes))",
        f"return {_unpooled}",
    ))  # fmt: skip
    if _rank == 1:
        continue
    _asked = (
        f"input: Tensor, kernel_size: BroadcastingList{_rank}[int], output_size: BroadcastingList{_rank}[int] | None = None, "
        f"output_ratio: BroadcastingList{_rank}[float] | None = None, return_indices: bool = False, _random_samples: Tensor | None = None"
    )
    _both = _written(
        f"_fractional_max_pool{_rank}d_both", _asked, "tuple[Tensor, Tensor]",
        "sizes = output_size",
        "if sizes is None:",
        "    if output_ratio is None:",
        f"        raise ValueError('fractional_max_pool{_rank}d requires specifying either an output_size or an output_ratio')",
        f"    sizes = [int(input.size(i - {_rank}) * output_ratio[i]) for i in range({_rank})]",
        "samples = _random_samples",
        "if samples is None:",
        f"    count = 1 if input.dim() == {_rank + 1} else input.size(0)",
        f"    samples = torch.rand([count, input.size({-_rank - 1}), {_rank}], dtype=input.dtype, device=input.device)",
        f"return aten.fractional_max_pool{_rank}d(input, kernel_size, sizes, samples)",
    )  # fmt: skip
    globals()[_both.__name__] = _form(_both)          # the other form calls it
    _values = _written(
        f"_fractional_max_pool{_rank}d", _asked, "Tensor",
        f"return {_both.__name__}(input, kernel_size, output_size, output_ratio, True, _random_samples)[0]",
    )  # fmt: skip
    _choice(f"fractional_max_pool{_rank}d", 4, _both, _values)


@_form
def unfold(
    input: Tensor, kernel_size: BroadcastingList2[int], dilation: BroadcastingList2[int] = 1, padding: BroadcastingList2[int] = 0,
    stride: BroadcastingList2[int] = 1,
) -> Tensor:  # fmt: skip
    return aten.im2col(input, kernel_size, dilation, padding, stride)


@_form
def fold(
    input: Tensor, output_size: BroadcastingList2[int], kernel_size: BroadcastingList2[int], dilation: BroadcastingList2[int] = 1,
    padding: BroadcastingList2[int] = 0, stride: BroadcastingList2[int] = 1,
) -> Tensor:  # fmt: skip
    return aten.col2im(input, output_size, kernel_size, dilation, padding, stride)


@_form
def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: BroadcastingList2[int], stride: BroadcastingList2[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    step: list[int] = [] if stride is None else stride
    means = aten.avg_pool2d(input.pow(norm_type), kernel_size, step, [0, 0], ceil_mode)
    return (torch.sign(means) * aten.relu(torch.abs(means))).mul(kernel_size[0] * kernel_size[1]).pow(1.0 / norm_type)


@_form
def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: BroadcastingList3[int], stride: BroadcastingList3[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    step: list[int] = [] if stride is None else stride
    means = aten.avg_pool3d(input.pow(norm_type), kernel_size, step, [0, 0, 0], ceil_mode)
    count = kernel_size[0] * kernel_size[1] * kernel_size[2]
    return (torch.sign(means) * aten.relu(torch.abs(means))).mul(count).pow(1.0 / norm_type)


@_form
def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: int, stride: BroadcastingList1[int] | None = None, ceil_mode: bool = False
) -> Tensor:
    step: list[int] = [] if stride is None else stride
    means = aten.avg_pool1d(input.pow(norm_type), [kernel_size], step, [0], ceil_mode)
    return (torch.sign(means) * aten.relu(torch.abs(means))).mul(kernel_size).pow(1.0 / norm_type)


# -- resampling ----------------------------------------------------------------------------------------------------------


@_form
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    if mode == "bilinear":
        how = 0
    elif mode == "nearest":
        how = 1
    else:
        how = 2
    if padding_mode == "zeros":
        pad = 0
    elif padding_mode == "border":
        pad = 1
    else:
        pad = 2
    aligned = False if align_corners is None else align_corners
    return aten.grid_sampler(input, grid, how, pad, aligned)


@_form
def affine_grid(theta: Tensor, size: list[int], align_corners: bool | None = None) -> Tensor:
    aligned = False if align_corners is None else align_corners
    return aten.affine_grid_generator(theta, size, aligned)


@_form
def interpolate(
    input: Tensor, size: BroadcastingList1[int] | None = None, scale_factor: BroadcastingList1[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Tensor:  # fmt: skip
    aligned = False if align_corners is None else align_corners
    dims = input.dim() - 2
    sizes: list[int] | None = None
    scales: list[float] | None = None
    if size is not None:
        sizes = size if len(size) == dims else [size[0]] * dims
    if scale_factor is not None:
        given = scale_factor if len(scale_factor) == dims else [scale_factor[0]] * dims
        scales = given
        if recompute_scale_factor is not None and recompute_scale_factor or mode == "area":
            sizes = [math.floor(float(input.size(i + 2)) * given[i]) for i in range(dims)]
            scales = None
    if mode == "nearest":
        if dims == 1:
            return aten.upsample_nearest1d(input, sizes, scales)
        if dims == 2:
            return aten.upsample_nearest2d(input, sizes, scales)
        return aten.upsample_nearest3d(input, sizes, scales)
    if mode == "nearest-exact":
        if dims == 1:
            return aten._upsample_nearest_exact1d(input, sizes, scales)
        if dims == 2:
            return aten._upsample_nearest_exact2d(input, sizes, scales)
        return aten._upsample_nearest_exact3d(input, sizes, scales)
    if mode == "area":
        if sizes is None:
            raise ValueError("either size or scale_factor should be defined")
        if dims == 1:
            return aten.adaptive_avg_pool1d(input, sizes)
        if dims == 2:
            return aten.adaptive_avg_pool2d(input, sizes)
        return aten.adaptive_avg_pool3d(input, sizes)
    if mode == "linear":
        return aten.upsample_linear1d(input, sizes, aligned, scales)
    if mode == "bilinear":
        if antialias:
            return aten._upsample_bilinear2d_aa(input, sizes, aligned, scales)
        return aten.upsample_bilinear2d(input, sizes, aligned, scales)
    if mode == "bicubic":
        if antialias:
            return aten._upsample_bicubic2d_aa(input, sizes, aligned, scales)
        return aten.upsample_bicubic2d(input, sizes, aligned, scales)
    if mode == "trilinear":
        return aten.upsample_trilinear3d(input, sizes, aligned, scales)
    raise NotImplementedError(f"interpolate() takes no mode {mode} for these dimensions")


# -- losses --------------------------------------------------------------------------------------------------------------


@_form
def kl_div(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:  # fmt: skip
    if reduction == "batchmean" and size_average is None and reduce is None:
        return aten.kl_div(input, target, 2, log_target=log_target) / input.size(0)
    return aten.kl_div(input, target, _reduction_of(size_average, reduce, reduction), log_target=log_target)


@_form
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    how = _reduction_of(size_average, reduce, reduction)
    loss = -(target * aten.log_sigmoid(input) + (1 - target) * aten.log_sigmoid(-input))
    if weight is not None:
        loss = loss * weight
    loss = loss.sum(-1) / input.size(-1)
    if how == 0:
        return loss
    return loss.mean() if how == 1 else loss.sum()


@_form
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    if bool((var < 0).any()):
        raise ValueError("var has negative entry/entries")
    kept = var.clone()
    with torch.no_grad():
        kept.clamp_(min=eps)
    loss = 0.5 * (torch.log(kept) + (input - target) ** 2 / kept)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss

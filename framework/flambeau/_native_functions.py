"""Functions that PyTorch offers at the top level in the form its operators have: reductions as numbers, weights as flat lists.

Each is a way to call a function that `nn.functional`, `linalg` or a layer has under its own name and documents. Without a
`reduction` a loss is not reduced, unlike there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import flambeau as fb

from . import _missing, _symbolic
from ._arrays import ndarray
from ._state import left_alone
from ._subclass import overridable_function
from ._symbolic import SymBool, SymInt, is_claimed_to_be_a_size
from .ops._spec.shapes import need_bools, need_number
from .ops.pointwise import activation
from .tensor import wrap

__all__ = [
    "bilinear", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cosine_similarity", "ctc_loss",
    "cudnn_is_acceptable", "detach_", "dsmm", "hsmm", "embedding_bag", "embedding_renorm_", "fake_quantize_per_channel_affine",
    "fake_quantize_per_tensor_affine", "frobenius_norm", "get_device", "gru", "gru_cell", "hinge_embedding_loss",
    "is_vulkan_available", "kl_div", "lstm", "lstm_cell", "margin_ranking_loss", "native_dropout", "norm_except_dim",
    "nuclear_norm", "pairwise_distance", "pdist", "poisson_nll_loss", "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell",
    "segment_reduce", "spmm", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum",
    "triplet_margin_loss", "unsafe_split_with_sizes",
]  # fmt: skip

_REDUCTIONS = ("none", "mean", "sum")
_MODES = ("sum", "mean", "max")


def _word(name: str, reduction: Any) -> str:
    """The word for a reduction given as the number that operators use."""
    if reduction not in (0, 1, 2):
        raise RuntimeError(f"{name}: reduction must be 0 (none), 1 (mean) or 2 (sum), got {reduction!r}")
    return _REDUCTIONS[reduction]


# -- operators that packages call by their private names -----------------------------------------------------------------


def _assert_async(input: Any, assert_msg: str = "") -> None:
    """Raise RuntimeError with `assert_msg` unless `input`, one number, is other than zero: at once, for nothing is queued here."""
    if not bool(input):
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


def _int_mm(self: Any, mat2: Any) -> Any:
    """The product of int8 matrices in int32, ``(n, k) @ (k, m) -> (n, m)``; the first one may be uint8.

    Raises: RuntimeError for other dtypes.
    """
    for x, dtypes in ((self, (fb.int8, fb.uint8)), (mat2, (fb.int8,))):
        if x.dtype not in dtypes:
            raise RuntimeError(f"_int_mm: expected int8 matrices, got {x.dtype.name}; convert with .to(torch.int8)")
    a, b = self._array, mat2._array
    if a.__class__ is ndarray and b.__class__ is ndarray and a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0] and left_alone():
        from flambeau_kernels.cpu.products import narrow_products

        if narrow_products.pays(len(a), b.shape[1], len(b), 1):
            return wrap(narrow_products.product(a, b))
    return fb.mm(self.to(fb.int32), mat2.to(fb.int32))


def _softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    """The gradient of the argument of a softmax along `dim` from that of its result `output`; float16 if `input_dtype` is."""
    return activation._softmax_backward_data.function(grad_output, output, dim, input_dtype)


def _log_softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    """The gradient of the argument of a log_softmax along `dim` from that of its result `output`; float16 if `input_dtype` is."""
    return activation._log_softmax_backward_data.function(grad_output, output, dim, input_dtype)


def _convert_indices_from_coo_to_csr(self: Any, size: int, *, out_int32: bool = False) -> Any:
    """Where each of `size` rows begins among sorted numbers of rows, and where the last ends: ``(n,) -> (size + 1,)``."""
    return fb.searchsorted(self, fb.arange(size + 1, dtype=self.dtype, device=self.device), out_int32=out_int32)


def _convert_indices_from_csr_to_coo(
    crow_indices: Any, col_indices: Any, *, out_int32: bool = False, transpose: bool = False
) -> Any:
    """The row and the column of each element, ``(2, n)``, from where rows begin; the column first if `transpose`."""
    dtype = fb.int32 if out_int32 else fb.int64
    rows = fb.arange(len(crow_indices) - 1, device=crow_indices.device).repeat_interleave(crow_indices.diff())
    pair = (col_indices, rows) if transpose else (rows, col_indices)
    return fb.stack([x.to(dtype) for x in pair])


def _standard_gamma(self: Any, generator: Any = None) -> Any:
    """Numbers from Gamma distributions with the concentrations `self` and the rate 1, differentiable."""
    from .ops.sampling.gamma_draws import gamma_numbers

    return gamma_numbers.function(self, generator)


def _sample_dirichlet(self: Any, generator: Any = None) -> Any:
    """Points from Dirichlet distributions with the concentrations `self` along the last dimension, differentiable."""
    from .ops.sampling.gamma_draws import dirichlet_numbers

    return dirichlet_numbers.function(self, generator)


@overridable_function
def dsmm(input: Any, mat2: Any) -> Any:
    """The product of a sparse matrix and one that is not."""
    return fb.mm(input, mat2)


@overridable_function
def hsmm(input: Any, mat2: Any) -> Any:
    """The product of a sparse matrix and one that is not, with sparse rows; see `hspmm`."""
    return fb.hspmm(input, mat2)


# -- distances, losses ---------------------------------------------------------------------------------------------------


@overridable_function
def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """See `nn.functional.bilinear`."""
    return fb.nn.functional.bilinear(input1, input2, weight, bias)


@overridable_function
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    """See `nn.functional.cosine_similarity`."""
    return fb.nn.functional.cosine_similarity(x1, x2, dim, eps)


@overridable_function
def pdist(input: Any, p: float = 2) -> Any:
    """See `nn.functional.pdist`."""
    return fb.nn.functional.pdist(input, p)


@overridable_function
def pairwise_distance(x1: Any, x2: Any, p: float = 2, eps: float = 1e-6, keepdim: bool = False) -> Any:
    """See `nn.functional.pairwise_distance`."""
    return fb.nn.functional.pairwise_distance(x1, x2, p, eps, keepdim)


@overridable_function
def ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: int = 0,
    zero_infinity: bool = False,
) -> Any:  # fmt: skip
    """See `nn.functional.ctc_loss`; `reduction` is 0, 1 or 2 for "none", "mean" or "sum"."""
    word = _word("ctc_loss", reduction)
    return fb.nn.functional.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, word, zero_infinity)


@overridable_function
def kl_div(input: Any, target: Any, reduction: int = 0, *, log_target: bool = False) -> Any:
    """See `nn.functional.kl_div`; `reduction` is 0, 1 or 2 for "none", "mean" over all elements, or "sum"."""
    # `nn.functional.kl_div` warns that its mean is not the divergence; the operator does not.
    loss = fb.nn.functional.kl_div(input, target, reduction="none", log_target=log_target)
    word = _word("kl_div", reduction)
    return loss if word == "none" else getattr(loss, word)()


@overridable_function
def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 0
) -> Any:
    """See `nn.functional.binary_cross_entropy_with_logits`; `reduction` is 0, 1 or 2 for "none", "mean" or "sum"."""
    word = _word("binary_cross_entropy_with_logits", reduction)
    loss = fb.nn.functional.binary_cross_entropy_with_logits
    return loss(input, target, weight, pos_weight=pos_weight, reduction=word)


@overridable_function
def cosine_embedding_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = 0) -> Any:
    """See `nn.functional.cosine_embedding_loss`; `reduction` is 0, 1 or 2 for "none", "mean" or "sum"."""
    word = _word("cosine_embedding_loss", reduction)
    return fb.nn.functional.cosine_embedding_loss(input1, input2, target, margin=margin, reduction=word)


@overridable_function
def hinge_embedding_loss(input: Any, target: Any, margin: float = 1.0, reduction: int = 0) -> Any:
    """See `nn.functional.hinge_embedding_loss`; `reduction` is 0, 1 or 2 for "none", "mean" or "sum"."""
    word = _word("hinge_embedding_loss", reduction)
    return fb.nn.functional.hinge_embedding_loss(input, target, margin=margin, reduction=word)


@overridable_function
def margin_ranking_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = 0) -> Any:
    """See `nn.functional.margin_ranking_loss`; `reduction` is 0, 1 or 2 for "none", "mean" or "sum"."""
    word = _word("margin_ranking_loss", reduction)
    return fb.nn.functional.margin_ranking_loss(input1, input2, target, margin=margin, reduction=word)


@overridable_function
def poisson_nll_loss(input: Any, target: Any, log_input: bool, full: bool, eps: float, reduction: int) -> Any:
    """See `nn.functional.poisson_nll_loss`; `reduction` is 0, 1 or 2 for "none", "mean" or "sum"."""
    word = _word("poisson_nll_loss", reduction)
    return fb.nn.functional.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=word)


@overridable_function
def triplet_margin_loss(
    anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False,
    reduction: int = 0,
) -> Any:  # fmt: skip
    """See `nn.functional.triplet_margin_loss`; `reduction` is 0, 1 or 2 for "none", "mean" or "sum"."""
    settings = {"margin": margin, "p": p, "eps": eps, "swap": swap}
    word = _word("triplet_margin_loss", reduction)
    return fb.nn.functional.triplet_margin_loss(anchor, positive, negative, reduction=word, **settings)


# -- embeddings ----------------------------------------------------------------------------------------------------------


@overridable_function
def embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """See `nn.functional.embedding_bag`; `mode` is 0, 1 or 2 for "sum", "mean" or "max".

    Returns: the bags; the bag of each index; how many indices that count each bag has; and for "max" the row that each element
        comes from, else the same as the third.
    """
    from .ops.layers.embedding import _embedding_bag, padding_from_front

    padding = padding_from_front("embedding_bag", padding_idx, weight.shape[0], RuntimeError)
    given = scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset
    return _embedding_bag.function(weight, indices, offsets, *given, padding)


@overridable_function
def embedding_renorm_(input: Any, indices: Any, max_norm: float, norm_type: float) -> Any:
    """Scale the rows of `input` that `indices` name down to `max_norm` where their `norm_type`-norm is larger, in place."""
    with fb.no_grad():  # a lookup scales the rows it names
        fb.nn.functional.embedding(indices, input, max_norm=max_norm, norm_type=norm_type)
    return input


# -- recurrent layers ----------------------------------------------------------------------------------------------------


def _recurrent_layers(
    mode: str, input: Any, initial: Any, flat: Sequence[Any], rest: Sequence[Any], batch_sizes: Any
) -> tuple[Any, Any]:
    from .nn.modules import _recurrent

    has_biases, num_layers, dropout, train, bidirectional, *batch_first = rest
    need_bools(mode.lower(), has_biases=has_biases, train=train, bidirectional=bidirectional)
    places = num_layers * (1 + bool(bidirectional))
    projected = len(flat) == places * (3 + 2 * bool(has_biases))
    weights = _recurrent.weights_of(flat, bool(has_biases), projected)
    turned = bool(batch_first and batch_first[0])
    if turned:
        input = input.transpose(0, 1)
    sizes = None if batch_sizes is None else batch_sizes.tolist()
    out, last = _recurrent.run(mode, input, sizes, initial, weights, num_layers, dropout, train, bool(bidirectional))
    return out.transpose(0, 1) if turned else out, last


@overridable_function
def lstm(input: Any, *args: Any) -> tuple[Any, Any, Any]:
    """The layers of `nn.LSTM`.

    Args:
        input: the sequence, or the data of a packed one.
        args: ``hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first``; with packed data
            ``batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional``. `hx` is the pair (h, c), `params`
            the flat list of weights as the module has them.
    Returns: outputs, last h, last c.
    """
    packed = not isinstance(args[0], (list, tuple))
    sizes, (hx, params, *rest) = (args[0], args[1:]) if packed else (None, args)
    out, last = _recurrent_layers("LSTM", input, tuple(hx), params, rest, sizes)
    return out, last[0], last[1]


def _one_state(mode: str, input: Any, args: Sequence[Any]) -> tuple[Any, Any]:
    packed = isinstance(args[1], fb.Tensor)
    sizes, (hx, params, *rest) = (args[0], args[1:]) if packed else (None, args)
    out, last = _recurrent_layers(mode, input, (hx,), params, rest, sizes)
    return out, last[0]


@overridable_function
def gru(input: Any, *args: Any) -> tuple[Any, Any]:
    """The layers of `nn.GRU`; arguments as of `lstm`, with one tensor for `hx`. Returns: outputs, last h."""
    return _one_state("GRU", input, args)


@overridable_function
def rnn_tanh(input: Any, *args: Any) -> tuple[Any, Any]:
    """The layers of `nn.RNN` with tanh; arguments as of `gru`. Returns: outputs, last h."""
    return _one_state("RNN_TANH", input, args)


@overridable_function
def rnn_relu(input: Any, *args: Any) -> tuple[Any, Any]:
    """The layers of `nn.RNN` with relu; arguments as of `gru`. Returns: outputs, last h."""
    return _one_state("RNN_RELU", input, args)


def _cell(mode: str, input: Any, state: tuple[Any, ...], weights: tuple[Any, ...]) -> tuple[Any, ...]:
    from .ops.layers.recurrent import Weights, step

    return step(mode, input, state, Weights(*weights))


@overridable_function
def lstm_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> tuple[Any, Any]:
    """One step of `nn.LSTMCell` from the state `hx`, a pair; weights `w_ih`, `w_hh`, `b_ih`, `b_hh`. Returns: h and c."""
    h, c = _cell("LSTM", input, tuple(hx), (w_ih, w_hh, b_ih, b_hh))
    return h, c


@overridable_function
def gru_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """One step of `nn.GRUCell` from the state `hx`; weights `w_ih`, `w_hh`, `b_ih`, `b_hh`. Returns: h."""
    return _cell("GRU", input, (hx,), (w_ih, w_hh, b_ih, b_hh))[0]


@overridable_function
def rnn_tanh_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """One step of `nn.RNNCell` with tanh from the state `hx`; weights `w_ih`, `w_hh`, `b_ih`, `b_hh`. Returns: h."""
    return _cell("RNN_TANH", input, (hx,), (w_ih, w_hh, b_ih, b_hh))[0]


@overridable_function
def rnn_relu_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """One step of `nn.RNNCell` with relu from the state `hx`; weights `w_ih`, `w_hh`, `b_ih`, `b_hh`. Returns: h."""
    return _cell("RNN_RELU", input, (hx,), (w_ih, w_hh, b_ih, b_hh))[0]


# -- reductions, norms ---------------------------------------------------------------------------------------------------

# For each word: that of `index_reduce`, and what it gives of no elements.
_SEGMENT_REDUCTIONS = {
    "sum": ("sum", 0.0), "mean": ("sum", float("nan")), "prod": ("prod", 1.0), "max": ("amax", -float("inf")),
    "min": ("amin", float("inf")), "amax": ("amax", -float("inf")), "amin": ("amin", float("inf")),
}  # fmt: skip


@overridable_function
def segment_reduce(
    data: Any, reduce: str, *, lengths: Any = None, indices: Any = None, offsets: Any = None, axis: int = 0, unsafe: bool = False,
    initial: Any = None,
) -> Any:  # fmt: skip
    """`data` reduced over consecutive segments of dimension `axis`.

    Args:
        data: floating.
        reduce: "sum", "mean", "prod", "max" or "min".
        lengths: the number of elements in each segment, in the last dimension; the others are those of `data` before `axis`.
        offsets: where segments begin, and the end of the last, instead of `lengths`.
        indices: not built.
        axis: the last dimension of `lengths`.
        unsafe: do not check that lengths add up to the size of `axis`. Lengths on a device, under vmap or without values are never checked.
        initial: a first operand of each reduction. Empty segments give it; without it, 0, nan (mean), 1, -inf or inf.
    Returns: `data` with the number of segments for the size of `axis`.
    Raises: RuntimeError without lengths and offsets, for another word, or for lengths that do not add up.
    """
    if reduce not in _SEGMENT_REDUCTIONS:
        raise RuntimeError(f"segment_reduce: reduce must be one of {', '.join(_SEGMENT_REDUCTIONS)}, got {reduce!r}")
    if indices is not None:
        raise _missing.not_built("segment_reduce(indices=...)", "give lengths or offsets")
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce: either lengths or offsets must be given")
    given = offsets if lengths is None else lengths
    if axis % data.dim() != given.dim() - 1:
        raise RuntimeError(f"segment_reduce: axis must be the last dimension of lengths, {given.dim() - 1}, got {axis}")
    axis %= data.dim()
    if data.shape[:axis] != given.shape[:-1]:
        raise RuntimeError(
            f"segment_reduce: lengths of shape {tuple(given.shape)} need data of {tuple(given.shape[:-1])} before axis {axis}, "
            f"got data of shape {tuple(data.shape)}"
        )
    size = data.shape[axis]
    if given._array.__class__ is ndarray:                 # the values of others are not asked for: elements of no segment are left out
        for row in given._array.reshape(math.prod(given.shape[:-1]), -1).tolist():
            _check_segments(row, size, lengths is None, unsafe)
    bounds = given if lengths is None else fb.nn.functional.pad(given.cumsum(-1), (1, 0))
    return _reduced_segments(data, bounds.reshape(math.prod(given.shape[:-1]), -1), axis, reduce, initial)


def _check_segments(given: list[int], size: int, are_offsets: bool, unsafe: bool) -> None:
    """Raise RuntimeError unless the segments of `given` lie in a row of `size` one after the other."""
    bounds = given if are_offsets else [0, *itertools.accumulate(given)]
    if bounds != sorted(bounds) or bounds and not 0 <= bounds[0] <= bounds[-1] <= size:
        raise RuntimeError(
            f"segment_reduce: {'offsets' if are_offsets else 'lengths'} must name segments of the {size} elements along axis one after "
            f"the other, got {given}"
        )
    if not (unsafe or are_offsets) and bounds[-1] != size:
        raise RuntimeError(f"segment_reduce: lengths add up to {bounds[-1]}, data has {size} along axis")


def _reduced_segments(data: Any, bounds: Any, axis: int, reduce: str, initial: Any) -> Any:
    """The reductions of `segment_reduce`, for where segments begin and the last ends in a row each of all dimensions before `axis`.

    Every element is moved to the place of its segment, so that only tensors depend on the lengths. One more place takes the elements of
    no segment.
    """
    word, neutral = _SEGMENT_REDUCTIONS[reduce]
    before, size, behind = data.shape[:axis], data.shape[axis], data.shape[axis + 1 :]
    rows, count = bounds.shape[0], max(bounds.shape[1] - 1, 0)
    places = bounds.new_ones((rows, size)).cumsum(1) - 1
    segments = fb.searchsorted(bounds.contiguous(), places.to(bounds.dtype), right=True) - 1
    segments = segments.where(segments >= 0, count) + (segments.new_ones((rows, 1)).cumsum(0) - 1) * (count + 1)
    # Sums and products of many numbers are rounded once.
    wide = _WIDER.get(data.dtype, data.dtype) if word in ("sum", "prod") else data.dtype
    first = (0.0 if word == "sum" else neutral) if initial is None else float(initial)
    made = data.new_full((rows * (count + 1), *behind), first, dtype=wide)
    elements = data.reshape(rows * size, *behind).to(wide)
    if word == "sum":
        made = made.index_add(0, segments.flatten(), elements)
    else:
        made = made.index_reduce(0, segments.flatten(), elements, word, include_self=initial is not None)
    made = made.reshape(rows, count + 1, *behind).narrow(1, 0, count)
    if reduce == "mean":
        lengths = bounds.diff().reshape(rows, count, *(1 for _ in behind))
        empty = neutral if initial is None else float(initial)
        made = (made / lengths.clamp(min=1)).where(lengths > 0, empty)
    return made.to(data.dtype).reshape(*before, count, *behind)


# What sums and products of many numbers are made in.
_WIDER = {fb.float16: fb.float32, fb.bfloat16: fb.float32, fb.float32: fb.float64}


@overridable_function
def norm_except_dim(v: Any, pow: int = 2, dim: int = 0) -> Any:
    """The `pow`-norm of `v` over all dimensions but `dim` (-1: over all), with their sizes 1."""
    if dim == -1:
        return v.norm(pow)
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    return fb.linalg.vector_norm(v, pow, others, keepdim=True) if others else v.abs()


def _weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    """`v` scaled to have the norm `g` over all dimensions but `dim`."""
    return v * (g / norm_except_dim(v, 2, dim))


@overridable_function
def frobenius_norm(input: Any, dim: Any = (), keepdim: bool = False) -> Any:
    """The square root of the sum of squares over `dim`, all dimensions where it is empty."""
    return fb.linalg.vector_norm(input, 2, dim if isinstance(dim, int) or dim else None, keepdim)


@overridable_function
def nuclear_norm(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The sum of singular values of the matrices in the two dimensions `dim`, the only two where it is not given."""
    if isinstance(dim, bool):
        dim, keepdim = None, dim
    return fb.linalg.matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim)


# -- the rest ------------------------------------------------------------------------------------------------------------


@overridable_function
def native_dropout(input: Any, p: float, train: bool | None) -> tuple[Any, Any]:
    """`input` with elements zeroed with probability `p` and the others scaled by ``1 / (1 - p)``, and the mask of the others.

    `train` False changes nothing.
    """
    if not isinstance(input, fb.Tensor):
        raise TypeError(f"native_dropout(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    p = need_number("native_dropout", "p", p)
    if train is not None:
        need_bools("native_dropout", train=train)
    if train is False or p == 0:
        return input.clone(), fb.ones_like(input, dtype=fb.bool)
    mask = fb.empty_like(input).bernoulli_(1 - p).to(fb.bool)
    return input * mask * (0.0 if p == 1 else 1 / (1 - p)), mask


@overridable_function
def spmm(input: Any, mat2: Any) -> Any:
    """The product of two matrices. See `mm`."""
    return fb.mm(input, mat2)


def _grouped_mm(input: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """Products of groups with a matrix each. See `nn.functional.grouped_mm`."""
    return fb.nn.functional.grouped_mm(input, mat2, offs=offs, bias=bias, out_dtype=out_dtype)


_FLOAT8 = (fb.float8_e4m3fn, fb.float8_e4m3fnuz, fb.float8_e5m2, fb.float8_e5m2fnuz)


def _scaled_mm(
    input: Any, mat2: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None, out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    """The product of two matrices of 8-bit floating numbers, which stand for as many times a scale, computed in float32.

    Args:
        scale_a, scale_b: float32, of one element; or of a row of `input` each, (n, 1), and of a column of `mat2` each, (1, m).
        bias: added to each row.
        scale_result: not built.
        out_dtype: of the result; that of `input` by default.
        use_fast_accum: of no effect.
    Raises: RuntimeError for other dtypes or for shapes that do not fit.
    """
    if input.dtype not in _FLOAT8 or mat2.dtype not in _FLOAT8:
        raise RuntimeError(f"_scaled_mm: input and mat2 must be of 8-bit floating dtypes, got {input.dtype} and {mat2.dtype}")
    if input.dim() != 2 or mat2.dim() != 2 or input.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"_scaled_mm: input and mat2 must be matrices of shapes (n, k) and (k, m), got {tuple(input.shape)} and {tuple(mat2.shape)}"
        )
    for name, scale, rows in (("scale_a", scale_a, (input.shape[0], 1)), ("scale_b", scale_b, (1, mat2.shape[1]))):
        if scale.dtype is not fb.float32 or scale.numel() != 1 and tuple(scale.shape) != rows:
            raise RuntimeError(
                f"_scaled_mm: {name} must be of float32 and of one element or of the shape {rows}, got {scale.dtype} {tuple(scale.shape)}"
            )
    if scale_result is not None:
        raise _missing.not_built("_scaled_mm(scale_result=...)", "multiply the result")
    scales = [scale.reshape(()) if scale.numel() == 1 else scale for scale in (scale_a, scale_b)]
    made = fb.mm(input.float(), mat2.float()) * scales[0] * scales[1]
    if bias is not None:
        made = made + bias.float()
    return made.to(input.dtype if out_dtype is None else out_dtype)


def _segment_reduce(data: Any, reduce: str, **settings: Any) -> Any:
    """`segment_reduce` under the name that packages use."""
    return segment_reduce(data, reduce, **settings)


@overridable_function
def unsafe_split_with_sizes(input: Any, split_sizes: Sequence[int], dim: int = 0) -> tuple[Any, ...]:
    """Copies of the parts that `split_with_sizes` gives, of sizes `split_sizes` along `dim`."""
    return tuple(part.clone() for part in fb.split_with_sizes(input, split_sizes, dim))


@overridable_function
def detach_(input: Any) -> Any:
    """`input` without a history, see `Tensor.detach_`."""
    return input.detach_()


@overridable_function
def get_device(input: Any) -> int:
    """The number of the device of `input`, -1 for the CPU."""
    return input.get_device()


def is_vulkan_available() -> bool:
    """Whether there is a Vulkan device: none is supported."""
    return False


def cudnn_is_acceptable(tensor: Any) -> bool:
    """Whether cuDNN would compute with `tensor`: it is not used."""
    return False


def _shape_as_tensor(self: Any) -> Any:
    """The sizes of a tensor as a tensor of int64."""
    return fb.tensor(list(self.shape), dtype=fb.int64)


def _softmax(input: Any, dim: int, half_to_float: bool) -> Any:
    return fb.softmax(input, dim, dtype=fb.float32 if half_to_float else None)


def _log_softmax(input: Any, dim: int, half_to_float: bool) -> Any:
    return fb.log_softmax(input, dim, dtype=fb.float32 if half_to_float else None)


# -- quantization as it will round ---------------------------------------------------------------------------------------


def _check_range(name: str, input: Any, quant_min: int, quant_max: int) -> None:
    if not input.is_floating_point():
        raise NotImplementedError(f"{name}: input must be floating, got {input.dtype}")
    if quant_min > quant_max:
        raise RuntimeError(f"{name}: quant_min must not exceed quant_max, got {quant_min} and {quant_max}")


def _rounding() -> Any:
    class FakeQuantize(fb.autograd.Function):
        """Round to the grid; gradients pass where nothing was clamped."""

        @staticmethod
        def forward(ctx: Any, input: Any, scale: Any, zero_point: Any, low: int, high: int) -> Any:
            steps = _steps(input, scale, zero_point)
            ctx.save_for_backward((steps >= low) & (steps <= high))
            # nan rounds to the lowest step.
            return (fb.nan_to_num(steps, nan=low).clamp(low, high) - zero_point) * scale

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            (inside,) = ctx.saved_tensors
            return grads[0] * inside, None, None, None, None

    return FakeQuantize


def _steps(input: Any, scale: Any, zero_point: Any) -> Any:
    inverse = 1 / scale if isinstance(scale, fb.Tensor) else fb.tensor(1.0) / fb.tensor(scale, dtype=fb.float32)
    if isinstance(zero_point, fb.Tensor) and zero_point.is_floating_point():
        return fb.round(input * inverse + zero_point)
    return fb.round(input * inverse) + zero_point     # so halves go to the even number of steps from the zero point


@overridable_function
def fake_quantize_per_tensor_affine(input: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Any:
    """`input` rounded to ``(q - zero_point) * scale`` for integers q from `quant_min` to `quant_max`; nan to the lowest.

    The gradient is 1 where nothing was clamped and 0 elsewhere.

    Raises: RuntimeError if `zero_point` is outside of the range or the range is empty; NotImplementedError unless floating.
    """
    name = "fake_quantize_per_tensor_affine"
    _check_range(name, input, quant_min, quant_max)
    if not isinstance(zero_point, fb.Tensor) and not quant_min <= zero_point <= quant_max:
        raise RuntimeError(f"{name}: zero_point must lie between quant_min {quant_min} and quant_max {quant_max}, got {zero_point}")
    return _rounding().apply(input, scale, zero_point, quant_min, quant_max)


@overridable_function
def fake_quantize_per_channel_affine(
    input: Any, scale: Any, zero_point: Any, axis: int, quant_min: int, quant_max: int
) -> Any:
    """As `fake_quantize_per_tensor_affine`, with a scale and a zero point for each index of dimension `axis`.

    Args:
        scale: one float32 for each index of `axis`.
        zero_point: one int32 or floating number for each index of `axis`.
        quant_min, quant_max: the lowest and highest integer.
    Raises: RuntimeError for other sizes or dtypes, or a zero point outside of the range.
    """
    name = "fake_quantize_per_channel_affine"
    _check_range(name, input, quant_min, quant_max)
    if zero_point.dtype not in (fb.int32, fb.float32, fb.float16):
        raise RuntimeError(f"{name}: zero_point must be int32, float32 or float16, got {zero_point.dtype}")
    if scale.shape != (input.shape[axis],) or zero_point.shape != scale.shape:
        raise RuntimeError(
            f"{name}: scale and zero_point must have {input.shape[axis]} elements, got {tuple(scale.shape)} and {tuple(zero_point.shape)}"
        )
    if ((zero_point < quant_min) | (zero_point > quant_max)).any():
        raise RuntimeError(f"{name}: zero_point must lie between quant_min {quant_min} and quant_max {quant_max}")
    shape = [-1 if d == axis % input.dim() else 1 for d in range(input.dim())]
    return _rounding().apply(input, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max)


# -- checks --------------------------------------------------------------------------------------------------------------


def _check_with(error_type: type[Exception], cond: Any, message: Any = None) -> None:
    """Raise `error_type` with the text that `message()` gives, unless `cond` holds. Raises: TypeError if `cond` is no bool."""
    if cond.__class__ is SymBool:
        cond = cond.node.expect_true("", 0)           # what values of tensors decide, the graph asserts
    if not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        raise error_type("Expected cond to be True, but got False.")
    if not callable(message):
        raise TypeError("message must be a callable")
    raise error_type(str(message()))


def _check(cond: Any, message: Any = None) -> None:
    """Raise RuntimeError with the text that `message()` gives, unless `cond` holds."""
    _check_with(RuntimeError, cond, message)


def _check_index(cond: Any, message: Any = None) -> None:
    """As `_check`, with IndexError."""
    _check_with(IndexError, cond, message)


def _check_value(cond: Any, message: Any = None) -> None:
    """As `_check`, with ValueError."""
    _check_with(ValueError, cond, message)


def _check_type(cond: Any, message: Any = None) -> None:
    """As `_check`, with TypeError."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Any = None) -> None:
    """As `_check`, with NotImplementedError."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: Any, message: Any = None, *, max: int | None = None) -> None:
    """Raise RuntimeError unless `i` may be a size: at least 0, and at most `max`."""
    if i.__class__ is SymInt:
        _check(is_claimed_to_be_a_size(i), message)
        if max is not None:
            _check(i <= max, message)
        return
    _check(i >= 0 and (max is None or i <= max), message)


def _check_tensor_all_with(error_type: type[Exception], cond: Any, message: Any = None) -> None:
    """As `_check_with`, for all elements of a tensor."""
    if not isinstance(cond, fb.Tensor) or cond.dtype != fb.bool:
        raise TypeError(f"cond must be a tensor of bool, but got {getattr(cond, 'dtype', type(cond))}")
    _check_with(error_type, bool(cond.all()), message)


def _check_tensor_all(cond: Any, message: Any = None) -> None:
    """As `_check`, for all elements of a tensor."""
    _check_tensor_all_with(RuntimeError, cond, message)


# -- numbers that may be symbols -----------------------------------------------------------------------------------------


def _of_numbers(fn: Any) -> Any:
    """A public function of numbers: what stands in for one, as a Proxy does, has a say in it."""
    made = overridable_function(fn)
    made.__module__ = "flambeau"
    return made


sym_float, sym_int, sym_not = _of_numbers(_symbolic.sym_float), _of_numbers(_symbolic.sym_int), _of_numbers(_symbolic.sym_not)
sym_max, sym_min, sym_ite = _of_numbers(_symbolic.sym_max), _of_numbers(_symbolic.sym_min), _of_numbers(_symbolic.sym_ite)
sym_sum, sym_sqrt = _of_numbers(_symbolic.sym_sum), _of_numbers(_symbolic.sym_sqrt)

"""Arguments that fit together, for ops whose parameters depend on each other: what the op fuzzer begins with.

A recipe draws a call that PyTorch mostly answers, as parameter names and texts; the fuzzer then changes it in one place or two.
Parameters that a recipe leaves out keep their defaults. Ops without a recipe get arguments by the names of their parameters.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from fuzz.values import FLOATS, Draw

__all__ = ["RECIPES"]

Call = dict[str, str]
Recipe = Callable[[Draw], Call]
RECIPES: dict[str, Recipe] = {}


def recipe(*names: str) -> Callable[[Recipe], Recipe]:
    def keep(fn: Recipe) -> Recipe:
        RECIPES.update(dict.fromkeys(names, fn))
        return fn

    return keep


def _some(d: Draw, **optional: Any) -> Call:
    """Each of the optional arguments, half the time."""
    return {name: str(value) for name, value in optional.items() if d.chance(0.5)}


def _per(d: Draw, n: int, choices: tuple[int, ...]) -> str:
    """A number for all of n dimensions, or one for each."""
    if d.chance(0.5):
        return repr(d.choice(choices))
    return repr(tuple(d.choice(choices) for _ in range(n)))


def _batched(d: Draw, *rest: int) -> tuple[int, ...]:
    return (*(d.choice((0, 1, 2, 3)) for _ in range(d.choice((0, 0, 1, 1, 2)))), *rest)


def _n(d: Draw) -> int:
    return d.choice((0, 1, 2, 3, 3, 4, 5, 8))


# -- convolutions, pools, resampling ---------------------------------------------------------------------------------------


def _planes(d: Draw, n: int, low: int = 1, batch: bool = True) -> tuple[int, ...]:
    outer = (d.choice((0, 1, 2, 2, 3)),) if batch and d.chance(0.85) else ()
    return (*outer, d.choice((1, 2, 3, 4, 8, 16)), *(d.choice((low, 4, 5, 6, 9, 16)) for _ in range(n)))


def _conv(n: int, turned: bool) -> Recipe:
    def draw(d: Draw) -> Call:
        groups = d.choice((1, 1, 1, 2, 4))
        channels, outs = groups * d.choice((1, 1, 2, 4, 8)), groups * d.choice((1, 1, 2, 3, 8))
        shape = (*((d.choice((0, 1, 2, 3)),) if d.chance(0.85) else ()), channels, *(d.choice((1, 3, 5, 8, 11)) for _ in range(n)))
        kernel = tuple(d.choice((1, 2, 3, 3, 5)) for _ in range(n))
        weight = (channels, outs // groups, *kernel) if turned else (outs, channels // groups, *kernel)
        dtype = d.dtype(FLOATS)
        call = {"input": d.tensor(shape, dtype), "weight": d.tensor(weight, dtype)}
        call |= _some(d, bias=d.tensor((outs,), dtype), stride=_per(d, n, (1, 1, 2, 3)), dilation=_per(d, n, (1, 1, 2)))
        call |= _some(d, padding=_per(d, n, (0, 1, 2)))
        if not turned and d.chance(0.1):
            call["padding"] = d.choice(("'same'", "'valid'", "'x'"))
        if turned:
            call |= _some(d, output_padding=_per(d, n, (0, 0, 1)))
        return call | ({"groups": str(groups)} if groups > 1 or d.chance(0.1) else {})

    return draw


def _pool(n: int, kind: str) -> Recipe:
    def draw(d: Draw) -> Call:
        call = {"input": d.tensor(_planes(d, n), d.dtype(FLOATS))}
        if kind == "lp":
            call["norm_type"] = d.choice(("1", "2", "3.0", "float('inf')"))
        call["kernel_size"] = _per(d, n, (1, 2, 2, 3))
        call |= _some(d, stride=_per(d, n, (1, 2, 2, 3)), ceil_mode=d.chance(0.5))
        if kind in ("max", "avg"):
            call |= _some(d, padding=_per(d, n, (0, 0, 1)))
        if kind == "max":
            call |= _some(d, dilation=_per(d, n, (1, 1, 2)), return_indices=d.chance(0.5))
        if kind == "avg":
            call |= _some(d, count_include_pad=d.chance(0.5))
            call |= _some(d, divisor_override=d.choice((None, 1, 3, 0, -2))) if n > 1 else {}
        return call

    return draw


def _adaptive(n: int) -> Recipe:
    def draw(d: Draw) -> Call:
        return {"input": d.tensor(_planes(d, n), d.dtype(FLOATS)), "output_size": _per(d, n, (0, 1, 2, 3, 5, 7))}

    return draw


def _unpool(n: int) -> Recipe:
    def draw(d: Draw) -> Call:
        shape = _planes(d, n)
        call = {"input": d.tensor(shape, d.dtype(FLOATS)), "indices": d.ints(0, max(1, 2**n * shape[-1]), shape), "kernel_size": "2"}
        return call | _some(d, stride=_per(d, n, (1, 2, 3)), padding=_per(d, n, (0, 1)))

    return draw


def _fractional(n: int) -> Recipe:
    def draw(d: Draw) -> Call:
        shape = _planes(d, n, 4)
        call = {"input": d.tensor(shape, d.dtype(FLOATS)), "kernel_size": _per(d, n, (1, 2, 3))}
        call |= {"output_size": _per(d, n, (1, 2, 3))} if d.chance(0.5) else {"output_ratio": d.choice(("0.5", "(0.5, 0.7)", "0.3"))}
        samples = (shape[0] if len(shape) == n + 2 else 1, shape[-n - 1], n)
        if d.chance(0.7):
            call["_random_samples"] = f"{d.tensor(samples, 'float32', 0.1, 0.2)}.detach().abs().clamp(max=0.99)"
        if d.chance(0.15):
            call["_random_samples"] = d.tensor(samples, "float32", 0.1, 0.5)
        return call | _some(d, return_indices=d.chance(0.5))

    return draw


for _i in (1, 2, 3):
    RECIPES[f"nn.functional.conv{_i}d"] = RECIPES[f"conv{_i}d"] = _conv(_i, False)
    RECIPES[f"nn.functional.conv_transpose{_i}d"] = RECIPES[f"conv_transpose{_i}d"] = _conv(_i, True)
    RECIPES[f"nn.functional.max_unpool{_i}d"] = _unpool(_i)
    for _kind in ("max", "avg", "lp"):
        RECIPES[f"nn.functional.{_kind}_pool{_i}d"] = RECIPES[f"{_kind}_pool{_i}d"] = _pool(_i, _kind)
    RECIPES[f"nn.functional.max_pool{_i}d_with_indices"] = _pool(_i, "max")
    for _kind in ("max", "avg"):
        RECIPES[f"nn.functional.adaptive_{_kind}_pool{_i}d"] = RECIPES[f"adaptive_{_kind}_pool{_i}d"] = _adaptive(_i)
    RECIPES[f"nn.functional.adaptive_max_pool{_i}d_with_indices"] = _adaptive(_i)
    if _i > 1:
        RECIPES[f"nn.functional.fractional_max_pool{_i}d"] = _fractional(_i)
        RECIPES[f"nn.functional.fractional_max_pool{_i}d_with_indices"] = _fractional(_i)


@recipe("nn.functional.conv_tbc", "conv_tbc")
def _(d: Draw) -> Call:
    channels, outs = d.choice((1, 2, 3)), d.choice((1, 2, 4))
    call = {"input": d.tensor((_n(d), 2, channels)), "weight": d.tensor((d.choice((1, 2, 3)), channels, outs)), "bias": d.tensor((outs,))}
    return call | _some(d, pad=d.choice((0, 1, 2)))


@recipe("convolution")
def _(d: Draw) -> Call:
    call = {"stride": "(1, 1)", "padding": "(0, 0)", "dilation": "(1, 1)", "output_padding": "(0, 0)", "groups": "1", "bias": "None"}
    turned = d.chance(0.4)
    call |= _conv(2, turned)(d) | {"transposed": str(turned)}
    for name in ("stride", "padding", "dilation", "output_padding"):
        if call[name][0].isdigit():
            call[name] = f"({call[name]},)"
    order = ("input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups")
    return {name: call[name] for name in order}


@recipe("nn.functional.unfold")
def _(d: Draw) -> Call:
    call = {"input": d.tensor(_planes(d, 2), d.dtype(FLOATS)), "kernel_size": _per(d, 2, (1, 2, 3))}
    return call | _some(d, dilation=_per(d, 2, (1, 2)), padding=_per(d, 2, (0, 1)), stride=_per(d, 2, (1, 2)))


@recipe("nn.functional.fold")
def _(d: Draw) -> Call:
    h, w, k = d.choice((2, 3, 5)), d.choice((2, 3, 4)), d.choice((1, 2))
    shape = (*((d.choice((0, 1, 2)),) if d.chance(0.8) else ()), d.choice((1, 2)) * k * k, (h - k + 1) * (w - k + 1))
    return {"input": d.tensor(shape, d.dtype(FLOATS)), "output_size": repr((h, w)), "kernel_size": str(k)}


@recipe("nn.functional.interpolate", "nn.functional.upsample")
def _(d: Draw) -> Call:
    n = d.choice((1, 2, 2, 3))
    mode = d.choice(("'nearest'", {1: "'linear'", 2: d.choice(("'bilinear'", "'bicubic'")), 3: "'trilinear'"}[n], "'nearest-exact'", "'area'"))
    call = {"input": d.tensor((d.choice((0, 1, 2)), d.choice((1, 2, 3, 8)), *(d.choice((1, 3, 4, 7)) for _ in range(n))), d.dtype(FLOATS))}
    call |= {"size": _per(d, n, (1, 2, 5, 8))} if d.chance(0.5) else {"scale_factor": d.choice(("2", "0.5", "1.7", "1e-3", "3"))}
    call["mode"] = mode
    if "linear" in mode or "cubic" in mode:
        call |= _some(d, align_corners=d.chance(0.5))
    if mode in ("'bilinear'", "'bicubic'"):
        call |= _some(d, antialias=d.chance(0.5))
    return call


@recipe("nn.functional.upsample_nearest", "nn.functional.upsample_bilinear")
def _(d: Draw) -> Call:
    return {"input": d.tensor((1, 2, 3, 4), d.dtype(FLOATS))} | ({"size": "5"} if d.chance(0.5) else {"scale_factor": "2"})


@recipe("nn.functional.grid_sample", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def _(d: Draw) -> Call:
    n, batch, dtype = d.choice((2, 2, 3)), d.choice((0, 1, 2)), d.dtype(FLOATS)
    shape = (batch, d.choice((1, 2, 3)), *(d.choice((1, 2, 4)) for _ in range(n)))
    grid = (batch, *(d.choice((0, 1, 2, 3)) for _ in range(n)), n)
    call = {"input": d.tensor(shape, dtype), "grid": d.tensor(grid, dtype, special=0.3)}
    return call | _some(
        d, mode=d.choice(("'bilinear'", "'nearest'", "'bicubic'")), padding_mode=d.choice(("'zeros'", "'border'", "'reflection'")),
        align_corners=d.chance(0.5),
    )  # fmt: skip


@recipe("nn.functional.affine_grid")
def _(d: Draw) -> Call:
    n = d.choice((2, 3))
    batch = d.choice((1, 2))
    return {"theta": d.tensor((batch, n, n + 1), d.dtype(FLOATS)), "size": repr((batch, 1, *(d.choice((1, 2, 3)) for _ in range(n))))}


@recipe("nn.functional.pad")
def _(d: Draw) -> Call:
    n = d.choice((1, 2, 3))
    pads = tuple(d.choice((0, 0, 1, 1, 2, -1)) for _ in range(2 * n))
    call = {"input": d.tensor(_planes(d, n, 3), d.dtype()), "pad": repr(pads)}
    mode = d.choice(("'constant'", "'reflect'", "'replicate'", "'circular'"))
    return call | {"mode": mode} | (_some(d, value=d.choice((0, 1.5, -2))) if mode == "'constant'" else {})


@recipe("nn.functional.pixel_shuffle", "pixel_shuffle")
def _(d: Draw) -> Call:
    r = d.choice((1, 2, 3))
    return {"input": d.tensor(_batched(d, r * r * 2, 2, 3), d.dtype()), "upscale_factor": str(r)}


@recipe("nn.functional.pixel_unshuffle", "pixel_unshuffle")
def _(d: Draw) -> Call:
    r = d.choice((1, 2, 3))
    return {"input": d.tensor(_batched(d, 2, r * 2, r), d.dtype()), "downscale_factor": str(r)}


@recipe("nn.functional.channel_shuffle", "channel_shuffle", "nn.functional.native_channel_shuffle", "native_channel_shuffle")
def _(d: Draw) -> Call:
    return {"input": d.tensor((2, 6, *d.shape(2)), d.dtype()), "groups": d.choice(("1", "2", "3", "4"))}


# -- normalizations, linear maps, attention --------------------------------------------------------------------------------


@recipe("nn.functional.batch_norm", "batch_norm", "nn.functional.instance_norm", "instance_norm", "native_batch_norm")
def _(d: Draw) -> Call:
    shape, dtype = (d.choice((0, 1, 2, 3)), d.choice((1, 2, 3, 8)), *d.shape(d.choice((0, 1, 2, 3)))), d.dtype(FLOATS)
    c = (shape[1],)
    call = {"input": d.tensor(shape, dtype), "running_mean": f"{d.tensor(c, dtype)}.detach()", "running_var": f"{d.tensor(c, dtype)}.detach().abs()"}
    if d.chance(0.2):
        call |= {"running_mean": "None", "running_var": "None"}
    call |= _some(d, weight=d.tensor(c, dtype), bias=d.tensor(c, dtype), momentum=d.choice((0.1, 0.0, 1)), eps=d.choice((1e-5, 0.0, 0.1)))
    return call | _some(d, **{d.choice(("training", "training", "use_input_stats")): d.chance(0.5)})


@recipe("nn.functional.layer_norm", "layer_norm", "nn.functional.rms_norm", "rms_norm")
def _(d: Draw) -> Call:
    n, dtype = d.choice((1, 1, 2)), d.dtype(FLOATS)
    shape = d.shape(n + d.choice((0, 1, 2)))
    call = {"input": d.tensor(shape, dtype), "normalized_shape": repr(shape[-n:])}
    return call | _some(d, weight=d.tensor(shape[-n:], dtype), bias=d.tensor(shape[-n:], dtype), eps=d.choice((1e-5, 0.0)))


@recipe("native_layer_norm")
def _(d: Draw) -> Call:
    shape = d.shape(3)
    return {"input": d.tensor(shape), "normalized_shape": repr(shape[-1:]), "weight": d.tensor(shape[-1:]), "bias": "None", "eps": "1e-5"}


@recipe("nn.functional.group_norm", "group_norm")
def _(d: Draw) -> Call:
    groups, dtype = d.choice((1, 2, 3)), d.dtype(FLOATS)
    c = groups * d.choice((1, 2, 4))
    call = {"input": d.tensor((d.choice((0, 1, 2)), c, *d.shape(d.choice((0, 1, 2)))), dtype), "num_groups": str(groups)}
    return call | _some(d, weight=d.tensor((c,), dtype), bias=d.tensor((c,), dtype), eps=d.choice((1e-5, 0.0)))


@recipe("nn.functional.local_response_norm")
def _(d: Draw) -> Call:
    return {"input": d.tensor(_planes(d, d.choice((1, 2))), d.dtype(FLOATS)), "size": d.choice(("1", "2", "3", "5"))}


@recipe("nn.functional.linear")
def _(d: Draw) -> Call:
    i, o, dtype = _n(d), _n(d), d.dtype(FLOATS)
    return {"input": d.tensor(_batched(d, i), dtype), "weight": d.tensor((o, i), dtype)} | _some(d, bias=d.tensor((o,), dtype))


@recipe("nn.functional.bilinear", "bilinear")
def _(d: Draw) -> Call:
    i, j, o, dtype = _n(d), _n(d), _n(d), d.dtype(FLOATS)
    batch = _batched(d)
    call = {"input1": d.tensor((*batch, i), dtype), "input2": d.tensor((*batch, j), dtype), "weight": d.tensor((o, i, j), dtype)}
    return call | _some(d, bias=d.tensor((o,), dtype))


@recipe("nn.functional.scaled_dot_product_attention")
def _(d: Draw) -> Call:
    batch, dtype, e = tuple(d.choice((0, 1, 2, 3)) for _ in range(d.choice((1, 2, 2)))), d.dtype(FLOATS), d.choice((1, 2, 4, 8))
    l, s = d.choice((0, 1, 3, 5, 17)), d.choice((1, 3, 5, 17))
    call = {"query": d.tensor((*batch, l, e), dtype), "key": d.tensor((*batch, s, e), dtype), "value": d.tensor((*batch, s, d.choice((e, 3))), dtype)}
    if d.chance(0.3):
        call["is_causal"] = "True"
    elif d.chance(0.5):
        call["attn_mask"] = d.tensor(d.choice(((l, s), (*batch, l, s), (1, s))), d.choice((dtype, "bool")))
    return call | _some(d, scale=d.choice((None, 0.5, 2.0)))


# -- embeddings, losses ----------------------------------------------------------------------------------------------------


@recipe("nn.functional.embedding", "embedding")
def _(d: Draw) -> Call:
    rows = d.choice((1, 2, 5))
    call = {"input": d.ints(0, rows, d.shape()), "weight": d.tensor((rows, _n(d)), d.dtype(FLOATS))}
    return call | _some(d, padding_idx=d.choice((None, 0, -1, rows - 1))) | (_some(d, scale_grad_by_freq=d.chance(0.5)))


@recipe("nn.functional.embedding_bag", "embedding_bag")
def _(d: Draw) -> Call:
    rows, count, dtype = d.choice((1, 2, 5)), _n(d), d.dtype(FLOATS)
    mode = d.choice(("'mean'", "'sum'", "'max'"))
    if d.chance(0.4):
        shape: tuple[int, ...] = (_n(d), count)
        call = {"input": d.ints(0, rows, shape), "weight": d.tensor((rows, _n(d)), dtype)}
    else:
        shape = (count,)
        ends = sorted(d.randrange(count + 1) for _ in range(d.choice((0, 1, 3))))
        offsets = [0, *ends] if d.chance(0.85) else [d.randrange(-3, count + 3) for _ in range(3)]
        call = {"input": d.ints(0, rows, shape), "weight": d.tensor((rows, _n(d)), dtype), "offsets": f"torch.tensor({offsets!r})"}
        call |= _some(d, include_last_offset=d.chance(0.5))
    call["mode"] = mode
    # Where the last offset is the only one, PyTorch writes beside its arrays for the gradient of weights.
    if mode == "'sum'" and "[0]" not in call.get("offsets", ""):
        call |= _some(d, per_sample_weights=d.tensor(shape, dtype))
    return call | _some(d, padding_idx=d.choice((None, 0, rows - 1, -1)), scale_grad_by_freq=mode != "'max'" and d.chance(0.3))


@recipe("nn.functional.one_hot")
def _(d: Draw) -> Call:
    return {"tensor": d.ints(0, 4, d.shape())} | _some(d, num_classes=d.choice((-1, 4, 6)))


@recipe("nn.functional.cross_entropy", "nn.functional.nll_loss")
def _(d: Draw) -> Call:
    classes, rest, dtype = d.choice((1, 2, 3, 5, 17)), d.shape(d.choice((0, 0, 1, 2))), d.dtype(FLOATS)
    batch = (d.choice((0, 1, 2, 4)),) if d.chance(0.85) or rest else ()
    shape = (*batch, classes, *rest)
    target = d.ints(0, classes, (*batch, *rest)) if d.chance(0.85) else d.tensor(shape, dtype)
    call = {"input": d.tensor(shape, dtype), "target": target}
    call |= _some(d, weight=d.tensor((classes,), dtype), ignore_index=d.choice((-100, 0, 1, -1)), reduction=_reduction(d))
    return call


@recipe("nn.functional.nll_loss2d")
def _(d: Draw) -> Call:
    return {"input": d.tensor((2, 3, 4, 5)), "target": d.ints(0, 3, (2, 4, 5))}


def _reduction(d: Draw) -> str:
    return d.choice(("'mean'", "'sum'", "'none'"))


@recipe("nn.functional.ctc_loss", "ctc_loss")
def _(d: Draw) -> Call:
    steps, batch, classes, longest = d.choice((1, 3, 5, 9)), d.choice((0, 1, 2, 3)), d.choice((1, 2, 4)), d.choice((0, 1, 2, 4))
    dtype = d.dtype(FLOATS[:2])
    call = {"log_probs": f"{d.tensor((steps, batch, classes), dtype)}.log_softmax(-1)"}
    lengths = [d.randrange(longest + 1) for _ in range(batch)]
    if d.chance(0.5):
        call["targets"] = d.ints(1, classes, (batch, longest), d.choice(("int64", "int32")))
    else:
        call["targets"] = d.ints(1, classes, (sum(lengths),), d.choice(("int64", "int32")))
    steps_of = [d.choice((steps, steps, d.randrange(steps + 1))) for _ in range(batch)]
    if d.chance(0.1) and batch:
        lengths[0] = d.choice((-1, longest + 1, 1 << 40))
    if d.chance(0.1) and batch:
        steps_of[0] = d.choice((-1, steps + 1, 1 << 40))
    as_tensor = d.chance(0.7)
    call["input_lengths"] = f"torch.tensor({steps_of!r}, dtype=torch.int64)" if as_tensor else repr(tuple(steps_of))
    call["target_lengths"] = f"torch.tensor({lengths!r}, dtype=torch.int64)" if as_tensor else repr(tuple(lengths))
    return call | _some(d, blank=d.choice((0, 0, classes - 1)), reduction=_reduction(d), zero_infinity=d.chance(0.5))


@recipe("nn.functional.multi_margin_loss", "nn.functional.multilabel_margin_loss", "nn.functional.multilabel_soft_margin_loss")
def _(d: Draw) -> Call:
    n, c, dtype = d.choice((0, 1, 2, 3)), d.choice((1, 2, 4)), d.dtype(FLOATS)
    target = d.choice((d.ints(0, c, (n,)), d.ints(-1, c, (n, c)), d.tensor((n, c), dtype)))
    return {"input": d.tensor((n, c), dtype), "target": target} | _some(d, reduction=_reduction(d))


@recipe("nn.functional.cosine_embedding_loss", "nn.functional.margin_ranking_loss")
def _(d: Draw) -> Call:
    shape, dtype = d.shape(2), d.dtype(FLOATS)
    call = {"input1": d.tensor(shape, dtype), "input2": d.tensor(shape, dtype), "target": d.choice((d.tensor(shape[:1]), d.tensor(shape)))}
    return call | _some(d, margin=d.choice((0, 0.5, -1)), reduction=_reduction(d))


@recipe("nn.functional.triplet_margin_loss", "nn.functional.triplet_margin_with_distance_loss", "triplet_margin_loss")
def _(d: Draw) -> Call:
    shape, dtype = d.shape(d.choice((1, 2, 3))), d.dtype(FLOATS)
    call = {name: d.tensor(shape, dtype) for name in ("anchor", "positive", "negative")}
    return call | _some(d, margin=d.choice((1.0, 0.5)), swap=d.chance(0.5), reduction=_reduction(d))


@recipe("nn.functional.gaussian_nll_loss")
def _(d: Draw) -> Call:
    shape = d.shape(2)
    return {"input": d.tensor(shape), "target": d.tensor(shape), "var": f"{d.tensor(d.choice((shape, shape[:1], (*shape[:1], 1))))}.abs()"}


@recipe("nn.functional.pdist", "pdist")
def _(d: Draw) -> Call:
    return {"input": d.tensor((_n(d), _n(d)), d.dtype(FLOATS))} | _some(d, p=d.choice((0, 1, 2, 3.5, "float('inf')")))


@recipe("cdist")
def _(d: Draw) -> Call:
    m, batch, dtype = _n(d), _batched(d), d.dtype(FLOATS)
    call = {"x1": d.tensor((*batch, _n(d), m), dtype), "x2": d.tensor((*batch, _n(d), m), dtype)}
    return call | _some(d, p=d.choice((0, 1.0, 2.0, 3.5, "float('inf')")))


@recipe("nn.functional.cosine_similarity", "cosine_similarity", "nn.functional.pairwise_distance", "pairwise_distance")
def _(d: Draw) -> Call:
    shape, dtype = d.shape(2), d.dtype(FLOATS)
    return {"x1": d.tensor(shape, dtype), "x2": d.tensor(d.near(shape), dtype)}


# -- products and decompositions -------------------------------------------------------------------------------------------

NUMBERS = (*FLOATS[:2], "complex64", "complex128")


@recipe("mm", "matmul", "mv", "bmm", "linalg.matmul")
def _(d: Draw) -> Call:
    n, m, k, dtype = _n(d), _n(d), _n(d), d.dtype()
    batch = (d.choice((0, 1, 2)),) if d.chance(0.3) else ()
    second = "vec" if d.chance(0.1) else "mat2" if d.chance(0.7) else "other"
    return {"input": d.tensor((*batch, n, m), dtype), second: d.tensor((*batch, m, k) if second != "vec" else (m,), dtype)}


@recipe("addmm", "addbmm", "baddbmm", "addmv", "addr", "sspaddmm")
def _(d: Draw) -> Call:
    n, m, k, dtype = _n(d), _n(d), _n(d), d.dtype()
    batch = (d.choice((0, 1, 2)),) if d.chance(0.5) else ()
    names = ("batch1", "batch2") if batch else ("mat1", "mat2")
    call = {"input": d.tensor(d.choice(((*batch, n, k), (n, k), (k,), (n, 1))), dtype), names[0]: d.tensor((*batch, n, m), dtype)}
    return call | {names[1]: d.tensor((*batch, m, k), dtype)} | _some(d, beta=d.choice((0, 1, 2, 0.5)), alpha=d.choice((0, 1, 2, 0.5)))


def _square(d: Draw) -> tuple[int, ...]:
    n = d.choice((0, 1, 2, 3, 3, 5))
    return _batched(d, n, n)


def _matrix(d: Draw) -> tuple[int, ...]:
    return _square(d) if d.chance(0.4) else _batched(d, _n(d), _n(d))


@recipe(
    "linalg.svd", "svd", "linalg.svdvals", "linalg.pinv", "pinverse", "linalg.matrix_rank", "linalg.cond", "linalg.qr", "qr", "linalg.lu",
    "linalg.lu_factor", "linalg.lu_factor_ex", "linalg.norm", "norm", "linalg.vander", "geqrf", "lu", "svd_lowrank", "pca_lowrank",
    "logdet", "linalg.eigvals", "linalg.eig", "nuclear_norm", "frobenius_norm",
)  # fmt: skip
def _(d: Draw) -> Call:
    return {"A": d.tensor(_matrix(d), d.dtype(NUMBERS), special=0.3)}


@recipe(
    "linalg.det", "det", "linalg.slogdet", "slogdet", "linalg.inv", "inverse", "linalg.inv_ex", "linalg.eigh", "linalg.eigvalsh",
    "linalg.cholesky", "cholesky", "linalg.cholesky_ex", "linalg.matrix_exp", "matrix_exp", "linalg.ldl_factor", "linalg.ldl_factor_ex",
    "cholesky_inverse",
)  # fmt: skip
def _(d: Draw) -> Call:
    shape = _square(d)
    text = d.tensor(shape, d.dtype(NUMBERS), special=0.2)
    return {"A": f"(lambda a: a @ a.mH + torch.eye({shape[-1]}, dtype=a.dtype))({text})" if d.chance(0.4) else text}


@recipe("linalg.matrix_norm")
def _(d: Draw) -> Call:
    return {"A": d.tensor(_matrix(d), d.dtype(NUMBERS), special=0.2), "ord": d.choice(("'fro'", "'nuc'", "1", "2", "-1", "-2", "float('inf')"))}


@recipe("linalg.matrix_power", "matrix_power")
def _(d: Draw) -> Call:
    return {"A": d.tensor(_square(d), d.dtype(NUMBERS)), "n": d.choice(("-2", "-1", "0", "1", "2", "3", "7", "-3"))}


@recipe("linalg.solve", "linalg.solve_ex", "linalg.lstsq", "linalg.tensorsolve", "linalg.solve_triangular", "triangular_solve", "lu_solve")
def _(d: Draw) -> Call:
    shape, dtype = _square(d), d.dtype(NUMBERS)
    return {"A": d.tensor(shape, dtype, special=0.1), "B": d.tensor((*shape[:-1], d.choice((0, 1, 2))), dtype)} | _some(d, left=d.chance(0.7))


@recipe("cholesky_solve")
def _(d: Draw) -> Call:
    shape = _square(d)
    return {"B": d.tensor((*shape[:-1], 2)), "L": d.tensor(shape)} | _some(d, upper=d.chance(0.5))


@recipe("linalg.ldl_solve", "linalg.lu_solve")
def _(d: Draw) -> Call:
    shape, dtype = _square(d), d.dtype(NUMBERS)
    return {"LU": d.tensor(shape, dtype), "pivots": d.ints(1, shape[-1] + 1, shape[:-1], "int32"), "B": d.tensor((*shape[:-1], 2), dtype)}


@recipe("lu_unpack")
def _(d: Draw) -> Call:
    shape = _matrix(d)
    return {"LU_data": d.tensor(shape), "LU_pivots": d.ints(1, shape[-2] + 1, (*shape[:-2], min(shape[-2:])), "int32")}


@recipe("ormqr")
def _(d: Draw) -> Call:
    n = d.choice((1, 2, 3))
    return {"input": d.tensor((n, n)), "tau": d.tensor((n,)), "other": d.tensor((n, 2))} | _some(d, left=d.chance(0.5), transpose=d.chance(0.5))


@recipe("linalg.householder_product", "orgqr")
def _(d: Draw) -> Call:
    n, m = d.choice((1, 2, 3)), d.choice((3, 4))
    return {"input": d.tensor((m, n)), "tau": d.tensor((n,))}


@recipe("linalg.multi_dot", "chain_matmul")
def _(d: Draw) -> Call:
    n = [_n(d) for _ in range(4)]
    return {"tensors": f"[{', '.join(d.tensor((a, b)) for a, b in itertools.pairwise(n))}]"}


@recipe("einsum")
def _(d: Draw) -> Call:
    equation = d.choice(("ij,jk->ik", "ij,jk", "bij,bjk->bik", "ii->i", "ii", "ij->ji", "...i,i->...", "i,j->ij", "ij,ij->", "ab,bc,cd->ad", "ij,kj->k"))
    operands = [d.tensor(tuple(3 for _ in term if _ != ".")) for term in equation.partition("->")[0].split(",")]
    return {"equation": repr(equation), "*operands": ", ".join(operands)}


@recipe("tensordot")
def _(d: Draw) -> Call:
    a, b, c = _n(d), _n(d), _n(d)
    return {"a": d.tensor((a, b, c)), "b": d.tensor((b, c, 2)), "dims": d.choice(("2", "([1, 2], [0, 1])", "0", "([2], [1])", "1"))}


@recipe("linalg.cross", "cross")
def _(d: Draw) -> Call:
    return {"input": d.tensor((_n(d), 3), d.dtype()), "other": d.tensor((1, 3), d.dtype())} | _some(d, dim=d.choice((-1, 1)))


# -- indexing --------------------------------------------------------------------------------------------------------------


def _along(d: Draw) -> tuple[tuple[int, ...], int]:
    shape = d.shape(d.choice((1, 1, 2, 3)))
    return shape, d.randrange(-len(shape), len(shape))


@recipe("gather", "take_along_dim")
def _(d: Draw) -> Call:
    shape, dim = _along(d)
    index = tuple(min(n, d.choice((1, 2, n))) for n in shape)
    return {"input": d.tensor(shape, d.dtype()), "dim": str(dim), "index": d.ints(0, max(shape[dim], 1), index)}


@recipe("scatter", "scatter_add", "scatter_reduce", "Tensor.scatter_", "Tensor.scatter_add_")
def _(d: Draw) -> Call:
    shape, dim = _along(d)
    index, dtype = tuple(min(n, d.choice((1, 2, n))) for n in shape), d.dtype()
    call = {"input": d.tensor(shape, dtype), "dim": str(dim), "index": d.ints(0, max(shape[dim], 1), index), "src": d.tensor(shape, dtype)}
    return call | _some(d, reduce=d.choice(("'sum'", "'prod'", "'mean'", "'amax'", "'amin'", "'add'", "'multiply'")))


@recipe("index_add", "index_copy", "index_fill", "index_reduce", "index_select")
def _(d: Draw) -> Call:
    shape, dim = _along(d)
    dtype, count = d.dtype(), _n(d)
    source = tuple(count if i == dim % len(shape) else n for i, n in enumerate(shape))
    call = {"input": d.tensor(shape, dtype), "dim": str(dim), "index": d.ints(0, max(shape[dim], 1), (count,), d.choice(("int64", "int32")))}
    if d.chance(0.75):
        call["source"] = d.tensor(source, dtype)
        call |= {"reduce": d.choice(("'prod'", "'mean'", "'amax'", "'amin'"))} if d.chance(0.4) else {}
    elif d.chance(0.5):
        call["value"] = d.choice(("0", "1.5", "rand(())"))
    return call


@recipe("take", "put", "Tensor.put_")
def _(d: Draw) -> Call:
    shape, dtype = d.shape(), d.dtype()
    index, count = d.shape(), 1
    for n in shape:
        count *= n
    call = {"input": d.tensor(shape, dtype), "index": d.ints(-count, max(count, 1), index)}
    return call | ({"source": d.tensor(index, dtype)} | _some(d, accumulate=d.chance(0.5)) if d.chance(0.5) else {})


@recipe("index_put", "Tensor.index_put_", "_unsafe_index_put")
def _(d: Draw) -> Call:
    shape, dtype = d.shape(2), d.dtype()
    count = _n(d)
    index = [d.ints(-n, max(n, 1), (count,)) for n in shape[: d.choice((1, 2))]]
    values = (count,) if len(index) == 2 else (count, shape[1])
    return {"input": d.tensor(shape, dtype), "indices": f"({', '.join(index)},)", "values": d.tensor(values, dtype)} | _some(d, accumulate=d.chance(0.5))


@recipe("Tensor.__getitem__")
def _(d: Draw) -> Call:
    shape = d.shape(d.choice((1, 2, 3)))
    return {"self": d.tensor(shape, d.dtype()), "key": _key(d, shape)}


@recipe("Tensor.__setitem__")
def _(d: Draw) -> Call:
    shape = d.shape(d.choice((1, 2, 3)))
    return {"self": f"{d.tensor(shape, d.dtype())}.clone()", "key": _key(d, shape), "value": d.choice(("0", "1.5", "rand(())", d.tensor(shape)))}


def _key(d: Draw, shape: tuple[int, ...]) -> str:
    parts = []
    for n in shape[: d.randrange(1, len(shape) + 1)]:
        n = max(n, 1)
        parts.append(
            d.choice((
                str(d.randrange(-n, n)), "slice(None)", f"slice({d.randrange(-n, n)}, None)", f"slice(None, None, {d.choice((1, 2, 3, 1 << 40))})",
                "None", "Ellipsis", d.ints(-n, n, (d.choice((0, 1, 2, 3)),)), d.ints(0, 2, (n,), "bool"), "[0]", d.size(), f"slice({d.size()}, {d.size()})",
                "True", "ints(0, 1, ())",
            ))
        )
    return f"({', '.join(parts)},)" if len(parts) > 1 or d.chance(0.5) else parts[0]


@recipe("masked_fill", "masked_select", "masked_scatter", "Tensor.masked_fill_", "Tensor.masked_scatter_")
def _(d: Draw) -> Call:
    shape, dtype = d.shape(), d.dtype()
    call = {"input": d.tensor(shape, dtype), "mask": d.ints(0, 2, d.near(shape), "bool")}
    return call | d.choice(({}, {"value": "2"}, {"source": d.tensor((60,), dtype)}, {"value": "rand(())"}))


@recipe("searchsorted")
def _(d: Draw) -> Call:
    n, dtype = _n(d), d.dtype()
    call = {"sorted_sequence": f"{d.tensor((n,), dtype)}.detach().sort().values", "input": d.tensor(d.shape(), dtype)}
    return call | _some(d, right=d.chance(0.5), out_int32=d.chance(0.5)) | ({"sorter": d.ints(0, max(n, 1), (n,))} if d.chance(0.3) else {})


@recipe("bucketize")
def _(d: Draw) -> Call:
    dtype = d.dtype()
    call = {"input": d.tensor(d.shape(), dtype), "boundaries": f"{d.tensor((_n(d),), dtype)}.detach().sort().values"}
    return call | _some(d, right=d.chance(0.5))


@recipe("repeat_interleave")
def _(d: Draw) -> Call:
    shape, dim = _along(d)
    n = shape[dim]
    if d.chance(0.2):
        return {"input": d.ints(0, 4, (n,))} | _some(d, output_size=d.choice((0, 3, n)))
    repeats = d.choice(("2", "0", d.ints(0, 4, (n,)), d.ints(0, 4, (1,)), d.ints(0, 3, ())))
    return {"input": d.tensor(shape, d.dtype()), "repeats": repeats, "dim": str(dim)} | (_some(d, output_size=d.choice((0, 2 * n))))


@recipe("bincount")
def _(d: Draw) -> Call:
    n = _n(d)
    dtype = d.choice(("int64", "int32", "uint8"))
    return {"input": d.ints(0, 7, (n,), dtype)} | _some(d, weights=d.tensor((n,), d.dtype()), minlength=d.choice((0, 3, 9)))


@recipe("histc")
def _(d: Draw) -> Call:
    return {"input": d.tensor(d.shape(), d.dtype())} | _some(d, bins=d.choice((1, 3, 7)), min=d.choice((0, -1)), max=d.choice((0, 1, 2)))


@recipe("histogram")
def _(d: Draw) -> Call:
    n = _n(d)
    bins = d.choice(("3", "1", f"{d.tensor((d.choice((1, 2, 4)),))}.detach().sort().values"))
    return {"input": d.tensor((n,)), "bins": bins} | _some(d, weight=d.tensor((n,)), density=d.chance(0.5), range=d.choice(((0, 1), (-1.0, 2.0), (1, 0))))


@recipe("histogramdd")
def _(d: Draw) -> Call:
    return {"input": d.tensor((_n(d), 2)), "bins": d.choice(("3", "[2, 3]", "(rand((3,)).sort().values, rand((2,)).sort().values)"))}


@recipe("nn.functional.gumbel_softmax", "nn.functional.softmax", "softmax", "nn.functional.log_softmax", "log_softmax", "nn.functional.softmin")
def _(d: Draw) -> Call:
    shape, dim = _along(d)
    return {"input": d.tensor(shape, d.dtype(FLOATS)), "dim": str(dim)}


@recipe("multinomial")
def _(d: Draw) -> Call:
    return {"input": f"{d.tensor(_batched(d, d.choice((1, 3, 5)))[-2:])}.detach().abs()", "num_samples": d.choice(("1", "2", "3")), "replacement": str(d.chance(0.6))}


# -- joining and cutting ---------------------------------------------------------------------------------------------------


@recipe("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack", "row_stack")
def _(d: Draw) -> Call:
    shape = d.shape()
    parts = [d.tensor(shape if d.chance(0.85) else d.shape(len(shape)), d.dtype()) for _ in range(d.choice((0, 1, 2, 2, 3)))]
    return {"tensors": f"[{', '.join(parts)}]"} | _some(d, dim=d.randrange(-len(shape) - 1, len(shape) + 1))


@recipe("split", "tensor_split", "split_with_sizes", "chunk", "unsafe_split", "unsafe_chunk", "vsplit", "hsplit", "dsplit")
def _(d: Draw) -> Call:
    shape, dim = _along(d)
    n = shape[dim]
    cut = d.choice(("1", "2", "3", repr([n // 2, n - n // 2]), repr([d.randrange(n + 1), 1]), "(1, 2)", d.ints(0, n + 1, (2,)), "[]"))
    name = d.choice(("split_size_or_sections", "indices_or_sections", "split_sizes", "chunks", "split_size"))
    return {"tensor" if name == "split_size_or_sections" else "input": d.tensor(shape, d.dtype()), name: cut, "dim": str(dim)}


@recipe("as_strided", "as_strided_copy", "Tensor.as_strided_")
def _(d: Draw) -> Call:
    shape = d.shape(2, 1)
    return {"input": f"rand({shape!r}, grad={d.chance(0.5)})", "size": repr(d.shape(d.choice((0, 1, 2)))), "stride": "(1, 1)"[: 6]} if d.chance(0.3) else {
        "input": f"rand({shape!r})", "size": repr((d.choice((0, 1, 2)), 2)), "stride": repr((d.choice((0, 1, 2)), 1))} | _some(d, storage_offset=d.choice((0, 1, -1)))  # fmt: skip


@recipe("as_strided_scatter")
def _(d: Draw) -> Call:
    return {"input": "rand((4, 4), grad=True)", "src": "rand((2, 2), grad=True)", "size": "(2, 2)", "stride": repr((d.choice((1, 2, 4)), 1))} | _some(d, storage_offset=d.choice((0, 3)))


@recipe("slice_scatter")
def _(d: Draw) -> Call:
    n = d.choice((1, 3, 5))
    return {"input": d.tensor((n, 4)), "src": d.tensor((n, 2)), "dim": "1", "start": "1", "end": "3"} | _some(d, step=d.choice((1, 2)))


@recipe("select_scatter")
def _(d: Draw) -> Call:
    return {"input": d.tensor((3, 4)), "src": d.tensor((3,)), "dim": "1", "index": d.choice(("0", "-1", "3"))}


@recipe("diagonal_scatter")
def _(d: Draw) -> Call:
    n = d.choice((1, 3))
    return {"input": d.tensor((n, n)), "src": d.tensor((n,))} | _some(d, offset=0)


@recipe("reshape", "view_copy", "Tensor.view", "Tensor.reshape", "broadcast_to", "Tensor.expand", "expand_copy", "Tensor.resize_")
def _(d: Draw) -> Call:
    shape = d.shape(d.choice((1, 2, 3)))
    count = 1
    for n in shape:
        count *= n
    made = d.choice((shape[::-1], (count,), (-1,), (*shape, 1), (1, *shape), (-1, *shape[1:]), (2, *shape)))
    return {"input": d.tensor(shape, d.dtype()), d.choice(("shape", "size")): repr(made)}


@recipe("permute", "permute_copy", "Tensor.permute", "flip", "roll", "movedim", "moveaxis")
def _(d: Draw) -> Call:
    shape = d.shape(d.choice((1, 2, 3)))
    dims = list(range(len(shape)))
    d.shuffle(dims)
    call = {"input": d.tensor(shape, d.dtype())}
    if d.chance(0.3):
        return call | {"shifts": repr(tuple(d.randrange(-4, 5) for _ in dims)), "dims": repr(tuple(dims))}
    if d.chance(0.3):
        return call | {"source": repr(tuple(dims)), "destination": repr(tuple(reversed(dims)))}
    return call | {"dims": repr(tuple(dims))}


@recipe("unfold_copy", "Tensor.unfold")
def _(d: Draw) -> Call:
    shape, dim = _along(d)
    return {"input": d.tensor(shape), "dimension": str(dim), "size": d.choice(("0", "1", "2", "3")), "step": d.choice(("1", "2", "3"))}


@recipe("narrow", "narrow_copy")
def _(d: Draw) -> Call:
    shape, dim = _along(d)
    return {"input": d.tensor(shape, d.dtype()), "dim": str(dim), "start": d.choice(("0", "1", "-1", "ints(0, 2, ())")), "length": d.choice(("0", "1", "2"))}


@recipe("unflatten", "Tensor.unflatten")
def _(d: Draw) -> Call:
    return {"input": d.tensor((6, 4), d.dtype()), "dim": d.choice(("0", "1", "-1")), "sizes": d.choice(("(2, -1)", "(2, 2)", "(3, 2)", "(-1,)"))}


@recipe("combinations")
def _(d: Draw) -> Call:
    return {"input": d.tensor((_n(d),), d.dtype())} | _some(d, r=d.choice((0, 1, 2, 3)), with_replacement=d.chance(0.5))


@recipe("cartesian_prod", "block_diag", "broadcast_tensors", "meshgrid", "atleast_1d", "atleast_2d", "atleast_3d")
def _(d: Draw) -> Call:
    n = d.choice((0, 1, 1, 2))
    return {"*tensors": ", ".join(d.tensor(d.shape(n), d.dtype()) for _ in range(d.choice((1, 2, 3))))}


# -- signals ---------------------------------------------------------------------------------------------------------------


def _fft(n: int) -> Recipe:
    def draw(d: Draw) -> Call:
        call = {"input": d.tensor(d.shape(d.choice((n, n + 1)), 1), d.dtype(("float32", "complex64", "float64", "complex128", "int64")))}
        if n == 1:
            return call | _some(d, n=d.choice((1, 3, 4, 8)), dim=d.choice((-1, 0)), norm=d.choice(("'ortho'", "'forward'", "'backward'", None)))
        return call | _some(d, s=d.choice(((2, 3), (4, 1), (3,))), dim=d.choice(((-1, -2), (0, 1), (-1,))), norm=d.choice(("'ortho'", None)))

    return draw


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    RECIPES[f"fft.{_name}"] = _fft(1)
    for _suffix in ("2", "n"):
        RECIPES[f"fft.{_name}{_suffix}"] = _fft(2)


@recipe("stft")
def _(d: Draw) -> Call:
    n = d.choice((4, 6, 8))
    call = {"input": d.tensor(_batched(d, 20)[-2:], d.dtype(FLOATS[:2])), "n_fft": str(n), "return_complex": "True"}
    return call | _some(d, hop_length=d.choice((1, 2, 5)), window=f"torch.hann_window({n})", center=d.chance(0.7), onesided=d.chance(0.5))


@recipe("istft")
def _(d: Draw) -> Call:
    n = d.choice((4, 6, 8))
    return {"input": d.tensor((n // 2 + 1, d.choice((3, 5))), "complex64"), "n_fft": str(n), "window": f"torch.hann_window({n})"}


@recipe("nn.functional.multi_head_attention_forward")
def _(d: Draw) -> Call:
    e, h = 4, d.choice((1, 2))
    l, s, n = d.choice((1, 3)), d.choice((1, 4)), d.choice((1, 2))
    call = {"query": d.tensor((l, n, e)), "key": d.tensor((s, n, e)), "value": d.tensor((s, n, e)), "embed_dim_to_check": str(e), "num_heads": str(h)}
    call |= {"in_proj_weight": d.tensor((3 * e, e)), "in_proj_bias": d.tensor((3 * e,)), "bias_k": "None", "bias_v": "None", "add_zero_attn": "False"}
    return call | {"dropout_p": "0.0", "out_proj_weight": d.tensor((e, e)), "out_proj_bias": d.tensor((e,)), "training": "False"}


@recipe("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def _(d: Draw) -> Call:
    i, h, n = _n(d), _n(d), _n(d)
    return {"input": d.tensor((n, i)), "hx": d.tensor((n, h)), "w_ih": d.tensor((h, i)), "w_hh": d.tensor((h, h))}


@recipe("arange", "range", "linspace", "logspace")
def _(d: Draw) -> Call:
    call = {"start": d.choice(("0", "1", "-2.5", "3")), "end": d.choice(("5", "10", "0", "7.5"))}
    return call | d.choice(({}, {"step": d.choice(("1", "2", "0.5", "-1"))}, {"steps": d.choice(("0", "1", "5"))}))


@recipe("mvlgamma", "special.multigammaln")
def _(d: Draw) -> Call:
    return {"input": f"{d.tensor(d.shape(), d.dtype(FLOATS))}.abs() + 5", "p": d.choice(("1", "2", "4"))}

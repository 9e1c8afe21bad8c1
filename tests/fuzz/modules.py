"""Random modules with Flambeau and PyTorch: parameters, buffers, attributes, states and inputs replaced by others.

    python tests/fuzz/modules.py --modules 20000                 # ends with status 1 and the programs if anything fails
    FLAMBEAU_BACKEND=numpy python tests/fuzz/modules.py --modules 20000
    python tests/fuzz/modules.py --modules 2000 --only 'LSTM|GRU' --seed 3 --notes

What counts as a failure is said in `arena.py`. A module is made, changed in some places (mostly where its sizes are kept), run
forward and backward, and compared with PyTorch's, which begins with the same numbers. The guard around arrays is on.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":                            # as a script it finds this checkout by itself
    sys.path[:0] = [str(ROOT / folder) for folder in ("tests", "framework", "kernels")]

from fuzz import arena, values
from fuzz.values import FLOATS, Draw

PROGRAMS = 20                                         # of a unit: one class of modules

Recipe = Callable[[Draw], tuple[str, list[str]]]      # constructor, and arguments of the call
RECIPES: dict[str, Recipe] = {}


def module(*names: str) -> Callable[[Callable[[Draw, str], tuple[str, list[str]]]], Any]:
    def keep(fn: Any) -> Any:
        for name in names:
            RECIPES[name] = lambda d, name=name: fn(d, name)
        return fn

    return keep


def _options(d: Draw, **optional: Any) -> str:
    """Text of keyword arguments, each there half the time."""
    return "".join(f", {name}={value}" for name, value in optional.items() if d.chance(0.5))


def _x(d: Draw, *shape: int) -> str:
    """Text of an input, mostly of float32."""
    return d.tensor(tuple(shape), "float32" if d.chance(0.9) else d.dtype(), layout=0.2, special=0.08)


def _lead(d: Draw) -> tuple[int, ...]:
    return tuple(d.choice((0, 1, 2, 3)) for _ in range(d.choice((0, 1, 1, 2))))


# -- recurrent -------------------------------------------------------------------------------------------------------------


@module("RNN", "LSTM", "GRU")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    i, h, layers, two = d.choice((1, 3, 4, 9)), d.choice((1, 2, 4, 17)), d.choice((1, 1, 2, 3)), d.chance(0.4)
    proj = d.choice((1, 2)) if name == "LSTM" and h > 2 and d.chance(0.2) else 0
    first = d.chance(0.3)
    options = f", num_layers={layers}, bidirectional={two}, batch_first={first}" + (f", proj_size={proj}" if proj else "")
    options += _options(d, bias=d.chance(0.5)) + (_options(d, nonlinearity=d.choice(("'tanh'", "'relu'"))) if name == "RNN" else "")
    n = d.choice((0, 1, 1, 2, 3, 8, 20))
    t = d.choice((1, 1, 2, 3, 5))
    packed = d.chance(0.5)
    if packed:
        rows = max(1, sum(_batch_sizes(d, n, t, True)))
        x = f"packed({_x(d, rows, i)}, {_batch_sizes(d, n, t)!r}{_options(d, order=d.ints(0, max(n, 1), (n,)))})"
        if d.chance(0.6):
            sizes = _batch_sizes(d, max(n, 1), t, True)
            x = f"packed({_x(d, sum(sizes), i)}, {sizes!r})"
            n = sizes[0]
    elif d.chance(0.15):
        x, n = _x(d, t, i), -1
    else:
        x = _x(d, *((n, t) if first else (t, n)), i)
    call = [x]
    if d.chance(0.5):
        rows = layers * (2 if two else 1)
        batch = () if n < 0 else (n,)
        state = _x(d, rows, *batch, proj or h)
        call.append(f"({state}, {_x(d, rows, *batch, h)})" if name == "LSTM" else state)
    return f"{name}({i}, {h}{options})", call


def _batch_sizes(d: Draw, n: int, t: int, right: bool = False) -> list[int]:
    """Falling sizes of the steps; mostly something else unless `right`."""
    sizes = sorted((d.randrange(1, max(n, 1) + 1) for _ in range(t)), reverse=True)
    if right or d.chance(0.2):
        return sizes
    at = d.randrange(len(sizes))
    roll = d.random()
    if roll < 0.4:
        sizes[at] = d.choice((0, -1, -5, 1, 7, 100, 1 << 20, 1 << 40, (1 << 63) - 1, -(1 << 62)))
    elif roll < 0.6:
        d.shuffle(sizes)
    elif roll < 0.8:
        sizes = sizes[1:]
    else:
        sizes.append(d.choice((1, 2, 9)))
    return sizes


@module("RNNCell", "LSTMCell", "GRUCell")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    i, h = d.choice((1, 3, 4)), d.choice((1, 2, 5, 17))
    batch = (d.choice((0, 1, 2, 9)),) if d.chance(0.85) else ()
    call = [_x(d, *batch, i)]
    if d.chance(0.6):
        call.append(f"({_x(d, *batch, h)}, {_x(d, *batch, h)})" if name == "LSTMCell" else _x(d, *batch, h))
    return f"{name}({i}, {h}{_options(d, bias=d.chance(0.5))})", call


# -- convolutions, pools ---------------------------------------------------------------------------------------------------


def _per(d: Draw, n: int, choices: tuple[int, ...]) -> str:
    return repr(d.choice(choices)) if d.chance(0.5) else repr(tuple(d.choice(choices) for _ in range(n)))


def _planes(d: Draw, n: int, channels: int, least: int = 3) -> str:
    batch = (d.choice((0, 1, 2)),) if d.chance(0.85) else ()
    return _x(d, *batch, channels, *(d.choice((least, 5, 8)) for _ in range(n)))


@module(*(f"Conv{t}{n}d" for t in ("", "Transpose") for n in (1, 2, 3)), *(f"LazyConv{t}{n}d" for t in ("", "Transpose") for n in (1, 2)))
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    n, groups = int(name[-2]), d.choice((1, 1, 2, 4))
    i, o = groups * d.choice((1, 2, 8)), groups * d.choice((1, 2, 4))
    options = _options(d, stride=_per(d, n, (1, 2)), padding=_per(d, n, (0, 1)), dilation=_per(d, n, (1, 2)), bias=d.chance(0.5))
    if "Transpose" not in name:
        options += _options(d, padding_mode=d.choice(("'zeros'", "'reflect'", "'circular'", "'replicate'")))
    else:
        options += _options(d, output_padding=_per(d, n, (0, 1)))
    given = f"{o}" if name.startswith("Lazy") else f"{i}, {o}"
    return f"{name}({given}, {_per(d, n, (1, 2, 3))}, groups={groups}{options})", [_planes(d, n, i)]


@module(*(f"{k}Pool{n}d" for k in ("Max", "Avg", "LP") for n in (1, 2, 3)))
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    n = int(name[-2])
    options = _options(d, stride=_per(d, n, (1, 2, 3)), ceil_mode=d.chance(0.5))
    if name[0] != "L":
        options += _options(d, padding=_per(d, n, (0, 1)))
    if name[0] == "M":
        options += _options(d, dilation=_per(d, n, (1, 2)), return_indices=d.chance(0.5))
    return f"{name}({'2, ' * (name[0] == 'L')}{_per(d, n, (1, 2, 3))}{options})", [_planes(d, n, d.choice((1, 3)))]


@module(*(f"Adaptive{k}Pool{n}d" for k in ("Max", "Avg") for n in (1, 2, 3)))
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    return f"{name}({_per(d, int(name[-2]), (0, 1, 2, 5))})", [_planes(d, int(name[-2]), d.choice((1, 3)))]


@module("MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    n = int(name[-2])
    shape = (2, 1, *(d.choice((1, 2, 3)) for _ in range(n)))
    return f"{name}(2{_options(d, stride=_per(d, n, (1, 2, 3)))})", [_x(d, *shape), d.ints(0, 2**n, shape)]


@module("FractionalMaxPool2d", "FractionalMaxPool3d")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    n = int(name[-2])
    samples = f"rand((2, 3, {n}), 'float32', {d.randrange(99)}{d.choice(('', ', special=' + repr('mixed')))}).abs()"
    return f"{name}({_per(d, n, (1, 2))}, output_size={_per(d, n, (1, 2, 3))}, _random_samples={samples})", [_x(d, 2, 3, *(5,) * n)]


@module("Fold", "Unfold")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    options = _options(d, stride=_per(d, 2, (1, 2)), padding=_per(d, 2, (0, 1)), dilation=_per(d, 2, (1, 2)))
    if name == "Fold":
        return f"Fold((4, 5), 2{options})", [_x(d, 2, 8, 12)]
    return f"Unfold(2{options})", [_x(d, 2, 3, 4, 5)]


@module(*(f"{k}Pad{n}d" for k in ("Zero", "Constant", "Reflection", "Replication", "Circular") for n in (1, 2, 3)))
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    n = int(name[-2])
    amounts = repr(tuple(d.choice((0, 1, 2, -1)) for _ in range(2 * n)))
    return f"{name}({amounts}{', 1.5' if name[0] == 'C' and name[1] == 'o' else ''})", [_planes(d, n, 2, 4)]


@module("Upsample", "PixelShuffle", "PixelUnshuffle", "ChannelShuffle", "UpsamplingNearest2d", "UpsamplingBilinear2d")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    x = _x(d, 2, 4, 4, 6)
    if name == "Upsample":
        size, mode = d.choice(("size=5", "scale_factor=1.5", "size=(3, 9)")), d.choice(("nearest", "bilinear", "bicubic"))
        return f"Upsample({size}, mode={mode!r})", [x]
    return f"{name}({'scale_factor=2' if name[:2] == 'Up' else 2})", [x]


# -- normalizations --------------------------------------------------------------------------------------------------------


@module(*(f"{k}Norm{n}d" for k in ("Batch", "Instance", "LazyBatch", "LazyInstance") for n in (1, 2, 3)), "SyncBatchNorm")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    n, c = (int(name[-2]) if name[-1] == "d" else 2), d.choice((1, 2, 5))
    options = _options(
        d, affine=d.chance(0.7), track_running_stats=d.chance(0.7), momentum=d.choice((None, 0.1, 0.5)), eps=d.choice((1e-5, 0))
    )
    given = options[2:] if name.startswith("Lazy") else f"{c}{options}"
    x = _x(d, 3, c) if n == 1 and d.chance(0.3) else _planes(d, n, c, 1)
    return f"{name}({given})", [x]


@module("LayerNorm", "RMSNorm", "GroupNorm", "LocalResponseNorm", "CrossMapLRN2d")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    if name == "GroupNorm":
        return f"GroupNorm(2, 4{_options(d, affine=d.chance(0.5))})", [_planes(d, d.choice((0, 1, 2)), 4)]
    if name[-2:] == "2d" or name[0:2] == "Lo":
        return f"{name}({d.choice((1, 2, 3))})", [_planes(d, 2, 4)]
    shape = tuple(d.choice((1, 3, 5, 16)) for _ in range(d.choice((1, 1, 2))))
    return f"{name}({shape!r}{_options(d, elementwise_affine=d.chance(0.7))})", [_x(d, *_lead(d), *shape)]


# -- linear, embeddings, attention -----------------------------------------------------------------------------------------


@module("Linear", "LazyLinear", "Bilinear", "Identity")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    i, j, o, lead = d.choice((1, 2, 5, 16)), d.choice((1, 3)), d.choice((1, 2, 7)), _lead(d)
    if name == "Bilinear":
        return f"Bilinear({i}, {j}, {o}{_options(d, bias=d.chance(0.5))})", [_x(d, *lead, i), _x(d, *lead, j)]
    given = "" if name == "Identity" else f"{o if name[:2] == 'La' else f'{i}, {o}'}{_options(d, bias=d.chance(0.5))}"
    return f"{name}({given})", [_x(d, *lead, i)]


@module("Embedding", "EmbeddingBag")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    rows, width = d.choice((1, 3, 10)), d.choice((1, 4))
    options = _options(d, padding_idx=d.choice((None, 0, -1)), max_norm=d.choice((None, 1.0)), scale_grad_by_freq=d.chance(0.3))
    if name == "Embedding":
        return f"Embedding({rows}, {width}{options})", [d.ints(0, rows, d.shape(d.choice((0, 1, 2))))]
    options += _options(d, mode=d.choice(("'sum'", "'mean'", "'max'")), include_last_offset=d.chance(0.4))
    if d.chance(0.4):
        return f"EmbeddingBag({rows}, {width}{options})", [d.ints(0, rows, d.shape(2))]
    n = d.choice((0, 1, 4, 9))
    ends = [0, *sorted(d.randrange(n + 1) for _ in range(d.choice((0, 1, 3))))]
    if d.chance(0.3):
        ends[d.randrange(len(ends))] = d.choice((-1, n + 1, 1 << 40, -(1 << 62), 3))
    call = [d.ints(0, rows, (n,)), f"torch.tensor({ends!r})"]
    return f"EmbeddingBag({rows}, {width}{options})", call + ([_x(d, n)] if d.chance(0.2) else [])


@module("MultiheadAttention")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    heads = d.choice((1, 2, 4))
    e, n, l, s = heads * d.choice((1, 2, 4)), d.choice((0, 1, 2)), d.choice((1, 3, 5)), d.choice((1, 4))
    first = d.chance(0.5)
    shape = (lambda t, w: (n, t, w)) if first else (lambda t, w: (t, n, w))
    options = f", batch_first={first}" + _options(d, bias=d.chance(0.5), add_bias_kv=d.chance(0.3), add_zero_attn=d.chance(0.3))
    kdim = d.choice((e, e, 3))
    options += f", kdim={kdim}, vdim={kdim}" if kdim != e else ""
    call = [_x(d, *shape(l, e)), _x(d, *shape(s, kdim)), _x(d, *shape(s, kdim))]
    if d.chance(0.3):
        call.append(f"need_weights={d.chance(0.5)}")
    if d.chance(0.3):
        call.append(f"key_padding_mask={d.ints(0, 2, (n, s), 'bool')}")
    if d.chance(0.3):
        call.append(f"attn_mask={d.choice((d.ints(0, 2, (l, s), 'bool'), _x(d, l, s)))}")
    return f"MultiheadAttention({e}, {heads}{options})", call


@module("TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer", "TransformerEncoder")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    e, heads, n = 4, d.choice((1, 2)), d.choice((1, 2))
    first = d.chance(0.5)
    drawn = _options(d, norm_first=d.chance(0.5), bias=d.chance(0.5))
    options = f"{e}, {heads}, dim_feedforward=5, dropout=0.0, batch_first={first}{drawn}"
    x, y = (_x(d, *((n, t) if first else (t, n)), e) for t in (d.choice((1, 3)), 2))
    if name == "Transformer":
        head = options.replace(f"{e}, {heads}, ", f"{e}, {heads}, num_encoder_layers=1, num_decoder_layers=1, ")
        return f"Transformer({head})", [x, y]
    if name == "TransformerEncoder":
        return f"TransformerEncoder(torch.nn.TransformerEncoderLayer({options}), 2)", [x]
    return f"{name}({options})", [x, y] if "Decoder" in name else [x]


# -- activations, dropouts, distances, losses ------------------------------------------------------------------------------

_PLAIN = (
    "ELU Hardshrink Hardsigmoid Hardtanh Hardswish LeakyReLU LogSigmoid ReLU ReLU6 SELU CELU GELU Sigmoid SiLU Mish Softplus Softshrink "
    "Softsign Tanh Tanhshrink GLU Softmin Softmax LogSoftmax Softmax2d Flatten PReLU"
)


@module(*_PLAIN.split())  # fmt: skip
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    given = {"PReLU": d.choice(("", "3", "5")), "Softmax": "dim=-1", "LogSoftmax": "dim=-1", "Softmin": "dim=-1"}.get(name, "")
    return f"{name}({given})", [_x(d, 2, 3, *d.shape(d.choice((1, 2)), 1))]


@module("Threshold", "Unflatten", "CosineSimilarity", "PairwiseDistance")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    if name == "Unflatten":
        return "Unflatten(1, (2, -1))", [_x(d, 3, d.choice((2, 4, 6)))]
    if name == "Threshold":
        return "Threshold(0.1, 20)", [_x(d, *d.shape())]
    shape = d.shape(2)
    return f"{name}()", [_x(d, *shape), _x(d, *d.near(shape))]


@module("L1Loss", "MSELoss", "HuberLoss", "SmoothL1Loss", "BCELoss", "BCEWithLogitsLoss", "KLDivLoss", "PoissonNLLLoss", "SoftMarginLoss")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    shape = d.shape()
    x, y = _x(d, *shape), _x(d, *(shape if d.chance(0.8) else d.near(shape)))
    options = _options(d, reduction=d.choice(("'mean'", "'sum'", "'none'")))
    if name[:3] == "BCE":
        x, y = f"{x}.sigmoid()", f"{y}.detach().sigmoid()"
        options += _options(d, weight=_x(d, *d.near(shape)))
        if "Logits" in name:
            options += _options(d, pos_weight=_x(d, *d.near(shape)))
    return f"{name}({options[2:]})", [x, y]


@module("NLLLoss", "CrossEntropyLoss", "MultiMarginLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "NLLLoss2d")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    n, c = d.choice((0, 1, 3)), d.choice((1, 2, 5))
    rest = d.shape(d.choice((0, 0, 2))) if name[:3] in ("NLL", "Cro") else ()
    rest = rest or ((2, 2) if name[-2:] == "2d" else ())
    options = _options(d, reduction=d.choice(("'mean'", "'sum'", "'none'")))
    if name not in ("MultiLabelMarginLoss",):
        options += _options(d, weight=f"rand(({d.choice((c, c, c, 1, c + 1))},), 'float32', {d.randrange(99)})")
    if name[:3] in ("NLL", "Cro"):
        options += _options(d, ignore_index=d.choice((-100, 0, 1)))
    target = d.ints(0, c, (n, *rest)) if "Label" not in name else d.choice((d.ints(-1, c, (n, c)), _x(d, n, c)))
    return f"{name}({options[2:]})", [_x(d, n, c, *rest), target]


@module("CTCLoss")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    t, n, c, s = d.choice((1, 4, 7)), d.choice((0, 1, 3)), d.choice((2, 4)), d.choice((1, 3))
    lengths = [d.choice((0, 1, s, s, s + 1, -1)) if d.chance(0.2) else d.randrange(s + 1) for _ in range(n)]
    steps = [d.choice((0, t, t + 1, -1, 1 << 40)) if d.chance(0.2) else t for _ in range(n)]
    call = [f"{_x(d, t, n, c)}.log_softmax(-1)", d.ints(1, c, (n, s)), f"torch.tensor({steps!r}, dtype=torch.int64)"]
    options = _options(d, blank=d.choice((0, c - 1)), zero_infinity=d.chance(0.5))[2:]
    return f"CTCLoss({options})", [*call, f"torch.tensor({lengths!r}, dtype=torch.int64)"]


@module("CosineEmbeddingLoss", "MarginRankingLoss", "TripletMarginLoss", "HingeEmbeddingLoss", "GaussianNLLLoss")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    shape = d.shape(2)
    x, y, z = _x(d, *shape), _x(d, *shape), _x(d, *shape)
    if name == "HingeEmbeddingLoss":
        return f"{name}()", [x, y]
    return f"{name}({_options(d, margin=d.choice((0.5, 1.0)))[2:] if name != 'GaussianNLLLoss' else ''})", [
        x, y, z if name[0] == "T" else f"{z}.detach().abs()" if name[0] == "G" else f"{_x(d, *shape[:1])}.detach().sign()"]  # fmt: skip


@module("AdaptiveLogSoftmaxWithLoss")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    return "AdaptiveLogSoftmaxWithLoss(6, 9, [3, 6], div_value=2.0)", [_x(d, 4, 6), d.ints(0, 9, (4,))]


@module("Sequential", "ParameterList", "ModuleList")
def _(d: Draw, name: str) -> tuple[str, list[str]]:
    c = d.choice((1, 2, 4))
    inner = f"torch.nn.Conv2d(3, {c}, 3), torch.nn.BatchNorm2d({c}), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(2)"
    return f"Sequential({inner})", [_x(d, 2, 3, 6, 5)]


def _words(text: str) -> list[str]:
    return text.split()


# -- changes ---------------------------------------------------------------------------------------------------------------

WAYS = _words("""
    wider narrower taller shorter turned flat number none double half whole empty strided alike expanded nan one deeper
""")
_ATTRIBUTES = _words("""
    hidden_size input_size num_layers proj_size bidirectional batch_first bias mode dropout nonlinearity num_heads head_dim embed_dim
    kdim vdim _qkv_same_embed_dim in_channels out_channels kernel_size stride padding dilation groups output_padding padding_mode
    transposed num_features eps momentum affine track_running_stats normalized_shape num_groups num_channels in_features out_features
    in1_features num_embeddings embedding_dim padding_idx max_norm scale_grad_by_freq include_last_offset output_size return_indices
    ceil_mode divisor_override size scale_factor upscale_factor dim p norm_type weight reduction ignore_index margin num_parameters
    training blank cutoffs n_clusters start_dim end_dim unflattened_size alpha beta k value lambd threshold negative_slope
""")


def _changes(d: Draw) -> list[str]:
    """Lines that change the module ``m``."""
    lines = []
    for _ in range(d.choice((0, 1, 1, 1, 2, 3))):
        roll = d.random()
        if roll < 0.5:
            lines.append(f"poke(m, {d.randrange(24)}, {d.choice(WAYS)!r}{', True' if d.chance(0.2) else ''})")
        elif roll < 0.6:
            lines.append(f"poke_buffer(m, {d.randrange(4)}, {d.choice(WAYS)!r})")
        elif roll < 0.9:
            value = d.choice(("0", "1", "2", "3", "5", "7", "-1", "True", "False", "None", "(2, 2)", "(1,)", "0.5", d.size(), d.junk()))
            lines.append(f"change(m, {d.choice(_ATTRIBUTES)!r}, {value})")
        else:
            lines.append(d.choice((
                "m.eval()", "m.double()", "m.half()", "m.to(memory_format=torch.channels_last)", "m.requires_grad_(False)", "m.bfloat16()",
            )))  # fmt: skip
    return lines


def _other_input(d: Draw, text: str) -> str:
    """An input with another size, dtype or kind."""
    if d.chance(0.15):
        return d.junk()
    found = list(re.finditer(r"rand\(\(([\d, ]*)\)", text))
    if not found or d.chance(0.2):
        return text.replace("'float32'", repr(d.choice((*FLOATS, "int64", "bool", "complex64"))), 1)
    place = d.choice(found)
    sizes = [int(n) for n in place[1].split(",") if n.strip()]
    if sizes and d.chance(0.75):
        sizes[d.randrange(len(sizes))] = d.choice((0, 1, 2, 3, 4, 7, 18))
    elif sizes and d.chance(0.5):
        sizes = sizes[1:]
    else:
        sizes = [2, *sizes]
    return text[: place.start(1)] + repr(tuple(sizes))[1:-1] + text[place.end(1) :]


def program(d: Draw, name: str) -> str:
    made, call = RECIPES[name](d)
    if d.chance(0.25) and call:
        at = d.randrange(len(call))
        if "=" not in call[at].partition("(")[0]:
            call[at] = _other_input(d, call[at])
    lines = [f"m = torch.nn.{made}", *_changes(d)]
    if d.chance(0.1):
        lines.append(f"run(m, {', '.join(call)})")
        lines += _changes(d)
    return "\n".join([*lines, f"result = run(m, {', '.join(call)})"])


def scope(lib: Any) -> dict[str, Any]:
    """The words of programs, for `lib`."""
    words = values.scope(lib)
    rand, backward = words["rand"], words["backward"]

    def other(p: Any, way: str) -> Any:
        """Another tensor in the place of `p`."""
        shape = tuple(p.shape)
        grow = {"wider": (-1, 3), "narrower": (-1, -1), "taller": (0, 5), "shorter": (0, -1)}
        if way in grow and shape:
            at, by = grow[way]
            sizes = list(shape)
            sizes[at] = max(0, sizes[at] + by)
            return rand(tuple(sizes), seed=1)
        plain = p.detach()
        if way == "turned":
            return plain.transpose(0, -1) if plain.ndim > 1 else plain
        if way in ("double", "half", "whole"):
            return plain.to({"double": lib.float64, "half": lib.float16, "whole": lib.int64}[way])
        simple = {"flat": lambda: plain.reshape(-1), "number": lambda: plain.sum(), "empty": lambda: plain[:0] if shape else plain,
                  "strided": lambda: lib.stack((plain, plain), -1)[..., 0], "alike": lambda: plain.clone(),
                  "nan": lambda: plain * float("nan"),
                  "expanded": lambda: plain[:1].expand(shape) if shape and shape[0] else plain, "one": lambda: lib.ones(1),
                  "deeper": lambda: plain.unsqueeze(0)}  # fmt: skip
        return simple.get(way, lambda: plain)()

    def poke(m: Any, at: int, way: str, data: bool = False) -> None:
        """Replace the parameter number `at`, or its `data`."""
        names = [n for n, p in m.named_parameters() if not isinstance(p, lib.nn.parameter.UninitializedParameter)]
        if not names:
            return
        path = names[at % len(names)]
        inner, _, name = path.rpartition(".")
        owner = m.get_submodule(inner)
        p = getattr(owner, name)
        if way == "none":
            setattr(owner, name, None)
        elif data:
            p.data = other(p, way)
        else:
            made = other(p, way)
            setattr(owner, name, lib.nn.Parameter(made, made.is_floating_point()))

    def poke_buffer(m: Any, at: int, way: str) -> None:
        names = [n for n, b in m.named_buffers() if b is not None]
        if names:
            inner, _, name = names[at % len(names)].rpartition(".")
            owner = m.get_submodule(inner)
            setattr(owner, name, None if way == "none" else other(getattr(owner, name), way))

    def change(m: Any, name: str, value: Any) -> None:
        """Set the attribute `name` of the first module inside that has it."""
        for inner in m.modules():
            if name in inner.__dict__:
                setattr(inner, name, value)
                return

    def packed(data: Any, sizes: list[int], order: Any = None) -> Any:
        return lib.nn.utils.rnn.PackedSequence(data, lib.tensor(sizes, dtype=lib.int64), order)

    def plain(value: Any) -> Any:
        if isinstance(value, lib.nn.utils.rnn.PackedSequence):
            return [value.data, value.batch_sizes]
        if isinstance(value, (tuple, list)):
            return [plain(x) for x in value]
        return value

    def run(m: Any, *args: Any, **kwargs: Any) -> Any:
        """What `m` makes of its arguments, and the gradients of its parameters."""
        made = plain(m(*args, **kwargs))
        found = backward(made)
        return [found, *(p.grad for p in m.parameters())]

    return {**words, "poke": poke, "poke_buffer": poke_buffer, "change": change, "packed": packed, "run": run}


def source(names: list[str], seed: int) -> arena.Source:
    """Programs of each unit: one class of modules."""
    name_of = arena.spread(names, seed)

    def programs(unit: int) -> Generator[str, tuple[arena.Outcome, arena.Outcome], None]:
        name = name_of(unit)
        d = Draw(f"{seed} {unit} {name}")
        for _ in range(PROGRAMS):
            yield program(d, name)

    return programs


def main() -> int:
    parser = arena.parser(__doc__ or "")
    parser.add_argument("--modules", type=int, default=4_000)
    options = parser.parse_args()
    libs = arena.libraries()
    names = [n for n in RECIPES if re.search(options.only, n) and all(hasattr(lib.nn, n) for lib in libs)]
    units = range(max(1, options.modules // PROGRAMS))
    report = arena.run(
        units, source(names, options.seed), libs, tuple(scope(lib) for lib in libs), options.jobs, options.limit, arena.shown(options.notes)
    )
    print(f"{len(names)} classes, {report.summary()}")
    return 1 if report.failures() else 0


if __name__ == "__main__":
    sys.exit(main())

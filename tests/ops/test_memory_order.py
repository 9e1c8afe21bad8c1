"""The order of memory of results: strides as PyTorch's for operands of every layout, and on meta tensors as on real ones.

Dimensions of size 1 have any strides, so theirs are not compared.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flambeau as fb
from comparing import disagreements

WHOLE = "torch.arange(2 * 4 * 8 * 8.).reshape(2, 4, 8, 8).to(memory_format=torch.channels_last)"


PARTS = ["[:, :, 1:7, 2:7]", "[:, 1:3]", "[:1, :, 1:7, 2:7]", "[1, :, 1:7, 2:7]", "[:, :, ::2, ::2]", "[:, :1, 1:]"]


@pytest.mark.parametrize("part", PARTS)
def test_results_of_cropped_channels_last_images_are_channels_last(oracle: Any, part: str) -> None:
    programs = """
    F.interpolate(x, scale_factor=2)
    F.interpolate(x, scale_factor=2, mode='bilinear')
    F.max_pool2d(x, 2)
    F.avg_pool2d(x, 2)
    F.adaptive_avg_pool2d(x, 2)
    F.adaptive_max_pool2d(x, 2)
    F.conv2d(x, torch.ones(3, x.shape[-3], 3, 3))
    F.conv_transpose2d(x, torch.ones(x.shape[-3], 3, 3, 3))
    F.pad(x, (1, 1))
    """
    setting = f"x = {WHOLE}{part}; "

    assert not disagreements(oracle, "\n".join(setting + line.strip() for line in programs.splitlines() if line.strip()))


@pytest.mark.parametrize("op", ["x + y", "x * y", "x > y", "torch.copysign(x, y)", "torch.where(x > 0, x, y)", "torch.lerp(x, y, 0.5)"])
def test_results_lie_in_memory_as_the_first_operand_that_tells_two_dimensions_apart_even_if_it_is_broadcast(oracle: Any, op: str) -> None:
    operands = [
        ("arange(12.).as_strided((1, 2, 2, 3), (12, 0, 3, 1))", "arange(24.).as_strided((2, 1, 3), (2, 6, 6))"),
        ("arange(24.).as_strided((2, 1, 4), (1, 2, 2))", "arange(3.).reshape(1, 3, 1)"),
        ("arange(24.).as_strided((2, 1, 4), (1, 2, 2))", "arange(24.).as_strided((1, 3, 1), (1, 2, 1))"),
        ("arange(24.).as_strided((3, 2, 2), (1, 0, 6))", "arange(24.).as_strided((3, 1, 2), (2, 12, 1))"),
        ("arange(24.).as_strided((3, 1, 1), (1, 3, 3))", "arange(24.).as_strided((1, 2, 3), (1, 3, 1))"),
    ]
    programs = [f"x, y = torch.{x}, torch.{y}; {op}" for x, y in operands]

    assert not disagreements(oracle, "\n".join(programs))


@pytest.mark.parametrize("op", ["x.exp()", "x.sin()", "x / 2", "x + 1", "-x", "x.abs()", "x > 0", "x.clone()", "x.double()"])
def test_results_of_expanded_tensors_lie_in_memory_as_their_other_dimensions_do(oracle: Any, op: str) -> None:
    programs = [f"x = torch.arange(24.).as_strided({shape}); ({op}).stride()" for shape in (
        "(3, 2, 2), (1, 0, 6)", "(2, 3, 2), (0, 1, 6)", "(2, 2, 3, 2), (0, 1, 0, 6)", "(3, 2), (1, 0)", "(2, 3), (0, 1)"
    )]  # fmt: skip

    assert not disagreements(oracle, "\n".join(programs))


LAST = "to(memory_format=torch.channels_last)"
LAYOUTS = {
    "row-major": "made(2, 4, 6, 6)",
    "channels last": f"made(2, 4, 6, 6).{LAST}",
    "cropped": f"made(2, 4, 8, 8).{LAST}[:, :, 1:7, 2:8]",
    "some channels": f"made(2, 6, 6, 6).{LAST}[:, 1:5]",
    "every second": f"made(2, 4, 12, 12).{LAST}[:, :, ::2, ::2]",
    "cropped rows": "made(2, 4, 8, 8)[:, :, 1:7, 2:8]",
    "permuted": "made(6, 2, 6, 4).permute(1, 3, 0, 2)",
    "cropped and turned": "made(8, 7, 5, 3).permute(3, 2, 1, 0)[:2, :4, :6, :6]",
    "expanded": "made(2, 1, 6, 6).expand(2, 4, 6, 6)",
    "one image": f"made(3, 4, 8, 8).{LAST}[:1, :, 1:7, 2:8]",
    "one column": f"made(2, 4, 6, 1).{LAST}",
}
# Of a tensor `x`, a row-major one `y` of its shape, `ch` of a value for each of its channels, and `b` of one for each column.
CALLS = """
x.exp()
x.neg()
x + x
x + 1
x * y
x + c
x - ch
ch - x
y + x
x + b
x.double() + x
torch.add(x, y, alpha=2)
x > 0
x == y
x.logical_not()
torch.where(x > 0, x, y)
torch.where(x > 0, x, 0.)
torch.where(y > 0, x, ch)
torch.lerp(x, y, 0.3)
torch.lerp(x, y, y)
torch.addcmul(x, y, x)
torch.addcdiv(x, y, y)
x.clamp(0, 1)
x.clamp(y, y)
x.clamp_min(y)
torch.maximum(x, y)
torch.atan2(x, y)
x.pow(2)
x ** y
x.abs()
x.sigmoid()
x.tanh()
x.sqrt()
x.nan_to_num()
x.to(torch.float64)
x.to(torch.int64)
x.int()
x.bool()
x.half()
x.float()
x.clone()
x.contiguous()
x.clone(memory_format=torch.contiguous_format)
x.to(memory_format=torch.channels_last)
x.contiguous(memory_format=torch.channels_last)
x.detach().clone()
x.to(torch.float64, memory_format=torch.contiguous_format)
torch.empty_like(x)
torch.zeros_like(x)
torch.ones_like(x, dtype=torch.float64)
torch.rand_like(x)
torch.randn_like(x)
torch.full_like(x, 2)
torch.randint_like(x, 5)
torch.empty_like(x, memory_format=torch.contiguous_format)
torch.zeros_like(x, memory_format=torch.channels_last)
torch.bernoulli(x.sigmoid())
torch.normal(x, 1.)
torch.normal(x, y.abs())
torch.poisson(x.abs())
x.new_zeros(3, 4)
x.softmax(1)
x.softmax(-1)
x.log_softmax(1)
F.softmin(x, 1)
x.cumsum(1)
x.cumprod(2)
x.logcumsumexp(1)
x.cummax(1)
x.cummin(2)
x.sort(1)
x.sort(-1)
torch.sort(x, stable=True, dim=1)
x.argsort(1)
x.topk(2, 1)
x.kthvalue(2, 1)
x.median(1)
x.mode(1)
x.nanmedian(1)
x.sum(1)
x.sum(1, keepdim=True)
x.sum((2, 3))
x.sum((2, 3), keepdim=True)
x.sum(0)
x.sum(2)
x.mean(1)
x.mean((0, 2, 3))
x.mean(3)
x.prod(1)
x.amax(1)
x.amax((2, 3), keepdim=True)
x.amin(2)
x.max(1)
x.min(2)
x.max(1, keepdim=True)
x.argmax(1)
x.argmax(2, keepdim=True)
x.std(1)
x.var(1)
x.var(2, keepdim=True)
x.norm(dim=1)
x.norm(dim=(2, 3))
torch.linalg.vector_norm(x, dim=1)
x.logsumexp(1)
x.all(1)
x.any(2)
x.nansum(1)
x.count_nonzero(1)
torch.var_mean(x, 1)
torch.std_mean(x, 2)
torch.aminmax(x, dim=1)
F.relu(x)
F.relu6(x)
F.leaky_relu(x, 0.1)
F.elu(x)
F.selu(x)
F.celu(x)
F.gelu(x)
F.gelu(x, approximate='tanh')
F.silu(x)
F.mish(x)
F.softplus(x)
F.softsign(x)
F.hardtanh(x)
F.hardswish(x)
F.hardsigmoid(x)
F.tanhshrink(x)
F.hardshrink(x)
F.softshrink(x)
F.threshold(x, 0., 1.)
F.prelu(x, torch.ones(1))
F.prelu(x, torch.ones(x.shape[1]))
F.glu(x, -1)
F.glu(x, 1)
F.dropout(x, 0.5, True)
F.dropout(x, 0.5, False)
F.dropout2d(x, 0.5, True)
F.alpha_dropout(x, 0.5, True)
F.feature_alpha_dropout(x, 0.5, True)
F.normalize(x)
F.batch_norm(x, torch.zeros(x.shape[1]), torch.ones(x.shape[1]))
F.batch_norm(x, torch.zeros(x.shape[1]), torch.ones(x.shape[1]), torch.ones(x.shape[1]), torch.ones(x.shape[1]), True)
F.batch_norm(x, None, None, torch.ones(x.shape[1]), torch.ones(x.shape[1]), True)
F.batch_norm(x, torch.zeros(x.shape[1]), torch.ones(x.shape[1]), torch.ones(x.shape[1]), torch.ones(x.shape[1]), False)
F.group_norm(x, 1)
F.group_norm(x, x.shape[1], torch.ones(x.shape[1]), torch.ones(x.shape[1]))
F.instance_norm(x)
F.layer_norm(x, x.shape[3:])
F.layer_norm(x, x.shape[1:])
F.layer_norm(x, x.shape[3:], torch.ones(x.shape[3]), torch.ones(x.shape[3]))
F.rms_norm(x, x.shape[3:])
F.rms_norm(x, x.shape[3:], torch.ones(x.shape[3]))
F.local_response_norm(x, 2)
F.pixel_shuffle(x, 2)
F.pixel_unshuffle(x, 2)
F.pixel_unshuffle(x, 3)
F.channel_shuffle(x, 2)
torch.stack([x, x])
torch.stack([x, y], 1)
torch.stack([x, x], -1)
torch.stack([x[0], x[0]])
torch.stack([x[0], x[1:][0]], 0)
torch.cat([x, x])
torch.cat([x, y], 1)
torch.cat([x, x], 1)
torch.cat([x, x], -1)
torch.cat([x, c], 1)
torch.cat([y, x], 1)
torch.cat([x[:, :1], x], 1)
torch.hstack([x, x])
torch.vstack([x, x])
torch.dstack([x, x])
torch.split(x, 2, 1)
x.chunk(2, 1)
x.unbind(1)
x.flip(1)
x.flip(2, 3)
x.fliplr()
x.roll(1, 2)
x.roll(1)
x.rot90(1, (2, 3))
x.rot90(2, (2, 3))
x.repeat(1, 2, 1, 1)
x.repeat_interleave(2, 1)
x.tile(2, 1)
x.tril()
x.triu()
x.diagonal(0, 2, 3)
torch.diag_embed(x)
x.diff(dim=2)
x.flatten(2)
x.reshape(x.shape[0], -1)
x.reshape(x.shape[0], x.shape[1], -1)
x.unflatten(1, (1, -1))
x.permute(0, 2, 3, 1)
x.transpose(1, 2)
x.movedim(1, -1)
x.mT
x.squeeze()
x.unsqueeze(2)
x.expand(2, *x.shape)
x.narrow(2, 1, 1)
x[:, :, 0]
x[:, :, ::2]
x[..., None]
x[:, 0]
x[x > 0]
x.index_select(1, torch.tensor([0, 0]))
x.index_select(3, torch.tensor([0, 0]))
x.gather(1, torch.zeros_like(x, dtype=torch.int64))
x.gather(1, torch.zeros(x.shape, dtype=torch.int64))
torch.take_along_dim(x, torch.zeros(x.shape, dtype=torch.int64), 1)
x.take(torch.zeros(2, 3, dtype=torch.int64))
x.masked_fill(x > 0, 0.)
x.masked_fill(y > 0, 0.)
x.masked_select(x > 0)
x.masked_scatter(x > 0, y)
x.scatter(1, torch.zeros(x.shape, dtype=torch.int64), y)
x.scatter(1, torch.zeros(x.shape, dtype=torch.int64), 1.)
x.scatter_add(1, torch.zeros(x.shape, dtype=torch.int64), y)
x.scatter_reduce(1, torch.zeros(x.shape, dtype=torch.int64), y, 'sum')
x.index_add(1, torch.tensor([0]), y[:, :1])
x.index_copy(1, torch.tensor([0]), y[:, :1])
x.index_fill(1, torch.tensor([0]), 1.)
x.index_put((torch.tensor([0]),), y[0])
F.pad(x, (1, 1))
F.pad(x, (1, 1, 1, 1), 'reflect')
F.pad(x, (1, 1, 1, 1), 'replicate')
F.pad(x, (1, 1, 1, 1), 'circular')
F.pad(x, (0, 0, 0, 0, 1, 1))
F.interpolate(x, scale_factor=2)
F.interpolate(x, scale_factor=2, mode='bilinear')
F.interpolate(x, scale_factor=2, mode='bicubic')
F.interpolate(x, scale_factor=2, mode='area')
F.interpolate(x, scale_factor=2, mode='nearest-exact')
F.interpolate(x, scale_factor=0.5, mode='bilinear', antialias=True)
F.interpolate(x, size=(1, 1), mode='bilinear')
F.max_pool2d(x, 2, 1, 1)
F.max_pool2d(x, 2, 1, 1, return_indices=True)
F.avg_pool2d(x, 2, 1, 1)
F.adaptive_avg_pool2d(x, 2)
F.adaptive_avg_pool2d(x, 1)
F.adaptive_max_pool2d(x, 2)
F.adaptive_max_pool2d(x, 1, return_indices=True)
F.max_unpool2d(x, torch.zeros(x.shape, dtype=torch.int64), 2)
F.conv2d(x, torch.ones(3, x.shape[1], 1, 1))
F.conv2d(x, torch.ones(3, x.shape[1], 3, 3), padding=1)
F.conv2d(x, torch.ones(x.shape[1], 1, 3, 3), padding=1, groups=x.shape[1])
F.conv2d(x[0], torch.ones(3, x.shape[1], 1, 1))
F.conv_transpose2d(x, torch.ones(x.shape[1], 3, 3, 3))
F.unfold(x, 1)
F.grid_sample(x, torch.zeros(x.shape[0], 3, 3, 2), align_corners=False)
F.grid_sample(x, torch.zeros(x.shape[0], 3, 3, 2), 'nearest', align_corners=False)
F.grid_sample(x, torch.zeros(x.shape[0], 3, 3, 2), 'bicubic', align_corners=False)
F.linear(x, torch.ones(3, x.shape[3]))
x @ torch.ones(x.shape[3], 2)
x @ x.mT
torch.ones(2, x.shape[2]) @ x
x.matmul(torch.ones(x.shape[3]))
torch.einsum('bchw->bhwc', x)
torch.einsum('bchw,bchw->bc', x, x)
torch.tensordot(x, torch.ones(x.shape[1], 3), dims=([1], [0]))
F.cross_entropy(x, torch.zeros(x.shape[0], *x.shape[2:], dtype=torch.int64), reduction='none')
F.nll_loss(x, torch.zeros(x.shape[0], *x.shape[2:], dtype=torch.int64), reduction='none')
F.cross_entropy(x, y.softmax(1), reduction='none')
F.mse_loss(x, y, reduction='none')
F.l1_loss(x, y, reduction='none')
F.smooth_l1_loss(x, y, reduction='none')
F.huber_loss(x, y, reduction='none')
F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction='none')
F.kl_div(x, y, reduction='none')
F.mse_loss(x, y)
F.poisson_nll_loss(x, y, reduction='none')
F.gaussian_nll_loss(x, y, y.abs(), reduction='none')
F.soft_margin_loss(x, y, reduction='none')
F.cosine_similarity(x, y)
F.pairwise_distance(x, y)
F.triplet_margin_loss(x, y, y, reduction='none')
F.fold(x.flatten(2)[:, :, :4], (2, 2), 1)
F.embedding(torch.zeros(x.shape, dtype=torch.int64), torch.ones(3, 2))
F.one_hot(x.abs().long().clamp(0, 2), 3)
x.frexp()
torch.polar(x, y)
torch.complex(x, y)
torch.view_as_complex(torch.stack([x, y], -1))
torch.cross(x[:, :3], y[:, :3], dim=1)
torch.cdist(x, y)
torch.linalg.vander(x)
x.unfold(2, 2, 1)
x.nonzero()
torch.bucketize(x, torch.arange(3.))
torch.searchsorted(torch.arange(3.), x)
torch.isin(x, torch.arange(3.))
torch.isclose(x, y)
torch.heaviside(x, y)
torch.copysign(x, y)
torch.fmod(x, y)
torch.remainder(x, 2)
torch.floor_divide(x, y)
torch.histc(x)
torch.quantile(x, 0.5, dim=1)
torch.cov(x.flatten(1))
x.clone().add_(1)
x.clone().zero_()
torch.bmm(x[:, 0], x[:, 0])
torch.mm(x[0, 0], x[0, 0])
torch.mv(x[0, 0], x[0, 0, 0])
torch.outer(x[0, 0, 0], x[0, 0, 0])
x[0].softmax(0)
x[0, 0].t() + x[0, 0]
x[0, 0].t().exp()
x[0] * y[0]
x[0].sum(0)
x[0].clone()
x[:, 0].clone()
x.mT.clone()
x.permute(3, 2, 1, 0) + y.permute(3, 2, 1, 0)
x.permute(1, 0, 2, 3).sum(1)
torch.special.erf(x)
torch.special.xlogy(x, y)
torch.special.logit(x.sigmoid())
x.digamma()
x.erfinv()
x.frac()
x.sign()
x.round()
x.square()
x.rsqrt()
x.reciprocal()
torch.bitwise_and(x.int(), y.int())
x.int() << 1
x.logical_and(y)
x.logaddexp(y)
x.hypot(y)
x.fmax(y)
x.sub(y, alpha=2)
torch.rsub(x, y)
x.true_divide(2)
x.div(y, rounding_mode='floor')
torch.addr(x[0, 0], x[0, 0, 0], x[0, 0, 0])
torch.nn.BatchNorm2d(x.shape[1])(x)
torch.nn.BatchNorm2d(x.shape[1]).eval()(x)
torch.nn.InstanceNorm2d(x.shape[1])(x)
torch.nn.GroupNorm(1, x.shape[1])(x)
torch.nn.Conv2d(x.shape[1], 2, 1)(x)
torch.nn.PReLU()(x)
torch.nn.Softmax2d()(x)
torch.nn.Flatten()(x)
torch.nn.Upsample(scale_factor=2)(x)
""".strip().splitlines()
# Of these the results alone are compared, not their gradients.
RESULTS_ALONE = """
F.pixel_shuffle(x[:1], 2)
F.pixel_shuffle(x[0], 2)
F.pixel_shuffle(x[:, :, :1], 2)
F.pixel_unshuffle(x[:1], 2)
F.pixel_unshuffle(x[0], 2)
F.channel_shuffle(x, 4)
F.channel_shuffle(x, 1)
F.channel_shuffle(x[:1], 2)
F.channel_shuffle(x[:, :, :1], 2)
F.channel_shuffle(x[:, :2], 2)
F.channel_shuffle(x[..., 0], 2)
torch.cat([x[:, :1], x[:, :1]], 1)
torch.cat([x[:, :1], y[:, :1]], 1)
torch.cat([y[:, :1], x], 1)
torch.cat([x[:, :1], x[:, :1]], 0)
torch.cat([x[:, :1], x[:, :1]], 2)
torch.cat([x[:1], x], 0)
torch.cat([x[:, :, :1], x], 2)
torch.cat([x[0], x[0]], 0)
torch.cat([x[0, 0], x[0, 0]], 0)
torch.cat([x.mT, x.mT], 1)
torch.cat([x.double(), x], 1)
F.rrelu(x)
F.rrelu(x, training=True)
F.rrelu(x - .5, training=True)
torch.rrelu(x, 0.1, 0.3, True)
torch.renorm(x, 2, 0, 1.)
torch.renorm(x, 2, 1, 1.)
torch.renorm(x, 2, 3, 1.)
x[torch.tensor([0, 1])]
x[:, torch.tensor([0, 1])]
x[:, :, torch.tensor([0, 1])]
x[..., torch.tensor([0, 1])]
x[:, torch.tensor([[0, 1]])]
x[torch.tensor([0, 1]), torch.tensor([0, 1])]
x[torch.tensor([0, 1]), :, torch.tensor([0, 1])]
x[:, torch.tensor([0, 1]), torch.tensor([0, 1])]
x[:, torch.tensor([0, 1]), :, torch.tensor([0, 1])]
x[torch.tensor([0, 0]), torch.tensor([0, 1]), torch.tensor([0, 1]), torch.tensor([0, 1])]
x.permute(1, 0, 2, 3)[torch.tensor([0, 1])]
x.permute(0, 2, 3, 1)[:, torch.tensor([0, 1])]
x.permute(3, 2, 1, 0)[torch.tensor([[0, 1], [1, 0]])]
x.mT[torch.tensor([0, 1])]
x.mT[:, torch.tensor([0, 1])]
x[0].mT[torch.tensor([0, 1])]
x[0, 0].t()[torch.tensor([0, 1])]
x[0, 0].t()[:, torch.tensor([0, 1])]
x[0, 0].t()[torch.tensor([0, 1]), torch.tensor([0, 1])]
x[0, :, None][torch.tensor([0, 1])]
x[1, torch.tensor([0, 1])]
x[:, ::2, torch.tensor([0, 1])]
x[x[:, 0, 0, 0] > -1]
x[:, x[0, :, 0, 0] > -1]
torch.select_scatter(x, y[:, 0], 1, 0)
torch.select_scatter(x[:, :, ::2], y[:, 0, ::2], 1, 0)
torch.slice_scatter(x, y[:, :1], 1, 0, 1)
torch.slice_scatter(x[..., ::2], y[:, :1, :, ::2], 1, 0, 1)
torch.diagonal_scatter(x, x.diagonal(0, 2, 3).clone(), 0, 2, 3)
torch.diagonal_scatter(x[:, ::2], x[:, ::2].diagonal(0, 2, 3).clone(), 0, 2, 3)
torch.as_strided_scatter(x, torch.ones(2), (2,), (1,))
torch.as_strided_scatter(x[..., ::2], torch.ones(2), (2,), (1,))
torch.fft.fftshift(x)
torch.fft.fftshift(x, dim=1)
torch.fft.ifftshift(x)
torch.fft.ifftshift(x, dim=(2, 3))
torch.einsum('bij,bjk->bik', x[:, 0], x[:, 0])
torch.einsum('bij,bjk->bik', x[:1, 0], x[:1, 0])
torch.einsum('bchw,dc->bdhw', x, torch.ones(3, x.shape[1]))
torch.einsum('bchw,bdhw->bcd', x[:1], x[:1])
torch.einsum('bchw,bchv->bcwv', x[:1], x[:1])
torch.einsum('bchw,bchv->bcwv', x, x)
torch.einsum('bhwc,hkc->bhwk', x.permute(0, 2, 3, 1)[:1], torch.ones(x.shape[2], 5, x.shape[1]))
torch.einsum('bchw,bchw->b', x, x)
torch.einsum('ij,jk', x[0, 0], x[0, 0])
torch.einsum('ij,jk->ki', x[0, 0], x[0, 0])
torch.einsum('bij,bjk->kbi', x[:, 0], x[:, 0])
torch.fft.ihfftn(x)
torch.fft.ihfftn(x, dim=(0, 1))
torch.fft.ihfftn(x, dim=(1, 0))
torch.fft.ihfftn(x, dim=(3, 1))
torch.fft.ihfftn(x, dim=(2, 1, 3))
torch.fft.ihfft2(x)
torch.fft.ihfft2(x, dim=(1, 0))
torch.fft.ihfft2(x, dim=(3, 2))
torch.fft.hfftn(x.to(torch.complex64), dim=(1, 0))
torch.fft.hfftn(x.to(torch.complex64), dim=(3, 2))
torch.fft.rfftn(x, dim=(1, 0))
torch.fft.rfftn(x, dim=(3, 2))
torch.fft.irfftn(x.to(torch.complex64), dim=(1, 0))
torch.fft.irfftn(x.to(torch.complex64), dim=(3, 1))
torch.fft.fftn(x, dim=(3, 1))
""".strip().splitlines()
NEEDS_VALUES = ("x[x > 0]", "x[x[:, 0", "x[:, x[0", "x.masked_select(x > 0)", "x.nonzero()", "F.gaussian_nll_loss")


VOLUMES = {
    "row-major": "made(2, 4, 4, 6, 6)",
    "channels last": "made(2, 4, 4, 6, 6).to(memory_format=torch.channels_last_3d)",
    "cropped": "made(2, 4, 6, 8, 8).to(memory_format=torch.channels_last_3d)[:, :, 1:5, 1:7, 2:8]",
    "some channels": "made(2, 6, 4, 6, 6).to(memory_format=torch.channels_last_3d)[:, 1:5]",
    "permuted": "made(6, 2, 6, 4, 4).permute(1, 3, 4, 0, 2)",
    "expanded": "made(2, 1, 4, 6, 6).expand(2, 4, 4, 6, 6)",
}
CALLS_OF_VOLUMES = """
x * ch
x.to(memory_format=torch.channels_last_3d)
F.interpolate(x, scale_factor=2)
F.interpolate(x, scale_factor=2, mode='trilinear')
F.interpolate(x, scale_factor=2, mode='nearest-exact')
F.interpolate(x, scale_factor=2, mode='area')
F.max_pool3d(x, 2)
F.max_pool3d(x, 2, return_indices=True)
F.avg_pool3d(x, 2)
F.adaptive_avg_pool3d(x, 2)
F.adaptive_avg_pool3d(x, 1)
F.adaptive_max_pool3d(x, 2)
F.adaptive_max_pool3d(x, 1)
F.conv3d(x, torch.ones(3, x.shape[1], 1, 1, 1))
F.conv3d(x, torch.ones(3, x.shape[1], 3, 3, 3), padding=1)
F.conv3d(x, torch.ones(4, 1, 3, 3, 3), padding=1, groups=4)
F.conv3d(x[0], torch.ones(3, x.shape[1], 1, 1, 1))
F.conv_transpose3d(x, torch.ones(x.shape[1], 3, 3, 3, 3))
F.batch_norm(x, None, None, None, None, True)
F.batch_norm(x, torch.zeros(x.shape[1]), torch.ones(x.shape[1]))
F.group_norm(x, 2)
F.instance_norm(x)
F.layer_norm(x, x.shape[2:])
F.pad(x, (1, 1))
F.pad(x, (1, 1, 1, 1, 1, 1), 'reflect')
F.pad(x, (1, 1, 1, 1, 1, 1), 'replicate')
F.pad(x, (1, 1, 1, 1, 1, 1), 'circular')
torch.stack([x, x])
torch.cat([x, x], 1)
torch.cat([x, y], 1)
torch.cat([y, x], 1)
F.channel_shuffle(x, 2)
F.dropout3d(x, .5, True)
F.dropout(x, .5, True)
F.max_unpool3d(x, torch.zeros(x.shape, dtype=torch.int64), 2)
F.lp_pool3d(x, 2, 2)
F.fractional_max_pool3d(x, 2, output_size=2)
F.grid_sample(x, torch.zeros(2, 3, 3, 3, 3), align_corners=False)
F.grid_sample(x, torch.zeros(2, 3, 3, 3, 3), 'nearest', align_corners=False)
x.sum(1)
x.mean((2, 3, 4))
x.mean((2, 3, 4), keepdim=True)
x.softmax(1)
x.flip(1)
x.roll(1, 1)
x.sort(1)
x.cumsum(2)
x.index_select(1, torch.tensor([0, 0]))
x[:, torch.tensor([0, 1])]
x.repeat(1, 2, 1, 1, 1)
F.prelu(x, torch.ones(4))
F.rrelu(x, training=True)
torch.renorm(x, 2, 1, 1.)
F.glu(x, 1)
F.normalize(x)
F.cross_entropy(x, torch.zeros(2, 4, 6, 6, dtype=torch.int64), reduction='none')
""".strip().splitlines()


def strides(lib: Any, value: Any) -> Any:
    """Shape, strides where the size is not 1, and dtype of each tensor in `value`."""
    if isinstance(value, lib.Tensor):
        told = tuple(s if n != 1 else 0 for s, n in zip(value.stride(), value.shape, strict=True)) if value.numel() else None
        return tuple(value.shape), told, str(value.dtype)
    return [strides(lib, v) for v in value] if isinstance(value, (tuple, list)) else repr(value)


def outcome(lib: Any, layout: str, call: str, device: str = "cpu", backward: bool = False, volumes: bool = False) -> Any:
    """Strides of what `call` gives for a tensor of that layout, or of the gradient there; the class of the error it raises."""

    def made(*shape: int) -> Any:
        count = lib.Size(shape).numel()
        return (lib.arange(count, dtype=lib.float32, device=device) / max(count, 1) + 0.1).reshape(shape)

    lib.manual_seed(0)
    scope = {"torch": lib, "F": lib.nn.functional, "made": made}
    x = scope["x"] = eval((VOLUMES if volumes else LAYOUTS)[layout], scope).detach().requires_grad_(backward)
    scope |= {"y": made(*x.shape), "c": made(*x.shape), "ch": made(x.shape[1], *[1] * (x.ndim - 2)), "b": made(x.shape[-1])}
    lib.set_default_device(device)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = eval(call, scope)
            if backward:
                results = [v for v in (value if isinstance(value, (tuple, list)) else [value]) if v.requires_grad]
                value = lib.autograd.grad(results, [x], [lib.ones_like(v) for v in results], allow_unused=True) if results else []
        return strides(lib, value)
    except Exception as error:  # of any class: both have to raise it
        return f"raises {type(error).__name__}"
    finally:
        lib.set_default_device(None)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_have_the_strides_of_pytorch(oracle: Any, layout: str) -> None:
    wrong = [
        f"{call}\n  PyTorch:  {theirs}\n  Flambeau: {ours}"
        for call in CALLS + RESULTS_ALONE
        if (theirs := outcome(oracle, layout, call)) != (ours := outcome(fb, layout, call))
    ]

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("layout", VOLUMES)
def test_results_of_volumes_have_the_strides_of_pytorch_and_the_same_on_meta(oracle: Any, layout: str) -> None:
    wrong = []
    for call in CALLS_OF_VOLUMES:
        theirs, ours = (outcome(lib, layout, call, volumes=True) for lib in (oracle, fb))
        meta = outcome(fb, layout, call, "meta", volumes=True)
        if not theirs == ours == meta:
            wrong.append(f"{call}\n  PyTorch:  {theirs}\n  Flambeau: {ours}\n  meta:     {meta}")

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_on_meta_have_the_strides_of_real_ones(layout: str) -> None:
    wrong = [
        f"{call}\n  real: {real}\n  meta: {meta}"
        for call in CALLS + RESULTS_ALONE
        if not call.startswith(NEEDS_VALUES) and (real := outcome(fb, layout, call)) != (meta := outcome(fb, layout, call, "meta"))
        and real != "raises IndexError"                # by the values of indices
    ]

    assert not wrong, "\n".join(wrong)


# Gradients that lie in memory otherwise than PyTorch's, for some of the layouts.
# Of sums: PyTorch's is the gradient that arrives, expanded, in which nobody may write; ours has memory of its own.
# Of `diag_embed` and `polar`: PyTorch's is a part of a gradient of several times the size; ours is no larger than it has to be.
# Of the others: PyTorch's is row-major (or in the order of the other operand) whatever arrives; ours lies as what arrives.
OTHER_GRADIENTS = """
x.sum(1)
x.sum(1, keepdim=True)
x.sum((2, 3))
x.sum((2, 3), keepdim=True)
x.sum(0)
x.sum(2)
x.permute(1, 0, 2, 3).sum(1)
torch.diag_embed(x)
torch.polar(x, y)
x ** y
x.fmax(y)
torch.special.xlogy(x, y)
x.take(torch.zeros(2, 3, dtype=torch.int64))
F.interpolate(x, scale_factor=2, mode='bicubic')
F.interpolate(x, size=(1, 1), mode='bilinear')
F.mse_loss(x, y, reduction='none')
F.smooth_l1_loss(x, y, reduction='none')
F.huber_loss(x, y, reduction='none')
F.soft_margin_loss(x, y, reduction='none')
F.pairwise_distance(x, y)
F.triplet_margin_loss(x, y, y, reduction='none')
""".strip().splitlines()


@pytest.mark.parametrize("layout", ["channels last", "cropped", "permuted", "expanded"])
def test_gradients_have_the_strides_of_pytorch_and_the_same_on_meta(oracle: Any, layout: str) -> None:
    wrong = []
    for call in CALLS:
        if call.startswith(NEEDS_VALUES):
            continue
        theirs = outcome(oracle, layout, call, backward=True)
        if isinstance(theirs, str):                   # PyTorch has no gradient of it
            continue
        ours = outcome(fb, layout, call, backward=True)
        meta = outcome(fb, layout, call, "meta", backward=True)
        if not (ours == meta and (theirs == ours or call in OTHER_GRADIENTS)):
            wrong.append(f"{call}\n  PyTorch:  {theirs}\n  Flambeau: {ours}\n  meta:     {meta}")

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("call", OTHER_GRADIENTS)
def test_gradients_said_to_lie_otherwise_than_pytorchs_do(oracle: Any, call: str) -> None:
    layouts = ["channels last", "permuted"]

    assert [outcome(oracle, x, call, backward=True) for x in layouts] != [outcome(fb, x, call, backward=True) for x in layouts]


# -- transforms ----------------------------------------------------------------------------------------------------------------

TRANSFORMS = """
torch.fft.fft(x)
torch.fft.ifft(x, dim=1)
torch.fft.fft(x, 3)
torch.fft.fft(x.to(torch.complex64), dim=0)
torch.fft.fft2(x)
torch.fft.ifft2(x, (3, 12))
torch.fft.fftn(x, dim=(1, 2))
torch.fft.rfft(x)
torch.fft.rfft(x, dim=1)
torch.fft.rfft(x, 12, dim=2)
torch.fft.rfftn(x)
torch.fft.irfft(x.to(torch.complex64))
torch.fft.irfft2(x.to(torch.complex64))
torch.fft.irfftn(x.to(torch.complex64), dim=(0, 2))
torch.fft.hfft(x.to(torch.complex64))
torch.fft.hfft2(x.to(torch.complex64))
torch.fft.ihfft(x)
""".strip().splitlines()


def test_backward_of_transforms_to_real_values_runs_on_meta() -> None:
    x = fb.ones(3, 4, dtype=fb.complex64, device="meta", requires_grad=True)

    fb.fft.irfft(x).sum().backward()

    assert x.grad.shape == (3, 4)


@pytest.mark.parametrize("part", ["", ".contiguous()", "[:, :, 1:7, 2:7]", ".permute(1, 0, 2, 3)", ".transpose(2, 3)"])
def test_results_of_transforms_lie_in_memory_as_pytorchs(oracle: Any, part: str) -> None:
    def strides(lib: Any, call: str, device: str) -> tuple[int, ...]:
        return eval(call, {"torch": lib, "x": eval(WHOLE + part, {"torch": lib}).to(device)}).stride()

    wrong = [
        f"{call}\n  PyTorch:  {theirs}\n  Flambeau: {ours}\n  meta:     {meta}"
        for call in TRANSFORMS
        if not (theirs := strides(oracle, call, "cpu")) == (ours := strides(fb, call, "cpu")) == (meta := strides(fb, call, "meta"))
    ]

    assert not wrong, "\n".join(wrong)


# -- matrices ------------------------------------------------------------------------------------------------------------------

# `a` has as many rows as columns, `tall` more, `wide` fewer; `b` are right-hand sides.
OF_MATRICES = """
L.inv(a)
L.inv_ex(a)
L.pinv(tall)
L.pinv(a)
L.pinv(a + a.mT, hermitian=True)
L.qr(tall)
L.qr(wide)
L.qr(tall, mode='complete')
L.qr(wide, mode='complete')
L.qr(tall, mode='r')
L.svd(tall)
L.svd(wide)
L.svd(tall, full_matrices=False)
L.svdvals(tall)
L.eigh(a + a.mT)
L.eig(a)
L.eigvals(a)
L.eigvalsh(a + a.mT)
L.cholesky(positive)
L.cholesky(positive, upper=True)
L.cholesky_ex(positive)
L.lu(a)
L.lu(tall)
L.lu(wide)
L.lu_factor(a)
L.lu_factor(tall)
L.lu_factor_ex(wide)
L.lu_solve(*L.lu_factor(a), b)
L.lu_solve(*L.lu_factor(a), b, adjoint=True)
L.lu_solve(*L.lu_factor(a), b.mT, left=False)
L.solve(a, b)
L.solve(a, b[..., 0])
L.solve(a, b.mT, left=False)
L.solve_ex(a, b)
L.solve_triangular(a, b, upper=True)
L.solve_triangular(a, b.mT.contiguous().mT, upper=False)
L.solve_triangular(a, b.mT, upper=True, left=False)
L.lstsq(tall, torch.cat([b, b], -2)[..., :4, :])[0]
L.lstsq(wide, b)[0]
L.matrix_power(a, -2)
L.matrix_power(a, -1)
L.matrix_power(a, 1)
L.matrix_power(a, 3)
L.householder_product(tall, a[..., 0])
L.ldl_factor(a + a.mT)
L.ldl_factor_ex(a + a.mT)
L.ldl_solve(*L.ldl_factor(a + a.mT), b)
L.det(a)
L.slogdet(a)
L.cond(a)
L.matrix_rank(a)
L.matrix_norm(a)
L.vecdot(a, a)
torch.cholesky_solve(b, L.cholesky(positive))
torch.cholesky_inverse(L.cholesky(positive))
torch.geqrf(tall)
torch.geqrf(wide)
torch.orgqr(tall, a[..., 0])
torch.ormqr(tall, a[..., 0], torch.cat([b, b], -2)[..., :4, :])
torch.lu_unpack(*L.lu_factor(tall))
torch.svd(tall)
torch.svd(wide)
torch.svd(tall, some=False)
torch.logdet(positive)
torch.kron(a, a)
torch.unique(a, dim=-1)
torch.unique(a, dim=-2)
""".strip().splitlines()


def of_matrices(lib: Any, call: str, batch: tuple[int, ...], order: str) -> Any:
    """Strides of the results of `call`, those of dimensions of size 1 left out."""
    generator = lib.Generator().manual_seed(0)

    def made(*shape: int) -> Any:
        x = lib.rand(*batch, *shape, generator=generator, dtype=lib.float64) + 0.5
        if order == "columns":
            return x.mT.contiguous().mT
        return x.transpose(0, 1).contiguous().transpose(0, 1) if order == "turned batch" else x

    names = {"a": made(3, 3), "tall": made(4, 3), "wide": made(3, 4), "b": made(3, 2), "torch": lib, "L": lib.linalg}
    names["a"] += 3 * lib.eye(3, dtype=lib.float64)
    names["positive"] = names["a"] + names["a"].mT + 10 * lib.eye(3, dtype=lib.float64)
    found = eval(call, names)
    return [
        tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1)
        for t in (found if isinstance(found, (tuple, list)) else [found]) if t.numel()
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore:torch.lu|torch.svd|torch.qr")
@pytest.mark.parametrize(("batch", "order"), [((), "rows"), ((), "columns"), ((2,), "rows"), ((2,), "columns"), ((2, 3), "turned batch")])
def test_results_of_linear_algebra_lie_in_memory_as_pytorchs(oracle: Any, batch: tuple[int, ...], order: str) -> None:
    wrong = [
        f"{call}\n  PyTorch:  {theirs}\n  Flambeau: {ours}"
        for call in OF_MATRICES
        if (ours := of_matrices(fb, call, batch, order)) != (theirs := of_matrices(oracle, call, batch, order))
    ]

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["dropout1d", "dropout2d", "feature_alpha_dropout"])
def test_channels_of_one_place_are_dropped_in_the_order_of_channels_whatever_the_memory(name, oracle):
    def dropped(lib):
        lib.manual_seed(0)
        shape = (4, 5, 1, 1) if name == "dropout2d" else (4, 5, 1)
        return getattr(lib.nn.functional, name)(lib.ones(shape).transpose(0, 1), 0.5, True).flatten().tolist()

    assert dropped(fb) == pytest.approx(dropped(oracle))


@pytest.mark.parametrize("part", ["[:]", "[:, :, 1:5, 1:5]", "[:, ::2]"])
def test_shuffled_pixels_of_channels_last_images_are_channels_last(part, oracle):
    def strides_of(lib):
        x = eval(f"lib.arange(2 * 16 * 6 * 6.).reshape(2, 16, 6, 6).contiguous(memory_format=lib.channels_last){part}", {"lib": lib})
        made = [lib.pixel_shuffle(x, 2), lib.pixel_unshuffle(x, 2), lib.channel_shuffle(x, 2)]
        return [(y.stride(), y.flatten().tolist()) for y in made]

    assert strides_of(fb) == strides_of(oracle)


@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide"])
@pytest.mark.parametrize("dtype", [fb.int64, fb.int16, fb.uint8])
def test_quotients_and_remainders_of_integers_keep_the_order_from_the_first_call_on(name: str, dtype: fb.dtype) -> None:
    x = fb.arange(24).reshape(2, 3, 4).to(dtype).transpose(0, 1)

    for other in (5, x + 1):
        assert [getattr(fb, name)(x, other).stride() for _ in range(5)] == [x.stride()] * 5


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_sums_with_products_lie_as_the_product_does(dtype):
    torch = pytest.importorskip("torch")
    programs = [
        lambda lib, v: lib.addmm(v[0], v[0], v[0]), lambda lib, v: lib.addmm(v[0], v[0], v[0], beta=2),
        lambda lib, v: lib.baddbmm(v, v, v), lambda lib, v: lib.baddbmm(v[0], v, v, alpha=3),
        lambda lib, v: lib.addbmm(v[0], v, v), lambda lib, v: lib.addr(v[0], v[0, 0], v[0, 0]),
    ]  # fmt: skip

    for program in programs:
        theirs = program(torch, torch.ones(2, 3, 7, dtype=getattr(torch, dtype))[..., :3].mT)
        v = fb.ones(2, 3, 7, dtype=getattr(fb, dtype))[..., :3].mT
        compiled = fb.compile(lambda v, program=program: program(fb, v * 1))
        assert program(fb, v).stride() == program(fb, v.to("meta")).stride() == compiled(v).stride() == theirs.stride()

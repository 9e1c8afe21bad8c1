"""Each operator under ONNX's evaluator gives what it gives here."""

from __future__ import annotations

import pytest

import flambeau as fb
import flambeau.nn.functional as F
from comparing_onnx import agree, exported

fb.manual_seed(0)
VALUES = {
    "x": fb.randn(3, 4), "y": fb.randn(3, 4) + 2.5, "p": fb.rand(3, 4) * 0.8 + 0.1, "b": fb.rand(3, 4) > 0.5, "c": fb.rand(3, 4) > 0.3,
    "i": fb.randint(-9, 9, (3, 4)), "j": fb.randint(1, 5, (3, 4)), "v": fb.randn(4), "w": fb.randn(3), "m": fb.randn(4, 5),
    "s": fb.randn(2, 3, 4), "u": fb.randn(2, 4, 5), "q": fb.randn(2, 3, 6, 6), "k": fb.tensor([2, 0, 1]), "h": fb.randn(3, 4).half(),
    "t": fb.randint(0, 3, (3, 4)), "d": fb.randn(3, 4).double(), "z": fb.tensor(1.5), "n": fb.tensor([[2, 0], [1, 1]]), "A": fb.randn(3, 3),
    "f": fb.tensor([0.0, float("nan"), float("inf"), -float("inf"), -0.0, 2.0]), "e": fb.randint(0, 5, (3,)), "l": fb.randn(3, 5),
}  # fmt: skip

ELEMENTWISE = """
    x.abs(); i.abs(); -x; -i; x.relu(); x.sign(); i.sign(); x.exp(); p.log(); p.sqrt(); x.sin(); x.cos(); x.tan(); p.asin(); p.acos()
    x.atan(); x.sinh(); x.cosh(); x.tanh(); x.asinh(); (y * y + 1).acosh(); p.atanh(); x.erf(); y.reciprocal(); x.sigmoid(); i.sigmoid()
    j.exp(); x.ceil(); x.floor(); x.round(); (x * 9).round(decimals=1); i.floor(); x.trunc(); x.frac(); p.rsqrt(); x.exp2(); x.expm1()
    p.log1p(); p.log2(); p.log10(); x.erfc(); x.square(); +x; x.clone(); fb.deg2rad(x); fb.rad2deg(x); f.isnan(); f.isinf(); f.isfinite()
    b.logical_not(); x.logical_not(); ~b; ~i; fb.nan_to_num(f, 1.0, 2.0, 3.0); fb.nan_to_num(f, posinf=5.0, neginf=-5.0); x.int()
    x.to(fb.int64); b.float(); x.bool(); i.double(); h.float(); x.half(); F.relu6(x * 9); F.hardtanh(x, -0.5, 0.7); F.leaky_relu(x, 0.2)
    F.elu(x, 0.7); F.celu(x, 0.7); F.selu(x); F.gelu(x); F.gelu(x, approximate='tanh'); F.silu(x); F.softplus(x * 9, 2.0, 3.0); F.mish(x)
    F.hardsigmoid(x * 4); F.hardswish(x * 4); F.logsigmoid(x); F.softshrink(x, 0.3); F.hardshrink(x, 0.3); F.threshold(x, 0.1, 9.0)
    F.prelu(x, v.abs()); F.prelu(q, w.abs()); F.glu(x); p.logit(); p.logit(0.2); F.softsign(x); F.tanhshrink(x); F.dropout(x, 0.5, False)
    F.rrelu(x); x + y; x + 2; x + i; 2 + i; i + 1.5; b + c; x + z; x.add(y, alpha=3); x - y; 2 - x; x.sub(y, alpha=2); x * y; x * 2; b * c
    b * 2; x / y; i / j; i / 2; 2 / y; fb.div(x, y, rounding_mode='floor'); fb.div(x, y, rounding_mode='trunc')
    fb.div(i, j, rounding_mode='floor'); fb.div(i, j, rounding_mode='trunc'); i // j; x // y; i % j; x % y; i % 3; fb.fmod(x, y)
    fb.fmod(i, j); p ** x; p ** 0.5; p ** 2; p ** 3; i ** 2; 2 ** x; fb.maximum(x, y); fb.minimum(x, y); fb.maximum(i, x)
    x.clamp(-0.5, 0.5); x.clamp(min=0); x.clamp(max=0); i.clamp(-2, 2); x.clamp(-p, p); i.clamp(min=0.5); fb.atan2(x, y - 2.5)
    fb.hypot(x, y); fb.logaddexp(x, y); fb.xlogy(p, p); fb.lerp(x, y, 0.3); fb.lerp(x, y, p); fb.addcmul(x, y, p, value=2)
    fb.addcdiv(x, y, p, value=2); x == y; i == 1; x != y; x < y; x <= 0; i > j; i >= 0.5; b == c; b > c; b & c; b | c; b ^ c; i & j; i | 3
    i ^ j; fb.logical_and(x, b); fb.logical_or(b, c); fb.logical_xor(b, c); fb.where(b, x, y); fb.where(b, x, 0.0); fb.where(b, i, x)
    x.masked_fill(b, -1e9); i.masked_fill(b, 7); fb.heaviside(x, p); fb.copysign(x, f[4]); h + 1; h * h; d + x; h + x; d * 2.5
    x + d[0, 0]
"""
REDUCTIONS = """
    x.sum(); x.sum(1); x.sum((0, 1), keepdim=True); i.sum(); b.sum(); x.sum(dtype=fb.float64); x.mean(); x.mean(0); x.mean((0, 1))
    x.prod(); x.prod(1); i.prod(); x.amax(1); x.amin(0, keepdim=True); x.max(); x.min(); i.max(); x.max(1); x.min(0); fb.aminmax(x)
    x.argmax(); x.argmax(1); x.argmin(0, keepdim=True); b.all(); b.any(); b.all(1); b.any(0); x.all(); fb.count_nonzero(i)
    fb.count_nonzero(i, 1); x.var(); x.var(1); x.std(); x.std(1, unbiased=False); x.var(1, correction=0, keepdim=True); fb.var_mean(x, 1)
    fb.std_mean(x); x.logsumexp(1); x.logsumexp((0, 1)); x.norm(); x.norm(dim=1); x.norm(1, 1); x.norm(float('inf'), 1); x.norm(3, 1)
    fb.linalg.vector_norm(x, 2, 1); x.cumsum(1); i.cumsum(0); b.cumsum(0); x.softmax(1); x.softmax(0); x.log_softmax(1)
    h.softmax(1, dtype=fb.float32); F.softmin(x, 1); x.topk(2); x.topk(2, 0, largest=False); x.sort(); x.sort(0, descending=True)
    x.argsort(1); x.nansum(1); z.sum(); z.softmax(0); F.normalize(x); F.normalize(x, p=1, dim=0); x.median(1)
"""
SHAPES = """
    x.view(4, 3); x.view(-1); x.reshape(2, -1); x.t().reshape(-1); s.flatten(); s.flatten(1); x.flatten(0); x.unflatten(1, (2, 2))
    x.transpose(0, 1); x.t(); x.T; s.mT; s.permute(2, 0, 1); s.movedim(0, 2); s.movedim((0, 1), (1, 2)); x.unsqueeze(1); x.unsqueeze(-1)
    x.unsqueeze(0).squeeze(); x.unsqueeze(0).squeeze(0); x.squeeze(0); v.expand(3, 4); v.expand(2, 3, 4); v.expand_as(x)
    fb.broadcast_to(v, (3, 4)); x.repeat(2, 1); x.repeat(2, 1, 3); x.tile(2); x.repeat_interleave(2, 1); x.repeat_interleave(2)
    fb.cat([x, y]); fb.cat([x, i], 1); fb.stack([x, y], 1); fb.cat([x, fb.zeros(0)]); fb.hstack([x, y]); fb.vstack([v, v]); x[1]; x[:, 1]
    x[:, -1]; x[1:]; x[:, ::2]; x[:, -2:]; x[..., 1:3]; x[None, :, 1]; x.narrow(1, 1, 2); x.select(1, 2); x.unbind(0); x.split(2, 1)
    x.split([1, 3], 1); x.chunk(2, 1); x.chunk(3, 1); fb.tensor_split(x, 3, 1); fb.tensor_split(x, (1, 2), 1); x.flip(0); x.flip(0, 1)
    x.fliplr(); x.roll(1, 1); x.roll(-1); s.roll((1, 2), (0, 2)); A.diagonal(); x.diagonal(1); s.diagonal(0, 1, 2); x.tril(); x.triu(1)
    A.tril(-1); (x > 0).tril(); F.pad(x, (1, 2)); F.pad(x, (1, -1, 0, 2), value=5.0); F.pad(q, (1, 2, 1, 0), 'reflect')
    F.pad(q, (1, 2, 0, 1), 'replicate'); F.pad(q, (1, 2, 3, 1), 'circular'); F.pixel_shuffle(q.repeat(1, 4, 1, 1), 2)
    F.pixel_unshuffle(q, 2); F.channel_shuffle(q.repeat(1, 2, 1, 1), 2); fb.meshgrid(v, w, indexing='ij'); x.contiguous()
    x.unfold(1, 2, 1); s.unfold(1, 2, 1); x.diag_embed(); v.diag(); A.trace(); x.rot90()
"""
PRODUCTS = """
    x @ m; x @ v; v @ v; s @ m; s @ u; fb.mm(x, m); fb.bmm(s, u); fb.mv(x, v); fb.dot(v, v); fb.outer(v, w)
    fb.addmm(l, x, m, beta=0.5, alpha=2); fb.baddbmm(fb.zeros(2, 3, 5), s, u, alpha=2); fb.addbmm(l, s, u); fb.addmv(w, x, v)
    fb.einsum('bij,bjk->bik', s, u); fb.einsum('ij->ji', x); fb.einsum('i,j->ij', v, w); fb.einsum('bij,bij->b', s, s); F.linear(x, m.t())
    F.linear(s, m.t(), fb.ones(5)); F.cosine_similarity(x, y); A.det(); i @ i.t(); h @ h.t(); F.scaled_dot_product_attention(s, s, s)
    F.scaled_dot_product_attention(s, s, s, is_causal=True); F.scaled_dot_product_attention(s, s, s, attn_mask=A > 0.5)
    F.scaled_dot_product_attention(s, s, s, attn_mask=A, scale=0.3); fb.tensordot(x, m, 1); fb.kron(x, A); fb.matrix_power(A, 3)
    fb.cross(A, A.t(), dim=1); fb.cdist(x, y); fb.cdist(x, y, 1.0); fb.cdist(x, y, float("inf")); fb.linalg.multi_dot([x, m, m.t()])
"""
INDEXING = """
    x[k]; x[:, k]; x[k, k]; s[:, k, k]; s[k % 2, :, k]; x[n]; s[:, n]; x[fb.tensor([-1, 0])]; x.index_select(1, k); x.gather(0, t)
    x.gather(1, t); x.take(k); fb.take_along_dim(x, t, 1); x.scatter(0, t, y); x.scatter(1, k[:, None], 5.0); x.scatter_add(0, t, y)
    x.index_add(0, k, y); x.index_copy(0, k, y); x.index_fill(1, k, 3.0); x.index_put((k, k), w)
    x.index_put((k,), fb.ones(4), accumulate=True); s.index_put((k % 2, k), fb.zeros(3, 4)); x.scatter_reduce(0, t, y, 'amax')
    F.embedding(n, m); F.one_hot(t, 4); x.nonzero().shape[1]; fb.arange(5) + k[0]; fb.arange(1, 9, 2); fb.arange(0.0, 1.0, 0.25)
    fb.zeros_like(x); fb.ones_like(i); fb.full_like(x, 3); x.new_zeros(2, 3); x.new_full((2,), 7); x.new_ones(3); fb.eye(3) * z
    fb.linspace(0, 1, 5) * z; fb.tril_indices(3, 3) + k[0]; x * fb.full((4,), 2.0); fb.zeros(3, 4) + x; fb.ones(4, dtype=fb.int64) * i
    x + fb.tensor([1.0, 2.0, 3.0, 4.0]); fb.bucketize(x, fb.tensor([-1.0, 0.0, 1.0])); fb.isin(t, fb.tensor([1, 2]))
    fb.searchsorted(v.sort()[0], w)
"""
WRITES = """
    x.clone().add_(1); x.clone().mul_(y).relu_(); write(x.clone(), 'a[0] = 5'); write(x.clone(), 'a[:, 1] = 5')
    write(x.clone(), 'a[1:, ::2] = b[1:, ::2]', y); write(x.clone(), 'a[k] = b', y); write(x.clone(), 'a[b > 2] = 0', y)
    write(x.clone(), 'a[:, 0] += b[:, 1]', y); write(x.clone(), 'a.t()[1].zero_()'); write(x.clone(), 'a.view(-1)[3:5].fill_(7)')
    write(x.clone(), 'v = a[0]; a.mul_(2); a += v.clone()'); write(x.clone(), 'a.unbind(0)[1].mul_(3)')
    write(s.clone(), 'a.permute(2, 0, 1)[1] = 4'); write(x.clone(), 'a[0].copy_(a[1])'); write(x.clone(), 'a.masked_fill_(a > 0, 1.5)')
    write(i.clone(), 'a[0] = 2.7'); write(x.clone(), 'a.clamp_(0, 1)'); write(x.clone(), 'u = a.unsqueeze(0); u[0, 1, 2] = 9')
"""
LOSSES = """
    F.mse_loss(x, y); F.mse_loss(x, y, reduction='none'); F.l1_loss(x, y, reduction='sum'); F.smooth_l1_loss(x, y)
    F.smooth_l1_loss(x, y, beta=0.5); F.huber_loss(x, y, delta=0.7); F.binary_cross_entropy(p, p)
    F.binary_cross_entropy_with_logits(x, p); F.binary_cross_entropy_with_logits(x, p, pos_weight=v.abs()); F.cross_entropy(l, e)
    F.cross_entropy(l, e, reduction='none'); F.cross_entropy(l, e, weight=fb.arange(5) + 1.0); F.cross_entropy(l, e, ignore_index=2)
    F.nll_loss(l.log_softmax(1), e); F.kl_div(x, p, reduction='sum'); F.kl_div(x, y, log_target=True, reduction='batchmean')
    F.soft_margin_loss(x, x.sign()); F.poisson_nll_loss(x, p); F.hinge_embedding_loss(x, x.sign())
    F.cosine_embedding_loss(x, y, w.sign()); F.margin_ranking_loss(v, v * 2, v.sign()); F.triplet_margin_loss(x, y, p)
    F.gaussian_nll_loss(x, y, p)
"""


def write(a, statement, b=None):
    """`a` after a statement that writes to it."""
    exec(statement, {"a": a, "b": b, "k": VALUES["k"]})
    return a


def statements(text):
    """The parts of `text` between semicolons that stand in no quotes."""
    found, depth, quoted = [""], 0, False
    for c in text.replace("\n", "; "):
        quoted ^= c == "'"
        depth += (c in "([{") - (c in ")]}")
        if c == ";" and not quoted and not depth:
            found.append("")
        else:
            found[-1] += c
    return [each.strip() for each in found if each.strip()]


ALL = [each for text in (ELEMENTWISE, REDUCTIONS, SHAPES, PRODUCTS, INDEXING, WRITES, LOSSES) for each in statements(text)]


def as_function(expression):
    code = compile(expression, "<operator>", "eval")
    names = [name for name in VALUES if name in code.co_names]

    def run(*given):
        return eval(code, {"fb": fb, "F": F, "write": write, **dict(zip(names, given, strict=True))})

    return run, [VALUES[name] for name in names]


@pytest.mark.parametrize("expression", ALL)
def test_operators_give_what_they_give_here(expression):
    run, args = as_function(expression)

    half = any(x.dtype is fb.float16 for x in args) or ".half" in expression
    agree(run, exported(run, *args), *args, tolerance=2e-3 if half else 1e-5)

"""Operations that are neither formulas nor views, but may be computed later, end no recording; masks and comparisons join chains."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from flambeau.ops._derive import load_all
from flambeau.ops._spec import OPS
from flambeau_kernels.cpu import tier
from fused_programs import parts_of, same

F = fb.nn.functional
CLASSES = fb.arange(256) * 7 % 256
WEIGHTS = fb.arange(256) / 256 + 0.5
FUNCTIONS: dict[str, Any] = {
    "cat": lambda x, m: fb.cat([x * 2.0, x + 1.0], -1) * 3.0,
    "cat of dtypes": lambda x, m: fb.cat([x * 2.0, (x + 1.0).double()]) - 1.0,
    "stack": lambda x, m: fb.stack([x * 2.0, x + 1.0], 1).sum(1),
    "flip": lambda x, m: (x * 2.0).flip(0) + x,
    "roll": lambda x, m: (x * 2.0).roll(3, 1) + x,
    "repeat": lambda x, m: (x * 2.0).repeat(1, 2) + 1.0,
    "tril": lambda x, m: (x * 2.0).tril() - (x - 1.0).triu(1),
    "clone": lambda x, m: (x * 2.0).clone() + x,
    "conversion": lambda x, m: (x * 2.0).to(fb.float64) + 1.0,
    "detach": lambda x, m: (x * 2.0).detach() * (x + 1.0),
    "masked_fill": lambda x, m: (x * 2.0).masked_fill(m, -1.0) + x,
    "cumsum": lambda x, m: (x * 2.0).cumsum(-1) + x,
    "argmax": lambda x, m: (x * 2.0).argmax(-1) * 2,
    "max along": lambda x, m: (x * 2.0).max(-1).values + (x + 1.0).min(-1)[0],
    "sort": lambda x, m: (x * 2.0).sort(-1)[0] + x,
    "topk": lambda x, m: (x * 2.0).topk(3)[0] + 1.0,
    "einsum": lambda x, m: fb.einsum("ij,jk->ik", x * 2.0, x + 1.0) * 3.0,
    "einsum of rows": lambda x, m: fb.einsum("ij,ij->i", x * 2.0, x + 1.0) * 3.0,
    "mse_loss": lambda x, m: F.mse_loss(x * 2.0, m.float()) * (x + 1.0),
    "mse_loss of each": lambda x, m: F.mse_loss(x * 2.0, m.float(), reduction="none") * (x + 1.0),
    "l1_loss": lambda x, m: F.l1_loss(x * 2.0, x + 1.0) * 3.0,
    "smooth_l1_loss": lambda x, m: F.smooth_l1_loss(x * 2.0, m.float()) * 3.0,
    "huber_loss": lambda x, m: F.huber_loss(x * 2.0, x.exp(), "sum") * 3.0,
    "smooth_l1_loss itself": lambda x, m: F.smooth_l1_loss(x * 2.0, m.float()),
    "huber_loss of each itself": lambda x, m: F.huber_loss(x * 2.0, x.exp(), "none"),
    "binary_cross_entropy_with_logits itself": lambda x, m: F.binary_cross_entropy_with_logits(x * 2.0, m.float()),
    "stack itself": lambda x, m: fb.stack([x * 2.0, x + 1.0], 1),
    "binary_cross_entropy_with_logits": lambda x, m: F.binary_cross_entropy_with_logits(x * 2.0, m.float()) * 3.0,
    "cross_entropy": lambda x, m: F.cross_entropy(x * 2.0, CLASSES) * 3.0,
    "cross_entropy of each": lambda x, m: F.cross_entropy(x * 2.0, CLASSES, WEIGHTS, reduction="none", label_smoothing=0.1) * 3.0,
    "nll_loss": lambda x, m: F.nll_loss((x * 2.0).log_softmax(-1), CLASSES) * 3.0,
    "pad": lambda x, m: F.pad(x * 2.0, (1, 2), value=3.0) + 1.0,
    "pad by reflection": lambda x, m: F.pad(x * 2.0, (1, 2), "reflect") + 1.0,
    "nanmean": lambda x, m: (x * 2.0).nanmean(-1) + 1.0,
    "in place on a copy": lambda x, m: (x * 2.0).clone().mul_(3.0).add_(1.0),
    "in place on a join": lambda x, m: fb.cat([x * 2.0, x]).relu_() + 1.0,
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_they_end_no_recording_and_have_the_bits_of_eager(name: str, gradients: bool) -> None:
    f = FUNCTIONS[name]
    compiled = fb.compile(f)
    for call in range(5):
        fb.manual_seed(call)
        results = []
        for run in (f, compiled):
            fb.manual_seed(call)
            x = fb.randn(256, 256, requires_grad=gradients)
            y = run(x, fb.rand(256, 256) > 0.5)
            if y.requires_grad:
                (y * y).sum().backward()
            results.append((y, x.grad, y.grad_fn.name() if y.grad_fn is not None else None))

        assert same(results[0][0], results[1][0])
        assert same(results[0][1], results[1][1])
        assert results[0][2] == results[1][2]
    if not (gradients and "in place" in name):
        assert {segment.why for segment in compiled.explain().segments} == {"the end of the function"}


def test_what_shares_memory_sees_writes() -> None:
    def f(x: fb.Tensor) -> Any:
        y = x * 2.0
        z = y.detach()
        y += 1.0
        w = z.clone()
        z.mul_(2.0)
        return y, z, w, y.data_ptr() == z.data_ptr()

    compiled, x = fb.compile(f), fb.randn(256, 256)
    for _ in range(5):
        made, expected = compiled(x), f(x)

        assert all(same(a, b) for a, b in zip(made[:3], expected[:3], strict=True))
        assert made[3] is expected[3] is True


def test_results_of_their_own_do_not_see_writes_to_operands() -> None:
    def f(x: fb.Tensor, m: fb.Tensor) -> Any:
        y = x * 2.0
        made = [fb.cat([y, y]), y.clone(), y.flip(1), y.masked_fill(m, 0.0), y.repeat(1, 1), y.to(fb.float64)]
        y.add_(1.0)
        x.add_(1.0)
        return [y, *made]

    compiled = fb.compile(f)
    for _ in range(5):
        x = fb.randn(256, 256)
        made, expected = (run(x.clone(), x > 0) for run in (compiled, f))

        assert all(same(a, b) for a, b in zip(made, expected, strict=True))
        assert made[-2]._base is None


@pytest.mark.parametrize("wrong", [
    lambda y: fb.cat([y, y[:, :3]]), lambda y: fb.cat([y, y], 5), lambda y: fb.stack([y, y[0]]), lambda y: y.flip(4),
    lambda y: y.flip(0, 0), lambda y: y.roll(1, 7), lambda y: y.roll((1, 2), 0), lambda y: y.repeat(2), lambda y: y.repeat(-1, 1),
    lambda y: y.view(-1).tril(), lambda y: y.cumsum(3), lambda y: y.argmax(2), lambda y: y.max(2), lambda y: y.sort(2),
    lambda y: y.topk(1000), lambda y: y.masked_fill(y, 0.0), lambda y: y.masked_fill(y[:3] > 0, 0.0),
    lambda y: y.half().masked_fill(y > 0, 1e9), lambda y: y.clone(memory_format=fb.channels_last),
])  # fmt: skip
def test_errors_are_raised_where_the_operation_is_called(wrong: Any) -> None:
    def f(x: fb.Tensor) -> Any:
        y = x * 2.0
        try:
            wrong(y)
        except Exception as error:
            return type(error), str(error), y + 1.0
        return None

    compiled, x = fb.compile(f), fb.randn(256, 256)
    for _ in range(4):
        made, expected = compiled(x), f(x)

        assert expected is not None
        assert made is not None
        assert made[:2] == expected[:2]
        assert same(made[2], expected[2])


def test_a_row_of_a_tensor_is_stored_in_all_its_rows() -> None:
    def f(x: fb.Tensor) -> fb.Tensor:
        y = x * 2.0
        y[1:] = y[3:4]
        return y

    compiled, x = fb.compile(f), fb.randn(256, 256)
    for _ in range(3):
        assert same(compiled(x), f(x))


def test_other_shapes_and_dtypes_have_recordings_of_their_own() -> None:
    def f(x: fb.Tensor, y: fb.Tensor) -> Any:
        return fb.cat([x * 2.0, y]).masked_fill(fb.cat([x, y]) > 0.0, 0.5) + 1.0

    compiled = fb.compile(f)
    shapes = [(256, 256), (256, 256), (300, 256), (256, 256), (128, 512)]
    for shape in shapes * 2:
        for dtype in (fb.float32, fb.float64, fb.float16):
            x, y = fb.randn(shape), fb.randn(shape).to(dtype)

            assert same(compiled(x, y), f(x, y))


def test_other_devices_are_not_those_of_pending_results() -> None:
    compiled = fb.compile(lambda x: (x * 2.0).to("meta").device.type)

    assert [compiled(fb.randn(256, 256)) for _ in range(3)] == ["meta"] * 3


# -- truth values in chains


CHAINS: dict[str, Any] = {
    "comparison": lambda x, y, m: fb.where(x * 2.0 > y, x + 1.0, y - 1.0) * x,
    "several": lambda x, y, m: fb.where(x * 2.0 > y, x + 1.0, fb.where(y < 0.1, x, y)) * (x != y) + (x + y >= 0.5),
    "mask": lambda x, y, m: fb.where(m, x * 2.0, y) + x * m - 1.0,
    "filled": lambda x, y, m: ((x * 2.0 + y).masked_fill(m, -0.5) + x).masked_fill(y > 0.0, 0.25) * 3.0,
    "a row of a mask": lambda x, y, m: (x * 2.0 + y).masked_fill(m[0], 1.5) + fb.where(m[:, :1], x, 0.0),
    "read by others too": lambda x, y, m: [
        (t := x * 2.0 > y), fb.where(t, x + 1.0, y) * 2.0, (t & m).sum(), fb.where(~t, x * 2.0, 0.0) + y,
    ],
    "asked for too": lambda x, y, m: [(t := x * 2.0 > y), fb.where(t, x + 1.0, y) * 2.0],
    "nan": lambda x, y, m: fb.where((x / (x - x)).isnan(), x * 2.0, y + 1.0) - 1.0,
    "alone at the end": lambda x, y, m: (x * 2.0 + y) * x > 0.3,
}


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.float16, fb.bfloat16])
@pytest.mark.parametrize("name", CHAINS)
def test_chains_with_truth_values_have_the_bits_of_eager(name: str, dtype: fb.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    from flambeau.compiler import _programs

    monkeypatch.setattr(_programs, "WORTH", 1)
    f = CHAINS[name]
    for mode in ("default", "reduce-overhead"):
        compiled = fb.compile(f, mode=mode)
        for call in range(6):
            fb.manual_seed(call)
            x, y = fb.randn(256, 512).to(dtype), fb.randn(256, 512).to(dtype)
            x.view(-1)[:6] = fb.tensor([0.0, -0.0, fb.inf, -fb.inf, fb.nan, 1.0])
            m = fb.rand(256, 512) > 0.5
            made, expected = compiled(x, y, m), f(x, y, m)

            pairs = zip(made, expected, strict=True) if isinstance(made, list) else [(made, expected)]
            assert all(same(a, b) for a, b in pairs)


@pytest.mark.skipif(not tier.compiles(), reason="nothing is compiled here")
@pytest.mark.parametrize("name", ["comparison", "several", "mask", "filled", "a row of a mask"])
def test_chains_with_truth_values_are_one_kernel(name: str) -> None:
    compiled = fb.compile(CHAINS[name])
    x, y = fb.randn(1024, 512), fb.randn(1024, 512)
    for _ in range(5):
        compiled(x, y, x > y)

    (chain,) = parts_of(compiled)
    assert len(chain.values) == 1


@pytest.mark.parametrize("name", CHAINS)
def test_chains_with_truth_values_have_the_gradients_of_eager(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from flambeau.compiler import _programs

    monkeypatch.setattr(_programs, "WORTH", 1)
    f = CHAINS[name]
    compiled = fb.compile(f)
    for call in range(6):
        results = []
        for run in (f, compiled):
            fb.manual_seed(call)
            x, y = fb.randn(256, 512, requires_grad=True), fb.randn(256, 512)
            made = run(x, y, fb.rand(256, 512) > 0.5)
            made = made if isinstance(made, list) else [made]
            losses = [(one * one).sum() for one in made if one.requires_grad]
            if losses:
                fb.autograd.backward(losses)
            results.append([*made, x.grad])

        assert all(same(a, b) for a, b in zip(*results, strict=True))


def test_nothing_that_draws_random_numbers_is_put_off() -> None:
    """Numbers come in the order of the calls, and tables of launches are made by computing once more."""
    load_all()
    put_off = [op for op in OPS.values() if op.kind in ("elementwise", "view") or op.deferrable or op.shares_memory or op.in_rows]

    assert len(put_off) > 200
    assert [op.name for op in put_off if op.random] == []

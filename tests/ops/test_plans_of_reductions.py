"""Reductions, scans and orders of small tensors answer the same by their native builtins as by the fallback."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import flambeau as fb
import flambeau.nn.functional as F
from comparing import disagreements
from flambeau.ops._spec import OPS
from flambeau_kernels import takeover
from flambeau_kernels.cpu.reductions import along
from flambeau_kernels.cpu.sorting import sort
from flambeau_kernels.cpu.tier import compiles

pytestmark = pytest.mark.skipif(not compiles(), reason="nothing can be compiled here")

DTYPES = (fb.float32, fb.float64, fb.bfloat16, fb.int64, fb.int32, fb.uint8, fb.bool, fb.complex64)
SHAPES = [(4, 4), (), (7,), (3, 1, 5), (2, 17, 3), (0, 3), (1, 1), (70, 2)]
DIFFERENTIABLE = {
    "sum": ["x.sum()", "x.sum(d)", "x.sum(d, True)", "fb.sum(x, dim=d, keepdim=True)", "x.sum((0, -1))", "x.sum(d, dtype=fb.float64)",
            "x.sum(())", "x.t().sum(d)"],
    "mean": ["x.mean()", "x.mean(d)", "x.mean(d, keepdim=True)", "x.mean((0, 1))", "x.nanmean(d)"],
    "nansum": ["x.nansum()", "x.nansum(d)"],
    "prod": ["x.prod()", "x.prod(d)"],
    "max": ["x.max()", "x.max(d)", "x.max(d, True)", "fb.max(x, dim=d)", "x.amax()", "x.amax(d)", "x.amax((0, 1), True)", "x.aminmax()",
            "x.aminmax(dim=d, keepdim=True)"],
    "min": ["x.min()", "x.min(d)", "x.min(d, keepdim=True)", "x.amin(d)"],
    "var": ["x.var()", "x.var(d)", "x.var(d, False)", "x.var(False)", "x.var(d, correction=0, keepdim=True)", "x.var(d, correction=2)",
            "x.var((0, 1))", "fb.var_mean(x, d)", "x.var(d, True, correction=0)", "x.var(d, unbiased=1)"],
    "std": ["x.std()", "x.std(d)", "x.std(d, unbiased=False)", "fb.std_mean(x, d, keepdim=True)"],
    "norm": ["x.norm()", "x.norm(dim=d)", "x.norm(1, d, True)", "x.norm(float('inf'))", "x.norm(p=3)", "x.norm('nuc')", "x.norm(p=0)",
             "fb.linalg.norm(x)", "fb.linalg.norm(x, dim=d)", "fb.linalg.norm(x, 1)", "fb.linalg.vector_norm(x, 2, (0, 1))",
             "fb.linalg.vector_norm(x, float('-inf'))", "fb.linalg.matrix_norm(x)", "x.norm(dim=(0, 1))"],
    "softmax": ["F.softmax(x, d)", "x.softmax(d)", "F.log_softmax(x, d)", "F.softmin(x, d)", "x.softmax(d, dtype=fb.float64)"],
    "logsumexp": ["x.logsumexp(d)", "x.logsumexp((0, 1), True)", "fb.logsumexp(x, dim=d)", "x.logcumsumexp(d)"],
    "median": ["x.median()", "x.median(d)", "x.median(d, True)", "x.nanmedian()", "x.nanmedian(d)", "x.kthvalue(2, d)", "x.kthvalue(1)",
               "x.quantile(0.5)", "x.quantile(0.3, d)", "x.nanquantile(0.5, d)", "x.mode(d)"],
    "sort": ["x.sort()", "x.sort(d)", "x.sort(d, True)", "fb.sort(x, stable=True, dim=d)", "x.msort()"],
    "topk": ["x.topk(1)", "x.topk(2, d)", "x.topk(2, d, False)", "fb.topk(x, 1, sorted=False)", "x.topk(0, d)", "x.topk(99, d)"],
    "scan": ["x.cumsum(d)", "x.cumsum(d, dtype=fb.float64)", "x.cumprod(d)", "x.cummax(d)", "x.cummin(d)"],
    "diff": ["fb.diff(x)", "fb.diff(x, dim=d)", "fb.diff(x, n=2, dim=d)", "fb.diff(x, prepend=x)", "x.trace()"],
}  # fmt: skip
OTHERS = {
    "argmax": ["x.argmax()", "x.argmax(d)", "x.argmax(d, True)", "x.argmin()", "x.argmin(dim=d)", "x.argmax(keepdim=True)"],
    "any": ["x.any()", "x.any(d)", "x.all()", "x.all(d, True)", "fb.any(x, (0, 1))", "x.count_nonzero()", "x.count_nonzero(d)"],
    "argsort": ["x.argsort()", "x.argsort(d)", "x.argsort(d, True)", "x.argsort(stable=True)"],
    "search": ["fb.searchsorted(s, x)", "fb.searchsorted(s, x, right=True)", "fb.searchsorted(s, x, side='right', out_int32=True)",
               "fb.searchsorted(s, 0.3)", "fb.bucketize(x, s)", "fb.bucketize(2, s)", "fb.isin(x, s)", "fb.isin(x, 2)",
               "fb.isin(x, x, invert=True)"],
    "count": ["x.bincount()", "x.bincount(minlength=9)", "x.histc(4)", "x.histc(4, 0, 3)", "x.unique()",
              "x.unique(return_inverse=True, return_counts=True)", "x.unique_consecutive()"],
    "wrong": ["x.sum(9)", "x.sum(0.5)", "x.sum(True)", "x.sum((0, 0))", "x.sum('a')", "x.argmax((0,))", "x.sort(None)", "x.max((0,))",
              "x.cumsum(None)", "x.cumsum(9)", "x.kthvalue(0)", "x.kthvalue(1.5)", "x.topk(1.5)", "x.var(correction='a')", "x.norm('a')",
              "fb.sum(3)", "fb.max(3)", "fb.sort(3)", "fb.topk(3, 1)", "fb.var(3)", "fb.median(3)", "fb.cumsum(3, 0)", "fb.argmax(3)"],
}  # fmt: skip


def tensor(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    values = np.asarray(np.round(rng.normal(size=shape) * 3, 1))
    if dtype.is_floating_point and seed % 3 == 1 and values.size:
        values.flat[values.size // 2] = np.nan
    if dtype in (fb.uint8, fb.int64):
        values = abs(values)
    return fb.tensor(values).to(dtype)


def outcome(text, x, d, with_grad):
    """All there is to see of a result: values, types, memory, history, gradient; or what was raised."""
    x = x.clone().requires_grad_() if with_grad else x.clone()
    scope = {"fb": fb, "F": F, "x": x, "d": d, "s": fb.tensor([0.0, 1.0, 2.0]).to(x.dtype if not x.is_complex() else fb.float32)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some are given once
            found = eval(text, scope)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        return type(error), str(error)
    results = found if isinstance(found, tuple) else (found,)
    seen = [type(found).__name__, x._version]
    for t in results:
        seen += [type(t), t.dtype, tuple(t.shape), t.stride(), t.requires_grad, t.is_leaf, t._version, t.is_contiguous(), str(t.device)]
        seen += [t._base is None, None if t.grad_fn is None else t.grad_fn.name(), bits(t)]
    first = results[0]
    if with_grad and first.requires_grad:
        weights = fb.arange(1, first.numel() + 1, dtype=fb.float64).reshape(first.shape).to(first.dtype)
        (first * weights).sum().backward()
        seen.append(np.nan_to_num(x.grad.double().numpy(), nan=99.0))
    return seen


def bits(t):
    a = t.detach().double().numpy() if not t.is_complex() else t.detach().numpy()
    return np.where(a == a, a, 0).tobytes(), (a != a).tobytes()


def assert_same(found, expected, what):
    assert len(found) == len(expected), (what, found, expected)
    for one, other in zip(found, expected, strict=True):
        if isinstance(one, np.ndarray):
            # The plan's derivative rules are on arrays, the fallback's perhaps on tensors.
            np.testing.assert_allclose(one, other, rtol=2e-2 if "bfloat16" in what else 1e-5, atol=1e-6, err_msg=what)
        else:
            assert one == other, what


def compare(texts, dtype, with_grad, monkeypatch):
    monkeypatch.setattr(sort, "COMPILED_FROM", 1 << 60)
    answered = 0
    for seed, shape in enumerate(SHAPES):
        x = tensor(shape, dtype, seed)
        for text in texts:
            for d in sorted({0, -1, x.ndim // 2}) if "d" in text else [0]:
                pair = []
                for native in (False, True):
                    monkeypatch.setattr(takeover, "CALL", 1e9 if native else 0.0)
                    if not native:
                        along._forget()
                    pair.append(outcome(text, x, d, with_grad))
                assert_same(pair[1], pair[0], f"{text} of {dtype} {shape} along {d}")
                answered += not isinstance(pair[0][0], type)
    along._forget()
    return answered


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", [*DIFFERENTIABLE, *OTHERS])
def test_the_plan_is_the_general_way(family, dtype, monkeypatch):
    compare((DIFFERENTIABLE | OTHERS)[family], dtype, False, monkeypatch)


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.bfloat16], ids=str)
@pytest.mark.parametrize("family", DIFFERENTIABLE)
def test_with_history(family, dtype, monkeypatch):
    assert compare(DIFFERENTIABLE[family], dtype, True, monkeypatch)


def test_nothing_is_recorded_without_grad_mode(monkeypatch):
    monkeypatch.setattr(takeover, "CALL", 1e9)
    x = fb.rand(4, 4, requires_grad=True)
    for text in (text for family in DIFFERENTIABLE.values() for text in family):
        with fb.no_grad():
            found = outcome(text, x.detach(), 0, False)
            with_leaf = eval(text, {"fb": fb, "F": F, "x": x, "d": 0}) if not isinstance(found[0], type) else ()
        assert not any(t.requires_grad for t in (with_leaf if isinstance(with_leaf, tuple) else (with_leaf,)))
    along._forget()


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "prod"])
@pytest.mark.parametrize("dim", [(1,), [0], (-1,), (0, 1), 0, -1, None])
def test_a_transposed_matrix_is_reduced_along_the_same_dimensions_however_often(name, dim):
    x = fb.arange(12.0).reshape(3, 4).t()
    reduce = getattr(x, name)
    first = reduce() if dim is None else reduce(dim)
    for _ in range(400):  # a native way takes over some time
        again = reduce() if dim is None else reduce(dim)
        assert again.shape == first.shape
        assert fb.equal(again, first)


@pytest.mark.parametrize("options", [{}, {"dim": 1}, {"dim": 0, "keepdim": True}])
def test_aminmax_has_a_history_however_often_it_was_called_without(options, monkeypatch):
    monkeypatch.setattr(takeover, "CALL", 1e9)
    x = fb.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
    for _ in range(3):
        x.aminmax(**options)
    leaf = x.clone().requires_grad_()
    low, high = leaf.aminmax(**options)
    (2 * low.sum() + 3 * high.sum()).backward()

    other = x.clone().requires_grad_()
    of = options or {"dim": (0, 1)}
    (2 * other.amin(**of).sum() + 3 * other.amax(**of).sum()).backward()
    assert fb.equal(leaf.grad, other.grad)
    along._forget()


@pytest.mark.parametrize("dim", [None, 0, -1, 3])
@pytest.mark.parametrize("name", ["sum", "mean", "amax"])
def test_a_large_array_is_reduced_in_the_same_way_and_refused_with_the_same_words_however_often(name, dim):
    def told():
        x = fb.linspace(-1, 2, 120 * 130, dtype=fb.float32).reshape(120, 130).requires_grad_()
        try:
            made = getattr(x, name)(keepdim=True) if dim is None else getattr(x, name)(dim, True)
        except (IndexError, TypeError) as error:
            return type(error), str(error)
        made.sum().backward()
        return made.detach().numpy().tobytes(), made.shape, x.grad.numpy().tobytes()

    first = told()

    assert [told() for _ in range(3)] == [first] * 3
    assert isinstance(first[0], type) == (dim == 3)


def test_large_arrays_met_before_are_reduced_by_the_backend_in_force():
    from flambeau_kernels import backend, set_backend
    from flambeau_kernels.cpu.reductions import reduce

    x, before = fb.rand(100_003, generator=fb.Generator().manual_seed(0)), backend()
    made = [x.sum(), x.sum()]
    try:
        set_backend("numpy")
        made += [x.sum(), x.sum()]
    finally:
        set_backend(before)
    made.append(x.sum())

    a = x.numpy()
    by_numpy = reduce.reduce_by_numpy(reduce.Reduction("total", "add"), a, (0,), False, a.dtype, a.dtype)
    assert [m.item() for m in made[2:4]] == [by_numpy.item()] * 2
    assert len({m.item() for m in made[:2] + made[4:]}) == 1


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64])
def test_histc_of_the_range_of_the_elements_has_a_plan(dtype):
    x = fb.randn(200, dtype=dtype)
    answer = OPS["histc"].answer

    made = answer(x, 7, 0, 0)

    low, high = x.min().item(), x.max().item()
    assert made.tolist() == x.histc(7, low, high).tolist()
    assert made.tolist() == np.histogram(x.numpy(), fb.linspace(low, high, 8, dtype=dtype).numpy())[0].tolist()
    for odd in (x[:0], x[:1], fb.tensor([1.0, np.nan], dtype=dtype), fb.tensor([1.0, np.inf], dtype=dtype)):
        assert answer(odd, 7, 0, 0) is None


@pytest.mark.parametrize("name", ["any", "all"])
def test_any_and_all_of_an_empty_list_of_dimensions_leave_every_element_for_itself(name, oracle):
    programs = f"""
    torch.{name}(x, ())
    torch.{name}(x, dim=[], keepdim=True)
    x.{name}(dim=())
    [x.{name}(dim=()) for _ in range(700)][-1]
    [torch.{name}(x > 0, dim=[], keepdim=True) for _ in range(700)][-1]
    [torch.{name}(x, (0, 1), True) for _ in range(700)][-1]
    torch.{name}(torch.tensor(2.0), ())
    torch.{name}(torch.ones(0, 3), ())
    torch.{name}(x.to(torch.uint8), ())
    torch.{name}(x.expand(100, 40, 3), ())
    torch.{name}(x, (), out=torch.empty(0, dtype=torch.bool))
    torch.{name}(x, 0, out=torch.empty(0, dtype=torch.uint8))
    torch.{name}(x.to(torch.uint8), 0, out=torch.empty(0, dtype=torch.bool))
    torch.{name}(x, (), out=torch.empty(0))
    torch.{name}(x.to("meta"), ()).shape
    """
    lines = [line.strip() for line in programs.strip().splitlines()]

    assert not disagreements(oracle, "\n".join(f"x = torch.tensor([[1., 0., 3.]]); {line}" for line in lines))

"""Linear algebra against defining equations and scipy; derivatives against difference quotients."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.ops._spec import OPS

L = fb.linalg
rng = np.random.default_rng(0)
A = rng.standard_normal((2, 4, 4)) + 2 * np.eye(4)
C = A + 1j * rng.standard_normal((2, 4, 4))
TALL = rng.standard_normal((5, 3))
POSITIVE = A @ A.swapaxes(-1, -2) + np.eye(4)
HERMITIAN = C @ C.conj().swapaxes(-1, -2) + np.eye(4)
B = rng.standard_normal((2, 4, 3))


def close(made, expected, **tolerances):
    np.testing.assert_allclose(made.detach().numpy() if isinstance(made, fb.Tensor) else made, expected, atol=1e-10, **tolerances)


def adjoint(a):
    return a.conj().swapaxes(-1, -2)


# -- equations ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("a", [A, C])
def test_inverse_and_solution_satisfy_their_equations(a):
    x = fb.tensor(a)
    b = fb.tensor(B.astype(a.dtype))

    close(L.inv(x) @ x, np.broadcast_to(np.eye(4), a.shape))
    close(x @ L.solve(x, b), b.numpy())
    close(L.solve(x, b.mT, left=False) @ x, b.mT.numpy())
    close((x @ L.solve(x, b[..., 0]).unsqueeze(-1)).squeeze(-1), b[..., 0].numpy())


def test_singular_matrices_raise_linalg_error_or_are_told_by_info():
    x = fb.tensor([[[1.0, 2.0], [2.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]]])

    with pytest.raises(L.LinAlgError, match="Batch element 0"):
        L.inv(x)
    with pytest.raises(RuntimeError, match="singular"):
        L.solve(x, fb.ones(2, 2, 1))
    inverse, info = L.inv_ex(x)
    assert info.tolist() == [2, 0]
    assert inverse[1].tolist() == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_triangular_solutions_read_one_triangle(upper, left):
    triangle = np.triu(A) if upper else np.tril(A)
    b = B if left else B.swapaxes(-1, -2)
    x = L.solve_triangular(fb.tensor(A), fb.tensor(b), upper=upper, left=left).numpy()

    close(triangle @ x if left else x @ triangle, b)


@pytest.mark.parametrize("char", "fdFD")
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_solutions_do_not_depend_on_the_order_in_memory(char, upper, unit):
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(0.5, 1.0, shape).astype(char) * (1 + 0.5j if char in "FD" else 1) for shape in ((7, 7), (7, 3)))
    a, b = fb.tensor((a / 7 + np.eye(7)).astype(char)), fb.tensor(b.astype(char))
    by_rows = L.solve_triangular(a, b, upper=upper, unitriangular=unit)
    for turned in (a.mT.contiguous().mT, fb.zeros(7, 14, dtype=a.dtype)[:, ::2].copy_(a)):
        for right in (b, b.mT.contiguous().mT, fb.zeros(7, 6, dtype=b.dtype)[:, ::2].copy_(b)):
            fb.testing.assert_close(L.solve_triangular(turned, right, upper=upper, unitriangular=unit), by_rows)
    triangle = np.triu(a.numpy()) if upper else np.tril(a.numpy())
    if unit:
        np.fill_diagonal(triangle, 1)
    fb.testing.assert_close(fb.tensor(triangle) @ by_rows, b)
    assert by_rows.mT.is_contiguous()                 # as PyTorch leaves it


@pytest.mark.parametrize("a", [POSITIVE, HERMITIAN])
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_factor_multiplies_back_and_solves(a, upper):
    factor = L.cholesky(fb.tensor(a), upper=upper)
    made = factor.numpy()
    b = fb.tensor(B.astype(a.dtype))

    close(adjoint(made) @ made if upper else made @ adjoint(made), a)
    close(a @ fb.cholesky_solve(b, factor, upper).numpy(), b.numpy())
    close(fb.cholesky_inverse(factor, upper).numpy() @ a, np.broadcast_to(np.eye(4), a.shape))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("a", [POSITIVE[0], HERMITIAN[0]])
def test_gradients_of_a_factor_are_those_of_the_product_of_all_of_it(a, upper):
    b = fb.tensor(B[0].astype(a.dtype), requires_grad=True)
    factor = L.cholesky(fb.tensor(a), upper=upper).requires_grad_()
    product = factor.mH @ factor if upper else factor @ factor.mH

    for by_factor, by_product in (
        (fb.cholesky_solve(b, factor, upper), L.solve(product, b)),
        (fb.cholesky_inverse(factor, upper), L.inv(product)),
    ):
        weight = fb.arange(1.0, by_factor.numel() + 1, dtype=fb.float64).reshape(by_factor.shape).to(by_factor.dtype)
        inputs = (factor, b) if by_factor.shape == b.shape else (factor,)
        made, expected = (fb.autograd.grad(x, inputs, weight, retain_graph=True) for x in (by_factor, by_product))
        for x, y in zip(made, expected, strict=True):
            close(x, y.detach().numpy(), rtol=1e-9)
    through = fb.tensor(a, requires_grad=True)
    for fn in (lambda x, b: fb.cholesky_solve(b, L.cholesky(x, upper=upper), upper),
               lambda x, b: fb.cholesky_inverse(L.cholesky(x, upper=upper), upper) @ b):
        symmetric = lambda x, b, fn=fn: fn((x + x.mH) / 2, b)  # noqa: E731
        assert fb.autograd.gradcheck(symmetric, (through, b), fast_mode=True, check_forward_ad=True)
        assert fb.autograd.gradgradcheck(symmetric, (through, b), fast_mode=True)


def test_cholesky_tells_the_order_of_the_minor_that_is_not_positive():
    x = fb.tensor([[1.0, 2.0], [2.0, 1.0]])

    with pytest.raises(L.LinAlgError, match="minor of order 2"):
        L.cholesky(x)
    assert L.cholesky_ex(x).info.item() == 2


@pytest.mark.parametrize("n", [4, 100])
def test_cholesky_of_a_nan_tells_the_order_of_its_minor(n):
    x = fb.eye(n)
    x[2, 2] = float("nan")

    with pytest.raises(L.LinAlgError, match="order 3 "):
        L.cholesky(x)
    assert L.cholesky_ex(fb.stack([fb.eye(n), x])).info.tolist() == [0, 3]


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", ["f", "d", "F", "D"])
def test_cholesky_of_large_matrices_reads_one_triangle_and_has_the_bits_of_one_by_one(dtype, upper):
    x = np.random.default_rng(3).standard_normal((3, 100, 100)).astype(dtype)
    x = x + (1j * np.tri(100) if dtype in "FD" else 0)
    a = (x @ x.conj().mT + 100 * np.eye(100)).astype(dtype)
    half = fb.tensor(np.triu(a) if upper else np.tril(a))
    made = L.cholesky(half, upper=upper)

    again = made.mH @ made if upper else made @ made.mH
    np.testing.assert_allclose(again.numpy(), a, rtol=0, atol=1e-3 if dtype in "fF" else 1e-11)
    assert not (made.tril(-1) if upper else made.triu(1)).any()
    for one, whole in zip(half, made, strict=True):
        assert fb.equal(L.cholesky(one, upper=upper), whole)
        assert fb.equal(L.cholesky(one.mT.contiguous().mT, upper=upper), whole)


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("dtype", ["f", "d", "F", "D"])
@pytest.mark.parametrize("shape", [(2, 96, 96), (2, 110, 97), (2, 97, 110)])
def test_qr_of_large_matrices_multiplies_back(shape, dtype, mode):
    x = np.random.default_rng(4).standard_normal(shape).astype(dtype)
    x = (x + 1j * x[:, ::-1] if dtype in "FD" else x).astype(dtype)
    (m, n), tolerance = shape[-2:], 5e-5 if dtype in "fF" else 1e-13
    rows = m if mode == "complete" else min(m, n)
    q, r = L.qr(fb.tensor(x), mode=mode)

    assert r.shape == (2, rows, n)
    assert not r.tril(-1).any()
    if mode == "r":
        assert q.shape == (0,)
        assert fb.equal(r, L.qr(fb.tensor(x)).R)
        return
    np.testing.assert_allclose((q @ r).numpy(), x, rtol=0, atol=tolerance)
    np.testing.assert_allclose((q.mH @ q).numpy(), np.broadcast_to(np.eye(rows), (2, rows, rows)), rtol=0, atol=tolerance)
    assert fb.equal(L.qr(fb.tensor(x[1]), mode=mode).Q, q[1])


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_qr_lu_and_svd_multiply_back(shape):
    a = rng.standard_normal((2, *shape)) + 1j * rng.standard_normal((2, *shape))
    x = fb.tensor(a)

    q, r = L.qr(x)
    close(q @ r, a)
    close(q.mH @ q, np.broadcast_to(np.eye(min(shape)), (2, min(shape), min(shape))))
    p, low, up = L.lu(x)
    close(p @ low @ up, a)
    u, s, vh = L.svd(x, full_matrices=False)
    close((u * s.unsqueeze(-2)) @ vh, a)
    close(L.svdvals(x), s.numpy())
    close(L.pinv(x), np.linalg.pinv(a))


def test_packed_lu_solves_from_both_sides_and_for_the_adjoint():
    x, b = fb.tensor(C), fb.tensor(B.astype(C.dtype))
    lu, pivots = L.lu_factor(x)

    close(x @ L.lu_solve(lu, pivots, b), b.numpy())
    close(x.mH @ L.lu_solve(lu, pivots, b, adjoint=True), b.numpy())
    close(L.lu_solve(lu, pivots, b.mT, left=False) @ x, b.mT.numpy())


@pytest.mark.parametrize(("a", "hermitian"), [(A + A.swapaxes(-1, -2), False), (C + C.swapaxes(-1, -2), False), (C + adjoint(C), True)])
def test_packed_ldl_solves(a, hermitian):
    packed, pivots = L.ldl_factor(fb.tensor(a), hermitian=hermitian)
    b = B.astype(a.dtype)

    close(a @ L.ldl_solve(packed, pivots, fb.tensor(b), hermitian=hermitian).numpy(), b)


def test_eigenvectors_are_turned_by_their_eigenvalues_alone():
    values, vectors = L.eig(fb.tensor(A))
    close(A.astype(complex) @ vectors.numpy(), (vectors * values.unsqueeze(-2)).numpy())
    values, vectors = L.eigh(fb.tensor(HERMITIAN))
    close(HERMITIAN @ vectors.numpy(), (vectors * values.unsqueeze(-2)).numpy())
    close(L.eigvalsh(fb.tensor(np.triu(HERMITIAN)), UPLO="U"), values.numpy())


@pytest.mark.parametrize("driver", [None, "gels", "gelsd", "gelss"])
def test_least_squares_solve_the_normal_equations(driver):
    b = rng.standard_normal((5, 2))
    made = L.lstsq(fb.tensor(TALL), fb.tensor(b), driver=driver)

    close(TALL.T @ (TALL @ made.solution.numpy()), TALL.T @ b)
    if driver is not None:
        close(made.residuals, ((TALL @ made.solution.numpy() - b) ** 2).sum(0))


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.complex64])
def test_least_squares_of_few_equations_are_those_recorded_and_tell_the_rank(dtype):
    fb.manual_seed(0)
    a, b = fb.randn(7, 3, dtype=dtype), fb.randn(7, 2, dtype=dtype)
    plain, recorded = L.lstsq(a, b), L.lstsq(a.clone().requires_grad_(), b)

    for made, expected in zip(plain, recorded, strict=True):
        assert made.shape == expected.shape
        assert fb.equal(made, expected.detach())
    assert plain.solution.stride() == recorded.solution.stride()
    assert fb.equal(L.lstsq(a, b[:, 0]).solution, L.lstsq(a, b[:, :1]).solution[:, 0])
    assert L.lstsq(fb.ones(6, 3), fb.ones(6, 1)).rank == 1
    assert L.lstsq(a, b, 10.0).rank == 1               # the largest column is always counted


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64])
def test_least_squares_of_many_systems_are_those_of_each(dtype):
    fb.manual_seed(0)
    a, b = fb.randn(12, 9, 4, dtype=dtype), fb.randn(12, 9, 2, dtype=dtype)
    each = [L.lstsq(x, y) for x, y in zip(a, b, strict=True)]
    made = L.lstsq(a, b)
    deficient = a.clone()
    deficient[5, :, 1] = deficient[5, :, 0]

    fb.testing.assert_close(made.solution, fb.stack([x.solution for x in each]))
    assert made.rank.tolist() == [4] * 12
    assert fb.equal(L.lstsq(a.clone().requires_grad_(), b).solution.detach(), made.solution)
    assert L.lstsq(deficient, b).rank.tolist() == [4] * 5 + [3] + [4] * 6
    fb.testing.assert_close(L.lstsq(deficient, b).solution[5], L.lstsq(deficient[5], b[5]).solution)


def test_lobpcg_finds_extreme_eigenvalues_relative_to_a_second_matrix():
    a, b = POSITIVE[0], POSITIVE[1]
    values, vectors = fb.lobpcg(fb.tensor(a), 1, fb.tensor(b))

    close(values, scipy.linalg.eigh(a, b)[0][-1:])
    close(a @ vectors.numpy(), b @ vectors.numpy() * values.numpy())


def test_householder_products_are_the_q_of_qr():
    packed, tau = fb.geqrf(fb.tensor(TALL))
    other = rng.standard_normal((5, 2))

    close(L.householder_product(packed, tau).abs(), np.abs(np.linalg.qr(TALL)[0]))
    close(fb.ormqr(packed, tau, fb.ormqr(packed, tau, fb.tensor(other)), transpose=True), other)
    with pytest.raises(RuntimeError, match=r"tau.shape\[-1\] must be equal to min\(other.shape\[-2\], input.shape\[-1\]\)"):
        fb.ormqr(packed, tau[:-1], fb.tensor(other))
    close(fb.ormqr(packed, tau, fb.tensor(other.T), left=False), fb.ormqr(packed, tau, fb.tensor(other), transpose=True).mT.numpy())


# -- functions ----------------------------------------------------------------------------------------------------------


def test_determinants():
    close(fb.det(fb.tensor(C)), np.linalg.det(C))
    sign, log = L.slogdet(fb.tensor(C))
    close(sign * log.exp(), np.linalg.det(C))
    close(fb.logdet(fb.tensor(POSITIVE)), np.log(np.linalg.det(POSITIVE)))


def test_powers_and_exponential():
    x = fb.tensor(A)

    close(L.matrix_power(x, 5), np.linalg.matrix_power(A, 5))
    close(L.matrix_power(x, -2) @ x @ x, np.broadcast_to(np.eye(4), A.shape))
    turn = fb.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=fb.float64)
    close(fb.matrix_exp(turn), [[np.cos(1), -np.sin(1)], [np.sin(1), np.cos(1)]])


@pytest.mark.parametrize("order", [0, 0.5, 1, 2, 3, inf, -inf, -1])
def test_vector_norms(order):
    close(L.vector_norm(fb.tensor(B), order, dim=1), np.linalg.norm(B, order, axis=1))


@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, inf, -inf])
def test_matrix_norms_and_condition_numbers(order):
    close(L.matrix_norm(fb.tensor(TALL), order), np.linalg.norm(TALL, order))
    close(L.norm(fb.tensor(B), order, dim=(0, 2)), np.linalg.norm(B, order, axis=(0, 2)))
    close(L.cond(fb.tensor(A[0]), order), np.linalg.cond(A[0], order))


def test_ranks_count_singular_values_above_the_tolerance():
    a = fb.diag(fb.tensor([3.0, 1.0, 1e-3, 0.0]))

    assert L.matrix_rank(a).item() == 3
    assert L.matrix_rank(a, atol=0.01).item() == 2
    assert L.matrix_rank(a, rtol=0.5, hermitian=True).item() == 1


def test_products():
    a, b, c = (fb.tensor(rng.standard_normal(s)) for s in ((2, 30), (30, 3), (3,)))

    close(L.multi_dot([a, b, c]), a.numpy() @ b.numpy() @ c.numpy())
    close(L.vecdot(fb.tensor(C), fb.tensor(C)), (np.abs(C) ** 2).sum(-1))
    close(L.cross(fb.tensor([1.0, 0, 0]), fb.tensor([0.0, 1, 0])), [0, 0, 1])
    close(L.vander(fb.tensor([1.0, 2.0, 3.0]), N=3), [[1, 1, 1], [1, 2, 4], [1, 3, 9]])


@pytest.mark.filterwarnings("ignore:torch.chain_matmul is deprecated")
def test_chain_matmul_takes_its_matrices_one_by_one():
    a, b, c = (fb.tensor(rng.standard_normal(shape)) for shape in ((2, 3), (3, 5), (5, 4)))

    close(fb.chain_matmul(a, b, c), a.numpy() @ b.numpy() @ c.numpy())
    assert fb.chain_matmul(a).tolist() == a.tolist()
    with pytest.raises(RuntimeError, match="matrix 1 must have 2 dimensions, it has 1"):
        fb.chain_matmul(a, c[0])


def test_tensor_equations():
    a = rng.standard_normal((2, 3, 6))
    x = L.tensorsolve(fb.tensor(a), fb.tensor(B[0, :2]))

    close(np.tensordot(a, x.numpy(), 1), B[0, :2])
    close(np.tensordot(L.tensorinv(fb.tensor(a), ind=2).numpy(), a, 2), np.eye(6))


# -- derivatives --------------------------------------------------------------------------------------------------------

RULES = {
    "inv": (L.inv, A), "inv_complex": (L.inv, C), "cholesky": (lambda x: L.cholesky(x @ x.mH + fb.eye(4, dtype=x.dtype)), C),
    "det": (fb.det, A), "det_complex": (fb.det, C), "slogdet": (lambda x: L.slogdet(x)[0] * L.slogdet(x)[1], C),
    "eigh": (lambda x: (lambda e: e[1].abs() * e[0].unsqueeze(-1))(L.eigh(x + x.mH)), C),
    "eigvals": (lambda x: L.eigvals(x).abs().sum(), A), "eig": (lambda x: L.eig(x)[1].abs(), C),
    "svd": (lambda x: (lambda s: s[0].abs() * s[1])(L.svd(x, False)), TALL + 1j * TALL[::-1]),
    "svdvals": (L.svdvals, TALL), "qr_tall": (lambda x: L.qr(x)[0] + L.qr(x)[1].sum(), TALL), "qr_wide": (lambda x: L.qr(x)[1], TALL.T),
    "lu_tall": (lambda x: L.lu(x)[1], TALL), "lu_wide": (lambda x: L.lu(x)[2], TALL.T), "lu_factor": (lambda x: L.lu_factor(x)[0], C),
    "pinv": (L.pinv, TALL), "matrix_exp": (fb.matrix_exp, 0.3 * A), "lstsq": (lambda x: L.lstsq(x, x[:, :1] ** 2)[0], TALL),
    "norm": (lambda x: L.vector_norm(x, 3, dim=-1), TALL), "nuc": (lambda x: L.matrix_norm(x, "nuc"), TALL),
    "triangular": (lambda x: L.solve_triangular(x, x * x, upper=True), C),
    "householder": (lambda x: L.householder_product(x, x[0]), 0.5 * TALL),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_first_and_second_derivatives_are_slopes(name):
    fn, data = RULES[name]
    is_complex = np.iscomplexobj(data)
    draw = np.random.default_rng(1)
    out = fn(fb.tensor(data))
    weights = draw.standard_normal(out.shape) + (1j * draw.standard_normal(out.shape) if out.is_complex() else 0)
    way = draw.standard_normal(data.shape) + (1j * draw.standard_normal(data.shape) if is_complex else 0)

    def loss(x):
        value = fn(x) * fb.tensor(weights)
        return value.real.sum() if value.is_complex() else value.sum()

    def slope(x, **options):
        (g,) = fb.autograd.grad(loss(x), x, **options)
        along = g.conj() * fb.tensor(way)
        return along.real.sum() if along.is_complex() else along.sum()

    def along_way(fn):
        step = 1e-6
        high, low = (fn(fb.tensor(data + d * way, requires_grad=True)).item() for d in (step, -step))
        return (high - low) / (2 * step)

    x = fb.tensor(data, requires_grad=True)
    first = slope(x, create_graph=True)
    (g,) = fb.autograd.grad(first, x)
    second = (g.conj() * fb.tensor(way)).sum().numpy().real

    assert first.item() == pytest.approx(along_way(loss), rel=1e-5, abs=1e-6)
    assert second == pytest.approx(along_way(slope), rel=1e-4, abs=1e-5)


def test_the_gradient_of_a_singular_determinant_is_its_cofactors():
    x = fb.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=fb.float64, requires_grad=True)
    fb.det(x).backward()

    close(x.grad, [[4.0, -2.0], [-2.0, 1.0]])


def of_rank(rank: int, n: int = 4, dtype: Any = fb.float64) -> Any:
    fb.manual_seed(rank)
    return fb.randn(n, rank, dtype=dtype) @ fb.randn(rank, n, dtype=dtype)


@pytest.mark.parametrize("dtype", [fb.float64, fb.complex128])
@pytest.mark.parametrize("rank", range(5))
def test_derivatives_of_determinants_are_right_at_matrices_of_any_rank(rank, dtype):
    x = of_rank(rank, dtype=dtype).requires_grad_()

    assert gradcheck(fb.linalg.det, (x,))
    assert gradgradcheck(fb.linalg.det, (x,))


def test_a_graph_of_the_gradient_of_a_determinant_holds_for_singular_matrices_when_it_was_recorded_on_a_regular_one():
    def slope(x):
        x = x.detach().requires_grad_()
        (first,) = fb.autograd.grad(fb.linalg.det(x), x, create_graph=True)
        (second,) = fb.autograd.grad(first.square().sum(), x)
        return first, second

    recorded = make_fx(slope)(of_rank(4))

    for rank in range(5):
        for made, wanted in zip(recorded(of_rank(rank)), slope(of_rank(rank)), strict=True):
            close(made, wanted.detach())


def test_a_singular_matrix_changes_nothing_in_the_gradients_of_those_beside_it():
    def slope(x):
        x = x.clone().requires_grad_()
        fb.linalg.det(x).sum().backward()
        return x.grad

    many = fb.stack([of_rank(rank, 3) for rank in (3, 2, 3, 1)])

    close(slope(many), fb.stack([slope(x) for x in many]))


@pytest.mark.parametrize("log", [fb.logdet, lambda x: fb.linalg.slogdet(x)[1]])
def test_the_gradient_of_the_logarithm_of_a_singular_determinant_is_not_finite_and_that_of_others_beside_it_is(log):
    x = fb.stack([fb.ones(2, 2), fb.eye(2)]).requires_grad_()
    log(x).sum().backward()

    assert not x.grad[0].isfinite().any()
    close(x.grad[1], np.eye(2))


@pytest.mark.filterwarnings("ignore:torch.lu is deprecated")
def test_the_older_lu_factorizes_singular_matrices():
    factors, pivots = fb.ones(3, 3).lu()

    close(factors, [[1, 1, 1], [1, 0, 0], [1, 0, 0]])
    assert pivots.tolist() == [1, 2, 3]


def test_a_norm_at_zero_has_the_subgradient_zero():
    x = fb.zeros(3, requires_grad=True)
    L.vector_norm(x).backward()

    assert x.grad.tolist() == [0.0, 0.0, 0.0]


def test_exponential_agrees_with_scipy_on_complex_batches():
    close(L.matrix_exp(fb.tensor(C)), scipy.linalg.expm(C))


def test_results_have_names_and_types_of_their_own():
    made = L.eigh(fb.tensor(POSITIVE[0]))

    assert type(made).__name__ == "linalg_eigh"
    assert made._fields == ("eigenvalues", "eigenvectors")
    assert issubclass(L.LinAlgError, RuntimeError)


@pytest.mark.parametrize("dtype", [fb.float64, fb.complex128])
@pytest.mark.parametrize("turned", [(False, True), (True, False), (True, True)])
def test_gradients_of_matrices_with_contiguous_columns(turned, dtype):
    a, b = (fb.randn(n, m, dtype=dtype) for n, m in ((3, 4), (4, 5)))
    rows = [x.clone().requires_grad_() for x in (a, b)]
    columns = [(x.mT.contiguous() if t else x.clone()).requires_grad_() for x, t in zip((a, b), turned, strict=True)]

    (rows[0] @ rows[1]).abs().sin().sum().backward()
    left, right = (x.mT if t else x for x, t in zip(columns, turned, strict=True))
    (left @ right).abs().sin().sum().backward()

    for one, other, t in zip(rows, columns, turned, strict=True):
        assert dtype.is_complex or other.grad.is_contiguous()
        assert fb.allclose(one.grad, other.grad.mT if t else other.grad)


def test_matrix_exp_keeps_its_precision_in_forward_mode():
    generator = fb.Generator().manual_seed(0)
    a, direction = (fb.randn(5, 5, generator=generator, dtype=fb.float64) for _ in range(2))
    a = 8 * a
    _, tangent = fb.func.jvp(fb.matrix_exp, (a,), (direction,))

    want = scipy.linalg.expm_frechet(a.numpy(), direction.numpy(), compute_expm=False)
    assert abs(tangent.numpy() - want).max() < 1e-12 * abs(want).max()


# -- infinities and nan, which LAPACK's iterations never end with ----------------------------------------------------------------


@pytest.fixture(params=[(2, 2), (7, 4), (4, 7), (40, 40), (3, 5, 5)], ids=str)
def infinite(request):
    """Matrices of which the first holds an infinity."""
    a = np.random.default_rng(1).standard_normal(request.param)
    a[(0,) * a.ndim] = inf
    return fb.tensor(a)


def test_singular_values_of_a_matrix_with_an_infinity_are_nan_at_once(infinite):
    first = (0,) * (infinite.ndim - 2)
    rest = infinite[1:]

    assert L.svdvals(infinite)[first].isnan().all()
    assert L.svd(infinite).S[first].isnan().all()
    assert L.cond(infinite)[first].isnan()
    assert L.matrix_norm(infinite, 2)[first].isnan()
    assert L.matrix_rank(infinite)[first] == 0
    assert not L.pinv(infinite)[first].any()
    if infinite.ndim > 2:
        close(L.svdvals(infinite)[1:], L.svdvals(rest))
        close(L.pinv(infinite)[1:], L.pinv(rest))


def test_eigenvalues_of_a_matrix_with_an_infinity_are_nan_and_of_the_others_right():
    a = np.stack([A[0], A[0] + A[0].T, A[0] + A[0].T])
    a[0, 1, 1] = inf

    assert L.eigvals(fb.tensor(a))[0].isnan().all()
    assert L.eigh(fb.tensor(a)).eigenvalues[0].isnan().all()
    close(L.eigvalsh(fb.tensor(a))[1:], np.linalg.eigvalsh(a[1:]))


def test_eigenvalues_of_a_matrix_with_an_infinity_are_nan_in_both_parts():
    a = fb.eye(3)
    a[1, 2] = inf

    values = L.eigvals(a)

    assert values.real.isnan().all()
    assert values.imag.isnan().all()


@pytest.mark.parametrize("bad", [inf, -inf, fb.nan])
@pytest.mark.parametrize("order", ["fro", 1, -1, inf, -inf])
def test_condition_numbers_by_the_inverse_are_infinite_where_an_element_is_not_finite(order, bad):
    a = fb.eye(3).repeat(2, 1, 1)
    a[1, 1, 2] = bad

    condition = L.cond(a, order)

    assert condition[0].isfinite()
    assert condition[1] == inf


@pytest.mark.parametrize("bad", [inf, -inf, fb.nan])
@pytest.mark.parametrize("size", [2, 3, 40])
def test_the_exponential_of_a_matrix_that_is_not_finite_is_nan_and_of_the_others_right(size, bad):
    a = fb.eye(size, dtype=fb.float64).repeat(2, 1, 1)
    a[1, 0, size - 1] = bad

    made = L.matrix_exp(a)

    close(made[0], np.eye(size) * np.e)
    assert made[1].isnan().all()
    assert L.matrix_exp(a[1].to(fb.complex128)).isnan().all()


def test_the_exponential_of_one_infinite_number_is_that_of_the_number():
    assert L.matrix_exp(fb.tensor([[[inf]], [[-inf]]])).flatten().tolist() == [inf, 0.0]


@pytest.mark.parametrize("bad", [inf, fb.nan])
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_the_triangle_that_eigh_does_not_read_may_hold_anything(uplo, bad):
    symmetric = A[0] + A[0].T
    a = np.triu(symmetric) if uplo == "U" else np.tril(symmetric)
    a[(1, 0) if uplo == "U" else (0, 1)] = bad

    close(L.eigvalsh(fb.tensor(a), UPLO=uplo), np.linalg.eigvalsh(symmetric))
    close(L.eigh(fb.tensor(a), UPLO=uplo).eigenvalues, np.linalg.eigvalsh(symmetric))
    close(L.eigvalsh(fb.tensor(np.stack([symmetric, a])), UPLO=uplo)[1], np.linalg.eigvalsh(symmetric))


@pytest.mark.parametrize("name", ["svd", "svdvals", "pinv", "cond", "matrix_rank", "eigh", "eigvalsh", "eigvals"])
def test_matrices_with_nan_are_refused_and_the_first_of_them_named(name):
    a = fb.ones(3, 2, 2)
    a[2, 1, 0] = fb.nan

    said = "ill-conditioned or has too many repeated eigenvalues .*nan" if name in ("eigh", "eigvalsh") else "non-finite"
    with pytest.raises(L.LinAlgError, match=rf"\(Batch element 2\): The algorithm failed to converge because .*{said}"):
        getattr(L, name)(a)


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_least_squares_say_what_is_not_finite_before_lapack_sees_it(driver, capfd):
    a, b, bad = fb.randn(4, 3), fb.randn(4, 2), fb.randn(4, 2)
    bad[0, 0] = fb.nan
    with pytest.raises(RuntimeError, match="NaN"):
        L.lstsq(a, bad, driver=driver)
    bad[0, 0] = inf
    assert L.lstsq(a, bad, driver=driver).solution.isnan().all()
    a[0, 0] = inf
    if driver == "gelsy":
        assert not L.lstsq(a, b, driver=driver).solution.any()
    else:
        with pytest.raises(L.LinAlgError, match="infinity"):
            L.lstsq(a, b, driver=driver)

    assert not "".join(capfd.readouterr())


def test_the_gradient_of_a_determinant_with_an_infinity_is_there():
    x = fb.ones(3, 3)
    x[1, 1] = inf
    x.requires_grad_()

    L.det(x).backward()

    assert x.grad.shape == (3, 3)


@pytest.mark.parametrize("method", ["basic", "ortho"])
@pytest.mark.parametrize("second", [False, True])
def test_gradients_of_lobpcg_pass_gradcheck(second, method):
    rng = np.random.default_rng(0)
    a, b = (m @ m.T + 9 * np.eye(6) for m in rng.normal(size=(2, 6, 6)))
    start = fb.tensor(rng.normal(size=(6, 1)))

    def extremes(a, *b):
        a, b = (a + a.mT) / 2, (b[0] + b[0].mT) / 2 if b else None
        values, vectors = fb.lobpcg(a, 1, b, start, niter=300, tol=1e-12, method=method)
        return values, vectors.abs()

    operands = [fb.tensor(m).requires_grad_() for m in ((a, b) if second else (a,))]
    assert fb.autograd.gradcheck(extremes, operands, atol=1e-4)


def test_lapack_takes_no_threads_of_its_own():
    """Its results would depend on their number, and its threads wait for each other by spinning."""
    from flambeau.ops.linear_algebra import _routines
    from flambeau_kernels.cpu.gemm import blas

    guards: Any = blas.one_thread, blas.scipy_one_thread()
    if not all(isinstance(guard, blas._OneThread) for guard in guards):
        pytest.skip("numpy or scipy was built with another BLAS")
    seen = []
    for guard in guards:
        with guard:
            seen.append(guard._get())

    def looked(*args):
        seen.append(guards[1]._get())
        return args

    assert _routines._on_one_thread(looked)(1, 2) == (1, 2)
    assert seen == [1, 1, 1]


@pytest.mark.parametrize("dtype", [fb.float32, fb.complex128], ids=str)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_factors_may_lie_by_rows_or_by_columns(dtype, upper, turned):
    generator = fb.Generator().manual_seed(0)
    a, b = (fb.randn(40, n, generator=generator, dtype=dtype) for n in (40, 3))
    positive = a @ a.mH + 40 * fb.eye(40, dtype=dtype)
    factor = fb.linalg.cholesky(positive, upper=upper)
    lying = factor.mT.contiguous().mT if turned else factor.contiguous()

    assert fb.allclose(positive @ fb.cholesky_solve(b, lying, upper), b, atol=1e-4)
    assert fb.allclose(lying @ fb.linalg.solve_triangular(lying, b, upper=upper), b, atol=1e-4)


@pytest.mark.parametrize("program", [
    "fb.addmv(fb.ones(4, 4), fb.ones(4, 4), fb.ones(4))", "fb.addmm(fb.ones(2, 3, 3), fb.ones(3, 3), fb.ones(3, 3))",
    "fb.baddbmm(fb.ones(2, 2, 3, 3), fb.ones(2, 3, 3), fb.ones(2, 3, 3))",
])  # fmt: skip
def test_what_is_added_to_a_product_is_no_larger_than_it(program: str) -> None:
    with pytest.raises(RuntimeError, match="expand"):
        eval(program)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("columns", [1, 2, 3])
def test_triangles_of_many_rows_with_few_right_sides(columns, unit, upper, dtype):
    r = np.random.default_rng(columns)
    a, b = r.standard_normal((130, 130)).astype(dtype) / 130, r.standard_normal((130, columns)).astype(dtype)
    if dtype is np.complex64:
        a, b = a + 1j * a.T, b - 1j * b
    a, b = (a + np.eye(130)).astype(dtype), b.astype(dtype)
    triangle = np.triu(a) if upper else np.tril(a)
    if unit:
        np.fill_diagonal(triangle, 1)

    for laid_out in (a, np.asfortranarray(a)):
        made = fb.linalg.solve_triangular(fb.from_numpy(laid_out), fb.from_numpy(b), upper=upper, unitriangular=unit).numpy()

        np.testing.assert_allclose(triangle @ made, b, atol=2e-5 if dtype is not np.float64 else 1e-13)


def test_tolerances_of_matrix_rank_may_be_one_for_each_matrix():
    a = fb.diag_embed(fb.tensor([[3.0, 1.0], [3.0, 1.0]]))

    assert fb.linalg.matrix_rank(a, atol=fb.tensor([0.5, 2.0])).tolist() == [2, 1]
    assert fb.linalg.matrix_rank(a[0], atol=fb.tensor(2.0)).item() == 1


@pytest.mark.parametrize("value", [inf, -inf, fb.nan, 3.0])
@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.complex64])
def test_a_matrix_of_one_element_is_its_own_eigenvalue(value, dtype):
    a = fb.full((2, 1, 1), value, dtype=dtype)

    values, vectors = L.eigh(a)

    assert fb.equal(values.nan_to_num(7), a.real[..., 0].nan_to_num(7))
    assert fb.equal(vectors, fb.ones_like(a))
    assert fb.equal(L.eigvalsh(a).nan_to_num(7), values.nan_to_num(7))


def test_reflectors_without_a_dimension_of_factors_are_refused_by_name():
    with pytest.raises(IndexError, match="ormqr: Dimension specified as -1 but tensor has no dimensions: tau"):
        fb.ormqr(fb.ones(1, 1), fb.tensor(1.0), fb.ones(1, 2))


@pytest.mark.parametrize("upper", [False, True])
def test_factors_with_their_infos_are_answered_by_a_plan_with_history(upper):
    x = fb.randn(2, 4, 4, dtype=fb.float64)
    x = (x @ x.mT + fb.eye(4, dtype=fb.float64)).requires_grad_()
    op = OPS["linalg.cholesky_ex"]

    for a in (x, -x):
        planned, composed = op.answer(a, upper, False), op.run(a, upper, False)

        assert type(planned) is type(composed)
        assert planned.info.tolist() == composed.info.tolist()
        assert planned.L.stride() == composed.L.stride()
        assert str(planned.L.tolist()) == str(composed.L.tolist())  # a factor that is not right may have nan
    gradients = [fb.autograd.grad(op.answer(x, upper, False).L.sum(), x)[0], fb.autograd.grad(op.run(x, upper, False).L.sum(), x)[0]]
    assert gradients[0].tolist() == gradients[1].tolist()
    with pytest.raises(fb.linalg.LinAlgError):
        fb.linalg.cholesky_ex(-x, check_errors=True)


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.complex64])
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5)])
def test_pinv_of_a_matrix_of_full_rank_is_the_one_where_no_value_is_below_the_limit(shape, dtype):
    """Where all singular values count those that do not are not looked for; a matrix beside one that lacks rank takes the other way."""
    a = fb.randn(shape, dtype=dtype)
    lacking = a.clone()
    lacking[-1], lacking[:, -1] = lacking[0], lacking[:, 0]
    together = fb.linalg.pinv(fb.stack([a, lacking]))

    fb.testing.assert_close(fb.linalg.pinv(a), together[0])
    fb.testing.assert_close(fb.linalg.pinv(lacking), together[1])
    fb.testing.assert_close(fb.linalg.pinv(a, rtol=2.0), fb.zeros(shape[::-1], dtype=dtype))


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.complex64])
def test_small_matrices_whose_squares_overflow_are_decomposed(dtype):
    """One sum of squares says whether all elements are finite, where it is finite itself."""
    large = 1e30 if dtype != fb.float64 else 1e200
    a = fb.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=dtype)
    scaled = a * large

    assert fb.allclose(L.eigvalsh(scaled) / large, L.eigvalsh(a))
    assert fb.allclose(L.eigh(scaled).eigenvalues / large, L.eigvalsh(a))
    assert fb.allclose(L.svdvals(scaled) / large, L.svdvals(a))
    assert fb.allclose(L.svd(scaled).S / large, L.svdvals(a))
    with pytest.raises(RuntimeError):
        L.eigh(a * float("nan"))


@pytest.mark.parametrize("dtype", [fb.int64, fb.int32])
@pytest.mark.parametrize("offset", [-10**6, -150, -1, 0, 2, 150, 10**6])
@pytest.mark.parametrize("shape", [(5, 4), (1, 2000), (60, 40), (200, 300)])
def test_places_of_triangles_of_any_size_are_those_of_numpy(shape, offset, dtype):
    for name in ("tril_indices", "triu_indices"):
        found = getattr(fb, name)(*shape, offset, dtype=dtype)

        assert found.dtype is dtype
        np.testing.assert_array_equal(found.numpy(), np.stack(getattr(np, name)(shape[0], offset, shape[1])))


def test_blocks_of_any_layout_lie_along_the_diagonal():
    blocks = [A[0].T, TALL[::2], B[0], np.zeros((0, 2)), rng.standard_normal(3), A[1]]

    made = fb.block_diag(*[fb.from_numpy(b) for b in blocks])

    np.testing.assert_array_equal(made.numpy(), scipy.linalg.block_diag(*blocks))
    np.testing.assert_array_equal(made.numpy(), OPS["block_diag"].run([fb.from_numpy(b) for b in blocks]).numpy())


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("kind", ["regular", "of half the rank", "with a column of zeros", "tiny"])
def test_least_squares_of_many_equations(kind, dtype):
    rng = np.random.default_rng(0)
    m, n, width = 3000, 20, 3
    a, b = rng.normal(size=(m, n)), rng.normal(size=(m, width))
    if np.dtype(dtype).kind == "c":
        a, b = a + 1j * rng.normal(size=(m, n)), b + 1j * rng.normal(size=(m, width))
    if kind == "of half the rank":
        a = a[:, :10] @ rng.normal(size=(10, n))
    elif kind == "with a column of zeros":
        a[:, 3] = 0
    elif kind == "tiny":
        a, b = a * 1e-25, b * 1e-25
    a, b = a.astype(dtype), b.astype(dtype)
    eps = np.finfo(dtype).eps
    wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
    expected, _, rank, _ = np.linalg.lstsq(a.astype(wide), b.astype(wide), rcond=eps * m)

    made = fb.linalg.lstsq(fb.from_numpy(a), fb.from_numpy(b))

    assert int(made.rank) == rank
    assert made.solution.stride() == (1, m)
    np.testing.assert_allclose(made.solution.numpy(), expected, rtol=0, atol=100 * eps * np.abs(expected).max())

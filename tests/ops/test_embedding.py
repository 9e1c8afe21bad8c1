"""Embeddings: rows by index, their gradients, bags and one-hot vectors."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
import flambeau.nn.functional as F
from comparing import disagreements

TABLE = np.arange(12.0).reshape(4, 3)


def table() -> fb.Tensor:
    return fb.tensor(TABLE, requires_grad=True)


def test_embedding_reads_rows_and_its_gradient_adds_them_up() -> None:
    weight = table()
    made = F.embedding(fb.tensor([[1, 1], [3, 0]]), weight)
    (made * fb.tensor([[[1.0], [2.0]], [[4.0], [8.0]]])).sum().backward()

    np.testing.assert_array_equal(made.detach().numpy(), TABLE[[[1, 1], [3, 0]]])
    assert weight.grad[:, 0].tolist() == [8, 3, 0, 4]


def test_the_padding_row_gets_no_gradient() -> None:
    weight = table()
    F.embedding(fb.tensor([0, 3, 3]), weight, padding_idx=-1).sum().backward()

    assert weight.grad[:, 0].tolist() == [1, 0, 0, 0]


def test_gradients_may_be_divided_by_how_often_a_row_is_read() -> None:
    weight = table()
    F.embedding(fb.tensor([2, 2, 2, 1]), weight, scale_grad_by_freq=True).sum().backward()

    np.testing.assert_allclose(weight.grad[:, 0].numpy(), [0, 1, 1, 0])


def test_embedding_is_linear_so_its_second_derivative_reads_rows_again() -> None:
    weight = table()
    seed = fb.ones(3, 3, dtype=fb.float64, requires_grad=True)
    (grad,) = fb.autograd.grad(F.embedding(fb.tensor([1, 1, 2]), weight), weight, seed, create_graph=True)
    (grad * fb.tensor(TABLE)).sum().backward()

    np.testing.assert_array_equal(seed.grad.numpy(), TABLE[[1, 1, 2]])


def test_rows_longer_than_max_norm_are_scaled_down_in_place() -> None:
    weight = fb.tensor([[3.0, 4.0], [30.0, 40.0], [0.3, 0.4]])
    F.embedding(fb.tensor([0, 2]), weight, max_norm=1.0)

    np.testing.assert_allclose(weight.numpy(), [[0.6, 0.8], [30, 40], [0.3, 0.4]], rtol=1e-6)


def test_an_index_outside_the_table_is_refused() -> None:
    for wrong in (4, -1):
        with pytest.raises(IndexError, match=f"index {wrong} into a table of 4 rows"):
            F.embedding(fb.tensor([0, wrong]), table())
    with pytest.raises(RuntimeError, match="Long, Int"):
        F.embedding(fb.tensor([0.0]), table())


@pytest.mark.parametrize("rows", [3, 500])
@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.bfloat16])
def test_bags_that_are_rows_of_a_matrix_and_their_gradient(rows: int, dtype: fb.dtype) -> None:
    weight = fb.randn(40, 48).to(dtype).requires_grad_()
    at, seed = fb.randint(0, 40, (rows, 7)), fb.randn(rows, 48).to(dtype)
    expected = np.zeros((40, 48))
    np.add.at(expected, at.numpy().reshape(-1), np.repeat(seed.double().numpy(), 7, 0))
    made = F.embedding_bag(at, weight, mode="sum")
    made.backward(seed)
    grad = weight.grad
    assert grad is not None

    close = {fb.float32: 1e-5, fb.float64: 1e-12, fb.bfloat16: 2e-2}[dtype]
    np.testing.assert_allclose(made.detach().double().numpy(), weight.detach().double().numpy()[at.numpy()].sum(1), close, 4 * close)
    np.testing.assert_allclose(grad.double().numpy(), expected, close, 10 * close)


def test_indices_overwritten_before_the_gradient_are_noticed() -> None:
    for read in (F.embedding, lambda at, weight: F.embedding_bag(at, weight, mode="sum")):
        at = fb.tensor([[0, 1], [2, 3]])
        made = read(at, table())
        at.zero_()

        with pytest.raises(RuntimeError, match="modified"):
            made.sum().backward()


def test_many_indices_with_one_outside_the_table_are_refused() -> None:
    at = fb.arange(3000).reshape(300, 10) % 4
    at[200, 5] = 4

    with pytest.raises(IndexError, match="index 4 into a table of 4 rows"):
        F.embedding(at, table().float())
    for weight in (table().float(), table().float().requires_grad_()):
        with pytest.raises(RuntimeError, match="takes value 4 which is not in the valid range"):
            F.embedding_bag(at, weight, mode="sum")


@pytest.mark.parametrize(("mode", "combine"), [("sum", np.sum), ("mean", np.mean), ("max", np.max)])
def test_bags_are_sums_means_or_maxima_of_rows(mode: str, combine: object) -> None:
    indices, offsets = [0, 3, 1, 2, 2], [0, 2, 2]
    made = F.embedding_bag(fb.tensor(indices), table(), fb.tensor(offsets), mode=mode)
    rows = F.embedding_bag(fb.tensor([[0, 1], [2, 3]]), table(), mode=mode)

    np.testing.assert_allclose(made.detach().numpy(), [combine(TABLE[[0, 3]], 0), [0, 0, 0], combine(TABLE[[1, 2, 2]], 0)])
    np.testing.assert_allclose(rows.detach().numpy(), [combine(TABLE[:2], 0), combine(TABLE[2:], 0)])


def test_the_gradient_of_a_largest_goes_to_the_row_it_came_from() -> None:
    weight = table()
    F.embedding_bag(fb.tensor([[0, 2]]), weight, mode="max").sum().backward()

    assert weight.grad[:, 0].tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.bfloat16], ids=str)
def test_many_bags_some_of_them_empty_are_combined_bag_by_bag(mode: str, dtype: fb.dtype) -> None:
    table = fb.randn(60, 37).mul(4).round().to(dtype)          # many are equal
    at, starts = fb.randint(0, 60, (700,)), [0, 0, 3, 3, 250, 251, 700]
    combine = {"sum": lambda x: x.sum(0), "mean": lambda x: x.mean(0), "max": lambda x: x.amax(0)}[mode]
    rows = table.double()[at]
    bounds = zip(starts, [*starts[1:], 700], strict=True)
    want = fb.stack([combine(rows[a:b]) if a < b else fb.zeros(37, dtype=fb.float64) for a, b in bounds])

    made = F.embedding_bag(at, table, fb.tensor(starts), mode=mode)
    recorded = F.embedding_bag(at, table.requires_grad_(), fb.tensor(starts), mode=mode)

    fb.testing.assert_close(made.double(), want, rtol=1e-2 if dtype is fb.bfloat16 else 1e-5, atol=1e-4)
    assert fb.equal(made, recorded)


def test_samples_of_a_bag_may_have_weights_with_gradients() -> None:
    weight, samples = table(), fb.tensor([[2.0, -1.0]], dtype=fb.float64, requires_grad=True)
    made = F.embedding_bag(fb.tensor([[1, 3]]), weight, mode="sum", per_sample_weights=samples)
    made.sum().backward()

    np.testing.assert_allclose(made.detach().numpy(), [2 * TABLE[1] - TABLE[3]])
    np.testing.assert_allclose(samples.grad.numpy(), [[TABLE[1].sum(), TABLE[3].sum()]])


def test_one_hot() -> None:
    assert F.one_hot(fb.tensor([[0, 2]])).tolist() == [[[1, 0, 0], [0, 0, 1]]]
    assert F.one_hot(fb.tensor([1]), 4).tolist() == [[0, 1, 0, 0]]
    with pytest.raises(RuntimeError, match="smaller than num_classes, got 5 for 3"):
        F.one_hot(fb.tensor([5]), 3)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("include_last_offset", [False, True])
@pytest.mark.parametrize("offsets", [[0, -100], [0, 2, 1], [0, -1, 2], [0, -(1 << 62), 3], [0, 3, 1, 3]])
def test_offsets_of_bags_that_decrease_are_refused(mode, include_last_offset, offsets):
    table = fb.ones(3, 2, requires_grad=True)

    with pytest.raises(RuntimeError, match="must not decrease"):
        fb.nn.functional.embedding_bag(fb.tensor([0, 1, 2]), table, fb.tensor(offsets), mode=mode, include_last_offset=include_last_offset)


def test_a_norm_of_an_order_beyond_64_bits_scales_rows_as_pytorchs(oracle) -> None:
    found = []
    for lib in (oracle, fb):
        weight = lib.full((3, 2), 3.0)
        lib.nn.functional.embedding(lib.tensor([0, 1]), weight, norm_type=1 << 70, max_norm=1 << 33)
        found.append(weight.tolist())

    assert found[0] == found[1] == [[0, 0], [0, 0], [3, 3]]


def test_indices_and_offsets_of_bags_may_be_of_two_dtypes(oracle):
    programs = """
    F.embedding_bag(at, w, offsets.to(torch.int16))
    F.embedding_bag(at.to(torch.int16), w, offsets)
    F.embedding_bag(at.to(torch.uint8), w, offsets.int(), mode="max")
    F.embedding_bag(at.int(), w, offsets, mode="sum")
    F.embedding_bag(at.to(torch.int16), w, offsets.to(torch.int16))
    F.embedding_bag(at, w, offsets.float())
    """
    start = "at = torch.tensor([0, 1, 2, 3]); offsets = torch.tensor([0, 2]); w = torch.arange(12.0).reshape(4, 3); "

    assert not disagreements(oracle, "\n".join(start + line.strip() for line in programs.strip().splitlines()))


@pytest.mark.parametrize("offsets", [[0, -1], [0, -5], [0, 2, -4], [0, 3, 2]])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_offsets_that_decrease_are_refused_before_anything_is_read_by_them(offsets, mode):
    with pytest.raises(RuntimeError, match="offsets must not decrease"):
        fb.nn.functional.embedding_bag(fb.tensor([0, 1, 2, 3]), fb.ones(4, 3), fb.tensor(offsets), mode=mode)


@pytest.mark.parametrize(("mode", "weighted", "padding_idx"), [("sum", False, None), ("sum", True, 2), ("mean", False, 2)])
def test_second_derivatives_of_bags_are_recorded(mode, weighted, padding_idx):
    from flambeau.fx.experimental.proxy_tensor import make_fx

    fb.manual_seed(0)
    weight, by = fb.randn(6, 3, dtype=fb.float64, requires_grad=True), fb.rand(5, dtype=fb.float64, requires_grad=True)
    offsets = fb.tensor([0, 2, 2])

    def twice(weight, by, index):
        of = [weight, by] if weighted else [weight]
        bags = fb.nn.functional.embedding_bag(
            index, weight, offsets, mode=mode, per_sample_weights=by if weighted else None, padding_idx=padding_idx
        )
        first = fb.autograd.grad((bags**3).sum(), of, create_graph=True)
        return fb.autograd.grad(sum(g.sin().sum() for g in first), of)

    graph = make_fx(twice)(weight, by, fb.tensor([0, 2, 5, 2, 1]))
    index = fb.tensor([1, 1, 0, 2, 4])

    for got, expected in zip(graph(weight, by, index), twice(weight, by, index), strict=True):
        fb.testing.assert_close(got, expected)

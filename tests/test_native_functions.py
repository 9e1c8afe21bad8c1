"""Functions at the top level in the form PyTorch's operators have: against the functions and layers they stand for."""

from __future__ import annotations

import math

import pytest

import flambeau as fb
from flambeau.fx.experimental.proxy_tensor import make_fx

F = fb.nn.functional


def assert_equal(found, expected):
    assert fb.equal(found, expected), (found, expected)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("hinge_embedding_loss", lambda: (fb.randn(3), fb.tensor([1, -1, 1]))),
        ("margin_ranking_loss", lambda: (fb.randn(3), fb.randn(3), fb.tensor([1, -1, 1]))),
        ("cosine_embedding_loss", lambda: (fb.randn(3, 2), fb.randn(3, 2), fb.tensor([1, -1, 1]))),
        ("triplet_margin_loss", lambda: (fb.randn(3, 2), fb.randn(3, 2), fb.randn(3, 2))),
        ("binary_cross_entropy_with_logits", lambda: (fb.randn(3), fb.rand(3))),
        ("ctc_loss", lambda: (fb.randn(5, 1, 4).log_softmax(2), fb.tensor([[1, 2]]), fb.tensor([5]), fb.tensor([2]))),
    ],
)
def test_losses_take_reductions_as_numbers_and_reduce_only_when_told(name, arguments):
    given = arguments()
    function, documented = getattr(fb, name), getattr(F, name)

    assert_equal(function(*given), documented(*given, reduction="none"))
    for number, word in enumerate(("none", "mean", "sum")):
        assert_equal(function(*given, reduction=number), documented(*given, reduction=word))
    with pytest.raises(RuntimeError, match=rf"{name}: reduction must be 0 .* got 7"):
        function(*given, reduction=7)


def test_kl_div_means_over_all_elements():
    input, target = fb.randn(4, 3).log_softmax(1), fb.rand(4, 3)

    assert_equal(fb.kl_div(input, target, 2), F.kl_div(input, target, reduction="sum"))
    assert fb.kl_div(input, target, 1).item() == pytest.approx(F.kl_div(input, target, reduction="none").mean().item())


def test_poisson_loss_needs_every_setting():
    input, target = fb.randn(3), fb.rand(3)

    assert_equal(fb.poisson_nll_loss(input, target, True, False, 1e-8, 1), F.poisson_nll_loss(input, target))


@pytest.mark.parametrize("name", ["cosine_similarity", "pairwise_distance"])
def test_distances_are_those_of_functional(name):
    a, b = fb.randn(3, 2), fb.randn(3, 2)

    assert_equal(getattr(fb, name)(a, b), getattr(F, name)(a, b))


def test_bags_come_with_where_their_indices_went():
    weight = fb.tensor([[1.0, 9.0], [5.0, 2.0], [3.0, 3.0], [7.0, 7.0]])
    indices, offsets = fb.tensor([0, 1, 2, 1]), fb.tensor([0, 2])

    bags, bag_of, sizes, rows = fb.embedding_bag(weight, indices, offsets, False, 2)

    assert bags.tolist() == [[5, 9], [5, 3]]
    assert (bag_of.tolist(), sizes.tolist()) == ([0, 0, 1, 1], [2, 2])
    assert rows.tolist() == [[1, 0], [1, 2]]
    with pytest.raises(RuntimeError, match="mode must be 0"):
        fb.embedding_bag(weight, indices, offsets, False, 3)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_functions_are_the_layers(kind, both):
    layer = getattr(fb.nn, kind)(3, 4, 2, bidirectional=both, batch_first=True)
    function = getattr(fb._VF, {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_tanh"}[kind])
    x, h = fb.randn(2, 5, 3), fb.zeros(4 if both else 2, 2, 4)
    state = (h, h) if kind == "LSTM" else h

    found = function(x, state, layer._flat_weights, True, 2, 0.0, True, both, True)

    expected, last = layer(x, state)
    assert_equal(found[0], expected)
    for a, b in zip(found[1:], last if kind == "LSTM" else (last,), strict=True):
        assert_equal(a, b)


def test_recurrent_functions_take_packed_sequences():
    layer = fb.nn.GRU(3, 4)
    packed = fb.nn.utils.rnn.pack_padded_sequence(fb.randn(5, 2, 3), fb.tensor([5, 3]))
    h = fb.zeros(1, 2, 4)

    found, last = fb.gru(packed.data, packed.batch_sizes, h, layer._flat_weights, True, 1, 0.0, True, False)

    expected, state = layer(packed, h)
    assert_equal(found, expected.data)
    assert_equal(last, state)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_cells_are_functions(kind):
    cell = getattr(fb.nn, kind + "Cell")(3, 4)
    function = getattr(fb, {"LSTM": "lstm_cell", "GRU": "gru_cell", "RNN": "rnn_tanh_cell"}[kind])
    x, h = fb.randn(2, 3), fb.randn(2, 4)
    state = (h, h) if kind == "LSTM" else h

    found = function(x, state, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)

    assert_equal(fb.stack(tuple(found)), fb.stack(tuple(cell(x, state))))


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [
        ("sum", [1, 0, 9]), ("mean", [0.5, math.nan, 3]), ("prod", [0, 1, 24]), ("max", [1, -math.inf, 4]),
        ("min", [0, math.inf, 2]),
    ],
)  # fmt: skip
def test_segments_are_reduced(reduce, expected):
    found = fb.segment_reduce(fb.arange(5.0), reduce, lengths=fb.tensor([2, 0, 3]))

    assert found.tolist() == pytest.approx(expected, nan_ok=True)


def test_segments_begin_with_initial_and_lie_along_an_axis():
    rows = fb.arange(10.0).reshape(2, 5)

    assert fb.segment_reduce(fb.arange(3.0), "sum", offsets=fb.tensor([0, 1, 3]), initial=10).tolist() == [10, 13]
    assert fb.segment_reduce(rows, "sum", lengths=fb.tensor([[2, 3], [1, 4]]), axis=1).tolist() == [[1, 9], [5, 30]]


def test_segments_that_do_not_fit_are_refused():
    with pytest.raises(RuntimeError, match="either lengths or offsets"):
        fb.segment_reduce(fb.ones(3), "sum")
    with pytest.raises(RuntimeError, match="got 'most'"):
        fb.segment_reduce(fb.ones(3), "most", lengths=fb.tensor([3]))
    with pytest.raises(RuntimeError, match="add up to 1, data has 3"):
        fb.segment_reduce(fb.ones(3), "sum", lengths=fb.tensor([1]))


@pytest.mark.parametrize("lengths", [[3, -1, 1], [(1 << 63) - 1, (1 << 63) - 1, 5], [4, 0, 0]], ids=str)
def test_segments_outside_the_data_are_refused_even_if_unsafe(lengths):
    with pytest.raises(RuntimeError, match="segments of the 3 elements"):
        fb.segment_reduce(fb.ones(3), "sum", lengths=fb.tensor(lengths), unsafe=True)
    with pytest.raises(RuntimeError, match="segments of the 3 elements"):
        fb.segment_reduce(fb.ones(3), "sum", offsets=fb.tensor(lengths))


def test_the_first_segment_begins_where_offsets_say():
    assert fb.segment_reduce(fb.arange(6.0), "sum", offsets=fb.tensor([1, 3, 6])).tolist() == [3, 12]


def test_segments_have_gradients():
    x = fb.arange(5.0, requires_grad=True)

    fb.segment_reduce(x, "mean", lengths=fb.tensor([2, 3])).backward(fb.tensor([1.0, 3.0]))

    assert x.grad.tolist() == pytest.approx([0.5, 0.5, 1, 1, 1])


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "max", "min"])
def test_recorded_segments_follow_other_lengths(reduce):
    def gradient(data, lengths):
        data = data.detach().requires_grad_()
        fb.segment_reduce(data, reduce, lengths=lengths, initial=2.0).sum().backward()
        return data.grad

    data, lengths, others = fb.arange(5.0), fb.tensor([2, 0, 3]), fb.tensor([0, 4, 1])

    recorded = make_fx(lambda data, lengths: fb.segment_reduce(data, reduce, lengths=lengths))(data, lengths)
    fb.testing.assert_close(recorded(data, others), fb.segment_reduce(data, reduce, lengths=others), equal_nan=True)
    assert_equal(make_fx(gradient)(data, lengths)(data, others), gradient(data, others))


def test_each_example_has_segments_of_its_own_under_vmap():
    rows, lengths = fb.arange(10.0).reshape(2, 5), fb.tensor([[2, 3], [1, 4]])

    found = fb.vmap(lambda row, own: fb.segment_reduce(row, "sum", lengths=own))(rows, lengths)

    assert found.tolist() == [[1, 9], [5, 30]]


def test_segments_of_other_rows_than_the_data_are_refused():
    with pytest.raises(RuntimeError, match=r"lengths of shape \(2, 1\) need data of \(2,\) before axis 1"):
        fb.segment_reduce(fb.ones(3, 4), "sum", lengths=fb.tensor([[4], [4]]), axis=1)


def test_sums_of_long_segments_are_rounded_once():
    data = fb.full((3_000_000,), 0.1)

    found = fb.segment_reduce(data, "sum", lengths=fb.tensor([3_000_000]))

    assert found.item() == pytest.approx(float(data[0].double()) * 3_000_000, rel=1e-7)


def test_values_are_rounded_to_the_grid_and_clamped():
    x = fb.tensor([-2.0, -0.33, 0.5, 3.7, math.nan, math.inf])

    found = fb.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 20)

    assert found.tolist() == pytest.approx([-0.3, -0.3, 0.5, 1.7, -0.3, 1.7])


def test_gradients_pass_where_nothing_was_clamped():
    x = fb.tensor([-0.5, 0.04, 0.5, 3.0], requires_grad=True)

    fb.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 10).sum().backward()

    assert x.grad.tolist() == [0, 1, 1, 0]


def test_channels_have_grids_of_their_own():
    x = fb.tensor([[0.4, 0.4], [1.0, 1.0]])
    scale, zero = fb.tensor([0.25, 0.5]), fb.tensor([0, 1], dtype=fb.int32)

    assert fb.fake_quantize_per_channel_affine(x, scale, zero, 1, 0, 3).tolist() == [[0.5, 0.5], [0.75, 1.0]]
    with pytest.raises(RuntimeError, match="2 elements"):
        fb.fake_quantize_per_channel_affine(x, scale[:1], zero[:1], 1, 0, 3)


def test_grids_that_make_no_sense_are_refused():
    with pytest.raises(RuntimeError, match="zero_point must lie between quant_min 0 and quant_max 20, got 30"):
        fb.fake_quantize_per_tensor_affine(fb.ones(2), 0.1, 30, 0, 20)
    with pytest.raises(RuntimeError, match="got 20 and 0"):
        fb.fake_quantize_per_tensor_affine(fb.ones(2), 0.1, 3, 20, 0)
    with pytest.raises(NotImplementedError, match="int32"):
        fb.fake_quantize_per_tensor_affine(fb.ones(2, dtype=fb.int32), 0.1, 3, 0, 20)


def test_dropout_comes_with_its_mask():
    fb.manual_seed(0)

    out, mask = fb.native_dropout(fb.ones(6), 0.5, True)

    assert mask.tolist() == [False, False, True, False, False, False]
    assert_equal(out, mask * 2.0)
    assert fb.native_dropout(fb.ones(2), 0.5, False)[1].tolist() == [True, True]


def test_norms_over_what_is_left():
    v = fb.randn(3, 4)

    assert_equal(fb.norm_except_dim(v, 2, 0), v.norm(dim=1, keepdim=True))
    assert_equal(fb.frobenius_norm(v), fb.linalg.vector_norm(v))
    assert_equal(fb.nuclear_norm(v), fb.linalg.matrix_norm(v, "nuc"))


def test_rows_are_scaled_down_in_place():
    table = fb.tensor([[3.0, 4.0], [3.0, 4.0]])

    assert fb.embedding_renorm_(table, fb.tensor([1]), 1.0, 2.0) is table
    assert table.tolist() == [[3, 4], pytest.approx([0.6, 0.8], abs=1e-6)]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("_check", RuntimeError), ("_check_index", IndexError), ("_check_value", ValueError), ("_check_type", TypeError),
        ("_check_not_implemented", NotImplementedError),
    ],
)  # fmt: skip
def test_checks_raise_what_they_are_named_after(name, error):
    check = getattr(fb, name)

    check(True)
    with pytest.raises(error, match="three is too many"):
        check(False, lambda: "three is too many")
    with pytest.raises(TypeError, match="cond must be a bool"):
        check(1)


def test_sizes_are_not_negative():
    fb._check_is_size(0)
    with pytest.raises(RuntimeError):
        fb._check_is_size(-1)
    with pytest.raises(RuntimeError, match="no"):
        fb._check_tensor_all(fb.tensor([True, False]), lambda: "no")


def test_groups_of_rows_have_matrices_of_their_own():
    x, weight = fb.randn(5, 4), fb.randn(2, 4, 3)

    found = fb._grouped_mm(x, weight, offs=fb.tensor([2, 5], dtype=fb.int32))

    assert_equal(found, fb.cat([x[:2] @ weight[0], x[2:] @ weight[1]]))
    assert_equal(fb._grouped_mm(x.expand(2, 5, 4), weight), fb.bmm(x.expand(2, 5, 4), weight))


@pytest.mark.parametrize("out", [None, fb.float32, fb.bfloat16])
@pytest.mark.parametrize("by_rows", [False, True])
def test_products_of_small_floats_are_scaled(out, by_rows):
    fb.manual_seed(0)
    a, b = fb.randn(16, 32).to(fb.float8_e4m3fn), fb.randn(16, 32).to(fb.float8_e4m3fn).t()
    scales = (fb.rand(16, 1) + 1, fb.rand(1, 16) + 1) if by_rows else (fb.tensor(2.0), fb.tensor([0.5]))

    found = fb._scaled_mm(a, b, *scales, bias=fb.ones(16, dtype=fb.bfloat16), out_dtype=out)

    expected = (a.double() @ b.double() * scales[0] * scales[1] + 1).float()
    assert found.dtype is (out or fb.float8_e4m3fn)
    tolerance = {fb.float32: 1e-5, fb.bfloat16: 2**-8, fb.float8_e4m3fn: 2**-4}[found.dtype]
    fb.testing.assert_close(found.float(), expected, rtol=tolerance, atol=tolerance * 4)


def test_products_of_small_floats_refuse_other_scales_and_dtypes():
    a, one = fb.ones(4, 4).to(fb.float8_e5m2), fb.tensor(1.0)

    with pytest.raises(RuntimeError, match=r"scale_b.*\(1, 4\).*\(4, 1\)"):
        fb._scaled_mm(a, a.t(), one, fb.ones(4, 1))
    with pytest.raises(RuntimeError, match=r"torch\.float32"):
        fb._scaled_mm(a.float(), a.t(), one, one)
    with pytest.raises(RuntimeError, match=r"\(4, 4\) and \(3, 4\)"):
        fb._scaled_mm(a, a[:3], one, one)
    with pytest.raises(NotImplementedError, match="scale_result"):
        fb._scaled_mm(a, a.t(), one, one, scale_result=one)


def test_segments_are_reduced_under_the_name_that_packages_use():
    x = fb.arange(12.0).view(6, 2)

    assert_equal(fb._segment_reduce(x, "sum", offsets=fb.tensor([0, 2, 6])), fb.stack([x[:2].sum(0), x[2:].sum(0)]))

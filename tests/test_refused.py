"""What PyTorch refuses is refused, not answered with something plausible."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from comparing import disagreements

F = fb.nn.functional
A = fb.autograd.functional
X, V, ARRAY = fb.ones(2, 3), fb.ones(2), np.ones(2)
INTEGERS, BOOLS = fb.ones(2, dtype=fb.int64), fb.ones(2, dtype=fb.bool)


@pytest.mark.parametrize(
    "call",
    [
        lambda: X.flip((0.0,)), lambda: X.flip([0, 1.0]), lambda: X.amax((0.0,)), lambda: X.sum((0.0, 1)), lambda: X.unbind(0.0),
        lambda: X.max(0.0), lambda: X.triu(0.5), lambda: X.tril("a"), lambda: X.rot90(1.0), lambda: X.topk(1.0), lambda: X.topk(True),
        lambda: X.kthvalue(1.0), lambda: F.pad(X, (1.0, 1)), lambda: X.cumsum(0.5), lambda: fb.cat([V], 0.0), lambda: X.select(0.0, 1),
    ],
)  # fmt: skip
def test_a_float_is_no_dimension_nor_a_count(call: Any) -> None:
    with pytest.raises(TypeError, match="int"):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: fb.add(V, ARRAY), lambda: fb.mul(V, ARRAY), lambda: V.add_(ARRAY), lambda: V.mul_(ARRAY), lambda: fb.pow(V, ARRAY),
        lambda: fb.maximum(V, ARRAY), lambda: fb.where(V > 0, ARRAY, V), lambda: fb.where(ARRAY > 0, V, V), lambda: fb.exp(ARRAY),
        lambda: fb.eq(V, ARRAY), lambda: fb.clamp(V, ARRAY), lambda: fb.lerp(V, ARRAY, 0.5), lambda: fb.dot(V, ARRAY),
        lambda: V.masked_fill(ARRAY > 0, 0), lambda: fb.add(V, np.array(1.0)), lambda: F.mse_loss(V, ARRAY), lambda: V.copy_(ARRAY),
    ],
)  # fmt: skip
def test_functions_take_no_arrays_of_numpy(call: Any) -> None:
    with pytest.raises((TypeError, AttributeError)):
        call()
    assert V.tolist() == [1, 1]


def test_functions_take_no_arrays_of_numpy_after_operators_have_had_such() -> None:
    array = np.ones(2, np.float32)
    for _ in range(3):
        assert V.__eq__(array).all()
        with pytest.raises(TypeError):
            fb.eq(V, array)


def test_operators_take_arrays_of_numpy() -> None:
    doubled = fb.tensor([1.0, 2.0])

    assert (doubled + np.array([1.0, 1.0])).tolist() == [2, 3]
    assert (doubled - np.array([1.0, 1.0])).dtype is fb.float64
    assert (doubled * np.array(2.0)).tolist() == [2, 4]
    assert (doubled == np.array([1.0, 1.0])).tolist() == [True, False]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fb.add(V, V, alpha=True), "Boolean alpha"),
        (lambda: fb.sub(V, V, alpha=True), "Boolean alpha"),
        (lambda: fb.rsub(V, V, alpha=True), "Boolean alpha"),
        (lambda: fb.add(INTEGERS, INTEGERS, alpha=True), "Boolean alpha"),
        (lambda: fb.add(INTEGERS, INTEGERS, alpha=1.0), "must not be a floating point number"),
        (lambda: fb.addr(fb.ones(2, 2), V, V, beta=True), "Boolean beta"),
        (lambda: fb.addr(fb.ones(2, 2, dtype=fb.int64), INTEGERS, INTEGERS, alpha=True), "Boolean alpha"),
        (lambda: fb.addr(fb.ones(2, 2, dtype=fb.int64), INTEGERS, INTEGERS, beta=0.5), "must not be a floating point number"),
        (lambda: fb.addr(fb.ones(2, 2, dtype=fb.bool), BOOLS, BOOLS, beta=0.5), "must not be a floating point number"),
    ],
)
def test_a_factor_must_be_of_a_kind_that_the_result_holds(call: Any, said: str) -> None:
    for _ in range(3):  # what the first calls have taught an operation does not let a later one pass
        with pytest.raises(RuntimeError, match=said):
            call()
    assert fb.add(BOOLS, BOOLS, alpha=True).tolist() == [True, True]


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_padding_from_the_input_itself_needs_elements_beside_the_batch(n: int, mode: str) -> None:
    amounts = (1, 1) * n

    assert F.pad(fb.ones(0, 2, *[4] * n), amounts, mode).shape == (0, 2, *[6] * n)
    for shape in ((1, 0, *[4] * n), (0, *[4] * n)):
        with pytest.raises(RuntimeError, match="possibly 0 batch size and other non-zero dimensions"):
            F.pad(fb.ones(shape), amounts, mode)
    with pytest.raises(RuntimeError, match="doesn't take in value"):
        F.pad(fb.ones(1, 1, *[4] * n), amounts, mode, 1.0)


@pytest.mark.parametrize("f", [lambda x: 3 * x, lambda x: x[:1] * 2, lambda x: x.sum()])
def test_a_strict_product_of_a_linear_function_cannot_be_differentiated_again(f: Any) -> None:
    x = fb.tensor([1.0, 2.0])
    v = fb.ones(f(x).shape)
    with pytest.raises(RuntimeError, match=r"jacobian .* is independent of input 0"):
        A.vjp(f, x, v, create_graph=True, strict=True)
    with pytest.raises(RuntimeError, match=r"jacobian .* is independent of input 0"):
        A.jvp(f, x, fb.ones(2), create_graph=True, strict=True)
    for product in (A.vhp, A.hvp):
        with pytest.raises(RuntimeError, match=r"hessian .* is independent of input 0"):
            product(lambda x: (x * x).sum(), x, fb.ones(2), create_graph=True, strict=True)
    assert A.vjp(lambda x: x * x, x, x, create_graph=True, strict=True)[1].tolist() == [2, 8]


ONE = fb.tensor([0])
NOT_DETERMINISTIC = [
    (lambda: fb.ones(3).put_(ONE, fb.ones(1)), "put_"),
    (lambda: fb.put(fb.ones(3), ONE, fb.ones(1)), "put_"),
    (lambda: F.max_unpool1d(fb.ones(1, 1, 1), ONE.view(1, 1, 1), 2), "max_unpooling2d_forward_out"),
    (lambda: fb.nn.MaxUnpool2d(2)(fb.ones(1, 1, 1, 1), ONE.view(1, 1, 1, 1)), "max_unpooling2d_forward_out"),
    (lambda: F.max_unpool3d(fb.ones(1, 1, 1, 1, 1), ONE.view(1, 1, 1, 1, 1), 2), "max_unpooling3d_forward_out"),
]


@pytest.mark.parametrize(("call", "name"), NOT_DETERMINISTIC)
def test_what_pytorch_has_no_deterministic_algorithm_for_is_refused_when_one_is_asked_for(call: Any, name: str) -> None:
    expected = call().tolist()
    fb.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match=f"^{name} does not have a deterministic implementation"):
            call()
        assert fb.ones(3).put_(ONE, fb.ones(1), accumulate=True).tolist() == [2, 1, 1]
        fb.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match=f"^{name} does not have a deterministic implementation"):
            made = call()
    finally:
        fb.use_deterministic_algorithms(False)
    assert made.tolist() == expected == call().tolist()


LOGS, LABELS = fb.zeros(9, 1, 4), fb.ones(1, 4, dtype=fb.int64)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: F.ctc_loss(LOGS, LABELS, (9,), (1,), zero_infinity=fb.ones(())), "zero_infinity"),
        (lambda: F.lp_pool1d(X, 0, 1, ceil_mode=3), "ceil_mode"),
        (lambda: F.max_pool1d(X, 2, ceil_mode=1), "ceil_mode"),
        (lambda: fb.nn.AvgPool2d(2, ceil_mode=None)(fb.ones(1, 4, 4)), "ceil_mode"),
        (lambda: fb.full_like(X, 2.5, dtype=float("nan")), "dtype"),
        (lambda: fb.mvlgamma(V + 3, 1.5), "p"),
        (lambda: fb.nn.AdaptiveLogSoftmaxWithLoss(6, 9, [3, 6], 2.0)(np.int64(1), LABELS[0]), "input"),
        (lambda: fb.nn.AdaptiveLogSoftmaxWithLoss(6, 9, [3, 6], 2.0)(fb.ones(4, 6), np.int64(1)), "target"),
    ],
)
def test_arguments_of_another_type_are_named(call: Any, name: str) -> None:
    with pytest.raises(TypeError, match=rf"argument '{name}' (\(position \d\) )?must be"):
        call()


def test_arguments_are_of_the_types_that_schemas_give_them(oracle: Any) -> None:
    programs = """
    torch.ones(2, 3).permute(True, False)
    torch.layer_norm(torch.ones(2), 2)
    F.rms_norm(torch.ones(2), 2)
    F.layer_norm(torch.ones(2), (2.0,))
    F.dropout(torch.ones(2), 0.5, 1)
    F.local_response_norm(torch.ones(2, 2, 2), True)
    torch.rand(range(2))
    torch.rand([True])
    F.pad(torch.ones(2), (1, 1), mode=1)
    F.pad(torch.ones(2), (1, 1), value=1j)
    F.pad(torch.ones(2), (1, 1), value=[1.0])
    torch.ones(3).sum(0, keepdim=1)
    torch.ones(3).sum(0, keepdim=None)
    torch.ones(3).argsort(descending=1)
    torch.diagonal(torch.ones(2, 2), dim1=True)
    F.avg_pool1d(torch.ones(1, 1, 4), 2, count_include_pad=1)
    torch.cumsum(torch.ones(2, 2), torch.tensor(True))
    torch.chunk(torch.ones(4), torch.tensor(True))
    torch.zeros(2, pin_memory=1)
    torch.eye(3, layout=1)
    torch.nanquantile(torch.ones(3), 0.5, interpolation=1)
    torch.ones(2, dtype=torch.bool) + (1 << 63)
    torch.ones(2, dtype=torch.bool) == (1 << 63)
    torch.ones(2, dtype=torch.uint8) + (1 << 63)
    torch.ones(2, dtype=torch.half) * (1 << 63)
    torch.ones(2, dtype=torch.uint8) // 256
    torch.ones(2, dtype=torch.uint8) % (1 << 63)
    torch.promote_types(torch.bool, torch.uint16)
    torch.promote_types(torch.complex64, torch.uint64)
    torch.full((2,), 70000, dtype=torch.half)
    torch.full((2,), 1e39, dtype=torch.half)
    torch.ones(2).half().fill_(1 << 62)
    """

    assert not disagreements(oracle, programs)


def test_the_first_element_of_a_list_says_whether_it_is_one_of_integers(oracle: Any) -> None:
    programs = """
    torch.randn(2, True).shape
    torch.zeros([2, True]).shape
    torch.ones(2, 2).reshape(4, True)
    torch.ones(2, 1).expand(2, True)
    torch.ones(2, 1).repeat(2, True)
    torch.ones(2, 2).flip(1, False)
    torch.ones(2, 2).sum((1, False))
    torch.ones(2, 2).sum((False, 1))
    torch.ones(2, 2).amax((1, False))
    torch.ones(4).unflatten(0, (4, True))
    torch.ones(4).split([3, True])
    torch.ones(2, 2, 2).movedim((1, False), (0, 1)).shape
    F.avg_pool2d(torch.ones(1, 1, 3, 3), (2, True)).shape
    F.avg_pool2d(torch.ones(1, 1, 3, 3), (True, 2)).shape
    F.conv2d(torch.ones(1, 1, 3, 3), torch.ones(1, 1, 1, 1), stride=(1, True)).shape
    torch.ones(2, 1, requires_grad=True).expand(2, True).requires_grad
    """

    assert not disagreements(oracle, programs)


def test_flags_that_pytorch_reads_in_python_may_be_anything() -> None:
    assert F.relu(fb.tensor([-1.0, 1.0]), inplace=1).tolist() == [0.0, 1.0]
    assert isinstance(F.max_pool1d(fb.ones(1, 1, 4), 2, return_indices=1), tuple)


def test_functions_are_not_refused_by_the_types_of_operators_that_share_their_name():
    x = fb.ones(1, 1, 3, 3)
    assert fb.nn.functional.unfold(x, (2, 2), 1, 0, (1, 1)).shape == (1, 4, 4)
    with pytest.raises(ValueError, match="non-negative"):
        fb.signal.windows.exponential(-1)


def test_a_complex_number_without_an_imaginary_part_is_a_correction_and_another_one_is_refused():
    x = fb.tensor([1.0, 2.0, 4.0], requires_grad=True)
    for one in (1 + 0j, fb.tensor(1 + 0j)):
        made = x.var(correction=one)
        made.backward()
        assert made.item() == x.var().item()
    for other in (1 + 1j, fb.tensor(1 + 1j)):
        with pytest.raises(RuntimeError, match="without overflow"):
            x.var(correction=other)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_an_infinite_rate_of_events_gives_infinitely_many(dtype):
    rates = fb.tensor([float("inf"), 0.0, float("inf")], dtype=getattr(fb, dtype))
    assert fb.poisson(rates).tolist() == [math.inf, 0.0, math.inf]


def test_numpys_name_of_what_is_copied_is_refused_beside_pytorchs() -> None:
    x = fb.ones(2)
    with pytest.raises(TypeError, match=r"copy_\(\) got an unexpected keyword argument 'x2'"):
        x.copy_(fb.zeros(2), x2=fb.zeros(2))
    assert x.tolist() == [1, 1]
    assert x.copy_(x2=fb.zeros(2)).tolist() == [0, 0]
    with pytest.raises(RuntimeError, match=r"nonzero_static.*torch\.int64"):
        fb.nonzero_static(fb.ones(2), size=2, out=fb.ones(2, 1))


def test_types_that_were_right_once_do_not_let_others_pass():
    x, w = fb.ones(1, 2, 5), fb.ones(3, 2, 3)
    for _ in range(2):
        assert fb.conv1d(x, w, padding="same").shape == (1, 3, 5)
    for wrong in ({}, fb.ones(2), [1.5], b"same"):
        with pytest.raises(TypeError, match="padding"):
            fb.conv1d(x, w, padding=wrong)
    assert fb.conv1d(x, w, None, [1], [1]).shape == (1, 3, 5)
    with pytest.raises((TypeError, RuntimeError, ValueError), match="stride"):
        fb.conv1d(x, w, None, [1 << 70], [1])


REFUSED_AS_IN_PYTORCH = """
torch.dropout(x, 0.5, None)
torch.feature_alpha_dropout(x, 0.5, None)
torch.batch_norm(x, None, None, None, None, None, 0.1, 1e-5, True)
torch.batch_norm(x, None, None, None, None, True, 0.1, 1e-5, None)
torch.instance_norm(x, None, None, None, None, None, 0.1, 1e-5, True)
torch.native_dropout(x, 0.5, 1)
torch.native_dropout(x, 0.5, train=0)
torch.gru(x, x, [], None, 1, 0.0, False, False, False)
torch.signal.windows.cosine(True)
torch.signal.windows.exponential(True)
torch.signal.windows.gaussian(True)
torch.add("a")
torch.bmm("a")
torch.gather("a", 0)
torch.gather(x, "a")
torch.topk("a")
torch.narrow(x, "a")
torch.layer_norm("a")
x.gather("a")
x.index_add("a")
""".strip().split("\n")
TAKEN_AS_IN_PYTORCH = [
    "torch.native_dropout(x, 0.5, False)[0]",
    *(f"torch.signal.windows.{name}(True{', a=[0.5, 0.5]' * (name == 'general_cosine')})" for name in (
        "bartlett", "blackman", "general_cosine", "general_hamming", "hamming", "hann", "kaiser", "nuttall",
    )),
]  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("text", REFUSED_AS_IN_PYTORCH)
def test_wrong_types_are_refused_as_in_pytorch(text, oracle):
    # Of a call that lacks an argument too, the wrong type is what is said.
    for torch in (fb, oracle):
        with pytest.raises(TypeError) as told:
            eval(text, {"torch": torch, "x": torch.ones(2, 3)})
        assert "missing" not in str(told.value)


@pytest.mark.oracle
@pytest.mark.parametrize("text", TAKEN_AS_IN_PYTORCH)
def test_bools_are_taken_as_in_pytorch(text, oracle):
    made, wanted = (eval(text, {"torch": torch, "x": torch.ones(2, 3)}).tolist() for torch in (fb, oracle))

    assert made == wanted


def test_what_is_missing_is_said_of_arguments_of_the_right_types():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'mat2'"):
        fb.mm(fb.ones(2, 2))


@pytest.mark.parametrize(
    "call",
    [
        lambda: fb.std(X, 0, None), lambda: X.var(0, None), lambda: fb.var_mean(X, 0, None), lambda: fb.std_mean(X, unbiased=None),
        lambda: fb.std(X, None, None), lambda: fb.var(X, True, False), lambda: fb.var(X, 0, unbiased=False, correction=0),
        lambda: X.to(fb.float64, False, None), lambda: X.to(fb.float64, None), lambda: X.to(fb.float64, copy=None),
        lambda: X.to(X, False, None), lambda: X.to(fb.float64, non_blocking=None), lambda: X.to("cpu", None, False, False, None),
        lambda: X.to(fb.float64, False, True, None), lambda: X.to(fb.float64, dtype=fb.float32), lambda: X.to("cpu", False),
        lambda: X.to(other=X), lambda: X.to(fb.float64, False, non_blocking=True),
    ],
)  # fmt: skip
def test_flags_are_bools_and_given_once(call: Any) -> None:
    with pytest.raises(TypeError):
        call()
    assert fb.std(X, None, True).item() == 0
    assert X.to(None, None) is X
    assert X.to("cpu", None, False, True) is not X


def test_names_that_are_no_parameters_are_refused_not_passed_over(oracle: Any) -> None:
    programs = """
    torch.ones(2).uniform_(0, 1, dtype=torch.float64)
    torch.ones(2).random_(0, 5, alpha=2)
    torch.ones(2).random_(2, to=4), torch.ones(2).random_(to=2), torch.ones(2).random_(**{"from": 0, "to": 2})
    torch.ones(2).uniform_(**{"from": 0, "to": 2})
    torch.ones(2).type("torch.DoubleTensor", reduction=1)
    torch.ones(2).new_tensor([1], other=1)
    torch.ones(2).new_tensor([1], pin_memory=False)
    torch.ones(2).new_zeros((2,), out=torch.empty(7))
    torch.ones(2).new_empty((2,), out=None)
    torch.ones(2).new_full((2, 3), 1, out=None)
    torch.range(0, 3, reduction=1)
    torch.logspace(0, 1, 3, foo=1)
    torch.scalar_tensor(1.0, out=None)
    """

    assert not disagreements(oracle, programs)


def test_what_is_no_tensor_is_refused_by_type(oracle: Any) -> None:
    programs = """
    torch.scalar_tensor([1.0])
    torch.scalar_tensor(torch.ones(2))
    F.dropout(1, 0.5, False)
    torch.nn.Dropout().eval()("a")
    torch.ones(3).map_("a", lambda a, b: a)
    torch.nn.utils.rnn.pack_padded_sequence([torch.ones(2)], [1])
    torch.nn.utils.rnn.pad_sequence([torch.ones(2), 2])
    torch.frombuffer(1, dtype=torch.int8)
    """

    assert not disagreements(oracle, programs)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_layers_refuse_float8_which_is_for_storage(oracle: Any, dtype: str) -> None:
    programs = f"""
    F.layer_norm(torch.ones(3, 3).to(torch.{dtype}), (3,))
    F.rms_norm(torch.ones(3, 3).to(torch.{dtype}), (3,))
    F.group_norm(torch.ones(3, 3).to(torch.{dtype}), 3)
    F.batch_norm(torch.ones(3, 3).to(torch.{dtype}), None, None, training=True)
    F.max_pool1d(torch.ones(1, 3, 3).to(torch.{dtype}), 2)
    F.max_pool2d(torch.ones(1, 3, 3).to(torch.{dtype}), 2)
    F.max_pool3d(torch.ones(1, 3, 3, 3).to(torch.{dtype}), 2)
    F.avg_pool2d(torch.ones(1, 3, 3).to(torch.{dtype}), 2)
    F.adaptive_avg_pool2d(torch.ones(1, 3, 3).to(torch.{dtype}), 2)
    F.adaptive_max_pool2d(torch.ones(1, 3, 3).to(torch.{dtype}), 2)
    F.conv2d(torch.ones(1, 1, 3, 3).to(torch.{dtype}), torch.ones(1, 1, 3, 3).to(torch.{dtype}))
    """

    assert not disagreements(oracle, programs)


def test_divergences_of_integers_are_refused(oracle: Any) -> None:
    programs = """
    F.kl_div(torch.ones(3, dtype=torch.int32), torch.ones(3))
    F.kl_div(torch.ones(3), torch.ones(3, dtype=torch.int32))
    F.kl_div(torch.ones(3), torch.ones(3, dtype=torch.bool), log_target=True, reduction="sum")
    """

    assert not disagreements(oracle, programs)

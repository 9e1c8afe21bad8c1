"""Arguments that ops refuse, with the type of error PyTorch has for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fb
import flambeau.nn.functional as F
from comparing import disagreements


def test_lists_of_tensors_that_are_empty_or_none(oracle: Any) -> None:
    programs = """
    torch.vstack([])
    torch.hstack([])
    torch.dstack([])
    torch.column_stack([])
    torch.cat([])
    torch.stack([])
    torch.vstack((torch.ones(2), 1))
    torch.vstack(torch.ones(2, 2))
    torch.cat(torch.ones(2, 2))
    torch.cat([torch.ones(2, 2), 1])
    torch.stack(torch.ones(2, 2))
    torch.meshgrid([])
    torch.block_diag()
    torch.broadcast_tensors()
    torch.narrow_copy(torch.ones(2, 3), 2, 0, 1)
    torch.narrow_copy(torch.ones(2, 3), -3, 0, 1)
    torch.ones(2, 3).narrow_copy(1, 1, 2)
    torch.roll(torch.ones(2, 2), [], [])
    torch.autograd.grad([], [])
    torch.nn.utils.clip_grad_norm_([], 1.0)
    torch.result_type([], 1)
    torch.can_cast([], torch.float32)
    """

    assert not disagreements(oracle, programs)


def test_operands_and_outs_of_the_wrong_kind(oracle: Any) -> None:
    programs = """
    torch.logical_and(torch.ones(2), 1)
    torch.ones(2).logical_or(True)
    torch.ones(2).logical_xor_(1)
    torch.complex(torch.ones(2), torch.ones(2), out=torch.zeros(2, dtype=torch.complex128))
    torch.complex(torch.ones(2).int(), 1)
    torch.polar(torch.ones(2), torch.ones(2, dtype=torch.float64))
    x = torch.ones(2); del x[0]
    torch.polar(torch.ones(2), torch.ones(2), out=torch.zeros(2, dtype=torch.complex128))
    torch.narrow(torch.arange(3), 0, torch.tensor(1), 1)
    torch.narrow(torch.ones(3), 0, torch.tensor([1]), 1)
    torch.narrow(torch.ones(3), 0, torch.tensor(1.0), 1)
    torch.multinomial(torch.ones(2), 1, out=torch.zeros(1))
    torch.multinomial(torch.ones(0, 3), 2, True)
    torch.aminmax(torch.ones(0))
    torch.aminmax(torch.ones(2, 2), dim=(0, 1))
    torch.aminmax(torch.ones(2, 2, dtype=torch.complex64))
    torch.aminmax(torch.ones(2, 2), dim=0, out=(torch.zeros(2), torch.zeros(2, dtype=torch.double)))
    F.batch_norm(torch.ones(2, 3), torch.zeros(3), torch.ones(3), training=True, momentum=None)
    F.batch_norm(torch.ones(2, 3), torch.zeros(3), torch.ones(3), momentum=None)
    F.instance_norm(torch.ones(2, 3, 3), torch.zeros(3), torch.ones(3), momentum='x')
    """

    assert not disagreements(oracle, programs)


def test_a_missing_momentum_says_what_to_give_instead() -> None:
    with pytest.raises(TypeError, match=r"'momentum' must be float.*number of batches"):
        fb.nn.functional.batch_norm(fb.ones(2, 3), fb.zeros(3), fb.ones(3), training=True, momentum=None)  # type: ignore[arg-type]


def test_dtypes_that_an_op_is_not_built_for(oracle: Any) -> None:
    programs = """
    torch.ones(2, dtype=torch.complex64).erf()
    torch.ones(2, dtype=torch.complex64).floor()
    torch.ones(2, dtype=torch.bool).round()
    torch.ones(2).bitwise_not()
    torch.ones(2) & 1.0
    torch.gcd(torch.ones(2), torch.ones(2))
    torch.ones(2, dtype=torch.complex64) < 1
    torch.ones(2, dtype=torch.complex64).max()
    torch.ones(2, dtype=torch.complex64).amin(0)
    torch.nextafter(torch.ones(2).int(), torch.ones(2).int())
    F.gelu(torch.ones(2).int())
    F.glu(torch.ones(2).int())
    torch.bernoulli(torch.ones(2).int())
    """

    assert not disagreements(oracle, programs)


def test_masks_that_are_empty_or_do_not_fit(oracle: Any) -> None:
    programs = """
    torch.ones(2, 3)[torch.zeros(0, dtype=torch.bool)]
    torch.ones(2, 3)[torch.zeros(2, 0, dtype=torch.bool)]
    torch.ones(2, 3)[:, torch.zeros(0, dtype=torch.bool)]
    torch.ones(0, 3)[torch.zeros(0, dtype=torch.bool)]
    torch.ones(2, 3)[torch.zeros(2, dtype=torch.bool)]
    torch.ones(2, 3)[[]]
    """

    assert not disagreements(oracle, programs)


def test_outs_that_must_have_the_dtype_of_the_result(oracle: Any) -> None:
    programs = """
    torch.mm(torch.ones(2, 2), torch.ones(2, 2), out=torch.zeros(2, 2, dtype=torch.float64))
    torch.linalg.inv(torch.eye(2), out=torch.zeros(2, 2, dtype=torch.float64))
    torch.index_select(torch.ones(2), 0, torch.tensor([0]), out=torch.zeros(1, dtype=torch.float64))
    torch.argmax(torch.ones(2), out=torch.zeros(()))
    torch.sort(torch.ones(2), out=(torch.zeros(2), torch.zeros(2)))
    torch.max(torch.ones(2), 0, out=(torch.zeros(()), torch.zeros((), dtype=torch.int32)))
    torch.tril(torch.ones(2, 2), out=torch.zeros(2, 2, dtype=torch.float64))
    torch.quantile(torch.ones(2), 0.5, out=torch.zeros((), dtype=torch.float64))
    torch.nonzero(torch.ones(2), out=torch.zeros(2, 1))
    torch.outer(torch.ones(2), torch.ones(2), out=torch.zeros(2, 2, dtype=torch.float64))
    torch.cat([torch.ones(2)], out=torch.zeros(2, dtype=torch.float64))
    torch.mean(torch.ones(2), 0, out=torch.zeros((), dtype=torch.float64))
    """

    assert not disagreements(oracle, programs)


@pytest.mark.filterwarnings("ignore:This overload of")
def test_a_factor_between_numbers_may_be_given_by_position_as_in_older_programs() -> None:
    x = fb.ones(2)

    found = [fb.add(x, 2, 3.0), fb.sub(x, 2, 3), fb.ones(2).add_(2, 3)]

    assert [f.tolist() for f in found] == [[7, 7], [-5, -5], [7, 7]]
    for wrong in (lambda: fb.add(x, 2, 3, 4), lambda: fb.add(x, x, 2), lambda: fb.add(x, 2, "a"), lambda: fb.addcmul(x, 2, 3, x)):
        with pytest.raises(TypeError, match=r"takes . positional arguments"):
            wrong()


@pytest.mark.parametrize(("shifts", "dims"), [(np.int64(1), (0,)), (np.int64(1), 0), (np.int32(1), None), ([np.int64(1)], [0])])
def test_a_roll_by_an_integer_of_numpy_has_a_gradient(shifts: Any, dims: Any) -> None:
    x = fb.arange(3.0, requires_grad=True)

    (fb.roll(x, shifts, dims) * fb.tensor([1.0, 2.0, 3.0])).sum().backward()

    assert x.grad.tolist() == [2, 3, 1]


class Three:
    """Stands for an integer, as counters of libraries do."""

    def __index__(self):
        return 3


@pytest.mark.parametrize("call", [
    lambda n: F.interpolate(fb.ones(1, 1, 2, 2), size=n), lambda n: F.interpolate(fb.ones(1, 1, 2, 2), size=(n, 2)),
    lambda n: F.conv1d(fb.ones(1, 3, 4), fb.ones(3, 1, 1), groups=n), lambda n: F.channel_shuffle(fb.arange(6.0).view(1, 6, 1, 1), n),
    lambda n: fb.arange(5.0).topk(n).values, lambda n: F.unfold(fb.ones(1, 1, 4, 4), n), lambda n: F.group_norm(fb.rand(2, 6), n),
    lambda n: F.max_pool1d(fb.arange(6.0).view(1, 1, 6), (n,)),
])  # fmt: skip
def test_objects_that_stand_for_integers_are_taken(call):
    fb.manual_seed(0)
    expected = call(3)
    fb.manual_seed(0)

    assert call(Three()).equal(expected)


def test_buckets_of_truths():
    truths = fb.tensor([True, False])

    assert fb.bucketize(truths, fb.tensor([0, 1])).tolist() == [1, 0]
    assert fb.bucketize(truths, fb.tensor([0.5, 1.0])).tolist() == [1, 0]
    assert fb.bucketize(fb.tensor([0.5, 1.0]), fb.tensor([False, True])).tolist() == [1, 1]
    assert fb.searchsorted(fb.tensor([0, 1]), truths, right=True).tolist() == [2, 1]
    with pytest.raises(NotImplementedError, match=r"not implemented for torch\.bool"):
        fb.bucketize(truths, fb.tensor([False, True]))


def test_cosines_of_complex_vectors_are_refused():
    x = fb.ones(2, 2, dtype=fb.complex64)
    with pytest.raises(RuntimeError, match="expected common dtype to be floating point"):
        F.cosine_similarity(x, x)

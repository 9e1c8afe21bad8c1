"""Tensors that carry their mask: what operations do with it, as text, and beside PyTorch's."""

from __future__ import annotations

import copy
import pickle

import pytest

import flambeau as fb
from flambeau.masked import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor

# Each is tried with `mt`, `mi`, `mb` (floats, ints, bools with one mask), `x` and `m`.
SAME_AS_PYTORCH = """
mt
mi
mb
masked_tensor(torch.tensor(1.0), torch.tensor(True))
masked_tensor(torch.tensor(1.0), torch.tensor(False))
masked_tensor(x * 1000, m)
mt + 1
mt + x
x * mt
mt / mt
mt > 2
mt == mt
mi & 1
torch.exp(mt)
mt.clamp(0, 2)
mt ** 2
-mt
abs(mt)
torch.atan2(mt, mt)
torch.logaddexp(mt, mt)
mt.sum()
mt.sum(1)
mt.sum(-1, keepdim=True)
torch.sum(mt, 0)
mt.mean(0)
mt.amax(0)
mt.amin(1)
mt.argmax(1)
mt.argmin()
mt.prod(1)
mt.var(1)
mt.std()
mb.all()
mb.all(0)
mt.softmax(1)
mt[0]
mt[0, 1]
mt[:, 1]
mt[m]
mt.t()
mt.reshape(3, 2)
mt.view(6)
mt.flatten()
mt.unsqueeze(0)
mt.expand(2, 2, 3)
mt.transpose(0, 1)
mt.select(0, 1)
mt.narrow(1, 0, 2)
mt.unfold(1, 2, 1)
mt.chunk(2)
torch.stack([mt, mt])
torch.cat([mt, mt])
torch.where(m, mt, mt)
mt.clone()
mt.double()
mt.to(torch.int64)
torch.ones_like(mt)
mt.to_tensor(0.0)
mt.get_mask()
mt.exp_()
mt.add_(1)
mt.mul_(mt)
"""


def worlds(lib):
    x = lib.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    m = lib.tensor([[True, False, True], [False, False, True]])
    make = lib.masked.masked_tensor
    return {"torch": lib, "x": x, "m": m, "mt": make(x, m), "mi": make(x.long(), m), "mb": make(x > 2, m), "masked_tensor": make}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", SAME_AS_PYTORCH.strip().splitlines())
def test_an_operation_gives_what_pytorch_gives(text):
    torch = pytest.importorskip("torch")

    expected, got = eval(text, worlds(torch)), eval(text, worlds(fb))

    assert repr(got) == repr(expected)


@pytest.mark.parametrize("text", ["mt @ mt.t()", "mt.max()", "torch.cat([mt, x])", "mt.equal(mt)"])
def test_what_has_no_meaning_with_a_mask_is_a_type_error(text):
    with pytest.raises(TypeError, match=r"MaskedTensor|mask"):
        eval(text, worlds(fb))


def test_more_operations_are_answered_than_pytorch_answers():
    world = worlds(fb)
    x, mt = world["x"], world["mt"]

    assert (1 - mt).get_data().equal(1 - x)
    assert fb.relu(mt).get_data().equal(x)
    assert mt.permute(1, 0).get_mask().equal(world["m"].T)
    assert fb.kron(mt, mt).get_mask().sum() == 9
    assert fb.add(mt, mt, alpha=2).get_data().equal(x * 3)
    assert mt.norm().item() == pytest.approx(46**0.5)


def test_two_operands_need_the_same_mask():
    world = worlds(fb)

    with pytest.raises(ValueError, match="Input masks must match"):
        world["mt"] + masked_tensor(world["x"], ~world["m"])
    with pytest.raises(ValueError, match="Input masks must match"):
        world["mt"].add_(masked_tensor(world["x"], ~world["m"]))
    assert world["mt"].get_data().equal(world["x"])


@pytest.mark.parametrize(
    ("data", "mask", "error", "said"),
    [
        (fb.ones(2, 3), fb.ones(3).bool(), ValueError, r"data.dim\(\) must equal mask.dim\(\)"),
        (fb.ones(2, 3), fb.ones(2, 2).bool(), ValueError, r"data.size\(\) must equal mask.size\(\)"),
        (fb.ones(2), fb.ones(2), TypeError, "mask must have dtype bool"),
        ([1.0], fb.ones(1).bool(), TypeError, "data must be a Tensor"),
        (fb.ones(1), None, TypeError, "mask must be a Tensor"),
        (fb.ones(1) + 1j, fb.ones(1).bool(), TypeError, "complex64 is not supported"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(data, mask, error, said):
    with pytest.raises(error, match=said):
        masked_tensor(data, mask)


def test_masked_tensor_copies_and_as_masked_tensor_looks():
    x, m = fb.ones(2), fb.tensor([True, False])
    copied, looked = masked_tensor(x, m), as_masked_tensor(x, m)

    x.add_(1)

    assert (copied.get_data().tolist(), looked.get_data().tolist()) == ([1.0, 1.0], [2.0, 2.0])
    assert is_masked_tensor(copied)
    assert not is_masked_tensor(x)


def test_gradients_have_the_mask():
    a = masked_tensor(fb.tensor([1.0, 4.0]), fb.tensor([True, False]), requires_grad=True)

    (a * a).sum().backward()

    assert a.requires_grad
    assert a.is_leaf
    assert isinstance(a.grad, MaskedTensor)
    assert repr(a.grad) == "MaskedTensor(\n  [  2.0000,       --]\n)"


def test_what_does_not_count_gives_no_nan_to_a_gradient():
    x = fb.tensor([-1.0, 4.0], requires_grad=True)

    as_masked_tensor(x, x > 0).sqrt().sum().backward()

    assert x.grad.tolist() == [0.0, 0.25]


def test_a_choice_between_branches_gives_each_its_gradient():
    x = fb.tensor([-10.0, 0.0, 100.0])
    low = masked_tensor(x, x < 0, requires_grad=True)
    high = masked_tensor(fb.ones(3), x >= 0, requires_grad=True)

    fb.where(x < 0, fb.exp(low), high).sum().backward()

    assert low.grad.to_tensor(0.0).isfinite().all()
    assert repr(high.grad) == "MaskedTensor(\n  [      --,   1.0000,   1.0000]\n)"


def test_derivatives_of_second_order():
    a = masked_tensor(fb.tensor([2.0, 3.0], dtype=fb.float64), fb.tensor([True, False]), requires_grad=True)

    (a**3).sum().backward(create_graph=True)
    (first,) = fb.autograd.grad(a.grad.get_data().sum(), a._masked_data)

    assert first.tolist() == [12.0, 0.0]


def test_elements_are_stored_with_their_masks():
    a = masked_tensor(fb.tensor([1.0, 2.0, 3.0]), fb.tensor([True, False, True]))

    a[1] = 5.0
    a[2] = masked_tensor(fb.tensor(7.0), fb.tensor(False))

    assert (a.get_data().tolist(), a.get_mask().tolist()) == ([1.0, 5.0, 7.0], [True, True, False])
    with pytest.raises(TypeError, match="has no mask"):
        fb.ones(3)[0] = a[0]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_masked_tensor_is_copied_and_pickled(again):
    a = masked_tensor(fb.ones(2), fb.tensor([True, False]))

    assert repr(again(a)) == repr(a)


def test_what_leaves_python_needs_a_value_for_what_does_not_count():
    a = masked_tensor(fb.ones(2), fb.tensor([True, False]))

    for call in (a.tolist, a.numpy):
        with pytest.raises(RuntimeError, match="make a plain Tensor"):
            call()
    assert [repr(x) for x in a] == ["MaskedTensor(  1.0000, True)", "MaskedTensor(--, False)"]
    assert (len(a), a.sum().item(), bool(a[0]), float(a[0]), int(a[0])) == (2, 1.0, True, 1.0, 1)

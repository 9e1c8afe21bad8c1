"""Inference tensors: made in the mode, refused outside by what would have to track them."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest

import flambeau as fb

F = fb.nn.functional
WRITE = "Inplace update to inference tensor outside InferenceMode is not allowed"
SAVE = "Inference tensors cannot be saved for backward"


def inferred(make: Any = lambda: fb.ones(3)) -> fb.Tensor:
    with fb.inference_mode():
        return make()


MAKERS = [
    lambda: fb.ones(3), lambda: fb.ones(3) * 2, lambda: fb.tensor([1.0]), lambda: fb.rand(3), lambda: fb.ones(3)[:2],
    lambda: fb.ones(3).exp(),
    lambda: fb.ones(3, 3) @ fb.ones(3, 3), lambda: fb.ones(3).sum(), lambda: fb.cat([fb.ones(2), fb.ones(2)]), lambda: fb.ones(3).clone(),
    lambda: fb.arange(3), lambda: fb.ones(3).to(fb.float64), lambda: F.softmax(fb.ones(3), 0), lambda: fb.ones(3) > 2, lambda: -fb.ones(3),
    lambda: fb.ones(3).sort().values, lambda: F.conv1d(fb.ones(1, 1, 4), fb.ones(1, 1, 2)), lambda: fb.nn.Linear(2, 2).weight,
    lambda: fb.empty(3), lambda: fb.where(fb.ones(2) > 0, fb.ones(2), 0), lambda: fb.ones(3).max(0).indices, lambda: F.relu(fb.ones(3)),
    lambda: copy.deepcopy(fb.ones(3)), lambda: fb.ones(3, device="meta") + 1, lambda: fb.ones(2).view(1, 2),
    lambda: fb.ones(3).requires_grad_(),
    lambda: F.linear(fb.ones(2, 2), fb.ones(2, 2)), lambda: fb.lerp(fb.ones(2), fb.zeros(2), 0.5), lambda: fb.linalg.inv(fb.eye(2)),
]  # fmt: skip


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_made_in_the_mode_is_an_inference_tensor(make: Any) -> None:
    for _ in range(400):  # launchers take over after some hundred calls
        made = inferred(make)
        assert made.is_inference()
        assert fb.is_inference(made)
        if made.is_meta or made.dtype is fb.float64:
            break
    assert not make().is_inference()


def test_views_of_ordinary_tensors_are_ordinary_and_views_of_inference_tensors_are_not() -> None:
    x = fb.ones(2, 3)
    views = inferred(lambda: [x[:1], x.view(-1), x.t(), x.detach(), x.data, *x.unbind(), x.expand(2, 2, 3), x.contiguous()])  # type: ignore[return-value]
    y = inferred(lambda: fb.ones(2, 3))

    assert not any(v.is_inference() for v in views)
    assert all(v.is_inference() for v in (y[:1], y.view(-1), y.t(), y.detach(), y.data))
    assert not any(v.is_inference() for v in (y * 1, y.clone(), copy.deepcopy(y), y.sum()))


WRITERS = [
    lambda x: x.add_(1), lambda x: x.mul_(fb.ones(3)), lambda x: x.zero_(), lambda x: x.fill_(2), lambda x: x.copy_(fb.ones(3)),
    lambda x: x.exp_(),
    lambda x: x.normal_(), lambda x: x.uniform_(), lambda x: x.exponential_(), lambda x: x.clamp_(0, 1), lambda x: x.relu_(),
    lambda x: x.__setitem__(0, 5.0), lambda x: x.__setitem__(slice(None), fb.zeros(3)), lambda x: x.__setitem__(x > 0, 3.0),
    lambda x: x[:2].add_(1), lambda x: x.resize_(2), lambda x: x.set_(fb.ones(3)), lambda x: x.squeeze_(),
    lambda x: x.scatter_(0, AT, 2.0),
    lambda x: x.index_add_(0, AT, fb.ones(1)), lambda x: x.masked_fill_(x > 0, 3.0), lambda x: fb.add(fb.ones(3), 1, out=x),
    lambda x: fb.sum(fb.ones(2, 3), 0, out=x), lambda x: x.random_(0, 5), lambda x: x.bernoulli_(0.5), lambda x: x.addcmul_(x, x),
    lambda x: fb.no_grad()(lambda: x.add_(1))(), lambda x: x.erfinv_(), lambda x: x.requires_grad_(False).t_(),
    lambda x: x.index_fill_(0, AT, 9.0),
]  # fmt: skip
AT = fb.tensor([1])


@pytest.mark.parametrize("write", WRITERS)
def test_an_inference_tensor_is_not_written_outside_of_the_mode(write: Any) -> None:
    write(fb.ones(3))  # which may teach an operation a shorter way
    write(fb.ones(3))
    x = inferred()

    with pytest.raises(RuntimeError, match=WRITE):
        write(x)

    assert x.tolist() == [1, 1, 1]
    with fb.inference_mode():
        write(x)


SAVERS = [
    lambda w, x: w * x, lambda w, x: x * w, lambda w, x: w / x, lambda w, x: w @ x, lambda w, x: F.linear(w.view(1, 3), x.view(1, 3)),
    lambda w, x: (w * 1).mul_(x), lambda w, x: fb.addcmul(w, w, x), lambda w, x: fb.where(x > 0, w, w).mul(x),
    lambda w, x: F.mse_loss(w, x),
    lambda w, x: w.masked_fill(MASK, 0.0), lambda w, x: F.layer_norm(w, (3,), x), lambda w, x: fb.outer(w, x),
    lambda w, x: w.gather(0, PLACES),
    lambda w, x: Times.apply(w, x), lambda w, x: F.conv1d(w.view(1, 1, 3), x.view(1, 1, 3)), lambda w, x: fb.lerp(w, x, w),
]  # fmt: skip
MASK, PLACES = inferred(lambda: fb.tensor([True, False, True])), inferred(lambda: fb.tensor([0, 2]))


class Times(fb.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(b)
        return a * b

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * ctx.saved_tensors[0], None


@pytest.mark.parametrize("save", SAVERS)
def test_an_inference_tensor_is_not_saved_for_backward(save: Any) -> None:
    w = fb.ones(3, requires_grad=True)
    save(w, fb.ones(3)) if save not in SAVERS[9:10] + SAVERS[12:13] else None
    x = inferred()

    with pytest.raises(RuntimeError, match=SAVE):
        save(w, x)

    with fb.no_grad():
        save(w, x)
    assert (w + x).requires_grad  # nothing is saved for a sum
    w.add(x).sum().backward()
    assert w.grad is not None


def test_other_rules_of_inference_tensors() -> None:
    x, w = inferred(), fb.ones(3, requires_grad=True)

    for ask in (lambda: x.requires_grad_(), lambda: setattr(x, "requires_grad", True)):
        with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor"):
            ask()
    with pytest.raises(RuntimeError, match="do not track version counter"):
        x._version  # noqa: B018  # reading it is the test
    with fb.inference_mode():
        assert not fb.is_grad_enabled()
        assert not (w * 2).requires_grad
        with fb.enable_grad():
            assert fb.is_grad_enabled()
            assert not (w * 2).requires_grad
        with fb.inference_mode(False):
            assert not fb.ones(2).is_inference()
            assert (w * 2).requires_grad
            with pytest.raises(RuntimeError, match=WRITE):
                x.add_(1)
    assert (w * 2).requires_grad
    assert not fb.ones(2).is_inference()


def test_other_threads_go_on_with_ordinary_tensors() -> None:
    entered, leave, found = threading.Event(), threading.Event(), []

    def infer() -> None:
        with fb.inference_mode():
            entered.set()
            leave.wait(30)
            found.append(fb.ones(2).is_inference())

    thread = threading.Thread(target=infer)
    thread.start()
    assert entered.wait(30)
    w = fb.ones(3, requires_grad=True)
    made = [make() for make in MAKERS]
    (w * fb.ones(3)).sum().backward()
    leave.set()
    thread.join()

    assert not any(x.is_inference() for x in made)
    assert w.grad is not None
    assert found == [True]


def test_transforms_differentiate_inside_inference_mode() -> None:
    with fb.inference_mode():
        assert fb.func.grad(lambda a: (a * a).sum())(fb.ones(2)).tolist() == [2.0, 2.0]
        assert fb.func.hessian(lambda a: (a**3).sum())(fb.ones(2)).tolist() == [[6.0, 0.0], [0.0, 6.0]]
        assert fb.vmap(fb.func.grad(lambda a: (a**3).sum()))(fb.ones(2, 2)).tolist() == [[3.0, 3.0], [3.0, 3.0]]
        assert not (fb.ones(2, requires_grad=True) * 2).requires_grad


def test_transforms_take_inference_tensors_from_outside_and_as_arguments() -> None:
    with fb.inference_mode():
        x = fb.ones(3)

    assert fb.func.grad(lambda a: (a * x).sum())(fb.ones(3)).tolist() == [1.0, 1.0, 1.0]
    assert fb.func.vjp(lambda a: a * a, x)[1](fb.ones(3))[0].tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(RuntimeError, match="cannot be saved for backward"):
        fb.ones(3, requires_grad=True) * x


def test_a_region_of_inference_mode_does_not_look_at_the_class_of_tensors_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    from flambeau_kernels.engine.builtins import pyabi

    looked: list[Any] = []
    table = pyabi.object_table
    fb.ones(3) + fb.ones(3)
    inferred()
    monkeypatch.setattr(pyabi, "object_table", lambda of: looked.append(of) or table(of))

    inferred()
    assert looked == []
    assert not (fb.ones(3) + fb.ones(3)).is_inference()

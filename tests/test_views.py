"""Views and in-place operations: random small programs give PyTorch's values, versions, leaves and gradients."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from comparing import disagreements

hypothesis = pytest.importorskip("hypothesis")
given, settings, st = hypothesis.given, hypothesis.settings, hypothesis.strategies


def apart(x: Any) -> Any:
    """`x` if each of its elements has a place of its own; PyTorch only warns of index_put_ where not."""
    if any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True)):
        raise ValueError("expanded")
    return x


# Each step of a program is a function of the library, the tensor it works on, another tensor, and two small ints.
VIEWS = {
    "select": lambda lib, x, y, i, j: x.select(i, j),
    "index": lambda lib, x, y, i, j: x[i],
    "slice": lambda lib, x, y, i, j: x[i:],
    "step": lambda lib, x, y, i, j: x[..., :: j + 1],
    "none": lambda lib, x, y, i, j: x[None],
    "narrow": lambda lib, x, y, i, j: x.narrow(i, 0, j),
    "transpose": lambda lib, x, y, i, j: x.transpose(i, j),
    "permute": lambda lib, x, y, i, j: x.permute(tuple(range(x.dim() - 1, -1, -1))),
    "view": lambda lib, x, y, i, j: x.view(-1),
    "reshape": lambda lib, x, y, i, j: x.reshape(2, -1),
    "flatten": lambda lib, x, y, i, j: x.flatten(),
    "unsqueeze": lambda lib, x, y, i, j: x.unsqueeze(i),
    "squeeze": lambda lib, x, y, i, j: x.squeeze(),
    "expand": lambda lib, x, y, i, j: x.unsqueeze(0).expand(2, *x.shape),
    "diagonal": lambda lib, x, y, i, j: x.diagonal(j - 1),
    "unfold": lambda lib, x, y, i, j: x.unfold(i, 2, j + 2),
    "as_strided": lambda lib, x, y, i, j: x.as_strided((2, 2), (i + 2, 1)),
    "detach": lambda lib, x, y, i, j: x.detach(),
    "unbind": lambda lib, x, y, i, j: x.unbind(i)[j],
    "chunk": lambda lib, x, y, i, j: x.chunk(2, i)[j],
    "split": lambda lib, x, y, i, j: x.split(2)[j],
    "swap": lambda lib, x, y, i, j: x.swapaxes(i, j),
    "movedim": lambda lib, x, y, i, j: x.movedim(i, j),
    "identity": lambda lib, x, y, i, j: x.view_as(x),
    "t_": lambda lib, x, y, i, j: x.view_as(x).t_(),
    "unsqueeze_": lambda lib, x, y, i, j: x.view_as(x).unsqueeze_(i),
    "squeeze_": lambda lib, x, y, i, j: x.view_as(x).squeeze_(),
    "transpose_": lambda lib, x, y, i, j: x.view_as(x).transpose_(i, j),
}
WRITES = {
    "mul_": lambda lib, x, y, i, j: x.mul_(j + 2),
    "mul_y": lambda lib, x, y, i, j: x.mul_(y.clone()),
    "add_": lambda lib, x, y, i, j: x.add_(1),
    "add_y": lambda lib, x, y, i, j: x.add_(y.clone()),
    "sin_": lambda lib, x, y, i, j: x.sin_(),
    "tanh_": lambda lib, x, y, i, j: x.tanh_(),
    "zero_": lambda lib, x, y, i, j: x.zero_(),
    "fill_": lambda lib, x, y, i, j: x.fill_(j),
    "copy_": lambda lib, x, y, i, j: x.copy_(y.clone()),
    "set_item": lambda lib, x, y, i, j: x.__setitem__(i, 3.0),
    "set_item_y": lambda lib, x, y, i, j: x.__setitem__(slice(j, None), y.clone()),
    "set_mask": lambda lib, x, y, i, j: apart(x).__setitem__(x.detach() > 0.5, 2.0),
    "set_list": lambda lib, x, y, i, j: apart(x).__setitem__([0, 0], 2.0),
    "clamp_": lambda lib, x, y, i, j: x.clamp_(-1, 1),
    "addcmul_": lambda lib, x, y, i, j: x.addcmul_(y.clone(), y.clone()),
    "masked_fill_": lambda lib, x, y, i, j: apart(x).masked_fill_(x.detach() > 0, 0.5),
    "out": lambda lib, x, y, i, j: lib.add(x.detach(), 1, out=x),
}
FRESH = {
    "times": lambda lib, x, y, i, j: x * 2,
    "square": lambda lib, x, y, i, j: x * x,
    "plus": lambda lib, x, y, i, j: x + y,
    "product": lambda lib, x, y, i, j: x * y,
    "sine": lambda lib, x, y, i, j: x.sin(),
    "exp": lambda lib, x, y, i, j: (x * 0.1).exp(),
    "clone": lambda lib, x, y, i, j: x.clone(),
    "sum": lambda lib, x, y, i, j: x.sum(i, keepdim=True).contiguous(),
    "take": lambda lib, x, y, i, j: x[[0, 0]].contiguous(),
    "cat": lambda lib, x, y, i, j: lib.cat([x, x], i),
}
STEPS = {**VIEWS, **WRITES, **FRESH}
START = np.array([[0.5, -1.0, 2.0, 0.25], [1.5, 0.75, -0.5, 1.0], [-0.25, 0.3, 0.9, -2.0]])

step = st.tuples(
    st.sampled_from(sorted([*VIEWS, *WRITES, *WRITES, *FRESH])), st.integers(0, 9), st.integers(0, 9),
    st.integers(0, 1), st.integers(0, 2), st.sampled_from(["on", "on", "on", "off"]),
)  # fmt: skip


def run(lib: Any, leaves: int, program: Any) -> tuple[list[Any], list[Any], list[str]]:
    """The leaves, every tensor the program made, and the type of error of each step."""
    made = [
        lib.tensor(START, requires_grad=bool(leaves & 1)),
        lib.tensor(START[0] + 1, requires_grad=bool(leaves & 2)),
    ]
    start = list(made)
    errors = []
    for name, a, b, i, j, grad in program:
        x, y = made[a % len(made)], made[b % len(made)]
        if grad == "off" and name in VIEWS:
            continue  # views made without recording are tested below
        try:
            with lib.set_grad_enabled(grad == "on"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                x.grad_fn  # noqa: B018  # PyTorch renews the history of a view when it is asked for it, and not for a write
                result = STEPS[name](lib, x, y, i, j)
            if name not in WRITES:
                made.append(result)
            errors.append("")
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            errors.append(type(error).__name__)
    return start, made, errors


def state(tensors: list[Any]) -> list[Any]:
    """What must agree about each tensor apart from its values."""
    return [
        (tuple(t.shape), steps(t), t._version, t.is_leaf, t.grad_fn is None, t._is_view()) for t in tensors
    ]


def steps(t: Any) -> Any:
    """The strides that say where elements are."""
    return None if not t.numel() else [s for s, n in zip(t.stride(), t.shape, strict=True) if n != 1]


def values(tensors: list[Any]) -> list[Any]:
    return [t.detach().tolist() for t in tensors]


def gradients(lib: Any, start: list[Any], made: list[Any]) -> Any:
    """The gradient of a weighted sum of everything for the leaves, or the type of error."""
    total = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k, t in enumerate(made):
            if t.requires_grad:
                total = total + (t * (k + 1.0)).cos().sum()
        leaves = [t for t in start if t.requires_grad and t.is_leaf]
        if not leaves or not isinstance(total, lib.Tensor):
            return None
        try:
            found = lib.autograd.grad(total, leaves, allow_unused=True)
        except (RuntimeError, ValueError):
            return "error"
    return [None if g is None else np.array(g.tolist()) for g in found]


def compare(oracle: Any, leaves: int, program: Any) -> None:
    ours, theirs = run(fb, leaves, program), run(oracle, leaves, program)
    try:
        wanted_state = state(theirs[1])
    except RuntimeError as error:
        # PyTorch gives up on pieces whose whole was written to; here they have the history they should have.
        if "multiple views" in str(error):
            return
        raise

    assert ours[2] == theirs[2]
    assert state(ours[1]) == wanted_state
    wanted_values = values(theirs[1])
    for k, mine in enumerate(values(ours[1])):
        np.testing.assert_allclose(mine, wanted_values[k], rtol=1e-9, atol=1e-12)
    mine, wanted = gradients(fb, *ours[:2]), gradients(oracle, *theirs[:2])
    if isinstance(wanted, list):
        assert isinstance(mine, list)
        for g, w in zip(mine, wanted, strict=True):
            assert (g is None) == (w is None)
            if w is not None:
                np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-12)
    else:
        assert mine == wanted


@settings(max_examples=300)
@given(leaves=st.integers(0, 3), program=st.lists(step, min_size=1, max_size=7))
def test_programs_of_views_and_writes_agree_with_pytorch(leaves: int, program: Any) -> None:
    compare(pytest.importorskip("torch"), leaves, program)


# -- what random programs leave out ----------------------------------------------------------------------------------------


def test_in_place_on_a_view_changes_the_gradient_of_the_base() -> None:
    x = fb.ones(4, requires_grad=True)
    y = x * 2
    y[1:3].mul_(fb.tensor([3.0, 5.0]))
    y.sum().backward()

    assert x.grad.tolist() == [2.0, 6.0, 10.0, 2.0]


def test_in_place_on_the_base_changes_the_gradient_of_a_view() -> None:
    x = fb.ones(4, requires_grad=True)
    y = x * 2
    part = y[1:]
    y.mul_(3)
    part.sum().backward()

    assert x.grad.tolist() == [0.0, 6.0, 6.0, 6.0]


def test_gradients_asked_for_by_name_pass_through_writes_to_views() -> None:
    x = fb.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = x * 2
    y.view(2, 2).masked_fill_(fb.tensor([[True, False], [False, True]]), 0.0)

    assert fb.autograd.grad(y.sum(), x)[0].tolist() == [0.0, 2.0, 2.0, 0.0]


def test_a_view_of_a_transposed_base_counts_in_its_storage() -> None:
    x = fb.ones(2, 3, requires_grad=True)
    base = (x * 1).t()  # the memory is row-major for x
    base = base.clone(memory_format=fb.preserve_format)
    base.as_strided((2,), (1,)).mul_(10)  # the first two elements in memory: x[0, 0] and x[0, 1]
    base.sum().backward()

    assert x.grad.tolist() == [[10.0, 10.0, 1.0], [1.0, 1.0, 1.0]]


def test_each_element_of_an_overlapping_input_carries_its_share() -> None:
    x = fb.ones(2, requires_grad=True)
    x.expand(3, 2).as_strided((2,), (1,)).sum().backward()

    assert x.grad.tolist() == pytest.approx([1.0, 1.0])


def test_one_of_several_views_is_not_written_to_with_history() -> None:
    first = (fb.ones(3, requires_grad=True) * 2).unbind()[0]

    with pytest.raises(RuntimeError, match=r"^Output 0 of Unbind is a view and is being modified inplace\..*several views"):
        first.add_(1)


def test_a_view_made_without_recording_is_not_written_to_with_recording() -> None:
    x = fb.ones(3, requires_grad=True)
    with fb.no_grad():
        part = x[1:]

    for write in (
        lambda: part.add_(1),
        lambda: part.fill_(1),
        lambda: part.zero_(),
        lambda: part.add_(fb.ones(2)),
    ):
        with pytest.raises(RuntimeError, match="no_grad"):
            write()
    with fb.no_grad():
        part.add_(1)
    assert x.tolist() == [1.0, 2.0, 2.0]


def test_expanded_memory_is_not_written_to() -> None:
    with pytest.raises(RuntimeError, match="single memory location"):
        fb.zeros(3, 1).expand(3, 4).add_(1)


@pytest.mark.parametrize("dtype", [fb.float32, fb.int64], ids=str)
def test_writes_that_overlap_what_they_read_are_refused(dtype: Any) -> None:
    x = fb.arange(6, dtype=dtype)

    with pytest.raises(RuntimeError, match="single memory location"):
        x[1:] = x[:-1]
    with pytest.raises(RuntimeError, match="single memory location"):
        x[1:].copy_(x[:-1])
    with pytest.raises(RuntimeError, match="single memory location"):
        x[1:].add_(x[:-1])
    with pytest.raises(RuntimeError, match="single memory location"):
        x[:4].view(2, 2).mul_(x[:4].view(2, 2).t())
    with pytest.raises(RuntimeError, match="single memory location"):
        x[:4].view(2, 2).addcmul_(x[:4].view(2, 2).t(), x[:4].view(2, 2))
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_writes_beside_and_onto_what_they_read_are_not_refused() -> None:
    x = fb.arange(6.0)
    x[:2] = x[4:]
    x[2:4] = x[2:4]
    x[::2].copy_(x[1::2])
    x.addcmul_(x, x)

    assert x.tolist() == [30.0, 30.0, 12.0, 12.0, 30.0, 30.0]


def test_overwriting_what_backward_needs_is_told() -> None:
    x = fb.ones(3, requires_grad=True)
    y = x.exp()
    y.add_(1)

    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*ExpBackward0"):
        y.sum().backward()


def test_views_share_memory_and_strides_say_how(oracle: Any) -> None:
    programs = """
    torch.zeros_like(torch.ones(2, 1).expand(2, 3))
    torch.ones(2, 1).expand(2, 3).clone().stride()
    torch.zeros(3, 1).expand(3, 3).fill_(1)
    torch.cat([torch.ones(2, 3), torch.ones(3, 4)])
    torch.tensor([-7.0, 7.0, -0.0]) // 2
    torch.ones(2, 3).view(-1, 4)
    torch.ones(2, 3).view(6, -1, -1)
    torch.ones(2, 3).reshape(4)
    torch.ones(2, 3).t().view(6)
    torch.ones(2, 3).view(torch.int32).dtype
    torch.ones(2, 3).view(torch.float64)
    torch.ones(2, 4).view(torch.float64).shape
    torch.ones(2, 4).view(torch.uint8).shape
    torch.empty(0).view(torch.uint8).shape
    torch.empty(0, dtype=torch.uint8).view(torch.float32).shape
    torch.empty(0, 8, dtype=torch.uint8).view(torch.float32).shape
    torch.empty(0, 3, dtype=torch.uint8).view(torch.float32)
    torch.empty(3, 0).view(torch.uint8).shape
    torch.ones(2).view(dtype=torch.int32).dtype
    torch.ones(2, 3).expand(4, 2, 3).stride()
    torch.ones(2, 3).expand(-1, -1)
    torch.ones(2, 1).expand(2, -1)
    torch.ones(2, 1).expand(-1, 2, 1)
    torch.ones(2, 3).expand(3, 3)
    torch.ones(2, 3).squeeze(0).shape
    torch.ones(1, 3).squeeze((0, 1)).shape
    torch.ones(1, 3).unsqueeze(-3).shape
    torch.ones(1, 3).unsqueeze(3)
    torch.ones(1, 3).transpose(0, 2)
    torch.ones(2, 3, 4).permute(0, 1)
    torch.ones(2, 3, 4).permute(0, 0, 1)
    torch.ones(2, 3, 4).permute(-1, 0, 1).stride()
    torch.ones(2, 3, 4).movedim(0, -1).shape
    torch.ones(6).unflatten(0, (2, -1)).shape
    torch.ones(2, 3, 4).flatten(1).shape
    torch.ones(2, 3, 4).flatten(2, 1)
    torch.ones(5).chunk(3)
    torch.ones(5).chunk(0)
    torch.ones(5).split(2)
    torch.ones(5).split([2, 2])
    torch.ones(5).split([2, 3], dim=1)
    torch.ones(5).tensor_split(3)
    torch.ones(5).unbind()
    torch.ones(()).unbind()
    torch.ones(4, 4).diagonal(1).stride()
    torch.ones(4, 4).diagonal(0, 0, 0)
    torch.ones(4).unfold(0, 2, 1).stride()
    torch.ones(4).unfold(0, 5, 1)
    torch.ones(4).narrow(0, 1, 2)
    torch.ones(4).narrow(0, 3, 2)
    torch.ones(4).narrow(0, -1, 1)
    torch.ones(4).select(0, 5)
    torch.ones(4)[5]
    torch.ones(4)[::-1]
    torch.ones(4)[..., None].shape
    torch.ones(4)[None, :, None].stride()
    torch.ones(3, 4)[None, 1:, None].stride()
    torch.ones(2, 3).view_as(torch.ones(6)).shape
    torch.ones(2, dtype=torch.complex64).real.stride()
    torch.view_as_real(torch.ones(2, dtype=torch.complex64)).stride()
    torch.view_as_complex(torch.ones(3, 2)).shape
    torch.view_as_complex(torch.ones(3, 3))
    torch.zeros(2).imag
    torch.ones(4).as_strided((2,), (1,), 3)
    torch.ones(4)[2:].as_strided((2,), (1,)).storage_offset()
    torch.ones(3, 4).swapaxes(0, 1).shape
    torch.ones(3, 4).mT.shape
    torch.ones(2, 3).repeat(2, 2).shape
    torch.ones(2, 3).repeat(2)
    torch.ones(2, 3).tile(2).shape
    torch.broadcast_tensors(torch.ones(3, 1), torch.ones(4))[0].stride()
    torch.broadcast_to(torch.ones(3), (2, 3)).stride()
    torch.broadcast_shapes((2, 1), (3,))
    torch.broadcast_shapes((2,), (3,))
    torch.stack([torch.ones(2), torch.ones(3)])
    torch.stack([])
    torch.hstack([torch.ones(2), torch.ones(3)]).shape
    torch.zeros(3)._base is None
    """

    assert not disagreements(oracle, programs)


def test_in_place_writes_through_views_agree(oracle: Any) -> None:
    programs = """
    x = torch.arange(12.0); x.as_strided((2, 3), (1, 2), 1)
    x = torch.arange(12.0); x.as_strided((2, 3), (100, 2), 1)
    x = torch.arange(12.0); x.as_strided((3, 3), (1, 1))
    x = torch.arange(12.0); x.as_strided((3, 3), (-1, 1))
    x = torch.arange(12.0); x.as_strided((3,), (1, 1))
    x = torch.arange(12.0); x.as_strided((2, 2), (2, 1)).as_strided((3,), (4,))
    x = torch.arange(12.0); x.as_strided_((2, 2), (2, 1)); x
    x = torch.zeros(3); y = x.as_strided((3, 3), (1, 1)); y.add_(1)
    x = torch.zeros(3); y = x.expand(3, 3); y.add_(1)
    x = torch.zeros(3); y = x.expand(1, 3); y.add_(1); x
    x = torch.zeros(3, 1); y = x.expand(3, 3); y.copy_(torch.ones(3, 3))
    x = torch.zeros(3, 1); y = x.expand(3, 3); y.fill_(1)
    x = torch.zeros(3, 1); y = x.expand(3, 3); y.zero_()
    x = torch.zeros(3, 1); y = x.expand(3, 3); y[0, 0] = 1; x
    x = torch.zeros(3, 1); y = x.expand(3, 3); y[0] = 1; x
    x = torch.zeros(2, dtype=torch.complex64); x.real = torch.ones(2); x.imag[0] = 5; x
    x = torch.zeros(3); x[1:]._base is x
    x = torch.zeros(3); x[1:][1:]._base is x
    x = torch.zeros(3); x.detach()._base is None
    x = torch.zeros(3, requires_grad=True); (x + 1).grad_fn.next_functions[0][0].name()
    x = torch.zeros(3, requires_grad=True); y = x[1:]; y.add_(1)
    x = torch.zeros(3, requires_grad=True) * 1; a, b, c = x.unbind(); a.add_(1)
    x = torch.zeros(3, requires_grad=True) * 1; y = x.detach(); y.add_(1); x
    """

    assert not disagreements(oracle, programs)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_writing_to_memory_seen_as_another_dtype_is_not_recorded(dtype, oracle) -> None:
    def grads(lib):
        leaf = lib.ones(2, 3, requires_grad=True)
        made = leaf * 1
        bits = made.view(getattr(lib, dtype))
        bits.mul_(1)
        made.view(lib.float32).mul_(3)
        (made.t() ** 2).sum().backward()
        return bits._base is None, made.tolist(), leaf.grad.tolist()

    assert grads(fb) == grads(oracle)


def _cut(lib: object, x: object, how: str) -> object:
    cuts = {
        "unbind": lambda: x.unbind(), "unbind last": lambda: x.unbind(-1), "chunk": lambda: x.chunk(2, 1), "split": lambda: x.split(2),
        "split_with_sizes": lambda: x.split([1, 3], 0), "tensor_split": lambda: x.tensor_split(3), "hsplit": lambda: x.hsplit(3),
        "vsplit": lambda: x.vsplit(2), "unsafe_chunk": lambda: x.unsafe_chunk(2), "empty parts": lambda: x.split([0, 4, 0]),
        "fewer": lambda: x.chunk(3), "transposed": lambda: x.T.unbind(1), "of a part": lambda: x[1:].unbind(),
    }  # fmt: skip
    return cuts[how]()


@pytest.mark.parametrize("how", [
    "unbind", "unbind last", "chunk", "split", "split_with_sizes", "tensor_split", "hsplit", "vsplit", "unsafe_chunk", "empty parts",
    "fewer", "transposed", "of a part",
])  # fmt: skip
@pytest.mark.parametrize("recorded", [False, True])
def test_parts_made_by_one_call_are_the_views_that_are_made_one_by_one(how, recorded, monkeypatch):
    from flambeau_kernels import hot_calls

    hot_calls.engine_is_in_use()
    x = fb.arange(12.0).reshape(4, 3)
    x.requires_grad_(recorded)
    _cut(fb, x, how)                                  # from the first call on the op has its parts
    at_once = _cut(fb, x, how)
    monkeypatch.setattr(hot_calls, "views_of", lambda *args: None)
    singly = _cut(fb, x, how)

    assert type(at_once) is type(singly) is tuple
    assert len(at_once) == len(singly)
    for made, expected in zip(at_once, singly, strict=True):
        assert made.equal(expected)
        assert made.stride() == expected.stride()
        assert made.storage_offset() == expected.storage_offset()
        assert made._base is expected._base
        assert made.data_ptr() == expected.data_ptr()
        assert made.requires_grad is recorded
        assert type(made) is type(expected) is fb.Tensor
        if recorded:
            assert made.grad_fn.name() == expected.grad_fn.name()
            (grad,), (wanted,) = fb.autograd.grad(made.sum(), x), fb.autograd.grad(expected.sum(), x)
            assert grad.equal(wanted)


def test_a_loop_over_parts_does_not_make_the_storage_remember_them_all():
    x = fb.ones(3, 4)
    for _ in range(1000):
        x.unbind()
        x.chunk(2)
    assert len(x._storage[3]) <= 64


def test_writing_to_a_part_is_seen_by_the_history_of_the_others():
    x = fb.ones(4, 3, requires_grad=True)
    y = x * 2
    first, second = y.tensor_split(2)
    y.mul_(3)
    assert first.equal(fb.full((2, 3), 6.0))
    second.sum().backward()
    assert x.grad.equal(fb.cat([fb.zeros(2, 3), fb.full((2, 3), 6.0)]))

"""Elements put at places of their planes and taken from there, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

F = fb.nn.functional


def put(values: np.ndarray, places: np.ndarray, size: int) -> np.ndarray:
    made = np.zeros((*values.shape[:2], size), values.dtype)
    for n, c in np.ndindex(values.shape[:2]):
        for value, place in zip(values[n, c].reshape(-1), places[n, c].reshape(-1), strict=True):
            made[n, c, place] = value
    return made


@pytest.mark.parametrize("dtype", [fb.float64, fb.float32, fb.float16, fb.bfloat16])
@pytest.mark.parametrize("formats", [(False, False), (True, True), (True, False), (False, True)])
@pytest.mark.parametrize("shape", [(2, 70, 4, 5), (3, 4, 9, 7), (1, 130, 3, 3)])
def test_values_go_to_their_places_and_gradients_come_from_there(shape, formats, dtype):
    rng = np.random.default_rng(0)
    height, width = 2 * shape[2], 2 * shape[3]
    wanted = rng.integers(0, height * width, shape)       # some more than once, of which the last wins
    x, at = fb.tensor(rng.normal(size=shape)).to(dtype), fb.tensor(wanted)
    x, at = (t.to(memory_format=fb.channels_last) if last else t for t, last in zip((x, at), formats, strict=True))
    expected = put(x.double().numpy(), wanted, height * width).reshape(*shape[:2], height, width)
    plain_grad = fb.tensor(rng.normal(size=expected.shape)).to(dtype)
    for grad in (plain_grad, plain_grad.to(memory_format=fb.channels_last)):
        leaf = x.detach().requires_grad_()

        plain, recorded = F.max_unpool2d(x, at, 2), F.max_unpool2d(leaf, at, 2)
        (given,) = fb.autograd.grad(recorded, leaf, grad)

        taken = np.take_along_axis(grad.double().numpy().reshape(*shape[:2], -1), wanted.reshape(*shape[:2], -1), 2).reshape(shape)
        for made in (plain, recorded.detach()):
            np.testing.assert_array_equal(made.double().numpy(), expected)
            assert made.is_contiguous(memory_format=fb.channels_last if formats[0] else fb.contiguous_format)
        np.testing.assert_array_equal(given.double().numpy(), taken)
        assert given.is_contiguous()


@pytest.mark.parametrize("wrong", [-1, 16 * 16, 1 << 40])
@pytest.mark.parametrize("last", [False, True])
def test_a_place_outside_is_refused(last, wrong):
    values, places = F.max_pool2d(fb.randn(2, 64, 16, 16), 2, return_indices=True)
    if last:
        values, places = values.to(memory_format=fb.channels_last), places.to(memory_format=fb.channels_last)
    F.max_unpool2d(values, places, 2)
    places[1, 63, 7, 7] = wrong

    with pytest.raises(RuntimeError, match=f"invalid max index: {wrong} "):
        F.max_unpool2d(values, places, 2)


def test_volumes_are_in_rows_whatever_the_operands_are():
    x = fb.randn(2, 16, 6, 6, 6).to(memory_format=fb.channels_last_3d)
    values, places = F.max_pool3d(x, 2, return_indices=True)

    made = F.max_unpool3d(values, places, 2)

    assert made.is_contiguous()
    assert ((made == x) | (made == 0)).all()
    assert fb.equal(F.max_pool3d(made, 2).clamp(min=0), values.clamp(min=0))

"""The examples of PyTorch's two pages on named tensors, with the results they show."""

from __future__ import annotations

import re

import pytest

import flambeau as fb

pytestmark = pytest.mark.filterwarnings("ignore:Named tensors and all their associated APIs")


def scale_channels(input, scale):
    scale = scale.refine_names("C")
    return input * scale.align_as(input)


def test_tensors_are_made_with_names_and_show_them():
    made = fb.zeros(2, 3, names=("N", "C"))

    assert repr(made) == "tensor([[0., 0., 0.],\n        [0., 0., 0.]], names=('N', 'C'))"
    assert isinstance(made, fb.Tensor)


@pytest.mark.parametrize("make", [fb.empty, fb.rand, fb.randn, fb.ones, fb.zeros])
def test_functions_that_make_tensors_take_names(make):
    assert make(2, 3, names=(None, "C")).names == (None, "C")
    assert make((2, 3), names=["N", "C"], dtype=fb.float64, requires_grad=True).names == ("N", "C")
    assert make(2, names=None).names == (None,)


def test_tensor_and_full_take_names():
    assert fb.tensor([[1, 2]], names=("N", "C")).names == ("N", "C")
    assert fb.full((1, 2), 3.0, names=("N", "C")).names == ("N", "C")


def test_dimensions_are_renamed():
    imgs = fb.randn(1, 2, 2, 3, names=("N", "C", "H", "W"))

    assert imgs.names == ("N", "C", "H", "W")
    assert imgs.rename(H="height", W="width").names == ("N", "C", "height", "width")
    assert imgs.rename(N="batch", C="channels").names == ("batch", "channels", "H", "W")
    assert imgs.rename(None).names == (None, None, None, None)
    assert imgs.rename("batch", "channel", "height", "width").names == ("batch", "channel", "height", "width")
    assert imgs.rename("batch", ..., "width").names == ("batch", "C", "H", "width")
    assert imgs.names == ("N", "C", "H", "W")
    assert fb.randn(1, 2, 2, 3, names=(None, "C", "H", "W")).names == (None, "C", "H", "W")


def test_names_pass_through_a_function_of_one_tensor():
    assert fb.randn(3, 3, names=("N", "C")).abs().names == ("N", "C")


def test_sums_check_that_names_match():
    x, y, z = fb.randn(3, names=("X",)), fb.randn(3), fb.randn(3, names=("Z",))

    message = (
        "Error when attempting to broadcast dims ['X'] and dims ['Z']: dim 'X' and dim 'Z' are at the same position from the right but do "
        "not match."
    )
    with pytest.raises(RuntimeError, match=re.escape(message)):
        x + z
    assert (x + y).names == ("X",)
    assert (x + x).names == ("X",)


def test_scales_are_aligned_with_the_channels():
    scale = fb.randn(3, names=("C",))
    imgs = fb.rand(3, 3, 3, 3, names=("N", "H", "W", "C"))
    more_imgs = fb.rand(3, 3, 3, 3, names=("N", "C", "H", "W"))
    videos = fb.randn(3, 3, 3, 3, 3, names=("N", "C", "H", "W", "D"))

    assert scale_channels(imgs, scale).names == imgs.names
    found = scale_channels(more_imgs, scale)
    assert found.names == more_imgs.names
    assert fb.equal(found.rename(None), more_imgs.rename(None) * scale.rename(None).reshape(1, 3, 1, 1))
    assert scale_channels(videos, scale).names == videos.names


def test_dimensions_are_moved_by_name():
    tensor = fb.randn(2, 3, 4, 5, 6, 7)
    named_tensor = tensor.refine_names("A", "B", "C", "D", "E", "F")

    moved = named_tensor.align_to("F", "E", ...)

    assert moved.names == ("F", "E", "A", "B", "C", "D")
    assert fb.equal(moved.rename(None), tensor.permute(5, 4, 0, 1, 2, 3))
    assert named_tensor.align_to("F", "E", "...").names == moved.names


def test_dimensions_are_flattened_and_unflattened_by_name():
    imgs = fb.randn(32, 3, 12, 8)
    named_imgs = imgs.refine_names("N", "C", "H", "W")

    named_flat_imgs = named_imgs.flatten(["C", "H", "W"], "features")
    unflattened_named_imgs = named_flat_imgs.unflatten("features", [("C", 3), ("H", 12), ("W", 8)])

    assert named_flat_imgs.names == ("N", "features")
    assert fb.equal(named_flat_imgs.rename(None), imgs.view(32, -1))
    assert unflattened_named_imgs.names == ("N", "C", "H", "W")
    assert fb.equal(unflattened_named_imgs.rename(None), imgs)
    assert named_imgs.flatten(dims=("H", "W"), out_dim="P").shape == (32, 3, 96)
    assert named_imgs.flatten("C", -1, "features").names == ("N", "features")
    assert named_flat_imgs.unflatten("features", {"C": 3, "P": 96}).names == ("N", "C", "P")
    with pytest.raises(RuntimeError, match="must be consecutive and in order"):
        named_imgs.flatten(["C", "W"], "features")
    with pytest.raises(RuntimeError, match="flatten\\(dims, out_dim\\)"):
        named_imgs.flatten(1, 2)
    with pytest.raises(RuntimeError, match="pairs of a name and a size"):
        named_imgs.unflatten("H", (3, 4))


def test_names_are_refined():
    imgs = fb.randn(32, 3, 8, 8)
    tensor = fb.randn(2, 3, 5, 7, 11)

    assert imgs.refine_names("N", "C", "H", "W").names == ("N", "C", "H", "W")
    assert tensor.refine_names("A", ..., "B", "C").names == ("A", None, None, "B", "C")
    with pytest.raises(RuntimeError, match="cannot coerce"):
        imgs.refine_names("N", "C", "H", "W").refine_names("N", "X", ...)


def test_a_mask_is_aligned_with_images():
    mask = fb.randint(2, [7, 8], dtype=fb.bool).refine_names("W", "H")
    imgs = fb.ones(2, 8, 7, 3, names=("N", "H", "W", "C"))

    imgs.masked_fill_(mask.align_as(imgs), 0)

    assert imgs.names == ("N", "H", "W", "C")
    assert fb.equal(imgs.rename(None)[1, :, :, 2], (~mask.rename(None)).float().t())


def test_autograd_ignores_names():
    x = fb.randn(3, names=("D",))
    weight = fb.randn(3, names=("D",), requires_grad=True)
    loss = (x - weight).abs()
    grad_loss = fb.randn(3)
    loss.backward(grad_loss)
    expected = grad_loss * -fb.sign((x - weight).detach().rename(None))

    assert loss.names == ("D",)
    assert weight.grad.names == (None,)
    assert fb.equal(weight.grad, expected)
    weight.grad.zero_()
    loss = (x - weight).abs()
    loss.backward(grad_loss.refine_names("C"))
    assert weight.grad.names == (None,)
    assert fb.equal(weight.grad, expected)


def test_dimensions_are_removed_by_name():
    x = fb.randn(1, 3, 3, 3, names=("N", "C", "H", "W"))
    assert x.squeeze("N").names == ("C", "H", "W")

    x = fb.randn(3, 3, 3, 3, names=("N", "C", "H", "W"))
    assert x.sum(["N", "C"]).names == ("H", "W")
    assert x.sum(["N", "C"], keepdim=True).names == ("N", "C", "H", "W")
    assert fb.equal(x.sum(["N", "C"]).rename(None), x.rename(None).sum((0, 1)))
    with pytest.raises(RuntimeError, match=r"Name 'X' not found in Tensor\['N', 'C', 'H', 'W'\]"):
        x.sum("X")
    with pytest.raises(RuntimeError, match=r"Name 'N' not found in Tensor\[None, None\]"):
        fb.zeros(2, 3).sum("N")


def test_names_unify():
    tensor = fb.randn(3, 3, names=("N", None))
    other = fb.randn(3, 3, names=(None, "C"))

    assert (tensor + other).names == ("N", "C")

    message = (
        "Error when attempting to broadcast dims ['N', 'C'] and dims ['N']: dim 'C' and dim 'N' are at the same position from the right "
        "but do not match."
    )
    with pytest.raises(RuntimeError, match=re.escape(message)):
        fb.randn(3, 3, names=("N", "C")) + fb.randn(3, names=("N",))
    message = (
        "Misaligned dims when attempting to broadcast dims ['N'] and dims ['N', None]: dim 'N' appears in a different position from the "
        "right across both lists."
    )
    with pytest.raises(RuntimeError, match=re.escape(message)):
        tensor + fb.randn(3, names=("N",))


def test_dimensions_change_places_by_name():
    assert fb.randn(3, 3, names=("N", "C")).transpose("N", "C").names == ("C", "N")


def test_products_contract_dimensions():
    x = fb.randn(3, 3, names=("N", "D"))

    assert x.mm(fb.randn(3, 3, names=("in", "out"))).names == ("N", "out")
    assert x.mv(fb.randn(3, names=("something",))).names == ("N",)
    x, y = fb.randn(3, 3, 3, 3, names=("A", "B", "C", "D")), fb.randn(3, 3, 3, names=("B", "E", "F"))
    assert fb.matmul(x, y).names == ("A", "B", "C", "F")
    with pytest.raises(RuntimeError, match="duplicate names"):
        fb.randn(3, 3, names=("N", "D")) @ fb.randn(3, 3, names=("D", "N"))


def test_operations_in_place_name_what_they_write():
    x = fb.randn(3, 3)
    y = fb.randn(3, 3, names=("N", "C"))
    before = x

    assert x.names == (None, None)
    x += y
    assert x.names == ("N", "C")
    assert x is before


def test_a_warning_says_that_names_are_experimental(fresh_python):
    code = "import flambeau as fb; fb.zeros(2, names=('N',)); fb.ones(2, names=('N',)); fb.ones(2).refine_names('C')"
    program = f"import warnings\nwith warnings.catch_warnings(record=True) as seen:\n    warnings.simplefilter('always')\n    {code}\n"

    printed = fresh_python("-c", program + "print([str(w.message) for w in seen])")

    assert printed.count("Named tensors and all their associated APIs are an experimental feature and subject to change.") == 1

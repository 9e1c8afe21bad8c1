"""What notebooks show of tensors."""

from __future__ import annotations

import math

import flambeau as fb


def test_a_tensor_shows_its_kind_range_and_histogram():
    text = fb.tensor([[1.0, 2.0], [3.0, 6.0]], requires_grad=True)._repr_html_()

    assert "shape (2, 2) · torch.float32 · cpu · requires grad" in text
    assert "from 1 to 6, mean 3" in text
    assert text.count("<rect") == 24
    assert "[[1., 2.]," in text


def test_values_that_are_not_finite_are_counted():
    text = fb.tensor([1.0, math.nan, math.inf])._repr_html_()

    assert "<b>2 of 3 not finite</b>" in text
    assert "<svg" not in text


def test_every_kind_of_tensor_has_a_text():
    for tensor in (fb.empty(0), fb.empty(2, device="meta"), fb.ones(2, dtype=fb.complex64), fb.tensor(True), fb.ones(3)):
        assert tensor._repr_html_().startswith("<div><b>Tensor</b> shape")


def test_a_tensor_that_is_not_strided_shows_the_range_of_what_it_stores():
    eye = fb.eye(3)
    for tensor in (eye.to_sparse(), eye.to_sparse_csr(), eye.to_sparse_csc(), eye.to_sparse_bsr((1, 1))):
        assert "shape (3, 3) · torch.float32 · cpu<br>from 1 to 1, mean 1" in tensor._repr_html_()
    ragged = fb.nested.nested_tensor([fb.ones(2), fb.zeros(3)], layout=fb.jagged)
    assert "from 0 to 1, mean 0.4" in ragged._repr_html_()
    assert "from 0 to 1, mean 0.3333" in fb.quantize_per_tensor(eye, 0.5, 0, fb.qint8)._repr_html_()
    assert "from" not in fb.zeros(3, 3).to_sparse()._repr_html_()


def test_names_are_escaped():
    assert "<b>Parameter</b>" in fb.nn.Parameter(fb.ones(1))._repr_html_()
    assert "grad_fn=&lt;" in (fb.ones(1, requires_grad=True) * 2)._repr_html_()

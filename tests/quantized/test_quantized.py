"""Quantized tensors: integers and the numbers they stand for, views, operations, and PyTorch's results."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest

import flambeau as fb

pytestmark = pytest.mark.filterwarnings("ignore:.*quantize:UserWarning")
X = np.array([[-1.0, 0.0, 1.05], [2.0, 100.0, -100.0]], np.float32)


class Operands:
    def __init__(self, lib: Any) -> None:
        self.lib = lib
        self.x = lib.tensor(X)
        self.q = lib.quantize_per_tensor(self.x, 0.1, 10, lib.quint8)
        self.signed = lib.quantize_per_tensor(self.x, 0.1, 0, lib.qint8)
        self.wide = lib.quantize_per_tensor(self.x, 0.1, 0, lib.qint32)
        self.channels = lib.quantize_per_channel(self.x, lib.tensor([0.1, 0.01]), lib.tensor([10, 0]), 0, lib.quint8)
        self.image = lib.quantize_per_tensor(lib.arange(32.0).view(1, 2, 4, 4) / 3, 0.25, 3, lib.quint8)


QUANTIZED = {
    "unsigned": lambda o: o.q,
    "signed": lambda o: o.signed,
    "wide": lambda o: o.wide,
    "by a tensor": lambda o: o.lib.quantize_per_tensor(o.x, o.lib.tensor(0.1), o.lib.tensor(2), o.lib.quint8),
    "channels": lambda o: o.channels,
    "columns": lambda o: o.lib.quantize_per_channel(o.x, o.lib.tensor([0.1, 0.5, 1.0]), o.lib.tensor([0, 1, 2]), 1, o.lib.qint8),
    "halves": lambda o: o.lib.quantize_per_tensor(o.lib.tensor([0.05, 0.15, 0.25, -0.05, -0.15, float("inf")]), 0.1, 0, o.lib.qint8),
    "transposed": lambda o: o.q.t(),
    "viewed": lambda o: o.q.view(3, 2),
    "reshaped": lambda o: o.q.t().reshape(-1),
    "row": lambda o: o.q[1],
    "column": lambda o: o.q[:, 1],
    "unsqueezed": lambda o: o.q.unsqueeze(0),
    "clone": lambda o: o.channels.clone(),
    "detached": lambda o: o.q.detach(),
    "joined": lambda o: o.lib.cat((o.q, o.q)),
    "relu": lambda o: o.lib.relu(o.q),
    "clamped": lambda o: o.q.clamp(0, 1),
    "sigmoid": lambda o: o.lib.sigmoid(o.q),
    "tanh": lambda o: o.lib.tanh(o.q),
    "largest": lambda o: o.q.max(),
    "largest of rows": lambda o: o.q.max(1)[0],
    "mean": lambda o: o.q.mean(),
    "sorted": lambda o: o.q.sort()[0],
    "top": lambda o: o.q.topk(2)[0],
    "copied": lambda o: o.q.clone().copy_(o.x / 2),
    "filled": lambda o: o.q.clone().fill_(1),
    "pool1d": lambda o: o.lib.quantized_max_pool1d(o.q, [2]),
    "pool2d": lambda o: o.lib.quantized_max_pool2d(o.image, [2, 2], [2, 2], [1, 1]),
    "pooled": lambda o: o.lib.nn.functional.max_pool2d(o.image, 2),
    "normalized": lambda o: o.lib.quantized_batch_norm(o.image, o.lib.ones(2) * 2, o.lib.ones(2), o.lib.tensor([1.0, 5.0]),
                                                       o.lib.tensor([4.0, 9.0]), 1e-5, 0.2, 2),
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("name", QUANTIZED)
def test_integers_and_texts_are_pytorchs(name, oracle):
    ours, theirs = (QUANTIZED[name](Operands(lib)) for lib in (fb, oracle))

    assert str(ours.dtype) == str(theirs.dtype)
    assert ours.int_repr().tolist() == theirs.int_repr().tolist()
    assert str(ours.int_repr().dtype) == str(theirs.int_repr().dtype)
    assert ours.dequantize().tolist() == theirs.dequantize().tolist()
    assert repr(ours) == repr(theirs)


def test_what_a_quantized_tensor_is():
    o = Operands(fb)

    assert o.q.is_quantized
    assert not o.x.is_quantized
    assert (o.q.layout, o.q.stride(), o.q.itemsize, o.q.is_contiguous()) == (fb.strided, (3, 1), 1, True)
    assert (o.q.qscheme(), o.q.q_scale(), o.q.q_zero_point()) == (fb.per_tensor_affine, 0.1, 10)
    assert o.channels.qscheme() is fb.per_channel_affine
    assert o.channels.q_per_channel_scales().dtype is fb.float64
    assert o.channels.q_per_channel_zero_points().tolist() == [10, 0]
    assert o.channels.q_per_channel_axis() == 0
    assert o.q.type() == "torch.quantized.QUInt8Tensor"
    assert o.q[0, 2].item() == 1.0
    assert fb.equal(fb.dequantize([o.q, o.x])[1], o.x)
    assert (o.q == o.q).all()
    assert fb.equal(o.q, o.q.clone())


def test_scales_of_channels_with_floating_zero_points_are_in_float32():
    q = fb.quantize_per_channel(fb.ones(2, 3), fb.tensor([0.1, 0.2], dtype=fb.float64), fb.zeros(2), 0, fb.quint8)

    assert q.q_per_channel_scales().dtype is q.q_per_channel_zero_points().dtype is fb.float32


def test_a_view_is_a_view_of_the_integers():
    q = Operands(fb).q
    q.t()[0].fill_(1)

    assert q.dequantize()[:, 0].tolist() == [1, 1]


def test_copies_and_pickles_keep_how_they_are_quantized():
    for q in (Operands(fb).q, Operands(fb).channels):
        for made in (copy.deepcopy(q), pickle.loads(pickle.dumps(q))):
            assert repr(made) == repr(q)
            made.fill_(1)
            assert repr(made) != repr(q)


def saved(save: Any, value: Any, **how: Any) -> io.BytesIO:
    file = io.BytesIO()
    save(value, file, **how)
    file.seek(0)
    return file


IN_FILES = ("unsigned", "signed", "wide", "channels", "columns", "transposed", "column")


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "older format"])
@pytest.mark.parametrize("name", IN_FILES)
def test_files_go_both_ways(name, zipped, oracle):
    ours, theirs = (QUANTIZED[name](Operands(lib)) for lib in (fb, oracle))

    read = fb.load(saved(oracle.save, theirs, _use_new_zipfile_serialization=zipped))
    assert (repr(read), read.stride(), read.storage_offset()) == (repr(ours), ours.stride(), ours.storage_offset())
    read = oracle.load(saved(fb.save, ours, _use_new_zipfile_serialization=zipped))
    assert (repr(read), read.stride(), read.storage_offset()) == (repr(theirs), theirs.stride(), theirs.storage_offset())


def test_tensors_of_a_file_share_the_memory_they_shared():
    q = Operands(fb).q

    whole, row = fb.load(saved(fb.save, [q, q[1]]))
    row.fill_(1)

    assert whole.dequantize()[1].tolist() == [1, 1, 1]


def test_a_damaged_quantizer_in_a_file_is_refused():
    channels = Operands(fb).channels
    channels._array.quantizer = channels._array.quantizer._replace(axis=5)

    with pytest.raises(pickle.UnpicklingError, match=r"is malformed: there is no dimension 5 in a tensor of shape \(2, 3\)"):
        fb.load(saved(fb.save, channels))


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
@pytest.mark.parametrize("name", ["QUInt8Storage", "QInt8Storage", "QInt32Storage", "QUInt4x2Storage", "QUInt2x4Storage"])
def test_storages_of_quantized_dtypes_hold_integers(name, oracle):
    ours, theirs = (getattr(lib, name)([1, 2, 100]) for lib in (fb, oracle))

    assert (ours.tolist(), ours.nbytes(), repr(ours)) == (theirs.tolist(), theirs.nbytes(), repr(theirs))


def test_a_quantized_tensor_has_the_storage_of_its_integers():
    q = Operands(fb).q

    assert q.storage().tolist() == q.int_repr().flatten().tolist()
    assert q.storage_type() is fb.QUInt8Storage
    q.untyped_storage()[0] = 11
    assert q[0, 0].item() == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda o: fb.quantize_per_tensor(o.x, 0.1, 0, fb.int8), RuntimeError, "Char is not supported"),
        (lambda o: fb.quantize_per_tensor(o.x.double(), 0.1, 0, fb.qint8), RuntimeError, "only works on Float Tensor, got Double"),
        (lambda o: fb.quantize_per_tensor(o.x, 0.1, 300, fb.quint8), RuntimeError, "300 is above upper bound"),
        (lambda o: fb.quantize_per_channel(o.x, fb.ones(3), fb.zeros(3), 0, fb.qint8), RuntimeError, r"scales \(3\)"),
        (lambda o: fb.quantize_per_tensor(o.x, 0.1, 0, fb.quint4x2), NotImplementedError, "quint4x2"),
        (lambda o: o.q.q_per_channel_scales(), RuntimeError, "per_channel_affine"),
        (lambda o: o.channels.q_scale(), RuntimeError, "per_tensor_affine"),
        (lambda o: o.channels.t(), RuntimeError, "uniformly quantized"),
        (lambda o: o.x.int_repr(), NotImplementedError, "needs a quantized tensor"),
        (lambda o: o.q + o.q, NotImplementedError, "add: not built for quantized tensors"),
        (lambda o: o.q.float(), NotImplementedError, "dequantize"),
        (lambda o: o.q.numpy(), TypeError, "dequantize"),
        (lambda o: o.q.requires_grad_(), RuntimeError, "floating point"),
        (lambda o: fb.zeros(2, dtype=fb.quint8), RuntimeError, "quantize_per_tensor"),
        (lambda o: fb.cat((o.q, o.signed)), RuntimeError, "one scale"),
    ],
)  # fmt: skip
def test_what_is_refused_says_why(call, error, words):
    with pytest.raises(error, match=words):
        call(Operands(fb))


def test_fake_quantization_rounds_halves_to_an_even_number_of_steps():
    torch = pytest.importorskip("torch")
    halves = [0.5, 1.5, 2.5, -0.5, -1.5]

    for zero in (0, 1, 2):
        got = fb.fake_quantize_per_tensor_affine(fb.tensor(halves), 1.0, zero, -128, 127)
        want = torch.fake_quantize_per_tensor_affine(torch.tensor(halves), 1.0, zero, -128, 127)
        assert got.tolist() == want.tolist() == [0, 2, 2, 0, -2]
        assert not fb.signbit(got[3])

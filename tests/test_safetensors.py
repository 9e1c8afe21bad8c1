"""The safetensors format: the same bytes as its reference package, and refusal of what does not follow it."""

from __future__ import annotations

import json
import os
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flambeau as fb
from flambeau import safetensors
from flambeau.safetensors import SafetensorError
from flambeau.tensor import wrap


def array(tensor):
    return tensor.detach()._array


def tensor(values, dtype="float32"):
    return wrap(np.array(values, getattr(fb, dtype).numpy))


EVERYTHING = {
    **{f"of {name}": tensor([1, 2, 4], dtype.name) for name, dtype in safetensors._DTYPES.items()},
    "scalar": tensor(1.5),
    "empty": tensor(np.zeros((0, 3))),
    "é": tensor([[1, 2], [3, 4]], "int64"),
}


def raw(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(**changes):
    return {"dtype": "U8", "shape": [2], "data_offsets": [0, 2], **changes}


def assert_same(ours, expected):
    assert ours.keys() == expected.keys()
    for name, value in ours.items():
        assert value.dtype is expected[name].dtype
        assert value.shape == expected[name].shape
        assert array(value).tobytes() == array(expected[name]).tobytes()


def test_what_is_saved_is_loaded(tmp_path):
    path = tmp_path / "x.safetensors"
    safetensors.save_file(EVERYTHING, path, {"format": "pt"})

    assert_same(safetensors.load_file(path), EVERYTHING)
    assert_same(safetensors.load(path.read_bytes()), EVERYTHING)
    assert path.read_bytes() == safetensors.save(EVERYTHING, {"format": "pt"})
    assert os.listdir(tmp_path) == ["x.safetensors"]


@pytest.mark.oracle
def test_the_reference_package_writes_the_same_bytes(oracle):
    reference = pytest.importorskip("safetensors.torch")
    names = {name: dtype.name for name, dtype in safetensors._DTYPES.items()}
    theirs = {name: oracle.tensor([1, 2, 4]).to(getattr(oracle, dtype)) for name, dtype in names.items()}
    ours = {name: tensor([1, 2, 4], dtype) for name, dtype in names.items()}

    assert safetensors.save(ours, {"a": "b"}) == reference.save(theirs, {"a": "b"})


@pytest.mark.oracle
def test_the_reference_package_reads_ours(oracle):
    reference = pytest.importorskip("safetensors.torch")

    known = {name: value for name, value in EVERYTHING.items() if value.dtype is not fb.float8_e8m0fnu}

    theirs = reference.load(safetensors.save(known))

    assert theirs.keys() == known.keys()
    for name, value in theirs.items():
        flat = value.reshape(-1).view(oracle.uint8) if value.numel() else oracle.zeros(0)
        assert flat.numpy().tobytes() == array(EVERYTHING[name]).tobytes()
        assert tuple(value.shape) == tuple(EVERYTHING[name].shape)


def test_tensors_are_aligned_and_the_header_is_padded():
    kinds = {"b": "int8", "a": "float64", "c": "int16"}
    data = safetensors.save({name: tensor([1], kind) for name, kind in kinds.items()})
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])

    assert length % 8 == 0
    places = {name: place["data_offsets"] for name, place in header.items()}
    assert places == {"a": [0, 8], "c": [8, 10], "b": [10, 11]}


def test_writing_to_a_mapped_tensor_leaves_the_file_alone(tmp_path):
    safetensors.save_file({"a": tensor([1.0, 2.0])}, tmp_path / "x")

    mapped = safetensors.load_file(tmp_path / "x")["a"]
    mapped._array[:] = 9

    assert array(safetensors.load_file(tmp_path / "x")["a"]).tolist() == [1, 2]


def test_each_loaded_tensor_has_a_storage_of_its_own_size(tmp_path):
    safetensors.save_file({"a": tensor(range(1000)), "b": tensor([1.0])}, tmp_path / "x")

    assert safetensors.load_file(tmp_path / "x")["b"].untyped_storage().nbytes() == 4


def test_tensors_can_be_read_one_by_one(tmp_path):
    safetensors.save_file({"b": tensor([1, 2]), "a": tensor([3], "int8")}, tmp_path / "x", {"k": "v"})

    with safetensors.safe_open(tmp_path / "x") as file:
        assert file.keys() == ["a", "b"]
        assert file.offset_keys() == ["b", "a"]
        assert file.metadata() == {"k": "v"}
        kept = file.get_tensor("b")
        assert array(file.get_slice("a")).tolist() == [3]
        with pytest.raises(SafetensorError, match="'c'"):
            file.get_tensor("c")
    assert array(kept).tolist() == [1, 2]
    with pytest.raises(ValueError, match="'np'"):
        safetensors.safe_open(tmp_path / "x", "np")


def test_unaligned_tensors_of_other_writers_are_read(tmp_path):
    header = {
        "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "b": {"dtype": "F64", "shape": [2], "data_offsets": [1, 17]},
    }
    (tmp_path / "x").write_bytes(raw(header, b"\7" + np.array([1.0, 2.0]).tobytes()))

    assert array(safetensors.load_file(tmp_path / "x")["b"]).tolist() == [1, 2]


MALFORMED = {
    "nothing": b"",
    "a short length": b"\1\0\0",
    "a header past the end": struct.pack("<Q", 100) + b"{}",
    "a header past the limit": struct.pack("<Q", 1 << 40) + b"{}",
    "no JSON": raw(b"{abc"),
    "no UTF-8": raw(b'{"\xff": 1}'),
    "deep JSON": raw(b"[" * 100_000),
    "a list": raw(b"[]"),
    "a name twice": raw(b'{"a":%(e)s,"a":%(e)s}' % {b"e": json.dumps(entry()).encode()}, b"xx"),
    "text behind the header": raw(b"{}\0"),
    "metadata that is no text": raw({"__metadata__": {"a": 1}}),
    "an unknown dtype": raw({"a": entry(dtype="F128")}, b"xx"),
    "no shape": raw({"a": {"dtype": "U8", "data_offsets": [0, 2]}}, b"xx"),
    "one offset": raw({"a": entry(data_offsets=[0])}, b"xx"),
    "an entry that is a number": raw({"a": 1}),
    "a negative extent": raw({"a": entry(shape=[-2])}, b"xx"),
    "an extent that is a float": raw({"a": entry(shape=[2.0])}, b"xx"),
    "an extent that is a truth value": raw({"a": entry(shape=[True, 2])}, b"xx"),
    "negative offsets": raw({"a": entry(data_offsets=[-2, 0])}, b"xx"),
    "reversed offsets": raw({"a": entry(data_offsets=[2, 0])}, b"xx"),
    "a shape of another size": raw({"a": entry(shape=[3])}, b"xx"),
    "a huge shape": raw({"a": entry(shape=[1 << 40, 1 << 40])}, b"xx"),
    "tensors past the end": raw({"a": entry(shape=[200], data_offsets=[0, 200])}, b"xx"),
    "a hole in front": raw({"a": entry(data_offsets=[1, 3])}, b"xxx"),
    "a hole inside": raw({"a": entry(), "b": entry(data_offsets=[3, 5])}, b"xxxxx"),
    "overlapping tensors": raw({"a": entry(), "b": entry()}, b"xx"),
    "bytes behind the tensors": raw({"a": entry()}, b"xxx"),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_malformed_files_are_refused(tmp_path, data):
    with pytest.raises(SafetensorError):
        safetensors.load(data)
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(SafetensorError):
        safetensors.load_file(tmp_path / "x")


def test_every_truncation_is_noticed():
    data = safetensors.save({"a": tensor([1.0, 2.0]), "b": tensor([1], "int8")})

    for end in range(len(data)):
        with pytest.raises(SafetensorError):
            safetensors.load(data[:end])


@given(position=st.integers(0, 10**6), value=st.integers(0, 255))
def test_a_changed_byte_is_refused_or_changes_only_names_and_values(position, value):
    data = bytearray(safetensors.save({"a": tensor([1.0, 2.0]), "b": tensor([1], "int8")}))
    data[position % len(data)] = value

    try:
        back = safetensors.load(bytes(data))
    except SafetensorError:
        return
    assert sum(each.nbytes for each in back.values()) == 9


@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        ([1], ValueError, "list"),
        ({"a": 1}, ValueError, "'a'.*int"),
        ({1: tensor([1])}, TypeError, "names"),
        ({"__metadata__": tensor([1])}, ValueError, "__metadata__"),
        ({"a": wrap(np.zeros((2, 3), np.float32).T)}, ValueError, "contiguous"),
        ({"a": tensor([1], "complex128")}, KeyError, "complex128"),
    ],
    ids=str,
)
def test_what_the_format_cannot_express_is_refused(tensors, error, message):
    with pytest.raises(error, match=message):
        safetensors.save(tensors)


def test_metadata_must_be_text():
    with pytest.raises(TypeError, match="text"):
        safetensors.save({}, {"a": 1})


def test_tensors_that_share_memory_are_refused_and_neighbours_are_not():
    x = np.arange(4, dtype=np.float32)

    with pytest.raises(RuntimeError, match="'a' and 'b' share"):
        safetensors.save({"a": wrap(x), "b": wrap(x[1:])})
    halves = {"a": wrap(x[:2]), "b": wrap(x[2:])}
    assert_same(safetensors.load(safetensors.save(halves)), halves)

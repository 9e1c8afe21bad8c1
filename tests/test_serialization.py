"""Saving and loading: PyTorch's files both ways, the places tensors go, and files that are damaged or mean
harm.
"""

from __future__ import annotations

import gc
import io
import mmap as mmap_module
import os
import pickle
import stat
import struct
import sys
import threading
import typing
import weakref
import zipfile
from collections import Counter, OrderedDict, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flambeau as fb
from comparing import peak_of
from flambeau import serialization
from flambeau._files import pickle_machine
from flambeau._files.archive import _END64_MAGIC, ArchiveReader, ArchiveWriter, _directory_entries
from flambeau._files.torch_globals import TorchPolicy
from flambeau.nn.parameter import Parameter
from flambeau.tensor import wrap

DTYPES = [
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
    "uint16", "uint32", "uint64", "complex32", "complex64", "complex128",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
]  # fmt: skip
# What a damaged or hostile file may end in. Anything else, a crash above all, is a bug.
REFUSALS = (pickle.UnpicklingError, RuntimeError, EOFError, NotImplementedError)


def array(tensor):
    return tensor.detach()._array


def tensor(values, dtype="float32"):
    return wrap(np.array(values, getattr(fb, dtype).numpy))


def saved(obj, save=fb.save, **options):
    out = io.BytesIO()
    save(obj, out, **options)
    return out.getvalue()


def loaded(data, **options):
    return fb.load(io.BytesIO(data), **options)


def raw_bits(theirs):
    """The bytes of a PyTorch tensor of any dtype."""
    torch = sys.modules["torch"]
    if not theirs.numel():
        return b""
    return theirs.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def archive_of(pickled, storages=(), folder="archive", **records):
    """A .pt file with `pickled` as its object."""
    out = io.BytesIO()
    archive = ArchiveWriter(out, folder)
    archive.add("data.pkl", pickled)
    for key, data in enumerate(storages):
        archive.add(f"data/{key}", data)
    for name, data in ({"byteorder": b"little", "version": b"3\n"} | records).items():
        if data is not None:
            archive.add(name, data)
    archive.close()
    return out.getvalue()


def assemble(*parts):
    return b"\x80\x02" + b"".join(parts) + b"."


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def name(module, attribute):
    return f"c{module}\n{attribute}\n".encode()


def number(value):
    raw = value.to_bytes(10, "little", signed=True)
    return b"\x8a\x0a" + raw


def reference(kind="FloatStorage", key="0", location="cpu", numel=4):
    return b"(" + text("storage") + name("torch", kind) + text(key) + text(location) + number(numel) + b"tQ"


def tensor_pickle(offset=0, size=(4,), stride=(1,), storage=None):
    def numbers(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    return assemble(
        name("torch._utils", "_rebuild_tensor_v2"),
        b"(", reference() if storage is None else storage, number(offset),
        numbers(size), numbers(stride), b"\x89", name("collections", "OrderedDict"), b")R", b"tR",
    )  # fmt: skip


FOUR_FLOATS = np.arange(4, dtype=np.float32).tobytes()


# PyTorch's files


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")  # PyTorch's, about itself
@pytest.mark.parametrize("dtype", DTYPES)
def test_reads_every_dtype_that_pytorch_writes(oracle, dtype):
    theirs = oracle.tensor([1.0, 2.0, 0.0, 4.0]).to(getattr(oracle, dtype))

    ours = loaded(saved(theirs, oracle.save))

    assert ours.dtype is getattr(fb, dtype)
    assert array(ours).tobytes() == raw_bits(theirs)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")  # PyTorch's, about itself
@pytest.mark.parametrize("dtype", DTYPES)
def test_pytorch_reads_every_dtype_that_we_write(oracle, dtype):
    ours = tensor([1.0, 2.0, 0.0, 4.0], dtype)

    theirs = oracle.load(io.BytesIO(saved(ours)), weights_only=True)

    assert theirs.dtype == getattr(oracle, dtype)
    assert raw_bits(theirs) == array(ours).tobytes()


@pytest.mark.oracle
@pytest.mark.parametrize("modern", [True, False], ids=["zip", "legacy"])
def test_reads_views_parameters_and_containers_of_pytorch(oracle, modern):
    x = oracle.arange(6.0).reshape(2, 3)
    state = OrderedDict(
        weight=oracle.nn.Parameter(x), view=x.t()[1:], empty=oracle.zeros(0, 3), scalar=oracle.tensor(7),
        numbers=[1, 2.5, True, None, 10**30, -3, 1j], texts=("a", b"b\xff", bytearray(b"c"), {"é", 2}),
        nested={1: {"x": (oracle.Size([2, 3]), oracle.float16, oracle.device("cpu"), oracle.strided)}},
        counted=Counter("aab"), meta=oracle.zeros(2, 3, device="meta"),
        grown=oracle.ones(2, requires_grad=True),
    )  # fmt: skip
    state._metadata = {"": {"version": 1}}

    ours = loaded(saved(state, oracle.save, _use_new_zipfile_serialization=modern))

    assert list(ours) == list(state)
    assert ours._metadata == {"": {"version": 1}}
    assert type(ours["weight"]) is Parameter
    assert ours["weight"].requires_grad
    assert array(ours["weight"]).tolist() == x.tolist()
    assert array(ours["view"]).tolist() == x.t()[1:].tolist()
    assert ours["view"].stride() == (1, 3)
    assert ours["view"].storage_offset() == 1
    assert ours["view"].untyped_storage() == ours["weight"].untyped_storage()
    assert tuple(ours["empty"].shape) == (0, 3)
    assert ours["scalar"].item() == 7
    assert ours["numbers"] == state["numbers"]
    assert ours["texts"] == state["texts"]
    assert ours["nested"] == {1: {"x": (fb.Size([2, 3]), fb.float16, fb.device("cpu"), fb.strided)}}
    assert ours["counted"] == state["counted"]
    assert ours["meta"].is_meta
    assert tuple(ours["meta"].shape) == (2, 3)
    assert ours["grown"].requires_grad
    assert ours["grown"].is_leaf


@pytest.mark.oracle
@pytest.mark.parametrize("modern", [True, False], ids=["zip", "legacy"])
def test_pytorch_reads_views_parameters_and_containers_of_ours(oracle, modern):
    x = tensor([[0, 1, 2], [3, 4, 5]])
    state = OrderedDict(
        weight=Parameter(x), view=wrap(array(x).T[1:]), empty=tensor(np.zeros((0, 3))), again=x,
        numbers=[1, 2.5, True, None, 10**30, -3, 1j], texts=("a", b"b\xff", bytearray(b"c"), {"é", 2}),
        nested={1: {"x": (fb.Size([2, 3]), fb.float16, fb.device("cpu"), fb.strided)}},
    )  # fmt: skip
    state._metadata = {"": {"version": 1}}

    data = saved(state, _use_new_zipfile_serialization=modern)
    theirs = oracle.load(io.BytesIO(data), weights_only=True)

    assert theirs._metadata == {"": {"version": 1}}
    assert type(theirs["weight"]) is oracle.nn.Parameter
    assert theirs["weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert theirs["view"].tolist() == [[1, 4], [2, 5]]
    assert theirs["view"].stride() == (1, 3)
    assert theirs["view"].untyped_storage().data_ptr() == theirs["weight"].untyped_storage().data_ptr()
    assert theirs["empty"].shape == (0, 3)
    assert theirs["numbers"] == state["numbers"]
    assert theirs["texts"] == state["texts"]
    assert theirs["nested"][1]["x"] == (
        oracle.Size([2, 3]), oracle.float16, oracle.device("cpu"), oracle.strided
    )  # fmt: skip


@pytest.mark.oracle
def test_pytorch_maps_our_files(oracle, tmp_path):
    fb.save([tensor(range(100)), tensor([1, 2], "int16")], tmp_path / "x.pt")

    theirs = oracle.load(tmp_path / "x.pt", mmap=True, weights_only=True)

    assert theirs[0].tolist() == list(range(100))
    assert theirs[1].tolist() == [1, 2]


@pytest.mark.oracle
def test_attributes_of_tensors_and_parameters_travel_both_ways(oracle):
    theirs = oracle.zeros(2)
    theirs.unit = "metre"
    parameter = oracle.nn.Parameter(oracle.zeros(2))
    parameter.unit = "second"

    ours = loaded(saved([theirs, parameter], oracle.save))
    back = oracle.load(io.BytesIO(saved(ours)), weights_only=True)

    assert [each.unit for each in ours] == ["metre", "second"]
    assert [each.unit for each in back] == ["metre", "second"]


@pytest.mark.oracle
def test_takes_the_conjugate_that_pytorch_left_to_be_taken(oracle):
    theirs = oracle.tensor([1 + 2j, 3 - 4j]).conj()

    conjugate = loaded(saved(theirs, oracle.save))
    negative = loaded(saved(theirs.imag, oracle.save))

    assert array(conjugate).tolist() == [1 - 2j, 3 + 4j]
    assert array(negative).tolist() == [-2, 4]


@pytest.mark.oracle
@pytest.mark.parametrize("modern", [True, False], ids=["zip", "legacy"])
def test_conjugates_and_negatives_of_single_numbers_are_whole_tensors(oracle, modern):
    theirs = oracle.tensor(1 + 2j).conj()

    conjugate, negative = (
        loaded(saved(each, oracle.save, _use_new_zipfile_serialization=modern)) for each in (theirs, theirs.imag)
    )

    assert conjugate.shape == negative.shape == ()
    assert conjugate.item() == 1 - 2j
    assert negative.item() == -2
    assert (conjugate + conjugate.reshape(1)).tolist() == [2 - 4j]
    assert negative.add_(1).tolist() == -1


@pytest.mark.oracle
def test_conjugates_of_one_memory_share_it_again(oracle):
    theirs = oracle.tensor([1 + 2j, 3 - 4j, 5 + 6j])

    plain, whole, part = loaded(saved([theirs, theirs.conj(), theirs[1:].conj()], oracle.save))
    part.zero_()

    assert whole.tolist() == [1 - 2j, 0, 0]
    assert plain.tolist() == theirs.tolist()


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "int16", "bfloat16", "complex64", "uint8", "uint32"])
def test_big_endian_files_are_swapped(oracle, dtype):
    theirs = oracle.tensor([1.0, 2.0, 3.0]).to(getattr(oracle, dtype))
    archive = zipfile.ZipFile(io.BytesIO(saved(theirs, oracle.save)))
    width = theirs.element_size() // (2 if theirs.is_complex() else 1)
    swapped = np.frombuffer(archive.read("archive/data/0"), f"u{width}").byteswap().tobytes()

    ours = loaded(archive_of(archive.read("archive/data.pkl"), [swapped], byteorder=b"big"))

    assert array(ours).tobytes() == raw_bits(theirs)


def test_the_byte_order_of_files_without_a_record_can_be_chosen():
    swapped = np.arange(4, dtype=">f4").tobytes()
    data = archive_of(tensor_pickle(), [swapped], byteorder=None)

    serialization.set_default_load_endianness(serialization.LoadEndianness.BIG)
    try:
        assert array(loaded(data)).tolist() == [0, 1, 2, 3]
    finally:
        serialization.set_default_load_endianness(None)
    assert array(loaded(data)).tolist() != [0, 1, 2, 3]
    with pytest.raises(TypeError, match="LoadEndianness"):
        serialization.set_default_load_endianness("big")


# Ours


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("modern", [True, False], ids=["zip", "legacy"])
def test_what_is_saved_is_loaded(protocol, modern):
    x = tensor([[1, 2], [3, 4]])
    obj = {
        "x": x, "same": x, "half": tensor([1, 2], "bfloat16"), "untyped": tensor([1, 2], "uint16"),
        "set": {1, "a"}, "frozen": frozenset([2]), "bytes": b"\x00\xff", "long": "é" * 300, "big": -(10**40),
        "default": defaultdict(list, a=[1]), "slice": slice(1, None), "range": range(1, 9, 2),
        "array": np.arange(6.0).reshape(2, 3).T, "scalar": np.float64(0.5), "texts": np.array(["a", "bc"]),
        "swapped": np.arange(3, dtype=">i4"),
    }  # fmt: skip
    obj["itself"] = [obj]
    if not modern:
        del obj["untyped"]  # refused there, see below

    back = loaded(saved(obj, pickle_protocol=protocol, _use_new_zipfile_serialization=modern))

    assert back["x"] is back["same"]
    assert array(back["x"]).tolist() == [[1, 2], [3, 4]]
    assert back["half"].dtype is fb.bfloat16
    assert not modern or array(back["untyped"]).tolist() == [1, 2]
    for key in ("set", "frozen", "bytes", "long", "big", "default", "slice", "range", "scalar"):
        assert back[key] == obj[key], key
    assert back["default"].default_factory is list
    for key in ("array", "texts", "swapped"):
        np.testing.assert_array_equal(back[key], obj[key])
    assert back["itself"][0] is back


def test_tensors_that_share_memory_share_it_after_loading():
    x = tensor(range(10))
    parameter = Parameter(x)

    back = loaded(saved([x, wrap(array(x)[2:]), parameter, parameter.data]))
    back[1]._array[0] = 99

    assert [array(each).ravel()[2 - (at == 1) * 2] for at, each in enumerate(back)] == [99, 99, 99, 99]


def test_typed_storages_keep_their_dtype():
    back = loaded(saved([tensor([1, 2], "int64").storage(), tensor([0.5]).storage()]))

    assert [(s.dtype, s.tolist()) for s in back] == [(fb.int64, [1, 2]), (fb.float32, [0.5])]


def test_storages_are_loaded_as_storages():
    x = tensor([1, 2, 3])

    typed, back = loaded(saved([x.storage(), x]))
    untyped = loaded(saved(x.untyped_storage()))

    assert typed.tolist() == [1, 2, 3]
    assert back.data_ptr() == typed.data_ptr()
    assert bytes(untyped.tolist()) == array(x).tobytes()


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "complex32", "float8_e5m2"])
def test_dtypes_that_the_older_format_cannot_hold_are_refused_when_saving(tmp_path, dtype):
    path = tmp_path / "x.pt"
    with pytest.raises(RuntimeError, match=r"before 1\.6.*plain bytes.*leave"):
        fb.save([tensor([1.0]), tensor([1], dtype)], path, _use_new_zipfile_serialization=False)

    assert not path.exists()


def test_a_file_that_is_still_open_can_be_loaded_by_its_name(tmp_path):
    for modern in (True, False):
        with open(tmp_path / "x.pt", "wb") as file:
            fb.save(tensor([1.0, 2.0]), file, _use_new_zipfile_serialization=modern)

            assert array(fb.load(tmp_path / "x.pt")).tolist() == [1, 2]


_PEAK = """
import sys
import flambeau as fb
def peak():  # not resource.getrusage, which counts what the parent process took
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
fb.load(sys.argv[1])
before = peak()
back = fb.load(sys.argv[2])
print((peak() - before) / back["x"].nbytes, back["x"].sum().item())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells the peak of memory in /proc")
@pytest.mark.parametrize("modern", [True, False], ids=["zip", "legacy"])
def test_loading_takes_the_memory_of_the_tensors_once(tmp_path, fresh_python, modern):
    for path, count in (("small.pt", 8), ("large.pt", 1 << 24)):
        fb.save({"x": fb.ones(count)}, tmp_path / path, _use_new_zipfile_serialization=modern)
    times, total = fresh_python("-c", _PEAK, tmp_path / "small.pt", tmp_path / "large.pt").split()

    assert float(total) == 1 << 24
    assert float(times) < 1.3


@pytest.mark.parametrize("size", [100, 1 << 20, 3 << 20])
def test_the_older_format_may_begin_with_long_pickles(size):
    obj = {"text": "x" * size, "x": tensor([1.0, 2.0]), "y": tensor([3], "int64")}
    data = saved(obj, _use_new_zipfile_serialization=False)
    back = loaded(data)

    assert back["text"] == obj["text"]
    assert (array(back["x"]).tolist(), array(back["y"]).tolist()) == ([1, 2], [3])
    with pytest.raises(REFUSALS):
        loaded(data[: size // 2])


def test_the_same_memory_as_two_dtypes_is_refused():
    x = tensor([1, 2])

    with pytest.raises(RuntimeError, match=r"float32.*int32.*clone"):
        saved([x, wrap(array(x).view(np.int32))])


def _large_state():
    """More than threads share the reading of: records below and above a piece, odd ones, and an empty one."""
    numbers = np.random.default_rng(0)
    sizes = [1 << 20, 5_000_001, 0, 3, 70_001]
    return {f"w{i}": fb.from_numpy(numbers.integers(0, 256, n).astype(np.uint8)) for i, n in enumerate(sizes)}


@pytest.fixture
def large_file(tmp_path):
    state, path = _large_state(), tmp_path / "large.pt"
    state["w5"] = fb.arange(1_000_003, dtype=fb.float32)
    fb.save(state, path)
    return state, path


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_large_files_are_read_on_any_number_of_threads(large_file, threads):
    state, path = large_file
    before = fb.get_num_threads()
    fb.set_num_threads(threads)
    try:
        loaded = fb.load(path)
    finally:
        fb.set_num_threads(before)

    assert list(loaded) == list(state)
    assert all(bool((loaded[name] == state[name]).all()) and loaded[name].shape == state[name].shape for name in state)


def test_large_files_have_the_checksums_of_zip(oracle, large_file, tmp_path):
    state, path = large_file
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None                  # which reads everything
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    assert sizes["large/data/1"] == 5_000_001
    assert os.stat(path).st_size < sum(sizes.values()) + 4096

    read = oracle.load(path)

    assert all(np.array_equal(read[name].numpy(), state[name].numpy()) for name in state)


@pytest.mark.parametrize("where", [100_000, 4_500_000, 8_000_000])
def test_damage_anywhere_in_a_large_file_is_noticed(large_file, where):
    _, path = large_file
    with open(path, "r+b") as file:
        file.seek(where)
        byte = file.read(1)
        file.seek(where)
        file.write(bytes([byte[0] ^ 1]))

    with pytest.raises(RuntimeError, match="CRC-32"):
        fb.load(path)


def test_a_large_file_that_becomes_shorter_while_it_is_read_is_refused(large_file, monkeypatch):
    _, path = large_file
    monkeypatch.setattr(os, "preadv", lambda file, targets, start: 0)

    with pytest.raises(RuntimeError, match="ends early"):
        fb.load(path)


def test_an_error_of_reading_on_another_thread_is_raised(large_file, monkeypatch):
    def fail(file, targets, start):
        raise OSError(5, "Input/output error")

    _, path = large_file
    monkeypatch.setattr(os, "preadv", fail)

    with pytest.raises(OSError, match="Input/output error"):
        fb.load(path)


def test_what_was_loaded_is_freed_with_its_last_user():
    file = io.BytesIO()
    fb.save({"weight": fb.ones(1000), "bias": Parameter(fb.ones(3))}, file)
    file.seek(0)
    loaded = fb.load(file)
    gone = weakref.ref(loaded["weight"]._array.base)
    gc.disable()
    try:
        del loaded

        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", [io.BytesIO, None], ids=["memory", "path"])
def test_files_are_plain_zip_archives_with_aligned_records(tmp_path, kind):
    target = kind() if kind else tmp_path / "model.best.pt"
    fb.save([tensor(range(9)), tensor([1], "int8"), tensor([2.0])], target)

    with zipfile.ZipFile(target) as archive:
        assert archive.testzip() is None
        folder = "archive" if kind else "model.best"
        assert archive.namelist()[0] == f"{folder}/data.pkl"
        assert archive.read(f"{folder}/version") == b"3\n"
        assert archive.read(f"{folder}/byteorder") == sys.byteorder.encode()
    data = target.getvalue() if kind else target.read_bytes()
    reader = ArchiveReader(io.BytesIO(data))
    assert [record.start % 64 for record in reader.records.values()] == [0] * len(reader.records)


def test_a_file_object_needs_only_write():
    class Sink:
        def __init__(self):
            self.parts = []

        def write(self, part):
            self.parts.append(bytes(part))

    sink = Sink()
    fb.save(tensor([1.0, 2.0]), sink)

    assert array(loaded(b"".join(sink.parts))).tolist() == [1, 2]


def test_a_file_object_needs_only_read_seek_and_tell():
    class Source:
        def __init__(self, data):
            self.file = io.BytesIO(data)
            self.read, self.seek, self.tell = self.file.read, self.file.seek, self.file.tell

    assert array(fb.load(Source(saved(tensor([1.0, 2.0]))))).tolist() == [1, 2]


def test_legacy_objects_follow_one_another_in_a_file():
    file = io.BytesIO()
    for value in (1.0, 2.0):
        fb.save(tensor([value]), file, _use_new_zipfile_serialization=False)
    file.seek(0)

    assert [array(fb.load(file)).tolist() for _ in range(2)] == [[1.0], [2.0]]


def test_skip_data_leaves_storages_as_zeros():
    with serialization.skip_data():
        data = saved(tensor([1.0, 2.0]))
    full = saved(tensor([1.0, 2.0]))
    with serialization.skip_data():
        skipped = loaded(full)

    assert len(data) == len(full)
    assert array(loaded(data)).tolist() == [0, 0]
    assert array(skipped).tolist() == [0, 0]


def test_checksums_may_be_left_out():
    serialization.set_crc32_options(False)
    try:
        data = saved(tensor([1.0]))
    finally:
        serialization.set_crc32_options(True)

    assert {info.CRC for info in zipfile.ZipFile(io.BytesIO(data)).infolist()} == {0}
    assert array(loaded(data)).tolist() == [1]


# Places


def test_mapped_tensors_do_not_change_the_file(tmp_path):
    fb.save({"a": tensor(range(1000)), "b": tensor([1, 2], "int64")}, tmp_path / "x.pt")

    mapped = fb.load(tmp_path / "x.pt", mmap=True)
    mapped["a"]._array[:] = -1

    assert array(fb.load(tmp_path / "x.pt")["a"]).tolist() == list(range(1000))
    assert array(mapped["b"]).tolist() == [1, 2]


def test_a_shared_mapping_writes_to_the_file(tmp_path):
    fb.save(tensor([1.0, 2.0]), tmp_path / "x.pt")

    with serialization.set_default_mmap_options(mmap_module.MAP_SHARED):
        mapped = fb.load(tmp_path / "x.pt", mmap=True)
    mapped._array[0] = 9

    assert serialization.get_default_mmap_options() == mmap_module.MAP_PRIVATE
    assert array(fb.load(tmp_path / "x.pt", mmap=True)).tolist() == [9, 2]


@pytest.mark.parametrize("options", [{"mmap": True}], ids=str)
def test_mapping_needs_a_path_and_the_zip_format(tmp_path, options):
    with pytest.raises(ValueError, match="path"):
        loaded(saved(tensor([1.0])), **options)
    fb.save(tensor([1.0]), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match=r"1\.6"):
        fb.load(tmp_path / "old.pt", **options)


@pytest.mark.parametrize(
    "place", ["meta", fb.device("meta"), {"cpu": "meta"}, lambda storage, location: None],
    ids=["str", "device", "dict", "function"],
)
def test_map_location(place):
    back = loaded(saved([tensor([[1.0, 2.0]]), 3]), map_location=place)

    assert back[0].device.type == ("cpu" if callable(place) and not isinstance(place, fb.device) else "meta")
    assert tuple(back[0].shape) == (1, 2)
    assert back[0].stride() == (2, 1)


def test_a_function_gets_each_storage_once_and_may_replace_it():
    x = tensor([1.0, 2.0])
    seen = []

    def replace(storage, location):
        seen.append((storage.nbytes(), location))
        return storage.clone().fill_(0)

    back = loaded(saved([x, wrap(array(x)[1:])]), map_location=replace)

    assert seen == [(8, "cpu")]
    assert [array(each).tolist() for each in back] == [[0, 0], [0]]
    assert back[0].untyped_storage() == back[1].untyped_storage()


def test_unknown_places_are_refused():
    elsewhere = archive_of(tensor_pickle(storage=reference(location="cuda:0")), [FOUR_FLOATS])

    assert array(loaded(elsewhere, map_location="cpu")).tolist() == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match=r"'moon'.*map_location"):
        loaded(saved(tensor([1.0])), map_location="moon")
    with pytest.raises(TypeError, match="float"):
        loaded(saved(tensor([1.0])), map_location=1.5)


def test_a_file_from_a_gpu_says_what_to_do_without_one():
    cuda = getattr(fb, "cuda", None)
    if cuda is not None and cuda.is_available():
        pytest.skip("there is a GPU")
    elsewhere = archive_of(tensor_pickle(storage=reference(location="cuda:0")), [FOUR_FLOATS])

    with pytest.raises(RuntimeError, match=r"cuda:0.*map_location='cpu'"):
        loaded(elsewhere)


# Files as a whole


def test_a_failed_save_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "x.pt"
    fb.save([1], path)

    with pytest.raises((pickle.PicklingError, AttributeError)):
        fb.save([tensor(range(1000)), lambda: None], path)

    assert fb.load(path) == [1]
    assert os.listdir(tmp_path) == ["x.pt"]


@pytest.mark.skipif(os.name != "posix", reason="modes and links of POSIX")
def test_saving_keeps_the_mode_and_follows_links(tmp_path):
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "x.pt"
    target.write_bytes(b"")
    target.chmod(0o640)
    (tmp_path / "link.pt").symlink_to(target)

    fb.save([1], tmp_path / "link.pt")

    assert (tmp_path / "link.pt").is_symlink()
    assert fb.load(target) == [1]
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_saving_to_a_device_writes_to_the_device():
    fb.save([1], os.devnull)

    assert not os.path.isfile(os.devnull)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda path: fb.save(1, path / "no" / "x.pt"), RuntimeError, "does not exist"),
        (lambda path: fb.save(1, path), RuntimeError, "is a folder"),
        (lambda path: fb.save(1, 3), AttributeError, "write"),
        (lambda path: fb.load(3), AttributeError, "read"),
        (lambda path: fb.load(path / "none.pt"), FileNotFoundError, "none.pt"),
        (lambda path: fb.load(io.BytesIO(b"")), EOFError, "empty"),
        (lambda path: fb.load(io.BytesIO(b"some other file")), pickle.UnpicklingError, "no .pt file"),
        (lambda path: fb.load(io.BytesIO(pickle.dumps([1], 2))), pickle.UnpicklingError, "not one that save"),
        (lambda path: fb.load(io.BytesIO(saved(1)), colour="red"), TypeError, "colour"),
        (lambda path: loaded(saved(1), weights_only=True, pickle_module=pickle), RuntimeError, "one or"),
    ],
)  # fmt: skip
def test_mistakes_are_named(tmp_path, call, error, message):
    with pytest.raises(error, match=message):
        call(tmp_path)


# Code in files


class Point:
    def __init__(self, x):
        self.x = x


class Restored(Point):
    def __setstate__(self, state):
        self.x = -state["x"]


class Tagged(fb.Tensor):
    pass


def test_classes_are_refused_until_they_are_allowed():
    data = saved(Point(tensor([1.0])))

    with pytest.raises(pickle.UnpicklingError, match=r"Point.*add_safe_globals\(\[Point\]\)"):
        loaded(data)
    with serialization.safe_globals([Point]):
        assert serialization.get_safe_globals() == [Point]
        assert array(loaded(data).x).tolist() == [1]
    assert serialization.get_safe_globals() == []


def test_allowed_classes_may_have_another_name_and_their_own_setstate():
    out = io.BytesIO(saved(Restored(3)))
    data = archive_of(zipfile.ZipFile(out).read("archive/data.pkl").replace(b"Restored", b"Restorxx"))

    serialization.add_safe_globals([(Restored, f"{__name__}.Restorxx")])
    try:
        assert loaded(data).x == -3
        assert serialization.get_safe_globals() == [(Restored, f"{__name__}.Restorxx")]
    finally:
        serialization.clear_safe_globals()


def test_tensor_classes_come_back_when_allowed():
    data = saved(tensor([1.0]).as_subclass(Tagged))

    with pytest.raises(pickle.UnpicklingError, match="Tagged"):
        loaded(data)
    with serialization.safe_globals([Tagged]):
        assert type(loaded(data)) is Tagged


def test_unsafe_loading_needs_its_context_and_only_in_this_thread():
    data = saved([print, tensor([1.0])])
    outcomes = []

    def elsewhere():
        try:
            loaded(data, weights_only=False)
        except pickle.UnpicklingError as error:
            outcomes.append(str(error))

    with pytest.raises(pickle.UnpicklingError, match="allow_unsafe_pickle"):
        loaded(data, weights_only=False)
    with serialization.allow_unsafe_pickle():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        back = loaded(data, weights_only=False)
        with pytest.raises(pickle.UnpicklingError):
            loaded(data)

    assert back[0] is print
    assert array(back[1]).tolist() == [1]
    assert "allow_unsafe_pickle" in outcomes[0]
    with pytest.raises(pickle.UnpicklingError, match="allow_unsafe_pickle"):
        loaded(data, weights_only=False)


@pytest.mark.parametrize("options", [{"weights_only": False}, {"pickle_module": pickle}], ids=["weights_only", "pickle_module"])
@pytest.mark.parametrize("modern", [True, False], ids=["zip", "legacy"])
def test_data_is_read_with_weights_only_false_as_well(audited, options, modern):
    model = {"epoch": 3, "weights": OrderedDict(a=tensor([1.0, 2.0])), "lr": np.float64(0.5)}
    loaded(saved(model, _use_new_zipfile_serialization=modern))
    audited.clear()
    back = loaded(saved(model, _use_new_zipfile_serialization=modern), **options)

    assert back["epoch"] == 3
    assert array(back["weights"]["a"]).tolist() == [1, 2]
    assert audited == []


def test_what_data_cannot_hold_is_named_with_the_ways_to_allow_it():
    with pytest.raises(pickle.UnpicklingError) as refused:
        loaded(saved(Point(1)), weights_only=False)

    for part in (f"{__name__}.Point", "add_safe_globals([Point])", "allow_unsafe_pickle()", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1"):
        assert part in str(refused.value)
    with serialization.safe_globals([Point]):
        assert loaded(saved(Point(1)), weights_only=False).x == 1


@pytest.mark.parametrize("value", ["1", "y", "YES", "true"])
def test_the_environment_allows_pickle_where_weights_only_is_not_asked_for(monkeypatch, value):
    data = saved([print])
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", value)

    assert loaded(data)[0] is print
    assert loaded(data, weights_only=False)[0] is print
    with pytest.raises(pickle.UnpicklingError):
        loaded(data, weights_only=True)

    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0")
    with pytest.raises(pickle.UnpicklingError):
        loaded(data)


def test_the_environment_forbids_pickle_everywhere(monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")

    with serialization.allow_unsafe_pickle(), pytest.raises(pickle.UnpicklingError):
        loaded(saved([print]), weights_only=False)


def test_the_names_a_file_would_need_are_listed_without_running_it():
    data = saved([Point(1), print, tensor([1.0])])

    names = serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(data))

    assert names == [f"{__name__}.Point", "builtins.print"]


HOSTILE = {
    "calls os.system": assemble(name("os", "system"), text("true"), b"\x85R"),
    "calls eval": assemble(name("__builtin__", "eval"), text("1"), b"\x85R"),
    "reaches through a module": assemble(name("torch", "serialization.os.system"), text("true"), b"\x85R"),
    "names a stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
    "calls a class it may only name": assemble(name("torch", "Tensor"), number(3), b"\x85R"),
    "calls text": assemble(text("print"), text("x"), b"\x85R"),
    "makes a tensor by NEWOBJ": assemble(name("torch", "Tensor"), b")\x81"),
    "changes a class": assemble(name("collections", "OrderedDict"), b"N}", text("items"), b"Ns\x86b"),
    "changes a tensor": assemble(tensor_pickle()[2:-1], b"}", text("_array"), b"Nsb"),
    "hides a method": assemble(name("collections", "OrderedDict"), b")R}", text("items"), b"Nsb"),
    "allocates a bytearray": assemble(name("__builtin__", "bytearray"), number(1 << 50), b"\x85R"),
    "has a factory": assemble(name("collections", "defaultdict"), name("torch", "Tensor"), b"\x85R"),
    "decodes with any codec": assemble(name("_codecs", "encode"), text("x"), text("rot13"), b"\x86R"),
    "appends to a tensor": assemble(tensor_pickle()[2:-1], b"Na"),
    "looks up any layout": assemble(name("torch.serialization", "_get_layout"), text("torch.nn"), b"\x85R"),
    "has an object array": assemble(name("numpy", "dtype"), text("O8"), b"\x89\x88\x87R"),
    "has keys that take for ever": assemble(b"}" + b")" + b"2\x86" * 64 + b"Ns"),
    "is a storage of no type": assemble(reference().replace(b"torch\nFloatStorage", b"torch\nSize")),
    "refers to something else": assemble(text("module"), b"Q"),
    "rebuilds with print": assemble(
        name("torch._tensor", "_rebuild_from_type_v2"), b"(", text("print"), name("torch", "Tensor"), b")NtR"
    ),
    "uses a protocol of text": b"(lp0\nI1\na.",
    "underflows": assemble(b"\x87"),
    "misses a memo": assemble(b"h\x07"),
    "ends early": b"\x80\x02]q\x00(K",
    "names no UTF-8": b"\x80\x02c\xff\n\xff\n.",
}  # fmt: skip


@pytest.fixture
def audited():
    """The events by which code would run, as Python's audit hooks see them while the fixture is in use."""
    events = []
    _audit.append(events)
    yield events
    _audit.clear()


_audit: list[list[str]] = []
_DANGEROUS = ("exec", "os.", "subprocess.", "socket.", "shutil.", "ctypes.", "pty.", "webbrowser.")


def _hook(event, args):
    if _audit and event.startswith(_DANGEROUS):
        _audit[0].append(event)


sys.addaudithook(_hook)


@pytest.mark.parametrize("pickled", HOSTILE.values(), ids=HOSTILE)
def test_hostile_pickles_are_refused_and_run_nothing(audited, pickled):
    data = archive_of(pickled, [FOUR_FLOATS])
    # Whatever loading imports by itself, it has imported after this.
    loaded(archive_of(tensor_pickle(), [FOUR_FLOATS]))
    audited.clear()

    with pytest.raises(REFUSALS):
        loaded(data)
    assert audited == []


def test_the_audit_would_see_code_run(audited):
    with serialization.allow_unsafe_pickle():
        loaded(archive_of(HOSTILE["calls os.system"]), weights_only=False)

    assert "os.system" in audited


def test_the_class_was_not_changed_by_trying():
    with pytest.raises(pickle.UnpicklingError):
        loaded(archive_of(HOSTILE["changes a class"]))

    assert list(OrderedDict(a=1).items()) == [("a", 1)]


@pytest.mark.parametrize(
    "geometry",
    [
        {"offset": 1}, {"offset": -1}, {"offset": 1 << 62}, {"size": (5,)}, {"size": (-4,)},
        {"stride": (-1,)},
        {"stride": (2,)}, {"size": (1 << 40, 1 << 40), "stride": (1, 1)},
        {"size": (1 << 62,), "stride": (1 << 62,)},
        {"size": (2, 2), "stride": (1,)}, {"size": (1 << 63,), "stride": (0,)}, {"offset": 4, "size": (1,)},
    ],
    ids=str,
)  # fmt: skip
def test_tensors_outside_their_storage_are_refused(geometry):
    with pytest.raises(RuntimeError, match="load: "):
        loaded(archive_of(tensor_pickle(**geometry), [FOUR_FLOATS]))


def test_tensors_at_the_edge_of_their_storage_are_read():
    edge = loaded(archive_of(tensor_pickle(offset=3, size=(1,)), [FOUR_FLOATS]))
    empty = loaded(archive_of(tensor_pickle(offset=4, size=(0, 9), stride=(9, 1)), [FOUR_FLOATS]))
    expanded = loaded(archive_of(tensor_pickle(offset=1, size=(1000,), stride=(0,)), [FOUR_FLOATS]))

    assert array(edge).tolist() == [3]
    assert tuple(empty.shape) == (0, 9)
    assert array(expanded).sum() == 1000


def conjugate_pickle(size, stride, metadata):
    plain = tensor_pickle(0, size, stride, reference("ComplexFloatStorage", numel=2))
    return plain.replace(b")RtR.", b")R" + metadata + b"tR.")


CONJ = b"}" + text("conj") + b"\x88s"


def test_a_conjugate_takes_no_more_memory_than_the_file_holds():
    data = archive_of(conjugate_pickle((1 << 20, 1 << 20), (0, 0), CONJ), [FOUR_FLOATS])
    back = loaded(data)

    assert back.shape == (1 << 20, 1 << 20)
    assert back[5, 7].item() == -1j
    assert back.untyped_storage().nbytes() == len(FOUR_FLOATS)


@pytest.mark.parametrize("metadata", [b"K\x01", b"]", text("conj"), CONJ + b"\x85"], ids=str)
def test_metadata_that_is_no_dict_is_refused(metadata):
    with pytest.raises(REFUSALS, match="load: "):
        loaded(archive_of(conjugate_pickle((2,), (1,), metadata), [FOUR_FLOATS]))


LONG = b"X" + struct.pack("<I", 1 << 18) + b"a" * (1 << 18)
COPIES = {
    "text encoded anew": (LONG, name("_codecs", "encode"), text("latin1"), b"\x86R"),
    "bytes as a bytearray": (b"B" + LONG[1:], name("__builtin__", "bytearray"), b"", b"\x85R"),
    "a list as a set": (b"](" + b"K\x01" * (1 << 18) + b"e", name("__builtin__", "set"), b"", b"\x85R"),
    "a tuple as a size": (b"(" + b"K\x01" * (1 << 18) + b"t", name("torch", "Size"), b"", b"\x85R"),
    "a tuple as a key": (b"(" + b"K\x01" * (1 << 18) + b"t", b"", b"", b"}h\x000h\x00Ns"),
    "a number as a key": (b"\x8b" + struct.pack("<I", 1 << 18) + b"\x01" * (1 << 18), b"", b"", b"}h\x000h\x00Ns"),
}  # fmt: skip


@pytest.mark.parametrize("kind", COPIES)
def test_what_is_copied_over_and_over_is_refused(kind):
    value, function, argument, call = COPIES[kind]
    first = b"\x80\x02" + value + b"q\x000" + (function + b"q\x010" if function else b"")
    once = (b"h\x01" if function else b"") + (b"h\x00" if function else b"") + argument + call
    if not function:
        once = b"}h\x00Ns"

    loaded(archive_of(first + once + b"."))
    with pytest.raises(pickle.UnpicklingError, match="over and over"):
        loaded(archive_of(first + b"(" + once * 5000 + b"l."))


def test_names_are_not_put_together_without_end():
    long = b"X" + struct.pack("<I", 1 << 18) + b"a" * (1 << 18)
    data = archive_of(b"\x80\x04" + long + b"q\x000" + b"h\x00h\x00\x930" * 5000 + b"N.")

    with pytest.raises(pickle.UnpicklingError, match="characters"):
        loaded(data)
    with pytest.raises(pickle.UnpicklingError, match="characters"):
        serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(data))


@pytest.mark.parametrize("order", "<>")
def test_text_of_what_are_no_characters_is_refused(order):
    text_array = np.array(["a", "b"]).astype(order + "U1")
    good = saved(text_array, pickle_protocol=4)
    bad = archive_of(ArchiveReader(io.BytesIO(good)).read("data.pkl").tobytes().replace(text_array.tobytes(), b"\x7f" * 8))

    np.testing.assert_array_equal(loaded(good), text_array)
    with pytest.raises(pickle.UnpicklingError, match="no character"):
        loaded(bad)


@pytest.mark.parametrize("numel", [3, 5, -4, 0, 1 << 60])
def test_storages_must_have_the_size_of_their_record(numel):
    with pytest.raises(RuntimeError, match="load: "):
        loaded(archive_of(tensor_pickle(storage=reference(numel=numel)), [FOUR_FLOATS]))


def test_storages_must_be_in_the_archive():
    with pytest.raises(RuntimeError, match="data/7"):
        loaded(archive_of(tensor_pickle(storage=reference(key="7")), [FOUR_FLOATS]))
    with pytest.raises(RuntimeError, match="no record"):
        loaded(archive_of(tensor_pickle(storage=reference(key="../version")), [FOUR_FLOATS]))


def test_names_that_programs_import_are_there():
    from flambeau.serialization import (
        DEFAULT_PROTOCOL,
        FILE_LIKE,
        MAP_LOCATION,
        FileLike,
        SourceChangeWarning,
    )

    assert DEFAULT_PROTOCOL == 2
    assert {str, fb.device} < set(typing.get_args(MAP_LOCATION))
    assert FILE_LIKE is FileLike
    assert issubclass(SourceChangeWarning, Warning)
    assert serialization.normalize_storage_type(fb.FloatStorage) is fb.FloatStorage
    with pytest.raises(ValueError, match="cpu"):
        serialization.validate_cuda_device("cpu")


# Damage


def test_every_truncation_is_noticed():
    obj = [tensor(range(20)), "x"]
    for data in (saved(obj), saved(obj, _use_new_zipfile_serialization=False)):
        for end in range(0, len(data), 7):
            with pytest.raises(REFUSALS):
                loaded(data[:end])


def test_a_flipped_bit_in_the_data_is_noticed():
    data = bytearray(saved(tensor(range(1000))))
    data[data.find(struct.pack("<f", 500.0))] ^= 1

    with pytest.raises(RuntimeError, match="CRC-32"):
        loaded(bytes(data))


@given(position=st.integers(0, 10**6), value=st.integers(0, 255))
def test_any_changed_byte_is_refused_or_harmless(position, value):
    data = bytearray(saved({"a": tensor(range(8)), "b": [1, "x", (2.5, None)]}))
    data[position % len(data)] = value

    try:
        back = loaded(bytes(data))
    except REFUSALS:
        return
    assert array(back["a"]).tolist() == list(range(8))


@given(position=st.integers(0, 10**6), value=st.integers(0, 255))
def test_any_changed_byte_of_the_older_format_is_refused_or_loads(position, value):
    obj = {"a": tensor(range(8)), "b": [1, "x", (2.5, None)]}
    data = bytearray(saved(obj, _use_new_zipfile_serialization=False))
    data[position % len(data)] = value

    try:
        loaded(bytes(data))
    except REFUSALS:
        return


class _OneStorage:
    """Answers every reference with the same four floats."""

    def get(self, kind, key, location, numel):
        from flambeau._files.storages import LoadedStorage

        return LoadedStorage(wrap(np.frombuffer(bytearray(FOUR_FLOATS), np.uint8)), fb.float32)


_PARTS = st.one_of(
    st.sampled_from(sorted(pickle_machine._STEPS)).map(lambda opcode: bytes([opcode])),
    st.binary(max_size=4),
    st.sampled_from([
        name("torch._utils", "_rebuild_tensor_v2"), name("torch._utils", "_rebuild_parameter"), reference(),
        name("collections", "OrderedDict"), name("torch", "Size"), name("torch", "float32"),
        name("numpy", "dtype"),
        name("numpy", "ndarray"), name("numpy._core.multiarray", "_reconstruct"), name("torch", "Tensor"),
        name("numpy._core.multiarray", "scalar"), name("__builtin__", "set"), name("__builtin__", "getattr"),
        name("torch._tensor", "_rebuild_from_type_v2"), name("os", "system"), text("f4"), text("cpu"),
        text("_array"),
        b"K\x01", b"K\x02\x85", b"K\x01\x85", b"\x89", b")R", b"}", b"]", b"tR", b"\x85R", b"\x87R", b"q\x00",
        b"h\x00",
    ]),
)  # fmt: skip


@given(parts=st.lists(_PARTS, max_size=40))
def test_no_sequence_of_instructions_does_anything_but_fail_or_make_data(parts):
    events = []
    policy = TorchPolicy(_OneStorage(), {})
    _audit.append(events)
    try:
        pickle_machine.run(b"\x80\x02" + b"".join(parts) + b".", policy)
    except REFUSALS:
        pass
    finally:
        _audit.clear()

    assert events == []


# Archives that are not what they seem


def rezipped(data, method=zipfile.ZIP_STORED, rename=lambda name: name):
    source, out = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as target:
        for record in source.namelist():
            target.writestr(rename(record), source.read(record))
    return out.getvalue()


def test_other_zip_writers_are_read():
    assert array(loaded(rezipped(saved(tensor([1.0, 2.0]))))).tolist() == [1, 2]


def test_unaligned_records_can_be_mapped(tmp_path):
    data = saved(tensor(range(50), "float64"))
    (tmp_path / "x.pt").write_bytes(rezipped(data, rename=lambda name: "a" + name[7:]))

    assert array(fb.load(tmp_path / "x.pt", mmap=True)).tolist() == list(range(50))


def test_compressed_archives_are_refused():
    with pytest.raises(RuntimeError, match=r"compressed.*zip -0"):
        loaded(rezipped(saved(tensor(np.zeros(10000))), zipfile.ZIP_DEFLATED))


@pytest.mark.parametrize("bad", ["/etc/x", "a/../x", "a\\x"])
def test_unsafe_record_names_are_refused(bad):
    data = rezipped(saved(1), rename=lambda name: bad if name.endswith("byteorder") else name)

    with pytest.raises(RuntimeError, match="unsafe name"):
        loaded(data)


def test_overlapping_records_are_refused():
    data = saved([tensor(range(100)), tensor(range(100, 200))])
    reader = ArchiveReader(io.BytesIO(data))
    first, second = reader.record("data/0"), reader.record("data/1")
    # The second directory entry points to the first record, whose local header is renamed to match neither or
    # both.
    at = data.rfind(b"archive/data/1") - 46 + 42
    forged = data[:at] + struct.pack("<I", first.header) + data[at + 4 :]

    assert struct.unpack_from("<I", data, at) == (second.header,)
    with pytest.raises(RuntimeError, match="names another record"):
        loaded(forged)


def test_duplicate_records_are_refused():
    with pytest.warns(UserWarning, match="Duplicate name"):
        data = rezipped(saved(1), rename=lambda name: "archive/version" if "byteorder" in name else name)

    with pytest.raises(RuntimeError, match="same name"):
        loaded(data)


def test_archives_of_something_else_are_refused():
    with pytest.raises(RuntimeError, match="version"):
        loaded(archive_of(assemble(b"N"), version=None))
    with pytest.raises(RuntimeError, match="weights_only"), pytest.warns(UserWarning, match=r"jit\.load"):
        loaded(archive_of(assemble(b"N"), byteorder=None, **{"constants.pkl": b"."}))
    with pytest.raises(NotImplementedError, match="tar"):
        loaded(b"sys_info".ljust(257, b"\0") + b"ustar" + bytes(1000))


def test_large_sizes_use_the_wide_fields():
    out = io.BytesIO()
    writer = ArchiveWriter(out, "a")
    writer._at = 5 << 30  # as if five gigabytes had been written
    writer.add("x", b"data")
    writer.close()
    data = out.getvalue()

    start = data.find(b"PK\x01\x02")
    entries = _directory_entries(data[start : data.find(_END64_MAGIC)])
    assert [(entry.name, entry.header, entry.size) for entry in entries] == [("a/x", 5 << 30, 4)]


def test_what_is_saved_to_an_open_file_can_be_read_before_it_is_closed(tmp_path):
    path = tmp_path / "x.pt"
    with open(path, "wb") as file:
        fb.save(fb.ones(3), file)

        assert fb.load(path).tolist() == [1, 1, 1]


def test_a_legacy_file_is_loaded_without_a_second_copy_of_its_tensors(tmp_path):
    fb.save(fb.ones(1_000_000), tmp_path / "x.pt", _use_new_zipfile_serialization=False)

    with peak_of() as peak:
        fb.load(tmp_path / "x.pt")

    assert peak() < 1.5 * 4_000_000


def test_fake_tensors_are_written_as_tensors_with_room_for_their_values():
    from flambeau._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        whole, layer = fb.randn(4, 3, dtype=fb.float64), fb.nn.Linear(2, 3)
        nowhere = fb.ones(2, device="meta")
        fakes = {"whole": whole, "part": whole[1:, ::2], "state": layer.state_dict(), "weight": layer.weight, "meta": nowhere}
    with fb.serialization.skip_data(materialize_fake_tensors=True):
        data = saved(fakes)

    made = loaded(data)
    made["whole"][2, 2] = 7.0
    assert made["part"].tolist() == [[0.0, 0.0], [0.0, 7.0], [0.0, 0.0]]
    assert made["part"].stride() == (3, 2)
    assert made["state"]["bias"].tolist() == [0.0] * 3
    assert isinstance(made["weight"], Parameter)
    assert made["weight"].requires_grad
    assert made["weight"].untyped_storage().data_ptr() == made["state"]["weight"].untyped_storage().data_ptr()
    assert made["meta"].is_meta
    assert len(data) > 4 * 3 * 8 + 3 * 2 * 4 + 3 * 4


@pytest.mark.oracle
def test_pytorch_reads_fake_tensors_that_were_written_as_tensors(oracle):
    from flambeau._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fakes = {"a": fb.ones(2, 3, dtype=fb.bfloat16), "p": fb.nn.Parameter(fb.ones(2))}
    with fb.serialization.skip_data(materialize_fake_tensors=True), mode:
        data = saved(fakes)

    made = oracle.load(io.BytesIO(data))
    assert made["a"].equal(oracle.zeros(2, 3, dtype=oracle.bfloat16))
    assert isinstance(made["p"], oracle.nn.Parameter)


def test_skip_data_holds_until_the_context_ends():
    with fb.serialization.skip_data(materialize_fake_tensors=True):
        with fb.serialization.skip_data():
            assert loaded(saved(fb.ones(2))).tolist() == [0.0, 0.0]
        assert serialization._options.materializes

    assert not serialization._options.materializes
    assert loaded(saved(fb.ones(2))).tolist() == [1.0, 1.0]

"""Pickles of tensors that programs write in the name of torch: PyTorch reads them, and they call what PyTorch's call."""

from __future__ import annotations

import io
import pickle

import pytest

import flambeau as fb
from flambeau import serialization

MAKE = """
import io, pickle, pickletools, sys, torch, warnings
warnings.simplefilter("ignore")
class Named(torch.Tensor):
    pass
marked = torch.arange(3.0)
marked.note = ["a"]
made = [
    torch.ones(2), torch.ones(2, dtype=torch.uint16), torch.ones(2, dtype=torch.bfloat16), torch.empty(0, 3), torch.tensor(3.0),
    torch.arange(6.0).view(2, 3).t(), torch.arange(20).view(4, 5)[:, 2], torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
    torch.ones(3, requires_grad=True), torch.ones(2, dtype=torch.complex64).mul(1j).conj(), torch.empty(2, 3, device="meta"),
    torch.nn.Parameter(torch.ones(2)), torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr(), torch.eye(3).to_sparse_csc(),
    marked, torch.ones(3).as_subclass(Named), torch.ones(2).storage(),
    torch.device("cpu"), torch.Size([1, 2]), torch.float32, torch.sparse_coo,
]
def say(x):
    if not isinstance(x, torch.Tensor):
        return str(x)
    values = None if x.is_meta else (x.to_dense() if x.layout is not torch.strided else x).tolist()
    place = x.stride() if x.layout is torch.strided and x.dim() > 1 else None  # of a column, only its elements travel
    return str((type(x).__name__, x.dtype, tuple(x.shape), x.layout, x.requires_grad, place, getattr(x, "note", None), values))
"""
WRITE = MAKE + """
for protocol in (2, 5):
    with open(f"{sys.argv[1]}/{protocol}", "wb") as file:
        pickle.dump(made, file, protocol)
"""
READ = MAKE + """
for protocol in (2, 5):
    with open(f"{sys.argv[1]}/{protocol}", "rb") as file:
        for x in pickle.load(file):
            print(say(x))
"""
SAY = MAKE + "for x in made + made:\n    print(say(x))\n"


@pytest.mark.oracle
@pytest.mark.parametrize(("writes", "reads"), [("1", "0"), ("0", "1"), ("1", "1")])
def test_tensors_arrive_in_the_other_library(writes, reads, tmp_path, fresh_python, oracle):
    fresh_python("-c", WRITE, tmp_path, FLAMBEAU_AS_TORCH=writes)

    assert fresh_python("-c", READ, tmp_path, FLAMBEAU_AS_TORCH=reads) == fresh_python("-c", SAY, FLAMBEAU_AS_TORCH="0")


# Names in the order of the pickle; beside them Python's own, in which protocol 2 writes bytes.
NAMES = MAKE + """
for x in (made[0], made[1], made[10], made[11], marked, made[17]):
    names = [argument.split() for op, argument, _ in pickletools.genops(pickle.dumps(x, 2)) if op.name == "GLOBAL"]
    print(*[".".join(name) for name in names if name[0] not in ("_codecs", "collections")])
"""


@pytest.mark.oracle
def test_pickles_call_what_pytorchs_call(fresh_python, oracle):
    ours, theirs = (fresh_python("-c", NAMES, FLAMBEAU_AS_TORCH=as_torch) for as_torch in "10")

    assert ours == theirs


def test_an_unpickler_can_load_storages_by_itself(fresh_python):
    program = MAKE + """
class Elsewhere(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return lambda data: torch.load(io.BytesIO(data), map_location="meta")
        return super().find_class(module, name)
print(Elsewhere(io.BytesIO(pickle.dumps(torch.ones(2)))).load().device)
"""
    assert fresh_python("-c", program, FLAMBEAU_AS_TORCH="1") == "meta\n"


def test_memory_formats_arrive_as_pytorch_names_them(fresh_python):
    program = MAKE + 'print(pickle.loads(b"\\x80\\x04\\x8c\\x0ctorch._utils\\x8c\\x13torch.channels_last\\x93."))'

    assert fresh_python("-c", program, FLAMBEAU_AS_TORCH="1") == "torch.channels_last\n"


def test_a_pickle_holds_no_more_than_the_tensor(fresh_python):
    program = MAKE + "print(len(pickle.dumps(torch.ones(100000)[:2])) < 1000)"

    assert fresh_python("-c", program, FLAMBEAU_AS_TORCH="1") == "True\n"


def test_under_its_own_name_the_library_names_itself(fresh_python):
    program = """
import pickle, flambeau as fb
from flambeau import swap
own = pickle.dumps(fb.ones(2))
swap.install()
import torch
other = pickle.dumps(torch.ones(2))
swap.uninstall()
print(b"torch" in own, b"torch.storage" in other, pickle.dumps(fb.ones(2)) == own, fb.float32.__class__.__module__)
"""
    assert fresh_python("-c", program) == "False True True flambeau\n"


@pytest.mark.parametrize("dtype", [fb.float32, fb.bfloat16, fb.int64, fb.bool, fb.complex64, fb.uint8])
@pytest.mark.parametrize("count", [0, 1, 255, 256, 65535, 65536])
def test_the_file_of_a_storage_is_what_the_pickler_writes_and_is_read_back(dtype, count):
    values = fb.arange(count, dtype=fb.int64).to(dtype)
    storage = fb.TypedStorage(wrap_storage=values.untyped_storage(), dtype=dtype)
    file = io.BytesIO()
    serialization.save(storage, file, _use_new_zipfile_serialization=False)
    written = serialization.write_storage(storage)

    assert written == file.getvalue()
    again = serialization.read_storage(written)
    assert (again.dtype, again.untyped().tolist()) == (dtype, storage.untyped().tolist())
    assert again.data_ptr() != storage.data_ptr() or not count


def test_files_of_a_storage_that_are_unlike_most_are_read_as_well_or_refused():
    storage = fb.FloatStorage([1.0, 2.0])
    written = serialization.write_storage(storage)
    file = io.BytesIO()
    serialization.save(storage, file, pickle_protocol=4, _use_new_zipfile_serialization=False)

    assert serialization.read_storage(file.getvalue()).tolist() == [1, 2]
    for damaged in (written[:-1], written[:60], written.replace(b"FloatStorage", b"OtherStorage")):
        with pytest.raises((EOFError, RuntimeError, pickle.UnpicklingError)):
            serialization.read_storage(damaged)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_more_objects_than_one_byte_counts_are_found_again(protocol):
    values = {f"{i}": (i, i / 2, None, True, b"x", [i], fb.full((2,), float(i))) for i in range(200)}
    values["again"] = values["7"]
    file = io.BytesIO()
    fb.save(values, file, pickle_protocol=protocol)
    file.seek(0)
    read = fb.load(file)

    assert read["again"] is read["7"]
    assert all(read[name][:6] == value[:6] and fb.equal(read[name][6], value[6]) for name, value in values.items())

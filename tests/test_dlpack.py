"""Memory that other libraries share with tensors: DLPack's objects and capsules, buffers, numpy's arrays."""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import weakref
from typing import Any

import numpy as np
import pytest

import flambeau as fb

DTYPES = [
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "uint16", "uint32", "uint64",
    "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
]  # fmt: skip


class Exporter:
    """Another library's array, which answers as DLPack before 1.0, or with `versioned` as after it."""

    def __init__(self, tensor: Any, versioned: bool = True) -> None:
        self.tensor, self.versioned = tensor, versioned

    def __dlpack__(self, **options: Any) -> Any:
        if options and not self.versioned:
            raise TypeError(f"__dlpack__() got unexpected keyword arguments {sorted(options)}")
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


# -- DLPack --------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")  # PyTorch's, about itself
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_goes_to_pytorch_and_back_over_the_same_memory(oracle: Any, dtype: str) -> None:
    ours = fb.tensor([0.0, 1.0, 2.0, 0.5]).to(getattr(fb, dtype))
    theirs = oracle.from_dlpack(ours)
    back = fb.from_dlpack(theirs)

    assert theirs.dtype is getattr(oracle, dtype)
    assert back.dtype is ours.dtype
    assert ours.data_ptr() == theirs.data_ptr() == back.data_ptr()
    assert theirs.view(oracle.uint8).tolist() == ours.view(fb.uint8).tolist()


@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
@pytest.mark.parametrize("version", [None, (0, 8), (1, 0)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2", "complex32", "bool"])
def test_capsules_of_either_version_are_read_and_written(oracle: Any, dtype: str, version: Any) -> None:
    theirs = oracle.ones(2, 3).to(getattr(oracle, dtype))
    ours = fb.ones(2, 3).to(getattr(fb, dtype))

    there = oracle.from_dlpack(ours.t().__dlpack__(max_version=version))
    here = fb.from_dlpack(theirs.t().__dlpack__(max_version=version))
    here.zero_()

    assert (there.stride(), there.data_ptr()) == ((1, 3), ours.data_ptr())
    assert (here.stride(), here.data_ptr(), here.dtype) == ((1, 3), theirs.data_ptr(), ours.dtype)
    assert not theirs.view(oracle.uint8).any()


def test_what_a_capsule_refers_to_lives_as_long_as_the_tensor() -> None:
    owner = np.arange(1000.0)
    gone = weakref.ref(owner)
    capsule = fb.from_numpy(owner).bfloat16().__dlpack__()
    made = fb.from_dlpack(capsule)
    shared = fb.from_dlpack(fb.from_numpy(owner).__dlpack__())
    del owner, capsule
    gc.collect()

    assert made[::100].tolist() == [0, 100, 200, 300, 400, 500, 600, 700, 800, 900]
    assert gone() is not None
    assert shared[-1].item() == 999
    del shared
    gc.collect()
    assert gone() is None


def test_a_capsule_is_used_once() -> None:
    capsule = fb.ones(2).__dlpack__()
    fb.from_dlpack(capsule)

    with pytest.raises(RuntimeError, match="consumed only once"):
        fb.from_dlpack(capsule)


@pytest.mark.parametrize("wrong", [3, None, [1.0], "text"])
def test_what_exports_nothing_is_named(wrong: Any) -> None:
    with pytest.raises(RuntimeError, match=f"invalid capsule.*{type(wrong).__name__}"):
        fb.from_dlpack(wrong)


def test_capsules_of_other_things_are_refused() -> None:
    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    name = ctypes.create_string_buffer(b"something.else")
    capsule = prototype(("PyCapsule_New", ctypes.pythonapi))(ctypes.addressof(name), ctypes.addressof(name), None)

    with pytest.raises(RuntimeError, match=r"something\.else"):
        fb.from_dlpack(capsule)


@pytest.mark.parametrize("versioned", [True, False])
def test_from_dlpack_copies_where_it_is_asked_to(versioned: bool) -> None:
    source = fb.arange(4.0)

    shared = [fb.from_dlpack(Exporter(source, versioned), copy=copy) for copy in (None, False)]
    copied = fb.from_dlpack(Exporter(source, versioned), copy=True, device="cpu")
    copied.zero_()

    assert [x.data_ptr() for x in shared] == [source.data_ptr()] * 2
    assert source.tolist() == [0, 1, 2, 3]


def test_from_dlpack_options_are_checked_as_in_pytorch(oracle: Any) -> None:
    for torch in (fb, oracle):
        with pytest.raises(AssertionError, match="device and copy"):
            torch.from_dlpack(torch.ones(2).__dlpack__(), copy=False)
        with pytest.raises(AssertionError, match="device and copy"):
            torch.from_dlpack(torch.ones(2).__dlpack__(), device="cpu")
        with pytest.raises(AssertionError, match="device type"):
            torch.from_dlpack(torch.ones(2), device=(1, 0))
        with pytest.raises(BufferError, match="meta"):
            torch.from_dlpack(torch.ones(2), device="meta")
        assert torch.from_dlpack(torch.ones(2), device=torch.device("cpu")).tolist() == [1, 1]


def test_what_cannot_be_exported_is_named_as_in_pytorch(oracle: Any) -> None:
    for torch in (fb, oracle):
        with pytest.raises(BufferError, match="require gradient"):
            torch.ones(2, requires_grad=True).__dlpack__()
        with pytest.raises(BufferError, match="meta"):
            torch.ones(2, device="meta").__dlpack__()
        with pytest.raises(ValueError, match="meta"):
            torch.ones(2, device="meta").__dlpack_device__()
        with pytest.raises(AssertionError, match="stream should be None"):
            torch.ones(2).__dlpack__(stream=1)
        x = torch.ones(2)
        assert tuple(x.__dlpack_device__()) == (1, 0)
        assert torch.from_dlpack(x.__dlpack__(stream=-1, dl_device=(1, 0))).data_ptr() == x.data_ptr()
        assert torch.from_dlpack(x.__dlpack__(copy=True)).data_ptr() != x.data_ptr()


@pytest.mark.parametrize("values", [np.zeros((0, 3)), np.array(3.0), np.arange(6.0).reshape(2, 3)[:, ::2], np.array([True])], ids=repr)
def test_arrays_of_every_shape_are_shared(values: np.ndarray) -> None:
    made = fb.from_dlpack(values)

    np.testing.assert_array_equal(made.numpy(), values)
    assert made.shape == values.shape


def test_memory_that_tensors_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        fb.from_dlpack(np.arange(3.0)[::-1])
    with pytest.raises(BufferError):
        fb.from_dlpack(np.zeros(3, ">f4"))


def test_read_only_memory_stays_so() -> None:
    values = np.arange(3.0)
    values.setflags(write=False)

    with pytest.raises(RuntimeError, match="read-only"):
        fb.from_dlpack(values).zero_()


# -- asarray -------------------------------------------------------------------------------------------------------------

BUFFERS = {
    "bytearray": lambda: bytearray(range(16)),
    "memoryview": lambda: memoryview(bytearray(range(16))),
    "memoryview of rows": lambda: memoryview(bytearray(range(16))).cast("B", (2, 8)),
    "array": lambda: array.array("f", [1, 2, 3, 4]),
    "ctypes": lambda: (ctypes.c_float * 4)(1, 2, 3, 4),
}


@pytest.mark.parametrize("kind", BUFFERS)
@pytest.mark.parametrize("dtype", [None, "float32", "uint8", "float64"])
def test_asarray_reads_buffers_as_pytorch(oracle: Any, kind: str, dtype: str | None) -> None:
    buffer = BUFFERS[kind]()
    found = {}
    for name, torch in (("ours", fb), ("theirs", oracle)):
        d = None if dtype is None else getattr(torch, dtype)
        first = torch.frombuffer(buffer, dtype=torch.uint8).data_ptr()
        made = {copy: torch.asarray(buffer, dtype=d, copy=copy) for copy in (None, False, True)}
        found[name] = [(x.view(torch.uint8).tolist(), x.shape, x.data_ptr() == first) for x in made.values()]

    assert found["ours"] == found["theirs"]
    assert [aliases for *_, aliases in found["ours"]] == [True, True, False]


def test_asarray_copy_leaves_the_source_alone() -> None:
    held = fb.zeros(2)
    for source in (bytearray(8), np.zeros(2, np.float32), fb.zeros(2), array.array("f", [0, 0]), Exporter(fb.zeros(2))):
        fb.asarray(source, dtype=fb.float32, copy=True).fill_(7)
        assert fb.asarray(source, dtype=fb.float32).tolist() == [0, 0]
    fb.asarray(held.__dlpack__(), copy=True).fill_(7)

    assert held.tolist() == [0, 0]


def test_asarray_shares_the_memory_of_capsules_and_exporters() -> None:
    source = fb.arange(3.0).bfloat16()
    for given in (source.__dlpack__(), source.__dlpack__(max_version=(1, 0)), Exporter(source), Exporter(source, versioned=False)):
        made = fb.asarray(given, copy=False)
        assert made.data_ptr() == source.data_ptr()
        assert made.dtype is fb.bfloat16
    assert fb.asarray(source.__dlpack__(), dtype=fb.float64).tolist() == [0, 1, 2]


def test_asarray_of_bytes_warns_only_where_it_shares_them(recwarn: Any) -> None:
    fb.set_warn_always(True)
    try:
        assert fb.asarray(b"\1\2", dtype=fb.uint8, copy=True).tolist() == [1, 2]
        assert not recwarn.list
        fb.asarray(b"\1\2", dtype=fb.uint8)
    finally:
        fb.set_warn_always(False)
    assert "not writable" in str(recwarn.pop(UserWarning).message)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda torch: torch.asarray(np.float64(3), copy=False), RuntimeError),
        (lambda torch: torch.asarray([1, 2], copy=False), ValueError),
        (lambda torch: torch.asarray(3, copy=False), ValueError),
        (lambda torch: torch.asarray(np.zeros(2), dtype=torch.float32, copy=False), ValueError),
        (lambda torch: torch.asarray(torch.ones(2), device="meta", copy=False), ValueError),
        (lambda torch: torch.asarray(bytearray()), ValueError),
        (lambda torch: torch.asarray(bytearray(5)), ValueError),
        (lambda torch: torch.asarray(bytearray(4), dtype=torch.uint8, requires_grad=True), RuntimeError),
        (lambda torch: torch.asarray("ab"), TypeError),
        (lambda torch: torch.asarray(None), RuntimeError),
    ],
    ids=range(10),
)  # fmt: skip
def test_asarray_refuses_what_pytorch_refuses(oracle: Any, call: Any, error: type[Exception]) -> None:
    for torch in (oracle, fb):
        with pytest.raises(error):
            call(torch)


@pytest.mark.filterwarnings("ignore:.*unspecified requires_grad:UserWarning")  # PyTorch's, about a change
@pytest.mark.filterwarnings("ignore:asarray. requires_grad was left out")
def test_asarray_and_gradients_are_pytorchs(oracle: Any) -> None:
    def facts(torch: Any) -> list[tuple[bool, ...]]:
        x, y = torch.ones(2), torch.ones(2, requires_grad=True)
        made = []
        for source in (x, y, y * 2):
            for options in ({}, {"requires_grad": False}, {"requires_grad": True}, {"copy": True}, {"dtype": torch.float64}):
                z = torch.asarray(source, **options)
                made.append((z is source, z.requires_grad, z.is_leaf, z.data_ptr() == source.data_ptr()))
        return made

    assert facts(fb) == facts(oracle)


# -- numpy ---------------------------------------------------------------------------------------------------------------


def changes() -> dict[str, Any]:
    def strides(a: np.ndarray) -> None:
        a.strides = (8, 8)

    def shape(a: np.ndarray) -> None:
        a.shape = (6,)

    def kind(a: np.ndarray) -> None:
        a.dtype = np.int32

    return {
        "shape": shape, "strides": strides, "dtype": kind, "flags": lambda a: a.setflags(write=False),
        "resize": lambda a: a.resize((12,)),
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # numpy's, of setting what its arrays are
@pytest.mark.parametrize("change", changes())
@pytest.mark.parametrize("way", ["numpy", "asarray", "from_numpy", "as_tensor", "fb.asarray", "from_dlpack", "frombuffer"])
def test_what_is_done_to_the_array_does_not_change_the_tensor(way: str, change: str) -> None:
    if way in ("numpy", "asarray"):
        tensor = fb.arange(6.0).reshape(2, 3)
        given = tensor.numpy() if way == "numpy" else np.asarray(tensor)
    else:
        given = np.arange(6.0, dtype=np.float32).reshape(2, 3)
        make = {"fb.asarray": fb.asarray, "frombuffer": lambda a: fb.frombuffer(a, dtype=fb.float32).reshape(2, 3)}
        tensor = make.get(way, getattr(fb, way.rpartition(".")[2]))(given)
    with contextlib.suppress(ValueError):  # numpy refuses where somebody else looks at the memory
        changes()[change](given)

    assert tensor.shape == (2, 3)
    assert tensor.stride() == (3, 1)
    assert tensor.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tensor.add_(1)[0, 0].item() == 1


def test_the_array_of_a_tensor_does_not_own_its_memory() -> None:
    given = fb.arange(6.0).numpy()

    with pytest.raises(ValueError, match="own"):
        given.resize((1 << 20,), refcheck=False)


def test_numpy_and_the_tensor_still_share_memory() -> None:
    tensor = fb.zeros(3)
    first, second = tensor.numpy(), tensor.numpy()
    first[0] = 1
    tensor[1] = 2

    assert first is not second
    assert second.tolist() == tensor.tolist() == [1, 2, 0]


def test_tensors_are_arrays_to_numpy_without_saying_where_their_memory_is(oracle: Any) -> None:
    for torch in (fb, oracle):
        assert not hasattr(torch.ones(2), "__array_interface__")
        assert np.asarray(torch.ones(2)).tolist() == [1, 1]
        assert np.add(torch.ones(2).numpy(), 1).tolist() == [2, 2]
        with pytest.raises(RuntimeError, match="requires grad"):
            np.asarray(torch.ones(2, requires_grad=True))

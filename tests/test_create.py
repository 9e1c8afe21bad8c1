"""Making tensors: from values, sizes, ranges and other libraries' memory."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from comparing import disagreements
from flambeau import _state


def test_nested_values_become_rows() -> None:
    made = fb.tensor([[1, 2, 3], [4, 5, 6]])

    assert made.shape == (2, 3)
    assert made.dtype is fb.int64
    assert made.numpy().tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_ragged_sequence_is_refused_with_the_place() -> None:
    with pytest.raises(ValueError, match=r"length 2 at dim 1 \(got 1"):
        fb.tensor([[1, 2], [3]])


def test_a_number_that_does_not_fit_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"uint8.*300"):
        fb.full((2,), 300, dtype=fb.uint8)


def test_the_storage_of_from_numpy_is_the_array_that_was_given() -> None:
    whole = np.arange(24.0).reshape(2, 3, 4)
    for part in (whole[1], whole[1].T, whole[1, :, :1]):
        made = fb.from_numpy(part)

        assert made.storage_offset() == 0
        assert made[1].storage_offset() == part.strides[0] // 8
        assert made.untyped_storage().data_ptr() == part.ctypes.data


def test_from_numpy_refuses_strides_that_tensors_do_not_have() -> None:
    for wrong in (np.zeros((4, 3))[::-1], np.zeros((4, 3))[:1][::-1]):
        with pytest.raises(ValueError, match="negative"):
            fb.from_numpy(wrong)
    with pytest.raises(ValueError, match="byte order"):
        fb.from_numpy(np.zeros(3, ">f4"))


@pytest.mark.parametrize("make", [fb.from_numpy, fb.tensor, fb.as_tensor, fb.asarray])
def test_arrays_whose_dtype_has_metadata_or_is_another_type_of_c_are_like_others(make: Any) -> None:
    numbers = np.random.default_rng(0).random((40, 30))
    t = make(numbers.astype(np.dtype("f8", metadata={"from": "a file"})))

    assert t.numpy().dtype.metadata is None
    assert (t @ t.T).tolist() == (fb.tensor(numbers) @ fb.tensor(numbers).T).tolist()
    assert make(np.array([3, 1, 2], np.longlong)).numpy().dtype.char == np.dtype(np.int64).char


def test_from_numpy_shares_memory_both_ways() -> None:
    array = np.zeros(3)
    tensor = fb.from_numpy(array)
    tensor[0] = 1.0
    array[1] = 2.0

    assert array.tolist() == [1.0, 2.0, 0.0]
    assert tensor.tolist() == [1.0, 2.0, 0.0]


def test_from_dlpack_takes_objects_and_capsules() -> None:
    array = np.arange(3.0)
    shared = fb.from_dlpack(array)
    shared[0] = 7.0
    again = fb.from_dlpack(fb.utils.dlpack.to_dlpack(shared))
    again[1] = 8.0

    assert array.tolist() == [7.0, 8.0, 2.0]


def test_dlpack_goes_to_pytorch_and_back_without_a_copy(oracle: Any) -> None:
    ours = fb.arange(3.0)
    theirs = oracle.from_dlpack(ours)
    theirs[0] = 5.0
    back = fb.from_dlpack(theirs)

    assert ours[0].item() == 5.0
    assert back.data_ptr() == ours.data_ptr()


@pytest.mark.parametrize(
    ("name", "write"),
    [("zero_", lambda t: t.zero_()), ("fill_", lambda t: t.fill_(1)), ("copy_", lambda t: t.copy_(fb.ones(3))),
     ("copy_", lambda t: t.__setitem__(0, 1.0)), ("add_", lambda t: t.add_(1))],
)  # fmt: skip
def test_writes_to_read_only_memory_are_refused_by_the_name_that_was_called(name: str, write: Any) -> None:
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        t = fb.from_numpy(array)
    with pytest.raises(RuntimeError, match=f"^{name}: the memory of this tensor is read-only"):
        write(t)


def test_arrays_of_pytorch_are_data_also_beside_subclasses(oracle: Any) -> None:
    class Sub(fb.Tensor):
        """From here on operands may want a say."""

    assert fb.from_dlpack(oracle.ones(2)).tolist() == [1.0, 1.0]
    assert isinstance(fb.ones(2).as_subclass(Sub) + 1, Sub)


def test_a_tensor_over_read_only_memory_warns_and_refuses_writes() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    fb.set_warn_always(True)
    with pytest.warns(UserWarning, match="not writable"):
        tensor = fb.from_numpy(array)
    fb.set_warn_always(False)

    with pytest.raises(RuntimeError, match="read-only"):
        tensor.add_(1)


def test_copying_a_tensor_with_tensor_warns() -> None:
    with pytest.warns(UserWarning, match="clone"):
        fb.tensor(fb.ones(2))


def test_a_default_dtype_decides_for_floats_and_complex_numbers() -> None:
    fb.set_default_dtype(fb.float64)
    try:
        kinds = fb.tensor(1.5).dtype, fb.tensor(1j).dtype, fb.ones(1).dtype
    finally:
        fb.set_default_dtype(fb.float32)

    assert kinds == (fb.float64, fb.complex128, fb.float64)


def test_a_device_context_places_new_tensors() -> None:
    with fb.device("meta"):
        inside = fb.zeros(2)

    assert inside.device == fb.device("meta")
    assert fb.zeros(2).device == fb.device("cpu")


def test_tensor_copies_numbers_sequences_and_arrays(oracle: Any) -> None:
    programs = """
    torch.tensor([1, 2.5])
    torch.tensor([[1, 2], [3, 4]], dtype=torch.float16)
    torch.tensor([1, True, 2.0])
    torch.tensor([1, 2j])
    torch.tensor([])
    torch.tensor([[]])
    torch.tensor([[1, 2], [3]])
    torch.tensor([[1, 2], 3])
    torch.tensor([1, [2]])
    torch.tensor([None])
    torch.tensor('a')
    torch.tensor(['a'])
    torch.tensor({})
    torch.tensor(None)
    torch.tensor([torch.tensor(1), torch.tensor(2.0)])
    torch.tensor([np.float64(1.0), 2])
    torch.tensor([np.float32(1.0)])
    torch.tensor(np.float64(3))
    torch.tensor(np.array([1, 2], dtype=np.int16))
    torch.tensor([np.array([1, 2]), np.array([3, 4])])
    torch.tensor([np.array([1.0, 2]), [3, 4]])
    torch.tensor(300, dtype=torch.uint8)
    torch.tensor([300], dtype=torch.uint8)
    torch.tensor(-1, dtype=torch.uint8)
    torch.tensor([-1], dtype=torch.uint8)
    torch.tensor(256, dtype=torch.int8)
    torch.tensor(10000000000.0, dtype=torch.int32)
    torch.tensor(2.7, dtype=torch.int32)
    torch.tensor([2.7], dtype=torch.int32)
    torch.tensor(2 ** 63)
    torch.tensor(2 ** 70)
    torch.tensor(1e+300, dtype=torch.float16)
    torch.tensor([1e+300], dtype=torch.float16)
    torch.tensor([1, 0, 2], dtype=torch.bool)
    torch.tensor([float('nan')], dtype=torch.bool)
    torch.tensor(1.0, requires_grad=True)
    torch.tensor(1, requires_grad=True)
    torch.tensor(range(3))
    torch.tensor((1, 2, 3))
    torch.tensor(b'abc')
    torch.tensor(bytearray(b'abc'))
    torch.tensor(torch.tensor([1.0, 2.0]))
    torch.tensor(3) in torch.arange(5)
    torch.tensor(-255, dtype=torch.uint8)
    torch.tensor(-256, dtype=torch.uint8)
    torch.tensor([-256], dtype=torch.uint8)
    torch.tensor([-255], dtype=torch.uint8)
    torch.tensor(2 ** 63, dtype=torch.int64)
    torch.tensor([2 ** 63])
    torch.tensor([2 ** 64], dtype=torch.float64)
    torch.tensor([10000000000.0], dtype=torch.int32)
    torch.tensor([1e+30], dtype=torch.int64)
    torch.tensor([float('nan')], dtype=torch.int64)
    torch.tensor(float('nan'), dtype=torch.int64)
    torch.tensor(float('inf'), dtype=torch.int32)
    torch.tensor([10000000000.0], dtype=torch.uint8)
    torch.tensor(300.5, dtype=torch.uint8)
    torch.tensor(-1.5, dtype=torch.uint8)
    torch.tensor([-1.5], dtype=torch.uint8)
    torch.tensor(1j, dtype=torch.int32)
    torch.tensor([1j], dtype=torch.int32)
    torch.tensor([1j], dtype=torch.bool)
    torch.tensor(1e+39, dtype=torch.complex64)
    torch.tensor(np.array([300]), dtype=torch.uint8)
    torch.tensor([1], dtype=float)
    """

    assert not disagreements(oracle, programs)


def test_conversions_share_memory_where_they_can(oracle: Any) -> None:
    programs = """
    torch.as_tensor([1, 2])
    torch.as_tensor(5)
    torch.as_tensor(np.float32(2))
    torch.as_tensor([1, 2], dtype=torch.float64)
    torch.asarray(np.arange(3), copy=True)
    torch.asarray(torch.ones(2), requires_grad=True)
    torch.asarray([1, 2], copy=False)
    torch.asarray(3.0)
    torch.from_numpy([1])
    torch.from_numpy(np.array(['a']))
    torch.from_numpy(np.array([1], dtype='>i4'))
    """

    assert not disagreements(oracle, programs)


def test_ranges_count_as_pytorchs(oracle: Any) -> None:
    programs = """
    torch.arange(5)
    torch.arange(1, 5, 2)
    torch.arange(0, 1, 0.3)
    torch.arange(5.0)
    torch.arange(5, 0, -2)
    torch.arange(0, 5, -1)
    torch.arange(0, 5, 0)
    torch.arange(3, dtype=torch.float16)
    torch.arange(0.5, 3.7, dtype=torch.int64)
    torch.arange(True)
    torch.arange(3, out=torch.empty(0))
    torch.arange(3, out=torch.empty(0, dtype=torch.int32))
    torch.arange(torch.tensor(3))
    torch.arange(end=3)
    torch.arange(start=1, end=3)
    torch.arange(float('inf'))
    torch.arange(float('nan'))
    torch.arange(2 ** 62, 2 ** 62 + 2)
    torch.arange(0, 3, dtype=torch.bool)
    torch.arange(0, 2, dtype=torch.complex64)
    torch.arange(3, requires_grad=True)
    torch.arange(3.0, requires_grad=True)
    torch.range(0, 3)
    torch.range(1, 2, 0.5)
    torch.linspace(0, 1, 5)
    torch.linspace(0, 1, 1)
    torch.linspace(0, 1, 0)
    torch.linspace(0, 10, 4, dtype=torch.int32)
    torch.linspace(torch.tensor(0.0), torch.tensor(1.0), 3)
    torch.linspace(0, 1, -1)
    torch.linspace(0, 1, steps=3, dtype=torch.float16)
    torch.linspace(0, 1j, 3)
    torch.linspace(1, 0, 4, dtype=torch.float64)
    torch.linspace(0, 1)
    torch.logspace(0, 2, 3)
    torch.logspace(0, 3, 4, base=2)
    torch.logspace(0, 2, 3, dtype=torch.int32)
    torch.logspace(0, 2, 1)
    torch.logspace(0, 2, 0)
    torch.arange(3) in [1]
    torch.arange(3, dtype=float)
    torch.from_dlpack(torch.to_dlpack(torch.arange(3)))
    """

    assert not disagreements(oracle, programs)


def test_like_tensors_take_shape_dtype_and_layout(oracle: Any) -> None:
    programs = """
    torch.full_like(torch.ones(2, 2), 7, dtype=torch.int32)
    torch.zeros_like([1])
    torch.full_like(torch.ones(1, dtype=torch.uint8), 300)
    torch.full_like(torch.ones(1, dtype=torch.uint8), -1)
    """

    assert not disagreements(oracle, programs)


def test_new_tensors_take_dtype_and_device(oracle: Any) -> None:
    programs = """
    torch.ones(2).new([1, 2])
    torch.ones(2).new()
    torch.ones(2, dtype=torch.int32).new([1, 2])
    torch.ones(2).new(torch.ones(2))
    torch.ones(2).new_zeros(2, 3)
    torch.ones(2).new_zeros((2, 3), dtype=torch.int64)
    torch.ones(2).new_full((2,), 5)
    torch.ones(2, dtype=torch.int32).new_full((2,), 5.5)
    torch.ones(2).new_tensor([1, 2])
    torch.ones(2).new_tensor(torch.tensor([1, 2]))
    torch.ones(2, dtype=torch.int64).new_tensor([1.5])
    torch.ones(2).new_ones(2, requires_grad=True)
    torch.ones(2).new_empty_strided((2, 2), (1, 2)).stride()
    torch.ones(2).new_zeros()
    torch.ones(2).new_zeros(size=(2,))
    """

    assert not disagreements(oracle, programs)


def test_tensor_types_of_old_make_tensors(oracle: Any) -> None:
    programs = """
    torch.Tensor()
    torch.Tensor([1, 2])
    torch.Tensor((1, 2))
    torch.Tensor(np.array([1, 2]))
    torch.Tensor(torch.ones(2))
    torch.Tensor(torch.ones(2, dtype=torch.int32))
    torch.Tensor(1.5)
    torch.Tensor(data=[1, 2])
    torch.FloatTensor([1, 2])
    torch.LongTensor([1, 2])
    torch.IntTensor([1])
    torch.DoubleTensor([1])
    torch.ByteTensor([1, 255])
    torch.BoolTensor([1, 0])
    isinstance(torch.ones(1), torch.FloatTensor)
    isinstance(torch.ones(1), torch.LongTensor)
    torch.LongTensor([1.5])
    torch.FloatTensor(torch.ones(2))
    torch.FloatTensor(torch.ones(2, dtype=torch.int32))
    isinstance(torch.nn.Parameter(torch.ones(1)), torch.FloatTensor)
    str(torch.FloatTensor)
    """

    assert not disagreements(oracle, programs)


def test_sizes_and_fill_values_are_checked(oracle: Any) -> None:
    programs = """
    torch.zeros(2, 3, dtype=torch.int8)
    torch.zeros((2, 3))
    torch.zeros([2, 3])
    torch.zeros(size=(2,))
    torch.zeros()
    torch.zeros(())
    torch.zeros(-1)
    torch.zeros(2.0)
    torch.zeros('a')
    torch.zeros(2, dtype='float32')
    torch.zeros(2, dtype=float)
    torch.zeros(2, dtype=int)
    torch.zeros(2, dtype=bool)
    torch.zeros(2, dtype=complex)
    torch.zeros(torch.tensor(2), 3)
    torch.zeros(np.int64(2), 3)
    torch.zeros(True)
    torch.ones(2, requires_grad=True)
    torch.ones(2, dtype=torch.int64, requires_grad=True)
    torch.zeros(2, out=torch.ones(2))
    torch.zeros(3, out=torch.ones(2))
    torch.zeros(2, pin_memory=False)
    torch.full((2,), 3)
    torch.full((2,), 3.0)
    torch.full((2,), True)
    torch.full((2,), 1j)
    torch.full((2,), 3, dtype=torch.float16)
    torch.full((2,), torch.tensor(3))
    torch.full((2,), float('nan'))
    torch.full((), 2)
    torch.full(2, 1)
    torch.full((2,), 300, dtype=torch.uint8)
    torch.full((2,), -1, dtype=torch.uint8)
    torch.full((2,), 1, out=torch.ones(2))
    torch.eye(3)
    torch.eye(2, 3, dtype=torch.int32)
    torch.eye(0)
    torch.eye(-1)
    torch.eye(2, out=torch.empty(0))
    torch.scalar_tensor(3)
    torch.scalar_tensor(3, dtype=torch.int8)
    torch.complex(torch.tensor([1.0]), torch.tensor([2.0]))
    torch.polar(torch.tensor([1.0]), torch.tensor([0.0]))
    torch.ones(2) != None
    torch.full((1,), -1, dtype=torch.uint8)
    torch.full((1,), -256, dtype=torch.uint8)
    torch.full((1,), 128, dtype=torch.int8)
    torch.full((1,), 10000000000.0, dtype=torch.int32)
    torch.full((1,), 1e+39, dtype=torch.float16)
    torch.full((1,), 1j, dtype=torch.float16)
    torch.full((1,), 2 ** 63)
    torch.full((1,), float('inf'), dtype=torch.int64)
    torch.full((1,), 2.5, dtype=torch.bool)
    torch.full((1,), torch.tensor(300), dtype=torch.uint8)
    torch.full((1,), torch.tensor([3]))
    torch.full((1,), torch.tensor(2.0, requires_grad=True))
    torch.rand()
    torch.randn()
    torch.randint(3, (2,))
    torch.ones()
    torch.empty()
    torch.full((2,), 1, dtype=float)
    torch.full((1,), -1.5, dtype=torch.uint8)
    torch.full((1,), -300.5, dtype=torch.uint8)
    torch.full((1,), 255.5, dtype=torch.uint8)
    torch.full((1,), -0.5, dtype=torch.uint8)
    torch.full((1,), -128.5, dtype=torch.int8)
    torch.full((1,), 1e+39, dtype=torch.complex64)
    torch.full((1,), 1 + 0j, dtype=torch.int32)
    torch.full((1,), 1j, dtype=torch.bool)
    torch.full((1,), float('nan'), dtype=torch.bool)
    torch.FloatTensor.dtype
    """

    assert not disagreements(oracle, programs)


@pytest.fixture
def deterministic() -> Any:
    fb.use_deterministic_algorithms(True)
    yield
    fb.utils.deterministic.fill_uninitialized_memory = True
    fb.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
def test_deterministic_programs_see_nan_in_uninitialised_memory() -> None:
    grown = fb.arange(3.0).resize_(5)

    for made in (fb.empty(2), fb.empty_like(fb.zeros(2)), fb.zeros(1).new_empty(2), fb.empty_strided((2,), (3,)), fb.FloatTensor(2)):
        assert made.isnan().all()
    assert fb.empty(4, out=fb.zeros(4)).isnan().all()
    assert grown[:3].tolist() == [0, 1, 2]
    assert grown[3:].isnan().all()


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize(
    ("dtype", "value"), [(fb.bool, True), (fb.uint8, 255), (fb.int8, 127), (fb.int64, 2**63 - 1), (fb.uint64, 2**64 - 1)], ids=str
)
def test_deterministic_programs_see_the_largest_integer_in_uninitialised_memory(dtype: fb.dtype, value: Any) -> None:
    assert fb.empty(2, dtype=dtype).tolist() == [value, value]


@pytest.mark.usefixtures("deterministic")
def test_filling_uninitialised_memory_can_be_switched_off() -> None:
    fb.utils.deterministic.fill_uninitialized_memory = False

    assert fb.zeros(4).resize_(2).resize_(4).tolist() == [0, 0, 0, 0]
    assert fb._state.FILL_EMPTY is False
    with pytest.raises(RuntimeError, match="expected a bool"):
        fb.utils.deterministic.fill_uninitialized_memory = 1  # type: ignore[assignment]


@pytest.mark.parametrize("make", [fb.zeros, fb.ones, fb.empty, fb.rand, fb.randn])
def test_a_size_is_not_given_twice(make: Any) -> None:
    with pytest.raises(TypeError, match="size"):
        make(4, 4, size=(2,))


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")  # PyTorch's, given once in a process
@pytest.mark.parametrize(
    "values", [[2, np.array(1.5, np.float32)], [2, np.array(1)], [2, np.array(1.5j)], [[1, np.array(3)], [np.array(2), 2]]], ids=repr
)
def test_arrays_of_no_dimension_are_numbers_in_lists(values: Any, oracle: Any) -> None:
    ours, theirs = fb.tensor(values), oracle.tensor(values)

    assert str(ours.dtype) == str(theirs.dtype)
    assert ours.tolist() == theirs.tolist()


def test_a_list_may_begin_with_an_array_of_no_dimension() -> None:
    assert fb.tensor([np.array(1), 2]).tolist() == [1, 2]
    with pytest.raises((TypeError, RuntimeError)):
        fb.tensor([np.array("a"), 2])


def test_ranges_are_data_of_tensor_types() -> None:
    assert fb.IntTensor(range(4)).tolist() == [0, 1, 2, 3]
    assert fb.Tensor(range(3)).dtype is fb.float32
    assert fb.zeros(1).new(range(2)).tolist() == [0.0, 1.0]
    with pytest.raises(TypeError, match="sequence"):
        fb.IntTensor(iter([1]))


@pytest.mark.parametrize("ends", [(0, 1j, 3), (1j, 2, 4), (0, 1 + 1j, 1), (0, 1j, 0)])
@pytest.mark.parametrize("base", [10.0, 2.0, -2.0])
def test_logspace_goes_to_a_complex_end(ends: Any, base: float, oracle: Any) -> None:
    ours, theirs = fb.logspace(*ends, base=base), oracle.logspace(*ends, base=base)

    assert ours.dtype is fb.complex64
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), 1e-6, 1e-6)
    with pytest.raises(RuntimeError, match="can't be safely cast"):
        fb.logspace(*ends, base=base, dtype=fb.float32)


def test_ranges_are_written_into_views_and_nowhere_else(oracle):
    programs = """
    b = torch.zeros(10); torch.arange(3, out=b[2:5]); b
    b = torch.zeros(10); torch.arange(1, 4, out=b[2:8:2]); b
    b = torch.zeros(10); torch.linspace(1, 2, 3, out=b[2:8:2]); b
    b = torch.zeros(10); torch.logspace(0, 1, 3, out=b[2:8:2]); b
    b = torch.zeros(10); torch.range(1, 3, out=b[2:8:2]); b
    b = torch.zeros(4, 4); torch.eye(2, out=b[1:3, 1:3]); b
    b = torch.zeros(10); torch.full((3,), 2.0, out=b[2:8:2]); b
    b = torch.zeros(10); torch.randn(3, out=b[2:8:2]); b
    b = torch.zeros(10, dtype=torch.int64); torch.randperm(3, out=b[2:8:2]); b
    b = torch.zeros(10); torch.cat([torch.ones(2), torch.ones(1)], out=b[2:8:2]); b
    """

    assert not disagreements(oracle, programs)


def test_an_array_for_a_device_is_refused_as_such():
    with pytest.warns(UserWarning, match="copy construct"), pytest.raises(TypeError, match="must be torch"):
        fb.ones(2).new_tensor(fb.ones(2), device=np.ones(3))


def test_a_device_named_by_an_object_or_a_string_is_no_way_around_where_tensors_are_put():
    for place in ("cpu", fb.device("cpu")):
        before = _state.set_stand_in(fb.device("meta"))
        try:
            made = [fb.zeros(2, device=place), fb.full((2,), 1.0, device=place), fb.arange(3, device=place), fb.eye(2, device=place)]
        finally:
            _state.set_stand_in(before)
        assert all(x.device.type == "meta" for x in made)
        assert fb.arange(3, device=place).tolist() == [0, 1, 2]
        assert fb.ones_like(fb.zeros(2), device=place).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("kind", "made"), [("bfloat16", "float32"), ("float64", "float32"), ("int32", "int64"), ("bool", "bool"), ("complex128", "complex64")]
)
def test_full_of_a_tensor_has_the_dtype_of_the_number_in_it(kind: str, made: str) -> None:
    value = fb.tensor(1, dtype=getattr(fb, kind))
    assert fb.full((2,), value).dtype is getattr(fb, made)
    assert fb.full((2,), value, dtype=fb.int16).dtype is fb.int16


def test_an_array_lives_as_long_as_a_tensor_over_its_memory():
    given = fb.ones(2, 3).numpy()
    alive = weakref.ref(given)
    part = fb.from_numpy(given)[0]
    del given
    gc.collect()
    assert alive() is not None

    del part
    gc.collect()
    assert alive() is None


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
@pytest.mark.parametrize("make", [fb.arange, fb.range])
@pytest.mark.parametrize("bounds", [(3, float("nan")), (float("nan"), 3), (3, float("inf")), (-float("inf"), 3)])
def test_ranges_without_an_end_are_unsupported(make: Any, bounds: tuple[float, float]) -> None:
    with pytest.raises(RuntimeError, match=f"unsupported range: {bounds[0]} -> {bounds[1]}"):
        make(*bounds)


def test_small_tensors_are_filled_and_drawn_as_before_once_a_kernel_answers():
    x, whole = fb.ones(3, 4), fb.ones(4, 6)
    before = x._version
    for _ in range(2000):
        x.fill_(1.5).zero_()
    assert x._version == before + 4000
    assert not x.any()
    assert not x.signbit().any()

    whole[:, ::2].zero_()
    assert whole.sum() == 12
    assert not fb.ones(3, dtype=fb.int64).zero_().any()
    assert not fb.ones(3, dtype=fb.bfloat16).zero_().any()
    leaf = fb.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        leaf.zero_()
    y = leaf * 2
    y.zero_()
    y.sum().backward()
    assert not leaf.grad.any()

    for draw in (fb.Tensor.normal_, fb.Tensor.uniform_):
        drawn = []
        for form in ({}, {"generator": None}):
            fb.manual_seed(0)
            t = fb.empty(4, 4)
            version = t._version
            drawn.append([draw(t, **form).clone() for _ in range(3)])
            assert t._version == version + 3
        assert all(fb.equal(a, b) for a, b in zip(*drawn, strict=True))
        with pytest.raises(RuntimeError, match="leaf"):
            draw(fb.empty(16, requires_grad=True))


@pytest.mark.parametrize("kind", [np.bool_, np.uint8, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64, np.complex64])
def test_numbers_of_numpy_in_lists_keep_their_dtype_and_values(kind: Any) -> None:
    values = [kind(x) for x in (0, 1, 3)]
    made, nested = fb.tensor(values), fb.as_tensor([(x, x) for x in values])

    assert made._array.dtype is fb.from_numpy(np.zeros(1, kind))._array.dtype
    assert fb.tensor([np.float64(0.1), np.float64(2.0)], dtype=fb.float32).tolist() == fb.tensor([0.1, 2.0]).tolist()
    assert made.tolist() == [x.item() for x in values]
    assert nested.shape == (3, 2)
    assert nested.dtype is made.dtype
    assert fb.tensor(values, dtype=fb.complex128).tolist() == [0, 1, 3 if kind is not np.bool_ else 1]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_ranges_of_fractions_in_integers_have_as_many_numbers_as_in_pytorch(oracle: Any, dtype: str) -> None:
    ranges = ["0., 1., .1", "0, 1, .3", "-3, 3, 1.5", "0, 5, 1.5", "5, 0, -1.5", "0.5, 3.7", "-3.5, 3", "0, 3.5", "0, -1, -.3", "2, 9, 3"]
    programs = [f"torch.arange({r}, dtype=torch.{dtype})" for r in ranges]
    programs += [f"torch.arange({r}, out=torch.zeros(0, dtype=torch.{dtype}))" for r in ranges]

    assert not disagreements(oracle, "\n".join(programs))


@pytest.mark.parametrize("dtype", [None, fb.float32])
@pytest.mark.parametrize("make", [fb.tensor, fb.zeros(1).new_tensor, fb.as_tensor, lambda a, dtype: fb.asarray(a, dtype=dtype, copy=True)])
def test_dimensions_of_a_copied_array_stay_in_their_order_of_memory(make, dtype):
    images = np.arange(24).reshape(2, 3, 4)

    assert make(images.transpose(2, 0, 1), dtype=dtype).stride() == (1, 12, 4)
    assert make(images.transpose(2, 0, 1), dtype=dtype).tolist() == images.transpose(2, 0, 1).tolist()
    assert fb.tensor(images[:, ::2], dtype=dtype).stride() == (8, 4, 1)


@pytest.mark.parametrize(
    ("data", "error"), [(["a", 1], ValueError), ([1, "a"], TypeError), ([[1], [b"a"]], TypeError), ([1, None], RuntimeError)]
)
def test_what_is_no_number_is_refused_as_pytorch_refuses_it(data, error):
    with pytest.raises(error, match=r"not a number|Could not infer"):
        fb.tensor(data)


@pytest.mark.parametrize("make", [
    lambda **o: fb.hann_window(4, **o), lambda **o: fb.kaiser_window(4, **o), lambda **o: fb.ones(2, **o),
    lambda **o: fb.full((2,), 1.0, **o),
    lambda **o: fb.logspace(0, 1, 3, **o), lambda **o: fb.fft.fftfreq(3, **o), lambda **o: fb.linspace(0, 1, 3, **o),
])  # fmt: skip
def test_other_layouts_are_refused(make):
    assert make(layout=fb.strided).layout is fb.strided
    with pytest.raises(RuntimeError, match=r"layout=torch\.sparse_coo"):   # some a NotImplementedError, as in PyTorch
        make(layout=fb.sparse_coo)
    with pytest.raises(TypeError, match=r"must be torch\.layout, not str"):
        make(layout="strided")


@pytest.mark.parametrize("make", [fb.zeros, fb.ones, fb.arange, lambda n, **o: fb.linspace(0, 1, n, **o), fb.eye])
def test_a_layout_that_out_has_not_is_refused(make):
    out = fb.full((2, 2), 5.0)
    with pytest.raises(RuntimeError, match=r"layout torch\.sparse_coo does not match layout of out"):
        make(2, out=out, layout=fb.sparse_coo)
    assert out.equal(fb.full((2, 2), 5.0))

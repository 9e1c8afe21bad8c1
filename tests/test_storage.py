"""Storages: bytes that tensors share, typed storages, files, and tensors over them."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from comparing import disagreements


def test_views_report_where_they_lie_in_the_shared_storage() -> None:
    x = fb.arange(12.0).view(3, 4)
    y = x[1:, 2:].t()

    assert (y.storage_offset(), y.stride()) == (6, (1, 4))
    assert y.data_ptr() - x.data_ptr() == 6 * 4
    assert y.untyped_storage().data_ptr() == x.data_ptr()
    assert y.untyped_storage().nbytes() == 48


@pytest.mark.parametrize(
    "view", ["unsqueeze(0)", "expand(3, 4)", "unfold(0, 2, 1)", "squeeze()", "unbind()[1].squeeze()"]
)
def test_every_view_knows_the_whole_storage(view: str) -> None:
    x = fb.arange(12.0)[:4] if "expand" in view else fb.arange(12.0)
    seen = eval(f"x.{view}", {"x": x})

    assert seen.untyped_storage().nbytes() == 48


def test_a_storage_that_grows_keeps_the_bytes_and_its_tensors() -> None:
    x = fb.arange(4.0)
    part = x[2:]
    x.untyped_storage().resize_(32)
    x.resize_(8)
    x[2] = 9.0

    assert x[:4].tolist() == [0.0, 1.0, 9.0, 3.0]
    assert part.tolist() == [9.0, 3.0]


def test_set_looks_at_other_memory() -> None:
    x = fb.arange(6.0)
    y = fb.empty(0).set_(x.untyped_storage(), 1, (2, 2), (2, 1))
    y[1, 1] = 7.0

    assert y.tolist() == [[1.0, 2.0], [3.0, 7.0]]
    assert x[4].item() == 7.0
    with pytest.raises(RuntimeError, match="int64"):
        fb.empty(0).set_(fb.arange(3))


def test_as_strided_windows_overlap_and_stay_inside() -> None:
    x = fb.arange(5.0)

    assert x.as_strided((3, 3), (1, 1)).tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    with pytest.raises(RuntimeError, match="out of bounds"):
        x.as_strided((3, 3), (2, 1))


def test_overlapping_windows_add_up_in_the_gradient() -> None:
    x = fb.arange(5.0, requires_grad=True)
    x.as_strided((3, 3), (1, 1)).sum().backward()

    assert x.grad.tolist() == [1.0, 2.0, 3.0, 2.0, 1.0]


def test_typed_storages_convert_and_convert_back() -> None:
    storage = fb.FloatStorage([1.5, 2.5])

    assert storage.long().tolist() == [1, 2]
    assert storage.double().type() == "torch.DoubleStorage"
    assert fb.FloatTensor(storage).tolist() == [1.5, 2.5]


def test_bytes_come_from_buffers_in_either_order() -> None:
    made = fb.UntypedStorage.from_buffer(b"\x00\x01", "big", dtype=fb.int16)

    assert fb.empty(0, dtype=fb.int16).set_(made).tolist() == [1]


def test_a_mapped_file_sees_writes_only_when_shared(tmp_path: Path) -> None:
    path = tmp_path / "values.bin"
    shared = fb.from_file(str(path), shared=True, size=3, dtype=fb.float32)
    shared.copy_(fb.tensor([1.0, 2.0, 3.0]))
    private = fb.from_file(str(path), size=3)
    private[0] = 9.0

    assert fb.from_file(str(path), size=3).tolist() == [1.0, 2.0, 3.0]


def test_shared_memory_is_seen_by_views() -> None:
    x = fb.arange(4.0)
    part = x[1:]
    x.share_memory_()
    x[1] = 5.0

    assert part[0].item() == 5.0
    assert x.is_shared()


def test_storages_and_their_tensors_agree(oracle: Any) -> None:
    programs = """
    x = torch.arange(6.0); x.resize_(2, 2)
    x = torch.arange(6.0)[2:]; x.resize_(2)
    x = torch.arange(6.0); x.resize_(-1)
    x = torch.arange(6.0, requires_grad=True); x.resize_(2)
    x = torch.arange(6.0); x.resize_as_(torch.ones(2, 3))
    x = torch.arange(16.0); x.resize_(1, 2, 2, 2, memory_format=torch.channels_last)
    x = torch.arange(6.0); y = torch.zeros(2); y.set_(x); y
    x = torch.arange(6.0); y = torch.zeros(2); y.set_(x.untyped_storage(), 1, (2, 2), (2, 1)); y
    x = torch.arange(6.0); y = torch.zeros(2); y.set_(x.untyped_storage(), 1, (2, 2)); y
    x = torch.arange(6.0); y = torch.zeros(2); y.set_(x.untyped_storage()); y
    x = torch.arange(6.0); y = torch.zeros(2); y.set_(); y
    x = torch.arange(6); y = torch.zeros(2); y.set_(x)
    x = torch.arange(6.0); y = torch.zeros(2); y.set_(x, 0, (3,), (2,)); y
    x = torch.arange(6.0); y = x[1:3]; y.is_set_to(x[1:3])
    x = torch.arange(6.0); x.is_set_to(x[:])
    x = torch.arange(4.0); copy.copy(x).data_ptr() == x.data_ptr()
    (torch.is_tensor(1), torch.is_tensor(torch.ones(1)), torch.is_storage(torch.ones(1).untyped_storage()))
    torch.ones(2, 3, device='meta').data_ptr()
    torch.ones(2, 3, device='meta').untyped_storage().nbytes()
    x = torch.ones(2); torch.from_dlpack(x).data_ptr() == x.data_ptr()
    x = torch.ones(2, 3); x.storage().tolist()
    x = torch.ones(2, 3); (len(x.storage()), x.storage()[0], x.storage().dtype)
    x = torch.ones(2); x.untyped_storage()[0]
    x = torch.arange(3, dtype=torch.uint8); list(x.untyped_storage())
    x = torch.arange(3, dtype=torch.uint8); x.untyped_storage().tolist()
    x = torch.ones(2); x.untyped_storage().resize_(16); x.resize_(4).shape
    x = torch.ones(2); x.untyped_storage().resize_(0); (x.shape, x.untyped_storage().size())
    x = torch.arange(4.0); s = x.untyped_storage(); y = torch.tensor(s)
    x = torch.arange(4.0); s = x.untyped_storage(); s.fill_(0); x
    x = torch.arange(4.0); s = x.untyped_storage().clone(); s.fill_(0); x
    x = torch.arange(4.0); s = x.untyped_storage(); s[0:4].tolist()
    x = torch.arange(4.0); s = torch.UntypedStorage(4); (s.nbytes(), len(s))
    x = torch.arange(4.0); torch.UntypedStorage([1, 2, 3]).tolist()
    x = torch.arange(4.0); repr(x.untyped_storage()).splitlines()[-1]
    x = torch.arange(2.0); repr(x.storage())
    torch.FloatStorage([1, 2, 3]).tolist()
    torch.FloatStorage(3).size()
    torch.LongStorage([1, 2])[1]
    x = torch.arange(4.0); x.storage().data_ptr() == x.data_ptr()
    x = torch.arange(4.0); x.storage()[1:3].tolist()
    x = torch.arange(4.0); torch.FloatTensor(x.storage())
    x = torch.arange(4.0); x.storage().double().tolist()
    x = torch.arange(4.0); copy.deepcopy(x.storage()).tolist()
    torch.FloatStorage.dtype
    """

    assert not disagreements(oracle, programs)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
def test_storages_are_instances_of_the_class_of_their_dtype(oracle: Any) -> None:
    def facts(torch: Any) -> list[Any]:
        storages = [torch.ones(2).storage(), torch.ones(2, dtype=torch.int64).storage(), torch.FloatStorage(3), torch.LongStorage([1, 2]),
                    torch.ones(2, device="meta").storage(), torch.ones(2).untyped_storage(), torch.FloatStorage([1]).int()]  # fmt: skip
        classes = [torch.FloatStorage, torch.LongStorage, torch.IntStorage, torch.TypedStorage, torch.UntypedStorage]
        found = [[isinstance(storage, cls) for cls in classes] for storage in storages]
        return [found, [type(storage).__name__ for storage in storages], issubclass(torch.FloatStorage, torch.TypedStorage)]

    assert facts(fb) == facts(oracle)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
def test_storages_of_the_meta_device_have_sizes_and_no_values(oracle: Any) -> None:
    def facts(torch: Any) -> list[Any]:
        untyped, typed = torch.ones(3, device="meta").untyped_storage(), torch.ones(3, device="meta").storage()
        untyped[0] = 1
        typed.fill_(2)
        made = [untyped.nbytes(), len(typed), str(typed.device), repr(untyped), repr(typed), untyped.clone().nbytes(), typed.data_ptr(),
                str(copy.deepcopy(untyped).device), untyped.fill_(1).nbytes(), untyped.resize_(20).nbytes(), typed.is_shared()]  # fmt: skip
        refused = [lambda: untyped[0], untyped.tolist, untyped.cpu, lambda: typed[0], typed.tolist, untyped.share_memory_,
                   lambda: torch.UntypedStorage(20).copy_(untyped), lambda: untyped.copy_(torch.UntypedStorage(3))]  # fmt: skip
        for call in refused:
            with pytest.raises((NotImplementedError, RuntimeError)) as error:
                call()
            made.append(error.type)
        return made

    assert facts(fb) == facts(oracle)


WRONG = [
    lambda torch: torch.FloatStorage(1, 2), lambda torch: torch.FloatStorage(3, dtype=torch.int8),
    lambda torch: torch.FloatStorage(torch.ones(2)),
    lambda torch: torch.FloatStorage(torch.UntypedStorage(4)), lambda torch: torch.FloatStorage(wrap_storage=torch.FloatStorage(1)),
    lambda torch: torch.FloatStorage("a"), lambda torch: torch.FloatStorage(-1), lambda torch: torch.FloatStorage(foo=1),
    lambda torch: torch.TypedStorage(wrap_storage=torch.UntypedStorage(4)), lambda torch: torch.UntypedStorage(-1),
    lambda torch: torch.UntypedStorage(2.5), lambda torch: torch.UntypedStorage("ab"), lambda torch: torch.UntypedStorage(2)[5],
    lambda torch: torch.UntypedStorage(8)[::2], lambda torch: torch.FloatStorage(2)[0:1], lambda torch: torch.FloatStorage(2)["a"],
    lambda torch: torch.FloatStorage(2)[2], lambda torch: torch.FloatStorage(2).fill_("a"),
    lambda torch: torch.FloatStorage(2).copy_(torch.FloatStorage(3)), lambda torch: torch.FloatStorage.from_buffer(bytes(7), "little"),
    lambda torch: torch.FloatStorage.from_buffer(bytes(8), "x"), lambda torch: torch.FloatStorage(2).pin_memory(),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_use_of_storages_raises_as_in_pytorch(oracle: Any, number: int) -> None:
    kinds = []
    for torch in (oracle, fb):
        with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)) as error:
            WRONG[number](torch)
        kinds.append(error.type)

    assert kinds[0] is kinds[1]


def test_bytes_are_stored_by_their_lowest_bits_and_floats_as_they_are() -> None:
    storage = fb.UntypedStorage([256, 1])
    storage[1] = 300
    target = fb.FloatStorage(2).copy_(fb.IntStorage([1, 0]))

    assert storage.tolist() == [0, 44]
    assert target.untyped().tolist() == [1, 0, 0, 0, 0, 0, 0, 0]


def test_pickles_of_pytorchs_storages_are_read() -> None:
    torch = pytest.importorskip("torch")
    saved = pickle.dumps(torch.tensor([1.0, 2.0]).untyped_storage()).replace(b"\x8c\rtorch.storage", b"\x8c\x10flambeau.storage")

    # A frame of the pickle says how long it is, which the longer name has changed.
    frame = saved.index(b"\x95") + 1
    saved = saved[:frame] + (len(saved) - frame - 8).to_bytes(8, "little") + saved[frame + 8 :]

    assert fb.tensor(pickle.loads(saved), dtype=fb.float32).tolist() == [1.0, 2.0]


def test_storages_are_shared_pickled_and_copied() -> None:
    storage = fb.LongStorage([1, 2])
    back = pickle.loads(pickle.dumps(storage))

    assert (back.dtype, back.tolist()) == (fb.int64, [1, 2])
    assert copy.copy(storage).tolist() == [1, 2]
    assert not storage.is_shared()
    assert storage.share_memory_().is_shared()
    assert fb.UntypedStorage._new_shared(8).is_shared()
    assert len(fb.LongStorage._new_shared(2)) == 2
    assert storage._cdata == storage.untyped()._cdata


def test_files_are_mapped_without_memmap(tmp_path, monkeypatch):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(12)))
    monkeypatch.setattr(np, "memmap", None)

    own, shared = (fb.UntypedStorage.from_file(str(path), shared, 8) for shared in (False, True))
    own[0], shared[1] = 99, 98

    assert path.read_bytes()[:3] == bytes([0, 98, 2])
    assert own.tolist()[:3] == [99, 1, 2]
    assert fb.UntypedStorage.from_file(str(path), False, 0).tolist() == []


def test_a_storage_that_was_emptied_under_a_tensor_can_be_given_its_size_again():
    x = fb.arange(6.0)
    part = x[2:]
    storage = x.untyped_storage()
    storage.resize_(0)
    assert x.untyped_storage().size() == 0
    x.untyped_storage().resize_(12)
    assert x.untyped_storage().size() == 12

    x.untyped_storage().resize_(24)
    x.copy_(fb.arange(6.0))
    assert x.untyped_storage().size() == 24
    assert part.tolist() == [2.0, 3.0, 4.0, 5.0]
    assert x.untyped_storage().data_ptr() == x.data_ptr()


def test_a_storage_that_shrinks_and_grows_keeps_what_it_held_in_between():
    x = fb.arange(4.0)
    x.untyped_storage().resize_(8)
    x.untyped_storage().resize_(16)

    assert x.tolist() == [0.0, 1.0, 0.0, 0.0]


def test_addresses_are_the_same_whoever_is_asked() -> None:
    """An address is read from the array where that is proven, in an eighth of the time that numpy takes to say it."""
    from flambeau_kernels import hot_calls

    a = np.arange(12.0).reshape(3, 4)
    for view in (a, a[1:], a[:, 2:], a[::-1], a.T, np.array(1.0), np.empty((0, 3))):
        assert hot_calls.numpy_address(view) == hot_calls.asked_address(view) == view.ctypes.data
    t = fb.from_numpy(a)
    assert t[1:].data_ptr() - t.data_ptr() == 32
    assert t[1:].untyped_storage().data_ptr() == t.untyped_storage().data_ptr() == t.data_ptr() == a.ctypes.data


@pytest.mark.parametrize("make", [fb.tensor, fb.as_tensor, fb.asarray])
def test_a_tensor_of_a_storage_lies_in_its_memory(make: Any) -> None:
    whole = fb.arange(16, dtype=fb.uint8)
    part = whole.untyped_storage()[4:14]
    bytes_, words = make(part, dtype=fb.uint8), make(part)
    bytes_[0] = 99

    assert (part[0], int(whole[4]), bytes_.tolist()) == (99, 99, [99, *range(5, 14)])
    assert (words.dtype, words.shape, words.data_ptr()) == (fb.int64, (1,), part.data_ptr())
    assert bytes_._version == words._version == 1
    assert bytes_.untyped_storage() == part
    assert make(part, dtype=fb.uint8, device="meta").shape == (10,)
    assert make(fb.FloatStorage([1.5, 2.5])).tolist() == [1.5, 2.5]
    with pytest.raises(RuntimeError, match="Storage of type int32"):
        make(fb.FloatStorage([1.5]), dtype=fb.int32)


def test_a_copy_of_a_storage_is_one_and_an_alias_of_no_elements_is_refused() -> None:
    storage = fb.arange(4, dtype=fb.uint8).untyped_storage()
    fb.asarray(storage, dtype=fb.uint8, copy=True).fill_(9)

    assert storage.tolist() == [0, 1, 2, 3]
    assert fb.asarray(storage, dtype=fb.float32, requires_grad=True).requires_grad
    with pytest.raises(ValueError, match="alias"):
        fb.asarray(storage, copy=False)

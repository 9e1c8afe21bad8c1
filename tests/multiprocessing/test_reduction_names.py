"""References to storages, and names that PyTorch's `multiprocessing.reductions` has beside what pickles use."""

from __future__ import annotations

import gc
import importlib
import os
import pickle

import pytest

import flambeau as fb
from flambeau.multiprocessing import reductions

torch = pytest.importorskip("torch")
BOTH = [(fb, reductions), (torch, importlib.import_module("torch.multiprocessing.reductions"))]


@pytest.mark.parametrize(("lib", "room"), BOTH, ids=["ours", "theirs"])
def test_a_storage_is_referred_to_weakly(lib, room):
    t = lib.ones(3)
    ref = room.StorageWeakRef(t.untyped_storage())

    assert (ref == room.StorageWeakRef(t[1:].untyped_storage()), ref == room.StorageWeakRef(lib.ones(3).untyped_storage())) == (True, False)
    assert hash(ref) == hash(ref.cdata)
    gc.collect()
    assert not ref.expired()
    cache = room.SharedCache()
    cache["a"] = ref
    del t
    gc.collect()
    assert ref.expired()
    cache.free_dead_references()
    assert (len(cache), cache.get("a"), cache.limit) == (0, None, 128)


def test_a_file_has_one_identity():
    descriptors = [os.open(__file__, os.O_RDONLY) for _ in range(2)]
    try:
        assert len({room.fd_id(descriptor) for _, room in BOTH for descriptor in descriptors}) == 1
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def test_sparse_tensors_are_reduced_as_others():
    rebuild, args = reductions.reduce_sparse_tensor(fb.eye(2).to_sparse())

    assert fb.equal(rebuild(*args).to_dense(), fb.eye(2))
    made = reductions.rebuild_typed_storage_child(fb.ones(2).untyped_storage(), fb.FloatStorage)
    assert made.tolist() == [1.0, 1.0]


def test_named_results_are_all_listed():
    ours, theirs = fb.return_types, torch.return_types
    plain = {n for n in dir(theirs) if n[0] != "_" and hasattr(getattr(theirs, n), "n_fields")}

    assert plain <= {*dir(ours)}
    for name in plain:
        assert getattr(ours, name).n_fields == getattr(theirs, name).n_fields, name
        assert all(hasattr(getattr(theirs, name), field) for field in getattr(ours, name)._fields), name
    assert isinstance(fb.sort(fb.ones(2), out=(fb.empty(2), fb.empty(2, dtype=fb.long))), ours.sort_out)
    assert {cls.__name__ for cls in ours.all_return_types} <= {cls.__name__ for cls in theirs.all_return_types}
    assert pickle.loads(pickle.dumps(fb.aminmax(fb.ones(2)))) == (1, 1)
    with pytest.raises(TypeError, match="named tuples"):
        ours.pytree_register_structseq(int)

"""Tensors in coordinates: what they are made of, memory, copies and files, and operations that dense tensors have too."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest

import flambeau as fb

DENSE = fb.tensor([[0.0, 0, 3, 0], [4, 0, 5, 0], [0, 0, 0, 0]])
OTHER = fb.tensor([[0.0, 2, 7, 0], [0, 0, -1, 0], [6, 0, 0, 0]])
LAYOUTS = [fb.sparse_coo, fb.sparse_csr, fb.sparse_csc]


def same(x, y):
    return x.layout is y.layout and x.dtype is y.dtype and x.shape == y.shape and x.to_dense().tolist() == y.to_dense().tolist()


def test_a_sparse_tensor_is_a_tensor_with_a_layout_of_its_own():
    x = DENSE.to_sparse()

    assert type(x) is fb.Tensor
    assert x.is_sparse
    assert not x.is_sparse_csr
    assert DENSE.to_sparse_csr().is_sparse_csr
    assert not DENSE.is_sparse
    assert x.layout is fb.sparse_coo
    assert x.is_cpu
    assert (x.numel(), x.dim(), len(x), x.size(1)) == (12, 2, 3, 4)


def test_values_and_indices_are_the_memory_of_the_tensor():
    x = DENSE.to_sparse()
    x.values().mul_(2)

    assert x.to_dense().tolist() == (DENSE * 2).tolist()
    assert x.detach()._values().data_ptr() == x._values().data_ptr()


def test_values_of_one_place_count_together_in_every_operation():
    twice = fb.sparse_coo_tensor([[0, 1, 0], [2, 0, 2]], [1.0, 4.0, 2.0], (2, 3))
    dense = twice.to_dense()

    assert dense.tolist() == [[0, 0, 3], [4, 0, 0]]
    assert (twice**2).to_dense().tolist() == (dense**2).tolist()
    assert (twice * twice).to_dense().tolist() == (dense * dense).tolist()
    assert twice.sum() == 7
    assert twice.norm() == 5
    assert (twice @ fb.eye(3)).tolist() == dense.tolist()
    assert twice.coalesce().values().tolist() == [3, 4]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["maximum", "minimum", "fmod", "hypot"])
def test_functions_of_two_sparse_tensors_that_keep_zeros_are_computed_where_one_has_values(name, layout):
    if name == "fmod":
        with pytest.raises(NotImplementedError, match="fmod"):
            fb.fmod(DENSE.to_sparse(layout=layout), OTHER.to_sparse(layout=layout))
        return
    made = getattr(fb, name)(DENSE.to_sparse(layout=layout), OTHER.to_sparse(layout=layout))

    assert made.layout is layout
    assert made.to_dense().tolist() == getattr(fb, name)(DENSE, OTHER).tolist()


def test_comparisons_with_zero_give_sparse_masks():
    mask = DENSE.to_sparse() > 3

    assert mask.dtype is fb.bool
    assert mask.to_dense().tolist() == (DENSE > 3).tolist()


def test_an_operation_without_a_kernel_says_so_by_name():
    with pytest.raises(NotImplementedError, match=r"cumsum.*sparse_coo"):
        DENSE.to_sparse().cumsum(0)
    with pytest.raises(NotImplementedError, match=r"cos: does not keep zeros"):
        DENSE.to_sparse().cos()
    with pytest.raises(NotImplementedError, match=r"conv2d|convolution"):
        fb.nn.functional.conv2d(fb.ones(1, 1, 3, 3).to_sparse(), fb.ones(1, 1, 2, 2))


@pytest.mark.parametrize("key", [(1,), (slice(None), 2), (slice(0, 2),), (..., 0), (None, 1), (slice(0, 3, 2), slice(1, 4))])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_indexing_picks_what_it_does_of_dense_tensors(key, layout):
    assert DENSE.to_sparse(layout=layout)[key].to_dense().tolist() == DENSE[key].tolist()


def test_indexing_by_vectors_and_iterating():
    x = DENSE.to_sparse()

    assert x[fb.tensor([2, 0, 0])].to_dense().tolist() == DENSE[fb.tensor([2, 0, 0])].tolist()
    assert [row.to_dense().tolist() for row in x] == DENSE.tolist()
    assert x[1, 2].item() == 5
    with pytest.raises(IndexError, match="out of range"):
        x[3]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_copies_have_memory_of_their_own(layout):
    x = DENSE.to_sparse(layout=layout)
    for made in (x.clone(), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.to(fb.float32, copy=True)):
        assert same(made, x)
        made.values().zero_()
        assert same(x, DENSE.to_sparse(layout=layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_hold_sparse_tensors(layout):
    file = io.BytesIO()
    fb.save({"x": DENSE.to_sparse(layout=layout), "p": fb.nn.Parameter(OTHER.to_sparse(layout=layout))}, file)
    file.seek(0)
    read = fb.load(file)

    assert same(read["x"], DENSE.to_sparse(layout=layout))
    assert isinstance(read["p"], fb.nn.Parameter)
    assert read["p"].requires_grad
    assert same(read["p"].detach(), OTHER.to_sparse(layout=layout))


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_files_go_to_pytorch_and_back(layout, oracle, tmp_path):
    fb.save(DENSE.to_sparse(layout=getattr(fb, layout)), tmp_path / "ours.pt")
    theirs = oracle.load(tmp_path / "ours.pt")
    oracle.save(theirs, tmp_path / "theirs.pt")

    assert str(theirs.layout) == f"torch.{layout}"
    assert theirs.to_dense().tolist() == DENSE.tolist()
    assert same(fb.load(tmp_path / "theirs.pt"), DENSE.to_sparse(layout=getattr(fb, layout)))


def test_a_file_with_indices_out_of_range_is_refused(tmp_path):
    fb.save(fb.sparse_coo_tensor([[0, 9]], [1.0, 2.0], (2,)), tmp_path / "bad.pt")

    with pytest.raises(RuntimeError, match="found index 9"):
        fb.load(tmp_path / "bad.pt")


def test_invariants_are_checked_where_that_is_asked_for():
    checks = fb.sparse.check_sparse_tensor_invariants

    def make():
        return fb.sparse_coo_tensor([[0, 9]], [1.0, 2.0], (2,))

    assert not checks.is_enabled()
    make()
    with checks():
        assert checks.is_enabled()
        with pytest.raises(RuntimeError, match="size is 2 but found index 9"):
            make()
    with pytest.raises(RuntimeError, match="found index 9"):
        checks()(make)()
    assert not checks.is_enabled()
    checks.enable()
    with checks(False):
        make()
    checks.disable()
    with pytest.raises(RuntimeError, match="uncoalesced"):
        fb.sparse_coo_tensor([[1, 0]], [1.0, 2.0], (2,), check_invariants=True, is_coalesced=True)


def test_transposing_dense_dimensions_leaves_the_pattern():
    x = fb.arange(12.0).reshape(2, 2, 3).to_sparse(1).transpose(1, 2)

    assert x.shape == (2, 3, 2)
    assert x.to_dense().tolist() == fb.arange(12.0).reshape(2, 2, 3).transpose(1, 2).tolist()
    with pytest.raises(RuntimeError, match="both sparse or both dense"):
        x.transpose(0, 1)


def test_a_sum_is_the_same_in_every_run_and_with_every_number_of_threads(fresh_python, tmp_path):
    (tmp_path / "program.py").write_text(
        "import hashlib, flambeau as fb\n"
        "fb.manual_seed(1)\n"
        "at = fb.randint(0, 300, (2, 20000))\n"
        "x = fb.sparse_coo_tensor(at, fb.randn(20000), (300, 300))\n"
        "made = [x.coalesce().values(), x.to_dense(), x @ fb.randn(300, 64), fb.sparse.mm(x.to_sparse_csr(), fb.randn(300, 8)),\n"
        "        fb.sparse.softmax(x, 1).values(), (x @ x.t()).values()]\n"
        "print(hashlib.sha256(b''.join(m.numpy().tobytes() for m in made)).hexdigest())\n"
    )
    found = {fresh_python(tmp_path / "program.py", OMP_NUM_THREADS=str(n), FLAMBEAU_NUM_THREADS=str(n)) for n in (1, 2)}

    assert len(found) == 1


def test_plain_calls_look_no_closer_once_there_is_a_sparse_tensor(fresh_python, tmp_path):
    (tmp_path / "program.py").write_text(
        "import flambeau as fb\n"
        "x = fb.eye(3).to_sparse()\n"
        "print(fb._state.INTERPRETED, (fb.ones(2) + fb.ones(2)).tolist(), (x @ fb.ones(3, 1)).tolist())\n"
    )

    assert fresh_python(tmp_path / "program.py") == "False [2.0, 2.0] [[1.0], [1.0], [1.0]]\n"


def test_half_types_are_added_up_in_float32():
    x = fb.full((1, 4096), 0.1, dtype=fb.bfloat16).to_sparse()
    made = x @ fb.ones(4096, 1, dtype=fb.bfloat16)

    np.testing.assert_allclose(made.float().item(), 4096 * float(fb.tensor(0.1, dtype=fb.bfloat16)), rtol=4e-3)


PROGRAM = """
import flambeau as fb, flambeau.multiprocessing as mp

def work(queue, x):
    x.values().mul_(2)
    queue.put(x.sum().item())

if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue, x = context.Queue(), fb.eye(3).to_sparse().share_memory_()
    process = context.Process(target=work, args=(queue, x))
    process.start()
    print(queue.get(), x.values().tolist(), x.is_shared())
    process.join()
"""


def test_processes_share_the_values_of_a_sparse_tensor(fresh_python, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)

    assert fresh_python(tmp_path / "program.py") == "6.0 [2.0, 2.0, 2.0] True\n"


def test_a_compiled_function_and_transforms_take_sparse_matrices():
    x, right = DENSE.to_sparse(), fb.arange(8.0).reshape(4, 2)
    expected = (DENSE @ right).relu() + 1
    run = fb.compile(lambda v: (x @ v).relu() + 1)

    for _ in range(4):
        assert run(right).tolist() == expected.tolist()
    assert fb.vmap(lambda v: x @ v)(fb.stack((right, -right)))[1].tolist() == (DENSE @ -right).tolist()
    assert fb.func.jvp(lambda v: x @ v, (right,), (right,))[1].tolist() == (DENSE @ right).tolist()
    assert fb.func.grad(lambda v: fb.sparse.mm(x, v).sum())(right)[:, 0].tolist() == DENSE.sum(0).tolist()


def test_other_devices_are_refused_by_name():
    with pytest.raises(NotImplementedError, match="meta"):
        DENSE.to_sparse().to("meta")

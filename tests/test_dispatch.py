"""The plans through dispatch and the backward engine: they do what the fallbacks do, and lose nothing."""

from __future__ import annotations

import gc
import threading
import warnings

import numpy as np
import pytest

import flambeau as fb
from flambeau import _state
from flambeau.autograd import engine
from flambeau.ops._spec import OPS
from flambeau_kernels import hot_calls, takeover

BINARY = ["add", "sub", "mul", "div", "maximum", "atan2", "pow", "eq", "lt"]
UNARY = ["neg", "sqrt", "tanh", "exp", "sigmoid", "relu", "sin"]
SHAPES = [
    ((4, 4), (4, 4)), ((), ()), ((3, 1), (1, 5)), ((2, 3, 4), (4,)), ((0, 3), (3,)), ((1,), ()), ((4, 1), (4, 1)),
    ((40, 50), (40, 50)),
]  # fmt: skip


@pytest.fixture(params=["numpy", "launchers"], autouse=True)
def tier(request, monkeypatch):
    """Every test with numpy's functions, and with native launchers where they work."""
    found = {}
    if request.param == "launchers":
        from flambeau_kernels.engine.builtins import launchers

        found = launchers.load()
        if not found:
            pytest.skip(launchers.available()[1])
    for name, by_numpy in hot_calls._BY_NUMPY.items():
        monkeypatch.setattr(hot_calls, name, found.get(name, by_numpy))


def array(shape, dtype=np.float32, seed=0, low=0.1):
    return np.random.default_rng(seed).uniform(low, 2.0, shape).astype(dtype)


def same(found, expected):
    assert (found.dtype, found.shape, found.stride()) == (expected.dtype, expected.shape, expected.stride())
    assert found._array.tobytes() == expected._array.tobytes()


def general(name, *args):
    """The op without its plan."""
    op = OPS[name]
    return op.run(*args, *(op.defaults[n] for n in op.params[len(args) :]))


# -- forward -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.float16, np.bool_])
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("name", BINARY)
def test_two_tensors_give_the_bits_of_the_general_path(name, shapes, dtype):
    if dtype is np.bool_ and name in ("sub", "pow", "atan2"):
        pytest.skip("not defined for bool")
    x, y = (fb.from_numpy(array(s, dtype, seed)) for seed, s in enumerate(shapes))

    same(getattr(fb, name)(x, y), general(name, x, y))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("number", [2, -0.1, 0, 1e300, float("nan"), 3**20, -(2**24), 2**24 + 1, True])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "pow"])
def test_a_number_takes_the_dtype_of_the_tensor(name, number, dtype):
    if name == "maximum":
        number = fb.tensor(number, dtype=fb.float32)
    if name == "sub" and number is True:
        pytest.skip("not defined for bool")
    for shape in ((4, 4), (), (2000,)):
        x = fb.from_numpy(array(shape, dtype))
        same(getattr(fb, name)(x, number), general(name, x, number))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4, 4), (), (0,), (3, 1), (2000,)])
@pytest.mark.parametrize("name", UNARY)
def test_one_tensor_gives_the_bits_of_the_general_path(name, shape, dtype):
    x = fb.from_numpy(array(shape, dtype))

    same(getattr(x, name)(), general(name, x))


@pytest.mark.parametrize("arrange", [lambda a: a.T, lambda a: a[::2], lambda a: a[:, ::-1], lambda a: a[:, 1:3], np.asfortranarray])
@pytest.mark.parametrize("name", ["add", "mul", "maximum"])
def test_any_memory_order(name, arrange):
    x, y = (fb.from_numpy(array((6, 6))) for _ in range(2))
    x._array, y._array = arrange(array((6, 6))), arrange(array((6, 6), seed=1))

    same(getattr(fb, name)(x, y), general(name, x, y))


def test_relu_keeps_negative_zero_and_nan_at_every_size():
    for count in (1, 500):
        x = fb.tensor([-0.0, 0.0, float("nan"), -1.0, 2.0] * count)
        same(x.relu(), general("relu", x))
        assert np.signbit(x.relu()._array[0])
        assert np.isnan(x.relu()._array[2])


def test_operands_of_different_dtypes_promote():
    x, y = fb.ones(3), fb.ones(3, dtype=fb.float64)

    assert (x + y).dtype is (y * x).dtype is fb.float64
    assert (x + fb.ones((), dtype=fb.float64)).dtype is fb.float32


@pytest.mark.parametrize("sizes", [(4, 4, 4), (1, 5, 3), (5, 3, 1), (1, 1, 1), (3, 0, 2), (0, 3, 2), (70, 80, 90)])
@pytest.mark.parametrize("by_columns", [False, True])
def test_products_of_matrices_are_numpys(sizes, by_columns):
    n, k, m = sizes
    a, b = array((n, k)), array((k, m), seed=1)
    if by_columns:
        a, b = np.asfortranarray(a), np.asfortranarray(b)

    found = fb.from_numpy(a) @ fb.from_numpy(b)

    assert found.shape == (n, m)
    linear = fb.nn.functional.linear(fb.from_numpy(a), fb.from_numpy(b).T, fb.ones(m))
    if n > 5:   # in which order so many products are summed is up to numpy's BLAS, which goes by the processor
        np.testing.assert_allclose(found._array, np.matmul(a.astype(float), b), rtol=2e-6)
        np.testing.assert_allclose(linear._array, np.matmul(a.astype(float), b) + 1, rtol=2e-6)
    else:
        assert found._array.tobytes() == np.matmul(a, b).tobytes()
        same(linear, fb.from_numpy(np.matmul(a, b) + np.float32(1)))


def test_a_failing_call_says_what_is_wrong_and_changes_nothing():
    x, y, frozen = fb.ones(2, 3), fb.ones(4), fb.ones(3)
    frozen._array.flags.writeable = False

    with pytest.raises(RuntimeError, match=r"add: The size of tensor a \(3\) must match the size of tensor b \(4\)"):
        x + y
    with pytest.raises(RuntimeError, match="add_"):
        x.add_(fb.ones(5, 2, 3))
    with pytest.raises(RuntimeError, match="columns"):
        x @ fb.ones(2, 3)
    with pytest.raises(TypeError):
        x + "2"
    with pytest.raises(RuntimeError, match="read-only"):
        frozen.add_(fb.ones(3))
    assert x._version == 0
    assert x.tolist() == [[1.0] * 3] * 2


def test_numpys_warnings_as_errors_change_no_result():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = fb.full((3,), 3e38)
        assert (x + x).tolist() == [np.inf] * 3
        assert (x * 2.0).tolist() == [np.inf] * 3
        x.add_(x)
    assert x.tolist() == [np.inf] * 3


# -- in place ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [2.0, 3, lambda: fb.full((4, 4), 0.3), lambda: fb.full((4,), 0.3), lambda: fb.tensor(0.7)])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_in_place_forms_store_what_the_op_gives(name, other):
    other = other() if callable(other) else other
    for make in (lambda: fb.from_numpy(array((4, 4))), lambda: fb.from_numpy(array((4, 8)))[:, ::2]):
        x = make()
        expected = getattr(fb, name)(x, other)
        version = x._version

        assert getattr(x, f"{name}_")(other) is x
        assert x.tolist() == expected.tolist()
        assert x._version == version + 1


def test_in_place_on_itself_but_not_on_overlapping_views():
    x = fb.arange(6.0)
    x.add_(x)
    x[1:4].add_(x[1:4])
    assert x.tolist() == [0, 4, 8, 12, 8, 10]
    for _ in range(3):  # what is remembered of a call changes nothing
        with pytest.raises(RuntimeError, match="single memory location"):
            x[1:].add_(x[:-1])
        with pytest.raises(RuntimeError, match="single memory location"):
            x[1:] *= x[:-1]
    assert x.tolist() == [0, 4, 8, 12, 8, 10]


def test_a_leaf_refuses_writing_and_what_was_saved_is_guarded():
    leaf = fb.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        leaf.add_(1.0)
    y = fb.ones(3) * 2.0
    made = leaf * y
    y.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.sum().backward()


# -- the slow flag -------------------------------------------------------------------------------------------------------


def test_a_mode_sees_every_call():
    TorchFunctionMode = pytest.importorskip("flambeau.overrides").TorchFunctionMode

    seen = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    x = fb.ones(2, 2)
    x + x, x @ x, x.add_(x), x.view(4), x.sum()
    with Watch():
        x + x, x @ x, x.view(4), x.sum()
    x + x
    assert len(seen) == 4


def test_operations_that_nobody_in_force_answers_are_passed_by_all_at_once():
    from flambeau.ops import _entry
    from flambeau.ops._spec import OPS

    x = fb.ones(2)
    with fb.autocast("cpu"):
        x + x
        assert OPS["add"] in _entry._scope["PASSED"]
        assert OPS["mm"] not in _entry._scope["PASSED"]
        with fb.overrides.BaseTorchFunctionMode():
            assert OPS["add"] not in _entry._scope["PASSED"]
        with fb.autocast("cpu", dtype=fb.float16):
            assert OPS["add"] in _entry._scope["PASSED"]
            assert (fb.ones(2, 2) @ fb.ones(2, 2)).dtype is fb.float16
        assert (fb.ones(2, 2) @ fb.ones(2, 2)).dtype is fb.bfloat16
    assert not _entry._scope["PASSED"]


def test_flags_are_shared_with_generated_code():
    from flambeau.ops import _entry

    _state.begin_interpreting()
    try:
        assert _entry._scope["IN_FORCE"] is True
        assert (fb.ones(2) + fb.ones(2)).tolist() == [2.0, 2.0]
    finally:
        _state.end_interpreting()
    assert _entry._scope["IN_FORCE"] is _state.IN_FORCE


def test_plain_calls_stay_as_fast_once_a_subclass_has_had_an_instance(monkeypatch):
    """They look at the classes of their own operands, and at nothing that other threads and tensors do."""
    from flambeau.ops import _entry

    class Marked(fb.Tensor):
        pass

    x, i = fb.ones(2, 2), fb.zeros(2, 2, dtype=fb.int64)
    calls = [
        lambda: x + x, lambda: 2 - x, lambda: fb.add(x, x), lambda: x.exp(), lambda: x.sum(1), lambda: x @ x, lambda: x.add_(0),
        lambda: fb.gather(x, 1, i), lambda: fb.nn.functional.softmax(x, 1), lambda: x.reshape(4), lambda: fb.cat((x, x)),
        lambda: fb.add(x, x, out=fb.empty(2, 2)),
    ]  # fmt: skip
    for call in calls:
        call()
    assert type(x.as_subclass(Marked) + x) is Marked
    assert _state.INTERPRETED
    assert not _state.IN_FORCE
    monkeypatch.setitem(_entry._scope, "local", None)  # what looks at the thread fails

    for call in calls:
        assert type(call()) is fb.Tensor


def test_plain_calls_look_up_no_classes_once_a_subclass_has_had_an_instance(request, monkeypatch):
    """What answers them takes plain Tensors alone, so others are asked only where it does not."""
    from flambeau.ops import _entry, _makers

    class Marked(fb.Tensor):
        pass

    x = fb.ones(2, 2)
    marked = x.as_subclass(Marked)
    calls = [
        lambda: x + x, lambda: 2 - x, lambda: fb.add(x, x), lambda: fb.exp(x), lambda: x.sum(1), lambda: x @ x, lambda: x.mul_(1),
        lambda: x.unsqueeze(0), lambda: x[0], lambda: fb.cat((x, x)), lambda: fb.stack([x, x]),
        lambda: fb.zeros(2, 2), lambda: fb.ones((2,)), lambda: fb.empty(2), lambda: fb.full((2,), 1.0), lambda: fb.tensor([1.0, 2.0]),
        lambda: fb.zeros_like(x), lambda: fb.arange(3), lambda: fb.eye(2), lambda: fb.linspace(0, 1, 3), lambda: fb.rand(2),
        lambda: fb.randn(2), lambda: fb.randint(0, 3, (2,)),
    ]  # fmt: skip
    compiled = request.node.callspec.params["tier"] == "launchers"
    for call in calls:
        for _ in range(400 if compiled else 1):       # after which kernels take over
            call()
    assert _state.INTERPRETED
    with monkeypatch.context() as looking:
        looking.setitem(_entry._scope, "SILENT", None)
        looking.setitem(_entry._scope, "all_silent", None)
        looking.setattr(_makers, "as_written", None)
        for call in calls if compiled else calls[-12:]:
            assert type(call()) is fb.Tensor

    for made in (marked + x, x - marked, 2 - marked, fb.exp(marked), marked.sum(1), x @ marked, x[marked.long()], fb.cat((x, marked)),
                 fb.stack([marked, x]), fb.zeros_like(marked), marked.unsqueeze(0), marked[0]):  # fmt: skip
        assert type(made) is Marked


# -- views ---------------------------------------------------------------------------------------------------------------


def test_view_takes_sizes_in_every_form_and_refuses_the_rest():
    x = fb.arange(16.0).view(4, 4)

    assert x.view(2, 8).shape == x.view((2, 8)).shape == x.view(fb.Size((2, 8))).shape == x.view(-1, 8).shape == (2, 8)
    assert x.view(2, 8)._base is x._base
    assert x.view(16).data_ptr() == x.data_ptr()
    assert fb.zeros(0, 3).view(3, 0).shape == (3, 0)
    assert fb.tensor(1.0).view(1, 1).shape == (1, 1)
    for bad in ((2, -2), (-1, -1), (3, 5)):
        with pytest.raises(RuntimeError):
            x.view(*bad)
    with pytest.raises(RuntimeError, match="spans across"):
        x.T.view(16)
    assert x.T.view(4, 2, 2).shape == (4, 2, 2)


def test_views_follow_writes_to_their_base():
    w = fb.ones(4, requires_grad=True)
    x = fb.zeros(2, 4)
    row, flat = x[1], x.view(8)
    x[0].mul_(2).add_(w)
    assert flat.requires_grad
    assert row.requires_grad
    flat.sum().backward()
    assert w.grad.tolist() == [1.0] * 4


# -- backward ------------------------------------------------------------------------------------------------------------


def test_leaves_of_one_gradient_do_not_share_its_memory():
    x, y = fb.ones(3, requires_grad=True), fb.ones(3, requires_grad=True)
    (x + y).sum().backward()
    x.grad.add_(1.0)
    assert (x.grad.tolist(), y.grad.tolist()) == ([2.0] * 3, [1.0] * 3)


def test_a_given_gradient_and_what_a_hook_keeps_stay_as_they_are():
    x, given, kept = fb.ones(3, requires_grad=True), fb.full((3,), 2.0), []
    y = x + 0.0
    y.register_hook(kept.append)
    y.backward(given)
    x.grad.mul_(5.0)
    assert given.tolist() == kept[0].tolist() == [2.0] * 3


def test_a_fresh_gradient_is_not_copied(monkeypatch):
    """In `accumulate_grad` exactly the references of the engine are counted, on every interpreter."""
    copies = []
    monkeypatch.setattr(engine, "_copy", lambda grad, like: copies.append(grad) or grad.copy())
    x, y = fb.ones(3, requires_grad=True), fb.ones(3)
    (x * y).sum().backward()
    assert not copies
    x.grad = None
    x.sum().backward()
    assert not copies


def test_gradients_of_short_cuts_are_those_of_the_general_rule():
    for name in ("add", "sub", "mul", "div", "tanh", "relu", "sqrt", "neg"):
        op = OPS[name]
        for shapes in (((4, 4), (4, 4)), ((4, 4), (4,)), ((2000,), (2000,)), ((), ())):
            args = [fb.from_numpy(array(s, seed=i)).requires_grad_() for i, s in enumerate(shapes[: len(op.positional)])]
            out = getattr(fb, name)(*args)
            grad = array(out.shape, seed=7)
            fast = out._node.vjp_on_arrays(grad)
            for found, expected in zip(fast, out._node.general_vjp_on_arrays(grad), strict=False):
                assert (found is None and expected is None) or np.array_equal(found, expected), name


@pytest.mark.parametrize("shape", [(7,), (7, 5)])
def test_gradients_of_many_pieces_add_up_in_the_whole(shape):
    x = fb.from_numpy(array(shape)).requires_grad_()
    weights = [2.0, 3.0, 5.0, 7.0, 11.0]
    pieces = [x[3], x[1:4], x.select(0, 3), x[::2], x[-1]]
    total = pieces[0].sum() * weights[0]
    for piece, weight in zip(pieces[1:], weights[1:], strict=True):
        total = total + piece.sum() * weight
    total.backward(retain_graph=True)
    rows = [7.0, 3.0, 10.0, 10.0, 7.0, 0.0, 18.0]
    assert x.grad.reshape(7, -1)[:, 0].tolist() == rows
    total.backward()
    assert x.grad.reshape(7, -1)[:, -1].tolist() == [2 * r for r in rows]
    total.backward()  # nothing in this graph saved a tensor, so there was nothing to free
    assert x.grad.reshape(7, -1)[:, -1].tolist() == [3 * r for r in rows]


def test_relu_passes_gradients_of_nan():
    x = fb.tensor([float("nan"), 1.0, -1.0, 0.0], requires_grad=True)
    x.relu().sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 0.0, 0.0]


def test_hooks_run_in_order_and_may_replace_the_gradient():
    said = []
    x = fb.ones(2, requires_grad=True)
    y = x * 2.0
    y.retain_grad()
    x.register_hook(lambda g: said.append("leaf"))
    x.register_post_accumulate_grad_hook(lambda p: said.append(("accumulated", p.grad.tolist())))
    y.register_hook(lambda g: said.append("first") or g * 10.0)
    y.register_hook(lambda g: said.append(("second", g.tolist())))
    y.grad_fn.register_prehook(lambda gs: said.append("pre"))
    y.grad_fn.register_hook(lambda gi, go: said.append("post"))
    y.sum().backward()

    assert said == ["first", ("second", [10.0, 10.0]), "pre", "post", "leaf", ("accumulated", [20.0, 20.0])]
    assert y.grad.tolist() == [10.0, 10.0]


def test_hooks_record_nothing_unless_a_graph_is_asked_for():
    x, modes = fb.ones(2, requires_grad=True), []
    y = x * x
    y.register_hook(lambda g: modes.append(fb.is_grad_enabled()))
    y.sum().backward(retain_graph=True)
    fb.autograd.grad(y.sum(), x, create_graph=True)
    assert modes == [False, True]
    assert fb.is_grad_enabled()


def test_a_graph_is_used_up_unless_kept():
    x = fb.ones(2, requires_grad=True)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4.0, 4.0]
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_only_what_was_asked_for_is_computed(monkeypatch):
    x, w = fb.ones(3, 3, requires_grad=True), fb.ones(3, 3, requires_grad=True)
    calls = []
    monkeypatch.setattr(hot_calls, "matmul_nt", lambda a, b: calls.append("input") or a.dot(b.T))
    monkeypatch.setattr(hot_calls, "matmul_tn", lambda a, b: calls.append("mat2") or a.T.dot(b))
    (g,) = fb.autograd.grad((x @ w).sum(), w)
    assert calls == ["mat2"]
    assert g.tolist() == [[3.0] * 3] * 3
    assert x.grad is None


def test_errors_in_backward_leave_the_mode_as_it_was():
    x = fb.ones(2, requires_grad=True)
    y = x * x
    y.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        y.sum().backward()
    assert fb.is_grad_enabled()
    assert _state.local.backward.wanted is None


def test_a_graph_of_a_hundred_thousand_nodes():
    x = fb.ones(1, requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y * 1.0
    y.backward()
    assert x.grad.tolist() == [1.0]
    del y


def test_backward_leaves_no_reference_cycles():
    x = fb.ones(3, requires_grad=True)

    def steps():
        for _ in range(3):
            y = (x * 2.0 + x[0]).tanh() @ x
            y.sum().backward()

    steps()                                           # compilers leave cycles
    gc.collect()
    gc.disable()
    try:
        steps()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_threads_may_go_backward_at_once():
    w = fb.ones(50, requires_grad=True)
    shared = (w * w).sum()
    grads = []

    def work():
        grads.extend(fb.autograd.grad(shared, w, retain_graph=True)[0].tolist() == [2.0] * 50 for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(grads) == 200
    assert all(grads)
    assert fb.is_grad_enabled()


# -- methods -------------------------------------------------------------------------------------------------------------


def test_methods_are_made_once_and_unknown_names_are_named():
    x = fb.ones(2)
    assert fb.Tensor.cosh is fb.Tensor.cosh
    assert x.cosh().shape == (2,)
    assert "cosh" in dir(x)
    assert hasattr(x, "cosh_")
    assert x.grad is None
    with pytest.raises(AttributeError, match="no attribute 'cosine_'"):
        _ = x.cosine_


# -- when launchers are loaded -------------------------------------------------------------------------------------------

_COUNT = """
import sys, flambeau as fb
from flambeau_kernels import hot_calls
x = fb.ones(3)
for _ in range({calls}): x = x.view(3)
print("llvmlite" in sys.modules, type(hot_calls.view).__name__)
"""


def test_launchers_come_after_some_calls_from_the_cache_only(tmp_path, tier, fresh_python):
    def loaded_after(calls, **environment):
        return fresh_python("-c", _COUNT.format(calls=calls), **environment).split()

    loaded_at = round(takeover.LIBRARY / takeover.CALL)
    few, many = loaded_at - 50, loaded_at + 50
    assert loaded_after(few) == ["False", "function"]
    assert loaded_after(many, FLAMBEAU_LAUNCHERS="0") == ["False", "function"]
    assert loaded_after(many, FLAMBEAU_BACKEND="numpy") == ["False", "function"]
    assert loaded_after(many, FLAMBEAU_CACHE=str(tmp_path / "empty"))[1] == "function"
    from flambeau_kernels.engine.builtins import launchers

    if launchers.load():
        assert loaded_after(many)[1] == "builtin_function_or_method"


def test_a_long_process_compiles_launchers_for_the_next(tmp_path, tier, fresh_python):
    from flambeau_kernels.engine.builtins import launchers

    if not launchers.load():
        pytest.skip(launchers.available()[1])
    cache = str(tmp_path / "cache")
    loaded_at, compiled_at = (round(price / takeover.CALL) for price in (takeover.LIBRARY, takeover.LAUNCHERS))
    assert fresh_python("-c", _COUNT.format(calls=compiled_at + 50), FLAMBEAU_CACHE=cache).split()[0] == "True"
    assert fresh_python("-c", _COUNT.format(calls=loaded_at + 50), FLAMBEAU_CACHE=cache).split()[1] == (
        "builtin_function_or_method"
    )


_MEMORY = """
import resource, numpy as np
from flambeau_kernels import memory
print(memory.keep_freed())
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.ones(1_000_000, np.float32) for _ in range(5)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def test_freed_memory_is_used_again(fresh_python):
    kept, faults = fresh_python("-c", _MEMORY).split()
    if kept == "False":
        pytest.skip("not glibc")
    assert int(faults) < 200
    assert fresh_python("-c", _MEMORY, FLAMBEAU_KEEP_MEMORY="0").split()[0] == "False"


@pytest.mark.parametrize("operand", ["other", "itself", "its view", "ahead", "behind", "number"])
def test_in_place_on_large_tensors(operand):
    memory = np.arange(9000, dtype=np.float32)
    a = fb.from_numpy(memory)[1000:6000]
    b = {
        "other": fb.full((5000,), 2.0), "itself": a, "its view": fb.from_numpy(memory)[1000:6000],
        "ahead": fb.from_numpy(memory)[1001:6001], "behind": fb.from_numpy(memory)[999:5999], "number": 2.5,
    }[operand]  # fmt: skip
    wanted = a.numpy().copy() * (b.numpy().copy() if isinstance(b, fb.Tensor) else b)
    version = a._version

    if operand in ("ahead", "behind"):
        with pytest.raises(RuntimeError, match="single memory location"):
            a.mul_(b)
        assert a._version == version
        return
    assert a.mul_(b) is a
    np.testing.assert_array_equal(a.numpy(), wanted)
    assert a._version == version + 1

"""Named tensors among everything else: histories, views, what is written, modes, classes, copies and files."""

from __future__ import annotations

import copy
import io
import pickle
import threading

import pytest

import flambeau as fb
from flambeau.autograd import gradcheck
from flambeau.overrides import TorchFunctionMode
from flambeau.utils._python_dispatch import TorchDispatchMode

pytestmark = pytest.mark.filterwarnings("ignore:Named tensors and all their associated APIs")
LOST = r"not yet supported with named tensors.*`tensor = tensor\.rename\(None\)`"


def named(*shape, names="NC", requires_grad=False):
    return fb.linspace(0.1, 1, fb.Size(shape).numel()).reshape(*shape).requires_grad_(requires_grad).rename(*names)


def test_gradients_pass_through_every_change_of_names():
    def f(x):
        x = x.refine_names("N", "C", "H")
        x = x.align_to("H", "B", "C", "N").flatten(["B", "C"], "D").unflatten("D", (("B", 1), ("C", 3)))
        return (x.rename(H="W") * x.rename(None)).sum(["W", "B"]).rename(None)

    x = fb.rand(2, 3, 4, dtype=fb.float64, requires_grad=True)

    assert gradcheck(f, (x,))
    assert f(x).shape == (3, 2)


def test_a_graph_of_the_gradients_has_no_names():
    weight = fb.rand(3, names=("D",), requires_grad=True)
    loss = (weight**3).sum("D")

    (slope,) = fb.autograd.grad(loss, weight, create_graph=True)
    (curve,) = fb.autograd.grad(slope, weight, fb.ones(3, names=("X",)))

    assert (slope.names, curve.names) == ((None,), (None,))
    assert fb.allclose(curve, 6 * weight.detach().rename(None))


def test_hooks_and_optimizers_see_gradients_without_names():
    weight = fb.ones(3, names=("D",), requires_grad=True)
    seen = []
    weight.register_hook(lambda grad: seen.append(grad.names))
    optimizer = fb.optim.SGD([weight], lr=0.5)

    (weight * 2).sum().backward()
    optimizer.step()

    assert seen == [(None,)]
    assert weight.names == ("D",)
    assert weight.tolist() == [0.0, 0.0, 0.0]


def test_a_view_shares_memory_and_history_with_its_base():
    base = fb.zeros(2, 3, requires_grad=True)
    x = (base * 1).refine_names("N", "C")
    row = x.select("N", 0)

    row.add_(5)
    row.sum("C").backward()

    assert x.rename(None).tolist() == [[5, 5, 5], [0, 0, 0]]
    assert base.grad.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert row.names == ("C",)
    assert row._base is not None
    assert row._base.data_ptr() == x.data_ptr()


def test_writing_to_a_renamed_view_is_seen_by_its_base_with_its_history():
    w = fb.ones(3, requires_grad=True)
    base = fb.zeros(2, 3)
    view = base.refine_names("N", "C")

    view.mul_(0).add_(w)
    base.sum().backward()

    assert base.names == (None, None)
    assert base.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert w.grad.tolist() == [2, 2, 2]


def test_saved_operands_that_were_written_are_noticed():
    w = fb.ones(3, names=("C",), requires_grad=True)
    x = fb.ones(3, names=("C",))
    product = w * x
    x.add_(1)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward(fb.ones(3))


def test_names_of_the_tensor_itself_are_changed():
    x = fb.zeros(2, 3)
    before = x
    assert not x.has_names()

    x.names = ["N", None]
    assert (x.names, x.has_names()) == (("N", None), True)
    assert x.rename_("A", "B") is x
    assert x.rename_(A="Z").names == ("Z", "B")
    x.names = None

    assert x is before
    assert (x.names, x.has_names(), type(x)) == ((None, None), False, fb.Tensor)
    with pytest.raises(RuntimeError, match="Tried to rename dim 'Q'"):
        x.rename_(Q="R")
    with pytest.raises(RuntimeError, match="give either positional names"):
        x.rename_("A", "B", C="D")
    with pytest.raises(RuntimeError, match="give either positional names"):
        x.rename()
    with pytest.raises(RuntimeError, match="All input dims must be named"):
        x.align_to("A", "B")
    with pytest.raises(TypeError, match="must be Tensor"):
        named(2, 3).align_as("NC")


def test_an_out_is_named_or_has_the_names_already():
    x, y = named(2, 3), fb.ones(2, 3)
    plain, same, other = fb.empty(2, 3), fb.empty(2, 3, names=("N", "C")), fb.zeros(2, 3, names=("N", "D"))

    assert fb.add(x, y, out=plain) is plain
    assert fb.add(x, y, out=same) is same
    assert plain.names == same.names == ("N", "C")
    assert plain.tolist() == same.tolist() == (x + y).tolist()
    with pytest.raises(RuntimeError, match=r"Name mismatch: specified out tensor with names \['N', 'D'\].*\['N', 'C'\]"):
        fb.add(x, y, out=other)
    with pytest.raises(RuntimeError, match="Name mismatch"):
        fb.add(y, y, out=other)
    assert other.tolist() == fb.zeros(2, 3).tolist()
    values, places = fb.empty(0), fb.empty(0, dtype=fb.int64)
    fb.kthvalue(x, 1, "N", out=(values, places))
    assert values.names == places.names == ("C",)


def test_what_cannot_be_written_stays_as_it_is():
    x, z = fb.ones(2, 3, names=("N", "C")), fb.ones(2, 3, names=("N", "D"))

    with pytest.raises(RuntimeError, match="do not match"):
        x += z
    with pytest.raises(RuntimeError, match="do not match"):
        x.copy_(z)

    assert x.names == ("N", "C")
    assert x.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_a_tensor_changes_shape_in_place_with_its_names():
    x = named(2, 3)

    x.transpose_("N", "C")
    assert (x.names, tuple(x.shape)) == (("C", "N"), (3, 2))
    x.t_()
    assert (x.names, tuple(x.shape)) == (("N", "C"), (2, 3))
    y = named(1, 3)
    assert y.squeeze_("N").names == ("C",)
    assert [part.names for part in x] == [("C",), ("C",)]


def test_copies_keep_names_and_files_refuse_them():
    x = named(2, 3, requires_grad=True)

    for made in (copy.copy(x.detach()), copy.deepcopy(x.detach()), x.clone(), x.detach(), x.data, fb.as_tensor(x)):
        assert made.names == ("N", "C")
        assert made.tolist() == x.tolist()
    assert copy.deepcopy(x.detach()).data_ptr() != x.data_ptr()
    for write in (lambda: fb.save(x, io.BytesIO()), lambda: pickle.dumps(x), lambda: fb.save({"a": [x]}, io.BytesIO())):
        with pytest.raises(RuntimeError, match="Named tensors don't support serialization"):
            write()
    fb.save(x.rename(None).detach(), io.BytesIO())


def test_other_memory_has_the_same_shape():
    x = named(2, 3)

    x.data = fb.ones(2, 3)
    assert (x.names, x.tolist()) == (("N", "C"), [[1, 1, 1], [1, 1, 1]])
    with pytest.raises(RuntimeError, match="Cannot resize named tensor"):
        x.data = fb.ones(4)
    assert x.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_a_program_without_names_changes_nothing_to_print_or_ask_for_them(fresh_python):
    code = """
import sys, flambeau as fb
made = fb.zeros
x = fb.ones(2, requires_grad=True)
print(repr(x), x.names, x.has_names(), fb.vmap(fb.sin)(x).names, fb.zeros is made, "flambeau.ops._named" in sys.modules)
"""
    assert fresh_python("-c", code).strip() == "tensor([1., 1.], requires_grad=True) (None,) False (None,) True False"


def test_autocast_keeps_names():
    x, y = named(2, 3), named(3, 2, names=("C", "M"))

    with fb.autocast("cpu", dtype=fb.bfloat16):
        product = x @ y
        total = x.sum("N")

    assert (product.names, product.dtype) == (("N", "M"), fb.bfloat16)
    assert fb.equal(product.rename(None), (x.rename(None).bfloat16() @ y.rename(None).bfloat16()))
    assert (total.names, total.dtype) == (("C",), fb.float32)


def test_modes_see_calls_with_names():
    functions, operators = [], []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            functions.append(func.__name__)
            return func(*args, **(kwargs or {}))

    class Passing(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            operators.append(str(func))
            return func(*args, **(kwargs or {}))

    x = named(2, 3)
    with Functions():
        assert x.abs().names == ("N", "C")
    with Operators():
        assert x.sum("N").names == ("C",)
    with Passing():
        assert x.mul(2).names == ("N", "C")
    with fb.profiler.profile():
        assert (x + x).names == ("N", "C")

    assert functions[0] == "abs"
    assert operators == ["aten.sum.dim_IntList"]


def test_a_subclass_of_a_program_has_no_names():
    class Sub(fb.Tensor):
        pass

    x, sub = named(2, 3), fb.ones(2, 3).as_subclass(Sub)

    with pytest.raises(TypeError, match=r"no implementation found for 'add'.*NamedTensor, Sub"):
        x + sub
    with pytest.raises(NotImplementedError, match="plain strided tensors"):
        sub.rename_("N", "C")
    with pytest.raises(NotImplementedError, match="plain strided tensors"):
        sub.rename("N", "C")
    with pytest.raises(NotImplementedError, match="plain strided tensors"):
        fb.eye(2).to_sparse().rename("N", "C")
    assert (sub + 1).names == (None, None)


def test_transforms_and_compile_refuse_names():
    x, plain = named(2, 3), fb.ones(2, 3)

    with pytest.raises(RuntimeError, match=LOST):
        fb.vmap(lambda a: a + 1)(x)
    with pytest.raises(RuntimeError, match="under vmap is " + LOST):
        fb.vmap(lambda a: a + x.rename(None).refine_names("N", "C").sum("N"))(plain)
    with pytest.raises(RuntimeError, match="under compile is " + LOST):
        fb.compile(lambda a: a + 1)(x)
    with pytest.raises((RuntimeError, NotImplementedError), match=f"{LOST}|plain strided tensors"):
        fb.compile(lambda a: (a * 2).refine_names("N", "C") + 1)(plain)


def test_parameters_of_modules_stay_as_they_are():
    linear = fb.nn.Linear(3, 2)

    with pytest.raises(RuntimeError, match=LOST):
        linear(named(2, 3))
    assert (named(2, 3) @ linear.weight.refine_names("out", "in").t()).names == ("N", "out")
    assert linear.weight.names == (None, None)
    assert linear(named(2, 3).rename(None)).refine_names("N", "out").names == ("N", "out")


def test_meta_tensors_have_names():
    x = fb.zeros(2, 3, names=("N", "C"), device="meta")

    assert (x @ fb.zeros(3, 4, names=(None, "D"), device="meta")).names == ("N", "D")
    assert "device='meta'" in repr(x)
    assert repr(x).endswith("names=('N', 'C'))")


def test_names_are_shown_behind_the_history():
    x = fb.ones(2, names=("N",), requires_grad=True)

    assert repr(x) == "tensor([1., 1.], requires_grad=True, names=('N',))"
    assert repr(x.double()) == "tensor([1., 1.], dtype=torch.float64, grad_fn=<ToCopyBackward0>, names=('N',))"


def test_threads_name_tensors_of_their_own():
    wrong = []

    def work(name):
        for _ in range(200):
            x = fb.ones(3, 2, names=(name, "C"))
            if (x + fb.ones(2)).sum("C").names != (name,) or fb.ones(2).add(1).names != (None,):
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in "NMKL"]
    for t in threads:
        t.start()
    for t in threads:
        t.join()

    assert wrong == []


def test_plain_tensors_stay_plain_while_others_have_names():
    x = named(2, 3)
    plain = fb.ones(2, 3)

    for made in (plain + 1, plain.sum(0), plain.t(), plain.clone(), x.rename(None), x.masked_select(x > 0), x.new_ones(2, 3)):
        assert type(made) is fb.Tensor
        assert not made.has_names()

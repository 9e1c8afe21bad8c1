"""`__torch_function__`: subclasses, stand-ins, modes, and what resolves to which name."""

from __future__ import annotations

import inspect
import operator
import sys
import threading

import pytest

import flambeau as fb
import flambeau_kernels as kernels
from flambeau import overrides
from flambeau.ops import _derive, _entry, _refusal
from flambeau.ops._spec import OPS
from flambeau.utils._python_dispatch import TorchDispatchMode

F = fb.nn.functional


class Plain(fb.Tensor):
    """A subclass with the default behaviour."""


@pytest.fixture
def plain():
    return fb.arange(6.0).reshape(2, 3).as_subclass(Plain)


KEEP = {
    "operator": lambda x: x + 1,
    "reflected operator": lambda x: 1 - x,
    "product": lambda x: x @ fb.ones(3),
    "reduction": lambda x: x.sum(),
    "index": lambda x: x[0, 1:],
    "view": lambda x: x.view(6),
    "property": lambda x: x.T,
    "conversion": lambda x: x.double(),
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "new": lambda x: x.new_zeros(2),
    "like": lambda x: fb.zeros_like(x),
    "one of several": lambda x: x.max(0)[0],
    "function": lambda x: F.relu(x),
    "list": lambda x: fb.cat([x, fb.ones(1, 3)]),
    "with a parameter": lambda x: x * fb.nn.Parameter(fb.ones(3)),
    "in place": lambda x: x.add_(1),
}


@pytest.mark.parametrize("name", KEEP)
def test_results_keep_the_class(plain, name):
    assert type(KEEP[name](plain)) is Plain


def test_gradients_and_parameters_stay_plain(plain):
    plain.requires_grad_().sum().backward()
    p = fb.nn.Parameter(fb.ones(2))

    assert type(plain.grad) is fb.Tensor
    assert [type(t) for t in (p * 2, p.data, p.detach())] == [fb.Tensor] * 3


def differentiated(lib, override):
    """What a class sees of `grad` and `backward`, and the classes of gradients."""
    seen = []

    class Watching(lib.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(getattr(func, "__name__", ""))
            return super().__torch_function__(func, types, args, kwargs or {})

    class Mode(override):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(f"mode: {func.__name__}")
            return func(*args, **(kwargs or {}))

    x, p = lib.ones(2).as_subclass(Watching).requires_grad_(), lib.ones(2, requires_grad=True)
    (of_class,), (of_plain,) = lib.autograd.grad((x * 2).sum(), x), lib.autograd.grad((p * x).sum(), [p])
    lib.autograd.backward((x * 2).sum())
    (x * 2).sum().backward()
    with Mode():
        y = (p * 2).sum()
        lib.autograd.grad(y, p, retain_graph=True)
        lib.autograd.backward([y], retain_graph=True)
        y.backward()
    return seen, [type(g).__name__ for g in (of_class, of_plain, p.grad)]


@pytest.mark.oracle
def test_classes_and_modes_are_asked_for_gradients_as_in_pytorch(oracle):
    ours = differentiated(fb, fb.overrides.TorchFunctionMode)

    assert ours == differentiated(oracle, oracle.overrides.TorchFunctionMode)
    assert ours[0].count("grad") == 2


def test_a_class_of_no_module_keeps_its_results():
    scope = {"Tensor": fb.Tensor}
    exec("Loose = type('Loose', (Tensor,), {})", scope)  # a module says its name, this text does not
    x = fb.ones(2).as_subclass(scope["Loose"])

    assert type(x + 1) is type(x.t()) is type(fb.exp(x)) is scope["Loose"]


class Logged(fb.Tensor):
    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(overrides.resolve_name(func) or func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_the_whole_interface_is_seen():
    x = fb.ones(3).as_subclass(Logged)
    Logged.calls.clear()
    x + 1, x.sum(), x.shape, x.size(), x[0], x.requires_grad, x.tolist(), len(x), x.to(fb.float64), fb.zeros_like(x), F.relu(x)
    x[0] = 1

    assert [c.removeprefix("torch.") for c in Logged.calls] == [
        "Tensor.add", "Tensor.sum", "Tensor.shape.__get__", "Tensor.size", "Tensor.__getitem__", "Tensor.requires_grad.__get__",
        "Tensor.tolist", "Tensor.__len__", "Tensor.to", "zeros_like", "nn.functional.relu", "Tensor.__setitem__",
    ]  # fmt: skip


class Stand:
    """No Tensor at all."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, len(args), kwargs or {}


def test_stand_ins_answer_for_operands():
    assert fb.add(Stand(), 2) == ("add", 2, {})
    assert fb.add(fb.ones(2), Stand()) == ("add", 2, {})
    assert fb.add(Stand(), 2, alpha=3) == ("add", 2, {"alpha": 3})
    assert fb.cat([fb.ones(2), Stand()]) == ("cat", 1, {})
    assert fb.ones(2) * Stand() == ("mul", 2, {})


def test_subclasses_are_asked_before_their_bases():
    class Silent:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    class Speaking(Silent):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return [t.__name__ for t in types]

    assert fb.add(Silent(), Speaking()) == ["Speaking", "Silent"]
    with pytest.raises(TypeError, match=r"no implementation found for 'add'.*Silent"):
        fb.add(Silent(), 1)


class Recording(overrides.TorchFunctionMode):
    def __init__(self):
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_modes_see_functions_methods_and_creation():
    with Recording() as outer, Recording() as inner:
        (fb.zeros(2) + fb.ones(2)).sum()

    assert outer.names == inner.names == ["zeros", "ones", "add", "sum"]
    fb.zeros(1)
    assert len(inner.names) == 4


def test_a_mode_may_answer_differently():
    class Swapped(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return fb.mul(*args) if func is fb.sub else func(*args, **(kwargs or {}))

    with Swapped():
        assert fb.sub(fb.tensor(3.0), fb.tensor(4.0)).item() == 12.0


def test_overriding_can_be_switched_off(plain):
    with overrides.DisableTorchFunctionSubclass():
        assert type(plain + 1) is fb.Tensor
    with Recording() as mode, overrides.DisableTorchFunction():
        plain + 1

    assert mode.names == []


def test_wrapped_functions_are_overridable():
    @overrides.wrap_torch_function(lambda a: (a,))
    def twice(a):
        return a * 2

    assert twice(3) == 6
    assert twice(Stand()) == ("twice", 1, {})


def test_what_counts_as_a_tensor(plain):
    assert [overrides.is_tensor_like(v) for v in (plain, fb.ones(1), Stand(), 3, None)] == [True, True, True, False, False]
    assert overrides.has_torch_function((plain,))
    assert not overrides.has_torch_function((fb.ones(1), fb.nn.Parameter(fb.ones(1))))


def test_names_and_lists_of_functions():
    assert overrides.resolve_name(fb.add) == "torch.add"
    assert overrides.resolve_name(fb.Tensor.shape.__get__) == "torch.Tensor.shape.__get__"
    assert overrides.is_tensor_method_or_property(fb.Tensor.size)
    assert fb.add in overrides.get_overridable_functions()[fb]
    assert fb.Tensor.as_subclass in overrides.get_ignored_functions()
    assert overrides.get_testing_overrides()[fb.add](1, 2) == -1


def test_dispatch_modes_see_ops_below_compositions():
    with Names() as mode:
        made = fb.ones(2, 2) @ fb.ones(2, 2)

    assert mode.names == ["aten::ones", "aten::ones", "aten::mm"]
    assert made.tolist() == [[2.0, 2.0], [2.0, 2.0]]


class Names(TorchDispatchMode):
    """Keeps the names of the ops that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def test_dispatch_modes_see_what_backward_computes():
    model = fb.nn.Sequential(fb.nn.Linear(4, 5), fb.nn.Tanh(), fb.nn.Linear(5, 3))
    x, target = fb.randn(8, 4), fb.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    F.cross_entropy(model(x), target).backward()
    plain = [p.grad for p in model.parameters()]
    before = [g.clone() for g in plain]
    seen = []
    model[0].weight.register_hook(lambda grad: seen.append(grad.requires_grad))

    loss = F.cross_entropy(model(x), target)
    with Names() as mode:
        loss.backward()
    found = fb.autograd.grad(F.cross_entropy(model(x), target), [*model.parameters()])

    assert mode.names.count("aten::mm") == 3          # of two weights, and of what comes between
    assert seen == [False, False]
    for p, g, once, again in zip(model.parameters(), plain, before, found, strict=True):
        assert p.grad is g                            # added to in place, as without a mode
        fb.testing.assert_close(g, 2 * once)
        fb.testing.assert_close(again, once)
        assert not g.requires_grad


def test_gradients_asked_for_under_a_dispatch_mode_are_seen_and_may_be_differentiated():
    x = fb.tensor([1.0, 2.0], requires_grad=True)
    with Names() as mode:
        (slope,) = fb.autograd.grad((x**3).sum(), x, create_graph=True)
        seen = len(mode.names)
        (curve,) = fb.autograd.grad(slope.sum(), x)

    assert seen < len(mode.names)
    assert slope.tolist() == [3.0, 12.0]
    assert curve.tolist() == [6.0, 12.0]
    assert not curve.requires_grad


def test_pytrees_come_apart_and_together():
    from flambeau.utils import _pytree

    tree = {"a": [1, (2, 3)], "b": None}
    leaves, spec = _pytree.tree_flatten(tree)

    assert leaves == [1, 2, 3, None]
    assert spec.unflatten(leaves) == tree
    assert _pytree.tree_map(lambda x, y: (x, y), [1, 2], [3, 4]) == [(1, 3), (2, 4)]
    with pytest.raises(ValueError, match="leaves"):
        spec.unflatten([1])


@pytest.fixture
def looked_at(monkeypatch):
    """Names of the ops whose entry points went to ask modes, classes and interpreters."""
    seen = []

    for name in ("call", "call_inplace", "interpret", "of_one_class"):
        answer = _entry._scope[name]
        monkeypatch.setitem(_entry._scope, name, lambda op, *rest, answer=answer: seen.append(op.name) or answer(op, *rest))
    return seen


PLAIN_CALLS = [
    lambda x, y: x + y, lambda x, y: 2 * x, lambda x, y: x @ y, lambda x, y: x.sum(), lambda x, y: fb.cat([x, y]), lambda x, y: x[0],
    lambda x, y: F.gelu(x), lambda x, y: x.add_(y), lambda x, y: F.linear(x, y, fb.nn.Parameter(y[0])), lambda x, y: x.max(0),
    lambda x, y: F.cross_entropy(x, fb.tensor([0, 1])), lambda x, y: x.reshape(4), lambda x, y: x.view(4),
    lambda x, y: x.masked_fill(x > 1, 0), lambda x, y: F.softmax(x, 1), lambda x, y: F.pad(x, (1, 1)), lambda x, y: x.logsumexp((0, 1)),
    lambda x, y: fb.einsum("ij,jk->ik", x, y), lambda x, y: x.std(), lambda x, y: F.layer_norm(x, (2,)),
]  # fmt: skip


@pytest.mark.parametrize("call", PLAIN_CALLS)
def test_a_living_subclass_leaves_the_calls_of_other_tensors_alone(call, plain, looked_at):
    call(fb.ones(2, 2), fb.ones(2, 2))

    assert looked_at == []


def test_a_living_subclass_is_asked_about_its_own_calls(plain, looked_at):
    fb.ones(3) + plain, fb.cat([fb.ones(2, 3), plain])

    assert list(dict.fromkeys(looked_at)) == ["add", "cat"]  # each again inside its handler


@pytest.mark.skipif(kernels.cpu_backend() != "llvm", reason="its builtins are the native engine's")
def test_an_operation_on_a_subclass_enters_three_functions(plain):
    for _ in range(6000):                             # until all that is compiled late has been
        plain + plain
    entered = []
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_name) if event == "call" else None)
    try:
        plain + plain  # what is looked at is the call
    finally:
        sys.setprofile(None)

    assert entered == ["__add__", "of_one_class", "enter"]


def test_compositions_do_not_ask_arguments_that_cannot_be_tensors():
    _derive.load_all()
    asked = []
    for op in set(OPS.values()):
        if op.kind == "composite" and op.surface:
            types = _refusal.types_of(op)
            kinds = {name: {t.text().strip("?") for t in types.get(name, ())} for name in _entry._operands(op)}
            asked += [f"{op.qualified}: {name}" for name, known in kinds.items() if known and not any(map(_may_hold_tensors, known))]

    assert asked == []


def _may_hold_tensors(kind: str) -> bool:
    return kind.startswith(("Tensor", "Scalar")) and kind != "ScalarType"


@pytest.mark.parametrize("call", [
    lambda x: F.softmax(fb.ones(2, 2), x), lambda x: fb.ones(2, 2).chunk(x), lambda x: fb.stft(fb.ones(16), 4, x),
    lambda x: fb.logsumexp(fb.ones(2, 2), x), lambda x: F.avg_pool2d(fb.ones(1, 1, 4, 4), x),
])  # fmt: skip
def test_a_class_that_overrides_functions_is_asked_in_the_place_of_a_number(call):
    class StandIn:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    assert call(StandIn()) in ("softmax", "chunk", "stft", "logsumexp", "avg_pool2d")


@pytest.mark.parametrize("call", PLAIN_CALLS)
def test_modes_of_another_thread_leave_the_calls_of_this_one_alone(call, looked_at):
    entered, done = threading.Event(), threading.Event()

    def work():
        with Recording(), fb.autocast("cpu", dtype=fb.bfloat16):
            entered.set()
            done.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    entered.wait(60)
    try:
        call(fb.ones(2, 2), fb.ones(2, 2))
        assert looked_at == []
    finally:
        done.set()
        thread.join()


def test_stand_ins_are_asked_in_a_process_without_subclasses(fresh_python):
    fresh_python("-c", """
import flambeau as fb
class Stand:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__
F = fb.nn.functional
x = fb.ones(2)
calls = [fb.add(Stand(), 2), fb.add(x, Stand()), x * Stand(), fb.cat([x, Stand()]), fb.sum(Stand()), F.gelu(Stand()), x.add_(Stand()),
         F.mse_loss(x, Stand()), fb.where(x > 0, Stand(), x), fb.matmul(x, Stand())]
assert calls == ["add", "add", "mul", "cat", "sum", "gelu", "add_", "mse_loss", "where", "matmul"], calls
try:
    fb.add("a", 2)
except TypeError as error:
    assert "must be Tensor" in str(error)
else:
    raise AssertionError
""")  # fmt: skip


def test_stand_ins_for_tests_have_the_signatures_of_the_functions():
    import inspect

    dummies = overrides.get_testing_overrides()

    assert str(inspect.signature(dummies[fb.add])) == "(input, other, *, alpha=1, out=None)"
    assert str(inspect.signature(dummies[fb.Tensor.permute])) == "(input, *dims)"
    assert str(inspect.signature(dummies[fb.Tensor.fill_])) == "(self, value)"
    assert str(inspect.signature(dummies[fb.Tensor.device.__get__])) == "(self)"
    assert dummies[fb.add](1, other=2) == -1
    with pytest.raises(TypeError):
        dummies[fb.add](1, 2, 3, 4)


@pytest.mark.oracle
def test_what_cannot_be_overridden_is_what_pytorch_says(oracle):
    ignored = overrides.get_ignored_functions()
    theirs = oracle.overrides.get_ignored_functions()
    both = [(n, getattr(fb, n, None), getattr(oracle, n, None)) for n in dir(fb) if not n.startswith("_")]
    names = [n for n, ours, other in both if callable(ours) and callable(other) and not isinstance(ours, type)]

    # PyTorch puts other functions in the place of some once it has compiled something in this process, under their names.
    listed = {getattr(f, "__name__", "") for f in theirs}
    wrong = [n for n in names if getattr(fb, n) in ignored and getattr(oracle, n) not in theirs and n not in listed]
    missing = [n for n in names if getattr(oracle, n) in theirs and getattr(fb, n) not in ignored]

    assert set(wrong) <= {"compiled_with_cxx11_abi", "set_default_dtype", "from_dlpack"}
    assert not missing
    assert overrides.resolve_name(fb.save) == "torch.save"
    assert overrides.resolve_name(fb.Tensor.grad.__get__) == "torch.Tensor.grad.__get__"


def test_stand_ins_in_lists_and_among_several_arguments_are_asked():
    class Stand:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    t = fb.ones(2)

    assert fb.stack([t, Stand()]) == fb.stack([Stand(), t]) == "stack"
    assert fb.hstack([t, Stand()]) == "hstack"
    assert fb.meshgrid(t, Stand()) == "meshgrid"
    assert fb.block_diag(t, Stand()) == "block_diag"
    assert fb.einsum("i,i", t, Stand()) == "einsum"
    assert fb.zeros_like(Stand()) == "zeros_like"
    assert fb.is_floating_point(Stand()) == "is_floating_point"
    with pytest.raises(TypeError, match="expected Tensor as element 1"):
        fb.stack([t, object()])


def test_an_error_in_an_overriding_class_is_handed_on_as_it_is():
    class Lazy:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return fb.no_such_name

    for call in (lambda x: fb.linalg.solve(x, fb.ones(2)), fb.sum, fb.linalg.eigh, fb.logdet, lambda x: fb.add(fb.ones(2), x)):
        with pytest.raises(AttributeError, match="no_such_name"):
            call(Lazy())


def test_creation_and_indexing_beside_a_subclass_still_ask_it():
    class Asked(fb.Tensor):
        seen = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = fb.arange(6).reshape(2, 3).as_subclass(Asked)
    Asked.seen.clear()

    assert type(x[1]) is Asked
    assert fb.arange(6).reshape(2, 3)[x[1, 0] - 3].tolist() == [0, 1, 2]
    assert fb.zeros_like(x).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert fb.zeros(2, out=fb.empty(2).as_subclass(Asked)).tolist() == [0, 0]
    assert Asked.seen.count("__getitem__") + Asked.seen.count("getitem") == 3
    assert {"zeros_like", "zeros"} <= set(Asked.seen)


def test_an_autocast_product_has_the_bits_of_the_casted_one_whatever_ran_before():
    a, b = fb.rand(4, 4), fb.rand(4, 4)
    expected = a.bfloat16() @ b.bfloat16()
    for dtype, other in ((fb.bfloat16, expected), (fb.float16, a.half() @ b.half()), (fb.bfloat16, expected)):
        with fb.autocast("cpu", dtype=dtype):
            made = [a @ b for _ in range(3)]
            with fb.autocast("cpu", enabled=False):
                assert (a @ b).dtype is fb.float32
            made.append(a @ b)

        assert all(m.dtype is dtype and m.equal(other) for m in made)


class StandIn:
    """No tensor: what is asked of it is noted."""

    asked: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.asked.append(func)
        return "answered"


@pytest.mark.parametrize(
    "name",
    [
        "dequantize", "embedding_bag", "fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine", "get_device", "gru",
        "gru_cell", "lstm", "lstm_cell", "native_dropout", "nn.init.constant_", "nn.init.kaiming_uniform_", "nn.init.normal_",
        "nn.init.uniform_", "norm_except_dim", "poisson_nll_loss", "quantize_per_channel", "quantize_per_tensor",
        "quantize_per_tensor_dynamic", "rnn_relu", "rnn_tanh_cell", "sym_float", "sym_ite", "sym_max", "sym_sqrt", "sym_sum",
        "unsafe_split_with_sizes",
    ],
)  # fmt: skip
def test_functions_that_are_no_ops_ask_their_arguments_classes(name):
    function = operator.attrgetter(name)(fb)
    needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    StandIn.asked.clear()
    assert function(*[StandIn() for _ in needed]) == "answered"
    assert StandIn.asked == [function]                # as programs know it
    assert overrides.resolve_name(function) == f"torch.{name}"
    assert function in overrides.get_testing_overrides()


def test_modes_see_native_functions_as_one():
    seen = []

    class Note(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = fb.ones(3)
    with Note():
        fb.native_dropout(x, 0.5, True)
        fb.quantize_per_tensor(x, 0.1, 0, fb.quint8)
    assert seen == [fb.native_dropout, fb.quantize_per_tensor]


def test_the_function_of_a_type_has_its_name(plain):
    names = []

    class Noting(fb.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            names.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs)

    fb.ones(2).as_subclass(Noting).type()
    assert names == ["type"]


def test_operators_are_seen_as_they_were_called():
    from flambeau.overrides import resolve_name

    seen = []

    class Seen(fb.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((resolve_name(func), [type(a).__name__ for a in args]))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = fb.tensor([1, 2]).as_subclass(Seen)
    for made, expected in ((1 - x, [0, -1]), (x == x, [True, True]), (x**2, [1, 4]), (7 // x, [7, 3]), (x & 1, [1, 0]), (1 << x, [2, 4])):
        assert type(made) is Seen
        assert made.tolist() == expected
    operators = [s for s in seen if s[0].rpartition(".")[2].startswith("__")]
    assert operators == [
        ("torch.Tensor.__rsub__", ["Seen", "int"]), ("torch.Tensor.__eq__", ["Seen", "Seen"]), ("torch.Tensor.__pow__", ["Seen", "int"]),
        ("torch.Tensor.__rfloordiv__", ["Seen", "int"]), ("torch.Tensor.__and__", ["Seen", "int"]),
        ("torch.Tensor.__rlshift__", ["Seen", "int"]),
    ]  # fmt: skip
    seen.clear()
    assert [type(row) for row in x.reshape(2, 1)] == [Seen, Seen]
    for made in (fb.stack([x, x]), fb.atleast_2d(x), fb.nn.utils.rnn.pad_sequence([x, x])):
        assert type(made) is Seen
    names = [s[0] for s in seen]
    assert names[-3:-1] == ["torch.stack", "torch.atleast_2d"]


def test_modes_see_methods_that_are_no_ops():
    from flambeau.overrides import TorchFunctionMode, resolve_name

    seen = []

    class Log(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append((resolve_name(func), kwargs))
            return func(*args, **(kwargs or {}))

    x = fb.ones(2).requires_grad_()
    with Log():
        y = (1 - x).sum()
        y.backward(retain_graph=True)
        x.detach().numpy()
        x.tolist()
        repr(x)
    names = [name for name, _ in seen]

    assert names == [
        "torch.Tensor.__rsub__", "torch.Tensor.sum", "torch.Tensor.backward", "torch.detach", "torch.Tensor.numpy", "torch.Tensor.tolist",
        "torch.Tensor.__repr__",
    ]  # fmt: skip
    assert seen[2][1] == {"gradient": None, "retain_graph": True, "create_graph": False, "inputs": None}
    assert x.grad.tolist() == [-1.0, -1.0]


def test_operands_of_einsum_in_a_list_are_handed_on_one_by_one():
    seen = []

    class Watching(fb.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((args[1:], kwargs))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = fb.ones(2, 2).as_subclass(Watching)

    assert fb.einsum("ij,jk->ik", [x, x]).tolist() == fb.einsum("ij,jk->ik", x, x).tolist() == [[2, 2], [2, 2]]
    assert [part is x for part in seen[0][0]] == [True, True]
    assert not seen[0][1]


def test_operators_are_seen_as_they_are_called():
    seen = []

    class Sees(fb.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return super().__torch_function__(func, types, args, kwargs or {})

    class Mode(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(f"mode {func}")
            return func(*args, **(kwargs or {}))

    x = fb.ones(2).as_subclass(Sees)
    made = fb.ops.aten.add.Tensor(x, 1)
    fb.ops.aten.cat([fb.ones(1), x])
    with Mode():
        fb.ops.aten.sin.default(x)

    assert seen == ["aten.add.Tensor", "aten.cat", "mode aten.sin.default", "aten.sin.default"]
    assert type(made) is Sees
    assert made.tolist() == [2.0, 2.0]

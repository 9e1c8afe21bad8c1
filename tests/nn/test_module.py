"""`Module`: registration, walking, hooks, calls, state, conversion, copying, printing."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from typing import Any

import pytest

import flambeau as fb
from comparing import outcome
from flambeau import nn
from flambeau.nn.modules import module as module_file


def make_net() -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(a=nn.Linear(2, 3), b=nn.Sequential(nn.ReLU(), nn.Hardtanh()), c=nn.Linear(3, 1))
    )


class Plain(nn.Module):
    """No members, and a forward that returns what it gets."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if args else kwargs


def same(left: fb.Tensor, right: fb.Tensor) -> bool:
    return left.shape == right.shape and bool((left == right).all())


# -- registering and attributes ------------------------------------------------------------------------------


def test_parameters_modules_and_buffers_register_when_assigned():
    m = Plain()

    m.weight = nn.Parameter(fb.ones(2))
    m.child = nn.ReLU()
    m.kept = nn.Buffer(fb.zeros(1))
    m.dropped = nn.Buffer(fb.zeros(1), persistent=False)
    m.ordinary = fb.zeros(1)

    assert [name for name, _ in m.named_parameters()] == ["weight"]
    assert [name for name, _ in m.named_children()] == ["child"]
    assert [name for name, _ in m.named_buffers()] == ["kept", "dropped"]
    assert list(m.state_dict()) == ["weight", "kept"]


def test_a_name_moves_between_registries():
    m = Plain()

    m.x = 3
    m.x = nn.Parameter(fb.ones(1))
    assert "x" not in vars(m)
    m.register_buffer("y", fb.ones(1), persistent=False)
    m.y = nn.Parameter(fb.ones(1))
    assert "y" not in m._buffers
    assert not m._non_persistent_buffers_set

    del m.x, m.y
    assert not m._parameters


def test_none_keeps_a_parameter_name_reserved():
    m = Plain()
    m.x = nn.Parameter(fb.ones(1))

    m.x = None

    assert m.x is None
    assert list(m.state_dict()) == []
    with pytest.raises(TypeError, match="Parameter or None"):
        m.x = fb.ones(1)
    with pytest.raises(TypeError, match="Parameter or None"):
        m.x = nn.ReLU()


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda m: m.register_parameter("a.b", None), KeyError, r"\."),
        (lambda m: m.register_parameter("", None), KeyError, "empty"),
        (lambda m: m.register_parameter(3, None), TypeError, "int"),
        (lambda m: m.register_parameter("forward", None), KeyError, "already"),
        (lambda m: m.register_parameter("p", fb.ones(1)), TypeError, "Parameter or None"),
        (lambda m: m.register_parameter("p", 3), TypeError, "int"),
        (lambda m: m.register_buffer("p", 3), TypeError, "Tensor or None"),
        (lambda m: m.register_buffer("training", None), KeyError, "already"),
        (lambda m: m.add_module("p", 3), TypeError, "int is not a Module"),
        (lambda m: m.add_module("a.b", nn.ReLU()), KeyError, r"\."),
        (lambda m: m.add_module(None, nn.ReLU()), TypeError, "NoneType"),
        (lambda m: m.missing, AttributeError, "'Plain' object has no attribute 'missing'"),
        (lambda m: delattr(m, "missing"), AttributeError, "missing"),
    ],
)
def test_registration_mistakes_raise(call, error, match):
    with pytest.raises(error, match=match):
        call(Plain())


def test_members_before_init_are_refused():
    class Late(nn.Module):
        def __init__(self) -> None:
            self.child = nn.ReLU()

    with pytest.raises(AttributeError, match=r"before Module.__init__\(\)"):
        Late()


def test_init_takes_arguments_only_when_asked_to():
    class Mixin:
        def __init__(self, size: int) -> None:
            self.size = size

    class Passing(nn.Module, Mixin):
        call_super_init = True

        def __init__(self) -> None:
            super().__init__(7)

    assert Passing().size == 7
    with pytest.raises(TypeError, match="takes none"):
        nn.Module(3)


def test_dir_lists_members_but_no_digits():
    names = dir(make_net())

    assert {"a", "b", "forward", "training"} <= set(names)
    assert "0" not in dir(nn.Sequential(nn.ReLU()))


# -- walking and finding -------------------------------------------------------------------------------------


def test_shared_members_are_walked_once():
    m = make_net()
    m.again = m.a
    m.c.tied = m.a.weight

    assert [n for n, _ in m.named_parameters()] == ["a.weight", "a.bias", "c.weight", "c.bias"]
    assert len([n for n, _ in m.named_parameters(remove_duplicate=False)]) == 7
    assert [n for n, _ in m.named_modules()] == ["", "a", "b", "b.0", "b.1", "c"]
    assert "again" in [n for n, _ in m.named_modules(remove_duplicate=False)]
    assert "again.weight" in m.state_dict()


def test_members_are_found_by_path():
    m = make_net()

    assert m.get_submodule("b.1") is m.b[1]
    assert m.get_submodule("") is m
    assert m.get_parameter("a.weight") is m.a.weight
    for call in (
        lambda: m.get_submodule("b.7"),
        lambda: m.get_submodule("a.weight"),
        lambda: m.get_parameter("a.in_features"),
        lambda: m.get_buffer("a.weight"),
    ):
        with pytest.raises(AttributeError):
            call()


def test_set_submodule():
    m = make_net()
    new = nn.Tanh()

    m.set_submodule("b.0", new)

    assert m.b[0] is new
    with pytest.raises(ValueError, match="path"):
        m.set_submodule("", new)
    with pytest.raises(AttributeError):
        m.set_submodule("nowhere.x", new)
    with pytest.raises(AttributeError):
        m.set_submodule("new", new, strict=True)


# -- calls ---------------------------------------------------------------------------------------------------


def test_calls_pass_arguments_on():
    m = Plain()

    assert m(1) == 1
    assert m(1, 2) == 1
    assert m() == {}
    assert m(input=1, other=2) == {"input": 1, "other": 2}


def test_forward_may_be_replaced_on_the_instance():
    m = nn.ReLU()

    m.forward = lambda x, y: (x, y)

    assert m(1, 2) == (1, 2)


def test_a_module_without_forward_says_so():
    with pytest.raises(NotImplementedError, match="Module"):
        nn.Module()(1)


def test_an_exception_names_the_innermost_module_by_its_path():
    m = nn.Sequential(OrderedDict(blocks=nn.ModuleList([nn.Sequential(nn.ReLU(), nn.Linear(2, 3))])))
    m.forward = lambda x: m.blocks[0](x)

    with pytest.raises(RuntimeError) as caught:
        m(fb.ones(4, 7))

    assert caught.value.__notes__ == ["  in blocks.0.1: Linear(in_features=2, out_features=3, bias=True)"]


def test_an_exception_of_an_unregistered_module_is_noted_too():
    hidden = [nn.Linear(2, 3)]

    class Holder(nn.Module):
        def forward(self, x: fb.Tensor) -> fb.Tensor:
            return hidden[0](x)

    with pytest.raises(RuntimeError) as caught:
        nn.Sequential(Holder())(fb.ones(1, 5))

    assert caught.value.__notes__ == ["  in Linear(in_features=2, out_features=3, bias=True)"]


def test_a_noted_exception_pickles_without_the_model():
    class Failing(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        Failing()(1)

    assert len(pickle.dumps(caught.value)) < 500


# -- hooks ---------------------------------------------------------------------------------------------------


def test_forward_hooks_run_in_order_and_replace_values():
    m = Plain()
    log = []
    m.register_forward_pre_hook(lambda mod, args: log.append("pre"))
    m.register_forward_pre_hook(lambda mod, args: (args[0] + 1,), prepend=True)
    m.register_forward_hook(lambda mod, args, out: log.append(("post", args, out)))
    m.register_forward_hook(lambda mod, args, out: out * 10)

    result = m(1)

    assert log == ["pre", ("post", (2,), 2)]
    assert result == 20


def test_hooks_with_kwargs():
    m = Plain()
    m.register_forward_pre_hook(lambda mod, args, kwargs: (args, {**kwargs, "b": 2}), with_kwargs=True)
    m.register_forward_hook(lambda mod, args, kwargs, out: (out, kwargs), with_kwargs=True)

    assert m(a=1) == ({"a": 1, "b": 2}, {"a": 1, "b": 2})

    m.register_forward_pre_hook(lambda mod, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="args, kwargs"):
        m(a=1)


def test_removed_hooks_are_silent():
    m, log = Plain(), []
    handle = m.register_forward_hook(lambda mod, args, out: log.append(1))

    with handle:
        m(0)
    m(0)
    handle.remove()

    assert log == [1]


def test_always_called_hooks_run_when_forward_raises():
    class Failing(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("no")

    m, log = Failing(), []
    m.register_forward_hook(lambda mod, args, out: log.append(out), always_call=True)
    m.register_forward_hook(lambda mod, args, out: log.append("never"))

    with pytest.raises(ValueError, match="no"):
        m(1)

    assert log == [None]


def test_full_backward_hooks_see_and_replace_gradients():
    m = nn.Linear(2, 3)
    seen = {}

    def hook(mod: nn.Module, grad_input: Any, grad_output: Any) -> Any:
        seen["in"], seen["out"] = grad_input, grad_output
        return (grad_input[0] * 2,)

    m.register_full_backward_pre_hook(lambda mod, grad_output: (grad_output[0] * 3,))
    m.register_full_backward_hook(hook)
    x = fb.ones(4, 2, requires_grad=True)

    m(x).sum().backward()

    assert same(seen["out"][0], fb.full((4, 3), 3.0))
    assert same(x.grad, seen["in"][0] * 2)
    assert same(m.bias.grad, fb.full((3,), 12.0))


def test_full_backward_hook_without_input_gradients_runs_with_none():
    m, seen = nn.Linear(2, 3), []
    m.register_full_backward_hook(
        lambda mod, grad_input, grad_output: seen.append((grad_input, len(grad_output)))
    )

    with pytest.warns(UserWarning, match="no inputs require gradients: those of Linear"):
        m(fb.ones(1, 2)).sum().backward()

    assert seen == [((None,), 1)]


def test_backward_hooks_of_both_kinds_cannot_be_mixed():
    m = nn.Linear(1, 1)
    m.register_full_backward_hook(lambda *args: None)

    with pytest.raises(RuntimeError, match="both"):
        m.register_backward_hook(lambda *args: None)


def test_backward_hooks_on_an_output_that_is_no_tensor_warn():
    class Dict(nn.Module):
        def forward(self, x: fb.Tensor) -> Any:
            return {"x": x * 2}

    m = Dict()
    m.register_full_backward_hook(lambda *args: None)

    with pytest.warns(UserWarning, match="dict"):
        m(fb.ones(1, requires_grad=True))


def test_global_hooks_run_for_all_modules_until_removed():
    log: list[str] = []
    handles = [
        module_file.register_module_forward_pre_hook(lambda m, args: log.append("pre " + type(m).__name__)),
        module_file.register_module_forward_hook(lambda m, args, out: log.append("post " + type(m).__name__)),
    ]
    m = nn.Sequential(nn.Identity())

    m(1)
    for handle in handles:
        handle.remove()
    m(1)

    assert log == ["pre Sequential", "pre Identity", "post Identity", "post Sequential"]
    assert not module_file._watching_all


def test_registration_hooks_see_new_members():
    log: list[str] = []
    with (
        module_file.register_module_parameter_registration_hook(lambda m, name, p: log.append(name)),
        module_file.register_module_module_registration_hook(lambda m, name, c: log.append(name)),
        module_file.register_module_buffer_registration_hook(lambda m, name, b: log.append(name)),
    ):
        m = nn.Sequential(nn.Linear(1, 1))
        m.register_buffer("buffer", None)

    assert log == ["weight", "bias", "0", "buffer"]


# -- state ---------------------------------------------------------------------------------------------------


def test_state_dict_shares_memory_and_carries_versions():
    m = make_net()

    state = m.state_dict(prefix="net.")

    assert list(state) == ["net.a.weight", "net.a.bias", "net.c.weight", "net.c.bias"]
    assert state._metadata["net.a"] == {"version": 1}
    assert state["net.a.weight"].data_ptr() == m.a.weight.data_ptr()
    assert not state["net.a.weight"].requires_grad
    assert m.state_dict(keep_vars=True)["a.weight"] is m.a.weight


def test_load_state_dict_copies_values():
    source, target = make_net(), make_net()
    weight = target.a.weight

    result = target.load_state_dict(source.state_dict())

    assert target.a.weight is weight
    assert same(target.a.weight, source.a.weight)
    assert str(result) == "<All keys matched successfully>"


def test_load_state_dict_lists_everything_that_does_not_fit():
    state = {"a.weight": fb.zeros(1), "a.bias": 3, "x": fb.zeros(1), "b.0.y": 1}

    with pytest.raises(RuntimeError) as caught:
        make_net().load_state_dict(state)

    text = str(caught.value)
    assert text.startswith("Error(s) in loading state_dict for Sequential:")
    assert 'Missing key(s) in state_dict: "c.weight", "c.bias"' in text
    assert 'Unexpected key(s) in state_dict: "x", "b.0.y"' in text
    assert "size mismatch for a.weight" in text
    assert "a.bias" in text


def test_load_state_dict_without_strict_returns_the_keys():
    result = make_net().load_state_dict({"x": fb.zeros(1)}, strict=False)

    assert result.unexpected_keys == ["x"]
    assert result.missing_keys == ["a.weight", "a.bias", "c.weight", "c.bias"]
    with pytest.raises(TypeError, match="mapping"):
        make_net().load_state_dict([1])


def test_load_state_dict_with_assign_takes_the_tensors():
    source, target = make_net().double(), make_net().requires_grad_(False)

    target.load_state_dict(source.state_dict(), assign=True)

    assert target.a.weight.dtype == fb.float64
    assert target.a.weight.data_ptr() == source.a.weight.data_ptr()
    assert isinstance(target.a.weight, nn.Parameter)
    assert not target.a.weight.requires_grad


def test_extra_state_is_saved_and_loaded():
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def get_extra_state(self) -> Any:
            return {"count": self.count}

        def set_extra_state(self, state: Any) -> None:
            self.count = state["count"]

    source, target = Counting(), Counting()
    source.count = 5

    target.load_state_dict(source.state_dict())

    assert target.count == 5
    assert target.load_state_dict({}, strict=False).missing_keys == ["_extra_state"]
    assert make_net().load_state_dict({"_extra_state": 1}, strict=False).unexpected_keys == ["_extra_state"]


def test_state_dict_hooks():
    m, log = make_net(), []
    m.register_state_dict_pre_hook(lambda mod, prefix, keep_vars: log.append("save pre"))
    m.a.register_state_dict_post_hook(lambda mod, state, prefix, meta: drop_bias(state, prefix))
    m.a.register_load_state_dict_pre_hook(lambda mod, state, *rest: state.update({"a.bias": fb.ones(3)}))
    m.register_load_state_dict_post_hook(lambda mod, keys: log.append(list(keys.missing_keys)))

    state = m.state_dict()
    m.load_state_dict(state)

    assert "a.bias" not in state
    assert log == ["save pre", []]
    assert same(m.a.bias, fb.ones(3))


def drop_bias(state: Any, prefix: str) -> None:
    del state[prefix + "bias"]


def test_state_dict_hooks_that_return_values_are_refused():
    m = make_net()
    m.register_state_dict_post_hook(lambda *args: 3)
    m.register_load_state_dict_post_hook(lambda *args: 3)

    with pytest.raises(RuntimeError, match="in place"):
        m.state_dict()
    with pytest.raises(AssertionError, match="in place"):
        make_net_with_post_hook().load_state_dict(make_net().state_dict())


def make_net_with_post_hook() -> nn.Module:
    m = make_net()
    m.register_load_state_dict_post_hook(lambda *args: 3)
    return m


# -- conversion ----------------------------------------------------------------------------------------------


def test_conversion_keeps_the_parameter_and_converts_its_gradient():
    m = nn.Linear(2, 2)
    weight = m.weight
    m(fb.ones(1, 2)).sum().backward()

    m.double()

    assert m.weight is weight
    assert weight.dtype == weight.grad.dtype == fb.float64


@pytest.mark.parametrize(
    ("args", "kwargs", "dtype"),
    [
        ((fb.float16,), {}, fb.float16),
        (("cpu",), {}, fb.float32),
        (("cpu", fb.float64), {}, fb.float64),
        ((fb.zeros(1, dtype=fb.bfloat16),), {}, fb.bfloat16),
        ((), {"dtype": fb.float64, "device": "cpu", "non_blocking": True}, fb.float64),
        ((), {}, fb.float32),
    ],
)
def test_to_in_all_its_forms(args, kwargs, dtype):
    m = nn.Linear(1, 1)
    m.register_buffer("count", fb.zeros(1, dtype=fb.int64))

    assert m.to(*args, **kwargs) is m
    assert m.weight.dtype == dtype
    assert m.count.dtype == fb.int64


def test_to_refuses_integers_and_unknown_arguments():
    with pytest.raises(TypeError, match="int32"):
        nn.Linear(1, 1).to(fb.int32)
    with pytest.raises(TypeError, match="colour"):
        nn.Linear(1, 1).to(colour="red")


def test_to_meta_and_back_makes_new_parameters():
    m = nn.Linear(2, 2).requires_grad_(False)
    weight = m.weight

    m.to("meta")

    assert m.weight is not weight
    assert m.weight.is_meta
    m.to_empty(device="cpu")
    assert m.weight.device.type == "cpu"
    assert isinstance(m.weight, nn.Parameter)
    assert not m.weight.requires_grad


def test_memory_format_applies_to_images():
    m = nn.Conv2d(4, 3, 3).to(memory_format=fb.channels_last)

    assert m.weight.stride() == (36, 1, 12, 4)


def test_modes_and_gradients():
    m = make_net()
    m(fb.ones(1, 2)).sum().backward()

    m.zero_grad(set_to_none=False)
    assert same(m.a.weight.grad, fb.zeros(3, 2))
    m.zero_grad()
    assert m.a.weight.grad is None
    assert m.eval() is m
    assert not m.b[0].training
    assert m.train().b[0].training
    with pytest.raises(ValueError, match="bool"):
        m.train(1)


def test_apply_visits_children_first():
    visited: list[str] = []

    make_net().apply(lambda m: visited.append(type(m).__name__))

    assert visited == ["Linear", "ReLU", "Hardtanh", "Sequential", "Linear", "Sequential"]


# -- copying and printing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_independent_and_equal(duplicate):
    m = make_net()
    m.tied = m.a

    other = duplicate(m)

    assert repr(other) == repr(m)
    assert other.tied is other.a
    assert isinstance(other.a.weight, nn.Parameter)
    assert same(other.a.weight, m.a.weight)
    assert other.a.weight.data_ptr() != m.a.weight.data_ptr()


def test_a_copy_keeps_its_hooks():
    m = Plain()
    m.register_forward_hook(add_one)

    assert copy.deepcopy(m)(1) == 2


def add_one(module: nn.Module, args: Any, output: Any) -> Any:
    return output + 1


def test_repr():
    class Documented(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.child = nn.Sequential(nn.ReLU())

        def extra_repr(self) -> str:
            return "first\nsecond"

    assert repr(nn.Sequential()) == "Sequential()"
    assert repr(Documented()) == (
        "Documented(\n  first\n  second\n  (child): Sequential(\n    (0): ReLU()\n  )\n)"
    )


@pytest.mark.parametrize("everywhere", [False, True])
def test_hooks_that_are_always_called_run_when_a_pre_hook_raises(everywhere: bool) -> None:
    def refuse(module: Any, args: Any) -> None:
        raise ValueError("refused")

    m, seen = nn.Linear(2, 2), []
    m.register_forward_pre_hook(lambda module, args: (fb.ones(3),))
    m.register_forward_pre_hook(refuse)
    add = module_file.register_module_forward_hook if everywhere else m.register_forward_hook
    m.register_forward_hook(lambda module, args, result: seen.append("never"))
    handle = add(lambda module, args, result: seen.append((args[0].tolist(), result)), always_call=True)
    try:
        with pytest.raises(ValueError, match="refused"):
            m(fb.ones(2))
    finally:
        handle.remove()

    assert seen == [([1.0, 1.0, 1.0], None)]


def test_hooks_that_are_always_called_see_the_result_of_a_call_whose_hook_raises() -> None:
    def refuse(module: Any, args: Any, result: Any) -> None:
        raise ValueError("refused")

    m, seen = nn.Identity(), []
    m.register_forward_hook(refuse)
    m.register_forward_hook(lambda module, args, result: result + 1, always_call=True)
    m.register_forward_hook(lambda module, args, result: seen.append(result.tolist()), always_call=True)
    with pytest.raises(ValueError, match="refused"):
        m(fb.ones(2))

    assert seen == [[2.0, 2.0]]


HOOKED = """
class Two(torch.nn.Module):
    def forward(self, a, b): seen.append((a.requires_grad, b.requires_grad)); return a * 2, b * 3
class Mixed(torch.nn.Module):
    def forward(self, a, i, mask): return a * 2, i + 1, "x", mask.float()
x = torch.tensor([[1., -2., 3.], [0.5, 4., -1.]], dtype=torch.float64, requires_grad=True); log = []; seen = []
keep = lambda m, gi, go: log.append((gi, go))
two, mixed = Two(), Mixed()
"""


@pytest.mark.parametrize("program", [
    "two.register_full_backward_hook(keep); two(x, x.detach())[0].sum().backward(); log, seen",
    "two.register_full_backward_hook(keep); two(x, x.detach())[1].requires_grad",
    "two.register_full_backward_hook(keep); two(x, x * 1)[0].sum().backward(); log, seen, x.grad",
    "two.register_full_backward_hook(keep); two(x, x * 1)[1].sum().backward(); log, seen, x.grad",
    "two.register_full_backward_hook(lambda m, gi, go: [gi[1], gi[0]]); a, b = two(x, x.exp()); (a + b).sum().backward(); x.grad",
    "two.register_full_backward_hook(lambda m, gi, go: 'ab'); a, b = two(x, x.exp()); (a + b).sum().backward()",
    "two.register_full_backward_pre_hook(lambda m, go: [go[1], None]); a, b = two(x, x.exp()); (a + b).sum().backward(); x.grad",
    "two.register_full_backward_pre_hook(lambda m, go: (None, None)); a, b = two(x, x.exp()); (a + b).sum().backward(); x.grad",
    "mixed.register_full_backward_hook(keep); mixed(x, torch.tensor([1, 2]), torch.ones(2).bool())[0].sum().backward(); log",
])  # fmt: skip
def test_full_backward_hooks_see_what_pytorch_s_see(oracle: Any, program: str) -> None:
    found = [outcome(lib, HOOKED + program) for lib in (fb, oracle)]

    assert plain_of(found[0]) == plain_of(found[1])


def plain_of(described: Any) -> Any:
    """What `outcome` says, less strides, which nobody promises of gradients."""
    if isinstance(described, tuple) and len(described) == 7:
        return (*described[:5], described[6])
    return type(described)(map(plain_of, described)) if isinstance(described, (tuple, list)) else described

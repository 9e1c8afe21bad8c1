"""``mode="reduce-overhead"``: what a function reads beside its arguments, and does beside computing, is what it is without the mode."""

from __future__ import annotations

import datetime
import functools
import logging
import math
import operator
import os
import random
import sys
import types
import warnings
import weakref
from collections import ChainMap, Counter, UserDict, UserList, UserString, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau.compiler._replay import STABLE_AFTER
from unseen import counted

F = fb.nn.functional
CHANGED_AT = STABLE_AFTER + 4
CALLS = 2 * CHANGED_AT


def nothing() -> None:
    """What changes nothing."""


class Scaled(fb.nn.Module):
    factor = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = fb.nn.Linear(3, 3), 1.0

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.scale * self.factor


# -- what is read: each gives a function and what changes it; replayed until then, and right afterwards -------------------------


def a_variable_of_a_closure() -> Any:
    scale = 1.0

    def change() -> None:
        nonlocal scale
        scale = 3.0

    return lambda x: x * scale, change


def entries_of_a_dict() -> Any:
    config = {"scale": 1.0, "deep": {"list": [1.0]}}
    return lambda x: x * config["scale"] + config["deep"]["list"][0], lambda: config["deep"]["list"].__setitem__(0, 5.0)


def members_of_a_set() -> Any:
    names = {"a"}
    return lambda x: x * (2.0 if "b" in names else 3.0), lambda: names.add("b")


def a_deque() -> Any:
    last = deque([1.0], maxlen=1)
    return lambda x: x * last[0], lambda: last.append(2.0)


def an_attribute_of_an_object() -> Any:
    config = types.SimpleNamespace(scale=1.0)
    return lambda x: x * config.scale, lambda: setattr(config, "scale", 2.0)


def an_attribute_asked_for_by_name() -> Any:
    config = types.SimpleNamespace(scale=1.0)
    return lambda x: x * getattr(config, "sc" + "ale"), lambda: setattr(config, "scale", 2.0)


def an_attribute_that_a_getter_made_inside_asks_for() -> Any:
    config = types.SimpleNamespace(scale=1.0)
    return lambda x: x * operator.attrgetter("scale")(config), lambda: setattr(config, "scale", 2.0)


def a_slot() -> Any:
    class Config:
        __slots__ = ("scale",)

    config: Any = Config()
    config.scale = 1.0
    return lambda x: x * config.scale, lambda: setattr(config, "scale", 2.0)


def a_class_attribute_of_an_object() -> Any:
    class Config:
        scale = 1.0

    config = Config()
    return lambda x: x * config.scale, lambda: setattr(Config, "scale", 2.0)


def an_attribute_that_hides_one_of_the_class() -> Any:
    class Config:
        scale = 1.0

    config: Any = Config()
    config.other = 1

    def change() -> None:
        del config.other
        config.scale = 2.0

    return lambda x: x * config.scale, change


def an_attribute_of_a_metaclass() -> Any:
    class Meta(type):
        scale = 1.0

    class Config(metaclass=Meta):
        pass

    return lambda x: x * Config.scale, lambda: setattr(Meta, "scale", 2.0)


def the_class_of_an_object() -> Any:
    class One:
        def scale(self) -> float:
            return 1.0

    class Two:
        def scale(self) -> float:
            return 2.0

    config = One()
    return lambda x: x * config.scale(), lambda: setattr(config, "__class__", Two)


def a_property() -> Any:
    values = [1.0]

    class Config:
        @property
        def scale(self) -> float:
            return values[0]

    config = Config()
    return lambda x: x * config.scale, lambda: values.__setitem__(0, 2.0)


def a_method_of_a_base() -> Any:
    class Base:
        def scale(self) -> float:
            return 1.0

    class Derived(Base):
        pass

    config = Derived()
    return lambda x: x * config.scale(), lambda: setattr(Derived, "scale", lambda self: 2.0)


def a_number_with_attributes() -> Any:
    class Number(int):
        pass

    number: Any = Number(2)
    number.scale = 1.0
    return lambda x: x * number.scale, lambda: setattr(number, "scale", 2.0)


def the_code_of_a_helper() -> Any:
    def helper(x: Any) -> Any:
        return x * 2

    return lambda x: helper(x), lambda: setattr(helper, "__code__", (lambda x: x * 3).__code__)


def a_default_of_a_helper() -> Any:
    def helper(x: Any, scale: float = 1.0) -> Any:
        return x * scale

    return lambda x: helper(x), lambda: setattr(helper, "__defaults__", (2.0,))


def an_argument_of_a_partial() -> Any:
    values = [1.0]
    return functools.partial(lambda values, x: x * values[0], values), lambda: values.__setitem__(0, 2.0)


def what_a_generator_goes_through() -> Any:
    values = [1.0, 2.0]
    return lambda x: sum(x * v for v in values), lambda: values.append(3.0)


def a_variable_of_a_module_imported_inside() -> Any:
    module: Any = types.ModuleType("settings_of_a_program")
    module.__file__, module.scale = __file__, 1.0
    sys.modules["settings_of_a_program"] = module

    def f(x: Any) -> Any:
        from settings_of_a_program import scale  # type: ignore[import-not-found]

        return x * scale

    return f, lambda: setattr(module, "scale", 2.0)


def a_variable_of_the_environment() -> Any:
    os.environ.pop("SCALE_OF_A_TEST", None)
    return lambda x: x * float(os.environ.get("SCALE_OF_A_TEST", "1")), lambda: os.environ.update(SCALE_OF_A_TEST="2")


def a_function_of_the_library() -> Any:
    before = math.sqrt

    def change() -> None:
        math.sqrt = (lambda x: 7.0) if math.sqrt is before else before

    return lambda x: x * math.sqrt(4.0), change


def an_attribute_of_a_module() -> Any:
    net = Scaled()
    return net, lambda: setattr(net, "scale", 3.0)


def an_entry_of_a_modules_dict() -> Any:
    net = Scaled()
    return net, lambda: net.__dict__.update(scale=3.0)


def a_class_attribute_of_a_module() -> Any:
    class Net(Scaled):
        pass

    net = Net()
    return net, lambda: setattr(Net, "factor", 3.0)


def a_parameter_that_is_put_into_the_registry() -> Any:
    net = fb.nn.Sequential(fb.nn.Linear(3, 3))
    return net, lambda: net[0]._parameters.update(bias=None)


def the_class_of_a_module() -> Any:
    class One(fb.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 1.0

    class Two(fb.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2.0

    net = One()
    return lambda x: net(x), lambda: setattr(net, "__class__", Two)


def an_option_of_a_layer() -> Any:
    net = fb.nn.Sequential(fb.nn.LayerNorm(3))
    return net, lambda: setattr(net[0], "eps", 1.0)


def the_forward_of_a_layer() -> Any:
    net = fb.nn.Sequential(fb.nn.Linear(3, 3), fb.nn.Tanh())
    return net, lambda: setattr(net[1], "forward", lambda x: x * 2)


def a_list_of_modules() -> Any:
    nets = [Scaled(), Scaled()]
    return lambda x: sum(net(x) for net in nets), lambda: nets.append(nets[0])


def a_function_of_the_framework() -> Any:
    before = F.tanh

    def change() -> None:
        F.tanh = (lambda x: x) if F.tanh is before else before

    return lambda x: F.tanh(x), change


def whether_a_tensor_requires_gradients() -> Any:
    parameters = [fb.nn.Parameter(fb.ones(1)), fb.nn.Parameter(fb.ones(1), requires_grad=False)]
    return lambda x: x + sum(p.sum() for p in parameters if p.requires_grad), lambda: parameters[1].requires_grad_()


def whether_a_view_requires_gradients() -> Any:
    base = fb.ones(4, requires_grad=True)
    with fb.no_grad():
        view = base[:2]
    return lambda x: x * (2 if view.requires_grad else 3), lambda: base.requires_grad_(not base.requires_grad)


def a_gradient_that_is_dropped() -> Any:
    w = fb.nn.Parameter(fb.ones(3))
    w.grad = fb.ones(3)
    return lambda x: x * 1 if w.grad is None else x + w.grad, lambda: setattr(w, "grad", None)


def a_gradient_that_is_another() -> Any:
    w = fb.nn.Parameter(fb.ones(3))
    w.grad = fb.ones(3)
    return lambda x: x + w.grad, lambda: setattr(w, "grad", fb.zeros(3))


def the_shape_of_a_tensor() -> Any:
    buffer = fb.ones(2)
    return lambda x: x * buffer.shape[0], lambda: buffer.resize_(7)


def the_length_of_a_buffer_of_a_module() -> Any:
    net = Scaled()
    net.register_buffer("steps", fb.ones(2))
    return lambda x: net(x) * len(net.steps), lambda: net.steps.resize_(7)


def the_strides_of_a_tensor() -> Any:
    buffer = fb.ones(2, 3)
    return lambda x: x * buffer.stride(0), lambda: buffer.t_()


def the_dtype_of_a_tensor() -> Any:
    buffer = fb.ones(2)
    return lambda x: x * (2 if buffer.dtype is fb.float32 else 3), lambda: setattr(buffer, "data", buffer.data.double())


def whether_a_tensor_has_a_history() -> Any:
    buffer = fb.ones(2)
    return lambda x: x * (2 if buffer.grad_fn is None else 3), lambda: buffer.mul_(fb.ones(2, requires_grad=True))


def whether_a_gradient_is_retained() -> Any:
    y = fb.ones(2, requires_grad=True) * 2
    return lambda x: x * (2 if y.retains_grad else 3), lambda: y.retain_grad()


def an_entry_of_a_dict_of_the_library() -> Any:
    config = UserDict(scale=1.0)
    return lambda x: x * config["scale"], lambda: config.update(scale=5.0)


def an_entry_of_a_list_of_the_library() -> Any:
    values = UserList([1.0])
    return lambda x: x * values[0], lambda: values.__setitem__(0, 5.0)


def the_text_of_a_string_of_the_library() -> Any:
    text = UserString("ab")
    return lambda x: x * len(text), lambda: setattr(text, "data", "abcd")


def an_entry_of_a_chain_of_dicts() -> Any:
    class Config(ChainMap):  # type: ignore[type-arg]
        pass

    config = Config({}, {"scale": 1.0})
    return lambda x: x * config["scale"], lambda: config.update(scale=5.0)


def an_attribute_of_a_function() -> Any:
    def helper() -> None:
        pass

    helper.scale = 1.0  # type: ignore[attr-defined]
    return lambda x: x * helper.scale, lambda: setattr(helper, "scale", 5.0)  # type: ignore[attr-defined]


def an_attribute_that_a_function_is_given_later() -> Any:
    def helper() -> None:
        pass

    return lambda x: x * (2 if hasattr(helper, "scale") else 3), lambda: setattr(helper, "scale", 5.0)


def the_name_of_a_function() -> Any:
    def helper() -> None:
        pass

    return lambda x: x * len(helper.__name__), lambda: setattr(helper, "__name__", "other")


def the_text_of_a_function() -> Any:
    def helper() -> None:
        pass

    return lambda x: x * (2 if helper.__doc__ else 3), lambda: setattr(helper, "__doc__", "What it does.")


class Pair:
    __match_args__ = ("first",)

    def __init__(self) -> None:
        self.first, self.second = 1.0, 2.0


def an_attribute_that_a_pattern_names() -> Any:
    pair: Any = Pair()

    def f(x: Any) -> Any:
        match pair:
            case Pair(second=value):
                return x * value

    return f, lambda: setattr(pair, "second", 5.0)


def an_attribute_of_a_pattern_by_its_place() -> Any:
    pair: Any = Pair()

    def f(x: Any) -> Any:
        match pair:
            case Pair(value):
                return x * value

    return f, lambda: setattr(pair, "first", 5.0)


READ = [
    a_variable_of_a_closure, entries_of_a_dict, members_of_a_set, a_deque, an_attribute_of_an_object, an_attribute_asked_for_by_name,
    an_attribute_that_a_getter_made_inside_asks_for, a_slot, a_class_attribute_of_an_object, an_attribute_that_hides_one_of_the_class,
    an_attribute_of_a_metaclass, the_class_of_an_object, a_property, a_method_of_a_base, a_number_with_attributes, the_code_of_a_helper,
    a_default_of_a_helper, an_argument_of_a_partial, what_a_generator_goes_through, a_variable_of_a_module_imported_inside,
    a_variable_of_the_environment, a_function_of_the_library, an_attribute_of_a_module, an_entry_of_a_modules_dict,
    a_class_attribute_of_a_module, a_parameter_that_is_put_into_the_registry, the_class_of_a_module, an_option_of_a_layer,
    the_forward_of_a_layer, a_list_of_modules, a_function_of_the_framework, whether_a_tensor_requires_gradients,
    whether_a_view_requires_gradients, a_gradient_that_is_dropped, a_gradient_that_is_another, the_shape_of_a_tensor,
    the_length_of_a_buffer_of_a_module, the_strides_of_a_tensor, the_dtype_of_a_tensor, whether_a_tensor_has_a_history,
    whether_a_gradient_is_retained, an_entry_of_a_dict_of_the_library, an_entry_of_a_list_of_the_library,
    the_text_of_a_string_of_the_library, an_entry_of_a_chain_of_dicts, an_attribute_of_a_function,
    an_attribute_that_a_function_is_given_later, the_name_of_a_function, the_text_of_a_function, an_attribute_that_a_pattern_names,
    an_attribute_of_a_pattern_by_its_place,
]  # fmt: skip


@pytest.mark.parametrize("make", READ)
def test_what_a_replayed_function_reads_may_change(make: Callable[[], Any]) -> None:
    f, change = make()
    compiled = fb.compile(f, mode="reduce-overhead")
    for k in range(CALLS):
        if k == CHANGED_AT:
            replays = compiled.explain().replays
            assert sum(replay.calls for replay in replays) > 0
            x = fb.arange(6.0).reshape(2, 3)
            before = f(x)
            change()
            assert not fb.equal(f(x), before)
        x = fb.rand(2, 3) + k
        assert fb.equal(compiled(x), f(x))
    if make in (a_function_of_the_library, a_function_of_the_framework):
        change()


def test_a_replayed_function_reads_attributes_of_its_own_wrapper() -> None:
    def f(x: Any) -> Any:
        return x * getattr(compiled, "scale", 1.0)

    compiled: Any = fb.compile(f, mode="reduce-overhead")
    for _ in range(CHANGED_AT):
        compiled(fb.ones(3))
    assert compiled.explain().replays[0].calls > 0
    compiled.scale = 2.0
    assert compiled(fb.ones(3)).tolist() == [2.0] * 3


@pytest.mark.filterwarnings("ignore:Named tensors")
def test_names_of_dimensions_that_a_replayed_function_reads_may_change() -> None:
    buffer = fb.ones(2, 3)
    compiled = fb.compile(lambda x: x * (2 if buffer.names[0] is None else 3), mode="reduce-overhead")
    for _ in range(CHANGED_AT):
        compiled(fb.ones(3))
    assert compiled.explain().replays[0].calls > 0
    buffer.rename_("rows", "columns")
    assert compiled(fb.ones(3)).tolist() == [3.0] * 3


SETTINGS: list[tuple[Callable[[], Any], Callable[[Any], Any], Any, Any]] = [
    (fb.are_deterministic_algorithms_enabled, fb.use_deterministic_algorithms, False, True),
    (fb.get_num_threads, fb.set_num_threads, 1, 2),
    (fb.initial_seed, fb.manual_seed, 1, 2),
    (fb.get_float32_matmul_precision, fb.set_float32_matmul_precision, "highest", "high"),
    (lambda: fb.get_autocast_dtype("cpu"), lambda dtype: fb.set_autocast_dtype("cpu", dtype), fb.bfloat16, fb.float16),
    (fb.is_autocast_cache_enabled, fb.set_autocast_cache_enabled, True, False),
    (fb.is_warn_always_enabled, fb.set_warn_always, False, True),
    (fb.backends.cuda.flash_sdp_enabled, fb.backends.cuda.enable_flash_sdp, True, False),
    (lambda: fb.backends.cuda.matmul.allow_tf32, lambda on: setattr(fb.backends.cuda.matmul, "allow_tf32", on), False, True),
]


@pytest.mark.parametrize(("get", "put", "before", "after"), SETTINGS)
def test_a_setting_that_a_replayed_function_asks_for_may_change(get: Any, put: Any, before: Any, after: Any) -> None:
    kept = get()
    compiled = fb.compile(lambda x: x * (2 if get() == before else 3), mode="reduce-overhead")
    try:
        put(before)
        for _ in range(CHANGED_AT):
            compiled(fb.ones(3))
        assert compiled.explain().replays[0].calls > 0
        put(after)
        assert compiled(fb.ones(3)).tolist() == [3.0] * 3
    finally:
        put(kept)


def test_a_replayed_function_asks_whether_there_is_a_process_group(tmp_path: Path) -> None:
    dist = fb.distributed
    compiled = fb.compile(lambda x: x * (3 if dist.is_initialized() else 2), mode="reduce-overhead")
    for _ in range(CHANGED_AT):
        compiled(fb.ones(3))
    assert compiled.explain().replays[0].calls > 0
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert compiled(fb.ones(3)).tolist() == [3.0] * 3
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(("name", "f"), [("tanh", lambda x: x.tanh()), ("__mul__", lambda x: x * 3), ("__neg__", lambda x: -x)])
def test_methods_of_tensors_may_be_replaced(name: str, f: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = fb.compile(f, mode="reduce-overhead")
    for _ in range(CHANGED_AT):
        compiled(fb.ones(3))
    assert compiled.explain().replays[0].calls > 0
    monkeypatch.setattr(fb.Tensor, name, lambda *args: args[0] + 9)
    assert compiled(fb.ones(3)).tolist() == [10.0] * 3


def of_a_base(start: int) -> Any:
    return fb.ones(8)[start : start + 3]


def with_gradient(value: float | None) -> Any:
    x = fb.ones(3, requires_grad=True)
    x.grad = None if value is None else fb.full((3,), value)
    return x


def written(times: int) -> Any:
    x = fb.ones(3)
    for _ in range(times):
        x.add_(0)
    return x


ASKED: list[tuple[Callable[[Any], Any], Any, Any]] = [
    (lambda x: x * (2 if x.grad is None else 3), with_gradient(None), with_gradient(1.0)),
    (lambda x: x * x.grad, with_gradient(1.0), with_gradient(2.0)),
    (lambda x: x * (2 if x.is_leaf else 3), fb.ones(3, requires_grad=True), fb.ones(3, requires_grad=True) * 1),
    (lambda x: x * (2 if x.grad_fn is None else 3), fb.ones(3), fb.ones(3, requires_grad=True) * 1),
    (lambda x: x * x.storage_offset(), of_a_base(1), of_a_base(2)),
    (lambda x: x[1:] * x[1:].storage_offset(), of_a_base(1), of_a_base(2)),
    (lambda x: x * x._version, written(1), written(2)),
    (lambda x: x * x.detach()._version, written(1), written(2)),
    (lambda x: x * getattr(x, "_ver" + "sion"), written(1), written(2)),
    (lambda x: x * (2 if x._is_view() else 3), fb.ones(3), of_a_base(0)),
    (lambda x: x * (2 if x._base is None else 3), fb.ones(3), of_a_base(0)),
]


@pytest.mark.parametrize(("f", "first", "second"), ASKED)
def test_what_a_replayed_function_asks_an_argument_may_be_another(f: Any, first: Any, second: Any) -> None:
    compiled = fb.compile(f, mode="reduce-overhead")
    for _ in range(CHANGED_AT):
        compiled(first)
    assert fb.equal(compiled(second), f(second))


def test_the_gradient_of_an_argument_that_is_passed_again_may_be_another() -> None:
    x = with_gradient(1.0)
    compiled = fb.compile(lambda x: x + x.grad, mode="reduce-overhead")
    for _ in range(CHANGED_AT):
        compiled(x)
    x.grad = fb.full((3,), 4.0)
    assert compiled(x).tolist() == [5.0] * 3


# -- what cannot be compared, and what is done: never replayed ----------------------------------------------------------------


def a_count() -> Any:
    state = {"calls": 0}

    def f(x: Any) -> Any:
        state["calls"] += 1
        return x * 2

    return f, lambda: state["calls"]


def results_in_a_list() -> Any:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.append(x.shape)
        return x * 2

    return f, lambda: len(kept)


def a_switch() -> Any:
    state = {"is_on": False}

    def f(x: Any) -> Any:
        state["is_on"] = not state["is_on"]
        return x * 2

    return f, lambda: state["is_on"]


def counters() -> Any:
    seen, sums = Counter(), defaultdict(int)  # type: ignore[var-annotated]

    def f(x: Any) -> Any:
        seen["f"] += 1
        sums[len(sums)] += 1
        return x * 2

    return f, lambda: (dict(seen), dict(sums))


def a_count_in_a_module() -> Any:
    net = Scaled()

    def f(x: Any) -> Any:
        net.calls = getattr(net, "calls", 0) + 1
        return net(x)

    return f, lambda: net.calls


def a_line_on_the_screen() -> Any:
    return lambda x: print("called") or x * 2, nothing


def a_message_to_a_log() -> Any:
    kept: list[Any] = []
    log = logging.Logger("of a test")
    log.addHandler(handler := logging.Handler())
    handler.emit = kept.append  # type: ignore[method-assign]
    return lambda x: log.warning("called") or x * 2, lambda: len(kept)


def a_warning() -> Any:
    def f(x: Any) -> Any:
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            warnings.warn("called", stacklevel=1)
        return x * len(given)

    return f, nothing


def a_random_number() -> Any:
    source = random.Random(0)
    return lambda x: x * source.random(), source.getstate


def a_random_number_of_numpy() -> Any:
    source = np.random.default_rng(0)
    return lambda x: x * float(source.random()), lambda: source.bit_generator.state


def the_clock() -> Any:
    return lambda x: x * (datetime.datetime.now(datetime.UTC).year > 0), nothing


def an_array_of_numpy() -> Any:
    array = np.zeros(1)

    def f(x: Any) -> Any:
        array[0] += 1
        return x * 2

    return f, array.tolist


def an_iterator() -> Any:
    numbers = iter(range(100))
    return lambda x: x * next(numbers), lambda: next(numbers)


def a_weak_reference() -> Any:
    config = Scaled()
    ref = weakref.ref(config)
    return lambda x: x * ref().scale, lambda: config.scale  # type: ignore[union-attr]


def rates_set_by_hand() -> Any:
    net = Scaled()
    optimizer = fb.optim.SGD(net.parameters(), 0.1)

    def f(x: Any) -> Any:
        optimizer.param_groups[0]["lr"] *= 0.5
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return f, lambda: optimizer.param_groups[0]["lr"]


def gradients_that_stay_off() -> Any:
    def f(x: Any) -> Any:
        fb.set_grad_enabled(not fb.is_grad_enabled())
        return x * 2

    return f, lambda: (fb.is_grad_enabled(), fb.set_grad_enabled(True))[0]


def a_seed() -> Any:
    def f(x: Any) -> Any:
        fb.manual_seed(int(x.shape[0]))
        return x * 2

    return f, fb.initial_seed


def how_often_a_tensor_was_written() -> Any:
    buffer = fb.ones(2)
    return lambda x: x * buffer._version, lambda: buffer.add_(1).tolist()


def hooks_of_a_tensor() -> Any:
    w = fb.ones(2, requires_grad=True)
    return lambda x: x * (2 if w._backward_hooks is None else 3), nothing


NOT_REPLAYED = [
    a_count, results_in_a_list, a_switch, counters, a_count_in_a_module, a_line_on_the_screen, a_message_to_a_log, a_warning,
    a_random_number, a_random_number_of_numpy, the_clock, an_array_of_numpy, an_iterator, a_weak_reference, rates_set_by_hand,
    gradients_that_stay_off, a_seed, how_often_a_tensor_was_written, hooks_of_a_tensor,
]  # fmt: skip


@pytest.mark.parametrize("make", NOT_REPLAYED)
def test_a_function_that_does_more_than_compute_runs_in_each_call(make: Callable[[], Any], capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = []
    for compiles in (False, True):
        fb.manual_seed(0)
        f, state = make()
        f, ran = counted(f)
        called = fb.compile(f, mode="reduce-overhead") if compiles else f
        results = [called(fb.rand(2, 3)).detach() for _ in range(2 * STABLE_AFTER + 1)]
        assert len(ran) == 2 * STABLE_AFTER + 1
        outcomes.append(([x.tolist() for x in results], state(), capsys.readouterr().out))
    assert outcomes[0] == outcomes[1]


def test_files_are_written_in_each_call(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"

    def f(x: Any) -> Any:
        fb.save({"a": 1}, path)
        return x * 2

    compiled = fb.compile(f, mode="reduce-overhead")
    for _ in range(STABLE_AFTER + 3):
        compiled(fb.ones(3))
        path.unlink()


def test_lists_that_a_function_is_given_are_written_to_in_each_call() -> None:
    def f(parts: list[Any]) -> Any:
        parts.append(1)
        return parts[0] * 2

    compiled = fb.compile(f, mode="reduce-overhead")
    for _ in range(STABLE_AFTER + 3):
        parts: list[Any] = [fb.ones(3)]
        compiled(parts)
        assert len(parts) == 2


def test_an_attribute_that_an_argument_has_been_given_is_read() -> None:
    compiled = fb.compile(lambda x: x * getattr(x, "tag", 1.0), mode="reduce-overhead")
    for _ in range(STABLE_AFTER + 3):
        compiled(fb.ones(3))
    x: Any = fb.ones(3)
    x.tag = 2.0
    assert compiled(x).tolist() == [2.0] * 3


def test_other_code_in_a_later_call_is_seen_too() -> None:
    state: dict[str, Any] = {}
    factor = [1.0]

    def later(x: Any) -> Any:
        return x * factor[0]

    def f(x: Any) -> Any:
        if "met" not in state:
            state["met"] = True
            return x * 1.0
        return later(x)

    compiled = fb.compile(f, mode="reduce-overhead")
    for _ in range(CHANGED_AT):
        compiled(fb.ones(3))
    factor[0] = 2.0
    assert compiled(fb.ones(3)).tolist() == [2.0] * 3


def test_a_loop_that_changes_modules_which_the_function_does_not_read_is_replayed() -> None:
    net, stranger = Scaled(), Scaled()
    f, ran = counted(lambda x: net(x))
    compiled = fb.compile(f, mode="reduce-overhead")
    for k in range(CALLS):
        stranger.scale = float(k)
        net.unread = k  # type: ignore[assignment]
        compiled(fb.ones(2, 3))
    assert len(ran) <= STABLE_AFTER + 1               # from the second call on the module has the attribute


def test_functions_that_never_settle_are_recorded_ever_more_rarely() -> None:
    state = {"calls": 0}

    def f(x: Any) -> Any:
        state["calls"] += 1
        return x * 2

    compiled = fb.compile(f, mode="reduce-overhead")
    (function,) = [one for one in fb.compiler._functions._functions if one.fn is f]
    for _ in range(300):
        compiled(fb.ones(3))
    assert state["calls"] == 300
    (wait,) = function.waits.values()
    assert wait.failures < 10
    assert not any(function.replays.values())


def test_a_program_with_a_profiler_of_its_own_runs_in_python() -> None:
    f, ran = counted(lambda x: x * 2)
    compiled = fb.compile(f, mode="reduce-overhead")
    events: list[str] = []
    sys.setprofile(lambda frame, event, called: events.append(event))
    try:
        for _ in range(STABLE_AFTER + 3):
            compiled(fb.ones(3))
    finally:
        sys.setprofile(None)
    assert events
    assert len(ran) == STABLE_AFTER + 3

"""`compile` and its neighbours look as PyTorch's."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import pytest

import flambeau as fb
from flambeau import _dynamo, _missing, compiler, swap


@pytest.fixture(autouse=True)
def _nothing_asked_before(monkeypatch):
    monkeypatch.setattr(_missing, "_asked", {})


@pytest.mark.parametrize(
    "name",
    ["BackendCompilerFailed", "CondOpArgsMismatchError", "FailOnRecompileLimitHit", "ShortenTraceback", "UncapturedHigherOrderOpError",
     "Unsupported"],
)  # fmt: skip
def test_errors_of_compiling_are_caught_as_in_pytorch(oracle, name):
    import importlib

    theirs = getattr(importlib.import_module("torch._dynamo.exc"), name)

    assert [c.__name__ for c in getattr(_dynamo.exc, name).__mro__] == [c.__name__ for c in theirs.__mro__]


def test_a_compiled_function_gives_the_results_of_the_function():
    @fb.compile(fullgraph=True, mode="max-autotune")
    def square(x):
        """Squares."""
        return x * x

    assert square(fb.tensor([3.0])).tolist() == [9.0]
    assert (square.__name__, square.__doc__) == ("square", "Squares.")
    assert not swap.report()


def test_a_compiled_module_shares_parameters_mode_and_attributes():
    layer = fb.nn.Linear(2, 3)
    compiled = fb.compile(layer)

    compiled.eval()
    compiled.note = "seen"

    assert isinstance(compiled, _dynamo.OptimizedModule)
    assert compiled.weight is layer.weight
    assert not layer.training
    assert layer.note == "seen"
    assert compiled._orig_mod is layer
    assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    assert compiled(fb.ones(1, 2)).tolist() == layer(fb.ones(1, 2)).tolist()
    assert not hasattr(compiled, "nothing_such")


def test_a_compiled_module_that_is_given_another_original_has_its_attributes_and_the_calls_of_the_first():
    first, second = fb.nn.Linear(1, 1, bias=False), fb.nn.Linear(1, 1, bias=False)
    fb.nn.init.constant_(first.weight, 1.0)
    fb.nn.init.constant_(second.weight, 5.0)
    compiled = fb.compile(first)
    compiled._orig_mod = second

    assert compiled._orig_mod is second
    assert compiled.weight is second.weight
    assert list(dict(first.named_modules())) == [""]
    assert compiled(fb.ones(1, 1)).item() == 1.0


def test_a_compiled_module_runs_hooks_of_the_original_and_trains():
    layer = fb.nn.Linear(2, 1)
    seen = []
    layer.register_forward_hook(lambda *_: seen.append(1))

    fb.compile(layer)(fb.ones(1, 2)).sum().backward()

    assert seen == [1]
    assert layer.weight.grad is not None


def test_a_compiled_module_is_copied_and_pickled():
    compiled = fb.compile(fb.nn.Linear(2, 1))

    for twin in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert isinstance(twin, _dynamo.OptimizedModule)
        assert twin.weight.tolist() == compiled.weight.tolist()
        assert twin.weight is not compiled.weight


def test_module_compile_keeps_the_class():
    layer = fb.nn.Linear(2, 1)
    layer.compile()

    assert type(layer) is fb.nn.Linear
    assert layer(fb.ones(1, 2)).shape == (1, 1)


def test_disable_returns_the_model_itself():
    layer = fb.nn.Linear(2, 1)

    assert fb.compile(layer, disable=True) is layer


def test_wrong_settings_are_refused():
    with pytest.raises(RuntimeError, match="unknown mode 'fastest'"):
        fb.compile(abs, mode="fastest")
    with pytest.raises(RuntimeError, match="not both"):
        fb.compile(abs, mode="default", options={})
    with pytest.raises(_dynamo.exc.InvalidBackend, match="'nonsense'"):
        fb.compile(abs, backend="nonsense")
    with pytest.raises(AssertionError, match="got int"):
        fb.compile(3)


def test_outside_of_compiled_functions_nothing_is_being_compiled():
    answers = [compiler.is_compiling(), compiler.is_dynamo_compiling(), compiler.is_exporting(), _dynamo.is_compiling()]

    assert answers == [False] * 4
    assert compiler.list_backends() == ["cudagraphs", "inductor", "openxla", "tvm"] == _dynamo.list_backends()
    assert {"aot_eager", "eager", "eager_noexcept"} < set(compiler.list_backends(exclude_tags=("experimental",)))


def test_backends_for_debugging_go_wrong_where_a_graph_has_a_relu():
    def f(x):
        return fb.relu(x) * 2

    x = fb.tensor([-1.0, 2.0])
    assert fb.compile(f, backend="relu_accuracy_error_TESTING_ONLY")(x).tolist() == [0.0, 6.0]
    with pytest.raises(_dynamo.exc.BackendCompilerFailed, match="ReluCompileError"):
        fb.compile(f, backend="relu_compile_error_TESTING_ONLY")(x)
    with pytest.raises(AssertionError, match="ReluRuntimeError"):
        fb.compile(f, backend="relu_runtime_error_TESTING_ONLY")(x)
    for name in ("relu_accuracy_error_TESTING_ONLY", "relu_compile_error_TESTING_ONLY", "relu_runtime_error_TESTING_ONLY", "eager_debug"):
        assert fb.compile(lambda x: x.sin() * 2, backend=name)(x).equal(x.sin() * 2)


@pytest.mark.parametrize("name", ["tvm", "openxla", "openxla_eval"])
def test_a_backend_of_another_package_says_that_it_is_not_built(name):
    with pytest.raises(_dynamo.exc.BackendCompilerFailed, match="not built"):
        fb.compile(lambda x: x.sin() * 2, backend=name)(fb.ones(2))


def test_marks_leave_functions_as_they_are():
    def plus(x):
        return x + 1

    assert compiler.allow_in_graph(plus) is plus
    assert compiler.assume_constant_result(plus) is plus
    assert compiler.substitute_in_graph(abs)(plus) is plus
    assert compiler.disable(plus)(1) == compiler.disable()(plus)(1) == compiler.disable(recursive=False)(plus)(1) == 2
    with pytest.raises(AssertionError, match="got int"):
        compiler.allow_in_graph(3)


def test_a_stance_is_a_call_a_context_and_a_decorator():
    with compiler.set_stance("force_eager"):
        assert compiler.set_stance.now[0] == "force_eager"
    assert compiler.set_stance.now[0] == "default"

    @compiler.set_stance("fail_on_recompile")
    def stance():
        return compiler.set_stance.now[0]

    assert (stance(), compiler.set_stance.now[0]) == ("fail_on_recompile", "default")
    with pytest.raises(RuntimeError, match="a compiled function cannot change the stance"):
        fb.compile(lambda x: (compiler.set_stance("force_eager"), x + 1)[1])(fb.ones(2))
    assert compiler.set_stance.now[0] == "default"
    with pytest.raises(RuntimeError, match="unknown stance 'sometimes'"):
        compiler.set_stance("sometimes")
    with pytest.raises(RuntimeError, match="'default' alone"):
        compiler.set_stance("force_eager", force_backend="eager")


def test_numpy_functions_take_tensors():
    @compiler.wrap_numpy
    def add(x, y):
        return x + y

    result = add(fb.tensor([1.0]), fb.tensor([2.0]))

    assert isinstance(result, fb.Tensor)
    assert result.tolist() == [3.0]


def test_tensors_are_marked_with_dimensions():
    x = fb.ones(2, 3)

    _dynamo.mark_dynamic(x, 0)
    _dynamo.mark_dynamic(x, [1])
    _dynamo.mark_static_address(x)

    assert x._dynamo_dynamic_indices == {0, 1}
    with pytest.raises(TypeError, match="got int"):
        _dynamo.mark_static_address(3)


def test_settings_are_patched_and_put_back():
    with _dynamo.config.patch(verbose=True, cache_size_limit=3):
        assert (_dynamo.config.verbose, _dynamo.config.cache_size_limit) == (True, 3)
    assert (_dynamo.config.verbose, _dynamo.config.cache_size_limit) == (False, 8)
    with pytest.raises(AttributeError, match="no_such_setting"), _dynamo.config.patch("no_such_setting", 1):
        pass


LATE = """
import sys
import flambeau as fb

before = set(sys.modules)
f = fb.compile(lambda x, how: how(x * 2 + 1))
names = {names!r}
x = fb.ones(256, 256)
assert "flambeau.ops.fourier.fft" not in sys.modules, "compiling imports families of operations that nobody asked for"
f(x, lambda y: print([name for name in names if getattr(type(y), name) is getattr(fb.Tensor, name)]))
print(f(x, lambda y: y.apply_(lambda v: v + 1))[0, 0].item(), f(x, lambda y: y.type()), f(x, lambda y: y.T)[0, 1].item())
"""


def test_members_of_families_that_are_loaded_later_meet_a_pending_result():
    import subprocess
    import sys

    names = ["apply_", "map_", "type", "copy_", "dequantize", "sparse_dim", "is_coalesced"]
    done = subprocess.run([sys.executable, "-c", LATE.format(names=names)], capture_output=True, text=True)

    assert done.stdout.splitlines() == ["[]", "4.0 torch.FloatTensor 3.0"], done.stderr


def test_a_shape_that_is_met_once_is_not_searched_for_chains(monkeypatch):
    from flambeau.compiler import _programs

    searched = []
    chained = _programs._chained
    monkeypatch.setattr(_programs, "_chained", lambda *args: searched.append(1) or chained(*args))
    f = fb.compile(lambda x: ((x * 2 + 1).exp() - x) * 3)
    for rows in range(512, 516):
        f(fb.ones(rows, 512))

    assert not searched
    for _ in range(2):
        f(fb.ones(512, 512))
    assert searched


_SAVES = """
import sys
import flambeau as fb
fb.compile(lambda x: (x.sin() * 2 + 1).exp())(fb.ones(5))
found = fb.compiler.save_cache_artifacts()
if found is not None:
    raw, info = found
    assert info.inductor_artifacts and not info.empty()
    open(sys.argv[1], "wb").write(raw)
print(found is not None)
"""

_LOADS = """
import os, sys
import flambeau as fb
info = fb.compiler.load_cache_artifacts(open(sys.argv[1], "rb").read())
there = {name.removesuffix(".o") for name in os.listdir(os.environ["FLAMBEAU_CACHE"])}
print(set(info.inductor_artifacts) <= there, len(there))
fb.compile(lambda x: (x.sin() * 2 + 1).exp())(fb.ones(5))
print(len(os.listdir(os.environ["FLAMBEAU_CACHE"])))
"""


def _run(program, cache, *args):
    environment = {**os.environ, "FLAMBEAU_CACHE": str(cache)}
    made = subprocess.run([sys.executable, "-c", program, *map(str, args)], env=environment, capture_output=True, text=True, check=False)
    assert not made.returncode, made.stderr
    return made.stdout.split()


@pytest.mark.skipif(fb.kernels.backend() != "llvm", reason="nothing else keeps kernels on disk")
def test_kernels_are_carried_to_the_cache_of_another_machine(tmp_path):
    assert _run(_SAVES, tmp_path / "first", tmp_path / "saved") == ["True"]

    complete, count, later = _run(_LOADS, tmp_path / "second", tmp_path / "saved")
    assert complete == "True"
    assert int(count) > 0
    assert later == count                              # nothing was left to compile
    assert _run(_SAVES, "off", tmp_path / "none") == ["False"]


def test_artifacts_that_are_damaged_load_nothing():
    with pytest.warns(UserWarning, match="nothing was loaded"):
        assert compiler.load_cache_artifacts(b"no artifacts") is None
    with pytest.raises(TypeError, match="expected bytes"):
        compiler.load_cache_artifacts("text")


def test_options_of_modes_are_options():
    inductor = fb._inductor

    assert inductor.list_mode_options("max-autotune-no-cudagraphs") == {"max_autotune": True, "coordinate_descent_tuning": True}
    assert set().union(*inductor.list_mode_options().values()) <= set(inductor.list_options())
    assert all(inductor.config.is_setting(name) for name in inductor.list_options())
    with pytest.raises(RuntimeError, match="Unrecognized mode=fastest"):
        inductor.list_mode_options("fastest")


def test_a_bound_method_that_is_compiled_already_keeps_its_object() -> None:
    class Scales:
        by = 3.0

        @fb.compile
        def scaled(self, x: fb.Tensor) -> fb.Tensor:
            return x * self.by

    assert fb.compile(Scales().scaled)(fb.ones(2)).tolist() == [3.0, 3.0]

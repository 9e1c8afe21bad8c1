"""TorchScript's names: decorators, questions, and the refusal of what needs a graph."""

from __future__ import annotations

import pytest

import flambeau as fb
from flambeau import _missing, jit, swap


@pytest.fixture(autouse=True)
def _nothing_asked_before(monkeypatch):
    monkeypatch.setattr(_missing, "_asked", {})


def test_modules_that_are_not_built_for_scripts_run_as_python_and_say_so():
    layer = fb.nn.CrossMapLRN2d(2)

    with pytest.warns(UserWarning, match=r"CrossMapLRN2d runs as Python: .* is not built for scripts"):
        assert jit.script(layer) is layer
    assert [(asked.feature, asked.how) for asked in swap.report()] == [("torch.jit.script", "runs eagerly")]
    assert "run eagerly instead" in str(swap.report())


def test_without_the_compiler_functions_are_what_they_were(monkeypatch):
    monkeypatch.setenv("PYTORCH_JIT", "0")

    def double(x):
        return x * 2

    assert jit.script(double) is double


def test_script_refuses_what_cannot_be_called():
    with pytest.raises(TypeError, match="got int"):
        jit.script(3)


def test_decorators_return_functions_that_run():
    class Model(jit.ScriptModule):
        @jit.script_method
        def forward(self, x):
            return self.helper(x)

        @jit.export
        def helper(self, x):
            return x + 1

        @jit.ignore
        def left_out(self, x):
            return -x

        @jit.ignore(drop=True)
        def dropped(self, x):
            return -x

        @jit.unused
        def not_used(self, x):
            return -x

    model = Model()

    assert isinstance(model, fb.nn.Module)
    assert model(fb.tensor([1.0])).tolist() == [2.0]
    assert model.left_out(fb.tensor([1.0])).tolist() == [-1.0]
    assert "aten::add" in str(model.inlined_graph)
    assert jit.script(model)(fb.tensor([1.0])).tolist() == [2.0]
    assert "helper" in model.code


def test_nothing_is_scripted_or_traced():
    @jit.script_if_tracing
    def plus_one(x):
        return x + 1

    assert not jit.is_scripting()
    assert not jit.is_tracing()
    assert plus_one(2) == 3
    assert not isinstance(fb.nn.Linear(1, 1), jit.ScriptModule)


def test_isinstance_looks_into_containers():
    assert jit.isinstance([1, 2], list[int])
    assert not jit.isinstance([1, "a"], list[int])
    assert jit.isinstance({"a": fb.ones(1)}, dict[str, fb.Tensor])
    assert not jit.isinstance((1, 2.0), tuple[int, int])
    assert jit.isinstance(None, int | None)
    assert jit.isinstance("a", (int, str))


def test_isinstance_takes_an_empty_container_for_what_is_asked():
    with pytest.warns(UserWarning, match="empty list"):
        assert jit.isinstance([], list[int])


def test_fork_computes_and_wait_gives_the_value():
    assert jit.wait(jit.fork(lambda x, y: x + y, 2, y=3)) == 5


def test_settings_of_fusion_give_what_was_there_before():
    before = jit.set_fusion_strategy([("DYNAMIC", 3)])

    assert jit.set_fusion_strategy(before) == [("DYNAMIC", 3)]
    with pytest.raises(ValueError, match="got: SOMETIMES"):
        jit.set_fusion_strategy([("SOMETIMES", 1)])


def test_annotations_pass_values_through():
    assert jit.annotate(list[int], [1]) == [1]
    assert jit.Attribute(0.5, float) == (0.5, float)

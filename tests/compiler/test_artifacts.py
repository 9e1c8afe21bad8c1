"""Compiled graphs and functions in files: `standalone_compile`, `aot_compile`, `load_compiled_function`."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

import flambeau as fb
from flambeau._dynamo.aot_compile import AOTCompiledFunction
from flambeau.fx.experimental.proxy_tensor import make_fx


def graph() -> Any:
    constant = fb.tensor([1.0, 2.0, 3.0])
    return make_fx(lambda x, y: ((x * 2 + y).relu(), y.sum() + constant, fb.zeros(3)))(fb.ones(3), fb.ones(3))


@pytest.mark.parametrize("format", ["binary", "unpacked"])
def test_a_compiled_graph_comes_back_from_its_file(format: str, tmp_path: Path) -> None:
    compiled = fb._inductor.standalone_compile(graph(), [fb.ones(3), fb.ones(3)])
    compiled.save(path=str(tmp_path / "first"), format=format)
    loaded = fb._inductor.CompiledArtifact.load(path=str(tmp_path / "first"), format=format)
    loaded.save(path=str(tmp_path / "second"), format=format)
    again = fb._inductor.CompiledArtifact.load(path=str(tmp_path / "second"), format=format)

    x, y = fb.randn(3), fb.randn(3)
    expected = compiled(x, y)
    assert isinstance(expected, list)
    for found in (loaded(x, y), again(x, y)):
        assert all(map(fb.equal, found, expected))


def test_a_file_of_a_compiled_graph_holds_no_pickled_code(tmp_path: Path) -> None:
    fb._inductor.standalone_compile(graph(), [fb.ones(3), fb.ones(3)]).save(path=str(tmp_path / "a"))

    with zipfile.ZipFile(tmp_path / "a") as archive:
        assert sorted(archive.namelist()) == ["program.json", "values.pt"]
    (tmp_path / "b").write_bytes(pickle.dumps(print))
    with pytest.raises(RuntimeError, match="no exported program"):
        fb._inductor.CompiledArtifact.load(path=str(tmp_path / "b"))


def test_what_a_compiled_graph_does_not_take_is_named() -> None:
    with pytest.raises(ValueError, match="dynamic_shapes must be one of from_example_inputs"):
        fb._inductor.standalone_compile(graph(), [fb.ones(3), fb.ones(3)], dynamic_shapes="all")
    with pytest.raises(AssertionError, match="format must be 'binary' or 'unpacked'"):
        fb._inductor.standalone_compile(graph(), [fb.ones(3), fb.ones(3)]).save(path="a", format="text")


def compiled() -> tuple[Any, fb.Tensor]:
    weight = fb.ones(3)

    @fb.compile(fullgraph=True)
    def f(x: fb.Tensor, *, k: int) -> Any:
        return {"a": x * k + weight, "b": [x.sin(), 3]}

    return f.aot_compile(((fb.ones(3),), {"k": 2})), weight


def test_a_function_compiled_ahead_reads_the_tensors_that_it_read() -> None:
    f, weight = compiled()
    weight.add_(1)

    assert f(fb.ones(3), k=2)["a"].tolist() == [4.0] * 3


def test_a_function_compiled_ahead_comes_back_from_its_file(tmp_path: Path) -> None:
    f, _ = compiled()
    f.save_compiled_function(str(tmp_path / "f"))
    with open(tmp_path / "f", "rb") as file:
        loaded = fb.compiler.load_compiled_function(file)

    x = fb.randn(3)
    expected, found = f(x, k=2), loaded(x, k=2)
    assert isinstance(loaded, AOTCompiledFunction)
    assert fb.equal(found["a"], expected["a"])
    assert fb.equal(found["b"][0], expected["b"][0])
    assert found["b"][1] == 3


def test_a_function_compiled_ahead_has_gradients() -> None:
    x = fb.randn(3, requires_grad=True)
    fb.compile(lambda x: x * x, fullgraph=True).aot_compile(((x,), {}))(x).sum().backward()

    assert fb.equal(x.grad, 2 * x.detach())


@pytest.mark.parametrize("arguments", [(fb.ones(4), 2), (fb.ones(3, dtype=fb.float64), 2), (fb.ones(3), 3)])
def test_a_function_compiled_ahead_refuses_other_arguments(arguments: Any) -> None:
    f, _ = compiled()

    with pytest.raises(RuntimeError, match="GuardManager check failed"):
        f(arguments[0], k=arguments[1])


def test_guards_of_a_function_compiled_ahead_may_be_left_out() -> None:
    f, _ = compiled()
    f.disable_guard_check()

    assert f(fb.ones(3, dtype=fb.float64), k=2)["a"].dtype is fb.float64


def test_a_function_that_asks_for_values_is_not_compiled_ahead() -> None:
    with pytest.raises(RuntimeError, match="data-dependent"):
        fb.compile(lambda x: x * 2 if x.sum() > 0 else x, fullgraph=True).aot_compile(((fb.ones(3),), {}))
    with pytest.raises(RuntimeError, match="Graph breaks are not supported"):
        fb.compile(lambda x: x * 2).aot_compile(((fb.ones(3),), {}))


def test_a_process_that_compiles_functions_alone_imports_no_graphs(fresh_python: Any) -> None:
    """They took half of the time to a first result."""
    program = """
import sys
import flambeau as fb
f = fb.compile(lambda x: (x * 2 + 1).tanh())
f(fb.ones(5000)), f(fb.ones(5000))
print("flambeau.fx" in sys.modules, fb._inductor.CompiledArtifact.__name__)
"""
    assert fresh_python("-c", program).split() == ["False", "CompiledArtifact"]

"""Settings of the compiler: names, defaults, errors, and what those that act do."""

from __future__ import annotations

import importlib
import pickle
from typing import Any

import pytest

import flambeau as fb
from flambeau._inductor import config

MODULES = ("_inductor.config", "_dynamo.config", "_functorch.config", "compiler.config", "fx.experimental._config")
# What PyTorch's modules keep among their settings and is none; where files of its own package are; how many processors there are; the
# variables of the environment that it reads.
NO_SETTINGS = {"TYPE_CHECKING", "_save_config_ignore", "_cache_config_ignore_prefix", "_cache_config_factory_keys", "base_dir"}
OF_THE_MACHINE = {"cutlass.cutlass_dir", "cuda.cutlass_dir", "xpu.cutlass_dir", "compile_threads", "debug_dir_root", "worker_start_method"}


def settings(name: str) -> Any:
    return importlib.import_module(f"flambeau.{name}")


@pytest.mark.oracle
@pytest.mark.parametrize("name", MODULES)
def test_names_and_defaults_are_those_of_pytorch(name: str, oracle: Any) -> None:
    theirs = importlib.import_module(f"torch.{name}").get_config_copy()
    ours = settings(name).get_config_copy()

    assert set(ours) == set(theirs) - NO_SETTINGS
    assert {n: v for n, v in ours.items() if n not in OF_THE_MACHINE} == {n: theirs[n] for n in ours if n not in OF_THE_MACHINE}


@pytest.mark.parametrize("name", MODULES)
def test_a_name_that_is_no_setting_raises_attribute_error(name: str) -> None:
    module = settings(name)
    with pytest.raises(AttributeError, match=rf"torch\.{name}\.no_such does not exist"):
        _ = module.no_such
    with pytest.raises(AttributeError, match="no_such does not exist"):
        module.no_such = 1
    patched = module.patch(no_such=1)
    with pytest.raises(AttributeError, match="no_such does not exist"):
        patched.__enter__()
    with pytest.raises(KeyError):
        del module.no_such


def test_groups_know_their_names() -> None:
    with pytest.raises(AttributeError, match=r"torch\._inductor\.config\.triton\.no_such does not exist"):
        _ = config.triton.no_such
    with pytest.raises(AttributeError, match=r"triton\.no_such does not exist"):
        config.triton.no_such = 1
    with config.patch("cpp.threads", 3):
        assert config.cpp.threads == 3 == getattr(config, "cpp.threads")
    assert config.cpp.threads == -1


def test_patch_is_a_context_and_a_decorator() -> None:
    @config.patch(size_asserts=False)
    def inside() -> bool:
        return config.size_asserts

    patched = config.patch({"size_asserts": False, "triton.max_tiles": 2})

    assert inside() is False
    for _ in range(2):
        with patched:
            assert (config.size_asserts, config.triton.max_tiles) == (False, 2)
        assert (config.size_asserts, config.triton.max_tiles) == (True, None)
    with pytest.raises(AssertionError, match="both positional and keyword"):
        config.patch("debug", True, freezing=True)
    with pytest.raises(AssertionError, match="first argument must be a string"):
        config.patch({"debug": True}, 3)


def test_patch_of_a_class_holds_while_its_tests_run() -> None:
    import unittest

    seen = []

    @config.patch("pattern_matcher", False)
    class Tests(unittest.TestCase):
        def test_one(self) -> None:
            seen.append(config.pattern_matcher)

    unittest.TextTestRunner(verbosity=0).run(unittest.defaultTestLoader.loadTestsFromTestCase(Tests))

    assert (seen, config.pattern_matcher) == ([False], True)


def test_settings_are_saved_and_loaded() -> None:
    with config.patch(debug=False, compile_threads=2, max_fusion_size=64):
        saved, portable, copy = config.save_config(), config.save_config_portable(), config.get_config_copy()
        before = config.get_hash()
        config.max_fusion_size = 3
        assert config.get_hash() != before
        config.load_config(saved)
        assert (config.max_fusion_size, config.get_hash()) == (64, before)
        config.max_fusion_size = 4
        assert config.codegen_config() == "torch._inductor.config.max_fusion_size = 4"
        config.load_config(portable)
        assert config.get_config_copy() == copy
        with pytest.warns(UserWarning, match="key no_such with value 1 is not understood"):
            config.load_config({"no_such": 1})


def test_saved_settings_run_nothing_when_they_are_loaded() -> None:
    with pytest.raises(pickle.UnpicklingError, match="settings are plain values"):
        config.load_config(pickle.dumps({"debug": print}))


def test_other_names_of_settings_are_set_and_patched() -> None:
    dynamo = fb._dynamo.config
    with dynamo.patch(cache_size_limit=3):
        assert dynamo.recompile_limit == dynamo.cache_size_limit == 3
    assert dynamo.recompile_limit == 8


@pytest.mark.parametrize(("options", "message"), [
    ({"unknown": 1}, "Unexpected optimization option unknown"),
    ({"triton": 1}, "Unexpected optimization option triton"),
    ({"debug": 1}, "Unexpected type of attr debug, got int should be bool"),
    ({"cpp.threads": 2.0}, "Unexpected type of attr cpp.threads, got float should be int"),
])  # fmt: skip
def test_options_that_are_no_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        fb.compile(lambda x: x, options=options)


def test_options_are_settings_of_pytorch() -> None:
    options = {"epilogue-fusion": False, "compile_threads": None, "realize_reads_threshold": 8, "shape_padding": True}
    f = fb.compile(lambda x: x + 1, options=options)

    assert f(fb.ones(2)).tolist() == [2.0, 2.0]


def test_modes_are_those_of_pytorch() -> None:
    modes = fb._inductor.list_mode_options()

    assert list(modes) == ["default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune"]
    assert all(config.is_setting(name) for settings in modes.values() for name in settings)


def test_passes_change_graphs_of_operators() -> None:
    pytest.importorskip("sympy")
    seen: dict[str, list[str]] = {}

    def noting(name: str) -> Any:
        def note(graph: Any) -> None:
            seen.setdefault(name, []).append(" ".join(str(n.target) for n in graph.nodes if n.op == "call_function"))

        return note

    def sigmoid_for_relu(graph: Any) -> None:
        for node in graph.nodes:
            if node.target is fb.ops.aten.relu.default:
                node.target = fb.ops.aten.sigmoid.default

    names = ("pre_grad_custom_pass", "joint_custom_pre_pass", "joint_custom_post_pass", "post_grad_custom_pre_pass")
    with config.patch({name: noting(name) for name in names} | {"post_grad_custom_post_pass": [sigmoid_for_relu]}):
        f = fb.compile(lambda x: fb.relu(x) * 2)
    assert f(fb.zeros(2)).tolist() == [1.0, 1.0]
    assert list(seen) == list(names)
    assert seen["post_grad_custom_pre_pass"] == ["aten.relu.default aten.mul.Tensor"]

    seen.clear()
    g = fb.compile(lambda x: (x * x).sum(), options={"post_grad_custom_pre_pass": noting("post"), "joint_custom_pre_pass": noting("joint")})
    x = fb.ones(2, requires_grad=True)
    g(x).backward()
    assert x.grad.tolist() == [2.0, 2.0]
    assert [len(seen[name]) for name in ("joint", "post")] == [1, 2]  # a graph of both, and one of each

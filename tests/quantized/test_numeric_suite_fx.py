"""Traced models are compared with their quantized ones, operation by operation."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import flambeau as fb
from flambeau.ao import quantization
from flambeau.ao.ns import _numeric_suite_fx as suite
from flambeau.ao.ns.fx.utils import compute_sqnr
from flambeau.ao.quantization import quantize_fx

LAYERS = ["conv", "fc", "fc2"]
X = fb.tensor(np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32))


class Net(fb.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.relu, self.fc, self.fc2 = fb.nn.Conv2d(3, 4, 3), fb.nn.ReLU(), fb.nn.Linear(4, 3), fb.nn.Linear(3, 2)
        self.w = fb.nn.Parameter(fb.randn(2, 2))

    def forward(self, x):
        x = fb.nn.functional.adaptive_avg_pool2d(self.relu(self.conv(x)), (1, 1)).flatten(1)
        return fb.nn.functional.linear(self.fc2(self.fc(x)) + 1, self.w)


@pytest.fixture
def models():
    """A float model, the one with observers, and the one with integers."""
    fb.manual_seed(0)
    net = Net().eval()
    prepared = quantize_fx.prepare_fx(copy.deepcopy(net), quantization.get_default_qconfig_mapping("qnnpack"), (X,))
    prepared(X)
    return net, prepared, quantize_fx.convert_fx(copy.deepcopy(prepared))


def test_weights_stand_side_by_side(models):
    net, _, made = models
    results = suite.extract_weights("float", net, "int8", made)
    assert [kinds["weight"]["float"][0]["fqn"] for kinds in results.values()] == [*LAYERS, ""]
    for kinds in results.values():
        (a,), (b,) = (kinds["weight"][name][0]["values"] for name in ("float", "int8"))
        assert b.is_quantized
        assert compute_sqnr(a, b) > 30
    suite.extend_logger_results_with_comparison(results, "float", "int8", compute_sqnr, "sqnr")
    assert all(len(kinds["weight"]["int8"][0]["sqnr"]) == 1 for kinds in results.values())


@pytest.mark.parametrize("inputs", [False, True])
@pytest.mark.parametrize("left", [0, 1], ids=["float", "observed"])
def test_results_of_operations_are_logged_in_both(models, left, inputs):
    expected = models[left](X), models[2](X)
    a, b = suite.add_loggers("a", models[left], "b", models[2], suite.OutputLogger, should_log_inputs=inputs)
    assert fb.equal(a(X), expected[0])
    assert fb.equal(b(X), expected[1])
    results = suite.extract_logger_info(a, b, suite.OutputLogger, "b")
    suite.extend_logger_results_with_comparison(results, "a", "b", compute_sqnr, "sqnr")
    kinds = {"node_output", "node_input"} if inputs else {"node_output"}
    for layer in LAYERS:
        assert set(results[layer]) == kinds
        for models_of in results[layer].values():
            assert models_of["a"][0]["values"][0].shape == models_of["b"][0]["values"][0].shape
            assert models_of["b"][0]["sqnr"][0] > 15


def test_a_relu_belongs_to_the_layer_that_it_is_joined_with(models):
    a, b = suite.add_loggers("a", models[0], "b", models[2], suite.OutputLogger)
    a(X)
    b(X)
    (seen,) = suite.extract_logger_info(a, b, suite.OutputLogger, "b")["conv"]["node_output"]["a"][0]["values"]
    assert seen.min() >= 0


def test_shadows_have_the_operands_of_the_other_model(models):
    expected = models[2](X)
    made = suite.add_shadow_loggers("float", models[0], "int8", models[2], suite.OutputLogger, should_log_inputs=True)
    assert fb.equal(made(X), expected)
    results = suite.extract_shadow_logger_info(made, suite.OutputLogger, "int8")
    suite.extend_logger_results_with_comparison(results, "float", "int8", compute_sqnr, "sqnr")
    for layer in LAYERS:
        assert results[layer]["node_output"]["int8"][0]["sqnr"][0] > 25
        assert results[layer]["node_input"]["int8"][0]["sqnr"][0] == float("inf")


def test_loggers_can_be_off_and_keep_nothing(models):
    a, b = suite.add_loggers("a", models[0], "b", models[2], suite.OutputLogger)
    suite.loggers_set_enabled(b, False)
    suite.loggers_set_save_activations(a, False)
    a(X)
    b(X)
    assert not any(m.stats for model in (a, b) for m in model.modules() if isinstance(m, suite.OutputLogger))


def test_several_qconfigs_of_each_layer_at_once(models, capsys):
    mappings = [
        quantization.QConfigMapping().set_object_type(fb.nn.Linear, quantization.default_qconfig),
        quantization.QConfigMapping().set_global(quantization.default_per_channel_qconfig),
    ]
    expected = models[0](X)
    backend = quantization.backend_config.get_native_backend_config()
    made = suite.prepare_n_shadows_model(models[0], (X,), mappings, backend)
    assert fb.equal(made(X), expected)
    made = suite.convert_n_shadows_model(made)
    assert fb.equal(made(X), expected)
    results = suite.extract_results_n_shadows_model(made)
    counts = {kinds["node_output"][f"{name}_0"][0]["fqn"]: len(kinds["node_output"]) - 1 for name, kinds in results.items()}
    assert counts == {"conv": 1, "relu": 1, "fc": 2, "fc2": 2}
    for kinds in results.values():
        shadows = [records[0] for records in list(kinds["node_output"].values())[1:]]
        assert all(record["comparisons"][0] > 20 for record in shadows)
    suite.print_comparisons_n_shadows_model(results)
    assert "torch.nn.modules.linear.Linear" in capsys.readouterr().out


def test_maps_of_ones_own_are_refused(models):
    with pytest.raises(NotImplementedError, match="unmatchable_types_map"):
        suite.extract_weights("a", models[0], "b", models[2], unmatchable_types_map={})
    with pytest.raises(AssertionError, match="has no values"):
        suite.extend_logger_results_with_comparison({"l": {"node_output": {"a": []}}}, "a", "b", compute_sqnr, "sqnr")

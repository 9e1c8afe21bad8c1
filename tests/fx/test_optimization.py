"""Models that only compute: normalizations go into the layers before them, dropout is taken out."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from flambeau.fx.experimental import optimization


def _settled(*layers: Any) -> Any:
    """The layers one after the other in eval mode, whose normalizations have seen numbers."""
    fb.manual_seed(0)
    model = fb.nn.Sequential(*layers)
    for norm in model.modules():
        if hasattr(norm, "running_mean") and norm.running_mean is not None:
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)
    return model.eval()


@pytest.mark.parametrize(("layers", "shape", "left"), [
    ([fb.nn.Conv1d(3, 4, 2), fb.nn.BatchNorm1d(4), fb.nn.ReLU()], (2, 3, 5), ["0", "2"]),
    ([fb.nn.Conv2d(3, 4, 2), fb.nn.BatchNorm2d(4), fb.nn.ReLU()], (2, 3, 5, 5), ["0", "2"]),
    ([fb.nn.Sequential(fb.nn.Conv3d(3, 4, 2), fb.nn.BatchNorm3d(4))], (2, 3, 4, 4, 4), ["0.0"]),
    ([fb.nn.Linear(3, 4), fb.nn.BatchNorm1d(4)], (6, 3), ["0"]),
    ([fb.nn.Conv2d(3, 4, 2), fb.nn.BatchNorm2d(4, track_running_stats=False)], (2, 3, 5, 5), ["0", "1"]),
    ([fb.nn.ReLU(), fb.nn.BatchNorm1d(3)], (6, 3), ["0", "1"]),
], ids=["conv1d", "conv2d", "nested conv3d", "linear", "no statistics", "no layer"])  # fmt: skip
def test_normalizations_are_computed_by_the_layers_before_them(layers: Any, shape: Any, left: Any) -> None:
    model, x = _settled(*layers), fb.randn(*shape)
    before = {k: v.clone() for k, v in model.state_dict().items()}

    fused = optimization.fuse(model)
    assert [n.target for n in fused.graph.nodes if n.op == "call_module"] == left
    fb.testing.assert_close(fused(x), model(x))
    assert all(v.equal(before[k]) for k, v in model.state_dict().items())


def test_layers_whose_values_are_needed_otherwise_are_not_fused() -> None:
    class Twice(fb.nn.Module):
        def __init__(self, again: bool) -> None:
            super().__init__()
            self.layer, self.norm, self.again = fb.nn.Linear(3, 3), fb.nn.BatchNorm1d(3), again

        def forward(self, x: Any) -> Any:
            y = self.layer(x)
            return self.layer(self.norm(y)) if self.again else self.norm(y) + y

    for again in (False, True):
        model, x = _settled(Twice(again)), fb.randn(5, 3)
        fused = optimization.fuse(model)
        assert "0.norm" in [n.target for n in fused.graph.nodes]
        fb.testing.assert_close(fused(x), model(x))
    with pytest.raises(AssertionError, match="fusion is for evaluation"):
        optimization.fuse(fb.nn.Sequential(fb.nn.Linear(3, 3), fb.nn.BatchNorm1d(3)))


def test_dropout_is_taken_out_of_a_model() -> None:
    model, x = fb.nn.Sequential(fb.nn.Linear(3, 3), fb.nn.Dropout(0.5), fb.nn.ReLU()), fb.randn(4, 3)

    found = optimization.remove_dropout(model.train())
    assert [n.target for n in found.graph.nodes if n.op == "call_module"] == ["0", "2"]
    assert found(x).equal(model.eval()(x))

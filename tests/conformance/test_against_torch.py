"""The comparison with PyTorch's databases tells what is wrong, what is missing, and what ends a process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import flambeau as fb

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")
sys.path.insert(0, str(Path(__file__).parent))
import against_torch  # noqa: E402
import crossing  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of PyTorch's, which the command leaves out too


@pytest.fixture(scope="module")
def entries() -> dict[str, Any]:
    return against_torch.ops()


def test_a_right_operator_passes_every_check(entries: dict[str, Any]) -> None:
    checks = list(against_torch.check_op(entries["exp"], 1))

    ways = {name.split("/")[1] for name, _ in checks}
    assert ways == {"function", "method", "in place", "out", "gradient", "second gradient", "forward derivative"}
    assert [check for check in checks if check[1]] == []


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda x, out=None: fb.exp2(x), "values; at"),
        (lambda x, out=None: fb.exp(x).double(), "dtype torch.float64, PyTorch torch.float32"),
        (lambda x, out=None: fb.exp(x)[None], "shape torch.Size([1"),
        (lambda x, out=None: [fb.exp(x)], "a list for a Tensor"),
        (lambda x, out=None: x.no_such_method(), "AttributeError"),
    ],
)
def test_a_wrong_operator_is_told(entries: dict[str, Any], monkeypatch: Any, other: Any, words: str) -> None:
    monkeypatch.setattr(against_torch, "counterpart", lambda x: other if x is entries["exp"].op else crossing.counterpart(x))

    checks = dict(against_torch.check_op(entries["exp"], 1))

    assert words in checks["float32/function/0"]


def test_wrong_derivatives_are_told(entries: dict[str, Any], monkeypatch: Any) -> None:
    def other(x: Any, out: Any = None) -> Any:
        return x.detach().exp() + x - x.detach()

    monkeypatch.setattr(against_torch, "counterpart", lambda x: other if x is entries["exp"].op else crossing.counterpart(x))

    checks = dict(against_torch.check_op(entries["exp"], 1))

    assert checks["float64/function/0"] == ""
    assert "values; at" in checks["float64/gradient/0"]
    assert "values; at" in checks["float64/forward derivative/0"]


def test_a_missing_name_is_one_failure(entries: dict[str, Any], monkeypatch: Any) -> None:
    def absent(x: Any) -> Any:
        if x is entries["exp"].op:
            raise crossing.Absent("torch.exp is not built yet")
        return crossing.counterpart(x)

    monkeypatch.setattr(against_torch, "counterpart", absent)

    checks = list(against_torch.check_op(entries["exp"], 1))

    assert all("not built" in wrong for _, wrong in checks if wrong)
    assert any(wrong for _, wrong in checks)


def test_sparse_results_are_compared_in_their_layout(entries: dict[str, Any]) -> None:
    checks = list(against_torch.check_op(entries["to_sparse"], 1))

    assert checks
    assert [check for check in checks if check[1]] == []
    assert "layout torch.strided, PyTorch torch.sparse_coo" in crossing.difference(fb.eye(2), torch.eye(2).to_sparse())


def test_arguments_keep_their_layout_and_gradients() -> None:
    x = torch.arange(6.0).reshape(2, 3).t()
    made = crossing.ours({"x": x, "dtype": torch.int8, "more": [torch.nn.Parameter(x.bfloat16()), torch.Size([2])]})

    assert (made["x"].stride(), made["x"].tolist(), made["dtype"]) == ((1, 3), x.tolist(), fb.int8)
    assert type(made["more"][0]) is fb.nn.Parameter
    assert made["more"][0].dtype is fb.bfloat16
    assert made["more"][0].tolist() == x.tolist()


def test_modules_and_optimizers_are_compared() -> None:
    modules, optimizers = against_torch.modules(), against_torch.optimizers()

    of_linear = list(against_torch.check_module(modules["nn.Linear"], 1))
    of_sgd = list(against_torch.check_optimizer(optimizers["SGD"], None))

    assert len(of_linear) == 6
    assert len(of_sgd) > 20
    assert not [wrong for _, wrong in (*of_linear, *of_sgd) if wrong]


def test_recordings_are_compared_with_what_they_record(entries: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("exp", "nn.functional.softmin", "cumsum", "linalg.qr"):
        checks = list(against_torch.check_recorded(entries[name], 2))
        assert checks
        assert [check for check in checks if check[1]] == []

    calls: list[int] = []

    def changing(x: fb.Tensor) -> fb.Tensor:
        calls.append(1)
        return x + len(calls)

    monkeypatch.setattr(against_torch, "counterpart", lambda x: changing)
    assert [wrong for _, wrong in against_torch.check_recorded(entries["exp"], 1)] == ["other results than without a recording"]

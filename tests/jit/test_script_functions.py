"""Functions of the package in scripts, beside PyTorch's: the same text is compiled by both, and archives of ours by PyTorch."""

from __future__ import annotations

import importlib.util
import io
import warnings
from pathlib import Path
from typing import Any

import pytest

import flambeau as fb

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
              pytest.mark.filterwarnings("ignore:.*nuclear_norm is:UserWarning")]  # fmt: skip

CALLS = """
torch.unique(x)
torch.unique(x, True, True)
torch.unique(x, return_counts=True)
torch.unique(x, return_inverse=True, return_counts=True)
torch.unique(x, dim=0)
torch.unique(x, return_inverse=True, return_counts=True, dim=1)
torch.unique_consecutive(x)
torch.unique_consecutive(x, return_inverse=True)
torch.unique_consecutive(x, return_counts=True)
torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=0)
torch.norm(x)
torch.norm(x, dim=1)
torch.norm(x, dim=(0, 1), keepdim=True)
torch.norm(x, p="fro", dim=[0])
torch.norm(x, "nuc")
torch.norm(x, 1)
torch.norm(x, 3.0, 1)
torch.norm(x, float("inf"))
torch.norm(x, dtype=torch.float64)
x.where(x > 0, x * 10)
x.where(condition=x > 0, other=x)
torch.nn.utils.rnn.pad_sequence([x, x[:1]])
torch.nn.utils.rnn.pad_sequence([x, x[:1]], batch_first=True, padding_value=2.0)
torch.autograd.grad([(x * x).sum()], [x])
torch.autograd.grad([(x * x).sum(), x.sum()], [x], [torch.ones([]), None])
torch.autograd.grad([x.sum()], [x, x.detach().requires_grad_(True)], allow_unused=True)
""".strip().split("\n")


def scripted(lib: Any, folder: Path, body: str) -> Any:
    """The function `f` of a module with this text, whose ``torch`` is the library, as a script."""
    path = folder / f"{lib.__name__}_program.py"
    path.write_text(f"import {lib.__name__} as torch\nfrom torch import Tensor\n".replace("from torch", f"from {lib.__name__}") + body)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with warnings.catch_warnings():
        warnings.simplefilter("error")                    # that it runs as Python would be one
        warnings.filterwarnings("ignore", ".*torch.jit:?", DeprecationWarning)
        return lib.jit.script(module.f)


def values_of(lib: Any, made: Any) -> Any:
    if isinstance(made, lib.Tensor):
        return str(made.dtype), [round(v, 5) for v in made.detach().reshape(-1).tolist()], tuple(made.shape)
    if isinstance(made, (tuple, list)):
        return type(made), [values_of(lib, m) for m in made]
    return made


def operand(lib: Any) -> Any:
    return lib.tensor([[1.0, 2.0, 2.0], [3.0, -4.0, -4.0], [3.0, -4.0, -4.0]], requires_grad=True)


@pytest.mark.parametrize("call", CALLS)
def test_functions_in_scripts_give_what_pytorchs_do(oracle: Any, tmp_path: Path, call: str) -> None:
    body = f"def f(x: Tensor):\n    return {call}\n"
    theirs, ours = scripted(oracle, tmp_path, body), scripted(fb, tmp_path, body)
    expected = values_of(oracle, theirs(operand(oracle)))

    assert values_of(fb, ours(operand(fb))) == expected
    file = io.BytesIO()
    fb.jit.save(ours, file)
    file.seek(0)
    assert values_of(oracle, oracle.jit.load(file)(operand(oracle))) == expected


PROGRAMS = {
    "backward of a list": """
def f(x: Tensor):
    torch.autograd.backward([(x * x).sum()])
    return x.grad
""",
    "a gradient that is there": """
def f(x: Tensor):
    y = (x * x).sum()
    g = torch.autograd.grad([y], [x], create_graph=True)[0]
    assert g is not None
    return torch.autograd.grad([g.sum()], [x])[0]
""",
    "static methods by their class": """
class Net(torch.nn.Module):
    @staticmethod
    def scaled(x: Tensor, by: float) -> Tensor:
        return x * by
    def forward(self, x):
        return self.scaled(x, 2.0) + Net.scaled(x, 3.0)
f = Net()
""",
    "hooks without the type of their result": """
from typing import Tuple
class Net(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1
def twice(self, input: Tuple[Tensor], output: Tensor):
    return output * 2 + input[0]
f = Net()
f.register_forward_hook(twice)
""",
}


@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_give_what_pytorchs_do(oracle: Any, tmp_path: Path, body: str) -> None:
    theirs, ours = scripted(oracle, tmp_path, body), scripted(fb, tmp_path, body)

    assert values_of(fb, ours(operand(fb))) == values_of(oracle, theirs(operand(oracle)))


def test_whether_gradients_are_recorded_is_set_from_there_on(oracle: Any, tmp_path: Path) -> None:
    body = "def f(x: Tensor, flag: bool):\n    torch.set_grad_enabled(flag)\n    return x * 2\n"
    for lib in (oracle, fb):
        f = scripted(lib, tmp_path, body)
        try:
            found = [f(operand(lib), flag).requires_grad for flag in (False, True)]
        finally:
            lib.set_grad_enabled(True)
        assert found == [False, True]


def test_a_class_of_modules_is_no_value(tmp_path: Path) -> None:
    for use in ("Net()", "Net.forward"):
        body = f"class Net(torch.nn.Module):\n    def forward(self, x):\n        return x\ndef f(x: Tensor):\n    return {use}\n"
        with pytest.raises(RuntimeError, match="class 'Net' cannot be used in a script"):
            scripted(fb, tmp_path, body)


UNIQUE = ["_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive", "_unique"]


@pytest.mark.parametrize("asked", [{}, {"return_inverse": True}, {"return_counts": True}])
@pytest.mark.parametrize("name", UNIQUE)
def test_operators_of_distinct_elements_give_places_and_counts_as_they_are_asked_for(oracle: Any, name: str, asked: Any) -> None:
    if name == "_unique" and "return_counts" in asked:
        pytest.skip("the operator has no counts")
    dim = (1,) if "dim" in name else ()

    assert values_of(fb, getattr(fb.ops.aten, name)(operand(fb), *dim, **asked)) == values_of(
        oracle, getattr(oracle.ops.aten, name)(operand(oracle), *dim, **asked)
    )

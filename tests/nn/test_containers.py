"""Sequential, ModuleList, ModuleDict, ParameterList and ParameterDict."""

from __future__ import annotations

from collections import OrderedDict

import pytest

import flambeau as fb
from flambeau import nn


def names(m: nn.Module) -> list[str]:
    return [f"{key}:{type(child).__name__}" for key, child in m._modules.items()]


def test_sequential_edits_keep_numbers_without_gaps():
    m = nn.Sequential(nn.ReLU(), nn.Tanh())

    m.append(nn.GELU()).insert(0, nn.SiLU()).extend([nn.ELU()])
    assert names(m) == ["0:SiLU", "1:ReLU", "2:Tanh", "3:GELU", "4:ELU"]
    assert isinstance(m.pop(1), nn.ReLU)
    del m[1:3]
    m[-1] = nn.Softsign()
    assert names(m) == ["0:SiLU", "1:Softsign"]
    assert names(m[1:]) == ["1:Softsign"]
    assert len(m * 2) == len(2 * m) == 4
    assert names(m + nn.Sequential(nn.ReLU())) == ["0:SiLU", "1:Softsign", "2:ReLU"]
    m += nn.Sequential(nn.Tanh())
    m *= 2
    assert len(m) == 6


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda m: m[5], IndexError),
        (lambda m: m["0"], TypeError),
        (lambda m: m + 3, ValueError),
        (lambda m: m * 0, ValueError),
        (lambda m: m * 1.5, TypeError),
        (lambda m: m.insert(9, nn.ReLU()), IndexError),
        (lambda m: m.insert(0, 3), AssertionError),
        (lambda m: nn.Sequential(3), TypeError),
        (lambda m: nn.ModuleList(nn.ReLU()), TypeError),
        (lambda m: nn.ModuleList([1]), TypeError),
        (lambda m: nn.ModuleList([nn.ReLU()])[1], IndexError),
        (lambda m: nn.ModuleList()(1), NotImplementedError),
        (lambda m: nn.ModuleDict({"keys": nn.ReLU()}), KeyError),
        (lambda m: nn.ModuleDict({"a": 3}), TypeError),
        (lambda m: nn.ModuleDict(3), TypeError),
        (lambda m: nn.ModuleDict([("a", 1, 2)]), ValueError),
        (lambda m: nn.ModuleDict()["a"], KeyError),
        (lambda m: nn.ParameterList(3), TypeError),
        (lambda m: nn.ParameterList([1])[1], IndexError),
        (lambda m: nn.ParameterList()(), RuntimeError),
        (lambda m: nn.ParameterDict({3: 1}), TypeError),
        (lambda m: nn.ParameterDict()["a"], AttributeError),
    ],
)
def test_container_mistakes_raise(call, error):
    with pytest.raises(error):
        call(nn.Sequential(nn.ReLU()))


def test_sequential_takes_names_from_an_ordered_dict():
    m = nn.Sequential(OrderedDict(first=nn.ReLU()))

    assert m.first is m[0]
    assert repr(m) == "Sequential(\n  (first): ReLU()\n)"


def test_module_list_prints_runs_once():
    m = nn.ModuleList([nn.Linear(1, 1) for _ in range(3)] + [nn.ReLU()])

    assert repr(m) == (
        "ModuleList(\n  (0-2): 3 x Linear(in_features=1, out_features=1, bias=True)\n  (3): ReLU()\n)"
    )
    assert repr(nn.ModuleList()) == "ModuleList()"


def test_module_list_edits():
    m = nn.ModuleList([nn.ReLU()])

    m.append(nn.Tanh()).extend([nn.GELU()])
    m.insert(1, nn.SiLU())
    m += [nn.ELU()]
    assert names(m) == ["0:ReLU", "1:SiLU", "2:Tanh", "3:GELU", "4:ELU"]
    assert names(m[1:3]) == ["0:SiLU", "1:Tanh"]
    del m[0]
    assert names(m + nn.ModuleList([nn.CELU()]))[-1] == "4:CELU"
    assert isinstance(m.pop(-1), nn.ELU)


def test_module_dict():
    m = nn.ModuleDict({"a": nn.ReLU()})

    m.update([("b", nn.Tanh())])
    m["c"] = nn.GELU()
    assert list(m) == list(m.keys()) == ["a", "b", "c"]
    assert "a" in m
    assert isinstance(m.pop("a"), nn.ReLU)
    del m["b"]
    assert len(m) == 1
    m.clear()
    assert not list(m.items())


def test_parameter_list_makes_parameters_of_tensors():
    m = nn.ParameterList([fb.ones(2, 3), 5])

    m.append(nn.Parameter(fb.ones(1)))
    m += [fb.zeros(2)]

    assert [name for name, _ in m.named_parameters()] == ["0", "2", "3"]
    assert list(m.state_dict()) == ["0", "2", "3"]
    assert isinstance(m[0], nn.Parameter)
    assert m[1] == 5
    assert len(m[1:3]) == 2
    assert repr(m[:2]).replace("flambeau", "torch") == (
        "ParameterList(\n    (0): Parameter containing: [torch.float32 of size 2x3]\n"
        "    (1): Object of type: int\n)"
    )


def test_parameter_dict():
    m = nn.ParameterDict({"b": fb.ones(1), "a": 3})

    assert list(m) == ["a", "b"], "a mapping without an order is taken in sorted order"
    assert isinstance(m["b"], nn.Parameter)
    assert m.get("x", 4) == 4
    assert m.setdefault("c", 7) == 7
    assert list(reversed(m)) == ["c", "b", "a"]
    assert m.popitem() == ("c", 7)
    assert list(m | {"z": 1}) == ["a", "b", "z"]
    assert {"z": 1} | m == {"z": 1, "a": 3, "b": m["b"]}
    m |= {"q": 1}
    assert m.pop("q") == 1
    assert list(m.fromkeys(["x"], 2).items()) == [("x", 2)]
    del m["a"]
    m.clear()
    assert len(m) == 0

"""Scripted modules: their hooks, parts that an interface describes, properties, attributes with types, and classes of scripts."""

# Scripts are written in the words that PyTorch's users write.
# ruff: noqa: UP006

from __future__ import annotations

import io
from typing import Any, Final, List, Tuple  # noqa: UP035  # as old programs do

import pytest

import flambeau as fb
from flambeau import Tensor, jit, nn

X = fb.ones(1, 2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x)


def fives(self, input: Tuple[Tensor], output: Tensor) -> Tensor:
    return output * 0 + 5


def doubled(self, input: Tuple[Tensor]) -> Tuple[Tensor]:
    return (input[0] * 2,)


def plus_input(self, input: Tuple[Tensor], output: Tensor) -> Tensor:
    return output + input[0].sum()


def watches(self, input: Tuple[Tensor], output: Tensor) -> None:
    print("after", output.shape)


def watches_before(self, input: Tuple[Tensor]) -> None:
    print("before", input[0].shape)


def test_hooks_of_a_module_and_its_parts_run_in_its_script() -> None:
    net = Net()
    net.layer.register_forward_hook(fives)
    net.register_forward_pre_hook(doubled)
    net.register_forward_hook(plus_input)
    script = jit.script(net)

    assert net(X).tolist() == script(X).tolist() == [[9.0, 9.0]]
    assert script.forward(X).tolist() == script.layer(X).tolist() == [[5.0, 5.0]]
    script.register_forward_hook(lambda module, input, output: output + 1)
    assert script(X).tolist() == [[10.0, 10.0]]


def test_hooks_of_parts_are_kept_in_archives() -> None:
    net = Net()
    net.layer.register_forward_hook(fives)
    file = io.BytesIO()
    jit.save(jit.script(net), file)
    file.seek(0)

    assert jit.load(file)(X).tolist() == [[5.0, 5.0]]


def test_hooks_that_return_nothing_change_nothing(capsys: Any) -> None:
    net = Net()
    net.layer.register_forward_pre_hook(watches_before)
    net.layer.register_forward_hook(watches)

    assert jit.script(net)(X).tolist() == net.layer.forward(X).tolist()
    assert capsys.readouterr().out == "before [1, 2]\nafter [1, 2]\n"


def test_modules_that_differ_in_hooks_are_of_different_types() -> None:
    first, second = Net(), Net()
    second.layer.register_forward_hook(fives)

    assert jit.script(first)(X).tolist() == first(X).tolist()
    assert jit.script(second)(X).tolist() == [[5.0, 5.0]]


def of_no_types(self, input, output):
    return output


def without_result(self, input: Tuple[Tensor], output: Tensor):
    return output


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        (of_no_types, "Hook 'of_no_types' on module 'Linear' expected the input argument to be typed as a Tuple but found type: 'Tensor'"),
        (without_result, "Hook 'without_result' on module 'Linear' is missing a return annotation"),
    ],
)
def test_hooks_without_types_are_refused(hook: Any, message: str) -> None:
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(hook)

    with pytest.raises(RuntimeError, match=message):
        jit.script(layer)


# -- interfaces and classes ----------------------------------------------------------------------------------------------


@jit.interface
class Part(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Adds(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


class Multiplies(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 5


class Whole(nn.Module):
    part: Part

    def __init__(self):
        super().__init__()
        self.part = Adds()

    def forward(self, x: Tensor) -> Tensor:
        return self.part.forward(x)


def test_a_part_that_an_interface_describes_can_be_exchanged() -> None:
    script = jit.script(Whole())
    before = script(X).tolist()
    script.part = jit.script(Multiplies())

    assert (before, script(X).tolist()) == ([[2.0, 2.0]], [[5.0, 5.0]])


@jit.interface
class Goes:
    def go(self, x: int) -> int:
        pass


class Far:
    def __init__(self, by: int):
        self.by = by

    def go(self, x: int) -> int:
        return x + self.by

    @staticmethod
    def base(x: int) -> int:
        return x + 1

    @property
    def twice(self) -> int:
        return self.by * 2

    def __contains__(self, x: int) -> bool:
        return x == self.by


class Near:
    def __init__(self):
        pass

    def go(self, x: int) -> int:
        return x * 2


def goes(i: Goes, x: int) -> int:
    return i.go(x)


def goes_twice(x: int):
    far = Far(3)
    return goes(far, x), goes(Near(), x), Far.base(x), far.twice, 3 in far


def test_classes_have_interfaces_static_methods_properties_and_contains() -> None:
    assert jit.script(goes_twice)(4) == (7, 8, 5, 6, True)


# -- attributes ----------------------------------------------------------------------------------------------------------


class Holds(nn.Module):
    size: Final[int]

    def __init__(self):
        super().__init__()
        self.size, self.name, self.count = 3, "q", 2
        self.parts = nn.ModuleDict({"a": nn.Identity()})

    @property
    def twofold(self) -> int:
        return self.count * 2

    @twofold.setter
    def twofold(self, value: int):
        self.count = value // 2

    @jit.unused
    def only_python(self, x: List[int]) -> int:
        return len({*x})

    def forward(self, n: int):
        self.twofold = n
        return self.twofold, self.count, "a" in self.parts, "b" in self.parts


def test_properties_are_set_and_keys_of_modules_are_known() -> None:
    script = jit.script(Holds())

    assert script(10) == (10, 5, True, False)
    assert script.twofold == 10
    assert script.only_python([1, 1]) == 1


def test_attributes_keep_their_types_and_constants_their_values() -> None:
    script = jit.script(Holds())

    with pytest.raises(RuntimeError, match="Can't set constant 'size' which has value:3"):
        script.size = 4
    with pytest.raises(RuntimeError, match="Could not cast attribute 'name' to type str"):
        script.name = 5
    script.name = "r"
    assert script.name == "r"


@jit.script_if_tracing
def by_sign(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def test_script_if_tracing_keeps_branches_in_traces() -> None:
    trace = jit.trace(lambda x: by_sign(x) * 2, X)

    assert by_sign(X).tolist() == [[2.0, 2.0]]
    assert (trace(X).tolist(), trace(-X).tolist()) == ([[4.0, 4.0]], [[-4.0, -4.0]])

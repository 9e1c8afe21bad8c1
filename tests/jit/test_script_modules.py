"""Scripted modules: their hooks, parts that an interface describes, properties, attributes with types, and classes of scripts."""

# Scripts are written in the words that PyTorch's users write.
# ruff: noqa: UP006, UP045

from __future__ import annotations

import io
from typing import Any, Final, List, Optional, Tuple  # noqa: UP035  # as old programs do

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


def test_scripting_leaves_a_module_without_hooks_as_it_was() -> None:
    net = Net()
    jit.script(net)

    assert not any("hooks" in name for part in net.modules() for name in part.__dict__)


def of_no_types(self, input, output):
    return output


def without_result(self, input: Tuple[Tensor]):
    return input


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        (of_no_types, "Hook 'of_no_types' on module 'Linear' expected the input argument to be typed as a Tuple but found type: 'Tensor'"),
        (without_result, "Pre-hook 'without_result' on module 'Linear' is missing a return annotation"),
    ],
)
def test_hooks_without_types_are_refused(hook: Any, message: str) -> None:
    layer = nn.Linear(2, 2)
    (layer.register_forward_pre_hook if hook is without_result else layer.register_forward_hook)(hook)

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


# -- layers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3])
def test_unpooling_is_a_script(n: int) -> None:
    x = fb.randn(2, 3, *[8] * n, generator=fb.Generator().manual_seed(1))
    values, indices = getattr(nn, f"MaxPool{n}d")(2, return_indices=True)(x)
    layer = getattr(nn, f"MaxUnpool{n}d")(2)
    script = jit.script(layer)

    assert fb.equal(script(values, indices), layer(values, indices))
    assert fb.equal(script(values, indices, list(x.shape)), layer(values, indices, list(x.shape)))
    with pytest.raises(jit.Error, match="invalid output_size"):
        script(values, indices, [99] * n)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.FractionalMaxPool2d(2, output_size=(2, 3)), (2, 3, 6, 7)),
        (lambda: nn.FractionalMaxPool2d(3, output_ratio=0.5, return_indices=True), (3, 8, 8)),
        (lambda: nn.FractionalMaxPool2d(2, output_size=2, _random_samples=fb.full((2, 3, 2), 0.25)), (2, 3, 6, 7)),
        (lambda: nn.FractionalMaxPool3d(2, output_ratio=(0.5, 0.6, 0.7)), (1, 2, 9, 9, 9)),
    ],
)
def test_fractional_pooling_is_a_script_of_the_same_random_numbers(make: Any, shape: Any) -> None:
    layer, x = make(), fb.randn(shape, generator=fb.Generator().manual_seed(1))
    script = jit.script(layer)
    made = []
    for run in (layer, script):
        fb.manual_seed(3)
        found = run(x)
        made.append(found if isinstance(found, tuple) else (found,))

    assert isinstance(script, jit.RecursiveScriptModule)
    assert all(fb.equal(a, b) for a, b in zip(*made, strict=True))


def test_power_average_pooling_of_volumes_is_a_script() -> None:
    layer, x = nn.LPPool3d(2, 2, stride=1), fb.rand(1, 2, 4, 4, 4, generator=fb.Generator().manual_seed(1))
    script = jit.script(layer)

    assert isinstance(script, jit.RecursiveScriptModule)
    assert script(x).allclose(layer(x), rtol=1e-6)


def test_adaptive_log_softmax_is_a_script() -> None:
    fb.manual_seed(0)
    layer = nn.AdaptiveLogSoftmaxWithLoss(32, 20, [4, 10])
    script = jit.script(layer)
    x = fb.randn(4, 32)

    for target in ([1, 5, 15, 3], [0, 0, 1, 2], [12, 13, 19, 18]):
        made, expected = script(x, fb.tensor(target)), layer(x, fb.tensor(target))
        assert fb.equal(made.output, expected.output)
        assert fb.equal(made.loss, expected.loss)
    assert fb.equal(script(x[0], fb.tensor(5)).output, layer(x[0], fb.tensor(5)).output)
    with pytest.raises(jit.Error, match="targets must be from 0"):
        script(x, fb.tensor([1, 2, 3, 20]))
    with pytest.raises(jit.Error, match="batch sizes differ"):
        script(x, fb.tensor([1]))


def test_the_operator_of_unpooling_takes_a_size() -> None:
    values, indices = nn.functional.max_pool2d(fb.arange(16.0).view(1, 1, 4, 4), 2, return_indices=True)

    assert fb.ops.aten.max_unpool2d(values, indices, [4, 4]).flatten().nonzero().flatten().tolist() == [5, 7, 13, 15]


def names_or_raises(x, size: Optional[List[int]]):
    sizes = size
    if sizes is None:
        if x.dim() > 3:
            raise ValueError("too many")
        sizes = [x.size(0)]
    return x.new_zeros(sizes)


def leaves_the_loop(n: int):
    found = 0
    for i in range(n):
        if i > 2:
            found = 100 + i
            break
        found = i
    return found


def raises_or_returns(n: int):
    y: Optional[int] = None
    if n > 5:
        if n > 9:
            return -1
        raise ValueError("between")
    y = n
    return y + 1


def test_what_follows_a_raise_does_not_see_its_branch() -> None:
    assert jit.script(names_or_raises)(X, None).shape == (1,)
    assert jit.script(names_or_raises)(X, [3]).shape == (3,)
    assert jit.script(leaves_the_loop)(9) == 103
    assert [jit.script(raises_or_returns)(n) for n in (2, 11)] == [3, -1]
    with pytest.raises(jit.Error, match="between"):
        jit.script(raises_or_returns)(7)

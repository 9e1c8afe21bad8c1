"""Scripts give what the same functions give as Python, and what PyTorch's give; what cannot be a script is refused with its place."""

# Scripts are written in all of Python that they take, the old names of types among it.
# ruff: noqa: UP006, UP031, UP032, UP045, B905, C416, RUF005, SIM300

from __future__ import annotations

import enum
from typing import Any, Dict, Final, List, NamedTuple, Optional, Tuple  # noqa: UP035  # as old programs do

import pytest

import flambeau as fb
from flambeau import Tensor, jit
from flambeau.jit.frontend import NotSupportedError, UnsupportedNodeError
from flambeau.utils import _pytree as pytree


class Point(NamedTuple):
    x: Tensor
    weight: float


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Counter:
    def __init__(self, start: int):
        self.count = start
        self.seen: List[str] = []

    def add(self, name: str, by: int = 1) -> int:
        self.count += by
        self.seen.append(name)
        return self.count


def early(x, n: int):
    if n > 2:
        return x + n
    return x * n


def several_exits(x, n: int):
    total = 0
    for i in range(10):
        if i == 3:
            continue
        if i > n:
            break
        if i == 8:
            return x - 100
        total += i
    if total > 10:
        if n == 6:
            return x * total
        total = total + 1
    return x + total


def nested_loops(n: int):
    found: List[int] = []
    for i in range(n):
        for j in range(i, n, 2):
            if (i + j) % 3 == 0:
                continue
            if j > 5:
                break
            found.append(i * 10 + j)
    k = 0
    while k < n:
        k += 1
        if k == 2:
            continue
        found.append(-k)
        if k == 4:
            break
    return found


def forever(n: int) -> int:
    while True:
        n += 3
        if n > 20:
            return n


def optional(x, y: Optional[Tensor] = None, scale: Optional[float] = None):
    if y is None:
        y = fb.zeros_like(x)
    if scale is not None and scale > 0.5:
        y = y * scale
    return x + y if y is not None else x


def containers(words: Dict[str, int], keys: List[str]):
    found: Dict[str, int] = {}
    for k in keys:
        if k in words:
            found[k] = words[k] + len(k)
    pairs = [(k, v) for k, v in found.items()]
    numbers = [v * 2 for _, v in pairs]
    numbers.sort()
    numbers.insert(0, -1)
    a, b = numbers[0], numbers[-1]
    return found, numbers[1:], a, b, sorted(found.keys()), "none" not in words, {k: i for i, k in enumerate(keys)}


def texts(a: str, n: int, f: float):
    return f"{a}-{n}", "%s has %d" % (a, n), a.upper() + a[1:], a.split("b"), ",".join([a, str(n)]), "{} {}".format(a, f), len(a)


def numbers(a: int, b: float):
    return (
        a // 2, a % 3, a / 2, a**2, b**2, abs(-a), min(a, 3), max(b, 1.0), int(b), float(a), bool(a), a if a > 2 else 7, a > 1 and b < 3.0,
        1 < a < 5, -a, a & 3, a | 8, a ^ 1, a << 2, a >> 1, round(b), sum([a, a]), not a, a == 3 or b != 2.0,
    )  # fmt: skip


def indices(x):
    y = x.clone()
    y[0, 1] = 3.0
    y[1] = fb.tensor([7.0, 8.0])
    y[:, 0] += 1
    mask = y > 2.5
    return x[:, 0], x[None, ..., 1:], x[x > 0.5], y, y[mask], x[fb.tensor([1, 0])], x[-1, :], x[1:][0], x[...], x[[0, 1], [1, 1]]


def arithmetic(x):
    y = x.clone()
    y += 1
    y *= x
    return 2 - x, 1 / (x + 1), x // 2, x**2, -x, x @ x.t(), ~(x > 0), x.T, 3 * x, 1 > x, x == x, x.sum(0) + x.mean(), y


def methods(x):
    return (
        x.view(-1), x.permute(1, 0), x.reshape(1, -1).shape, x.size(0), x.dim(), x.double().dtype == fb.float64, x.max(0)[0],
        fb.cat([x, x], 1), x.sum(dim=0, keepdim=True), x.to(fb.int64), fb.stack((x, x)).mean(), x.type_as(x), x.new_zeros(2), x.numel(),
        x.is_floating_point(), fb.where(x > 0.5, x, -x), fb.full([2], 1.5), fb.arange(3), fb.split(x, 1)[0], x.unbind()[1], len(x),
    )  # fmt: skip


def over_tensors(x):
    total = fb.zeros([])
    for row in x:
        for v in row:
            if v > 0.5:
                total = total + v
    for i, (a, b) in enumerate(zip(x, [10, 20])):
        total += a.sum() * b + i
    return total


def unpacked(p: Tuple[int, Tuple[float, str]]):
    a, (b, c) = p
    first, *rest = (a, a + 1, a + 2)
    return c, b, a, first, rest[1]


def records(x):
    p = Point(x, weight=2.5)
    return p.x * p.weight, p[1], Point(weight=1.0, x=x).x


def colors(c: Color):
    if c == Color.RED:
        return c.value
    return -c.value


def counted(n: int):
    c = Counter(n)
    c.add("a")
    return c.add("b", by=3), c.seen, c.count


def without_gradients(x):
    with fb.no_grad():
        y = x * 2
    return y + x


def old_style(x, n):
    # type: (Tensor, int) -> Tuple[Tensor, int]
    return x, n + 1


def helper(x, flip: bool = False):
    return -x if flip else x


def calls(x):
    return helper(x) + helper(x, True) * 2 + helper(flip=True, x=x)


def factorial(n: int) -> int:
    if n <= 1:
        return 1
    return n * factorial(n - 1)


def functional(x):
    y = fb.nn.functional.relu(x - 0.5)
    z = fb.nn.functional.softmax(y, dim=-1, dtype=fb.float64)
    return fb.nn.functional.mse_loss(y, x, reduction="sum"), z, fb.nn.functional.layer_norm(x, [2]), fb.nn.functional.pad(x, (1, 0))


def kinds(x: Any):
    if isinstance(x, int):
        return x + 1
    return -1


def forked(x):
    future = jit.fork(helper, x, True)
    return x * 2 + jit.wait(future)


def scripting():
    return 1 if jit.is_scripting() else 0


def in_place_of_lists(x: List[int]):
    x += [7]
    x.append(8)
    x.extend([9])
    x[0] = 100
    last = x.pop()
    del x[1]
    return x, last, x.index(7), 8 in x, x + [1], x * 2, x[::-1] if False else x[0:2]


def elements(x):
    a: List[List[float]] = x.double().tolist()
    b: float = x[0, 0].double().tolist()
    return a, b, x.data.is_leaf


X = fb.tensor([[0.1, 0.9], [0.8, 0.2]])
CASES: list[tuple[Any, tuple[Any, ...]]] = [
    (early, (X, 1)), (early, (X, 3)), *[(several_exits, (X, n)) for n in (0, 2, 5, 6, 9)], (nested_loops, (6,)), (nested_loops, (0,)),
    (forever, (1,)), (optional, (X,)), (optional, (X, X)), (optional, (X, X, 0.75)), (containers, ({"a": 1, "bc": 2}, ["bc", "x", "a"])),
    (texts, ("abc", 3, 2.5)), (numbers, (3, 2.5)), (numbers, (0, 7.0)), (indices, (X,)), (arithmetic, (X,)), (methods, (X,)),
    (over_tensors, (X,)), (unpacked, ((1, (2.5, "a")),)), (records, (X,)), (colors, (Color.RED,)), (colors, (Color.GREEN,)),
    (counted, (3,)), (without_gradients, (X,)), (old_style, (X, 3)), (calls, (X,)), (factorial, (6,)), (functional, (X,)), (kinds, (3,)),
    (kinds, ("a",)), (forked, (X,)), (in_place_of_lists, ([1, 2, 3],)), (elements, (X,)),
]  # fmt: skip


def same(a: Any, b: Any) -> bool:
    if isinstance(b, Tensor):
        return isinstance(a, Tensor) and a.dtype == b.dtype and a.shape == b.shape and fb.equal(a, b)
    if isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(b, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in b)
    return a == b


@pytest.mark.parametrize(("function", "args"), CASES, ids=[f"{f.__name__}-{i}" for i, (f, _) in enumerate(CASES)])
def test_a_script_gives_what_python_gives(function: Any, args: Any) -> None:
    def copies() -> Any:
        return pytree.tree_map(lambda v: v.clone() if isinstance(v, Tensor) else v, args)

    expected = function(*copies())
    script = jit.script(function)

    assert isinstance(script, jit.ScriptFunction)
    assert same(script(*copies()), expected)
    again = jit.CompilationUnit(script.code) if function in (early, nested_loops, forever, indices, arithmetic, elements) else None
    if again is not None:                             # the code that it shows is the same program
        assert same(getattr(again, function.__name__)(*copies()), expected)


def test_scripts_know_that_they_are_scripts() -> None:
    assert scripting() == 0
    assert jit.script(scripting)() == 1


def test_gradients_pass_through_scripts() -> None:
    x = X.clone().requires_grad_()
    jit.script(several_exits)(x, 6).sum().backward()

    assert x.grad.tolist() == [[18.0, 18.0], [18.0, 18.0]]


def undefined(x):
    if x.sum() > 0:
        y = x
    return y  # pyright: ignore[reportPossiblyUnboundVariable]  # which is what is refused


def of_two_types(flag: bool):
    if flag:
        return 1
    return "a"


def changes_type(n: int):
    x = 1
    for _ in range(n):
        x = 2.5
    return x


def no_attribute(x):
    return x.no_such_thing()


def wrong_argument(x):
    return fb.add(x, "a")


def any_number(*args):
    return args[0]


def maybe(x: Optional[Tensor]):
    return x + 1


def lambdas(x):
    f = lambda y: y  # noqa: E731
    return f(x)


SIZE = 3


def global_number(x):
    return x + scale


scale = 2


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (undefined, "y is not defined in the false branch"), (of_two_types, "Previous return statement returned a value of type int"),
        (changes_type, "previously had type int but is now being assigned to a value of type float"),
        (no_attribute, "'Tensor' object has no attribute or method 'no_such_thing'"), (wrong_argument, "Arguments for call are not valid"),
        (maybe, r"Optional\[Tensor\]"),
        (global_number, "python value of type 'int' cannot be used as a value"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_script_is_refused_with_its_place(function: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message) as caught:
        jit.script(function)

    assert "test_script.py" in str(caught.value)
    assert "<--- HERE" in str(caught.value)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (any_number, NotSupportedError, "Compiled functions can't take variable number of arguments"),
        (lambdas, UnsupportedNodeError, "Lambda aren't supported:"),
    ],
)
def test_parts_of_python_that_scripts_lack_are_refused_before_names_are_looked_up(function: Any, error: Any, message: str) -> None:
    with pytest.raises(error) as caught:
        jit.script(function)

    assert str(caught.value).startswith(message)
    assert "<--- HERE" in str(caught.value)


def raising(n: int):
    if n > 1:
        raise ValueError(f"too many: {n}")
    assert n > 0, "too few"
    return n


def test_errors_inside_of_scripts_are_of_one_class_and_say_what_was_raised() -> None:
    script = jit.script(raising)

    assert script(1) == 1
    with pytest.raises(jit.Error, match=r"builtins\.ValueError: too many: 2"):
        script(2)
    with pytest.raises(jit.Error, match="AssertionError: too few"):
        script(0)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "missing value for argument 'x'"), ((X, 1, 2), {}, "expected at most 2"),
        ((X, 1.5), {}, "value of type 'int' for argument 'n'"),
        ((3, 1), {}, "value of type 'Tensor' for argument 'x'"), ((X, 1), {"m": 2}, "Unknown keyword argument 'm'"),
        ((X, 1), {"n": 2}, "specified both"),
    ],
)  # fmt: skip
def test_arguments_are_checked_by_their_types(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        jit.script(early)(*args, **kwargs)


# -- modules -------------------------------------------------------------------------------------------------------------


class Model(fb.nn.Module):
    steps: Final[int]
    counts: Dict[str, int]

    def __init__(self) -> None:
        super().__init__()
        self.first = fb.nn.Linear(2, 3)
        self.layers = fb.nn.ModuleList([fb.nn.Linear(3, 3), fb.nn.ReLU(), fb.nn.Sequential(fb.nn.Linear(3, 2), fb.nn.Tanh())])
        self.named = fb.nn.ModuleDict({"a": fb.nn.Identity(), "b": fb.nn.Sigmoid()})
        self.register_buffer("shift", fb.ones(2))
        self.steps = 2
        self.counts = {}
        self.scale = 0.5
        self.act = fb.nn.functional.relu

    def forward(self, x, more: Optional[Tensor] = None) -> Tuple[Tensor, int]:
        x = self.act(self.first(x))
        for layer in self.layers:
            x = layer(x)
        for name, part in self.named.items():
            x = part(x)
            self.counts[name] = self.counts.get(name, 0) + 1
        for _ in range(self.steps):
            x = self.shifted(x)
        if more is not None:
            x = x + more
        if self.training:
            x = x * 2
        return x, len(self.counts)

    def shifted(self, x):
        return x * self.scale + self.shift

    @jit.export
    def total(self, x):
        return self.shifted(x).sum()

    @jit.ignore
    def by_python(self, x: Tensor) -> Tensor:
        return x.tolist() and x

    @jit.unused
    def never(self, x):
        return eval("x")


def test_a_scripted_module_gives_what_the_module_gives_and_shares_its_parameters() -> None:
    model = Model()
    script = jit.script(model)
    x = fb.rand(4, 2)

    assert isinstance(script, jit.ScriptModule)
    for mode in (True, False):
        model.train(mode)
        script.train(mode)
        assert fb.equal(script(x)[0], model(x)[0])
        assert fb.equal(script(x, x)[0], model(x, x)[0])
    assert fb.equal(script.total(x), model.total(x))
    assert script.first.weight is model.first.weight
    assert [n for n, _ in script.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert set(script.state_dict()) == set(model.state_dict())
    assert script.steps == 2
    assert script.original_name == "Model"
    assert "RecursiveScriptModule(original_name=Linear)" in repr(script)
    with pytest.raises(AttributeError):
        script.no_such_method  # noqa: B018  # asking is the test


def test_modules_that_are_alike_share_their_code_and_others_do_not() -> None:
    first, second, other = jit.script(fb.nn.Linear(2, 2)), jit.script(fb.nn.Linear(2, 2)), jit.script(fb.nn.Linear(2, 2, bias=False))

    assert first._script_type is second._script_type
    assert other._script_type is not first._script_type
    assert fb.equal(other(X), fb.nn.functional.linear(X, other.weight))


def test_optimizers_train_scripted_modules() -> None:
    fb.manual_seed(0)
    model = fb.nn.Sequential(fb.nn.Linear(2, 4), fb.nn.Tanh(), fb.nn.Linear(4, 1))
    script = jit.script(model)
    optimizer = fb.optim.SGD(script.parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = fb.nn.functional.mse_loss(script(X), fb.ones(2, 1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    assert losses[-1] < 0.2 * losses[0]


LAYERS = [
    ("Linear(4, 3)", (2, 4)), ("Conv2d(4, 6, 3, padding=1)", (2, 4, 8, 8)),
    ("Conv2d(4, 6, 3, padding='same', padding_mode='reflect')", (2, 4, 8, 8)),
    ("ConvTranspose2d(4, 6, 3, stride=2)", (2, 4, 8, 8)), ("BatchNorm2d(4)", (2, 4, 8, 8)), ("InstanceNorm2d(4)", (2, 4, 8, 8)),
    ("LayerNorm(8)", (2, 4, 8)), ("GroupNorm(2, 4)", (2, 4, 8)), ("Dropout(0.5)", (2, 4)), ("GELU('tanh')", (2, 4)), ("Softmax(1)", (2, 4)),
    ("MaxPool2d(2)", (2, 4, 8, 8)), ("MaxPool2d(2, return_indices=True)", (2, 4, 8, 8)), ("AvgPool2d(2)", (2, 4, 8, 8)),
    ("AdaptiveAvgPool2d((2, None))", (2, 4, 8, 8)), ("AdaptiveMaxPool2d(2)", (2, 4, 8, 8)), ("Flatten()", (2, 4, 8)),
    ("Upsample(scale_factor=2, mode='bilinear')", (2, 4, 8, 8)), ("PixelShuffle(2)", (2, 4, 8, 8)), ("ReflectionPad2d(1)", (2, 4, 8, 8)),
    ("LSTM(4, 3, 2, bidirectional=True)", (5, 2, 4)), ("GRU(4, 3, batch_first=True)", (5, 2, 4)), ("RNN(4, 3)", (5, 4)),
    ("LSTMCell(4, 3)", (2, 4)), ("TransformerEncoderLayer(4, 2, 8, batch_first=True)", (2, 3, 4)),
    ("TransformerEncoder(fb.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2)", (2, 3, 4)),
]  # fmt: skip


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=[n for n, _ in LAYERS])
def test_layers_are_scripts(layer: str, shape: Any, training: bool) -> None:
    fb.manual_seed(0)
    module = eval(f"fb.nn.{layer}", {"fb": fb}).train(training)
    x = fb.rand(*shape)
    script = jit.script(module)
    fb.manual_seed(1)
    got = pytree.tree_leaves(script(x))
    fb.manual_seed(1)
    expected = pytree.tree_leaves(module(x))

    assert isinstance(script, jit.ScriptModule)
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        fb.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


# -- graphs --------------------------------------------------------------------------------------------------------------


def test_graphs_show_operators_branches_and_loops() -> None:
    def looped(x, n: int):
        for i in range(n):
            if i < 2:
                x = x - 1.0
            else:
                x = x + helper(x)
        return x

    script = jit.script(looped)
    text = str(script.graph)

    assert [n.kind() for n in script.graph.findAllNodes("prim::Loop")] == ["prim::Loop"]
    assert "aten::sub(%x" in text
    assert "block0(" in text
    assert "test_script.py" in text
    assert script.graph.findNode("prim::CallFunction") is not None
    assert script.inlined_graph.findNode("prim::CallFunction") is None
    assert script.schema == "looped(Tensor x, int n) -> Tensor"
    assert next(script.graph.inputs()).debugName() == "x"


def test_traces_are_graphs_that_scripts_call() -> None:
    traced = jit.trace(lambda a, b: a * 2 + b.sum(), (X, X))

    @jit.script
    def calling(x):
        return traced(x, x) + 1

    assert fb.equal(calling(X), X * 2 + X.sum() + 1)
    assert "aten::mul" in str(traced.graph)
    assert "torch.mul" in traced.code


def test_frozen_modules_have_constants_and_decide_their_branches() -> None:
    class Decides(fb.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = fb.nn.Linear(2, 2)
            self.flag = True
            self.kept = 3

        def forward(self, x):
            if self.flag:
                return self.layer(x) * self.kept
            return x

    model = Decides()
    with pytest.raises(RuntimeError, match="eval mode"):
        jit.freeze(jit.script(model))
    with pytest.raises(RuntimeError, match="expects a ScriptModule"):
        jit.freeze(model)
    script = jit.script(model.eval())
    frozen = jit.freeze(script, preserved_attrs=["kept"])

    assert fb.equal(frozen(X), model(X))
    assert list(frozen.parameters()) == []
    assert frozen.kept == 3
    assert frozen.graph.findNode("prim::If") is None
    assert frozen.graph.findNode("prim::CallMethod") is None
    assert jit.optimize_for_inference(frozen) is frozen
    assert fb.equal(jit.optimize_for_inference(script)(X), model(X))


def test_groups_of_functions_are_compiled_from_text() -> None:
    unit = jit.CompilationUnit(
        """
        def double(x):
            return x * 2

        def twice(x: Tensor, n: int = 1) -> Tensor:
            for i in range(n):
                x = double(x)
            return x
        """
    )

    assert unit.twice(fb.ones(1), 3).item() == 8
    with pytest.raises(RuntimeError, match="undefined value nothing"):
        unit.define("def f(x):\n    return nothing(x)\n")


def test_attributes_of_script_modules_have_the_types_that_are_said() -> None:
    class Old(jit.ScriptModule):
        def __init__(self) -> None:
            super().__init__()
            self.names = jit.Attribute({}, Dict[str, int])
            self.count = jit.Attribute(20, int)

        @jit.script_method
        def forward(self, x):
            self.names["a"] = self.count
            return x + len(self.names)

    old = Old()

    assert (old.names, old.count) == ({}, 20)
    assert old(X).equal(X + 1)
    assert jit.script(old)(X).equal(X + 1)


def indexed_as_graphs_write(x):
    return x[(Ellipsis, slice(None, 1, None))], x[(slice(0, 1, None), Ellipsis)]


def test_an_index_names_the_ellipsis_as_graphs_write_it():
    x = fb.arange(6).reshape(2, 3)

    assert [t.tolist() for t in fb.jit.script(indexed_as_graphs_write)(x)] == [t.tolist() for t in indexed_as_graphs_write(x)]


def _sum_of_last(x, y):
    return fb.tensordot(x, y)


def _sum_of_one(x, y):
    return fb.tensordot(x, y, dims=1)


def _sum_of_lists(x, y):
    return fb.tensordot(x, y, dims=[[0, 1], [1, 0]])


def _sum_of_pair(x, y):
    return fb.tensordot(x, y, ([1], [0]))


@pytest.mark.parametrize("fn", [_sum_of_last, _sum_of_one, _sum_of_lists, _sum_of_pair])
def test_tensordot_takes_a_number_lists_and_a_pair(fn):
    x, y = fb.randn(2, 3), fb.randn(2, 3) if fn is _sum_of_last else fb.randn(3, 2)

    assert fb.equal(fb.jit.script(fn)(x, y), fn(x, y))

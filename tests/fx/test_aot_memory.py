"""Functions compiled ahead write to their inputs, and return views of them and of each other, as they do by themselves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau._functorch.compile import aot_function, default_partition, min_cut_rematerialization_partition, nop


def leaf(n: int = 6) -> Any:
    return fb.arange(1.0, n + 1).requires_grad_()


def without_grad(n: int = 6) -> Any:
    return fb.arange(1.0, n + 1)


def write_without_history(a: Any) -> Any:
    with fb.no_grad():
        a.mul_(2)
    return a.sin()


def write_data(a: Any) -> Any:
    a.data.mul_(2)
    return a.sin()


def write_both(a: Any) -> Any:
    with fb.no_grad():
        a.mul_(2)
    return a.mul_(3).sin()


def two_views(a: Any) -> Any:
    b = a * 2
    return b.view(2, 3), b[0:2]


def whole_and_view(a: Any) -> Any:
    b = a * 2
    return b, b.view(2, 3)


def twice(a: Any) -> Any:
    b = a * 2
    return b, b


def turned(a: Any) -> Any:
    a.unsqueeze_(0)
    return a * 2


def turned_and_written(a: Any) -> Any:
    a.unsqueeze_(0).transpose_(0, 1).mul_(2)
    return a * 2


def partly_without_history(a: Any) -> Any:
    with fb.no_grad():
        b = a * 2
    return b, a * b


# Each is a function of the tensors that a maker makes of one input.
PROGRAMS: dict[str, tuple[Any, Any, Any]] = {
    "view": (leaf, lambda x: [x], lambda a: a.view(2, 3)),
    "view without history": (without_grad, lambda x: [x], lambda a: (a.view(2, 3), a[1:4])),
    "view of a result": (leaf, lambda x: [x * 2], lambda a: a[1:3]),
    "view and value": (leaf, lambda x: [x * 2], lambda a: (a[1:3], a * a)),
    "written": (leaf, lambda x: [x * 2], lambda a: a.mul_(3).sin()),
    "written only": (leaf, lambda x: [x * 2], lambda a: (a.mul_(3), 1)[1]),
    "written in part": (leaf, lambda x: [x * 2], lambda a: (a[2:4].mul_(3), a.sin())[1]),
    "written and returned": (leaf, lambda x: [x * 2], lambda a: (a.mul_(3), a[1:])),
    "written without history": (leaf, lambda x: [x], write_without_history),
    "written as data": (leaf, lambda x: [x], write_data),
    "written in both ways": (leaf, lambda x: [x * 1], write_both),
    "gains history": (leaf, lambda x: [without_grad(), x], lambda a, b: (a.copy_(b * 2), b.sin())[1]),
    "gains history in part": (leaf, lambda x: [without_grad(), x], lambda a, b: (a[1:3].copy_(b[:2] * 2), b.sin())[1]),
    "shared, written": (without_grad, lambda x: [x, x.view(2, 3)], lambda a, b: (a.mul_(2), b + 1)[1]),
    "shared slices": (without_grad, lambda x: [x[:4], x[2:]], lambda a, b: (a.mul_(2), b + 1)[1]),
    "shared, apart": (without_grad, lambda x: [x[:3], x[3:]], lambda a, b: (b.mul_(2), a + 1)[1]),
    "shared by data": (without_grad, lambda x: [x.data[:3], x.data[2:]], lambda a, b: (a.mul_(2), b.add_(1), b + 1)[2]),
    "shared, written as data": (without_grad, lambda x: [x[:4], x[2:]], lambda a, b: (a.data.mul_(2), b + 1)[1]),
    "the same twice": (without_grad, lambda x: [x, x], lambda a, b: (a.mul_(2), b + 1)[1]),
    "shared with history": (leaf, lambda x: (lambda z: [z[:4], z[2:]])(x * 2), lambda a, b: (a.mul_(2), b * b)[1]),
    "whole and view with history": (leaf, lambda x: (lambda z: [z, z.view(2, 3)])(x * 2), lambda a, b: (b.mul_(2), a * b.sum())[1]),
    "shared, read": (leaf, lambda x: [x[:4], x[2:]], lambda a, b: a * b),
    "two views of a value": (leaf, lambda x: [x], two_views),
    "value and view": (leaf, lambda x: [x], whole_and_view),
    "value twice": (leaf, lambda x: [x], twice),
    "input": (leaf, lambda x: [x], lambda a: (a, a * 2)),
    "written input": (without_grad, lambda x: [x], lambda a: (a.mul_(2), a * 2)),
    "view of a written input": (without_grad, lambda x: [x], lambda a: (a.mul_(2).view(2, 3), a * 2)),
    "view with history of a written input": (leaf, lambda x: [x * 1], lambda a: (a.mul_(2).view(2, 3), a.t())),
    "detached": (leaf, lambda x: [x], lambda a: (a.detach(), a * 2)),
    "turned": (without_grad, lambda x: [x.clone()], turned),
    "turned and written": (without_grad, lambda x: [x.clone()], turned_and_written),
    "turned with history": (leaf, lambda x: [x * 2], turned_and_written),
    "asks for history": (without_grad, lambda x: [x], lambda a: (a * 2).requires_grad_().detach()),
    "partly without history": (leaf, lambda x: [x], partly_without_history),
    "parts of complex numbers": (leaf, lambda x: [fb.complex(x, x * 2)], lambda a: (fb.view_as_real(a), a.real)),
    "conjugate": (leaf, lambda x: [fb.complex(x, x * 2)], lambda a: a.conj()),
    "expanded": (leaf, lambda x: [x[:1].expand(3)], lambda a: a * 2),
    "numbers": (leaf, lambda x: [x], lambda a: (a * 2, a.argmax(), 3, None, "s")),
}
PARTITIONS = (default_partition, min_cut_rematerialization_partition)


def told(x: Any, sources: list[Any]) -> Any:
    """What is to be seen of a result: its values and layout, its history, and of which of `sources` it is, or a view."""
    if not isinstance(x, fb.Tensor):
        return x
    of = next((("is", i) for i, s in enumerate(sources) if s is x), None)
    base = x._base
    of = of or next((("views", i) for i, s in enumerate(sources) if base is not None and (base is s or base is s._base)), None)
    return x.detach().clone().tolist(), x.stride(), x.requires_grad, x.is_leaf, of


def run(maker: Any, inputs: Any, f: Any) -> list[Any]:
    """All that a program does and its derivative, without and with writes to its results."""
    return [_run(maker, inputs, f, writes) for writes in (False, True)]


def _run(maker: Any, inputs: Any, f: Any, writes: bool) -> list[Any]:
    x = maker()
    sources = inputs(x)
    seen: list[Any] = []
    results = f(*sources)
    results = results if isinstance(results, tuple) else (results,)
    seen.append([told(y, sources) for y in results])
    seen.append([(told(s, []), s._version > 0) for s in (x, *sources)])
    tensors = [y for y in results if isinstance(y, fb.Tensor) and y.is_floating_point()]
    try:
        for y in tensors if writes else ():
            y.mul_(2)
            seen.append([told(y, []) for y in (*tensors, *sources)])
        sums = [y.abs().sum() * (i + 1) for i, y in enumerate((*tensors, *sources)) if y.requires_grad]
        if sums and x.requires_grad:
            seen.append(fb.autograd.grad(sum(sums), x, allow_unused=True))
    except RuntimeError as error:                     # of a saved value that was written to, or a view of a leaf
        seen.append(str(error).partition(":")[0])
    return seen


OVERWRITTEN = "one of the variables needed for gradient computation has been modified by an inplace operation"


def same(a: Any, b: Any) -> bool:
    """Whether the second is the first. Graphs may keep less than the program: what that has overwritten need not be lost for them."""
    if isinstance(b, str) and b == OVERWRITTEN:
        return True
    if isinstance(a, fb.Tensor):
        return isinstance(b, fb.Tensor) and same(a.tolist(), b.tolist())
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(same, a, b))
    return a == b or isinstance(a, (float, complex)) and (a != a and b != b or abs(a - b) <= 1e-5 * abs(a) + 1e-6)


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda f: f.__name__[:7])
@pytest.mark.parametrize("name", PROGRAMS)
def test_memory_is_used_as_the_program_uses_it(name: str, partition: Any) -> None:
    maker, inputs, program = PROGRAMS[name]
    f = aot_function(program, nop, partition_fn=partition)

    expected = run(maker, inputs, program)

    for _ in range(2):
        found = run(maker, inputs, f)
        assert same(found, expected), (found, expected)


@pytest.mark.parametrize("name", ["written", "written and returned", "value and view", "gains history", "shared with history"])
def test_graphs_that_write_give_the_same(name: str) -> None:
    maker, inputs, program = PROGRAMS[name]
    f = aot_function(program, nop, disable_functionalization=True)

    assert same(run(maker, inputs, f), run(maker, inputs, program))


STEPS: list[Any] = [
    lambda v: v.append(v[-1] * 2), lambda v: v.append(v[-1][1:]), lambda v: v.append(v[0][:2]), lambda v: v[-1].mul_(3),
    lambda v: v[0].add_(1), lambda v: v[-1].sub_(v[0].sum()), lambda v: v.append(v[-1].detach().exp()), lambda v: v.append(v[-1].sin()),
    lambda v: v[len(v) // 2].mul_(v[-1].mean()), lambda v: v.append(v[1] * v[-1].sum()), lambda v: v[1].copy_(v[-1].sum().expand(4)),
]  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(range(len(STEPS))), min_size=1, max_size=7), st.sets(st.integers(0, 8), min_size=1), st.integers(0, 3),
    st.sampled_from(PARTITIONS),
)
def test_random_programs_do_what_they_do_by_themselves(steps: list[int], returned: set[int], sharing: int, partition: Any) -> None:
    def program(a: Any, b: Any) -> Any:
        values = [a, b]
        for step in steps:
            STEPS[step](values)
        return tuple(values[i] for i in sorted(returned) if i < len(values)) or a.sum()

    def inputs(x: Any) -> Any:
        z = x if sharing == 3 else x * 2
        return [z[:4], z[2:]] if sharing == 0 else [z[1:5], x.detach()[:4].clone()] if sharing == 1 else [z[:4], z[:4] * 1]

    maker = without_grad if sharing == 3 else leaf
    try:
        expected = run(maker, inputs, program)
    except (RuntimeError, IndexError) as error:       # in the program itself
        with pytest.raises(type(error)):
            run(maker, inputs, aot_function(program, nop))
        return

    try:
        found = run(maker, inputs, aot_function(program, nop, partition_fn=partition))
    except RuntimeError as error:                     # its derivative is made with it
        if not str(error).startswith(OVERWRITTEN) or not any(OVERWRITTEN in e for e in expected):
            raise
        return
    assert same(found, expected)


def test_leaves_that_require_grad_are_not_written() -> None:
    x = leaf()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        aot_function(lambda a: a.mul_(3), nop)(x)
    assert x.tolist() == [1, 2, 3, 4, 5, 6]


def test_memory_shared_without_its_history_is_not_written() -> None:
    x = leaf() * 2
    with pytest.raises(RuntimeError, match="share memory that the function writes to"):
        aot_function(lambda a, b: (a.mul_(2), b + 1)[1], nop)(x, x.detach())
    assert x.tolist() == [2, 4, 6, 8, 10, 12]


def test_a_second_derivative_is_refused() -> None:
    x = leaf()
    (first,) = fb.autograd.grad(aot_function(lambda a: a.sin(), nop)(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        fb.autograd.grad(first.sum(), x)


def test_one_graph_is_for_all_sizes_that_its_guards_hold_for() -> None:
    pytest.importorskip("sympy")
    graphs: list[Any] = []

    def program(a: Any, b: Any, n: int) -> Any:
        joined = fb.cat([a, b], 0).reshape(-1)
        return joined.sin() * n, a[1:], a.shape[0]

    f = aot_function(program, lambda gm, _: graphs.append(gm) or gm, dynamic=True)
    for k, n in ((4, 3), (3, 5), (6, 7)):       # no two sizes are the same number
        answers = []
        for g in (f, program):
            a = fb.arange(1.0, 2 * k + 1).view(k, 2).requires_grad_()
            y, view, size = g(a, fb.ones(k, 2), n)
            (y.sum() + view.mul(2).sum()).backward()
            answers.append([y.tolist(), view.tolist(), view._base is a, size, a.grad.tolist()])
        assert same(*answers)
    assert len(graphs) == 2                           # one of the function and one of its derivative
    with pytest.raises(RuntimeError):
        f(fb.ones(2, 3), fb.ones(2, 2), 1)

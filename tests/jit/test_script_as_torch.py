"""Scripts compute, print and fail as PyTorch's do where that is not Python's way: arithmetic in 64 bits, texts of values, errors."""

# Scripts are written in the words that PyTorch's users write.
# ruff: noqa: UP006, UP007, UP045, RET504, RUF057

from __future__ import annotations

import enum
import math
import textwrap
from typing import Any, Dict, List, Optional, Union  # noqa: UP035  # as old programs do

import pytest

import flambeau as fb
from flambeau import Tensor, jit
from flambeau.jit import frontend
from flambeau.jit._value_text import text_of_value


class Color(enum.Enum):
    RED = 1
    GREEN = 2


# -- numbers -------------------------------------------------------------------------------------------------------------


def wraps(a: int, b: int):
    return a + b, a * b, -b, b - a, a << 2


def rounds(x: float, n: int):
    return round(x), round(n), pow(n, 2), n**2, n**-1


def divides_by_zero(x: float, y: float, n: int, m: int):
    return x / y, n / m, x // y, x % y


def of_bools(b: bool, n: int):
    return b == n, b + 1, b * 2, b < 2, b + 1.5, b & True


def beyond_functions(x: float):
    return math.atanh(x), math.gamma(x - 1), math.lgamma(x - 1), math.log(x - 1), math.fmod(x, x - 1), math.log(x + 7, 2.0)


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (wraps, (2**62, 2**62), (-(2**63), 0, -(2**62), 0, 0)), (wraps, (1, -(2**63)), (1 - 2**63, -(2**63), -(2**63), 2**63 - 1, 4)),
        (rounds, (2.5, 3), (2.0, 3.0, 9.0, 9.0, 1 / 3)), (divides_by_zero, (1.0, 0.0, 1, 0), (math.inf, math.inf, math.inf, math.nan)),
        (of_bools, (True, 3), (False, 2, 2, True, 2.5, True)),
        (beyond_functions, (1.0,), (math.inf, math.inf, math.inf, -math.inf, math.nan, 3.0)),
    ],
)  # fmt: skip
def test_numbers_are_those_of_64_bits_and_of_c(function: Any, args: Any, expected: Any) -> None:
    made = jit.script(function)(*args)

    assert [type(m) for m in made] == [type(e) for e in expected]
    assert all(m == e or m != m and e != e for m, e in zip(made, expected, strict=True))


def divides(n: int, m: int):
    return n // m


def rounds_down(x: float):
    return math.floor(x)


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [(divides, (1, 0), "RuntimeError: division by 0"), (rounds_down, (math.inf,), "Cannot convert float inf to integer")],
)
def test_numbers_that_have_no_value_raise(function: Any, args: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        jit.script(function)(*args)


def takes_numbers(n: int, x: float, flag: bool, z: complex):
    return n, x, flag, z


def test_arguments_become_the_number_that_is_asked_for() -> None:
    np = pytest.importorskip("numpy")
    script = jit.script(takes_numbers)

    assert script(True, 1, 1, 1) == (1, 1.0, True, 1 + 0j)
    assert script(np.int64(3), np.float32(2), True, 1.5) == (3, 2.0, True, 1.5 + 0j)
    assert script(fb.tensor(3), fb.tensor(2.0), True, 1) == (3, 2.0, True, 1 + 0j)
    with pytest.raises(RuntimeError, match="value of type 'int' for argument 'n'"):
        script(1.0, 1.0, True, 1)


# -- texts of values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1."), (0.1, "0.10000000000000001"), (1e20, "1e+20"), (-0.0, "0."), (math.inf, "inf"), (1e16, "10000000000000000."),
        ([1.0, 2.5], "[1., 2.5]"), ({"a": 1}, "{a: 1}"), (("a", None), "(a, None)"), ((3,), "(3,)"), (1 - 2j, "1.-2.j"),
        (Color.RED, "Enum<Color.RED>"), (fb.tensor(2.5), "2.5\n[ CPUFloatType{} ]"),
        (fb.tensor([1, 200]), "   1\n 200\n[ CPULongType{2} ]"),
        (fb.tensor([1.5, 1e6]), " 1.5000e+00\n 1.0000e+06\n[ CPUFloatType{2} ]"), (fb.zeros(2, 0), "[ CPUFloatType{2,0} ]"),
        (fb.tensor([[1.0, math.nan], [math.inf, -2.5]]), " 1.0000     nan\n    inf -2.5000\n[ CPUFloatType{2,2} ]"),
        (fb.tensor([1e-3, 2e-3]), "0.001 *\n 1.0000\n 2.0000\n[ CPUFloatType{2} ]"),
        (fb.tensor([[0.5e6, -1e6], [2.0e6, 1.25e6]]) / 7, "100000 *\n 0.7143 -1.4286\n  2.8571  1.7857\n[ CPUFloatType{2,2} ]"),
        (fb.ones(1, 2, 2) / 2, "(1,.,.) = \n 0.5000  0.5000\n  0.5000  0.5000\n[ CPUFloatType{1,2,2} ]"),
        (fb.ones(1, 12) / 2, "Columns 1 to 10 0.5000  0.5000  0.5000  0.5000  0.5000  0.5000  0.5000  0.5000  0.5000  0.5000\n\n"
                             "Columns 11 to 12 0.5000  0.5000\n[ CPUFloatType{1,12} ]"),
    ],
)  # fmt: skip
def test_values_are_shown_as_scripts_show_them(value: Any, text: str) -> None:
    assert text_of_value(value) == text


def shows(x: float, d: Dict[str, List[float]]):
    print(x, d, None, True)
    return str(x), f"{x} and {d}", "%s %d %f" % (x, 3, x), str([1.0])  # noqa: UP031


def test_print_str_and_formats_show_the_same(capsys: Any) -> None:
    made = jit.script(shows)(2.0, {"a": [1.0]})

    assert made == ("2.", "2. and {a: [1.]}", "2. 3 2.000000", "[1.]")
    assert capsys.readouterr().out == "2. {a: [1.]} None True\n"


# -- what is in the language ---------------------------------------------------------------------------------------------


def in_texts(s: str):
    return "a" in s, "q" not in s


def goes_over_members():
    total = 0
    for c in Color:
        total += c.value
    return total, [c for c in Color]  # noqa: C416


def with_generators(x: List[int]):
    return sum(a * 2 for a in x), list(a for a in x), any(a > 2 for a in x)  # noqa: C400


def mixed():
    return [1, "a"], {"a": 1, "b": "c"}


def slices(x, n: List[int]):
    return x[slice(0, 1)].shape, x[:, slice(1, None, 2)].shape, n[slice(1, 3)]


def named(x):
    return x.max(dim=0).values, x.sort().indices, fb.topk(x, 1), fb.sum(input=x, dim=0)


def in_contexts(x):
    with fb.autograd.profiler.record_function("part"):
        y = x + 1
    with fb.autocast("cpu", dtype=fb.bfloat16):
        z = fb.mm(y, y)
    with jit.strict_fusion():
        y = y * 2
    return y, z


def of_any(x: Any):
    return isinstance(x, list), isinstance(x, tuple), isinstance(x, dict), isinstance(x, (int, str))


def test_forms_that_pytorch_takes() -> None:
    x = fb.tensor([[1.0, 4.0], [3.0, 2.0]])

    assert jit.script(in_texts)("cat") == (True, True)
    assert jit.script(goes_over_members)() == (3, [Color.RED, Color.GREEN])
    assert jit.script(with_generators)([1, 2, 3]) == (12, [1, 2, 3], True)
    assert jit.script(mixed)() == ([1, "a"], {"a": 1, "b": "c"})
    assert jit.script(slices)(x, [1, 2, 3, 4]) == ([1, 2], [2, 1], [2, 3])
    values, indices, top, total = jit.script(named)(x)
    assert (values.tolist(), indices.tolist(), total.tolist()) == ([3.0, 4.0], [[0, 1], [1, 0]], [4.0, 6.0])
    assert type(top) is tuple
    assert top[0].tolist() == [[4.0], [3.0]]
    y, z = jit.script(in_contexts)(x)
    assert (y.dtype, z.dtype) == (fb.float32, fb.bfloat16)
    assert [jit.script(of_any)(v) for v in ([1], (1,), {}, "a")] == [
        (True, False, False, False), (False, True, False, False), (False, False, True, False), (False, False, False, True),
    ]  # fmt: skip


def of_unions(a: Union[str, int, None], b: Union[List[int], Tensor], c: Union[int, float]) -> Optional[int]:
    return None


def two() -> Any:
    return 1, 2


def returns_two(x):
    return x, x


def test_schemas_have_the_members_of_unions_in_order_and_parentheses_around_tuples() -> None:
    assert jit.script(of_unions).schema == "of_unions(Union(int, NoneType, str) a, Union(Tensor, int[]) b, Union(float, int) c) -> int?"
    assert jit.script(returns_two).schema == "returns_two(Tensor x) -> ((Tensor, Tensor))"


# -- what is refused -----------------------------------------------------------------------------------------------------

_LACKING = [
    ("try:\n    return x\nexcept ValueError:\n    return x", "try blocks aren't supported"), ("yield x", "Yield aren't supported"),
    ("y = {1, 2}\nreturn x", "Set aren't supported"), ("import math\nreturn x", "import statements aren't supported"),
    ("global y\nreturn x", "global variables aren't supported"), ("def g(z):\n    return z\nreturn g(x)", "function definitions aren't"),
    ("class A:\n    pass\nreturn x", "class definitions aren't supported"),
    ("if (y := 3) > 2:\n    return x\nreturn x", "NamedExpr aren't"),
    ("match x:\n    case 1:\n        return x\nreturn x", "Match aren't supported"),
    ("y: int\nreturn x", "annotated assignments without assigned value aren't supported"),
]  # fmt: skip
_FORMS = [
    ("return [a for a in [1, 2] if a > 1]", "Comprehension ifs are not supported yet"),
    ("return [a for a in [1] for b in [2]]", "Only a single generator is currently supported"),
    ("return fb.add(**{'a': x})", "keyword-arg expansion is not supported"), ("return f'{x:3d}'", "Don't support formatting in JoinedStr"),
    ("return f'{x!r}'", "Don't support conversion in JoinedStr"), ("return {**{'a': 1}}", "Dict expansion"),
    ("for i in range(3):\n    x = x + 1\nelse:\n    x = x - 1\nreturn x", "else branches of for loops aren't supported"),
]  # fmt: skip


def from_text(tmp_path: Any, body: str) -> Any:
    """A function whose source can be read."""
    path = tmp_path / "program.py"
    path.write_text(f"def program(x):\n{textwrap.indent(body, '    ')}\n", encoding="utf-8")
    scope: dict[str, Any] = {"fb": fb}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), scope)
    return scope["program"]


@pytest.mark.parametrize(
    ("body", "message", "error"),
    [(b, m, frontend.UnsupportedNodeError) for b, m in _LACKING] + [(b, m, frontend.NotSupportedError) for b, m in _FORMS],
)
def test_what_scripts_lack_is_refused_by_pytorchs_errors(tmp_path: Any, body: str, message: str, error: Any) -> None:
    with pytest.raises(error) as caught:
        jit.script(from_text(tmp_path, body))

    assert type(caught.value) is error
    assert str(caught.value).startswith(message)
    assert f'  File "{tmp_path / "program.py"}", line ' in str(caught.value)
    assert "~ <--- HERE\n" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("if x.dim() > 1:\n    y = 1\nelse:\n    y = 'a'\nreturn y",
         "\n\nType mismatch: y is set to type int in the true branch and type str in the false branch:\n"),
        ("return 1 if x.dim() > 1 else 'a'", "\nif-expression's true branch has type int but false branch has type str:\n"),
        ("return open('a')", "\nPython builtin <built-in function open> is currently not supported in Torchscript:\n"),
        ("y = [1, 2]\ny[0:1] = [3]\nreturn y", "\nSliced expression not yet supported for subscripted assignment."),
        ("del x.a\nreturn x", "\ndel statements are only supported for deleting list and dict items and variables:\n"),
        ("print(x, end='')\nreturn x", "\nprint doesn't accept any keyword arguments:\n"),
        ("return 9223372036854775808", "\nIntegral constant out of range (must fit in a signed 64 bit integer):\n"),
        ("return fb.relu(1)", "\nArguments for call are not valid.\nThe following variants are available:\n  \n  aten::relu(Tensor self) "
                              "-> Tensor:\n  Expected a value of type 'Tensor' for argument 'self' but instead found type 'int'.\n  \n"),
        ("return fb.no_such_function(x)", "\nobject has no attribute no_such_function:\n"),
    ],
)  # fmt: skip
def test_messages_begin_as_pytorchs(tmp_path: Any, body: str, message: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        jit.script(from_text(tmp_path, body))

    assert str(caught.value).startswith(message)


def test_a_place_is_shown_with_two_lines_before_and_behind_it(tmp_path: Any) -> None:
    with pytest.raises(RuntimeError) as caught:
        jit.script(from_text(tmp_path, "a = 1\nb = 2\nc = x.foo\nd = 3\ne = 4\nreturn x"))

    place = f'.:\n  File "{tmp_path / "program.py"}", line 4\n    a = 1\n    b = 2\n    c = x.foo\n        ~~~~~ <--- HERE\n'
    assert str(caught.value).endswith(f"{place}    d = 3\n    e = 4\n")


def keeps(x, of: Dict[str, int] = {}):  # noqa: B006
    return x


def test_defaults_that_calls_share_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"Mutable default parameters are not supported .*(\n.*)*Found <class 'dict'> on parameter of"):
        jit.script(keeps)


SIZE = 3


def of_a_global(x):
    return x + SIZE


def test_numbers_of_the_module_are_no_values() -> None:
    with pytest.raises(RuntimeError, match=r"python value of type 'int' cannot be used as a value\. Perhaps it is a closed over global"):
        jit.script(of_a_global)


# -- errors while a script runs ------------------------------------------------------------------------------------------


def inner(x):
    return x[5]


def outer(x):
    y = inner(x)
    return y


def looks_up(d: Dict[str, int]):
    return d["q"]


def test_an_error_shows_the_calls_that_led_to_it() -> None:
    with pytest.raises(RuntimeError) as caught:
        jit.script(outer)(fb.ones(2))

    text = str(caught.value)
    first, second, *_ = text.split("\n")
    assert first == "The following operation failed in the TorchScript interpreter."
    assert second == "Traceback of TorchScript (most recent call last):"
    assert text.index(", in outer\n") < text.index("    y = inner(x)\n        ~~~~~ <--- HERE") < text.index(", in inner\n")
    assert "    return x[5]\n           ~~~~ <--- HERE\n" in text
    assert isinstance(caught.value.__cause__, IndexError)


def test_errors_of_containers_are_runtime_errors() -> None:
    with pytest.raises(RuntimeError, match="RuntimeError: KeyError: q"):
        jit.script(looks_up)({"a": 1})


def test_errors_that_scripts_raise_are_no_runtime_errors() -> None:
    assert jit.Error.__mro__[1] is Exception
    assert jit.Error.__module__ == "flambeau.jit"


@jit.ignore
def left(n: int) -> int:
    return "a"  # type: ignore[return-value]


def calls_left(n: int):
    return left(n)


def test_what_python_returns_to_a_script_is_of_the_annotated_type() -> None:
    with pytest.raises(RuntimeError, match=r"expected value of type int for return value but instead got value of type str\.\nValue: 'a'"):
        jit.script(calls_left)(2)


def fails_without_grad(x):
    with fb.no_grad():
        y = fb.mm(x, x)
    return y


def test_an_error_in_a_with_statement_leaves_it() -> None:
    with pytest.raises(RuntimeError):
        jit.script(fails_without_grad)(fb.ones(2, 3))

    assert fb.is_grad_enabled()


# -- what runs -----------------------------------------------------------------------------------------------------------


class Padded(fb.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = fb.nn.Linear(2, 2)
        self.register_buffer("scale", fb.ones(2))

    def forward(self, x, mode: str = "zeros"):
        if mode != "zeros":
            x = x - 1
        return self.layer(x) * self.scale


def test_a_script_reads_parameters_and_buffers_that_were_put_in_their_place() -> None:
    model = Padded()
    script = jit.script(model)
    x = fb.ones(1, 2)
    script(x)
    script.layer.weight = fb.nn.Parameter(fb.zeros(2, 2))
    script.layer.bias = fb.nn.Parameter(fb.ones(2))
    script.scale = fb.full((2,), 3.0)

    assert script(x).tolist() == [[3.0, 3.0]]
    assert script(x, "none").tolist() == [[3.0, 3.0]]
    assert fb.func.functional_call(script, {"scale": fb.full((2,), 5.0)}, (x,)).tolist() == [[5.0, 5.0]]


def counts_down(n: int) -> int:
    while n > 3:
        n -= 1
    return n


def test_branches_on_constants_are_those_that_run() -> None:
    @jit.script
    def chooses(x, flag: bool):
        kind = "zeros"
        if kind != "zeros":
            x = x + 100
        elif flag:
            kind = "ones"
        return x, kind == "ones"

    x = fb.ones(1)
    assert [(made.item(), is_ones) for made, is_ones in (chooses(x, True), chooses(x, False))] == [(1.0, True), (1.0, False)]
    assert jit.script(counts_down)(7) == 3


def multiplies(x):
    return x.mm(x)


def waits_late(x, asks: bool):
    made = jit.fork(multiplies, x)
    if asks:
        return jit.wait(made)
    return x


def test_the_error_of_a_fork_is_raised_where_it_is_waited_for() -> None:
    script = jit.script(waits_late)
    x = fb.ones(2, 3)

    assert script(x, False).equal(x)
    with pytest.raises(RuntimeError, match=r"return jit\.wait\(made\)\n +~+ <--- HERE\n(.*\n)*.*return x\.mm\(x\)\n +~+ <--- HERE"):
        script(x, True)

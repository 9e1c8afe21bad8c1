"""Compositions and derivative rules are made of operations: they do not touch arrays, so interpreters, devices and recordings see all.

``python tests/ops/test_arrays_in_rules.py`` lists those that do.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import flambeau as fb

ROOT = Path(fb.__file__).parent / "ops"
KINDS = ("primitive", "elementwise", "reduction", "view", "composite")
RULES = ("composite", "vjp", "jvp")
LOOKS = ("shape", "ndim", "dtype", "size", "itemsize", "strides", "__class__")  # of an array, which are no elements
ASKED_BY = ("is_ordered_last", "permutation", "type", "viewed")  # functions that look at no elements either
OF_NUMBERS = ("broadcast_shapes", "cumprod", "dtype", "finfo", "iinfo", "isinf", "log", "prod", "shape")

# What touches arrays still, by module, with the reason. This list only shrinks.
ALLOWED: dict[str, str] = {}


def touches(function: ast.FunctionDef) -> bool:
    """Whether the text of `function` reads elements of an array, calls numpy on arrays, or makes a Tensor of an array."""
    looked_at = {id(n.value) for n in ast.walk(function) if isinstance(n, ast.Attribute) and n.attr in LOOKS}
    calls = [n for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    looked_at |= {id(a) for n in calls if getattr(n.func, "id", "") in ASKED_BY for part in n.args for a in ast.walk(part)}
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node.attr == "_array" and id(node) not in looked_at:
            return True
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id == "wrap":
                return True
            of_numpy = isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "np"
            if of_numpy and getattr(called, "attr", "") not in OF_NUMBERS:
                return True
    return False


def declared_by(function: ast.FunctionDef) -> set[str]:
    """The last names of the decorators of `function`: "composite", or "vjp" of ``@mm.vjp``."""
    targets = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    return {t.id if isinstance(t, ast.Name) else t.attr for t in targets if isinstance(t, (ast.Name, ast.Attribute))}


def found_in(text: str) -> list[str]:
    """Compositions and rules of a module that touch arrays, themselves or by functions of the module that they call."""
    tree = ast.parse(text)
    helpers = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef) and not declared_by(n) & set(KINDS)}

    def reaches(function: ast.FunctionDef, seen: set[str]) -> bool:
        if touches(function):
            return True
        called = {n.func.id for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        new = called & set(helpers) - seen
        seen |= new
        return any(reaches(helpers[name], seen) for name in sorted(new))

    rules = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and declared_by(n) & set(RULES)]
    return [n.name for n in rules if reaches(n, {n.name})]


@functools.cache
def found() -> dict[str, list[str]]:
    every = {path.relative_to(ROOT).as_posix(): found_in(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}
    return {name: rules for name, rules in every.items() if rules}


def test_a_rule_that_touches_arrays_is_found():
    text = """
def first(x): return wrap(x)
@composite(surface=0)
def one(x): return first(x)
@mm.vjp
def two(grad, x): return np.where(x._array > 0, 1, 0)
@mm.vjp
def three(grad, x): return grad * x._array.ndim
@mm.raw
def four(grad): return np.zeros(3)
"""

    assert found_in(text) == ["one", "two"]


def test_compositions_and_rules_do_not_touch_arrays():
    for module, rules in found().items():
        more = set(rules) - set(ALLOWED.get(module, "").split())
        assert not more, f"ops/{module}: {', '.join(sorted(more))} should be made of operations, or have a kernel"


def test_the_list_of_rules_that_touch_arrays_only_shrinks():
    for module, names in ALLOWED.items():
        gone = set(names.split()) - set(found().get(module, ()))
        assert not gone, f"ops/{module}: {', '.join(sorted(gone))} touch no arrays any more; take them off the list"


if __name__ == "__main__":
    for module, rules in found().items():
        print(module, " ".join(rules))
    print(sum(map(len, found().values())), "compositions and rules touch arrays")

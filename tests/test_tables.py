"""Facts of an op stand on its declaration: no other module has a table of names of ops that says what declarations do not.

``python tests/test_tables.py`` lists what is found.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
import sys
from pathlib import Path

import pytest

import flambeau as fb
from flambeau.ops import _derive, _spec

ROOT = Path(fb.__file__).parent
SIZE = 3                                              # names that make a table

# Generated from declarations; and mappings that programs read and change, as in PyTorch.
LEFT_OUT = re.compile(r"ops/_index\.py|ao/quantization/.*")

# The tables that are left, in each module as many as the number says, and why. This list only shrinks.
ALLOWED = {
    # Words of another language, of which many have the name of an op.
    "_aten.py": (2, "operators of aten that take other arguments than the functions of their name"),
    "_symbolic.py": (1, "methods of symbols"),
    "cuda/_cpp_formulas.py": (2, "functions of C++"),
    "fx/experimental/sym_node.py": (2, "methods of symbols, by SymPy's functions"),
    "kernels/_derivative.py": (1, "words of formulas"),
    "kernels/_elementwise.py": (1, "words of formulas"),
    "onnx/_translate/indexing.py": (1, "words of ONNX for values of `reduce`"),
    "ops/linear_algebra/_lapack.py": (1, "loops of numpy"),
    # Values of a public parameter.
    "_native_functions.py": (2, "values of `reduce`"),
    "distributed/tensor/_redistribute.py": (1, "values of `reduce_op`"),
    "nn/init.py": (2, "values of `nonlinearity`"),
    "ops/indexing/select.py": (1, "values of `reduce`"),
    "ops/kinds/sparse.py": (1, "values of `reduce`"),
    "ops/layers/embedding.py": (1, "values of `mode`"),
    # What a module hands on.
    "nn/functional.py": (1, "functions that PyTorch has here too"),
}


def names_of_ops() -> frozenset[str]:
    """Names of all ops without those that Python's operators have as well."""
    _derive.load_all()
    names = {part for key, op in _spec.OPS.items() for part in (key, key.rpartition(".")[2], op.name)}
    return frozenset(names) - set(dir(operator))


def named_by(element: ast.expr, own: frozenset[str] | None) -> str | None:
    """The name that an element of a collection is: a text, or an object of another module.

    Args:
        own: names that the module itself defines, outside of functions; None within a function, whose variables may have any name.
    """
    if isinstance(element, (ast.Tuple, ast.List)) and element.elts:
        return named_by(element.elts[0], own)
    if isinstance(element, ast.Constant) and isinstance(element.value, str):
        return element.value.removesuffix("_")
    if isinstance(element, ast.Name) and own is not None and element.id not in own:
        return element.id
    if isinstance(element, ast.Attribute) and isinstance(element.value, ast.Name) and element.value.id not in ("np", "math", "operator"):
        return element.attr
    return None


def elements_of(node: ast.AST) -> list[ast.expr]:
    """The elements of a collection, keys of a dict, words of a text of words, or texts among the arguments of a call."""
    if isinstance(node, ast.Dict):
        return [key for key in node.keys if key is not None]
    if isinstance(node, (ast.Set, ast.Tuple, ast.List)):
        return node.elts
    if isinstance(node, ast.Call):
        return [a for a in node.args if isinstance(a, ast.Constant)]
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w.\s]+", node.value):
        return [ast.Constant(word) for word in node.value.split()]
    return []


def tables_in(text: str, known: frozenset[str]) -> list[tuple[int, list[str]]]:
    """Lines of collections at least half of whose elements are names of ops, with these names."""
    tree = ast.parse(text)
    own = frozenset(n.name for n in tree.body if isinstance(n, ast.FunctionDef))
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.Lambda)) for n in ast.walk(f)}
    left_out = {id(n.value) for n in tree.body if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "__all__"}
    left_out |= {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.keyword) and n.arg == "aliases"}  # a declaration's own names
    left_out |= {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}  # docstrings
    found: list[tuple[int, list[str]]] = []
    for node in ast.walk(tree):
        elements = elements_of(node)
        if len(elements) < SIZE or id(node) in left_out:
            continue
        named = [named_by(e, None if id(node) in inside else own) for e in elements]
        ops = sorted({n for n in named if n in known})
        if len(ops) >= SIZE and 2 * len(ops) >= len(elements):
            found.append((getattr(node, "lineno", 0), ops))
    return found


@functools.cache
def tables(root: Path = ROOT) -> dict[str, list[tuple[int, list[str]]]]:
    """By module what `tables_in` finds."""
    known = names_of_ops()
    paths = {p.relative_to(root).as_posix(): p for p in sorted(root.rglob("*.py"))}
    found = {name: tables_in(p.read_text(encoding="utf-8"), known) for name, p in paths.items() if not LEFT_OUT.fullmatch(name)}
    return {path: rows for path, rows in found.items() if rows}


@pytest.mark.parametrize("text", [
    'HARD = {"sort": 1, "topk": 2, "unique": 3}',
    'HARD = frozenset("sort topk unique".split())',
    "from ops import sort, topk, unique\nfor op in (sort, topk, unique): op.hard = True",
    '@rule("sort", "topk", "unique")\ndef run(): pass',
    "def hard(op): return op.name in ('sort', 'topk', 'unique')",
])  # fmt: skip
def test_a_table_of_names_is_found(text):
    assert [ops for _, ops in tables_in(text, names_of_ops())] == [["sort", "topk", "unique"]]


def test_facts_of_ops_stand_on_their_declarations():
    found = tables()

    for path, rows in found.items():
        allowed, _ = ALLOWED.get(path, (0, ""))
        told = "; ".join(f"line {line}: {', '.join(ops[:6])}" for line, ops in rows)
        assert len(rows) <= allowed, f"{path} has a table of names of ops; their declarations should say that (`Facts`): {told}"


def test_the_list_of_tables_that_are_left_only_shrinks():
    found = tables()

    for path, (count, _) in ALLOWED.items():
        left = len(found.get(path, ()))
        assert left == count, f"{path} has {left} tables of names of ops: let ALLOWED say that"


if __name__ == "__main__":
    every = tables(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
    for path, rows in every.items():
        for line, ops in rows:
            print(f"{path}:{line} {len(ops)} {' '.join(ops)[:100]}")
    print(f"{sum(map(len, every.values()))} tables with {sum(len(ops) for rows in every.values() for _, ops in rows)} names")

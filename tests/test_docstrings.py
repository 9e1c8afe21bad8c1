"""What docstrings promise: public names have one, it begins with a sentence, names every parameter, and its examples run."""

from __future__ import annotations

import ast
import doctest
import enum
import importlib
import inspect
import json
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import flambeau as fb

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "framework" / "flambeau"

# Parameters that need no mention, and why.
EXEMPT = {
    "torch.utils.checkpoint.CheckpointPolicy": "an Enum, whose parameters are those of Python's Enum",
    "torch.serialization.LoadEndianness": "an Enum, whose parameters are those of Python's Enum",
    "torch.xpu": "functions that only say there is no such device",
    "torch.mtia": "functions that only say there is no such device",
    "torch.mps": "functions that only say there is no such device",
}


# -- examples ----------------------------------------------------------------------------------------------------------


def examples() -> list[Any]:
    """Every docstring of the sources that has an example, with the file and the name it belongs to."""
    found = []
    for file in sorted(SOURCES.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if ">>>" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                doc = ast.get_docstring(node) or ""
                if re.search(r"^\s*>>> ", doc, re.MULTILINE):
                    name = getattr(node, "name", "module")
                    home = ".".join(file.relative_to(SOURCES).with_suffix("").parts)
                    found.append(pytest.param(home, name, doc, id=f"{home}.{name}"))
    return found


@pytest.mark.filterwarnings("ignore:Named tensors and all their associated APIs")
@pytest.mark.parametrize(("home", "name", "doc"), examples())
def test_an_example_prints_what_its_docstring_says(home: str, name: str, doc: str, tmp_path, monkeypatch, fresh_python) -> None:
    if home == "swap.__init__":  # it refuses to stand in for a torch that this process has imported
        fresh_python("-c", "import doctest, flambeau.swap as s; assert doctest.testmod(s).attempted; assert not doctest.testmod(s).failed")
        return
    monkeypatch.chdir(tmp_path)  # for the files that examples write
    module = importlib.import_module(f"flambeau.{home}")
    scope = {**vars(module), "fb": fb, "nn": fb.nn, "F": fb.nn.functional, "math": math}
    test = doctest.DocTestParser().get_doctest(doc, scope, name, f"{home}.py", 0)
    report: list[str] = []

    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=report.append)

    assert result.attempted > 0
    assert result.failed == 0, "".join(report)


# -- what is public ----------------------------------------------------------------------------------------------------


def resolve(name: str) -> Any:
    """What `torch.<...>` is here; AttributeError or ImportError for what is not built."""
    place: Any = fb
    parts = name.split(".")[1:]
    for at, part in enumerate(parts, 1):
        try:
            place = getattr(place, part)
        except AttributeError:
            place = importlib.import_module(".".join(["flambeau", *parts[:at]]))
    return place


@cache
def public() -> dict[str, Any]:
    """Functions and classes of PyTorch's documentation that are built here, by their names there."""
    index = json.loads((SOURCES / "api_index.json").read_text(encoding="utf-8"))["names"]
    found = {}
    for home, names in index.items():
        try:
            place = resolve(home)
        except (AttributeError, ImportError):
            continue  # not built
        if not inspect.ismodule(place) and not inspect.isclass(place):
            place = type(place)  # an object's properties may need a device to answer
        for name in names.split():
            try:
                value = getattr(place, name)
            except (AttributeError, ImportError, NotImplementedError):
                continue
            if callable(value) and not inspect.ismodule(value) and not name.startswith("__"):
                found[f"{home}.{name}"] = value
    return found


def doc_of(value: Any) -> str:
    """Its own docstring, which for a class is not that of its base."""
    return (vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__) or ""


def first_line(doc: str) -> str:
    return doc.strip().partition("\n")[0]


def is_ours(value: Any) -> bool:
    return (getattr(value, "__module__", "") or "").partition(".")[0] in ("flambeau", "torch")


def test_public_names_are_found():
    assert len(public()) > 1200
    assert {"torch.add", "torch.nn.Conv2d", "torch.Tensor.view", "torch.optim.Adam"} <= public().keys()


def test_every_public_name_begins_its_docstring_with_a_sentence():
    # Instances such as dtypes and partial functions of Python's own have the docstring of their class.
    lines = {name: first_line(doc_of(value)) for name, value in public().items() if is_ours(value)}

    wrong = [f"{name}: {line!r}" for name, line in lines.items() if not re.search(r"^\S.*[.:]$", line)]

    assert not wrong, "\n".join(wrong)


def test_public_methods_and_properties_have_a_docstring():
    bare = []
    for name, value in public().items():
        if not inspect.isclass(value) or not is_ours(value):
            continue
        for member, found in vars(value).items():
            function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
            if member.startswith("_") or not inspect.isfunction(function):
                continue
            # What overrides a documented method, such as forward, has that one's docstring.
            if not any(inspect.getdoc(getattr(base, member, None)) for base in value.__mro__ if hasattr(base, member)):
                bare.append(f"{name}.{member}")

    assert not bare, "\n".join(bare)


def test_every_operation_begins_its_docstring_with_a_sentence():
    from flambeau.ops import load_families
    from flambeau.ops._spec import OPS

    load_families()

    # Private ones too: their docstrings are what a reader of the sources has. There a sentence may take two lines.
    wrong = [name for name, op in OPS.items() if not re.search(r"^\S.*?[.:]$", op.doc.strip().partition("\n\n")[0], re.DOTALL)]

    assert not wrong, "\n".join(wrong)


# -- parameters --------------------------------------------------------------------------------------------------------

REFERENCE = re.compile(r"(?:[Ss]ee|[Aa]s|of|for|[Aa]|An|[Ii]n-place form of|name of|and) `([\w.]+)`")


@cache
def common_parameters() -> frozenset[str]:
    """Parameters that mean the same everywhere: those of the table in docs/tensors.md."""
    page = (ROOT / "docs" / "tensors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?`) \|", page, flags=re.MULTILINE)
    return frozenset(name for row in rows for name in re.findall(r"`(\w+)`", row))


@cache
def docs_by_name() -> dict[str, list[str]]:
    """Docstrings by the full name and by every end of it, so that `nn.functional.pad` and `pad` are found."""
    from flambeau.ops._spec import OPS

    found: dict[str, list[str]] = {name.removeprefix("Tensor."): [op.doc] for name, op in OPS.items()}
    for name, value in public().items():
        parts = name.split(".")[1:]
        for at in range(len(parts)):
            found.setdefault(".".join(parts[at:]), []).append(whole_doc(value))
    return found


def whole_doc(value: Any) -> str:
    """Its docstring and, for a class, those of our classes it derives from."""
    if not inspect.isclass(value):
        return doc_of(value)
    return "\n".join(doc_of(base) for base in value.__mro__ if is_ours(base) and base is not fb.nn.Module)


def told(doc: str, seen: frozenset[str] = frozenset()) -> str:
    """`doc` and the docstrings it refers to, by "see", "as for" and the like."""
    for name in REFERENCE.findall(doc):
        if name not in seen:
            seen |= {name}
            doc += "\n" + "\n".join(told(other, seen) for other in docs_by_name().get(name, ()))
    return doc


def parameters(value: Any) -> list[str]:
    if isinstance(value, enum.EnumMeta):
        return []  # nobody calls it with what `enum` takes
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in found if p.kind not in kinds and p.name != "out" and not p.name.startswith("_")]


def test_a_docstring_names_the_parameters_that_are_not_common_ones():
    missing = []
    for name, value in public().items():
        given = parameters(value)
        if len(given) < 3 or not is_ours(value) or any(name.startswith(prefix) for prefix in EXEMPT):
            continue
        text = told(whole_doc(value))
        lost = [p for p in given if p not in common_parameters() and not re.search(rf"(?<!\w){p}(?!\w)", text)]
        if lost:
            missing.append(f"{name}: {', '.join(lost)}")

    assert not missing, "\n".join(missing)

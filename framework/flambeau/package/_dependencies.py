"""What code depends on: the modules that a source file imports, and the graph of all of them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Graph", "imported_modules"]


class Graph:
    """A directed graph of names, each with facts; nodes and edges keep the order in which they came."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self._after: dict[str, dict[str, None]] = {}
        self._before: dict[str, dict[str, None]] = {}

    def add(self, node: str, **facts: Any) -> None:
        """Add `node`, or more facts about it."""
        self.nodes.setdefault(node, {}).update(facts)

    def connect(self, source: str, target: str) -> None:
        """Let `source` depend on `target`."""
        self.add(source)
        self.add(target)
        self._after.setdefault(source, {})[target] = None
        self._before.setdefault(target, {})[source] = None

    def __contains__(self, node: object) -> bool:
        return node in self.nodes

    def before(self, node: str) -> list[str]:
        """What depends on `node` directly."""
        return list(self._before.get(node, ()))

    def edges(self) -> Iterator[tuple[str, str]]:
        """All edges."""
        for source, targets in self._after.items():
            for target in targets:
                yield source, target

    def path_to(self, node: str) -> list[str]:
        """A shortest way to `node` from something that nothing depends on."""
        ways, seen = [[node]], {node}
        for way in ways:
            above = [each for each in self.before(way[0]) if each not in seen]
            if not self.before(way[0]):
                return way
            seen.update(above)
            ways += [[each, *way] for each in above]
        return [node]  # only circles lead to it

    def between(self, source: str, target: str) -> Graph:
        """The part of the graph that all ways from `source` to `target` make up."""
        ahead, behind = self._reached(source, self._after), self._reached(target, self._before)
        part = Graph()
        for one, other in self.edges():
            if {one, other} <= ahead & behind:
                part.connect(one, other)
        return part

    def _reached(self, start: str, steps: dict[str, dict[str, None]]) -> set[str]:
        found, left = {start}, [start]
        while left:
            fresh = [each for each in steps.get(left.pop(), ()) if each not in found]
            found.update(fresh)
            left += fresh
        return found

    def dot(self) -> str:
        """The edges in the language of Graphviz."""
        edges = "\n".join(f'"{source}" -> "{target}";' for source, target in self.edges())
        return f"digraph G {{\nrankdir = LR;\nnode [shape=box];\n{edges}\n}}\n"


def imported_modules(source: str, module: str, is_package: bool, exists: Callable[[str], bool]) -> list[str]:
    """The modules that `source` imports, anywhere in it, by their full names and without repetition.

    ``from a import b`` depends on the module ``a.b`` if there is one, else on ``a``. Modules that do not exist are left out:
    programs import such where they can do without. Of imports by call, ``__import__("a.b")`` with a plain text is seen.

    Args:
        module, is_package: the name of the module with this source, and whether it may have modules inside.
        exists: answers whether there is a module of that name.
    Raises: SyntaxError for what is not Python; ImportError for a relative import out of everything.
    """
    found: dict[str, None] = {}
    for node in ast.walk(ast.parse(source)):
        for name, part in _imports_of(node, module, is_package):
            inner = f"{name}.{part}"
            wanted = inner if part and exists(inner) else name
            if wanted in found or exists(wanted):
                found[wanted] = None
    return list(found)


def _imports_of(node: ast.AST, module: str, is_package: bool) -> Iterator[tuple[str, str]]:
    """Pairs of a module and what is taken from it, which is empty if the module itself is."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, ""
    elif isinstance(node, ast.ImportFrom):
        home = _absolute(node.module or "", node.level, module, is_package)
        for alias in node.names:
            yield home, "" if alias.name == "*" else alias.name
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "__import__":
        first = node.args[0] if node.args else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value:
            yield first.value, ""


def _absolute(name: str, level: int, module: str, is_package: bool) -> str:
    if not level:
        return name
    home = module if is_package else module.rpartition(".")[0]
    parts = home.split(".") if home else []
    if level > len(parts):
        raise ImportError("attempted relative import beyond top-level package")
    return ".".join([*parts[: len(parts) - level + 1], *([name] if name else [])])

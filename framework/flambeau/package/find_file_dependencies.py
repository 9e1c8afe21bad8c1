"""What the text of a module imports."""

from __future__ import annotations

import ast

__all__ = ["find_files_source_depends_on"]


def find_files_source_depends_on(src: str, package: str) -> list[tuple[str, str | None]]:
    """The modules that `src` imports, each with the name that is taken of it, or None; in the order of the text, each pair once.

    Args:
        src: a module's text.
        package: the package it is in, from which dots count.
    """
    found: dict[tuple[str, str | None], None] = {}
    for node in _in_order(ast.parse(src)):
        if isinstance(node, ast.Import):
            found.update(((alias.name, None), None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(package, node.module or "", node.level)
            found.update(((module, None if alias.name == "*" else alias.name), None) for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "__import__":
            found.update(dict.fromkeys(_called(node, package)))
    return list(found)


def _in_order(node: ast.AST):  # type: ignore[no-untyped-def]
    """`node` and all in it, as they stand in the text."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _absolute(package: str, module: str, level: int) -> str:
    if level == 0:
        return module
    parts = package.rsplit(".", level - 1)
    if len(parts) < level:
        raise ValueError("attempted relative import beyond top-level package")
    return f"{parts[0]}.{module}" if module else parts[0]


def _called(node: ast.Call, package: str) -> list[tuple[str, str | None]]:
    """What a call of ``__import__`` with literals imports; nothing where it has others."""
    given: dict[str, ast.expr] = dict(zip(("name", "globals", "locals", "fromlist", "level"), node.args, strict=False))
    given.update((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg)
    values = {name: ast.literal_eval(given[name]) for name in ("name", "fromlist", "level") if name in given and _is_literal(given[name])}
    if not isinstance(values.get("name"), str):
        return []
    module = _absolute(package, values["name"], values.get("level", 0))
    return [(module, name) for name in values.get("fromlist") or ()] or [(module, None)]


def _is_literal(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) or isinstance(node, (ast.List, ast.Tuple)) and all(map(_is_literal, node.elts))

"""What `jit.script` refuses before it compiles: statements and expressions of Python that scripts lack, and the errors for them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, NoReturn

from .. import _missing

if TYPE_CHECKING:
    from ._emit import Source

__all__ = ["FrontendError", "FrontendTypeError", "NotSupportedError", "UnsupportedNodeError"]


class FrontendError(Exception):
    """Source that cannot be a script's: `msg`, and where it stands."""

    def __init__(self, source_range: Any, msg: str) -> None:
        super().__init__(source_range, msg)
        self.source_range, self.msg = source_range, msg

    def __str__(self) -> str:
        return f"{self.msg}:\n{self.source_range}"


class FrontendTypeError(FrontendError):
    """Source whose types cannot be a script's."""


class NotSupportedError(FrontendError):
    """Source in a part of Python that scripts lack."""


class UnsupportedNodeError(NotSupportedError):
    """A statement or expression that scripts lack."""


class SourceRange:
    """A part of a source, from one line and column to another. As text it is its lines, underlined."""

    def __init__(self, source: Source, begin: tuple[int, int], end: tuple[int, int]) -> None:
        self.source, self.begin, self.end = source, begin, end

    def __str__(self) -> str:
        return self.source.marked(self.begin, self.end)


# -- what scripts lack ---------------------------------------------------------------------------------------------------

# What messages call a node, and the word that is underlined.
_LACKING: dict[type, tuple[str, str]] = {
    ast.FunctionDef: ("function definitions", "def"), ast.AsyncFunctionDef: ("async function definitions", "async def"),
    ast.ClassDef: ("class definitions", "class"), ast.Import: ("import statements", "import"),
    ast.ImportFrom: ("import statements", "from"), ast.Try: ("try blocks", "try"), ast.TryStar: ("try blocks", "try"),
    ast.Global: ("global variables", "global"), ast.Nonlocal: ("nonlocal variables", "nonlocal"),
    ast.AsyncFor: ("async for loops", "async for"), ast.AsyncWith: ("async with statements", "async with"),
} | {
    kind: (kind.__name__, " ")
    for kind in (ast.Match, ast.Yield, ast.YieldFrom, ast.Lambda, ast.Set, ast.SetComp, ast.NamedExpr, ast.Await)
}  # fmt: skip


def refuse_lacking(tree: ast.FunctionDef, source: Source) -> None:
    """Go through a function in the order of its text.

    Raises: UnsupportedNodeError at the first statement or expression that scripts lack, NotSupportedError at a form of one that they have.
    """
    refuse_variable_arguments(tree, source)
    for statement in tree.body:
        _visit(statement, source)


def refuse_variable_arguments(tree: ast.FunctionDef, source: Source) -> None:
    """Raise NotSupportedError for ``*args``, ``**kwargs`` and defaults of arguments that are given by name alone."""
    arguments = tree.args
    found = [(a.lineno, a.col_offset - 1, a.col_offset + len(a.arg)) for a in (arguments.vararg, arguments.kwarg) if a is not None]
    found += [(d.lineno, d.col_offset, d.end_col_offset or 0) for d in arguments.kw_defaults if d is not None]
    if found:
        line, column, end = found[0]
        raise NotSupportedError(
            SourceRange(source, (line, column), (line, end)),
            "Compiled functions can't take variable number of arguments or use keyword-only arguments with defaults",
        )


def _visit(node: ast.AST, source: Source) -> None:
    lacking = _LACKING.get(type(node))
    if lacking is not None:
        what, word = lacking
        raise UnsupportedNodeError(_word(node, source, word), f"{what} aren't supported")
    if isinstance(node, ast.AnnAssign) and node.value is None:
        raise UnsupportedNodeError(_word(node, source, " "), "annotated assignments without assigned value aren't supported")
    if isinstance(node, (ast.For, ast.While)) and node.orelse:
        word = type(node).__name__.lower()
        raise NotSupportedError(_word(node, source, word), f"else branches of {word} loops aren't supported")
    if isinstance(node, (ast.ListComp, ast.DictComp, ast.GeneratorExp)):
        if len(node.generators) > 1:
            raise NotSupportedError(_word(node, source, " "), "Only a single generator is currently supported")
        if node.generators[0].ifs:
            raise NotSupportedError(_word(node, source, " "), "Comprehension ifs are not supported yet")
    elif isinstance(node, ast.Call):
        for k in node.keywords:
            if k.arg is None:
                raise NotSupportedError(_word(k.value, source, ast.unparse(k.value)), "keyword-arg expansion is not supported")
    elif isinstance(node, ast.Dict) and None in node.keys:
        raise NotSupportedError(_word(node, source, " "), "Dict expansion (e.g. `{**dict}`) is not supported")
    elif isinstance(node, ast.JoinedStr):
        for part in node.values:
            if isinstance(part, ast.FormattedValue) and (part.conversion != -1 or part.format_spec is not None):
                what = "conversion" if part.conversion != -1 else "formatting"
                raise NotSupportedError(_word(node, source, " "), f"Don't support {what} in JoinedStr")
    elif isinstance(node, ast.Constant) and isinstance(node.value, bytes):
        raise FrontendError(_word(node, source, repr(node.value)), "Unknown Constant expression type")
    for child in ast.iter_child_nodes(node):
        _visit(child, source)


def _word(node: Any, source: Source, word: str) -> SourceRange:
    """The first word of a statement or expression."""
    return SourceRange(source, (node.lineno, node.col_offset), (node.lineno, node.col_offset + len(word)))


def _unbuilt(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise _missing.not_built(f"jit.frontend.{name}", "use `jit.script`, which reads functions and modules by itself")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Not built: raises NotImplementedError."
    return refuse


get_jit_def = _unbuilt("get_jit_def")
get_jit_class_def = _unbuilt("get_jit_class_def")

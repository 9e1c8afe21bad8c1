"""Tells an exception which module it came from. Runs only on failure; nothing is prepared beforehand."""

from __future__ import annotations

from typing import Any


def note_module(error: BaseException, module: Any) -> None:
    """Note on `error` the module that raised it, by its path below the outermost module it has passed so far.

    Every enclosing call does this as the exception passes; the innermost writes the note, the others lengthen
    its path. What is kept on the exception is an id and texts, so that it can be pickled without the model.
    """
    trail = error.__dict__.get("_module_trail")
    if trail is None:
        _write(error, id(module), "", _summary(module), None)
        return
    inner_id, inner_path, summary, index = trail
    below = _path_to(module, inner_id)
    if below is None:  # not registered as a child: the path starts anew at the inner module
        return
    path = ".".join(part for part in (below, inner_path) if part)
    _write(error, id(module), path, summary, index)


def _write(error: Any, module_id: int, path: str, summary: str, index: int | None) -> None:
    note = f"  in {path}: {summary}" if path else f"  in {summary}"
    if index is None:
        error.add_note(note)
        index = len(error.__notes__) - 1
    else:
        error.__notes__[index] = note
    error._module_trail = (module_id, path, summary, index)


def _path_to(module: Any, inner_id: int) -> str | None:
    """The dotted path from `module` to the submodule with this id, itself included as the empty path."""
    return next((path for path, found in module.named_modules() if id(found) == inner_id), None)


def _summary(module: Any) -> str:
    """The module's name and arguments on one line, without its children."""
    try:
        extra = " ".join(module.extra_repr().split())
    except Exception:  # a half-built module must not hide the exception being noted
        extra = ""
    return f"{module._get_name()}({extra})" if extra or not module._modules else module._get_name()

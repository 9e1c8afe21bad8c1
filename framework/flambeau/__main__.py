"""`python -m flambeau script.py`: run a program with Flambeau under the name of torch."""

from __future__ import annotations

import builtins
import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader, SourcelessFileLoader
from types import ModuleType
from typing import Any

from . import swap

USAGE = """usage: python -m flambeau script.py [args ...]     (or a folder or zip with __main__.py, or -)
       python -m flambeau -m module [args ...]
       python -m flambeau -c command [args ...]

Runs the program as python would, with `import torch` giving Flambeau in it and in the processes it starts."""


def main(argv: list[str]) -> int:
    """Run what `argv` names; the exit status is 2 when it names nothing."""
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if argv else sys.stderr)
        return 0 if argv else 2
    first, rest = argv[0], argv[1:]
    if first in ("-m", "-c") and not rest:
        print(f"{first} needs an argument\n{USAGE}", file=sys.stderr)
        return 2
    if first.startswith("-") and first not in ("-", "-m", "-c"):
        print(f"unknown option {first}\n{USAGE}", file=sys.stderr)
        return 2
    swap.install()
    os.environ["FLAMBEAU_AS_TORCH"] = "1"
    if first == "-m":
        _run_module(rest[0], rest[1:])
    elif first == "-c":
        _run_text(rest[0], "<string>", ["-c", *rest[1:]])
    elif first == "-":
        _run_text(sys.stdin.read(), "<stdin>", argv)
    else:
        _run_path(first, rest)
    return 0


def _run_module(name: str, args: list[str]) -> None:
    import runpy

    sys.argv = [name, *args]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _run_text(source: str, where: str, argv: list[str]) -> None:
    sys.argv = argv
    _replace_start_folder("")
    _execute(compile(source, where, "exec", dont_inherit=True), {})


def _run_path(path: str, args: list[str]) -> None:
    if not os.path.exists(path):
        print(f"python -m flambeau: no such file: {path}", file=sys.stderr)
        raise SystemExit(2)
    sys.argv = [path, *args]
    if os.path.isdir(path) or _is_zip(path):
        _run_container(path)
        return
    _replace_start_folder(os.path.dirname(os.path.realpath(path)))
    if path.endswith(".pyc"):
        loader = SourcelessFileLoader("__main__", path)
        code = loader.get_code("__main__")
    else:
        loader = SourceFileLoader("__main__", path)
        # Not get_code, which would leave a cache file beside the script.
        code = loader.source_to_code(loader.get_data(path), path)
    _execute(code, {"__file__": path, "__loader__": loader})


def _run_container(path: str) -> None:
    """Run the `__main__.py` of a folder or a zip, which is first on the path whatever the settings."""
    folder = os.path.abspath(path)
    spec = PathFinder.find_spec("__main__", [folder])
    if spec is None or spec.loader is None:
        print(f"python -m flambeau: no __main__.py in {path}", file=sys.stderr)
        raise SystemExit(1)
    sys.path[0 : 0 if sys.flags.safe_path else 1] = [folder]
    code = spec.loader.get_code("__main__")  # type: ignore[attr-defined]
    _execute(code, {"__file__": spec.origin, "__loader__": spec.loader, "__spec__": spec, "__package__": ""})


def _is_zip(path: str) -> bool:
    import zipfile

    return zipfile.is_zipfile(path)


def _replace_start_folder(folder: str) -> None:
    """`python -m` put the working folder first on the path, where `python script.py` puts the script's."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _execute(code: Any, facts: dict[str, Any]) -> None:
    # Left in place afterwards: pickling, multiprocessing and threads that outlive the last line look here.
    module = ModuleType("__main__")
    module.__dict__.update({"__builtins__": builtins} | facts)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

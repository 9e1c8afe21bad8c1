"""Print what a pickle holds, without importing or calling anything it names: ``python -m flambeau.utils.show_pickle FILE``."""

from __future__ import annotations

import fnmatch
import pickle
import pprint
import sys
import zipfile
from typing import Any

__all__ = ["DumpUnpickler", "FakeClass", "FakeObject", "main"]


class FakeObject:
    """An object that the pickle would make by calling a class or function: its name, its arguments and its state."""

    def __init__(self, module: str, name: str, args: Any) -> None:
        self.module, self.name, self.args = module, name, args
        self.state: Any = None

    def __repr__(self) -> str:
        state = "" if self.state is None else f"(state={self.state!r})"
        return f"{self.module}.{self.name}{self.args!r}{state}"

    def __setstate__(self, state: Any) -> None:
        self.state = state

    @staticmethod
    def pp_format(printer: Any, obj: Any, stream: Any, indent: int, allowance: int, context: Any, level: int) -> None:
        """Print `obj` as `pprint` prints its own kinds of objects."""
        if not obj.args and obj.state is None:
            stream.write(repr(obj))
            return
        if obj.state is None:
            stream.write(f"{obj.module}.{obj.name}")
            printer._format(obj.args, stream, indent + 1, allowance + 1, context, level)
            return
        if not obj.args:
            stream.write(f"{obj.module}.{obj.name}()(state=\n")
            indent += printer._indent_per_level
            stream.write(" " * indent)
            printer._format(obj.state, stream, indent, allowance + 1, context, level + 1)
            stream.write(")")
            return
        raise RuntimeError("Need to implement")


class FakeClass:
    """A class or function that the pickle names; calling it gives a `FakeObject`."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name
        self.__new__ = self.fake_new  # type: ignore[method-assign]  # what unpickling calls

    def __repr__(self) -> str:
        return f"{self.module}.{self.name}"

    def __call__(self, *args: Any) -> FakeObject:
        return FakeObject(self.module, self.name, args)

    def fake_new(self, *args: Any) -> FakeObject:
        """What the class would make of `args` but the first."""
        return FakeObject(self.module, self.name, args[1:])


_InPython: Any = getattr(pickle, "_Unpickler")  # noqa: B009  # the one whose steps can be changed


class DumpUnpickler(_InPython):
    """An unpickler that makes `FakeObject` and `FakeClass` of all that the pickle names.

    Args:
        file: the pickle, open for reading bytes.
        catch_invalid_utf8: give bytes for a text that is no UTF-8.
    """

    dispatch = dict(_InPython.dispatch)

    def __init__(self, file: Any, *, catch_invalid_utf8: bool = False, **kwargs: Any) -> None:
        super().__init__(file, **kwargs)
        self.catch_invalid_utf8 = catch_invalid_utf8

    def find_class(self, module: str, name: str) -> FakeClass:
        """A stand-in for what the pickle names."""
        return FakeClass(module, name)

    def persistent_load(self, pid: Any) -> FakeObject:
        """A stand-in for what is kept beside the pickle."""
        return FakeObject("pers", "obj", (pid,))

    def _load_binunicode(self) -> None:
        (length,) = (int.from_bytes(self.read(4), "little"),)
        data = self.read(length)
        try:
            self.append(str(data, "utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            if not self.catch_invalid_utf8:
                raise
            self.append(data)

    dispatch[pickle.BINUNICODE[0]] = _load_binunicode

    def load_build(self) -> None:
        """Give the object on the stack its state; objects of classes that are at hand get it as they do."""
        state = self.stack.pop()
        made = self.stack[-1]
        if isinstance(made, FakeObject):
            made.state = state
            return
        self.stack.append(state)
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build

    @classmethod
    def dump(cls, in_stream: Any, out_stream: Any) -> Any:
        """Print the pickle in `in_stream` to `out_stream`. Returns: what it holds."""
        value = cls(in_stream).load()
        pprint.pprint(value, stream=out_stream)
        return value


_USAGE = """usage: show_pickle PICKLE_FILE
  PICKLE_FILE can be any of:
    path to a pickle file
    file.zip@member.pkl
    file.zip@*/pattern.*
      (shell glob pattern for members)
      (only first match will be shown)
"""


def main(argv: list[str], output_stream: Any = None) -> int | None:
    """Print the pickle that ``argv[1]`` names, or how to use this. Returns: 2 where it is not used so.

    Raises: Exception where no member of an archive matches.
    """
    if len(argv) != 2:
        sys.stderr.write(_USAGE)
        return 2
    out = sys.stdout if output_stream is None else output_stream
    name = argv[1]
    if "@" not in name:
        with open(name, "rb") as file:
            DumpUnpickler.dump(file, out)
        return None
    archive, _, pattern = name.partition("@")
    with zipfile.ZipFile(archive) as opened:
        member = pattern if "*" not in pattern else next((n for n in opened.namelist() if fnmatch.fnmatch(n, pattern)), None)
        if member is None:
            raise Exception(f"Could not find member matching {pattern} in {archive}")
        with opened.open(member) as file:
            DumpUnpickler.dump(file, out)
    return None


if __name__ == "__main__":
    # Long objects are shown in several lines.
    pprint.PrettyPrinter._dispatch[FakeObject.__repr__] = FakeObject.pp_format  # type: ignore[attr-defined]
    sys.exit(main(sys.argv))

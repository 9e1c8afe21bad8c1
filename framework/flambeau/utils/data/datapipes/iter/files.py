"""Stages about files: finding, opening, reading and decoding them."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from flambeau.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe
from flambeau.utils.data.datapipes.iter.transforming import IterableWrapperIterDataPipe
from flambeau.utils.data.datapipes.utils.common import StreamWrapper
from flambeau.utils.data.datapipes.utils.decoder import Decoder, basichandlers, extension_extract_fn

__all__ = [
    "FileListerIterDataPipe",
    "FileOpenerIterDataPipe",
    "RoutedDecoderIterDataPipe",
    "StreamReaderIterDataPipe",
]


@functional_datapipe("list_files")
class FileListerIterDataPipe(IterDataPipe[str]):
    """The paths of the files of folders, in the order of their names.

    Args:
        root: a folder, several, or a pipe of them.
        masks: patterns of names, one or several; files that match any; all files if empty.
        recursive: look into folders too. abspath: yield absolute paths.
        non_deterministic: leave the order to the system, which is faster.
        length: what `len` says; unknown if negative.
    """

    def __init__(
        self, root: Any = ".", masks: str | list[str] = "", *, recursive: bool = False, abspath: bool = False,
        non_deterministic: bool = False, length: int = -1,
    ) -> None:
        if isinstance(root, str):
            root = [root]
        self.datapipe = root if isinstance(root, IterDataPipe) else IterableWrapperIterDataPipe(root)
        self.masks, self.recursive, self.abspath = masks, recursive, abspath
        self.non_deterministic, self.length = non_deterministic, length

    def __iter__(self) -> Iterator[str]:
        for root in self.datapipe:
            yield from self._files(root)

    def _files(self, root: str) -> Iterator[str]:
        if not os.path.isdir(root):
            # A file stands for itself.
            if self._matches(os.path.basename(root)):
                yield os.path.abspath(root) if self.abspath else root
            return
        for folder, folders, names in os.walk(root):
            if not self.non_deterministic:
                folders.sort()
                names.sort()
            for name in names:
                if self._matches(name):
                    path = os.path.join(folder, name)
                    yield os.path.abspath(path) if self.abspath else path
            if not self.recursive:
                break

    def _matches(self, name: str) -> bool:
        masks = [self.masks] if isinstance(self.masks, str) else self.masks
        return not self.masks or any(fnmatch.fnmatch(name, mask) for mask in masks)

    def __len__(self) -> int:
        return _known(self, self.length)


@functional_datapipe("open_files")
class FileOpenerIterDataPipe(IterDataPipe[tuple[str, Any]]):
    """Pairs of a path and the file opened, in `mode` ("r", "b", "t", "rb" or "rt"). Raises: ValueError for another mode."""

    def __init__(self, datapipe: Iterable[str], mode: str = "r", encoding: str | None = None, length: int = -1) -> None:
        if mode not in ("b", "t", "rb", "rt", "r"):
            raise ValueError(f"open_files: mode must be 'b', 't', 'rb', 'rt' or 'r', got {mode!r}")
        if "b" in mode and encoding is not None:
            raise ValueError("open_files: binary files have no encoding")
        self.datapipe, self.mode, self.encoding, self.length = datapipe, mode, encoding, length

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        mode = self.mode if self.mode.startswith("r") else "r" + self.mode
        for path in self.datapipe:
            if not isinstance(path, str):
                raise TypeError(f"open_files: expected paths as str, got {type(path).__name__}")
            yield path, StreamWrapper(open(path, mode, encoding=self.encoding))  # noqa: SIM115  # its reader closes it

    def __len__(self) -> int:
        return _known(self, self.length)


@functional_datapipe("read_from_stream")
class StreamReaderIterDataPipe(IterDataPipe[tuple[str, Any]]):
    """Pairs of a path and what its file holds, `chunk` bytes or characters at a time; all at once if None. Closes the files."""

    def __init__(self, datapipe: IterDataPipe[Any], chunk: int | None = None) -> None:
        self.datapipe, self.chunk = datapipe, chunk

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for path, stream in self.datapipe:
            while data := stream.read(self.chunk):
                yield path, data
                if self.chunk is None:
                    break
            stream.close()


@functional_datapipe("routed_decode")
class RoutedDecoderIterDataPipe(IterDataPipe[tuple[str, Any]]):
    """Pairs of a path and what the first fitting handler makes of its file.

    Args:
        handlers: ``handler(key, data)``, which returns None for what it does not know.
        key_fn: from a path to the key; its extension, unless told otherwise.
    """

    def __init__(
        self, datapipe: Iterable[tuple[str, Any]], *handlers: Callable[..., Any], key_fn: Callable[..., Any] = extension_extract_fn,
    ) -> None:
        self.datapipe = datapipe
        self.decoder = Decoder(*(handlers or (basichandlers,)), key_fn=key_fn)

    def add_handler(self, *handler: Callable[..., Any]) -> None:
        """More handlers, asked after those there are."""
        self.decoder.add_handler(*handler)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for data in self.datapipe:
            if not (isinstance(data, Sequence) and len(data) == 2):
                raise TypeError(f"routed_decode: expected pairs of path and file, got {type(data).__name__}")
            yield data[0], self.decoder.decode(data)

    def __len__(self) -> int:
        return len(self.datapipe)  # type: ignore[arg-type]


def _known(pipe: Any, length: int) -> int:
    if length < 0:
        raise TypeError(f"{type(pipe).__name__}: the length is not known; give length=")
    return length

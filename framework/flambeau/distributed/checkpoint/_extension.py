"""Extensions of files of checkpoints: what data passes through on its way to the file and back, such as compression."""

from __future__ import annotations

import abc
import importlib
import io
from collections.abc import Sequence
from typing import IO, Any, cast

__all__ = ["Extension", "ExtensionRegistry", "StreamTransformExtension", "ZStandard"]


class Extension(abc.ABC):
    """What a writer of checkpoints is extended by; a checkpoint names by a descriptor what it was written with."""

    @staticmethod
    @abc.abstractmethod
    def registry_name() -> str:
        """The name in descriptors."""

    @staticmethod
    @abc.abstractmethod
    def from_descriptor(version: str) -> Extension:
        """One that reads what the `version` of a descriptor, which follows its first ``/``, has written."""

    @abc.abstractmethod
    def get_descriptor(self) -> str:
        """The `registry_name`, and after a ``/`` what `from_descriptor` is to know."""


class StreamTransformExtension(Extension):
    """Changes the bytes of each tensor and value on their way to the file, and changes them back."""

    @abc.abstractmethod
    def transform_to(self, output: IO[bytes]) -> IO[bytes]:
        """A stream that writes to `output` what is written to it, changed. Closing it does not close `output`."""

    @abc.abstractmethod
    def transform_from(self, input: IO[bytes]) -> IO[bytes]:
        """A stream that reads what `input` gives, changed back."""


class ZStandard(StreamTransformExtension):
    """Compression by Zstandard, for which the package `zstandard` must be there.

    Raises: ValueError if it is not.
    """

    def __init__(self) -> None:
        self._module = _zstandard()

    @staticmethod
    def registry_name() -> str:
        return "stream.zstd"

    @staticmethod
    def from_descriptor(version: str) -> ZStandard:
        if version.partition(".")[0] != "1":
            raise ValueError(f"ZStandard: the checkpoint was written by version {version!r}, and 1 is read")
        return ZStandard()

    def get_descriptor(self) -> str:
        return f"{self.registry_name()}/1"

    def transform_to(self, output: IO[bytes]) -> IO[bytes]:
        return cast("IO[bytes]", self._module.ZstdCompressor().stream_writer(output, closefd=False))

    def transform_from(self, input: IO[bytes]) -> IO[bytes]:
        return cast("IO[bytes]", self._module.ZstdDecompressor().stream_reader(input, closefd=False))


def _zstandard() -> Any:
    try:
        return importlib.import_module("zstandard")
    except ModuleNotFoundError as error:
        raise ValueError("ZStandard: the package 'zstandard' is not installed; pip install zstandard") from error


class ExtensionRegistry:
    """Classes of extensions by name; `ZStandard` is there from the first."""

    def __init__(self) -> None:
        self.extensions: dict[str, type[Extension]] = {ZStandard.registry_name(): ZStandard}

    def register(self, cls: type[Extension]) -> None:
        """Let descriptors with the name of `cls` mean it."""
        self.extensions[cls.registry_name()] = cls

    def from_descriptor_list(self, descriptors: Sequence[str]) -> Sequence[Extension]:
        """The extension of each descriptor. Raises: ValueError for a name that is not registered."""
        made = []
        for descriptor in descriptors:
            name, _, version = descriptor.partition("/")
            if name not in self.extensions:
                raise ValueError(f"Unknown extension {name!r}; register its class in the ExtensionRegistry that the reader is given")
            made.append(self.extensions[name].from_descriptor(version))
        return made


class Outputs:
    """The stream that goes through `extensions` to `file`, the last of them first; closed, all of it is in the file."""

    def __init__(self, file: Any, extensions: Sequence[StreamTransformExtension]) -> None:
        self._streams: list[Any] = []
        self.stream = file
        for extension in extensions:
            self.stream = extension.transform_to(self.stream)
            self._streams.append(self.stream)

    def close(self) -> None:
        """Write out what streams hold back, the innermost last; `file` stays open."""
        for stream in reversed(self._streams):
            stream.close()


def changed_back(data: bytes, descriptors: Sequence[str], registry: ExtensionRegistry) -> bytes:
    """What was written to the stream of `Outputs` that gave `data`; `descriptors` are in the order that data went through."""
    stream: Any = io.BytesIO(data)
    for extension in reversed(registry.from_descriptor_list(descriptors)):
        if not isinstance(extension, StreamTransformExtension):
            raise ValueError(f"checkpoint: {extension.get_descriptor()} is no StreamTransformExtension, so it does not change back data")
        stream = extension.transform_from(stream)
    return stream.read()

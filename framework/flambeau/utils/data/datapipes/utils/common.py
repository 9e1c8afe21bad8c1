"""Files on their way through pipes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["StreamWrapper"]


class StreamWrapper:
    """A file that is closed when nobody holds it any more, without a warning."""

    def __init__(self, file_obj: Any) -> None:
        self.file_obj = file_obj

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["file_obj"], name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.file_obj)

    def __enter__(self) -> StreamWrapper:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.file_obj.close()

    def __del__(self) -> None:
        file = self.__dict__.get("file_obj")
        if file is not None:
            file.close()

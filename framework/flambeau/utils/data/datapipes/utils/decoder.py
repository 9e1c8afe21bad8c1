"""From the bytes of a file to what they mean, chosen by the extension."""

from __future__ import annotations

import json
import os.path
from collections.abc import Callable
from typing import Any

__all__ = ["Decoder", "basichandlers", "extension_extract_fn"]


def extension_extract_fn(pathname: str) -> str:
    """The extension of a path, without the dot."""
    return os.path.splitext(pathname)[1].removeprefix(".")


def basichandlers(extension: str, data: Any) -> Any:
    """Text, JSON and whole numbers; None for other extensions, and for those that name pickles, which are not read unasked."""
    if extension in ("txt", "text", "transcript"):
        return data.decode("utf-8") if isinstance(data, bytes) else data
    if extension in ("cls", "cls2", "class", "count", "index", "inx", "id"):
        return int(data)
    if extension in ("json", "jsn"):
        return json.loads(data)
    return None


class Decoder:
    """Asks its handlers in turn; what none of them knows stays bytes."""

    def __init__(self, *handler: Callable[..., Any], key_fn: Callable[..., Any] = extension_extract_fn) -> None:
        self.handlers, self.key_fn = list(handler), key_fn

    def add_handler(self, *handler: Callable[..., Any]) -> None:
        """More handlers, asked after those there are."""
        self.handlers.extend(handler)

    def decode(self, pair: tuple[str, Any]) -> Any:
        """What the file of ``(path, file)`` means."""
        path, data = pair
        if hasattr(data, "read"):
            stream, data = data, data.read()
            stream.close()
        key = self.key_fn(path)
        for handler in self.handlers:
            found = handler(key, data)
            if found is not None:
                return found
        return data

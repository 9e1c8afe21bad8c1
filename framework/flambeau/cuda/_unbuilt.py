"""Names of `flambeau.cuda` that programs use and that are not built: each says so when it is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from .. import _missing

__all__ = ["unbuilt"]


def unbuilt(prefix: str, names: Iterable[str], advice: str) -> dict[str, Callable[..., NoReturn]]:
    """Functions that raise NotImplementedError, or RuntimeError where there is no CUDA device at all.

    Args:
        prefix: what stands in front of the names, such as ``cuda.tunable``.
        names: the functions.
        advice: what to do instead, where there is a device.
    """

    def one(name: str) -> Callable[..., NoReturn]:
        def refuse(*args: Any, **kwargs: Any) -> NoReturn:
            from . import require

            require(f"{prefix}.{name}")
            raise _missing.not_built(f"{prefix}.{name}", advice)

        refuse.__name__ = refuse.__qualname__ = name
        refuse.__doc__ = "Not built: raises NotImplementedError; RuntimeError where there is no CUDA device."
        return refuse

    return {name: one(name) for name in names}

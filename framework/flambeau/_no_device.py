"""Device modules for hardware that kernels do not run on: questions are answered, and what needs the hardware is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

__all__ = ["refusal", "refusing"]


def refusal(what: str, device: str, kind: type[Exception] = RuntimeError) -> Exception:
    """The error of `what`, a dotted name, which needs a device of the kind `device`; raised by the caller."""
    return kind(f"{what}: there is no {device} device; use the CPU, or CUDA with the extra flambeau[cuda]")


def refusing(device: str, names: Iterable[str], kind: type[Exception] = RuntimeError) -> dict[str, Callable[..., NoReturn]]:
    """Functions of the module of `device` that raise `kind` whatever they are given."""

    def one(name: str) -> Callable[..., NoReturn]:
        def refuse(*args: Any, **kwargs: Any) -> NoReturn:
            raise refusal(f"{device}.{name}", device, kind)

        refuse.__name__ = refuse.__qualname__ = name
        refuse.__doc__ = f"Raises {kind.__name__}: there is no {device} device."
        return refuse

    return {name: one(name) for name in names}

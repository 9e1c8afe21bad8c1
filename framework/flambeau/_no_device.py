"""Device modules for hardware that kernels do not run on: they say so, and refuse what needs the hardware."""

from __future__ import annotations

from typing import Any


def members(name: str, needs: str) -> dict[str, Any]:
    """The functions of the module ``torch.<name>``; those that need a device raise RuntimeError, which names `needs`."""

    def is_available() -> bool:
        """False: kernels do not run on such a device."""
        return False

    def is_initialized() -> bool:
        """False."""
        return False

    def device_count() -> int:
        """0."""
        return 0

    def empty_cache() -> None:
        """Nothing: there is no memory of such a device."""

    def manual_seed(seed: int) -> None:
        """Nothing: there is no generator to seed."""

    def manual_seed_all(seed: int) -> None:
        """Nothing: there is no generator to seed."""

    def seed() -> None:
        """Nothing: there is no generator to seed."""

    def refusing(function: str) -> Any:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError(f"{name}.{function}: there is no {name} device; {needs}")

        refuse.__name__, refuse.__doc__ = function, f"Raises RuntimeError: there is no {name} device."
        return refuse

    made: dict[str, Any] = {
        f.__name__: f
        for f in (is_available, is_initialized, device_count, empty_cache, manual_seed, manual_seed_all, seed)
    }
    return made | {f: refusing(f) for f in ("synchronize", "current_device", "set_device", "init")}

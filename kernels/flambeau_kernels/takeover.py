"""When a compiled kernel takes over from what computes without one: one rule, for kernels that have the bits of the fallback.

To have a kernel has a price: it is loaded, perhaps the engine as well, or compiled. To go without one has a price too, which each
call pays. Nobody knows how many calls a program will make; as a rule those that have made some make ten times as many. So a call
counts ten times what it loses, and a kernel is had once the calls without it have paid its price. The engine is paid for by the calls
of all kernels.

Which of the two answers makes no difference but to time. Kernels that give other bits than the fallback are had from the first call on
(`AT_ONCE`), for answers do not depend on what ran before.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["AT_ONCE", "BUILTINS", "CALL", "FORMULA", "KERNEL", "LAUNCHERS", "LAUNCHERS_UNKEPT", "LOADED", "PRODUCTS", "Waiting",
           "of_elements"]

# Prices in milliseconds, as measured: a kernel that the cache has, the engine with LLVM's library, the compilation of a formula, of a
# kernel with loops of its own, of the builtins around formulas and of the tiles of matrix products. The launchers take two seconds of
# another thread, which the end of the process waits for. A cache keeps them for all processes to come, whose calls are not known here:
# a process pays a quarter. Where no cache does, every process would pay them, and pays for more than it is sure to win.
LOADED, LIBRARY, FORMULA, KERNEL, BUILTINS, PRODUCTS = 1.5, 35.0, 12.0, 30.0, 45.0, 100.0
LAUNCHERS, LAUNCHERS_UNKEPT = 500.0, 50_000.0
AT_ONCE = 0.0
# What a call on few elements counts: ten times the 5 us that it loses in Python and numpy's functions.
CALL = 0.05

_paid_by_all = 0.0


def of_elements(size: int) -> float:
    """What a single pass of numpy's over `size` elements costs, in calls on few elements: it loses little but by its size."""
    return 1 / 16 + size / 4096


def has_engine() -> bool:
    """Whether the engine is in use, or has been paid for."""
    llvm = sys.modules.get("flambeau_kernels.engine.machine_code.llvm")
    return _paid_by_all >= LIBRARY or llvm is not None and llvm.in_use()


class Waiting:
    """A kernel, or several that share a price, which calls go without and pay for."""

    __slots__ = ("_asked", "_sought", "paid", "price")

    def __init__(self, price: float) -> None:
        self.price = price
        self.paid = 0.0
        self._asked: bool | None = None
        self._sought: set[Any] = set()                # kinds that the cache was asked for

    def due(self, cost: float = 1.0) -> bool | None:
        """Count a call without the kernel, which costs so many usual ones, and say whether the kernel is to take over.

        Returns: None for not yet; False, once, if a cache has it; True, once, if it may be compiled as well.
        """
        global _paid_by_all
        self.paid += cost * CALL
        _paid_by_all += cost * CALL
        if self._asked or self.price and not has_engine():
            return None
        if self.paid >= self.price:
            self._asked = True
            return True
        if self._asked is None and self.paid >= LOADED:
            self._asked = False
            return False
        return None

    def paid_for(self, cost: float = 1.0, kind: Any = None) -> bool | None:
        """Count a call as `due` does, and say what is paid for, of kernels of which each kind of operands has one.

        Args:
            kind: of the operands, hashable, where `False` is to be returned once for each: asking a cache takes longer than a call.

        Returns: None for nothing; False if those may be loaded that a cache has; True if others may be compiled as well.
        """
        self.due(cost)
        if self._asked is False and kind is not None:
            if kind in self._sought:
                return None
            self._sought.add(kind)
        return self._asked

    def again(self) -> None:
        """Let as many calls pass once more before it is due."""
        self.paid, self._asked = 0.0, None

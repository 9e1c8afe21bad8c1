"""Functions of integers as Python has them, for expressions of sizes: sympy's own are of real numbers."""

from __future__ import annotations

from typing import Any

from . import sympy

__all__ = ["FloorDiv", "IntTrueDiv", "LShift", "Mod", "PowByNatural", "RShift", "RoundToInt", "TruncToInt"]


class FloorDiv(sympy.Function):
    """``base // divisor``, with what both have in common taken out."""

    nargs = (2,)
    is_integer = True
    is_real = True

    @classmethod
    def eval(cls, base: Any, divisor: Any) -> Any:
        """The quotient where it is an expression without rounding; None leaves the division as it is."""
        if divisor.is_zero:
            raise ZeroDivisionError("integer division or modulo by zero")
        if base.is_Integer and divisor.is_Integer:
            return sympy.Integer(int(base) // int(divisor))
        if base.is_zero or divisor == 1:
            return base
        common = sympy.gcd(base, divisor)
        if common == divisor or common == -divisor:
            return sympy.expand(sympy.cancel(base / divisor))
        if common not in (1, -1):
            return cls(sympy.cancel(base / common), sympy.cancel(divisor / common))
        if divisor.is_Integer and base.is_Add:
            # Terms that the divisor goes into leave the rest to be rounded.
            exact = [term for term in base.args if term.as_coeff_Mul()[0] % divisor == 0]
            if exact:
                rest = base - sum(exact)
                return sympy.expand(sum(exact) / divisor) + cls(rest, divisor)
        return None

    def _eval_is_nonnegative(self) -> bool | None:
        base, divisor = self.args
        return True if base.is_nonnegative and divisor.is_positive else None

    def _sympystr(self, printer: Any) -> str:
        base, divisor = (printer.parenthesize(a, 50) for a in self.args)
        return f"({base}//{divisor})"

    _pythoncode = _sympystr


class Mod(sympy.Function):
    """``base % divisor`` as Python has it: of the divisor's sign."""

    nargs = (2,)
    is_integer = True
    is_real = True

    @classmethod
    def eval(cls, base: Any, divisor: Any) -> Any:
        """The rest where it is known; None leaves it as it is."""
        if divisor.is_zero:
            raise ZeroDivisionError("integer division or modulo by zero")
        if base.is_Integer and divisor.is_Integer:
            return sympy.Integer(int(base) % int(divisor))
        if base.is_zero or divisor == 1 or base == divisor or sympy.gcd(base, divisor) in (divisor, -divisor):
            return sympy.Integer(0)
        if divisor.is_Integer and base.is_Add:
            rest = sum(term for term in base.args if term.as_coeff_Mul()[0] % divisor != 0)
            if rest != base:
                return cls(sympy.sympify(rest), divisor)
        return None

    def _eval_is_nonnegative(self) -> bool | None:
        return True if self.args[1].is_positive else None

    def _sympystr(self, printer: Any) -> str:
        return f"Mod({', '.join(map(printer.doprint, self.args))})"

    def _pythoncode(self, printer: Any) -> str:
        base, divisor = (printer.parenthesize(a, 50) for a in self.args)
        return f"({base} % {divisor})"


class _OfNumbers(sympy.Function):
    """A function that is worked out when its arguments are numbers."""

    @classmethod
    def eval(cls, *args: Any) -> Any:
        """The value of numbers; None leaves the call as it is."""
        return sympy.sympify(cls.of(*args)) if all(a.is_number for a in args) else None

    @staticmethod
    def of(*args: Any) -> Any:
        """The value of numbers."""
        raise NotImplementedError


class IntTrueDiv(_OfNumbers):
    """``base / divisor`` of integers, rounded to a float once."""

    nargs = (2,)
    is_real = True

    @staticmethod
    def of(base: Any, divisor: Any) -> Any:
        """The quotient."""
        return sympy.Float(int(base) / int(divisor))


class TruncToInt(_OfNumbers):
    """The integer part of a float."""

    nargs = (1,)
    is_integer = True
    is_real = True

    @staticmethod
    def of(number: Any) -> Any:
        """The number, rounded towards zero."""
        return int(number)


class RoundToInt(_OfNumbers):
    """The integer nearest to a float, of two the even one."""

    nargs = (1,)
    is_integer = True
    is_real = True

    @staticmethod
    def of(number: Any) -> Any:
        """The number, rounded."""
        return round(float(number))


class PowByNatural(_OfNumbers):
    """``base ** exponent`` of an exponent that is not negative: an integer, which sympy would take apart into fractions."""

    nargs = (2,)
    is_integer = True
    is_real = True

    @staticmethod
    def of(base: Any, exponent: Any) -> Any:
        """The power."""
        return int(base) ** int(exponent)


class LShift(_OfNumbers):
    """``base << shift``."""

    nargs = (2,)
    is_integer = True
    is_real = True

    @staticmethod
    def of(base: Any, shift: Any) -> Any:
        """The number with `shift` zeros behind it."""
        return int(base) << int(shift)


class RShift(_OfNumbers):
    """``base >> shift``."""

    nargs = (2,)
    is_integer = True
    is_real = True

    @staticmethod
    def of(base: Any, shift: Any) -> Any:
        """The number without its last `shift` bits."""
        return int(base) >> int(shift)


class Bitwise(_OfNumbers):
    """Bits of two integers taken together."""

    nargs = (3,)
    is_integer = True
    is_real = True

    @staticmethod
    def of(a: Any, b: Any, which: Any) -> Any:
        """The number with these bits; `which` is 0 for and, 1 for or, 2 for xor."""
        a, b = int(a), int(b)
        return (a & b, a | b, a ^ b)[int(which)]

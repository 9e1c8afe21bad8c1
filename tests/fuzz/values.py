"""The words that fuzzed programs are written in, and how their arguments are drawn.

An argument is text, so that a program can be read, printed and run again. `scope(lib)` has the words: ``rand`` and ``ints``
make tensors of seeded numbers, ``backward`` sends a gradient back through whatever a call returned.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

__all__ = ["DTYPES", "FLOATS", "JUNK", "SIZES", "UNSAFE", "Draw", "scope"]

FLOATS = ("float32", "float64", "float16", "bfloat16")
DTYPES = (*FLOATS, "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128")
# What no op takes everywhere.
JUNK = (
    "None", "'a'", "''", "b'x'", "object()", "1j", "True", "[]", "()", "{}", "[1, 'a']", "[None]", "(1.5, 2)", "range(3)", "1.5",
    "torch.float32", "torch.device('cpu')", "torch.strided", "torch", "float('nan')", "float('inf')", "rand(())", "rand((2, 0))",
    "ints(0, 3, (2,))", "np.ones(3)", "np.float64(2)", "np.int64(1)", "[rand((2,))]", "(rand((2,)), None)", "lambda *a: 1", "Ellipsis",
    "slice(None)", "[[1, 2], [3]]",
)  # fmt: skip
# Sizes at which arithmetic goes wrong: either small, or too large to be had.
SIZES = (
    "0", "-1", "1", "2", "3", "-2", "-100", "17", "1 << 33", "1 << 40", "-(1 << 40)", "(1 << 31) - 1", "(1 << 62) - 1", "1 << 62",
    "(1 << 63) - 1", "-(1 << 63)", "1 << 63", "1 << 70", "-(1 << 70)",
)  # fmt: skip
UNSAFE = "PyTorch does not look at memory that changed behind its back"
LAYOUTS = ("turned", "strided", "expanded", "offset", "last")
SPECIALS = ("nan", "inf", "large", "zero", "ones", "negative", "mixed")


def scope(lib: Any) -> dict[str, Any]:
    """The words of programs, for `lib`."""

    def rand(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0, layout: str = "", special: str = "", grad: bool = False) -> Any:
        """A tensor of seeded numbers around zero."""
        draws = np.random.RandomState(seed)
        values = draws.standard_normal(shape)
        if special:
            values = _special(values, special, draws)
        made = _tensor(lib, values if dtype[:7] != "complex" else values + 1j * draws.standard_normal(shape), dtype)
        made = _laid_out(lib, made, layout)
        return made.requires_grad_() if grad and dtype in (*FLOATS, "complex64", "complex128") else made

    def ints(low: int, high: int, shape: tuple[int, ...], seed: int = 0, dtype: str = "int64", layout: str = "") -> Any:
        """A tensor of seeded integers in [low, high)."""
        values = np.random.RandomState(seed).randint(low, max(high, low + 1), shape)
        return _laid_out(lib, _tensor(lib, values, dtype), layout)

    def total(value: Any) -> Any:
        """The sum of all that can be differentiated in `value`."""
        if isinstance(value, lib.Tensor):
            if not value.requires_grad:
                return None
            summed = value.sum() if value.is_floating_point() else lib.view_as_real(value).sum()
            return summed.to(lib.float64)
        parts = [total(x) for x in value] if isinstance(value, (tuple, list)) else []
        parts = [p for p in parts if p is not None]
        return sum(parts[1:], parts[0]) if parts else None

    def backward(value: Any, *leaves: Any) -> Any:
        """Gradients of `value` at `leaves`, beside it."""
        summed = total(value)
        if summed is None:
            return value
        summed.backward()
        return [value, *(x.grad for x in leaves if isinstance(x, lib.Tensor))]

    def tamper(seed: int, *given: Any) -> None:
        """Overwrite the integers and truth values among `given` in their memory, where autograd does not see it."""
        alone()
        draws = np.random.RandomState(seed)
        for value in given:
            if isinstance(value, (tuple, list)):
                tamper(seed, *value)
            elif isinstance(value, lib.Tensor) and value.dtype in (lib.int64, lib.int32, lib.bool, lib.int16, lib.uint8):
                if value.numel() > 1 << 24:           # what is drawn for it may not fit the memory that is left
                    continue
                memory = value.numpy()
                if memory.flags.writeable and memory.dtype == np.bool_:
                    np.logical_not(memory, out=memory)
                elif memory.flags.writeable and memory.dtype.itemsize > 2:
                    bound = 1 << (8 * memory.dtype.itemsize - 2)
                    memory[...] = draws.choice((0, -1, 1, 5, 1000, 1 << 20, bound, -bound), memory.shape)
                elif memory.flags.writeable:
                    memory[...] = 77

    def alone() -> None:
        """End a program in PyTorch before it does anything."""
        if lib.__name__ != "flambeau":
            raise RuntimeError(UNSAFE)

    return {"alone": alone, "rand": rand, "ints": ints, "backward": backward, "tamper": tamper}


def _special(values: np.ndarray, special: str, draws: Any) -> np.ndarray:
    if special == "zero":
        return np.zeros_like(values)
    if special == "ones":
        return np.ones_like(values)
    if special == "large":
        return values * 1e30
    if special == "negative":
        return -np.abs(values)
    made = {"nan": [np.nan], "inf": [np.inf, -np.inf], "mixed": [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e38, -1e38, 1e-40]}[special]
    return np.where(draws.random_sample(values.shape) < 0.3, draws.choice(made, values.shape), values)


def _tensor(lib: Any, values: Any, dtype: str) -> Any:
    values = np.asarray(values)
    if values.dtype.kind == "f" and dtype not in FLOATS and dtype[:7] != "complex":
        with np.errstate(all="ignore"):
            values = np.nan_to_num(np.rint(values * 3), posinf=9e18, neginf=-9e18).clip(-9.2e18, 9.2e18).astype(np.int64)
        values = values != 0 if dtype == "bool" else values
    return lib.from_numpy(np.ascontiguousarray(values)).reshape(values.shape).to(getattr(lib, dtype))


def _laid_out(lib: Any, made: Any, layout: str) -> Any:
    if layout == "turned" and made.ndim > 1:
        return made.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "strided" and made.ndim:
        return lib.stack((made, made), -1).flatten(-2)[..., ::2]
    if layout == "expanded" and made.ndim and made.shape[0]:
        return made[:1].expand(made.shape)
    if layout == "offset" and made.ndim:
        return lib.cat((made[:1], made))[1 if made.shape[0] else 0 :]
    if layout == "last" and made.ndim == 4:
        return made.contiguous(memory_format=lib.channels_last)
    return made


class Draw(random.Random):
    """Draws the text of arguments."""

    def chance(self, p: float) -> bool:
        return self.random() < p

    def shape(self, ndim: int | None = None, least: int = 0) -> tuple[int, ...]:
        if ndim is None:
            ndim = self.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
        return tuple(max(least, self.choice((0, 1, 2, 2, 3, 3, 3, 4, 5, 5, 7, 17))) for _ in range(ndim))

    def dtype(self, kinds: tuple[str, ...] = DTYPES) -> str:
        return self.choice(kinds) if self.chance(0.5) else kinds[0]

    def near(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts with `shape`, or nearly does."""
        roll = self.random()
        made = list(shape)
        if roll < 0.6:
            return shape
        if roll < 0.75 and made:
            made[self.randrange(len(made))] = 1
        elif roll < 0.85 and made:
            made = made[self.randrange(len(made) + 1) :]
        elif roll < 0.93 and made:
            made[self.randrange(len(made))] = self.choice((0, 1, 2, 3, 4, 6))
        else:
            made = list(self.shape())
        return tuple(made)

    def tensor(self, shape: tuple[int, ...], dtype: str = "float32", layout: float = 0.25, special: float = 0.1) -> str:
        """Text of a tensor of seeded numbers, mostly one that gradients go to."""
        extra = f", layout={self.choice(LAYOUTS)!r}" if self.chance(layout) else ""
        extra += f", special={self.choice(SPECIALS)!r}" if self.chance(special) else ""
        extra += ", grad=True" if dtype in (*FLOATS, "complex64", "complex128") and self.chance(0.6) else ""
        return f"rand({shape!r}, {dtype!r}, {self.randrange(1000)}{extra})"

    def ints(self, low: int, high: int, shape: tuple[int, ...], dtype: str = "int64") -> str:
        """Text of a tensor of indices; now and then they are out of range."""
        if self.chance(0.08):
            low, high = self.choice(((low - 3, high), (low, high + 3), (-(1 << 40), 1 << 40), ((1 << 62), (1 << 63) - 1), (-(1 << 62), 0)))
        if self.chance(0.08):
            dtype = self.choice(DTYPES)
        extra = f", layout={self.choice(LAYOUTS)!r}" if self.chance(0.15) else ""
        return f"ints({low}, {high}, {shape!r}, {self.randrange(1000)}, {dtype!r}{extra})"

    def size(self) -> str:
        return self.choice(SIZES)

    def junk(self) -> str:
        roll = self.random()
        if roll < 0.4:
            return self.choice(JUNK)
        if roll < 0.7:
            return self.size()
        if roll < 0.8:
            return repr(tuple(self.randrange(-1, 5) for _ in range(self.randrange(4))))
        if roll < 0.85:
            return f"({', '.join(self.size() for _ in range(self.randrange(1, 4)))},)"
        return self.tensor(self.shape(), self.dtype())

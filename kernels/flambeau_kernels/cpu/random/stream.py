"""The CPU's source of random bits: a Mersenne Twister that can be seeded, saved and restored.

`MT19937Stream` yields the same 32-bit words as PyTorch's CPU generator for the same seed, and its saved state has the
same bytes, so a state can travel between the two in either direction. How words become numbers of a distribution is
told in the sibling modules `uniform_draws`, `normal_draws`, `continuous`, `rejection`, `sample`.

Source: Matsumoto and Nishimura 1998, "Mersenne Twister", ACM TOMACS 8(1), seeded as in 2002.
"""

from __future__ import annotations

import functools
import secrets
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from flambeau_kernels import engines

from ... import hot_calls
from ..tier import compiles

__all__ = ["DEFAULT_SEED", "MT19937Stream", "STATE_BYTES", "fill"]

DEFAULT_SEED = 67280421310721                        # what an unseeded PyTorch generator reports
BLOCK = 624                                          # words per twist
PIECE = 1 << 14                                      # numbers a compiled loop makes per chunk
LEAST_NORMALS = 16                                   # numbers that are made in blocks; fewer are made in pairs
MOST_AT_ONCE = 1024                                           # numbers that one kernel draws and makes
WORDS = 1 << 32
HALVES = "eE"                                        # kinds of float16 and bfloat16

# PyTorch's saved CPU generator: what each byte means was found by saving before and after single draws.
STATE = np.dtype({
    "names": ["seed", "left", "seeded", "next", "words",
              "spare_normal", "has_spare_normal", "spare_normal32", "has_spare_normal32"],
    "formats": ["<u8", "<i4", "u1", "<u8", ("<u8", BLOCK), "<f8", "u1", "<f4", "u1"],
    "offsets": [0, 8, 12, 16, 24, 5024, 5040, 5048, 5052],
    "itemsize": 5056,
})
STATE_BYTES = STATE.itemsize


class _Seeding(threading.local):
    """A twister of numpy's for each thread, kept because to make one takes twice as long as to seed it and to read its state."""

    def __init__(self) -> None:
        self.twister: Any = np.random.MT19937(0)


_seeding = functools.cache(_Seeding)


def _first_block(seed: int) -> np.ndarray:
    """The block of words that the 32 bits of `seed` are spread to."""
    twister = _seeding().twister
    twister._legacy_seeding(seed)
    return twister.state["state"]["key"]


class MT19937Stream:
    """A stream of 32-bit words, together with the second normal of the last pair drawn.

    Args:
        seed: any integer in [-2**63, 2**64); a negative one counts back from 2**64. The twister itself sees
            the low 32 bits only, as in PyTorch.

    >>> MT19937Stream(0).random32(2)
    array([2357136044, 2546248239], dtype=uint32)
    """

    def __init__(self, seed: int = DEFAULT_SEED) -> None:
        # The block of words in use, then room for the next one while it is made.
        self._state = np.empty(2 * BLOCK, np.uint32)
        self._lock = threading.Lock()
        self.manual_seed(seed)

    def __getstate__(self) -> np.ndarray:
        return self.get_state()

    def __setstate__(self, state: np.ndarray) -> None:
        self.__init__()
        self.set_state(state)

    def manual_seed(self, seed: int) -> MT19937Stream:
        """Restart from `seed`, forgetting any spare normal. Raises: ValueError outside [-2**63, 2**64)."""
        seed = int(seed)
        if not -(1 << 63) <= seed < 1 << 64:
            raise ValueError(f"manual_seed: seed must lie in [-2**63, 2**64), got {seed}")
        self._seed = seed % (1 << 64)
        self._state[:BLOCK] = _first_block(self._seed & 0xFFFFFFFF)
        self._position = BLOCK                       # how many words of the block are gone
        self._untouched = True
        self.spare_normal: float | None = None
        self._spare_normal32 = (0.0, 0)
        self.passed = np.zeros(1)                    # spare normals go to a kernel, and come back, in this
        return self

    def seed(self) -> int:
        """Restart the stream from a seed the operating system chooses, and return that seed."""
        self.manual_seed(secrets.randbits(64))
        return self._seed

    def initial_seed(self) -> int:
        """The seed the stream was last started from, in [0, 2**64)."""
        return self._seed

    def random32(self, count: int) -> np.ndarray:
        """The next `count` words, uint32."""
        return self.words(np.empty(count, np.uint32))

    def words(self, out: np.ndarray) -> np.ndarray:
        """Fill the uint32 vector `out` with the next words; returns it."""
        count = len(out)
        if not count:
            return out
        # Long draws give up the GIL.
        with self._lock:
            if compiles():
                loops().draw.run(1, self._state, out, self._position, count, release=count > BLOCK)
            else:
                self._draw_by_numpy(out)
            self._advance(count)
        return out

    def _advance(self, count: int) -> None:
        self._position = (self._position + count - 1) % BLOCK + 1
        self._untouched = False

    def fill_normals(self, out: np.ndarray, mean: float = 0.0, std: float = 1.0) -> None:
        """Fill float32 `out`, in C order and of `LEAST_NORMALS` or more, by one kernel: what few numbers cost is calls."""
        count = out.size
        scaled = mean != 0.0 or std != 1.0
        fill_few = _normals_at_once.get(scaled) or _form_of_normals(scaled)
        with self._lock:
            fill_few(1, False, self._state, out, self._position, count, mean, std)
            self._advance(count + (16 if count & 15 else 0))

    def at_once(self, fill: Any, out: np.ndarray, words: int, *args: Any, wrong: np.ndarray | None = None) -> bool:
        """Let `fill`, a form of one of the draw_... of `loops`, make `out` of the next `words` words.

        Where it may find arguments `wrong`, it draws none then. Returns whether all was right.
        """
        lock = self._lock                             # `with` would take twice as long
        lock.acquire()
        try:
            fill(1, False, self._state, out, self._position, out.size, *args)
            if wrong is not None and wrong[0]:
                return False
            if words:
                position = self._position + words
                self._position = position if position <= BLOCK else (position - 1) % BLOCK + 1
                self._untouched = False
            return True
        finally:
            lock.release()

    def normals(self, sizes: tuple[Any, ...]) -> np.ndarray | None:
        """A new float32 array of what `fill_normals` fills it with; None where the launcher is not made for `sizes`, or missing."""
        lock = self._lock                             # `with` would take as long again
        lock.acquire()
        try:
            made = hot_calls.normals(_table, self._state, self._position, sizes)
            if made is not None:
                # The last 16 numbers are made anew where there are others than multiples of 16.
                position = self._position + made.size + (16 if made.size & 15 else 0)
                self._position = position if position <= BLOCK else (position - 1) % BLOCK + 1
                self._untouched = False
        finally:
            lock.release()
        return made

    def made(
        self, table: Any, sizes: tuple[Any, ...], like: np.ndarray, numbers: np.ndarray, each: int, less: int = 0
    ) -> np.ndarray | None:
        """A new array as `like` of what `at_once` fills it with, of `each` words a number but `less`; None as `normals`.

        `table` is one of `Few.tables`, and `numbers` what `bits` says of the kernel's other arguments.
        """
        lock = self._lock                             # `with` would take as long again
        lock.acquire()
        try:
            made = hot_calls.draws(table, self._state, self._position, sizes, like, numbers)
            if made is not None:
                position = self._position + made.size * each - less
                self._position = position if position <= BLOCK else (position - 1) % BLOCK + 1
                self._untouched = False
        finally:
            lock.release()
        return made

    def refilled(self, out: np.ndarray) -> bool:
        """Whether one native call did what `fill_normals` does to `out`, of any kind; nothing is drawn otherwise."""
        return (
            _table is not None and out.dtype is _SINGLE and out.size >= LEAST_NORMALS
            and self.redrawn(_table, out, _STANDARD, 1, 16 if out.size & 15 else 0)
        )  # fmt: skip

    def refilled_around(self, out: np.ndarray, numbers: np.ndarray) -> bool:
        """`refilled` of normals of the mean and deviation in `numbers`, which are not 0 and 1."""
        return (
            _scaled_table is not None and out.dtype is _SINGLE and out.size >= LEAST_NORMALS
            and self.redrawn(_scaled_table, out, numbers, 1, 16 if out.size & 15 else 0)
        )  # fmt: skip

    def redrawn(self, table: Any, out: np.ndarray, numbers: np.ndarray, each: int, more: int = 0) -> bool:
        """Whether the launcher filled `out` as `at_once` does, of `each` words a number and some `more`; False as None of `made`."""
        lock = self._lock                             # `with` would take as long again
        lock.acquire()
        try:
            if hot_calls.redraws(table, self._state, self._position, out, numbers) is None:
                return False
            position = self._position + out.size * each + more
            self._position = position if position <= BLOCK else (position - 1) % BLOCK + 1
            self._untouched = False
        finally:
            lock.release()
        return True

    def _draw_by_numpy(self, out: np.ndarray) -> None:
        twister = np.random.MT19937(0)
        twister.state = {"bit_generator": "MT19937", "state": {"key": self._state[:BLOCK], "pos": self._position}}
        out[...] = np.random.Generator(twister).integers(0, WORDS, size=len(out), dtype=np.uint32)
        self._state[:BLOCK] = twister.state["state"]["key"]

    def random64(self, count: int) -> np.ndarray:
        """The next `2 * count` words joined in pairs, the first of each pair on top, uint64."""
        return join(self.random32(2 * count))

    def uniform32(self, count: int) -> np.ndarray:
        """Float32 in [0, 1): the low 24 bits of one word each."""
        if compiles():
            return self._unit(np.empty(count, np.float32))
        return (self.random32(count) & np.uint32(0xFFFFFF)).astype(np.float32) * np.float32(2.0**-24)

    def uniform64(self, count: int) -> np.ndarray:
        """Float64 in [0, 1): the low 53 bits of two words each."""
        if compiles():
            return self._unit(np.empty(count, np.float64))
        return (self.random64(count) & np.uint64((1 << 53) - 1)).astype(np.float64) * 2.0**-53

    def _unit(self, out: np.ndarray) -> np.ndarray:
        # The words wait in the memory of the numbers they become.
        loops().uniform.run(chunks(out.size), self.words(out.view(np.uint32)), out, out.size, 0.0, 1.0, 1.0, PLAIN=True)
        return out

    @contextmanager
    def rewound(self) -> Iterator[None]:
        """Whatever is drawn inside the `with` block is still to come after it."""
        state, position, untouched = self._state[:BLOCK].copy(), self._position, self._untouched
        yield
        self._state[:BLOCK], self._position, self._untouched = state, position, untouched

    def skip(self, words: int) -> None:
        """Throw `words` words away."""
        self.random32(words)

    def clone(self) -> MT19937Stream:
        """An independent stream that goes on exactly as this one will."""
        return MT19937Stream().set_state(self.get_state())

    def get_state(self) -> np.ndarray:
        """The whole state as `STATE_BYTES` bytes, laid out as PyTorch lays out its own."""
        record = np.zeros((), dtype=STATE)
        record["seed"], record["seeded"], record["words"] = self._seed, 1, self._state[:BLOCK]
        # After seeding as after a used up block no word is left; only `next` tells the two apart.
        record["next"] = 0 if self._untouched else self._position
        record["left"] = 1 if self._untouched else BLOCK + 1 - self._position
        if self.spare_normal is not None:
            record["spare_normal"], record["has_spare_normal"] = self.spare_normal, 1
        record["spare_normal32"], record["has_spare_normal32"] = self._spare_normal32
        return np.frombuffer(record.tobytes(), dtype=np.uint8).copy()

    def set_state(self, state: np.ndarray) -> MT19937Stream:
        """Continue from a state `get_state` returned, here or in PyTorch.

        Raises: TypeError unless `state` is a uint8 array; RuntimeError for a wrong length or impossible contents.
        """
        record = read_state(state)
        self._seed = int(record["seed"])
        self._untouched = record["left"] == 1 and record["next"] == 0
        self._position = BLOCK if record["left"] == 1 else int(record["next"])
        self._state[:BLOCK] = record["words"]
        self.spare_normal = float(record["spare_normal"]) if record["has_spare_normal"] else None
        self._spare_normal32 = record["spare_normal32"], record["has_spare_normal32"]
        return self


@functools.cache
def loops() -> Any:
    """The compiled loops, `loops`: loaded when something is drawn, not when there is a generator."""
    from . import loops as random_loops

    return random_loops


class AtOnce:
    """One of the draw_... kernels of `loops`: what streams call to fill arrays, by their dtype.

    `types` are those of its arguments after the number of elements.
    """

    __slots__ = ("constants", "forms", "name", "tables", "types")

    def __init__(self, name: str, *types: Any, **constants: Any) -> None:
        self.name, self.types, self.constants = name, types, constants
        self.forms = engines.kept_in({})
        self.tables = engines.kept_in({})                     # behind those of the forms that are builtins, for `MT19937Stream.made`

    def form(self, out: np.ndarray) -> Any:
        """What fills `out`; None unless that is `MOST_AT_ONCE` numbers or fewer, in C order, and kernels compile."""
        if not engines.chosen().compiles or not 0 < out.size <= MOST_AT_ONCE or not out.flags.c_contiguous:
            return None
        return self.forms.get(out.dtype) or self._compiled(out.dtype)

    def _compiled(self, dtype: np.dtype) -> Any:
        if not compiles():
            return None
        kernel = getattr(loops(), self.name)
        made = self.forms[dtype] = kernel.form((np.dtype(np.uint32), dtype, int, int, *self.types), self.constants)
        table = getattr(made, "__self__", None)
        if table is not None:
            self.tables[dtype] = table
        return made


_normals_at_once = engines.kept_in({})
_SINGLE = np.dtype(np.float32)
_table: Any = None                                    # behind the callable for standard normals, once there is one
_scaled_table: Any = None                             # and for those of another mean or deviation


def _forget_tables() -> None:
    global _table, _scaled_table
    _table = _scaled_table = None


engines.plans_kept_elsewhere.append(_forget_tables)


def _form_of_normals(scaled: bool) -> Any:
    """`loops.draw_normals` as it is called, kept in `_normals_at_once`."""
    types = (np.dtype(np.uint32), np.dtype(np.float32), int, int, float, float)
    global _table, _scaled_table
    made = _normals_at_once[scaled] = loops().draw_normals.form(types, {"SCALED": scaled})
    table = getattr(made, "__self__", None)           # of the builtin; interpreters without it have no launchers either
    if scaled:
        _scaled_table = table
    else:
        _table = table
    return made


def bits(*numbers: float) -> np.ndarray:
    """Floats and ints as the words a kernel takes them from, as many as `engine.builtins.draws.EXTRA`."""
    return np.frombuffer(b"".join(struct.pack("d" if type(x) is float else "q", x) for x in (*numbers, 0, 0, 0)[:3]), np.int64)


_STANDARD = bits(0.0, 1.0, 0.0)


def chunks(count: int) -> int:
    """How many chunks of `loops` make `count` numbers."""
    return (count + PIECE - 1) // PIECE


def read_state(state: np.ndarray) -> np.ndarray:
    """The fields of a saved state, checked."""
    if not isinstance(state, np.ndarray) or state.dtype != np.uint8:
        found = state.dtype if isinstance(state, np.ndarray) else type(state).__name__
        raise TypeError(f"set_state: a generator state is a uint8 array, got {found}")
    if state.size != STATE_BYTES:
        raise RuntimeError(f"set_state: a CPU generator state has {STATE_BYTES} bytes, got {state.size}")
    record = np.frombuffer(state.tobytes(), dtype=STATE)[0]
    left, following = int(record["left"]), int(record["next"])
    if not record["seeded"] or not 1 <= left <= BLOCK or following > BLOCK:
        raise RuntimeError(
            f"set_state: not an mt19937 state (seeded={record['seeded']}, left={left}, next={following}; "
            f"expected seeded=1, left in [1, {BLOCK}], next in [0, {BLOCK}])"
        )
    return record


def join(words: np.ndarray) -> np.ndarray:
    """Pairs of 32-bit words as 64-bit words, the first on top: (2n,) uint32 -> (n,) uint64."""
    return (words[0::2].astype(np.uint64) << np.uint64(32)) | words[1::2]


def memory_order(out: np.ndarray) -> list[int]:
    """The dims of `out`, widest stride first: numbers are dealt out along rising addresses."""
    return sorted(range(out.ndim), key=lambda dim: -abs(out.strides[dim]) if out.shape[dim] > 1 else 0)


def memory(out: np.ndarray) -> np.ndarray | None:
    """The numbers of `out` in the order of its memory, complex ones as two, as a vector that shares it; None with gaps."""
    dense = out if out.flags.c_contiguous else out.transpose(memory_order(out))
    if not dense.flags.c_contiguous:
        return None
    flat = dense.reshape(-1)
    return flat.view(f"f{flat.itemsize // 2}") if flat.dtype.kind == "c" else flat


def fill(out: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Deal `values`, one per element and in the order drawn, into `out`, rounding to its dtype; return `out`.

    A complex `out` takes two values per element, the real part first.
    """
    target = out if out.flags.c_contiguous else out.transpose(memory_order(out))
    if np.iscomplexobj(out):
        target.real = values[0::2].reshape(target.shape)
        target.imag = values[1::2].reshape(target.shape)
        return out
    if out.dtype.char in HALVES:
        values = values.astype(np.float32, copy=False)   # float64 reaches a half type by way of float32
    target[...] = values.reshape(target.shape).astype(out.dtype, copy=False)
    return out


def draw_parts(draw: Any, stream: Any, out: np.ndarray, *settings: float) -> np.ndarray | None:
    """`out`, if complex numbers of two float16 (which numpy does not know): its parts drawn as float16; None for others."""
    if out.dtype.isbuiltin == 1 or out.dtype.name != "complex32":  # numpy takes a microsecond for a name
        return None
    parts = np.empty((*out.shape, 2), np.float16)
    draw(stream, parts, *settings)
    out[...] = parts.view(out.dtype)[..., 0]
    return out


def check_dtype(name: str, dtype: np.dtype, kinds: str) -> None:
    """Raise NotImplementedError unless `dtype` is of one of `kinds`: f(loating), c(omplex), i, u, b(ool)."""
    kind = "f" if dtype.char in HALVES else dtype.kind
    if kind not in kinds:
        raise NotImplementedError(f"{name}: there are no such numbers of dtype {dtype.name}")


def numbers_in(out: np.ndarray) -> int:
    """How many real numbers fill `out`."""
    return out.size * (2 if out.dtype.kind == "c" else 1)

"""Counter-based random numbers: element i of draw number `offset` is a function of (seed, offset, i) alone.

Any part of an array can be made anywhere, in any order, with the same result; all there is to pass on is a count.

Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3" (SC'11), Philox4x32-10.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["PhiloxStream", "philox4x32"]

MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
KEY_STEPS = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10
LOW = np.uint64(0xFFFFFFFF)
HALF_WORD = np.uint64(32)


def philox4x32(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Ten rounds of Philox over counters (4, n) uint32 under one key of two words: (4, n) uint32."""
    c0, c1, c2, c3 = counter.astype(np.uint64)
    k0, k1 = key
    for _ in range(ROUNDS):
        first, second = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0 = (second >> HALF_WORD) ^ c1 ^ np.uint64(k0)
        c2 = (first >> HALF_WORD) ^ c3 ^ np.uint64(k1)
        c1, c3 = second & LOW, first & LOW
        k0, k1 = (k0 + KEY_STEPS[0]) & 0xFFFFFFFF, (k1 + KEY_STEPS[1]) & 0xFFFFFFFF
    return np.stack((c0, c1, c2, c3)).astype(np.uint32)


class PhiloxStream:
    """Draws by (seed, offset, element index).

    Args:
        seed: an integer in [-2**63, 2**64), a negative one counting back from 2**64: the generator's key.
        offset: the number of the next draw, in [0, 2**64); every draw of an array counts as one.
    """

    def __init__(self, seed: int = 0, offset: int = 0) -> None:
        if not -(1 << 63) <= seed < 1 << 64:
            raise ValueError(f"PhiloxStream: seed must lie in [-2**63, 2**64), got {seed}")
        if not 0 <= offset < 1 << 64:
            raise ValueError(f"PhiloxStream: offset must lie in [0, 2**64), got {offset}")
        self._seed = seed % (1 << 64)
        self.offset = offset

    def initial_seed(self) -> int:
        return self._seed

    def clone(self) -> PhiloxStream:
        return PhiloxStream(self._seed, self.offset)

    def get_state(self) -> np.ndarray:
        """Seed and offset as 16 bytes, low bytes first."""
        return np.array([self._seed, self.offset], dtype="<u8").view(np.uint8)

    def set_state(self, state: np.ndarray) -> PhiloxStream:
        """Continue from `get_state`. Raises: TypeError unless uint8; RuntimeError unless 16 bytes long."""
        if not isinstance(state, np.ndarray) or state.dtype != np.uint8:
            raise TypeError("set_state: a generator state is a uint8 array")
        if state.size != 16:
            raise RuntimeError(f"set_state: a Philox state has 16 bytes, got {state.size}")
        self._seed, self.offset = (int(x) for x in np.frombuffer(state.tobytes(), dtype="<u8"))
        return self

    def words(self, start: int, count: int) -> np.ndarray:
        """`count` words of the present draw from `start` on, uint32; word w is lane w % 4 of block w // 4."""
        first, last = start // 4, -(-(start + count) // 4)
        blocks = np.arange(first, last, dtype=np.uint64)
        counter = np.empty((4, blocks.size), dtype=np.uint32)
        counter[0], counter[1] = blocks & LOW, blocks >> HALF_WORD
        counter[2], counter[3] = self.offset & 0xFFFFFFFF, self.offset >> 32
        lanes = philox4x32(counter, (self._seed & 0xFFFFFFFF, self._seed >> 32))
        return lanes.T.reshape(-1)[start - 4 * first :][:count]

    def uniform(self, out: np.ndarray, start: int = 0) -> np.ndarray:
        """Fill floating `out`, in logical order, with uniform numbers in [0, 1).

        `start` is the index of its first element in the whole array of which `out` is a part; only `advance`
        moves the offset on. Float64 takes two words for each element and uses 53 bits, other dtypes one word
        and as many bits as the dtype holds, 24 at most.
        """
        out[...] = self.unit(out.dtype, start, out.size).reshape(out.shape)
        return out

    def unit(self, dtype: np.dtype, start: int, count: int) -> np.ndarray:
        if dtype == np.float64:
            return self.doubles(start, count)
        bits = {"float16": 11, "bfloat16": 8}.get(dtype.name, 24)
        words = self.words(start, count) >> np.uint32(32 - bits)
        return (words.astype(np.float32) * np.float32(2.0**-bits)).astype(dtype)

    def doubles(self, start: int, count: int) -> np.ndarray:
        pairs = self.words(2 * start, 2 * count).astype(np.uint64)
        return (((pairs[0::2] << HALF_WORD) | pairs[1::2]) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normal(self, out: np.ndarray, mean: float = 0.0, std: float = 1.0, start: int = 0) -> np.ndarray:
        """Fill floating `out`, in logical order, with normal numbers; `start` as in `uniform`.

        Elements 2k and 2k + 1 are the cosine and sine of one Box-Muller pair, computed in float64.
        Raises: RuntimeError if `std` is negative or nan.
        """
        if not std >= 0:
            raise RuntimeError(f"normal_: std must be at least 0, got std={std}")
        first, last = start // 2 * 2, -(-(start + out.size) // 2) * 2
        if out.dtype == np.float64:
            unit = self.doubles(first, last - first)
        else:
            unit = self.words(first, last - first) * 2.0**-32
        radius = np.sqrt(-2.0 * np.log1p(-unit[0::2]))
        angle = 2 * math.pi * unit[1::2]
        pairs = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1).reshape(-1)
        values = pairs[start - first :][: out.size] * std + mean
        if out.dtype != np.float64:
            values = values.astype(np.float32)
        out[...] = values.astype(out.dtype).reshape(out.shape)
        return out

    def advance(self, draws: int = 1) -> PhiloxStream:
        """Move on to the next draw."""
        self.offset = (self.offset + draws) % (1 << 64)
        return self

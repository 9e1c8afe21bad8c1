"""Random generators and their state: the numbers PyTorch's CPU generator gives for the same seed."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import numpy as np

from . import _state
from .devices import CPU, device
from .tensor import Tensor, wrap

__all__ = [
    "Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state",
    "thread_safe_generator",
]  # fmt: skip


class Generator:
    """A stream of random numbers with a state of its own, on the CPU by default.

    Raises: RuntimeError for a device without a generator.
    """

    def __init__(self, device: Any = "cpu") -> None:
        place = CPU if device is None else _device(device)
        if place.type == "cuda":
            from flambeau_kernels.cpu.random import DEFAULT_SEED

            from ._cuda.device import index_of
            from ._cuda.random import DeviceStream

            self._place = _device("cuda", index_of(place, "Generator"))
            self._stream: Any = DeviceStream(DEFAULT_SEED)
            return
        if place.type != "cpu":
            raise RuntimeError(f"Generator: device {place} has no generator in this installation; use 'cpu'")
        from flambeau_kernels.cpu.random import MT19937Stream

        self._place = CPU
        self._stream = MT19937Stream()

    @property
    def device(self) -> device:
        """Where its numbers are drawn."""
        return self._place

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed`, any 64-bit integer, signed or not. Returns the generator."""
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise TypeError(f"manual_seed expected a long, but got {type(seed).__name__}")
        if not -(2**63) <= seed < 2**64:
            raise ValueError(f"Overflow when unpacking long long: seed {seed} must lie in [-2**63, 2**64 - 1]")
        _state.settle()
        self._stream.manual_seed(int(seed))
        return self

    def initial_seed(self) -> int:
        """The seed the stream was started with."""
        return self._stream.initial_seed()

    def seed(self) -> int:
        """Start a stream from the system's randomness; returns the seed."""
        _state.settle()
        return self._stream.seed()

    def get_state(self) -> Tensor:
        """The whole state as a uint8 tensor, in PyTorch's layout."""
        _state.settle()
        return wrap(np.array(self._stream.get_state()))

    def set_state(self, new_state: Tensor) -> Generator:
        """Continue from a state of `get_state`. Raises: TypeError, RuntimeError for anything else."""
        if not isinstance(new_state, Tensor) or new_state.dtype.name != "uint8":
            raise TypeError(f"expected a torch.ByteTensor, but got {getattr(new_state, 'dtype', type(new_state).__name__)}")
        _state.settle()
        try:
            self._stream.set_state(np.ascontiguousarray(new_state._array))
        except ValueError as error:
            raise RuntimeError(f"set_state: {error}") from None
        return self

    def clone_state(self) -> Generator:
        """A generator that will give the same numbers."""
        made = Generator(self.device)
        made._stream = self._stream.clone()
        return made

    graphsafe_get_state = clone_state

    def graphsafe_set_state(self, state: Generator) -> Generator:
        """Continue from where `state` is."""
        self._stream = state._stream.clone()
        return self

    def __getstate__(self) -> Any:
        return self.get_state()._array

    def __setstate__(self, state: Any) -> None:
        self.__init__()
        self._stream.set_state(state)

    def __repr__(self) -> str:
        return f"<torch._C.Generator object at {id(self):#x}>".replace("._C", "")


def _device(value: Any, index: int | None = None) -> device:
    return device(value, index)


default_generator = Generator()


def manual_seed(seed: Any) -> Generator:
    """Seed the generators of every device; the same seed gives PyTorch's numbers. Returns the CPU generator."""
    drawing = sys.modules.get("flambeau._cuda.random")
    if drawing is not None:
        drawing.restart_all(int(seed))
    return default_generator.manual_seed(int(seed))


def seed() -> int:
    """Seed the default generator from the system's randomness; returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator, a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Set the state of the default generator."""
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, device_type: str = "cuda", **_: Any) -> Any:
    """Inside, draw as usual; afterwards the default generator continues where it was.

    Args:
        devices, device_type: accepted; the CPU generator is the one that is kept.
        enabled: False does nothing.

    >>> _ = fb.manual_seed(0)
    >>> with fb.random.fork_rng():
    ...     aside = fb.rand(1)
    >>> fb.equal(aside, fb.rand(1))
    True
    """
    if not enabled:
        yield
        return
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)


def thread_safe_generator() -> None:
    """The generator of a data-loading thread; there is none outside of one."""
    return


def stream_of(generator: Generator | None) -> Any:
    """The number stream behind `generator`, the default one for None."""
    _state.settle_draws()
    if generator is None:
        return default_generator._stream
    if not isinstance(generator, Generator):
        raise TypeError(f"argument 'generator' must be torch.Generator, not {type(generator).__name__}")
    return generator._stream

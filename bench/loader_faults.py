"""How long it takes from a fault in a worker of a DataLoader to the sentence in the loop, and what is left behind.

    PYTHONPATH=framework:kernels python bench/loader_faults.py           # --package torch for PyTorch
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import gc
import importlib
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from typing import Any

TIMEOUT = 0.5  # seconds, where a worker hangs
AT = 7  # the sample that goes wrong; the batch has 120 kB, so it travels through shared memory


def raise_error() -> None:
    raise ZeroDivisionError("the sample is bad")


def hang() -> None:
    time.sleep(60)


def hang_deaf() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)


FAULTS: dict[str, Callable[[], Any]] = {
    "raises": raise_error,
    "is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "reads address 0": lambda: ctypes.string_at(0),
    "calls os._exit": lambda: os._exit(3),
    "hangs": hang,
    "hangs, and ignores SIGTERM": hang_deaf,
}


class Samples:
    """Twelve samples, of which one does `fault`. `began` has the moment, shared with the worker."""

    def __init__(self, lib: Any, fault: Callable[[], Any]) -> None:
        self.lib, self.fault, self.began = lib, fault, multiprocessing.Value("d", 0.0)

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        if index == AT:
            self.began.value = time.monotonic()
            self.fault()
        return self.lib.ones(30_000) * index


def left() -> tuple[int, int, int]:
    """Open descriptors, mappings of shared memory, and children of this process."""
    gc.collect()
    with open("/proc/self/maps") as file:
        mapped = sum("memfd:" in line or "/dev/shm/" in line for line in file)
    return len(os.listdir("/proc/self/fd")), mapped, len(multiprocessing.active_children())


def measured(lib: Any, name: str) -> tuple[float, float, str, tuple[int, ...]]:
    """Seconds from the fault to the error, seconds until the loader is gone, the error, and what is left."""
    samples = Samples(lib, FAULTS[name])
    before = left()
    timeout = TIMEOUT if "hangs" in name else 30
    loader = lib.utils.data.DataLoader(samples, num_workers=2, timeout=timeout)
    try:
        collections.deque(loader, maxlen=0)
    except Exception as error:  # which one it is, is the result
        said = time.monotonic() - samples.began.value
        text = f"{type(error).__name__}: " + str(error).strip().splitlines()[0]
        del error
    else:
        raise AssertionError(f"{name}: no error")
    del loader
    after = left()
    return said, time.monotonic() - samples.began.value, text, tuple(a - b for a, b in zip(after, before, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--package", default="flambeau")
    lib = importlib.import_module(parser.parse_args().package)
    importlib.import_module(f"{lib.__name__}.utils.data")
    logging.disable()
    list(lib.utils.data.DataLoader(range(2), num_workers=1))  # Python's helper processes start once
    print(f"{'a worker':<28}{'error after':>12}{'gone after':>12}  descriptors, mappings, processes left; the error")
    for name in FAULTS:
        said, gone, text, remains = measured(lib, name)
        print(f"{name:<28}{said:>10.2f} s{gone:>10.2f} s  {remains}; {text[:90]}")


if __name__ == "__main__":
    main()

"""What kernels are compiled for, and how a process knows it without LLVM: what LLVM said once of this computer is kept with the kernels.

It is asked anew when the processor, the library of llvmlite or FLAMBEAU_CPU is another.
"""
from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import sys
from typing import NamedTuple

__all__ = ["Target", "key"]

# Of /proc/cpuinfo: what decides which instructions there are.
_FACTS = ("vendor_id", "cpu family", "model", "stepping", "flags")
_LINES_OF_A_PROCESSOR = 16384                         # bytes, more than those of one processor
_END = "end"


class Target(NamedTuple):
    """A kind of processor.

    Attributes:
        features: for LLVM, those that code may use ("+avx2") and those it may not ("-avx512f"), by commas.
        host, host_features: the same of the processor at hand.
        layout: LLVM's string for sizes and alignments.
        compiler: the version of LLVM.
    """

    triple: str
    cpu: str
    features: str
    host: str
    host_features: str
    layout: str
    compiler: str

    def packed(self) -> bytes:
        return "\n".join((*self, _END)).encode()

    @classmethod
    def unpacked(cls, raw: bytes) -> Target | None:
        """What `packed` made; None for anything else."""
        *values, end = raw.decode("utf-8", "replace").split("\n")
        return cls(*values) if end == _END and len(values) == len(cls._fields) else None


def key(cpu: str | None) -> str | None:
    """What the cache keeps the target of this computer under, with FLAMBEAU_CPU=`cpu`; None where the processor cannot be told apart."""
    if sys.platform != "linux" or platform.machine().lower() != "x86_64":
        return None
    package = importlib.util.find_spec("llvmlite")
    if package is None or not package.submodule_search_locations:
        return None
    try:
        library = os.stat(os.path.join(package.submodule_search_locations[0], "binding", "libllvmlite.so"))
        processor = _processor()
    except OSError:
        return None
    facts = ("target", processor, library.st_mtime_ns, library.st_size, cpu)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _processor() -> str:
    """What Linux says of the first processor that decides its instructions. Raises: OSError."""
    file = os.open("/proc/cpuinfo", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # No more than needed: the kernel writes this text while it is read, some lines for each of what may be hundreds.
        text = os.read(file, _LINES_OF_A_PROCESSOR).decode("utf-8", "replace").partition("\n\n")[0]
    finally:
        os.close(file)
    lines = (line.partition(":") for line in text.splitlines())
    return repr([(name.strip(), value.strip()) for name, _, value in lines if name.strip() in _FACTS])

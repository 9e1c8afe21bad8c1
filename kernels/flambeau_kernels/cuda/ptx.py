"""LLVM IR text to PTX, without a device: LLVM's own back end writes it, the driver (or ptxas) makes machine code of it."""

from __future__ import annotations

import functools
import hashlib

from flambeau_kernels.engine.machine_code import llvm

__all__ = ["CAPABILITIES", "compile_ptx", "target_for"]

# Compute capabilities that code is made for. PTX of one runs on all later ones; the last has all that our kernels use.
CAPABILITIES = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0))


def target_for(capability: tuple[int, int]) -> tuple[int, int]:
    """The newest capability that code can be made for and a device of `capability` can run. Raises: RuntimeError if none."""
    fitting = [c for c in CAPABILITIES if c <= tuple(capability)]
    if not fitting:
        raise RuntimeError(f"kernels need a device of compute capability 7.5 or newer, this one has {capability[0]}.{capability[1]}")
    return fitting[-1]


def compile_ptx(text: str, capability: tuple[int, int] = (8, 0)) -> str:
    """PTX for the module `text`, from the cache when it is there.

    Raises: llvm.Unavailable without llvmlite; RuntimeError, with LLVM's words, for a text that is no valid module.
    """
    machine = _machine(target_for(capability))
    key = hashlib.sha256(f"{machine.fingerprint}\n{text}".encode()).hexdigest()
    found = _text(llvm.disk().get(key))
    if found is None:
        found = machine.emit_assembly(text)
        llvm.disk().put(key, found.encode())
    return found


def _text(body: bytes | None) -> str | None:
    """`body` if it is a module of PTX, which begins with comments and then its version."""
    if body is None:
        return None
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if "\n.version " in text[:1000] else None


@functools.cache
def _machine(capability: tuple[int, int]) -> llvm.Machine:
    return llvm.Machine("nvptx64-nvidia-cuda", "sm_{}{}".format(*capability), "")

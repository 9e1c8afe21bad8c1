"""An object file brought into this process: its sections are mapped, and addresses written where its code needs them.

LLVM has a loader of its own, but its library takes 30 ms and 40 MB to be there, which a process need not pay whose kernels all
come from the cache. What our compiler writes for x86-64 has two kinds of relocation, so little is to be done.

Code is never writable: pages are filled first, then their modes are set.
Source: System V Application Binary Interface, AMD64 supplement, table "Relocation types".
"""
from __future__ import annotations

import ctypes
import functools
import mmap
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from flambeau_kernels.engine.machine_code import elf
from flambeau_kernels.engine.runtime.never_freed import never_freed

__all__ = ["load"]

_WRITABLE, _IN_MEMORY, _CODE = 1, 2, 4                # flags of a section
_DISTANCE = 24                                        # the relocation that is relative to its place; the other is absolute
_LOCAL = 0                                            # the binding of a symbol that only its object sees
_READ = mmap.PROT_READ
# By flags of a section, in the order in which they lie in memory.
_MODES = {_CODE: _READ | mmap.PROT_EXEC, 0: _READ, _WRITABLE: _READ | mmap.PROT_WRITE}


class _Pages(NamedTuple):
    start: int
    size: int
    mode: int


def load(made: elf.Object, symbols: Iterable[str], elsewhere: Mapping[str, int]) -> dict[str, int]:
    """Addresses of `symbols`, of an object for the x86-64 processor at hand; its code stays for the life of the process.

    What it calls is looked up in `elsewhere`, then in the process.
    Raises: Malformed if the object lacks one of `symbols` or cannot be mapped; RuntimeError if it calls what is nowhere.
    """
    sections, pages = _mapped(made)
    values, exported = _symbols(made, sections, elsewhere)
    for number, entries in made.relocations.items():
        if number in sections and entries.size:
            _relocate(sections[number], made.sections[number].size, entries, values)
    for start, size, mode in pages:
        if _mprotect()(start, size, mode):
            error = ctypes.get_errno()
            raise RuntimeError(f"the system refuses to make {size} bytes of memory code: {os.strerror(error)}")
    lacking = [symbol for symbol in symbols if symbol not in exported]
    if lacking:
        raise elf.Malformed(f"it has no symbol {lacking[0]!r}")
    return {symbol: exported[symbol] for symbol in symbols}


def _mapped(made: elf.Object) -> tuple[dict[int, int], list[_Pages]]:
    """Addresses of the sections that belong into memory, by number, filled with what the file has for them; and their pages."""
    places: dict[int, int] = {}
    pages: list[_Pages] = []
    end = 0
    for flags, mode in _MODES.items():
        first = end
        for number, section in enumerate(made.sections):
            if not section.flags & _IN_MEMORY or section.type == elf.UNWIND or section.flags & (_WRITABLE | _CODE) != flags:
                continue
            if section.alignment > mmap.PAGESIZE:
                raise elf.Malformed(f"{section.alignment} is more than the size of a page")
            end += -end % section.alignment
            places[number] = end
            end += section.size
        end += -end % mmap.PAGESIZE
        if end > first:
            pages.append(_Pages(first, end - first, mode))
    if not pages:
        raise elf.Malformed("it has no code")
    memory = never_freed(mmap.mmap(-1, end, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    for number, place in places.items():
        section = made.sections[number]
        if section.type != elf.EMPTY:
            memory[place : place + section.size] = made.body[section.offset : section.offset + section.size]
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return {number: base + place for number, place in places.items()}, [_Pages(base + start, size, mode) for start, size, mode in pages]


def _symbols(made: elf.Object, sections: dict[int, int], elsewhere: Mapping[str, int]) -> tuple[np.ndarray, dict[str, int]]:
    """The value of each symbol, and those that others may ask for by name."""
    values, exported = [], {}
    for at, info, _, section, value, _ in made.symbols.tolist():
        if section == elf.ABSOLUTE:
            values.append(value)
        elif section:
            # A symbol of a section that is not in memory (unwinding tables) has no address, and nothing that is has use for it.
            values.append(sections[section] + value if section in sections else 0)
            if info >> 4 != _LOCAL:
                exported[_name(made.names, at)] = values[-1]
        else:
            values.append(_address(_name(made.names, at), elsewhere) if at else 0)
    return np.array(values, np.uint64), exported


def _name(names: bytes, at: int) -> str:
    return names[at : names.index(b"\0", at)].decode("utf-8", "replace")


def _address(name: str, elsewhere: Mapping[str, int]) -> int:
    if name in elsewhere:
        return elsewhere[name]
    try:
        return ctypes.addressof(ctypes.c_char.in_dll(_process(), name))
    except ValueError as error:
        raise RuntimeError(f"machine code calls {name!r}, which this process has not") from error


def _relocate(start: int, size: int, entries: np.ndarray, values: np.ndarray) -> None:
    """Write addresses into the section of `size` bytes at `start`."""
    offsets = entries["offset"].astype(np.int64)
    written = values[entries["symbol"]] + entries["addend"].astype(np.uint64)
    written -= np.where(entries["type"] == _DISTANCE, offsets + start, 0).astype(np.uint64)
    held = np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(start)), np.uint8)
    held[offsets[:, None] + np.arange(8)] = written.view(np.uint8).reshape(-1, 8)


@functools.cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def _mprotect():
    call = _process().mprotect
    call.argtypes, call.restype = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int], ctypes.c_int
    return call

"""Whether an object file hangs together, asked before LLVM is given one that comes from disk.

LLVM answers most damaged objects with an error, but some end the process: names outside the table of names, alignments
that are no powers of two, thread-local sections, kinds of relocation that it has no code for. What is looked at here is
what the loader follows: tables, names, symbols and relocations lie inside the file and are of the kinds that our compiler
writes. The instructions themselves cannot be judged; the digest and the owner of the file vouch for them.
Source: Tool Interface Standard, ELF specification 1.2, with its 64-bit amendment; the supplements for x86-64 and AArch64.
"""
from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

__all__ = ["MACHINES", "fault"]

# ELF's number of a processor, by the first part of LLVM's triples.
MACHINES = {"x86_64": 62, "aarch64": 183}

_HEADER = struct.Struct("<16s2HI3QI6H")
_SECTION = struct.Struct("<2I4Q2I2Q")
_SYMBOL = np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")])
_RELOCATION = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])

_IDENT = b"\x7fELF\x02\x01\x01"  # 64 bits, little endian, version 1
_RELOCATABLE = 1
_PROGBITS, _SYMTAB, _STRTAB, _RELA, _NOTE, _NOBITS, _UNWIND, _ADDRESSES = 1, 2, 3, 4, 7, 8, 0x70000001, 0x6FFF4C03
_TYPES = frozenset((_PROGBITS, _SYMTAB, _STRTAB, _RELA, _NOTE, _NOBITS, _UNWIND, _ADDRESSES))
_THREAD_LOCAL = 0x400
_ABSOLUTE = 0xFFF1
_SECTION_SYMBOL, _FILE_SYMBOL = 3, 4  # after those of data and functions
_LARGEST_ALIGNMENT = 1 << 16
_LARGEST_EMPTY = 1 << 30  # bytes of zeros that a section may ask for

# Bytes that the relocations our compiler writes change: addresses of 64 bits, absolute and relative, on x86-64;
# on AArch64 these, relative ones of 32 bits, the four instructions that build an address, jumps and calls.
_WIDTHS = {
    62: {1: 8, 24: 8},
    183: {257: 8, 260: 8, 261: 4, 264: 4, 266: 4, 268: 4, 269: 4, 282: 4, 283: 4},
}


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def fault(body: bytes, machine: int) -> str | None:
    """What is wrong with the relocatable object `body` for a processor of `MACHINES`; None if nothing is that can be seen."""
    if len(body) < _HEADER.size or not body.startswith(_IDENT):
        return "it does not start as a 64-bit ELF object"
    _, kind, found, _, _, _, start, _, _, _, programs, width, count, names = _HEADER.unpack_from(body)
    if kind != _RELOCATABLE or found != machine or programs or width != _SECTION.size:
        return "it is no relocatable object for this processor"
    end = start + count * _SECTION.size
    if not 0 < names < count or end > len(body):
        return "its table of sections is outside the file"
    sections = [_Section(*values) for values in _SECTION.iter_unpack(body[start:end])]
    return _sections_fault(body, sections, sections[names]) or _tables_fault(body, sections, _WIDTHS[machine])


def _sections_fault(body: bytes, sections: list[_Section], names: _Section) -> str | None:
    if any(sections[0]):
        return "its first section is not empty"
    for section in sections[1:]:
        if section.type == _NOBITS:
            inside = section.size <= _LARGEST_EMPTY
        else:
            inside = section.offset + section.size <= len(body)
        if not inside:
            return "a section is outside the file"
        if section.alignment & (section.alignment - 1) or not 0 < section.alignment <= _LARGEST_ALIGNMENT:
            return f"{section.alignment} is no alignment"
        if section.type not in _TYPES:
            return f"sections of the type {section.type} are not what our compiler writes"
        if section.flags & _THREAD_LOCAL or section.address:
            return "a section is thread-local or has an address already"
    return _names_fault(body, names, max(section.name for section in sections))


def _names_fault(body: bytes, table: _Section, last: int) -> str | None:
    """Whether names up to `last` begin inside the section `table`, which has to end with the end of a name."""
    if table.type != _STRTAB or not table.size or body[table.offset + table.size - 1]:
        return "a table of names is malformed"
    return "a name is outside its table" if last >= table.size else None


def _tables_fault(body: bytes, sections: list[_Section], widths: dict[int, int]) -> str | None:
    tables = [place for place, section in enumerate(sections) if section.type == _SYMTAB]
    if len(tables) != 1:
        return "it has not one table of symbols"
    table = sections[tables[0]]
    symbols = _entries(body, table, _SYMBOL)
    if symbols is None or not symbols.size or not 0 < table.link < len(sections):
        return "its table of symbols is malformed"
    reason = _names_fault(body, sections[table.link], int(symbols["name"].max())) or _symbols_fault(sections, symbols)
    for section in sections:
        if reason is None and section.type == _RELA:
            fits = section.link == tables[0] and 0 < section.info < len(sections)
            entries = _entries(body, section, _RELOCATION) if fits else None
            if entries is None:
                return "a table of relocations is malformed"
            reason = _relocations_fault(entries, sections[section.info].size, symbols["info"] & 15, len(body), widths)
    return reason


def _symbols_fault(sections: list[_Section], symbols: np.ndarray) -> str | None:
    place = symbols["section"]
    absolute = place == _ABSOLUTE
    kind = symbols["info"] & 15
    if kind.max() > _FILE_SYMBOL:
        return "a symbol is of a kind that our compiler does not write"
    if ((kind == _SECTION_SYMBOL) & ((place == 0) | absolute)).any():
        return "a symbol stands for a section that is not there"
    if not ((place < len(sections)) | absolute).all():
        return "a symbol is in a section that is not there"
    # Those that are looked up elsewhere (section 0) and those without a section have no place to be outside of.
    free = absolute | (place == 0)
    room = np.array([section.size for section in sections], np.uint64)[np.where(free, 0, place)]
    # Each is compared by itself first, so that their sum does not wrap around.
    value, size = symbols["value"], symbols["size"]
    inside = (value <= room) & (size <= room) & (value + size <= room)
    return None if (inside | free).all() else "a symbol is outside its section"


def _relocations_fault(entries: np.ndarray, room: int, kinds_of_symbols: np.ndarray, reach: int, widths: dict[int, int]) -> str | None:
    if not entries.size:
        return None
    kinds = sorted(set(entries["type"].tolist()))     # by a set: `np.unique` imports numpy.ma
    if not set(kinds) <= widths.keys():
        return f"relocations of the kinds {kinds} are not what our compiler writes"
    last = room - max(widths[kind] for kind in kinds)
    if last < 0 or entries["offset"].max() > last or entries["symbol"].max() >= kinds_of_symbols.size:
        return "a relocation is outside its section"
    if kinds_of_symbols[entries["symbol"]].max() > _SECTION_SYMBOL:
        return "a relocation names what is no place"
    if entries["addend"].max() > reach or entries["addend"].min() < -reach:
        return "a relocation leads far outside the object"
    return None


def _entries(body: bytes, section: _Section, kind: np.dtype) -> np.ndarray | None:
    if section.entry_size != kind.itemsize or section.size % kind.itemsize:
        return None
    return np.frombuffer(body, kind, section.size // kind.itemsize, section.offset)

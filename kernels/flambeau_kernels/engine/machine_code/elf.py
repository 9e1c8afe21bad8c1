"""The parts of an object file, and whether they hang together: asked before one is loaded, for it may come from disk.

A loader that believes a damaged object ends the process: names outside the table of names, alignments that are no powers of
two, thread-local sections, kinds of relocation that it has no code for. What is looked at here is what a loader follows:
tables, names, symbols and relocations lie inside the file and are of the kinds that our compiler writes. The instructions
themselves cannot be judged; the digest and the owner of the file vouch for them.
Source: Tool Interface Standard, ELF specification 1.2, with its 64-bit amendment; the supplements for x86-64 and AArch64.
"""
from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

__all__ = ["ABSOLUTE", "EMPTY", "MACHINES", "UNWIND", "X86_64", "Malformed", "Object", "Section", "read"]

# ELF's number of a processor, by the first part of LLVM's triples.
MACHINES = {"x86_64": 62, "aarch64": 183}
X86_64 = MACHINES["x86_64"]

_HEADER = struct.Struct("<16s2HI3QI6H")
_SECTION = struct.Struct("<2I4Q2I2Q")
_SYMBOL = np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")])
_RELOCATION = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])

_IDENT = b"\x7fELF\x02\x01\x01"  # 64 bits, little endian, version 1
_RELOCATABLE = 1
_PROGBITS, _SYMTAB, _STRTAB, _RELA, _NOTE, EMPTY, UNWIND, _ADDRESSES = 1, 2, 3, 4, 7, 8, 0x70000001, 0x6FFF4C03
_TYPES = frozenset((_PROGBITS, _SYMTAB, _STRTAB, _RELA, _NOTE, EMPTY, UNWIND, _ADDRESSES))
_THREAD_LOCAL = 0x400
ABSOLUTE = 0xFFF1
_SECTION_SYMBOL, _FILE_SYMBOL = 3, 4  # after those of data and functions
_LARGEST_ALIGNMENT = 1 << 16
_LARGEST_EMPTY = 1 << 30  # bytes of zeros that a section may ask for

# Bytes that the relocations our compiler writes change: addresses of 64 bits, absolute and relative, on x86-64;
# on AArch64 these, relative ones of 32 bits, the four instructions that build an address, jumps and calls.
_WIDTHS = {
    62: {1: 8, 24: 8},
    183: {257: 8, 260: 8, 261: 4, 264: 4, 266: 4, 268: 4, 269: 4, 282: 4, 283: 4},
}


class Section(NamedTuple):
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


class Malformed(RuntimeError):
    """What is no relocatable object that our compiler could have written; the message says why."""


class Object(NamedTuple):
    """A relocatable object.

    Attributes:
        sections: in their order; the first is empty.
        symbols: name (where in the table of names), info, section, value and size of each.
        names: the table of the symbols' names, each of which ends with a zero byte.
        relocations: by the number of the section whose bytes they change: offset, type, symbol and addend of each.
    """

    body: bytes
    sections: list[Section]
    symbols: np.ndarray
    names: bytes
    relocations: dict[int, np.ndarray]


def read(body: bytes, machine: int) -> Object:
    """The parts of the relocatable object `body` for a processor of `MACHINES`. Raises: Malformed."""
    if len(body) < _HEADER.size or not body.startswith(_IDENT):
        raise Malformed("it does not start as a 64-bit ELF object")
    _, kind, found, _, _, _, start, _, _, _, programs, width, count, names = _HEADER.unpack_from(body)
    if kind != _RELOCATABLE or found != machine or programs or width != _SECTION.size:
        raise Malformed("it is no relocatable object for this processor")
    end = start + count * _SECTION.size
    if not 0 < names < count or end > len(body):
        raise Malformed("its table of sections is outside the file")
    sections = [Section(*values) for values in _SECTION.iter_unpack(body[start:end])]
    _check_sections(body, sections, sections[names])
    return _with_tables(body, sections, _WIDTHS[machine])


def _check_sections(body: bytes, sections: list[Section], names: Section) -> None:
    if any(sections[0]):
        raise Malformed("its first section is not empty")
    for section in sections[1:]:
        if section.type == EMPTY:
            inside = section.size <= _LARGEST_EMPTY
        else:
            inside = section.offset + section.size <= len(body)
        if not inside:
            raise Malformed("a section is outside the file")
        if section.alignment & (section.alignment - 1) or not 0 < section.alignment <= _LARGEST_ALIGNMENT:
            raise Malformed(f"{section.alignment} is no alignment")
        if section.type not in _TYPES:
            raise Malformed(f"sections of the type {section.type} are not what our compiler writes")
        if section.flags & _THREAD_LOCAL or section.address:
            raise Malformed("a section is thread-local or has an address already")
    _check_names(body, names, max(section.name for section in sections))


def _check_names(body: bytes, table: Section, last: int) -> None:
    """Names up to `last` begin inside the section `table`, which has to end with the end of a name."""
    if table.type != _STRTAB or not table.size or body[table.offset + table.size - 1]:
        raise Malformed("a table of names is malformed")
    if last >= table.size:
        raise Malformed("a name is outside its table")


def _with_tables(body: bytes, sections: list[Section], widths: dict[int, int]) -> Object:
    tables = [place for place, section in enumerate(sections) if section.type == _SYMTAB]
    if len(tables) != 1:
        raise Malformed("it has not one table of symbols")
    table = sections[tables[0]]
    symbols = _entries(body, table, _SYMBOL)
    if symbols is None or not symbols.size or not 0 < table.link < len(sections):
        raise Malformed("its table of symbols is malformed")
    names = sections[table.link]
    _check_names(body, names, int(symbols["name"].max()))
    _check_symbols(sections, symbols)
    relocations: dict[int, np.ndarray] = {}
    for section in sections:
        if section.type == _RELA:
            fits = section.link == tables[0] and 0 < section.info < len(sections) and section.info not in relocations
            entries = _entries(body, section, _RELOCATION) if fits else None
            if entries is None:
                raise Malformed("a table of relocations is malformed")
            _check_relocations(entries, sections[section.info], symbols["info"] & 15, len(body), widths)
            relocations[section.info] = entries
    return Object(body, sections, symbols, body[names.offset : names.offset + names.size], relocations)


def _check_symbols(sections: list[Section], symbols: np.ndarray) -> None:
    place = symbols["section"]
    absolute = place == ABSOLUTE
    kind = symbols["info"] & 15
    if kind.max() > _FILE_SYMBOL:
        raise Malformed("a symbol is of a kind that our compiler does not write")
    if ((kind == _SECTION_SYMBOL) & ((place == 0) | absolute)).any():
        raise Malformed("a symbol stands for a section that is not there")
    if not ((place < len(sections)) | absolute).all():
        raise Malformed("a symbol is in a section that is not there")
    # Those that are looked up elsewhere (section 0) and those without a section have no place to be outside of.
    free = absolute | (place == 0)
    room = np.array([section.size for section in sections], np.uint64)[np.where(free, 0, place)]
    # Each is compared by itself first, so that their sum does not wrap around.
    value, size = symbols["value"], symbols["size"]
    inside = (value <= room) & (size <= room) & (value + size <= room)
    if not (inside | free).all():
        raise Malformed("a symbol is outside its section")


def _check_relocations(
    entries: np.ndarray, changed: Section, kinds_of_symbols: np.ndarray, reach: int, widths: dict[int, int]
) -> None:
    if not entries.size:
        return
    kinds = sorted(set(entries["type"].tolist()))     # by a set: `np.unique` imports numpy.ma
    if not set(kinds) <= widths.keys():
        raise Malformed(f"relocations of the kinds {kinds} are not what our compiler writes")
    if changed.type == EMPTY:
        raise Malformed("a relocation changes a section without bytes")
    last = changed.size - max(widths[kind] for kind in kinds)
    if last < 0 or entries["offset"].max() > last or entries["symbol"].max() >= kinds_of_symbols.size:
        raise Malformed("a relocation is outside its section")
    if kinds_of_symbols[entries["symbol"]].max() > _SECTION_SYMBOL:
        raise Malformed("a relocation names what is no place")
    if entries["addend"].max() > reach or entries["addend"].min() < -reach:
        raise Malformed("a relocation leads far outside the object")


def _entries(body: bytes, section: Section, kind: np.dtype) -> np.ndarray | None:
    if section.entry_size != kind.itemsize or section.size % kind.itemsize:
        return None
    return np.frombuffer(body, kind, section.size // kind.itemsize, section.offset)

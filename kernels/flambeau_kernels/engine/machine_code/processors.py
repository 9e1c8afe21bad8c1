"""Processors that kernels can be compiled for by name: FLAMBEAU_CPU.

A processor is named as LLVM names it. Its features are those that LLVM may use in code for it of its own accord, so a
processor that lacks one cannot run such code; features that programs have to ask for (random numbers, cryptography, control
of caches) are left out.

Sources: the levels of x86-64 are those of the "x86-64 psABI", section 3.1.1; other processors, their makers' manuals.
"""

from __future__ import annotations

import os
import platform

__all__ = ["chosen", "features_of", "missing"]

# Names, the processors above whose features they have, and what they add.
_X86 = """
x86-64             : sse sse2
x86-64-v2          x86-64 : cx16 popcnt sse3 sse4.1 sse4.2 ssse3
x86-64-v3          x86-64-v2 : avx avx2 bmi bmi2 f16c fma lzcnt movbe
x86-64-v4          x86-64-v3 : avx512bw avx512cd avx512dq avx512f avx512vl
nehalem            x86-64-v2 :
sandybridge        x86-64-v2 : avx
ivybridge          sandybridge : f16c
haswell            x86-64-v3 :
broadwell          haswell :
skylake            broadwell :
alderlake          skylake : avxvnni gfni
skylake-avx512     x86-64-v4 :
cascadelake        skylake-avx512 : avx512vnni
cooperlake         cascadelake : avx512bf16
icelake-server     cascadelake : avx512bitalg avx512ifma avx512vbmi avx512vbmi2 avx512vpopcntdq gfni
sapphirerapids     icelake-server : avx512bf16 avx512fp16 avxvnni
znver1             x86-64-v3 : sse4a
znver2             znver1 :
znver3             znver2 :
znver4             znver3 icelake-server : avx512bf16
znver5             znver4 : avxvnni
"""
_ARM = """
generic            : neon
cortex-a72         generic :
neoverse-n1        generic : lse
neoverse-n2        neoverse-n1 : sve sve2
neoverse-v1        neoverse-n1 : sve
neoverse-v2        neoverse-n2 :
apple-m1           neoverse-n1 :
"""


def _table(text: str) -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {}
    for line in text.strip().splitlines():
        head, _, added = line.partition(":")
        name, *above = head.split()
        table[name] = tuple(sorted({*added.split()}.union(*(table[other] for other in above))))
    return table


_FEATURES = {"x86_64": _table(_X86), "aarch64": _table(_ARM)}
_SPELLINGS = {"amd64": "x86_64", "arm64": "aarch64"}


def _architecture() -> str:
    name = platform.machine().lower()
    return _SPELLINGS.get(name, name)


def features_of(name: str) -> tuple[str, ...]:
    """LLVM's features of the processor `name`, which is one of this architecture. Raises: ValueError for any other."""
    here = _FEATURES.get(_architecture(), {})
    if name not in here:
        elsewhere = next((a for a, table in _FEATURES.items() if name in table), None)
        what = "is no processor that it knows" if elsewhere is None else f"is a processor of {elsewhere}, this one is of {_architecture()}"
        raise ValueError(f"FLAMBEAU_CPU: {name!r} {what}; there are {', '.join(here) or 'none of this architecture'}. "
                         "Without it kernels are compiled for the processor at hand")
    return here[name]


def chosen() -> str | None:
    """The processor that FLAMBEAU_CPU names; None for the one at hand. Raises: ValueError for an unknown name."""
    name = os.environ.get("FLAMBEAU_CPU", "").strip()
    if name in ("", "native"):
        return None
    features_of(name)
    return name


def missing(wanted: tuple[str, ...], host: dict[str, bool]) -> list[str]:
    """Those of the features `wanted` that the processor at hand has not; `host` is LLVM's account of it."""
    return [feature for feature in wanted if not host.get(feature)]

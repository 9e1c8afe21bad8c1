"""CRC-32 of the processor's own multiplication is zlib's."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib

import numpy as np
import pytest

from flambeau_kernels.cpu import checksum
from flambeau_kernels.engine.machine_code import llvm


@pytest.mark.parametrize("length", [0, 1, 63, 65535, 65536, 65537, 65536 + 63, 100_000, (1 << 20) + 17])
def test_checksums_are_zlibs(length):
    llvm.available()
    numbers = np.random.default_rng(length)
    for data in (numbers.integers(0, 256, length).astype(np.uint8), np.zeros(length, np.uint8), np.full(length, 255, np.uint8)):
        assert checksum.crc32(data) == zlib.crc32(data)
        assert checksum.crc32(data[3:].tobytes()) == zlib.crc32(data[3:])
        assert checksum.crc32(memoryview(data)[length // 3 :]) == zlib.crc32(data[length // 3 :])


@pytest.mark.parametrize("length", [0, 5, 65536, 65536 + 77])
def test_checksums_go_on_from_those_of_the_bytes_before(length):
    llvm.available()
    first, second = os.urandom(70_000), os.urandom(length)
    both = zlib.crc32(first + second)

    assert checksum.crc32(second, checksum.crc32(first)) == both
    assert checksum.joined(zlib.crc32(first), zlib.crc32(second), length) == both


@pytest.mark.skipif(llvm.available() is not None, reason="no compiler")
@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_registers_of_every_width_sum_up_the_same(lanes, monkeypatch):
    has, bits = llvm.machine().host_features, llvm.machine().register_bits
    if not has.get("pclmul") or (lanes > 1 and not has.get("vpclmulqdq")) or 128 * lanes > bits:
        pytest.skip("the processor cannot multiply so")
    data = os.urandom(100_003)
    monkeypatch.setattr(checksum, "_lanes", lambda: lanes)
    monkeypatch.setattr(checksum, "_fold", checksum._fold.__wrapped__)

    assert checksum.crc32(data) == zlib.crc32(data)


def test_a_processor_without_the_instruction_goes_on_with_zlib(monkeypatch):
    monkeypatch.setattr(checksum, "_fold", lambda: None)
    data = np.arange(200_000, dtype=np.uint32).view(np.uint8)
    assert checksum.crc32(data) == zlib.crc32(data)


@pytest.mark.skipif(llvm.available() is not None, reason="no compiler")
def test_the_instruction_is_used_where_the_processor_has_it():
    assert (checksum._fold() is not None) == bool(llvm.machine().host_features.get("pclmul"))


@pytest.mark.skipif(llvm.available() is not None, reason="no compiler")
@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3"])
def test_a_processor_named_by_its_level_sums_up_by_the_instruction_too(name):
    host = llvm.machine().host_features
    if not host.get("pclmul") or llvm.Machine(cpu=name).missing:
        pytest.skip("the processor cannot multiply so")
    code = (
        "import os, zlib; from flambeau_kernels.cpu import checksum; from flambeau_kernels.engine.machine_code import llvm;"
        "llvm.available(); data = os.urandom(100_003); print(checksum._fold() is not None and checksum.crc32(data) == zlib.crc32(data))"
    )
    environment = {**os.environ, "FLAMBEAU_CPU": name}

    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "True"

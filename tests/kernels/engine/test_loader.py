"""Objects loaded without LLVM: what code may do in memory, and processes whose kernels all come from the cache."""

from __future__ import annotations

import ctypes
import math
import os
import platform
import sys

import pytest

from flambeau_kernels.engine.machine_code import elf, llvm, loader, targets

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64" or llvm.available() is not None, reason="LLVM loads the objects here"
)

# A table of constants, a word that starts at zero and one that does not, and a function of the process.
TEXT = """
@table = private constant [3 x double] [double 0.5, double 2.0, double 8.0]
@calls = internal global i64 0
@first = internal global i64 40
declare double @cos(double)
define double @of_table(i64 %i) {
  %at = getelementptr double, ptr @table, i64 %i
  %x = load double, ptr %at
  %y = call double @cos(double %x)
  ret double %y
}
define i64 @count() {
  %n = load i64, ptr @calls
  %more = add i64 %n, 1
  store i64 %more, ptr @calls
  %start = load i64, ptr @first
  %sum = add i64 %more, %start
  ret i64 %sum
}
"""


def loaded(text, *symbols, elsewhere=None):
    return loader.load(elf.read(llvm.machine().emit_object(text), elf.X86_64), symbols, elsewhere or {})


def test_code_reads_its_constants_and_calls_the_process():
    address = loaded(TEXT, "of_table")["of_table"]
    function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(address)

    assert [function(i) for i in range(3)] == [math.cos(0.5), math.cos(2.0), math.cos(8.0)]


def test_words_keep_what_is_stored_and_each_load_has_its_own():
    first, second = (ctypes.CFUNCTYPE(ctypes.c_int64)(loaded(TEXT, "count")["count"]) for _ in range(2))

    assert [first(), first(), second(), first()] == [41, 42, 41, 43]


def test_named_addresses_go_before_those_of_the_process():
    double = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(lambda x: 2 * x)
    address = loaded(TEXT, "of_table", elsewhere={"cos": ctypes.cast(double, ctypes.c_void_p).value})["of_table"]

    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(address)(2) == 16.0


def pages():
    """Places and modes of the memory of this process."""
    with open("/proc/self/maps") as file:
        return {tuple(line.split()[:2]) for line in file}


def test_no_page_is_writable_and_code():
    before = pages()
    address = loaded(TEXT, "count")["count"]
    new = pages() - before
    modes = {mode for place, mode in new if int(place.split("-")[0], 16) <= address < int(place.split("-")[1], 16)}

    assert modes == {"r-xp"}
    assert not [mode for _, mode in new if "wx" in mode]


def test_a_symbol_that_is_not_there_is_named():
    with pytest.raises(elf.Malformed, match="it has no symbol 'other'"):
        loaded(TEXT, "count", "other")


def test_a_function_that_is_nowhere_is_named():
    with pytest.raises(RuntimeError, match="'nowhere_at_all'"):
        loaded(TEXT.replace("@cos", "@nowhere_at_all"), "of_table")


# -- processes that need no compiler -------------------------------------------------------------------------------------------

PROGRAM = """
import sys
import flambeau as fb
x = (fb.arange(5000) / 100).tanh().sum().item()
print(x.hex(), "llvmlite" in sys.modules)
"""


def test_kernels_of_the_cache_run_without_llvm_and_to_the_same_bits(tmp_path, fresh_python):
    first, second = (fresh_python("-c", PROGRAM, FLAMBEAU_CACHE=str(tmp_path), FLAMBEAU_BACKEND="llvm").split() for _ in range(2))

    assert first[1] == "True"
    assert second == [first[0], "False"]


def test_a_damaged_account_of_the_processor_is_asked_for_again(tmp_path, fresh_python):
    own = {"FLAMBEAU_CACHE": str(tmp_path), "FLAMBEAU_BACKEND": "llvm"}
    first = fresh_python("-c", PROGRAM, **own).split()
    key = targets.key(os.environ.get("FLAMBEAU_CPU"))
    fresh_python("-c", f"from flambeau_kernels.engine.machine_code import llvm; llvm.disk().put({key!r}, b'x86_64\\nthis')", **own)

    assert fresh_python("-c", PROGRAM, **own).split() == first
    assert fresh_python("-c", PROGRAM, **own).split() == [first[0], "False"]


def test_each_processor_that_is_asked_for_has_its_own_account():
    keys = {targets.key(cpu) for cpu in (None, "x86-64-v2", "x86-64-v3")}

    assert len(keys) == 3
    made = targets.Target("t", "c", "+a", "h", "+a,-b", "e-m:e", "(20, 1, 8)")
    assert targets.Target.unpacked(made.packed()) == made
    assert targets.Target.unpacked(made.packed()[:-1]) is None


def test_where_the_compiler_cannot_be_loaded_kernels_of_the_cache_run_and_numpy_computes_the_rest(tmp_path, fresh_python):
    own = {"FLAMBEAU_CACHE": str(tmp_path), "FLAMBEAU_BACKEND": "llvm"}
    first = fresh_python("-c", PROGRAM, **own).split()
    hidden = """
import warnings
from flambeau_kernels.engine.machine_code import llvm
def fails():
    raise llvm.Unavailable("no compiler today")
llvm._llvmlite = fails
"""
    told = fresh_python("-c", hidden + PROGRAM + """
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    y = fb.full((5000,), 0.5).exp()
    z = fb.full((5000,), 0.5).sin()
print(round(y[0].item(), 4), round(z[0].item(), 4), [str(w.message) for w in said], llvm.available())
""", **own)

    assert told.split()[:2] == [first[0], "False"]
    assert "1.6487 0.4794" in told
    assert told.count("the numpy tier runs: no compiler today") == 1
    assert told.rstrip().endswith("] no compiler today")

"""FLAMBEAU_CPU: kernels for other processors than the one at hand, and results that do not depend on which it is."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flambeau_kernels.engine.machine_code import llvm, processors

from . import processor_sample

LEVELS = ("x86-64-v2", "x86-64-v3")
pytestmark = [
    pytest.mark.skipif(llvm.available() is not None, reason="nothing can be compiled here"),
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="processors of other kinds have no such names"),
]


def started(*command, **environment):
    """A process of Python that finds this checkout."""
    root = Path(__file__).parents[3]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root / "framework"), str(root / "kernels"))), **environment}
    return subprocess.Popen([sys.executable, *command], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said(process):
    """What it wrote to stdout and stderr."""
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out, err


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """The results of `processor_sample.py` by processor, and those of numpy's expressions."""
    folder = tmp_path_factory.mktemp("samples")
    script = Path(processor_sample.__file__)
    compiled = {"FLAMBEAU_BACKEND": "llvm", "FLAMBEAU_CACHE": str(folder / "cache")}
    runs = {name: started(script, folder / f"{name}.npz", FLAMBEAU_CPU=name, **compiled) for name in LEVELS}
    runs["numpy"] = started(script, folder / "numpy.npz", FLAMBEAU_BACKEND="numpy")
    for run in runs.values():
        assert said(run) == ("", "")  # LLVM has nothing to say about any of them
    return {name: dict(np.load(folder / f"{name}.npz")) for name in runs}


def test_special_values_are_those_of_the_reference_on_every_processor(samples):
    for name in LEVELS:
        for case, wanted in samples["numpy"].items():
            made = samples[name][case]
            assert made.dtype == wanted.dtype, case
            if wanted.dtype.kind != "f":
                np.testing.assert_array_equal(made, wanted, case)
                continue
            for odd in (np.isnan, np.isposinf, np.isneginf):
                np.testing.assert_array_equal(odd(made), odd(wanted), f"{odd.__name__} of {case} for {name}")


def test_values_are_near_those_of_the_reference_on_every_processor(samples):
    for name in LEVELS:
        for case, wanted in samples["numpy"].items():
            # A mean of 1000 is rounded to 3e-5; halves are rounded too.
            room = 1e-3 if "_far" in case else 2.0**-7 if "bfloat16" in case else 2.0**-10 if "float16" in case else 1e-4
            np.testing.assert_allclose(samples[name][case], wanted, rtol=room, atol=room, err_msg=f"{case} for {name}")


def test_elementwise_results_conversions_and_draws_have_the_same_bits_on_every_processor(samples):
    one, other = (samples[name] for name in LEVELS)
    same = tuple(family.__name__ for family in processor_sample.SAME_BITS)
    for case in one:
        if case.startswith(same):
            np.testing.assert_array_equal(one[case], other[case], case)
            number = one[case] == one[case]                            # nan may have either sign
            np.testing.assert_array_equal(np.signbit(one[case][number]), np.signbit(other[case][number]), case)


def test_sums_and_normalizations_have_the_same_bits_on_every_processor(samples):
    one, other = (samples[name] for name in LEVELS)
    for case in one:
        if case.removeprefix("along ").startswith(("sum", "softmax", "mean_pool", "layer_norm", "rms_norm", "batch_norm", "group_norm")):
            np.testing.assert_array_equal(one[case], other[case], case)


def test_a_processor_that_is_not_known_is_refused_at_import():
    process = started("-c", "import flambeau", FLAMBEAU_CPU="x86-64-v9")
    _, err = process.communicate(timeout=600)

    assert process.returncode == 1
    assert "ValueError: FLAMBEAU_CPU: 'x86-64-v9' is no processor that it knows; there are x86-64, x86-64-v2" in err


def test_a_processor_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="'neoverse-n1' is a processor of aarch64, this one is of x86_64"):
        processors.features_of("neoverse-n1")


def test_code_that_this_processor_cannot_run_is_only_shown(monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CPU", "znver4")
    monkeypatch.setattr(processors, "missing", lambda wanted, host: [f for f in wanted if f.startswith("avx512f")])

    with pytest.raises(RuntimeError, match=r"FLAMBEAU_CPU=znver4: this processor, .*, cannot run such code, as it has no avx512f\."):
        llvm.new_machine()
    text = "define <16 x float> @f(<16 x float> %a) {\n%b = fadd <16 x float> %a, %a\nret <16 x float> %b\n}\n"
    assert "zmm0" in llvm.Machine(cpu="znver4").emit_assembly(text)


def test_what_a_processor_lacks():
    host = dict.fromkeys(processors.features_of("x86-64-v3"), True)

    assert processors.missing(processors.features_of("haswell"), host) == []
    assert "avx512f" in processors.missing(processors.features_of("skylake-avx512"), host)


def test_objects_of_one_processor_are_not_taken_for_those_of_another(monkeypatch):
    keys = set()
    for name in LEVELS:
        monkeypatch.setenv("FLAMBEAU_CPU", name)
        machine = llvm.new_machine()
        monkeypatch.setattr(llvm, "_machine_or_reason", lambda machine=machine: machine)
        keys.add(llvm._key("facts"))

    assert len(keys) == 2


_EVERY_NAME = """
import llvmlite.binding as llvm
from flambeau_kernels.engine.machine_code import processors
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
for architecture, table in processors._FEATURES.items():
    target = llvm.Target.from_triple(architecture + "-unknown-linux-gnu")
    for name, features in table.items():
        machine = target.create_target_machine(cpu=name, features=",".join("+" + f for f in features))
        machine.emit_object(llvm.parse_assembly("define i32 @f(i32 %a) {ret i32 %a}"))
"""


def test_llvm_knows_every_name_and_feature_of_the_table():
    assert said(started("-c", _EVERY_NAME)) == ("", "")


_HALVES = """
import numpy as np
import flambeau_kernels as kernels
from flambeau_kernels.formula import Formula

same = Formula(lambda x: x, "same")
every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
widened = np.empty(every.shape, np.float32)
kernels.launch(same, (every,), (widened,), np.dtype(np.float32))
assert widened.tobytes() == every.astype(np.float32).tobytes() or (
    np.isnan(every) | (widened.view(np.uint32) == every.astype(np.float32).view(np.uint32))).all()
assert np.isnan(widened[np.isnan(every)]).all()

bits = np.random.default_rng(0).integers(0, 1 << 32, 200_000, dtype=np.uint32)
between = (widened[:31743].astype(np.float64) + widened[1:31744]) / 2                     # ties, among them those of the smallest numbers
values = np.concatenate([bits.view(np.float32), between.astype(np.float32), -between.astype(np.float32), widened,
                         np.nextafter(between.astype(np.float32), np.float32(9e9)), np.float32([65519.996, 65520, 1e38])])
narrowed = np.empty(values.shape, np.float16)
kernels.launch(same, (values,), (narrowed,), np.dtype(np.float32))
with np.errstate(all="ignore"):
    wanted = values.astype(np.float16)
assert ((narrowed.view(np.uint16) == wanted.view(np.uint16)) | np.isnan(values)).all()
assert np.isnan(narrowed[np.isnan(values)]).all()
"""


@pytest.mark.parametrize("name", LEVELS)
def test_halves_are_converted_as_numpy_does_also_without_instructions_for_it(name):
    said(started("-c", _HALVES, FLAMBEAU_BACKEND="llvm", FLAMBEAU_CPU=name))


ALL_DRAWS = """
import flambeau as fb
for dtype in (fb.float32, fb.float64, fb.float16, fb.bfloat16, fb.complex64, fb.complex128):
    x = fb.randn(200000, dtype=dtype)
    fb.rand(200000, dtype=dtype)
    x.normal_(1, 2)
    if not dtype.is_complex:
        for draw in ("uniform_", "exponential_", "log_normal_", "cauchy_", "bernoulli_", "random_"):
            getattr(x, draw)()
        x.geometric_(0.5)
        fb.nn.functional.dropout(x)
for dtype in (fb.int8, fb.uint8, fb.int16, fb.int32, fb.int64, fb.bool):
    fb.empty(200000, dtype=dtype).random_()
    fb.empty(200000, dtype=dtype).bernoulli_(0.3)
fb.randperm(200000)
"""


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_compiling_the_kernels_of_random_numbers_prints_nothing_on_any_processor(level, tmp_path):
    from llvmlite import binding

    lacking = processors.missing(processors.features_of(level), binding.get_host_cpu_features())
    if lacking:
        pytest.skip(f"this processor has no {lacking[0]}")

    done = said(started("-c", ALL_DRAWS, FLAMBEAU_CPU=level, FLAMBEAU_CACHE=str(tmp_path), FLAMBEAU_BACKEND="llvm"))

    assert done == ("", "")
    assert list(tmp_path.iterdir())


def described(folder, *caches):
    """A folder as Linux describes caches in: of each what its files say."""
    for i, words in enumerate(caches):
        (folder / f"index{i}").mkdir(parents=True)
        for name, word in words.items():
            (folder / f"index{i}" / name).write_text(f"{word}\n")
    return folder


@pytest.fixture
def caches_of(monkeypatch):
    """What is read of a folder that describes caches."""
    from flambeau_kernels.engine.machine_code import cache_sizes

    def read(folder):
        monkeypatch.setattr(cache_sizes, "FOLDER", folder)
        cache_sizes.caches.cache_clear()
        return cache_sizes.caches()

    yield read
    cache_sizes.caches.cache_clear()


def test_sizes_of_caches_are_read_from_the_system(caches_of, tmp_path):
    folder = described(
        tmp_path / "cache",
        {"level": 1, "type": "Data", "size": "48K", "ways_of_associativity": 12},
        {"level": 1, "type": "Instruction", "size": "16K", "ways_of_associativity": 4},
        {"level": 2, "type": "Unified", "size": "2M", "ways_of_associativity": 16},
        {"level": 3, "type": "Unified", "size": "1G", "ways_of_associativity": 16},
    )

    assert caches_of(folder) == (48 << 10, 12, 2 << 20)


def test_sizes_of_caches_that_the_system_does_not_tell_are_usual_ones(caches_of, tmp_path):
    from flambeau_kernels.engine.machine_code import cache_sizes

    usual = cache_sizes.FIRST, cache_sizes.WAYS, cache_sizes.SECOND
    partly = described(tmp_path / "partly", {"level": 1, "type": "Data", "size": "64K"}, {"level": 2, "type": "Unified", "size": "unknown"})

    assert caches_of(tmp_path / "nothing") == usual
    assert caches_of(partly) == (64 << 10, *usual[1:])
    assert caches_of(described(tmp_path / "odd", {"level": 2, "type": "Unified", "size": "0K"})) == usual


@pytest.mark.skipif(sys.platform != "linux", reason="where Linux tells them")
def test_sizes_of_caches_of_this_machine_are_plausible():
    from flambeau_kernels.engine.machine_code import cache_sizes

    here = cache_sizes.caches()

    assert here.ways > 0
    assert 8 << 10 <= here.first <= here.second
    if (cache_sizes.FOLDER / "index2/size").exists():
        assert f"{here.second >> 10}K" in {(folder / "size").read_text().strip() for folder in cache_sizes.FOLDER.glob("index*")}


def test_every_register_tile_keeps_all_units_busy_that_a_processor_may_have():
    """Four cycles for a sum, and two units on x86-64, four on AArch64: so the number of units is no part of the key."""
    from flambeau_kernels.cpu.register_tiles import TILES

    least = {(64, 32): 8, (32, 16): 8, (16, 16): 8, (16, 32): 16}
    for name, tiles in TILES.items():
        for registers, (rows, vectors) in tiles.items():
            assert rows * vectors >= least[registers], (name, registers)

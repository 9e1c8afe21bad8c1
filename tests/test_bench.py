"""The benchmark beside PyTorch: its cases are read, wrong results are told, and it ends with 1 for one."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fb

BENCH = Path(__file__).resolve().parents[1] / "bench"


@pytest.fixture(scope="module")
def bench() -> Any:
    """The modules `against_torch` and `cases`."""
    made = []
    for name in ("against_torch", "cases"):
        spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        made.append(module)
    return made


def test_each_case_has_a_name_of_its_own_and_can_be_compiled(bench: Any) -> None:
    cases = bench[1].CASES

    assert len({case.id for case in cases}) == len(cases) > 90
    for case in cases:
        compile(case.given + "\n" + case.step, case.id, "exec")
    assert {case.id.partition("/")[0] for case in cases if case.core} == set(bench[1].GROUPS)


def test_the_cases_of_calls_run(bench: Any) -> None:
    scope = bench[1].words("flambeau")

    for case in bench[1].CASES:
        if case.id.startswith(("call/", "modes/")):
            told = bench[1].summary(bench[1].made(case, scope)())
            assert all(np.isfinite(one["values"]).all() for one in told), case.id


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (fb.ones(3), r"shape \[2\], PyTorch \[3\]"),
        (fb.ones(2, dtype=fb.float64), "dtype float32, PyTorch float64"),
        (fb.tensor([1.0, 1.001]), "value 1, PyTorch 1.0005"),
        ((fb.ones(2), fb.ones(2)), "1 results, PyTorch 2"),
    ],
)
def test_results_that_differ_are_told(bench: Any, other: Any, words: str) -> None:

    ours, theirs = bench[1].summary(fb.ones(2)), bench[1].summary(other)

    assert re.match(words, bench[0].differences(ours, theirs, 1e-5))
    assert not bench[0].differences(theirs, theirs, 0.0)


def test_it_runs_beside_pytorch() -> None:
    pytest.importorskip("torch")
    command = [sys.executable, str(BENCH / "against_torch.py"), "--check", "--only", "^call/(add|view)$"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("against torch: 2 agree, 0 wrong or failed\n")


def test_samples_of_operators_are_timed_beside_pytorch() -> None:
    pytest.importorskip("torch")
    command = [sys.executable, str(BENCH / "operators.py"), "--only", "^(add|cat)$", "--samples", "1", "--below", "1000"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert {line.split()[1] for line in lines[:-1]} == {"add", "cat"}
    assert all(float(line.split("x ")[0]) > 0 and " PyTorch " in line for line in lines[:-1])
    assert re.fullmatch(r"operators: geomean \d+\.\d\dx over 2 operators, [012] behind", lines[-1])


def test_samples_that_add_no_kind_of_argument_come_last() -> None:
    spec = importlib.util.spec_from_file_location("operators", BENCH / "operators.py")
    assert spec is not None
    assert spec.loader is not None
    operators = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(operators)
    plain, again, other = (
        types.SimpleNamespace(input=fb.ones(2, 3), args=(), kwargs=kwargs) for kwargs in ({}, {}, {"dim": 1})
    )

    assert operators.chosen([plain, again, other], 2) == [other, plain]
    assert len(operators.chosen([plain, again, other], 5)) == 3


def test_the_search_for_tiles_tries_those_of_the_table_and_multiplies_with_them() -> None:
    from flambeau_kernels.cpu import register_tiles
    from flambeau_kernels.cpu.tier import compiles

    spec = importlib.util.spec_from_file_location("search_tiles", BENCH / "search_tiles.py")
    assert spec is not None
    assert spec.loader is not None
    search = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(search)

    assert list(search.CASES) == list(register_tiles.TILES)
    for name, table in register_tiles.TILES.items():
        for (_, count), tile in table.items():
            assert tile in search.candidates(count, name), (name, tile)
    if not compiles():
        pytest.skip("nothing is compiled here")
    assert tuple(search.measured("products", None, "float32", [])) == register_tiles.registers()
    small = {"products": 64, "recurrent": [2, 3, 4, 5], "convolutions": [[1, 3, 8, 8], [4, 3, 3, 3], 1]}
    for name, case in small.items():
        (speed,) = search.measured(name, (4, 2), "float32", [case])
        assert speed > 0


@pytest.fixture(scope="module")
def compiled() -> Any:
    """The module `compiled`, beside which it finds `models`."""
    spec = importlib.util.spec_from_file_location("bench_compiled", BENCH / "compiled.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        spec.loader.exec_module(module)
        yield module
        sys.modules.pop("models", None)


def test_compiled_models_are_timed_where_pytorch_is_not_installed(compiled: Any, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(compiled, "reference", lambda: None)
    threads = fb.get_num_threads()
    try:
        found = compiled.models(["vae_large", "gated.infer"], 0.02, threads)
    finally:
        fb.set_num_threads(threads)

    assert len(found) == 3
    assert all(np.isnan(theirs) and own > 0 for theirs, own in found)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["gated.infer", "vae_large.train", "vae_large.infer"]


@pytest.mark.parametrize("name", ["mlp", "resnet18", "gpt2", "lstm", "vae", "vit"])
def test_large_models_give_what_they_give_compiled(name: str, compiled: Any) -> None:
    import models  # pyright: ignore[reportMissingImports]  # beside `compiled`

    for trains in (True, False):
        eager, fast = (compiled.large_sides(fb, models.MODELS[name], trains, compiles) for compiles in (False, True))
        for _ in range(2):
            one, other = ([r] if isinstance(r, fb.Tensor) else r for r in (eager(), fast()))
            assert all(fb.equal(a, b) for a, b in zip(one, other, strict=True))

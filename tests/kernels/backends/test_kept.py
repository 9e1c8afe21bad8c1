"""Choosing another backend: no family of kernels keeps what the engine before it compiled."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flambeau_kernels import engines

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(engines.chosen().name != "llvm", reason="compiles with another engine, which takes minutes, or not at all")
def test_no_family_keeps_kernels_of_the_engine_before():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "framework"), str(ROOT / "kernels")))}
    command = [sys.executable, str(Path(__file__).with_name("kept_sample.py"))]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert int(done.stderr.split()[-1]) > 80


@pytest.mark.parametrize("path", sorted((ROOT / "kernels" / "flambeau_kernels" / "cpu").rglob("*.py")), ids=lambda p: p.stem)
def test_functions_that_make_kernels_keep_them_by_engine(path):
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        makes = any(isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "form" for n in ast.walk(function))
        decorators = [ast.unparse(d) for d in function.decorator_list]
        assert not (makes and any("cache" in d for d in decorators)), f"{function.name} is kept by {decorators}: `engines.kept` forgets"

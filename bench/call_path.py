"""Python functions that one call enters, and the sizes of what lies behind it: ``python bench/call_path.py [expression]``.

The call, ``a + b`` of tensors of shape (4, 4) unless another expression is given, is counted once it has run so often that all that
is compiled late has been: alone, under autocast, under vmap, with an operand of a subclass, and on the simulated device. Lines of
code of the two packages follow, with the lengths of the lists of exceptions that tests only let shrink.
"""

from __future__ import annotations

import argparse
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CALLS_BEFORE = 6000


def functions_entered(call: Callable[[], Any]) -> list[str]:
    """Names of the Python functions that `call` enters, in order, without its own."""
    for _ in range(CALLS_BEFORE):
        call()
    entered: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered[1:]


def count(expression: str, device: str) -> dict[str, list[str]]:
    """Situation -> the functions that `expression` enters in it."""
    import flambeau as fb

    def entered(a: fb.Tensor, b: fb.Tensor) -> list[str]:
        return functions_entered(eval(f"lambda: {expression}", {"fb": fb, "F": fb.nn.functional, "a": a, "b": b}))

    def inner(a: fb.Tensor, b: fb.Tensor) -> fb.Tensor:
        found["vmap"] = entered(a, b)
        return a

    class Subclass(fb.Tensor):
        pass

    a, b = fb.ones(4, 4, device=device), fb.ones(4, 4, device=device)
    if device != "cpu":
        return {"simulated device": entered(a, b)}
    found = {"alone": entered(a, b)}
    with fb.autocast("cpu", dtype=fb.bfloat16):
        found["autocast"] = entered(a, b)
    fb.func.vmap(inner)(fb.ones(8, 4, 4), fb.ones(8, 4, 4))
    found["subclass"] = entered(a.as_subclass(Subclass), b)
    found["alone, after a subclass"] = entered(a, b)
    return found


def lines(folder: Path) -> int:
    """Lines of the Python files below `folder`."""
    return sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py"))


def exceptions() -> dict[str, int]:
    """What tests list as not yet in order -> how much of it there is."""
    rules = runpy.run_path(str(ROOT / "tests" / "ops" / "test_arrays_in_rules.py"))["ALLOWED"]
    edges = runpy.run_path(str(ROOT / "tests" / "test_order_of_imports.py"))["ALLOWED"]
    return {
        "rules and compositions that touch arrays": sum(len(names.split()) for names in rules.values()),
        "imports against the order": len(edges),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("expression", nargs="?", default="a + b", help="of tensors a and b; fb and F are known")
    parser.add_argument("--device", default="cpu", help=argparse.SUPPRESS)  # cuda is what the command itself starts
    args = parser.parse_args()
    for situation, names in count(args.expression, args.device).items():
        print(f"{situation:24} {len(names):3} Python functions  {' '.join(names[:12])}{' ...' if len(names) > 12 else ''}")
    if args.device != "cpu":
        return
    command = [sys.executable, __file__, args.expression, "--device", "cuda"]
    subprocess.run(command, env={**os.environ, "FLAMBEAU_CUDA_SIMULATOR": "1"}, check=True)
    for package in ("framework", "kernels"):
        print(f"{package + ', lines':24} {lines(ROOT / package)}")
    for what, number in exceptions().items():
        print(f"{what}: {number}")


if __name__ == "__main__":
    main()

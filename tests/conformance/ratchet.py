"""The conformance ratchet: what has passed once keeps passing.

    python tests/conformance/ratchet.py --check     # run what the record covers, fail on anything that was better
    python tests/conformance/ratchet.py --update    # run everything, record it; refuses to lose a passing check

`record.json` holds, for every subject with a passing check, which checks fail. What compares is the harness in ``../shared/conformance``
where it lies beside the repository, and `against_torch.py` elsewhere, with a record of its own, `own_record.json` (`--own` chooses it).
Both need PyTorch; without it `--check` says so and passes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HARNESS = ROOT.parent / "shared" / "conformance" / "run.py"
RECORD = HERE / "record.json"
OWN, OWN_RECORD = HERE / "against_torch.py", HERE / "own_record.json"
COMMANDS = ("ops", "modules", "optim")
_NAMES = {"ops": "--ops", "modules": "--modules", "optim": "--optims"}
# A check that only ran out of time on a busy machine is no step back.
PASSING_OVER = {"timeout"}


def run(command: str, names: list[str] | None, jobs: int) -> dict[str, Any]:
    """One run of the harness over `names` (all for None), as its JSON report."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        arguments = [sys.executable, str(HARNESS), command, "--json", str(report), "--jobs", str(jobs), "--quiet"]
        if names is not None:
            listed = Path(folder) / "names"
            listed.write_text("\n".join(names), encoding="utf-8")
            arguments += [_NAMES[command], f"@{listed}"]
        path = os.pathsep.join([str(ROOT / "framework"), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            arguments, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 1) or not report.exists():
            raise SystemExit(f"the conformance harness failed ({command}):\n{done.stdout}{done.stderr}")
        print(done.stdout.strip().splitlines()[-1])
        return json.loads(report.read_text(encoding="utf-8"))


def run_own(command: str, jobs: int) -> dict[str, Any]:
    """One run of `against_torch.py`, summarized."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        arguments = [sys.executable, str(OWN), command, "--json", str(report), "--jobs", str(jobs)]
        done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode or not report.exists():
            raise SystemExit(f"{OWN.name} failed ({command}):\n{done.stdout}{done.stderr}")
        print(done.stdout.strip().splitlines()[-1])
        found = json.loads(report.read_text(encoding="utf-8"))[command]
    return {
        subject: {"failing": sorted(what for what, wrong in checks if wrong)}
        for subject, checks in found.items()
        if any(not wrong for _, wrong in checks)
    }


def summarize(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Subject -> number of checks and the failing ones, for every subject with a passing check."""
    failing: dict[str, list[str]] = {}
    excused: dict[str, list[str]] = {}
    for failure in report["failures"]:
        name = "/".join(str(failure[key]) for key in ("dtype", "variant", "sample"))
        (excused if failure["kind"] in PASSING_OVER else failing).setdefault(failure["subject"], []).append(name)
    made = {}
    for subject, dtypes in report["subjects"].items():
        passed = sum(p for variants in dtypes.values() for p, _ in variants.values())
        if passed:
            made[subject] = {"failing": sorted(failing.get(subject, [])), "excused": excused.get(subject, [])}
    return made


def losses(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What passed in `before` and does not in `now`."""
    lost = []
    for subject, was in before.items():
        if subject not in now:
            lost.append(f"{subject}: nothing passes any more")
            continue
        new = set(now[subject]["failing"]) - set(was["failing"])
        lost += [f"{subject}: {name}" for name in sorted(new)]
    return lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true")
    what.add_argument("--update", action="store_true")
    parser.add_argument("--only", choices=COMMANDS, help="one part of the record")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--force", action="store_true", help="record losses too, each of which needs its reason in the commit")
    parser.add_argument("--own", action="store_true", help="compare by against_torch.py")
    options = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("skipped: PyTorch is not here")
        return 0
    own = options.own or not HARNESS.exists()
    kept = OWN_RECORD if own else RECORD
    record = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    lost: list[str] = []
    for command in (options.only,) if options.only else COMMANDS:
        before = record.get(command, {})
        if options.check and not before:
            continue
        if own:
            now = run_own(command, options.jobs)
        else:
            now = summarize(run(command, sorted(before) if options.check else None, options.jobs))
        lost += [f"{command} {line}" for line in losses(before, now)]
        record[command] = {subject: {"failing": found["failing"]} for subject, found in sorted(now.items())}
    for line in lost:
        print("LOST", line)
    if options.update and (options.force or not lost):
        kept.write_text(json.dumps(record, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    return 1 if lost and not options.force else 0


if __name__ == "__main__":
    sys.exit(main())

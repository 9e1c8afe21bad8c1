"""Mutated files: what is read from one is data or an error of the documented type, soon, and in little memory.

    python tests/fuzz/files.py --count 100000 --seed 1

Files of each kind are written, changed at random and read again: archives as a whole, with a right checksum around a
changed pickle, and with records exchanged; the older format; safetensors as a whole and with a changed header; files of
the kernel cache, and objects in it that are changed although their digest is right. What was read is looked at
(printed, indexed, summed) with guard bytes around every array.

A failure is an exception of another type, a process that ends, a case that takes longer than `--seconds` or asks for more
than `--memory` megabytes. Each is printed with its number; ``--first NUMBER --count 1`` runs it again. The exit status is 1
if there was one.
"""

from __future__ import annotations

import argparse
import collections
import copy
import faulthandler
import io
import itertools
import json
import os
import pickle
import pickletools
import random
import struct
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CASES_OF_A_WORKER = 2000

INTERESTING = (0, 1, 2, 7, 64, 127, 128, 255, 256, 65535, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 62) + 1, (1 << 63) - 1, (1 << 64) - 1)


# -- changing bytes ------------------------------------------------------------------------------------------------------


def mutated(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """`data` after one to three random changes; pieces of `others` may be put in."""
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        data = rng.choice(CHANGES)(rng, data, others)
    return data


def flip(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    return replaced(rng, data, lambda piece: bytes(b ^ 1 << rng.randrange(8) for b in piece), 1)


def overwrite(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    return replaced(rng, data, lambda piece: rng.choice((rng.randbytes(len(piece)), b"\0" * len(piece), b"\xff" * len(piece))), 16)


def number(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    form = rng.choice(("<B", "<H", "<I", "<Q"))
    width = struct.calcsize(form)
    value = rng.choice(INTERESTING) % (1 << 8 * width)
    at = rng.randrange(max(len(data) - width, 1))
    return data[:at] + struct.pack(form, value) + data[at + width :]


def remove(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    return replaced(rng, data, lambda piece: b"", 40)


def repeat(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    return replaced(rng, data, lambda piece: piece * rng.choice((2, 2, 50)), 60)


def truncate(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def splice(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    other = rng.choice(others)
    start = rng.randrange(len(other))
    return replaced(rng, data, lambda piece: other[start : start + rng.randrange(1, 100)], 40)


def replaced(rng: random.Random, data: bytes, change: Callable[[bytes], bytes], longest: int) -> bytes:
    start = rng.randrange(len(data) + 1)
    end = min(start + rng.randint(1, longest), len(data))
    return data[:start] + change(data[start:end]) + data[end:]


CHANGES = (flip, flip, flip, flip, overwrite, number, number, number, remove, repeat, truncate, splice)


def instructions(data: bytes) -> list[bytes]:
    """The instructions of a pickle, each with its argument."""
    places = [at for _, _, at in pickletools.genops(data) if at is not None]
    return [data[a:b] for a, b in itertools.pairwise([*places, len(data)])]


def recomposed(rng: random.Random, pickled: list[bytes], others: list[list[bytes]]) -> bytes:
    """A pickle with one to three of its instructions, or short runs of them, removed, repeated, exchanged or taken from others."""
    made = list(pickled)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, length = rng.randrange(len(made)), rng.choice((1, 1, 1, 2, 5, 12))
        other = rng.choice(others)
        place = rng.randrange(len(other))
        change = rng.randrange(6)
        if change == 0:
            made[at : at + length] = []
        elif change == 1:
            made[at:at] = made[at : at + length] * rng.choice((1, 1, 300))
        elif change == 2:
            made[at : at + length] = other[place : place + length]
        elif change == 3:
            made[at:at] = other[place : place + length]
        elif change == 4:
            same = [i for i in other if i[:1] == made[at][:1]]
            made[at] = rng.choice(same) if same else b"N"
        else:
            made[at] = mutated(rng, made[at], others[0])
    return b"".join(made)


# -- what is changed -----------------------------------------------------------------------------------------------------


def objects() -> list[Any]:
    """Objects as checkpoints hold them."""
    import numpy as np

    import flambeau as fb

    x = fb.arange(24, dtype=fb.float32).reshape(4, 6)
    model = fb.nn.Sequential(fb.nn.Linear(3, 4), fb.nn.BatchNorm1d(4))
    optimizer = fb.optim.Adam(model.parameters())
    every = {name: fb.ones(3).to(getattr(fb, name)) for name in ("float64", "bfloat16", "int64", "int8", "bool", "complex64")}
    return [
        {"x": x, "view": x[1:, ::2], "transposed": x.t(), "expanded": x[:1].expand(7, 6), "mask": x > 3},
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7, "name": "é" * 20, "lr": 1e-3},
        every,
        [fb.nn.Parameter(fb.ones(2)), fb.empty(3, 4, device="meta"), x.untyped_storage(), fb.Size([1, 2]), fb.device("cpu")],
        {"array": np.arange(6.0).reshape(2, 3).T, "scalar": np.float32(2), "text": np.array(["a", "bc"])},
        {"order": np.arange(3, dtype=">i4"), "half": np.ones(2, np.float16), "bytes": np.array([b"ab", b"c"])},
        [{1, "a"}, frozenset([(1, 2)]), b"\0\xff", bytearray(b"x"), -(10**40), slice(1, None), range(1, 9, 2), 1j, fb.float16],
        [collections.OrderedDict(a=1), collections.Counter("aab"), collections.defaultdict(list, a=[1]), (None, True, 2.5)],
    ]  # fmt: skip


def _named(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def conjugate_pickle() -> bytes:
    """A tensor that PyTorch marked as a conjugate still to be taken, of two complex numbers that repeat."""
    storage = b"(" + _text("storage") + _named("torch", "ComplexFloatStorage") + _text("0") + _text("cpu") + b"K\x02tQ"
    return (
        b"\x80\x02" + _named("torch._utils", "_rebuild_tensor_v2") + b"(" + storage + b"K\x01(M\x00\x01K\x02tq\x05(K\x00K\x00t\x89"
        + _named("collections", "OrderedDict") + b")R}" + _text("conj") + b"\x88s" + b"tR."
    )  # fmt: skip


def archive_of(records: dict[str, bytes]) -> bytes:
    from flambeau._files.archive import ArchiveWriter

    out = io.BytesIO()
    archive = ArchiveWriter(out, "archive")
    for name, data in records.items():
        archive.add(name, data)
    archive.close()
    return out.getvalue()


def records_of(data: bytes) -> dict[str, bytes]:
    from flambeau._files.archive import ArchiveReader

    archive = ArchiveReader(io.BytesIO(data))
    names = [name.partition("/")[2] for name in archive.records]
    return {name: archive.read(name).tobytes() for name in names}


def saved(obj: Any, **options: Any) -> bytes:
    import flambeau as fb

    out = io.BytesIO()
    fb.save(obj, out, **options)
    return out.getvalue()


# -- the kinds -----------------------------------------------------------------------------------------------------------


class Archives:
    """.pt files: changed as a whole, in their pickle, and in their records."""

    def __init__(self) -> None:
        self.files = [saved(obj, pickle_protocol=p) for obj in objects() for p in (2, 4)]
        self.records = [records_of(data) for data in self.files]
        self.records.append(self.records[0] | {"data.pkl": conjugate_pickle(), "data/0": bytes(range(16))})
        self.pickles = [records["data.pkl"] for records in self.records]
        self.instructions = [instructions(data) for data in self.pickles]

    def refusals(self) -> tuple[type[BaseException], ...]:
        return pickle.UnpicklingError, RuntimeError, EOFError

    def change(self, rng: random.Random) -> bytes:
        how = rng.random()
        if how < 0.25:
            return mutated(rng, rng.choice(self.files), self.files)
        records = dict(rng.choice(self.records))
        if how < 0.4:
            records["data.pkl"] = mutated(rng, records["data.pkl"], self.pickles)
        elif how < 0.9:
            records["data.pkl"] = recomposed(rng, instructions(records["data.pkl"]), self.instructions)
        else:
            name = rng.choice(list(records))
            others = rng.choice(self.records)
            change = rng.randrange(3)
            if change == 0:
                del records[name]
            elif change == 1:
                records[name] = rng.choice(list(others.values()))
            else:
                records[rng.choice(("data/0", "data/1", "byteorder", "version", "constants.pkl", "../x"))] = records.pop(name)
        return archive_of(records)

    def read(self, data: bytes) -> Any:
        import flambeau as fb

        return fb.load(io.BytesIO(data), weights_only=None)


class Legacy(Archives):
    """The format of PyTorch before 1.6."""

    def __init__(self) -> None:
        import flambeau as fb

        made = [[part for part in obj if not isinstance(part, fb.UntypedStorage)] if isinstance(obj, list) else obj for obj in objects()]
        self.files = [saved(obj, pickle_protocol=p, _use_new_zipfile_serialization=False) for obj in made for p in (2, 4)]

    def change(self, rng: random.Random) -> bytes:
        return mutated(rng, rng.choice(self.files), self.files)


class Safetensors:
    """safetensors files: changed as a whole, and in the values of their header."""

    values = (None, True, -1, 0, 1, 2.5, "F32", "BF16", "x" * 50, [], [1], [0, 0], [2, 1 << 62, 1 << 62], [1 << 70], {}, {"a": 1}, [[1]],
              [1] * 70, [0] + [1 << 61] * 3, 1 << 63, "__metadata__")  # fmt: skip

    def __init__(self) -> None:
        import flambeau as fb
        from flambeau import safetensors

        tensors = {"a": fb.ones(2, 3), "b": fb.arange(5), "c": fb.ones(4, dtype=fb.bool), "d": fb.ones(2, dtype=fb.bfloat16)}
        self.files = [safetensors.save(tensors), safetensors.save(tensors, {"k": "v"}), safetensors.save({"e": fb.empty(0, 3)})]
        self.folder = tempfile.TemporaryDirectory()

    def refusals(self) -> tuple[type[BaseException], ...]:
        from flambeau.safetensors import SafetensorError

        return (SafetensorError,)

    def change(self, rng: random.Random) -> bytes:
        data = rng.choice(self.files)
        if rng.random() < 0.5:
            return mutated(rng, data, self.files)
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        for _ in range(rng.choice((1, 1, 2))):
            entry = rng.choice([header, *(part for part in header.values() if isinstance(part, dict))])
            key = rng.choice([*entry, "new", "__metadata__"])
            inner = entry.get(key)
            if isinstance(inner, list) and inner and rng.random() < 0.5:
                inner[rng.randrange(len(inner))] = copy.deepcopy(rng.choice(self.values))
            else:
                entry[key] = copy.deepcopy(rng.choice(self.values))
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data[8 + length :]

    def read(self, data: bytes) -> Any:
        from flambeau import safetensors

        made = safetensors.load(data)
        path = Path(self.folder.name) / "x.safetensors"
        path.write_bytes(data)
        with safetensors.safe_open(path) as file:
            return [made, file.metadata(), [file.get_tensor(name) for name in file.offset_keys()]]


class Cache:
    """Files of the kernel cache: a changed one is a miss; a changed object whose digest is right is loaded or a miss."""

    texts = (
        "define i64 @f(i64 %a) {\n  %b = add i64 %a, 1\n  ret i64 %b\n}\n",
        """
@table = private constant [4 x double] [double 1.0, double 2.0, double 3.0, double 4.0]
declare double @sqrt(double)
define double @f(i64 %a) {
  %p = getelementptr double, ptr @table, i64 %a
  %x = load double, ptr %p
  %y = call double @sqrt(double %x)
  %c = fmul double %y, 3.14
  ret double %c
}
""",
    )

    def __init__(self) -> None:
        from flambeau_kernels.engine.machine_code import cache, llvm

        self.key = "ab" * 32
        self.objects = [llvm.machine().emit_object(text) for text in self.texts]
        self.files = [cache.pack(self.key, body) for body in self.objects]
        self.folder = tempfile.TemporaryDirectory()
        self.disk = cache.ObjectCache(self.folder.name)

    def refusals(self) -> tuple[type[BaseException], ...]:
        return ()

    def change(self, rng: random.Random) -> bytes:
        from flambeau_kernels.engine.machine_code import cache

        if rng.random() < 0.5:
            return mutated(rng, rng.choice(self.files), self.files)
        return cache.pack(self.key, mutated(rng, rng.choice(self.objects), self.objects))

    def read(self, data: bytes) -> Any:
        from flambeau_kernels.engine.machine_code import llvm

        path = Path(self.folder.name) / f"{self.key}.o"
        path.write_bytes(data)
        path.chmod(0o644)
        body = self.disk.get(self.key)
        # The code itself is not run: whoever can write another's digest can write another's code.
        return None if body is None else llvm._load_from_disk(body, ("f",))


KINDS: dict[str, Callable[[], Any]] = {"archive": Archives, "legacy": Legacy, "safetensors": Safetensors, "cache": Cache}


# -- looking at what was read --------------------------------------------------------------------------------------------


def look_at(found: Any) -> None:
    """Use whatever tensors and arrays are in `found`."""
    import numpy as np

    import flambeau as fb

    left, seen = [found], set()
    while left and len(seen) < 1000:
        item = left.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, dict):
            left.extend((*item.keys(), *item.values()))
        elif isinstance(item, (list, tuple, set, frozenset)):
            left.extend(item)
        elif isinstance(item, fb.Tensor):
            look_at_tensor(item.detach())
        elif isinstance(item, np.ndarray):
            repr(item)
            item.copy()


def look_at_tensor(t: Any) -> None:
    import flambeau as fb

    assert t.numel() == fb.Size(t.shape).numel()
    repr(t)
    if t.is_meta or t.numel() > 100_000:
        return
    flat = t.clone().reshape(-1)
    assert flat.numel() == t.numel()
    if t.dtype is fb.bool:
        picked = fb.arange(flat.numel())[flat]
        assert picked.numel() == int(flat.sum()) == flat.nonzero().numel() == int(flat.count_nonzero())
        fb.zeros(flat.numel()).masked_scatter_(flat, fb.ones(flat.numel()))
    elif not t.dtype.is_complex and flat.numel():
        flat.to(fb.float64).sum()


# -- workers -------------------------------------------------------------------------------------------------------------


def work(options: argparse.Namespace) -> None:
    """Run the cases from `first` on in this process; prints a line of JSON for each that fails, and one of counts at the end."""
    warnings.simplefilter("ignore")  # PyTorch's warnings about dtypes and the like
    kinds = {name: KINDS[name]() for name in options.kinds.split(",")}
    for kind in kinds.values():  # what is imported and compiled is so before memory is limited
        for data in kind.files:
            look_at(kind.read(data))
    limit_memory(options.memory)
    counts: dict[str, int] = collections.Counter()
    for case in range(options.first, options.first + options.count):
        rng = random.Random(f"{options.seed}:{case}")
        name = rng.choice(list(kinds))
        print(case, flush=True)
        data = kinds[name].change(rng)
        faulthandler.dump_traceback_later(options.seconds, exit=True)
        try:
            look_at(kinds[name].read(data))
            counts[f"{name} read"] += 1
        except kinds[name].refusals():
            counts[f"{name} refused"] += 1
        except Exception as error:
            print(json.dumps({"case": case, "kind": name, "error": f"{type(error).__name__}: {error}"[:500]}), flush=True)
        faulthandler.cancel_dump_traceback_later()
    print(json.dumps({"counts": counts}), flush=True)


def limit_memory(megabytes: int) -> None:
    """Let this process ask for so much more than it has. Only where Linux tells how much that is."""
    if not sys.platform.startswith("linux"):
        return
    import resource

    with open("/proc/self/statm") as facts:
        used = int(facts.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20),) * 2)


def run_workers(options: argparse.Namespace) -> tuple[dict[str, int], list[str]]:
    """Counts of outcomes, and what failed."""
    counts: collections.Counter[str] = collections.Counter()
    failures: list[str] = []
    first, end = options.first, options.first + options.count
    while first < end:
        count = min(CASES_OF_A_WORKER, end - first)
        lines, status = run_worker(options, first, count)
        if not any(line.isdigit() for line in lines):
            sys.exit("\n".join([*lines, f"a worker ended with status {status} before its first case"]))
        first, last = first + count, first
        for line in lines:
            said = json.loads(line) if line.startswith("{") else None
            if line.isdigit():
                last = int(line)
            elif said and "counts" in said:
                counts.update(said["counts"])
            elif said:
                failures.append(f"case {said['case']} ({said['kind']}): {said['error']}")
        if status:
            tail = " | ".join(line for line in lines[-12:] if not line.isdigit() and not line.startswith(("{", "JIT session error")))
            failures.append(f"case {last}: the process ended with status {status} {tail}")
            first = last + 1  # go on behind it
    return counts, failures


def run_worker(options: argparse.Namespace, first: int, count: int) -> tuple[list[str], int]:
    command = [sys.executable, str(Path(__file__)), "--worker", "--first", str(first), "--count", str(count)]
    command += ["--seed", str(options.seed), "--kinds", options.kinds, "--seconds", str(options.seconds), "--memory", str(options.memory)]
    environment = {**os.environ, "FLAMBEAU_GUARD_MEMORY": "1"}
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT / "framework"), str(ROOT / "kernels")))
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    )
    return done.stdout.splitlines(), done.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="how many cases (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="what the cases follow from, with their numbers (default: %(default)s)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of files, by commas (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="the longest a case may take (default: %(default)s)")
    parser.add_argument("--memory", type=int, default=512, help="megabytes a case may ask for (default: %(default)s)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options)
        return
    counts, failures = run_workers(options)
    for failure in failures:
        print(failure)
    print(", ".join(f"{name} {n}" for name, n in sorted(counts.items())))
    print(f"{options.count} cases, seed {options.seed}: {len(failures)} failures")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()

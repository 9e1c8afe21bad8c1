"""One transformer trained in every way, at 2 and 4 processes, and resumed from the checkpoints of every other way.

    python tests/distributed/equality.py [--processes 1,2,4] [--only NAME,NAME]

prints a table: for each way the largest difference of a parameter from those of one process after 10 steps, and the largest over the
checkpoints that each of the ways wrote after 5 steps. It ends with status 1 if one is above 1e-6.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOM, STEPS, HALF = 1e-6, 10, 5
VOCABULARY, WIDTH, HEADS, BLOCKS, ROWS, LENGTH = 24, 16, 4, 4, 8, 6


class Way(NamedTuple):
    """How the processes divide the work: what those along "dp" do, and how many there are along each dimension."""

    name: str
    kind: str
    pp: int
    dp: int
    tp: int

    @property
    def size(self) -> int:
        return self.pp * self.dp * self.tp


def ways(size: int) -> list[Way]:
    """All of them for `size` processes."""
    if size == 1:
        return [Way("one process", "", 1, 1, 1)]
    half = size // 2
    found = [
        Way("DDP", "ddp", 1, size, 1), Way("FSDP1", "fsdp1", 1, size, 1), Way("FSDP2", "fsdp2", 1, size, 1), Way("TP", "", 1, 1, size),
        Way("PP", "", size, 1, 1),
    ]  # fmt: skip
    if size >= 4:
        found += [
            Way("HSDP", "hsdp", 1, size, 1), Way("FSDP2 x TP", "fsdp2", 1, half, 2), Way("DDP x PP", "ddp", 2, half, 1),
            Way("FSDP2 x PP", "fsdp2", 2, half, 1), Way("TP x PP", "", half, 1, 2),
        ]  # fmt: skip
    # With one process along a dimension the machinery of three is there all the same.
    found.append(Way("FSDP2 x TP x PP", "fsdp2", 2, max(1, size // 4), 2) if size >= 4 else Way("FSDP2 x TP x PP", "fsdp2", 2, 1, 1))
    return found


# -- what a rank does ----------------------------------------------------------------------------------------------------


def rank_main() -> None:
    """Train in all ways of this number of processes, or resume from all checkpoints; write the differences."""
    import flambeau as fb
    import flambeau.distributed as dist
    import flambeau.distributed.checkpoint as dcp
    from flambeau import nn
    from flambeau.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_optimizer_state_dict,
        set_model_state_dict,
        set_optimizer_state_dict,
    )
    from flambeau.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from flambeau.distributed.fsdp.wrap import ModuleWrapPolicy
    from flambeau.distributed.pipelining import PipelineStage, Schedule1F1B
    from flambeau.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    F = nn.functional
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    folder, phase = Path(os.environ["EQUALITY_FOLDER"]), os.environ["EQUALITY_PHASE"]
    only = set(filter(None, os.environ["EQUALITY_ONLY"].split(",")))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            # A bias of keys has no gradient but rounding, which optimizers make large.
            self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
            self.o, self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            h = self.first(x)                          # (N, L, W)
            q, k, v = (f(h).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for f in (self.q, self.k, self.v))
            x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.second(x))))

    class Transformer(nn.Module):
        """All of it, or the blocks of a stage, under the names that they have in the whole."""

        def __init__(self, stage: int = 0, stages: int = 1) -> None:
            super().__init__()
            fb.manual_seed(0)
            everything = {"embedding": nn.Embedding(VOCABULARY, WIDTH)}
            blocks = {str(at): Block() for at in range(BLOCKS)}
            everything |= {"norm": nn.LayerNorm(WIDTH), "head": nn.Linear(WIDTH, VOCABULARY, bias=False)}
            self.embedding: Any = everything["embedding"] if stage == 0 else None
            each = BLOCKS // stages
            self.blocks = nn.ModuleDict({at: b for at, b in blocks.items() if int(at) // each == stage})
            self.norm: Any = everything["norm"] if stage == stages - 1 else None
            self.head: Any = everything["head"] if stage == stages - 1 else None

        def forward(self, x: Any) -> Any:
            if self.embedding is not None:
                x = self.embedding(x)
            for block in self.blocks.values():
                x = block(x)
            return x if self.head is None else self.head(self.norm(x))

    def loss_of(scores: Any, target: Any) -> Any:
        return F.cross_entropy(scores.flatten(0, 1), target.flatten())

    def batch(step: int) -> tuple[Any, Any]:
        tokens = fb.randint(0, VOCABULARY, (ROWS, LENGTH + 1), generator=fb.Generator().manual_seed(step))
        return tokens[:, :-1], tokens[:, 1:]

    class Trained:
        """The part of a model that this rank has, and how it steps."""

        def __init__(self, way: Way) -> None:
            self.way = way
            mesh = dist.init_device_mesh("cpu", (way.pp, way.dp, way.tp), mesh_dim_names=("pp", "dp", "tp")) if size > 1 else None
            stage, self.at = (0, 0) if mesh is None else (mesh.get_local_rank("pp"), mesh.get_local_rank("dp"))
            self.model: Any = Transformer(stage, way.pp)
            self.last = stage == way.pp - 1
            if mesh is not None:
                self._divide(mesh)
            self.optimizer = fb.optim.AdamW(self.model.parameters(), lr=1e-3)
            self.schedule = None
            if way.pp > 1:
                assert mesh is not None
                made = PipelineStage(self.model, stage, way.pp, fb.device("cpu"), group=mesh.get_group("pp"))
                self.schedule, self.first = Schedule1F1B(made, n_microbatches=max(2, way.pp), loss_fn=loss_of), stage == 0

        def _divide(self, mesh: Any) -> None:
            way = self.way
            if way.tp > 1:
                columns, rows = ("q", "k", "v", "up"), ("o", "down")
                plan: dict[str, Any] = {n: ColwiseParallel() for n in columns} | {n: RowwiseParallel() for n in rows}
                for block in self.model.blocks.values():
                    # A rank has some of the heads.
                    parallelize_module(block, mesh["tp"], plan)
            if way.kind == "ddp":
                self.model = nn.parallel.DistributedDataParallel(self.model, process_group=mesh.get_group("dp"))
            elif way.kind == "fsdp1":
                self.model = FullyShardedDataParallel(
                    self.model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True, process_group=mesh.get_group("dp")
                )
            elif way.kind in ("fsdp2", "hsdp"):
                over = mesh["dp"]
                if way.kind == "hsdp":
                    over = dist.init_device_mesh("cpu", (2, way.dp // 2), mesh_dim_names=("replicas", "pieces"))
                for block in self.model.blocks.values():
                    fully_shard(block, mesh=over)
                fully_shard(self.model, mesh=over)

        def train(self, begin: int, end: int) -> None:
            for step in range(begin, end):
                x, y = (t.tensor_split(self.way.dp)[self.at] for t in batch(step))
                self.optimizer.zero_grad()
                if self.schedule is None:
                    loss_of(self.model(x), y).backward()
                else:
                    self.schedule.step(*([x] if self.first else []), **({"target": y} if self.last else {}))
                self.optimizer.step()

        def gap(self, wanted: dict[str, Any]) -> float:
            """The largest difference of a parameter of this rank."""
            found = get_model_state_dict(self.model, options=StateDictOptions(full_state_dict=True))
            assert found
            assert set(found) <= set(wanted)
            return max((value - wanted[name]).abs().max().item() for name, value in found.items())

        def save(self, path: Path) -> None:
            dcp.save({"model": get_model_state_dict(self.model), "optimizer": self._states()}, checkpoint_id=str(path))

        def _states(self) -> Any:
            return get_optimizer_state_dict(self.model, self.optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))

        def load(self, path: Path) -> None:
            state = {"model": get_model_state_dict(self.model), "optimizer": self._states()}
            dcp.load(state, checkpoint_id=str(path))
            set_model_state_dict(self.model, state["model"])
            flat = StateDictOptions(flatten_optimizer_state_dict=True)
            set_optimizer_state_dict(self.model, self.optimizer, state["optimizer"], options=flat)

    def alone(steps: int) -> dict[str, Any]:
        model = Transformer()
        optimizer = fb.optim.AdamW(model.parameters(), lr=1e-3)
        for step in range(steps):
            x, y = batch(step)
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()
        return model.state_dict()

    from datetime import timedelta

    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    wanted = alone(STEPS)
    gaps: dict[str, float] = {}
    for way in ways(size):
        if only and way.name not in only and size > 1:
            continue
        name = f"{way.name} @ {size}"
        if phase == "train":
            trained = Trained(way)
            trained.train(0, HALF)
            trained.save(folder / name)
            trained.train(HALF, STEPS)
            gaps[name] = trained.gap(wanted)
        else:
            for path in sorted(folder.iterdir()):
                if path.is_dir():
                    trained = Trained(way)
                    trained.load(path)
                    trained.train(HALF, STEPS)
                    gaps[f"{name} from {path.name}"] = trained.gap(wanted)
    (folder / f"{phase}.{size}.{rank}.json").write_text(json.dumps(gaps))
    dist.destroy_process_group()


# -- the command ---------------------------------------------------------------------------------------------------------


def run(folder: Path, sizes: list[int], only: str = "", limit: float = 1800.0) -> dict[str, float]:
    """The largest difference of each way, and of each way from each checkpoint."""
    from conftest import environment

    for phase in ("train", "resume"):
        for size in sizes:
            more = {"EQUALITY_FOLDER": str(folder), "EQUALITY_PHASE": phase, "EQUALITY_ONLY": only, "WORLD_SIZE": str(size)}
            common = environment(**more)
            begin = time.monotonic()
            ranks = [
                subprocess.Popen([sys.executable, "-c", "import equality; equality.rank_main()"], env={**common, "RANK": str(rank)})
                for rank in range(size)
            ]
            try:
                codes = [process.wait(max(1.0, begin + limit - time.monotonic())) for process in ranks]
            finally:
                for process in ranks:
                    process.kill()
            if any(codes):
                raise RuntimeError(f"{phase} with {size} processes ended with statuses {codes}")
    worst: dict[str, float] = {}
    for path in folder.glob("*.json"):
        for name, gap in json.loads(path.read_text()).items():
            worst[name] = max(worst.get(name, 0.0), gap)
    return worst


def table(worst: dict[str, float]) -> str:
    """Rows of Markdown: a way, its difference, the largest over all checkpoints, and how many there were."""
    lines = ["| way | processes | 10 steps | resumed, worst | checkpoints |", "|---|---|---|---|---|"]
    for name, gap in worst.items():
        if " from " not in name:
            resumed = [g for other, g in worst.items() if other.startswith(f"{name} from ")]
            way, _, size = name.partition(" @ ")
            lines.append(f"| {way} | {size} | {gap:.1e} | {max(resumed):.1e} | {len(resumed)} |")
    return "\n".join(lines)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--processes", default="1,2,4")
    parser.add_argument("--only", default="", help="names of ways, with commas")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        worst = run(Path(folder), [int(n) for n in given.processes.split(",")], given.only)
    order = sorted(worst, key=lambda name: (name.partition(" @ ")[2].partition(" ")[0],))
    print(table({name: worst[name] for name in order}))
    return int(max(worst.values()) > ROOM)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.exit(main())

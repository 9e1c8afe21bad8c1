"""What the ranks of `test_checkpoint.py` run: each holds some rows of a matrix, which it saves, and loads in another division."""

from __future__ import annotations

import os
import time
from datetime import timedelta

import flambeau as fb
import flambeau.distributed as dist
import flambeau.distributed.checkpoint as dcp
from flambeau.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from flambeau.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from flambeau.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
ROWS, COLUMNS = 7, 3


class Rows:
    """The rows of a matrix that one rank has, by the protocol of pieces."""

    def __init__(self, begin: int, values: fb.Tensor) -> None:
        self.begin, self.values = begin, values

    def size(self) -> fb.Size:
        return fb.Size((ROWS, COLUMNS))

    def _chunk(self) -> ChunkStorageMetadata:
        return ChunkStorageMetadata(fb.Size((self.begin, 0)), self.values.size())

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [self._chunk()]

    def __get_tensor_shard__(self, index: MetadataIndex) -> fb.Tensor:
        return self.values

    def __create_write_items__(self, fqn: str, value: object) -> list[WriteItem]:
        chunk = self._chunk()
        about = TensorWriteData(chunk, TensorProperties.create_from_tensor(self.values), self.size())
        return [WriteItem(MetadataIndex(fqn, chunk.offsets), WriteItemType.SHARD, tensor_data=about)]


def mine(rank: int, size: int) -> slice:
    return slice(rank * ROWS // size, (rank + 1) * ROWS // size)


def whole() -> fb.Tensor:
    return fb.arange(float(ROWS * COLUMNS)).reshape(ROWS, COLUMNS)


def save() -> None:
    dist.init_process_group("gloo")
    rows = mine(RANK, SIZE)
    state = {"rows": Rows(rows.start, whole()[rows].clone()), "same": {"on_all": fb.ones(5), "step": 12}}
    metadata = dcp.save(state, checkpoint_id=os.path.join(os.environ["FOLDER"], "saved"))
    assert len(metadata.state_dict_metadata["rows"].chunks) == SIZE
    dist.destroy_process_group()


def load() -> None:
    dist.init_process_group("gloo")
    rows = mine(RANK, SIZE)
    part = Rows(rows.start, fb.zeros(rows.stop - rows.start, COLUMNS))
    state = {"rows": part, "same": {"on_all": fb.zeros(5), "step": 0}}
    dcp.load(state, checkpoint_id=os.path.join(os.environ["FOLDER"], "saved"))
    assert fb.equal(part.values, whole()[rows]), part.values
    assert fb.equal(state["same"]["on_all"], fb.ones(5)) and state["same"]["step"] == 12
    dist.destroy_process_group()


def apart() -> None:
    """Each rank saves and loads by itself, twice, and what it has not saved it does not find."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    place = os.path.join(os.environ["FOLDER"], "apart")
    rows = mine(RANK, SIZE)
    for turn in (1, 2):
        time.sleep(0.2 * RANK)  # nobody waits for anybody
        state = {"rows": Rows(rows.start, whole()[rows] * turn), f"only{RANK}": fb.ones(2) * RANK, "step": turn + RANK}
        if turn == 1:
            dcp.save(state, checkpoint_id=place, use_collectives=False)
        else:
            dcp.async_save(state, checkpoint_id=place, use_collectives=False).result()
        dist.barrier()
        part = Rows(rows.start, fb.zeros(rows.stop - rows.start, COLUMNS))
        found = {"rows": part, f"only{RANK}": fb.zeros(2), "step": 0}
        dcp.load(found, checkpoint_id=place)
        assert fb.equal(part.values, whole()[rows] * turn), part.values
        assert fb.equal(found[f"only{RANK}"], fb.ones(2) * RANK) and found["step"] == turn + RANK
        dist.barrier()
    names = sorted(os.listdir(place))
    assert [name for name in names if name.endswith("metadata")] == [f"__{rank}.metadata" for rank in range(SIZE)]
    assert len(names) == 2 * SIZE, names  # files of the first save are gone
    other = mine(SIZE - 1 - RANK, SIZE)
    for wrong in ({f"only{SIZE - 1 - RANK}": fb.zeros(2)}, {"rows": Rows(other.start, whole()[other])}):
        try:
            dcp.load(wrong, checkpoint_id=place)
        except dcp.CheckpointException as error:
            assert "Missing key" in str(error) or "elements of this rank's piece" in str(error), error
        else:
            raise AssertionError(f"{wrong} was found")
    dcp.save({"x": fb.ones(2)}, checkpoint_id=place)
    assert [name for name in os.listdir(place) if name.endswith("metadata")] == [".metadata"]
    try:
        dcp.save({"x": fb.ones(2)}, checkpoint_id=place, use_collectives=False)
    except dcp.CheckpointException as error:
        assert "save into another folder" in str(error)
    else:
        raise AssertionError("a checkpoint of all ranks was hidden")
    dist.destroy_process_group()


def beside_training() -> None:
    """Saves in threads and processes, while the ranks go on with collectives of their own at their own pace."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    pair = dist.new_group([0, 1], use_local_synchronization=True) if rank < 2 else None
    for at, kind in enumerate((AsyncCheckpointerType.THREAD, AsyncCheckpointerType.PROCESS)):
        x = whole()[mine(rank, size)].clone()
        place = f"{os.environ['FOLDER']}/beside{at}"
        future = dcp.async_save({f"x{rank}": x}, checkpoint_id=place, async_checkpointer_type=kind)
        x.zero_()
        counter = fb.zeros(1)
        for turn in range(40):
            time.sleep(0.001 * ((turn + rank) % 3))
            dist.all_reduce(counter.fill_(1))
            assert counter.item() == size
        assert set(future.result(60).state_dict_metadata) == {f"x{other}" for other in range(size)}
        for other in range(size):
            loaded = {f"x{other}": fb.empty_like(whole()[mine(other, size)])}
            dcp.load(loaded, checkpoint_id=place, no_dist=True)
            assert fb.equal(loaded[f"x{other}"], whole()[mine(other, size)])
    if pair is not None:
        dcp.async_save({"p": fb.ones(2)}, checkpoint_id=f"{os.environ['FOLDER']}/pair", process_group=pair).result(60)
    dist.barrier()
    assert dist.get_world_size(dist.new_group()) == size  # groups that some ranks made among themselves are not counted
    dist.destroy_process_group()


def one_fails() -> None:
    """The last rank asks for what is not there: all of them say so, and none waits."""
    dist.init_process_group("gloo")
    state = {"same": {"step": 0}} if RANK < SIZE - 1 else {"same": {"step": 0, "none": fb.ones(1)}}
    try:
        dcp.load(state, checkpoint_id=os.path.join(os.environ["FOLDER"], "saved"))
    except dcp.CheckpointException as error:
        assert list(error.failures) == [SIZE - 1], error
        assert "Missing key in checkpoint state_dict: same.none." in str(error)
    else:
        raise AssertionError("nothing was raised")
    dist.destroy_process_group()


def broadcast() -> None:
    """What rank 0 has reaches all."""
    from flambeau.distributed.checkpoint.format_utils import (
        BroadcastingTorchSaveReader,
        DynamicMetaLoadPlanner,
    )
    from flambeau.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    dist.init_process_group("gloo")
    path = os.path.join(os.environ["FOLDER"], "file.pt")
    if RANK == 0:
        fb.save({"a": {"b": fb.arange(4.0)}}, path)
    state = {"a": {"b": fb.zeros(4)}}
    dcp.load(state, storage_reader=BroadcastingTorchSaveReader(), planner=DynamicMetaLoadPlanner(), checkpoint_id=path)
    assert fb.equal(state["a"]["b"], fb.arange(4.0))
    model = fb.nn.Linear(2, 1)
    given = {"weight": fb.full((1, 2), 3.0), "bias": fb.full((1,), 4.0)} if RANK == 0 else {}
    set_model_state_dict(model, given, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    assert model.weight.tolist() == [[3.0, 3.0]] and model.bias.tolist() == [4.0]
    dist.destroy_process_group()

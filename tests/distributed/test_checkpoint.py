"""Checkpoints of several processes: read by any number of them, by PyTorch too, and whole whatever happens."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

import flambeau as fb
import flambeau.distributed.checkpoint as dcp
from flambeau.distributed.checkpoint._extension import ExtensionRegistry, StreamTransformExtension, ZStandard
from flambeau.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from flambeau.distributed.checkpoint.metadata import MetadataIndex
from flambeau.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from flambeau.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


class Fatal(dcp.FileSystemWriter):
    def write_data(self, plan, planner):
        os._exit(3)


class Full(dcp.FileSystemWriter):
    def write_data(self, plan, planner):
        super().write_data(plan, planner)
        raise OSError("the disk is full")


def trained(lib, seed=0):
    numbers = np.random.default_rng(seed)
    model = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.Linear(4, 2))
    with lib.no_grad():
        for p in model.parameters():
            p.copy_(lib.tensor(numbers.normal(size=tuple(p.shape)).astype(np.float32)))
    optimizer = lib.optim.Adam([{"params": model[0].parameters()}, {"params": [*model[1].parameters(), *model[2].parameters()], "lr": 0.1}])
    model(lib.tensor(numbers.normal(size=(5, 3)).astype(np.float32))).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def everything(lib, seed=0):
    model, optimizer = trained(lib, seed)
    return {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3 + seed, "name": f"run {seed}",
        "lists": [lib.full((2,), 1.0 + seed), {"inner": (1, 2)}], "numbers": [1, 2, seed], "of_ints": {5: lib.ones(1), 6: f"six {seed}"},
        "part": lib.arange(12.0).reshape(3, 4)[:, 1:3], "half": lib.ones(3).to(lib.bfloat16) + seed, "empty": lib.zeros(0, 3),
        "scalar": lib.tensor(2.5 + seed), "flags": lib.tensor([True, False]), "wide": lib.tensor([1 + 2j * seed]),
    }  # fmt: skip


def flat(value, path=""):
    if isinstance(value, dict):
        return {k: v for key, inner in value.items() for k, v in flat(inner, f"{path}.{key}").items()}
    if isinstance(value, (list, tuple)):
        return {k: v for at, inner in enumerate(value) for k, v in flat(inner, f"{path}.{at}").items()}
    return {path: value.detach().float().tolist() if hasattr(value, "detach") and "complex" not in str(value.dtype) else str(value)}


def comparable(value):
    return {k: str(v).replace("torch.", "") for k, v in flat(value).items()}


class TestValues:
    def test_a_state_dict_comes_back_as_it_was(self, tmp_path):
        saved, loaded = everything(fb), everything(fb, 1)

        dcp.save(saved, checkpoint_id=tmp_path / "at")
        dcp.load(loaded, checkpoint_id=tmp_path / "at")

        assert comparable(loaded) == comparable(saved)

    def test_tensors_are_filled_in_place(self, tmp_path):
        target = fb.zeros(3)
        dcp.save({"a": fb.arange(3.0)}, checkpoint_id=tmp_path / "at")

        dcp.load({"a": target}, checkpoint_id=tmp_path / "at")

        assert target.tolist() == [0, 1, 2]

    def test_pytorch_reads_what_is_written_here(self, tmp_path, oracle):
        import torch.distributed.checkpoint as theirs

        dcp.save(everything(fb), checkpoint_id=tmp_path / "at")
        loaded = everything(oracle, 1)
        theirs.load(loaded, checkpoint_id=tmp_path / "at")

        found, wanted = comparable(loaded), comparable(everything(fb))
        # PyTorch adds a key of text for what is no tensor under a key that is a number.
        found.pop(".of_ints.6"), wanted.pop(".of_ints.6")
        assert found == wanted

    def test_what_pytorch_wrote_is_read_here(self, tmp_path, oracle):
        import torch.distributed.checkpoint as theirs

        saved, loaded = everything(oracle), everything(fb, 1)
        theirs.save(saved, checkpoint_id=tmp_path / "at")
        dcp.load(loaded, checkpoint_id=tmp_path / "at")

        assert comparable(loaded) == comparable(saved)

    def test_files_of_save_become_checkpoints_and_back(self, tmp_path):
        fb.save({"a": {"b": fb.arange(3.0)}, "n": 4}, tmp_path / "file.pt")

        torch_save_to_dcp(tmp_path / "file.pt", tmp_path / "at")
        dcp_to_torch_save(tmp_path / "at", tmp_path / "again.pt")

        again = fb.load(tmp_path / "again.pt")
        assert again["n"] == 4
        assert again["a"]["b"].tolist() == [0, 1, 2]

    def test_objects_with_a_state_are_asked_for_it(self, tmp_path):
        class Counter:
            def __init__(self, count):
                self.count = count

            def state_dict(self):
                return {"count": self.count, "more": fb.full((2,), float(self.count))}

            def load_state_dict(self, state_dict):
                self.count = state_dict["count"] + int(state_dict["more"].sum())

        other = Counter(1)
        dcp.save({"counter": Counter(5)}, checkpoint_id=tmp_path / "at")

        dcp.load({"counter": other}, checkpoint_id=tmp_path / "at")

        assert other.count == 15

    def test_saving_in_a_thread_keeps_what_was_there_when_it_began(self, tmp_path):
        x = fb.ones(1000)
        future = dcp.async_save({"x": x}, checkpoint_id=tmp_path / "at")
        x.zero_()

        assert "x" in future.result(20).state_dict_metadata
        loaded = {"x": fb.zeros(1000)}
        dcp.load(loaded, checkpoint_id=tmp_path / "at")
        assert loaded["x"].sum() == 1000

    def test_saving_in_a_process_keeps_what_was_there_when_it_began(self, tmp_path):
        x = fb.ones(1000)
        kind = AsyncCheckpointerType.PROCESS
        future = dcp.async_save({"x": x, "epoch": 3}, checkpoint_id=tmp_path / "at", async_checkpointer_type=kind)
        x.zero_()

        assert "x" in future.result(60).state_dict_metadata
        loaded = {"x": fb.zeros(1000), "epoch": 0}
        dcp.load(loaded, checkpoint_id=tmp_path / "at")
        assert loaded["x"].sum() == 1000
        assert loaded["epoch"] == 3

        with pytest.raises(RuntimeError, match="process that writes has died"):
            dcp.async_save(
                {"x": x}, storage_writer=Fatal(tmp_path / "at"), async_checkpointer_type=kind
            ).result(60)
        with pytest.raises(RuntimeError, match="the disk is full"):
            dcp.async_save({"x": x}, storage_writer=Full(tmp_path / "at"), async_checkpointer_type=kind).result(60)
        loaded = {"x": fb.zeros(1000), "epoch": 0}
        dcp.load(loaded, checkpoint_id=tmp_path / "at")  # the one before is whole
        assert loaded["x"].sum() == 1000
        assert len(list((tmp_path / "at").glob("*.distcp"))) == 1

    def test_several_threads_and_a_file_for_each_tensor(self, tmp_path):
        state = {f"t{i}": fb.full((i + 1,), float(i)) for i in range(6)}
        for at, kind in enumerate(({"thread_count": 3}, {"single_file_per_rank": False}, {"sync_files": False})):
            place = tmp_path / str(at)
            dcp.save(state, storage_writer=dcp.FileSystemWriter(place, **kind))
            loaded = {name: fb.zeros_like(value) for name, value in state.items()}
            dcp.load(loaded, storage_reader=dcp.FileSystemReader(place))
            assert all(fb.equal(loaded[name], state[name]) for name in state)
        assert len(list((tmp_path / "0").glob("*.distcp"))) == 3
        assert len(list((tmp_path / "1").glob("*.distcp"))) == 6

    def test_planners_may_rename_and_convert(self, tmp_path):
        class Renaming(dcp.DefaultSavePlanner):
            def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
                super().set_up_planner({f"foo_{k}": v for k, v in state_dict.items()}, storage_meta, is_coordinator)

        metadata = dcp.save({"a": fb.ones(2)}, checkpoint_id=tmp_path / "at", planner=Renaming())

        loaded = {"foo_a": fb.zeros(2)}
        dcp.load(loaded, checkpoint_id=tmp_path / "at")
        assert list(metadata.state_dict_metadata) == ["foo_a"]
        assert loaded["foo_a"].sum() == 2

    def test_partial_loads_leave_the_rest_alone(self, tmp_path):
        dcp.save({"a": fb.ones(2)}, checkpoint_id=tmp_path / "at")
        loaded = {"a": fb.zeros(2), "b": fb.full((1,), 7.0)}

        dcp.load(loaded, checkpoint_id=tmp_path / "at", planner=dcp.DefaultLoadPlanner(allow_partial_load=True))

        assert loaded["a"].sum() == 2
        assert loaded["b"].item() == 7


class TestFaults:
    @pytest.fixture
    def place(self, tmp_path):
        dcp.save({"a": fb.arange(4.0), "n": 1}, checkpoint_id=tmp_path / "at")
        return tmp_path / "at"

    def refused(self, place, state=None, match=""):
        with pytest.raises(dcp.CheckpointException, match=match):
            dcp.load(state or {"a": fb.zeros(4)}, checkpoint_id=place)

    def test_missing_names_and_other_shapes_are_pytorchs_errors(self, place):
        self.refused(place, {"b": fb.zeros(1)}, "RuntimeError: Missing key in checkpoint state_dict: b.")
        sizes = r"saved torch.Size\(\[4\]\) and current: torch.Size\(\[5\]\) for a"
        self.refused(place, {"a": fb.zeros(5)}, f"ValueError: Size mismatch between {sizes}")
        self.refused(place, {"a": 3}, "expected BytesStorageMetadata but found")

    def test_a_folder_without_checkpoint_and_no_folder_at_all(self, tmp_path):
        self.refused(tmp_path / "nowhere", match="FileNotFoundError")
        with pytest.raises(RuntimeError, match="`checkpoint_id` must be specified"):
            dcp.save({"a": 1})

    def test_a_file_that_ends_early_is_named(self, place):
        file = next(place.glob("*.distcp"))
        file.write_bytes(file.read_bytes()[:-50])
        self.refused(place, match="the file ends after")

    def test_metadata_that_ends_early_or_is_something_else(self, place):
        data = (place / ".metadata").read_bytes()
        for wrong in (data[:-20], data[: len(data) // 2], b"", b"no pickle", pickle.dumps([1, 2])):
            (place / ".metadata").write_bytes(wrong)
            self.refused(place)

    def test_metadata_that_would_run_something_runs_nothing(self, place, tmp_path):
        class Evil:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "ran"),)

        (place / ".metadata").write_bytes(pickle.dumps(Evil()))
        self.refused(place, match="which is not known to be plain data")
        assert not (tmp_path / "ran").exists()

    def test_values_that_would_run_something_run_nothing(self, place, tmp_path):
        class Evil:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "ran"),)

        class Planner(dcp.DefaultSavePlanner):
            def transform_object(self, write_item, object):
                import io

                out = io.BytesIO()
                fb.save(object, out)
                return out

        dcp.save({"e": Evil()}, checkpoint_id=tmp_path / "evil", planner=Planner())
        self.refused(tmp_path / "evil", {"e": 0}, "UnpicklingError")
        assert not (tmp_path / "ran").exists()

    def test_members_of_enumerations_are_read_by_name_as_the_first_releases_of_python_3_11_wrote_them(self):
        from flambeau.distributed.checkpoint import _records

        def got(name: bytes) -> object:
            text = b"X" + len(name).to_bytes(4, "little") + name
            of = b"ctorch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING\n"
            return _records.read(b"\x80\x02cbuiltins\ngetattr\n" + of + text + b"\x86R.")

        assert got(b"TORCH_CONTIGUOUS_FORMAT").name == "TORCH_CONTIGUOUS_FORMAT"
        with pytest.raises(Exception, match="not allowed"):
            got(b"__class__")

    @pytest.mark.parametrize("name", ["../outside.distcp", "/etc/hostname", "sub/../../outside"])
    def test_metadata_does_not_lead_out_of_the_folder(self, place, name):
        from flambeau.distributed.checkpoint import _records

        metadata = _records.read((place / ".metadata").read_bytes())
        metadata.storage_data[MetadataIndex("a", [0])].relative_path = name
        (place / ".metadata").write_bytes(_records.written(metadata))
        self.refused(place, match="outside the checkpoint")

    def test_a_save_that_fails_leaves_the_last_one(self, place):
        with pytest.raises(dcp.CheckpointException, match="pickle"):
            dcp.save({"a": fb.zeros(4), "n": lambda: 1}, checkpoint_id=place)

        loaded = {"a": fb.zeros(4), "n": 0}
        dcp.load(loaded, checkpoint_id=place)
        assert loaded["a"].tolist() == [0, 1, 2, 3]
        assert loaded["n"] == 1

    def test_a_save_that_is_killed_leaves_the_last_one(self, place):
        program = (
            "import os, signal, flambeau as fb, flambeau.distributed.checkpoint as dcp\n"
            "class Killed(dcp.FileSystemWriter):\n"
            "    def finish(self, metadata, results):\n"
            "        os.kill(os.getpid(), signal.SIGKILL)\n"
            f"dcp.save({{'a': fb.zeros(4), 'n': 2}}, storage_writer=Killed({str(place)!r}))\n"
        )
        root = Path(__file__).resolve().parents[2]
        paths = os.pathsep.join([str(root / "framework"), str(root / "kernels")])
        ended = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths}, timeout=60, capture_output=True)
        assert ended.returncode == -9, ended.stderr

        loaded = {"a": fb.zeros(4), "n": 0}
        dcp.load(loaded, checkpoint_id=place)
        assert loaded["a"].tolist() == [0, 1, 2, 3]
        assert loaded["n"] == 1
        dcp.save({"a": fb.ones(4), "n": 3}, checkpoint_id=place)
        assert len(list(place.glob("*.distcp"))) == 1  # nothing is left of the one that was killed

    def test_overwriting_can_be_refused(self, place):
        with pytest.raises(dcp.CheckpointException, match="overwrite=False"):
            dcp.save({"a": fb.ones(1)}, storage_writer=dcp.FileSystemWriter(place, overwrite=False))


class TestStateDicts:
    def test_state_dicts_are_pytorchs(self, oracle):
        from torch.distributed.checkpoint import state_dict as theirs

        for options in ({}, {"flatten_optimizer_state_dict": True}, {"ignore_frozen_params": True}, {"cpu_offload": True}):
            found = []
            for lib, functions in ((fb, (get_state_dict, StateDictOptions)), (oracle, (theirs.get_state_dict, theirs.StateDictOptions))):
                model, optimizer = trained(lib)
                model[0].bias.requires_grad_(False)
                given = functions[0](model, optimizer, options=functions[1](**options))
                found.append([{key: np.round(np.array(value, float), 3).tolist() if isinstance(value, list) else value
                               for key, value in flat(part).items()} for part in given])  # fmt: skip
            assert found[0][0].keys() == found[1][0].keys()
            assert found[0][1].keys() == found[1][1].keys()
            settings = [{k: v for k, v in each[1].items() if "exp_avg" not in k} for each in found]
            assert settings[0] == settings[1]

    def test_an_optimizer_that_never_stepped_gets_its_state_and_changes_nothing(self):
        model = fb.nn.Linear(2, 2)
        before = model.weight.clone()
        optimizer = fb.optim.Adam(model.parameters(), lr=0.5)

        found = get_optimizer_state_dict(model, optimizer)

        assert fb.equal(model.weight, before)
        assert optimizer.param_groups[0]["lr"] == 0.5
        assert model.weight.grad is None
        assert set(found["state"]) == {"weight", "bias"}
        assert found["param_groups"][0]["params"] == ["weight", "bias"]

    @pytest.mark.parametrize("flattened", [False, True])
    def test_optimizers_of_other_groups_take_the_state_over(self, flattened):
        options = StateDictOptions(flatten_optimizer_state_dict=flattened)
        model, optimizer = trained(fb)
        other, fresh = trained(fb, 1)

        missing, unexpected = set_state_dict(
            other, fresh, model_state_dict=get_model_state_dict(model), options=options,
            optim_state_dict=get_optimizer_state_dict(model, optimizer, options=options),
        )  # fmt: skip

        assert not missing
        assert not unexpected
        assert comparable(fresh.state_dict()) == comparable(optimizer.state_dict())
        assert comparable(other.state_dict()) == comparable(model.state_dict())

    def test_wrapped_models_have_the_names_of_the_plain_ones(self):
        model, _ = trained(fb)
        wrapped = fb.nn.DataParallel(model)

        assert get_model_state_dict(wrapped).keys() == model.state_dict().keys()
        found = set_model_state_dict(wrapped, {**model.state_dict(), "zz": fb.ones(1)}, options=StateDictOptions(strict=False))
        assert found.unexpected_keys == ["zz"]
        assert not found.missing_keys

    def test_a_part_of_a_model(self):
        model, _ = trained(fb)
        assert list(get_model_state_dict(model, submodules={model[2]})) == ["2.weight", "2.bias"]
        short = StateDictOptions(keep_submodule_prefixes=False)
        assert list(get_model_state_dict(model, submodules={model[2]}, options=short)) == ["weight", "bias"]

    def test_errors_are_pytorchs(self):
        model, optimizer = trained(fb)
        with pytest.raises(RuntimeError, match="Unexpected key"):
            set_model_state_dict(model, {**model.state_dict(), "zz": fb.ones(1)})
        with pytest.raises(ValueError, match="different number of parameter groups"):
            set_optimizer_state_dict(model, optimizer, {"state": {}, "param_groups": []})
        with pytest.raises(KeyError, match="the model has not"):
            get_optimizer_state_dict(model, fb.optim.SGD([fb.nn.Parameter(fb.ones(1))], lr=0.1))
        with pytest.raises(ValueError, match="full_state_dict must be True"):
            set_model_state_dict(model, {}, options=StateDictOptions(broadcast_from_rank0=True))


class TestRanks:
    def test_pieces_saved_by_two_are_loaded_by_one_and_by_three(self, ranks):
        ranks("checkpoint_programs.save", 2)
        for size in (1, 3):
            ranks("checkpoint_programs.load", size)
        ranks("checkpoint_programs.one_fails", 2)

    def test_saves_go_on_beside_the_collectives_of_the_program(self, ranks):
        ranks("checkpoint_programs.beside_training", 3)

    def test_ranks_save_apart_without_collectives(self, ranks):
        ranks("checkpoint_programs.apart", 2)

    def test_rank_0_gives_to_all(self, ranks):
        ranks("checkpoint_programs.broadcast", 2)


class Deflated(StreamTransformExtension):
    """zlib, which does not commute with `Turned`: what is read in another order than it was written is no data."""

    @staticmethod
    def registry_name():
        return "tests.deflated"

    @staticmethod
    def from_descriptor(version):
        assert version == "7"
        return Deflated()

    def get_descriptor(self):
        return "tests.deflated/7"

    def transform_to(self, output):
        return _Changing(output, zlib.compress)

    def transform_from(self, input):
        return io.BytesIO(zlib.decompress(input.read()))


class Turned(Deflated):
    @staticmethod
    def registry_name():
        return "tests.turned"

    @staticmethod
    def from_descriptor(version):
        return Turned()

    def get_descriptor(self):
        return "tests.turned/1"

    def transform_to(self, output):
        return _Changing(output, lambda data: data[::-1])

    def transform_from(self, input):
        return io.BytesIO(input.read()[::-1])


class _Changing(io.BytesIO):
    def __init__(self, output, change):
        super().__init__()
        self.output, self.change = output, change

    def close(self):
        if not self.closed:
            self.output.write(self.change(self.getvalue()))
        super().close()


def _saved_and_loaded(folder, extensions, registry):
    state = {"a": fb.zeros(1000), "b": {"c": fb.arange(4.0).view(2, 2), "n": 5}}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, _extensions=extensions), no_dist=True)
    found = {"a": fb.ones(1000), "b": {"c": fb.ones(2, 2), "n": 0}}
    dcp.load(found, storage_reader=dcp.FileSystemReader(folder, _extension_registry=registry), no_dist=True)
    assert found["a"].equal(state["a"])
    assert found["b"]["c"].equal(state["b"]["c"])
    assert found["b"]["n"] == 5
    return dcp.FileSystemReader(folder).read_metadata().storage_data


def test_extensions_change_data_on_the_way_to_files_and_back(tmp_path):
    registry = ExtensionRegistry()
    registry.register(Deflated)
    registry.register(Turned)

    places = _saved_and_loaded(tmp_path, [Turned(), Deflated()], registry)

    assert {tuple(p.transform_descriptors) for p in places.values()} == {("tests.deflated/7", "tests.turned/1")}
    assert max(p.length for p in places.values()) < 4000
    with pytest.raises(dcp.CheckpointException, match=r"Unknown extension 'tests\.\w+'"):
        dcp.load({"a": fb.ones(1000)}, storage_reader=dcp.FileSystemReader(tmp_path), no_dist=True)


def test_zstandard_compresses(tmp_path):
    pytest.importorskip("zstandard")

    places = _saved_and_loaded(tmp_path, [ZStandard()], None)

    assert {tuple(p.transform_descriptors) for p in places.values()} == {("stream.zstd/1",)}
    assert max(p.length for p in places.values()) < 4000

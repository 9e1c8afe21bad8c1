"""Collectives, point-to-point calls, objects and groups between real processes."""

from __future__ import annotations

import pytest


def test_all_calls_give_what_their_definitions_say(ranks):
    ranks("collective_programs.everything", 4)


def test_all_calls_give_the_same_over_sockets_alone(ranks):
    ranks("collective_programs.over_sockets", 2, FLAMBEAU_SHARED_MEMORY="0")


def test_large_tensors_and_long_lists_are_combined_by_three_ranks(ranks):
    ranks("collective_programs.blocks", 3)


def test_a_job_meets_in_a_file_at_an_address_and_again_on_one_store(ranks, tmp_path):
    ranks("collective_programs.by_file", 2)

    assert not (tmp_path / "store").exists()


def test_a_mesh_has_a_group_along_each_dimension(ranks):
    ranks("collective_programs.mesh", 4)


def test_a_call_is_boxed_and_unboxed():
    from flambeau.distributed import Work

    work = Work()

    assert Work.unbox(work.boxed()) is work
    with pytest.raises(TypeError, match="got int"):
        Work.unbox(3)


def test_the_flight_recorder_gives_the_last_calls_as_pytorch_does():
    import json
    import pickle

    import flambeau as fb
    import flambeau.distributed as dist
    from flambeau._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(fb.ones(2, 3))
    dist.barrier()
    dist.destroy_process_group()
    found, as_json = pickle.loads(_dump_fr_trace()), json.loads(_dump_fr_trace_json())

    first, second = found["entries"][-2:]
    assert (first["profiling_name"], second["profiling_name"]) == ("all_reduce", "barrier")
    assert (first["state"], first["retired"], first["is_p2p"]) == ("completed", True, False)
    assert first["frames"][0]["filename"] == __file__
    assert first["what"].startswith("torch.float32 (2, 3)")
    assert first["time_created_ns"] <= second["time_created_ns"] <= second["time_discovered_completed_ns"]
    assert found["pg_status"][first["process_group"][0]]["last_completed_collective"] == second["collective_seq_id"]
    assert found["version"] == as_json["version"] == "2.10"
    assert [entry["record_id"] for entry in as_json["entries"]] == [entry["record_id"] for entry in found["entries"]]
    assert "frames" not in as_json["entries"][0]
    assert "entries" not in json.loads(_dump_fr_trace_json(includeCollectives=False))
    assert all(not entry["retired"] for entry in json.loads(_dump_fr_trace_json(onlyActive=True))["entries"])

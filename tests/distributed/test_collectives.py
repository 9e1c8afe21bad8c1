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

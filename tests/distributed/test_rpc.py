"""Calls between workers, references, backward and training over them: as PyTorch, and safe where PyTorch is not."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb


def test_programs_over_workers_end_as_under_pytorch(ranks, tmp_path, oracle):
    ranks("rpc_programs.programs", 3)
    ranks("rpc_programs.programs", 3, limit=120, UNDER="torch")

    for what in ("calls", "gradients", "training", "modules"):
        ours, theirs = np.load(tmp_path / f"flambeau.{what}.npy"), np.load(tmp_path / f"torch.{what}.npy")
        assert np.abs(ours - theirs).max() < 1e-5, what


@pytest.mark.parametrize("under", ["flambeau", "torch"])
def test_mistakes_raise_what_they_raise_under_pytorch(ranks, oracle, under):
    ranks("rpc_programs.errors", 2, limit=120, UNDER=under)


def test_gradients_skip_calls_that_backward_does_not_reach(ranks):
    ranks("rpc_programs.unused", 2)


def test_values_are_dropped_with_their_last_reference(ranks):
    ranks("rpc_programs.references", 3)


def test_a_killed_worker_is_named_at_once_and_at_shutdown(ranks):
    ended = ranks("rpc_programs.killed", 3, check=False)

    assert ended.codes == [0, -9, 0], ended.out


def test_a_worker_with_another_key_is_refused(ranks):
    ended = ranks("rpc_programs.wrong_key", 2)

    assert ended.seconds < 30


def test_workers_run_what_they_allow_and_unpickle_nothing(ranks):
    ranks("rpc_programs.strict", 3)


def test_calls_are_events_of_the_callers_profiler(ranks):
    ranks("rpc_programs.profiled", 2)


def test_a_remote_module_needs_rpc():
    from flambeau.distributed.nn import RemoteModule

    with pytest.raises(AssertionError, match=r"^RemoteModule only works in RPC\.$"):
        RemoteModule("worker/cpu", fb.nn.Linear, args=(2, 3))

"""Networks whose parameters, gradients and optimizer states are spread over processes: trained like whole ones, memory let go of."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("size", [2, 4])
def test_spread_networks_end_where_whole_ones_do(ranks, size):
    ranks("sharded_programs.training", size)


def test_gradients_of_replicas_add_up_until_they_are_reduced(ranks):
    ranks("sharded_programs.accumulation", 4)


def test_gradients_add_up_dtypes_are_kept_apart_memory_is_let_go_of_and_what_cannot_be_spread_is_refused(ranks):
    ranks("sharded_programs.at_once", 2)


def test_state_dicts_hold_pieces_and_methods_gather(ranks):
    ranks("sharded_programs.states", 2)


@pytest.mark.parametrize("ways", ["usual", "more"])
def test_wrapped_networks_end_where_whole_ones_do(ranks, ways):
    ranks("sharded_programs.wrapped", 2, WAYS=ways)


def test_layers_divided_for_tensor_parallelism_are_divided_again(ranks):
    ranks("sharded_programs.two_dimensions", 4)

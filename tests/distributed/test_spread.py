"""Tensors spread over a mesh: operations, gradients, redistribution, and layers trained in parallel, equal to those of one process."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("size", [2, 4])
def test_operations_and_gradients_are_those_of_whole_tensors(ranks, size):
    ranks("spread_programs.operations", size, limit=110)


def test_operations_in_place_and_into_an_out_keep_their_histories(ranks):
    ranks("spread_programs.stores", 2)


@pytest.mark.parametrize("size", [2, 4])
def test_pieces_are_redistributed(ranks, size):
    ranks("spread_programs.redistribution", size)


def test_layers_trained_in_parallel_end_where_whole_ones_do(ranks):
    ranks("spread_programs.parallel_training", 2)


def test_tools_count_map_register_divide_sequences_and_stop(ranks):
    ranks("spread_programs.tools", 2)


def test_losses_of_scores_divided_along_their_classes_send_no_scores(ranks):
    ranks("spread_programs.losses", 4, limit=110)


def test_attention_of_divided_sequences_passes_keys_and_values_round(ranks):
    ranks("spread_programs.sequences", 3, limit=110)

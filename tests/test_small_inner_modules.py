"""Small modules of several rooms that programs import beside the documentation: beside PyTorch's."""

from __future__ import annotations

import argparse
import importlib
import logging
import warnings

import pytest

import flambeau as fb

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")


def both(module):
    """Our module and PyTorch's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"flambeau.{module}"), importlib.import_module(f"torch.{module}")


# -- distributed -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "variables"),
    [
        ([], {}), (["--nnodes", "5", "--standalone"], {}), ([], {"PET_NNODES": "7", "PET_STANDALONE": "1"}), ([], {"PET_STANDALONE": "0"}),
        (["--nnodes", "2"], {"PET_NNODES": "7"}),
    ],
)  # fmt: skip
def test_defaults_of_arguments_come_from_variables(argv, variables, monkeypatch):
    for name in ("PET_NNODES", "PET_STANDALONE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    def read(room):
        parser = argparse.ArgumentParser()
        parser.add_argument("-f", "--nnodes", action=room.env, type=int, default=3)
        parser.add_argument("--standalone", action=room.check_env)
        return vars(parser.parse_args(argv))

    ours, theirs = both("distributed.argparse_util")
    assert read(ours) == read(theirs)


def test_iterators_go_over_epochs():
    for room in both("distributed.elastic.utils.data"):
        found = room.CyclingIterator(3, lambda epoch: iter(range(epoch, epoch + 2)), start_epoch=1)
        assert list(found) == [1, 2, 2, 3]


@pytest.mark.parametrize(("start", "epoch"), [(0, 0), (3, 0), (3, 2), (6, 1)])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_samples_from_a_place_on(start, epoch, rank):
    found = []
    for room in both("distributed.elastic.utils.data"):
        sampler = room.ElasticDistributedSampler(list(range(10)), num_replicas=3, rank=rank, start_index=start)
        sampler.set_epoch(epoch)
        found.append((len(sampler), list(sampler), sampler.num_samples, sampler.total_size))
        with pytest.raises(ValueError, match="Start index 20 should be less than dataset size 10"):
            room.ElasticDistributedSampler(list(range(10)), 3, 0, start_index=20)

    assert found[0] == found[1]


def test_ports_and_loggers(monkeypatch):
    monkeypatch.delenv("LOGLEVEL", raising=False)
    assert 0 < both("distributed.elastic.utils.distributed")[0].get_free_port() < 65536
    for room in both("distributed.elastic.utils.log_level"):
        assert room.get_log_level() == "WARNING"
    for room in both("distributed.elastic.utils.logging"):
        assert (room.get_logger("a.b").name, room.get_logger("a.b").level) == ("a.b", logging.WARNING)
    assert both("distributed.elastic.utils.logging")[0].get_logger().name == __name__


# -- graphs ------------------------------------------------------------------------------------------------------------------


def test_types_of_sizes():
    told = []
    for room in both("fx.tensor_type"):
        t, dyn = room.TensorType, room.Dyn
        kinds = [t((1, 2)), t((1, dyn)), t((1, 3)), t((1,)), dyn, 3, 4]
        told.append((
            [str(k) for k in kinds], str(t[1]), str(t[1, dyn]),
            [[room.is_consistent(a, b) for a in kinds] for b in kinds],
            [[room.is_more_precise(a, b) for a in kinds] for b in kinds],
            [[a == b for a in kinds] for b in kinds],
        ))  # fmt: skip

    assert told[0] == told[1]


def test_values_are_annotated():
    for lib in (fb, torch):
        annotate = importlib.import_module(f"{lib.__name__}.fx.annotate").annotate

        def once(x):
            return annotate(x, int) + 1  # noqa: B023

        def twice(x):
            return annotate(annotate(x, int), float)  # noqa: B023

        graph = lib.fx.symbolic_trace(once).graph
        assert [node.type for node in graph.nodes] == [int, None, None]
        assert annotate(3, int) == 3
        with pytest.raises(RuntimeError, match="already had a type on it! Existing type is <class 'int'>"):
            lib.fx.symbolic_trace(twice)


def test_equalities_and_settings():
    for room in both("fx.experimental.refinement_types"):
        made = room.Equality(1, 2)
        assert (str(made), repr(made), made == room.Equality(1, 2), made == room.Equality(2, 1), made == 3) == (
            "1 = 2", "1 = 2", True, False, False,
        )  # fmt: skip
    ours, theirs = both("fx.config")
    for name in ("disable_progress", "verbose_progress", "do_not_emit_stack_traces"):
        assert getattr(ours, name) == getattr(theirs, name)
    with ours.patch("verbose_progress", True):
        assert ours.verbose_progress
    with pytest.raises(AttributeError):
        ours.nothing = 1


@pytest.mark.parametrize(
    "source",
    [
        "import a.b\nfrom . import c\nfrom .d import e as f\nimport os, sys as s\n__import__('q')\nfrom ..z import y",
        "def f():\n    import inner\n    __import__('w', fromlist=['m', 'n'])\n__import__(name)\nimport inner",
        "x = 1", "from a import b, c",
    ],
)
def test_what_a_text_imports(source):
    ours, theirs = both("package.find_file_dependencies")

    assert ours.find_files_source_depends_on(source, "pkg.sub") == theirs.find_files_source_depends_on(source, "pkg.sub")


# -- sparse ------------------------------------------------------------------------------------------------------------------


def test_semi_structured_tensors_are_cudas():
    for lib in (fb, torch):
        dense = lib.ones(32, 32).half()
        for make in (lib.sparse.to_sparse_semi_structured, lib.sparse.SparseSemiStructuredTensorCUTLASS.from_dense):
            with pytest.raises(RuntimeError, match="Only CUDA tensors are currently supported"):
                make(dense)
    assert not isinstance(fb.ones(1), fb.sparse.SparseSemiStructuredTensor)
    with pytest.raises(NotImplementedError):
        fb.sparse.SparseSemiStructuredTensor()

"""Models in stages on several processes: every schedule gives the losses and gradients of one process."""

from __future__ import annotations

import pytest

import flambeau as fb
import flambeau.distributed as dist
from flambeau.distributed._fake import FakeStore
from flambeau.distributed.pipelining import (
    PipelineStage,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    SplitPoint,
    _orders,
    pipe_split,
    pipeline,
)
from flambeau.distributed.pipelining.microbatch import (
    TensorChunkSpec,
    merge_chunks,
    split_args_kwargs_into_chunks,
)
from flambeau.distributed.pipelining.schedules import get_schedule_class


def test_two_processes_give_the_gradients_of_one_by_every_schedule_and_cut_by_graph(ranks):
    ranks("pipeline_programs.two", 2, limit=300)


def test_four_processes_give_the_gradients_of_one_by_every_schedule_and_data_parallel(ranks):
    ranks("pipeline_programs.four", 4, limit=300)


def test_a_stage_that_fails_is_named_on_all_ranks_and_nobody_hangs(ranks):
    ended = ranks("pipeline_programs.failures", 3, limit=300, check=False)

    assert ended.codes == [0, -9, 0], ended.out


def test_a_stage_that_does_not_come_is_named_when_the_timeout_ends(ranks):
    ranks("pipeline_programs.silent", 2, limit=300)


ORDERS = {
    "Interleaved1F1B": _orders.interleaved_1f1b,
    "LoopedBFS": _orders.breadth_first,
    "InterleavedZeroBubble": _orders.interleaved_zero_bubble,
    "ZBVZeroBubble": lambda rank, ranks, local, count: _orders.v_zero_bubble(rank, ranks, count),
    "DualPipeV": lambda rank, ranks, local, count: _orders.dual_pipe_v(rank, ranks, count),
}


def _order_or_error(make, *args):
    try:
        return {rank: [str(action) for action in order if action is not None] for rank, order in make(*args).items()}
    except ValueError as error:
        return str(error)


def _ours(name, ranks, local, count):
    return {rank: ORDERS[name](rank, ranks, local, count) for rank in range(ranks)}


@pytest.mark.parametrize("name", ORDERS)
def test_schedules_order_their_actions_as_pytorch_does(name, oracle):
    pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    from torch import distributed as theirs
    from torch.distributed.pipelining import PipelineStage as TheirStage
    from torch.distributed.pipelining.schedules import get_schedule_class as their_class
    from torch.testing._internal.distributed.fake_pg import FakeStore as TheirStore

    def theirs_of(stages, count):
        return their_class(name)(stages, count, loss_fn=lambda a, b: a).pipeline_order

    in_v = name in ("ZBVZeroBubble", "DualPipeV")
    for ranks in (2, 5):
        theirs.init_process_group("fake", store=TheirStore(), rank=0, world_size=ranks)
        for local in (2,) if in_v else (1, 2, 3):
            places = [0, 2 * ranks - 1] if in_v else [ranks * at for at in range(local)]
            stages = [
                TheirStage(oracle.nn.Linear(2, 2), at, ranks * local, oracle.device("cpu")) for at in places
            ]
            for count in (1, 4, 9, 10):
                expected = _order_or_error(theirs_of, stages, count)
                assert _order_or_error(_ours, name, ranks, local, count) == expected, (ranks, local, count)
        theirs.destroy_process_group()


@pytest.mark.parametrize(
    ("values", "kwargs", "chunks", "spec"),
    [
        ((5,), {}, 2, None),
        ((5, 7), {"k": 5, "n": None}, 2, None),
        ((5,), {}, 8, None),
        ((), {}, 3, None),
        ((5,), {}, 2, (1,)),
        ((6,), {"k": 9}, 4, (0,)),
    ],
)
def test_arguments_are_cut_into_microbatches_as_by_pytorch(oracle, values, kwargs, chunks, spec):
    from torch.distributed.pipelining import microbatch as theirs

    def cut(lib, module):
        tensors = [lib.arange(2.0 * rows).reshape(rows, 2) for rows in values]
        named = {key: None if rows is None else lib.arange(float(rows)) for key, rows in kwargs.items()}
        specs = None if spec is None else tuple(module.TensorChunkSpec(dim) for dim in spec)
        whole = None if specs is None else (*specs, module._Replicate)
        args, found = module.split_args_kwargs_into_chunks((*tensors, 3), named, chunks, whole)
        merged = module.merge_chunks([arg[:-1] for arg in args], None if specs is None else specs)
        return args, found, merged

    import flambeau.distributed.pipelining.microbatch as ours

    assert _plain(cut(fb, ours)) == _plain(cut(oracle, theirs))


def _plain(value):
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def test_specs_that_do_not_fit_are_refused():
    x = fb.ones(4, 2)
    with pytest.raises(AssertionError, match="1 specs for 2"):
        split_args_kwargs_into_chunks((x, x), None, 2, (TensorChunkSpec(0),))
    with pytest.raises(AssertionError, match="'b'"):
        split_args_kwargs_into_chunks((), {"a": x}, 2, None, {"b": TensorChunkSpec(0)})
    with pytest.raises(IndexError, match="no dimensions"):
        split_args_kwargs_into_chunks((fb.tensor(1.0),), None, 2)
    with pytest.raises(IndexError, match="7"):
        split_args_kwargs_into_chunks((x,), None, 2, (TensorChunkSpec(7),))
    with pytest.raises(ValueError, match="Unsupported chunk spec"):
        split_args_kwargs_into_chunks((3,), None, 2, (TensorChunkSpec(0),))
    with pytest.raises(ValueError, match="differently"):
        merge_chunks([x, (x, x)], None)


def test_results_are_merged_by_their_spec():
    from flambeau.distributed.pipelining.microbatch import _Replicate, sum_reducer

    x, y = fb.ones(2, 1), fb.zeros(2, 1)

    merged = merge_chunks([(x, fb.tensor(1.0), x), (y, fb.tensor(3.0), y)], (TensorChunkSpec(1), sum_reducer, _Replicate))

    assert merged[0].tolist() == [[1, 0], [1, 0]]
    assert float(merged[1]) == 4
    assert merged[2] is x
    assert repr(TensorChunkSpec.from_dict({"a": 2})["a"]).endswith("TensorChunkSpec(2)")


@pytest.fixture
def two_of():
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield lambda at, count: PipelineStage(fb.nn.Linear(2, 2), at, count, "cpu")
    dist.destroy_process_group()


def test_stages_and_schedules_refuse_what_cannot_be(two_of):
    with pytest.raises(ValueError, match="Stage index 3 is out of range of 2"):
        two_of(3, 2)
    with pytest.raises(RuntimeError, match="group size 2 cannot be larger than number of stages 1"):
        two_of(0, 1)
    with pytest.raises(ValueError, match=r"microbatches \(1\) must be"):
        get_schedule_class("1f1b")(two_of(0, 2), 1)
    with pytest.raises(ValueError, match="pipeline has 4"):
        ScheduleGPipe(two_of(0, 4), 4)
    with pytest.raises(ValueError, match=r"has the stages \[0, 2\] of 4, got \[0, 1\]"):
        ScheduleInterleaved1F1B([two_of(0, 4), two_of(1, 4)], 4)
    with pytest.raises(ValueError, match="exactly 2 stages per rank, but got 3"):
        get_schedule_class("ZBVZeroBubble")([two_of(at, 6) for at in (0, 2, 4)], 4)
    with pytest.raises(TypeError, match="must be a list"):
        ScheduleInterleaved1F1B(two_of(0, 2), 4)
    with pytest.raises(ValueError, match="Unknown schedule name 'nope'"):
        get_schedule_class("nope")
    with pytest.raises(ValueError, match="n_microbatches must be"):
        ScheduleGPipe(two_of(0, 2), 0)


class Layer(fb.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = fb.nn.Linear(3, 3)

    def forward(self, x):
        return self.lin(x)


class Model(fb.nn.Module):
    def __init__(self, mark=False):
        super().__init__()
        self.emb, self.layers, self.mark = fb.nn.Embedding(10, 3), fb.nn.ModuleList(Layer() for _ in range(2)), mark

    def forward(self, x):
        x = self.emb(x)
        for layer in self.layers:
            x = layer(x)
            if self.mark:
                pipe_split()
        return x.relu()


def test_a_model_is_cut_where_it_is_told_to_and_parts_keep_their_names():
    model, x = Model(), fb.tensor([1, 2, 4, 5])

    pipe = pipeline(model, (x,), split_spec={"layers.1": SplitPoint.BEGINNING})

    assert pipe.num_stages == pipe.info().num_stages == 2
    assert [name for name, _ in pipe.get_stage_module(0).named_parameters()] == [
        "emb.weight", "layers.0.lin.weight", "layers.0.lin.bias",
    ]  # fmt: skip
    assert pipe.get_stage_module(1).get_submodule("layers.1.lin") is model.layers[1].lin
    assert fb.equal(pipe(x)[0], model(x))
    assert "submod_1 = self.submod_1(submod_0)" in str(pipe)
    # The model is not marked for good, and marks in its code count as well.
    assert pipeline(model, (x,)).num_stages == 1
    assert pipeline(model, (x,), split_spec={"layers.0": SplitPoint.END, "layers.1": SplitPoint.END}).num_stages == 3
    assert pipeline(Model(mark=True), (x,)).num_stages == 3


def test_a_split_policy_puts_the_marks_into_the_graph():
    def after_embedding(traced):
        node = next(node for node in traced.graph.nodes if node.target == "emb")
        with traced.graph.inserting_after(node):
            traced.graph.call_function(pipe_split)
        traced.recompile()
        return traced

    model, x = Model(), fb.tensor([1, 2])

    pipe = pipeline(model, (x,), split_policy=after_embedding)

    assert [name for name, _ in pipe.get_stage_module(0).named_parameters()] == ["emb.weight"]
    assert fb.equal(pipe(x)[0], model(x))


def test_parts_of_a_model_keep_their_modes():
    model = fb.nn.Sequential(fb.nn.Linear(2, 2), fb.nn.BatchNorm1d(2), fb.nn.Dropout(0.5))
    model[1].eval()

    pipe = pipeline(model, (fb.ones(2, 2),), split_spec={"1": SplitPoint.BEGINNING})

    assert not model[1].training
    assert model[2].training
    assert pipe.get_stage_module(1).training


def test_models_that_cannot_be_cut_are_refused():
    x = fb.tensor([1, 2])
    with pytest.raises(AttributeError, match="nope"):
        pipeline(Model(), (x,), split_spec={"nope": SplitPoint.END})
    with pytest.raises(ValueError, match="only one of them"):
        pipeline(Model(), (x,), split_spec={"emb": SplitPoint.END}, split_policy=lambda traced: traced)
    with pytest.raises(ValueError, match="Invalid stage index 7"):
        pipeline(Model(), (x,)).get_stage_module(7)
    with pytest.raises(TypeError, match="missing a required argument"):
        pipeline(Model(), ())
    with pytest.raises(TypeError, match=r"SplitPoint.BEGINNING or"):
        pipeline(Model(), (x,), split_spec={"emb": 1})
    tied = Model()
    tied.layers[1] = tied.layers[0]
    with pytest.warns(UserWarning, match=r"lin.* is used by the stages \[1, 2\]"):
        pipeline(tied, (x,), split_spec={"emb": SplitPoint.END, "layers.0": SplitPoint.END})

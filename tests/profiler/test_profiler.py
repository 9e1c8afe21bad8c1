"""Profiles: what is recorded, when, and that recording changes nothing."""

from __future__ import annotations

import gzip
import json
import threading
import warnings
from collections import Counter

import pytest

import flambeau as fb
from flambeau import _state, profiler
from flambeau.profiler import (
    ProfilerAction,
    ProfilerActivity,
    _memory_profiler,
    profile,
    record_function,
    schedule,
)

nn = fb.nn


def top_level(prof):
    return [e.name for e in prof.events() if e.cpu_parent is None]


def inside(prof, name):
    """The names of events directly inside the first one of that name."""
    event = next(e for e in prof.events() if e.name == name)
    return [child.name for child in event.cpu_children]


# -- what is recorded ----------------------------------------------------------------------------------------------------


def test_each_call_is_an_event_with_the_name_of_pytorch(oracle):
    def program(torch):
        x = torch.ones(3)
        with torch.profiler.profile() as prof:
            x + x
            x.add_(1)
            x.neg()
            x.sum()
            x.view(3, 1).expand(3, 2).contiguous()
            torch.stack([x, x])
            torch.cat([x, x])
            torch.where(x > 1, x, x)
            x.softmax(0)
            torch.zeros(3)
            x.clone()
            x.detach()
        return top_level(prof)

    assert program(fb) == program(oracle)


def test_regions_hold_what_runs_inside_them(oracle):
    def program(torch):
        x = torch.ones(3)

        @torch.profiler.record_function("function")
        def doubled(x):
            return x + x

        with torch.profiler.profile() as prof:
            with torch.profiler.record_function("outer"), torch.profiler.record_function("inner"):
                doubled(x)
                doubled(x)
            x - x
        return [(e.name, e.cpu_parent and e.cpu_parent.name, e.scope, e.is_user_annotation) for e in prof.events()]

    assert program(fb) == program(oracle)


def test_a_region_that_raises_is_recorded():
    with profile() as prof:
        with pytest.raises(RuntimeError, match="size of tensor"), record_function("fails"):
            fb.ones(2) + fb.ones(3)
        fb.ones(2)

    assert "fails" in top_level(prof)
    assert inside(prof, "fails") == ["aten::ones", "aten::ones", "aten::add"]


def test_backward_shows_its_nodes_in_the_order_of_pytorch(oracle):
    def program(torch):
        x = torch.ones(3, requires_grad=True)
        y = ((x * 2).relu() + x).exp().sum()
        with torch.profiler.profile() as prof:
            y.backward()
        wanted = "autograd::engine::evaluate_function: "
        return [(e.name.removeprefix(wanted), [c.name for c in e.cpu_children][:1]) for e in prof.events() if e.name.startswith(wanted)]

    assert program(fb) == program(oracle)


def test_backward_has_the_number_of_the_op_it_belongs_to():
    x = fb.ones(3, requires_grad=True)
    with profile() as prof:
        x.exp().sum().backward()
    numbers = {e.name: e.sequence_nr for e in prof.events()}

    assert numbers["aten::exp"] == numbers["ExpBackward0"] >= 0
    assert numbers["aten::sum"] == numbers["SumBackward0"] > numbers["aten::exp"]


def test_optimizers_and_loaders_are_regions(oracle):
    def program(torch):
        layer = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 2)), batch_size=2)
        with torch.profiler.profile() as prof:
            for (batch,) in loader:
                optimizer.zero_grad()
                layer(batch).sum().backward()
                optimizer.step()
        return Counter(e.name for e in prof.events() if "#" in e.name)

    assert program(fb) == program(oracle)


def test_shapes_are_those_of_operands(oracle):
    def program(torch):
        x = torch.ones(3, 4)
        with torch.profiler.profile(record_shapes=True) as prof:
            x + x
            x.mul_(2.0)
            torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 5))
        names = "aten::add", "aten::mul_", "aten::bmm"
        return [(e.name, e.input_shapes[:2]) for e in prof.events() if e.name in names]

    assert program(fb) == program(oracle)


def test_operations_are_counted_as_pytorch_counts_them(oracle):
    def program(torch):
        x, image = torch.ones(3, 4), torch.ones(1, 2, 7, 7)
        with torch.profiler.profile(with_flops=True) as prof:
            torch.add(x, 1)
            x * x
            torch.add(x, torch.ones(4))
            x @ x.t()
            torch.nn.functional.linear(x, torch.ones(5, 4), torch.ones(5))
            torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 5))
            torch.nn.functional.conv2d(image, torch.ones(4, 1, 3, 3), groups=2, stride=2, padding=1, dilation=2)
        return sorted(e.flops for e in prof.events() if e.flops)

    assert program(fb) == program(oracle)


def test_memory_is_counted_where_it_is_taken_and_given_back():
    x = fb.ones(1000)
    with profile(profile_memory=True) as prof:
        with record_function("kept"):
            y = x + x
        with record_function("passing"):
            z = x * x
            del z
        x.view(10, 100)
        del y
    events = {e.name: e for e in prof.events()}

    assert events["kept"].cpu_memory_usage == events["aten::add"].cpu_memory_usage == 4000
    assert events["passing"].cpu_memory_usage == 0
    assert events["aten::mul"].cpu_memory_usage == 4000
    assert events["aten::view"].cpu_memory_usage == 0
    assert events["[memory]"].cpu_memory_usage == -4000


def test_stacks_are_lines_of_the_program_innermost_first():
    def called():
        return fb.ones(2) + 1

    with profile(with_stack=True) as prof:
        called()
    stack = next(e for e in prof.events() if e.name == "aten::add").stack

    assert stack[0].endswith(": called")
    assert stack[1].endswith(": test_stacks_are_lines_of_the_program_innermost_first")
    assert all(line.startswith(__file__) for line in stack[:2])


def test_averages_by_stack_keep_lines_apart():
    with profile(with_stack=True) as prof:
        fb.ones(2) + 1
        fb.ones(2) + 1
    averages = prof.key_averages(group_by_stack_n=1)

    assert [a.count for a in averages if a.key == "aten::add"] == [1, 1]


def test_modules_are_events_around_their_ops():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    with profile(with_modules=True) as prof:
        net(fb.ones(1, 2))

    assert top_level(prof)[-1] == "nn.Module: Sequential_0"
    assert inside(prof, "nn.Module: Sequential_0") == ["nn.Module: Linear_0", "nn.Module: ReLU_0", "nn.Module: Linear_1"]
    assert inside(prof, "nn.Module: Linear_1") == ["aten::linear"]


def test_other_threads_are_not_recorded(oracle):
    def program(torch):
        x = torch.ones(2)
        with torch.profiler.profile() as prof:
            thread = threading.Thread(target=lambda: x * x)
            thread.start()
            thread.join()
            x + x
        return top_level(prof)

    assert program(fb) == program(oracle)


def test_a_profile_inside_a_profile_is_seen_by_both():
    x = fb.ones(2)
    with fb.autograd.profiler.profile() as outer:
        x + x
        with fb.autograd.profiler.profile() as inner:
            x * x
        x - x

    assert [e.name for e in outer.function_events] == ["aten::add", "aten::mul", "aten::sub"]
    assert [e.name for e in inner.function_events] == ["aten::mul"]


def test_operators_of_programs_are_events():
    @fb.library.custom_op("profiled::twice", mutates_args=())
    def twice(x: fb.Tensor) -> fb.Tensor:
        return x * 2

    with profile() as prof:
        twice(fb.ones(2))

    assert "profiled::twice" in top_level(prof)


def test_ops_below_autocast_vmap_and_modes_are_seen():
    layer, x = nn.Linear(3, 3), fb.ones(2, 3)
    with profile() as prof:
        with fb.autocast("cpu", dtype=fb.bfloat16):
            result = layer(x)
        batched = fb.vmap(lambda row: row.sum())(x)

    assert result.dtype is fb.bfloat16
    assert batched.tolist() == [3.0, 3.0]
    assert {"aten::linear", "aten::_to_copy", "aten::sum"} <= {e.name for e in prof.events()}


# -- that it changes nothing ---------------------------------------------------------------------------------------------


def _conv():
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 4), nn.Dropout(0.2)
    return nn.Sequential(*layers), fb.randn(2, 3, 8, 8)


def _recurrent():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(5, 6, batch_first=True)

        def forward(self, x):
            return self.lstm(x)[0][:, -1]

    return Last(), fb.randn(3, 4, 5)


def _transformer():
    return nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True), fb.randn(2, 5, 16)


@pytest.mark.parametrize("make", [_conv, _recurrent, _transformer])
@pytest.mark.parametrize("details", [{}, {"record_shapes": True, "profile_memory": True, "with_stack": True, "with_flops": True}])
def test_training_has_the_same_bits_with_and_without(make, details):
    def trained(recording):
        fb.manual_seed(0)
        net, x = make()
        optimizer = fb.optim.Adam(net.parameters(), lr=0.01)

        def steps():
            for _ in range(3):
                optimizer.zero_grad()
                net(x).square().mean().backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                optimizer.step()

        if recording:
            with profile(**details):
                steps()
        else:
            steps()
        return list(net.parameters())

    for with_it, without in zip(trained(True), trained(False), strict=True):
        assert fb.equal(with_it, without)


def test_nothing_is_left_in_force_when_it_ends():
    with pytest.raises(RuntimeError, match="size of tensor"), profile():
        fb.ones(2) + fb.ones(3)

    assert not _state.interpreted()
    assert _state.observer() is None
    assert not nn.modules.module._watching_all


def test_collection_can_pause():
    x = fb.ones(2)
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        x + x
        prof.toggle_collection_dynamic(False, [ProfilerActivity.CPU])
        x * x
        prof.toggle_collection_dynamic(True, [ProfilerActivity.CPU])
        x - x

    assert top_level(prof) == ["aten::add", "aten::sub"]


# -- schedules -----------------------------------------------------------------------------------------------------------

_SCHEDULES = [
    {}, {"wait": 1, "warmup": 1, "active": 1}, {"wait": 1, "warmup": 1, "active": 2, "repeat": 1},
    {"wait": 0, "warmup": 1, "active": 2, "repeat": 2}, {"wait": 1, "warmup": 0, "active": 2}, {"wait": 0, "warmup": 0, "active": 1},
    {"wait": 1, "warmup": 1, "active": 1, "skip_first": 2, "repeat": 1}, {"wait": 1, "warmup": 1, "active": 9},
    {"wait": 2, "warmup": 1, "active": 1, "skip_first": 2, "skip_first_wait": 1},
]  # fmt: skip


@pytest.mark.parametrize("arguments", _SCHEDULES, ids=str)
def test_schedules_record_the_steps_that_pytorch_records(oracle, arguments):
    def program(torch):
        ready = []
        x = torch.ones(3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of missing warmup, and of events that a new cycle clears
            plan = torch.profiler.schedule(**arguments) if arguments else None
            note = ready.append
            with torch.profiler.profile(
                schedule=plan, on_trace_ready=lambda p: note((p.step_num, sorted(Counter(e.name for e in p.events()).items())))
            ) as prof:
                for _ in range(7):
                    x + x
                    prof.step()
        return ready, prof.step_num, prof.current_action.name

    assert program(fb) == program(oracle)


def test_schedules_say_what_to_do_in_each_step(oracle):
    for arguments in _SCHEDULES[1:]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of missing warmup
            ours, theirs = schedule(**arguments), oracle.profiler.schedule(**arguments)

        assert [ours(i).name for i in range(20)] == [theirs(i).name for i in range(20)]


def test_schedules_refuse_negative_numbers():
    with pytest.raises(AssertionError, match=r"active=0 \(need > 0\)"):
        schedule(wait=1, warmup=1, active=0)
    with pytest.raises(AssertionError, match="Got -1"):
        schedule(wait=1, warmup=1, active=1)(-1)
    with pytest.warns(UserWarning, match="warmup"):
        schedule(wait=1, warmup=0, active=1)


def test_events_of_earlier_cycles_are_kept_on_request():
    x = fb.ones(2)
    with profile(schedule=schedule(wait=0, warmup=1, active=1), acc_events=True) as prof:
        for _ in range(6):
            x + x
            prof.step()

    assert Counter(e.name for e in prof.events())["aten::add"] == 3


def test_profiles_without_anything_to_record_are_refused():
    with pytest.raises(AssertionError, match="No valid profiler activities"):
        profile(activities=[])
    with pytest.raises(AssertionError, match="before accessing events"):
        profile().events()
    with pytest.raises(AssertionError, match="before exporting chrome trace"):
        profile().export_chrome_trace("never")
    with pytest.warns(UserWarning, match="CUDA is not recorded"):
        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])


def test_actions_and_activities_have_the_values_of_pytorch(oracle):
    assert {a.name: a.value for a in ProfilerAction} == {a.name: a.value for a in oracle.profiler.ProfilerAction}
    theirs = oracle.profiler.ProfilerActivity.__members__
    assert {a.name for a in ProfilerActivity} == set(theirs)
    assert str(ProfilerActivity.CPU) == str(theirs["CPU"])


# -- files ---------------------------------------------------------------------------------------------------------------


def _trained(**details):
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    optimizer = fb.optim.SGD(net.parameters(), lr=0.1)
    with profile(**details) as prof, record_function("training"):
        net(fb.ones(2, 4)).sum().backward()
        optimizer.step()
    return prof


def test_traces_are_valid_and_connect_forward_with_backward(tmp_path):
    path = tmp_path / "trace.json"
    prof = _trained(record_shapes=True)
    prof.add_metadata("note", "text")
    prof.add_metadata_json("numbers", "[1, 2]")
    prof.export_chrome_trace(str(path))
    trace = json.loads(path.read_text())
    calls = [e for e in trace["traceEvents"] if e["ph"] == "X" and e.get("cat") in ("cpu_op", "user_annotation")]

    assert trace["schemaVersion"] == 1
    assert trace["note"] == "text"
    assert trace["numbers"] == [1, 2]
    assert trace["record_shapes"] == 1
    assert {"training", "aten::linear", "AddmmBackward0", "Optimizer.step#SGD.step"} <= {e["name"] for e in calls}
    region = next(e for e in calls if e["name"] == "training")
    assert all(region["ts"] <= e["ts"] and e["ts"] + e["dur"] <= region["ts"] + region["dur"] + 1e-2 for e in calls)
    linear = next(e for e in calls if e["name"] == "aten::linear")
    assert linear["args"]["Input Dims"][:2] == [[2, 4], [3, 4]]
    assert linear["args"]["Input type"][:2] == ["float", "float"]
    arrows = {e["id"]: e["ts"] for e in trace["traceEvents"] if e["ph"] == "s"}
    heads = {e["id"]: e["ts"] for e in trace["traceEvents"] if e["ph"] == "f"}
    assert arrows.keys() == heads.keys()
    assert len(arrows) == 3
    assert all(arrows[i] < heads[i] for i in arrows)
    assert linear["ts"] in arrows.values()


def test_traces_for_tensorboard_have_files_of_their_own(tmp_path):
    x = fb.ones(2)
    handler = profiler.tensorboard_trace_handler(str(tmp_path / "log"), worker_name="worker", use_gzip=True)
    with profile(schedule=schedule(wait=0, warmup=1, active=1, repeat=2), on_trace_ready=handler) as prof:
        for _ in range(4):
            x + x
            prof.step()
    names = sorted(p.name for p in (tmp_path / "log").iterdir())

    assert len(names) == 2
    assert all(n.startswith("worker.") and n.endswith(".pt.trace.json.gz") for n in names)


def test_stacks_are_exported_outermost_first(tmp_path):
    path = tmp_path / "stacks"
    with profile(with_stack=True) as prof:
        fb.rand(200, 200) @ fb.rand(200, 200)
    prof.export_stacks(str(path))
    line = path.read_text().splitlines()[0]
    frames, value = line.rsplit(" ", 1)

    assert int(value) > 0
    assert frames.split(";")[-1].endswith("test_stacks_are_exported_outermost_first")


def test_execution_traces_say_which_call_ran_inside_which(tmp_path):
    path = tmp_path / "execution.json"
    observer = profiler.ExecutionTraceObserver().register_callback(str(path))
    x = fb.ones(3)
    with profile(execution_trace_observer=observer) as prof:
        (x + x) * x
    trace = json.loads(path.read_text())
    nodes = {n["name"]: n for n in trace["nodes"]}

    assert {"aten::add", "aten::mul"} <= set(top_level(prof))
    assert trace["schema"].endswith("chakra.0.0.4")
    assert nodes["aten::add"]["inputs"]["shapes"][:2] == [[3], [3]]
    assert nodes["aten::add"]["outputs"]["values"][0] == nodes["aten::mul"]["inputs"]["values"][0]
    assert nodes["aten::add"]["ctrl_deps"] == 2
    assert not observer.is_registered


def test_cycles_that_nobody_saw_are_warned_of():
    prof = profile(schedule=schedule(wait=0, warmup=1, active=1))
    with prof:
        prof.step()
        prof.step()
        with pytest.warns(UserWarning, match="clears events"):
            prof.step()


def test_memory_timelines_tell_parameters_gradients_and_state_apart(tmp_path):
    net = nn.Linear(100, 50, bias=False)
    optimizer = fb.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x = fb.ones(8, 100)
    with profile(profile_memory=True, record_shapes=True, with_stack=True) as prof:
        net(x).relu().sum().backward()
        optimizer.step()
    prof.export_memory_timeline(str(tmp_path / "memory.json"))
    prof.export_memory_timeline(str(tmp_path / "memory.html"))
    prof.export_memory_timeline(str(tmp_path / "memory.raw.json.gz"))
    times, sizes = json.loads((tmp_path / "memory.json").read_text())
    last = dict(zip(_memory_profiler.Category, sizes[-1][1:], strict=True))

    assert times == sorted(times)
    assert last[_memory_profiler.Category.PARAMETER] == last[_memory_profiler.Category.GRADIENT] == 20_000
    assert last[_memory_profiler.Category.OPTIMIZER_STATE] == 20_000
    assert last[_memory_profiler.Category.INPUT] == 3200
    assert last[_memory_profiler.Category.ACTIVATION] == 0 < max(row[3] for row in sizes)
    assert "<svg" in (tmp_path / "memory.html").read_text()
    with gzip.open(tmp_path / "memory.raw.json.gz", "rt") as file:
        assert {action for _, action, _, _ in json.load(file)} >= {0, 1, 3}
    with pytest.raises(ValueError, match="must end in"):
        prof.export_memory_timeline("memory.png")
    with pytest.raises(ValueError, match="profile_memory=True"):
        profile().export_memory_timeline("memory.json")


def test_memory_that_was_there_is_told_from_memory_that_steps_and_backward_make():
    net = nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.Linear(128, 8))
    optimizer = fb.optim.Adam(net.parameters())
    x = fb.rand(32, 64)

    def step():
        y = net(x)
        (y + y.relu()).sum().backward()  # two gradients meet, so the engine adds them
        optimizer.step()
        optimizer.zero_grad()

    step()
    with profile(profile_memory=True) as prof:
        for _ in range(4):
            step()
    _, sizes = _memory_profiler.MemoryProfile(prof.profiler._recorder).coordinates()
    kinds = _memory_profiler.Category
    first, last = (dict(zip(kinds, row[1:], strict=True)) for row in (sizes[0], sizes[-1]))
    parameters = sum(p.nbytes for p in net.parameters())
    states = sum(value.nbytes for state in optimizer.state.values() for value in state.values())

    for row in (first, last):
        assert (row[kinds.PARAMETER], row[kinds.OPTIMIZER_STATE], row[kinds.INPUT]) == (parameters, states, x.nbytes)
    assert all(last[kind] == 0 for kind in (kinds.ACTIVATION, kinds.GRADIENT, kinds.AUTOGRAD_DETAIL))
    assert all(min(row) >= 0 for row in sizes)

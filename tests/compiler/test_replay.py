"""``mode="reduce-overhead"``: programs that run without the Python that recorded them."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest

import flambeau as fb
from flambeau.compiler._replay import STABLE_AFTER
from flambeau_kernels import memory
from flambeau_kernels.engine.calls import launch_table
from unseen import counted, reader

F = fb.nn.functional


def test_a_stable_program_runs_without_python() -> None:
    w = fb.randn(8, 8)
    f, calls = counted(lambda x, scale: {"a": ((x @ w).relu() * scale).sum(0), "b": (x, 3)})
    compiled = fb.compile(f, mode="reduce-overhead")
    for _ in range(STABLE_AFTER + 5):
        x = fb.randn(4, 8)
        result = compiled(x, scale=2.0)
        assert fb.equal(result["a"], ((x @ w).relu() * 2.0).sum(0))
        assert result["b"][0] is x
        assert result["b"][1] == 3
    assert len(calls) == STABLE_AFTER


def test_other_looks_are_recorded_and_replayed_by_themselves() -> None:
    f, calls = counted(lambda x, n: (x * n).sum())
    compiled = fb.compile(f, mode="reduce-overhead")
    for _ in range(STABLE_AFTER + 2):
        for x, n in ((fb.ones(3), 2), (fb.ones(4), 2), (fb.ones(3), 5), (fb.ones(3, dtype=fb.float64), 2)):
            assert compiled(x, n).item() == len(x) * n
    assert len(calls) == 4 * STABLE_AFTER


def test_gradients_flow_through_a_replayed_program() -> None:
    net = fb.nn.Sequential(fb.nn.Linear(6, 5), fb.nn.Tanh(), fb.nn.Linear(5, 1))
    compiled = fb.compile(net, mode="reduce-overhead")
    for _ in range(STABLE_AFTER + 3):
        x = fb.randn(3, 6)
        found = fb.autograd.grad(compiled(x).sum(), list(net.parameters()))
        expected = fb.autograd.grad(net(x).sum(), list(net.parameters()))
        assert all(fb.equal(a, b) for a, b in zip(found, expected, strict=True))
        with fb.no_grad():
            assert not compiled(x).requires_grad
            for p in net.parameters():
                p -= 0.1                              # values of what is read may change


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x + fb.rand(3),                     # draws
        lambda x: x * 2 if x.sum() > 0 else x - 1,    # asks for a value
        lambda x: (x * 2).add_(1),                    # writes
        lambda x: x + fb.zeros(3),                    # reads what is new in each call
    ],
)
def test_what_is_no_single_recording_runs_in_python(f: Any) -> None:
    f, calls = counted(f)
    compiled = fb.compile(f, mode="reduce-overhead")
    for k in range(STABLE_AFTER + 3):
        x = fb.full((3,), 1.0 - k % 2 * 2)
        fb.manual_seed(k)
        result = compiled(x)
        fb.manual_seed(k)
        assert fb.equal(result, f(x))
    assert len(calls) == 2 * (STABLE_AFTER + 3)


def test_a_dependence_that_arguments_do_not_show_is_found_by_verifying() -> None:
    factor = [2.0]
    read = reader(factor)
    compiled = fb.compile(lambda x: x * read(), options={"verify_every": 2})
    for _ in range(STABLE_AFTER + 4):
        compiled(fb.ones(3))
    factor[0] = 3.0

    def twice() -> None:
        compiled(fb.ones(3))
        compiled(fb.ones(3))

    with pytest.raises(RuntimeError, match="depends on something that its arguments do not show"):
        twice()


def test_training_and_evaluation_are_two_programs() -> None:
    net = fb.nn.Sequential(fb.nn.Linear(3, 3), fb.nn.Dropout(0.5))
    compiled = fb.compile(net, mode="reduce-overhead")
    x = fb.randn(2, 3)
    for _ in range(STABLE_AFTER + 2):
        net.eval()
        assert fb.equal(compiled(x), net(x))
        net.train()
        fb.manual_seed(0)
        found = compiled(x)
        fb.manual_seed(0)
        assert fb.equal(found, net(x))


def test_options_that_nothing_goes_by_are_refused() -> None:
    with pytest.raises(RuntimeError, match="Unexpected optimization option no_such"):
        fb.compile(lambda x: x, options={"no_such": 1})
    with pytest.raises(RuntimeError, match="Unexpected type of attr max_autotune, got str should be bool"):
        fb.compile(lambda x: x, options={"max_autotune": "yes"})
    fb.compile(lambda x: x, options={"triton.cudagraphs": True, "max_autotune": True})


def test_the_setting_cudagraphs_replays_what_is_compiled_while_it_is_on() -> None:
    for mode, expected in ((None, STABLE_AFTER), ("max-autotune-no-cudagraphs", STABLE_AFTER + 4)):
        f, calls = counted(lambda x: (x * 2).relu() + 1)
        with fb._inductor.config.patch("triton.cudagraphs", True):
            compiled = fb.compile(f, mode=mode)
        for _ in range(STABLE_AFTER + 4):
            compiled(fb.ones(4))
        assert len(calls) == expected


@pytest.mark.parametrize("how", ["setting", "option"])
def test_frozen_programs_compute_what_follows_from_parameters_once(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    w, b = fb.nn.Parameter(fb.randn(8, 8)), fb.randn(8)

    def f(x: fb.Tensor) -> fb.Tensor:
        return x @ (w.t().contiguous() * 2.0).softmax(-1) + (b + 1.0).exp() * x.sum()

    if how == "setting":
        with fb._inductor.config.patch("freezing", True):
            compiled = fb.compile(f)
    else:
        compiled = fb.compile(f, options={"freezing": True})
    x, y = fb.randn(3, 8), fb.randn(3, 8)
    with fb.no_grad():
        expected = f(y)
        for _ in range(5):
            compiled(x)
        assert fb.equal(compiled(y), expected)
        w.mul_(3.0)
        b.mul_(3.0)
        assert fb.equal(compiled(y), expected)        # as is said of freezing
        fb.compiler.reset()
        assert fb.equal(compiled(y), f(y))
    for _ in range(5):                                # with gradients nothing is frozen
        made = compiled(x)
    w.data.mul_(2.0)
    made = compiled(x)
    assert made.requires_grad
    assert fb.equal(made, f(x))


def test_frozen_programs_are_checked() -> None:
    w = fb.randn(4)
    compiled = fb.compile(lambda x: x * (w * 2.0), options={"freezing": True, "verify_every": 2})
    with fb.no_grad():
        for _ in range(5):                            # three are recorded, and two replayed
            compiled(fb.ones(4))
        w.mul_(2.0)

        with pytest.raises(RuntimeError, match="is another than its recording gives"):
            [compiled(fb.ones(4)) for _ in range(2)]


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_recording_may_be_longer_than_the_stack_of_python_is_deep(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from flambeau.compiler import _recorder

    monkeypatch.setattr(_recorder, "RECORDED_FROM", 1)
    def f(x: fb.Tensor, n: int) -> fb.Tensor:
        for _ in range(n):
            x = (x * 1.001).view(3) + 0.001
        return x

    compiled, x = fb.compile(f, mode=mode), fb.randn(3)
    for n in (700, 700, 701, 700, 700, 700):
        assert fb.equal(compiled(x, n), f(x, n))
    assert len(compiled.explain().segments[0].operations) == 3 * 700


CHANGES: dict[str, Any] = {
    "another shape": lambda net, x: (x.new_ones(7, 4), x.new_ones(7, 4)),
    "other strides": lambda net, x: (x.new_ones(4, 5).t(), x),
    "another dtype": lambda net, x: (x, x.double()),
    "a gradient is recorded": lambda net, x: (x.clone().requires_grad_(), x),
    "the same tensor twice": lambda net, x: (x, x),
    "the other mode of the module": lambda net, x: (net.eval(), (x, x.clone()))[1],
    "other memory of a parameter": lambda net, x: (net[0].weight.__setattr__("data", net[0].weight.data * 2), (x, x.clone()))[1],
    "a frozen parameter": lambda net, x: (net.requires_grad_(False), (x, x.clone()))[1],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_call_that_looks_otherwise_than_the_replayed_ones_is_not_replayed(change):
    fb.manual_seed(0)
    net = fb.nn.Sequential(fb.nn.Linear(4, 4), fb.nn.Dropout(0.0), fb.nn.Tanh())

    class Twice(fb.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x, y):
            return self.net(x) * (1 if self.training else 2) + y.to(x.dtype) * (3 if x is y else 1)

    module = Twice()
    fast = fb.compile(module, mode="reduce-overhead")
    x = fb.randn(5, 4)
    for _ in range(8):
        fast(x, x.clone())
    a, b = CHANGES[change](module.net, x)
    module.train(module.net.training)
    for _ in range(5):
        got, expected = fast(a, b), module(a, b)
        assert fb.equal(got, expected)
        assert got.requires_grad is expected.requires_grad
    with fb.no_grad():
        assert not fast(a, b).requires_grad


walks = pytest.mark.skipif(not launch_table.available(), reason="native code does not walk tables here")


def in_tables(compiled: Any) -> list[Any]:
    """The parts of what `compiled` replays that are one native call."""
    return [part for found in compiled.explain.__self__.replays.values() if found for part in found.on_arrays.values() if part.table]


@walks
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [4, 700])
def test_programs_without_gradients_are_one_native_call(size: int, threads: int) -> None:
    before = fb.get_num_threads()
    fb.set_num_threads(threads)
    w, b = fb.randn(size, size), fb.randn(size)

    def f(x: fb.Tensor, y: fb.Tensor) -> list[fb.Tensor]:
        h = fb.nn.functional.linear(x, w, b)
        return [h, (((x * 2.0).tanh() * y - 0.5).abs() + x * x).sigmoid() * 2.0, h @ w]

    try:
        compiled = fb.compile(f, mode="reduce-overhead")
        for k in range(40):
            x, y = fb.randn(size, size), fb.randn(size, size)
            assert all(fb.equal(a, b) for a, b in zip(compiled(x, y), f(x, y), strict=True)), k
            if k > 12 and size > 100:
                break
    finally:
        fb.set_num_threads(before)

    assert in_tables(compiled)


@walks
def test_results_that_are_views_are_left_to_operations() -> None:
    def f(x: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        y = ((x * 2.0).tanh() + x).exp() - 1.0
        return y, y.t()

    compiled = fb.compile(f, mode="reduce-overhead")
    for _ in range(40):
        x = fb.randn(3, 5)
        y, turned = compiled(x)
        assert fb.equal(turned, f(x)[1])
        y.zero_()

        assert not turned.any()
    assert not in_tables(compiled)
    assert "a result is a view" in str(compiled.explain())


@walks
def test_an_array_that_two_arguments_hold_is_not_taken_for_one() -> None:
    def f(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        return ((x * 2.0 - y).tanh() * x).abs() + y.exp() * x - 0.25

    compiled = fb.compile(f, mode="reduce-overhead")
    for k in range(40):
        x = fb.randn(3, 5)
        y = x.detach() if k < 20 else fb.randn(3, 5)

        assert fb.equal(compiled(x, y), f(x, y))


@walks
def test_results_of_one_native_call_are_new_tensors_in_every_call() -> None:
    compiled = fb.compile(lambda x: ((x * 2.0).tanh() + x).exp() - 1.0, mode="reduce-overhead")
    kept = [(x, compiled(x)) for x in [fb.randn(7) for _ in range(50)]]

    assert all(fb.equal(made, ((x * 2.0).tanh() + x).exp() - 1.0) for x, made in kept)
    assert in_tables(compiled)
    assert len({made.data_ptr() for _, made in kept}) == len(kept)


@walks
def test_a_table_holds_no_arrays_of_the_run_it_was_made_in(counted_memory: None) -> None:
    compiled = fb.compile(lambda x: ((x * 2.0).tanh() + x).exp() - 1.0, mode="reduce-overhead")
    x = fb.randn(400, 400)
    for _ in range(20):
        compiled(x)
    assert in_tables(compiled)
    gc.collect()
    before = memory.statistics()["allocated_bytes"]
    del compiled
    gc.collect()

    assert before - memory.statistics()["allocated_bytes"] < x.nbytes


@walks
def test_a_native_call_is_verified() -> None:
    scale = [1.0]
    read = reader(scale)
    compiled = fb.compile(lambda x: ((x * read()).tanh() + x).exp() - 1.0, options={"verify_every": 10})
    x = fb.ones(3)
    for _ in range(42):
        compiled(x)
    assert in_tables(compiled)
    scale[0] = 2.0
    with pytest.raises(RuntimeError, match="its recording gives"):  # noqa: PT012  # one of ten calls is verified
        for _ in range(10):
            compiled(x)


def _parameters_after(forget, **how) -> list[bytes]:
    fb.manual_seed(0)
    net = fb.nn.Sequential(fb.nn.Linear(4, 8), fb.nn.Tanh(), fb.nn.Linear(8, 2))
    optimizer = fb.optim.SGD(net.parameters(), 0.1)

    def step(x: fb.Tensor) -> fb.Tensor:
        forget(net)
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    taken = fb.compile(step, **how) if how else step
    for k in range(9):
        taken(fb.full((3, 4), k / 8))
    return [p.detach().numpy().tobytes() for p in net.parameters()]


def _by_hand(net: fb.nn.Module) -> None:
    for p in net.parameters():
        p.grad = None


def _deleted(net: fb.nn.Module) -> None:
    for p in net.parameters():
        del p.grad


@pytest.mark.parametrize(
    "forget", [lambda net: net.zero_grad(), lambda net: net.zero_grad(set_to_none=False), _by_hand, _deleted],
    ids=["module", "to zero", "by hand", "deleted"],
)  # fmt: skip
def test_gradients_that_a_step_forgets_do_not_add_up_when_it_is_replayed(forget) -> None:
    expected = _parameters_after(forget)

    assert _parameters_after(forget, mode="reduce-overhead") == expected
    assert _parameters_after(forget, options={"verify_every": 2}) == expected


def test_a_step_that_a_module_forgets_its_gradients_in_is_replayed() -> None:
    net = fb.nn.Linear(2, 2)

    def step(x: fb.Tensor) -> fb.Tensor:
        net.zero_grad()
        loss = net(x).sum()
        loss.backward()
        return loss

    taken = fb.compile(step, mode="reduce-overhead")
    for _ in range(6):
        taken(fb.ones(3, 2))

    assert taken.explain().replays[0].calls == 3
    assert fb.equal(net.weight.grad, fb.full((2, 2), 3.0))


def test_a_step_with_dropout_draws_as_it_does_by_itself() -> None:
    def losses(whole: Any) -> list[float]:
        fb.manual_seed(0)
        net = fb.nn.Sequential(fb.nn.Linear(6, 16), fb.nn.Dropout(0.5), fb.nn.Linear(16, 3))
        optimizer = fb.optim.SGD(net.parameters(), 0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = whole(step)
        return [run(fb.randn(4, 6)).item() for _ in range(STABLE_AFTER + 5)]

    expected, compiled = losses(lambda f: f), []

    def whole(f: Any) -> Any:
        compiled.append(fb.compile(f, mode="reduce-overhead"))
        return compiled[-1]

    assert losses(whole) == expected
    assert compiled[0].explain().replays[0].calls == 5
    assert losses(lambda f: fb.compile(f, options={"verify_every": 2})) == expected


@pytest.mark.parametrize("f", [
    lambda x: (F.dropout(x * 2) + 1).tanh() * F.dropout(x).exp(),
    lambda x: [F.dropout(x), x * 2][1],               # what is drawn and not used is drawn all the same
    lambda x: F.rrelu(x, training=True) + F.gumbel_softmax(x),
], ids=["chain", "unused", "activations"])  # fmt: skip
@pytest.mark.parametrize("options", [
    {"mode": "reduce-overhead"}, {"options": {"verify_every": 2}}, {"options": {"freezing": True}},
], ids=["replayed", "verified", "frozen"])  # fmt: skip
def test_replays_draw_the_numbers_that_the_function_draws(f: Any, options: Any) -> None:
    found = []
    for compiles in (False, True):
        fb.manual_seed(0)
        run = fb.compile(f, **options) if compiles else f
        with fb.no_grad():
            found.append([run(fb.randn(4, 6)).tolist() for _ in range(STABLE_AFTER + 6)] + fb.rand(2).tolist())
        if compiles:
            assert run.explain().replays[0].calls > 2
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: fb.svd_lowrank(x, 2)[1],
        lambda x: fb.pca_lowrank(x, 2)[1],
        lambda x: fb.distributions.Gamma(x.abs() + 1, 1.0).sample(),
        lambda x: fb.distributions.Dirichlet(x.abs() + 1).sample(),
    ],
    ids=["svd_lowrank", "pca_lowrank", "Gamma", "Dirichlet"],
)
def test_a_function_that_draws_inside_of_an_operation_goes_on_in_the_generator(draw: Any) -> None:
    def drawn(whole: Any) -> list[Any]:
        fb.manual_seed(0)
        run = whole(lambda x: draw(x) * 2)
        return [run(fb.rand(6, 4)).tolist() for _ in range(STABLE_AFTER + 5)]

    assert drawn(lambda f: fb.compile(f, mode="reduce-overhead")) == drawn(lambda f: f)


def test_a_step_whose_target_is_loaded_anew_is_replayed() -> None:
    """The nodes of a step are other ones from one call to the next; a replay that finds that out turns back."""

    def losses(whole: Any) -> list[float]:
        fb.manual_seed(0)
        net = fb.nn.Sequential(fb.nn.Linear(3, 4), fb.nn.Tanh(), fb.nn.Linear(4, 3))
        target = copy.deepcopy(net)
        optimizer = fb.optim.SGD(net.parameters(), 0.05, momentum=0.9)

        def step(x: Any) -> Any:
            with fb.no_grad():
                wanted = target(x)
            optimizer.zero_grad()
            loss = (net(x) - wanted - 1).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run, found = whole(step), []
        for at in range(STABLE_AFTER + 6):
            if at % 3 == 2:
                target.load_state_dict(net.state_dict())
            found.append(run(fb.randn(4, 3)).item())
        return found

    assert losses(lambda f: fb.compile(f, mode="reduce-overhead")) == losses(lambda f: f)


class Scaled(fb.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.by, self.calls = fb.nn.Linear(3, 3), 2.0, 0
        self.register_buffer("switch", fb.tensor(1.0))

    def forward(self, x: Any) -> Any:
        return self.inner(x).tanh() * self.by


def _hooked(net: Any) -> None:
    net.inner.register_forward_hook(lambda module, args, out: out + 1)


def _half(net: Any) -> None:
    net.inner = fb.nn.Sequential(net.inner, fb.nn.ReLU())


@pytest.mark.parametrize(
    "change",
    [
        lambda net: setattr(net, "by", 3.0),
        lambda net: setattr(net.inner, "weight", fb.nn.Parameter(fb.ones(3, 3))),
        lambda net: net.inner.register_parameter("bias", fb.nn.Parameter(fb.ones(3))),
        lambda net: net.load_state_dict({k: v + 1 for k, v in net.state_dict().items()}, assign=True),
        lambda net: setattr(net, "forward", lambda x: x),
        _hooked,
        _half,
    ],
    ids=["attribute", "parameter", "register_parameter", "load_state_dict", "forward", "hook", "part"],
)
def test_what_changes_in_modules_between_calls_is_seen(change: Any) -> None:
    net = Scaled()

    def f(x: Any) -> Any:
        return net(x) * 2

    compiled = fb.compile(f, mode="reduce-overhead")
    for at in range(2 * STABLE_AFTER + 6):
        if at == STABLE_AFTER + 2:
            assert compiled.explain().replays           # or nothing is tested here
            change(net)
        x = fb.randn(4, 3)
        with fb.no_grad():
            assert fb.equal(compiled(x), f(x))


def test_a_function_that_counts_in_a_module_or_reads_a_value_runs_in_python() -> None:
    net = Scaled()

    def counts(x: Any) -> Any:
        net.calls += 1
        return net(x)

    def reads(x: Any) -> Any:
        return net(x) * (2 if net.switch.item() > 0 else 3)

    compiled, chooses = fb.compile(counts, mode="reduce-overhead"), fb.compile(reads, mode="reduce-overhead")
    for at in range(STABLE_AFTER + 5):
        net.switch.fill_(1 if at < STABLE_AFTER + 3 else -1)
        compiled(fb.randn(4, 3))
        x = fb.randn(4, 3)
        assert fb.equal(chooses(x), reads(x))

    assert net.calls == STABLE_AFTER + 5


def test_a_forward_hook_runs_in_each_call() -> None:
    net, seen = fb.nn.Linear(3, 3), []
    net.register_forward_hook(lambda module, args, out: seen.append(out.shape))
    compiled = fb.compile(lambda x: net(x) * 2, mode="reduce-overhead")
    for _ in range(STABLE_AFTER + 5):
        compiled(fb.randn(4, 3))

    assert len(seen) == STABLE_AFTER + 5


@pytest.mark.parametrize("looks_at_losses", [False, True])
def test_a_scheduler_takes_its_step_in_each_call_of_a_compiled_step(looks_at_losses: bool) -> None:
    def rates(whole: Any) -> list[float]:
        fb.manual_seed(0)
        net = fb.nn.Linear(6, 3)
        optimizer = fb.optim.SGD(net.parameters(), 0.5)
        plateau = fb.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=10.0)
        by_steps = fb.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            plateau.step(loss) if looks_at_losses else by_steps.step()
            return loss

        run, found = whole(step), []
        for _ in range(STABLE_AFTER + 5):
            run(fb.ones(4, 6))
            found.append(optimizer.param_groups[0]["lr"])
        return found

    expected, compiled = rates(lambda f: f), []

    def whole(f: Any) -> Any:
        compiled.append(fb.compile(f, mode="reduce-overhead"))
        return compiled[-1]

    assert len(set(expected)) > 2
    assert rates(whole) == expected
    assert rates(lambda f: fb.compile(f, options={"verify_every": 2})) == expected
    replays = compiled[0].explain().replays
    assert sum(replay.calls for replay in replays) == (0 if looks_at_losses else 5)


@pytest.mark.parametrize("make", [
    lambda o, s: s.SequentialLR(o, [s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9)], [4]),
    lambda o, s: s.ChainedScheduler([s.LinearLR(o, 0.3, total_iters=4), s.ExponentialLR(o, 0.9)]),
    lambda o, s: s.OneCycleLR(o, 0.5, 20),
    lambda o, s: s.LambdaLR(o, lambda epoch: 0.9**epoch),
    lambda o, s: s.CosineAnnealingWarmRestarts(o, 3),
], ids=["sequential", "chained", "cycle", "function", "restarts"])  # fmt: skip
@pytest.mark.parametrize("options", [{"mode": "reduce-overhead"}, {"options": {"verify_every": 2}}], ids=["replayed", "verified"])
def test_steps_with_schedulers_have_the_rates_and_parameters_of_eager_ones(make: Any, options: Any) -> None:
    found = []
    for compiles in (False, True):
        fb.manual_seed(0)
        net = fb.nn.Linear(6, 3)
        optimizer = fb.optim.Adam(net.parameters(), 0.1)
        scheduler = make(optimizer, fb.optim.lr_scheduler)

        def step(x: Any, net: Any = net, optimizer: Any = optimizer, scheduler: Any = scheduler) -> Any:
            optimizer.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            scheduler.step()
            return loss

        run = fb.compile(step, **options) if compiles else step
        rates = []
        for _ in range(STABLE_AFTER + 8):
            run(fb.randn(4, 6))
            rates.append(scheduler.get_last_lr()[0])
        found.append((rates, [p.tolist() for p in net.parameters()]))
        if compiles:
            (replay,) = run.explain().replays
            assert replay.calls > 3
    assert found[0] == found[1]


@pytest.mark.parametrize("norm", [fb.nn.functional.instance_norm, fb.nn.functional.batch_norm], ids=lambda f: f.__name__)
def test_running_statistics_move_in_each_call(norm: Any) -> None:
    def moved(whole: Any) -> list[Any]:
        statistics = [fb.zeros(3), fb.ones(3)]
        run = whole(lambda x: norm(x * 2, *statistics, None, None, True) + 1)
        fb.manual_seed(0)
        return [run(fb.randn(4, 3, 5)) for _ in range(STABLE_AFTER + 6)] + statistics

    found, expected = moved(lambda f: fb.compile(f, mode="reduce-overhead")), moved(lambda f: f)
    assert all(fb.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_operations_that_return_their_operands_return_each_its_own() -> None:
    def f(a: fb.Tensor, b: fb.Tensor) -> Any:
        x, y = F.dropout(a, 0.3, training=False), F.dropout(b, 0.3, training=False)
        return x * 2, y * 3, F.dropout(a, 0.3, training=False) + y

    compiled = fb.compile(f, mode="reduce-overhead")
    for _ in range(STABLE_AFTER + 3):
        a, b = fb.randn(3, 4), fb.randn(3, 4)
        assert all(map(fb.equal, compiled(a, b), f(a, b)))

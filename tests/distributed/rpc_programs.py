"""What the workers of `test_rpc.py` run, under Flambeau or, with UNDER=torch, under PyTorch. Each prints what it found."""

from __future__ import annotations

import importlib
import itertools
import os
import signal
import threading
import time
from typing import Any

import numpy as np

NAME = os.environ.get("UNDER", "flambeau")
T: Any = importlib.import_module(NAME)
rpc: Any = importlib.import_module(f"{NAME}.distributed.rpc")
dist_autograd: Any = importlib.import_module(f"{NAME}.distributed.autograd")
optim: Any = importlib.import_module(f"{NAME}.distributed.optim")
RANK = int(os.environ.get("RANK", "0"))
SIZE = int(os.environ.get("WORLD_SIZE", "1"))
FOLDER = os.environ.get("FOLDER", ".")


def start(**options):
    rpc.init_rpc(
        f"worker{RANK}", rank=RANK, world_size=SIZE, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(**options)
    )


def told(call, kind=RuntimeError, seconds=5.0):
    """Run `call`, which must raise `kind` within `seconds`; the message."""
    begin = time.monotonic()
    try:
        found = call()
    except kind as error:
        taken = time.monotonic() - begin
        assert taken < seconds, f"{taken:.1f} s: {error}"
        return str(error)
    raise AssertionError(f"nothing was raised, but {found!r} returned")


def save(name, *tensors):
    np.save(os.path.join(FOLDER, f"{NAME}.{name}.npy"), np.concatenate([t.detach().numpy().ravel() for t in tensors]))


def add(x, y=1):
    return x + y


def nap(seconds, value=7):
    time.sleep(seconds)
    return value


def fail(text):
    raise ValueError(text)


class Odd(Exception):
    def __init__(self, one, two):
        super().__init__(one, two)


def fail_oddly():
    raise Odd(1, 2)


def nested(to, x):
    return rpc.rpc_sync(to, add, (x, 10)) * 2


@rpc.functions.async_execution
def chained(to, x, y, z):
    return rpc.rpc_async(to, add, (x, y)).then(lambda future: future.wait() + z)


class Counter:
    def __init__(self, begin=0):
        self.count = begin

    def up(self, by=1):
        self.count += by
        return self.count

    @staticmethod
    @rpc.functions.async_execution
    def later(to, x):
        return rpc.rpc_async(to, add, (x, 1)).then(lambda future: future.wait() * 3)

    @classmethod
    def named(cls, x):
        return cls.__name__ + x


def up_through(rref, by):
    return rref.rpc_sync().up(by)


def value_of(rref):
    return rref.local_value().count if rref.is_owner() else -1


_kept = []


def keep(rref):
    _kept.append(rref)


def use_kept():
    return _kept[0].rpc_sync().up(100)


def drop_kept():
    _kept.clear()


def calls():
    """Calls, references and their methods; the same text runs under PyTorch."""
    if RANK == 0:
        x = T.arange(6.0).reshape(2, 3)
        tensors = [rpc.rpc_sync("worker1", add, (x,), {"y": 2}), rpc.rpc_sync(1, nested, ("worker2", x.t()))]
        tensors.append(rpc.rpc_sync(rpc.get_worker_info("worker1"), T.mul, (x, 3)))
        tensors.append(rpc.rpc_sync("worker1", chained, ("worker2", T.ones(2), 1, 1)))
        futures = [rpc.rpc_async(f"worker{at % SIZE}", add, (x, at)) for at in range(30)]
        tensors += [future.wait() for future in futures]
        assert rpc.rpc_sync("worker1", min, (3, 2)) == 2
        assert rpc.rpc_sync("worker1", Counter.named, ("!",)) == "Counter!"
        assert rpc.rpc_sync("worker0", add, ("a", "b")) == "ab"
        assert rpc.rpc_sync("worker1", Counter.later, ("worker2", 1)) == 6
        then = rpc.rpc_async("worker1", add, (1,)).then(lambda future: rpc.rpc_sync("worker2", add, (future.wait(),)))
        assert then.wait() == 3

        one, two = rpc.remote("worker1", add, (T.ones(2), 3)), rpc.remote("worker2", add, (T.ones(2), 1))
        tensors.append(one.to_here() + two.to_here())
        counter = rpc.remote("worker1", Counter, (5,))
        assert counter.rpc_sync().up() == 6
        assert counter.rpc_async().up(by=2).wait() == 8
        assert counter.remote().up().to_here() == 9
        assert rpc.rpc_sync("worker1", value_of, (counter,)) == 9  # a user shares with the owner
        assert rpc.rpc_sync("worker2", up_through, (counter, 3)) == 12  # and with another user
        assert counter.rpc_sync().later("worker2", 2) == 9
        assert counter.confirmed_by_owner() and not counter.is_owner() and counter.owner_name() == "worker1"
        assert counter.owner() == rpc.get_worker_info("worker1") and counter.owner().id == 1
        told(counter.local_value)

        mine = rpc.RRef(Counter(1))  # an owner shares with users
        assert rpc.rpc_sync("worker2", up_through, (mine, 4)) == 5 and mine.local_value().count == 5
        assert mine.to_here() is mine.local_value() and mine.is_owner() and mine.confirmed_by_owner()
        mine = rpc.remote("worker0", Counter)
        assert mine.rpc_sync().up() == 1 and mine.local_value().count == 1
        rpc.rpc_sync("worker2", keep, (counter,))
        assert rpc.rpc_sync("worker2", use_kept) == 112
        rpc.rpc_sync("worker2", drop_kept)
        made = rpc.rpc_sync("worker1", make_here)  # a result that is a reference
        assert made.owner_name() == "worker1" and made.rpc_sync().up() == 41
        assert rpc.get_worker_info().name == "worker0" and rpc.get_rpc_timeout() == 60
        save("calls", *tensors)
    if RANK == 2:
        assert rpc.rpc_sync("worker0", add, (1,)) == 2


def make_here():
    return rpc.RRef(Counter(40))


def errors():
    """Exceptions that both raise; texts are Flambeau's own where PyTorch's name its files."""
    told(lambda: rpc.rpc_sync("worker1", add, (1,)))
    start()
    if RANK == 0:
        assert "nope" in told(lambda: rpc.rpc_sync("worker1", fail, ("nope",)), ValueError)
        text = told(lambda: rpc.rpc_async("worker1", fail, ("nope",)).wait(), ValueError)
        assert "WorkerInfo(id=1, name=worker1)" in text and "rpc_programs.py" in text and "in fail" in text, text
        assert "Odd" in told(lambda: rpc.rpc_sync("worker1", fail_oddly))
        assert "nope" in told(rpc.remote("worker1", fail, ("nope",)).to_here, ValueError)
        told(lambda: rpc.rpc_sync("worker1", lambda: 1), AttributeError)
        told(lambda: rpc.rpc_sync("worker1", 5), TypeError)
        assert "worker9" in told(lambda: rpc.rpc_sync("worker9", min, (1, 2)))
        assert "77" in told(lambda: rpc.rpc_sync(77, min, (1, 2)))
        told(lambda: rpc.rpc_sync(1.5, min, (1, 2)), ValueError)
        assert "200 ms" in told(lambda: rpc.rpc_sync("worker1", nap, (1,), timeout=0.2), seconds=0.9)
        slow = rpc.remote("worker1", nap, (1,))
        assert "100 ms" in told(lambda: slow.to_here(timeout=0.1), seconds=0.9)
        assert slow.to_here() == 7
        slow = rpc.remote("worker1", nap, (1,), timeout=0.2)
        time.sleep(0.5)
        assert "timed out" in told(slow.to_here)
        assert rpc.rpc_sync("worker1", nap, (0.1,), timeout=0) == 7
        told(start)
        with dist_autograd.context() as context_id:
            told(dist_autograd.context().__enter__)
            told(lambda: dist_autograd.backward(context_id, []))
            told(lambda: dist_autograd.backward(context_id, [T.ones(2, requires_grad=True)]))
            told(lambda: dist_autograd.backward(context_id, T.ones((), requires_grad=True)), TypeError)
            told(lambda: dist_autograd.backward(context_id + 1, [T.ones((), requires_grad=True)]))
        told(lambda: dist_autograd.get_gradients(context_id))
    rpc.shutdown()
    told(lambda: rpc.rpc_sync("worker1", add, (1,)))


# Training over workers


class Part(T.nn.Module):
    def __init__(self, seed, *sizes):
        super().__init__()
        T.manual_seed(seed)
        self.layers = T.nn.Sequential(*[T.nn.Linear(a, b) for a, b in itertools.pairwise(sizes)])

    def forward(self, x):
        return self.layers(x).tanh()

    def rrefs(self):
        return [rpc.RRef(param) for param in self.parameters()]

    def values(self):
        return [param.detach() for param in self.parameters()]


def there_and_back(to, x, w):
    """A result that depends on `x` twice, once by way of a third worker."""
    middle = (x * w).sin()
    return rpc.rpc_sync(to, T.mul, (middle, w)) + middle * x


def gradients():
    """Backward through nested calls, shared histories and references; PyTorch's gradients, and those of one process."""
    if RANK == 0:
        T.manual_seed(0)
        x, w = T.randn(3, requires_grad=True), T.randn(3, requires_grad=True)
        found = []
        for _ in range(2):
            with dist_autograd.context() as context_id:
                y = rpc.rpc_sync("worker1", there_and_back, ("worker2", x, w))
                z = rpc.remote("worker2", T.mul, (y, x)).to_here()
                loss = (rpc.rpc_sync("worker1", T.sub, (z, w)) * y).sum()
                dist_autograd.backward(context_id, [loss])
                grads = dist_autograd.get_gradients(context_id)
                assert set(map(id, grads)) == {id(x), id(w)} and x.grad is None
                found += [loss, grads[x], grads[w]]
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync("worker1", T.mul, (x, w)).sum()
            rpc.RRef(loss).backward(context_id)
            found.append(dist_autograd.get_gradients(context_id)[x])
        save("gradients", *found)
        middle = (x * w).sin()
        y = middle * w + middle * x
        loss = ((y * x - w) * y).sum()
        for one, other in zip(found, [loss, *T.autograd.grad(loss, [x, w])], strict=False):
            assert (one - other).abs().max() < 1e-5, (one, other)


def training():
    """A network in three parts on three workers, trained by `DistributedOptimizer`."""
    if RANK == 0:
        T.manual_seed(3)
        x, target = T.randn(8, 4), T.randn(8, 2)
        parts = [rpc.remote(f"worker{at}", Part, (at, *sizes)) for at, sizes in enumerate([(4, 6), (6, 6, 5), (5, 2)])]
        params = [rref for part in parts for rref in part.rpc_sync().rrefs()]
        optimizer = optim.DistributedOptimizer(T.optim.SGD, params, lr=0.1, momentum=0.9)
        losses = []
        for _ in range(5):
            with dist_autograd.context() as context_id:
                y = x
                for part in parts:
                    y = part.rpc_sync().forward(y)
                loss = T.nn.functional.mse_loss(y, target)
                losses.append(loss.detach())
                dist_autograd.backward(context_id, [loss])
                optimizer.step(context_id)
        assert losses[-1] < losses[0]
        save("training", *losses, *[value for part in parts for value in part.rpc_sync().values()])


def modules():
    """A module of another worker, trained together with one of this."""
    if RANK == 0:
        kind = importlib.import_module(f"{NAME}.distributed.nn.api.remote_module").RemoteModule
        T.manual_seed(4)
        x, head = T.randn(5, 4), T.nn.Linear(2, 1)
        part = kind("worker1/cpu", Part, args=(7, 4, 2))
        told(part.parameters, ValueError)
        params = [*part.remote_parameters(), *map(rpc.RRef, head.parameters())]
        optimizer = optim.DistributedOptimizer(T.optim.Adam, params, lr=0.1)
        losses = []
        for _ in range(3):
            with dist_autograd.context() as context_id:
                loss = (head(part(x)) - head(part.forward_async(2 * x).wait())).square().sum()
                losses.append(loss.detach())
                dist_autograd.backward(context_id, [loss])
                optimizer.step(context_id)
        save("modules", *losses, part(x), *part.get_module_rref().rpc_sync().values())


def programs():
    start()
    modules()
    calls()
    gradients()
    training()
    rpc.shutdown()


# What only Flambeau promises


def unused():
    """A send that backward does not reach holds nothing up."""
    start()
    if RANK == 0:
        x = T.ones(2, requires_grad=True)
        with dist_autograd.context() as context_id:
            rpc.rpc_sync("worker1", add, (x,))
            loss = rpc.rpc_sync("worker1", T.mul, (x, x)).sum()
            dist_autograd.backward(context_id, [loss], retain_graph=True)
            dist_autograd.backward(context_id, [loss])
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [4, 4]
            told(lambda: dist_autograd.backward(context_id, [loss]))
    rpc.shutdown()


def counts():
    from flambeau.distributed.rpc import _rref

    refs = _rref.references()
    return [len(refs._forked), len(refs._owned), len(refs._children)]


def references():
    """Values are dropped when nobody refers to them, in whatever way references travelled."""
    start()
    if RANK == 0:
        for _ in range(20):
            counter = rpc.remote("worker1", Counter)
            rpc.rpc_async("worker2", keep, (counter,))
            mine = rpc.RRef(Counter())
            rpc.rpc_sync("worker2", up_through, (mine, 1))
            del counter, mine
        time.sleep(0.1)
        rpc.rpc_sync("worker2", use_kept)
        assert rpc.rpc_sync("worker1", counts)[0] == 20
        rpc.rpc_sync("worker2", drop_kept)
        end = time.monotonic() + 5
        while (found := [rpc.rpc_sync(at, counts) for at in range(3)]) != [[0, 0, 0]] * 3:
            assert time.monotonic() < end, found
            time.sleep(0.01)
    rpc.shutdown()


def killed():
    start()
    if RANK == 0:
        waiting = rpc.rpc_async("worker1", nap, (30,))
        threading.Timer(0.3, lambda: rpc.rpc_async("worker1", os.kill, (rpc.rpc_sync("worker1", os.getpid), int(signal.SIGKILL)))).start()
        text = told(waiting.wait, seconds=3)
        assert "worker1" in text and "gone" in text, text
        assert "worker1" in told(lambda: rpc.rpc_sync("worker1", add, (1,)), seconds=1)
        assert rpc.rpc_sync("worker2", add, (1,)) == 2
    if RANK == 2:
        time.sleep(4)  # worker 0 serves the store, and knows by then who is gone
    text = told(rpc.shutdown, seconds=20)
    assert "worker1" in text and "ended" in text, text


def wrong_key():
    refused = os.path.join(FOLDER, "refused")
    if RANK == 0:
        store = T.distributed.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), SIZE, True, wait_for_workers=False)
        while not os.path.exists(refused):
            time.sleep(0.01)
        store.close()
    else:
        os.environ["FLAMBEAU_JOB_KEY"] = "another key of this test"
        text = told(start, seconds=20)
        assert "refused the job key" in text, text
        with open(refused, "w"):
            pass


def strict():
    """Objects that are no data, functions that are not allowed, and pickles stay out."""
    start()
    if RANK == 1:
        rpc.allow_functions(["rpc_programs.add", "rpc_programs.Counter*"])
    rpc.rpc_sync("worker2", add, (1,))
    T.distributed.rpc._agent.agent().store.add("ready", 1)
    while T.distributed.rpc._agent.agent().store.add("ready", 0) < SIZE:
        time.sleep(0.01)
    if RANK == 0:
        assert rpc.rpc_sync("worker1", add, (1,)) == 2
        assert rpc.remote("worker1", Counter).rpc_sync().up() == 1
        assert "os.getpid" in told(lambda: rpc.rpc_sync("worker1", os.getpid), PermissionError).replace("posix", "os")
        assert "allow_functions" in told(lambda: rpc.rpc_sync("worker1", add, (fail,)), PermissionError)
        assert "is no data" in told(lambda: rpc.rpc_sync("worker1", add, (Counter(),)), TypeError)
        assert "is no data" in told(lambda: rpc.rpc_sync("worker2", Counter), TypeError)
        T.distributed.allow_pickle()
        assert "does not unpickle" in told(lambda: rpc.rpc_sync("worker1", add, (Counter(),)), TypeError)
    rpc.shutdown()


def slow(x):
    time.sleep(0.05)
    return x + 1


def profiled():
    """Calls are events of the caller's profiler, as long as they take."""
    import rpc_programs  # functions travel as names that both sides import

    start()
    if RANK == 0:
        with T.profiler.profile() as found:
            rpc.rpc_sync("worker1", rpc_programs.slow, (T.ones(2),))
            pending = rpc.rpc_async("worker1", rpc_programs.slow, (T.ones(2),))
            begun = T.ones(3).sum()
            assert begun == 3 and T.equal(pending.wait(), T.full((2,), 2.0))
            assert told(lambda: rpc.rpc_sync("worker1", T.add, (T.ones(2), "x")), TypeError)
            made = rpc.remote("worker1", T.mul, (T.ones(2), 3))
            made.to_here()
            while not made.confirmed_by_owner():
                time.sleep(0.001)
        seconds = {event.name: event.cpu_time_total / 1e6 for event in found.events()}
        for kind in ("rpc_sync", "rpc_async"):
            assert 0.05 < seconds[f"{kind}#rpc_programs.slow(worker0 -> worker1)"] < 5, seconds
        assert any(name.startswith("rpc_sync#") and name.endswith("add(worker0 -> worker1)") for name in seconds), seconds
        assert any(name.startswith("rpc_remote#") and name.endswith("mul(worker0 -> worker1)") for name in seconds), seconds
        assert "to_here#(worker0)->(worker1)" in seconds
        assert "aten::sum" in seconds
    rpc.shutdown()

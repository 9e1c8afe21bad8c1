"""Programs of several lines that are known to trip the capture of graphs, see `test_programs`: `f(x)` is called several times.

Threads compute without histories, whose order would be that in which they run."""

PROGRAMS = r'''
class Box:
    scale = 1.0
    count = 0
def f(x):
    Box.scale *= 1.5
    Box.count += 1
    y = x * Box.scale
    if Box.count % 2: del Box.scale; Box.scale = 2.0
    return y + Box.count

cache = {}
def f(x):
    key = x.shape
    if key not in cache: cache[key] = x * 2
    else: cache[key].add_(x)
    return cache[key] + 1

from collections import deque
window = deque(maxlen=2)
def f(x):
    window.append(x + len(window))
    return sum(window) * 2

def gen(x):
    try:
        s = yield x + 1
        while True:
            s = yield x * s
    finally:
        seen.append("closed")
g = None
def f(x):
    global g
    if g is None:
        g = gen(x); return next(g)
    if len(seen) == 2: g.close(); g = None; seen.append("x"); return x
    seen.append("send")
    return g.send(len(seen)) + x

from contextlib import contextmanager, ExitStack
@contextmanager
def scaled(k):
    global K
    old, K = K, k
    try: yield k
    except KeyError: seen.append("swallowed")
    finally: K = old
K = 1.0
def f(x):
    with scaled(3.0):
        y = x * K
        if len(seen) < 2: raise KeyError("mid")
    z = x * K
    with ExitStack() as s:
        s.callback(seen.append, 1)
        s.enter_context(scaled(5.0))
        z = z + K * x
    return z

def f(x):
    y = x.clone()
    d = torch.diagonal(y)
    d.fill_(7)
    y.transpose(0, 1)[1].add_(d)
    a = y.as_strided((3, 3), (1, 2), 5)
    a *= 2
    return y, d, a, y._version

m = None
def f(x):
    global m
    if m is None:
        torch.manual_seed(0)
        m = torch.nn.Sequential(torch.nn.Linear(200, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
        m[1].register_forward_hook(lambda mod, i, o: (seen.append("h"), o * 2)[1])
    if len(seen) == 2:
        m[0].register_forward_pre_hook(lambda mod, i: (i[0] + 1,))
    return m(x)

m = torch.nn.Linear(200, 4)
calls = 0
def f(x):
    global calls
    calls += 1
    if calls == 3:
        m.load_state_dict({"weight": torch.full((4, 200), 0.5), "bias": torch.zeros(4)})
    if calls == 4:
        m.load_state_dict({"weight": torch.full((4, 200), 0.25), "bias": torch.ones(4)}, assign=True)
    return m(x).relu() + 1

m = torch.nn.Sequential(torch.nn.Linear(200, 8), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(8))
calls = 0
def f(x):
    global calls
    calls += 1
    m.train(calls % 2 == 0)
    if calls == 4: m.double()
    if calls == 6: m.float().half().float()
    return m(x.to(m[0].weight.dtype)), m[2].running_mean.clone()

import dataclasses, typing
@dataclasses.dataclass
class State:
    a: torch.Tensor
    n: int = 0
    log: list = dataclasses.field(default_factory=list)
class NT(typing.NamedTuple):
    u: torch.Tensor
    k: int
def f(x):
    s = State(x + 1)
    t = dataclasses.replace(s, n=len(seen))
    t.log.append(float(t.n))
    seen.append(1)
    r = NT(t.a * t.n, t.n)._replace(k=5)
    return r, r._asdict(), dataclasses.astuple(s)[1:], r.u * r.k

import weakref, gc
refs = []
def f(x):
    y = x * 2 + 1
    r = weakref.ref(y)
    alive = r() is y
    z = r() + 1
    del y
    gone = r() is None
    weakref.finalize(z, seen.append, "fin")
    d = weakref.WeakValueDictionary(); d["z"] = z
    out = d["z"] * 2
    del z
    return out, alive, gone, len(d)

import threading
def f(x):
    y = x * 2
    out = [None, None]
    def work(i):
        out[i] = y.detach() + i
        y.add_(1) if i == 5 else None
    ts = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for t in ts: t.start()
    for t in ts: t.join()
    return out[0] * out[1], y

from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(2)
def f(x):
    y = x + 1
    d = y.detach()
    futs = [pool.submit(lambda k: (d * k).sum(1), k) for k in (1, 2, 3)]
    y2 = y * 10
    return [t.result() for t in futs], y2

calls = 0
@compiling
def g(x, depth):
    y = x * 2 + depth
    if depth > 0: return g(y, depth - 1) + x
    return y - 1
def f(x): return g(x + 1, 3)

import copy
m = torch.nn.Sequential(torch.nn.Linear(200, 4), torch.nn.Tanh())
cm = compiling(m)
def f(x):
    a = cm(x)
    c = copy.deepcopy(cm)
    with torch.no_grad():
        for p in c.parameters(): p.zero_()
    return a, c(x), cm(x), type(c) is type(cm), sorted(k for k in c.state_dict())[0][-6:]

import pickle, io
m = torch.nn.Linear(200, 4)
cm = compiling(m)
def f(x):
    b = io.BytesIO(); torch.save(m.state_dict(), b); b.seek(0)
    with torch.no_grad(): m.weight.mul_(1.5)
    a = cm(x)
    m.load_state_dict(torch.load(b))
    return a, cm(x), pickle.loads(pickle.dumps(x * 2)) + 1

def f(x):
    x.requires_grad_(len(seen) % 2 == 0) if x.is_leaf else None
    seen.append(0)
    y = (x * 2).sin()
    return y, y.requires_grad, y.grad_fn is None

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, k):
        ctx.mark_dirty(t)
        ctx.k = k
        t.mul_(k)
        return t
    @staticmethod
    def backward(ctx, g):
        seen.append("b")
        return g * ctx.k, None
def f(x):
    y = x * 1
    z = Twice.apply(y, 3.0)
    s = (z * 2).sum()
    if s.requires_grad: s.backward()
    return z, y, z is y, y._version

class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.save_for_backward(t)
        ctx.mark_non_differentiable(i := t.argmax(1))
        ctx.set_materialize_grads(False)
        return t * 2, i
    @staticmethod
    def backward(ctx, g, _):
        t, = ctx.saved_tensors
        seen.append(_ is None)
        return None if g is None else g * t
def f(x):
    a = x.detach().clone().requires_grad_()
    y, i = F.apply(a)
    y.sum().backward()
    return y, i, a.grad

def f(x):
    y = x + torch.rand(200, generator=G)
    torch.manual_seed(11)
    z = torch.randn_like(y) * y
    with torch.random.fork_rng():
        torch.manual_seed(5); w = torch.rand(3)
    return y, z, w, torch.randperm(4), torch.multinomial(torch.ones(5), 2)
G = torch.Generator().manual_seed(3)

import random
def f(x):
    random.seed(len(seen)); seen.append(0)
    k = random.random()
    return x * k + random.choice([1, 2, 3])

class Meta(type):
    def __call__(cls, *a): seen.append(cls.__name__); return super().__call__(*a)
class V(metaclass=Meta):
    __slots__ = ("t",)
    def __init__(self, t): self.t = t
    def __add__(self, o): return V(self.t + (o.t if isinstance(o, V) else o))
    def __getattr__(self, n):
        if n.startswith("tw"): return self.t * 2
        raise AttributeError(n)
    @property
    def p(self): return self.t - 1
    def __iter__(self): yield self.t; yield self.twice
def f(x):
    v = V(x) + 1 + V(x)
    a, b = v
    return a, b, v.p, hasattr(v, "zz"), getattr(v, "zz", 3)

import functools
@functools.lru_cache(None)
def const(n): seen.append(n); return torch.full((200,), float(n))
@functools.singledispatch
def add(a, x): return x + a
@add.register
def _(a: int, x): return x - a
def f(x):
    r = functools.reduce(lambda a, b: a + b, [x, const(len(seen) // 2), x])
    return r, add(3, x), add(3.0, x), functools.partial(torch.add, alpha=2)(x, x)

def f(x):
    y = x * 2
    def setter(v):
        nonlocal y
        y = y + v
    fs = [lambda k=k: setter(k) for k in range(3)]
    for h in fs: h()
    fs2 = [lambda: k * y for k in range(2)]
    return [h() for h in fs2], y

def f(x):
    y = x.clone()
    y[y > 0.5] = -1
    y[[0, 2], [1, 3]] += 10
    y[..., -1] = x[:, 0]
    y[None, 3:5, ::2] *= 0
    i = torch.tensor([1, 1, 2])
    y.index_add_(0, i, x[:3])
    y.scatter_(1, torch.zeros(200, 1, dtype=torch.long), 9.0)
    return y

def f(x):
    a = torch.empty(0)
    torch.cat([x, x + 1], out=a)
    b = torch.empty(200, 200)
    r = torch.sin(x, out=b)
    torch.max(x, 1, out=(v := torch.empty(200), i := torch.empty(200, dtype=torch.long)))
    return a, b, r is b, v, i

from flambeau.utils._python_dispatch import TorchDispatchMode
from flambeau.overrides import TorchFunctionMode
class Count(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen.append(str(func).split(".")[1]); return func(*args, **(kwargs or {}))
class Neg(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        r = func(*args, **(kwargs or {}))
        return -r if func is torch.exp else r
def f(x):
    y = x + 1
    with Count(): y = y * 2; z = y.sum()
    with Neg(): w = torch.exp(x) + 1
    return y, z, w

class S(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        seen.append(getattr(func, "__name__", "?"))
        return super().__torch_function__(func, types, args, kwargs or {})
def f(x):
    s = x.as_subclass(S)
    y = s * 2 + x
    return y, type(y).__name__, type(y.as_subclass(torch.Tensor)).__name__, type(s.sum()).__name__

def f(x):
    y = x * 2
    y.names_like = "q"
    z = y
    z += 1
    ok = z is y and z.names_like == "q"
    y = y.view(100, 400)
    y.squeeze_(); y.unsqueeze_(0); y.transpose_(0, 1)
    return ok, y.shape, y.stride(), z

import inspect, sys
def f(x):
    y = x * 2
    loc = sorted(locals())
    fr = inspect.currentframe().f_code.co_name
    return eval("y + 1"), loc, fr, sys._getframe().f_locals["y"] * 2

m = torch.nn.ModuleList([torch.nn.Linear(200, 200) for _ in range(2)])
p = torch.nn.ParameterDict({"a": torch.nn.Parameter(torch.ones(200))})
n = 0
def f(x):
    global n
    n += 1
    if n == 2: m.append(torch.nn.Identity())
    if n == 3: m[0] = torch.nn.Linear(200, 200, bias=False); m[0].requires_grad_(False)
    if n == 4: del m[1]; p["b"] = torch.nn.Parameter(torch.zeros(200))
    if n == 5: m[0].weight = torch.nn.Parameter(torch.eye(200))
    for l in m: x = l(x).tanh()
    return x * p["a"] + sum(p.values())

m = torch.nn.Linear(200, 5)
o = torch.optim.AdamW(m.parameters(), 0.01)
sch = torch.optim.lr_scheduler.StepLR(o, 2, 0.5)
def f(x):
    o.zero_grad(set_to_none=len(seen) % 2 == 0)
    l = (m(x) ** 2).mean()
    l.backward()
    torch.nn.utils.clip_grad_norm_(m.parameters(), 0.1)
    o.step(); sch.step()
    seen.append(sch.get_last_lr()[0])
    return l, m.weight.clone(), m.bias.grad.clone()

m = torch.nn.Linear(200, 5)
o = torch.optim.SGD(m.parameters(), 0.01, momentum=0.9)
def f(x):
    for micro in x.chunk(4):
        (m(micro).square().mean() / 4).backward()
    if len(seen) % 2: o.step(); o.zero_grad()
    seen.append(m.weight.grad is None)
    return m.weight.detach().clone()

def f(x):
    w = x.detach().clone().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append("p"), t * 2)[1], lambda t: (seen.append("u"), t / 2)[1]):
        y = w * w.sin()
    y.sum().backward()
    return y, w.grad

def f(x):
    x = x.detach().requires_grad_()
    y = x.sin()
    try:
        y.mul_(2); y2 = y * y; y.add_(1); y2.sum().backward()
    except RuntimeError as e: return "modified" in str(e), x.grad

async def g(x):
    return x * 2
async def h(x):
    import asyncio
    a, b = await asyncio.gather(g(x), g(x + 1))
    return a + b
def f(x):
    import asyncio
    return asyncio.run(h(x)) - 1

import heapq, itertools, operator
def f(x):
    q = []
    for i, t in enumerate(x[:4, 0]): heapq.heappush(q, (float(t), i))
    o = [heapq.heappop(q)[1] for _ in range(4)]
    s = list(itertools.accumulate([x, x + 1, x * 2], operator.add))
    return o, s[-1], x[o].sum(0), max(x[:3], key=lambda r: r.sum().item())

def f(x):
    y = x * 2
    y.requires_grad_() if not y.requires_grad else None
    with torch.no_grad():
        y.add_(1)
    with torch.enable_grad(): z = y * 2
    with torch.set_grad_enabled(False): w = z * 3
    return z, w, w.requires_grad, torch.is_grad_enabled()

torch.set_default_dtype(torch.float32)
def f(x):
    seen.append(len(seen))
    dt = [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.bool, torch.complex64][len(seen) % 6]
    y = x.to(dt)
    return y + y, y.dtype, (y * 2).sum()

def f(x):
    sp = (x * (x > 1)).to_sparse()
    q = torch.sparse.mm(sp, x) + 1
    nt = torch.nested.nested_tensor([x[0, :3], x[1, :5]])
    return q, sp._nnz() > 0, [t * 2 for t in nt.unbind()], torch.fft.rfft(x + 1).abs()

from flambeau.nn.utils import parametrize
class Sym(torch.nn.Module):
    def forward(self, X): return X.triu() + X.triu(1).transpose(-1, -2)
m = torch.nn.Linear(200, 200)
def f(x):
    if len(seen) == 1: parametrize.register_parametrization(m, "weight", Sym())
    if len(seen) == 4: parametrize.remove_parametrizations(m, "weight")
    seen.append(1)
    with parametrize.cached(): return m(x) + m.weight.sum()

def f(x):
    y = x + 1
    s = torch.jit.trace(lambda t: t * 2 + 1, y)
    g = torch.fx.symbolic_trace(lambda t: t.relu() + 1)
    return s(y), g(y), len(g.graph.nodes)

def f(x):
    y = x + 1
    a = y.detach(); b = y.data; c = y.view_as(y); d = y.expand_as(y)
    a.add_(1); b.mul_(2)
    c -= 3 if not c.requires_grad else 0
    s = y.untyped_storage()
    return y, a, b, c, d, s.nbytes(), a.data_ptr() == b.data_ptr(), y._version

from flambeau.distributions import Normal, Categorical, kl_divergence
def f(x):
    d = Normal(x[:3], x[:3].abs() + 0.1)
    s = d.rsample()
    c = Categorical(logits=x[:3]).sample()
    return s, d.log_prob(s), kl_divergence(d, Normal(0.0, 1.0)).sum(), c

def f(x):
    y = x * 2
    seen.append(y)
    old = seen[-2] if len(seen) > 1 else y
    old.add_(100)
    return y - x, old

import ctypes
def f(x):
    y = x * 2
    p = ctypes.cast(y.data_ptr(), ctypes.POINTER(ctypes.c_float))
    p[0] = 42.0
    v = memoryview(y.detach().numpy());
    return y + 1, v.nbytes, y[0, 0] * 2

lib = torch.library.Library(f"trip{id(seen)}", "DEF")
name = f"trip{id(seen)}"
@torch.library.custom_op(f"{name}c::sq", mutates_args=())
def sq(t: torch.Tensor) -> torch.Tensor: seen.append("op"); return t * t
@torch.library.custom_op(f"{name}c::inc", mutates_args={"t"})
def inc(t: torch.Tensor) -> None: t.add_(1)
def f(x):
    y = x * 2
    z = sq(y.detach())
    w = y.detach().clone(); inc(w)
    return z + 1, w * 2

import io, os, tempfile
def f(x):
    y = x * 2 + 1
    whole, old = io.BytesIO(), io.BytesIO()
    torch.save({"y": y, "parts": [y.detach(), y[0]]}, whole)
    torch.save(y - 1, old, _use_new_zipfile_serialization=False)
    y.data.add_(1)
    whole.seek(0)
    old.seek(0)
    return torch.load(whole), torch.load(old), y

m = torch.nn.Linear(200, 4)
def f(x):
    import io
    file = io.BytesIO()
    torch.save(m.state_dict(), file)
    file.seek(0)
    with torch.no_grad(): m.weight.mul_(1.5)
    y = m(x).detach()
    m.load_state_dict(torch.load(file))
    return y, m(x)

def f(x):
    dropped = (x * 2 + 1).sin() + 1
    return 0

def f(x):
    dropped = (x * 2 + 1).sin() + 1
    y = dropped.sum()
    dropped = torch.softmax(x * 3, 1) - 1
    return y
'''

"""Programs that are known to trip the capture of graphs: compiled they give the results, side effects and exceptions of eager."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from tests.compiler.longer_programs import PROGRAMS as LONGER_PROGRAMS

import flambeau as fb
from flambeau.compiler import _programs
from flambeau.utils._pytree import tree_leaves

# Each is the text of a function `f(x)`, perhaps after what it needs; `seen` is a list that it may write to.
PROGRAMS = """
def f(x): return x * 2 + 1
def f(x): return x.sin().cos().exp()
def f(x): return (x * 2 + 1).relu().sum()
def f(x): y = x + 1; x.add_(5); return y, x
def f(x): y = x * 2; y += 1; return y * 3
def f(x): y = x * 2; y.mul_(y); return y + y
def f(x): y = x * 2; y[0] = 7; return y + 1
def f(x): y = x * 2; y[0, :3] = x[1, :3]; return y - 1
def f(x): y = x * 2; z = y[1]; z.fill_(3); return y, z
def f(x): y = (x * 2).view(-1); y[:5] = 0; return y.view(200, 200) + 1
def f(x): y = x.sin() * 2; x.numpy()[:] = 0; return y + x
def f(x): a = x.numpy(); z = x * 2; a[1] = 100; return z
def f(x): y = x * 2 + 1; a = y.numpy(); z = y * 2; a[1] = 100; return z, y
def f(x): import numpy as np; a = np.ones((200, 200), np.float32); t = torch.from_numpy(a); z = x + t; a[:] = 100; return z
def f(x): import numpy as np; a = np.ones((200, 200), np.float32); t = torch.as_tensor(a); z = x + t[:1]; a += 1; return z * 2 + t
def f(x): y = x * 2; a = y[0].numpy(); z = (y + 1) * y; a[:] = 0; y = y.view(-1) * 3; a[:] = 1; return z, y + 1
def f(x): y = x.sin() * 2; x.data = torch.zeros(200, 200); return y + x
def f(x): y = x.sin() * 2; x.data.zero_(); return y + x
def f(x): y = x.sin() * 2; x.detach().zero_(); return y + x
def f(x): y = x.sin() * 2; x.untyped_storage().fill_(0); return y + x
def f(x): y = x.sin() * 2; x.set_(torch.ones(200, 200)); return y + x
def f(x): y = x.sin() * 2; x.resize_(100, 100); return y, x + 1
def f(x): y = x + 1; torch.add(x, 1, out=x); return y, x
def f(x): out = torch.empty(200, 200); torch.mul(x + 1, 2, out=out); return out, out + 1
def f(x): seen.append(len(seen)); return x * len(seen)
def f(x): return x * 2 if x.mean() > 0 else x - 1
def f(x): return x * 2 if (x + 1).sum().item() > 0 else x - 1
def f(x): return [float(v) for v in (x * 2)[0, :4]]
def f(x): return (x * 2)[0, :4].tolist(), x + 1
def f(x): y = x + 1; return str(y)[:30], y
def f(x): y = x + 1; return repr(y)[:30], format(y[0, 0])
def f(x): y = x + 1; return bool(y[0, 0] > 0), int(y[0, 0] > 0)
def f(x): y = x + 1; return y.shape, y.dtype, y.device, y.ndim, len(y), y.stride()
def f(x): y = x.t() + 1; return y.stride(), y.is_contiguous(), y
def f(x): y = x + 1; return y.is_leaf, y.requires_grad, y.grad_fn is None
def f(x): y = x + 1; return y.data_ptr() == y.data_ptr(), y.storage_offset()
def f(x): y = x * 2; return y.contiguous() is y, y.to(torch.float32) is y
def f(x): y = x * 2; return y.clone() is y, y.detach() is y
def f(x): a, b = (x * 2).chunk(2, 1); return (a.exp() * b).sum(), a, b.contiguous()
def f(x): return [t + 1 for t in (x * 2).unbind(0)[:3]]
def f(x): return sum(t.sum() for t in (x * 2).split(50))
def f(x): return [row * 2 for row in (x + 1)][0]
def f(x): y = x * 3\\n try: y @ torch.ones(3)\\n except RuntimeError as e: return y, type(e).__name__
def f(x): y = x * 3; raise ValueError("after")
def f(x): seen.append(x * 3 + 1); raise ValueError("the list has it")
def f(x): y = x + 1; assert y.max() < -100, "too large"; return y
def f(x): return (x + 1) / (x - x)
def f(x): return (x + 1).log() + (x - 1).sqrt()
def f(x): return x.double() * 2 + 1, x.half() + 1, x.bfloat16() * x.bfloat16()
def f(x): return (x > 0) & (x < 1), (x > 0).logical_not()
def f(x): return torch.where(x > 0, x * 2, -x)
def f(x): return (x * 10).int() // 3 + 1
def f(x): return (x * 10).long() % 7 - 2
def f(x): return x.clamp(-1, 1) + x.clamp(min=0) + torch.clamp(x, max=0.5)
def f(x): return x + torch.tensor(2.0) + torch.tensor(3)
def f(x): return x * torch.tensor([1.0]) + torch.arange(200.)
def f(x): return x[:, :1] * 2 + x[:1] * 3
def f(x): return (x.unsqueeze(0) + x.unsqueeze(1)[:3]).sum(0)
def f(x): return x + 1j * x
def f(x): return (x + 1).pow(2) + x ** 3 + 2 ** x
def f(x): return x.abs().pow(0.5) + x.abs() ** -1.5
def f(x): return x.maximum(x.t()) + x.minimum(x * 2)
def f(x): return torch.lerp(x, x * 2, 0.3) + torch.addcmul(x, x, x, value=0.5)
def f(x): return torch.nn.functional.gelu(x + 1) + torch.nn.functional.silu(x)
def f(x): return torch.nn.functional.softplus(x) * torch.tanh(torch.nn.functional.softplus(x))
def f(x): return torch.nn.functional.relu(x + 1, inplace=True) * 2
def f(x): return torch.nn.functional.dropout(x, 0.5) + 1
def f(x): torch.manual_seed(3); y = torch.nn.functional.dropout(x, 0.5) + 1; return y, torch.rand(3)
def f(x): y = x + torch.rand(200, 200); return y * 2, torch.randn(2)
def f(x): s = torch.get_rng_state(); y = x + torch.rand(1); torch.set_rng_state(s); return y, torch.rand(1)
def f(x): return (x + 1).bernoulli_(0.5), torch.bernoulli(x.sigmoid())
def f(x):\\n with torch.no_grad(): y = x * 2 + 1\\n return y * 3
def f(x):\\n with torch.inference_mode(): y = x * 3 + 1\\n return y + 1, y.is_inference()
def f(x):\\n with torch.autocast("cpu"): y = x @ x\\n return y, x + 1
def f(x):\\n torch.set_default_dtype(torch.float64)\\n try: return x.int() + 1.5\\n finally: torch.set_default_dtype(torch.float)
def f(x): x.requires_grad_(True); y = (x.sin() * x).relu(); y.mean().backward(); return y, x.grad
def f(x): x.requires_grad_(True); y = x * 2; y.register_hook(lambda g: g * 10); (y + 1).sum().backward(); return x.grad
def f(x): x.requires_grad_(True); y = x * 2; y.retain_grad(); (y * y).sum().backward(); return y.grad
def f(x): x.requires_grad_(True); y = x * 2 + 1; g, = torch.autograd.grad(y.sum(), x); return g, y.requires_grad
def f(x): x.requires_grad_(True); y = (x ** 3).sum(); g, = torch.autograd.grad(y, x, create_graph=True); g.sum().backward(); return x.grad
def f(x): x.requires_grad_(True); y = x * 2; y.detach_(); return y.requires_grad, y + 1
def f(x): x.requires_grad_(True); return (x * 2).detach() + 1, (x + 1).requires_grad
def f(x): x.requires_grad_(True); y = x * 2; y.add_(1); y.sum().backward(); return x.grad, y.grad_fn is None
def f(x): return torch.func.grad(lambda t: (t.sin() * t).sum())(x) + 1
def f(x): return torch.func.vmap(lambda t: t * 2 + t.sum())(x + 1)
def f(x): return torch.func.jvp(lambda t: t.sin() * 2, (x,), (x + 1,))
def f(x): y = x + 1; del y; return x * 2
def f(x): y = x + 1; z = y; y = y * 2; return z, y
def f(x): seen.append(x + 1); return seen[-1] * 2
def f(x): return {"a": x + 1, "b": [x * 2, (x - 1, None, 3)]}
def f(x): x.note = 5; y = x + 1; y.note = 7; return y.note, (y * 2)
def f(x): return len({x: 1, x + 1: 2}), (x + 1) in [x]
def f(x): return (x + 1).equal(x + 1), torch.allclose(x + 1, x + 1)
def f(x): import copy; y = copy.deepcopy(x + 1); return y, type(y).__name__
def f(x): import pickle; return pickle.loads(pickle.dumps(x + 1))
def f(x): import numpy as np; return np.asarray(x + 1).sum(), np.add(x + 1, 1).shape
def f(x): import numpy as np; return torch.from_numpy(np.sin((x + 1).numpy())) * 2
def f(x): return torch.utils.dlpack.from_dlpack(x + 1) * 2
def f(x): return torch.utils.checkpoint.checkpoint(lambda t: t.sin() * 2, x, use_reentrant=False) + 1
def f(x): return sorted([(x[0, i] + 1).item() for i in range(3)])
def f(x): g = (x * i for i in range(3)); return [next(g), next(g)]
def f(x):\\n def inner(t): nonlocal count; count += 1; return t * count\\n count = 0\\n return inner(x) + inner(x)
def f(x):\\n y = x\\n for _ in range(5): y = y * 1.1 + 0.1\\n return y
def f(x):\\n y = x\\n while y.sum() < 1e6: y = y * 2 + 1\\n return y
def f(x): return x.cumsum(0) + x.sort(1).values + x.argmax(1)
def f(x): return torch.cat([x + 1, x * 2]).sum(0), torch.stack([x - 1, x])
def f(x): return (x + 1) @ (x * 2) + 1
def f(x): return torch.softmax(x * 2, -1) * 3 + (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)
def f(x): return torch.nn.functional.layer_norm(x * 2, (200,)) + 1
def f(x): m = torch.nn.BatchNorm1d(200); y = m(x * 2) + 1; return y, m.running_mean, m.num_batches_tracked
def f(x): m = torch.nn.Linear(200, 3); o = torch.optim.SGD(m.parameters(), 0.1); m(x).sum().backward(); w = m.weight * 2; o.step(); return w
def f(x): m = torch.nn.Linear(200, 200); w = m.weight.detach() * 2 + 1; torch.nn.init.zeros_(m.weight); return w, m.weight
def f(x): return torch._foreach_add([x + 1, x * 2], 1)
def f(x): y = [x + 1, x * 2]; torch._foreach_mul_(y, 3); return y
def f(x): return x.masked_fill(x > 0, 0) + x[x > 0].sum(), (x * 2).nonzero().shape
def f(x): return torch.einsum("ij,jk->ik", x + 1, x), torch.linalg.norm(x * 2 + 1)
def f(x): y = x * 2; return torch.compiler.disable(lambda t: t + 1)(y) * 3
def f(x): y = x * 2; torch._dynamo.graph_break(); return y + 1
def f(x): inner = torch.compile(lambda t: t * 2 + 1); return inner(x + 1) * 3
def f(x): return x.T * 2 + 1, (x * 2).mT, (x + 1).real
def f(x): return (x + 1).to(torch.float64, copy=True).add(1).float(), x.type(torch.int32) + 1
def f(x): return x.expand(2, 200, 200) * 2 + x, x.new_zeros(3) + 1, torch.zeros_like(x + 1) + 2
def f(x): return -x + +x + ~(x > 0), abs(x) - 1 if x.ndim else 0
def f(x): return 1 - x, 2 / (x.abs() + 1), 3 // (x.abs() + 1), 7 % (x.abs() + 1)
def f(x): return float("nan") * x + 0.0 * x, x * -0.0 + 0.0
"""
LONGER = LONGER_PROGRAMS.strip().split("\n\n")
TABLE = [line.replace("def f(x):", "def f(x):\n").replace("\\n ", "\n ") for line in PROGRAMS.strip().splitlines()]


def outcomes(text: str, compiling: Any, calls: int = 4, gradients: bool = False) -> list[Any]:
    """What each of several calls gives, raises and leaves behind; with `gradients`, `x` has a history, and results are differentiated."""
    scope: dict[str, Any] = {"torch": fb, "seen": [], "compiling": compiling, "__name__": __name__}
    fb.manual_seed(123)
    exec(text, scope)
    f = compiling(scope["f"])
    found: list[Any] = []
    for call in range(calls):
        fb.manual_seed(call)
        leaf = fb.randn(200, 200, requires_grad=gradients)
        x = leaf * 1 if gradients else leaf
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = f(x)
                if gradients:
                    back = [y for y in tree_leaves(result) if isinstance(y, fb.Tensor) and y.requires_grad and y.is_floating_point()]
                    if back:
                        fb.autograd.backward(back, [y.detach() * 0.3 for y in back])
        except (ArithmeticError, AssertionError, BufferError, LookupError, RuntimeError, ValueError) as error:
            result = type(error).__name__, str(error)[:40]
        found.append([result, x, list(scope["seen"]), fb.rand(1), leaf.grad])
    return found


def bits(value: Any) -> Any:
    """What two results must have in common; the sign of what is no number is not said by any operation."""
    if not isinstance(value, fb.Tensor):
        return repr(value)
    plain = value.detach().contiguous()
    if plain.is_floating_point():
        plain = plain.masked_fill(plain.isnan(), float("nan"))
    looks = type(value).__name__, value.shape, value.dtype, value.stride(), value.requires_grad
    return *looks, plain.reshape(-1).view(fb.uint8).numpy().tobytes()


def through_graphs(f: Any) -> Any:
    return fb.compile(f, backend=lambda graph, inputs: graph.forward)


@pytest.mark.parametrize("compiling", [fb.compile, through_graphs], ids=["fused", "graphs"])
@pytest.mark.parametrize("text", TABLE, ids=[str(i) for i in range(len(TABLE))])
def test_a_compiled_program_does_what_it_does_without(text: str, compiling: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_programs, "WORTH", 0)
    expected = outcomes(text, lambda f: f)
    got = outcomes(text, compiling)

    check(text, expected, got)


@pytest.mark.parametrize("text", TABLE, ids=[str(i) for i in range(len(TABLE))])
def test_a_compiled_program_gives_the_gradients_that_it_gives_without(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_programs, "WORTH", 0)

    check(text, outcomes(text, lambda f: f, gradients=True), outcomes(text, fb.compile, gradients=True))


def replayed(f: Any) -> Any:
    return fb.compile(f, mode="reduce-overhead")


@pytest.mark.parametrize("compiling", [fb.compile, through_graphs, replayed], ids=["fused", "graphs", "replayed"])
@pytest.mark.parametrize("text", LONGER, ids=[str(i) for i in range(len(LONGER))])
def test_a_longer_program_does_what_it_does_without(text: str, compiling: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_programs, "WORTH", 0)

    for gradients in (False, True):
        expected = outcomes(text, lambda f: f, 6, gradients)
        check(text, expected, outcomes(text, compiling, 6, gradients))


def check(text: str, expected: list[Any], got: list[Any]) -> None:
    for call, (wanted, found) in enumerate(zip(expected, got, strict=True)):
        for a, b in zip(tree_leaves(wanted), tree_leaves(found), strict=True):
            assert bits(a) == bits(b), f"call {call} of:\n{text}"

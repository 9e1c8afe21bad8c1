"""The cases of `against_torch.py`, and the process that runs them for one framework.

A case is a line: its name, what is made before, and the step to time, in PyTorch's words; `*` before the name makes it one of the
core. Statements are separated by semicolons, and the value of the last is the result. There are:

    T, F, nn              the framework, its nn.functional and its nn
    normal(*shape)        float32 from a normal distribution, the same in both; another `seed` gives others
    uniform(*shape)       float32 between 0 and 1
    integers(high, *shape)  int64 from 0 to below `high`
    leaf(x)               x, as a leaf that requires grad
    filled(module)        the module with parameters from numpy

A step of a group in `STARTS` is a whole program, run in a new process; the framework is called T in it.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import sys
import time
from dataclasses import dataclass
from typing import Any

GROUPS = {
    "pointwise": """
        * exp_100k            | x = normal(100_000)                                      | T.exp(x)
        * add_1k              | x, y = normal(1000), normal(1000, seed=1)                | x + y
          add_100k            | x, y = normal(100_000), normal(100_000, seed=1)          | x + y
        * add_16M             | x, y = normal(1 << 24), normal(1 << 24, seed=1)          | x + y
          add_rows            | x, y = normal(1000, 1000), normal(1000)                  | x + y
          add_transposed      | x, y = normal(1000, 1000).t(), normal(1000, 1000)        | x + y
          mul_inplace_1M      | x = normal(1 << 20)                                      | x.mul_(1.0)
        * gelu_1M             | x = normal(1 << 20)                                      | F.gelu(x)
          sigmoid_bf16_1M     | x = normal(1 << 20).bfloat16()                           | T.sigmoid(x)
          tanh_f64_100k       | x = normal(100_000).double()                             | T.tanh(x)
          where_1M            | x = normal(1 << 20); y = normal(1 << 20, seed=1)         | T.where(x > 0, x, y)
          int_remainder_100k  | x = integers(1000, 100_000)                              | x % 7
          atan2_100k          | x, y = normal(100_000), normal(100_000, seed=1)          | T.atan2(x, y)
          lerp_1M             | x, y = normal(1 << 20), normal(1 << 20, seed=1)          | T.lerp(x, y, 0.3)
        * chain_with_gradient | x = leaf(normal(100_000))                | x.grad = None; (x.sin() * x.exp()).sum().backward(); x.grad
    """,
    "reduction": """
        * sum_1M              | x = normal(1 << 20)                                      | x.sum()
          sum_rows            | x = normal(1000, 1000)                                   | x.sum(1)
        * sum_columns         | x = normal(1000, 1000)                                   | x.sum(0)
          mean_bf16           | x = normal(1000, 1000).bfloat16()                        | x.mean()
        * argmax_rows         | x = normal(1000, 1000)                                   | x.argmax(1)
          max_rows            | x = normal(1000, 1000)                                   | x.max(1).values
          var_columns         | x = normal(1000, 1000)                                   | x.var(0)
          norm_1M             | x = normal(1 << 20)                                      | T.linalg.vector_norm(x)
          cumsum_rows         | x = normal(1000, 1000)                                   | x.cumsum(1)
          sort_rows           | x = normal(1000, 1000)                                   | x.sort(1).values
        * topk                | x = normal(256, 10_000)                                  | x.topk(10).values
          unique              | x = integers(1000, 100_000)                              | x.unique()
          logsumexp_rows      | x = normal(1000, 1000)                                   | T.logsumexp(x, 1)
    """,
    "layers": """
        * softmax_rows        | x = normal(1024, 1024)                                   | F.softmax(x, -1)
        * layer_norm          | x = normal(512, 768); m = filled(nn.LayerNorm(768))      | m(x)
          layer_norm_gradient | x = leaf(normal(512, 768)); m = filled(nn.LayerNorm(768)) | x.grad = None; m(x).sum().backward(); x.grad
          batch_norm_train    | x = normal(16, 64, 32, 32); m = filled(nn.BatchNorm2d(64)) | m(x)
          group_norm          | x = normal(16, 64, 32, 32); m = filled(nn.GroupNorm(8, 64)) | m(x)
        * cross_entropy       | x = leaf(normal(256, 10_000)); y = integers(10_000, 256) | x.grad = None; \
                                F.cross_entropy(x, y).backward(); x.grad
          embedding           | w = normal(10_000, 256); i = integers(10_000, 64, 128)   | F.embedding(i, w)
          max_pool            | x = normal(16, 64, 56, 56)                               | F.max_pool2d(x, 3, 2, 1)
          interpolate         | x = normal(8, 16, 64, 64)                        | F.interpolate(x, scale_factor=2, mode="bilinear")
          lstm                | x = normal(32, 16, 128); m = filled(nn.LSTM(128, 128))   | m(x)[0]
    """,
    "products": """
        * mm_512              | x, y = normal(512, 512), normal(512, 512, seed=1)        | x @ y
          mm_64               | x, y = normal(64, 64), normal(64, 64, seed=1)            | x @ y
          mm_transposed       | x, y = normal(512, 512), normal(512, 512, seed=1)        | x.t() @ y
          mm_bf16_256         | x = normal(256, 256).bfloat16(); y = x.t().contiguous()  | x @ y
        * bmm_64x64           | x, y = normal(64, 64, 64), normal(64, 64, 64, seed=1)    | x @ y
          mv_1024             | x, y = normal(1024, 1024), normal(1024)                  | x @ y
          linear              | x = normal(256, 512); m = filled(nn.Linear(512, 512))    | m(x)
          einsum              | x, y = normal(16, 64, 32), normal(16, 32, 64)            | T.einsum("bij,bjk->bik", x, y)
        * attention           | q = normal(4, 8, 256, 64); k = normal(4, 8, 256, 64, seed=1) | F.scaled_dot_product_attention(q, k, q)
          attention_causal    | q = normal(4, 8, 256, 64)                         | F.scaled_dot_product_attention(q, q, q, is_causal=True)
    """,
    "conv": """
        * conv_3x3_64         | x = normal(8, 64, 28, 28); m = filled(nn.Conv2d(64, 64, 3, padding=1)) | m(x)
          conv_1x1            | x = normal(8, 64, 28, 28); m = filled(nn.Conv2d(64, 256, 1))       | m(x)
          conv_7x7_first      | x = normal(4, 3, 112, 112); m = filled(nn.Conv2d(3, 64, 7, 2, 3))  | m(x)
          conv_depthwise      | x = normal(8, 64, 28, 28); m = filled(nn.Conv2d(64, 64, 3, groups=64)) | m(x)
          conv_transposed     | x = normal(4, 32, 16, 16); m = filled(nn.ConvTranspose2d(32, 32, 4, 2, 1)) | m(x)
          conv_1d             | x = normal(8, 64, 512); m = filled(nn.Conv1d(64, 64, 5))           | m(x)
        * conv_gradient       | x = normal(8, 16, 28, 28); m = filled(nn.Conv2d(16, 32, 3)) \
                              | m.weight.grad = None; m(x).sum().backward(); m.weight.grad
    """,
    "index": """
        * gather              | x = normal(1000, 1000); i = integers(1000, 1000, 100)    | x.gather(1, i)
          index_rows          | x = normal(10_000, 64); i = integers(10_000, 5000)       | x[i]
          index_put_add       | i = integers(1000, 10_000); v = normal(10_000) | T.zeros(1000).index_put_((i,), v, accumulate=True)
        * masked_select       | x = normal(1 << 20)                                      | x[x > 0]
          masked_fill         | x = normal(1 << 20)                                      | x.masked_fill(x > 0, 0.0)
          scatter_add         | i = integers(1000, 100_000); v = normal(100_000)         | T.zeros(1000).scatter_add_(0, i, v)
          cat                 | x = normal(1000, 500)                                    | T.cat([x, x, x], 1)
          copy_of_transposed  | x = normal(1000, 1000)                                   | x.t().contiguous()
          slice_step          | x = normal(1000, 1000)                                   | x[::2, 1::2].clone()
    """,
    "linalg": """
        * inverse_128         | x = normal(128, 128) + 20 * T.eye(128)                   | T.linalg.inv(x)
          solve_256           | x = normal(256, 256) + 30 * T.eye(256); y = normal(256, 8) | T.linalg.solve(x, y)
          cholesky_256        | x = normal(256, 256); x = x @ x.t() + 256 * T.eye(256)   | T.linalg.cholesky(x)
          svdvals_128         | x = normal(128, 128)                                     | T.linalg.svdvals(x)
          eigvalsh_128        | x = normal(128, 128); x = x + x.t()                      | T.linalg.eigvalsh(x)
          inverse_of_many     | x = normal(256, 8, 8) + 8 * T.eye(8)                     | T.linalg.inv(x)
        * fft_4096            | x = normal(64, 4096)                                     | T.fft.rfft(x).abs()
          fft2                | x = normal(16, 128, 128)                                 | T.fft.fft2(x).abs()
    """,
    "call": """
        * add                 | x, y = normal(4, 4), normal(4, 4, seed=1)                | x + y
          add_gradient        | x = leaf(normal(4, 4))                                   | x + x
          add_number          | x = normal(4, 4)                                         | x + 1.5
        * matmul              | x = normal(4, 4)                                         | x @ x
          view                | x = normal(4, 4)                                         | x.view(16)
          slice               | x = normal(4, 4)                                         | x[1:, :2]
          item                | x = normal(4, 4)                                         | x[0, 0].item()
          softmax             | x = normal(4, 4)                                         | F.softmax(x, 1)
          zeros               |                                                          | T.zeros(4, 4)
        * mlp_step            | m = filled(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))); \
                                o = T.optim.SGD(m.parameters(), 0.01); x = normal(4, 8) \
                              | o.zero_grad(); L = m(x).square().mean(); L.backward(); o.step(); L
    """,
    "modes": """
        * add_autocast        | x = normal(4, 4); on = T.autocast("cpu", dtype=T.bfloat16) | on.__enter__(); y = x + x; \
                                on.__exit__(None, None, None); y
        ~ mm_autocast         | x = normal(4, 4); on = T.autocast("cpu", dtype=T.bfloat16) | on.__enter__(); y = x @ x; \
                                on.__exit__(None, None, None); y.float()
        * add_subclass        | S = type("S", (T.Tensor,), {}); x = normal(4, 4).as_subclass(S) | (x + x).as_subclass(T.Tensor)
          vmap                | x = normal(8, 4, 4); f = T.func.vmap(lambda x: x.tanh() * x)     | f(x)
          grad                | x = normal(4, 4); f = T.func.grad(lambda x: (x * x).sum())       | f(x)
          jvp                 | x = normal(4, 4)                                         | T.func.jvp(T.tanh, (x,), (x,))[1]
          hessian             | x = normal(4); f = T.func.hessian(lambda x: (x ** 3).sum()) | f(x)
    """,
    "training": """
        * mlp                 | m = filled(nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))); \
                                o = T.optim.Adam(m.parameters()); x = normal(64, 128); y = integers(10, 64) \
                              | o.zero_grad(); L = F.cross_entropy(m(x), y); L.backward(); o.step(); L.detach()
          convolutions        | m = filled(nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), \
                                nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))); \
                                o = T.optim.SGD(m.parameters(), 1e-3, 0.9); x = normal(16, 3, 32, 32); y = integers(10, 16) \
                              | o.zero_grad(); L = F.cross_entropy(m(x), y); L.backward(); o.step(); L.detach()
          transformer         | m = filled(nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True)); \
                                o = T.optim.AdamW(m.parameters(), 1e-4); x = normal(8, 32, 64) \
                              | o.zero_grad(); L = m(x).square().mean(); L.backward(); o.step(); L.detach()
    """,
    "random": """
        * normal_1M           |                                                          | T.randn(1 << 20).isfinite()
          uniform_1M          |                                                          | T.rand(1 << 20) < 2
          permutation         |                                                          | T.randperm(100_000).sum()
        * dropout             | x = T.ones(1 << 20)                                      | F.dropout(x, 0.5) >= 0
    """,
    "starting": """
        * import              | | import T
        * first_operation     | | import T; T.randn(4, 4) + 1
          first_training      | | import T; m = T.nn.Linear(8, 1); o = T.optim.Adam(m.parameters()); m(T.randn(4, 8)).sum().backward(); \
                                o.step()
    """,
}  # fmt: skip
STARTS = {"starting"}
TOLERANCE = 1e-5
LOOSE = 2e-2  # of cases marked ~, which compute in half precision


@dataclass(frozen=True)
class Case:
    """One line of `GROUPS`."""

    id: str
    given: str
    step: str
    core: bool
    tolerance: float
    starts: bool


def read(groups: dict[str, str]) -> list[Case]:
    """The cases of the text `groups`."""
    made = []
    for group, text in groups.items():
        for line in filter(None, map(str.strip, text.splitlines())):
            name, given, step = line.split("|", 2) if line.count("|") == 2 else line.rsplit("|", 2)
            mark, _, rest = name.strip().rpartition(" ")
            tolerance = LOOSE if "~" in mark or "bf16" in rest else TOLERANCE
            made.append(Case(f"{group}/{rest}", given.strip(), step.strip(), "*" in mark, tolerance, group in STARTS))
    return made


CASES = read(GROUPS)


def words(package: str) -> dict[str, Any]:
    """What the text of a case may use."""
    import numpy as np

    T = importlib.import_module(package)

    def normal(*shape: int, seed: int = 0) -> Any:
        return T.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))

    def uniform(*shape: int, seed: int = 0) -> Any:
        return T.from_numpy(np.random.default_rng(seed).random(shape, np.float32))

    def integers(high: int, *shape: int, seed: int = 0) -> Any:
        return T.from_numpy(np.random.default_rng(seed).integers(0, high, shape))

    def leaf(x: Any) -> Any:
        return x.detach().requires_grad_()

    def filled(module: Any) -> Any:
        with T.no_grad():
            for i, p in enumerate(module.parameters()):
                p.copy_(normal(*p.shape, seed=i) * 0.05)
        return module

    return {
        "T": T, "F": T.nn.functional, "nn": T.nn, "normal": normal, "uniform": uniform, "integers": integers, "leaf": leaf,
        "filled": filled,
    }  # fmt: skip


def made(case: Case, scope: dict[str, Any]) -> Any:
    """The step of `case`, a function without arguments."""
    *before, last = (part.strip() for part in case.step.split(";"))
    lines = [*(part.strip() for part in case.given.split(";")), "def step():"]
    lines += [*(f"    {part}" for part in before), f"    return {last}"]
    namespace = dict(scope)
    exec("\n".join(lines), namespace)  # the text is a case of this file
    return namespace["step"]


def summary(result: Any) -> list[dict[str, Any]]:
    """What is compared of the tensors of a result: shapes, dtypes, sums and some values spread over them."""
    import numpy as np

    if isinstance(result, (tuple, list)):
        return [told for x in result for told in summary(x)]
    if not hasattr(result, "dtype"):
        return [{"shape": [], "dtype": type(result).__name__, "size": abs(float(result)), "values": [float(result)]}]
    values = result.detach().double().cpu().numpy().ravel() if result.numel() else np.zeros(1)
    some = values[np.linspace(0, len(values) - 1, 32).astype(int)]
    size = float(np.abs(values).mean()) + float(np.abs(some).max())
    told = [float(values.mean()), *map(float, some)]
    return [{"shape": list(result.shape), "dtype": str(result.dtype).rpartition(".")[2], "size": size, "values": told}]


class Timer:
    """Times one step: as many calls as take a millisecond count as one, of several the median."""

    def __init__(self, step: Any) -> None:
        self.step = step
        self.calls = 1
        while (taken := self._once()) < 1e-3:
            self.calls = max(self.calls + 1, min(10 * self.calls, math.ceil(self.calls * 1.2e-3 / max(taken, 1e-9))))

    def _once(self) -> float:
        step = self.step
        begin = time.perf_counter()
        for _ in range(self.calls):
            step()
        return time.perf_counter() - begin

    def sample(self) -> float:
        """Seconds of a call."""
        gc.disable()
        end = time.perf_counter() + 0.02
        times = [self._once()]
        while time.perf_counter() < end:
            times.append(self._once())
        gc.enable()
        times.sort()
        return times[len(times) // 4] / self.calls


def work() -> None:
    """Answer the questions on standard input, a line of JSON each, as one framework."""
    import os

    answers, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    scope: dict[str, Any] = {}
    timer: Any = None
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if "begin" in question:
                scope = words(question["begin"])
                scope["T"].set_num_threads(question["threads"])
                answer: Any = scope["T"].__version__
            elif "prepare" in question:
                timer = None
                case = next(c for c in CASES if c.id == question["prepare"])
                scope["T"].manual_seed(0)
                step = made(case, scope)
                step()
                answer = summary(step())
                timer = step
            else:
                timer = timer if isinstance(timer, Timer) else Timer(timer)
                answer = timer.sample()
            told = {"answer": answer}
        except Exception as error:  # whatever a case raises is told to the driver, which counts it
            told = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(told) + "\n")
        answers.flush()

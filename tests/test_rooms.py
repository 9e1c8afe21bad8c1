"""Small programs of the rooms beside the tensors (distributions, library, package, testing and others) give what PyTorch gives.

Programs are separated by lines of three dashes; the last expression of each is compared, or the type of its error.
"""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

import flambeau as fb
from comparing import outcome

PROGRAMS = """
class B: pass
torch.utils.set_module(B, 'x'); B.__module__
---
class A: pass
torch.utils.set_module(A, 'abc'); A.__module__
---
a, b = torch.ones(2), torch.zeros(3); torch.utils.swap_tensors(a, b); (a, b)
---
a = torch.ones(2); v = a.view(2); torch.utils.swap_tensors(a, torch.zeros(2)); a
---
torch.utils.deterministic.fill_uninitialized_memory
---
torch.set_deterministic_debug_mode('error'); r = torch.get_deterministic_debug_mode(); torch.set_deterministic_debug_mode(0); r
---
torch.set_deterministic_debug_mode('zzz')
---
from torch.nn.attention import sdpa_kernel; sdpa_kernel('x').__enter__()
---
from torch.nn.attention import sdpa_kernel; sdpa_kernel([]).__enter__()
---
from torch.nn.attention import sdpa_kernel, SDPBackend
with sdpa_kernel(SDPBackend.MATH): r = (torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled())
r
---
from torch.nn.attention import sdpa_kernel, SDPBackend
with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True): r = torch.backends.cuda.math_sdp_enabled()
r
---
from torch.nn.attention import sdpa_kernel, SDPBackend
q = torch.ones(1,1,2,4)
with sdpa_kernel(SDPBackend.CUDNN_ATTENTION): r = F.scaled_dot_product_attention(q,q,q)
r
---
from torch.nn.attention.bias import causal_lower_right, causal_upper_left, CausalBias, CausalVariant
b = causal_lower_right(2, 3)
(b.variant.name, b.seq_len_q, b.seq_len_kv, repr(b))
---
from torch.nn.attention.bias import causal_lower_right; causal_lower_right(2, 3, 4)
---
m = torch.nn.DataParallel(torch.nn.Linear(2, 1)); (type(m.module).__name__, m.device_ids, m(torch.ones(3, 2)).shape)
---
sorted(torch.nn.DataParallel(torch.nn.Linear(2, 1)).state_dict())
---
torch.__config__.show().__class__.__name__
---
torch.__future__.get_overwrite_module_params_on_conversion(), torch.__future__.get_swap_module_params_on_conversion()
---
torch.__future__.set_swap_module_params_on_conversion(True)
l = torch.nn.Linear(2, 1)
w = l.weight
l.double()
r = (l.weight is w, w.dtype)
torch.__future__.set_swap_module_params_on_conversion(False)
r
---
torch._logging.set_logs(dynamo=10, zzz=3)
---
torch._logging.set_logs(graph=True)
torch._logging.set_logs()
---
torch._logging.set_logs(dynamo='a')
---
torch.quasirandom.SobolEngine(0)
---
torch.quasirandom.SobolEngine(21202)
---
e = torch.quasirandom.SobolEngine(2); e.draw(3); e.draw_base2(2)
---
e = torch.quasirandom.SobolEngine(2, scramble=True, seed=3); (e.draw(3), repr(e))
---
e = torch.quasirandom.SobolEngine(2); o = torch.empty(0); e.draw(3, out=o); o
---
e = torch.quasirandom.SobolEngine(2); e.fast_forward(2).fast_forward(3); e.draw(2)
---
from torch.monitor import Aggregation; sorted(Aggregation.__members__)
---
import datetime; torch.monitor.Event('a', datetime.datetime(2020, 1, 1), {'b': None})
---
import datetime; e = torch.monitor.Event('a', datetime.datetime(2020, 1, 1), {}); e.data = {'q': 1.0}; e.name = 'z'; (e.data, e.name)
---
import datetime
s = torch.monitor.Stat('a', [torch.monitor.Aggregation.SUM], datetime.timedelta(hours=1))
s.add(1)
s.add(2.5)
(s.count, s.name, s.get())
---
import datetime; torch.monitor.Stat('a', [torch.monitor.Aggregation.SUM], 3)
---
f = torch.futures.Future(); f.set_result(3); (f.done(), f.value(), f.wait(), f.then(lambda x: x.value() + 1).wait())
---
torch.futures.Future().value()
---
f = torch.futures.Future(); f.set_result(1); f.set_result(2)
---
f = torch.futures.Future(); f.set_exception(ValueError('a')); f.wait()
---
f = torch.futures.Future(); f.set_exception(ValueError('a')); f.value()
---
f = torch.futures.Future(); f.set_exception('a')
---
f = torch.futures.Future(); f.set_exception(ValueError('a')); f.done()
---
f = torch.futures.Future(devices=['cuda:0']); f
---
torch.futures.Future(devices=[3])
---
a, b = (torch.futures.Future(), torch.futures.Future())
c = torch.futures.collect_all([a, b])
a.set_result(1)
b.set_exception(KeyError('x'))
c.wait()
---
a, b = torch.futures.Future(), torch.futures.Future(); a.set_result(1); b.set_result(2); torch.futures.wait_all([a, b])
---
torch.futures.wait_all([]), torch.futures.collect_all([]).wait()
---
f = torch.futures.Future(); l = []; f.add_done_callback(lambda x: l.append(x.value())); f.set_result(4); l
---
def f(x: torch.Tensor, y: int = 3, *, z: bool = False) -> torch.Tensor: ...
torch.library.infer_schema(f, mutates_args=())
---
from typing import Optional, Sequence, List
def f(x: Optional[torch.Tensor], y: Sequence[int], z: List[float], d: torch.device, t: torch.dtype, s: str) -> None: ...
torch.library.infer_schema(f, mutates_args={'x'}, op_name='foo')
---
def f(x: torch.Tensor) -> tuple[torch.Tensor, int]: ...
torch.library.infer_schema(f, mutates_args='unknown')
---
def f(x: dict) -> torch.Tensor: ...
torch.library.infer_schema(f, mutates_args=())
---
def f(x: torch.Tensor, *args) -> torch.Tensor: ...
torch.library.infer_schema(f, mutates_args=())
---
torch.library.Library('aten', 'DEF')
---
torch.library.Library('prim', 'DEF')
---
torch.library.Library('x', 'ZZZ')
---
l = torch.library.Library('roomsa', 'DEF'); l.define('f(Tensor x) -> Tensor')
---
l = torch.library.Library('roomsb', 'DEF'); l.define('f(Tensor x')
---
l = torch.library.Library('roomsc', 'DEF'); l.define('f(Tensor x) -> Tensor'); torch.ops.roomsc.f(torch.ones(1))
---
l = torch.library.Library('roomsd', 'DEF')
l.define('f(Tensor x) -> Tensor')
l.impl('f', lambda x: x + 1, 'CPU')
torch.ops.roomsd.f(torch.ones(1))
---
l = torch.library.Library('roomse', 'DEF')
l.define('f(Tensor x) -> Tensor')
l.impl('f', lambda x: x + 1, 'CPU')
l.impl('f', lambda x: x + 2, 'CPU')
---
l = torch.library.Library('roomsf', 'DEF'); l.impl('g', lambda x: x + 1, 'CPU')
---
l = torch.library.Library('roomsg', 'DEF'); l.define('f(Tensor x) -> Tensor'); l.impl('f', lambda x: x + 1, 'ZZZ')
---
torch.library.define('roomsh::f', '(Tensor x, int n=2) -> Tensor')
torch.library.impl('roomsh::f', 'cpu', lambda x, n=2: x * n)
torch.ops.roomsh.f(torch.ones(2), 3)
---
torch.library.define('roomsi', '(Tensor x) -> Tensor')
---
torch.library.define('roomsj::f', 'Tensor x -> Tensor')
---
torch.library.impl('roomsk::f', 'zzz', lambda x: x)
---
torch.library.get_ctx()
---
torch.library.fallthrough_kernel()
---
torch.ops.roomsp.zzz
---
torch.ops.aten.add.Tensor(torch.ones(2), torch.ones(2), alpha=3)
---
torch.ops.aten.zzz
---
torch.ops.aten.add.Tensor.tags
---
torch.overrides.is_tensor_like(3), torch.overrides.is_tensor_like(torch.ones(1))
---
torch.overrides.has_torch_function((torch.ones(1), 3))
---
torch.overrides.resolve_name(3)
---
class A:
    @classmethod
    def __torch_function__(cls, f, types, args=(), kwargs=None): return NotImplemented
torch.add(A(), torch.ones(1))
---
class M(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, f, types, args=(), kwargs=None):
        return f(*args, **(kwargs or {})) + 1
with M(): r = torch.ones(2) * 3
r
---
torch.overrides.wrap_torch_function(lambda x: (x,))(lambda x: x + 1)(torch.ones(1))
---
torch.testing.assert_close(torch.ones(2), torch.ones(3))
---
torch.testing.assert_close(1, 1.0)
---
torch.testing.assert_close(torch.ones(2), [1, 1])
---
torch.testing.assert_close('a', 'a')
---
torch.testing.assert_close(torch.tensor(float('nan')), torch.tensor(float('nan')))
---
torch.testing.assert_close(torch.ones(2), torch.ones(2), rtol=1e-3)
---
torch.testing.make_tensor(3, dtype=torch.float32, device='cpu', low=2, high=1)
---
torch.testing.make_tensor((3,), dtype=torch.bool, device='cpu').dtype
---
torch.manual_seed(0); torch.testing.make_tensor((2, 3), dtype=torch.float32, device='cpu')
---
torch.manual_seed(0); torch.testing.make_tensor((2, 3), dtype=torch.int64, device='cpu', low=-3, high=4)
---
torch.manual_seed(0); torch.testing.make_tensor((2, 3), dtype=torch.complex64, device='cpu', exclude_zero=True)
---
torch.manual_seed(0); torch.testing.make_tensor((4, 3), dtype=torch.float64, device='cpu', noncontiguous=True)
---
torch.testing.make_tensor((1,), dtype=torch.float32, device='cpu', memory_format=torch.channels_last, noncontiguous=True)
---
D = torch.distributions; D.Normal(0., 1.).sample_n(2).shape
---
D = torch.distributions; D.Normal(0., 1.).perplexity()
---
D = torch.distributions; sorted(D.Gamma(1., 2.).arg_constraints.items(), key=str)
---
D = torch.distributions; D.constraints.is_dependent(D.constraints.dependent), D.constraints.is_dependent(D.constraints.real)
---
D = torch.distributions
D.constraints.stack([D.constraints.real, D.constraints.positive], 0).check(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
---
D = torch.distributions; D.transforms.AbsTransform()(torch.tensor(-2.)), D.transforms.AbsTransform().inv(torch.tensor(2.))
---
D = torch.distributions
(D.transforms.SoftmaxTransform()(torch.tensor([1.0, 2.0])), D.transforms.SoftmaxTransform().inv(torch.tensor([0.4, 0.6])))
---
D = torch.distributions; D.transforms.SoftmaxTransform().log_abs_det_jacobian(torch.ones(2), torch.ones(2))
---
D = torch.distributions; D.transforms.ReshapeTransform((2, 3), (6,))(torch.arange(12.).view(2, 2, 3)).shape
---
D = torch.distributions
D.transforms.IndependentTransform(D.transforms.ExpTransform(), 1).log_abs_det_jacobian(torch.ones(3), torch.ones(3))
---
D = torch.distributions; repr(D.transforms.ComposeTransform([D.transforms.ExpTransform(), D.transforms.AffineTransform(1., 2.)]))
---
D = torch.distributions; D.kl_divergence(D.Gamma(1., 1.), D.LogNormal(0., 1.))
---
D = torch.distributions
(D.biject_to(D.constraints.simplex)(torch.tensor([0.1, 0.2])), D.transform_to(D.constraints.simplex)(torch.tensor([0.1, 0.2])))
---
D = torch.distributions; D.biject_to(D.constraints.multinomial(3))
---
D = torch.distributions; D.transform_to(D.constraints.lower_triangular)(torch.ones(2, 2))
---
D = torch.distributions; D.Poisson(3.).enumerate_support()
---
D = torch.distributions; D.Normal(0., 1.).cdf(torch.tensor([0., 1.])), D.Normal(0., 1.).icdf(torch.tensor([.5, .9]))
---
D = torch.distributions; D.Multinomial(3, torch.ones(2)).log_prob(torch.tensor([1., 1.]))
---
D = torch.distributions; D.MultivariateNormal(torch.zeros(2), torch.ones(2, 2))
---
D = torch.distributions; D.MultivariateNormal(torch.zeros(2), torch.tensor([[1., 2.], [0., 1.]]))
---
D = torch.distributions; D.StudentT(torch.tensor([.5, 1., 3.])).mean, D.StudentT(torch.tensor([1.5, 2., 3.])).variance
---
D = torch.distributions; D.Pareto(1., torch.tensor([.5, 1.5, 3.])).mean, D.Pareto(1., torch.tensor([.5, 1.5, 3.])).variance
---
D = torch.distributions
(D.Categorical(torch.ones(3)).mean, D.Categorical(torch.ones(3)).variance, D.Categorical(torch.tensor([1.0, 3.0, 2.0])).mode)
---
D = torch.distributions
torch.manual_seed(0)
d = D.RelaxedOneHotCategorical(torch.tensor(1.0), torch.ones(3))
(d.temperature, d.logits, d.sample())
---
D = torch.distributions; D.LKJCholesky(3, 1.).sample((2,)).shape
---
D = torch.distributions; D.TransformedDistribution(D.Normal(torch.zeros(3), 1.), D.transforms.StickBreakingTransform()).event_shape
---
import torch.package
torch.package.PackageImporter('absent.pt')
---
D = torch.distributions; D.Geometric(torch.tensor(.3)).log_prob(torch.tensor(-1.))
---
D = torch.distributions; D.NegativeBinomial(torch.tensor(-1.), torch.tensor(.3))
---
D = torch.distributions; D.Uniform(torch.tensor([1., 0.]), torch.tensor([0., 1.]))
---
D = torch.distributions; D.Uniform(0., 1.).log_prob(torch.tensor(2.))
---
D = torch.distributions; D.Uniform(0., 1., validate_args=False).log_prob(torch.tensor(2.))
---
D = torch.distributions; D.Independent(D.Normal(torch.zeros(2, 3), 1.), 2).expand((4,)).batch_shape
---
D = torch.distributions; D.Dirichlet(torch.ones(2, 3)).rsample((4,)).shape, D.Dirichlet(torch.ones(3)).mode
---
D = torch.distributions; D.Dirichlet(torch.tensor(1.))
---
D = torch.distributions
(D.Beta(2.0, 3.0).mode, D.Beta(0.5, 0.5).mode, D.Gamma(0.5, 1.0).mode, D.InverseGamma(3.0, 1.0).mean, D.InverseGamma(0.5, 1.0).mean)
---
D = torch.distributions
(D.HalfCauchy(1.0).icdf(torch.tensor(0.5)), D.HalfNormal(1.0).log_prob(torch.tensor(0.0)), D.HalfCauchy(1.0).entropy())
---
torch.utils.checkpoint.checkpoint(lambda x: x * 2, torch.ones(2, requires_grad=True))
---
torch.utils.checkpoint.checkpoint(lambda x: x * 2, torch.ones(2, requires_grad=True), use_reentrant=True).grad_fn.name()
---
torch.utils.checkpoint.checkpoint(lambda x: x * 2, torch.ones(2), use_reentrant=False, zzz=3)
---
torch.utils.checkpoint.checkpoint_sequential([torch.nn.Linear(2, 2), torch.nn.ReLU()], 2, torch.ones(1, 2), use_reentrant=False).shape
---
torch.utils.checkpoint.set_checkpoint_debug_enabled(True).__class__.__name__
---
import functools; C = torch.utils.checkpoint; C.create_selective_checkpoint_contexts(3)
---
torch.nn.Linear(2, 2).to(torch.device('meta')).weight.device
---
torch.Event.__name__, torch.Stream.__name__
---
m = torch.nn.LinearCrossEntropyLoss(3, 4)
---
import torch.package, io
b = io.BytesIO()
with torch.package.PackageExporter(b) as e:
    e.save_text('a', 'b.txt', 'hi')
    e.save_binary('a', 'c', b'x')
b.seek(0)
i = torch.package.PackageImporter(b)
(i.load_text('a', 'b.txt'), i.load_binary('a', 'c'), str(i.file_structure()).count('b.txt'))
---
import torch.package, io
e = torch.package.PackageExporter(io.BytesIO()); e.save_source_string('m', 'import json\\nx = 1'); e.close()
---
import torch.package, io
e = torch.package.PackageExporter(io.BytesIO()); e.save_source_string('m', 'import numpy\\nx = 1'); e.close()
---
import torch.package, io
e = torch.package.PackageExporter(io.BytesIO())
e.extern('numpy')
e.save_source_string('m', 'import numpy\\nx = 1')
r = (e.externed_modules(), e.interned_modules(), e.dependency_graph_string().count('numpy'))
e.close()
r
---
import torch.package, io
e = torch.package.PackageExporter(io.BytesIO()); e.deny('numpy'); e.save_source_string('m', 'import numpy\\nx = 1'); e.close()
---
import torch.package, io
b = io.BytesIO()
e = torch.package.PackageExporter(b)
e.mock('numpy')
e.save_source_string('m', 'import numpy\\ndef f(): return numpy.ones(2)')
e.close()
b.seek(0)
torch.package.PackageImporter(b).import_module('m').f()
---
import torch.package, io
e = torch.package.PackageExporter(io.BytesIO()); e.intern('zzz', allow_empty=False); e.save_source_string('m', 'x = 1'); e.close()
---
import torch.package, io
b = io.BytesIO()
e = torch.package.PackageExporter(b)
e.save_source_string('m', 'x = 1')
e.close()
b.seek(0)
torch.package.PackageImporter(b).import_module('n')
---
import torch.package, io
b = io.BytesIO()
e = torch.package.PackageExporter(b)
e.save_pickle('p', 'o.pkl', {'a': torch.ones(2)})
e.close()
b.seek(0)
torch.package.PackageImporter(b).load_pickle('p', 'o.pkl')['a']
---
import torch.package
list(torch.package.Directory.__dict__)[:0]
---
import torch.package, io
e = torch.package.PackageExporter(io.BytesIO()); e.save_module(3)
---
import torch.profiler
torch.profiler.schedule(wait=0, warmup=0, active=0)
---
import torch.profiler
with torch.profiler.profile(record_shapes=True) as p: torch.ones(2, 3).matmul(torch.ones(3, 1))
p.key_averages(group_by_input_shape=True).table(row_limit=3).__class__.__name__
---
import torch.profiler
with torch.profiler.profile() as p: torch.ones(1)
p.key_averages().table(sort_by='zzz')
---
import torch.profiler
p = torch.profiler.profile(); p.step()
---
import torch.profiler
p = torch.profiler.profile(); p.key_averages()
---
import torch.autograd.profiler as ap
with ap.profile(enabled=False) as p: torch.ones(2) + 1
p.function_events
---
import torch.autograd.profiler as ap
with ap.profile(enabled=False) as p: torch.ones(2) + 1
p.table()
---
import torch.autograd.profiler as ap
with ap.record_function('a') as r: 3
r.name
---
torch.profiler.supported_activities()
---
torch.use_deterministic_algorithms(True)
r = torch.ones(3).put_(torch.tensor([0]), torch.tensor([2.0]))
torch.use_deterministic_algorithms(False)
r
---
torch.use_deterministic_algorithms(True); r = torch.ones(3).resize_(5).isnan().sum(); torch.use_deterministic_algorithms(False); r
---
torch.use_deterministic_algorithms(True)
r = torch.empty_like(torch.ones(3)).isnan().sum()
torch.use_deterministic_algorithms(False)
r
---
torch.use_deterministic_algorithms(True)
r = torch.empty_strided((2,), (1,)).isnan().sum()
torch.use_deterministic_algorithms(False)
r
---
torch.use_deterministic_algorithms(True); r = torch.empty(2, dtype=torch.bool); torch.use_deterministic_algorithms(False); r
---
torch.use_deterministic_algorithms(True)
r = torch.empty(2, dtype=torch.complex64).isnan().sum()
torch.use_deterministic_algorithms(False)
r
---
torch.use_deterministic_algorithms(True)
torch.utils.deterministic.fill_uninitialized_memory = False
r = torch.utils.deterministic.fill_uninitialized_memory
torch.utils.deterministic.fill_uninitialized_memory = True
torch.use_deterministic_algorithms(False)
r
---
torch.utils.deterministic.fill_uninitialized_memory = 3
---
torch.use_deterministic_algorithms(True)
x = torch.ones(1, 1, 4, 4, requires_grad=True)
F.interpolate(x, scale_factor=2, mode='bilinear').sum().backward()
torch.use_deterministic_algorithms(False)
x.grad
---
torch.use_deterministic_algorithms(True); r = torch.bincount(torch.tensor([1, 2])); torch.use_deterministic_algorithms(False); r
---
torch.use_deterministic_algorithms(True)
r = torch.ones(3).index_add(0, torch.tensor([0, 0]), torch.ones(2))
torch.use_deterministic_algorithms(False)
r
---
torch.use_deterministic_algorithms(True); r = torch.kthvalue(torch.ones(3), 1); torch.use_deterministic_algorithms(False); r[0]
---
torch.use_deterministic_algorithms(True); r = torch.histc(torch.ones(3)); torch.use_deterministic_algorithms(False); r.sum()
---
torch.use_deterministic_algorithms(True); r = torch.cumsum(torch.ones(3), 0); torch.use_deterministic_algorithms(False); r
"""


@pytest.mark.oracle
@pytest.mark.parametrize("program", [program.strip() for program in PROGRAMS.split("\n---\n")])
def test_programs_of_the_rooms_give_what_pytorch_gives(oracle: Any, program: str) -> None:
    ours = re.sub(r"\b(from|import) torch\b", r"\1 flambeau", program)

    theirs, found = outcome(oracle, program), outcome(fb, ours)

    assert same(theirs, found), f"PyTorch: {theirs}\nFlambeau: {found}"


def same(theirs: Any, found: Any) -> bool:
    """Whether two outcomes are the same but for the last digits of float32, which exponentials of two libraries do not share."""
    if isinstance(theirs, (tuple, list)) and isinstance(found, (tuple, list)):
        return len(theirs) == len(found) and all(map(same, theirs, found))
    try:
        return math.isclose(float(theirs), float(found), rel_tol=1e-5, abs_tol=1e-6) or theirs == found
    except (TypeError, ValueError):  # no numbers
        return theirs == found


def test_other_outcomes_are_told_apart(oracle: Any) -> None:
    for theirs, ours in (("torch.ones(2)", "torch.ones(3)"), ("torch.ones(2)", "torch.ones(2) + 1e-3"), ("1 / 0", "int('a')")):
        assert not same(outcome(oracle, theirs), outcome(fb, ours))

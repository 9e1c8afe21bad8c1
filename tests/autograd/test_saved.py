"""What nodes keep for backward, under PyTorch's names: `grad_fn._saved_result` and its like."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from comparing import disagreements


def test_nodes_show_what_they_saved(oracle: Any) -> None:
    setting = "x = torch.arange(12.0).reshape(3, 4).add_(1).requires_grad_(); y = x.detach().sqrt().requires_grad_(); "
    programs = """
    f = (x * y).grad_fn; f._saved_self, f._saved_other.shape
    f = x.exp().grad_fn; f._saved_result.shape
    f = x.sigmoid().grad_fn; f._saved_result.shape
    f = x.relu().grad_fn; f._saved_result
    f = x.sqrt().grad_fn; f._saved_result
    f = x.abs().grad_fn; f._saved_self
    f = torch.atan2(x, y).grad_fn; f._saved_self, f._saved_other
    f = (x / y).grad_fn; f._saved_other
    f = (x @ y.t()).grad_fn; f._saved_self, f._saved_mat2
    f = torch.bmm(x[None], y.t()[None]).grad_fn; f._saved_self, f._saved_mat2
    f = x.sum(1).grad_fn; f._saved_self_sym_sizes, f._saved_dim, f._saved_keepdim
    f = x.amax(1).grad_fn; f._saved_self, f._saved_result, f._saved_dim, f._saved_keepdim
    f = x.prod().grad_fn; f._saved_self, f._saved_result
    f = x.softmax(1).grad_fn; f._saved_dim
    f = x.log_softmax(1).grad_fn; f._saved_dim
    f = x.view(12).grad_fn; f._saved_self_sym_sizes
    f = x[0].grad_fn; f._saved_self_sym_sizes
    f = x[:1].expand(3, 4).grad_fn; f._saved_self_sym_sizes
    f = x.gather(1, torch.zeros(3, 1, dtype=torch.int64)).grad_fn; f._saved_dim, f._saved_index
    f = x.masked_fill(x > 2, 0).grad_fn; f._saved_mask
    f = torch.where(x > 2, x, y).grad_fn; f._saved_condition
    f = torch.nn.functional.conv2d(x[None], y[None, None, :, :2]).grad_fn; f._saved_stride, f._saved_padding, f._saved_groups
    x.exp().grad_fn._saved_nothing
    z = x.exp(); z.sum().backward(); z.grad_fn._saved_result
    z = x.exp(); f = (z * 1).exp().grad_fn; f._saved_result.shape
    '_saved_result' in dir(x.exp().grad_fn), '_saved_self' in dir((x * y).grad_fn)
    """

    assert not disagreements(oracle, "\n".join(setting + line.strip() for line in programs.splitlines() if line.strip()))


def test_nodes_and_what_they_saved_have_the_names_of_pytorchs_operators(oracle: Any) -> None:
    setting = "F = torch.nn.functional; x = torch.tensor([[3., 1.], [1., 2.]]).requires_grad_(); y = torch.ones(2, 2, requires_grad=True); "
    programs = """
    f = x.max(0)[0].grad_fn; f._saved_indices, f._saved_dim
    f = x.sort(0)[0].grad_fn; f._saved_indices
    f = x.topk(1, 0)[0].grad_fn; f._saved_indices
    f = x.kthvalue(1, 0)[0].grad_fn; f._saved_indices
    f = x.var(0).grad_fn; f._saved_dim, f._saved_correction
    f = torch.linalg.vector_norm(x, 3.0, 0).grad_fn; f._saved_ord, f._saved_dim
    f = x.logsumexp(0).grad_fn; f._saved_dim
    f = torch.linalg.svd(x)[1].grad_fn; f._saved_S.shape, f._saved_U.shape
    f = torch.linalg.eigh(x)[0].grad_fn; f._saved_eigenvalues.shape
    f = torch.linalg.qr(x)[0].grad_fn; f._saved_Q.shape, f._saved_R.shape
    f = torch.linalg.cholesky(x).grad_fn; f._saved_L.shape
    f = torch.linalg.inv(x).grad_fn; f._saved_inverse.shape
    f = torch.linalg.solve(x, y).grad_fn; f._saved_result.shape, f._saved_left
    f = torch.linalg.pinv(x).grad_fn; f._saved_self
    f = torch.linalg.lu_factor(x)[0].grad_fn; f._saved_LU.shape, f._saved_pivots, f._saved_pivot
    f = F.layer_norm(x, (2,)).grad_fn; f._saved_input, f._saved_normalized_shape
    f = F.batch_norm(x, None, None, training=True).grad_fn; f._saved_input
    f = F.gelu(x, approximate="tanh").grad_fn; f._saved_approximate
    f = F.leaky_relu(x, .5).grad_fn; f._saved_negative_slope
    f = F.mse_loss(x, y).grad_fn; f._saved_reduction
    f = F.nll_loss(x, torch.tensor([0, 1])).grad_fn; f._saved_reduction, f._saved_target
    f = F.pad(x, (1, 2, 0, 1)).grad_fn; f._saved_pad
    f = F.unfold(x[None, None], 2).grad_fn; f._saved_kernel_size
    f = (x ** 2).grad_fn; f._saved_exponent
    f = (x @ y).grad_fn; f._saved_self_sym_sizes, f._saved_mat2_sym_strides
    f = x.softmax(0).grad_fn; 0
    f = torch.special.erfcx(x).grad_fn; 0
    f = x.log1p().grad_fn; 0
    """
    lines = [line.strip() for line in programs.splitlines() if line.strip()]

    assert not disagreements(oracle, "\n".join(f"{setting}{line}, f.name(), type(f).__name__" for line in lines))


def test_what_was_overwritten_is_not_shown() -> None:
    x = fb.ones(3, requires_grad=True)
    y = x.exp()
    z = y.sin()
    y.add_(1)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _ = z.grad_fn._saved_self


PROGRAMS = """
x = made(2, 3); y = x * x; (y.grad_fn._saved_self is x, y.grad_fn._saved_other is x)
x = made(2, 3); y = x @ x.t(); y.grad_fn._saved_self is x
x = made(1, 2, 4, 4); w = made(3, 2, 3, 3); g = F.conv2d(x, w).grad_fn; (g._saved_input is x, g._saved_weight is w)
g = made(5, 3)[1:4:2].grad_fn; (g._saved_start, g._saved_end, g._saved_step, g._saved_dim, tuple(g._saved_self_sym_sizes))
g = made(5, 3)[:, 1:].grad_fn; (g._saved_start, g._saved_end, g._saved_step, g._saved_dim)
g = made(5, 3)[:, 2].grad_fn; (g._saved_index, g._saved_dim, tuple(g._saved_self_sym_sizes))
g = made(5, 3)[2, 1:].grad_fn; (g._saved_start, g._saved_dim, tuple(g._saved_self_sym_sizes), g.name())
g = made(5, 3).narrow(0, 1, 2).grad_fn; (g._saved_start, g._saved_end, g._saved_step, g._saved_dim, g.name())
g = made(5, 1).squeeze(1).grad_fn; (g._saved_dim, tuple(g._saved_self_sym_sizes), g.name())
g = made(5, 3).mean().grad_fn; (g._saved_self_sym_numel, tuple(g._saved_self_sym_sizes))
y = made(2, 3).exp(); type(y.grad_fn._raw_saved_result).__name__
y = made(2, 3).sin(); [n for n in dir(y.grad_fn) if '_saved_' in n and n[0] == '_']
x = made(2, 3); y = x * x; y.grad_fn._raw_saved_self.register_hooks(lambda t: t * 2, same); y.sum().backward(); x.grad
x = made(2); y = x * x; y.grad_fn._raw_saved_self.register_hooks(lambda t: 5, lambda n: torch.full((2,), 5.0)); y.sum().backward(); x.grad
x = made(2); y = x.sin(); y.grad_fn._raw_saved_self.register_hooks(lambda t: 0, lambda n: torch.zeros(2)); y.grad_fn._saved_self.detach()
x = made(2, 3); y = x.sin(); y.sum().backward(); y.grad_fn._raw_saved_self.register_hooks(same, same)
x = made(2, 3); y = x.sin(); [y.grad_fn._raw_saved_self.register_hooks(same, same) for _ in range(2)]
x = made(2, 3); x.sin().grad_fn._raw_saved_self.register_hooks(1, lambda t: t)
(torch.ones(3).storage().get_device(), torch.ones(3, device='meta').untyped_storage().get_device())
"""


def test_what_nodes_have_saved_is_named_and_hooked_as_in_pytorch(oracle):
    setting = "made = lambda *shape: torch.ones(*shape, requires_grad=True); same = lambda t: t; "

    assert not disagreements(oracle, "\n".join(setting + line for line in PROGRAMS.strip().splitlines()))


def test_a_view_made_in_inference_mode_and_written_outside_is_refused_in_the_words_of_pytorch(oracle):
    for lib in (oracle, fb):
        y = lib.ones(3, requires_grad=True) * 1
        with lib.inference_mode():
            view = y.view(3)

        with pytest.raises(RuntimeError, match=r"^A view was created in inference mode and is being modified inplace in normal mode"):
            view.add_(1)


SHOWN = """
F.layer_norm(x, (4,)).grad_fn
F.layer_norm(x, (4,), w, w).grad_fn
F.group_norm(x, 2).grad_fn
F.batch_norm(x, None, None, training=True).grad_fn._saved_training
F.batch_norm(x, None, None, training=True).grad_fn._saved_result2
F.batch_norm(x, torch.zeros(2), torch.ones(2)).grad_fn
F.nll_loss(x[0, 0], torch.tensor([0, 1, 2]), reduction='sum').grad_fn._saved_ignore_index
F.selu(x).grad_fn
F.unfold(x, 2).grad_fn
F.embedding(torch.tensor([1]), w.view(2, 2)).grad_fn
x.unbind(1)[1].grad_fn
x.split(1, 1)[1].grad_fn
x.tensor_split(2, 2)[0].grad_fn
x.roll(1, 0).grad_fn
x.cummax(1)[0].grad_fn._saved_indices
x.median(1)[0].grad_fn
torch.frexp(x)[0].grad_fn
torch.logit(w / 8, 0.2).grad_fn
torch.fft.fft(x + 0j).grad_fn._saved_dim
torch.fft.fft(x + 0j).grad_fn._saved_forward
torch.fft.rfft(x).grad_fn._saved_onesided
torch.cholesky_solve(torch.ones(2, 1), torch.eye(2).requires_grad_()).grad_fn._saved_input2
torch.linalg.eig(torch.tensor([[2., 1.], [0., 3.]]).requires_grad_())[0].grad_fn._saved_eigenvalues
torch.mm(x[0, 0], w.detach().view(4, 1)).grad_fn._saved_self
torch.mm(x[0, 0], w.detach().view(4, 1)).grad_fn._saved_self_sym_strides
torch.mm(x[0, 0], w.detach().view(4, 1)).grad_fn._saved_mat2
(w * 2).grad_fn._saved_self
x.permute(0, -1, 1, -2).grad_fn
w.view(2, 2).diagonal(-1).grad_fn
w.view(2, 2).tril(-1).grad_fn
torch.index_add(w, 0, torch.tensor([0]), w[:1], alpha=-1).grad_fn._saved_alpha
"""


def _shown(value: Any) -> Any:
    """All that a node has saved under PyTorch's names; or what is no node, as a value to compare."""
    if not hasattr(value, "next_functions"):
        return value
    return {name: getattr(value, name) for name in dir(value) if name.startswith("_saved_")}


@pytest.mark.parametrize("program", SHOWN.strip().splitlines())
def test_what_a_node_has_saved_has_the_names_and_values_of_pytorch(program: str, oracle: Any) -> None:
    found = []
    for lib in (oracle, fb):
        numbers = lib.arange(96.0).sin().reshape(2, 2, 6, 4)[:, :, :3]
        scope = {"torch": lib, "F": lib.nn.functional, "x": numbers.requires_grad_(), "w": lib.arange(1.0, 5.0).requires_grad_()}
        found.append(_shown(eval(program, scope)))  # text of our own
    theirs, ours = found
    if not isinstance(theirs, dict):
        theirs, ours = {"": theirs}, {"": ours}

    assert theirs.keys() <= ours.keys()
    for name, value in theirs.items():
        assert _as_list(ours[name]) == _as_list(value), name


def _as_list(value: Any) -> Any:
    """Numbers to compare, to five digits, and shapes of tensors."""
    if hasattr(value, "detach"):
        flat = value.detach().reshape(-1).tolist()
        return list(value.shape), [pytest.approx(v, rel=1e-5, abs=1e-6) if isinstance(v, float) else v for v in flat]
    return [*value] if isinstance(value, (tuple, list)) else pytest.approx(value) if isinstance(value, float) else value


NAMED = """
x * y; x * 2.0; x + y; x - 1; x.sum(); x.sum(0); x.sum((0, 1), True); x.mean(); x.mean(1); x.prod(); x.prod(0); x.sum(dtype=torch.float64)
x ** 2.5; x ** y; 2.0 ** x; x.float_power(y); torch.fmod(x, 2.0); torch.fmod(x, y); x % 2.0; x % y
x.clamp_min(0.0); x.clamp_min(y); x.clamp_max(0.0); x.clamp_max(y); x.copysign(1.0); x.copysign(y)
x.xlogy(y); x.xlogy(2.0); torch.xlogy(2.0, x); x.deg2rad(); x.rad2deg(); x / y; x / 2.0
torch.div(x, y, rounding_mode="floor"); torch.div(x, 2.0, rounding_mode="trunc"); (x * 1).pow_(y); (x * 1).clamp_min_(y)
"""


@pytest.mark.parametrize("expression", [each.strip() for line in NAMED.strip().splitlines() for each in line.split(";")])
def test_nodes_of_overloads_have_the_names_of_pytorchs(expression: str, oracle: Any) -> None:
    names = []
    for lib in (oracle, fb):
        scope = {"torch": lib, "x": lib.full((2, 3), 0.5, requires_grad=True), "y": lib.ones(2, 3, requires_grad=True)}
        for _ in range(2):                            # the second call is answered in another way
            result = eval(expression, scope)          # text of our own
            node = result.grad_fn
            names.append((node.name(), type(node).__name__))
            result.sum().backward()

    assert names[:2] == names[2:]

"""What nodes keep for backward, under PyTorch's names: `grad_fn._saved_result` and its like."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from comparing import disagreements, outcome


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
    return [*map(_as_list, value)] if isinstance(value, (tuple, list)) else pytest.approx(value) if isinstance(value, float) else value


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


# Calls of usual operations, of the operands that `_operands` makes.
ALIKE = """
x + y; x + 1; x - y; 1 - x; x * y; x * 2.0; x / y; x / 2.0; x ** y; x ** 2.5; 2.0 ** x; x % 2.0; -x; x.exp(); x.log(); x.sqrt()
x.rsqrt(); x.sin(); x.tanh(); x.sigmoid(); x.relu(); x.abs(); x.erf(); x.erfinv(); x.reciprocal(); x.square(); x.round(); x.sgn()
x.logit(0.1); torch.atan2(x, y); torch.hypot(x, y); torch.maximum(x, y); torch.where(mask, x, y); torch.lerp(x, y, 0.5)
torch.addcmul(x, y, y, value=2); torch.addcdiv(x, y, y); x.clamp(0.1, 0.5); torch.xlogy(x, y); torch.logaddexp(x, y); x.fmod(2.0)
torch.copysign(x, y); F.gelu(x); F.silu(x); F.mish(x); F.softplus(x); F.elu(x); F.selu(x); F.celu(x); F.leaky_relu(x); F.hardtanh(x)
F.hardsigmoid(x); F.hardswish(x); F.softshrink(x); F.logsigmoid(x); F.threshold(x, 0.1, 1); F.softmax(x, 1); F.log_softmax(x, 1)
F.softsign(x); F.normalize(x); x.sum(); x.sum(1); x.mean(); x.mean(1, True); x.prod(); x.prod(1); x.amax(1); x.max(); x.min()
x.max(1)[0]; x.nansum(1); x.var(1); x.std(1); x.sort(1)[0]; x.topk(1, 1)[0]; x.kthvalue(1, 1)[0]; x.median(1)[0]; x.cumsum(1)
x.cumprod(1); x.cummax(1)[0]; x.logsumexp(1); x.logcumsumexp(1); x.view(6); x.reshape(3, 2); x.transpose(0, 1); x.permute(1, 0)
x.unsqueeze(0); x[None].squeeze(0); x.expand(2, 2, 3); x[0]; x[:, 1:]; x[..., 0]; x[rows]; x.unbind(0)[0]; x.split(1)[0]
x.chunk(2, 1)[0]; x.diagonal(); x.unfold(1, 2, 1); x.clone(); x.double(); torch.view_as_real(z); torch.cat([x, y]); x.flip(0)
x.roll(1, 0); x.tril(); x.gather(1, at); x.index_select(0, rows); x.take(rows); x.masked_select(mask); x.masked_fill(mask, 0)
x.scatter(1, at, y); x.scatter_add(1, at, y); x.index_add(0, rows, leaf); x.index_copy(0, rows, leaf); x.index_fill(0, rows, 1.0)
x.index_put((rows,), y); x.masked_scatter(mask, y); torch.select_scatter(x, y[0], 0, 0); torch.slice_scatter(x, y); (x * 1).copy_(y)
x @ y.t(); x @ y[0]; torch.bmm(x[None], y.t()[None]); torch.dot(x[0], y[0]); torch.outer(x[0], y[0]); F.linear(x, y)
F.linear(x, y, bias); torch.linalg.inv(square); torch.linalg.cholesky(square); torch.linalg.qr(square)[0]
torch.linalg.eigh(square)[0]; torch.linalg.eig(square)[0]; torch.linalg.solve_triangular(square, square, upper=True)
torch.linalg.pinv(x); F.conv2d(image, kernel); F.conv2d(image, kernel, bias, 2, 1)
F.conv_transpose2d(image, kernel, stride=2, output_padding=1); F.max_pool2d(image, 2); F.max_pool2d(image, 3, 2, 1, ceil_mode=True)
F.max_pool2d(image, 2, return_indices=True)[0]; F.avg_pool2d(image, 2); F.avg_pool2d(image, 3, 2, 1, True, False, 2)
F.avg_pool3d(image[None], (1, 2, 2)); F.max_pool3d(image[None], (1, 2, 2)); F.adaptive_avg_pool2d(image, 2)
F.adaptive_max_pool2d(image, 2); F.max_unpool2d(*F.max_pool2d(image, 2, return_indices=True), 2)
F.batch_norm(image, zeros, ones, bias, bias, training=True); F.batch_norm(image, zeros, ones); F.layer_norm(x, (3,))
F.group_norm(image, 2); F.mse_loss(x, y); F.l1_loss(x, y); F.nll_loss(x, classes); F.nll_loss(x, classes, x[0].detach())
F.nll_loss(image, classes_of_image); F.cross_entropy(x, classes); F.cross_entropy(x, classes, reduction="sum")
F.cross_entropy(image, classes_of_image); F.embedding(rows, x); F.pad(x, (1, 1)); F.pad(image, (1, 1, 1, 1), mode="reflect")
F.pad(image, (1, 1, 1, 1), mode="replicate"); F.unfold(image, 2); F.interpolate(image, scale_factor=2)
F.interpolate(image, size=3, mode="bilinear"); F.interpolate(image, size=3, mode="bicubic", antialias=True)
F.interpolate(image[0], size=3, mode="linear", align_corners=True); F.scaled_dot_product_attention(image, image, image, scale=0.5)
torch.fft.fft(z); torch.fft.rfft(x); torch.fft.irfft(z, norm="ortho"); torch.fft.ifft2(z)
"""


def _operands(lib: Any) -> dict[str, Any]:
    x, image = lib.arange(1.0, 7.0).div(10).reshape(2, 3), lib.arange(50.0).sin().reshape(1, 2, 5, 5)
    leaves = {
        "x": x, "y": x + 0.05, "square": lib.tensor([[2.0, 0.5], [0.5, 1.0]]), "image": image, "bias": lib.ones(2), "leaf": x + 0.5,
        "kernel": lib.arange(36.0).cos().reshape(2, 2, 3, 3), "z": lib.complex(x, x),
    }  # fmt: skip
    others = {
        "torch": lib, "F": lib.nn.functional, "mask": lib.tensor([[True, False, True], [True, True, False]]), "rows": lib.tensor([0, 1]),
        "at": lib.tensor([[0, 1, 0], [1, 0, 1]]), "classes": lib.tensor([0, 2]), "zeros": lib.zeros(2), "ones": lib.ones(2),
        "classes_of_image": lib.zeros(1, 5, 5, dtype=lib.int64),
    }  # fmt: skip
    return {name: value.requires_grad_() for name, value in leaves.items()} | others


@pytest.mark.parametrize("expression", [each.strip() for line in ALIKE.strip().splitlines() for each in line.split(";")])
def test_nodes_have_the_names_and_the_saved_values_of_pytorchs_and_no_others(expression: str, oracle: Any) -> None:
    found = []
    for lib in (oracle, fb):
        scope = _operands(lib)                        # whose leaves nodes know weakly
        result = eval(expression, scope)              # text of our own
        node = result.grad_fn
        found.append((node.name(), type(node).__name__, {name: _as_list(value) for name, value in _shown(node).items()}))
    theirs, ours = found

    assert ours == theirs


FREED = ["x / y", "F.max_pool2d(image, 2)", "F.linear(x, y)", "x.gather(1, at)", "F.cross_entropy(x, classes)"]


@pytest.mark.parametrize("expression", FREED)
def test_what_a_node_has_saved_is_refused_once_it_is_freed(expression: str) -> None:
    result = eval(expression, _operands(fb))          # text of our own
    node = result.grad_fn
    names = list(_shown(node))
    result.sum().backward()

    assert names
    for name in names:
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
            getattr(node, name)


def test_an_operand_that_no_gradient_reads_is_shown_where_it_is_a_leaf(oracle: Any) -> None:
    programs = """
    x = torch.ones(3, requires_grad=True); (x / x).grad_fn._saved_self is x
    x = torch.ones(3, requires_grad=True); y = x / x; exec('with torch.no_grad(): x.mul_(2)'); y.grad_fn._saved_self
    """

    assert not disagreements(oracle, "\n".join(line.strip() for line in programs.strip().splitlines()))


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["mul", "matmul", "pow", "atan2", "lerp", "addcmul", "maximum", "hypot", "cumprod"])
def test_hooks_are_shown_operands_themselves_in_pytorch_s_order(name, oracle):
    calls = {
        "lerp": lambda lib, x, y, z: lib.lerp(x, y, z), "addcmul": lambda lib, x, y, z: lib.addcmul(x, y, z),
        "cumprod": lambda lib, x, y, z: lib.cumprod(x, 0),
    }  # fmt: skip

    def shown(lib):
        leaf = lib.ones(3, 3, requires_grad=True)
        operands = [leaf, leaf * 2, lib.full((3, 3), 3.0)]
        seen = []

        def pack(t):
            which = next((i for i, x in enumerate(operands) if x is t), None)
            seen.append(which if which is None else (which, t.requires_grad, t.is_leaf))
            return t

        def unpack(t):
            seen.append(next((i for i, x in enumerate(operands) if x is t), None))
            return t

        with lib.autograd.graph.saved_tensors_hooks(pack, unpack):
            made = calls.get(name, lambda lib, x, y, z: getattr(lib, name)(x, y))(lib, *operands)
        made.sum().backward()
        return seen, leaf.grad.tolist()

    assert shown(fb) == shown(oracle)


@pytest.mark.parametrize("pack", ["t.mul_(2)", "t.zero_()", "t.detach().add_(1)", "t[0].neg_()"])
def test_pack_hooks_that_store_in_what_they_are_given_are_refused(oracle: Any, pack: str) -> None:
    region = f"torch.autograd.graph.saved_tensors_hooks(lambda t: {pack}, lambda t: t)"
    start = "x = torch.tensor([1., 2., 3.], requires_grad=True); hooks = " + region
    square = "class Square(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, a): ctx.save_for_backward(a); return a * a\n"

    for program in (f"{start}; hooks.__enter__()\ntry:\n    (x.clone() ** 2).sum()\nfinally:\n    hooks.__exit__()",
                    f"{square}{start}; hooks.__enter__()\ntry:\n    Square.apply(x.clone())\nfinally:\n    hooks.__exit__()"):  # fmt: skip
        ours, theirs = outcome(fb, program), outcome(oracle, program)
        assert ours == theirs
        assert "pack hook" in ours.message


def test_hooks_that_return_something_else_than_gradients_are_refused(oracle: Any) -> None:
    start = "x = torch.ones(2, requires_grad=True); y = x * 2; "
    assert not disagreements(oracle, "\n".join(start + line for line in (
        "y.grad_fn.register_hook(lambda gi, go: [gi[0]]); y.sum().backward()",
        "y.grad_fn.register_hook(lambda gi, go: 'a'); y.sum().backward()",
        "x.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(2)); y.sum().backward()",
        "type(y.grad_fn.next_functions[0][0]).__name__",
    )))  # fmt: skip


def test_nodes_of_elementwise_operations_have_an_edge_for_each_operand_with_a_derivative(oracle: Any) -> None:
    calls = """
    x + y; torch.add(x, y, alpha=2); y + x; x - 1; 1 - x; torch.sub(x, y, alpha=3); x * 2; x * y; x / 2; y / x
    x ** 2; 2 ** x; x ** y; x ** z; torch.lerp(x, z, 0.5); torch.lerp(x, y, z); torch.where(x > 0, x, 0); torch.where(x > 0, y, x)
    torch.addcmul(x, y, z); x.relu(); F.leaky_relu(x); F.gelu(x); F.threshold(x, 1, 2); torch.atan2(x, y)
    torch.fmod(x, 2); torch.fmod(x, y); torch.xlogy(x, 2); torch.xlogy(2, x); torch.copysign(x, 2); torch.copysign(x, y); x.clone().add_(y)
    """
    start = "F = torch.nn.functional; x, z = (torch.ones(2, requires_grad=True) for _ in range(2)); y = torch.ones(2); "
    program = start + "[None if n is None else type(n).__name__ for n, _ in ({}).grad_fn.next_functions]"

    listed = [call.strip() for line in calls.splitlines() for call in line.split(";") if call.strip()]

    assert not disagreements(oracle, "\n".join(map(program.format, listed)))


def test_nodes_of_other_operations_have_no_edges_for_indices_masks_and_targets(oracle: Any) -> None:
    calls = """
    x.gather(0, j); x.scatter(0, j, y); x.scatter(0, j, 2.0); x.scatter_add(0, j, y);
    x.scatter_reduce(0, j, y, "amax"); x.index_select(0, i); x.take(i); x.put(i, y[0, :2])
    x[i]; x[m]; x.index_put((i,), y[:2]); x.index_add(0, i, y[:2]); x.index_copy(0, i, y[:2]); x.index_fill(0, i, 1.0)
    x.index_reduce(0, i, y[:2], "mean"); x.masked_fill(m, 0.0); x.masked_fill(m, y.sum()); x.masked_select(m); x.masked_scatter(m, y)
    F.embedding(i, x); x.repeat_interleave(i, 1); x.clone().masked_fill_(m, 0.0); x.clone().scatter_(0, j, 1.0)
    F.linear(x, y); F.linear(x, y, y[0, :3]); F.linear(x, y, torch.zeros(3)); F.nll_loss(x, t); F.nll_loss(x, t, torch.ones(4))
    F.batch_norm(x, o, o, y[0]); F.batch_norm(x, o, o, y[0], y[1], True); F.layer_norm(x, (4,)); F.group_norm(x[None], 3, y[:, 0])
    F.max_pool2d(x[None, None], 2); F.max_unpool2d(x[None, None, :1, :2], j[None, None, :, :2], 2); torch.cat([x, o[None]])
    F.ctc_loss(x[:, None].log_softmax(2), t[None, 1:2], t[1:2] + 3, t[1:2] + 1); torch.where(m, x, y); x.topk(2).values
    """
    start = (
        "F = torch.nn.functional; x, y = (torch.arange(12.0).reshape(3, 4).sin().requires_grad_() for _ in range(2)); "
        "i, j, t = torch.tensor([1, 0]), torch.zeros(1, 4, dtype=torch.int64), torch.tensor([1, 0, 2]); m = x > 0.1; o = torch.ones(4); "
    )
    program = start + "n = ({}).grad_fn; n.name(), [to is None for to, _ in n.next_functions]"

    listed = [call.strip() for line in calls.splitlines() for call in line.split(";") if call.strip()]

    assert not disagreements(oracle, "\n".join(map(program.format, listed)))

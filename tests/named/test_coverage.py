"""What PyTorch's page of operators says of the names of results, operator by operator; and that all other operations refuse names."""

from __future__ import annotations

import pytest

import flambeau as fb
from flambeau.ops import _derive
from flambeau.ops._spec import FUNCTION, METHOD, OPS
from flambeau.ops._spec.samples import function_of, reached_by, samples_of

pytestmark = pytest.mark.filterwarnings("ignore:Named tensors and all their associated APIs", "ignore:Creating a tensor from a list")

# "Keeps input names", with the forms that the page lists: a function and a method each, and one in place.
UNARY = [
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "acosh", "deg2rad", "digamma", "erf", "erfc", "erfinv", "exp", "expm1", "floor",
    "frac", "log", "log10", "log1p", "log2", "logical_not", "neg", "rad2deg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sgn",
    "sin", "sinh", "asinh", "sqrt", "tan", "tanh", "atanh", "trunc",
]
CASTS = ["bfloat16", "bool", "byte", "char", "cpu", "double", "float", "half", "int", "long", "short", "detach", "clone", "contiguous"]
# Of `x`, whose dimensions are N and C, `y`, without names, and `m`, named as `x`: the call, and the names of its result.
CALLS = [
    *[(f"x.{name}()", ("N", "C")) for name in UNARY],
    *[(f"fb.{name}(x)", ("N", "C")) for name in UNARY],
    *[(f"x.clone().{name}_()", ("N", "C")) for name in UNARY],
    *[(f"x.{name}()", ("N", "C")) for name in CASTS],
    ("x.long().bitwise_not()", ("N", "C")), ("fb.bitwise_not(x.bool())", ("N", "C")), ("x.long().bitwise_not_()", ("N", "C")),
    ("fb.detach(x)", ("N", "C")), ("x.clone().detach_()", ("N", "C")), ("x.to(fb.float64)", ("N", "C")), ("x.type_as(y)", ("N", "C")),
    ("x.to('meta')", ("N", "C")), ("x.type(fb.float64)", ("N", "C")), ("x.bernoulli()", ("N", "C")), ("fb.bernoulli(x)", ("N", "C")),
    ("fb.normal(x, x)", ("N", "C")), ("fb.normal(x, 1.0)", ("N", "C")), ("fb.normal(2.0, x)", ("N", "C")),
    ("x.clamp(0.2, 0.5)", ("N", "C")), ("fb.clamp(x, 0.2)", ("N", "C")), ("x.clone().clamp_(max=0.3)", ("N", "C")),
    ("x.cumsum('C')", ("N", "C")), ("fb.cumsum(x, 'N')", ("N", "C")), ("x.cumprod('C')", ("N", "C")), ("fb.cumprod(x, 'N')", ("N", "C")),
    ("x.chunk(2, 'C')[0]", ("N", "C")), ("fb.chunk(x, 3, 'N')[2]", ("N", "C")), ("x.split(2, 'C')[1]", ("N", "C")),
    ("fb.split(x, [1, 3], 'C')[1]", ("N", "C")), ("x.narrow('C', 1, 2)", ("N", "C")), ("fb.narrow(x, 'N', 1, 2)", ("N", "C")),
    ("x.expand(2, 3, 4)", (None, "N", "C")), ("x.expand(3, -1)", ("N", "C")),
    ("x.index_fill('C', fb.tensor([0, 2]), 9)", ("N", "C")), ("fb.index_fill(x, 'N', fb.tensor([0]), 9)", ("N", "C")),
    ("x.clone().index_fill_('N', fb.tensor([0]), 9)", ("N", "C")), ("x.masked_fill(y > 0.5, 2)", ("N", "C")),
    ("fb.masked_fill(x, m > 0.5, 2)", ("N", "C")), ("x.clone().masked_fill_(y > 0.5, 2)", ("N", "C")),
    ("x.softmax('C')", ("N", "C")), ("fb.softmax(x, 'N')", ("N", "C")),
    *[(f"fb.nn.functional.{call}", ("N", "C")) for call in
      ["relu(x)", "softmax(x, 'C')", "log_softmax(x, 'N')", "tanh(x)", "sigmoid(x)", "dropout(x)", "dropout(x, 0.5, False)"]],
    *[(f"x.clone().{call}", ("N", "C")) for call in
      ["bernoulli_()", "cauchy_()", "exponential_()", "fill_(2)", "log_normal_()", "normal_()", "random_(3)", "uniform_()", "zero_()",
       "resize_(3, 4)", "resize_as_(y)", "requires_grad_()"]],
    # "Removes dimensions"
    *[(f"x.{name}('{dim}')", names) for name in ("mean", "sum", "prod", "std", "var", "logsumexp", "all", "any")
      for dim, names in (("N", ("C",)), ("C", ("N",)))],
    *[(f"fb.{name}(x, 'N', keepdim=True)", ("N", "C")) for name in ("mean", "sum", "prod", "std", "var", "logsumexp", "all", "any")],
    *[(f"fb.{name}(x, ['C'])", ("N",)) for name in ("mean", "sum", "std", "var", "logsumexp")],
    *[(f"fb.{name}(x)", ()) for name in ("mean", "sum", "prod", "std", "var", "median", "nanmedian", "all", "any")],
    *[(f"fb.{name}(x, 'N')[{i}]", ("C",)) for name in ("median", "nanmedian", "mode", "std_mean", "var_mean") for i in (0, 1)],
    *[(f"x.{name}('C', True)[0]", ("N", "C")) for name in ("median", "nanmedian", "mode")],
    ("x.kthvalue(2, 'N').values", ("C",)), ("fb.kthvalue(x, 1, 'C')[1]", ("N",)), ("x.topk(2, 'C').values", ("N", "C")),
    ("fb.topk(x, 1, 'N')[1]", ("N", "C")), ("x.select('N', 1)", ("C",)), ("fb.select(x, 'C', -1)", ("N",)),
    ("x.unbind('N')[2]", ("C",)), ("fb.unbind(x, 'C')[0]", ("N",)), ("x.narrow('C', 1, 1).squeeze('C')", ("N",)),
    ("fb.squeeze(x.narrow('N', 1, 1))", ("C",)), ("x.squeeze()", ("N", "C")),
    # "Unifies names from inputs"
    *[(f"{first}.{name}({second})", ("N", "C")) for name in ("add", "atan2", "div", "eq", "ge", "gt", "le", "lt", "mul", "ne", "pow", "sub")
      for first, second in (("x", "y"), ("y", "x"), ("x", "m"))],
    *[(f"fb.{name}(x, m)", ("N", "C")) for name in ("add", "atan2", "div", "eq", "ge", "gt", "le", "lt", "mul", "ne", "pow", "sub")],
    *[(f"y.clone().{name}_(x)", ("N", "C")) for name in ("add", "atan2", "div", "mul", "sub", "pow")],
    *[(f"x {sign} 2", ("N", "C")) for sign in ("+", "-", "*", "/", "**", "//", "%", "<", ">", "==", "!=", "<=", ">=")],
    *[(f"2 {sign} x", ("N", "C")) for sign in ("+", "-", "*", "/", "**", "//", "%")],
    ("fb.cat([x, y], 'N')", ("N", "C")), ("fb.cat((y, x), 1)", ("N", "C")), ("y.clone().copy_(x)", ("N", "C")),
    ("x.masked_select(x > 0.5)", (None,)), ("fb.masked_select(x, y > 0.5)", (None,)),
    # "Permutes dimensions"
    ("x.transpose('N', 'C')", ("C", "N")), ("fb.transpose(x, 0, 'C')", ("C", "N")), ("x.t()", ("C", "N")),
    # "Contracts away dims"
    ("x.mm(y.t())", ("N", None)), ("fb.mm(y.t(), x)", (None, "C")), ("x.matmul(y.t())", ("N", None)), ("x @ y[0]", ("N",)),
    ("y[:, 0] @ x", ("C",)),
    ("fb.matmul(y.expand(2, 3, 4), x.t())", (None, None, "N")), ("x.mv(y[0])", ("N",)), ("fb.mv(x.t(), y[:, 0])", ("C",)),
    ("x.unbind('N')[0].dot(y[0])", ()), ("fb.dot(x.select('N', 0), x.select('N', 1))", ()),
    ("x.expand(2, 3, 4).bmm(y.t().expand(2, 4, 3))", (None, "N", None)),
    ("fb.bmm(x.expand(2, 3, 4), y.t().expand(2, 4, 3))", (None, "N", None)),
    ("fb.addmm(y[:, :3], x, y.t())", ("N", None)), ("x.narrow('C', 0, 3).addmm(y[:, :3], y[:, :3])", ("N", "C")),
    ("y[:, :3].clone().addmm_(x, y.t())", ("N", None)), ("fb.addmv(y[:, 0], x, y[0])", ("N",)), ("x.select('C', 0).addmv(x, y[0])", ("N",)),
    ("y[:, 0].clone().addmv_(x, y[0])", ("N",)),
    # "Factory functions"
    *[(f"fb.{name}_like(x)", ("N", "C")) for name in ("empty", "zeros", "ones", "rand", "randn")], ("fb.full_like(x, 2)", ("N", "C")),
    ("x.new_zeros(2, 2)", (None, None)),
]  # fmt: skip


def values_in(text, x):
    return eval(text, {"fb": fb, "x": x, "m": x, "y": fb.linspace(0.1, 0.9, 12).reshape(3, 4)})


def numbers():
    return fb.tensor([[0.4, 0.15, 0.8, 0.55], [0.95, 0.6, 0.25, 0.3], [0.35, 0.7, 0.5, 0.1]])


@pytest.mark.parametrize(("text", "names"), CALLS, ids=[text for text, _ in CALLS])
def test_results_have_the_names_that_the_page_tells(text, names):
    fb.manual_seed(3)
    made = values_in(text, numbers().rename("N", "C"))
    fb.manual_seed(3)
    plain = values_in(text.replace("'N'", "0").replace("'C'", "1"), numbers())

    assert made.names == names
    assert made.has_names() == any(names)
    assert plain.names == (None,) * plain.ndim
    assert (made.shape, made.dtype, made.device, made.stride()) == (plain.shape, plain.dtype, plain.device, plain.stride())
    if not made.is_meta and "empty_like" not in text:
        assert fb.equal(made.rename(None).isnan(), plain.isnan())
        assert fb.equal(made.rename(None).nan_to_num(), plain.nan_to_num())


def test_questions_are_answered_as_without_names():
    x, plain = numbers().rename("N", "C"), numbers()

    assert (x.dim(), x.ndim, x.ndimension(), x.numel(), x.nbytes, x.itemsize, x.element_size()) == (2, 2, 2, 12, 48, 4, 4)
    assert (x.size(), x.size("C"), x.stride(), x.stride("N"), x.is_contiguous()) == (plain.size(), 4, plain.stride(), 4, True)
    assert (x.is_leaf, x.grad) == (True, None)
    assert not any((x.is_cuda, x.is_sparse, x.is_sparse_csr, x.is_pinned(), x.requires_grad))
    assert (fb.is_tensor(x), fb.is_floating_point(x), x.is_signed(), fb.numel(x), x.type()) == (True, True, True, 12, "torch.FloatTensor")
    assert x.tolist() == plain.tolist()
    assert x.data_ptr() == x.detach().data_ptr() != 0
    assert (x.get_device(), x.device, x.is_shared()) == (-1, plain.device, False)
    assert float(x.sum().item()) == float(plain.sum())
    with pytest.raises(RuntimeError, match="Cannot resize named tensor"):
        x.resize_(12)


def named(value):
    """`value` with names for the dimensions of all tensors in it, by their place from the right."""
    if isinstance(value, fb.Tensor):
        return value.rename(*"ABCDEFGH"[8 - value.ndim :]) if value.ndim and value.layout is fb.strided else value
    if isinstance(value, (list, tuple)) and not isinstance(value, fb.Size):
        return type(value)(map(named, value))
    return value


def has_names(value):
    if isinstance(value, (list, tuple)):
        return any(map(has_names, value))
    return isinstance(value, fb.Tensor) and value.has_names()


def public_ops():
    _derive.load_all()
    ops = {op.qualified: op for op in OPS.values() if op.surface & (FUNCTION | METHOD) and not reached_by(op) and op.public}
    return [pytest.param(op, id=name) for name, op in sorted(ops.items()) if not name.startswith("quantized")]


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("op", public_ops())
def test_operations_without_a_rule_refuse_names_and_others_keep_their_values(op):
    calls = [s for s in samples_of(op) if has_names(named((*s.args, *s.kwargs.values())))]
    if op.name in ("flatten", "unflatten", "cuda"):
        return                                        # which take other arguments of named tensors, or a device
    for s in calls:
        args, kwargs = named(s.args), {name: named(value) for name, value in s.kwargs.items()}
        if op.names is None:
            with pytest.raises(RuntimeError, match=r"not yet supported with named tensors.*`tensor = tensor\.rename\(None\)`"):
                function_of(op)(*args, **kwargs)
        elif op.name == "addmv":
            with pytest.raises(RuntimeError, match="broadcast dims"):  # the vector that is added is named after columns here
                function_of(op)(*args, **kwargs)
        else:
            fb.manual_seed(0)
            made = function_of(op)(*args, **kwargs)
            fb.manual_seed(0)
            plain = function_of(op)(*s.args, **s.kwargs)
            for x, y in zip(*[(r if isinstance(r, (tuple, list)) else (r,)) for r in (made, plain)], strict=True):
                assert x.dtype == y.dtype
                assert x.rename(None).tolist() == y.tolist() or bool(y.isnan().any())


@pytest.mark.parametrize("call", [
    lambda x: x[0], lambda x: x[fb.tensor([0])], lambda x: x[x > 0], lambda x: x.__setitem__(0, 1), lambda x: x.T, lambda x: x.mT,
    lambda x: x.view(12), lambda x: x.reshape(-1), lambda x: x.permute(1, 0), lambda x: x.where(x > 0, x), lambda x: fb.stack([x, x]),
    lambda x: fb.einsum("nc->cn", x), lambda x: fb.nn.functional.linear(x, fb.ones(2, 4)), lambda x: fb.nn.Linear(4, 2)(x),
    lambda x: fb.linalg.svd(x), lambda x: x.unsqueeze_(0), lambda x: fb.zeros(3, 4).__setitem__(0, x), lambda x: x.sort(),
    lambda x: x.set_(x.rename(None)),
])  # fmt: skip
def test_what_is_not_on_the_page_is_refused_and_nothing_is_written(call):
    x = numbers().rename("N", "C")

    with pytest.raises(RuntimeError, match=r"not yet supported with named tensors.*Please drop names via `tensor = tensor.rename\(None\)`"):
        call(x)
    assert x.names == ("N", "C")
    assert x.tolist() == numbers().tolist()

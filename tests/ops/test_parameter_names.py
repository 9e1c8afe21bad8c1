"""Arguments given by name: numpy's names for PyTorch's parameters, and what is given twice, too often or not at all."""

from __future__ import annotations

import inspect
import types
from typing import Any

import pytest

import flambeau as fb
from comparing import disagreements
from flambeau.ops import _derive, _parameters, _spec

_derive.load_all()
NATIVE = (types.BuiltinFunctionType, types.MethodDescriptorType)
NAMESPACES = ("", "nn.functional", "linalg", "special", "fft")


def found(lib: Any, path: str) -> Any:
    for part in filter(None, path.split(".")):
        lib = getattr(lib, part, None)
    return lib


def test_every_function_that_pytorch_has_in_cpp_takes_numpys_names(oracle: Any) -> None:
    refusing = []
    for namespace, name in [(home, name) for home in NAMESPACES for name in _derive.function_names(home)]:
        theirs = getattr(found(oracle, namespace), name, None)
        op = _derive.lookup(namespace, name).flambeau_op
        if isinstance(theirs, NATIVE) and {"input", "other", "dim", "keepdim"} & {*op.params} and not _parameters.other_names(op):
            refusing.append(f"{namespace}.{name}")

    assert not refusing


def test_numpys_names_for_parameters(oracle: Any) -> None:
    setting = "t = torch.tensor([[1., -2., 3.], [.5, 6., -1.]]); i = torch.tensor([0, 1]); "
    programs = """
    t.sum(axis=1)
    t.sum(axis=(0, 1), keepdims=True)
    t.sum(axis=None)
    torch.sum(x=t, axis=-1)
    torch.cat((t, t), axis=1)
    torch.cat((t, t), axis=None)
    torch.cat((t, t), 1, axis=0)
    torch.stack((t, t), axis=1)
    torch.neg(x=t)
    torch.neg(a=t)
    torch.neg(x1=t)
    torch.neg(x2=t)
    torch.neg(t, x=t)
    torch.neg(x=t, a=t)
    torch.relu_(x=t)
    torch.add(x1=t, x2=t, alpha=2)
    torch.add(t, x2=t)
    t.add(x2=1)
    t.add_(x2=t)
    t.add(t, x2=t)
    t.add(x1=t)
    t.max(axis=1, keepdims=True)
    torch.max(x=t, x2=t)
    t.min(x2=t)
    t.std(axis=0, keepdims=True, correction=0).shape
    torch.var_mean(x=t, axis=0)[1]
    torch.linalg.vector_norm(t, 1, axis=0, keepdims=True)
    torch.linalg.cross(x=t, x2=t, axis=1)
    torch.fft.fft(x=t, axis=0).shape
    torch.special.xlogy(x=t, x2=t).shape
    torch.special.softmax(x=t, axis=0).shape
    torch.nn.functional.softmax(t, axis=0)
    torch.nn.functional.linear(x=t, weight=t)
    torch.nn.functional.relu(x=t)
    torch.nn.functional.avg_pool2d(x=t[None], kernel_size=1)
    torch.nn.functional.cosine_similarity(t, t, axis=1).shape
    torch.split(t, 1, axis=1)
    torch.norm(t, axis=0)
    torch.unique(x=t)
    torch.chunk(x=t, chunks=2, axis=1)
    torch.squeeze(x=t, axis=1)
    t.unsqueeze_(axis=0)
    t.cumsum_(axis=0)
    t.topk(2, axis=1)
    t.index_select(axis=0, index=i)
    torch.flip(x=t, dims=(0,))
    t.flip(axis=0)
    t.permute(x=t, dims=(1, 0))
    torch.permute(x=t, dims=(1, 0))
    torch.permute(t, (1, 0), dims=(1, 0))
    torch.reshape(a=t, shape=(3, 2))
    t.reshape(3, 2, foo=1)
    torch.select(x=t, axis=0, index=1)
    torch.where(t > 0, x=t, x2=t)
    t.where(t > 0, x2=t)
    t.where(t > 0)
    torch.searchsorted(i, x=t)
    torch.polygamma(1, x=i).shape
    t.size(axis=1)
    t.stride(axis=0)
    t.size(0, axis=0)
    torch.numel(x=t)
    torch.is_floating_point(a=t)
    torch.is_nonzero(x=t)
    torch.is_same_size(x=t, x2=t)
    torch.zeros_like(a=t)
    torch.full_like(x=t, fill_value=2)
    torch.rand_like(x=t)
    torch.randint_like(x=t, high=3)
    torch.empty_like(t, x=t)
    torch.swapaxes(x=t, axis0=0, axis1=1)
    t.swapaxes_(axis0=0, axis1=1)
    torch.swapaxes(t, dim0=0, dim1=1)
    t.copy_(other=t)
    t.clone().copy_(x2=t)
    torch.fill_(x=t.clone(), value=2)
    torch.fill_(input=t.clone(), value=2)
    torch.zero_(x1=t.clone())
    torch.zero_()
    torch.dequantize(x=t)
    torch.dequantize()
    torch.expand_copy(t, size=(2, 3))
    torch.expand_copy(x=t, size=(2, 3))
    torch.unfold_copy(a=t, dimension=0, size=2, step=1)
    torch.view_copy(input=t, size=(3, 2))
    torch.nn.functional.one_hot(x=i)
    torch.nn.functional.one_hot(input=i, num_classes=3)
    torch.linalg.vector_norm(a=t, axis=0)
    torch.linalg.vector_norm(input=t)
    torch.cholesky_inverse(input=torch.eye(2)).abs()
    torch.cholesky_inverse(x=torch.eye(2)).abs()
    torch.cholesky_solve(a=torch.eye(2), input2=torch.eye(2))
    torch.orgqr(torch.eye(2), input2=torch.ones(2))
    torch.ormqr(torch.eye(2), input2=torch.ones(2), input3=torch.eye(2))
    t.view(size=(3, 2))
    t.view(3, size=(3, 2))
    t.clone().resize_(size=(3, 2)).shape
    """

    assert not disagreements(oracle, "\n".join(setting + line.strip() for line in programs.splitlines() if line.strip()))


def test_what_is_given_by_position_comes_before_what_must_be_named(oracle: Any) -> None:
    programs = """
    torch.sum(torch.ones(2, 2), 1, False, torch.float64)
    torch.sum(torch.ones(2, 2), 1, False, None)
    torch.exp(torch.ones(2), torch.ones(2))
    torch.add(torch.ones(2), torch.ones(2), None, 2)
    torch.ones(2).add_(torch.ones(2), None)
    torch.ones(2).relu(None)
    torch.ones(2).exp(foo=1)
    torch.linalg.solve_triangular(torch.eye(2), torch.eye(2), True)
    """

    assert not disagreements(oracle, programs)


@pytest.mark.filterwarnings("ignore:torch.*is deprecated")
@pytest.mark.parametrize("given", [fb.ones(3, 3), fb.ones(40, 40), (fb.ones(3), fb.ones(3))], ids=["few", "many", "list"])
def test_required_arguments_that_are_missing_are_named(given: Any) -> None:
    for op in dict.fromkeys(_spec.OPS.values()):
        required = [name for name in op.positional if name not in op.defaults and name != op.variadic]
        rest = [True if op.declared_types.get(name) == "bool" else 1 for name in required[1:]]  # a number is refused for a flag first
        for count in range(len(required) * bool(op.surface & (_spec.FUNCTION | _spec.METHOD))):
            # Of what is given, a wrong type is said first.
            wrong = [rf"argument '{name}' \(position {at + 1}\) must be" for at, name in enumerate(op.params[:count])]
            with pytest.raises(TypeError, match="|".join([f"missing.*'{required[count]}'", *wrong])):
                op.function(*[given, *rest][:count])


def test_signatures_show_the_declared_parameters_alone() -> None:
    assert str(inspect.signature(fb.sum)) == "(input, dim=None, keepdim=False, *, dtype=None, out=None)"
    assert str(inspect.signature(fb.Tensor.add_)) == "(input, other, *, alpha=1)"


def test_handlers_of_subclasses_get_arguments_as_they_were_written() -> None:
    class Asked(fb.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func.__name__, args[1:], [*kwargs]

    t = fb.ones(2, 2).as_subclass(Asked)

    assert fb.sum(x=t, axis=1) == ("sum", (), ["x", "axis"])
    assert fb.sum(t, axis=1) == ("sum", (), ["axis"])
    assert t.sum(1, keepdims=True) == ("sum", (1,), ["keepdims"])
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'dim'"):
        t.softmax()  # pyright: ignore[reportCallIssue]  # on purpose


@pytest.mark.parametrize("name", ["tensor_split", "hsplit", "split"])
def test_pieces_take_the_names_of_pytorchs_overloads(name):
    x, names = fb.arange(6), {"split": {"split_size": 2}}.get(name, {"sections": 3})

    assert [part.tolist() for part in getattr(x, name)(**names)] == [[0, 1], [2, 3], [4, 5]]


def test_tensor_split_by_indices_and_another_axis():
    x = fb.arange(6).reshape(2, 3)

    assert [part.tolist() for part in x.tensor_split(indices=[1], axis=1)] == [[[0], [3]], [[1, 2], [4, 5]]]
    with pytest.raises(TypeError, match="indices"):
        x.tensor_split(2, indices=[1])

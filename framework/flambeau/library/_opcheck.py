"""`opcheck`: whether what is registered for an operator is so."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from .. import _ops
from .._errors import ShapeDependsOnValues
from .._symbolic import SymInt
from ..autograd import grad as gradient
from ..devices import Size
from ..tensor import Tensor
from ..testing import assert_close
from ..utils._pytree import tree_leaves, tree_map
from ._operator import Operator, _memory_of

__all__ = ["OpCheckError", "opcheck"]


class OpCheckError(Exception):
    """What `opcheck` raises for an operator that is not what its registrations say."""


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"),
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Test on some arguments whether an operator's schema, derivative and fake kernel are what the operator does.

    Args:
        op: what `custom_op` made, or an operator of `torch.ops` that a program has defined.
        args, kwargs: what it is called with; let tensors require gradients if it has a derivative.
        test_utils: which tests to run, by name.

            - ``test_schema``: only arguments that the schema names are written, and results share no other memory.
            - ``test_autograd_registration``: the derivative is one that is registered.
            - ``test_faketensor``: on meta tensors it gives results of the same shapes, strides and dtypes.
            - ``test_aot_dispatch_dynamic``: recorded by `make_fx`, results and gradients are those of the call.
        raise_exception: raise the first failure; else give all of them.
        atol, rtol: tolerances of the last test, both or neither; by default those of `testing.assert_close`.
    Returns: for each test "SUCCESS" or the exception.
    Raises: OpCheckError for the first failure, ValueError for what is no operator and unknown tests.

    >>> @fb.library.custom_op("docs_of_opcheck::triple", mutates_args=())
    ... def triple(x: fb.Tensor) -> fb.Tensor:
    ...     return x * 3
    >>> triple.register_fake(lambda x: fb.empty_like(x)) and None
    >>> fb.library.opcheck(triple, (fb.ones(2),))["test_faketensor"]
    'SUCCESS'
    """
    operator = _operator(op)
    names = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    if not set(names) <= _TESTS.keys():
        raise ValueError(f"opcheck(op, ..., test_utils={names}), expected test_utils to be subset of {tuple(_TESTS)} but it was not")
    if (atol is None) != (rtol is None):
        raise ValueError("opcheck(op, ...): atol and rtol must be given both or neither")
    tolerances = {} if atol is None else {"atol": atol, "rtol": rtol}
    found: dict[str, Any] = {}
    for name in names:
        try:
            _TESTS[name](operator, args, kwargs or {}, tolerances)
        except Exception as failure:  # whatever a program's function raises is what is reported
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {failure} (scroll up for stack trace)") from failure
            found[name] = failure
        else:
            found[name] = "SUCCESS"
    return found


def _operator(op: Any) -> Operator:
    if isinstance(op, _ops.OpOverloadPacket):
        overloads = op.overloads()
        if len(overloads) != 1:
            raise ValueError(f"opcheck(op, ...): {op} has the overloads {overloads}; give one of them, as in {op}.{overloads[0]}")
        op = getattr(op, overloads[0])
    found = getattr(op, "_operator", None)
    if not isinstance(found, Operator):
        raise ValueError(
            f"opcheck(op, ...): op must be an operator that a program has defined, e.g. torch.ops.mylib.sin.default, got {type(op)}"
        )
    return found


def _copied(value: Any) -> Any:
    """Arguments of their own for one call: leaves where they were leaves."""

    def copy(x: Any) -> Any:
        return x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x

    return tree_map(copy, value)


def _tensors(value: Any) -> list[Tensor]:
    return [x for x in tree_leaves(value) if isinstance(x, Tensor)]


def _test_schema(operator: Operator, args: Any, kwargs: Any, tolerances: Any) -> None:
    args, kwargs = operator.schema.bind(_copied(args), _copied(kwargs))
    values = (*args, *kwargs.values())
    before = [[t.detach().clone() for t in _tensors(v)] for v in values]
    result = operator.overload(*args, **kwargs)
    results = _tensors(result)
    for argument, value, earlier in zip(operator.schema.arguments, values, before, strict=True):
        now = _tensors(value)
        if not argument.is_write and not all(_equal(a, b) for a, b in zip(now, earlier, strict=True)):
            raise RuntimeError(f"Argument {argument.name} is not defined as mutable but was mutated")
        if argument.alias_info is None and {_memory_of(t) for t in now} & {_memory_of(t) for t in results}:
            raise RuntimeError(f"Argument {argument.name} is not defined to alias output but was aliasing")
    places = [_memory_of(t) for t in results]
    if len(set(places)) < len(places) and all(r.alias_info is None for r in operator.schema.returns):
        raise RuntimeError("Outputs are not defined to alias each other but were aliasing")


def _equal(a: Tensor, b: Tensor) -> bool:
    if a.is_meta:
        return True
    return a.shape == b.shape and a.detach().cpu().numpy().tobytes() == b.cpu().numpy().tobytes()


def _test_autograd_registration(operator: Operator, args: Any, kwargs: Any, tolerances: Any) -> None:
    if not any(t.requires_grad for t in _tensors((args, list(kwargs.values())))):
        return
    has_formula = operator.opaque or operator.is_composition or operator.backward is not None
    if has_formula or any(key.startswith("Autograd") for key in operator.kernels):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = operator.overload(*_copied(args), **_copied(kwargs))
    if any(t.requires_grad for t in _tensors(result)):
        raise AssertionError(
            f"{operator.name}: at least one output of this operator has requires_grad=True but the operator does not have an autograd "
            "kernel defined at an autograd key (e.g. DispatchKey::Autograd). Register its formula with torch.library.register_autograd; if "
            "it consists of regular operations, register it as CompositeImplicitAutograd"
        )


def _test_fake(operator: Operator, args: Any, kwargs: Any, tolerances: Any) -> None:
    def to_meta(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        made = x.detach().to("meta") if x.is_contiguous() else _strided_meta(x)
        return made.requires_grad_(x.requires_grad)

    def _strided_meta(x: Tensor) -> Tensor:
        import flambeau as fb

        return fb.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")

    real = operator.overload(*_copied(args), **_copied(kwargs))
    try:
        fake = operator.overload(*tree_map(to_meta, args), **tree_map(to_meta, kwargs))
    except ShapeDependsOnValues:                      # then sizes are symbols
        fake = _symbolic_result(operator, args, kwargs)
    reals, fakes = tree_leaves(real), tree_leaves(fake)
    where = f"When comparing the output of {operator.dotted} on FakeTensor and concrete Tensors, found mismatched tensor metadata: "
    if len(reals) != len(fakes):
        raise RuntimeError(f"{where}{len(reals)} results and {len(fakes)}")
    for r, f in zip(reals, fakes, strict=True):
        if isinstance(r, Tensor) != isinstance(f, Tensor):
            raise RuntimeError(f"{where}results {type(r).__name__} and {type(f).__name__}")
        if not isinstance(r, Tensor):
            continue
        # A symbolic size is whatever size there is.
        known = [m if isinstance(n, SymInt) else n for m, n in zip(r.shape, f.shape, strict=False)] + [*f.shape[r.ndim :]]
        for name, a, b in (("Shapes", r.shape, Size(known)), ("Dtypes", r.dtype, f.dtype), ("Layouts", r.layout, f.layout)):
            if a != b:
                raise RuntimeError(f"{where}{name} {a} and {b} are not equal!")
        if r.numel():
            for at, (n, a, b) in enumerate(zip(r.shape, r.stride(), f.stride(), strict=True)):
                if n > 1 and not isinstance(b, SymInt) and a != b:
                    raise RuntimeError(f"{where}Stride mismatch! Strides are {r.stride()} and {f.stride()} (mismatched at {at})!")


def _symbolic_result(operator: Operator, args: Any, kwargs: Any) -> Any:
    from .._subclasses.fake_tensor import FakeTensorMode
    from ..fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv())
    given, by_name = tree_map(lambda x: mode.from_tensor(x, static_shapes=True) if isinstance(x, Tensor) else x, (tuple(args), kwargs))
    with mode:
        return operator.overload(*given, **by_name)


def _test_recorded(operator: Operator, args: Any, kwargs: Any, tolerances: Any) -> None:
    """The call and its gradients, recorded and run again, give what they give without; the shapes are known without values."""
    from ..fx.experimental.proxy_tensor import make_fx

    _test_fake(operator, args, kwargs, tolerances)
    given, by_name = operator.schema.bind(args, kwargs)

    def run(*values: Any) -> Any:
        positional, named = values[: len(given)], dict(zip(by_name, values[len(given) :], strict=True))
        result = operator.overload(*positional, **named)
        outputs = [t for t in _tensors(result) if t.requires_grad]
        inputs = [t for t in _tensors(values) if t.requires_grad]
        grads = gradient([o.sum() for o in outputs], inputs, allow_unused=True) if outputs and inputs else ()
        written = [v for a, v in zip(operator.schema.arguments, values, strict=True) if a.is_write]
        return [x for x in tree_leaves((result, list(grads), written)) if isinstance(x, Tensor)]

    values = (*given, *by_name.values())
    expected = run(*_copied(values))
    program = make_fx(run)(*_copied(values))
    found = program(*_copied(values))
    for f, e in zip(found, expected, strict=True):
        assert_close(f.detach(), e.detach(), equal_nan=True, **tolerances)


_TESTS: dict[str, Callable[..., None]] = {
    "test_schema": _test_schema,
    "test_autograd_registration": _test_autograd_registration,
    "test_faketensor": _test_fake,
    "test_aot_dispatch_static": _test_recorded,
    "test_aot_dispatch_dynamic": _test_recorded,
}

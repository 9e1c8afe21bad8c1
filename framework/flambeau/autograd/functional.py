"""Jacobians, Hessians and their products, of functions of Tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ops._spec import OPS
from ..ops.creation.create import ones_like, zeros, zeros_like
from ..tensor import Tensor
from . import grad as gradient
from .forward_ad import unrecorded
from .grad_mode import enable_grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


# -- arguments and results -----------------------------------------------------------------------------------------------


def _as_tuple(value: Any, what: str, where: str) -> tuple[bool, tuple[Tensor, ...]]:
    """Whether `value` is a tuple, and the tuple. Raises: TypeError unless everything in it is a Tensor."""
    several = isinstance(value, tuple)
    values = value if several else (value,)
    for i, x in enumerate(values):
        if not isinstance(x, Tensor):
            if several:
                raise TypeError(
                    f"The {what} given to {where} must be either a Tensor or a tuple of Tensors but the value at index "
                    f"{i} has type {type(x)}."
                )
            raise TypeError(
                f"The {what} given to {where} must be either a Tensor or a tuple of Tensors but the given {what} has "
                f"type {type(x)}."
            )
    return several, values


def _starts(inputs: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    """Where differentiation begins: views of `inputs` if its graph is wanted, else fresh leaves."""
    return tuple(
        (x.view_as(x) if x.requires_grad else unrecorded(x).requires_grad_()) if create_graph else unrecorded(x).requires_grad_()
        for x in inputs
    )


def _finished(values: Any, create_graph: bool) -> Any:
    """`values` (a Tensor or nested tuples) without history unless that was asked for."""
    if isinstance(values, tuple):
        return tuple(_finished(v, create_graph) for v in values)
    return values if create_graph else unrecorded(values)


def _one(values: tuple[Any, ...], several: bool) -> Any:
    return values if several else values[0]


def _check_strict(strict: bool, outputs: tuple[Tensor, ...]) -> None:
    if strict:
        for i, y in enumerate(outputs):
            if not y.requires_grad:
                raise RuntimeError(
                    f"Output {i} of the user-provided function does not require gradients. The outputs must be computed "
                    "in a differentiable manner from the input when running in strict mode."
                )


def _vector(v: Any, like: tuple[Tensor, ...], several: bool, where: str, what: str) -> tuple[Tensor, ...]:
    """The vector of a product: `v` checked against `like`, or ones for single elements."""
    if v is None:
        if len(like) != 1 or like[0].nelement() != 1:
            raise RuntimeError(f"The vector v can only be None if {what}.")
        return (ones_like(like[0].detach()),)
    given, vs = _as_tuple(v, "v", where)
    if len(vs) != len(like):
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(vs)}.")
    for i, (a, b) in enumerate(zip(vs, like, strict=True)):
        if a.size() != b.size():
            raise RuntimeError(
                f"{'Entry ' + str(i) + ' in ' if given and several else ''}v has invalid size: should be {b.size()} "
                f"but got {a.size()}."
            )
    return vs


def _grads(outputs: Any, inputs: Any, vectors: Any = None, create_graph: bool = False) -> tuple[Any, ...]:
    """`autograd.grad` where outputs need not depend on inputs; None where they do not."""
    pairs = [(y, None if vectors is None else v) for y, v in zip(outputs, vectors or outputs, strict=True) if y.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    ys, vs = zip(*pairs, strict=True)
    given = None if vectors is None else vs
    return gradient(ys, inputs, given, retain_graph=True, create_graph=create_graph, allow_unused=True)


def _filled(grads: Any, like: Any, strict: bool, stage: str) -> tuple[Tensor, ...]:
    """Zeros for what does not depend on an input, or an error in strict mode."""
    made = []
    for i, (g, x) in enumerate(zip(grads, like, strict=True)):
        if g is None and strict:
            raise RuntimeError(
                f"The {stage} of the user-provided function is independent of input {i}. This is not allowed in "
                "strict mode."
            )
        made.append(zeros_like(x.detach()) if g is None else g)
    return tuple(made)


def _check_connected(values: Any, strict: bool, create_graph: bool, what: str) -> None:
    if strict and create_graph:
        for i, v in enumerate(values):
            if not v.requires_grad:
                raise RuntimeError(
                    f"The {what} of the user-provided function is independent of input {i}. This is not allowed in strict "
                    "mode when create_graph=True."
                )


# -- products ------------------------------------------------------------------------------------------------------------


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """The result of `func` at `inputs`, and the product of `v` with its jacobian.

    Args:
        v: one Tensor per result; may be None for a single element.
        create_graph: record the computation, so that it can be differentiated.
        strict: raise where a result does not depend on an input, in place of zeros.
    """
    with enable_grad():
        several, inputs = _as_tuple(inputs, "inputs", "vjp")
        starts = _starts(inputs, create_graph)
        many, outputs = _as_tuple(func(*starts), "outputs of the user-provided function", "vjp")
        _check_strict(strict, outputs)
        vs = _vector(v, outputs, many, "vjp", "the user-provided function returns a single Tensor with a single element")
        grads = _filled(_grads(outputs, starts, vs, create_graph), starts, strict, "output")
        _check_connected(grads, strict, create_graph, "jacobian")
    return _one(_finished(outputs, create_graph), many), _one(_finished(grads, create_graph), several)


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """The result of `func` at `inputs`, and the product of its jacobian with `v`, by differentiating the vjp once more.

    Args:
        v: one Tensor per input; may be None for a single element.
        create_graph, strict: as for `vjp`.
    """
    with enable_grad():
        several, inputs = _as_tuple(inputs, "inputs", "jvp")
        vs = _vector(v, inputs, several, "jvp", "the input to the user-provided function is a single Tensor with a single element")
        starts = _starts(inputs, create_graph)
        many, outputs = _as_tuple(func(*starts), "outputs of the user-provided function", "jvp")
        _check_strict(strict, outputs)
        probes = tuple(zeros_like(y.detach()).requires_grad_() for y in outputs)
        pulled = _filled(_grads(outputs, starts, probes, True), starts, strict, "output")
        found = _grads(pulled, probes, vs, create_graph)
        found = _filled(found, outputs, strict, "jvp")
        _check_connected(found, strict, create_graph, "jacobian")
    return _one(_finished(outputs, create_graph), many), _one(_finished(found, create_graph), many)


def _scalar(outputs: tuple[Tensor, ...], many: bool, where: str) -> Tensor:
    if many or not isinstance(outputs[0], Tensor):
        raise RuntimeError(f"The function given to {where} should return a single Tensor")
    if outputs[0].nelement() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {where} should contain a single element")
    return outputs[0].squeeze()


def _slope_at(where: str, func: Callable[..., Any], inputs: Any, v: Any, create_graph: bool, strict: bool) -> Any:
    """The gradient of the scalar function `func`, recorded; before it, whether there are several inputs, these, `v` and the results."""
    several, inputs = _as_tuple(inputs, "inputs", where)
    vs = _vector(v, inputs, several, where, "the input to the user-provided function is a single Tensor with a single element")
    starts = _starts(inputs, create_graph)
    many, outputs = _as_tuple(func(*starts), "outputs of the user-provided function", where)
    _check_strict(strict, outputs)
    value = _scalar(outputs, many, where)
    slope = _filled(_grads((value,), starts, None, True), starts, strict, "output")
    _check_connected(slope, strict, True, "jacobian")
    return several, starts, vs, outputs, slope


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """The result of the scalar function `func` at `inputs`, and the product of `v` with its Hessian.

    `create_graph` and `strict` are as for `vjp`.
    """
    with enable_grad():
        several, starts, vs, outputs, slope = _slope_at("vhp", func, inputs, v, create_graph, strict)
        found = _filled(_grads(slope, starts, vs, create_graph), starts, strict, "gradient")
        _check_connected(found, strict, create_graph, "hessian")
    return _finished(outputs[0], create_graph), _one(_finished(found, create_graph), several)


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """The result of the scalar function `func` at `inputs`, and the product of its Hessian with `v`.

    `vhp` gives the same, as Hessians are symmetric, and is faster. `create_graph` and `strict` are as for `vjp`.
    """
    with enable_grad():
        several, starts, vs, outputs, slope = _slope_at("hvp", func, inputs, v, create_graph, strict)
        probes = tuple(zeros_like(g.detach()).requires_grad_() for g in slope)
        pulled = _filled(_grads(slope, starts, probes, True), starts, strict, "gradient")
        found = _filled(_grads(pulled, probes, vs, create_graph), starts, strict, "hvp")
        _check_connected(found, strict, create_graph, "hessian")
    return _finished(outputs[0], create_graph), _one(_finished(found, create_graph), several)


# -- whole matrices ------------------------------------------------------------------------------------------------------


def jacobian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The jacobian of `func` at `inputs`: for each result and input a Tensor of shape ``(*result, *input)``.

    Args:
        create_graph: record the computation, so that it can be differentiated.
        strict: raise where a result does not depend on an input, in place of zeros.
        vectorize: compute all rows at once by vmap.
        strategy: 'reverse-mode', or 'forward-mode' together with `vectorize`.
    Raises: NotImplementedError for forward mode without `vectorize` or with `create_graph` or `strict`.

    >>> fb.autograd.functional.jacobian(lambda x: x**2, fb.tensor([1.0, 3.0]))
    tensor([[2., 0.],
            [0., 6.]])
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more '
            'outputs than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use '
            '"reverse-mode".'
        )
    if strategy == "forward-mode":
        return _forward_jacobian(func, inputs, create_graph, vectorize)
    if vectorize and strict:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. "
            "Please either set `strict=False` or `vectorize=False`."
        )
    with enable_grad():
        several, inputs = _as_tuple(inputs, "inputs", "jacobian")
        starts = _starts(inputs, create_graph)
        many, outputs = _as_tuple(func(*starts), "outputs of the user-provided function", "jacobian")
        _check_strict(strict, outputs)
        rows = [(_rows_at_once if vectorize else _rows_in_turn)(y, starts, create_graph, strict, i) for i, y in enumerate(outputs)]
    made = tuple(_one(_finished(row, create_graph), several) for row in rows)
    return _one(made, many)


def _rows_in_turn(y: Tensor, starts: tuple[Tensor, ...], create_graph: bool, strict: bool, index: int) -> tuple[Tensor, ...]:
    columns: list[list[Tensor]] = [[] for _ in starts]
    flat = y.reshape(-1)
    for k in range(y.nelement()):
        grads = _grads((flat[k],), starts, None, create_graph)
        for column, g, (i, x) in zip(columns, grads, enumerate(starts), strict=True):
            if g is None and strict:
                raise RuntimeError(
                    f"Output {index} of the user-provided function is independent of input {i}. This is not allowed in "
                    "strict mode."
                )
            if strict and create_graph and g is not None and not g.requires_grad:
                raise RuntimeError(
                    f"The jacobian of the user-provided function is independent of input {i}. This is not allowed in "
                    "strict mode when create_graph=True."
                )
            column.append(zeros_like(x.detach()) if g is None else g)
    return tuple(_stacked(column, y, x) for column, x in zip(columns, starts, strict=True))


def _stacked(rows: list[Tensor], y: Tensor, x: Tensor) -> Tensor:
    if not rows:
        return zeros(*y.shape, *x.shape, dtype=x.dtype, device=x.device)
    return OPS["stack"].function(rows, 0).view(*y.shape, *x.shape)


def _rows_at_once(y: Tensor, starts: tuple[Tensor, ...], create_graph: bool, strict: bool, index: int) -> tuple[Tensor, ...]:
    from ..func.vmap import vmap

    if not y.requires_grad:
        return tuple(zeros(*y.shape, *x.shape, dtype=x.dtype, device=x.device) for x in starts)
    def pull(v: Tensor) -> Any:
        grads = gradient(y, starts, v.view(y.shape), retain_graph=True, create_graph=create_graph, allow_unused=True)
        return tuple(zeros_like(x.detach()) if g is None else g for g, x in zip(grads, starts, strict=True))

    return tuple(g.view(*y.shape, *x.shape) for g, x in zip(vmap(pull)(_unit_vectors(y)), starts, strict=True))


def _unit_vectors(y: Tensor) -> Tensor:
    made = zeros(y.nelement(), y.nelement(), dtype=y.dtype, device=y.device)
    made.diagonal().fill_(1)
    return made


def _forward_jacobian(func: Any, inputs: Any, create_graph: bool, vectorize: bool) -> Any:
    if not vectorize:
        raise NotImplementedError(
            'Computing Jacobian using forward-AD or forward-over-reverse Hessian is only implemented for '
            '`vectorize=True`.'
        )
    if create_graph:
        raise NotImplementedError(
            "torch.autograd.functional.jacobian: `create_graph=True` and `strategy=\"forward-mode\"` are not "
            "supported together (yet). Please either set `create_graph=False` or `strategy=\"reverse-mode\"`."
        )
    from ..func.transforms import jacfwd

    several, inputs = _as_tuple(inputs, "inputs", "jacobian")
    found = jacfwd(func, tuple(range(len(inputs))))(*(x.detach() for x in inputs))
    if isinstance(found[0], tuple):
        return tuple(_one(row, several) for row in found)
    return _one(found, several)


def hessian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The Hessian of the scalar function `func` at `inputs`: for each two inputs a Tensor of shape ``(*one, *other)``.

    Args:
        create_graph, strict, vectorize: as for `jacobian`.
        outer_jacobian_strategy: 'forward-mode' goes forward over reverse, with `vectorize`.
    """
    several, inputs = _as_tuple(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')
    if outer_jacobian_strategy == "forward-mode":
        if not vectorize or create_graph or strict:
            raise NotImplementedError(
                "hessian: outer_jacobian_strategy='forward-mode' needs vectorize=True and neither create_graph nor "
                "strict"
            )
        from ..func.transforms import hessian as forward_over_reverse

        def scalar(*xs: Tensor) -> Tensor:
            many, outputs = _as_tuple(func(*xs), "outputs of the user-provided function", "hessian")
            return _scalar(outputs, many, "hessian")

        found = forward_over_reverse(scalar, tuple(range(len(inputs))))(*(x.detach() for x in inputs))
        return found if several else found[0][0]

    def slope(*xs: Tensor) -> Any:
        many, outputs = _as_tuple(func(*xs), "outputs of the user-provided function", "hessian")
        _check_strict(strict, outputs)
        value = _scalar(outputs, many, "hessian")
        grads = _filled(_grads((value,), xs, None, True), xs, strict, "output")
        _check_connected(grads, strict, True, "jacobian")
        return grads

    found = jacobian(slope, inputs, create_graph=create_graph, strict=strict, vectorize=vectorize)
    return found if several else found[0][0]

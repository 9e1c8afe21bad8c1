"""Comparing derivatives with finite differences.

A function of real or complex Tensors is seen as one of the real numbers in them. For each input and output the numerical
jacobian comes from central differences, one real (and imaginary) direction at a time, the analytical one from the vjp (and
jvp) of unit vectors. For complex values the two partial derivatives combine to the one convention of gradients,
``d/d conj(z)``: a vjp must give ``conj(v) . J`` for every v, which is compared for v = 1 and v = i.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .. import _state
from ..tensor import Tensor, wrap
from . import forward_ad
from . import grad as gradient
from ._sparse_inputs import of_dense_inputs
from .grad_mode import enable_grad

__all__ = ["GradcheckError", "get_analytical_jacobian", "get_numerical_jacobian", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """What `gradcheck` and `gradgradcheck` raise."""


# -- inputs and outputs --------------------------------------------------------------------------------------------------


def _as_tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _differentiable(values: Iterable[Any]) -> list[Tensor]:
    return [x for x in values if isinstance(x, Tensor) and x.requires_grad]


def _check_inputs(inputs: tuple[Any, ...]) -> None:
    checked = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True.")
    for i, x in enumerate(inputs):
        if not isinstance(x, Tensor) or not x.requires_grad:
            continue
        if x.dtype.name not in ("float64", "complex128"):
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or complex. This check will likely "
                "fail if all the inputs are not of double precision floating point or complex. ",
                stacklevel=4,
            )
        if x.is_contiguous():
            continue
        if any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True)):
            raise RuntimeError(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are non-overlapping to be "
                "able to compute the numerical gradients correctly. Call .contiguous() on the input before."
            )


def _outputs(func: Any, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """The results of `func` that have derivatives."""
    made = _as_tuple(func(*inputs))
    return tuple(y for y in made if isinstance(y, Tensor) and (y.is_floating_point() or y.is_complex()) and y.requires_grad)


def _array(x: Tensor) -> Any:
    return x.detach().numpy() if x.dtype.name not in ("bfloat16", "float16", "complex32") else x.detach()._array


# -- numerical -----------------------------------------------------------------------------------------------------------


def _values(func: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """The results of `func` as arrays of their own memory."""
    before = _state.set_grad(True)
    try:
        return [np.array(_array(y)) for y in _outputs(func, inputs)]
    finally:
        _state.set_grad(before)


def _slopes(func: Any, inputs: tuple[Any, ...], place: Any, index: Any, step: complex, eps: float) -> list[Any]:
    """The derivatives of all results as ``place[index]`` moves in the direction `step`."""
    start = place[index]
    try:
        place[index] = start + step * eps
        high = _values(func, inputs)
        place[index] = start - step * eps
        low = _values(func, inputs)
    finally:
        place[index] = start
    return [(h - d) / (2 * eps) for h, d in zip(high, low, strict=True)]


def _numerical(func: Any, inputs: tuple[Any, ...], target: Tensor, eps: float) -> list[dict[complex, Any]]:
    """For each result, by direction (1, and i for complex inputs), its derivatives: (elements of target, elements of result)."""
    place = target._array
    found: list[dict[complex, list[Any]]] = []
    for index in np.ndindex(*place.shape):
        for step in (1.0, 1j) if target.is_complex() else (1.0,):
            slopes = _slopes(func, inputs, place, index, step, eps)
            if not found:
                found = [{} for _ in slopes]
            for columns, s in zip(found, slopes, strict=True):
                columns.setdefault(step, []).append(s.reshape(-1))
    return [{step: np.stack(rows) for step, rows in columns.items()} for columns in found]


def get_numerical_jacobian(fn: Callable[..., Any], inputs: Any, target: Any = None, eps: float = 1e-3, grad_out: float = 1.0) -> Any:
    """Finite differences of the first result of `fn`, (elements of input, elements of result) for each differentiable input."""
    if grad_out != 1.0:
        raise ValueError("Expected grad_out to be 1.0. get_numerical_jacobian no longer supports values of grad_out != 1.0.")
    inputs = _as_tuple(inputs)
    return tuple(
        wrap(_conjugate_wirtinger(_numerical(fn, inputs, x, eps)[0]))
        for x in _differentiable(inputs if target is None else _as_tuple(target))
    )


def get_analytical_jacobian(inputs: Any, output: Tensor, nondet_tol: float = 0.0, grad_out: float = 1.0) -> Any:
    """The jacobian by vjps, whether it has the right sizes and dtypes, and whether two runs agree within `nondet_tol`."""
    inputs = _differentiable(_as_tuple(inputs))
    first, second = (_pull_all(output, inputs, 1.0) for _ in range(2))
    same = all(np.allclose(a, b, atol=nondet_tol, rtol=0) for a, b in zip(first, second, strict=True))
    return tuple(wrap(a) for a in first), same, True, True


def _conjugate_wirtinger(columns: dict[complex, Any]) -> Any:
    """What the vjp of a unit vector gives: the derivative itself for real inputs, else ``(d/dx + i d/dy)`` of the real part."""
    if 1j not in columns:
        return columns[1.0]
    return columns[1.0].real + 1j * columns[1j].real


# -- analytical ----------------------------------------------------------------------------------------------------------


def _pull_all(output: Tensor, inputs: list[Tensor], unit: complex) -> list[Any]:
    """The vjps of `unit` times each unit vector: for each input (elements of input, elements of output)."""
    rows: list[list[Any]] = [[] for _ in inputs]
    for k in range(output.numel()):
        v = np.zeros(output.shape, output._array.dtype)
        v[np.unravel_index(k, v.shape) if v.ndim else ()] = unit
        grads = gradient(output, inputs, wrap(v), retain_graph=True, allow_unused=True)
        for row, g, x in zip(rows, grads, inputs, strict=True):
            row.append(np.zeros(x.numel(), x._array.dtype) if g is None else np.array(_array(g)).reshape(-1))
    return [np.stack(row, 1) if row else np.zeros((x.numel(), 0), x._array.dtype) for row, x in zip(rows, inputs, strict=True)]


def _expected_pull(columns: dict[complex, Any], unit: complex, complex_output: bool) -> Any:
    """What the vjp of `unit` must be, from numerical derivatives: the gradient of ``Re(conj(unit) * output)``."""
    along_x = (np.conj(unit) * columns[1.0]).real if complex_output else columns[1.0]
    if 1j not in columns:
        return along_x
    along_y = (np.conj(unit) * columns[1j]).real if complex_output else columns[1j]
    return along_x + 1j * along_y


# -- comparing -----------------------------------------------------------------------------------------------------------


class _Check:
    """One gradcheck: the function, its settings, and the checks in turn. Each raises GradcheckError."""

    def __init__(self, func: Any, inputs: Any, eps: float, atol: float, rtol: float, nondet_tol: float) -> None:
        self.func, self.inputs, self.targets = func, _as_tuple(inputs), _differentiable(_as_tuple(inputs))
        self.eps, self.atol, self.rtol, self.nondet_tol = eps, atol, rtol, nondet_tol

    def run_function(self) -> tuple[Tensor, ...]:
        with enable_grad():
            return _outputs(self.func, self.inputs)

    def compare(self, analytical: Any, numerical: Any, i: int, j: int, forward: bool = False) -> None:
        if not np.allclose(analytical, numerical, rtol=self.rtol, atol=self.atol, equal_nan=True):
            raise GradcheckError(
                f"Jacobian {'computed with forward mode ' if forward else ''}mismatch for output {i} with respect to input {j},\n"
                f"numerical:{numerical}\nanalytical:{analytical}\n"
            )

    def without_outputs(self) -> None:
        """A function none of whose results has a derivative must not depend on its inputs."""
        made = [y for y in _as_tuple(self.func(*self.inputs)) if isinstance(y, Tensor)]
        for x in self.targets:
            for index in np.ndindex(*x.shape):
                start = x._array[index]
                x._array[index] = start + self.eps
                moved = [y for y in _as_tuple(self.func(*self.inputs)) if isinstance(y, Tensor)]
                x._array[index] = start
                if any(not np.allclose(_array(a), _array(b), atol=0) for a, b in zip(made, moved, strict=True)):
                    raise GradcheckError("Numerical gradient for function expected to be zero")

    # -- backward

    def backward(self) -> None:
        outputs = self.run_function()
        columns = [_numerical(self.func, self.inputs, x, self.eps) for x in self.targets]
        for i, y in enumerate(outputs):
            for unit in (1.0, 1j) if y.is_complex() else (1.0,):
                pulled = _pull_all(y, self.targets, unit)
                again = _pull_all(y, self.targets, unit)
                for j, (found, second, x) in enumerate(zip(pulled, again, self.targets, strict=True)):
                    if not np.allclose(found, second, rtol=0, atol=self.nondet_tol):
                        raise GradcheckError(
                            "Backward is not reentrant: two runs with the same input and cotangent gave different values, further "
                            f"apart than nondet_tol={self.nondet_tol}"
                        )
                    expected = _expected_pull(columns[j][i], unit, y.is_complex()) if x.numel() else found
                    self.compare(found, expected, i, j)

    def backward_fast(self) -> None:
        """One random direction in place of every element: ``v . J u`` both ways."""
        draws = np.random.default_rng(0)
        outputs = self.run_function()
        directions = [_direction(draws, x) for x in self.targets]
        moved = self._along(directions)
        for i, y in enumerate(outputs):
            v = _direction(draws, y)
            grads = gradient(y, self.targets, wrap(v), retain_graph=True, allow_unused=True)
            for j, (g, u, slopes) in enumerate(zip(grads, directions, moved, strict=True)):
                analytical = 0.0 if g is None else _real_dot(np.array(_array(g)), u)
                numerical = _real_dot(v, slopes[i])
                if not np.allclose(analytical, numerical, rtol=self.rtol, atol=self.atol * max(1.0, abs(float(numerical)))):
                    raise GradcheckError(
                        f"Jacobian mismatch for output {i} with respect to input {j},\nnumerical:{numerical}\n"
                        f"analytical:{analytical}\n\nThe above quantities relating the numerical and analytical jacobians are computed in "
                        "fast mode. Run with fast_mode=False for every element"
                    )

    def _along(self, directions: list[Any]) -> list[list[Any]]:
        """For each input the derivatives of all results as the whole input moves in its direction."""
        found = []
        for x, u in zip(self.targets, directions, strict=True):
            start = np.array(x._array)
            try:
                x._array[...] = start + u * self.eps
                high = _values(self.func, self.inputs)
                x._array[...] = start - u * self.eps
                low = _values(self.func, self.inputs)
            finally:
                x._array[...] = start
            found.append([(h - d) / (2 * self.eps) for h, d in zip(high, low, strict=True)])
        return found

    # -- forward

    def forward(self, fast: bool, undefined: bool) -> None:
        """Forward mode: the tangent along every unit vector (or, fast, one random vector) equals the difference quotient."""
        draws = np.random.default_rng(1)
        for j, x in enumerate(self.targets):
            if fast:
                u = _direction(draws, x)
                slopes = _Check._along(self._only(x), [u])[0]
                for i, t in enumerate(self._push(x, u)):
                    self.compare(t, slopes[i], i, j, forward=True)
                continue
            columns = _numerical(self.func, self.inputs, x, self.eps)
            for k, index in enumerate(np.ndindex(*x.shape)):
                for step in (1.0, 1j) if x.is_complex() else (1.0,):
                    u = np.zeros(x.shape, x._array.dtype)
                    u[index] = step
                    for i, t in enumerate(self._push(x, u)):
                        self.compare(t.reshape(-1), columns[i][step][k], i, j, forward=True)
        if undefined and len(self.targets) > 1:
            self._forward_with_zeros()

    def _only(self, x: Tensor) -> _Check:
        made = _Check(self.func, self.inputs, self.eps, self.atol, self.rtol, self.nondet_tol)
        made.targets = [x]
        return made

    def _push(self, x: Tensor, u: Any) -> list[Any]:
        """The tangents of the results when `x` has the tangent `u`."""
        with forward_ad.dual_level():
            given = [forward_ad.make_dual(y.detach() if y is not x else x.detach(), wrap(u)) if y is x else _plain(y) for y in self.inputs]
            shown = [y.requires_grad_() if isinstance(y, Tensor) and isinstance(z, Tensor) and z.requires_grad and y.is_leaf else y
                     for y, z in zip(given, self.inputs, strict=True)]  # fmt: skip
            found = []
            for y in _outputs(self.func, tuple(shown)):
                t = forward_ad.unpack_dual(y).tangent
                found.append(np.zeros(y.shape, y._array.dtype) if t is None else np.array(_array(t)))
            return found

    def _forward_with_zeros(self) -> None:
        """A tangent of zeros and no tangent mean the same."""
        draws = np.random.default_rng(2)
        x, other = self.targets[0], self.targets[1]
        u = _direction(draws, x)
        plain = self._push(x, u)
        with forward_ad.dual_level():
            given = []
            for y in self.inputs:
                if y is x:
                    given.append(forward_ad.make_dual(x.detach().requires_grad_(), wrap(u)))
                elif y is other:
                    given.append(forward_ad.make_dual(other.detach().requires_grad_(), wrap(np.zeros_like(other._array))))
                else:
                    given.append(y)
            for a, y in zip(plain, _outputs(self.func, tuple(given)), strict=True):
                t = forward_ad.unpack_dual(y).tangent
                b = np.zeros_like(a) if t is None else _array(t)
                if not np.allclose(a, b, equal_nan=True):
                    raise GradcheckError("forward mode: a tangent of zeros gives another result than no tangent")

    # -- further properties

    def batched(self) -> None:
        """The vjp under vmap equals a loop of vjps."""
        draws = np.random.default_rng(3)
        for y in self.run_function():
            vs = [wrap(_direction(draws, y)) for _ in range(2)]
            one_by_one = [gradient(y, self.targets, v, retain_graph=True, allow_unused=True) for v in vs]
            both = wrap(np.stack([v._array for v in vs]))
            try:
                at_once = gradient(y, self.targets, both, retain_graph=True, allow_unused=True, is_grads_batched=True)
            except RuntimeError as error:
                raise GradcheckError(f"While computing batched gradients, got: {error}") from error
            self._agree([[row[k] for row in one_by_one] for k in range(len(self.targets))], at_once)

    def batched_forward(self) -> None:
        """The jvp under vmap equals a loop of jvps."""
        from ..func.transforms import jvp
        from ..func.vmap import vmap

        draws = np.random.default_rng(4)
        for x in self.targets:
            us = [wrap(_direction(draws, x)) for _ in range(2)]

            def of_x(z: Tensor, x: Tensor = x) -> Any:
                given = tuple(z if y is x else y for y in self.inputs)
                made = tuple(y for y in _as_tuple(self.func(*given)) if isinstance(y, Tensor))
                return tuple(y for y in made if y.is_floating_point() or y.is_complex())

            def push(u: Tensor, x: Tensor = x, of_x: Any = of_x) -> Any:
                return jvp(of_x, (x.detach(),), (u,))[1]

            one_by_one = [push(u) for u in us]
            try:
                at_once = vmap(push)(wrap(np.stack([u._array for u in us])))
            except RuntimeError as error:
                raise GradcheckError(f"While computing batched gradients, got: {error}") from error
            self._agree([[row[k] for row in one_by_one] for k in range(len(at_once))], at_once)

    def _agree(self, one_by_one: Any, at_once: Any) -> None:
        for rows, batched in zip(one_by_one, at_once, strict=True):
            for row, part in zip(rows, batched if batched is not None else (None, None), strict=True):
                if row is None or part is None:
                    continue
                if not np.allclose(_array(row), _array(part), atol=1e-5, rtol=1e-5, equal_nan=True):
                    raise GradcheckError(f"Batched gradients disagree with those of single vectors:\nexpected:{row}\nbatched:{part}")

    def undefined_grads(self) -> None:
        """Gradients that do not arrive count as zeros."""
        outputs = self.run_function()
        if not outputs:
            return
        for k in range(len(outputs)):
            vs = [wrap(np.zeros(y.shape, y._array.dtype)) if i == k else None for i, y in enumerate(outputs)]
            given = [(y, v) for y, v in zip(outputs, vs, strict=True) if v is not None]
            grads = gradient([y for y, _ in given], self.targets, [v for _, v in given], retain_graph=True, allow_unused=True)
            for g in grads:
                if g is not None and not bool((g == 0).all()):
                    raise GradcheckError(
                        "Expected all input grads to be undefined or zero when all output grads are undefined or zero: backward is not "
                        "linear in the gradients it is given"
                    )

    def dtypes(self) -> None:
        """Gradients have the dtype and shape of what they belong to."""
        for y in self.run_function():
            v = wrap(np.ones(y.shape, y._array.dtype))
            for g, x in zip(gradient(y, self.targets, v, retain_graph=True, allow_unused=True), self.targets, strict=True):
                if g is not None and g.dtype is not x.dtype:
                    raise GradcheckError(f"Gradient has dtype mismatch: {g.dtype} for an input of dtype {x.dtype}")
                if g is not None and g.shape != x.shape:
                    raise GradcheckError(
                        f"Analytical gradient has incorrect size: {tuple(g.shape)} for an input of {tuple(x.shape)}"
                    )


def _plain(y: Any) -> Any:
    return y.detach() if isinstance(y, Tensor) and y.requires_grad else y


def _direction(draws: Any, like: Tensor) -> Any:
    made = draws.uniform(-1, 1, like.shape)
    if like.is_complex():
        made = made + 1j * draws.uniform(-1, 1, like.shape)
    return np.asarray(made, like._array.dtype)            # one complex number would be none of an array


def _real_dot(a: Any, b: Any) -> Any:
    return np.real(np.vdot(a, b))


def gradcheck(
    func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
    raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
    check_batched_grad: bool = False, check_batched_forward_grad: bool = False, check_forward_ad: bool = False,
    check_backward_ad: bool = True, fast_mode: bool = False, masked: bool | None = None,
) -> bool:  # fmt: skip
    """Whether the derivatives of `func` at `inputs` agree with finite differences.

    Args:
        inputs: those that require grad are checked; they should be float64 or complex128.
        eps: step of the differences.
        atol, rtol: how far the two may be apart: ``atol + rtol * abs(difference quotient)``.
        nondet_tol: how much two runs of backward may differ.
        check_undefined_grad: whether gradients that do not arrive count as zeros.
        check_grad_dtypes: whether gradients have the dtypes of their inputs.
        check_batched_grad, check_batched_forward_grad: whether derivatives agree under vmap.
        check_forward_ad, check_backward_ad: which modes to check.
        fast_mode: check along one random direction instead of every element.
        masked: of sparse inputs, whether only specified elements move, and count; otherwise all do.
    Returns: True; False where a check fails and `raise_exception` is not set.
    Raises: GradcheckError where a check fails, ValueError for settings and inputs that leave nothing to check, and for a function of
        sparse tensors that returns one.
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    func, inputs = of_dense_inputs(func, _as_tuple(inputs), bool(masked))
    try:
        _gradcheck(_Check(func, inputs, eps, atol, rtol, nondet_tol), eps, check_undefined_grad, check_grad_dtypes,
                   check_batched_grad, check_batched_forward_grad, check_forward_ad, check_backward_ad, fast_mode)  # fmt: skip
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _gradcheck(check: _Check, eps: float, undefined: bool, dtypes: bool, batched: bool, batched_forward: bool, forward: bool,
               backward: bool, fast: bool) -> None:  # fmt: skip
    _check_inputs(check.inputs)
    if not check.run_function():
        check.without_outputs()
        return
    if forward:
        check.forward(fast, undefined)
        if batched_forward:
            check.batched_forward()
    if not backward:
        return
    check.backward_fast() if fast else check.backward()
    if dtypes:
        check.dtypes()
    if batched:
        check.batched()
    if undefined:
        check.undefined_grads()


def gradgradcheck(
    func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True, nondet_tol: float = 0.0,
    check_undefined_grad: bool = True, check_grad_dtypes: bool = False, check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True, fast_mode: bool = False, masked: bool = False,
) -> bool:  # fmt: skip
    """Whether the second derivatives of `func` agree with finite differences of the first.

    Args:
        grad_outputs: cotangents to differentiate the vjp at; drawn at random by default.
        gen_non_contig_grad_outputs: whether drawn ones are not contiguous.
        check_fwd_over_rev, check_rev_over_rev: which modes go over the first derivative.
        atol, rtol, masked and the others: as for `gradcheck`.
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    if check_undefined_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_undefined_grad=True requires check_rev_over_rev to be True")
    if check_batched_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_batched_grad=True requires check_rev_over_rev to be True")
    func, inputs = of_dense_inputs(func, _as_tuple(inputs), masked)
    count = len(inputs)
    with enable_grad():
        outputs = _outputs(func, inputs)
    if grad_outputs is None:
        vectors = tuple(_cotangent(y, i, gen_non_contig_grad_outputs) for i, y in enumerate(outputs))
    else:
        vectors = _as_tuple(grad_outputs)
    at = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]

    def slope(*args: Any) -> Any:
        given, vs = args[:count], args[count:]
        with enable_grad():
            xs = tuple(x.view_as(x) if i in at else x for i, x in enumerate(given))
            ys = _outputs(func, xs)
            grads = gradient(ys, [xs[i] for i in at], vs, create_graph=True, allow_unused=True)
        return tuple(g for g in grads if g is not None)

    return gradcheck(
        slope, (*inputs, *vectors), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes, check_batched_grad=check_batched_grad,
        fast_mode=fast_mode, check_forward_ad=check_fwd_over_rev, check_backward_ad=check_rev_over_rev, masked=masked,
    )  # fmt: skip


def _cotangent(y: Tensor, seed: int, non_contiguous: bool) -> Tensor:
    made = _direction(np.random.default_rng(10 + seed), y)
    if non_contiguous and made.ndim:
        wide = np.zeros((*made.shape, 2), made.dtype)
        wide[..., 0] = made
        made = wide[..., 0]
    return wrap(made).requires_grad_()


class _Callable(types.ModuleType):
    """This module: `autograd.gradcheck` names both it and its function, whichever was imported first."""

    def __call__(self, *args: Any, **kwargs: Any) -> bool:
        return gradcheck(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable

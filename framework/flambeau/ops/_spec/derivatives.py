"""The derivatives of an elementwise op: a gradient formula for each argument, over arrays and over Tensors, and tangents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.formula import Formula
from flambeau_kernels.vocabulary import where

from ... import _arrays, _state, dtypes
from ..._arrays import MetaArray, ndarray
from ...autograd import engine, tape
from ...autograd.tape import Node
from ...dtypes import from_numpy_dtype
from ...tensor import Tensor, wrap
from .base import OPS, Op
from .few_elements import computed_by_numpy, remember_for_numpy
from .history import check_versions, named_tensors, refuse_tangent
from .shapes import sum_tensor_to, sum_to


class ElementwiseNode(Node):
    """Jacobian is diagonal: one gradient formula per argument serves both directions."""

    __slots__ = ()
    has_array_vjp = True

    def vjp_on_arrays(self, grad: Any) -> Any:
        # The first backward of each op writes its rule, which calls `general_vjp_on_arrays` for what its formulas were not specialised for.
        from .. import _entry

        cls = type(self)
        cls.vjp_on_arrays = _entry.make_array_vjp(self.op, cls.general_vjp_on_arrays)
        return cls.vjp_on_arrays(self, grad)

    def general_vjp_on_arrays(self, grad: Any) -> Any:
        if grad.__class__ is MetaArray:
            return engine.through_tensors(self, grad)
        check_versions(self)
        op = self.op
        return [
            None if parent is None else op.grad_array(i, self, grad) for i, parent in enumerate(engine.wanted_parents(self))
        ]

    def saved_by_name(self) -> dict[str, Any]:
        check_versions(self)
        unread = {"result" if name == "out" else name: None for name in self.op.reads}
        return unread | named_tensors(self, ("result", *self.op.params), (self, *self.parents))

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """Edges to what made the operands that have a derivative; in overloads for numbers, of those that are Tensors."""
        op = self.op
        edges = zip(op.params, self.parents, self.dtype, strict=True)
        numbers = self.title != op.node_class.title or frozenset(filter(op.has_gradient, op.params)) in op.node_classes
        return tuple([tape.edge_of(node) for name, node, dtype in edges if op.has_gradient(name) and not (numbers and dtype is None)])

    def _hides(self) -> frozenset[str]:
        # PyTorch has an overload for operands that are numbers, whose node saves what the gradients of the others read.
        op = self.op
        tensors = [name for name, dtype in zip(op.params, self.dtype, strict=True) if dtype is not None]
        read = {"result" if n == "out" else n for name in tensors for n in op.reads_of(name)}
        return self.hidden | ({"result", *op.params} - read)

    def vjp(self, grad: Tensor) -> Any:
        check_versions(self)
        op = self.op
        return [
            None if parent is None else op.grad_tensor(i, self, grad) for i, parent in enumerate(engine.wanted_parents(self))
        ]


class Derivatives(Op):
    """What an elementwise op knows of its derivatives, from its partials."""

    learn: Callable[[Formula, Any, Any, Any], None]

    def __init__(self, fn: Any, surface: int, namespace: str, aliases: Any, autocast: Any, partials: Any, vjps: Any) -> None:
        self.partials = partials
        self.vjps = vjps or {}
        self._grads: dict[int, Any] = {}
        self._tensor_partials: dict[int, Any] = {}
        self._rounds_often: dict[int, bool] = {}      # whether the gradient of an argument does
        super().__init__(fn, surface, namespace, aliases, autocast)

    def has_gradient(self, name: str) -> bool:
        """Whether a derivative with respect to parameter `name` is declared."""
        return name in self.vjps or name in (self.partials or {})

    def reads_of(self, name: str) -> tuple[str, ...]:
        """What the gradient of parameter `name` reads, apart from the incoming gradient."""
        rule = self.vjps.get(name) or (self.partials or {}).get(name)
        if rule is None:
            return ()
        names = rule.__code__.co_varnames[: rule.__code__.co_argcount]
        return names[1:] if name in self.vjps else names

    def gradient(self, i: int) -> tuple[Formula, tuple[int, ...], Any]:
        """For argument `i`: the formula of its gradient, which saved values it takes, and the constant it is, if any."""
        found = self._grads.get(i)
        if found is None:
            found = self._grads[i] = self._make_gradient(i)
        return found

    def _make_gradient(self, i: int) -> tuple[Formula, tuple[int, ...], Any]:
        name = self.params[i]
        order = ("out", *self.params)
        given = self.vjps.get(name)
        if given is not None:
            reads = given.__code__.co_varnames[1 : given.__code__.co_argcount]
            return Formula(given, f"{self.name}_grad_{name}"), tuple(order.index(r) for r in reads), None
        partial = (self.partials or {}).get(name)
        if partial is None:
            raise NotImplementedError(f"the derivative for '{self.public_name}{f': {name}' if self.partials else ''}' is not implemented.")
        reads = partial.__code__.co_varnames[: partial.__code__.co_argcount]
        if not reads:
            constant = partial()
            formula = (lambda grad: grad * constant) if constant else _nothing
            return Formula(formula, f"{self.name}_grad_{name}"), (), constant
        combined = _times_partial(partial, len(reads))
        return Formula(combined, f"{self.name}_grad_{name}"), tuple(order.index(r) for r in reads), None

    def grad_array(self, i: int, node: Node, grad: Any) -> Any:
        """The gradient of argument `i` as an array."""
        formula, reads, constant = self.gradient(i)
        if constant is not None and constant == 1:
            result = grad
        elif constant is not None and constant == 0 and type(grad) is ndarray:
            shape = node.shape[i]
            return np.zeros_like(grad, node.dtype[i]) if grad.shape == shape else np.zeros(shape, node.dtype[i])
        else:
            values = [node.saved[r] for r in reads]
            compute = grad.dtype
            for v in values:
                if hasattr(v, "strides") and v.dtype != compute:
                    compute = dtypes.promote_types(from_numpy_dtype(compute), from_numpy_dtype(v.dtype)).numpy
            if type(grad) is ndarray:
                operands = (grad, *values)
                result = formula.direct(*operands)
                if result is None:
                    result = computed_by_numpy(self, formula, operands)
                if result is None:
                    shape = grad.shape
                    for v in values:
                        if isinstance(v, ndarray) and v.shape != shape:
                            shape = np.broadcast_shapes(shape, v.shape)
                    # In the order that `direct` gives it too.
                    result = _arrays.empty_like_layout(shape, compute, [v for v in operands if isinstance(v, ndarray)])
                    kernels.launch(formula, operands, (result,), compute)
                    remember_for_numpy(self, formula, operands, result, compute)
                    self.learn(formula, operands, result, compute)
            else:
                result = on_other_device_formula(formula, (grad, *values), compute)
        shape = node.shape[i]
        if result.shape != shape:
            result = sum_to(result, shape)
        wanted = node.dtype[i]
        return result if result.dtype == wanted else kernels.cast(result, wanted)

    def grad_tensor(self, i: int, node: Node, grad: Tensor) -> Tensor:
        """The gradient of argument `i` as a differentiable Tensor expression."""
        formula, reads, constant = self.gradient(i)
        if constant is not None and constant == 0:
            shape, wanted = node.shape[i], from_numpy_dtype(node.dtype[i])
            if tuple(grad.shape) != tuple(shape):
                return grad.detach().new_zeros(shape, dtype=wanted)
            strides = _arrays.like_strides(shape, 1, (grad._array,))
            return grad.detach().new_empty_strided(shape, strides, dtype=wanted).zero_()
        if constant is not None:
            result = grad if constant == 1 else grad * constant
        else:
            values = _as_floats([saved_tensor(node, r) for r in reads], grad)
            half = self._half_to_widen(i, grad, values)
            if half is None:
                result = formula.bind(tensor_words())(grad, *values)
            else:                                     # the kernel of the gradient computes in float32 too, and rounds once
                values = [v.float() if isinstance(v, Tensor) else v for v in values]
                result = formula.bind(tensor_words())(grad.float(), *values).to(half)
            if result._node is None:
                result = constant_along(result, values)
        result = sum_tensor_to(result, node.shape[i])
        wanted = from_numpy_dtype(node.dtype[i])
        if result.dtype is wanted:
            return result
        if result.dtype.is_complex and not wanted.is_complex:
            result = result.real
        return result.to(wanted)

    def _half_to_widen(self, i: int, grad: Tensor, values: list[Any]) -> Any:
        """The half type of a gradient whose formula would be rounded after every word; None where it is of no half type, or rounds once."""
        half = grad.dtype
        if half is not dtypes.float16 and half is not dtypes.bfloat16:
            return None
        if any(isinstance(v, Tensor) and v.dtype is not half and v.dtype.is_floating_point for v in values):
            return None
        often = self._rounds_often.get(i)
        if often is None:
            from flambeau_kernels.expression import rounds_often

            often = self._rounds_often[i] = rounds_often(self.gradient(i)[0])
        return half if often else None

    def _tensor_partial(self, i: int) -> Any:
        """The partial derivative by argument `i`, as a function of Tensors."""
        found = self._tensor_partials.get(i)
        if found is None:
            found = self._tensor_partials[i] = Formula(self.partials[self.params[i]]).bind(tensor_words())
        return found

    def jvp(self, args: Any, tangents: Any, out: Tensor) -> Tensor | None:
        """The tangent of `out` for `tangents` of `args` (None where constant)."""
        total = None
        values = (out, *args)
        for i, tangent in enumerate(tangents):
            if tangent is None:
                continue
            if not self.has_gradient(self.params[i]):
                refuse_tangent(self.public_name)
            formula, reads, constant = self.gradient(i)
            if self.params[i] in self.vjps:
                term = formula.bind(tensor_words())(tangent, *_as_floats([values[r] for r in reads], tangent))
            elif constant is not None:
                term = tangent if constant == 1 else tangent * constant if constant else tangent.detach().new_zeros(tangent.shape)
            else:
                term = tangent * self._tensor_partial(i)(*_as_floats([values[r] for r in reads], tangent))
            total = term if total is None else total + term
        if total is not None and total._array.shape != out._array.shape:
            total = total.expand(out.shape)
        return total


def _as_floats(values: list[Any], grad: Tensor) -> list[Any]:
    """`values` with integers as float64 where `grad` is of double precision; divisions among them would be in float32.

    A number 0 becomes a Tensor, for Python does not divide by it.
    """
    for at, v in enumerate(values):
        if v.__class__ in (int, float) and v == 0:
            real = grad.dtype.to_real() if grad.dtype.is_complex else grad.dtype
            values[at] = grad.detach().new_full((), v, dtype=real)  # by an operation, so that those who record derivatives see it
    if grad.dtype not in (dtypes.float64, dtypes.complex128):
        return values
    return [v.double() if isinstance(v, Tensor) and v._array.dtype.kind in "iu" else v for v in values]


def constant_along(result: Tensor, values: list[Any]) -> Tensor:
    """`result` as a function of the first of `values` with history, whose derivative is zero.

    A gradient such as relu's reads the input but is constant along it: differentiating it once more must give zeros.
    """
    if _state.grad_enabled():
        for value in values:
            if isinstance(value, Tensor) and value._node is not None:
                return OPS["piecewise_constant"].function(result, value)
    return result


def _nothing(grad):  # a formula
    """The zero gradient, also where `grad` is infinite or nan."""
    return where(grad == 0, 0, 0)


def _times_partial(partial: Any, arity: int) -> Any:
    """`grad` times the conjugate of `partial`; conj of a real value is free in every reading."""
    if arity == 1:
        return lambda grad, a: grad * conj(partial(a))
    if arity == 2:
        return lambda grad, a, b: grad * conj(partial(a, b))
    if arity == 3:
        return lambda grad, a, b, c: grad * conj(partial(a, b, c))
    # A formula has a parameter for each operand, so there is one text for each count of them.
    given = ", ".join(f"a{k}" for k in range(arity))
    scope = {"conj": conj, "partial": partial, "__name__": __name__}
    exec(f"def times_partial(grad, {given}):\n    return grad * conj(partial({given}))\n", scope)  # text of our own
    return scope["times_partial"]


def conj(x: Any) -> Any:
    raise TypeError("a word of the vocabulary")


def saved_tensor(node: Node, index: int) -> Any:
    """What `node` saved at `index` (0 is its output, then its arguments) as a Tensor with its history."""
    value = node.saved[index]
    if not isinstance(value, (ndarray, MetaArray)) and not hasattr(value, "strides"):
        return value
    made = wrap(value, node if index == 0 else node.parents[index - 1])
    made._storage = node.versions[index]
    return made


_tensor_words: dict[str, Any] = {}


def tensor_words() -> dict[str, Any]:
    """The Tensor reading of the vocabulary: each word is the public function of that name."""
    if not _tensor_words:
        from .. import _words

        _words.fill_tensor_words(_tensor_words)
    return _tensor_words


def on_other_device_formula(formula: Formula, arrays: Any, compute: Any) -> Any:
    from ..._cuda import arrays as device_arrays

    return device_arrays.gradient(formula, arrays, compute)

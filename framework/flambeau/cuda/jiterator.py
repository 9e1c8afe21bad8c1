"""Elementwise kernels from C++ text, as PyTorch's jiterator takes them: they are translated to formulas.

A formula runs on the CPU and on CUDA devices, has derivatives of every order and takes meta tensors; see `flambeau.kernels`.
"""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable
from typing import Any

from flambeau_kernels import vocabulary
from flambeau_kernels.vocabulary import abs, copysign, floor, floor_divide, where

from ..tensor import Tensor
from . import _cpp_formulas

__all__: list[str] = []

_MOST_INPUTS = 8


def _create_jit_fn(code_string: str, **kwargs: Any) -> Callable[..., Any]:
    """The elementwise function of tensors that C++ text describes.

    Args:
        code_string: ``template <typename T> T name(T x, T y, T alpha) { return -x + alpha * y; }``, perhaps after others of the kind
            that it calls. Loops are not built.
        kwargs: a number for each of the last parameters, its default; calls give it by keyword.
    Returns: a function of up to 8 tensors, which broadcast and are promoted to one dtype, that of the result.
    Raises: Exception for text that is no such template; NotImplementedError, naming it, for what formulas do not have.

    >>> weighted = fb.cuda.jiterator._create_jit_fn("template <typename T> T f(T x, T y, T w) { return x > y ? w * x : y; }", w=1.0)
    >>> weighted(fb.tensor([1.0, 5.0]), fb.tensor([2.0, 3.0]), w=10.0)
    tensor([ 2., 50.])
    """
    return _JittedFunction(code_string, 1, False, kwargs)


def _create_multi_output_jit_fn(code_string: str, num_outputs: int, **kwargs: Any) -> Callable[..., Any]:
    """As `_create_jit_fn`, of a template that stores its results in `num_outputs` parameters taken by reference: ``T& out``.

    The function returns a tuple of tensors, or one tensor for one output.
    """
    return _JittedFunction(code_string, num_outputs, True, kwargs)


class _JittedFunction:
    """What C++ text describes, as an op for each result."""

    def __init__(self, code_string: str, outputs: int, by_reference: bool, kwargs: dict[str, Any]) -> None:
        try:
            self.kernel = _cpp_formulas.kernel_of(code_string)
        except _cpp_formulas.Unreadable:
            raise _unreadable(code_string) from None
        self.code_string, self.kwargs_dict = code_string, kwargs
        self.kernel_name, self.return_by_ref, self.num_outputs = self.kernel.name, by_reference, outputs
        if len(self.kernel.outputs) != (outputs if by_reference else 0):
            raise Exception(f"cuda.jiterator: {self.kernel_name} stores in {len(self.kernel.outputs)} parameters, num_outputs is {outputs}")
        wrong = [name for name in kwargs if name not in self.kernel.inputs[len(self.kernel.inputs) - len(kwargs) :]]
        if wrong:
            known = ", ".join(self.kernel.inputs)
            raise TypeError(f"cuda.jiterator: {wrong[0]!r} is none of the last parameters of {self.kernel_name}({known})")
        self._ops: dict[bool, list[Any]] = {}
        self._of(False)                               # says at once what formulas do not have

    def __call__(self, *tensors: Any, **kwargs: Any) -> Any:
        expected = len(self.kernel.inputs) - len(self.kwargs_dict)
        if len(tensors) > _MOST_INPUTS:
            raise AssertionError(f"jiterator only supports up to {_MOST_INPUTS} tensor inputs, got {len(tensors)}")
        if len(tensors) != expected:
            raise TypeError(f"{self.kernel_name}() takes {expected} tensors but {len(tensors)} were given")
        for name in kwargs:
            if name not in self.kwargs_dict:
                raise KeyError(f"{name} is not declared in function definition")
        options = {f"c_{name}": value for name, value in {**self.kwargs_dict, **kwargs}.items()}
        integers = not any(t.is_floating_point() or t.is_complex() for t in tensors if isinstance(t, Tensor))
        made = [op(*tensors, **options) for op in self._of(integers)]
        return tuple(made) if len(made) > 1 else made[0]

    def _of(self, integers: bool) -> list[Any]:
        """The ops of the results; of integers a division is cut off."""
        found = self._ops.get(integers)
        if found is None:
            outputs = self.kernel.outputs or [None]
            found = self._ops[integers] = [self._op(output, integers, at) for at, output in enumerate(outputs)]
        return found

    def _op(self, output: str | None, integers: bool, at: int) -> Any:
        from ..kernels import elementwise

        name = f"{self.kernel_name}_{at}" if self.num_outputs > 1 else self.kernel_name
        try:
            text = _cpp_formulas.source_of(self.kernel, name, self.kwargs_dict, output)
        except (_cpp_formulas.Unreadable, IndexError, ValueError):
            raise _unreadable(self.code_string) from None
        filename = f"<flambeau jiterator {name} {'of integers' if integers else 'of numbers'}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
        scope = dict(_scope(integers))
        exec(compile(text, filename, "exec"), scope)  # text of our own, made of the tokens that were understood
        return elementwise(dtype="common")(scope[name])


def _unreadable(code_string: str) -> Exception:
    return Exception(f"Couldn't parse code, please check correctness:\n {code_string}")


def _larger(x, y):  # formulas
    return where(x < y, y, x)


def _smaller(x, y):
    return where(y < x, y, x)


def _rounded_away(x):
    return copysign(floor(abs(x) + 0.5), x)


def _divided(x, y):
    return x / y


def _cut_off(x, y):
    quotient = floor_divide(x, y)
    return where(quotient < 0, where(quotient * y == x, quotient, quotient + 1), quotient)


@functools.cache
def _scope(integers: bool) -> dict[str, Any]:
    """What formulas refer to."""
    scope = {name: getattr(vocabulary, name) for name in (*vocabulary.WORDS, *vocabulary.HOST_WORDS) if hasattr(vocabulary, name)}
    scope.update(_larger=_larger, _smaller=_smaller, _rounded_away=_rounded_away, _over=_cut_off if integers else _divided)
    scope.update(_infinity=float("inf"), _nan=float("nan"), __name__=__name__)
    return scope

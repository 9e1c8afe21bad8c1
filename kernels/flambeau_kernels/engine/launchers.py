"""Native launchers: Python builtins for the hottest operations on small arrays, without Python or ufunc overhead.

`load()["add"](a, b)` takes exact float32 or float64 ndarrays, C-contiguous, of up to 65,536 elements, and returns a
new array; for any other argument it returns None and the caller takes the general way. Nothing raises but a failed
allocation. All launchers are one object file: writing it takes seconds, loading it from the cache milliseconds.
"""
from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau_kernels.engine import llvm, pyabi
from flambeau_kernels.vocabulary import exp, log, sigmoid, sqrt, tanh, where

__all__ = ["available", "load", "module_text"]


def available() -> tuple[bool, str]:
    """Whether launchers work in this process, and if not, why."""
    reason = _reason_against()
    return reason is None, reason or "native launchers are on"


def load() -> dict[str, Callable[..., Any]]:
    """The launchers by name; empty where `available` says no. The first call loads, or on a cache miss compiles, them.

    Elementwise, on arrays of one shape; `other` may also be a 0-d array or a Python number:
        add sub mul div (array, other), their in-place forms with `_`; rsub rdiv (array, number); add_scaled and
        add_scaled_ (array, array, number): a + number * b; sgd_ (param, grad, lr)
        neg abs sqrt square reciprocal relu exp log tanh sigmoid (array)
        mul_grad div_grad (grad, a, b): a pair; sqrt_grad square_grad relu_grad tanh_grad sigmoid_grad (grad, out or input)
        zeros_like (array), full_like (array, number or 0-d array), fill_ (array, number or 0-d array)
    Others: sum mean (array) to 0-d; column_sum (array) over all dimensions but the last; matmul (a, b),
        matmul_nt (a @ b.T), matmul_tn (a.T @ b), 2-D, stored by rows or by columns; linear (x, weight, bias).
    In-place forms return their first argument. Results of an exact overlap are right, a partial one is refused.
    """
    return _load() if available()[0] else {}


@functools.cache
def _reason_against() -> str | None:
    if os.environ.get("FLAMBEAU_LAUNCHERS", "1") == "0":
        return "FLAMBEAU_LAUNCHERS=0 switches them off"
    reason = pyabi.problem() or llvm.available()
    if reason is None:
        # Only running them shows whether references are counted as this interpreter counts them.
        reason = _self_test(_load())
    return reason


@functools.cache
def _load() -> dict[str, Callable[..., Any]]:
    addresses = _addresses()
    functions = {name: addresses[name] for name in addresses if pyabi.has_gemm() or name not in _NEED_BLAS}
    return pyabi.new_builtins(functions, pyabi.table())


# --- the operations -----------------------------------------------------------------------------------------------

# name: (operands, formula); see `fastcall.Elementwise` for the letters. The formulas are those of the ops, so that a
# result does not depend on which tier computed it.
_ELEMENTWISE: dict[str, tuple[str, Callable[..., Any]]] = {
    "add": ("ax", lambda a, b: a + b),
    "sub": ("ax", lambda a, b: a - b),
    "mul": ("ax", lambda a, b: a * b),
    "div": ("ax", lambda a, b: a / b),
    "rsub": ("an", lambda a, number: number - a),
    "rdiv": ("an", lambda a, number: number / a),
    "add_scaled": ("aan", lambda a, b, factor: a + factor * b),
    "neg": ("a", lambda x: -x),
    "abs": ("a", lambda x: abs(x)),
    "sqrt": ("a", lambda x: sqrt(x)),
    "square": ("a", lambda x: x * x),
    "reciprocal": ("a", lambda x: 1 / x),
    "relu": ("a", lambda x: where(x < 0, 0.0, x)),          # nan and -0.0 stay
    "exp": ("a", lambda x: exp(x)),
    "log": ("a", lambda x: log(x)),
    "tanh": ("a", lambda x: tanh(x)),
    "sigmoid": ("a", lambda x: sigmoid(x)),
    "mul_grad": ("aaa", lambda grad, a, b: (grad * b, grad * a)),
    "div_grad": ("aaa", lambda grad, a, b: (grad / b, -grad * (a / b) / b)),
    "sqrt_grad": ("aa", lambda grad, out: grad / (2 * out)),
    "square_grad": ("aa", lambda grad, x: grad * (2 * x)),
    "relu_grad": ("aa", lambda grad, out: where(out <= 0, 0.0, grad)),
    "tanh_grad": ("aa", lambda grad, out: grad * (1 - out * out)),
    "sigmoid_grad": ("aa", lambda grad, out: grad * ((1 - out) * out)),
    "zeros_like": ("a", lambda array: 0.0),
    "full_like": ("as", lambda array, value: value),
}
_IN_PLACE = {
    "fill_": ("as", lambda array, value: value),
    "sgd_": ("aan", lambda param, grad, lr: param - lr * grad),
}
_ALSO_IN_PLACE = ("add", "sub", "mul", "div", "add_scaled", "relu")

# name: whether the transpose of the first, and of the second, operand is meant
_PRODUCTS = {"matmul": (False, False), "matmul_nt": (False, True), "matmul_tn": (True, False)}
_NEED_BLAS = (*_PRODUCTS, "linear")


def _names() -> list[str]:
    return [*_ELEMENTWISE, *(f"{name}_" for name in _ALSO_IN_PLACE), *_IN_PLACE, *_PRODUCTS,
            "sum", "mean", "column_sum", "linear"]


def module_text() -> str:
    """All launchers as one LLVM module."""
    from flambeau_kernels.engine import fastcall
    from flambeau_kernels.formula import Formula
    from flambeau_kernels.scalar.words import READING

    module = fastcall.Module()
    in_place = {**{f"{name}_": _ELEMENTWISE[name] for name in _ALSO_IN_PLACE}, **_IN_PLACE}
    for name, (operands, function) in {**_ELEMENTWISE, **in_place}.items():
        formula = Formula(function).bind(READING)
        fastcall.elementwise(module, name, fastcall.Elementwise(operands, formula, name in in_place))
    for name, transposed in _PRODUCTS.items():
        fastcall.matmul(module, name, transposed)
    fastcall.total(module, "sum")
    fastcall.total(module, "mean", mean=True)
    fastcall.column_sum(module, "column_sum")
    fastcall.linear(module, "linear")
    return module.text()


# --- loading ------------------------------------------------------------------------------------------------------

@functools.cache
def _addresses() -> dict[str, int]:
    """Addresses of the compiled launchers by name."""
    symbols = {name: f"fb_{name}" for name in _names()}
    found = llvm.compile_symbols(module_text(), tuple(symbols.values()))
    return {name: found[symbol] for name, symbol in symbols.items()}

"""Which kernels run, and why: `explain` for one call, `cache_folder` and `warmup` for the compiled ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau_kernels as _kernels
from flambeau_kernels import engines

from ..tensor import Tensor

__all__ = ["backend", "cache_folder", "explain", "set_backend", "warmup"]

backend, set_backend = _kernels.backend, _kernels.set_backend


def explain(op: str | Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Call `op` and say in words what computed it: the numpy tier, a compiled loop or kernel, or a matrix product.

    Args:
        op: a function such as `fb.exp` or its name, as ``"exp"`` or ``"nn.functional.conv2d"``.
        args, kwargs: what it is called with; the call is made, twice.
    Returns: one paragraph for each compiled loop that ran, in order, with its operands, how it was cut for the threads and,
        for elementwise formulas, the LLVM IR; or the reason why none ran.
    Raises: AttributeError for a name that is no function; whatever the call raises.

    >>> said = fb.kernels.explain("reciprocal", fb.ones(4))  # ... numpy tier: 4 elements; the compiled tier pays from 256
    >>> said.startswith("reciprocal(float32 (4,)): numpy tier: ")
    True
    """
    function = _find(op) if isinstance(op, str) else op
    name = op if isinstance(op, str) else getattr(op, "__name__", repr(op))
    arguments = ", ".join(_say(a) for a in (*args, *kwargs.values()))
    head = f"{name}({arguments}): "
    if any(isinstance(a, Tensor) and a.is_cuda for a in (*args, *kwargs.values())):
        raise NotImplementedError("kernels.explain: calls on CUDA are not explained yet; FLAMBEAU_SHOW_KERNELS=name prints their PTX")
    if _kernels.backend() == "numpy":
        return head + "numpy tier: it is the backend that was chosen (FLAMBEAU_BACKEND=numpy)"
    from flambeau_kernels.engine.machine_code import llvm

    if llvm.available() is not None:
        return head + f"numpy tier: {llvm.available()}"
    ran, products = _watch(function, args, kwargs)
    note = getattr(function, "explain_call", None)        # a composition that chooses between ways says which
    if note is not None:
        products = [f"  {note(*args, **kwargs)}", *products]
    elementwise = _explain_formula(function, args) if not products else None
    if elementwise is not None and (ran or "numpy tier" in elementwise):
        return head + elementwise
    if not ran and not products:
        return head + "numpy tier: no compiled loop takes these shapes, dtypes and strides"
    return "\n".join([head + "compiled tier" + engines.account(), *products, *(f"  {what}, {_in_chunks(chunks)}" for what, chunks in ran)])


def _find(name: str) -> Callable[..., Any]:
    from importlib import import_module

    found: Any = import_module("flambeau")
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise AttributeError(f"explain: {name!r} is no function")
    return found


def _say(value: Any) -> str:
    return f"{value.dtype.name} {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)


def _in_chunks(chunks: int) -> str:
    from .. import _settings

    if chunks <= 1:
        return "in one piece"
    return f"in {chunks} chunks for up to {_settings.get_num_threads()} threads"


def _watch(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[list[tuple[str, int]], list[str]]:
    """What the native code noted during a call, and the matrix products it asked for."""
    from flambeau_kernels.cpu.products import matmul
    from flambeau_kernels.engine.launching import journal

    function(*args, **kwargs)                         # compiles and plans
    matmul._plans.clear()                             # so that products show
    before = journal.count()
    function(*args, **kwargs)
    products = [
        f"  matrix product {key[1]} @ {key[3]} in {key[0].name}: {_product(run)}" for key, run in matmul._plans.items()
    ]
    return journal.since(before), products


def _product(run: Any) -> str:
    run = getattr(run, "func", run)
    doc = (run.__doc__ or "").strip().splitlines()
    return f"{run.__module__}.{run.__qualname__.split('.')[0]}" + (f" ({doc[0]})" if doc else "")


def _explain_formula(function: Callable[..., Any], args: Any) -> str | None:
    """The engine's own account of an elementwise op; None if `function` is none, or is not called plainly."""
    from ..ops._spec import ElementwiseOp

    op = getattr(function, "flambeau_op", None)
    if not isinstance(op, ElementwiseOp) or not args or not all(isinstance(a, (Tensor, int, float)) for a in args):
        return None
    import numpy as np

    from flambeau_kernels.engine.launching.elementwise import explain as account

    given = (*args, *(op.defaults[n] for n in op.params[len(args) :] if n in op.defaults))
    if len(given) != len(op.params):
        return None
    given, compute, result, shape, _ = op.prepare(given)
    arrays = tuple(a._array if isinstance(a, Tensor) else a for a in given)
    formula, inputs = op.formula_of(arrays)
    return account(formula, inputs, (np.empty(shape, result.numpy),), compute.numpy).split(": ", 1)[1]


def cache_folder() -> str | None:
    """The folder compiled kernels are kept in between processes (FLAMBEAU_CACHE); None when there is none."""
    from flambeau_kernels.engine.machine_code import llvm

    if llvm.available() is not None:
        return None
    return llvm.disk().folder if llvm.disk().why_off is None else None


def warmup(dtypes: Sequence[str] = ("float32",)) -> None:
    """Compile the kernels most programs use into the cache, as ``python -m flambeau.warmup`` does."""
    from ..warmup import fill

    fill(dtypes)

"""From PyTorch to Flambeau and back: the counterparts of functions and values, and what differs between two results."""

from __future__ import annotations

import contextlib
import functools
import importlib
import random
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import flambeau as fb

NAMESPACES = (
    "torch", "torch.nn.functional", "torch.linalg", "torch.special", "torch.fft", "torch.Tensor", "torch.nn", "torch.optim",
    "torch.ops.aten", "torch.nested", "torch.sparse", "torch.masked", "torch.nn.utils", "torch.nn.utils.rnn",
    "torch.signal.windows", "torch.nn.init", "torch.random",
)  # fmt: skip

# Relative and absolute differences that PyTorch's own comparisons allow, by dtype.
TOLERANCES = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5), "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip


class Absent(Exception):
    """Flambeau has no such name, or says that the feature is not built."""


def at(path: str, root: Any) -> Any:
    """What the dotted `path`, which begins with torch, names below `root`. Raises: Absent."""
    found = root
    for part in path.split(".")[1:]:
        try:
            found = getattr(found, part)
        except (AttributeError, NotImplementedError) as error:
            raise Absent(f"{path}: {error}") from None
    return found


@functools.cache
def _paths() -> dict[int, str]:
    """Identity of each public function and class of PyTorch -> its path."""
    found: dict[int, str] = {}
    for namespace in NAMESPACES:
        owner = at(namespace, torch)
        for name in dir(owner):
            try:
                value = getattr(owner, name)
            except (AttributeError, RuntimeError):
                continue
            if callable(value) and (getattr(value, "__module__", None) or "torch").startswith("torch"):
                found.setdefault(id(value), f"{namespace}.{name}")
    return found


def counterpart(x: Any) -> Any:
    """Flambeau's function, class or module for PyTorch's `x`; a function of a program's own is bound to Flambeau.

    Raises: Absent.
    """
    if isinstance(x, types.ModuleType):
        if x is torch or x.__name__.startswith("torch."):
            try:
                return importlib.import_module("flambeau" + x.__name__[len("torch"):])
            except ImportError:
                return at(x.__name__, fb)
        return x
    path = _paths().get(id(x))
    if path is not None:
        return at(path, fb)
    if getattr(x, "__name__", "") == "freeze_rng_state":
        return _same_state
    if isinstance(x, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return at(f"torch.ops.{x}", fb)
    if isinstance(x, types.FunctionType):
        return _bound(x)
    if isinstance(x, functools.partial):
        return functools.partial(counterpart(x.func), *ours(x.args), **ours(x.keywords))
    return x if callable(x) else ours(x)


@contextlib.contextmanager
def _same_state() -> Iterator[None]:
    """A context after which random numbers go on as if nothing had been drawn."""
    state = fb.get_rng_state()
    try:
        yield
    finally:
        fb.set_rng_state(state)


_made: dict[int, tuple[types.FunctionType, types.FunctionType]] = {}


def _bound(f: types.FunctionType) -> types.FunctionType:
    """The function `f` of a test's, with Flambeau's names for PyTorch's."""
    if id(f) in _made:
        return _made[id(f)][1]
    names = set(f.__code__.co_names)
    for constant in f.__code__.co_consts:
        if isinstance(constant, types.CodeType):
            names |= set(constant.co_names)
    # All others stay: what `f` does not name it does not use.
    scope = dict(f.__globals__)
    cells = None if f.__closure__ is None else tuple(types.CellType() for _ in f.__closure__)
    made = types.FunctionType(f.__code__, scope, f.__name__, None, cells)
    _made[id(f)] = f, made
    scope.update({name: counterpart(f.__globals__[name]) for name in names if name in f.__globals__})
    for cell, held in zip(cells or (), f.__closure__ or (), strict=True):
        cell.cell_contents = counterpart(held.cell_contents)
    made.__defaults__, made.__kwdefaults__ = ours(f.__defaults__), ours(f.__kwdefaults__)
    return made


def ours(x: Any) -> Any:
    """PyTorch's value `x`, and what is in it, as Flambeau's: tensors have the same layout in memory of their own."""
    if isinstance(x, torch.Tensor):
        return _tensor(x)
    if isinstance(x, torch.dtype | torch.layout | torch.memory_format):
        return at(str(x), fb)
    if isinstance(x, torch.device):
        return fb.device(str(x))
    if isinstance(x, torch.Size):
        return fb.Size(x)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*map(ours, x))
    if isinstance(x, (list, tuple)):
        return type(x)([ours(y) for y in x])
    if isinstance(x, dict):
        return {key: ours(value) for key, value in x.items()}
    if isinstance(x, slice):
        return slice(ours(x.start), ours(x.stop), ours(x.step))
    if isinstance(x, torch.nn.Module):
        if not isinstance(x, torch.nn.PairwiseDistance):
            raise Absent(f"a {type(x).__name__} among the arguments, of which only the class is known")
        return fb.nn.PairwiseDistance(x.norm, x.eps, x.keepdim)
    if isinstance(x, types.FunctionType | types.BuiltinFunctionType | types.ModuleType | type) and x is not type(None):
        return counterpart(x)
    return x


def _tensor(t: torch.Tensor) -> fb.Tensor:
    if t.is_quantized or t.is_nested:
        raise Absent("quantized and nested tensors")
    if t.layout is not torch.strided:
        return _sparse(t)
    plain = t.detach().resolve_conj().resolve_neg()
    dtype = ours(t.dtype)
    filled = plain.contiguous().clone() if plain.numel() else None
    made = fb.empty_strided(tuple(t.shape), tuple(t.stride()), dtype=dtype)
    if filled is not None:
        octets = filled.reshape(-1).view(torch.uint8).numpy()
        made.copy_(fb.from_numpy(octets.copy()).view(dtype).reshape(tuple(t.shape)))
    if type(t) is torch.nn.Parameter:
        return fb.nn.Parameter(made, t.requires_grad)
    return made.requires_grad_(t.requires_grad)


def _sparse(t: torch.Tensor) -> fb.Tensor:
    """A sparse tensor of the same parts."""
    if t.layout is torch.sparse_coo:
        made = fb.sparse_coo_tensor(_tensor(t._indices()), _tensor(t.detach()._values()), tuple(t.shape), is_coalesced=t.is_coalesced())
    else:
        by_rows = t.layout in (torch.sparse_csr, torch.sparse_bsr)
        parts = (t.crow_indices(), t.col_indices()) if by_rows else (t.ccol_indices(), t.row_indices())
        made = fb.sparse_compressed_tensor(*map(_tensor, (*parts, t.detach().values())), tuple(t.shape), layout=ours(t.layout))
    return made.requires_grad_(t.requires_grad)


def seed(number: int = 0) -> None:
    """Begin the random numbers of all libraries anew."""
    random.seed(number)
    np.random.seed(number)  # what PyTorch's samples draw from
    torch.manual_seed(number)
    fb.manual_seed(number)


def tensors(x: Any) -> list[Any]:
    """The tensors of either library in `x`."""
    if isinstance(x, torch.Tensor | fb.Tensor):
        return [x]
    if isinstance(x, dict):
        return [t for y in x.values() for t in tensors(y)]
    return [t for y in x for t in tensors(y)] if isinstance(x, (list, tuple)) else []


def array(t: Any) -> np.ndarray:
    """The values of a tensor of either library, in a dtype that numpy has."""
    plain = t.detach()
    if t.layout not in (fb.strided, torch.strided):
        plain = plain.to_dense()
    if isinstance(t, torch.Tensor):
        plain = plain.resolve_conj().resolve_neg()
    name = str(t.dtype).rpartition(".")[2]
    if name in ("float16", "bfloat16") or name.startswith("float8"):
        plain = plain.float()
    if name == "complex32":
        plain = plain.to((torch if isinstance(t, torch.Tensor) else fb).complex64)
    return np.asarray(plain.numpy(force=True))


def difference(got: Any, expected: Any, values: bool = True, factor: float = 1.0) -> str:
    """What differs between Flambeau's result and PyTorch's; empty if nothing does.

    Args:
        values: whether values are compared, and not only shapes and dtypes.
        factor: times the differences that are allowed.
    """
    if isinstance(expected, torch.Tensor):
        if got is None and not array(expected).any():
            return ""                                 # a gradient of zeros that nobody computes
        if not isinstance(got, fb.Tensor):
            return f"a {type(got).__name__} for a Tensor"
        for what in ("shape", "dtype", "layout"):
            a, b = str(getattr(got, what)), str(getattr(expected, what))
            if a != b:
                return f"{what} {a}, PyTorch {b}"
        return _values(array(got), array(expected), str(expected.dtype).rpartition(".")[2], factor) if values else ""
    if isinstance(expected, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(expected):
            return f"{type(got).__name__} for {len(expected)} results"
        told = (difference(a, b, values, factor) for a, b in zip(got, expected, strict=True))
        return next(filter(None, told), "")
    if isinstance(expected, dict):
        return difference([got.get(key) for key in expected], list(expected.values()), values, factor)
    if isinstance(expected, bool | int | float | complex):
        return _values(np.asarray(got), np.asarray(expected), "float64", factor) if values else ""
    if expected is None:
        zero = isinstance(got, fb.Tensor) and not array(got).any()
        return "" if got is None or zero else f"{type(got).__name__} for None"
    return "" if str(got) == str(expected) or not values else f"{got!s:.60}, PyTorch {expected!s:.60}"


def _values(a: np.ndarray, b: np.ndarray, dtype: str, factor: float) -> str:
    relative, absolute = TOLERANCES.get(dtype, (0.0, 0.0))
    if dtype not in TOLERANCES:
        wrong = a != b
    else:
        with np.errstate(all="ignore"):
            wrong = ~np.isclose(a, b, relative * factor, absolute * factor, equal_nan=True)
    if wrong.any() and np.isfinite(b).any():
        # Sums of large terms that cancel: no more can be asked than what the largest result is computed to.
        wrong &= ~(np.abs(a - b) <= relative * factor * np.abs(b[np.isfinite(b)]).max())
    if not wrong.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} values; at {place} {a[place]!s}, PyTorch {b[place]!s}"

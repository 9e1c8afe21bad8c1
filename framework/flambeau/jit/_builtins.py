"""What scripts compute of numbers, texts, lists and dicts: functions of Python, by the names of the operators.

Integers divide and shift as Python's do. Source: PyTorch's schemas, see `script_index.json`, and its answers.
"""

from __future__ import annotations

import cmath
import functools
import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as fb

from ._value_text import format_percent, text_of_value

__all__ = ["code_of", "dtype_of", "function_of", "layout_of", "memory_format_of", "wrapped"]

# -- dtypes and layouts are numbers --------------------------------------------------------------------------------------

_DTYPES = (
    fb.uint8, fb.int8, fb.int16, fb.int32, fb.int64, fb.float16, fb.float32, fb.float64, None, fb.complex64, fb.complex128, fb.bool,
    fb.qint8, fb.quint8, fb.qint32, fb.bfloat16,
)  # fmt: skip
_CODES = {d: i for i, d in enumerate(_DTYPES) if d is not None}
_LAYOUTS = (fb.strided, fb.sparse_coo, fb.sparse_csr)
_FORMATS = (fb.contiguous_format, fb.preserve_format, fb.channels_last, fb.channels_last_3d)


def code_of(value: Any) -> Any:
    """The number of a dtype, layout or memory format; anything else as it is."""
    if isinstance(value, fb.dtype):
        return _CODES[value]
    if isinstance(value, fb.layout):
        return _LAYOUTS.index(value)
    return _FORMATS.index(value) if isinstance(value, fb.memory_format) else value


def dtype_of(code: Any) -> Any:
    """The dtype that the number stands for; None stays None."""
    return _DTYPES[code] if isinstance(code, int) else code


def layout_of(code: Any) -> Any:
    """The layout that the number stands for."""
    return _LAYOUTS[code] if isinstance(code, int) else code


def memory_format_of(code: Any) -> Any:
    """The memory format that the number stands for."""
    return _FORMATS[code] if isinstance(code, int) else code


# -- functions -----------------------------------------------------------------------------------------------------------


def _mean(name: str) -> Callable[..., Any]:
    """The function of `math`, or of `cmath` for complex numbers; numbers beyond it are nan or infinite, as in C."""
    real, of_complex = getattr(math, name), getattr(cmath, name, None)
    at_poles = _AT_POLES.get(real, lambda x: math.nan)

    def apply(x: Any) -> Any:
        if isinstance(x, complex) and of_complex is not None:
            return of_complex(x)
        try:
            return real(x)
        except ValueError:
            return at_poles(x)
        except OverflowError:
            return math.inf

    return apply


def _log_at(pole: float) -> Callable[[Any], float]:
    return lambda x: -math.inf if x == pole else math.nan


# What C gives where `math` raises, by the function of `math`.
_AT_POLES: dict[Any, Callable[[Any], float]] = {
    math.log: _log_at(0), math.log10: _log_at(0), math.log2: _log_at(0), math.log1p: _log_at(-1),
    math.atanh: lambda x: math.copysign(math.inf, x) if abs(x) == 1 else math.nan,
    math.gamma: lambda x: math.copysign(math.inf, x) if x == 0 else math.nan, math.lgamma: lambda x: math.inf,
}  # fmt: skip


def _log(x: Any, base: Any = None) -> Any:
    log = _mean("log")
    return log(x) if base is None else _divided(log(x), log(base))


def _to_integer(name: str) -> Callable[[Any], int]:
    real = getattr(math, name)

    def apply(x: Any) -> int:
        if not math.isfinite(x):
            raise RuntimeError(f"Cannot convert float {x} to integer")
        return real(x)

    return apply


def _factorial(n: int) -> int:
    if n < 0:
        raise RuntimeError("factorial() not defined for negative values")
    return math.factorial(n)


def _of_two(name: str) -> Callable[[Any, Any], float]:
    """A function of `math` of two numbers, nan where they are beyond it."""
    real = getattr(math, name)

    def apply(x: Any, y: Any) -> float:
        try:
            return real(x, y)
        except ValueError:
            return math.nan

    return apply


def _int_of(x: Any) -> int:
    return int(x.item()) if isinstance(x, fb.Tensor) else int(x)


def _float_of(x: Any) -> float:
    return float(x.item()) if isinstance(x, fb.Tensor) else float(x)


def _bool_of(x: Any) -> bool:
    return bool(x.item()) if isinstance(x, fb.Tensor) else bool(x)


def _complex_of(*x: Any) -> complex:
    return complex(*[v.item() if isinstance(v, fb.Tensor) else v for v in x])


def _divided(a: Any, b: Any) -> Any:
    if b == 0 and not isinstance(a, complex) and not isinstance(b, complex):
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a)
    return a / b


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, complex) or isinstance(b, complex):
        return a**b
    try:
        made = float(a) ** b                          # also of ints, whose powers are floats in scripts
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ZeroDivisionError:
        return math.copysign(math.inf, a) if b % 2 == 1 else math.inf
    return math.nan if isinstance(made, complex) else made


def _floor_divided(a: Any, b: Any) -> Any:
    if b != 0:
        return a // b
    if isinstance(a, int) and isinstance(b, int):
        raise RuntimeError("division by 0")
    return _divided(a, float(b))


def _remainder(a: Any, b: Any) -> Any:
    if b != 0:
        return a % b
    if isinstance(a, int) and isinstance(b, int):
        raise RuntimeError("division by 0")
    return math.nan


def _rounded(x: Any) -> float:
    return float(round(x)) if math.isfinite(x) else x


def _unwrapped(x: Any) -> Any:
    if x is None:
        raise RuntimeError("Unwrapping null optional")
    return x


def wrapped(x: int) -> int:
    """The number in 64 bits, as arithmetic of ints wraps in scripts."""
    return (x + 0x8000000000000000 & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000


def _set_item(container: Any, key: Any, value: Any) -> Any:
    container[key] = value
    return container


def _append(values: list[Any], value: Any) -> list[Any]:
    values.append(value)
    return values


def _extend(values: list[Any], more: Any) -> None:
    values.extend(more)


def _add_(values: list[Any], more: Any) -> list[Any]:
    values += more
    return values


def _mul_(values: list[Any], n: int) -> list[Any]:
    values *= n
    return values


def _insert(values: list[Any], at: int, value: Any) -> None:
    values.insert(at, value)


def _delete(container: Any, key: Any) -> None:
    del container[key]


def _pop(container: Any, *args: Any) -> Any:
    return container.pop(*args)


def _slice(x: Any, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return x[start:end:step]


def _find(values: Any, x: Any, *args: Any) -> int:
    if isinstance(values, str):
        return values.index(x, *args)
    return next(i for i, v in enumerate(values) if v is x or bool(v == x))


def _contains(container: Any, x: Any) -> bool:
    return any(v is x or bool(v == x) for v in container) if isinstance(container, list) else x in container


def _equal_lists(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(fb.equal(x, y) if isinstance(x, fb.Tensor) else x == y for x, y in zip(a, b, strict=True))
    return a == b


def _format(text: str, *values: Any) -> str:
    parts = text.split("{}")
    if len(parts) - 1 > len(values):
        raise RuntimeError(f"Too few arguments for format string: {text}")
    return parts[0] + "".join(f"{text_of_value(v)}{p}" for v, p in zip(values, parts[1:], strict=False))


def _range_length(low: int, high: int, step: int) -> int:
    if step == 0:
        raise RuntimeError("range() arg 3 must not be zero")
    return len(range(low, high, step))


def _tensor_of(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    return fb.tensor(data, dtype=dtype_of(dtype), device=device, requires_grad=requires_grad)


def _as_tensor(data: Any, *, dtype: Any = None, device: Any = None) -> Any:
    return fb.as_tensor(data, dtype=dtype_of(dtype), device=device)


def _sort(values: list[Any], reverse: bool = False) -> None:
    values.sort(reverse=reverse)


def _sum(values: Any) -> Any:
    return sum(values)


def _warn(message: str, stacklevel: int = 2) -> None:
    warnings.warn(message, stacklevel=3)


def _copied(x: Any) -> Any:
    return x.copy()


def _list_of(x: Any) -> list[Any]:
    return list(x)


def _least(a: Any, b: Any = None) -> Any:
    return min(a) if b is None else min(a, b)


def _greatest(a: Any, b: Any = None) -> Any:
    return max(a) if b is None else max(a, b)


def _split(text: str, separator: Any = None, most: int = -1) -> list[str]:
    return text.split(separator, most)


def _to(x: Any, *args: Any) -> Any:
    """`to` in the forms that `torch.ops.aten` lacks: of a device, a dtype or neither by position."""
    given = [dtype_of(a) if isinstance(a, int) and not isinstance(a, bool) else a for a in args]
    while given and given[-1] in (None, False):
        given.pop()
    return x.to(*[a for a in given if a is not None])


def _index_put_(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    return fb.ops.aten.index_put_(x, indices, values, accumulate)


def _backward(x: Any, *args: Any) -> None:
    if isinstance(x, list):
        fb.autograd.backward(x, *args)
    else:
        x.backward(*args)


def _gradients(
    outputs: list[Any], inputs: list[Any], grad_outputs: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
    allow_unused: bool = False,
) -> list[Any]:  # fmt: skip
    return list(fb.autograd.grad(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused=allow_unused))


def _in_no_grad(name: str) -> Callable[..., Any]:
    def apply(x: Any, *args: Any) -> Any:
        with fb.no_grad():
            return getattr(x, name)(*args)

    return apply


def _attribute(name: str) -> Callable[..., Any]:
    return lambda x: code_of(getattr(x, name))


_OPERATORS = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "eq": _equal_lists, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge, "floordiv": _floor_divided, "remainder": _remainder,
    "__and__": operator.and_, "__or__": operator.or_, "__xor__": operator.xor, "__lshift__": operator.lshift,
    "__rshift__": operator.rshift, "__getitem__": operator.getitem, "__contains__": _contains, "__is__": operator.is_,
    "__isnot__": operator.is_not, "__not__": operator.not_,
}  # fmt: skip


@functools.cache
def function_of(name: str) -> Callable[..., Any] | None:
    """The function that computes ``aten::len`` and the like; None for what is about tensors, or unknown."""
    namespace, _, short = name.partition("::")
    if namespace == "prim":
        if short in ("min", "max", "abs", "rangelist"):
            return {"min": _least, "max": _greatest, "abs": abs, "rangelist": lambda n: list(range(n))}[short]
        if short == "NumToTensor":
            return fb.tensor
        if short == "EnumName":
            return lambda x: x.name
        if short == "EnumValue":
            return lambda x: x.value
        return _attribute(short)
    found: Any = _OPERATORS.get(short) or _OTHERS.get(short)
    if found is not None:
        return found
    if hasattr(math, short):
        return _mean(short)
    if hasattr(str, short):
        return getattr(str, short)
    if short.startswith("_no_grad_"):
        return _in_no_grad(short.removeprefix("_no_grad_"))
    return None


def _not_equal(a: Any, b: Any) -> bool:
    return not _equal_lists(a, b)


_OTHERS: dict[str, Any] = {
    "ne": _not_equal, "div": _divided, "pow": _power, "len": len, "Int": _int_of, "Float": _float_of, "Bool": _bool_of,
    "Complex": _complex_of, "IntImplicit": _int_of, "FloatImplicit": _float_of, "ComplexImplicit": _complex_of,
    "ScalarImplicit": lambda x: x.item(), "str": text_of_value, "hash": hash, "ord": ord, "chr": chr, "bin": bin, "oct": oct, "hex": hex,
    "divmod": divmod, "round": _rounded, "append": _append, "extend": _extend, "add_": _add_, "mul_": _mul_, "insert": _insert,
    "Delete": _delete, "pop": _pop, "clear": lambda x: x.clear(), "copy": _copied, "reverse": lambda x: x.reverse(),
    "remove": lambda x, v: x.pop(_find(x, v)), "sort": _sort, "sorted": sorted, "count": lambda x, v, *a: x.count(v, *a),
    "index": _find, "slice": _slice, "list": _list_of, "dict": lambda x=(): dict(x), "keys": _list_of,
    "values": lambda x: list(x.values()), "items": lambda x: list(x.items()), "get": lambda x, k, d=None: x.get(k, d),
    "setdefault": lambda x, k, d: x.setdefault(k, d), "update": lambda x, y: x.update(y), "popitem": lambda x: x.popitem(),
    "_set_item": _set_item, "all": all, "any": any, "sum": _sum, "format": _format,
    "percentFormat": format_percent, "tensor": _tensor_of, "as_tensor": _as_tensor, "device": fb.device,
    "warn": _warn, "split": _split, "rsplit": lambda t, s=None, m=-1: t.rsplit(s, m), "gcd": math.gcd,
    "fmod": _of_two("fmod"), "log": _log, "floor": _to_integer("floor"), "ceil": _to_integer("ceil"), "factorial": _factorial,
    "atan2": math.atan2, "copysign": math.copysign, "ldexp": math.ldexp, "frexp": math.frexp, "modf": math.modf,
    "mathremainder": _of_two("remainder"), "__range_length": _range_length, "__derive_index": lambda i, low, step: low + i * step,
    "__round_to_zero_floordiv": lambda a, b: int(a / b), "size": lambda x, *d: x.size(*d) if d else list(x.size()),
    "stride": lambda x, *d: x.stride(*d) if d else list(x.stride()), "to": _to, "is_scripting": lambda: True,
    "is_grad_enabled": fb.is_grad_enabled, "set_grad_enabled": lambda v: fb._C._set_grad_enabled(v),
    "_get_tracing_state": lambda: None, "has_torch_function": lambda *a: False, "manual_seed": lambda *a: fb.manual_seed(a[0]),
    "cpu": lambda x: x.cpu(), "cuda": lambda x: x.cuda(), "numpy_T": lambda x: x.T, "mT": lambda x: x.mT, "mH": lambda x: x.mH,
    "matrix_H": lambda x: x.H,
    "is_leaf": lambda x: x.is_leaf, "element_size": lambda x: x.element_size(), "backward": _backward, "grad": _gradients,
    "dequantize": lambda x: x.dequantize(), "_unwrap_optional": _unwrapped,
    "broadcast_shapes": lambda *s: list(fb.broadcast_shapes(*s)), "angle": cmath.phase, "polar": cmath.rect,
    "is_autocast_enabled": fb.is_autocast_enabled, "is_autocast_cpu_enabled": fb.is_autocast_cpu_enabled,
    "initial_seed": fb.initial_seed, "get_autocast_dtype": lambda kind: code_of(fb.get_autocast_dtype(kind)), "seed": fb.seed,
    "Size": list, "_list_to_tensor": fb.tensor, "_tensor_to_list": lambda x: x.tolist(),
    "sym_size": lambda x, *d: x.size(*d) if d else list(x.size()), "sym_stride": lambda x, *d: x.stride(*d) if d else list(x.stride()),
    "select": lambda x, i: x[i], "index_put_": _index_put_, "_get_cpu_capability": fb.backends.cpu.get_cpu_capability,
    "index_put": lambda x, *a: _index_put_(x.clone(), *a),
    "_grad_sum_to_size": lambda x, size: x if size is None else x.sum_to_size(size), "_unsafe_index": lambda x, i: x[tuple(i)],
    "einsum": fb.einsum, "strip": str.strip, "_infer_size": lambda a, b: list(fb.broadcast_shapes(a, b)),
    "copy_": lambda x, v, *a: x.copy_(v),
}  # fmt: skip

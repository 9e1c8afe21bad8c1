"""What a call that fell over tells its user: which argument no op could have taken, or that no memory holds the result.

Ops check what users get wrong in the usual ways. What nobody thinks of (a list for a tensor, a function for a dimension, a size of
2**62) comes to light deep inside, in the words of numpy or of an attribute that is missing. Entry points bring such an exception
here: arguments are looked at only now, so calls that go well pay nothing. An exception that a line of ours raised says what it
should, and one that nothing here explains is left as it is.
"""

from __future__ import annotations

import dis
import functools
import os
from collections.abc import Callable
from operator import index
from types import TracebackType
from typing import Any

import ml_dtypes
import numpy as np

import flambeau_kernels

from .._arrays import ndarray
from .._symbolic import SymBool, SymFloat, SymInt
from ..autograd import tape
from ..devices import Size, device
from ..dtypes import BOOL, dtype
from ..tensor import Tensor
from ._parameters import has_bools, is_integer, stands_for_integer
from ._spec import ElementwiseOp, describe
from ._spec.shapes import LARGEST

__all__ = ["fell", "integers_of_bools", "refusal", "refusal_of_function", "refuse_types", "types_of"]


def refusal(
    name: str, params: Any, args: Any, defaults: Any, numbers: bool, error: Exception, types: dict[str, tuple[Any, ...]]
) -> Exception | None:
    """What to raise in place of `error`, which a call ended in; None if it says best what is wrong.

    Args:
        name: of the op, as users know it.
        params, args: names of its parameters, and what it was given for them, in order.
        defaults: of parameters that have one.
        numbers: whether numbers may stand for its tensors.
        types: of its parameters, see `types_of`.
    """
    if not fell(error):
        # Which exception a number is answered with that is too large depends on the parameter of the op that a program called.
        if isinstance(error, OverflowError):
            return _beyond(name, params, args, types)
        # An argument of another type may have been read as a size, a dimension or a flag, and then not fit the tensor.
        return None if isinstance(error, TypeError) else of_another_type(name, params, args, defaults, types, numbers)
    given = list(enumerate(zip(params, args, strict=False)))
    for at, (param, value) in given:
        default = defaults.get(param)
        words = _lacking(value, error) or _of_other_types(types.get(param, ()), value, default, numbers)
        words = words or _wrong(param, value, param in defaults, default, numbers)
        if words is not None:
            return TypeError(f"{name}(): argument '{param}' (position {at + 1}) must be {words}")
    found = _too_large(name, params, args, error, types)
    if found is not None:
        return found
    for at, (param, value) in given:
        words = _unlikely(param, value, defaults.get(param))
        if words is not None:
            return TypeError(f"{name}(): argument '{param}' (position {at + 1}) must be {words}")
    if isinstance(error, ValueError) and any(words in str(error) for words in _OF_SHAPES):
        return RuntimeError(f"{name}: shapes do not fit each other\n{describe(**dict(zip(params, args, strict=False)))}")
    return None


# -- whether somebody meant it ---------------------------------------------------------------------------------------------

_BELOW = tuple(os.path.dirname(m.__file__ or "") + os.sep for m in (np, ml_dtypes, flambeau_kernels))


def fell(error: Exception) -> bool:
    """Whether `error` came out of our code, or numpy's below it, without a line of ours that raises it."""
    step: TracebackType | None = error.__traceback__
    if step is None or isinstance(error, Warning):   # a warning that the user made an error
        return False
    while step.tb_next is not None:
        step = step.tb_next
    code = step.tb_frame.f_code
    file = code.co_filename
    if not tape.is_own_file(file) and not file.startswith(_BELOW[2]):
        return file.startswith(_BELOW) or "/scipy/" in file
    # What an attribute of a module says that is missing, a line of ours raises too; and kernels do not know the op that lacks memory.
    return isinstance(error, (AttributeError, MemoryError)) or dis.opname[code.co_code[step.tb_lasti]] != "RAISE_VARARGS"


# -- which argument --------------------------------------------------------------------------------------------------------

_NUMBERS = (int, float, complex, np.number, np.bool_, SymInt, SymFloat, SymBool)
# Classes that some parameter of some op takes. A callable, a module or a dictionary is none of them.
_PLAIN = (Tensor, ndarray, *_NUMBERS, str, type(None), list, tuple, dtype, device)

def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Parameters that are tensors wherever they occur, but for ops whose tensors may be numbers.
_TENSORS = _names("""
    input self mat mat1 mat2 vec vec1 vec2 batch1 batch2 tensor1 tensor2 input1 input2 A B L LU LU_data LU_pivots LD pivots tau x1 x2 mask
    grid theta running_mean running_var log_probs anchor positive negative sorted_sequence boundaries sorter offsets per_sample_weights
    src tensor target weight bias condition real imag query key bias_k bias_v attn_mask pos_weight weights hx
""")
_SCALARS = _names("other value end start step exponent min max alpha beta fill_value correction weight input self")
_TENSORS_OR_NUMBERS = _names("other value end exponent min max min_val max_val abs angle")
_ONE_INTEGER = _names("N dim0 dim1 dim2 start_dim end_dim dimension diagonal groups num_classes num_groups n_fft minlength chunks steps")
_BOOLS = _names("""
    keepdim inplace train training ceil_mode upper left hermitian descending largest sorted return_indices
    requires_grad pin_memory
""")
_INTEGER_LISTS = _names("""
    size sizes shape normalized_shape output_size kernel_size stride padding dilation output_padding dims split_sizes
""")


def _lacking(value: Any, error: Exception) -> str | None:
    """What `value`, or an element of it, must be, where it was asked for an attribute that a tensor has and it has not."""
    if not isinstance(error, AttributeError) or error.name is None or isinstance(error.obj, Tensor):
        return None
    kind = next((k for k, of in (("Tensor", Tensor), ("str", str), ("torch.dtype", dtype)) if hasattr(of, error.name)), None)
    if kind is None:
        return None
    if value is error.obj:
        return f"{kind}, not {type(value).__name__}"
    if isinstance(value, (list, tuple)) and any(x is error.obj for x in value):
        at = next(i for i, x in enumerate(value) if x is error.obj)
        return f"tuple of {kind}s, but element {at} is {type(error.obj).__name__}"
    return None


@functools.cache
def _types_of(operator: str, params: tuple[str, ...], flags: tuple[str, ...] = ()) -> dict[str, tuple[Any, ...]]:
    """Parameter -> the types that it has in the overloads of `operator`: of that name.

    What has another name in a schema is found by its place: the first, which is ``self`` in most, flags, and what comes after others
    that have the same names.
    """
    from .. import _aten

    found: dict[str, list[Any]] = {}
    for overload, text in _aten.index().get(operator, {}).items():
        if len(text) > 1:
            arguments = _aten.schema(operator, overload).arguments
            names = tuple(argument.name for argument in arguments)
            for at, argument in enumerate(arguments):
                found.setdefault(argument.name, []).append(argument.type)
                param = params[at] if at < len(params) else argument.name
                in_place = at == 0 or argument.type.kind == "bool" and param in flags or names[1:at] == params[1:at]
                if in_place and not argument.kwarg_only and param not in names:
                    found.setdefault(param, []).append(argument.type)
    return {param: tuple(dict.fromkeys(types)) for param, types in found.items()}


def _of_other_types(types: tuple[Any, ...], value: Any, default: Any, numbers: bool) -> str | None:
    """What the argument `value` must be, where it is of none of its parameter's `types` in schemas; None if it may be right."""
    # Text stands for numbers in schemas, and a default of a public function for another one's.
    is_text = isinstance(default, str) and not any(_kind(t) == "str" for t in types)
    without = value is None and default == ()            # stands for the empty list
    if not types or value is default or without or is_text or any(_is_of(t, value, numbers) for t in types):
        return None
    if not isinstance(value, Tensor) and hasattr(type(value), "__torch_function__"):
        return None                                   # PyTorch takes whatever overrides functions for any argument
    return f"{' or '.join(dict.fromkeys(map(_kind_name, types)))}, not {type(value).__name__}"


def of_another_type(
    name: str, params: Any, args: Any, defaults: Any, types: dict[str, tuple[Any, ...]], numbers: bool
) -> Exception | None:
    """What to say of the first argument that is of none of the types that schemas have for its parameter, or is no 64-bit integer."""
    for at, (param, value) in enumerate(zip(params, args, strict=False)):
        wanted = types.get(param, ())
        if not wanted or value is defaults.get(param, ...) or at == 0 and _kind(wanted[0]) == "str":
            continue                                  # `einsum` has operands in two orders
        if all(_kind(t) in ("int", "SymInt") for t in wanted):
            found = _beyond(name, (param,), (value,), types)
            if found is not None:
                return found
        words = _of_other_types(wanted, value, defaults.get(param, ...), numbers)
        if words is not None:
            return TypeError(f"{name}(): argument '{param}' (position {at + 1}) must be {words}")
    return None


@functools.cache
def types_of(op: Any) -> dict[str, tuple[Any, ...]]:
    """Parameter -> the types that it has in the schemas of the operator that `op` is, else in its declaration.

    Not of parameters that PyTorch reads before it calls the operator.
    """
    found = _declared_types(op) | _types_by_operator(op)
    return {param: types for param, types in found.items() if param not in op.read_in_python}


def _types_by_operator(op: Any) -> dict[str, tuple[Any, ...]]:
    from .. import _aten

    operator = _aten.name_of(op)
    if operator is None:
        return {}
    if not op.surface:
        return _types_of(operator, ())
    return _types_of(operator, op.params, tuple([n for n in op.params if isinstance(op.defaults.get(n), bool)]))


def _declared_types(op: Any) -> dict[str, tuple[Any, ...]]:
    """Parameter -> the type that the declaration of `op` has for it, where that is one that can be told."""
    from .._schema import Type

    found = {}
    for param, text in op.declared_types.items():
        kind, bar, _ = text.partition(" | None")
        if kind in ("bool", "int", "float", "Tensor"):
            found[param] = (Type("Optional", (Type(kind),)) if bar else Type(kind),)
    return found


def integers_of_objects(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """`args` with integers for objects that stand for them (`__index__`), in lists too; None if there are none."""

    def plain(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(plain, value)) if any(map(stands_for_integer, value)) else value
        return index(value) if stands_for_integer(value) else value

    made = tuple(map(plain, args))
    return made if any(x is not y for x, y in zip(made, args, strict=True)) else None


def integers_of_bools(params: Any, args: tuple[Any, ...], types: dict[str, tuple[Any, ...]]) -> tuple[Any, ...] | None:
    """`args` with integers for bools in lists that begin with an integer: by the first PyTorch tells lists of integers, and takes them.

    A tensor of one bool stands for such a list too.

    Args:
        params, types: names of the parameters, and their types in schemas; lists for other parameters than of integers stay as they are.
    Returns: None if there are none.
    """
    found = [has_bools(a) and _takes_integers(types.get(n, ()), a) for n, a in zip(params, args, strict=True)]
    made = [_of_integers(a) if has else a for has, a in zip(found, args, strict=True)]
    return tuple(made) if any(found) else None


def _of_integers(value: Any) -> Any:
    return int(value) if isinstance(value, Tensor) else [int(x) if isinstance(x, bool) else x for x in value]


def _takes_integers(types: tuple[Any, ...], value: Any) -> bool:
    lists = [t for t in types if _kind(t) in ("int", "SymInt") and ("[" in t.text())]
    if isinstance(value, Tensor):
        return bool(lists) and not any(_kind(t) == "Tensor" for t in types)
    return not types or bool(lists)


def refuse_types(op: Any, args: Any) -> None:
    """Raise what PyTorch does if one of `args` is of none of the types that the operator's schemas have for its parameter.

    Entry points ask so where an argument is not of the class that is usual for it. What was right once is right again where classes,
    and whether a default was given, are the same.
    """
    alike = _alike(op, args)
    if alike is not None and alike in _right:
        return
    found = of_another_type(op.public_name, op.params, args, op.defaults, types_of(op), isinstance(op, ElementwiseOp))
    if found is not None:
        raise found
    if alike is not None:
        if len(_right) >= _MOST_RIGHT:
            _right.clear()
        _right.add(alike)


_right: set[Any] = set()
_MOST_RIGHT = 4096


def _alike(op: Any, args: Any) -> Any:
    """What decides whether the types of `args` are right: equal for calls that are alike; None where more than that decides."""
    found: list[Any] = [op]
    for name, value in zip(op.params, args, strict=False):
        c = value.__class__
        if c in (list, tuple, Size):
            if any(x.__class__ is not int or not -LARGEST <= x <= LARGEST for x in value):
                return None
            found.append((c, len(value)))
        elif c is Tensor:
            a = value._array
            if a.__class__ is not np.ndarray:
                return None
            found.append((a.dtype, a.size == 1, a.ndim == 0))
        elif c in _SINGLE and (c is not int or -LARGEST <= value <= LARGEST):
            found.append((c, value is op.defaults.get(name)))
        else:
            return None
    return tuple(found)


_SINGLE = frozenset((int, float, bool, str, type(None)))


def _kind(wanted: Any) -> str:
    """What a type is of, be it optional or a list."""
    while wanted.inner:
        wanted = wanted.inner[0]
    return str(wanted.kind)


def _is_of(wanted: Any, value: Any, numbers: bool) -> bool:
    """Whether `value` may be given where a schema has the type `wanted`."""
    if wanted.kind == "Optional":
        return value is None or _is_of(wanted.inner[0], value, numbers)
    if wanted.kind == "List":
        inner = wanted.inner[0]
        if not isinstance(value, (list, tuple)):
            if isinstance(value, Tensor) and value.numel() == 1 and value.dtype.category == BOOL:
                return wanted.size is not None        # which PyTorch takes for several, but not for one integer
            return wanted.size is not None and inner.kind != "Tensor" and _is_of(inner, value, numbers)
        if inner.kind in ("int", "SymInt"):           # PyTorch tells by the first whether it is a list of integers
            return all(is_integer(x) or i > 0 and isinstance(x, (bool, np.bool_)) for i, x in enumerate(value))
        return all(_is_of(inner, x, numbers) for x in value)
    if wanted.kind == "Tensor":
        return isinstance(value, Tensor) or numbers and isinstance(value, _NUMBERS)
    if wanted.kind in ("int", "SymInt"):
        return is_integer(value)
    if wanted.kind == "bool":
        return isinstance(value, (bool, SymBool))
    if wanted.kind == "str":
        return isinstance(value, str)
    if wanted.kind in ("float", "Scalar", "number", "complex"):
        is_number = isinstance(value, _NUMBERS) or isinstance(value, Tensor) and value.ndim == 0
        return is_number and not (wanted.kind == "float" and isinstance(value, complex))
    return True                                       # dtypes, devices and the like: the op says what it takes


def _kind_name(wanted: Any) -> str:
    if wanted.kind == "Optional":
        return _kind_name(wanted.inner[0])
    if wanted.kind == "List":
        return f"tuple of {_kind_name(wanted.inner[0])}s"
    return str({"SymInt": "int", "Scalar": "Number", "number": "Number"}.get(wanted.kind, wanted.kind))


def _wrong(param: str, value: Any, optional: bool, default: Any, numbers: bool) -> str | None:
    """What the argument `value` for `param` must be, and is not; None if it may be right."""
    wanted = _wanted(param, default, numbers)
    if value is None and optional and default is None or isinstance(value, Tensor) and value.ndim == 0 and param != "dtype":
        return None
    given = type(value).__name__
    if wanted is not None:
        expected, fits = wanted
        return None if fits(value) else f"{expected}, not {given}"
    if value is None and not optional:
        return f"given, not {given}"
    return None if isinstance(value, _PLAIN) else f"a Tensor, a number or another plain value, not {given}"


def _wanted(param: str, default: Any, numbers: bool) -> tuple[str, Callable[[Any], bool]] | None:
    """Words for what `param` takes, and the test of it."""
    if isinstance(default, bool) or default is None and param in _BOOLS:
        return "bool", lambda x: isinstance(x, (bool, np.bool_))
    if param in _INTEGER_LISTS:
        return "int or tuple of ints", lambda x: is_integer(x) or isinstance(x, (list, tuple, str)) and all(map(_is_integer_or_text, x))
    if param in ("dim", "axis"):
        return "int or tuple of ints", lambda x: x is None or is_integer(x) or isinstance(x, (list, tuple)) and all(map(is_integer, x))
    if param in _ONE_INTEGER or isinstance(default, int):
        return "int", lambda x: x is None and default is None or is_integer(x) or not isinstance(default, int) and isinstance(x, Tensor)
    if isinstance(default, float) or param == "eps":
        return "float", lambda x: x is default or isinstance(x, _NUMBERS) and not isinstance(x, complex)
    if isinstance(default, str):
        return "str", lambda x: isinstance(x, str)
    if param in _TENSORS_OR_NUMBERS or param in _TENSORS and numbers:
        return "Tensor or Number", lambda x: isinstance(x, (Tensor, *_NUMBERS))
    if param in _TENSORS:
        return "Tensor", lambda x: isinstance(x, Tensor)
    if param in ("tensors", "operands"):
        return "tuple of Tensors", lambda x: isinstance(x, (list, tuple)) and all(isinstance(t, Tensor) for t in x)
    if param == "dtype":
        return "torch.dtype", lambda x: isinstance(x, dtype)
    return None


# Parameters that take text where their default is none.
_TEXTS = _names("""
    mode reduction norm ord p equation reduce reduction rounding_mode side kind interpolation indexing driver device layout dtype UPLO
    padding padding_mode approximate pad_mode distance_function
""")


def _unlikely(param: str, value: Any, default: Any) -> str | None:
    """What the argument `value` for `param` should be, where a call fell over and nothing says why: few take arrays, or text."""
    for x in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(x, ndarray):
            return f"given as a Tensor or a plain value, not {type(x).__name__}"
        if isinstance(x, str) and param not in _TEXTS and not isinstance(default, str):
            return f"a Tensor, a number or another plain value, not {type(x).__name__} {x!r}"
    return None


def _is_integer_or_text(value: Any) -> bool:
    return isinstance(value, str) or is_integer(value)


# -- numbers that are too large --------------------------------------------------------------------------------------------

_MOST = (1 << 63) - 1


def _too_large(name: str, params: Any, args: Any, error: Exception, types: dict[str, tuple[Any, ...]]) -> Exception | None:
    """What to say where a number or a size is out of all bounds."""
    unfit = isinstance(error, IndexError) and "cannot fit 'int'" in str(error)
    unfit = unfit or isinstance(error, TypeError) and "loop of ufunc does not support" in str(error)
    if not (unfit or isinstance(error, (ValueError, OverflowError, MemoryError))):
        return None
    found = _beyond(name, params, args, types)
    if found is not None:
        return found
    if isinstance(error, MemoryError):
        return RuntimeError(f"{name}: can't allocate memory: {error or 'more was asked for than there is'}")
    if isinstance(error, OverflowError) or any(words in str(error) for words in _OF_SIZES):
        given = ", ".join(f"{p}={v}" for p, v in zip(params, args, strict=False) if isinstance(v, (int, float)) or _is_short(v))
        return RuntimeError(f"{name}: Storage size calculation overflowed: no array can be that large ({given or error})")
    return None


def _beyond(name: str, params: Any, args: Any, types: dict[str, tuple[Any, ...]]) -> Exception | None:
    """What to say of the first argument that is no 64-bit integer, or holds one; None if there is none."""
    for param, value in zip(params, args, strict=False):
        if isinstance(value, (list, tuple)) and any(_is_beyond(x) for x in value):
            return TypeError(f"{name}(): argument '{param}' has sizes of 2**63 or more: Overflow when unpacking long long")
        number: Any = value
        if _is_beyond(number):
            kinds = {t.inner[0].kind if t.kind == "Optional" else t.kind for t in types.get(param, ())}
            is_scalar = "Scalar" in kinds if kinds - {"Tensor"} else param in _SCALARS
            if kinds == {"float"} or is_scalar and _MOST < number < 1 << 64:
                return RuntimeError(f"{name}: value cannot be converted to type int64_t without overflow: '{param}' is {number}")
            if is_scalar:
                return OverflowError(f"{name}(): argument '{param}' has more than 64 bits: int too big to convert")
            return ValueError(f"{name}(): argument '{param}' is 2**63 or more: Overflow when unpacking long long")
    return None


# What numpy says of them, and of shapes that do not fit each other.
_OF_SHAPES = ("could not be broadcast", "cannot be broadcast", "cannot reshape array")
_OF_SIZES = ("array is too big", "Maximum allowed dimension exceeded", "Maximum allowed size exceeded", "too large to be")


def _is_short(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) < 12 and all(isinstance(x, (int, float)) for x in value)


def _is_beyond(value: Any) -> bool:
    return isinstance(value, int) and not -_MOST - 1 <= value <= _MOST


def refusal_of_function(fn: Any, args: Any, kwargs: Any, error: Exception) -> Exception | None:
    """What to raise in place of `error`, which a call of a function that is no op ended in; None if it says best what is wrong."""
    import inspect

    signature = inspect.signature(fn)
    try:
        given = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    # Functions that others go on to have no defaults of their own, and None is what they pass on.
    defaults = {p.name: None if p.default is p.empty else p.default for p in signature.parameters.values()}
    name = fn.__name__.strip("_")
    return refusal(name, given.arguments, tuple(given.arguments.values()), defaults, False, error, _types_of(name, tuple(given.arguments)))

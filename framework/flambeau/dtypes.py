"""Element types: the dtype objects, promotion between them, and their numeric limits."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

import flambeau_kernels as kernels

from . import _state
from ._symbolic import SymBool, SymInt

BOOL, INTEGER, FLOATING, COMPLEX = range(4)


class dtype:
    """The type of a tensor's elements.

    Attributes: `itemsize` in bytes, `is_floating_point`, `is_complex`, `is_signed`.
    """

    __slots__ = ("name", "numpy", "itemsize", "category", "is_floating_point", "is_complex", "is_signed", "__weakref__")
    name: str
    numpy: np.dtype
    itemsize: int
    category: int
    is_floating_point: bool
    is_complex: bool
    is_signed: bool

    def __new__(cls, *args: Any) -> dtype:
        raise TypeError("cannot create 'torch.dtype' instances")

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name

    def __copy__(self) -> dtype:
        return self

    def __deepcopy__(self, memo: Any) -> dtype:
        return self

    def to_complex(self) -> dtype:
        """The complex type whose parts hold this type. Raises: RuntimeError for integers and float8."""
        if self.is_complex:
            return self
        found = _TO_COMPLEX.get(self)
        if found is None:
            raise RuntimeError(f"Unknown Complex ScalarType for {self.name}: there is no complex type with such parts")
        return found

    def to_real(self) -> dtype:
        """The floating type of a complex type's parts; any other type is returned as it is."""
        return _TO_REAL.get(self, self)


dtype.__module__ = "flambeau"
_OF_NUMPY: dict[np.dtype, dtype] = {}


def _make(name: str, scalar: Any, category: int, signed: bool = True) -> dtype:
    made = object.__new__(dtype)
    made.name, made.numpy, made.category = name, np.dtype(scalar), category
    made.itemsize, made.is_signed = made.numpy.itemsize, signed
    made.is_floating_point, made.is_complex = category == FLOATING, category == COMPLEX
    _OF_NUMPY[made.numpy] = made
    return made


bool = _make("bool", np.bool_, BOOL, signed=False)  # PyTorch's name
uint8 = _make("uint8", np.uint8, INTEGER, signed=False)
uint16 = _make("uint16", np.uint16, INTEGER, signed=False)
uint32 = _make("uint32", np.uint32, INTEGER, signed=False)
uint64 = _make("uint64", np.uint64, INTEGER, signed=False)
int8 = _make("int8", np.int8, INTEGER)
int16 = _make("int16", np.int16, INTEGER)
int32 = _make("int32", np.int32, INTEGER)
int64 = _make("int64", np.int64, INTEGER)
float16 = _make("float16", np.float16, FLOATING)
bfloat16 = _make("bfloat16", ml_dtypes.bfloat16, FLOATING)
float32 = _make("float32", np.float32, FLOATING)
float64 = _make("float64", np.float64, FLOATING)
float8_e4m3fn = _make("float8_e4m3fn", ml_dtypes.float8_e4m3fn, FLOATING)
float8_e4m3fnuz = _make("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz, FLOATING)
float8_e5m2 = _make("float8_e5m2", ml_dtypes.float8_e5m2, FLOATING)
float8_e5m2fnuz = _make("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz, FLOATING)
float8_e8m0fnu = _make("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, FLOATING, signed=False)
complex32 = _make("complex32", ml_dtypes.complex32, COMPLEX)
complex64 = _make("complex64", np.complex64, COMPLEX)
complex128 = _make("complex128", np.complex128, COMPLEX)

short, int, long, half, float, double = int16, int32, int64, float16, float32, float64  # PyTorch's names
chalf, cfloat, cdouble = complex32, complex64, complex128

# What PyTorch's errors call types, and what the classes of typed tensors and storages begin with.
SCALAR_TYPES = {
    float64: "Double", float32: "Float", float16: "Half", bfloat16: "BFloat16", uint8: "Byte", int8: "Char", int16: "Short",
    int32: "Int", int64: "Long", bool: "Bool", complex64: "ComplexFloat", complex128: "ComplexDouble", complex32: "ComplexHalf",
}  # fmt: skip

_TO_COMPLEX = {float16: complex32, bfloat16: complex64, float32: complex64, float64: complex128}
_TO_REAL = {complex32: float16, complex64: float32, complex128: float64}
_FLOAT8 = frozenset((float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu))
# Floating dtypes, and complex ones of them, that networks' layers compute in.
COMPUTED = frozenset((float16, bfloat16, float32, float64, complex64, complex128))
_BARE_UNSIGNED = frozenset((uint16, uint32, uint64))

ALL = tuple(_OF_NUMPY.values())

QUANTIZED = -1


class _Quantized(dtype):
    """Integers that stand for numbers: of quantized tensors, whose arrays are of a kind of their own, of the dtype `mark`."""

    __slots__ = ("mark",)
    mark: np.dtype

    @property
    def numpy(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]  # there is none
        raise RuntimeError(f"no plain tensor has the dtype {self}: quantize_per_tensor makes one, and dequantize() leads back")


def _quantized(name: str, scalar: Any, signed: Any) -> Any:
    made = object.__new__(_Quantized)
    # No dtype of numpy's own is equal to this one.
    made.name, made.category, made.mark = name, QUANTIZED, np.dtype([(name, scalar)])
    made.itemsize, made.is_signed, made.is_floating_point, made.is_complex = made.mark.itemsize, signed, False, False
    _OF_NUMPY[made.mark] = made
    return made


quint8: dtype = _quantized("quint8", np.uint8, False)
qint8: dtype = _quantized("qint8", np.int8, True)
qint32: dtype = _quantized("qint32", np.int32, True)
quint4x2: dtype = _quantized("quint4x2", np.uint8, False)
quint2x4: dtype = _quantized("quint2x4", np.uint8, False)
OF_QUANTIZED = (quint8, qint8, qint32, quint4x2, quint2x4)

FLOAT32, FLOAT64 = float32.numpy, float64.numpy

_default = float32


def from_numpy_dtype(array_dtype: np.dtype) -> dtype:
    """The dtype of tensors over arrays of `array_dtype`. Raises: TypeError when there is none."""
    found = _OF_NUMPY.get(array_dtype)
    if found is None:
        names = ", ".join(str(d.numpy) for d in ALL)
        raise TypeError(
            f"can't convert np.ndarray of type numpy.{array_dtype}; the supported types are {names}. "
            "Convert the array first, for instance with .astype('float32')"
        )
    return found


def stored_as(kind: dtype) -> dtype:
    """The dtype of what memory holds for elements of `kind`: of the integers of a quantized dtype, itself of any other."""
    return _OF_NUMPY[kind.mark[0]] if isinstance(kind, _Quantized) else kind


def scalar_type(kind: dtype) -> str:
    """What PyTorch's errors call `kind`: ``Long`` for int64."""
    if kind.category == QUANTIZED:
        return kind.name.replace("qu", "QU").replace("qi", "QI").replace("i", "I")
    return SCALAR_TYPES.get(kind) or kind.name[:1].upper() + kind.name[1:].replace("int", "Int")


def get_default_dtype() -> dtype:
    """The floating dtype new tensors get from Python floats."""
    return _default


def set_default_dtype(d: dtype) -> None:
    """Choose the floating dtype new tensors get. Raises: TypeError unless `d` is float16, bfloat16, float32 or float64."""
    global _default
    if d not in _TO_COMPLEX:
        raise TypeError(f"set_default_dtype: only floating-point types are supported as the default type, got {d}")
    if d is not _default:
        _default = d
        kernels.forget_plans()
        _state.note_ambient()


def default_complex() -> dtype:
    return _default.to_complex()


# -- promotion ---------------------------------------------------------------------------------------------------------


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest dtype that both may be converted to without loss of kind.

    Raises: RuntimeError for float8 with another type, and for uint16, uint32 or uint64 with another integer type.
    """
    if type1 is type2:
        return type1
    found = _PROMOTED.get((type1, type2))
    if found is None:
        found = _PROMOTED[type1, type2] = _promote(as_dtype(type1, "promote_types"), as_dtype(type2, "promote_types"))
    return found


_PROMOTED: dict[tuple[dtype, dtype], dtype] = {}


_NOT_PROMOTED = "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote {} and {}"


def _promote(a: dtype, b: dtype) -> dtype:
    if a in _FLOAT8 or b in _FLOAT8:
        raise RuntimeError(f"Promotion for Float8 Types is not supported, attempted to promote {a} and {b}")
    if a.category != b.category:
        high, low = (a, b) if a.category > b.category else (b, a)
        if (low in _BARE_UNSIGNED or high in _BARE_UNSIGNED) and (low.category == BOOL or high.category == COMPLEX):
            raise RuntimeError(_NOT_PROMOTED.format(a, b))
        if high.category == COMPLEX and low.category == FLOATING:
            return _complex_of(_promote_same(high.to_real(), low))
        return high
    if a.category == COMPLEX:
        return _complex_of(_promote_same(a.to_real(), b.to_real()))
    return _promote_same(a, b)


def _complex_of(real: dtype) -> dtype:
    return _TO_COMPLEX[real]


def _promote_same(a: dtype, b: dtype) -> dtype:
    if a is b:
        return a
    if a.category == FLOATING:
        if a.itemsize == b.itemsize:
            return float32
        return a if a.itemsize > b.itemsize else b
    if a in _BARE_UNSIGNED or b in _BARE_UNSIGNED:
        raise RuntimeError(_NOT_PROMOTED.format(a, b))
    return _OF_NUMPY[np.promote_types(a.numpy, b.numpy)]


def can_cast(from_: dtype, to: dtype) -> builtin_bool:
    """Whether promotion rules allow storing `from_` values in `to`: the kind may not shrink (complex to real, ...)."""
    source, target = as_dtype(from_, "can_cast").category, as_dtype(to, "can_cast").category
    if source == COMPLEX and target != COMPLEX:
        return False
    if source == FLOATING and target < FLOATING:
        return False
    return not (source != BOOL and target == BOOL)


def of_number(value: Any) -> dtype:
    """The dtype a Python number stands for by itself."""
    kind = type(value)
    if kind is float_type:
        return _default
    if isinstance(value, (builtin_bool, np.bool_, SymBool)):
        return bool
    if isinstance(value, (int_type, np.integer, SymInt)):
        return int64
    if isinstance(value, (complex_type, np.complexfloating)):
        return default_complex()
    return _default


builtin_bool, int_type, float_type, complex_type = True.__class__, (0).__class__, (0.0).__class__, complex
_OF_PYTHON = {float_type: float64, int_type: int64, builtin_bool: bool, complex_type: complex128}


def as_dtype(d: Any, name: str = "") -> dtype:
    """`d` as a dtype; the types float, int, bool and complex stand for PyTorch's widest.

    Raises: TypeError for another value; it says that `name`, a function, was given it.
    """
    if isinstance(d, dtype):
        return d
    try:
        found = _OF_PYTHON.get(d)
    except TypeError:
        found = None
    if found is None:
        raise TypeError(f"{name + '(): ' if name else ''}argument 'dtype' must be torch.dtype, not {type(d).__name__}")
    return found


def _dtype_of_type(d: Any) -> Any:
    """The dtype that one of Python's types of numbers stands for; `d` itself if it is none."""
    return _OF_PYTHON.get(d, d) if isinstance(d, type) else d


def check_number(value: Any, d: dtype) -> None:
    """Raise RuntimeError unless the Python number `value` can be stored as `d`.

    Integers may be negative for an unsigned dtype, where they wrap; a finite number may not become infinite in a floating one.
    """
    if isinstance(value, (complex_type, np.complexfloating)):
        if d.is_complex:
            check_number(value.real, d.to_real())
            check_number(value.imag, d.to_real())
            return
        if value.imag and d is not bool:
            raise RuntimeError(f"value cannot be converted to type {d.name} without overflow: {value} is not real")
        value = value.real
    if d.category == INTEGER:
        low, high = _LIMITS[d]
        if not isinstance(value, (float_type, np.floating)):
            inside = low <= value <= high or (not d.is_signed and 0 < -value <= high)
        else:
            inside = low <= value <= high
    else:
        value = float_type(value)                     # a half of numpy would round the limit
        inside = not abs(value) > _LARGEST.get(d.to_real() if d.is_complex else d, _INFINITY) or abs(value) == _INFINITY
    if not inside:
        raise RuntimeError(f"value cannot be converted to type {d.name} without overflow: {value}")


_LIMITS = {d: (int_type(np.iinfo(d.numpy).min), int_type(np.iinfo(d.numpy).max)) for d in ALL if d.category == INTEGER}
_LARGEST = {float16: 65504.0, bfloat16: 3.3895313892515355e38, float32: 3.4028234663852886e38}
_INFINITY = float_type("inf")


# -- limits ------------------------------------------------------------------------------------------------------------


class finfo:
    """Limits of a floating dtype: `bits`, `eps`, `max`, `min`, `tiny`, `smallest_normal`, `resolution`.

    Raises: TypeError for a dtype that is neither floating nor complex.
    """

    bits: int_type
    eps: float_type
    max: float_type
    min: float_type
    tiny: float_type
    smallest_normal: float_type
    resolution: float_type
    dtype: str

    def __init__(self, type: dtype | None = None) -> None:  # PyTorch's parameter name
        d = get_default_dtype() if type is None else _dtype_of_type(type)
        if not isinstance(d, dtype) or d.category < FLOATING:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{d}'")
        self.__dict__.update(_limits_of(d.to_real()))

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        body = ", ".join(f"{name}={getattr(self, name):g}" for name in names)
        return f"finfo({body}, dtype={self.dtype})"

    def __eq__(self, other: object) -> builtin_bool:
        return isinstance(other, finfo) and self.dtype == other.dtype

    def __hash__(self) -> int_type:
        return hash(("finfo", self.dtype))


@functools.cache
def _limits_of(d: dtype) -> dict[str, Any]:
    """The attributes of a `finfo`. Models ask for them in every call, for their masks, and they take as long as ten operations."""
    info = ml_dtypes.finfo(d.numpy)
    return {
        "bits": d.itemsize * 8,
        "eps": builtin_float(info.eps),
        "max": builtin_float(info.max),
        "min": builtin_float(info.min),
        "tiny": builtin_float(info.tiny),
        "smallest_normal": builtin_float(info.tiny),
        "resolution": builtin_float(f"1e-{int_type(info.nmant * 0.30103)}"),  # digits of the mantissa, in decimal
        "dtype": d.name,
    }


class iinfo:
    """Limits of an integer dtype: `bits`, `min`, `max`. Raises: TypeError for a floating, complex or bool dtype."""

    def __init__(self, type: dtype) -> None:  # PyTorch's parameter name
        type = _dtype_of_type(type)
        if not isinstance(type, dtype) or type.category >= FLOATING:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'")
        if type is bool:
            raise TypeError("torch.bool is not supported by torch.iinfo")
        info = np.iinfo(type.numpy)
        self.bits, self.min, self.max, self.dtype = info.bits, int_type(info.min), int_type(info.max), type.name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"

    def __eq__(self, other: object) -> builtin_bool:
        return isinstance(other, iinfo) and self.dtype == other.dtype

    def __hash__(self) -> int_type:
        return hash(("iinfo", self.dtype))


builtin_float = float_type

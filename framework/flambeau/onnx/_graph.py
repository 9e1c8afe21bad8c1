"""A graph of ONNX while it is written: values with dtypes and sizes, nodes, constants and weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import flambeau as fb

from ..tensor import Tensor
from ._scalar_types import JitScalarType
from .errors import OnnxExporterError

__all__ = ["Graph", "Value", "array_of", "imported_onnx", "onnx_type"]

Size = Any  # of a dimension: an int, or a SymInt where it is open


def imported_onnx() -> Any:
    """The package `onnx`. Raises: ImportError that names the extra where it is not installed."""
    try:
        import onnx  # pyright: ignore[reportMissingImports]  # a package that programs may lack
        from onnx import helper  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError('torch.onnx.export needs the package onnx: pip install "flambeau[onnx]"') from error
    return onnx


class Value(NamedTuple):
    """A value in the graph: its name, dtype and sizes; `shape` is None where no one needs it."""

    name: str
    dtype: Any
    shape: tuple[Size, ...] | None = None

    @property
    def ndim(self) -> int:
        """The number of dimensions. Raises: OnnxExporterError where it is not known."""
        if self.shape is None:
            raise OnnxExporterError(f"the number of dimensions of {self.name} is not known")
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether all sizes are numbers."""
        return self.shape is not None and all(isinstance(n, int) for n in self.shape)


def onnx_type(dtype: Any) -> int:
    """The number of `dtype` in ONNX. Raises: OnnxExporterError where ONNX has no such type."""
    if dtype in (fb.uint16, fb.uint32, fb.uint64):
        return {fb.uint16: 4, fb.uint32: 12, fb.uint64: 13}[dtype]
    number = JitScalarType.from_dtype(dtype).onnx_type()
    if not number:
        raise OnnxExporterError(f"ONNX has no type for {dtype}")
    return number


def array_of(x: Tensor) -> np.ndarray:
    """The elements of `x` as ONNX's package takes them; bfloat16 and eight-bit floats in the types of ml_dtypes."""
    import ml_dtypes

    x = x.detach().cpu().contiguous()
    name = str(x.dtype).removeprefix("torch.")
    if hasattr(ml_dtypes, name):
        number = fb.int16 if x.element_size() == 2 else fb.uint8
        return x.view(number).numpy().view(getattr(ml_dtypes, name))
    return x.numpy()


class Graph:
    """What translators write to.

    Args:
        opset: the version of ONNX's operators.
        reserved: names that no value inside may take.
    """

    def __init__(self, opset: int, reserved: Sequence[str] = ()) -> None:
        self.onnx = imported_onnx()
        self.opset = opset
        self.nodes: list[Any] = []
        self.weights: dict[str, Tensor | np.ndarray] = {}
        self.domains: dict[str, int] = {}             # other than ONNX's own, with their versions
        self.functions: list[Any] = []
        self.names = set(reserved)
        self.out: Any = None                          # what the operator being translated gives: a fake Tensor, a size, or several
        self.doc = ""                                 # which operator that is
        self._constants: dict[Any, Value] = {}
        self._count = 0

    def fresh(self, hint: str = "val") -> str:
        """A name that nothing has."""
        while True:
            self._count += 1
            if (name := f"{hint}_{self._count}") not in self.names:
                self.names.add(name)
                return name

    # -- nodes

    def op(
        self, kind: str, *inputs: Any, dtype: Any = None, shape: Any = None, outputs: int = 1, **attributes: Any
    ) -> Any:  # fmt: skip
        """Add a node.

        Args:
            kind: an operator of ONNX, or ``domain::operator``.
            inputs: Values, None for one that is left out, ints and lists of ints (as int64), numpy arrays.
            dtype: of the results, or a tuple with one for each; that of the first input by default.
            shape: of the result, where it is known.
            outputs: how many results there are.
            attributes: of the node. A name may end in the letter of its kind, as in ``axis_i``.
        Returns: a Value, or a tuple of them for several `outputs`.
        """
        domain, _, name = kind.rpartition("::")
        if domain == "aten" or (domain and domain not in self.domains):
            self.domains.setdefault(domain, 1)
        given = [self._input(x) for x in inputs]
        while given and given[-1] is None:
            given.pop()
        if dtype is None:
            dtype = next((x.dtype for x in given if x is not None), fb.float32)
        names = [self.fresh(name) for _ in range(outputs)]
        values = {}
        for key, value in attributes.items():
            base, _, letter = key.rpartition("_")
            if base and letter in ("i", "f", "s", "t"):
                key = base
                value = self.onnx.numpy_helper.from_array(array_of(value)) if letter == "t" else value
            if value is not None:
                values[key] = value
        node = self.onnx.helper.make_node(name, [x.name if x is not None else "" for x in given], names, domain=domain or None, **values)
        node.doc_string = self.doc
        self.nodes.append(node)
        dtypes = dtype if isinstance(dtype, tuple) else (dtype,) * outputs
        made = tuple(Value(n, d, shape) for n, d in zip(names, dtypes, strict=True))
        return made[0] if outputs == 1 else made

    def _input(self, x: Any) -> Value | None:
        if x is None or isinstance(x, Value):
            return x
        if isinstance(x, np.ndarray):
            return self.array(x)
        if isinstance(x, (list, tuple)):
            return self.sizes(x)
        return self.const(x, fb.int64 if isinstance(x, int) and not isinstance(x, bool) else None)

    def within(self, name: str, inputs: Sequence[tuple[Any, Any]], build: Callable[..., Sequence[Value]]) -> tuple[Any, list[Value]]:
        """A graph within this one, which reads values from it.

        Args:
            inputs: dtypes and sizes of its inputs; sizes may be None.
            build: takes Values for these, and writes its nodes here.
        Returns: the graph of ONNX, and what `build` gives, the results.
        """
        from ._tidy import tidied

        given = [Value(self.fresh(name), dtype, shape) for dtype, shape in inputs]
        outer, self.nodes = self.nodes, []
        try:
            made = list(build(*given))
            named = [self.op("Identity", x) for x in made]  # results are made inside, each of them once
            nodes = tidied(self.nodes, [x.name for x in named], False)
        finally:
            self.nodes = outer
        infos = [[self._info(x) for x in given], [self._info(y._replace(shape=x.shape)) for x, y in zip(made, named, strict=True)]]
        return self.onnx.helper.make_graph(nodes, self.fresh(name), *infos), made

    def _info(self, x: Value) -> Any:
        sizes = None if x.shape is None else [n if isinstance(n, int) else None for n in x.shape]
        return self.onnx.helper.make_tensor_value_info(x.name, onnx_type(x.dtype), sizes)

    # -- constants

    def array(self, x: np.ndarray) -> Value:
        """A constant."""
        key = (str(x.dtype), x.shape, x.tobytes())
        if key not in self._constants:
            name = self.fresh("const")
            self.weights[name] = x
            self._constants[key] = Value(name, fb.bfloat16 if str(x.dtype) == "bfloat16" else fb.as_tensor(x).dtype, x.shape)
        return self._constants[key]

    def const(self, x: Any, dtype: Any = None) -> Value:
        """Numbers as a constant of `dtype`; a Tensor as it is."""
        return self.array(array_of(x if isinstance(x, Tensor) else fb.tensor(x, dtype=dtype)))

    def like(self, x: Any, dtype: Any) -> Value:
        """`x`, a Value or a number, in `dtype`."""
        return self.cast(x, dtype) if isinstance(x, Value) else self.const(x, dtype)

    def cast(self, x: Value, dtype: Any) -> Value:
        """`x` in `dtype`."""
        if x.dtype is dtype:
            return x
        return self.op("Cast", x, dtype=dtype, shape=x.shape, to=onnx_type(dtype))

    # -- sizes

    def sizes(self, sizes: Sequence[Any]) -> Value:
        """A vector of int64 of numbers and scalar Values."""
        if all(isinstance(n, int) for n in sizes):
            return self.array(np.array(list(sizes), dtype=np.int64))
        parts: list[Value] = []
        plain: list[int] = []
        for n in sizes:
            if isinstance(n, int):
                plain.append(n)
                continue
            if plain:
                parts.append(self.sizes(plain))
                plain = []
            parts.append(self.op("Reshape", self.cast(n, fb.int64), [1]))
        if plain:
            parts.append(self.sizes(plain))
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    def shape_of(self, x: Value) -> Value:
        """The sizes of `x` as a vector of int64."""
        if x.is_static:
            return self.sizes(x.shape or ())
        return self.op("Shape", x, dtype=fb.int64)

    def size(self, x: Value, dim: int) -> Any:
        """The size of `x` along `dim`: an int, or a scalar Value where it is open."""
        n = None if x.shape is None else x.shape[dim]
        if isinstance(n, int):
            return n
        at = dim % x.ndim
        return self.op("Squeeze", self.op("Shape", x, dtype=fb.int64, start=at, end=at + 1), [0], shape=())

    def size_value(self, x: Value, dim: int) -> Value:
        """The size of `x` along `dim` as a scalar Value of int64."""
        n = self.size(x, dim)
        return n if isinstance(n, Value) else self.const(n, fb.int64)

    # -- what many translators write

    def reshape(self, x: Value, sizes: Sequence[Any]) -> Value:
        """`x` with other sizes: numbers, -1 for one that follows, scalar Values."""
        return self.op("Reshape", x, self.sizes(sizes), allowzero=1 if 0 in sizes else None)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """`x` with its dimensions in the order `perm`."""
        if list(perm) == list(range(len(perm))):
            return x
        shape = None if x.shape is None else tuple(x.shape[d] for d in perm)
        return self.op("Transpose", x, shape=shape, perm=list(perm))

    def unsqueeze(self, x: Value, *dims: int) -> Value:
        """`x` with new dimensions of size 1 at `dims` of the result."""
        return self.op("Unsqueeze", x, list(dims))

    def expand(self, x: Value, sizes: Any) -> Value:
        """`x` repeated along dimensions of size 1."""
        return self.op("Expand", x, sizes)

    def reduce(self, kind: str, x: Value, dims: Sequence[int] | None, keepdim: bool = False) -> Value:
        """A reduction of ONNX over `dims`, or all of them."""
        if dims is not None and not len(dims) and x.ndim == 0:
            return x
        if self.opset >= 18 or kind == "ReduceSum":
            return self.op(kind, x, None if dims is None else list(dims), keepdims=int(keepdim))
        return self.op(kind, x, axes=None if dims is None else list(dims), keepdims=int(keepdim))

    def binary(self, kind: str, a: Any, b: Any, dtype: Any = None) -> Value:
        """A node of two operands that have one dtype: `dtype`, or that which PyTorch promotes them to."""
        dtype = dtype or promoted(a, b)
        return self.op(kind, self.like(a, dtype), self.like(b, dtype))


def promoted(*operands: Any) -> Any:
    """The dtype that PyTorch's promotion gives for Values and numbers."""
    stand_ins = [fb.empty((1,) * min(len(x.shape or ()), 1), dtype=x.dtype) if isinstance(x, Value) else x for x in operands]
    if len(stand_ins) == 1:
        return stand_ins[0].dtype
    found = fb.result_type(stand_ins[0], stand_ins[1])
    for x in stand_ins[2:]:
        found = fb.promote_types(found, x.dtype if isinstance(x, Tensor) else fb.result_type(x, x))
    return found

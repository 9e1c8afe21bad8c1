"""Where and how elements are kept: device, layout, memory format, and the shape type `Size`."""

from __future__ import annotations

from typing import Any

_TYPES = frozenset(
    ["cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla",
     "lazy", "vulkan", "mps", "meta", "hpu", "mtia", "privateuseone"]
)

_renamed: dict[str, str] = {}  # ``privateuseone`` by the name that a third party has given it


def private_name() -> str:
    """What the kind of device ``privateuseone`` is called."""
    return _renamed.get("privateuseone", "privateuseone")


def rename_private(name: str) -> None:
    """Call the kind of device ``privateuseone`` `name`, once. Raises: RuntimeError for a second name, or another kind's."""
    global _TYPES
    if private_name() == name:
        return
    if _renamed:
        raise RuntimeError(f"torch.register_privateuse1_backend() has already been set! Current backend: {private_name()}")
    if name in _TYPES:
        raise RuntimeError(f"Cannot register privateuse1 backend with in-tree device name: {name}")
    _TYPES = _TYPES | {name}
    _renamed["privateuseone"] = name
    _by_text.clear()


_by_text: dict[str, device] = {}  # those that programs have named by one text, such as "cuda:1"
_MOST_KEPT = 256


class device:
    """The place a tensor's elements are kept, such as ``device('cpu')`` or ``device('cuda', 1)``.

    Raises: RuntimeError for an unknown type or a malformed string.
    """

    __slots__ = ("type", "index", "__weakref__")
    type: str
    index: int | None

    def __new__(cls, type: Any = None, index: int | None = None) -> device:  # PyTorch's parameter name
        if type.__class__ is str and index is None:
            found = _by_text.get(type)
            if found is not None:
                return found
        if isinstance(type, device):
            if index is not None:
                raise RuntimeError("device: an index may not be given along with a device")
            return type
        if isinstance(type, int) and not isinstance(type, bool):
            type, index = "cuda", type
        if isinstance(index, int) and not -(1 << 63) <= index < 1 << 63:
            raise ValueError(f"device(): Overflow when unpacking long long: the index of a device is below 2**63, got {index}")
        if not isinstance(type, str):
            raise TypeError(f"device(): argument 'device' must be torch.device or str, not {_kind(type)}")
        is_text = type.__class__ is str and index is None
        kind, index = _parse(type, index)
        made = object.__new__(cls)
        object.__setattr__(made, "type", kind)
        object.__setattr__(made, "index", index)
        if is_text and len(_by_text) < _MOST_KEPT:
            _by_text[type] = made
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"device objects are immutable; cannot set {name}")

    def __repr__(self) -> str:
        return f"device(type='{self.type}')" if self.index is None else f"device(type='{self.type}', index={self.index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and self.type == other.type and self.index == other.index

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> Any:
        return (device, (self.type,) if self.index is None else (self.type, self.index))

    def __enter__(self) -> device:
        from . import _state

        _state.push_default_device(self)
        return self

    def __exit__(self, *_: object) -> None:
        from . import _state

        _state.pop_default_device()


device.__module__ = "flambeau"


def _kind(value: Any) -> str:
    return value.__class__.__name__


def _parse(text: str, index: int | None) -> tuple[str, int | None]:
    kind, colon, tail = text.partition(":")
    kind = _renamed.get(kind, kind)
    if kind not in _TYPES:
        raise RuntimeError(f"Expected one of {', '.join(sorted(_TYPES))} device type at start of device string: {text}")
    if not colon:
        if index is not None and index < 0:
            raise RuntimeError(f"Device index must not be negative, got {index}")
        return kind, index
    if index is not None:
        raise RuntimeError(f"type (string) must not include an index because index was passed explicitly: {text}")
    if not tail.isdigit() or (len(tail) > 1 and tail[0] == "0"):
        raise RuntimeError(f"Invalid device string: '{text}'")
    return kind, int(tail)


CPU = device("cpu")
META = device("meta")


class _Named:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class layout(_Named):
    """How elements are arranged: `strided`, `sparse_coo`, `sparse_csr`, ..."""

    __slots__ = ()


class memory_format(_Named):
    """The order of dimensions in memory: `contiguous_format`, `channels_last`, `channels_last_3d`, `preserve_format`."""

    __slots__ = ()


class qscheme(_Named):
    """How a tensor is quantized: `per_tensor_affine`, `per_channel_affine`, ..."""

    __slots__ = ()


layout.__module__ = memory_format.__module__ = qscheme.__module__ = "flambeau"

strided, jagged = layout("strided"), layout("jagged")
sparse_coo, sparse_csr, sparse_csc = layout("sparse_coo"), layout("sparse_csr"), layout("sparse_csc")
sparse_bsr, sparse_bsc = layout("sparse_bsr"), layout("sparse_bsc")
contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format("preserve_format")
legacy_contiguous_format = contiguous_format          # what programs of before `preserve_format` say
per_tensor_affine, per_channel_affine = qscheme("per_tensor_affine"), qscheme("per_channel_affine")
per_tensor_symmetric, per_channel_symmetric = qscheme("per_tensor_symmetric"), qscheme("per_channel_symmetric")
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")
channels_last, channels_last_3d = memory_format("channels_last"), memory_format("channels_last_3d")


class Size(tuple):
    """A shape: a tuple of ints with `numel()`; slices, sums and products of it are Sizes again."""

    __slots__ = ()

    def __new__(cls, sizes: Any = ()) -> Size:
        items = tuple(sizes)
        for item in items:
            if item.__class__ is not int:
                return tuple.__new__(cls, _as_ints(items))
        return tuple.__new__(cls, items)

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(repr, self))}])"

    __str__ = __repr__

    def __getitem__(self, at: Any) -> Any:
        found = tuple.__getitem__(self, at)
        return tuple.__new__(Size, found) if at.__class__ is slice else found

    def __add__(self, other: Any) -> Size:
        return Size(tuple.__add__(self, tuple(other) if isinstance(other, tuple) else other))

    def __radd__(self, other: Any) -> Size:
        return Size(tuple(other) + tuple(self))

    def __mul__(self, times: Any) -> Size:
        return Size(tuple.__mul__(self, times))

    __rmul__ = __mul__

    def numel(self) -> int:
        """The number of elements of a tensor of this shape."""
        total = 1
        for n in self:
            total *= n
        return total

    def __reduce__(self) -> Any:
        return Size, (tuple(self),)


Size.__module__ = "flambeau"


def _as_ints(items: tuple[Any, ...]) -> tuple[int, ...]:
    from ._symbolic import as_size

    made = []
    for at, item in enumerate(items):
        try:
            made.append(as_size(int(item) if item.__class__ is bool else item))
        except TypeError:
            raise TypeError(
                f"torch.Size() takes an iterable of 'int' (item {at} is '{type(item).__name__}')"
            ) from None
    return tuple(made)

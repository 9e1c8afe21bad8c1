"""Making nested tensors of others, and padded tensors of nested ones."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .. import _missing
from ..tensor import Tensor
from ._nested_tensor import NestedTensor
from ._strided import StridedNestedTensor, as_strided_nested, padded


def nested_tensor(
    tensor_list: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> NestedTensor | StridedNestedTensor:
    """A nested tensor of copies of `tensor_list`, without their history.

    Args:
        tensor_list: tensors, or what `tensor` takes, of one number of dimensions; for ``torch.jagged`` they differ in size along at
            most one.
        dtype, device: of the result; those of the first tensor by default.
        layout: ``torch.strided``, the default, whose parts may differ in any size, or ``torch.jagged``, which more operations take.
        requires_grad: whether it is to have a gradient.
        pin_memory: accepted.
    Raises: RuntimeError for parts that do not go together.

    >>> nt = fb.nested.nested_tensor([fb.arange(3), fb.arange(5)], layout=fb.jagged)
    >>> nt.shape[0], nt.offsets()
    (2, tensor([0, 3, 8]))
    """
    if not isinstance(tensor_list, (list, tuple)):
        raise TypeError(f"nested_tensor(): argument 'tensor_list' must be a list, got {type(tensor_list).__name__}")
    parts = [(x.detach() if isinstance(x, Tensor) else fb.tensor(x)) for x in tensor_list]
    made = _nested_of(parts, dtype, device, layout)
    made._elements = made._elements.detach().requires_grad_(requires_grad)
    return made


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> NestedTensor | StridedNestedTensor:
    """A nested tensor of `ts`, a list of tensors or a Tensor whose first dimension is the batch; gradients reach them.

    Args:
        dtype, device, layout: as for `nested_tensor`.
    """
    if isinstance(ts, (NestedTensor, StridedNestedTensor)):
        return ts.to(device=device, dtype=dtype) if dtype is not None or device is not None else ts
    if isinstance(ts, Tensor):
        ts = ts.unbind(0)
    if not isinstance(ts, (list, tuple)) or not all(isinstance(x, Tensor) for x in ts):
        raise TypeError("as_nested_tensor(): Expected first argument to be a tensor or a list / tuple of tensors")
    return _nested_of(list(ts), dtype, device, layout)


def _nested_of(parts: list[Tensor], dtype: Any, device: Any, layout: Any) -> NestedTensor | StridedNestedTensor:
    if layout is None or layout == fb.strided:
        return as_strided_nested(parts, dtype, device)
    if layout != fb.jagged:
        raise RuntimeError(f"Specified layout is unsupported for nested tensors: {layout}")
    return _packed(parts, dtype, device)


def _packed(parts: list[Tensor], dtype: Any = None, device: Any = None) -> NestedTensor:
    if not parts:
        raise RuntimeError("Cannot construct a nested tensor from an empty tensor list")
    if any(not x.ndim for x in parts):
        raise RuntimeError("Cannot construct a nested tensor from a list of zero-dim tensors")
    if len({x.ndim for x in parts}) > 1:
        raise RuntimeError(
            f"When constructing a nested tensor, all tensors in list must have the same dim, got {[x.ndim for x in parts]}"
        )
    kinds = sorted({str(x.dtype) for x in parts})
    if len(kinds) > 1:
        raise RuntimeError(f"When constructing a nested tensor, all tensors in list must have the same dtype, got {', '.join(kinds)}")
    shapes = [tuple(x.shape) for x in parts]
    ragged = [d for d in range(len(shapes[0])) if len({s[d] for s in shapes}) > 1] or [0]
    if len(ragged) > 1:
        raise RuntimeError(
            "The given tensors differ in size along more than one dimension, and layout=torch.jagged has one ragged dimension; got "
            f"{shapes}"
        )
    first = parts[0]
    parts = [x.to(device=device or first.device, dtype=dtype or first.dtype) for x in parts]
    (at,) = ragged
    lengths = fb.tensor([s[at] for s in shapes])
    return NestedTensor(fb.cat(parts, at), _offsets_of(lengths).to(parts[0].device), None, at + 1)


def _nested_tensor_from_tensor_list(
    list: list[Tensor], dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> NestedTensor | StridedNestedTensor:  # fmt: skip
    """`as_nested_tensor` under the name of PyTorch's operator."""
    return _nested_of(list, dtype, device, layout)


def _nested_tensor_from_mask(t: Tensor, mask: Tensor, mask_check: bool = True) -> StridedNestedTensor:
    """The first places of each row of `t`, as many as `mask` is True at, as a nested tensor.

    Args:
        t: (N, L, D).
        mask: (N, L) of bools; True where a place counts, and those before it as well.
        mask_check: raise where that is not so.
    Raises: RuntimeError for other shapes and dtypes, and a gap in `mask`.
    """
    if mask.dtype != fb.bool:
        raise RuntimeError(f"Expected mask to be of ScalarType Bool, but got {mask.dtype} instead.")
    if mask.ndim != 2:
        raise RuntimeError(f"Padding mask should be 2D, got shape {tuple(mask.shape)}")
    if t.ndim != 3:
        raise RuntimeError(f"Input should be a 3D tensor, N * L * D, got shape {tuple(t.shape)}")
    if t.shape[:2] != mask.shape:
        raise RuntimeError(f"Mask size should match input size, got {tuple(mask.shape)} for an input of shape {tuple(t.shape)}")
    if mask_check and not _nested_tensor_from_mask_left_aligned(t, mask):
        raise RuntimeError("Mask must be left-aligned without gaps")
    lengths = mask.sum(1).tolist()
    return as_strided_nested([row[:length] for row, length in zip(t.unbind(), lengths, strict=True)], t.dtype, t.device)


def _nested_tensor_from_mask_left_aligned(t: Tensor, mask: Tensor) -> bool:
    """Whether the True in each row of `mask` come before all False, so that `_nested_tensor_from_mask` takes it for rows of `t`."""
    return bool((mask[:, 1:] <= mask[:, :-1]).all())


def _offsets_of(lengths: Tensor) -> Tensor:
    return fb.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def nested_tensor_from_jagged(
    values: Tensor, offsets: Tensor | None = None, lengths: Tensor | None = None, jagged_dim: int | None = None,
    min_seqlen: int | None = None, max_seqlen: int | None = None,
) -> NestedTensor:  # fmt: skip
    """A nested tensor over `values`, whose dimension `jagged_dim` has the parts one after the other.

    Args:
        values: ``(sum of lengths, *)``.
        offsets: where parts begin and the last one ends, (B + 1); from `lengths` by default.
        lengths: how long parts are, (B); with `offsets`, parts may leave holes.
        jagged_dim: which dimension is ragged, counted with the batch; 1 by default.
        min_seqlen, max_seqlen: the shortest and longest part, which are known here without them.
    Raises: RuntimeError without `offsets` and `lengths`, and where these do not fit `values`.
    """
    if not isinstance(values, Tensor) or isinstance(values, NestedTensor):
        raise RuntimeError("nested_tensor_from_jagged(): values must be a Tensor that is not nested")
    if offsets is None and lengths is None:
        raise RuntimeError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
    dim = 1 if jagged_dim is None else jagged_dim
    if not 1 <= dim <= values.ndim:
        raise RuntimeError(f"nested_tensor_from_jagged(): jagged_dim must be from 1 to {values.ndim}, got {dim}")
    if offsets is None:
        assert lengths is not None
        offsets, lengths = _offsets_of(lengths), None
    _check_places(values.shape[dim - 1], offsets, lengths)
    return NestedTensor(values.view_as(values), offsets, lengths, dim)


def _check_places(size: int, offsets: Tensor, lengths: Tensor | None) -> None:
    """Raise RuntimeError unless parts lie within a dimension of `size`, one after the other."""
    if offsets.ndim != 1 or not len(offsets) or offsets.is_floating_point() or offsets.dtype is fb.bool:
        raise RuntimeError(f"nested: offsets must be a vector of ints with one more than parts, got {offsets.dtype} {tuple(offsets.shape)}")
    at = offsets.tolist()
    if lengths is not None and (lengths.ndim != 1 or len(lengths) != len(at) - 1):
        raise RuntimeError(f"nested: lengths must have one number for each of the {len(at) - 1} parts, got {tuple(lengths.shape)}")
    ends = at[1:] if lengths is None else [a + n for a, n in zip(at, lengths.tolist(), strict=False)]
    rising = all(a <= b for a, b in zip(at, ends, strict=False))
    if min(at) < 0 or not rising or any(end > size for end in ends):
        raise RuntimeError(f"nested: parts must lie within the {size} rows of values, got offsets {at}" + (
            "" if lengths is None else f" and lengths {lengths.tolist()}"
        ))


def narrow(tensor: Tensor, dim: int, start: Any, length: Any, layout: Any = fb.strided) -> NestedTensor | StridedNestedTensor:
    """A nested tensor over `tensor` whose part i begins at ``start[i]`` of dimension 1 and has ``length[i]`` rows.

    Args:
        tensor: ``(B, N, *)``.
        dim: 1.
        start, length: ints for all parts, or int tensors (B).
        layout: ``torch.jagged``; ``torch.strided`` takes ints alone, along any dimension.
    Raises: RuntimeError for other dimensions and for rows that `tensor` has not.
    """
    if layout != fb.jagged:
        if not isinstance(start, int) or not isinstance(length, int):
            raise RuntimeError("start and length must be integers for the strided layout NT impl")
        return as_strided_nested(list(tensor.narrow(dim, start, length).unbind()))
    if dim != 1:
        raise RuntimeError(f"jagged layout only supports dim=1, got {dim}")
    batch, rows = tensor.shape[:2]

    def each(given: Any) -> Tensor:
        return given.to(fb.int64) if isinstance(given, Tensor) else fb.full((batch,), given, dtype=fb.int64)

    starts, lengths = each(start), each(length)
    if starts.shape != (batch,) or lengths.shape != (batch,):
        raise RuntimeError(
            f"nested.narrow: start and length must have {batch} numbers, got {tuple(starts.shape)} and "
            f"{tuple(lengths.shape)}"
        )
    if int(starts.min()) < 0 or int(lengths.min()) < 0 or int((starts + lengths).max()) > rows:
        raise RuntimeError(
            f"nested.narrow: rows must lie within the {rows} of dimension 1, got start {starts.tolist()}, length "
            f"{lengths.tolist()}"
        )
    values = tensor.reshape(batch * rows, *tensor.shape[2:])
    offsets = fb.cat([fb.arange(batch) * rows + starts, fb.tensor([batch * rows])])
    return NestedTensor(values, offsets, lengths, 1)


def masked_select(tensor: Tensor, mask: Tensor) -> NestedTensor:
    """The elements of each row of `tensor` that `mask` selects: ``(*, N), (*, N) -> (B, ragged)``, with all rows ``*`` as B parts.

    Args:
        mask: of dtype bool; it broadcasts to the shape of `tensor`.
    Raises: RuntimeError for other layouts and masks that do not fit.
    """
    if tensor.layout != fb.strided:
        raise RuntimeError("nested.masked_select requires a strided tensor")
    if mask.dtype is not fb.bool:
        raise RuntimeError(f"nested.masked_select: mask must be bool, got {mask.dtype}")
    chosen = mask.expand(tensor.shape)
    return NestedTensor(tensor.masked_select(chosen), _offsets_of(chosen.sum(-1).reshape(-1)), None, 1)


def to_padded_tensor(input: NestedTensor | StridedNestedTensor, padding: float, output_size: Any = None, out: Any = None) -> Tensor:
    """The parts as one Tensor, with `padding` behind the shorter ones.

    Args:
        input: ``(B, ragged, *)``, with the ragged dimension at any place.
        output_size: the shape of the result; the longest part decides by default, and longer ones of the layout jagged are cut off.
    Raises: TypeError unless `input` is nested; RuntimeError for an `output_size` of other dimensions.
    """
    if not isinstance(input, (NestedTensor, StridedNestedTensor)):
        raise TypeError(f"to_padded_tensor(): argument 'input' must be a nested tensor, got {type(input).__name__}")
    if out is not None:
        raise _missing.not_built("nested.to_padded_tensor(out=)", "assign the result")
    if isinstance(input, StridedNestedTensor):
        return padded(input, padding, output_size)
    at, sizes = input._ragged_idx, input._sizes()
    shape: list[Any] = [len(input), *input._elements.shape]
    shape[at] = max(sizes, default=0)
    if output_size is not None:
        given = list(output_size)
        if len(given) != len(shape) or given[0] != shape[0] or any(
            a != b for d, (a, b) in enumerate(zip(given, shape, strict=True)) if d not in (0, at)
        ):  # fmt: skip
            raise RuntimeError(f"to_padded_tensor(): output_size {tuple(given)} does not fit {tuple(map(str, input.shape))}")
        shape = given
    values = input._elements.movedim(at - 1, 0)
    rows, batches, places = [], [], []
    for i, (start, n) in enumerate(zip(input._starts(), sizes, strict=True)):
        kept = min(n, shape[at])
        rows.append(fb.arange(start, start + kept))
        batches.append(fb.full((kept,), i))
        places.append(fb.arange(kept))
    packed = [shape[0], shape[at], *values.shape[1:]]
    filled = values.new_full(packed, padding)
    made = filled.index_put((fb.cat(batches), fb.cat(places)), values[fb.cat(rows)])
    return made.movedim(1, at)

"""The op record: what a declaration says, and the general path every call can take.

`@elementwise`, `@reduction`, `@primitive`, `@view` and `@composite` each make an `Op` and register it under its public
name. `_derive.py` turns records into the functions and methods people call; nothing else adds to the public surface.
One module for each kind; this one hands out what declarations and the rest of the package use.
"""

from .base import EVERYWHERE, EXACTLY, FOREACH, FUNCTION, INPLACE, METHOD, NEVER, NUMPY_NAMES, OPS, OUT, Op
from .composite import CompositeOp, composite
from .elementwise import ElementwiseOp, constant_along, elementwise, looks_at, saved_tensor
from .history import rebase, register_view, renew_views, without_derivative
from .in_rows import InRows
from .memory import (
    CHANNELS,
    CHANNELS_OF_ALL,
    CHANNELS_OF_DENSE,
    CHANNELS_OF_IMAGES,
    COLUMNS,
    KEPT,
    LIKE,
    ROWS,
    placed,
)
from .overlap import refuse, refuse_shared
from .primitive import PrimitiveOp, primitive
from .reduction import (
    aligned,
    bool_dtype,
    check_nonempty,
    floating_dtype,
    reduced_shape,
    reduction,
    same_dtype,
    spread_dims,
    with_dims,
    wrap_dims,
)
from .region import Geometry, Region
from .shapes import (
    broadcast_shapes,
    check_room,
    describe,
    elsewhere,
    host_only,
    int_list,
    is_beyond,
    need_bools,
    need_int,
    need_number,
    need_sizes,
    sum_tensor_to,
    sum_to,
    sum_to_in,
)
from .view import view
from .writing import (
    NamedOnly,
    check_inplace,
    check_moved,
    check_recorded,
    check_writable,
    out_of_shape,
    refuse_other_dtype_out,
)

__all__ = [
    "CHANNELS",
    "CHANNELS_OF_ALL",
    "CHANNELS_OF_DENSE",
    "CHANNELS_OF_IMAGES",
    "COLUMNS",
    "CompositeOp",
    "EVERYWHERE",
    "EXACTLY",
    "ElementwiseOp",
    "FOREACH",
    "FUNCTION",
    "Geometry",
    "INPLACE",
    "InRows",
    "KEPT",
    "LIKE",
    "METHOD",
    "NEVER",
    "NUMPY_NAMES",
    "OPS",
    "OUT",
    "Op",
    "PrimitiveOp",
    "ROWS",
    "Region",
    "aligned",
    "bool_dtype",
    "broadcast_shapes",
    "check_inplace",
    "check_moved",
    "check_recorded",
    "check_nonempty",
    "NamedOnly",
    "check_writable",
    "composite",
    "constant_along",
    "check_room",
    "describe",
    "need_bools",
    "need_int",
    "need_number",
    "need_sizes",
    "out_of_shape",
    "elementwise",
    "floating_dtype",
    "int_list",
    "is_beyond",
    "elsewhere",
    "host_only",
    "looks_at",
    "placed",
    "primitive",
    "rebase",
    "refuse",
    "refuse_shared",
    "reduced_shape",
    "refuse_other_dtype_out",
    "reduction",
    "register_view",
    "renew_views",
    "same_dtype",
    "saved_tensor",
    "spread_dims",
    "with_dims",
    "sum_tensor_to",
    "sum_to",
    "sum_to_in",
    "view",
    "without_derivative",
    "wrap_dims",
]

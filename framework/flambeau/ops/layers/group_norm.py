"""Instance and group normalization: over channels of one sample, or groups of them."""

from __future__ import annotations

from math import prod
from typing import Any, cast

from ... import _state
from ...tensor import Tensor
from .. import _dispatch
from .._batching import run, unfolded
from .._spec import CHANNELS, FUNCTION, OUT, ROWS, check_room, composite, need_number, primitive, whole_gradients
from .._spec.plans import Plan
from .batch_norm import (
    _channels_backward,
    _check_momentum,
    _per_channel,
    bias_like,
    normalize_by_running,
    normalize_channels,
    store_tracked,
    update_each_running,
)
from .norm import (
    _like,
    _standardize_vjp,
    _wide,
    check_floating,
    depends_on,
    dtype_of_moments,
    dtype_of_statistics,
    plan_with_moments,
    shown_moment,
    with_moments,
)


@composite(
    namespace="nn.functional",
    operator="instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, True)",
    samples="x(2, 3, 4); x(2, 3, 2, 2), k(3), k(3), x(3), x(3), True", scripted_as="instance_norm",
)
def instance_norm(
    input,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    use_input_stats=True,
    momentum=0.1,
    eps=1e-5,
):
    """Standardize each channel of each image of ``(N, C, *)``, then times `weight`, plus `bias`.

    Args:
        running_mean, running_var: ``(C,)``, or None.
        weight, bias: ``(C,)``, or None.
        use_input_stats: standardize by the statistics of each image, and move the running ones towards their mean
            over the batch, in place; otherwise standardize by the running ones.
        momentum, eps: as for `nn.functional.batch_norm`.
    Raises: ValueError for a single value per channel of an image.
    Source: Ulyanov, Vedaldi and Lempitsky 2016, "Instance Normalization".
    """
    if use_input_stats and (input.ndim < 2 or prod(input.shape[2:]) == 1):
        raise ValueError(
            f"instance_norm: Expected more than 1 spatial element when training, got input size "
            f"{tuple(input.shape)}"
        )
    return _instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@composite(surface=FUNCTION, samples="x(2, 3, 4), x(3), x(3), None, None, True, 0.1, 1e-5, False")
def instance_norm__(
    input, weight, bias, running_mean, running_var, use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool
):
    """`nn.functional.instance_norm` with its arguments in another order.

    `cudnn_enabled` chooses among CUDA kernels only. Arguments as for `nn.functional.instance_norm`.
    """
    return _instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def _instance_norm(
    input: Tensor,
    mean: Any,
    variance: Any,
    weight: Any,
    bias: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    _check_momentum("instance_norm", momentum)
    if not use_input_stats:
        if mean is None or variance is None:
            raise RuntimeError(
                "instance_norm: Expected running_mean and running_var to be defined when use_input_stats is "
                "false"
            )
        return normalize_by_running(input.contiguous(), mean, variance, weight, bias, eps)
    if input.ndim >= 2:
        _per_channel(
            "instance_norm", input.shape[1], running_mean=mean, running_var=variance, weight=weight, bias=bias
        )
    x = input.contiguous()                            # row-major, as in PyTorch
    if input.ndim > 2 and not prod(input.shape[2:]):
        return _instance_norm_of_nothing(x, weight, bias, eps)
    batched = _state.INTERPRETED and hasattr(input, "_bdim")
    if mean is None and variance is None or batched or input.ndim < 2:
        out = normalize_groups(x, input.shape[1], weight, bias, eps)
        update_each_running(input, mean, variance, momentum, prod(input.shape[2:]), of_images=True)
        return out
    out, *moved = normalize_images_tracked(x, weight, bias, mean, variance, float(momentum), eps)
    store_tracked((mean, variance), moved)
    return out


def _instance_norm_of_nothing(x: Tensor, weight: Any, bias: Any, eps: float) -> Tensor:
    """Instance norm of images without elements: a batch norm of all their channels, whose parameters have gradients of zero."""
    images, channels = x.shape[:2]
    of_each = (None if p is None else p.repeat(images) for p in (weight, bias))
    return normalize_channels(x.reshape(1, images * channels, *x.shape[2:]), *of_each, eps).view(x.shape)


def _check_groups(input, num_groups, weight, bias, eps):
    if input.ndim < 2:
        raise RuntimeError(
            f"group_norm: Expected at least 2 dimensions for input tensor but received {input.ndim}"
        )
    channels = input.shape[1]
    if num_groups <= 0:
        raise RuntimeError(f"group_norm: Expected num groups to be greater than 0, got {num_groups}")
    if channels % num_groups:
        raise RuntimeError(
            f"group_norm: Expected number of channels in input to be divisible by num_groups, but got input "
            f"of shape {tuple(input.shape)} and num_groups={num_groups}"
        )
    for name, p in (("weight", weight), ("bias", bias)):
        if p is not None and (p.ndim != 1 or p.numel() != channels):
            raise RuntimeError(
                f"group_norm: Expected {name} to be a vector of size equal to the number of channels in "
                f"input, but got {name} of shape {tuple(p.shape)} and input of shape {tuple(input.shape)}"
            )
    need_number("group_norm", "eps", eps)
    check_room("group_norm", (input.shape[0], num_groups), input._array.itemsize)
    check_floating("group_norm", input=input, weight=weight, bias=bias)


@primitive(
    surface=0, tensors=("input", "weight", "bias"), keeps=True, check=_check_groups, autocast=(None, "float32"), memory=CHANNELS,
    ordering=("input",), samples="of nn.functional.group_norm",
    public_name="group_norm",
    cuda="rows.normalize_groups",
)
def normalize_groups(input, num_groups, weight=None, bias=None, eps=1e-5):
    """`group_norm`; what is kept are the moments of each group of each image."""


normalize_groups.shown_as(
    "NativeGroupNormBackward0", hides="bias_dtype", input="input", group="num_groups",
    N=lambda saved: saved["input"].shape[0], C=lambda saved: saved["input"].shape[1], HxW=lambda saved: prod(saved["input"].shape[2:]),
    result1=shown_moment("mean"), result2=shown_moment("inverse"),
)  # fmt: skip


normalize_groups.in_pieces("n_*,_,_->n_*")


@normalize_groups.kernel
def _normalize_groups(x, groups, weight, bias, eps):
    from flambeau_kernels.cpu.norm import channel_normalize

    return channel_normalize(x, groups, weight, bias, eps)


@normalize_groups.shape
def _normalize_groups_shape(input, num_groups, weight, bias, eps):
    return input.shape, input.dtype


@normalize_groups.vjp
def _normalize_groups_vjp(grad, input, num_groups, weight, bias_dtype, eps):
    if _dispatch.takes_gradients_whole():
        return normalize_groups_backward(grad, input, num_groups, weight, bias_dtype, eps)
    n, c = input.shape[:2]
    split = (n, num_groups, c // num_groups, prod(input.shape[2:]))
    x, g = _wide(input).reshape(split), _wide(grad).reshape(split)
    factor = None if weight is None else _wide(weight).reshape(1, num_groups, c // num_groups, 1)
    to_input, unit = _standardize_vjp(g, x, factor, [2, 3], eps)
    return (
        lambda: to_input.reshape(input.shape).to(input.dtype),
        lambda: _like((g * unit).sum([0, 3]).reshape(c), weight),
        lambda: depends_on(g.sum([0, 3]).reshape(c).to(bias_dtype), input),
    )


@composite(surface=0, one_node=True, samples="x(2, 4, 3), x(2, 4, 3), 2, x(4)")
def normalize_groups_backward(grad, input, num_groups: int, weight=None, bias_dtype=None, eps=1e-5):
    """The gradients of `normalize_groups` by input, weight and bias, of those that are there."""
    return whole_gradients(
        lambda input, *parameters: normalize_groups(input, num_groups, *parameters, eps),
        lambda: _normalize_groups_vjp(grad, input, num_groups, weight, bias_dtype, eps),
        grad, (input, weight, bias_like(input, bias_dtype)), (True, weight is not None, bias_dtype is not None),
    )  # fmt: skip


@normalize_groups.vjp_on_arrays
def _normalize_groups_vjp_on_arrays(grad, input, num_groups, weight, bias_dtype, kept, needs_input, needs_weight, needs_bias):
    return _channels_backward(
        grad,
        input,
        weight,
        bias_dtype,
        kept.mean,
        kept.inverse,
        num_groups,
        (needs_input, needs_weight, needs_bias),
    )


@normalize_groups.batch
def _normalize_groups_batch(level: Any, op: Any, args: Any) -> Any:
    x, groups, weight, bias, *rest = args
    if level.has(weight) or level.has(bias) or not level.size or not x.shape[0]:
        return NotImplemented
    value = level.front(x)
    return unfolded(level, run(op, value.reshape(-1, *value.shape[2:]), groups, weight, bias, *rest))


def _check_images(input, weight, bias, running_mean, running_var, momentum, eps):
    _check_groups(input, input.shape[1], weight, bias, eps)
    _per_channel("instance_norm", input.shape[1], running_mean=running_mean, running_var=running_var)


@primitive(
    surface=0, tensors=("input", "weight", "bias", "running_mean", "running_var"), keeps=True, check=_check_images,
    autocast=(None, "float32"), memory=(CHANNELS, ROWS, ROWS), ordering=("input",),
    samples="of nn.functional.instance_norm",
    public_name="instance_norm",
    cuda="rows.normalize_images_tracked",
)
def normalize_images_tracked(input, weight=None, bias=None, running_mean=None, running_var=None, momentum=0.1, eps=1e-5):
    """``(out, running_mean, running_var)``: `normalize_groups` of single channels, and running statistics moved towards the means over
    the images of their statistics, of which those that are None come out empty."""


normalize_images_tracked.recorded_as(
    normalize_groups, lambda input, weight, bias, running_mean, running_var, momentum, eps: (input, input.shape[1], weight, bias, eps)
)
normalize_images_tracked.in_pieces(lambda asked: [])


@normalize_images_tracked.kernel
def _normalize_images_tracked(x, weight, bias, running_mean, running_var, momentum, eps):
    from flambeau_kernels.cpu.norm import images_tracked

    return images_tracked(_normalize_groups(x, x.shape[1], weight, bias, eps), x, (running_mean, running_var), momentum)


@normalize_images_tracked.shape
def _normalize_images_tracked_shape(input, weight, bias, running_mean, running_var, momentum, eps):
    running = [((0,), dtype_of_moments(input)) if r is None else (r.shape, r.dtype) for r in (running_mean, running_var)]
    return [(input.shape, input.dtype), *running]


@composite(
    namespace="nn.functional", operator="group_norm",
    samples="x(2, 4, 3), 2, x(4), x(4); x(2, 6, 2, 2), 3",
)
def group_norm(input, num_groups: int, weight=None, bias=None, eps=1e-5):
    """Standardize each group of channels of each image of ``(N, C, *)``, then times `weight`, plus `bias`.

    Args:
        num_groups: into how many groups of neighbours the channels go; divides C.
        weight, bias: ``(C,)``, or None.
        eps: added to the variance, in the unit of `input` squared.
    Raises: RuntimeError unless `num_groups` divides C and the parameters are ``(C,)``; ValueError for a single value
        per group.
    Source: Wu and He 2018, "Group Normalization".
    """
    _check_several(input, num_groups)
    return normalize_groups(input, num_groups, weight, bias, eps)


def _check_several(input: Tensor, num_groups: int) -> None:
    if (
        input.ndim >= 2
        and num_groups > 0
        and input.shape[0] * input.shape[1] // num_groups * prod(input.shape[2:]) == 1
    ):
        raise ValueError(
            f"group_norm: Expected more than 1 value per channel when training, got input size "
            f"{tuple(input.shape)}"
        )


def _plan_of_groups(input: Tensor, count: int, weight: Any, bias: Any, eps: float) -> Plan | None:
    """The plan of normalizing each of `count` groups of channels of each image."""
    from flambeau_kernels.cpu.norm import Moments, planned_channels

    w, b = (None if p is None else p._array for p in (weight, bias))
    run = planned_channels(input._array, count, w, b, eps)
    if run is None:
        return None

    def taped(*arrays: Any) -> Any:
        out, *moments = run(*arrays)
        return out, Moments(*moments)

    def arguments(kept: Any, input: Tensor, weight: Any, bias: Any) -> tuple[Any, ...]:
        return input, count, weight, bias, eps

    return Plan(lambda *arrays: run(*arrays)[0], normalize_groups, arguments, taped)


@group_norm.plan(by="shape", tensors=("input", "weight", "bias"))
def _planned_group_norm(input, num_groups, weight, bias, eps):
    _check_several(input, num_groups)
    _check_groups(input, num_groups, weight, bias, eps)
    return _plan_of_groups(input, num_groups, weight, bias, eps)


@instance_norm.plan(by="shape", tensors=("input", "running_mean", "running_var", "weight", "bias"))
def _planned_instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps):
    """Without running statistics, which a call would move."""
    if running_mean is not None or running_var is not None or use_input_stats is not True or input.ndim < 2:
        return None
    if prod(input.shape[2:]) <= 1:
        return None
    _check_momentum("instance_norm", momentum)
    count = input.shape[1]
    _check_groups(input, count, weight, bias, eps)
    found = _plan_of_groups(input, count, weight, bias, eps)
    if found is None:
        return None
    taped: Any = found.taped                          # as `arguments`, which such a plan has
    run, arguments = found.run, cast(Any, found.arguments)
    return Plan(
        lambda x, mean, variance, *parameters: run(x, *parameters),
        normalize_groups,
        lambda kept, x, mean, variance, *parameters: arguments(kept, x, *parameters),
        lambda x, mean, variance, *parameters: taped(x, *parameters),
    )


@composite(surface=FUNCTION, samples="x(2, 4, 3), 2, x(4), x(4)")
def group_norm__(input, num_groups: int, weight=None, bias=None, eps=1e-5, cudnn_enabled=True):
    """`nn.functional.group_norm` of the same arguments; `cudnn_enabled` chooses among CUDA kernels only.

    See `nn.functional.group_norm`.
    """
    return normalize_groups(input, num_groups, weight, bias, eps)


@group_norm__.forwards
def _groups_as_the_function(input, num_groups, weight, bias, eps, cudnn_enabled):
    """Operands that `nn.functional.group_norm` does not refuse."""
    several = input.ndim > 1 and num_groups.__class__ is int and 0 < num_groups < input.numel()
    return group_norm.answer(input, num_groups, weight, bias, eps) if several else None


@primitive(
    surface=0, tensors=("input", "weight", "bias"), keeps=True, check=_check_groups, autocast=(None, "float32"),
    memory=(CHANNELS, ROWS, ROWS), ordering=("input",),
    samples="x(2, 4, 3), 2, x(4), x(4); x(2, 6, 2, 2), 3", public_name="native_group_norm", cuda="rows.normalize_groups_and_moments",
)
def normalize_groups_and_moments(input, num_groups, weight=None, bias=None, eps=1e-5):
    """``(out, mean, inverse)``: `normalize_groups`, and the mean and 1 / deviation of each group, each ``(N, num_groups)``."""


normalize_groups_and_moments.in_pieces("n_*,_,_->n_*,n_,n_")


normalize_groups_and_moments.shown_as(
    "NativeGroupNormBackward0", hides="bias_dtype", input="input", group="num_groups",
    N=lambda saved: saved["input"].shape[0], C=lambda saved: saved["input"].shape[1], HxW=lambda saved: prod(saved["input"].shape[2:]),
    result1=shown_moment("mean"), result2=shown_moment("inverse"),
)  # fmt: skip


@normalize_groups_and_moments.kernel
def _normalize_groups_and_moments(x, groups, weight, bias, eps):
    return with_moments(_normalize_groups(x, groups, weight, bias, eps), (x.shape[0], groups))


@normalize_groups_and_moments.shape
def _normalize_groups_and_moments_shape(input, num_groups, weight, bias, eps):
    moments = (input.shape[0], num_groups), dtype_of_moments(input)
    return [(input.shape, input.dtype), moments, moments]


@normalize_groups_and_moments.vjp
def _normalize_groups_and_moments_vjp(grad, input, num_groups, weight, bias_dtype, eps):
    to_out, to_mean, to_inverse = grad
    through_out, to_weight, to_bias = _normalize_groups_vjp(to_out, input, num_groups, weight, bias_dtype, eps)

    def to_input():
        n, c = input.shape[:2]
        x = _wide(input).reshape(n, num_groups, c // num_groups * prod(input.shape[2:]))
        centred = x - x.mean(2, True)
        inverse = ((centred * centred).mean(2, True) + eps).rsqrt()
        # The variance is a mean of squares, so that inverse ** 3 * centred / count is the slope of 1 / deviation.
        slopes = to_mean.unsqueeze(2) - to_inverse.unsqueeze(2) * inverse * inverse * inverse * centred
        found = (slopes / x.shape[2]).reshape(input.shape).to(input.dtype)
        return found + (through_out if isinstance(through_out, Tensor) else through_out())

    return to_input, to_weight, to_bias


@normalize_groups_and_moments.vjp_on_arrays(of_all=True)
def _normalize_groups_and_moments_vjp_on_arrays(grad, input, num_groups, weight, bias_dtype, kept, needs_input, needs_weight, needs_bias):
    to_out, to_mean, to_inverse = grad
    if to_out is None or to_mean is not None or to_inverse is not None:
        return None
    return _normalize_groups_vjp_on_arrays(to_out, input, num_groups, weight, bias_dtype, kept, needs_input, needs_weight, needs_bias)


@composite(surface=FUNCTION | OUT, samples="x(2, 4, 3), x(4), x(4), 2, 4, 3, 2, 1e-5", costly=True)
def native_group_norm(input, weight, bias, N: int, C: int, HxW: int, group: int, eps: float):  # PyTorch's names
    """``(out, mean, rstd)``: `group_norm`, and the mean and 1 / deviation of each group, each ``(N, group)``.

    Args:
        weight, bias, eps: as for `nn.functional.group_norm`.
        N, C, HxW: images, channels, and elements of a channel: those of `input`.
        group: number of groups.
    Raises: RuntimeError for sizes of another number of elements than `input` has.
    """
    if N * C * HxW != input.numel():
        raise RuntimeError(f"native_group_norm: expected N * C * HxW elements, {N * C * HxW}, but input has shape {tuple(input.shape)}")
    images = input if tuple(input.shape[:2]) == (N, C) else input.reshape(N, C, HxW)
    out, mean, inverse = normalize_groups_and_moments(images, group, weight, bias, eps)
    kind = dtype_of_statistics(input, weight)
    return out if images is input else out.reshape(input.shape), mean.to(kind), inverse.to(kind)


@native_group_norm.plan(by="shape", tensors=("input", "weight", "bias"), optional=("weight", "bias"))
def _planned_native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    from flambeau_kernels.cpu.norm import planned_channels

    if (*input.shape[:2], prod(input.shape[2:])) != (N, C, HxW):
        return None
    _check_groups(input, group, weight, bias, eps)
    w, b = (None if p is None else p._array for p in (weight, bias))
    run = planned_channels(input._array, group, w, b, eps)
    if run is None:
        return None
    return plan_with_moments(
        run, (input.shape[0], group), input.dtype.numpy,
        normalize_groups_and_moments, lambda kept, input, weight, bias: (input, group, weight, bias, eps), of_first=False,
    )  # fmt: skip

"""Initial values for parameters. Every function fills its tensor in place, unseen by autograd, and returns it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as fb

from .._subclass import overridable_function

Tensor = fb.Tensor

__all__ = [
    "calculate_gain",
    "uniform_",
    "normal_",
    "trunc_normal_",
    "constant_",
    "ones_",
    "zeros_",
    "eye_",
    "dirac_",
    "xavier_uniform_",
    "xavier_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "orthogonal_",
    "sparse_",
    "uniform",
    "normal",
    "constant",
    "eye",
    "dirac",
    "xavier_uniform",
    "xavier_normal",
    "kaiming_uniform",
    "kaiming_normal",
    "orthogonal",
    "sparse",
]

_GAIN_ONE = frozenset(
    {
        "linear",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "sigmoid",
    }
)
_GAINS = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which to scale initial weights so that a nonlinearity keeps the variance of its input.

    Args:
        nonlinearity: name of the function in `nn.functional`.
        param: for ``'leaky_relu'``, its negative slope; 0.01 by default.
    Raises: ValueError for an unknown name or a slope that is no number.
    """
    if nonlinearity in _GAIN_ONE:
        return 1
    if nonlinearity in _GAINS:
        return _GAINS[nonlinearity]
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"calculate_gain: negative_slope must be a number, got {slope!r}")
        return math.sqrt(2.0 / (1 + slope**2))
    raise ValueError(f"calculate_gain: unsupported nonlinearity {nonlinearity!r}")


@overridable_function
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Fill `tensor`, which is returned, from the uniform distribution on ``[a, b)``."""
    with fb.no_grad():
        return tensor.uniform_(a, b, generator=generator)


@overridable_function
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fill `tensor`, which is returned, from the normal distribution of this mean and standard deviation `std`."""
    with fb.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Fill `tensor`, which is returned, from the normal distribution cut off outside ``[a, b]``.

    Values outside are drawn again. Proposals come from the normal distribution itself, or, where fewer than 3 in 10
    of those would fall inside, from the uniform one, kept with probability proportional to the density. Warns if
    `mean` is more than two `std` outside.
    Source: Robert 1995, "Simulation of truncated normal variables", Statistics and Computing 5.
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            f"trunc_normal_: mean {mean} is more than 2 std ({std}) from [{a}, {b}]; is that intended?",
            stacklevel=2,
        )
    inside = (
        math.erf((b - mean) / (std * math.sqrt(2.0))) - math.erf((a - mean) / (std * math.sqrt(2.0)))
    ) / 2.0
    if tensor._lacks_values:
        return tensor  # nothing is drawn
    with fb.no_grad():
        if inside >= 0.3:
            return _redraw_normal(tensor, mean, std, a, b, generator)
        return _redraw_uniform(tensor, mean, std, a, b, generator)


def _redraw_normal(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    tensor.normal_(mean, std, generator=generator)
    while True:
        outside = (tensor < a) | (tensor > b)
        if not bool(outside.any()):
            return tensor
        tensor.copy_(fb.where(outside, fb.empty_like(tensor).normal_(mean, std, generator=generator), tensor))


def _redraw_uniform(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    peak = (min(max(mean, a), b) - mean) ** 2  # where the density on [a, b] is highest
    pending = None
    while pending is None or bool(pending.any()):
        proposal = fb.empty_like(tensor).uniform_(a, b, generator=generator)
        chance = fb.empty_like(tensor).uniform_(generator=generator)
        rejected = chance > fb.exp((peak - (proposal - mean) ** 2) / (2 * std**2))
        tensor.copy_(proposal if pending is None else fb.where(pending, proposal, tensor))
        pending = rejected if pending is None else pending & rejected
    return tensor


# The names of PyTorch's functions behind the public ones, which packages call.
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_ = uniform_, normal_, trunc_normal_


@overridable_function
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with `val`."""
    with fb.no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with 1."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with 0."""
    with fb.no_grad():
        return tensor.zero_()


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity, also when it is not square.

    Raises: ValueError unless it is 2-dimensional.
    """
    if tensor.dim() != 2:
        raise ValueError(f"eye_: expected a matrix, got {tensor.dim()} dimension(s)")
    with fb.no_grad():
        tensor.zero_().diagonal().fill_(1)
    return tensor


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution's weight so that it passes as many channels as possible through unchanged.

    Args:
        tensor: (out_channels, in_channels / groups, *kernel), with 1 to 3 kernel dimensions.
        groups: each group passes its own channels through.
    Raises: ValueError for other ranks, or if `groups` does not divide the output channels.
    """
    if tensor.dim() not in (3, 4, 5):
        raise ValueError(f"dirac_: expected 3, 4 or 5 dimensions, got {tensor.dim()}")
    out_channels, in_channels, *kernel = tensor.shape
    if out_channels % groups:
        raise ValueError(f"dirac_: {out_channels} output channels do not divide into {groups} groups")
    per_group = out_channels // groups
    centre = tuple(k // 2 for k in kernel)
    if tensor._lacks_values:
        return tensor  # nothing is written
    with fb.no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(per_group, in_channels)):
                tensor[(group * per_group + channel, channel, *centre)] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """How many inputs each output sees, and how many outputs each input reaches.

    Args:
        tensor: (out, in, *kernel).
    """
    if tensor.dim() < 2:
        raise ValueError(f"fan in and fan out need at least 2 dimensions, got shape {tuple(tensor.shape)}")
    receptive_field = math.prod(tensor.shape[2:])
    return tensor.size(1) * receptive_field, tensor.size(0) * receptive_field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"mode must be 'fan_in' or 'fan_out', got {mode!r}")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill `tensor` uniformly, so that variance is kept on average between forward and backward.

    Values lie within ``±gain * sqrt(6 / (fan_in + fan_out))``: of ``(out, in, *kernel)``, the elements that
    meet in one
    output and in one input. Returns: `tensor`.

    Args:
        gain: factor for the nonlinearity that follows, as `calculate_gain` gives.
    Raises: ValueError for fewer than 2 dimensions.
    Source: Glorot & Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks".
    """
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    std = gain * math.sqrt(2.0 / float(fan_in + fan_out))
    bound = math.sqrt(3.0) * std  # a uniform distribution on [-b, b] has standard deviation b / sqrt(3)
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """As `xavier_uniform_`, from a normal distribution of the same variance: ``gain ** 2 * 2 / (fan_in + fan_out)``."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(fan_in + fan_out)), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def _is_empty(tensor: Tensor) -> bool:
    if 0 not in tensor.shape:
        return False
    warnings.warn("initialising a tensor without elements does nothing", stacklevel=3)
    return True


@overridable_function
def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Fill `tensor` uniformly, so that a rectifier keeps the variance.

    Values lie within ``±gain * sqrt(3 / fan)``, with the gain of `calculate_gain`. Returns: `tensor`.

    Args:
        a: negative slope of the rectifier, for ``'leaky_relu'``.
        mode: ``'fan_in'`` keeps the variance forward, ``'fan_out'`` backward.
        nonlinearity: what follows, a name that `calculate_gain` knows.
    Source: He et al. 2015, "Delving deep into rectifiers".
    """
    if _is_empty(tensor):
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """As `kaiming_uniform_`, from a normal distribution of the same variance: ``gain ** 2 / fan``."""
    if _is_empty(tensor):
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Fill `tensor`, which is returned, with a (semi-)orthogonal matrix times `gain`.

    Dimensions after the first count as columns.
    Source: Saxe et al. 2013, "Exact solutions to the nonlinear dynamics of learning in deep linear neural networks".
    Raises: ValueError for fewer than 2 dimensions.
    """
    if tensor.dim() < 2:
        raise ValueError(f"orthogonal_: expected at least 2 dimensions, got {tensor.dim()}")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.size(0)
    columns = tensor.numel() // rows
    with fb.no_grad():
        drawn = tensor.new_empty((rows, columns)).normal_(0, 1, generator=generator)
        q, r = fb.linalg.qr(drawn.t() if rows < columns else drawn)
        # Signs fixed by R's diagonal make the distribution uniform (Mezzadri 2006, arXiv:math-ph/0609050).
        q = q * r.diagonal().sign()
        tensor.copy_((q.t() if rows < columns else q).reshape(tensor.shape)).mul_(gain)
    return tensor


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Fill a matrix `tensor` from the normal distribution of deviation `std`, then zero a part of each column.

    Args:
        sparsity: the fraction to zero, rounded up to whole elements.
    Raises: ValueError unless it is 2-dimensional.
    Source: Martens 2010, "Deep learning via Hessian-free optimization".
    """
    if tensor.dim() != 2:
        raise ValueError(f"sparse_: expected a matrix, got {tensor.dim()} dimension(s)")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    if tensor._lacks_values:
        return tensor  # nothing is drawn
    with fb.no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            tensor[fb.randperm(rows)[:zeros], column] = 0
    return tensor


def _deprecated(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The name without the underscore, from before in-place functions ended in one."""
    name = function.__name__[:-1]

    def renamed(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(f"nn.init.{name} is deprecated; use nn.init.{name}_", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    renamed.__name__ = renamed.__qualname__ = name
    renamed.__doc__ = f"Deprecated name of `{name}_`."
    return renamed


uniform = _deprecated(uniform_)
normal = _deprecated(normal_)
constant = _deprecated(constant_)
eye = _deprecated(eye_)
dirac = _deprecated(dirac_)
xavier_uniform = _deprecated(xavier_uniform_)
xavier_normal = _deprecated(xavier_normal_)
kaiming_uniform = _deprecated(kaiming_uniform_)
kaiming_normal = _deprecated(kaiming_normal_)
orthogonal = _deprecated(orthogonal_)
sparse = _deprecated(sparse_)

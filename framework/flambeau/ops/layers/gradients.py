"""Operators that compute the gradients of layers: what graphs of PyTorch's call, such as `ops.aten.convolution_backward`.

Each asks the rule of its layer, so it has the numbers of a backward pass and can be differentiated again.
"""

from __future__ import annotations

from math import prod
from typing import Any

from .._spec import OPS, composite, gradients_of
from ..pointwise.activation import hardshrink, leaky_relu, softshrink
from .conv import convolution
from .pool_adaptive import adaptive_avg_pool2d, adaptive_avg_pool3d
from .pool_means import avg_pool2d, avg_pool3d

__all__: list[str] = []


def _of_first(run: Any, grad: Any, x: Any) -> Any:
    """The gradient of ``run(x)`` by `x`."""
    return gradients_of(run, grad, (x,), (True,))[0]


# -- products ------------------------------------------------------------------------------------------------------------


@composite(
    surface=0, costly=True,
    samples=(
        "x(1, 3, 4), x(1, 2, 6), x(3, 2, 3), None, [1], [0], [1], False, [0], 1, [True, True, False]; "
        "x(1, 2, 3, 3), x(1, 2, 5, 5), x(2, 2, 3, 3), [2], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]"
    ),
)  # fmt: skip
def convolution_backward(
    grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask
):
    """The gradients of `convolution` by input, weight and bias, None where `output_mask` does not ask for them."""
    def run(x: Any, w: Any) -> Any:
        return convolution(x, w, None, stride, padding, dilation, transposed, output_padding, groups)

    to_input, to_weight = gradients_of(run, grad_output, (input, weight), output_mask[:2]) if any(output_mask[:2]) else (None, None)
    to_bias = grad_output.sum([d for d in range(grad_output.ndim) if d != 1]) if output_mask[2] else None
    return to_input, to_weight, to_bias


# -- pooling -------------------------------------------------------------------------------------------------------------


@composite(surface=0, samples="x(1, 2, 2, 2), x(1, 2, 4, 5), [2, 2], [2, 2], [0, 0], False, True, None")
def avg_pool2d_backward(grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """The gradient of `avg_pool2d` by its input `self`."""
    options = kernel_size, stride or None, padding, ceil_mode, count_include_pad, divisor_override
    return _of_first(lambda x: avg_pool2d(x, *options), grad_output, self)


@composite(surface=0, samples="x(1, 2, 2, 2, 2), x(1, 2, 4, 5, 4), [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, None")
def avg_pool3d_backward(grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """The gradient of `avg_pool3d` by its input `self`."""
    options = kernel_size, stride or None, padding, ceil_mode, count_include_pad, divisor_override
    return _of_first(lambda x: avg_pool3d(x, *options), grad_output, self)


@composite(surface=0, samples="x(1, 2, 2, 3), x(1, 2, 4, 5)")
def _adaptive_avg_pool2d_backward(grad_output, self):
    """The gradient of `adaptive_avg_pool2d` by its input `self`."""
    return _of_first(lambda x: adaptive_avg_pool2d(x, tuple(grad_output.shape[-2:])), grad_output, self)


@composite(surface=0, samples="x(1, 2, 2, 3, 2), x(1, 2, 4, 5, 4)")
def _adaptive_avg_pool3d_backward(grad_output, self):
    """The gradient of `adaptive_avg_pool3d` by its input `self`."""
    return _of_first(lambda x: adaptive_avg_pool3d(x, tuple(grad_output.shape[-3:])), grad_output, self)


def _at_places(grad: Any, self: Any, indices: Any, n: int) -> Any:
    """`grad` added up where `indices` say in the last `n` dimensions of zeros of the shape of `self`."""
    plane = prod(self.shape[-n:])
    made = grad.new_zeros((*self.shape[:-n], plane)).scatter_add(-1, indices.flatten(-n), grad.flatten(-n))
    return made.reshape(self.shape)


@composite(surface=0, reads_parts=True, samples="x(1, 2, 2, 2), x(1, 2, 4, 5), [2, 2], [2, 2], [0, 0], [1, 1], False, i(20, 1, 2, 2, 2)")
def max_pool2d_with_indices_backward(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices):
    """The gradient of `max_pool2d` by its input `self`: `grad_output` at the places `indices` of the maxima."""
    return _at_places(grad_output, self, indices, 2)


@composite(surface=0, reads_parts=True, samples="x(1, 2, 1, 2, 2), x(1, 2, 2, 4, 5), 2, 2, 0, 1, False, i(40, 1, 2, 1, 2, 2)")
def max_pool3d_with_indices_backward(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices):
    """The gradient of `max_pool3d` by its input `self`: `grad_output` at the places `indices` of the maxima."""
    return _at_places(grad_output, self, indices, 3)


@composite(surface=0, reads_parts=True, samples="x(1, 2, 2, 2), x(1, 2, 4, 5), i(20, 1, 2, 2, 2)")
def adaptive_max_pool2d_backward(grad_output, self, indices):
    """The gradient of `adaptive_max_pool2d` by its input `self`: `grad_output` at the places `indices` of the maxima."""
    return _at_places(grad_output, self, indices, 2)


@composite(surface=0, reads_parts=True, samples="x(1, 2, 1, 2, 2), x(1, 2, 2, 4, 5), i(40, 1, 2, 1, 2, 2)")
def adaptive_max_pool3d_backward(grad_output, self, indices):
    """The gradient of `adaptive_max_pool3d` by its input `self`: `grad_output` at the places `indices` of the maxima."""
    return _at_places(grad_output, self, indices, 3)


@composite(surface=0, reads_parts=True, samples="x(1, 2, 2, 2), x(1, 2, 4, 5), [2, 2], [2, 2], i(20, 1, 2, 2, 2)")
def fractional_max_pool2d_backward(grad_output, self, kernel_size, output_size, indices):
    """The gradient of `fractional_max_pool2d` by its input `self`: `grad_output` at the places `indices` of the maxima."""
    return _at_places(grad_output, self, indices, 2)


@composite(surface=0, reads_parts=True, samples="x(1, 2, 1, 2, 2), x(1, 2, 2, 4, 5), 2, 2, i(40, 1, 2, 1, 2, 2)")
def fractional_max_pool3d_backward(grad_output, self, kernel_size, output_size, indices):
    """The gradient of `fractional_max_pool3d` by its input `self`: `grad_output` at the places `indices` of the maxima."""
    return _at_places(grad_output, self, indices, 3)


# -- padding -------------------------------------------------------------------------------------------------------------


def _padding_operator(n: int) -> Any:
    def of_input(grad_output, self, padding):
        return _of_first(lambda x: OPS[f"replication_pad{n}d"].function(x, padding), grad_output, self)

    of_input.__name__ = f"replication_pad{n}d_backward"
    of_input.__doc__ = f"The gradient of `replication_pad{n}d` by its input `self`."
    sizes = [4, 5, 3][:n]
    wide = ", ".join(str(s + 3) for s in reversed(sizes))
    given = ", ".join(map(str, reversed(sizes)))
    return composite(surface=0, samples=f"x(1, 2, {wide}), x(1, 2, {given}), {[1, 2] * n}")(of_input)


for _n in (1, 2, 3):
    _padding_operator(_n)


# -- activations ---------------------------------------------------------------------------------------------------------


@composite(surface=0, reads_parts=True, samples="x(2, 3), x(2, 3), 0.5")
def hardshrink_backward(grad_out, self, lambd):
    """The gradient of `hardshrink` by its input `self`."""
    return _of_first(lambda x: hardshrink(x, lambd), grad_out, self)


@composite(surface=0, reads_parts=True, samples="x(2, 3), x(2, 3), 0.5")
def softshrink_backward(grad_output, self, lambd):
    """The gradient of `softshrink` by its input `self`."""
    return _of_first(lambda x: softshrink(x, lambd), grad_output, self)


@composite(
    surface=0, reads_parts=True,
    samples="x(2, 3), x(2, 3), k(2, 3), 0.1, 0.3, True, False; x(2, 3), x(2, 3), k(2, 3), 0.1, 0.3, False, False",
)
def rrelu_with_noise_backward(grad_output, self, noise, lower, upper, training, self_is_result):
    """The gradient of `rrelu` by its input `self`, or its result, where `noise` are the slopes that training drew."""
    if training and upper - lower > 1e-6:
        return noise * grad_output
    return _of_first(lambda x: leaky_relu(x, (lower + upper) / 2), grad_output, self)

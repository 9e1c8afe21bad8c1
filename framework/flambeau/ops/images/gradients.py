"""Operators that compute the gradients of resampled images, such as `ops.aten.upsample_bilinear2d_backward`, by the rules of these."""

from __future__ import annotations

from typing import Any

from .._spec import composite, gradients_of
from .grid_sampling import grid_sampler_2d, grid_sampler_3d
from .resampling import UPSAMPLES

__all__: list[str] = []


def _signatures(gradient: Any) -> dict[tuple[bool, int], Any]:
    """`gradient` with the parameters of the operators, by whether they align corners and the number of dimensions."""
    def nearest1(grad_output, output_size, input_size, scales: float | None = None):
        return gradient(grad_output, output_size, input_size, scales)

    def nearest2(grad_output, output_size, input_size, scales_h: float | None = None, scales_w: float | None = None):
        return gradient(grad_output, output_size, input_size, scales_h, scales_w)

    def nearest3(
        grad_output, output_size, input_size, scales_d: float | None = None, scales_h: float | None = None, scales_w: float | None = None
    ):
        return gradient(grad_output, output_size, input_size, scales_d, scales_h, scales_w)

    def linear1(grad_output, output_size, input_size, align_corners: bool, scales: float | None = None):
        return gradient(grad_output, output_size, input_size, align_corners, scales)

    def linear2(
        grad_output, output_size, input_size, align_corners: bool, scales_h: float | None = None, scales_w: float | None = None
    ):
        return gradient(grad_output, output_size, input_size, align_corners, scales_h, scales_w)

    def linear3(
        grad_output, output_size, input_size, align_corners: bool, scales_d: float | None = None, scales_h: float | None = None,
        scales_w: float | None = None
    ):
        return gradient(grad_output, output_size, input_size, align_corners, scales_d, scales_h, scales_w)

    plain = {(False, n): f for n, f in enumerate((nearest1, nearest2, nearest3), 1)}
    return {**plain, **{(True, n): f for n, f in enumerate((linear1, linear2, linear3), 1)}}


def _resampling_operator(op: Any, n: int) -> Any:
    """The gradient of the resampling `op` of `n` dimensions, as an operator of the same options."""
    def gradient(grad_output: Any, output_size: Any, input_size: Any, *options: Any) -> Any:
        return gradients_of(lambda x: op(x, output_size, *options), grad_output, (grad_output.new_zeros(tuple(input_size)),), (True,))[0]

    linear = "align_corners" in op.params
    made: Any = _signatures(gradient)[linear, n]
    made.__name__ = f"{op.name}_backward"
    made.__doc__ = f"The gradient of `{op.name}` by its input, which has the sizes `input_size`."
    large, small = [5, 7, 4][:n], [3, 4, 2][:n]
    shape = ", ".join(map(str, large))
    samples = f"x(1, 2, {shape}), {large}, {[1, 2, *small]}" + (", False" if linear else "")
    return composite(surface=0, samples=samples)(made)


for (_, _n), _op in UPSAMPLES.items():
    _resampling_operator(_op, _n)


def _sampler_operator(op: Any, samples: str) -> Any:
    """The gradients of the sampler `op` by its input and by the places, as an operator of the same options."""
    def made(grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask):
        options = interpolation_mode, padding_mode, align_corners
        if not any(output_mask):
            return None, None
        return gradients_of(lambda x, at: op(x, at, *options), grad_output, (input, grid), output_mask)

    made.__name__ = f"{op.name}_backward"
    made.__doc__ = f"The gradients of `{op.name}` by its input and by places, those of them that `output_mask` says, else None."
    return composite(surface=0, reads_parts=True, samples=f"{samples}, 0, 0, False, [True, True]")(made)


_sampler_operator(grid_sampler_2d, "x(1, 2, 3, 2), x(1, 2, 4, 3), x(1, 3, 2, 2, low=-0.9, high=0.9)")
_sampler_operator(grid_sampler_3d, "x(1, 2, 2, 3, 2), x(1, 2, 3, 4, 3), x(1, 2, 3, 2, 3, low=-0.9, high=0.9)")

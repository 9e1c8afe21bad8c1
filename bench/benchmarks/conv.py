"""Convolutions, pooling and resampling, forwards and backwards, and the memory a convolution needs beside its result.

    cd bench && asv run --python=same --quick --bench conv
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape, dtype=np.float32)


# Function, input, weight, options.
CONVOLUTIONS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, int]]] = {
    "3x3": ("conv2d", (8, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
    "3x3 stride 2": ("conv2d", (8, 64, 56, 56), (128, 64, 3, 3), {"padding": 1, "stride": 2}),
    "3x3 deep": ("conv2d", (8, 256, 4, 4), (256, 256, 3, 3), {"padding": 1}),
    "1x1": ("conv2d", (8, 256, 28, 28), (128, 256, 1, 1), {}),
    "7x7 stride 2": ("conv2d", (4, 3, 224, 224), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
    "depthwise": ("conv2d", (8, 128, 56, 56), (128, 1, 3, 3), {"padding": 1, "groups": 128}),
    "small": ("conv2d", (1, 8, 16, 16), (8, 8, 3, 3), {"padding": 1}),
    "1-d": ("conv1d", (16, 64, 1024), (64, 64, 3), {"padding": 1}),
    "3-d": ("conv3d", (2, 16, 8, 28, 28), (32, 16, 3, 3, 3), {"padding": 1}),
    "transposed": ("conv_transpose2d", (8, 64, 28, 28), (64, 32, 4, 4), {"padding": 1, "stride": 2}),
}
POOLS: dict[str, Callable[[Any, Any], Any]] = {
    "max 3x3 stride 2": lambda F, x: F.max_pool2d(x, 3, stride=2, padding=1),
    "mean 2x2": lambda F, x: F.avg_pool2d(x, 2),
    "adaptive mean": lambda F, x: F.adaptive_avg_pool2d(x, 1),
    "nearest x2": lambda F, x: F.interpolate(x, scale_factor=2, mode="nearest"),
    "bilinear x2": lambda F, x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
    "reflected": lambda F, x: F.pad(x, (2, 2, 2, 2), mode="reflect"),
}


class Convolution:
    """Seconds of one call, and of one with gradients of input and weight."""

    params: ClassVar[Any] = [["flambeau", "torch"], list(CONVOLUTIONS)]
    param_names: ClassVar[Any] = ["package", "convolution"]

    def setup(self, package: str, name: str) -> None:
        try:
            T = importlib.import_module(package)
        except ImportError as error:
            raise NotImplementedError(f"{package} is not installed here") from error  # asv skips the benchmark
        function, x, w, options = CONVOLUTIONS[name]
        call = getattr(T.nn.functional, function)
        plain, weight = T.from_numpy(normal(*x)), T.from_numpy(normal(*w, seed=1))
        self.forward = lambda: call(plain, weight, **options)
        leaves = plain.clone().requires_grad_(), weight.clone().requires_grad_()

        def step() -> None:
            for leaf in leaves:
                leaf.grad = None
            call(*leaves, **options).sum().backward()

        self.step = step
        self.forward()
        self.step()

    def time_forward(self, package: str, name: str) -> None:
        self.forward()

    def time_with_gradients(self, package: str, name: str) -> None:
        self.step()

    def peakmem_with_gradients(self, package: str, name: str) -> None:
        self.step()


class Pool:
    """Seconds of one call over 128 planes of 64 x 64, and of one with its gradient."""

    params: ClassVar[Any] = [["flambeau", "torch"], list(POOLS)]
    param_names: ClassVar[Any] = ["package", "operation"]

    def setup(self, package: str, name: str) -> None:
        try:
            T = importlib.import_module(package)
        except ImportError as error:
            raise NotImplementedError(f"{package} is not installed here") from error  # asv skips the benchmark
        self.F, self.call = T.nn.functional, POOLS[name]
        self.plain = T.from_numpy(normal(4, 32, 64, 64))
        self.leaf = self.plain.clone().requires_grad_()
        self.time_forward(package, name)
        self.time_with_gradient(package, name)

    def time_forward(self, package: str, name: str) -> None:
        self.call(self.F, self.plain)

    def time_with_gradient(self, package: str, name: str) -> None:
        self.leaf.grad = None
        self.call(self.F, self.leaf).sum().backward()

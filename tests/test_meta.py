"""Tensors of the meta device, which have shapes, dtypes and strides and no elements: nothing is computed, whatever the sizes."""

from __future__ import annotations

from typing import Any

from comparing import disagreements


def test_creation_on_meta_takes_no_memory(oracle: Any) -> None:
    programs = """
    torch.arange(10**13, device='meta')
    torch.arange(0, 10**12, dtype=torch.float32, device='meta')
    torch.range(0, 1e12, device='meta')
    torch.linspace(0, 1, 10**12, device='meta')
    torch.linspace(0, torch.tensor(1., device='meta'), 10**12, device='meta')
    torch.linspace(0, torch.tensor(1., device='meta'), 10)
    torch.logspace(0, 1, 10**12, dtype=torch.float64, device='meta')
    torch.arange(10**12, out=torch.empty(0, dtype=torch.int64, device='meta'))
    torch.eye(10**6, device='meta')
    torch.eye(10**6, 10**7, dtype=torch.bool, device='meta')
    torch.tril_indices(10**6, 10**6, device='meta')
    torch.triu_indices(10**6, 10**5, 5, device='meta')
    torch.empty_strided((10**6, 10**6), (1, 10**6), device='meta')
    torch.empty_permuted((10**6, 10**6), (1, 0), device='meta')
    torch.randn(10**6, 10**6, device='meta')
    torch.randperm(10**12, device='meta')
    torch.normal(0., 1., (10**12,), device='meta')
    torch.hann_window(10**12, device='meta')
    torch.kaiser_window(10**12, periodic=False, device='meta')
    torch.signal.windows.gaussian(10**12, device='meta')
    torch.fft.fftfreq(10**12, device='meta')
    torch.fft.rfftfreq(10**12, device='meta')
    torch.full_like(torch.empty(10**6, 10**6, device='meta'), 2)
    """

    assert not disagreements(oracle, programs)

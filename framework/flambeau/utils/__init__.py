"""Helpers around training: `data` and the rest. Each submodule is imported the first time it is used."""

from __future__ import annotations

from .._on_demand import names_on_demand

__getattr__, __dir__ = names_on_demand(
    __name__,
    {
        ".backend_registration": ("generate_methods_for_privateuse1_backend", "rename_privateuse1_backend"),
        ".throughput_benchmark": ("ThroughputBenchmark",),
        "._tensors": ("get_cpp_backtrace", "set_module", "swap_tensors"),
    },
    folder=__path__,
)

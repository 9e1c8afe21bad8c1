"""The functions of `cuda` that seed its generators, under the name of PyTorch's module."""

from __future__ import annotations

from .._on_demand import names_on_demand

__getattr__, __dir__ = names_on_demand(
    __name__,
    {
        "flambeau.cuda": (
            "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all",
            "set_rng_state", "set_rng_state_all",
        )
    },
)  # fmt: skip

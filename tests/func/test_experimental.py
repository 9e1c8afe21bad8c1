"""What programs import from ``functorch.experimental``."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import flambeau as fb
from flambeau._functorch import experimental


@pytest.mark.parametrize("chunks", [1, 2, 3, 7, 20])
def test_chunk_vmap_gives_what_vmap_gives(chunks: int) -> None:
    x, y = fb.randn(7, 3), fb.randn(3, 7)

    def f(a: Any, b: Any) -> Any:
        return (a * b).sum(), a

    found = experimental.chunk_vmap(f, in_dims=(0, 1), out_dims=(0, 1), chunks=chunks)(x, y)
    expected = fb.func.vmap(f, in_dims=(0, 1), out_dims=(0, 1))(x, y)
    assert all(fb.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.oracle
@pytest.mark.parametrize("chunks", [1, 2, 3, 4, 7])
def test_pieces_are_those_of_pytorch(chunks: int, oracle: Any) -> None:
    from functorch.experimental import chunk_vmap

    def sizes(framework: Any, chunked: Any) -> list[int]:
        seen: list[int] = []

        def f(x: Any) -> Any:
            seen.append(1)
            return x * 2

        chunked(f, chunks=chunks)(framework.ones(7, 2))
        return seen

    assert sizes(fb, experimental.chunk_vmap) == sizes(oracle, chunk_vmap)


def test_chunks_must_be_some() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        experimental.chunk_vmap(lambda x: x, chunks=0)


def test_programs_find_it_under_pytorchs_name() -> None:
    program = (
        "import torch\n"
        "from functorch.experimental import chunk_vmap, functionalize, control_flow\n"
        "from functorch.experimental.control_flow import cond, map\n"
        "print(cond(torch.tensor(True), lambda x: x + 1, lambda x: x, (torch.ones(1),)).item())\n"
        "print(map(lambda x: x * 2, torch.ones(2)).sum().item())\n"
        "import functorch, torch._functorch.config, functorch.compile\n"
        "from torch._functorch import apis, eager_transforms, functional_call\n"
        "torch._functorch.config.donated_buffer = False\n"
        "print(functorch.compile.config.donated_buffer)\n"
        "print(apis.vmap is functorch.vmap is torch.vmap, eager_transforms.jacrev is torch.func.jacrev)"
    )
    environment = {**os.environ, "FLAMBEAU_AS_TORCH": "1"}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert ran.stdout == "2.0\n4.0\nFalse\nTrue True\n", ran.stderr

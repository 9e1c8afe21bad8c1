"""Graphs that fail or differ: comparing them, making them smaller, and scripts that show it."""

from __future__ import annotations

import copy
import os
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from .. import _state, autograd
from ..compiler._backends import names
from ..fx.graph_module import GraphModule
from ..ops._spec.base import OPS
from ..tensor import Tensor
from ..utils import _pytree as pytree

__all__ = [
    "AccuracyError", "backend_accuracy_fails", "clone_inputs_retaining_gradness", "minifier_dir", "rand_strided", "repro_script",
    "run_fwd_maybe_bwd", "same_two_models", "write_repro",
]  # fmt: skip

_RTOL, _ATOL = 1e-3, 1e-3                             # of comparisons with a backend of the program's own


class AccuracyError(Exception):
    """A backend computes other numbers than the graph that it was given."""


def minifier_dir() -> str:
    """The folder of scripts that show failures: ``minifier`` in the debug folder, which is made."""
    from ..compiler._explain import debug_folder

    folder = os.path.join(debug_folder(), "minifier")
    os.makedirs(folder, exist_ok=True)
    return folder


def clone_inputs_retaining_gradness(example_inputs: Sequence[Any]) -> list[Any]:
    """Copies of inputs, which require grad where they do."""
    return [x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else copy.deepcopy(x) for x in example_inputs]


def rand_strided(size: Sequence[int], stride: Sequence[int], dtype: Any = None, device: Any = "cpu", requires_grad: bool = False) -> Tensor:
    """A tensor of this shape, strides and dtype: normal numbers, or whole ones from 0 to 9, of the generator with the seed 0.

    Args:
        size, stride: of each dimension, in elements.
        dtype: the default one if None.
        device: where it is; the CPU alone.
        requires_grad: of a floating dtype.
    """
    import numpy as np

    from .. import dtypes, from_numpy

    dtype = dtype or dtypes.get_default_dtype()
    need = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if all(size) else 0
    draw = np.random.default_rng(0)
    floating = dtype.is_floating_point or dtype.is_complex
    numbers = draw.standard_normal(need) if floating else draw.integers(0, 2 if dtype is dtypes.bool else 10, need)
    return from_numpy(numbers).to(dtype).to(device).as_strided(tuple(size), tuple(stride)).requires_grad_(requires_grad)


def run_fwd_maybe_bwd(gm: Callable[..., Any], args: Sequence[Any], only_fwd: bool = False, disable_clone: bool = False) -> list[Any]:
    """Results of a graph, and unless `only_fwd` the gradients of its inputs by their sum; inputs are copied first.

    Args:
        gm: a function of `args`.
        disable_clone: take `args` themselves.
    """
    given = list(args) if disable_clone else clone_inputs_retaining_gradness(args)
    results = [x for x in pytree.tree_leaves(gm(*given)) if isinstance(x, Tensor)]
    back = [y for y in results if y.requires_grad and (y.is_floating_point() or y.is_complex())]
    wanted = [x for x in given if isinstance(x, Tensor) and x.requires_grad]
    if only_fwd or not back or not wanted or not _state.grad_enabled():
        return results
    grads = autograd.grad([y.real.sum() if y.is_complex() else y.sum() for y in back], wanted, allow_unused=True)
    return [*results, *grads]


def same_two_models(
    gm: Callable[..., Any], opt_gm: Callable[..., Any], example_inputs: Sequence[Any], only_fwd: bool = False, *,
    require_fp64: bool = False, ignore_non_fp: bool = False,
) -> bool:  # fmt: skip
    """Whether two functions give the same results and gradients, to 1e-3, or to the distance that the first has from float64.

    Args:
        gm, opt_gm: functions of `example_inputs`, which they do not share.
        only_fwd: do not compare gradients.
        require_fp64: raise RuntimeError if the first cannot be run in float64.
        ignore_non_fp: do not compare results that are not floating.
    """
    expected, found = run_fwd_maybe_bwd(gm, example_inputs, only_fwd), run_fwd_maybe_bwd(opt_gm, example_inputs, only_fwd)
    if len(expected) != len(found):
        return False
    exact: Any = [None] * len(expected)
    try:
        exact = run_fwd_maybe_bwd(gm, [_doubled(x) for x in example_inputs], only_fwd)
    except Exception as error:  # it works in one dtype alone
        if require_fp64:
            raise RuntimeError(f"same_two_models: the graph cannot be run in float64: {error}") from error
    return all(_agree(a, b, c, ignore_non_fp) for a, b, c in zip(expected, found, exact, strict=True))


def _doubled(x: Any) -> Any:
    return x.detach().double().requires_grad_(x.requires_grad) if isinstance(x, Tensor) and x.is_floating_point() else x


def _agree(a: Any, b: Any, exact: Any, ignore_non_fp: bool) -> bool:
    if a is None or b is None:
        return a is b
    if a.shape != b.shape or a.dtype is not b.dtype:
        return False
    if not (a.is_floating_point() or a.is_complex()):
        return ignore_non_fp or a.equal(b)
    if a.allclose(b, _RTOL, _ATOL, equal_nan=True):
        return True
    if exact is None or exact.dtype is a.dtype:
        return False
    off, others = ((x.double() - exact).nan_to_num().square().mean().sqrt().item() for x in (a, b))
    return others <= 2 * off + 1e-12


def backend_accuracy_fails(
    gm: GraphModule, example_inputs: Sequence[Any], compiler_fn: Callable[[GraphModule, list[Any]], Any], only_fwd: bool = False, *,
    require_fp64: bool = False, ignore_non_fp: bool = False,
) -> bool:  # fmt: skip
    """Whether what `compiler_fn` makes of a graph computes other numbers than the graph; see `same_two_models`."""
    compiled = compiler_fn(copy.deepcopy(gm), clone_inputs_retaining_gradness(example_inputs))
    return not same_two_models(gm, compiled, example_inputs, only_fwd, require_fp64=require_fp64, ignore_non_fp=ignore_non_fp)


def repro_script(gm: GraphModule, inputs: Sequence[Any], backend: str = "inductor", tail: str = "") -> str:
    """A script that makes the graph `gm`, inputs of the looks of `inputs`, and compares the compiled graph with the graph."""
    own: dict[str, str] = {}                          # functions that go by no public name
    for node in gm.graph.nodes:
        name = getattr(node.target, "__name__", "")
        op = OPS.get(name)
        if node.op == "call_function" and op is not None and node.target is op.function and f"torch_{name}" in gm.code:
            own[f"torch_{name}"] = name
    code = "\n".join("    " + line if line else "" for line in gm.code.strip().splitlines())
    made = []
    for x in inputs:
        if isinstance(x, Tensor):
            dtype = str(x.dtype).rpartition(".")[2]
            made.append(f"    rand_strided({tuple(x.shape)}, {tuple(x.stride())}, torch.{dtype}, requires_grad={x.requires_grad}),")
        else:
            made.append(f"    {x!r},")
    lines = [
        "import math  # noqa: F401  # graphs may name it", "from math import inf, nan  # noqa: F401", "import operator  # noqa: F401", "",
        "import flambeau as torch", "from flambeau._dynamo.debug_utils import rand_strided, same_two_models",
        *(["from flambeau.ops._spec.base import OPS"] if own else []), "", "device = torch.device", "",
        *[f'{name} = OPS["{op}"].function' for name, op in own.items()], "",
        "class Repro(torch.nn.Module):", code, "", "mod = Repro()", "args = [", *made, "]", "",
        'if __name__ == "__main__":',
        *([] if backend in names() else [f"    # {backend} is a function of the program: import it, and give it instead of its name."]),
        f"    compiled = torch.compile(mod, backend={backend!r})",
        "    assert same_two_models(mod, compiled, args), \"the compiled graph computes other numbers\"", tail, "",
    ]  # fmt: skip
    return "\n".join(lines)


def write_repro(gm: GraphModule, inputs: Sequence[Any], backend: str, why: str) -> str:
    """Write `repro_script` into `minifier_dir`. Returns: the path."""
    path = os.path.join(minifier_dir(), f"repro_{uuid.uuid4().hex[:8]}.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write("".join(f"# {line}\n" for line in why.splitlines()) + repro_script(gm, inputs, backend))
    return path


def minified(
    gm: GraphModule, inputs: Sequence[Any], compiler_fn: Callable[..., Any], name: str, error: Exception | None, runs: bool = False,
) -> str:  # fmt: skip
    """Write a script of the smallest graph that fails as `gm` does, or differs if there is no `error`. Returns: its path.

    Args:
        runs: what `compiler_fn` makes of a graph is called too, for it is there that the error comes from.
    """
    from .._functorch.fx_minifier import minifier

    def raises(graph: GraphModule, given: Sequence[Any]) -> bool:
        try:
            made = compiler_fn(graph, list(given))
            if runs:
                made(*given)
        except Exception as found:
            return type(found) is type(error)
        return False

    def differs(graph: GraphModule, given: Sequence[Any]) -> bool:
        return backend_accuracy_fails(graph, given, compiler_fn)

    flat = GraphModule(gm, gm.graph)
    small, given = minifier(flat, inputs, differs if error is None else raises)
    return write_repro(small, given, name, "other numbers" if error is None else f"{type(error).__name__}: {error}")


"""Counting the floating point operations of products: of a program, and of each of its modules."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from .. import _state
from .._ops import ops
from ..tensor import Tensor
from ._python_dispatch import TorchDispatchMode
from ._pytree import tree_map
from .module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "flop_registry", "register_flop_formula"]

aten = ops.aten
# By operator, what computes the count of a call from the shapes of its arguments (``out_shape=`` that of its result).
flop_registry: dict[Any, Callable[..., int]] = {}


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """A decorator: let the function count the operations of the operators `targets`.

    Args:
        targets: an operator of `torch.ops`, such as ``torch.ops.aten.mm``, or several.
        get_raw: give the function the arguments themselves, and the result as ``out_val``; else the shapes of tensors among them,
            and of the result as ``out_shape``.
    Raises: RuntimeError if an operator has a formula already; ValueError for what is no operator.
    """

    def register(formula: Callable[..., int]) -> Callable[..., int]:
        counted = formula if get_raw else _of_shapes(formula)
        for target in targets if isinstance(targets, (list, tuple, set)) else (targets,):
            if not hasattr(target, "_qualified_op_name"):
                raise ValueError(
                    f"register_flop_formula(targets): expected each target to be OpOverloadPacket (i.e. torch.ops.mylib.foo), got {target} "
                    f"which is of type {type(target)}"
                )
            if target in flop_registry:
                raise RuntimeError(f"duplicate registrations for {target}")
            flop_registry[target] = counted
        return formula

    return register


def _of_shapes(formula: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(formula)
    def counted(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        given, named, out_shape = tree_map(_shape, (args, kwargs, out_val))
        return formula(*given, out_shape=out_shape, **named)

    return counted


def _shape(value: Any) -> Any:
    return value.shape if isinstance(value, Tensor) else value


# -- formulas ------------------------------------------------------------------------------------------------------------


@register_flop_formula(aten.mm)
def mm_flop(a_shape: Any, b_shape: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    """Of ``(m, k) @ (k, n)``."""
    return 2 * a_shape[0] * a_shape[1] * b_shape[1]


@register_flop_formula(aten.addmm)
def addmm_flop(self_shape: Any, a_shape: Any, b_shape: Any, out_shape: Any = None, **_: Any) -> int:
    """Of the product alone."""
    return mm_flop(a_shape, b_shape)


@register_flop_formula(aten.bmm)
def bmm_flop(a_shape: Any, b_shape: Any, out_shape: Any = None, **_: Any) -> int:
    """Of ``(b, m, k) @ (b, k, n)``."""
    return 2 * math.prod(a_shape) * b_shape[-1]


@register_flop_formula(aten.baddbmm)
def baddbmm_flop(self_shape: Any, a_shape: Any, b_shape: Any, out_shape: Any = None, **_: Any) -> int:
    """Of the products alone."""
    return bmm_flop(a_shape, b_shape)


def conv_flop_count(x_shape: Any, w_shape: Any, out_shape: Any, transposed: bool = False) -> int:
    """Of one convolution of input `x_shape` and weight `w_shape`."""
    positions = (x_shape if transposed else out_shape)[2:]
    return 2 * x_shape[0] * math.prod(positions) * math.prod(w_shape)


@register_flop_formula(aten.convolution)
def conv_flop(
    x_shape: Any, w_shape: Any, _bias: Any, _stride: Any, _padding: Any, _dilation: Any, transposed: bool, *_: Any, out_shape: Any = None,
    **__: Any,
) -> int:  # fmt: skip
    """Of a convolution, transposed or not."""
    return conv_flop_count(x_shape, w_shape, out_shape, transposed)


def sdpa_flop_count(query_shape: Any, key_shape: Any, value_shape: Any) -> int:
    """Of both products of attention."""
    *batch, queries, width = query_shape
    return 2 * math.prod(batch) * queries * key_shape[-2] * (width + value_shape[-1])


@register_flop_formula(aten.scaled_dot_product_attention)
def sdpa_flop(query_shape: Any, key_shape: Any, value_shape: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    """Of both products of attention."""
    return sdpa_flop_count(query_shape, key_shape, value_shape)


def _linear(x: Any, weight: Any, bias: Any = None) -> tuple[Any, tuple[Any, ...]]:
    """`linear`, which PyTorch takes apart, as the product that it is."""
    rows = math.prod(x.shape[:-1])
    shapes = (rows, x.shape[-1]), (weight.shape[1], weight.shape[0])
    return (aten.mm, shapes) if bias is None else (aten.addmm, (bias, *shapes))


def count_of_call(func: Any, args: Any, kwargs: Any, result: Any, registry: Any = flop_registry) -> tuple[Any, int] | None:
    """The operator that a call counts for, and its operations; None if no formula says."""
    operator = func.overloadpacket
    if operator is aten.linear:
        operator, args = _linear(*args)
    elif getattr(func, "_opname", "") == "convolution_weight":
        return aten.convolution_backward, conv_flop_count(args[1].shape, result.shape, args[1].shape)
    if operator not in registry:
        return None
    count = registry[operator](*args, **kwargs, out_val=result)
    return aten.convolution_backward if operator is aten.convolution and _state.local.backward.nested else operator, count


class FlopCounterMode(TorchDispatchMode):
    """Counts the operations of matrix products, convolutions and attention while it is entered, forward and backward.

    A multiplication and an addition are two. Recurrent layers and attention count their products, which PyTorch leaves out on CPU.

    Args:
        mods: deprecated and without effect: modules are found as they run.
        depth: how many levels of modules the table shows.
        display: print the table at the end.
        custom_mapping: formulas by operator, as `register_flop_formula` takes them, for this count alone.
    """

    def __init__(self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: dict[Any, Any] | None = None) -> None:
        super().__init__()
        if mods is not None:
            import warnings

            warnings.warn("mods argument is not needed anymore, you can stop passing it", stacklevel=2)
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.depth = depth
        self.display = display
        own = {op: f if getattr(f, "_get_raw", False) else _of_shapes(f) for op, f in (custom_mapping or {}).items()}
        self.flop_registry = {**flop_registry, **own}
        self.mod_tracker = ModuleTracker()

    def get_total_flops(self) -> int:
        """The operations of all that ran."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """By the name of a module, and ``"Global"`` for all, the operations of each operator."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The counts as a table.

        Args:
            depth: as for the class.
        """
        depth = (self.depth if depth is None else depth) or 999_999
        total = self.get_total_flops()
        rows: list[tuple[str, str, str]] = []
        names = sorted(n for n in self.flop_counts if n != "Global" and n.count(".") + 1 <= depth)
        outermost = [n for n in names if "." not in n]
        covered = [sum(self.flop_counts[n].values()) for n in outermost]
        if not outermost or max(covered) < total:
            rows += self._rows("Global", total)
        for name in names:
            rows += self._rows(name, total)
        heads = "Module", "FLOP", "% Total"
        widths = [max(len(heads[i]) + (2 if i else 0), *(len(row[i]) for row in rows)) for i in range(3)]
        lines = [f"{heads[0]:<{widths[0]}}  {heads[1]:>{widths[1]}}  {heads[2]:>{widths[2]}}", "  ".join("-" * w for w in widths)]
        lines += [f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}" for row in rows]
        return "\n".join(line.rstrip() for line in lines)

    def _rows(self, name: str, total: int) -> Iterable[tuple[str, str, str]]:
        counts = self.flop_counts[name]
        own = sum(counts.values())
        suffix, unit = _unit(total)
        share = [(name, own), *((f"- {op}", count) for op, count in counts.items())]
        return [
            (label, f"{count / unit:.3f}{suffix}" if suffix else str(count), f"{count / total:.2%}" if total else "0%")
            for label, count in share
        ]

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self.mod_tracker.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *args: object) -> None:
        super().__exit__(*args)
        self.mod_tracker.__exit__(*args)
        if self.display:
            print(self.get_table(self.depth))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        found = count_of_call(func, args, kwargs or {}, result, self.flop_registry)
        if found is not None:
            self._count(*found)
        return result

    def _count(self, operator: Any, count: int) -> None:
        for name in set(self.mod_tracker.parents):
            self.flop_counts[name][operator] += count


def _unit(total: int) -> tuple[str, int]:
    """The suffix that `total` is shown with, and what it stands for."""
    power = max(0, min((len(str(total)) - 2) // 3, 4))
    return ("", "K", "M", "B", "T")[power], 1000**power

"""Fake kernels from what was seen of operators: of which ranks and dtypes their results were for such arguments."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import flambeau as fb

from ..library import get_ctx
from ..library._operator import Operator
from ..tensor import Tensor
from ..utils import _pytree as pytree

__all__ = ["MissingOpProfile", "OpProfile", "TensorMetadata", "unsafe_generate_fake_kernels"]


class MissingOpProfile(RuntimeError):
    """An operator was called with arguments of other ranks or dtypes than it was seen with."""


@dataclass(frozen=True)
class TensorMetadata:
    """What is taken for the same in all calls: the rank, dtype, device and layout of a tensor, not its sizes."""

    rank: int
    dtype: Any
    device: Any
    layout: Any

    @staticmethod
    def maybe_from_tensor(t: Any) -> TensorMetadata | None:
        """That of `t`; None if it is no Tensor."""
        return TensorMetadata(t.ndim, t.dtype, t.device, t.layout) if isinstance(t, Tensor) else None


@dataclass(frozen=True)
class OpProfile:
    """One kind of call: what the tensors among the arguments are, leaf by leaf, and what the results are."""

    args_profile: tuple[TensorMetadata | None, ...]
    out_profile: TensorMetadata | tuple[TensorMetadata | None, ...] | None

    @staticmethod
    def of(args: Any, kwargs: Any, result: Any) -> OpProfile:
        """That of a call."""
        found = tuple(map(TensorMetadata.maybe_from_tensor, result)) if isinstance(result, (tuple, list)) else None
        return OpProfile(_profile_of(args, kwargs), TensorMetadata.maybe_from_tensor(result) if found is None else found)


def _profile_of(args: Any, kwargs: Any) -> tuple[TensorMetadata | None, ...]:
    return tuple(map(TensorMetadata.maybe_from_tensor, pytree.tree_leaves((args, kwargs))))


@contextlib.contextmanager
def unsafe_generate_fake_kernels(op_profiles: Mapping[str, set[OpProfile]]) -> Iterator[None]:
    """A region in which operators have fake kernels after profiles: results have new sizes, which values decide.

    Args:
        op_profiles: the profiles by the name of the operator with its overload, as the report of `export.draft_export` has them.
            Unsafe, as what holds for other arguments is not known.
    Raises: MissingOpProfile by a call of such an operator with other ranks or dtypes.
    """
    operators = {name: operator_of(name) for name in op_profiles}
    before = {name: (operator.fake, operator.kernels.pop("Meta", None)) for name, operator in operators.items()}
    for name, operator in operators.items():
        operator.fake = _fake_kernel(name, op_profiles[name])
    try:
        yield
    finally:
        for name, (fake, meta) in before.items():
            operators[name].fake = fake
            if meta is not None:
                operators[name].kernels["Meta"] = meta


def operator_of(name: str) -> Operator:
    """The operator ``space.name.overload``."""
    space, packet, overload = name.split(".")
    return getattr(getattr(getattr(fb.ops, space), packet), overload)._operator


def _fake_kernel(name: str, profiles: set[OpProfile]) -> Callable[..., Any]:
    by_args = {_without_devices(p.args_profile): p.out_profile for p in profiles}

    def made(profile: TensorMetadata | None) -> Any:
        if profile is None:
            return None
        sizes = [get_ctx().new_dynamic_size() for _ in range(profile.rank)]
        return fb.empty(sizes, dtype=profile.dtype, device="meta")

    def fake(*args: Any, **kwargs: Any) -> Any:
        given = _without_devices(_profile_of(args, kwargs))
        if given not in by_args:
            raise MissingOpProfile(f"{name}: no profile has arguments like {given}; it was seen with {sorted(map(str, by_args))}")
        out = by_args[given]
        return tuple(map(made, out)) if isinstance(out, tuple) else made(out)

    return fake


def _without_devices(profile: tuple[TensorMetadata | None, ...]) -> tuple[Any, ...]:
    """Fake kernels run on tensors of the device ``meta``, whatever these stand for."""
    return tuple(None if x is None else (x.rank, x.dtype, x.layout) for x in profile)

"""Whether the parts of new sparse tensors are checked, and `gradcheck` of functions with sparse operands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau as fb

from ..ops._sparse import check
from ..ops._sparse.arrays import is_sparse, values_of, with_values
from ..ops._sparse.layouts import coalesce, to_dense

__all__ = ["as_sparse_gradcheck", "check_sparse_tensor_invariants"]


class check_sparse_tensor_invariants:
    """Check the parts of sparse tensors that are made: as a context manager, or as a decorator of a function; not checked by default.

    Args:
        enable: whether they are checked inside.

    >>> with fb.sparse.check_sparse_tensor_invariants():
    ...     fb.sparse.check_sparse_tensor_invariants.is_enabled()
    True
    """

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self.saved: bool | None = None

    @staticmethod
    def is_enabled() -> bool:
        """Whether parts are checked in this thread."""
        return check.is_checked()

    @staticmethod
    def enable() -> None:
        """Check parts in this thread from now on."""
        check.set_checked(True)

    @staticmethod
    def disable() -> None:
        """Check no parts in this thread from now on."""
        check.set_checked(False)

    def __enter__(self) -> None:
        if self.saved is not None:
            raise RuntimeError(
                "This context manager instance is already activated. Use a different context manager instance for context nesting."
            )
        self.saved = self.is_enabled()
        check.set_checked(self.state)

    def __exit__(self, *_: object) -> None:
        before, self.saved = self.saved, None
        check.set_checked(bool(before))

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return fn(*args, **kwargs)

        return checked


def as_sparse_gradcheck(gradcheck: Callable[..., Any]) -> Callable[..., Any]:
    """`gradcheck` for functions of sparse tensors: with respect to their values, and of the values of results.

    The decorated function takes ``masked`` too: True leaves the pattern of operands as it is, and False takes an element for each place.

    >>> check = fb.sparse.as_sparse_gradcheck(fb.autograd.gradcheck)
    >>> check(lambda x: x.to_dense(), (fb.eye(2, dtype=fb.float64).to_sparse().requires_grad_(),), masked=True)
    True
    """

    @functools.wraps(gradcheck)
    def checked(func: Callable[..., Any], inputs: Any, **kwargs: Any) -> Any:
        masked = kwargs.pop("masked", False)
        given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        patterns: dict[int, Any] = {}
        for i, x in enumerate(given):
            if is_sparse(x) and x.requires_grad:
                x = coalesce(x.detach()) if x.layout is fb.sparse_coo else x.detach()
                if not masked:
                    x = _everywhere(x)
                patterns[i] = x
                given[i] = values_of(x).clone().requires_grad_(True)

        def of_values(*args: Any) -> Any:
            rebuilt = [with_values(patterns[i], a) if i in patterns else a for i, a in enumerate(args)]
            result = func(*rebuilt)
            several = isinstance(result, (list, tuple))
            found = [to_dense(r) if is_sparse(r) else r for r in (result if several else (result,))]
            return tuple(found) if several else found[0]

        return gradcheck(of_values, tuple(given), **kwargs)

    return checked


def _everywhere(x: Any) -> Any:
    """`x` with a value at each place of its sparse dimensions."""
    ones = fb.ones(x.shape, dtype=x.dtype)
    array = x._array
    if x.layout is fb.sparse_coo:
        full = ones.to_sparse(array.sparse_dim)
    else:
        full = ones.to_sparse(layout=x.layout, blocksize=array.block or None, dense_dim=x.dense_dim() or None)
    return to_dense(x).sparse_mask(full)

"""`custom_op`: a function with annotations as an operator that nothing looks into."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .. import _missing
from .._tags import Tag
from ..dtypes import dtype
from ._infer import infer_schema
from ._library import Library, device_key, parse_qualname
from ._operator import EXPLICIT, IMPLICIT, Kernel, Operator
from ._register import (
    register_autocast,
    register_autograd,
    register_fake,
    register_torch_dispatch,
    register_vmap,
)

__all__ = ["CustomOpDef", "custom_op", "triton_op", "wrap_triton"]

DEFINITIONS: dict[str, CustomOpDef] = {}
_log = logging.getLogger(__name__)


class CustomOpDef:
    """A function that `custom_op` has made an operator: call it, and register rules for it.

    Args:
        namespace, name: those of the operator.
        schema: of its arguments and results, such as ``"(Tensor x) -> Tensor"``.
        fn: what computes it where no kernel is registered.
        tags: what is known of it.
    """

    def __init__(self, namespace: str, name: str, schema: str, fn: Callable[..., Any], tags: Sequence[Tag] = ()) -> None:
        self._namespace, self._name, self._schema, self._init_fn = namespace, name, schema, fn
        self._qualname = f"{namespace}::{name}"
        self._disabled: set[str] = set()
        before = DEFINITIONS.pop(self._qualname, None)
        if before is not None:
            before._lib._destroy()
        self._lib = Library(namespace, "FRAGMENT")
        self._operator: Operator = self._lib._define(name + schema, tags=(Tag.pt2_compliant_tag, *tags), opaque=True)
        for argument in self._operator.schema.keyword_only:
            if argument.type.has_tensors:
                declared = self._operator.schema
                self._lib._destroy()
                raise NotImplementedError(
                    "custom_op with kwarg-only Tensor args. Please make your tensors not kwarg-only. Got: "
                    f"{name}{declared.signature()}"
                )
        self._operator.no_fake = (
            f"There was no fake impl registered for {self}. This is necessary for torch.compile/export/fx tracing to work. Please use "
            f"`{getattr(fn, '__name__', name)}.register_fake` to add an fake impl."
        )
        DEFINITIONS[self._qualname] = self

    @property
    def _opoverload(self) -> Any:
        return self._operator.overload

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def register_kernel(self, device_types: Any, fn: Any = None, /) -> Any:
        """Register the kernel for kinds of devices; a decorator where `fn` is left out.

        Args:
            device_types: "cpu", "cuda" and others, several of them, or None for all.
            fn: takes what the operator takes.
        Raises: ValueError if the operator takes neither a tensor nor an argument ``device: torch.device``.
        """

        def register(kernel: Callable[..., Any]) -> Callable[..., Any]:
            kinds: list[Any] = [device_types] if device_types is None or isinstance(device_types, str) else list(device_types)
            for kind in kinds:
                self._put_kernel(kind, kernel)
            return kernel

        return register if fn is None else register(fn)

    def _put_kernel(self, kind: str | None, fn: Callable[..., Any]) -> None:
        key = EXPLICIT if kind is None else device_key(kind)
        arguments = self._operator.schema.arguments
        placed = any(a.type.has_tensors or a.name == "device" and a.type.kind == "Device" for a in arguments)
        if kind is not None and not placed:
            raise ValueError("Functions without tensor inputs are required to have a `device: torch.device` argument")

        @functools.wraps(fn)
        def kernel(*args: Any, **kwargs: Any) -> Any:
            return (self._init_fn if kind in self._disabled else fn)(*args, **kwargs)

        self._operator.kernels[key] = Kernel(kernel)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Register what computes shapes alone; see `library.register_fake`. Returns `fn`."""
        return register_fake(self, fn)

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Any = None) -> None:
        """Register the derivative.

        Args:
            backward, setup_context: see `library.register_autograd`.
        """
        register_autograd(self, backward, setup_context=setup_context)

    def register_vmap(self, func: Any = None, /) -> Any:
        """Register how it runs on batches; see `library.register_vmap`. A decorator where `func` is left out."""
        return register_vmap(self, func)

    def register_autocast(self, device_type: str, cast_inputs: dtype) -> None:
        """Have operands cast in regions of autocast.

        Args:
            device_type, cast_inputs: see `library.register_autocast`.
        """
        register_autocast(self, device_type, cast_inputs)

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Any = None, /) -> Any:
        """Register what a mode or a subclass of Tensor does for it.

        Args:
            torch_dispatch_class, fn: see `library.register_torch_dispatch`.
        """
        return register_torch_dispatch(self, torch_dispatch_class, fn)

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """A region in which the kernel for a kind of device is off, so that the function of the definition answers, or on again.

        Args:
            device_type: such as "cpu". Where it has no kernel this changes nothing but logs a warning.
            enabled: whether the kernel runs.
        """
        before = device_type in self._disabled
        if device_key(device_type) not in self._operator.kernels:
            _log.warning(
                "Attempted to %s kernel for %s but no kernel was registered for this device type.", "enable" if enabled else "disable",
                device_type,
            )  # fmt: skip
        (self._disabled.discard if enabled else self._disabled.add)(device_type)
        try:
            yield
        finally:
            (self._disabled.add if before else self._disabled.discard)(device_type)


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: Any = None,
    schema: str | None = None,
    tags: Sequence[Tag] | None = None,
) -> Any:
    """Make a function an operator: it is found in `torch.ops`, is one node in graphs, and has rules registered for it.

    Args:
        name: ``namespace::name``. An operator that `custom_op` has made of that name before is replaced.
        fn: the function, with annotations; a decorator where it is left out. Its results must be new tensors.
        mutates_args: names of the arguments that it writes, or "unknown", which means all tensors.
        device_types: "cpu", "cuda" and others that it works on; by default all.
        schema: in place of annotations, such as ``"(Tensor x, int n) -> Tensor"``.
        tags: what is known of the operator.
    Returns: a `CustomOpDef`.
    Raises: ValueError for annotations that no schema has, or a schema that contradicts `mutates_args`; RuntimeError for a schema that
        cannot be read, and in calls for results that share memory with arguments; NotImplementedError for tensors given by keyword alone.

    >>> @fb.library.custom_op("docs_of_custom_op::sine", mutates_args=())
    ... def sine(x: fb.Tensor) -> fb.Tensor:
    ...     return fb.from_numpy(np.sin(x.numpy()))
    >>> import numpy as np
    >>> sine(fb.zeros(2)), fb.ops.docs_of_custom_op.sine.default._schema
    (tensor([0., 0.]), docs_of_custom_op::sine(Tensor x) -> Tensor)
    """

    def make(function: Callable[..., Any]) -> CustomOpDef:
        text = infer_schema(function, mutates_args=mutates_args) if schema is None else schema
        namespace, opname = parse_qualname(name)
        if schema is not None:
            _check_mutation(opname + schema, schema, mutates_args)
        made = CustomOpDef(namespace, opname, text, function, tags or ())
        try:
            made.register_kernel(device_types)(function)
        except (ValueError, RuntimeError):
            DEFINITIONS.pop(made._qualname)._lib._destroy()
            raise
        return made

    return make if fn is None else make(fn)


def _check_mutation(full: str, schema: str, mutates_args: Any) -> None:
    from .._schema import parse_schema

    if mutates_args == "unknown":
        return
    written = {a.name for a in parse_schema(full).arguments if a.is_write}
    if written != set(mutates_args):
        raise ValueError(
            f"Attempted to create a custom op with `mutates_args={mutates_args}` and `schema={schema}. The schema suggests that the op "
            f"mutates {written or '{}'} which is different from what was provided to us in `mutates_args`. Please make these consistent."
        )


def triton_op(name: str, fn: Any = None, /, *, mutates_args: str | Iterable[str], schema: str | None = None) -> Any:
    """Make a function of public operations an operator that graphs see through: they record what it is made of.

    Triton kernels themselves are not built; `wrap_triton` says so.

    Args:
        name, fn, mutates_args, schema: as for `custom_op`.
    Returns: a `CustomOpDef`.
    """

    def make(function: Callable[..., Any]) -> CustomOpDef:
        made = custom_op(name, mutates_args=mutates_args, schema=schema)(function)
        operator = made._operator
        operator.opaque = False
        operator.kernels[IMPLICIT] = operator.kernels.pop(EXPLICIT)
        return made

    return make if fn is None else make(fn)


def wrap_triton(triton_kernel: Any, /) -> Any:
    """Not built: Triton kernels do not run here.

    Args:
        triton_kernel: the kernel.
    Raises: NotImplementedError, always.
    """
    raise _missing.not_built(
        "library.wrap_triton", "Triton kernels do not run here; write the kernel with torch functions, numpy or numba and use custom_op"
    )



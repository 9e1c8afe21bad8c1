"""Rules of operators that are defined already: kernels, fake kernels, derivatives, batches, casts and modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._warn import warn
from ..amp.autocast_mode import is_autocast_available
from ..devices import device as _device
from ..dtypes import dtype
from ._library import Library, _registered, impl, library_for, operator_of, parse_qualname
from ._operator import FakeContext, Operator, current_fake_context

__all__ = [
    "get_ctx", "impl_abstract", "register_autocast", "register_autograd", "register_fake", "register_kernel", "register_torch_dispatch",
    "register_vmap",
]  # fmt: skip


def register_kernel(op: Any, device_types: Any, func: Any = None, /, *, lib: Library | None = None) -> Any:
    """Register the kernel of an operator for kinds of devices; a decorator where `func` is left out.

    Args:
        op: ``namespace::name``, an overload, or what `custom_op` made.
        device_types: "cpu", "cuda" and others, several of them, or None for all.
        func: takes what the operator takes.
        lib: the library whose life the kernel shares.
    Raises: ValueError for what is no operator, RuntimeError for what is no kind of device.
    """
    definition = _definition(op)
    if definition is not None:
        return definition.register_kernel(device_types, func)
    operator = operator_of(op, "register_kernel")
    return impl(f"{operator.name}.{operator.overload_name}", "default" if device_types is None else device_types, func, lib=lib)


def _definition(op: Any) -> Any:
    """What `custom_op` made, if `op` is or names it."""
    from ._custom import DEFINITIONS, CustomOpDef

    if isinstance(op, CustomOpDef):
        return op
    return DEFINITIONS.get(op if isinstance(op, str) else op.name() if hasattr(op, "name") else "")


def register_fake(op: Any, func: Any = None, /, *, lib: Library | None = None, _stacklevel: int = 1) -> Any:
    """Register what computes shapes, dtypes and devices alone: it answers for meta tensors. A decorator where `func` is left out.

    Args:
        op: ``namespace::name``, an overload, or what `custom_op` made.
        func: takes what the operator takes, and returns tensors like the results.
        lib: the library whose life the rule shares.
    Raises: ValueError for what is no operator.

    >>> @fb.library.custom_op("docs_of_fake::twice", mutates_args=())
    ... def twice(x: fb.Tensor) -> fb.Tensor:
    ...     return fb.cat([x, x])
    >>> @fb.library.register_fake("docs_of_fake::twice")
    ... def _(x):
    ...     return x.new_empty(2 * x.shape[0], *x.shape[1:])
    >>> twice(fb.empty(3, 4, device="meta")).shape
    torch.Size([6, 4])
    """
    if func is None:
        return lambda fn: register_fake(op, fn, lib=lib)

    def put(operator: Operator) -> None:
        operator.fake = func

    if isinstance(op, str) and _registered(op) is None and parse_qualname(op)[0] not in ("aten", "prims"):
        _, name = parse_qualname(op)
        library_for(op, lib)._when_defined(op if "." in name else f"{op}.default", put)
        return func
    operator = operator_of(op, "register_fake")
    before = operator.fake
    put(operator)
    _end_with(lib, lambda: operator.fake is func and setattr(operator, "fake", before))
    return func


def _end_with(lib: Library | None, undo: Callable[[], Any]) -> None:
    """Have `undo` called when `lib` ends."""
    if lib is not None:
        lib._undo.append(lambda: undo() and None)


def impl_abstract(qualname: Any, func: Any = None, *, lib: Library | None = None, _stacklevel: int = 1) -> Any:
    """The older name of `register_fake`; warns.

    Args:
        qualname, func, lib: as there.
    """
    warn(
        "`torch.library.impl_abstract` was renamed to `torch.library.register_fake`. Please use that instead; "
        "we will remove `torch.library.impl_abstract` in a future version of PyTorch.",
        FutureWarning,
    )
    return register_fake(qualname, func, lib=lib)


def get_ctx() -> FakeContext | None:
    """The context of the fake kernel that runs in this thread; None outside of fake kernels."""
    return current_fake_context()


def register_autograd(op: Any, backward: Callable[..., Any], /, *, setup_context: Any = None, lib: Library | None = None) -> None:
    """Register the derivative of an operator.

    Args:
        op: ``namespace::name``, an overload, or what `custom_op` made.
        backward: ``backward(ctx, *grads)`` gives one gradient or None for each argument, a list of them for a list of tensors.
        setup_context: ``setup_context(ctx, inputs, output)`` keeps on `ctx` what `backward` needs; with arguments that are given by keyword
            alone ``setup_context(ctx, inputs, keyword_only_inputs, output)``.
        lib: the library whose life the rule shares.
    Raises: RuntimeError for an operator that writes its arguments or returns them; NotImplementedError for tensors given by keyword alone;
        ValueError for what is no operator.

    >>> @fb.library.custom_op("docs_of_autograd::square", mutates_args=())
    ... def square(x: fb.Tensor) -> fb.Tensor:
    ...     return fb.from_numpy(x.numpy() ** 2)
    >>> fb.library.register_autograd(
    ...     "docs_of_autograd::square",
    ...     lambda ctx, grad: 2 * ctx.saved_tensors[0] * grad,
    ...     setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    ... )
    >>> x = fb.tensor([3.0], requires_grad=True)
    >>> square(x).backward()
    >>> x.grad
    tensor([6.])
    """
    operator = operator_of(op, "register_autograd")
    if not operator.schema.is_functional:
        raise RuntimeError(
            f"Cannot register autograd formula for non-functional operator {operator.dotted} with schema {operator.schema}. Please create "
            "a functional operator and register an autograd formula for that."
        )
    _refuse_keyword_tensors(operator, "register_autograd")
    before = operator.backward, operator.setup_context
    operator.backward, operator.setup_context = backward, setup_context

    def undo() -> None:
        if operator.backward is backward:
            operator.backward, operator.setup_context = before

    _end_with(lib, undo)


def _refuse_keyword_tensors(operator: Operator, caller: str) -> None:
    if any(a.type.has_tensors for a in operator.schema.keyword_only):
        raise NotImplementedError(
            f"{caller} with kwarg-only Tensor args. In the original definition of the op, please make your tensors not kwarg-only. Got: "
            f"{operator.schema}"
        )


def register_vmap(op: Any, func: Any = None, /, *, lib: Library | None = None) -> Any:
    """Register how an operator runs on batches inside `vmap`; a decorator where `func` is left out.

    Args:
        op: ``namespace::name``, an overload, or what `custom_op` made.
        func: ``func(info, in_dims, *args, **kwargs)`` gives the result and its dimension that counts examples. `in_dims` has a dimension or
            None for each argument; `info` has `batch_size` and `randomness`.
        lib: the library whose life the rule shares.
    Raises: NotImplementedError for tensors given by keyword alone, ValueError for what is no operator.
    """
    operator = operator_of(op, "register_vmap")
    _refuse_keyword_tensors(operator, "register_vmap")

    def register(fn: Callable[..., Any]) -> None:
        before, operator.vmap_rule = operator.vmap_rule, fn
        _end_with(lib, lambda: operator.vmap_rule is fn and setattr(operator, "vmap_rule", before))

    return register if func is None else register(func)


def register_autocast(op: Any, device_type: str, cast_inputs: dtype, /, *, lib: Library | None = None) -> None:
    """Have floating operands cast to one dtype, and autocast off inside, where the operator is called in a region of autocast.

    Args:
        op: ``namespace::name``, an overload, or what `custom_op` made.
        device_type: "cpu" or "cuda".
        cast_inputs: the dtype; float64 and what is not floating stay as they are.
        lib: the library whose life the rule shares.
    Raises: ValueError for what is no operator or no dtype; RuntimeError for a device without autocast.
    """
    operator = operator_of(op, "register_autocast")
    if not isinstance(device_type, str):
        raise TypeError(f"register_autocast: device_type must be a str such as 'cpu', but got {type(device_type).__name__}")
    if not is_autocast_available(_device(device_type).type):
        raise ValueError(f"Unknown device type: {device_type}: autocast is available for cpu and cuda")
    if not isinstance(cast_inputs, dtype):
        raise ValueError(f"register_autocast: cast_inputs must be a torch.dtype, but got {cast_inputs!r}")
    before = operator.autocast.get(device_type)
    operator.autocast[device_type] = cast_inputs

    def undo() -> None:
        if before is None:
            operator.autocast.pop(device_type, None)
        else:
            operator.autocast[device_type] = before

    _end_with(lib, undo)


def register_torch_dispatch(op: Any, torch_dispatch_class: Any, func: Any = None, /, *, lib: Library | None = None) -> Any:
    """Register what a `TorchDispatchMode` or a subclass of Tensor does for an operator; a decorator where `func` is left out.

    Args:
        op: ``namespace::name``, an overload, or what `custom_op` made.
        torch_dispatch_class: the mode or subclass itself; classes derived from it have rules of their own.
        func: ``func(mode, func, types, args, kwargs)``, for a subclass ``func(cls, func, types, args, kwargs)``.
        lib: the library whose life the rule shares.
    Raises: ValueError for what is no operator.
    """
    operator = operator_of(op, "register_torch_dispatch")
    if func is None:
        return lambda fn: register_torch_dispatch(op, torch_dispatch_class, fn, lib=lib)
    operator.torch_dispatch[torch_dispatch_class] = func
    _end_with(lib, lambda: operator.torch_dispatch.pop(torch_dispatch_class, None) and None)
    return func

"""Operators that programs define: a schema, kernels by dispatch key, and rules for derivatives, batches, casts and modes.

A call goes the way that `ops/_dispatch.py` describes: function modes and operands' classes, this thread's interpreters, then
the formula for derivatives, and last the kernel for the device of the operands.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .. import _ops, _state
from .._arrays import MetaArray, ndarray
from .._errors import ShapeDependsOnValues
from .._schema import FunctionSchema
from .._symbolic import SymInt, fresh
from .._warn import warn
from ..autograd.function import Function
from ..tensor import Tensor, bump, no_torch_dispatch

__all__ = ["DispatchKeySet", "FakeContext", "Kernel", "Operator", "current_fake_context"]

_local = _state.local

DEVICE_KEYS = {
    "cpu": "CPU", "cuda": "CUDA", "meta": "Meta", "xpu": "XPU", "mps": "MPS", "xla": "XLA", "hpu": "HPU", "ipu": "IPU", "mtia": "MTIA",
    "maia": "MAIA", "hip": "HIP", "ve": "VE", "lazy": "Lazy", "fpga": "FPGA", "vulkan": "Vulkan", "privateuseone": "PrivateUse1",
    "mkldnn": "MkldnnCPU",
}  # fmt: skip
EXPLICIT, IMPLICIT = "CompositeExplicitAutograd", "CompositeImplicitAutograd"
_LAYERS = ("Autocast", "Autograd")
KEYS = frozenset((
    EXPLICIT, IMPLICIT, "CompositeExplicitAutogradNonFunctional", "BackendSelect", *DEVICE_KEYS.values(),
    *(f"{layer}{key}" for layer in _LAYERS for key in ("", *DEVICE_KEYS.values())),
))  # fmt: skip
# Keys that PyTorch has and that mean nothing here.
UNBUILT_KEYS = frozenset((
    "ADInplaceOrView", "AutogradFunctionality", "AutogradNestedTensor", "AutogradOther", "Batched", "BatchedNestedTensor", "Conjugate",
    "FuncTorchBatched", "FuncTorchDynamicLayerBackMode", "FuncTorchDynamicLayerFrontMode", "FuncTorchGradWrapper", "FuncTorchVmapMode",
    "Functionalize", "NestedTensorCPU", "NestedTensorCUDA", "Negative", "PreDispatch", "Python", "PythonDispatcher",
    "PythonTLSSnapshot", "QuantizedCPU", "QuantizedCUDA", "SparseCPU", "SparseCUDA", "SparseCsrCPU", "SparseCsrCUDA",
    "TESTING_ONLY_GenericMode", "TESTING_ONLY_GenericWrapper", "Tracer", "Undefined", "VmapMode", "ZeroTensor",
))  # fmt: skip


class Kernel(NamedTuple):
    """A function registered for a dispatch key; None for one that passes the call on."""

    function: Callable[..., Any] | None
    with_keyset: bool = False


class DispatchKeySet:
    """What is still to be asked of a call: a set of "Autocast", "Autograd" and "Backend"."""

    def __init__(self, keys: Any = ("Autocast", "Autograd", "Backend")) -> None:
        self.keys = frozenset(keys)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self.keys & other.keys)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self.keys | other.keys)

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self.keys - other.keys)

    def has(self, key: Any) -> bool:
        """Whether `key` is among them."""
        return str(key) in self.keys

    def __repr__(self) -> str:
        return f"DispatchKeySet({', '.join(sorted(self.keys))})"


AFTER_AUTOGRAD = DispatchKeySet(("Backend",))


class _Thread(threading.local):
    """What a call in this thread is within."""

    below_autograd = 0
    fake: Any = None


_thread = _Thread()


class AutoDispatchBelowAutograd:
    """A region in which operators that programs define run below autograd: a kernel for ``Autograd`` calls its own operator in one."""

    def __enter__(self) -> None:
        _thread.below_autograd += 1

    def __exit__(self, *_: object) -> None:
        _thread.below_autograd -= 1


class FakeContext:
    """What a fake kernel may ask for."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> Any:
        """A symbolic size that depends on values, for fake tensors with symbolic sizes.

        Args:
            min, max: bounds of the size; 0 and none by default.
        Raises: ValueError for bounds that are no ints, or below 0; RuntimeError where sizes are numbers, as those of meta tensors are.
        """
        if isinstance(min, SymInt) or isinstance(max, SymInt):
            raise ValueError(
                f"ctx.new_dynamic_size(min={min}, max={max}): expected min and max to be statically known ints but got SymInt. "
                "This is not supported."
            )
        if min < 0:
            raise ValueError(
                f"ctx.new_dynamic_size(min={min}, ...): expected min to be greater than or equal to 0: "
                "this API can only create non-negative sizes."
            )
        if fresh.size is not None:
            return fresh.size(max, min)
        raise ShapeDependsOnValues(
            f"{self._operator.name}: You're trying to run this operator with meta Tensors, but it may return an output Tensor with "
            "data-dependent shape, which meta tensors do not have. If its shape does not depend on data, let the fake kernel compute it "
            "from the shapes of the inputs, without torch.library.get_ctx()"
        )

    create_unbacked_symint = new_dynamic_size


def current_fake_context() -> FakeContext | None:
    """The context of the fake kernel that runs in this thread, or None."""
    return _thread.fake


# Kernels for a key that has none of its own: `Library.fallback`.
FALLBACKS: dict[str, Kernel] = {}


class Operator(_ops.DeclaredOperator):
    """An operator with a schema. `opaque` is what `custom_op` makes: its kernel is never looked into."""

    def __init__(self, namespace: str, schema: FunctionSchema, tags: tuple[Any, ...] = (), opaque: bool = False) -> None:
        self.namespace, self.schema, self.tags, self.opaque = namespace, schema, list(tags), opaque
        self.name = schema.name
        self.opname, self.overload_name = schema.name.partition("::")[2], schema.overload_name or "default"
        self.takes_tensors = any(a.type.has_tensors for a in schema.arguments)
        self.kernels: dict[str, Kernel] = {}
        self.fake: Callable[..., Any] | None = None
        self.no_fake = ""                             # what is said where there is no fake kernel
        self.backward: Callable[..., Any] | None = None
        self.setup_context: Callable[..., Any] | None = None
        self.vmap_rule: Callable[..., Any] | None = None
        self.autocast: dict[str, Any] = {}            # device type -> dtype
        self.torch_dispatch: dict[type, Callable[..., Any]] = {}
        self.warned_of_vmap = False
        self._function: Any = None

    @property
    def below_autocast(self) -> DispatchKeySet:
        return DispatchKeySet(("Autograd", "Backend"))

    @property
    def overload(self) -> _ops.OpOverload:
        """What programs know it as."""
        return getattr(getattr(getattr(_ops.ops, self.namespace), self.opname), self.overload_name)

    @property
    def is_composition(self) -> bool:
        """Whether what it is made of is to be seen in its place."""
        return IMPLICIT in self.kernels and not self.opaque

    @property
    def dotted(self) -> str:
        return f"{self.namespace}.{self.opname}.{self.overload_name}"

    # -- calls

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the operator; modes and classes of operands have had their say."""
        return self.interpret(*self.schema.bind(args, kwargs))

    def choose(self, operators: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the first of `operators` whose schema takes the arguments.

        Raises: RuntimeError if none does.
        """
        if len(operators) == 1:
            return operators[0].interpret(*operators[0].schema.bind(args, kwargs))
        refusals = []
        for operator in operators:
            try:
                bound = operator.schema.bind(args, kwargs)
            except RuntimeError as refusal:
                refusals.append(f"{refusal}\n")
            else:
                return operator.interpret(*bound)
        raise RuntimeError("Overloaded torch operator invoked from Python failed to match any schema:\n" + "\n".join(refusals))

    def interpret(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Ask the interpreters, the innermost first, then run the operator; arguments are bound."""
        calls = _local.calls
        stack = calls.interpreters
        lowest = bool(stack) and stack[0].observes    # the profiler, if there is one, looks on below all others
        for depth in range(len(stack) - 1, lowest - 1, -1):
            calls.interpreters = stack[:depth]
            try:
                result = stack[depth].run_operator(self, args, kwargs)
            finally:
                calls.interpreters = stack
            if result is not NotImplemented:
                return result
        return stack[0].observe_operator(self, args, kwargs) if lowest else self.enter(args, kwargs)

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Autograd, and then the kernel."""
        tensors = tensors_in((*args, *kwargs.values()))
        device = self.device_of(tensors, args, kwargs)
        if not _thread.below_autograd:
            kernel = self.kernel("Autograd", device)
            if kernel is not None and kernel.function is not None:
                return self.schema.check_result(self.run_kernel(kernel, args, kwargs, AFTER_AUTOGRAD))
        if self.is_composition and DEVICE_KEYS.get(device or "") not in self.kernels:
            return self.schema.check_result(self.run_kernel(self.kernels[IMPLICIT], args, kwargs, AFTER_AUTOGRAD))
        recording = not _thread.below_autograd and _state.grad_enabled() and True in [t.requires_grad for t in tensors]
        if self.opaque or self.backward is not None:
            if recording and self.schema.returns:
                return self._through_function(args, kwargs, device)
            before = _state.set_grad(False)
            try:
                return self.run_backend(args, kwargs, device, tensors)
            finally:
                _state.set_grad(before)
        result = self.run_backend(args, kwargs, device, tensors)
        return self._warning_of_backward(tensors, result) if recording else result

    def redispatch(self, keyset: DispatchKeySet, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a kernel that was given `keyset` goes on with."""
        bound = self.schema.bind(args, kwargs)
        if "Autocast" in keyset.keys:
            return self.interpret(*bound)
        with contextlib.nullcontext() if "Autograd" in keyset.keys else AutoDispatchBelowAutograd():
            return self.enter(*bound)

    def device_of(self, tensors: list[Tensor], args: Any, kwargs: Any) -> str | None:
        """The kind of device that decides on the kernel: that of the tensors, else that of an argument that is a device."""
        if tensors:
            for t in tensors:
                if t._array.__class__ is not ndarray:
                    break
            else:
                return "cpu"
            kinds = {t.device.type for t in tensors}
            return next((kind for kind in ("meta", "cuda") if kind in kinds), None) or min(kinds)
        if not self.takes_tensors:
            for argument, value in zip(self.schema.arguments, (*args, *kwargs.values()), strict=True):
                if argument.type.kind == "Device":
                    return value.type
        return None

    def kernel(self, layer: str, device: str | None) -> Kernel | None:
        """The kernel of a layer above the backends: its own for the device, its own, or a fallback."""
        names = (f"{layer}{DEVICE_KEYS.get(device or '', 'CPU')}", layer)
        for table in (self.kernels, FALLBACKS) if FALLBACKS else (self.kernels,):
            for name in names:
                if name in table:
                    found = table[name]
                    if table is FALLBACKS and found.function is not None:
                        return Kernel(functools.partial(_with_operator, found, self.overload), False)
                    return found
        return None

    def run_kernel(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], keyset: DispatchKeySet) -> Any:
        assert kernel.function is not None  # one that passes on is looked for before
        args, kwargs = self.schema.without_defaults(args, kwargs)
        return kernel.function(keyset, *args, **kwargs) if kernel.with_keyset else kernel.function(*args, **kwargs)

    # -- the kernel

    def run_backend(self, args: tuple[Any, ...], kwargs: dict[str, Any], device: str | None, tensors: list[Tensor]) -> Any:
        """The result of the kernel for `device`, or of an interpreter that keeps results."""
        for interpreter in _local.calls.interpreters:
            if interpreter.keeps_results:
                run = functools.partial(self._run_backend, args, kwargs, device, tensors)
                return interpreter.run_backend(self, args, kwargs, run)
        return self._run_backend(args, kwargs, device, tensors)

    def _run_backend(self, args: tuple[Any, ...], kwargs: dict[str, Any], device: str | None, tensors: list[Tensor]) -> Any:
        """The result of the kernel for `device`. What it computes with is seen by no interpreter."""
        calls = _local.calls
        before, calls.interpreters = calls.interpreters, ()
        try:
            result = NotImplemented
            for t in tensors:
                if t.__class__ is not Tensor:
                    result = self._of_class(args, kwargs, tensors)
                    break
            if result is NotImplemented:
                result = self._of_device(args, kwargs, device)
        finally:
            calls.interpreters = before
        result = self.schema.check_result(result)
        if self.schema.is_mutable:
            for argument, value in zip(self.schema.arguments, (*args, *kwargs.values()), strict=True):
                if argument.is_write:
                    for t in tensors_in((value,)):
                        bump(t)
        if self.opaque:
            self._refuse_aliases(tensors, result)
        return result

    def _of_class(self, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
        """The answer of an operand's class: a rule registered for it, or its ``__torch_dispatch__``; NotImplemented if there is none."""
        types = {type(t): None for t in tensors if type(t) is not Tensor}
        for cls in types:
            rule = self.torch_dispatch.get(cls)
            handler: Any = cls.__torch_dispatch__
            if handler is no_torch_dispatch:
                handler = None
            if rule is None and handler is None:
                continue
            given = self.schema.without_defaults(args, kwargs)
            if rule is not None:
                return rule(cls, self.overload, tuple(types), *given)
            result = handler(self.overload, tuple(types), *given)
            if result is not NotImplemented:
                return result
        return NotImplemented

    def _of_device(self, args: tuple[Any, ...], kwargs: dict[str, Any], device: str | None) -> Any:
        key = DEVICE_KEYS.get(device or "")
        tried = [] if key is None else [key]
        if device == "meta" and "Meta" not in self.kernels and (self.fake is not None or self.opaque) and self.takes_tensors:
            return self._run_fake(args, kwargs)
        tried += ["BackendSelect"] if device is None else []
        tried += [EXPLICIT, "CompositeExplicitAutogradNonFunctional", IMPLICIT]
        for name in tried:
            kernel = self.kernels.get(name) or FALLBACKS.get(name)
            if kernel is not None and kernel.function is not None:
                if name not in self.kernels:
                    kernel = Kernel(functools.partial(_with_operator, kernel, self.overload))
                return self.run_kernel(kernel, args, kwargs, DispatchKeySet(()))
        raise self._no_kernel(device)

    def _no_kernel(self, device: str | None) -> Exception:
        available = ", ".join(sorted(k for k, v in self.kernels.items() if v.function is not None)) or "none"
        if device is not None and not self.takes_tensors:
            return RuntimeError(f"{self.opname} does not have a kernel registered for {device}. Please use register_kernel to do so.")
        if device == "meta":
            return NotImplementedError(
                f"{self.name}: attempted to run this operator with Meta tensors, but there was no fake impl or Meta kernel registered. "
                "Register one with torch.library.register_fake"
            )
        if device is None:
            return NotImplementedError(
                "There were no tensor arguments to this function (e.g., you passed an empty list of Tensors), but no fallback function "
                f"is registered for schema {self.name}. Register one for 'default'; available: {available}"
            )
        return NotImplementedError(
            f"Could not run '{self.name}' with arguments from the '{DEVICE_KEYS.get(device, device)}' backend. Register a kernel for it "
            f"with torch.library.register_kernel. '{self.name}' is only available for these backends: [{available}]"
        )

    def _run_fake(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.fake is None:
            if not self.schema.returns:
                return None
            raise RuntimeError(self.no_fake)
        before, _thread.fake = _thread.fake, FakeContext(self)
        try:
            given, by_name = self.schema.without_defaults(args, kwargs)
            return self.fake(*given, **by_name)
        finally:
            _thread.fake = before

    def _refuse_aliases(self, tensors: list[Tensor], result: Any) -> None:
        """Raises: RuntimeError for a result in the memory of an argument or another result."""
        seen = {_memory_of(x) for x in tensors}
        results = result if isinstance(result, tuple) else (result,)
        for declared, value in zip(self.schema.returns, results, strict=False):
            if declared.alias_info is not None:
                continue
            for t in (value,) if value.__class__ is Tensor else tensors_in((value,)):
                if _memory_of(t) in seen:
                    raise RuntimeError(
                        f"{self.name}: The output of this custom operator (1) must not also be an input to this custom operator and (2) "
                        "may not alias any inputs to this custom operator or other returns. The most common way to trigger this error "
                        "is if we have y = custom_op(x) and y and x are the same Tensor. Please instead return a clone of the offending "
                        "output tensor(s) (e.g. return x.clone()) or refactor the custom operator to not return y."
                    )
                seen.add(_memory_of(t))

    # -- derivatives

    def _through_function(self, args: tuple[Any, ...], kwargs: dict[str, Any], device: str | None) -> Any:
        if self._function is None:
            self._function = _function_of(self)
        record = _Call(self, args, kwargs, device)
        made = self._function.apply(*_leaves(self.schema.positional, args), record=record)
        return record.restored(made)

    def _warning_of_backward(self, tensors: list[Tensor], result: Any) -> Any:
        """`result` of a kernel that is no formula for derivatives: a backward through it warns, as it may be wrong."""
        leaves = [t for t in tensors_in(result if isinstance(result, tuple) else (result,)) if t.dtype.is_floating_point]
        if not leaves:
            return result
        for t in leaves:
            if t.requires_grad:
                t.register_hook(functools.partial(_warn_of_backward, self.name))
        if any(t.requires_grad for t in leaves):
            return result
        made = iter(_Unformulated.apply(self.name, len(leaves), *leaves, *tensors))
        by_id = {id(t): next(made) for t in leaves}
        if isinstance(result, tuple):
            return tuple([[by_id.get(id(x), x) for x in r] if isinstance(r, list) else by_id.get(id(r), r) for r in result])
        return [by_id.get(id(x), x) for x in result] if isinstance(result, list) else by_id.get(id(result), result)


def tensors_in(values: Any) -> list[Tensor]:
    """The Tensors among `values` and in the lists among them: arguments and results that a schema has bound."""
    found: list[Tensor] = []
    for x in values:
        if isinstance(x, Tensor):
            found.append(x)
        elif x.__class__ is list:
            found += [y for y in x if isinstance(y, Tensor)]
    return found


def _with_operator(kernel: Kernel, overload: Any, *args: Any, **kwargs: Any) -> Any:
    """A fallback is told which operator it stands for."""
    assert kernel.function is not None  # its callers look for that
    return kernel.function(AFTER_AUTOGRAD, overload, *args, **kwargs) if kernel.with_keyset else kernel.function(overload, *args, **kwargs)


def _memory_of(t: Tensor) -> Any:
    """The same for tensors over one piece of memory."""
    a: Any = t._array
    if a.__class__ is MetaArray:
        return id(t._storage)
    base = a.base
    while base is not None and isinstance(base, a.__class__):
        a, base = base, base.base
    return id(a)


def _warn_of_backward(name: str, grad: Any) -> None:
    warn(
        f"{name}: an autograd kernel was not registered to the Autograd key(s) but we are trying to backprop through it. This may lead to "
        "silently incorrect behavior. If the operator is differentiable, register its formula with torch.library.register_autograd"
    )


class _Unformulated(Function):
    """The history of results of an operator without a formula: their gradients end here, with a warning."""

    @staticmethod
    def forward(ctx: Any, name: str, count: int, *tensors: Any) -> Any:
        ctx.operator_name = name
        return tuple([t.view(t.shape) for t in tensors[:count]])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        _warn_of_backward(ctx.operator_name, None)
        return (None,) * len(ctx.needs_input_grad)


class _Call:
    """One call on its way through autograd: the arguments' structure, and that of the results."""

    def __init__(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], device: str | None) -> None:
        self.operator, self.kwargs, self.device = operator, kwargs, device
        # How many leaves each argument is, None for one that is no list of tensors.
        self.lengths = [len(v) if _is_tensor_list(a, v) else None for a, v in zip(operator.schema.positional, args, strict=True)]
        self.result_lengths: list[int | None] = []

    def run(self, ctx: Any, leaves: tuple[Any, ...]) -> tuple[Any, ...]:
        operator = self.operator
        args = tuple(_grouped(leaves, self.lengths))
        result = operator.run_backend(args, self.kwargs, self.device, tensors_in((*args, *self.kwargs.values())))
        if operator.setup_context is not None:
            flags, ctx.needs_input_grad = ctx.needs_input_grad, tuple(_grouped(ctx.needs_input_grad, self.lengths))
            if operator.schema.keyword_only:
                operator.setup_context(ctx=ctx, inputs=args, keyword_only_inputs=self.kwargs, output=result)
            else:
                operator.setup_context(ctx=ctx, inputs=args, output=result)
            ctx.needs_input_grad = flags
        results = result if len(operator.schema.returns) > 1 else (result,)
        self.result_lengths = [len(r) if isinstance(r, list) else None for r in results]
        return tuple(_leaves(operator.schema.returns, results))

    def restored(self, made: tuple[Any, ...]) -> Any:
        results = tuple(_grouped(made, self.result_lengths))
        return results if len(self.operator.schema.returns) > 1 else results[0]

    def backward(self, ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        operator = self.operator
        if operator.backward is None:
            raise RuntimeError(
                f"Trying to backward through {operator.dotted} but no autograd formula was registered. Please use register_autograd to "
                "add one."
            )
        flags, ctx.needs_input_grad = ctx.needs_input_grad, tuple(_grouped(ctx.needs_input_grad, self.lengths))
        try:
            found = operator.backward(ctx, *_grouped(grads, self.result_lengths))
        finally:
            ctx.needs_input_grad = flags
        return self._flat(found if isinstance(found, tuple) else (found,))

    def _flat(self, found: tuple[Any, ...]) -> tuple[Any, ...]:
        def shape(v: Any) -> Any:
            return len(v) if isinstance(v, (list, tuple)) else None

        shapes = [shape(v) for v in found]
        if shapes != self.lengths:

            def described(shapes: list[Any]) -> str:
                return f"({', '.join('*' if n is None else f'a list of {n}' for n in shapes)})"

            raise RuntimeError(
                f"Expected the return from backward to be of the same structure as the inputs. Got: {described(shapes)} (return from "
                f"backward), {described(self.lengths)} (inputs). Return one gradient or None for each argument of {self.operator.dotted}, "
                "and a list of them for a list of tensors"
            )
        return tuple([g for v, n in zip(found, shapes, strict=True) for g in ((v,) if n is None else v)])


def _is_tensor_list(argument: Any, value: Any) -> bool:
    return isinstance(value, list) and argument.type.has_tensors


def _leaves(declared: list[Any], values: Any) -> list[Any]:
    """`values` with lists of tensors opened."""
    found: list[Any] = []
    for argument, value in zip(declared, values, strict=True):
        found.extend(value if _is_tensor_list(argument, value) else (value,))
    return found


def _grouped(leaves: Any, lengths: list[int | None]) -> Iterator[Any]:
    """What `_leaves` has opened, closed again."""
    at = 0
    for n in lengths:
        yield leaves[at] if n is None else list(leaves[at : at + n])
        at += 1 if n is None else n


def _function_of(operator: Operator) -> Any:
    """The `autograd.Function` that records calls of `operator`."""

    def forward(ctx: Any, *leaves: Any, record: _Call) -> Any:
        ctx._record = record
        return record.run(ctx, leaves)

    def backward(ctx: Any, *grads: Any) -> Any:
        return ctx._record.backward(ctx, grads)

    name = f"GeneratedBackwardFor_{operator.namespace}_{operator.opname}_{operator.overload_name}"
    return type(name, (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})

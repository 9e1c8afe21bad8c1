"""`Module`: the tree of named parameters, buffers and submodules, and how a call, a copy or a save walks it."""

from __future__ import annotations

import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import flambeau as fb
from flambeau.__future__ import (
    get_swap_module_params_on_conversion,
)

from ... import _state
from ...autograd.tape import RemovableHandle
from ..parameter import Buffer, Parameter, is_lazy
from ._hooks import BackwardGates, add_hook, warn_of_what_is_missed
from ._trail import note_module

__all__ = [
    "register_module_forward_pre_hook",
    "register_module_forward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_backward_hook",
    "register_module_full_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
    "Module",
]

Tensor = fb.Tensor
T_destination = TypeVar("T_destination", bound=dict[str, Any])

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"

# Made when first asked for. Most modules never have a hook, and a module is made without any of these.
_HOOK_TABLES_OF_CALLS = frozenset(
    {
        "_forward_hooks",
        "_forward_hooks_with_kwargs",
        "_forward_hooks_always_called",
        "_forward_pre_hooks",
        "_forward_pre_hooks_with_kwargs",
        "_backward_hooks",
        "_backward_pre_hooks",
    }
)
_HOOK_TABLES = _HOOK_TABLES_OF_CALLS | {
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
}


class _GlobalHooks:
    """The hooks common to all modules."""

    def __init__(self) -> None:
        self.full_backward: bool | None = None
        self.forward: OrderedDict[int, Any] = OrderedDict()
        self.forward_with_kwargs: OrderedDict[int, bool] = OrderedDict()
        self.forward_always: OrderedDict[int, bool] = OrderedDict()
        self.forward_pre: OrderedDict[int, Any] = OrderedDict()
        self.backward: OrderedDict[int, Any] = OrderedDict()
        self.backward_pre: OrderedDict[int, Any] = OrderedDict()
        self.buffer_registration: OrderedDict[int, Any] = OrderedDict()
        self.module_registration: OrderedDict[int, Any] = OrderedDict()
        self.parameter_registration: OrderedDict[int, Any] = OrderedDict()

    def on_calls(self) -> bool:
        """Whether any of them concerns calls."""
        return bool(self.forward or self.forward_pre or self.backward or self.backward_pre)


_global = _GlobalHooks()
_global_parameter_registration_hooks = _global.parameter_registration  # by which packages find them
# True while there are global hooks on calls; a plain global, because every call tests it.
_watching_all = False
_NO_INPUT = object()


def _add_global_call_hook(hooks: OrderedDict[int, Any], hook: Callable[..., Any], marks: Any = ()) -> RemovableHandle:
    global _watching_all
    handle = add_hook(hooks, hook, marks=marks)
    _watching_all = True
    return handle


def _settle() -> None:
    """Stop watching all calls once the last global hook on them is gone."""
    global _watching_all
    _watching_all = _global.on_calls()


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, args)` before every module's forward; what it returns, if anything, replaces the args."""
    return _add_global_call_hook(_global.forward_pre, hook)


def register_module_forward_hook(hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """Run `hook(module, args, output)` after every module's forward; what it returns, if anything, is the output.

    Args:
        with_kwargs: the hook is called as `hook(module, args, kwargs, output)`.
        always_call: the hook runs even when forward raises.
    """
    marks = [
        mark
        for wanted, mark in (
            (with_kwargs, _global.forward_with_kwargs),
            (always_call, _global.forward_always),
        )
        if wanted
    ]
    return _add_global_call_hook(_global.forward, hook, marks)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, grad_output)` for every module once the gradients of its outputs are computed."""
    return _add_global_call_hook(_global.backward_pre, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, grad_input, grad_output)` for every module once the gradients of its inputs are there."""
    return _register_global_backward(hook, full=True)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Deprecated: like `register_module_full_backward_hook`, but sees only a module's last operation."""
    return _register_global_backward(hook, full=False)


def _register_global_backward(hook: Callable[..., Any], full: bool) -> RemovableHandle:
    if _global.backward and _global.full_backward is not full:
        raise RuntimeError(
            "register_module_backward_hook and register_module_full_backward_hook cannot be mixed; "
            "remove the hooks of the other kind first"
        )
    _global.full_backward = full
    return _add_global_call_hook(_global.backward, hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, name, buffer)` when a buffer is registered; it may return another buffer to keep."""
    return add_hook(_global.buffer_registration, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, name, submodule)` when a submodule is registered; it may return another to keep."""
    return add_hook(_global.module_registration, hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, name, param)` whenever a parameter is registered; it may return another to keep."""
    return add_hook(_global.parameter_registration, hook)


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What `load_state_dict` found missing and unexpected."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


def _type_name(value: Any) -> str:
    return value.type() if type(value) is Tensor else type(value).__name__


def _indented(text: str, spaces: int) -> str:
    """`text` with every line but the first moved right."""
    return text.replace("\n", "\n" + " " * spaces)


_addindent = _indented  # the name under which packages import it from PyTorch


class Module:
    """Base class of all layers and models: a callable with named parameters, buffers and submodules.

    A subclass calls ``super().__init__()`` first, assigns `Parameter` and `Module` attributes, which register
    themselves, and defines `forward`. Calling the module runs its hooks and `forward`.

    When `forward` raises, the exception carries a note naming the innermost module by its attribute path, for
    example ``in blocks.3.ff: Linear(in_features=4096, out_features=5120, bias=True)``.

    Attributes:
        training: True in training mode, False in evaluation mode.

    >>> class Scale(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = nn.Parameter(fb.tensor(2.0))
    ...
    ...     def forward(self, x):
    ...         return self.factor * x
    >>> Scale()(fb.ones(2)), [name for name, _ in Scale().named_parameters()]
    (tensor([2., 2.], grad_fn=<MulBackward0>), ['factor'])
    """

    dump_patches: bool = False
    # Version of the state_dict layout; it is written beside the state, and `_load_from_state_dict` may read it.
    _version: int = 1
    T_destination = T_destination
    # A subclass sets this to have __init__ pass its arguments on to the next class in the resolution order.
    call_super_init: bool = False

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _non_persistent_buffers_set: set[str]
    _modules: dict[str, Module | None]
    # True once the module has had a hook on calls: the one thing a call tests.
    _watched: bool = False
    _is_full_backward_hook: bool | None = None
    _compiled_call_impl: Callable[..., Any] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            what = f"{len(args)} positional" if args else f"the keyword {next(iter(kwargs))!r}"
            raise TypeError(
                f"{type(self).__name__}.__init__() hands {what} argument(s) to Module.__init__(), which "
                "takes none; "
                "set call_super_init = True to pass them to the next base class"
            )
        self.__dict__.update(
            training=True,
            _watched=False,
            _parameters={},
            _buffers={},
            _non_persistent_buffers_set=set(),
            _modules={},
        )
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # -- calling ---------------------------------------------------------------------------------------------

    def forward(self, *input: Any) -> Any:
        """The computation of this module. Every subclass defines it; callers call the module itself."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, input: Any = _NO_INPUT, /, *rest: Any, **kwargs: Any) -> Any:
        # Nearly all calls have one argument and nobody watching: they skip packing and unpacking arguments.
        if self._watched or _watching_all or rest or kwargs or input is _NO_INPUT:
            return self._general_call(() if input is _NO_INPUT else (input, *rest), kwargs)
        try:
            return self.forward(input)
        except Exception as error:
            note_module(error, self)
            raise

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """A call with its hooks, but without what `compile` put in its place."""
        try:
            return self._hooked_call(args, kwargs)
        except Exception as error:
            note_module(error, self)
            raise

    def _general_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        try:
            watched = self._watched or _watching_all
            return self._hooked_call(args, kwargs) if watched else self.forward(*args, **kwargs)
        except Exception as error:
            note_module(error, self)
            raise

    def _hooked_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _state.IN_FORCE:
            _state.note_python()
        _settle()
        gates, last_operation_hooks = self._backward_watchers()
        pending = [*self._forward_hooks_to_run()]
        result = None
        try:
            for given in self._run_forward_pre_hooks(args, kwargs):
                args, kwargs = given
            if gates is not None:
                args = gates.on_inputs(args)
            result = self.forward(*args, **kwargs)
            while pending:
                hook, with_kwargs, _ = pending.pop(0)
                returned = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
                result = result if returned is None else returned
            if gates is not None:
                result = gates.on_outputs(result)
        except Exception:
            self._run_always_called(pending, args, kwargs, result)
            raise
        if last_operation_hooks:
            self._watch_last_operation(args, result, last_operation_hooks)
        return result

    def _run_forward_pre_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[tuple, dict[str, Any]]]:
        """What each of the hooks makes of the arguments, one after the other."""
        with_kwargs = self._hooks("_forward_pre_hooks_with_kwargs")
        for key, hook in (*_global.forward_pre.items(), *self._hooks("_forward_pre_hooks").items()):
            if key in with_kwargs:
                returned = hook(self, args, kwargs)
                if returned is not None:
                    if not (isinstance(returned, tuple) and len(returned) == 2):
                        raise RuntimeError(
                            "a forward pre-hook with kwargs must return None or (args, kwargs), but got "
                            f"{returned!r}"
                        )
                    args, kwargs = returned
            else:
                returned = hook(self, args)
                if returned is not None:
                    args = returned if isinstance(returned, tuple) else (returned,)
            yield args, kwargs

    def _forward_hooks_to_run(self) -> Iterator[tuple[Callable[..., Any], bool, bool]]:
        """Each forward hook, whether it takes kwargs, and whether it runs even when forward raises."""
        own = self._hooks
        for key, hook in _global.forward.items():
            yield hook, key in _global.forward_with_kwargs, key in _global.forward_always
        with_kwargs, always = own("_forward_hooks_with_kwargs"), own("_forward_hooks_always_called")
        for key, hook in own("_forward_hooks").items():
            yield hook, key in with_kwargs, key in always

    def _run_always_called(self, pending: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """After an exception: the hooks that asked to run regardless, with the result as far as there is one.
        Their own exceptions become warnings."""
        for hook, with_kwargs, always in pending:
            if not always:
                continue
            try:
                returned = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
                result = result if returned is None else returned
            except Exception as error:
                warnings.warn(
                    f"a forward hook with always_call=True raised {error!r}; it is silenced because "
                    f"{type(self).__name__} raised before it",
                    stacklevel=4,
                )

    def _backward_watchers(self) -> tuple[BackwardGates | None, list[Callable[..., Any]]]:
        """The gates for full backward hooks, if there are any, and the hooks on the last operation only."""
        full: list[Callable[..., Any]] = []
        last_operation: list[Callable[..., Any]] = []
        (full if _global.full_backward else last_operation).extend(_global.backward.values())
        (full if self._is_full_backward_hook else last_operation).extend(self._hooks("_backward_hooks").values())
        pre = [*_global.backward_pre.values(), *self._hooks("_backward_pre_hooks").values()]
        return (BackwardGates(self, full, pre) if full or pre else None), last_operation

    def _watch_last_operation(self, args: tuple[Any, ...], result: Any, hooks: list[Callable[..., Any]]) -> None:
        """Put deprecated backward hooks on the operation that made `result`."""
        tensor = result
        while not isinstance(tensor, Tensor):
            tensor = (
                next(v for v in tensor.values() if isinstance(v, Tensor))
                if isinstance(tensor, Mapping)
                else tensor[0]
            )
        if tensor.grad_fn is not None:
            warn_of_what_is_missed(args, result, tensor.grad_fn)
            for hook in hooks:
                tensor.grad_fn.register_hook(lambda grad_in, grad_out, hook=hook: hook(self, grad_in, grad_out))

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile calls of this module in place, with the arguments of `flambeau.compile`."""
        self._compiled_call_impl = fb.compile(self._call_impl, *args, **kwargs)
        self._watched = True

    # -- hooks -----------------------------------------------------------------------------------------------

    def _hooks(self, table: str) -> Mapping[int, Any]:
        """The hooks in `table`, which need not exist."""
        return self.__dict__.get(table, {})

    def register_forward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """Run `hook(module, args)` before `forward`.

        Args:
            hook: may return the arguments to use instead, a tuple or a single value.
            prepend: before the hooks that are there.
            with_kwargs: the hook is called as `hook(module, args, kwargs)` and returns None or `(args, kwargs)`.
        Returns: a handle whose `remove()` takes the hook out.
        """
        marks = [self._forward_pre_hooks_with_kwargs] if with_kwargs else []
        return add_hook(self._forward_pre_hooks, hook, prepend, marks)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Run `hook(module, args, output)` after `forward`; what it returns, unless None, replaces the output.

        Args:
            prepend: before the hooks that are there.
            with_kwargs: the hook is called as `hook(module, args, kwargs, output)`.
            always_call: the hook runs also when `forward` raises, with None as output.
        Returns: a handle whose `remove()` takes the hook out.
        """
        marks = [self._forward_hooks_with_kwargs] if with_kwargs else []
        if always_call:
            marks.append(self._forward_hooks_always_called)
        return add_hook(self._forward_hooks, hook, prepend, marks)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Run `hook(module, grad_output)` once the gradients of the outputs are computed.

        `grad_output` is a tuple as long as the outputs; the hook may return another to use instead.
        """
        return add_hook(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Run `hook(module, grad_input, grad_output)` once the gradients of the inputs are computed.

        `grad_input` is a tuple as long as the positional inputs, None where an input has no gradient; the
        hook may return another to use instead.
        Raises: RuntimeError if the module has hooks of `register_backward_hook`.
        """
        self._choose_backward_kind(full=True)
        return add_hook(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Deprecated: the hook sees the gradients of the last operation only. See `register_full_backward_hook`."""
        self._choose_backward_kind(full=False)
        return add_hook(self._backward_hooks, hook)

    def _choose_backward_kind(self, full: bool) -> None:
        if self._is_full_backward_hook is (not full):
            raise RuntimeError(
                f"{type(self).__name__} cannot have both register_backward_hook and "
                "register_full_backward_hook hooks"
            )
        self._is_full_backward_hook = full

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(module, prefix, keep_vars)` before `state_dict` collects this module."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(module, state_dict, prefix, local_metadata)` after; it edits `state_dict` in place."""
        hook._from_public_api = True  # pyright: ignore[reportFunctionMemberAccess]  # read after the hook ran
        return add_hook(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """As `register_state_dict_post_hook`, but what the hook returns, unless None, replaces the state_dict."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(f"{hook} is registered by register_state_dict_post_hook and cannot be both kinds")
        return add_hook(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
        error_msgs)` before this module loads; it may edit its arguments in place."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any], with_module: bool = False) -> RemovableHandle:
        return add_hook(self._load_state_dict_pre_hooks, _LoadPreHook(hook, with_module))

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(module, incompatible_keys)` after this module loaded; it may edit the two lists in place."""
        return add_hook(self._load_state_dict_post_hooks, hook)

    # -- registering -----------------------------------------------------------------------------------------

    def _check_new_name(self, kind: str, name: Any, registry: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string, got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{kind} name {name!r} can\'t contain ".": it would break the paths of state_dict')
        if name == "":
            raise KeyError(f"{kind} name can't be the empty string")
        if name not in self.__dict__[registry] and hasattr(self, name):
            raise KeyError(f"{kind} {name!r}: {type(self).__name__} already has an attribute of that name")

    def _check_ready(self, registry: str, kind: str) -> None:
        if registry not in self.__dict__:
            raise AttributeError(
                f"cannot assign {kind} before Module.__init__() call: {type(self).__name__}.__init__ must "
                "call "
                "super().__init__() first"
            )

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add `param` under `name`; None reserves the name for a parameter.

        Raises: KeyError for a name that is empty, dotted or taken; TypeError if `param` is no Parameter; ValueError
        if it was computed from other tensors.
        """
        self._check_ready("_parameters", "parameter")
        self._check_new_name("parameter", name, "_parameters")
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{_type_name(param)}' object to parameter {name!r} (Parameter or None "
                    "required)"
                )
            if param.grad_fn is not None:
                raise ValueError(
                    f"parameter {name!r} must be a leaf: compute it in forward() instead, from parameters "
                    "that are"
                )
            param = _after_hooks(_global.parameter_registration, self, name, param)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add `tensor` under `name`: state that follows the module's device and dtype but is not trained.

        Args:
            tensor: None reserves the name for a buffer.
            persistent: whether it is part of `state_dict`.
        Raises: KeyError for a name that is empty, dotted or taken; TypeError if `tensor` is no Tensor.
        """
        self._check_ready("_buffers", "buffer")
        self._check_new_name("buffer", name, "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{_type_name(tensor)}' object to buffer {name!r} (Tensor or None required)")
        self._buffers[name] = _after_hooks(_global.buffer_registration, self, name, tensor)
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add `module` as a child under `name`. The same as `add_module`.

        Raises: KeyError for a name that is empty, dotted or taken; TypeError if `module` is no Module.
        """
        self._check_ready("_modules", "module")
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{_type_name(module)} is not a Module subclass; cannot add it as child {name!r}")
        self._check_new_name("module", name, "_modules")
        self._modules[name] = _after_hooks(_global.module_registration, self, name, module)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add `module` as a child under `name`.

        Raises: KeyError for a name that is empty, dotted or taken; TypeError if `module` is no Module.
        """
        self.register_module(name, module)

    # -- attributes ------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        attributes = self.__dict__
        for registry in ("_parameters", "_buffers", "_modules"):
            found = attributes.get(registry)
            if found is not None and name in found:
                return found[name]
        if name in _HOOK_TABLES:
            if name in _HOOK_TABLES_OF_CALLS:
                attributes["_watched"] = True
            return attributes.setdefault(name, OrderedDict())
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def _weight_and_bias(self) -> tuple[Any, Any]:
        """`weight` and `bias` straight from the registry: to look up the attribute of a parameter costs as much as a small layer."""
        parameters = self._parameters
        try:
            return parameters["weight"], parameters["bias"]
        except KeyError:                              # replaced by a parametrization, a pruning mask, a property
            return self.weight, self.bias

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter):
            self._check_ready("_parameters", "parameters")
            self._forget(name, but="_parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Module) and name not in self.__dict__.get("_parameters", ()):
            self._check_ready("_modules", "module")
            self._forget(name, but="_modules")
            self._modules[name] = _after_hooks(_global.module_registration, self, name, value)
        elif not self._set_registered(name, value):
            object.__setattr__(self, name, value)

    def _set_registered(self, name: str, value: Any) -> bool:
        """Assign what is not a Parameter or Module to a registered name; False if the name is an ordinary one."""
        attributes = self.__dict__
        if name in attributes.get("_parameters", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{_type_name(value)}' as parameter {name!r} (Parameter or None expected)")
            self._parameters[name] = None
        elif name in attributes.get("_modules", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{_type_name(value)}' as child module {name!r} (Module or None expected)")
            self._modules[name] = _after_hooks(_global.module_registration, self, name, None)
        elif isinstance(value, Buffer):
            self._check_ready("_buffers", "buffer")
            persistent = name not in self._non_persistent_buffers_set if name in self._buffers else value.persistent
            self._forget(name, but="_buffers")
            self.register_buffer(name, value, persistent)
        elif name in attributes.get("_buffers", ()):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"cannot assign '{_type_name(value)}' as buffer {name!r} (Tensor or None expected)")
            self._buffers[name] = _after_hooks(_global.buffer_registration, self, name, value)
        else:
            return False
        return True

    def _forget(self, name: str, but: str) -> None:
        """Remove `name` wherever it is kept, except from the registry `but`."""
        attributes = self.__dict__
        attributes.pop(name, None)
        for registry in ("_parameters", "_buffers", "_modules"):
            if registry != but:
                attributes.get(registry, {}).pop(name, None)
        if but != "_buffers":
            attributes.get("_non_persistent_buffers_set", set()).discard(name)

    def __delattr__(self, name: str) -> None:
        attributes = self.__dict__
        for registry in ("_parameters", "_buffers", "_modules"):
            if name in attributes.get(registry, ()):
                del attributes[registry][name]
                attributes["_non_persistent_buffers_set"].discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers}
        # Names such as the "0" of a Sequential cannot be written as attributes.
        return sorted(name for name in names if not name[0].isdigit())

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if any(map(state.get, _HOOK_TABLES_OF_CALLS)):
            # PyTorch's modules come with hooks, but without our mark that calls have to look for them.
            self.__dict__["_watched"] = True

    # -- finding by path -------------------------------------------------------------------------------------

    def get_submodule(self, target: str) -> Module:
        """The submodule at the dotted path `target`; the empty path is this module.

        Raises: AttributeError if there is none, or something else is there.
        """
        module = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{target!r}: {type(module).__name__} has no attribute {name!r}")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"{target!r}: {name!r} is not a Module but a {type(module).__name__}")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put `module` at the dotted path `target`.

        Args:
            strict: there must be a submodule at `target` already.
        Raises: ValueError for an empty path or if `module` is no Module; AttributeError if the path leads nowhere.
        """
        if target == "":
            raise ValueError("set_submodule needs a path, got an empty one")
        if not isinstance(module, Module):
            raise ValueError(f"set_submodule({target!r}): expected a Module, got {type(module).__name__}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{target!r}: {type(parent).__name__} has no attribute {name!r}")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"{target!r}: {name!r} is not a Module")
        setattr(parent, name, module)

    def _get_member(self, target: str) -> tuple[Module, str]:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{target!r}: {type(module).__name__} has no attribute {name!r}")
        return module, name

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at the dotted path `target`. Raises AttributeError if it is not a Parameter."""
        module, name = self._get_member(target)
        param = getattr(module, name)
        if not isinstance(param, Parameter):
            raise AttributeError(f"{target!r}: {name!r} is not a Parameter but a {type(param).__name__}")
        return param

    def get_buffer(self, target: str) -> Any:
        """The buffer at the dotted path `target`. Raises AttributeError if it is not a buffer."""
        module, name = self._get_member(target)
        if name not in module._buffers:
            raise AttributeError(f"{target!r}: {name!r} is not a buffer")
        return module._buffers[name]

    # -- walking ---------------------------------------------------------------------------------------------

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it, with their paths, parents first; a shared one only at its first path."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The direct submodules with their names; a shared one once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The direct submodules."""
        for _, module in self.named_children():
            yield module

    def _named_members(
        self,
        get_members_fn: Callable[[Module], Iterable[tuple[str, Any]]],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        seen = set()
        walk = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in walk:
            for name, value in get_members_fn(module):
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """All parameters with their paths; a shared one only at its first path unless `remove_duplicate=False`."""
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, of this module and (`recurse`) those below, each once."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """All buffers with their paths; a shared one only at its first path unless `remove_duplicate=False`."""
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, of this module and (`recurse`) those below, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    # -- changing all of it ----------------------------------------------------------------------------------

    def apply(self, fn: Callable[[Module], None]) -> Module:
        """Call `fn` with every submodule, children first, and with this module last. Returns self."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Module:
        """Replace every parameter, its gradient and every buffer by `fn` of it. Returns self.

        A parameter stays the same object unless it changes between the meta device and a real one.
        """
        from ._conversion import NotSwapped, apply_to_lazy, apply_to_parameter

        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, param in self._parameters.items():
            if param is not None:
                try:
                    self._parameters[name] = apply_to_parameter(param, fn)
                except NotSwapped as error:
                    raise RuntimeError(f"_apply(): Couldn't swap {type(self).__name__}.{name}: {error}") from error
        for name, buffer in self._buffers.items():
            if is_lazy(buffer):
                apply_to_lazy(buffer, fn)
            elif buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Module:
        """Move and convert all parameters and buffers in place. Returns self.

        Called as ``to(device)``, ``to(dtype)``, ``to(device, dtype)``, ``to(tensor)`` (its device and dtype),
        each with `non_blocking`, or ``to(memory_format=...)``. Only floating and complex tensors change
        dtype; only those with 4 or 5 dimensions change memory format.
        Raises: TypeError if the dtype is neither floating nor complex.
        """
        from ._conversion import parse_to

        device, dtype, non_blocking, memory_format = parse_to(*args, **kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(f"Module.to takes a floating or complex dtype, got {dtype}")

        def convert(t: Tensor) -> Tensor:
            new_dtype = dtype if t.is_floating_point() or t.is_complex() else None
            options: dict[str, Any] = {}
            if memory_format is not None and t.dim() in (4, 5):
                options["memory_format"] = memory_format
            return (
                t.to(device, new_dtype, non_blocking, **options)
                if device is not None
                else t.to(new_dtype or t.dtype, non_blocking, **options)
            )

        return self._apply(convert)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Module:
        """Move to `device` without copying: all values are uninitialised afterwards. Returns self."""
        from ._conversion import empty_like

        return self._apply(lambda t: empty_like(t, device), recurse=recurse)

    def type(self, dst_type: Any) -> Module:
        """Cast all parameters and buffers to `dst_type`, in place. Returns self."""
        return self._apply(lambda t: t.type(dst_type))

    def _cast(self, dtype: Any) -> Module:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self) -> Module:
        """Cast all floating parameters and buffers to float32, in place. Returns self."""
        return self._cast(fb.float32)

    def double(self) -> Module:
        """Cast all floating parameters and buffers to float64, in place. Returns self."""
        return self._cast(fb.float64)

    def half(self) -> Module:
        """Cast all floating parameters and buffers to float16, in place. Returns self."""
        return self._cast(fb.float16)

    def bfloat16(self) -> Module:
        """Cast all floating parameters and buffers to bfloat16, in place. Returns self."""
        return self._apply(lambda t: t.bfloat16() if t.is_floating_point() else t)

    def cpu(self) -> Module:
        """Move all parameters and buffers to the CPU, in place. Returns self."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device: Any = None) -> Module:
        """Move all parameters and buffers to a CUDA device (default: the current one), in place.

        Returns: self.
        """
        return self._apply(lambda t: t.cuda(device))

    def ipu(self, device: Any = None) -> Module:
        """Graphcore IPUs are not supported; raises as the tensors' `to` does."""
        from ._conversion import accelerator_named

        return self._apply(lambda t: t.to(accelerator_named("ipu", device)))

    def xpu(self, device: Any = None) -> Module:
        """Intel XPUs are not supported; raises as the tensors' `to` does."""
        from ._conversion import accelerator_named

        return self._apply(lambda t: t.to(accelerator_named("xpu", device)))

    def mtia(self, device: Any = None) -> Module:
        """MTIA devices are not supported; raises as the tensors' `to` does."""
        from ._conversion import accelerator_named

        return self._apply(lambda t: t.to(accelerator_named("mtia", device)))

    def share_memory(self) -> Module:
        """Move all parameters and buffers to memory shared with other processes. Returns self."""
        for t in (*self.parameters(), *self.buffers()):
            if is_lazy(t):
                t.share_memory_()                     # which says what is missing
        return self._apply(lambda t: t.share_memory_())

    def train(self, mode: bool = True) -> Module:
        """Set training mode (`mode=False`: evaluation mode) here and below. Returns self."""
        if not isinstance(mode, bool):
            raise ValueError(f"train(mode) expects a bool, got {mode!r}")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Module:
        """Set evaluation mode here and below; the same as ``train(False)``. Returns self."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Say for all parameters whether autograd records operations on them. Returns self."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all parameters' gradients, or fill them with zeros if `set_to_none=False`."""
        if set_to_none:
            _state.event("zero_grad", self, self._forget_grads)
            return
        for param in self.parameters():
            if param.grad is not None:
                param.grad = param.grad.detach().zero_()

    def _forget_grads(self) -> None:
        for param in self.parameters():
            param.grad = None

    # -- saving and loading ----------------------------------------------------------------------------------

    def get_extra_state(self) -> Any:
        """Whatever else belongs into `state_dict`, under the key ``_extra_state``. Define it with `set_extra_state`."""
        raise RuntimeError(f"{type(self).__name__} defines no get_extra_state()")

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` returned."""
        raise RuntimeError(f"{type(self).__name__} was given extra state to load but defines no set_extra_state()")

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """All parameters, persistent buffers and extra states by path, sharing memory with the module.

        Args:
            destination: the dictionary to fill; a new OrderedDict by default.
            prefix: put before every path.
            keep_vars: give the parameters themselves rather than detached tensors.
        Returns: `destination`, whose attribute `_metadata` holds each module's version.
        """
        if args:
            # Positional arguments are deprecated; they come in this order.
            given: tuple[Any, ...] = (*args, *(destination, prefix, keep_vars)[len(args) :])
            destination, prefix, keep_vars = given
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._hooks("_state_dict_pre_hooks").values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        return self._run_state_dict_hooks(destination, prefix, local_metadata)

    def _run_state_dict_hooks(self, destination: Any, prefix: str, local_metadata: dict[str, Any]) -> Any:
        for hook in self._hooks("_state_dict_hooks").values():
            returned = hook(self, destination, prefix, local_metadata)
            if returned is None:
                continue
            if getattr(hook, "_from_public_api", False):
                raise RuntimeError("a state_dict post-hook must edit the state_dict in place and return None")
            destination = returned
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Put this module's own state into `destination`. A subclass may extend it."""
        for name, tensor in self._own_state().items():
            if tensor is not None:
                destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def _own_state(self) -> dict[str, Any]:
        """This module's parameters and persistent buffers by name, None where only the name is reserved."""
        buffers = {k: v for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set}
        return {**self._parameters, **buffers}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> _IncompatibleKeys:
        """Copy a state_dict's values into the parameters and buffers, here and below.

        Args:
            state_dict: by path, as `state_dict` gives it; its attribute `_metadata`, if any, is used.
            strict: paths that are missing or unexpected are errors.
            assign: make the given tensors the parameters and buffers, rather than copying their values;
                dtypes and devices are then theirs, only `requires_grad` stays.
        Returns: the missing and unexpected paths, as `missing_keys` and `unexpected_keys`.
        Raises: TypeError if `state_dict` is no mapping; RuntimeError listing everything that does not fit.
        """
        from ._loading import Loading

        if not isinstance(state_dict, Mapping):
            raise TypeError(f"load_state_dict expects a mapping from paths to tensors, got {type(state_dict).__name__}")
        loading = Loading(state_dict, assign)
        loading.visit(self, "")
        errors = list(loading.errors)
        if strict:
            for title, keys in (("Unexpected", loading.unexpected), ("Missing", loading.missing)):
                if keys:
                    errors.insert(
                        0, f"{title} key(s) in state_dict: " + ", ".join(f'"{k}"' for k in keys) + "."
                    )
        if errors:
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors)
            )
        return _IncompatibleKeys(loading.missing, loading.unexpected)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load this module's own state. A subclass may extend it, for instance to read older layouts.

        What does not fit is appended to the three lists; nothing is raised.
        """
        arguments = (state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        for hook in self._hooks("_load_state_dict_pre_hooks").values():
            hook(self, *arguments) if getattr(hook, "with_module", False) else hook(*arguments)

        own = self._own_state()
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, current in own.items():
            if current is None:
                continue
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            try:
                self._load_tensor(name, key, current, state_dict[key], assign)
            except Exception as error:
                error_msgs.append(f"{key}: {error}" if not str(error).startswith("size mismatch") else str(error))
        self._load_extra_state(state_dict, prefix + _EXTRA_STATE_KEY_SUFFIX, strict, missing_keys, unexpected_keys)
        if strict:
            unexpected_keys.extend(
                key
                for key in state_dict
                if key.startswith(prefix) and not self._expects(key[len(prefix) :], own)
            )

    def _load_tensor(self, name: str, key: str, current: Tensor, given: Any, assign: bool) -> None:
        """Copy `given` into `current`, or put it in its place."""
        if not isinstance(given, Tensor):
            raise TypeError(f"expected a Tensor in the state_dict, got {type(given).__name__}")
        if is_lazy(current) and is_lazy(given):
            if assign:
                setattr(self, name, given)
            return  # neither has values yet
        if not is_lazy(current):
            if current.dim() == 0 and tuple(given.shape) == (1,):
                given = given[0]  # scalars were saved with one dimension long ago
            if given.shape != current.shape:
                raise ValueError(
                    f"size mismatch for {key}: the state_dict has shape {tuple(given.shape)}, "
                    f"the module {tuple(current.shape)}"
                )
        if current._lacks_values and not given._lacks_values and not assign:
            warnings.warn(
                f"{key}: copying from a real tensor into a parameter on the meta device does nothing; "
                "pass assign=True to put the tensor in its place",
                stacklevel=6,
            )
        with fb.no_grad():
            if get_swap_module_params_on_conversion() and not is_lazy(current):
                from ._loading import load_swapped

                load_swapped(current, given, assign)
            elif not assign:
                current.copy_(given)
            elif isinstance(current, Parameter):
                if not isinstance(given, Parameter):
                    given = Parameter(given, requires_grad=current.requires_grad)
                else:
                    given.requires_grad_(current.requires_grad)
                setattr(self, name, given)
            else:
                setattr(self, name, given)

    def _load_extra_state(self, state_dict: Any, key: str, strict: bool, missing_keys: list[str], unexpected_keys: list[str]) -> None:
        if type(self).set_extra_state is not Module.set_extra_state:
            if key in state_dict:
                self.set_extra_state(state_dict[key])
            elif strict:
                missing_keys.append(key)
        elif strict and key in state_dict:
            unexpected_keys.append(key)

    def _expects(self, path: str, own: dict[str, Any]) -> bool:
        """Whether `path`, taken from a state_dict, leads to something of this module or below."""
        if path == _EXTRA_STATE_KEY_SUFFIX:
            return True  # judged by `_load_extra_state`
        name, dot, _ = path.partition(".")
        return name in self._modules if dot else name in own

    # -- printing --------------------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What stands in the parentheses of the module's repr; one or more lines."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        children = [f"({name}): {_indented(repr(module), 2)}" for name, module in self._modules.items()]
        lines = extra.split("\n") if extra else []
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + children) + "\n)"


class _LoadPreHook:
    """A hook before loading, and whether it is handed the module. Calling it calls the hook."""

    def __init__(self, hook: Callable[..., Any], with_module: bool) -> None:
        self.hook = hook
        self.with_module = with_module

    def __call__(self, *args: Any) -> Any:
        return self.hook(*args)


def _after_hooks(hooks: OrderedDict[int, Any], module: Module, name: str, value: Any) -> Any:
    """`value` after the global registration hooks, each of which may put another in its place."""
    for hook in hooks.values():
        returned = hook(module, name, value)
        value = value if returned is None else returned
    return value

"""The base class of optimizers: parameter groups, state, checkpoints and hooks. No mathematics."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeAlias

import flambeau as fb

from .. import _state
from ..autograd._region import record_function
from ..autograd.tape import RemovableHandle

__all__ = ["Optimizer", "register_optimizer_step_pre_hook", "register_optimizer_step_post_hook"]

Tensor = fb.Tensor
ParamsT: TypeAlias = Iterable[Any]  # Tensors, dicts with the key 'params', or (name, Tensor) pairs

_global_pre_hooks: dict[int, Callable[..., Any]] = OrderedDict()
_global_post_hooks: dict[int, Callable[..., Any]] = OrderedDict()


class _RequiredParameter:
    """Stands in `defaults` for an option that every parameter group has to give itself."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()


# What packages with optimizers of their own call of PyTorch's.


def _use_grad_for_differentiable(step: Callable[..., Any]) -> Callable[..., Any]:
    """A `step` that records gradients where the optimizer is made with ``differentiable=True``, and only there."""

    @functools.wraps(step)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        with fb.set_grad_enabled(self.defaults["differentiable"]):
            return step(self, *args, **kwargs)

    return run


def _default_to_fused_or_foreach(params: list[Any], differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
    """Whether an optimizer that was not told so takes the fused form, and whether that over lists: ``(fused, foreach)``."""
    if differentiable:
        return False, False
    floating = all(p is None or p.is_floating_point() for p in params)
    fused = use_fused and floating
    return fused, not fused and all(p is None or p.is_cuda for p in params)


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """Kinds of devices on which steps may be captured in graphs."""
    return ["cuda"]


def _register(hooks: dict[int, Any], hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)  # type: ignore[attr-defined]
    return handle


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before every step of every optimizer."""
    return _register(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after every step of every optimizer."""
    return _register(_global_post_hooks, hook)


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` between its hooks. A step that calls the step of its base class runs the hooks once."""

    @functools.wraps(step)
    def hooked(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        self._opt_called = True
        if not _state.IN_FORCE or self._in_step or args or kwargs:
            return between_hooks(self, *args, **kwargs)
        return _state.event("step", self, lambda: between_hooks(self))

    def between_hooks(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if self._in_step or not (
            self._optimizer_step_pre_hooks
            or self._optimizer_step_post_hooks
            or _global_pre_hooks
            or _global_post_hooks
            or _state.IN_FORCE
        ):
            return step(self, *args, **kwargs)
        self._in_step = True
        try:
            with record_function(f"Optimizer.step#{type(self).__name__}.step"), _state_seen(self):
                return _run_step(step, (self, *args), kwargs)
        finally:
            self._in_step = False

    hooked.hooked = True  # type: ignore[attr-defined]
    return hooked


@contextlib.contextmanager
def _state_seen(optimizer: Optimizer) -> Iterator[None]:
    """Show the tensors of the state to whoever looks on, for a step may be one kernel that nobody sees."""
    observer = _state.observer()
    if observer is not None:
        observer.holds_state(optimizer.state, preexisting=True)
    yield
    if observer is not None:
        observer.holds_state(optimizer.state, preexisting=False)


def _run_step(step: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    self = args[0]
    _state.settle()
    for hook in [*_global_pre_hooks.values(), *self._optimizer_step_pre_hooks.values()]:
        replaced = hook(self, args, kwargs)
        if replaced is None:
            continue
        if not (isinstance(replaced, tuple) and len(replaced) == 2):
            raise RuntimeError(
                f"{type(self).__name__}.step: a pre hook must return None or a tuple (new_args, new_kwargs), "
                f"got {replaced!r}"
            )
        args, kwargs = replaced
    out = step(*args, **kwargs)
    for hook in [*self._optimizer_step_post_hooks.values(), *_global_post_hooks.values()]:
        hook(self, args, kwargs)
    return out


# Functions by the id of their handle.
_HOOK_TABLES = (
    "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks",
)  # fmt: skip


class Optimizer:
    """What every optimizer has: groups of parameters with options, and state per parameter.

    Args:
        params: Tensors, ``(name, Tensor)`` pairs, or dicts with the key 'params' and options of that group.
        defaults: options for the groups that do not give them.
    Attributes:
        param_groups: list of dicts, 'params' beside the options; options may be changed between steps.
        state: ``{parameter: {name: value}}``.
    Raises: TypeError for something that is no Tensor; ValueError for an empty list, a non-leaf Tensor, a
        missing option, or a parameter in two groups.
    """

    _in_step = False
    _opt_called = False  # schedulers warn when they are stepped before the optimizer

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        step = cls.__dict__.get("step")
        if callable(step) and not hasattr(step, "hooked"):
            cls.step = _with_hooks(step)  # type: ignore[method-assign]

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._make_hook_tables()
        if isinstance(params, Tensor):
            raise TypeError(
                f"{type(self).__name__}(params): expected an iterable of Tensors or dicts, got one Tensor of "
                "shape "
                f"{tuple(params.shape)}; pass [tensor]"
            )
        self.state: defaultdict[Any, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ValueError(f"optimizer got an empty parameter list: {type(self).__name__}; does the model have parameters?")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _make_hook_tables(self) -> None:
        for name in _HOOK_TABLES:
            self.__dict__[name] = OrderedDict()

    # -- hooks ---------------------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before a step; it may return other ``(args, kwargs)``."""
        return _register(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after a step."""
        return _register(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` before `state_dict`; `prepend` puts it before the hooks there are."""
        return _register(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` on the result of `state_dict`; it may return another."""
        return _register(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` before `load_state_dict`; it may return another state_dict."""
        return _register(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` after `load_state_dict`."""
        return _register(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # -- parameter groups ----------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Optimize further parameters, for instance layers unfrozen during training.

        Args:
            param_group: 'params' and any options; options it does not name take the optimizer's defaults.
        Raises: TypeError, ValueError: as for the constructor.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"add_param_group: param_group must be a dict, got {type(param_group).__name__}")
        params = _ordered(param_group["params"])
        names = _take_names(params)
        param_group["params"] = params
        if names:
            param_group["param_names"] = names
        self._check_params(params)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    f"add_param_group: the group must give a value for {name!r}, which has no default"
                )
            param_group.setdefault(name, default)
        self._check_group_against_others(param_group)
        self.param_groups.append(param_group)

    def _check_params(self, params: list[Any]) -> None:
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(
                    f"{type(self).__name__} can only optimize Tensors, but one of the params is a "
                    f"{type(param).__name__}"
                )
            if not self.defaults.get("differentiable") and not (param.is_leaf or param.retains_grad):
                raise ValueError(
                    f"{type(self).__name__}: can't optimize a non-leaf Tensor of shape {tuple(param.shape)}; "
                    "it is the "
                    "result of an operation, so pass the Tensor it was computed from, or a detached one"
                )

    def _check_group_against_others(self, param_group: dict[str, Any]) -> None:
        params = param_group["params"]
        mine = {id(p) for p in params}
        if len(mine) != len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause "
                "an "
                "error",
                stacklevel=3,
            )
        for other in self.param_groups:
            if ("param_names" in other) is not ("param_names" in param_group):
                raise ValueError(
                    "all optimizer param groups should be with/without names; cannot add a param group "
                    f"{'with' if 'param_names' in param_group else 'without'} names to this optimizer"
                )
            if any(id(p) in mine for p in other["params"]):
                raise ValueError("add_param_group: some parameters appear in more than one parameter group")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or with `set_to_none=False` fill them with zeros."""
        if not _state.IN_FORCE:
            self._zero_grad(set_to_none)
        elif set_to_none:
            _state.event("zero_grad", self, self._forget_grads)
        else:
            with record_function(f"Optimizer.zero_grad#{type(self).__name__}.zero_grad"):
                self._zero_grad(False)

    def _forget_grads(self) -> None:
        with record_function(f"Optimizer.zero_grad#{type(self).__name__}.zero_grad"):
            self._zero_grad(True)

    def _zero_grad(self, set_to_none: bool) -> None:
        if set_to_none:
            for group in self.param_groups:
                for param in group["params"]:
                    param.grad = None
            return
        for group in self.param_groups:
            for param in group["params"]:
                grad = param.grad
                if grad is None:
                    continue
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                grad.zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients.

        Args:
            closure: recomputes the loss and its gradients, and returns the loss.
        Returns: what `closure` returned, or None.
        """
        raise NotImplementedError(f"{type(self).__name__}.step: an optimizer has to define step()")

    # -- checkpoints ---------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """``{'state': ..., 'param_groups': ...}``, with parameters replaced by their positions."""
        for hook in list(self._optimizer_state_dict_pre_hooks.values()):
            hook(self)
        index = {id(p): i for i, p in enumerate(self._all_params())}
        groups = []
        for group in self.param_groups:
            packed = {k: v for k, v in group.items() if k != "params"}
            packed["params"] = [index[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {index[id(k)] if isinstance(k, Tensor) else k: v for k, v in self.state.items()}
        out: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in list(self._optimizer_state_dict_post_hooks.values()):
            replaced = hook(self, out)
            out = out if replaced is None else replaced
        return out

    def _all_params(self) -> list[Any]:
        """Every parameter once, in the order checkpoints number them."""
        return list({id(p): p for group in self.param_groups for p in group["params"]}.values())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state made by `state_dict`; parameters correspond by position.

        State of a floating parameter is converted to its dtype and device, 'step' excepted. Tensors that need
        no conversion are shared with `state_dict`, not copied.
        Raises: ValueError if the groups differ in number or size.
        """
        state_dict = dict(state_dict)
        for hook in list(self._optimizer_load_state_dict_pre_hooks.values()):
            replaced = hook(self, state_dict)
            state_dict = state_dict if replaced is None else replaced
        saved = [dict(group) for group in state_dict["param_groups"]]
        self._check_saved_groups(saved)
        positions = chain.from_iterable(group["params"] for group in saved)
        params = dict(
            zip(positions, chain.from_iterable(g["params"] for g in self.param_groups), strict=True)
        )
        options = {i: group for group in saved for i in group["params"]}
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in params:
                state[params[key]] = _fitted(params[key], value, None, options[key])
            else:
                state[key] = value
        self.__setstate__({"state": state, "param_groups": self._merged(saved)})
        for hook in list(self._optimizer_load_state_dict_post_hooks.values()):
            hook(self)

    def _check_saved_groups(self, saved: list[dict[str, Any]]) -> None:
        if len(saved) != len(self.param_groups):
            raise ValueError(
                f"load_state_dict: the loaded state dict has {len(saved)} parameter groups, the optimizer "
                "has "
                f"{len(self.param_groups)}"
            )
        for i, (theirs, mine) in enumerate(zip(saved, self.param_groups, strict=True)):
            if len(theirs["params"]) != len(mine["params"]):
                raise ValueError(
                    f"load_state_dict: parameter group {i} of the loaded state dict has "
                    f"{len(theirs['params'])} "
                    f"parameters, the optimizer's has {len(mine['params'])}"
                )

    def _merged(self, saved: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The loaded groups over the parameters there are."""
        for theirs, mine in zip(saved, self.param_groups, strict=True):
            theirs["params"] = mine["params"]
            if "param_names" in mine and "param_names" not in theirs:
                theirs["param_names"] = mine["param_names"]
        return saved

    # -- Python protocols ----------------------------------------------------------------------------------

    @staticmethod
    def _group_tensors_by_device_and_dtype(tensorlistlist: list[list[Any]], with_indices: bool = False) -> dict[Any, Any]:
        """Lists of tensors that belong together, by the device and dtype of those of the first: ``{key: (lists, places)}``.

        `places` are empty unless `with_indices`.
        """
        places: dict[Any, list[int]] = {}
        for place, tensor in enumerate(tensorlistlist[0]):
            places.setdefault((tensor.device, tensor.dtype), []).append(place)
        return {
            key: ([[tensors[i] for i in found] if tensors else [] for tensors in tensorlistlist], found if with_indices else [])
            for key, found in places.items()
        }

    def __getattr__(self, name: str) -> Any:
        # A subclass need not call our constructor; its hooks then begin here.
        if name not in _HOOK_TABLES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        self._make_hook_tables()
        return self.__dict__[name]

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_optimizer_step_pre_hooks" not in self.__dict__:
            self._make_hook_tables()

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines += [""] * (i > 0) + [f"Parameter Group {i}"]
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])


def _ordered(params: Any) -> list[Any]:
    """`params` as a list. Raises: TypeError for a set, whose order changes between runs."""
    if isinstance(params, Tensor):
        return [params]
    if isinstance(params, set):
        raise TypeError(
            "params: optimizer parameters need an ordered collection, because state is saved by position and "
            "the order "
            "of a set changes between runs; pass a list"
        )
    return list(params)


class ByParameter(Optimizer):
    """Optimizers that step one parameter after the other, each by `_step_param`."""

    @fb.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients. Returns: what `closure` returned, or None."""
        loss = None
        if closure is not None:
            with fb.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self._step_param(group, param, param.grad)
        return loss

    def _step_param(self, group: dict[str, Any], param: Any, grad: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__}._step_param: an optimizer has to define it")


def _take_names(params: list[Any]) -> list[str]:
    """Replace ``(name, Tensor)`` pairs by the Tensors, in place, and return the names."""
    named = [isinstance(p, tuple) for p in params]
    if not any(named):
        return []
    if not all(named):
        raise ValueError(
            f"params: all optimizer params should be with/without names; {named.count(False)} of "
            f"{len(named)} lack a name"
        )
    names = [p[0] for p in params]
    params[:] = [p[1] for p in params]
    return names


def _fitted(param: Any, value: Any, key: str | None, options: dict[str, Any]) -> Any:
    """A loaded `value` in the dtype and on the device of `param`."""
    if isinstance(value, Tensor):
        if key == "step":
            # Step counts stay float32 on the CPU: a half-precision count would stop at 256 or 2048.
            on_device = options.get("capturable") or options.get("fused")
            return value.to(dtype=fb.float32, device=param.device) if on_device else value
        if param.is_floating_point():
            return value.to(dtype=param.dtype, device=param.device)
        return value.to(device=param.device)
    if isinstance(value, dict):
        return {k: _fitted(param, v, k, options) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_fitted(param, v, None, options) for v in value)
    return value

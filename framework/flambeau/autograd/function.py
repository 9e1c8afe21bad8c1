"""Custom operations: a forward and a backward written by the user."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import numpy as np

from .. import _state
from .._inference import refuse_saved
from ..dtypes import FLOATING
from ..tensor import Tensor, bump, wrap
from . import tape
from .engine import _unrecorded
from .making import new_node, output_node
from .tape import Leaf, Node

__all__ = ["Function", "FunctionCtx", "InplaceFunction", "NestedIOFunction", "once_differentiable"]


class FunctionCtx:
    """What `forward` leaves for `backward`: saved tensors, marks, and any attributes."""

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for `saved_tensors`; in-place changes to them are noticed.

        Raises: TypeError for anything else, where a gradient is recorded.
        """
        self.to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep tensors for `jvp`."""
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Say which inputs `forward` changed in place; they must be returned."""
        self.dirty_tensors = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Say which outputs have no gradient."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether gradients that did not arrive are zeros (the default) or None in `backward`."""
        self.materialize_grads = value


class _Context(FunctionCtx):
    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self.to_save: tuple[Any, ...] = ()
        self.saved_for_forward: tuple[Any, ...] = ()
        self.dirty_tensors: tuple[Any, ...] = ()
        self.non_differentiable: tuple[Any, ...] = ()
        self.materialize_grads = True
        self.in_jvp = False
        self._node: Any = None

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        if self.in_jvp and self.saved_for_forward:
            return self.saved_for_forward
        node = self._node
        if node is None:
            return self.to_save
        return node.unpacked()

    saved_variables = saved_tensors


class FunctionNode(Node):
    """The node of a custom operation; runs its `backward`. Attributes it lacks are those of the context, which it is in PyTorch."""

    __slots__ = ("ctx", "function", "places", "results")
    has_array_vjp = False

    def name(self) -> str:
        return f"{self.function.__name__}Backward"

    def __repr__(self) -> str:
        return f"<torch.autograd.function.{self.name()} object at {id(self):#x}>"

    def __getattr__(self, name: str) -> Any:
        # In PyTorch grad_fn of a custom Function is its context.
        if name.startswith("_") or name == "ctx":
            raise AttributeError(name)
        return getattr(self.ctx, name)

    def apply(self, *grads: Any) -> Any:
        """What `backward` of the Function gives for the gradients `grads` of its results."""
        function = self.function
        return (function.backward if function.backward is not Function.backward else function.vjp)(self.ctx, *grads)

    def apply_jvp(self, *tangents: Any) -> Any:
        """What `jvp` of the Function gives for the tangents of its arguments."""
        return self.function.jvp(self.ctx, *tangents)

    def save_for_backward(self, *tensors: Any) -> None:
        """As `FunctionCtx.save_for_backward`."""
        self.ctx.save_for_backward(*tensors)

    def save_for_forward(self, *tensors: Any) -> None:
        """As `FunctionCtx.save_for_forward`."""
        self.ctx.save_for_forward(*tensors)

    def mark_dirty(self, *args: Tensor) -> None:
        """As `FunctionCtx.mark_dirty`."""
        self.ctx.mark_dirty(*args)

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """As `FunctionCtx.mark_non_differentiable`."""
        self.ctx.mark_non_differentiable(*args)

    def set_materialize_grads(self, value: bool) -> None:
        """As `FunctionCtx.set_materialize_grads`."""
        self.ctx.set_materialize_grads(value)

    def unpacked(self) -> tuple[Any, ...]:
        """The saved tensors. Raises: RuntimeError if they were freed, or overwritten since."""
        from .engine import FREED

        if self.saved is FREED:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
                "freed). Specify retain_graph=True if you need to backward through the graph a second time"
            )
        made = []
        for value, record, parent, hook in self.saved:
            source = self if parent is _OUTPUT else self._node_of_result(parent) if type(parent) is int else parent
            if hook is not None:
                t = hook(value)
                made.append(wrap(t._array, source) if isinstance(t, Tensor) and t._node is None and source is not None else t)
                continue
            if value is None:
                made.append(None)
                continue
            if tape.written_at(record) > self.seq:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"{self.name()} at {tape.shown_line(self.made_at())} saved a tensor of shape {list(value.shape)}, and "
                    f"{tape.shown_writer(record)} overwrote it. Use the out-of-place form there, or clone() what is modified"
                )
            t = wrap(value, source)
            t._storage = record
            made.append(t)
        return tuple(made)

    def _node_of_result(self, index: int) -> Any:
        """The node of a result that `forward` saved, made once more where the program has dropped the result: its gradient still flows."""
        node = self.results[index]()
        if node is None:
            node = output_node(self, index)
            self.results[index] = weakref.ref(node)
        return node

    def vjp(self, grad: Any) -> Any:
        """The gradients of the parents: what `apply` gives, checked."""
        ctx = self.ctx
        count, metas = self.shape, self.dtype
        grads = list(grad) if count else [grad]
        if ctx.materialize_grads:
            grads = [wrap(np.zeros(*metas[i])) if g is None and metas[i] is not None else g for i, g in enumerate(grads)]
        result = self.apply(*grads)
        result = result if isinstance(result, tuple) else (result,)
        arguments = len(ctx.needs_input_grad)
        if len(result) > arguments and all(g is None for g in result[arguments:]):
            result = result[:arguments]
        if len(result) != arguments:
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {arguments}, got {len(result)})"
            )
        return [self._checked(result[i], shape, dtype) for i, (shape, dtype) in self.places]

    def _checked(self, g: Any, shape: Any, dtype: Any) -> Any:
        if g is None:
            return None
        if not isinstance(g, Tensor):
            raise RuntimeError(f"{self.name()}: backward must return Tensors or None, got {type(g).__name__}")
        if g._array.shape != shape:
            from ..ops._spec import sum_tensor_to

            if not _broadcasts_to(shape, g._array.shape):
                raise RuntimeError(
                    f"Function {self.name()} returned an invalid gradient: got {list(g.shape)} but expected shape compatible with "
                    f"{list(shape)}"
                )
            g = sum_tensor_to(g, shape)
        return g if g._array.dtype == dtype else g.to(wrap(np.empty(0, dtype)).dtype)


def _broadcasts_to(shape: tuple[int, ...], wider: tuple[int, ...]) -> bool:
    missing = len(wider) - len(shape)
    return missing >= 0 and all(n in (1, m) for n, m in zip(shape, wider[missing:], strict=True))


_OUTPUT = object()


class Function(FunctionCtx):
    """Base of custom operations: define static `forward` and `backward`, call `apply`."""

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the results; with `setup_context` defined, without `ctx`."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save what `backward` needs."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """One gradient (or None) per argument of `forward`, from one per result."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Tangents of the results from tangents of the arguments."""
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """The batched operation."""
        raise NotImplementedError("To use autograd.Function with vmap, define its vmap staticmethod or set generate_vmap_rule=True")

    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"{type(self).__name__} should not be instantiated. Call its `apply` instead.")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run `forward`, recorded as one operation."""
        return _apply(cls, args, kwargs)


def _with_defaults(forward: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """`args`, and the defaults of `forward` for the parameters that are not among them."""
    while hasattr(forward, "__wrapped__"):
        forward = forward.__wrapped__
    code = getattr(forward, "__code__", None)
    missing = 0 if code is None else code.co_argcount - len(args)
    defaults = missing > 0 and forward.__defaults__ or ()
    return (*args, *defaults[-missing:]) if 0 < missing <= len(defaults) else args


def _apply(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not kwargs and cls.setup_context is not Function.setup_context:
        args = _with_defaults(cls.forward, args)
    if _state.IN_FORCE and _state.local.calls.interpreters:
        from ..func.custom import apply_in_vmap

        made = apply_in_vmap(cls, args, kwargs)
        if made is not NotImplemented:
            return made
    recording = _state.grad_enabled()
    needs = tuple([isinstance(a, Tensor) and a._node is not None for a in args])
    ctx = _Context(needs if recording else (False,) * len(args))
    primals = _without_tangents(args) if _state.IN_FORCE and _state.local.calls.interpreters else args
    own_context = cls.setup_context is not Function.setup_context
    if primals is not args and recording and True in needs and own_context and any(hasattr(p, "_bdim") for p in primals):
        return _apply_to_batches(cls, args, primals, kwargs)
    before = _state.set_grad(False)
    try:
        if own_context:
            result = cls.forward(*primals, **kwargs)
            cls.setup_context(ctx, primals, result)
        else:
            result = cls.forward(ctx, *primals, **kwargs)
    finally:
        _state.set_grad(before)
    several = isinstance(result, (tuple, list))
    results = list(result) if several else [result]
    if primals is not args:
        given = {id(p): a for p, a in zip(primals, args, strict=True) if isinstance(p, Tensor)}
        results = [given.get(id(r), r) for r in results]
        ctx.dirty_tensors = tuple(given.get(id(t), t) for t in ctx.dirty_tensors)
        ctx.non_differentiable = tuple(given.get(id(t), t) for t in ctx.non_differentiable)
    dirty = {id(t) for t in ctx.dirty_tensors}
    if dirty - {id(r) for r in results}:
        raise RuntimeError(
            f"{cls.__name__}: forward marked a tensor dirty that it did not return; every input it changes in place must be one of "
            "its results"
        )
    for t in ctx.dirty_tensors:
        bump(t)
    if not (recording and True in needs):
        plain = [_plain_result(r, args, dirty) for r in results]
        _forward_mode(cls, ctx, args, plain)
        return tuple(plain) if several else plain[0]
    node = _make_node(cls, ctx, args)
    made = _attach(node, ctx, args, results, several, dirty)
    _save(node, ctx, args, made)
    _forward_mode(cls, ctx, args, made)
    return tuple(made) if several else made[0]


def _apply_to_batches(cls: Any, args: tuple[Any, ...], primals: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`_apply` for operands with tangents that are batches, whose history is kept by the tensors inside: the `vmap` around records it."""
    from ..ops import _dispatch
    from .forward_ad import innermost

    level = innermost()
    assert level is not None                          # which made the tangents
    with _dispatch.below(level):
        result = cls.apply(*primals, **kwargs)
    ctx = _Context((False,) * len(args))
    cls.setup_context(ctx, primals, result)
    _forward_mode(cls, ctx, args, list(result) if isinstance(result, (tuple, list)) else [result])
    return result


def _without_tangents(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """`args` as `forward` sees them: without the tangents that `jvp` is given."""
    from .forward_ad import innermost

    level = innermost()
    return args if level is None or not level.touches(args) else tuple([level.primal_of(a) for a in args])


def _plain_result(r: Any, args: Any, dirty: set[int]) -> Any:
    """A result that is an argument itself is handed out as another tensor over its memory."""
    if isinstance(r, Tensor) and id(r) not in dirty and any(r is a for a in args):
        return r.view(r.shape)
    return r


def _make_node(cls: Any, ctx: _Context, args: Any) -> FunctionNode:
    node = new_node(FunctionNode, tuple([a._node for a in args if isinstance(a, Tensor)]))
    node.ctx, node.function, node.results = ctx, cls, {}
    node.places = [(i, (a._array.shape, a._array.dtype)) for i, a in enumerate(args) if isinstance(a, Tensor)]
    return node


def _attach(node: FunctionNode, ctx: _Context, args: Any, results: list[Any], several: bool, dirty: set[int]) -> list[Any]:
    """Give the results their history."""
    skip = {id(t) for t in ctx.non_differentiable}
    made: list[Any] = []
    for i, r in enumerate(results):
        if not isinstance(r, Tensor):
            made.append(r)
            continue
        differentiable = id(r) not in skip and r.dtype.category >= 2
        if id(r) in dirty:
            from ..ops._spec import NamedOnly, check_writable, rebase

            if type(r._node) is Leaf:
                check_writable(NamedOnly(node.name()), r)
            if differentiable:
                rebase(r, output_node(node, i) if several else node)
            made.append(r)
            continue
        t = r.view(r.shape) if any(r is a for a in args) or r._node is not None else r
        if t is not r or t._view_of is not None:
            t = _unrecorded(t)
        viewed = next((a for a in args if isinstance(a, Tensor) and a._storage is t._storage), None)
        if viewed is not None:
            t._view_of = (viewed if viewed._view_of is None else viewed._view_of[0], _ReturnedView(node.name(), i), (), viewed._view_of)
        t._node = (output_node(node, i) if several else node) if differentiable else None
        made.append(t)
    node.shape = len(results) if several else 0
    node.dtype = [(r._array.shape, r._array.dtype) if isinstance(r, Tensor) else None for r in results]
    return made


class _ReturnedView:
    """Stands where a view keeps the op that made it, of a view that a custom `forward` returned: writing to it is refused."""

    refusal = (
        "A custom Function returned it as a view of its input, or the input itself, and the write would bypass its backward. Use the "
        "out-of-place form, or return a clone"
    )

    def __init__(self, maker: str, index: int) -> None:
        self.maker, self.index = maker, index


def _save(node: FunctionNode, ctx: _Context, args: Any, made: list[Any]) -> None:
    """Move what was saved into the node, as arrays; outputs are remembered by place, so there is no cycle."""
    hooks = _state.local.calls.saved_hooks
    saved: list[Any] = []
    for t in ctx.to_save:
        if t is None:
            saved.append((None, None, None, None))
            continue
        if not isinstance(t, Tensor):
            raise TypeError(f"save_for_backward can only save variables, but argument of type {type(t).__name__} was given")
        if _state.MARKED:
            refuse_saved(t._storage)
        same = (i for i, m in enumerate(made) if isinstance(m, Tensor) and m._storage is t._storage and m._array is t._array)
        index = next(same, None)
        maker: Any = t._node
        if index is not None and made[index]._node is not None:
            # No strong reference: the node of a result leads back to this one.
            maker = _OUTPUT if made[index]._node is node else index
            node.results[index] = weakref.ref(made[index]._node)
        if hooks:
            pack, unpack = hooks[-1]
            alone = wrap(t._array)
            alone._storage = t._storage
            saved.append((tape.packed_by(pack, alone), None, maker, unpack))
        else:
            saved.append((t._array, t._storage, maker, None))
    node.saved = tuple(saved)
    node.versions = (None,) * len(saved)
    ctx.to_save = ()
    ctx._node = weakref.proxy(node)
    node.seq = max([node.seq, *(s[1][tape.STAMP] for s in node.saved if s[1] is not None)])


def _forward_mode(cls: Any, ctx: _Context, args: Any, made: list[Any]) -> None:
    """Tangents by the user's `jvp`, when operands carry some."""
    if not _state.INTERPRETED:
        return
    from ..ops.creation.create import zeros_like
    from . import forward_ad

    tangents = [forward_ad.tangent_of(a) for a in args]
    if all(t is None for t in tangents):
        return
    if cls.jvp is Function.jvp:
        raise NotImplementedError(f"{cls.__name__}: define jvp to use it in forward mode")
    if ctx.materialize_grads:
        tangents = [zeros_like(a) if t is None and _has_derivative(a) else t for a, t in zip(args, tangents, strict=True)]
    ctx.in_jvp = True
    try:
        found = cls.jvp(ctx, *tangents)
    finally:
        ctx.in_jvp = False
    given = {id(a): t for a, t in zip(args, tangents, strict=True) if isinstance(a, Tensor)}
    dirty = {id(t) for t in ctx.dirty_tensors}
    for m, t in zip(made, found if isinstance(found, tuple) else (found,), strict=True):
        if id(m) in dirty and t is not given.get(id(m)):
            raise RuntimeError(
                f"An inplace custom Function is not modifying the forward mode gradients inplace: forward of {cls.__name__} modifies an "
                "input in place, so jvp must modify the tangent of that input in place, and return it"
            )
        if isinstance(m, Tensor):
            forward_ad.set_tangent(m, t)


def _has_derivative(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype.category >= FLOATING


def once_differentiable(fn: Any) -> Any:
    """Decorator of a `backward` that cannot be differentiated itself: doing so raises."""

    @functools.wraps(fn)
    def wrapped(ctx: Any, *grads: Any) -> Any:
        recording = _state.grad_enabled() and any(isinstance(g, Tensor) and g._node is not None for g in grads)
        before = _state.set_grad(False)
        try:
            result = fn(ctx, *grads)
        finally:
            _state.set_grad(before)
        if not recording:
            return result
        results = result if isinstance(result, tuple) else (result,)
        made = tuple(_Refused.apply(r) if isinstance(r, Tensor) else r for r in results)
        return made if isinstance(result, tuple) else made[0]

    return wrapped


def _refused_apply(r: Tensor) -> Tensor:
    t = r.detach()
    t._node = new_node(_Refusing, ())
    return t


class _Refusing(Node):
    __slots__ = ()
    title = "OnceDifferentiableError"

    def vjp(self, grad: Any) -> Any:
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


class _Refused:
    apply = staticmethod(_refused_apply)


BackwardCFunction = FunctionNode  # PyTorch's name


class NestedIOFunction(Function):
    """Kept for its name; nested arguments go through `Function.apply` flattened by the caller."""

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved. Raises: AttributeError, for nothing is saved outside of a context."""
        raise AttributeError("NestedIOFunction: tensors are saved in the context that forward and backward are given")

    def forward_extended(self, *inputs: Any) -> None:
        """To be written by programs. Raises: NotImplementedError."""
        raise NotImplementedError("NestedIOFunction.forward_extended: write it in your class, or use Function with forward and backward")

    def backward_extended(self, *grad_outputs: Any) -> None:
        """To be written by programs. Raises: NotImplementedError."""
        raise NotImplementedError("NestedIOFunction.backward_extended: write it in your class, or use Function with forward and backward")


class InplaceFunction(Function):
    """A Function whose constructor PyTorch once gave an `inplace` flag."""


def traceable(fn_cls: Any) -> Any:
    """Returns `fn_cls`."""
    return fn_cls



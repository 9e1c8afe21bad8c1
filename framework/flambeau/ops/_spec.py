"""The op record: what a declaration says, and the general path every call can take.

`@elementwise`, `@reduction`, `@primitive`, `@view` and `@composite` each make an `Op` and register it under its public
name. `_derive.py` turns records into the functions and methods people call; nothing else adds to the public surface.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any
from weakref import ref as _ref

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.cpu.reduce import Reduction, reduce
from flambeau_kernels.formula import Formula
from flambeau_kernels.reference import WORDS_READ

from .. import _arrays, _state, dtypes
from .._arrays import MetaArray, ndarray
from ..autograd import engine, tape
from ..autograd.tape import Leaf, Node, Overwritten
from ..dtypes import FLOATING, from_numpy_dtype
from ..tensor import Tensor, bump, device_of, wrap, wrap_dim
from ._promote import NUMBERS, Rule, common

FUNCTION, METHOD, INPLACE, OUT, FOREACH = 1, 2, 4, 8, 16
EVERYWHERE = FUNCTION | METHOD | INPLACE | OUT | FOREACH
VIEWED = FUNCTION | METHOD



class Registry(dict):
    """Public name -> op. A name that is not there yet loads the family that declares it."""

    def __missing__(self, key: str) -> Op:
        from . import _derive

        if not _derive.load_family_of(key):
            raise KeyError(key)
        return dict.__getitem__(self, key)


OPS: Registry = Registry()
_new = object.__new__
_next_seq = _state.next_seq


class Op:
    """One declared operation.

    `surface` says which forms exist, `namespace` where the function lives ('' for the package, 'nn.functional',
    'special', ...), `aliases` further public names, `autocast` the class of the op under autocast: 'lower' (runs in the
    lower precision), 'float32', 'widest', or None (follows its inputs).
    """

    kind = "op"

    def __init__(self, fn: Any, surface: int, namespace: str, aliases: tuple[str, ...], autocast: str | None) -> None:
        code: CodeType = fn.__code__
        self.fn = fn
        self.name = fn.__name__.rstrip("_") if fn.__name__.endswith("__") else fn.__name__
        self.doc = fn.__doc__ or ""
        self.surface = surface
        self.namespace = namespace
        self.aliases = aliases
        self.autocast = autocast
        count = code.co_argcount
        self.positional: tuple[str, ...] = code.co_varnames[:count]
        self.keyword_only: tuple[str, ...] = code.co_varnames[count : count + code.co_kwonlyargcount]
        self.params = self.positional + self.keyword_only
        defaults = fn.__defaults__ or ()
        self.defaults = dict(zip(self.positional[count - len(defaults) :], defaults, strict=True))
        self.defaults.update(fn.__kwdefaults__ or {})
        self.node_class: Any = type(title_of(self.name), (self.node_base,), {"op": self, "title": title_of(self.name), "__slots__": ()})
        self.spread: str | None = None  # the parameter that may be given as several arguments
        self.fast_rule: Any = None
        self._function: Any = None
        register(self)

    def fast(self, fn: Any) -> Any:
        """Give the op a short cut: ``fn(*args)`` answers the common small case, or returns None for the general path."""
        self.fast_rule = fn
        return fn

    node_base: type[Node] = Node

    @property
    def said(self) -> str:
        """The name that errors say: the public one, where users reach this op through another."""
        from ._names import SAID

        return SAID.get(self.name, self.name)

    @property
    def qualified(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name

    @property
    def function(self) -> Any:
        """The public function."""
        if self._function is None:
            from . import _derive

            self._function = _derive.make_function(self)
        return self._function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.kind} op {self.qualified}>"

    def run(self, *args: Any) -> Any:
        """Compute and record; `args` has every parameter, in order."""
        raise NotImplementedError

    def interpreted(self, *args: Any) -> Any:
        """`run`, for operands that a function transform may have wrapped."""
        from . import _slow

        return _slow.interpret(self, args)

    def run_out(self, out: Any, *args: Any) -> Any:
        """Compute into `out`, which is resized when its shape differs."""
        result = self.run(*args)
        if isinstance(result, tuple):
            if not isinstance(out, (tuple, list)) or len(out) != len(result):
                raise TypeError(f"{self.said}(): out must be a tuple of {len(result)} Tensors")
            for target, value in zip(out, result, strict=True):
                write_out(self, target, value, args)
            return type(result)(out) if hasattr(result, "_fields") else tuple(out)
        return write_out(self, out, result, args)

    def run_inplace(self, target: Tensor, *args: Any) -> Tensor:
        """Compute and store in `target`, which stays the same object."""
        check_writable(self, target)
        with_history = target._n is not None or any(isinstance(a, Tensor) and a._n is not None for a in args)
        if with_history and _state.grad_enabled():
            check_view(self, target)
        result = self.run(target, *args)
        check_inplace(self, target, result)
        node = result._n if with_history else None
        if node is not None:
            forget_overwritten(node, target)
        if type(target._a) is not MetaArray:
            target._a[...] = kernels.cast(result._a, target._a.dtype)
        bump(target)
        if node is not None:
            node.seq = _state.next_seq()
            refresh_saved_output(node, result, target)
            rebase(target, node)
        return target


def title_of(name: str) -> str:
    """The name autograd nodes show, as PyTorch's: ``add`` -> ``AddBackward0``."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_") if part) + "Backward0"


def register(op: Op) -> None:
    for name in (op.name, *op.aliases):
        if "." in name:
            key = name
        else:
            key = f"{op.namespace}.{name}" if op.namespace else name
        if key in OPS and OPS[key] is not op:
            raise ValueError(f"op {key} is declared twice")
        OPS[key] = op


def check_equal(op: str, left: str, a: Any, right: str, b: Any) -> None:
    """Raise RuntimeError naming both sides unless `a` equals `b`."""
    if a != b:
        raise RuntimeError(f"{op}: {left} is {a}, but {right} is {b}; they must be equal")


def describe(**tensors: Any) -> str:
    """Shape, dtype and device of each operand, a line each, for error messages."""
    lines = []
    for name, t in tensors.items():
        if isinstance(t, Tensor):
            lines.append(f"  {name:<8}{tuple(t.shape)!s:<16} {t.dtype.name:<10} {t.device}")
        elif isinstance(t, (list, tuple)):
            lines += [describe(**{f"{name}[{i}]": x}) for i, x in enumerate(t) if isinstance(x, Tensor)]
        else:
            lines.append(f"  {name:<8}{t!r}")
    return "\n".join(lines)


# -- shapes and devices --------------------------------------------------------------------------------------------------


def broadcast_shapes(op: Any, args: Any, names: Any = None) -> tuple[int, ...]:
    """The shape operands stretch to. Raises: RuntimeError naming every operand when they do not fit."""
    shapes = [a._a.shape for a in args if isinstance(a, Tensor)]
    first = shapes[0] if shapes else ()
    for shape in shapes:
        if shape != first:
            break
    else:
        return first
    result: list[int] = []
    for shape in shapes:
        if len(shape) > len(result):
            result[:0] = [1] * (len(shape) - len(result))
        for at in range(1, len(shape) + 1):
            n, have = shape[-at], result[-at]
            if n != have:
                if have == 1:
                    result[-at] = n
                elif n != 1:
                    raise_not_broadcastable(op, args, names, have, n, len(result) - at)
    return tuple(result)


def raise_not_broadcastable(op: Any, args: Any, names: Any, a: int, b: int, dim: int) -> None:
    given = dict(zip(names or op.params, args, strict=False))
    raise RuntimeError(
        f"{op.said}: shapes do not broadcast: size {a} against {b} at dimension {dim}; "
        f"sizes must be equal or 1 there\n{describe(**given)}"
    )


def common_device(op: Any, args: Any) -> Any:
    """The one device of all operands; 0-d CPU tensors go anywhere. Raises: RuntimeError when they differ."""
    found = None
    for a in args:
        if isinstance(a, Tensor):
            place = device_of(a._a) if type(a._a) is not ndarray else None
            kind = "cpu" if place is None else str(place)
            if found is None or (found[1] and found[0] == "cpu"):
                found = (kind, a._a.ndim == 0)
            elif kind != found[0] and not (kind == "cpu" and a._a.ndim == 0):
                raise RuntimeError(
                    f"{op.said}: Expected all tensors to be on the same device, but found at least two devices, "
                    f"{found[0]} and {kind}\n{describe(**dict(zip(op.params, args, strict=False)))}"
                )
    return found[0] if found else "cpu"


def sum_to(grad: Any, shape: tuple[int, ...]) -> Any:
    """Undo broadcasting: `grad` (array) added up over the dimensions that were stretched from `shape`."""
    if grad.shape == shape:
        return grad
    extra = grad.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(
        i + extra for i, n in enumerate(shape) if n == 1 and grad.shape[i + extra] != 1
    )
    if axes:
        wide = np.float32 if grad.dtype.itemsize <= 2 else grad.dtype
        grad = np.add.reduce(grad, axis=axes, keepdims=True, dtype=wide).astype(grad.dtype, copy=False)
    return grad.reshape(shape)


def sum_tensor_to(grad: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`sum_to` on Tensors, differentiable."""
    if grad._a.shape == shape:
        return grad
    extra = grad._a.ndim - len(shape)
    dims = [*range(extra), *(i + extra for i, n in enumerate(shape) if n == 1 and grad._a.shape[i + extra] != 1)]
    if dims:
        grad = grad.sum(dims, keepdim=True)
    return grad.reshape(shape)


# -- writing into given tensors ------------------------------------------------------------------------------------------


def check_writable(op: Any, target: Any) -> None:
    """Raise as PyTorch does for in-place writes that autograd or the memory layout forbids."""
    if not isinstance(target, Tensor):
        raise TypeError(f"{op.said}_(): argument 'input' must be Tensor, not {type(target).__name__}")
    if target._b is not None and target._n is None and target._b[0]._n is not None and _state.grad_enabled():
        raise_ambiguous(op)
    check_recorded(target)
    a = target._a
    if type(a) is ndarray and not a.flags.writeable:
        raise RuntimeError(f"{op.said}_: the memory of this tensor is read-only; clone() it before writing")
    if a.size > 1 and 0 in a.strides and any(s == 0 and n > 1 for s, n in zip(a.strides, a.shape, strict=True)):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )


def check_recorded(target: Tensor) -> None:
    """Raise RuntimeError if recording would lose a leaf: `target` or its base is one."""
    if target._n is not None and _state.grad_enabled():
        if type(target._n) is Leaf:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        if target._b is not None and (target._b[0]._n is None or type(target._b[0]._n) is Leaf):
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")


def raise_ambiguous(op: Any) -> None:
    raise RuntimeError(
        f"{op.said}_: A view was created in no_grad mode and is being modified inplace with grad mode enabled, while its base "
        "requires grad, so it is unclear whether to record it. Put both inside the no_grad block, or both outside"
    )


def check_view(op: Any, target: Tensor) -> None:
    """Raise RuntimeError if recording a write to `target` is refused: one of several views, or a view made without recording."""
    link = target._b
    if link is None:
        return
    while link is not None:
        if type(link[1]) is _Part:
            raise RuntimeError(
                f"{op.said}_: Output {link[1].index} of {link[1].whole.node_class.title} is a view and is being modified inplace. "
                "It comes of an operation that returns several views, whose history could not be kept apart. "
                "Use the out-of-place form, or take the view by indexing"
            )
        link = link[3]
    if not any(ref() is target for ref in reversed(target._v[tape.VIEWS] or ())):
        raise_ambiguous(op)


def check_inplace(op: Any, target: Tensor, result: Tensor) -> None:
    if result._a.shape != target._a.shape:
        raise RuntimeError(
            f"{op.said}_: output with shape {list(target.shape)} doesn't match the broadcast shape {list(result.shape)}"
        )
    if not dtypes.can_cast(result.dtype, target.dtype):
        raise RuntimeError(
            f"{op.said}_: result type {result.dtype.name} can't be cast to the desired output type {target.dtype.name}"
        )


def write_out(op: Any, out: Any, result: Tensor, args: Any = ()) -> Tensor:
    """Store `result` of `args` in `out`.

    Raises: TypeError, RuntimeError as PyTorch for a wrong dtype or device, a grad-requiring out, or memory shared with `args`.
    """
    if not isinstance(out, Tensor):
        raise TypeError(f"{op.said}(): argument 'out' must be Tensor, not {type(out).__name__}")
    check_out(op, out, result.dtype, device_of(result._a), result._n is not None)
    check_writable(op, out)
    if args:
        from . import _overlap

        _overlap.refuse_shared(op, out, result._a.shape, args)
    if out._a.shape != result._a.shape:
        resize_out(op, out, result._a.shape)
    if type(out._a) is not MetaArray:
        out._a[...] = kernels.cast(result._a, out._a.dtype)
    bump(out)
    return out


def check_out(op: Any, out: Tensor, result: Any, place: Any, with_grad: bool) -> None:
    if with_grad or (out._n is not None and _state.grad_enabled()):
        raise RuntimeError(
            f"{op.said}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad."
        )
    if not dtypes.can_cast(result, out.dtype):
        raise RuntimeError(f"{op.said}: result type {result.name} can't be cast to the desired output type {out.dtype.name}")
    if device_of(out._a) != place:
        raise RuntimeError(f"{op.said}: Expected out on device {place}, but it is on {out.device}")


def resize_out(op: Any, out: Tensor, shape: tuple[int, ...]) -> None:
    if out._a.size:
        import warnings

        warnings.warn(
            f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not match "
            f"the required output shape {list(shape)}. Give {op.said} an out of that shape, or an empty one.",
            stacklevel=4,
        )
    out.resize_(shape)


def forget_overwritten(node: Node, target: Tensor) -> None:
    """Copy what `node` saved of its target, which its own in-place operation is about to overwrite; mark what else it loses."""
    if type(node.saved) is tuple and node.versions:
        for at, saved in enumerate(node.saved):
            if saved is target._a and node.versions[at] is target._v:
                kept = wrap(np.array(saved) if type(saved) is ndarray else saved)
                node.saved = (*node.saved[:at], kept._a, *node.saved[at + 1 :])
                node.versions = (*node.versions[:at], kept._v, *node.versions[at + 1 :])
        node.saved = tuple(
            Overwritten(node.name()) if v is target._v and _overlaps(s, target._a) else s
            for s, v in zip(node.saved, node.versions, strict=True)
        )


def _overlaps(saved: Any, array: Any) -> bool:
    return isinstance(saved, ndarray) and isinstance(array, ndarray) and np.may_share_memory(saved, array)


def refresh_saved_output(node: Node, result: Tensor, target: Tensor) -> None:
    """A node that saved its output saved a temporary; let it keep the memory that now holds the value."""
    if type(node.saved) is tuple and target._a.dtype == result._a.dtype:
        for at, value in enumerate(node.saved):
            if value is result._a:
                versions = list(node.versions)
                versions[at] = target._v
                node.saved = (*node.saved[:at], target._a, *node.saved[at + 1 :])
                node.versions = tuple(versions)


# -- views and in-place history ------------------------------------------------------------------------------------------


def replay(link: Any, tensor: Tensor) -> Tensor:
    """Take the view described by `link` of `tensor`, which has the shape of the link's base."""
    _, op, args, before = link
    if before is not None:
        tensor = replay(before, tensor)
    return op.interpreted(tensor, *args) if _state.SLOW else op.run(tensor, *args)


def rebase(tensor: Tensor, node: Node) -> None:
    """Make `node` the history of `tensor`, of its base, and of every other view of that base."""
    link = tensor._b
    base = tensor
    tensor._v[tape.WRITER :] = [(node.name(), tape.users_place())]
    if link is None:
        tensor._n = node
    else:
        base = link[0]
        base._n = CopySlices.make(base, link, node)
    views = tensor._v[tape.VIEWS]
    if not views:
        return
    for ref in list(views):
        view = ref()
        if view is not None and view._b is not None and view._b[0] is base:
            view._n = replay(view._b, base)._n


class CopySlices(Node):
    """A base after an in-place operation on one of its views: that operation inside the view, nothing outside."""

    __slots__ = ()
    title = "CopySlices"

    @staticmethod
    def make(base: Tensor, link: Any, node: Node) -> CopySlices:
        made = CopySlices()
        made.seq = _state.next_seq()
        made.parents = (base._n, *node.parents[1:])
        made.hooks = None
        steps = None if _arrays.is_c_contiguous(base._a) or not _arrays.is_dense(base._a) else base.stride()
        made.saved = ((None, *link[1:]), node, node.parents[0] is not None, steps)
        made.versions = (None,) * len(made.saved)
        return made

    def name(self) -> str:
        return self.title

    def vjp(self, grad: Tensor) -> Any:
        link, node, through, steps = self.saved
        # Laid out like the base, for views that count in the storage.
        whole = grad.clone() if steps is None else grad.new_empty_strided(grad.shape, steps).copy_(grad)
        region = replay(link, whole)
        # The inner node still names the parent it had before, so what is wanted of this one says nothing about it.
        before, _state.local.wanted = _state.local.wanted, None
        try:
            inner = _raw_as_tensors(node, region) if self.is_raw(node) else node.vjp(region.clone())
        finally:
            _state.local.wanted = before
        if through and inner[0] is not None:
            region.copy_(inner[0])
        else:
            region.zero_()
        return (whole, *inner[1:])

    @staticmethod
    def is_raw(node: Node) -> bool:
        """Whether the rule of `node` may run on arrays."""
        return node.has_raw and not _state.SLOW and not _state.grad_enabled()


def _raw_as_tensors(node: Node, region: Tensor) -> list[Any]:
    return [None if g is None else wrap(g) for g in node.raw(np.array(region._a))]


def register_view(view: Tensor) -> None:
    """Remember `view` with its storage, so that in-place operations can renew its history."""
    record = view._v
    views = record[tape.VIEWS]
    if views is None:
        views = record[tape.VIEWS] = []
    elif len(views) >= 32 and not len(views) & (len(views) - 1):
        views[:] = [ref for ref in views if ref() is not None]
    views.append(weakref.ref(view))


def forget_plans() -> None:
    """Plan every call anew."""
    for op in OPS.values():
        if isinstance(op, ElementwiseOp):
            op._plans.clear()


kernels.plans_kept_elsewhere.append(forget_plans)
MOST_PLANS = 512                                      # an op keeps; shapes that change every step must not pile up


# -- elementwise ---------------------------------------------------------------------------------------------------------


def check_versions(node: Node) -> None:
    """Raise RuntimeError if something `node` saved has been written since."""
    seq = node.seq
    for record in node.versions:
        if record is not None and record[1] > seq:
            raise_overwritten(node, record)
    for value in node.saved:
        if type(value) is Overwritten:
            raise_overwritten(node, None)


def raise_overwritten(node: Node, record: Any) -> None:
    index = next((i for i, v in enumerate(node.versions) if v is record), 0)
    saved = next((s for s, v in zip(node.saved, node.versions, strict=False) if v is record), None)
    shape = list(saved.shape) if isinstance(saved, ndarray) else "unknown"
    where = node.made_at()
    op = node.op
    names = ("result", *op.params) if isinstance(op, ElementwiseOp) else getattr(op, "saved_names", ())
    what = names[index] if index < len(names) else f"operand {index}"
    saver = f"{node.name()} saved its {what} (shape {shape})" + (f" at {tape.shown_line(where)}" if where else "")
    writer = "its own in-place form" if record is None else tape.shown_writer(record)
    known = where is not None and (record is None or len(record) > tape.WRITER)
    raise RuntimeError(
        f"one of the variables needed for gradient computation has been modified by an inplace operation: {saver}, and {writer} "
        "overwrote it. Use the out-of-place form there, or clone() what is modified"
        + ("" if known else ". Run the forward under autograd.detect_anomaly() to see both lines")
    )


class ElementwiseNode(Node):
    """Jacobian is diagonal: one gradient formula per argument serves both directions."""

    __slots__ = ()
    has_raw = True

    def raw(self, grad: Any) -> Any:
        # The first backward of each op makes its short cut for small float arrays, which calls `raw_general` for the rest.
        from . import _derive

        cls = type(self)
        cls.raw = _derive.make_raw(self.op, cls.raw_general)
        return cls.raw(self, grad)

    def raw_general(self, grad: Any) -> Any:
        check_versions(self)
        op = self.op
        return [
            None if parent is None else op.grad_array(i, self, grad) for i, parent in enumerate(engine.wanted_parents(self))
        ]

    def vjp(self, grad: Tensor) -> Any:
        check_versions(self)
        op = self.op
        return [
            None if parent is None else op.grad_tensor(i, self, grad) for i, parent in enumerate(engine.wanted_parents(self))
        ]


class ElementwiseOp(Op):
    """A straight-line scalar formula over broadcast operands."""

    kind = "elementwise"
    node_base = ElementwiseNode

    def __init__(
        self, fn: Any, surface: int, namespace: str, aliases: Any, autocast: Any, dtype: Rule, partials: Any, vjps: Any,
        ufunc: Any, check: Any, scalar_first: bool, samples: Any, title: str | None, small: str | None,
    ) -> None:  # fmt: skip
        self.dtype_rule = dtype
        self.ufunc = ufunc
        self.formula, self.short = _formulas(fn, ufunc)
        self.partials = partials
        self.vjps = vjps or {}
        self.check = check
        self.scalar_first = scalar_first
        self.samples = samples
        self.small = small
        super().__init__(fn, surface, namespace, aliases, autocast)
        if title:
            self.node_class.title = title
        self._grads: dict[int, Any] = {}
        self._plans: dict[Any, Any] = {}
        self.keyword_defaults = tuple(self.defaults[n] for n in self.keyword_only)
        self.reads = frozenset(name for p in self.params for name in self.reads_of(p))
        self.differentiable = bool(partials) or bool(vjps)

    def has_gradient(self, name: str) -> bool:
        """Whether a derivative with respect to parameter `name` is declared."""
        return name in self.vjps or name in (self.partials or {})

    def reads_of(self, name: str) -> tuple[str, ...]:
        """What the gradient of parameter `name` reads, apart from the incoming gradient."""
        rule = self.vjps.get(name) or (self.partials or {}).get(name)
        if rule is None:
            return ()
        names = rule.__code__.co_varnames[: rule.__code__.co_argcount]
        return names[1:] if name in self.vjps else names

    # -- forward

    def launch(self, arrays: tuple[Any, ...], out: Any, compute: Any) -> None:
        """Run the formula; the short one when every keyword-only argument has its default."""
        count = len(self.positional)
        if self.short is not None and all(
            a is d or a == d for a, d in zip(arrays[count:], self.keyword_defaults, strict=True)
        ):
            kernels.launch(self.short, arrays[:count], (out,), compute)
        else:
            kernels.launch(self.formula, arrays, (out,), compute)

    def prepare(self, args: Any) -> Any:
        """Check operands; returns ``(args, compute, result, shape, place)``."""
        first = args[0]
        if not isinstance(first, Tensor) and not (self.scalar_first and any(isinstance(a, Tensor) for a in args)):
            raise TypeError(f"{self.said}(): argument '{self.params[0]}' must be Tensor, not {type(first).__name__}")
        for name, a in zip(self.params, args, strict=True):
            if not isinstance(a, Tensor) and not isinstance(a, NUMBERS):
                if isinstance(a, np.ndarray):
                    args = tuple(wrap(x) if isinstance(x, np.ndarray) else x for x in args)
                else:
                    raise TypeError(f"{self.said}(): argument '{name}' must be Tensor or Number, not {type(a).__name__}")
        if self.check is not None:
            self.check(self, *args)
        compute, result = self.dtype_rule(self, args[: len(self.positional)])
        if result.itemsize == 1 and result.category == FLOATING and self.name not in MOVES:
            refuse_float8(self.name, result)
        return args, compute, result, broadcast_shapes(self, args), common_device(self, args)

    def run(self, *args: Any) -> Tensor:
        made = self._run_again(args)
        if made is not None:
            return made
        given = args
        args, compute, result, shape, place = self.prepare(args)
        arrays = tuple(a._a if isinstance(a, Tensor) else a for a in args)
        if place == "meta":
            out = MetaArray(shape, result.numpy)
        elif place == "cpu":
            out = _arrays.empty_like_layout(shape, result.numpy, [a for a in arrays if isinstance(a, ndarray)])
            self.launch(arrays, out, compute.numpy)
            if given is args:
                self._remember(arrays, out, compute)
        else:
            out = on_other_device(self, arrays, compute, result, shape)
        made = wrap(out)
        if result.category >= FLOATING and self.differentiable:
            self.record(made, args)
        return made

    # What `prepare` finds depends on dtypes, shapes and the classes of numbers only, and so does the compiled plan: both are
    # kept for the next call that looks the same. An op with a check of its own may look at values, so it is left out.

    def _key(self, arrays: Any) -> Any:
        """Of arrays and numbers, what decides how they are computed; None if this is not for `_run_again`."""
        count = len(self.positional)
        if self.keyword_defaults and not all(a is d for a, d in zip(arrays[count:], self.keyword_defaults, strict=True)):
            return None
        key: list[Any] = []
        for a in arrays[:count]:
            kind = a.__class__
            if kind is ndarray:
                key += (a.dtype, a.shape, a.strides)
            elif kind is float or kind is int and -9007199254740992 <= a <= 9007199254740992:
                key.append(kind)
            else:
                return None
        return tuple(key)

    def _run_again(self, args: Any) -> Tensor | None:
        """The result where a call that looks the same was planned before."""
        if not self._plans:
            return None
        try:
            arrays = [a._a if a.__class__ is Tensor or isinstance(a, Tensor) else a for a in args]
            found = self._plans.get(self._key(arrays))
        except TypeError:  # something that is no operand
            return None
        if found is None:
            return None
        runner, shape, dtype, records = found
        out = np.empty(shape, dtype)
        runner(*[a if a.__class__ is ndarray else np.asarray(a) for a in arrays[: len(self.positional)]], out)
        made = wrap(out)
        if records:
            self.record(made, args)
        return made

    def _remember(self, arrays: Any, out: Any, compute: Any) -> None:
        """Keep the compiled plan of a call on contiguous results."""
        if self.check is not None or not out.flags.c_contiguous or out.size < kernels.SEVERAL_COMPILED_FROM:
            return
        key = self._key(arrays)
        if key is None or key in self._plans:
            return
        count = len(self.positional)
        formula = self.formula if self.short is None else self.short
        inputs = tuple(np.asarray(a) for a in arrays[:count])
        runner = kernels.planned(formula, inputs, (out,), compute.numpy)
        if len(self._plans) >= MOST_PLANS:
            self._plans.clear()
        records = self.differentiable and from_numpy_dtype(out.dtype).category >= FLOATING
        self._plans[key] = None if runner is None else (runner, out.shape, out.dtype, records)

    def run_out(self, out: Any, *args: Any) -> Tensor:
        if not isinstance(out, Tensor):
            raise TypeError(f"{self.said}(): argument 'out' must be Tensor, not {type(out).__name__}")
        args, compute, result, shape, place = self.prepare(args)
        with_grad = _state.grad_enabled() and any(isinstance(a, Tensor) and a._n is not None for a in args)
        check_out(self, out, result, device_of(out._a) if place == "cpu" and not out.is_meta else place_of(place), with_grad)
        check_writable(self, out)
        from . import _overlap

        _overlap.refuse_partly_shared(self, out, args)
        if out._a.shape != shape:
            resize_out(self, out, shape)
        self._write(out, args, compute, result)
        return out

    def _write(self, target: Tensor, args: Any, compute: Any, result: Any) -> None:
        arrays = tuple(a._a if isinstance(a, Tensor) else a for a in args)
        out = target._a
        if type(out) is MetaArray:
            pass
        elif type(out) is not ndarray:
            out[...] = on_other_device(self, arrays, compute, result, out.shape).astype(out.dtype)
        else:
            arrays = tuple(np.array(a) if self._collides(a, out) else a for a in arrays)
            if result.numpy == out.dtype:
                self.launch(arrays, out, compute.numpy)
            else:
                made = np.empty(out.shape, result.numpy)
                self.launch(arrays, made, compute.numpy)
                out[...] = kernels.cast(made, out.dtype)
        bump(target)

    @staticmethod
    def _collides(a: Any, out: ndarray) -> bool:
        """Whether `a` overlaps `out` without being exactly it."""
        if not isinstance(a, ndarray) or not np.may_share_memory(a, out):
            return False
        same = a.shape == out.shape and a.strides == out.strides and a.dtype == out.dtype
        return not (same and _arrays.address(a) == _arrays.address(out))

    def run_inplace(self, target: Tensor, *args: Any) -> Tensor:
        check_writable(self, target)
        args, compute, result, shape, _ = self.prepare((target, *args))
        if shape != target._a.shape:
            raise RuntimeError(
                f"{self.said}_: output with shape {list(target.shape)} doesn't match the broadcast shape {list(shape)}\n"
                f"{describe(**dict(zip(self.params, args, strict=True)))}"
            )
        if not dtypes.can_cast(result, target.dtype):
            raise RuntimeError(
                f"{self.said}_: result type {result.name} can't be cast to the desired output type {target.dtype.name}"
            )
        records = self.differentiable and target.dtype.category >= FLOATING and _state.grad_enabled()
        if records and any(isinstance(a, Tensor) and a._n is not None for a in args):
            check_view(self, target)
            before = wrap(target._a, target._n)
            before._v = target._v
            shown = wrap(target._a)
            self.record(shown, (before, *args[1:]))
            node = shown._n
            forget_overwritten_inputs(node, target)
            self._write(target, args, compute, result)
            node.seq = _state.next_seq()
            if node.versions and node.versions[0] is shown._v:
                node.versions = (target._v, *node.versions[1:])
            rebase(target, node)
        else:
            self._write(target, args, compute, result)
        return target

    # -- recording

    def record(self, made: Tensor, args: Any) -> None:
        """Give `made` a node if any operand has one."""
        parents = tuple(a._n if isinstance(a, Tensor) else None for a in args)
        for p in parents:
            if p is not None:
                break
        else:
            return
        if not _state.grad_enabled():
            return
        node = _new(self.node_class)
        node.seq = _state.next_seq()
        node.where = tape.users_place()
        node.parents = parents
        node.hooks = None
        reads = {r for name, p in zip(self.params, parents, strict=True) if p is not None for r in self.reads_of(name)}
        saved: list[Any] = [None]
        versions: list[Any] = [None]
        shapes: list[Any] = []
        kinds: list[Any] = []
        if "out" in reads:
            saved[0], versions[0] = made._a, made._v
        for name, a in zip(self.params, args, strict=True):
            tensor = isinstance(a, Tensor)
            if name not in reads:
                saved.append(None)
                versions.append(None)
            elif tensor:
                saved.append(a._a)
                versions.append(a._v)
            else:
                saved.append(a)
                versions.append(None)
            shapes.append(a._a.shape if tensor else None)
            kinds.append(a._a.dtype if tensor else None)
        node.saved = tuple(saved)
        node.versions = tuple(versions) if any(v is not None for v in versions) else ()
        node.shape, node.dtype = tuple(shapes), tuple(kinds)
        made._n = node

    # -- derivatives

    def gradient(self, i: int) -> tuple[Formula, tuple[int, ...], Any]:
        """For argument `i`: the formula of its gradient, which saved values it takes, and the constant it is, if any."""
        found = self._grads.get(i)
        if found is None:
            found = self._grads[i] = self._make_gradient(i)
        return found

    def _make_gradient(self, i: int) -> tuple[Formula, tuple[int, ...], Any]:
        name = self.params[i]
        order = ("out", *self.params)
        given = self.vjps.get(name)
        if given is not None:
            reads = given.__code__.co_varnames[1 : given.__code__.co_argcount]
            return Formula(given, f"{self.name}_grad_{name}"), tuple(order.index(r) for r in reads), None
        partial = (self.partials or {}).get(name)
        if partial is None:
            raise RuntimeError(f"{self.said}: the derivative with respect to '{name}' is not defined")
        reads = partial.__code__.co_varnames[: partial.__code__.co_argcount]
        if not reads:
            constant = partial()
            return Formula(lambda grad: grad * constant, f"{self.name}_grad_{name}"), (), constant
        combined = _times_partial(partial, len(reads))
        return Formula(combined, f"{self.name}_grad_{name}"), tuple(order.index(r) for r in reads), None

    def grad_array(self, i: int, node: Node, grad: Any) -> Any:
        """The gradient of argument `i` as an array."""
        formula, reads, constant = self.gradient(i)
        if constant is not None and constant == 1:
            result = grad
        else:
            values = [node.saved[r] for r in reads]
            compute = grad.dtype
            for v in values:
                if isinstance(v, ndarray) and v.dtype != compute:
                    compute = dtypes.promote_types(from_numpy_dtype(compute), from_numpy_dtype(v.dtype)).numpy
            if type(grad) is ndarray:
                shape = grad.shape
                for v in values:
                    if isinstance(v, ndarray) and v.shape != shape:
                        shape = np.broadcast_shapes(shape, v.shape)
                result = np.empty(shape, compute)
                kernels.launch(formula, (grad, *values), (result,), compute)
            else:
                result = on_other_device_formula(formula, (grad, *values), compute)
        shape = node.shape[i]
        if result.shape != shape:
            result = sum_to(result, shape)
        wanted = node.dtype[i]
        return result if result.dtype == wanted else kernels.cast(result, wanted)

    def grad_tensor(self, i: int, node: Node, grad: Tensor) -> Tensor:
        """The gradient of argument `i` as a differentiable Tensor expression."""
        formula, reads, constant = self.gradient(i)
        if constant is not None:
            result = grad if constant == 1 else grad * constant
        else:
            values = [saved_tensor(node, r) for r in reads]
            result = formula.bind(tensor_words())(grad, *values)
            if result._n is None:
                result = constant_along(result, values)
        result = sum_tensor_to(result, node.shape[i])
        wanted = from_numpy_dtype(node.dtype[i])
        if result.dtype is wanted:
            return result
        if result.dtype.is_complex and not wanted.is_complex:
            result = result.real
        return result.to(wanted)

    def jvp(self, args: Any, tangents: Any, out: Tensor) -> Tensor | None:
        """The tangent of `out` for `tangents` of `args` (None where constant)."""
        total = None
        values = (out, *args)
        for i, tangent in enumerate(tangents):
            if tangent is None:
                continue
            formula, reads, constant = self.gradient(i)
            if self.params[i] in self.vjps:
                term = formula.bind(tensor_words())(tangent, *(values[r] for r in reads))
            elif constant is not None:
                term = tangent if constant == 1 else tangent * constant
            else:
                partial = Formula(self.partials[self.params[i]]).bind(tensor_words())
                term = tangent * partial(*(values[r] for r in reads))
            total = term if total is None else total + term
        if total is not None and total._a.shape != out._a.shape:
            total = total.expand(out.shape)
        return total


MOVES = frozenset(("abs", "choose", "overwrite", "positive", "identity", "piecewise_constant"))


def refuse_float8(name: str, d: Any) -> None:
    raise NotImplementedError(
        f'"{name}" not implemented for {d}: float8 types are for storage; convert with .to(torch.float32), compute, convert back'
    )


def constant_along(result: Tensor, values: list[Any]) -> Tensor:
    """`result` as a function of the first of `values` with history, whose derivative is zero.

    A gradient such as relu's reads the input but is constant along it: differentiating it once more must give zeros.
    """
    if _state.grad_enabled():
        for value in values:
            if isinstance(value, Tensor) and value._n is not None:
                return OPS["piecewise_constant"].function(result, value)
    return result


def _formulas(fn: Any, ufunc: Any) -> tuple[Formula, Formula | None]:
    """The formula over all parameters, and the one without the keyword-only ones if there are any."""
    code = fn.__code__
    extra = code.co_kwonlyargcount
    if not extra:
        return Formula(fn, ufunc=ufunc), None
    whole = FunctionType(
        code.replace(co_argcount=code.co_argcount + extra, co_kwonlyargcount=0), fn.__globals__, fn.__name__, None, fn.__closure__
    )
    defaults = [fn.__kwdefaults__[n] for n in code.co_varnames[code.co_argcount : code.co_argcount + extra]]
    if code.co_argcount == 2 and extra == 1:
        value = defaults[0]
        return Formula(whole), Formula(lambda a, b: whole(a, b, value), fn.__name__, ufunc)
    if ufunc is not None:
        raise TypeError(f"{fn.__name__}: a ufunc goes with at most one keyword-only parameter")
    return Formula(whole), None


def _times_partial(partial: Any, arity: int) -> Any:
    """`grad` times the conjugate of `partial`; conj of a real value is free in every reading."""
    if arity == 1:
        return lambda grad, a: grad * conj(partial(a))
    if arity == 2:
        return lambda grad, a, b: grad * conj(partial(a, b))
    if arity == 3:
        return lambda grad, a, b, c: grad * conj(partial(a, b, c))
    if arity == 4:
        return lambda grad, a, b, c, d: grad * conj(partial(a, b, c, d))
    return lambda grad, a, b, c, d, e: grad * conj(partial(a, b, c, d, e))


def conj(x: Any) -> Any:
    raise TypeError("a word of the vocabulary")


def forget_overwritten_inputs(node: Node, target: Tensor) -> None:
    """As `forget_overwritten`, but the output is meant to be overwritten, and of the target itself a copy is kept."""
    if not node.versions:
        return
    out, first, *others = node.saved
    versions = node.versions
    if isinstance(first, ndarray) and versions[1] is target._v:
        first = np.array(first)
        node.versions = (versions[0], wrap(first)._v, *versions[2:])
    node.saved = (
        out,
        first,
        *(
            Overwritten(node.name()) if v is target._v and _overlaps(s, target._a) else s
            for s, v in zip(others, versions[2:], strict=True)
        ),
    )


def saved_tensor(node: Node, index: int) -> Any:
    """What `node` saved at `index` (0 is its output, then its arguments) as a Tensor with its history."""
    value = node.saved[index]
    if not isinstance(value, (ndarray, MetaArray)) and not hasattr(value, "strides"):
        return value
    made = wrap(value, node if index == 0 else node.parents[index - 1])
    made._v = node.versions[index]
    return made


_tensor_words: dict[str, Any] = {}


def tensor_words() -> dict[str, Any]:
    """The Tensor reading of the vocabulary: each word is the public function of that name."""
    if not _tensor_words:
        from . import _derive

        _derive.fill_tensor_words(_tensor_words)
    return _tensor_words


def place_of(kind: str) -> Any:
    from ..devices import device

    return device(kind)


def on_other_device(op: Any, arrays: Any, compute: Any, result: Any, shape: Any) -> Any:
    """Evaluate on a device array library: numpy functions dispatch to it by ``__array_ufunc__``."""
    return on_other_device_formula(op.formula, arrays, compute.numpy).astype(result.numpy, copy=False).reshape(shape)


def on_other_device_formula(formula: Formula, arrays: Any, compute: Any) -> Any:
    args = [a.astype(compute, copy=False) if hasattr(a, "astype") else np.asarray(a).astype(compute)[()] for a in arrays]
    return formula.bind(WORDS_READ)(*args)


def elementwise(
    surface: int = EVERYWHERE,
    dtype: Rule = common,
    partials: dict[str, Callable[..., Any]] | None = None,
    vjp: dict[str, Callable[..., Any]] | None = None,
    ufunc: Any = None,
    namespace: str = "",
    aliases: tuple[str, ...] = (),
    check: Any = None,
    scalar_first: bool = False,
    autocast: str | None = None,
    samples: Any = None,
    title: str | None = None,
    small: str | None = None,
) -> Callable[[Any], ElementwiseOp]:
    """Declare an elementwise op; the decorated function is its scalar formula.

    Args:
        dtype: rule from `_promote` giving the compute and result dtypes.
        partials: for each differentiable parameter the partial derivative, a function of the names it reads (`out` or
            parameters); only those are saved. None: not differentiable.
        vjp: where a product with the partial is not what is wanted (masks), the gradient itself, a function of `grad` first.
        ufunc: numpy ufunc that equals the formula when keyword-only parameters have their defaults.
        check: ``check(op, *args)`` raising on bad arguments.
        scalar_first: whether the first argument may be a number.
        samples: domain that generated tests draw from: (low, high), default (-3, 3).
        title: name autograd nodes show, where it is not made from the op's.
        small: for an op of one operand that no ufunc computes: text of the numpy expression for a small array `a` of dtype `d`.
    """
    return lambda fn: ElementwiseOp(
        fn, surface, namespace, aliases, autocast, dtype, partials, vjp, ufunc, check, scalar_first, samples, title, small
    )


# -- primitives ----------------------------------------------------------------------------------------------------------


class PrimitiveNode(Node):
    """A node whose rule is written on Tensors (`op.vjp_rule`), and perhaps on arrays too (`op.raw_rule`)."""

    __slots__ = ()
    lengths: Any = None  # where arguments are lists of tensors: how many each has

    def raw(self, grad: Any) -> Any:
        if self.shape:  # raw rules are for a single output
            return engine.through_tensors(self, grad, False)
        check_versions(self)
        op = self.op
        saved = self.saved
        values = [
            grad if at is None else saved[at] if at.__class__ is int else self._need(at) for at in op.raw_sources
        ]
        return op.line_up(self, op.raw_rule(*values))

    def _need(self, name: str) -> bool:
        return engine.wanted_parents(self)[self.op.tensor_index(self, name[6:])] is not None

    def vjp(self, grad: Any) -> Any:
        check_versions(self)
        op = self.op
        if self.shape:  # several outputs: fill in what nobody asked for
            grad = tuple(
                zeros_grad(self.__dict__["metas"][i]) if g is None else g for i, g in enumerate(grad)
            )
        versions = self.versions or (None,) * len(self.saved)
        at = {n: self._tensor(n, v, ver) for n, v, ver in zip(op.saved_names, self.saved, versions, strict=True)}
        values = (grad if n == "grad" else self._need(n) if n[:6] == "needs_" else at[n] for n in op.vjp_names)
        return op.line_up(self, op.vjp_rule(*values))

    def output(self, index: int) -> Any:
        """The node of one of several outputs; a new one if the program has dropped that output."""
        ref = self.__dict__["outputs"][index]
        if ref is None:
            return None
        node = ref()
        if node is None:
            node = tape.output_node(self, index)
            self.__dict__["outputs"][index] = weakref.ref(node)
        return node

    def _tensor(self, name: str, value: Any, record: Any) -> Any:
        if record is None:
            return value
        if type(record) is tuple:  # a list of tensors
            start = self.op.tensor_index(self, name)
            made = []
            for i, (a, v) in enumerate(zip(value, record, strict=True)):
                t = wrap(a, self.parents[start + i])
                t._v = v
                made.append(t)
            return made
        if name == "out" or name[:3] == "out" and name[3:].isdigit():
            parent: Any = self.output(int(name[3:] or 0)) if self.shape else self
        else:
            parent = self.parents[self.op.tensor_index(self, name)]
        made = wrap(value, parent)
        made._v = record
        return made


def zeros_grad(meta: Any) -> Tensor:
    shape, dtype = meta
    return wrap(np.zeros(shape, dtype))


class PrimitiveOp(Op):
    """An op with a kernel of its own.

    Rules are given by decorators on the op: `kernel` (arrays to array or tuple of arrays), `shape` (Tensors to
    ``(shape, dtype)``, for meta), `vjp` and `raw` (gradient first, then the names they need: parameters, ``out``,
    ``<param>_shape``, ``needs_<param>``), `jvp`, `batch`.
    """

    kind = "primitive"
    node_base = PrimitiveNode
    is_view = False
    keeps = False
    saves_plainly = False

    def __init__(self, fn: Any, surface: int, namespace: str, aliases: Any, autocast: Any, linear_in: Any, returns: Any,
                 tensors: Any, check: Any) -> None:  # fmt: skip
        self.linear_in = linear_in
        self.returns = returns
        self.check = check
        self.kernel_rule: Any = None
        self.shape_rule: Any = None
        self.vjp_rule: Any = None
        self.raw_rule: Any = None
        self.jvp_rule: Any = None
        self.batch_rule: Any = None
        self.not_differentiable = ""  # why there is no vjp, where there is none
        self.vjp_names: tuple[str, ...] = ()
        self.raw_names: tuple[str, ...] = ()
        self.saved_names: tuple[str, ...] = ()
        self.return_type: Any = None
        self.samples = None
        super().__init__(fn, surface, namespace, aliases, autocast)
        self.tensor_params = tensors or self.params[:1]

    def kernel(self, fn: Any) -> Any:
        self.kernel_rule = fn
        return fn

    def shape(self, fn: Any) -> Any:
        self.shape_rule = fn
        return fn

    def vjp(self, fn: Any) -> Any:
        self.vjp_rule = fn
        self.vjp_names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
        self._collect()
        return fn

    def raw(self, fn: Any) -> Any:
        """The vjp on arrays, for first-order gradients of ops with one output."""
        self.raw_rule = fn
        self.raw_names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
        self.node_class.has_raw = True
        self._collect()
        return fn

    def jvp(self, fn: Any) -> Any:
        self.jvp_rule = fn
        return fn

    def batch(self, fn: Any) -> Any:
        self.batch_rule = fn
        return fn

    def _collect(self) -> None:
        names = dict.fromkeys((*self.vjp_names, *self.raw_names))
        self.saved_names = tuple(n for n in names if n != "grad" and n[:6] != "needs_")
        # A view whose rules read nothing but its first argument's shape and plain arguments saves all of these, in order.
        plain = (self.params[0] + "_shape", *self.params[1:])
        self.saves_plainly = self.is_view and all(n in plain for n in self.saved_names)
        if self.saves_plainly:
            self.saved_names = plain
        index = {n: i for i, n in enumerate(self.saved_names)}
        # Where each argument of the raw rule comes from: None is the gradient, an int a saved value, a name a need.
        self.raw_sources = [None if n == "grad" else index.get(n, n) for n in self.raw_names]

    # -- forward

    def run(self, *args: Any) -> Any:
        plain = self.are_on_cpu(args)
        if not plain:
            args = self.tensors_of(args)
        if self.check is not None:
            args = self.check(*args) or args
        arrays = [a._a if isinstance(a, Tensor) else _to_arrays(a) if isinstance(a, _SEVERAL) else a for a in args]
        if not plain and any(_is_meta(a) for a in arrays):
            result = self.on_meta(args)
        else:
            if self.kernel_rule is None:
                raise NotImplementedError(f"{self.said}: no kernel for this backend")
            with np.errstate(all="ignore"):
                result = self.kernel_rule(*arrays)
            if self.keeps:
                result, kept = result
                return self.finish(args, result, kept)
        return self.finish(args, result)

    def are_on_cpu(self, args: Any) -> bool:
        """Whether all tensor parameters are single Tensors on the CPU, or left out where they may be."""
        for i, optional in self.places:
            a = args[i]
            if isinstance(a, Tensor):
                if a._a.__class__ is not ndarray:
                    return False
            elif a is not None or not optional:
                return False
        return True

    @functools.cached_property
    def places(self) -> tuple[tuple[int, bool], ...]:
        """Where tensor parameters are, and whether they may be left out."""
        return tuple((i, name in self.defaults) for i, name in enumerate(self.params) if name in self.tensor_params)

    def tensors_of(self, args: Any) -> Any:
        """Check that tensor parameters are Tensors."""
        for name, a in zip(self.params, args, strict=True):
            if name in self.tensor_params and not isinstance(a, Tensor):
                if isinstance(a, (list, tuple)):
                    for i, x in enumerate(a):
                        if x is not None and not isinstance(x, Tensor):
                            raise TypeError(
                                f"{self.said}(): expected Tensor as element {i} in argument '{name}', got {type(x).__name__}"
                            )
                elif a is not None or name not in self.defaults:
                    raise TypeError(f"{self.said}(): argument '{name}' must be Tensor, not {type(a).__name__}")
        common_device(self, [a for a in args if isinstance(a, Tensor)])
        return args

    def on_meta(self, args: Any) -> Any:
        """Run the shape rule; without one, the kernel on stretched single elements."""
        if self.shape_rule is not None:
            made = self.shape_rule(*args)
            if isinstance(made, list):
                return tuple(MetaArray(tuple(s), d.numpy) for s, d in made)
            return MetaArray(tuple(made[0]), made[1].numpy)
        stand_ins = tuple(_stand_in(a) for a in args)
        result = self.kernel_rule(*stand_ins)
        if isinstance(result, (tuple, list)):
            return tuple(MetaArray(r.shape, r.dtype) for r in result)
        return MetaArray(result.shape, result.dtype)

    def finish(self, args: Any, result: Any, kept: Any = None) -> Any:
        """Wrap what the kernel returned, and record."""
        if isinstance(result, (tuple, list)):
            outs = tuple(wrap(_as_array(r)) for r in result)
            if self.vjp_rule is not None:
                self.record(outs, args, True, kept)
            if self.returns:
                return self.named(outs)
            return outs
        made = wrap(_as_array(result))
        if self.vjp_rule is not None:
            self.record((made,), args, False, kept)
        return made

    def named(self, outs: Any) -> Any:
        if self.return_type is None:
            from . import _derive

            self.return_type = _derive.return_type(self.name, self.returns)
        return self.return_type(outs)

    # -- recording

    def record(self, outs: tuple[Tensor, ...], args: Any, several: bool, kept: Any = None) -> Any:
        parents: list[Any] = []
        found = False
        for name, a in zip(self.params, args, strict=True):
            if name in self.tensor_params:
                for t in a if isinstance(a, (list, tuple)) else (a,):
                    n = None if t is None else t._n
                    found = found or n is not None
                    parents.append(n)
        if not found or not _state.grad_enabled():
            return None
        if not any(from_numpy_dtype(o._a.dtype).category >= FLOATING for o in outs):
            return None
        node = _new(self.node_class)
        node.seq = _state.next_seq()
        node.where = tape.users_place()
        node.parents = tuple(parents)
        node.hooks = None
        node.shape = len(outs) if several else 0
        saved, versions = [], []
        named = dict(zip(self.params, args, strict=True))
        if self.keeps:
            named["kept"] = kept
        for name in self.saved_names:
            value, record = self._save(name, named, outs)
            saved.append(value)
            versions.append(record)
        node.saved = tuple(saved)
        holds = any(v is not None for v in versions) or any(map(tape.holds_arrays, saved))
        node.versions = tuple(versions) if holds else ()
        if several:
            made = []
            for i, o in enumerate(outs):
                if from_numpy_dtype(o._a.dtype).category >= FLOATING:
                    o._n = tape.output_node(node, i)
                    made.append(weakref.ref(o._n))
                else:
                    made.append(None)
            node.__dict__["outputs"] = made
            node.__dict__["metas"] = [(o._a.shape, _arrays.plain_dtype(o._a.dtype)) for o in outs]
        else:
            outs[0]._n = node
        if self._has_lists(args):
            node.lengths = {
                n: (len(a) if isinstance(a, (list, tuple)) else 1) for n, a in named.items() if n in self.tensor_params
            }
        return node

    def _has_lists(self, args: Any) -> bool:
        return any(n in self.tensor_params and isinstance(a, (list, tuple)) for n, a in zip(self.params, args, strict=True))

    def _save(self, name: str, named: dict[str, Any], outs: Any) -> tuple[Any, Any]:
        if name == "out":
            return outs[0]._a, outs[0]._v
        if name[:3] == "out" and name[3:].isdigit():
            o = outs[int(name[3:])]
            return o._a, o._v
        if name in named:
            value = named[name]
            if isinstance(value, Tensor):
                return value._a, value._v
            if name in self.tensor_params and isinstance(value, (list, tuple)):
                return [t._a for t in value], tuple(t._v for t in value)
            return value, None
        if name.endswith("_shape"):
            value = named[name[:-6]]
            if isinstance(value, (list, tuple)):
                return [t._a.shape for t in value], None
            return None if value is None else value._a.shape, None
        if name.endswith("_dtype"):
            return named[name[:-6]].dtype, None
        raise TypeError(f"{self.name}: its vjp asks for {name!r}, which is neither a parameter nor an output")

    def tensor_index(self, node: Node, name: str) -> int:
        """Where the parents of parameter `name` start."""
        lengths = node.lengths
        at = 0
        for p in self.params:
            if p in self.tensor_params:
                if p == name:
                    return at
                at += 1 if lengths is None else lengths[p]
        raise KeyError(name)

    def line_up(self, node: Node, grads: Any) -> list[Any]:
        """Line up what a rule returned with the node's parents; thunks run only where somebody needs the result."""
        if not isinstance(grads, (tuple, list)):
            grads = (grads,)
        lengths = node.lengths
        if lengths is not None:
            flat: list[Any] = []
            for g, p in zip(grads, (p for p in self.params if p in self.tensor_params), strict=True):
                n = lengths[p]
                flat += [None] * n if g is None else list(g) if isinstance(g, (list, tuple)) else [g]
            grads = flat
        parents = engine.wanted_parents(node)
        if len(grads) != len(parents):
            raise RuntimeError(f"{self.name}: its vjp returned {len(grads)} gradients for {len(parents)} arguments")
        return [
            None if p is None or g is None else g() if type(g) is _FUNCTION_TYPE else g
            for g, p in zip(grads, parents, strict=True)
        ]


_FUNCTION_TYPE = type(lambda: None)


_SEVERAL = (list, tuple)


def _is_meta(a: Any) -> bool:
    return type(a) is MetaArray or type(a) in _SEVERAL and any(type(x) is MetaArray for x in a)


def _to_arrays(a: Any) -> Any:
    if isinstance(a, Tensor):
        return a._a
    if isinstance(a, (list, tuple)) and a and isinstance(a[0], Tensor):
        return [t._a if isinstance(t, Tensor) else t for t in a]
    return a


def _as_array(r: Any) -> Any:
    return r if type(r) is ndarray or not isinstance(r, (np.generic, ndarray)) else np.asarray(r)


def _stand_in(a: Any) -> Any:
    if isinstance(a, Tensor):
        if type(a._a) is not MetaArray:
            return a._a
        return np.broadcast_to(np.zeros((), _arrays.plain_dtype(a._a.dtype)), a._a.shape)
    if isinstance(a, (list, tuple)) and a and isinstance(a[0], Tensor):
        return [_stand_in(x) for x in a]
    return a


def primitive(
    surface: int = FUNCTION,
    namespace: str = "",
    aliases: tuple[str, ...] = (),
    linear_in: tuple[str, ...] = (),
    returns: tuple[str, ...] | None = None,
    tensors: tuple[str, ...] | None = None,
    autocast: str | None = None,
    check: Any = None,
    spread: str | None = None,
    keeps: bool = False,
) -> Callable[[Any], PrimitiveOp]:
    """Declare an op with its own kernel; the decorated function gives signature and documentation, its body is unused.

    Args:
        tensors: parameters that are Tensors (or lists of them); the first parameter by default.
        linear_in: parameters the op is linear in, so that forward mode is the op itself.
        returns: field names when several results come as a named tuple.
        check: ``check(*args) -> args or None`` on Tensors, before the kernel.
        spread: the parameter that may be given as several arguments, as in ``t.permute(0, 2, 1)``.
        keeps: whether the kernel returns ``(result, kept)``: something of its work for the rules to read as `kept`.
    """

    def declare(fn: Any) -> PrimitiveOp:
        op = PrimitiveOp(fn, surface, namespace, aliases, autocast, linear_in, returns, tensors, check)
        op.spread = spread
        op.keeps = keeps
        return op

    return declare


# -- views ---------------------------------------------------------------------------------------------------------------


class ViewNode(PrimitiveNode):
    """A node of one parent whose rule on arrays mostly reads a shape and plain arguments."""

    __slots__ = ()

    def raw(self, grad: Any) -> Any:
        if self.versions:
            return super().raw(grad)
        op = self.op
        saved = self.saved
        return op.raw_rule(*[grad if at is None else saved[at] for at in op.raw_sources])

    def add_piece(self, whole: Any, grad: Any) -> bool:
        """Add `grad` where this view lies in `whole`, which spares an array of zeros. Returns whether that was done."""
        if self.versions or whole.__class__ is not ndarray or grad.__class__ is not ndarray or whole.dtype != grad.dtype:
            return False
        piece = self.op.kernel_rule(whole, *self.saved[1:])
        np.add(piece, grad, piece)
        return True


class ViewOp(PrimitiveOp):
    """A primitive whose kernel returns a view of its first argument's memory."""

    kind = "view"
    node_base = ViewNode
    is_view = True

    def finish(self, args: Any, result: Any) -> Any:
        source = args[0]
        if isinstance(result, (tuple, list)):
            rest = args[1:]
            return tuple([self.piece(source, r, rest, i) for i, r in enumerate(result)])
        return self.of(source, result, args[1:])

    def of(self, source: Tensor, array: Any, rest: Any) -> Tensor:
        """The view of `source` whose array is `array`; `rest` are the op's other arguments."""
        made = _new(Tensor)
        made._a = array
        record = made._v = source._v
        before = source._b
        made._b = (source, self, rest, None) if before is None else (before[0], self, rest, before)
        if not (_state.GRAD or _state.local.grad):
            made._n = None
            return made
        parent = source._n
        if parent is None:
            made._n = None
        elif self.saves_plainly:
            node = made._n = _new(self.node_class)
            node.seq = _next_seq()
            node.parents = (parent,)
            node.hooks = None
            node.saved = (source._a.shape, *rest)
            node.versions = ()
            node.shape = 0
        else:
            made._n = None
            if self.vjp_rule is not None:
                self.record((made,), (source, *rest), False)
        views = record[3]
        if views is None:
            record[3] = [_ref(made)]
        elif len(views) < 32:
            views.append(_ref(made))
        else:
            register_view(made)
        return made

    def piece(self, source: Tensor, array: Any, rest: Any, index: int) -> Tensor:
        """`of` for one of several views."""
        made = wrap(array)
        made._v = source._v
        before = source._b
        part = _Part(self, index)
        made._b = (source if before is None else before[0], part, rest, before)
        if _state.GRAD or _state.local.grad:
            if source._n is not None:
                part.record(made, (source, *rest))
            register_view(made)
        return made

    def run(self, *args: Any) -> Any:
        if not isinstance(args[0], Tensor):
            raise TypeError(f"{self.said}(): argument '{self.params[0]}' must be Tensor, not {type(args[0]).__name__}")
        if self.check is not None:
            args = self.check(*args) or args
        return self.finish(args, self.kernel_rule(args[0]._a, *args[1:]))


    def run_inplace(self, target: Tensor, *args: Any) -> Tensor:
        """Make `target` itself the view: its shape and strides change, its memory does not."""
        check_recorded(target)
        if target._n is not None and _state.grad_enabled():
            check_view(self, target)
        made = self.run(target, *args)
        target._a = made._a
        if made._n is not None:
            target._n = made._n
        if target._b is not None:
            target._b = made._b
            register_view(target)
        bump(target)
        return target


class _Part:
    """One of several views an op makes, as an op of its own: its history is the piece's, not the whole's."""

    __slots__ = ("whole", "index")

    def __init__(self, whole: ViewOp, index: int) -> None:
        self.whole = whole
        self.index = index

    def run(self, tensor: Tensor, *args: Any) -> Tensor:
        return (self.whole.interpreted if _state.SLOW else self.whole.run)(tensor, *args)[self.index]

    interpreted = run

    def record(self, made: Tensor, args: Any) -> None:
        node = PartNode()
        node.seq = _state.next_seq()
        node.parents = (args[0]._n,)
        node.hooks = None
        node.versions = ()
        node.saved = (self, args[1:], args[0]._a.shape)
        made._n = node


class _OnlyPart(_Part):
    """The one of several views that is looked at: writes to it may be recorded."""

    __slots__ = ()


class PartNode(Node):
    """Puts the gradient of one piece back into zeros of the whole."""

    __slots__ = ()

    def name(self) -> str:
        return self.saved[0].whole.node_class.title if type(self.saved) is tuple else "PartBackward0"

    def vjp(self, grad: Tensor) -> Any:
        part, args, shape = self.saved
        whole = grad.new_zeros(shape)
        piece = part.run(whole, *args)
        if piece._b is not None:
            piece._b = (piece._b[0], _OnlyPart(part.whole, part.index), *piece._b[2:])
        piece.copy_(grad)
        return (whole,)


def view(
    surface: int = VIEWED,
    namespace: str = "",
    aliases: tuple[str, ...] = (),
    check: Any = None,
    autocast: str | None = None,
    spread: str | None = None,
) -> Callable[[Any], ViewOp]:
    """Declare an op that returns views; its kernel maps the array (and the other arguments) to views of it."""

    def declare(fn: Any) -> ViewOp:
        op = ViewOp(fn, surface, namespace, aliases, autocast, (fn.__code__.co_varnames[0],), None, None, check)
        op.spread = spread
        return op

    return declare


# -- reductions ----------------------------------------------------------------------------------------------------------


class ReductionNode(Node):
    __slots__ = ()
    has_raw = True

    def raw(self, grad: Any) -> Any:
        if self.op.spreads_only and type(grad) is ndarray and grad.dtype == self.dtype:
            shape, axes, keepdim = self.shape
            if grad.ndim and not keepdim:
                grad = grad.reshape([1 if d in axes else n for d, n in enumerate(shape)])
            made = np.empty(shape, grad.dtype)
            made[...] = grad
            return (made,)
        return engine.through_tensors(self, grad, False)

    def vjp(self, grad: Tensor) -> Any:
        check_versions(self)
        return (self.op.grad_tensor(self, grad),)


class ReductionOp(Op):
    """Map each element, combine the results over some dimensions, finish."""

    kind = "reduction"
    node_base = ReductionNode

    def __init__(self, fn: Any, surface: int, namespace: str, aliases: Any, autocast: Any, dtype: Any, identity: Any,
                 map: Any, combine: str, finish: Any, partial: Any, vjp: Any) -> None:  # fmt: skip
        self.dtype_rule = dtype
        self.identity = identity
        self.rule = Reduction(fn.__name__, combine, map, finish)
        self.partial = None if partial is None else Formula(partial, f"{fn.__name__}_partial")
        self.custom_vjp = vjp
        self.samples = None
        super().__init__(fn, surface, namespace, aliases, autocast)
        self.differentiable = partial is not None or vjp is not None
        rule = partial or vjp
        # The gradient of a plain sum is the incoming one, spread.
        self.spreads_only = partial is not None and not partial.__code__.co_argcount and partial() == 1
        self.reads = rule.__code__.co_varnames[: rule.__code__.co_argcount] if rule else ()

    def run(self, input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        if not isinstance(input, Tensor):
            raise TypeError(f"{self.said}(): argument 'input' must be Tensor, not {type(input).__name__}")
        if dtype.__class__ is type:
            dtype = dtypes.as_dtype(dtype)
        accumulate, result = self.dtype_rule(self, input.dtype, dtype)
        if result.itemsize == 1 and result.category == FLOATING:
            refuse_float8(self.name, result)
        a = input._a
        axes = wrap_dims(self.name, dim, a.ndim)
        if type(a) is MetaArray:
            out: Any = MetaArray(reduced_shape(a.shape, axes, keepdim), result.numpy)
        else:
            out = self.compute(a, axes, keepdim, accumulate.numpy, result.numpy)
        made = wrap(out)
        if self.differentiable and input._n is not None and _state.grad_enabled() and result.category >= FLOATING:
            node = _new(self.node_class)
            node.seq = _state.next_seq()
            node.parents = (input._n,)
            node.hooks = None
            keeps_in, keeps_out = "input" in self.reads, "out" in self.reads
            node.saved = (made._a if keeps_out else None, a if keeps_in else None)
            node.versions = ()
            if keeps_in or keeps_out:
                node.versions = (made._v if keeps_out else None, input._v if keeps_in else None)
                node.where = tape.users_place()
            node.shape = (a.shape, axes, keepdim)
            node.dtype = a.dtype
            made._n = node
        return made

    def node_for(self, parent: Node, a: Any) -> Node:
        """The node of a reduction of all of `a` whose gradient reads neither input nor output."""
        node = _new(self.node_class)
        node.seq = _state.next_seq()
        node.parents = (parent,)
        node.hooks = None
        node.saved, node.versions = (None, None), ()
        node.shape = (a.shape, tuple(range(a.ndim)), False)
        node.dtype = a.dtype
        return node

    def compute(self, a: Any, axes: tuple[int, ...], keepdim: bool, accumulate: Any, result: Any) -> Any:
        if self.identity is None and a.size == 0:
            check_nonempty(self.name, a.shape, axes)
        return reduce(self.rule, a, axes, keepdim, accumulate, result)

    def grad_tensor(self, node: Node, grad: Tensor) -> Tensor:
        shape, axes, keepdim = node.shape
        if self.custom_vjp is not None:
            values = {"grad": grad, "shape": shape, "dims": axes, "keepdim": keepdim}
            if "out" in self.reads:
                values["out"] = saved_tensor(node, 0)
            if "input" in self.reads:
                values["input"] = saved_tensor(node, 1)
            result = self.custom_vjp(*(values[name] for name in self.reads))
        elif self.spreads_only:
            result = spread_dims(grad, shape, axes, keepdim)
        else:
            spread = spread_dims(grad, shape, axes, keepdim)
            values = {}
            if "out" in self.reads:
                values["out"] = spread_dims(saved_tensor(node, 0), shape, axes, keepdim)
            if "input" in self.reads:
                values["input"] = saved_tensor(node, 1)
            result = spread
            if self.partial is not None:
                factor = self.partial.bind(tensor_words())(*(values[name] for name in self.reads))
                if not (isinstance(factor, (int, float)) and factor == 1):
                    result = spread * (factor.conj() if isinstance(factor, Tensor) and factor.is_complex() else factor)
        wanted = from_numpy_dtype(node.dtype)
        if result.dtype is not wanted:
            result = (result.real if result.dtype.is_complex and not wanted.is_complex else result).to(wanted)
        return result


def spread_dims(reduced: Tensor, shape: tuple[int, ...], axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """A reduced Tensor stretched back over the dimensions it was reduced along."""
    if not keepdim and axes:
        kept = tuple(1 if d in axes else n for d, n in enumerate(shape))
        reduced = reduced.reshape(kept)
    return reduced.expand(shape)


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    if keepdim:
        return tuple(1 if d in axes else n for d, n in enumerate(shape))
    return tuple(n for d, n in enumerate(shape) if d not in axes)


def wrap_dims(name: str, dim: Any, ndim: int) -> tuple[int, ...]:
    """Dimensions to reduce, counted from the front; None and an empty list mean all.

    Raises: IndexError out of range, RuntimeError for a dimension given twice.
    """
    if dim is None:
        return tuple(range(ndim))
    if isinstance(dim, (tuple, list)):
        dims = [int(d) for d in dim]
        if not dims:
            return tuple(range(ndim))
    else:
        dims = [dim]
    axes = []
    for d in dims:
        at = wrap_dim(d, ndim)
        if at in axes:
            raise RuntimeError(f"{name}: dim {at} appears multiple times in the list of dims {tuple(dims)}")
        axes.append(at)
    return tuple(axes) if ndim else ()


def check_nonempty(name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    if len(axes) == len(shape) > 1 and 0 in shape:
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0; the input has shape {tuple(shape)}"
        )
    for d in axes:
        if shape[d] == 0:
            raise IndexError(
                f"{name}(): Expected reduction dim {d} to have non-zero size, but the input has shape {tuple(shape)}; "
                "specify a dim with elements"
            )
    if not axes and 0 in shape:
        raise RuntimeError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0")


def sum_dtype(op: Any, given: Any, dtype: Any) -> tuple[Any, Any]:
    """Integers and bools add up in int64, others in their own dtype, unless `dtype` says otherwise."""
    if dtype is not None:
        return dtype, dtype
    if given.category < FLOATING:
        return dtypes.int64, dtypes.int64
    return given, given


def same_dtype(op: Any, given: Any, dtype: Any) -> tuple[Any, Any]:
    return given, given


def bool_dtype(op: Any, given: Any, dtype: Any) -> tuple[Any, Any]:
    return given, dtypes.uint8 if given is dtypes.uint8 else dtypes.bool


def floating_dtype(op: Any, given: Any, dtype: Any) -> tuple[Any, Any]:
    """Only floating and complex values, or a floating `dtype`. Raises: RuntimeError otherwise."""
    wanted = dtype or given
    if wanted.category < FLOATING:
        said = f"dtype={wanted.name}" if dtype is not None else f"an input of dtype {given.name}"
        raise RuntimeError(
            f"{op.said}(): could not infer output dtype: {op.said} needs a floating point or complex dtype, got {said}; "
            f"give dtype=torch.float32"
        )
    return wanted, wanted


def reduction(
    surface: int = FUNCTION | METHOD | OUT,
    dtype: Any = sum_dtype,
    identity: Any = None,
    map: Any = None,  # the term of the field
    combine: str = "add",
    finish: Any = None,
    partial: Any = None,
    vjp: Any = None,
    namespace: str = "",
    aliases: tuple[str, ...] = (),
    autocast: str | None = None,
) -> Callable[[Any], ReductionOp]:
    """Declare a reduction over `dim`; the decorated function gives signature and documentation.

    Args:
        dtype: ``rule(op, input dtype, dtype=) -> (accumulate, result)``.
        identity: value of an empty reduction; None refuses it.
        map: formula applied to each element first, defined by `def`, so that kernels can contain it.
        combine: 'add', 'mul', 'max', 'min', 'and', 'or'.
        finish: ``finish(total, count)``, by `def` too: on arrays, and on the numbers of a kernel.
        partial: derivative with respect to an element, of the names it reads (`out`, `input`).
        vjp: the gradient as a Tensor expression of names among grad, out, input, shape, dims, keepdim.
    """
    return lambda fn: ReductionOp(
        fn, surface, namespace, aliases, autocast, dtype, identity, map, combine, finish, partial, vjp
    )


# -- composites ----------------------------------------------------------------------------------------------------------


class CompositeOp(Op):
    """Other ops, composed; derivatives and devices follow from theirs."""

    kind = "composite"
    inplace_view: Any = None  # the view op that the in-place form is made with

    def run_inplace(self, target: Tensor, *args: Any) -> Tensor:
        if self.inplace_view is not None:
            return self.inplace_view(target, *args)
        return super().run_inplace(target, *args)

    def run(self, *args: Any) -> Any:
        count = len(self.positional)
        return self.fn(*args[:count], **dict(zip(self.keyword_only, args[count:], strict=True)))


def composite(
    surface: int = FUNCTION,
    namespace: str = "",
    aliases: tuple[str, ...] = (),
    autocast: str | None = None,
    spread: str | None = None,
) -> Callable[[Any], CompositeOp]:
    """Declare an op made of other ops; the decorated function is its definition."""

    def declare(fn: Any) -> CompositeOp:
        op = CompositeOp(fn, surface, namespace, aliases, autocast)
        op.spread = spread
        return op

    return declare


# -- update rules --------------------------------------------------------------------------------------------------------

engine._add = lambda a, b: OPS["add"].interpreted(a, b, 1) if _state.SLOW else OPS["add"].run(a, b, 1)

"""Batched tensors, and the interpreter that runs ops on them.

A `BatchedTensor` looks like one example; the tensor it stands for has a further dimension, over which `vmap` maps. The
interpreter of a vmap level answers for ops with an operand of its level: it runs the op on the whole batch by a rule (see
`batch_rules`), or, where there is none, on one example after another. History is kept by the tensors inside, never by
batched ones, so the tape needs no rule of its own.
"""

from __future__ import annotations

from typing import Any

from .. import _state
from .._arrays import Shaped
from .._errors import NeedsValues, RefusedForBatches
from .._interpreters import UNTOUCHED, Interpreter
from ..ops import _dispatch
from ..tensor import Tensor
from ..utils._pytree import tree_flatten, tree_unflatten

_new = object.__new__
_local = _state.local


class BatchedArray(Shaped):
    """Shape, strides and dtype of one example. Everything else an array can do raises `NeedsValues`."""

    __slots__ = ("shape", "strides", "dtype", "place")

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, place: Any) -> None:
        self.shape, self.strides, self.dtype, self.place = shape, strides, dtype, place

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise NeedsValues(
            "vmap: this operation reads the values of a batched Tensor outside the operations that vmap knows; "
            "use operations on Tensors, or a loop in place of vmap"
        )

    __getattr__ = __array__ = __array_ufunc__ = __array_function__ = __getitem__ = __setitem__ = __iter__ = __len__ = _refuse
    __bool__ = __float__ = __int__ = __index__ = __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __neg__ = __truediv__ = __and__ = __or__ = __invert__ = _refuse
    __hash__ = None  # type: ignore[assignment]


class BatchedTensor(Tensor):
    """One example's view of `_value`, whose dimension `_bdim` runs over the examples of the vmap `_level`."""

    __slots__ = ("_value", "_bdim", "_level", "_link")
    _plain_operand = True

    @property
    def _array(self) -> Any:  # type: ignore[override]
        a, d = self._value._array, self._bdim
        return BatchedArray(a.shape[:d] + a.shape[d + 1 :], a.strides[:d] + a.strides[d + 1 :], a.dtype, self._value.device)

    @property
    def _node(self) -> Any:  # type: ignore[override]
        return self._value._node

    @property
    def _storage(self) -> Any:  # type: ignore[override]
        return self._value._storage

    @property
    def _view_of(self) -> Any:  # type: ignore[override]
        """As for other views: (base, op, args, link of the view it was taken from), of batched tensors."""
        return self._link

    @_view_of.setter
    def _view_of(self, link: Any) -> None:
        self._link = link

    @property
    def _gradient(self) -> Any:  # type: ignore[override]
        grad = self._value._gradient
        return None if grad is None else batched(grad, self._bdim, self._level)

    def _aliased(self) -> BatchedTensor:
        made = batched(self._value, self._bdim, self._level)
        made._link = self._link
        return made

    # -- new tensors are batches too, so that they can be written to -----------------------------------------------------

    def _shaped_alike(self, make: Any) -> BatchedTensor:
        """``make(x)`` gives a tensor of the shape of `x`."""
        return batched(make(self._value), self._bdim, self._level)

    def _new(self, name: str, size: tuple[Any, ...], options: Any, *rest: Any) -> BatchedTensor:
        shape = options.pop("size", size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
        return self._level.wrap(getattr(self._value, name)((self._level.size, *shape), *rest, **options))

    def new_zeros(self, *size: Any, **options: Any) -> BatchedTensor:
        return self._new("new_zeros", size, options)

    def new_ones(self, *size: Any, **options: Any) -> BatchedTensor:
        return self._new("new_ones", size, options)

    def new_empty(self, *size: Any, **options: Any) -> BatchedTensor:
        return self._new("new_empty", size, options)

    def new_empty_strided(self, size: Any, stride: Any, **options: Any) -> BatchedTensor:
        step = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        return self._level.wrap(self._value.new_empty_strided((self._level.size, *size), (step, *stride), **options))

    def new_full(self, size: Any, fill_value: Any, **options: Any) -> BatchedTensor:
        return self._new("new_full", (size,), options, fill_value)

    # -- what only single values can do ----------------------------------------------------------------------------------

    def _shared(self) -> Tensor | None:
        """The example that all others are alike, where a transform inside has made a batch of what is the same for all; else None."""
        level = self._level
        if not level.repeats or not level.size:
            return None
        with _dispatch.below(level):
            examples = level.front(self).detach()
            return examples[0] if bool((examples == examples[0]).all()) else None

    def item(self) -> Any:
        if (shared := self._shared()) is not None:
            with _dispatch.below(self._level):
                return shared.item()
        raise NeedsValues(
            "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, "
            "please try to rewrite what you're doing with other operations."
        )

    def __bool__(self) -> bool:
        if (shared := self._shared()) is not None:
            with _dispatch.below(self._level):
                return bool(shared)
        raise NeedsValues(
            "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. "
            "We don't support that: choose between values with where() instead."
        )

    def tolist(self) -> Any:
        if (shared := self._shared()) is None:
            self._no_values()
        with _dispatch.below(self._level):
            return shared.tolist()

    def _no_values(self, *_: Any, **__: Any) -> Any:
        raise NeedsValues("vmap: the values of a batched Tensor cannot leave the mapped function; return the Tensor instead")

    numpy = __array__ = __dlpack__ = data_ptr = untyped_storage = storage = _no_values
    __reduce_ex__ = _no_values

    def backward(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("vmap: backward() cannot be called on a Tensor inside vmap; use func.grad or func.vjp there")

    def storage_offset(self) -> int:
        """Where the first example begins in the storage."""
        return self._value.storage_offset()

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        raise RuntimeError(
            "You are attempting to call Tensor.requires_grad_() inside of a function transformed by vmap. "
            "This is unsupported; use func.grad or func.vjp there"
        )

    @property
    def is_cpu(self) -> bool:
        return self._value.is_cpu

    @property
    def is_meta(self) -> bool:
        return self._value.is_meta

    @property
    def _lacks_values(self) -> bool:
        return self._value._lacks_values

    @property
    def is_cuda(self) -> bool:
        return self._value.is_cuda

    @property
    def data(self) -> Tensor:
        return self.detach()

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        inner = repr(self._value).replace("\n", "\n    ")
        return f"BatchedTensor(lvl={self._level.number}, bdim={self._bdim}, value=\n    {inner}\n)"


_dispatch.take_for_silent(BatchedTensor)
# Classes of what the examples of an elementwise op share.
_NUMBERS = frozenset((int, float, bool, complex, type(None), str))
# Kinds of ops whose results may be views.
_VIEWING = frozenset(("view", "composite"))


def batched(value: Tensor, bdim: int, level: VmapLevel) -> BatchedTensor:
    """`value` seen one example at a time: without its dimension `bdim`."""
    made = _new(BatchedTensor)
    made._value, made._bdim, made._level, made._link = value, bdim, level, None
    return made


class VmapLevel(Interpreter):
    """The interpreter of one running `vmap`, over `size` examples."""

    kind = "vmap"
    answers_wrapped = True
    repeats = False  # whether a transform inside has made a batch of what is the same for all examples, so that each has its gradients

    def __init__(self, size: int, randomness: str) -> None:
        self.size = size
        self.randomness = randomness
        around = _local.calls.interpreters
        self.number = 1 + sum([isinstance(x, VmapLevel) for x in around]) if around else 1

    # -- between examples and batch

    def has(self, x: Any) -> bool:
        return type(x) is BatchedTensor and x._level is self

    def holds(self, x: Any) -> bool:
        """Whether `x` is a batch of this level, or of levels inside it around one."""
        while type(x) is BatchedTensor:
            if x._level is self:
                return True
            x = x._value
        return False

    def repeated(self, x: Tensor) -> BatchedTensor:
        """`x`, which this level does not hold, as a batch whose examples are alike, each with memory of its own."""
        if type(x) is BatchedTensor and x._level.number > self.number:
            return batched(self.repeated(x._value), x._bdim, x._level)
        with _dispatch.below(self):
            return batched(x.expand(self.size, *x.shape).clone(), 0, self)

    def front(self, x: Any) -> Any:
        """The tensor with all examples of `x`, which are numbered by its first dimension; `x` itself if it is no batch."""
        if x.__class__ is not BatchedTensor or x._level is not self:
            return x
        return x._value if x._bdim == 0 else x._value.movedim(x._bdim, 0)

    def full(self, x: Tensor) -> Tensor:
        """As `front`; what is not batched is repeated for every example, without copying."""
        if x.__class__ is BatchedTensor and x._level is self:
            return x._value if x._bdim == 0 else x._value.movedim(x._bdim, 0)
        return x.expand(self.size, *x.shape)

    def wrap(self, value: Any, bdim: int = 0) -> Any:
        """Results of an op on the whole batch as batched tensors."""
        if isinstance(value, Tensor):
            return batched(value, bdim, self)
        if isinstance(value, (tuple, list)):
            made = [self.wrap(v, bdim) for v in value]
            return type(value)(made) if isinstance(value, list) or hasattr(value, "_fields") else tuple(made)
        return value

    # -- running ops

    def run_branches(self, pred: Any, branches: tuple[Any, Any], operands: Any) -> Any:
        """What each example chooses of what both branches give. Raises: RuntimeError if they give other structures or shapes."""
        if not self.has(pred) or pred._shared() is not None:
            return NotImplemented
        found, specs = zip(*[tree_flatten(branch(*operands)) for branch in branches], strict=True)
        looks = [[(x.shape, x.dtype) if isinstance(x, Tensor) else type(x) for x in leaves] for leaves in found]
        if specs[0] != specs[1] or looks[0] != looks[1]:
            raise RuntimeError(f"cond: both branches must give the same structure, shapes and dtypes, got {looks[0]} and {looks[1]}")
        holds = pred.reshape(()) != 0
        return tree_unflatten([x.where(holds, y) if isinstance(x, Tensor) else x for x, y in zip(*found, strict=True)], specs[0])

    def quick(self, op: Any, *args: Any) -> Any:
        """The result of a scalar formula of batches of one rank along the first dimension, and numbers: it runs on them as they are."""
        if op.kind != "elementwise" or op.random or op.batch_rule is not None:
            return None
        values: list[Any] = []
        ndim, plain = 0, True
        for a in args:
            if a.__class__ is BatchedTensor:
                if a._level is not self or a._bdim:
                    return None
                a = a._value
                if ndim != (own := a._array.ndim):
                    if ndim:
                        return None
                    ndim = own
                plain = plain and a.__class__ is Tensor
            elif a.__class__ not in _NUMBERS:
                return None
            values.append(a)
        if ndim < 2:
            return None
        calls = _local.calls
        stack = calls.interpreters
        calls.interpreters = outside = stack[:-1]
        try:
            return batched(op.enter(*values) if plain and not outside else _dispatch.interpret(op, tuple(values)), 0, self)
        finally:
            calls.interpreters = stack

    def run(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        """Run `op` on the batch; UNTOUCHED for ops that are none of this level's business."""
        if op.random and rules.draws(op, args):
            return self._draw(op, args, inplace)
        if not self.touches(args):
            if not self.has(out):
                return UNTOUCHED
            raise RuntimeError(f"vmap: {op.name}: out= cannot be a batched Tensor; use the result, or copy_() it")
        if out is not None and not inplace:
            raise RuntimeError(f"vmap: {op.name}: out= is not supported inside vmap; assign the result instead")
        if op.dynamic_shape:
            alike = self._without_repeats(op, args)
            if not self.touches(alike):
                with _dispatch.below(self):
                    return _dispatch.interpret(op, alike)
            raise RefusedForBatches(
                f"vmap: It looks like you're calling {op.name} on a batched Tensor, whose result has another shape for each example. "
                "vmap does not support operations that return tensors of dynamic shape"
            )
        if inplace:
            return self._run_inplace(op, args)
        rule = rules.rule_for(op)
        if rule is None:
            return _dispatch.DECOMPOSE if op.kind == "composite" else self.loop(op, args)
        made = rule(self, op, args)
        if made is NotImplemented:
            return self.loop(op, args)
        if op.kind in _VIEWING and args[0].__class__ is BatchedTensor:
            self._link_views(op, args, made)
        return made

    def _without_repeats(self, op: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """`args` with one example for each batch whose examples are alike, of those through which `op` carries no gradient."""
        discrete = op.kind != "composite" and op.not_differentiable
        of_one = (a._shared() if self.has(a) and (a._node is None or discrete) else None for a in args)
        return tuple([a if one is None else one for a, one in zip(args, of_one, strict=True)])

    def _link_views(self, op: Any, args: tuple[Any, ...], made: Any) -> None:
        """Let views of a batch know of what they are views: where what they stand for is one of what the batch stands for."""
        source, *rest = args
        before = source._link
        link = (source, op, tuple(rest), None) if before is None else (before[0], op, tuple(rest), before)
        for x in made if isinstance(made, (tuple, list)) else (made,):
            if x.__class__ is BatchedTensor and x._value._view_of is not None and x._value._storage is source._value._storage:
                x._link = link

    def run_operator(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.touches((*args, *kwargs.values())):
            return NotImplemented
        from .custom import operator_in_vmap

        return operator_in_vmap(self, operator, args, kwargs)

    def touches(self, args: Any) -> bool:
        """Whether an operand is a batch of this level."""
        for a in args:
            if a.__class__ is BatchedTensor:
                if a._level is self:
                    return True
            elif isinstance(a, (list, tuple)) and any(map(self.has, a)):
                return True
        return False

    def _run_inplace(self, op: Any, args: tuple[Any, ...]) -> Any:
        target = args[0]
        if op.kind == "view" or op.inplace_view is not None:
            made = _dispatch.interpret_with(self, op, args)
            target._value, target._bdim = made._value, made._bdim
            return target
        if op.kind == "composite":
            return _dispatch.DECOMPOSE
        if not self.has(target):
            raise RefusedForBatches(
                f"vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args "
                f"that is batched while self is not: {op.name}_ would store a batch in one example; use {op.name}() instead"
            )
        if op.kind == "elementwise":
            rules.elementwise_inplace(self, op, args)
        elif op.batch_operands is not None:
            rules.run(op, *op.batch_operands(self, args), inplace=True)
        else:
            self.loop(op, args, True)
        return target

    def loop(self, op: Any, args: tuple[Any, ...], inplace: bool = False) -> Any:
        """Run `op` on one example after another, and stack the results."""
        rows = [self._one(op, tuple(self._example(a, i) for a in args), inplace) for i in range(self.size)]
        if inplace:
            return args[0]
        if not rows:
            raise RuntimeError(f"vmap: {op.name} has no batching rule, and a batch of size 0 gives no example to run it on")
        return self.stacked(rows)

    def run_each(self, op: Any, args: tuple[Any, ...]) -> Any:
        """A composition that reads values, run on one example after another."""
        return self.loop(op, args) if self.touches(args) else NotImplemented

    def _one(self, op: Any, args: Any, inplace: bool) -> Any:
        return _dispatch.interpret(op, args, args[0] if inplace else None, inplace)

    def _example(self, a: Any, i: int) -> Any:
        if self.has(a):
            return a._value.select(a._bdim, i)
        if isinstance(a, (list, tuple)) and any(map(self.has, a)):
            return type(a)([self._example(x, i) for x in a])
        return a

    def stacked(self, rows: list[Any]) -> Any:
        """The results of single examples as one batch."""
        from ..ops._spec import OPS

        first = rows[0]
        if isinstance(first, Tensor):
            return batched(OPS["stack"].function(rows, 0), 0, self)
        if isinstance(first, (list, tuple)):
            made = [self.stacked(list(column)) for column in zip(*rows, strict=True)]
            return type(first)(made) if isinstance(first, list) or hasattr(first, "_fields") else tuple(made)
        return first

    # -- random numbers

    def check_randomness(self, what: str) -> None:
        if self.randomness == "error":
            raise RuntimeError(
                f"vmap: called random operation {what} while in randomness error mode. Please either use the 'same' or "
                "'different' randomness flags on vmap or perform the randomness operation out of vmap"
            )

    def _draw(self, op: Any, args: tuple[Any, ...], inplace: bool) -> Any:
        """Draw for one example after another, with the same numbers where that is wanted."""
        self.check_randomness(op.name)
        mine = any(map(self.has, tensors_in(args)))
        if self.randomness == "same" and not mine:
            return NotImplemented
        if inplace and not self.has(args[0]):
            raise RuntimeError(_UNBATCHED_TARGET)
        return self.each(lambda i: self._one(op, tuple(self._example(a, i) for a in args), inplace))

    def each(self, draw: Any) -> Any:
        """The batch of ``draw(i)``; under the 'same' randomness each begins with the same state of the generator."""
        from ..random import default_generator

        state = default_generator.get_state() if self.randomness == "same" else None
        rows = []
        for i in range(self.size):
            if state is not None:
                default_generator.set_state(state)
            rows.append(draw(i))
        return self.stacked(rows)

    def drawn(self, make: Any) -> Any:
        """What a random creation function returns inside the levels in force; None if all examples draw alike.

        Args:
            make: ``make(lead)`` draws a tensor with the dimensions `lead` before its own: PyTorch draws for all examples at once, and
                normal numbers, which come in blocks, depend on how many are drawn.
        """
        levels = [x for x in _local.calls.interpreters if isinstance(x, VmapLevel)]
        for level in levels:
            level.check_randomness("that creates a tensor")
        different = [x for x in levels if x.randomness == "different"]
        return _drawn_at(make, different, ()) if different else None

    def fill_randomly(self, target: Tensor, name: str, draw: Any, shaped: bool) -> Tensor:
        """Let ``draw(array)`` fill `target` as this level says, the innermost in force; arguments as of `fill_in_place`."""
        from ..ops.sampling import random

        self.check_randomness(f"{name}_")
        if not self.has(target):
            if self.randomness == "different":
                raise RuntimeError(_UNBATCHED_TARGET)
            with _dispatch.below(self):
                return random.fill_in_place(target, name, draw, shaped)
        with _dispatch.below(self):
            if self.randomness == "different" and not shaped:
                random.fill_in_place(target._value.movedim(target._bdim, 0), name, draw)
            else:
                self.each(lambda i: random.fill_in_place(target._value.select(target._bdim, i), name, draw, shaped))
        return target


def _drawn_at(make: Any, levels: list[VmapLevel], lead: tuple[int, ...]) -> Any:
    """The batch of all `levels`, the innermost last, drawn at once; `lead` are the sizes of levels inside of these."""
    *outer, level = levels
    lead = (level.size, *lead)
    with _dispatch.below(level):
        value = _drawn_at(make, outer, lead) if outer else make(lead)
    return batched(value, 0, level)


def tensors_in(args: Any) -> list[Tensor]:
    """The Tensors among `args` and in the lists among them."""
    found = []
    for a in args:
        if isinstance(a, Tensor):
            found.append(a)
        elif isinstance(a, (list, tuple)):
            found += [x for x in a if isinstance(x, Tensor)]
    return found


from . import batch_rules as rules  # noqa: E402  # which looks at batched tensors

_UNBATCHED_TARGET = (
    "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like same randomness. "
    "Fill a tensor that is made from a batched one, as with zeros_like(x)"
)

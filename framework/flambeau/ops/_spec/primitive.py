"""Primitive ops: a kernel on arrays, a rule for the shape, and rules for the derivatives."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags

from ... import _state
from ..._arrays import HeldArray, MetaArray, ndarray
from ..._kinds import KindArray, NoStrides
from ...autograd import engine, tape
from ...autograd.making import new_node, output_node
from ...autograd.tape import Node, Unread, edge_of
from ...dtypes import FLOATING, from_numpy_dtype
from ...tensor import Tensor, wrap
from . import nodes, on_host, plans
from .base import FUNCTION, Autocast, Facts, Op, Overlap
from .history import check_versions
from .memory import in_memory_order, placed
from .on_host import as_array
from .shapes import common_device, elsewhere, refuse_beyond


class PrimitiveNode(Node):
    """A node whose rule is written on Tensors (`op.vjp_rule`), and perhaps on arrays too (`op.array_vjp_rule`)."""

    __slots__ = ()
    counts = True
    lengths: Any = None  # where arguments are lists of tensors: how many each has
    edges: tuple[str, ...] | None = None  # the operands that PyTorch's node has edges for, in its order; None: all with a derivative

    def vjp_on_arrays(self, grad: Any) -> Any:
        # The first backward of each op writes what calls its rule, see `nodes.py`.
        cls = type(self)
        cls.vjp_on_arrays = nodes.vjp_on_arrays(self.op, cls.general_vjp_on_arrays)
        return cls.vjp_on_arrays(self, grad)

    def general_vjp_on_arrays(self, grad: Any) -> Any:
        op = self.op
        first = grad[0] if self.shape and op.array_vjp_of_first else grad
        if not (nodes.are_arrays(grad) if op.array_vjp_of_all else first.__class__ is ndarray):  # rules on arrays are for the host
            return engine.through_tensors(self, grad)
        check_versions(self)
        saved = self.saved
        values = [
            first if at is None else saved[at] if at.__class__ is int else self._need(at) for at in op.array_vjp_sources
        ]
        try:
            found = op.array_vjp_rule(*values)
        except NoStrides:                             # what was saved is of another kind
            found = None
        return engine.through_tensors(self, grad) if found is None else op.line_up(self, found)

    def _need(self, name: str) -> bool:
        return engine.wanted_parents(self)[self.op.tensor_index(self, name[6:])] is not None

    def saved_by_name(self) -> dict[str, Any]:
        check_versions(self)
        versions = self.versions or (None,) * len(self.saved)
        kept = zip(self.op.saved_names, self.saved, versions, strict=True)
        return {n: v if v.__class__ is Unread else self._tensor(n, v, ver) for n, v, ver in kept}

    def vjp(self, grad: Any) -> Any:
        check_versions(self)
        op = self.op
        if self.shape:  # several outputs: fill in what nobody asked for
            is_seen = _state.are_seen()               # then zeros have to be made by an operation
            there = next((g for g in grad if g is not None and (is_seen or g._array.__class__ is not ndarray)), None)
            grad = tuple(
                zeros_grad(self.__dict__["metas"][i], there) if g is None else g for i, g in enumerate(grad)
            )
        versions = self.versions or (None,) * len(self.saved)
        at = {n: self._tensor(n, v, ver) for n, v, ver in zip(op.saved_names, self.saved, versions, strict=True)}
        values = (grad if n == "grad" else self._need(n) if n[:6] == "needs_" else at[n] for n in op.vjp_names)
        return op.line_up(self, op.vjp_rule(*values))

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """Edges to what made the operands that have a derivative."""
        op, lengths = self.op, self.lengths or {}
        parents = iter(self.parents)
        of = {n: [next(parents) for _ in range(lengths.get(n, 1))] for n in op.params if n in op.tensor_params}
        names = [n for n in of if n not in op.without_derivative] if self.edges is None else self.edges
        return tuple([edge_of(parent) for name in names for parent in of[name]])

    def output(self, index: int) -> Any:
        """The node of one of several outputs; a new one if the program has dropped that output."""
        ref = self.__dict__["outputs"][index]
        if ref is None:
            return None
        node = ref()
        if node is None:
            node = output_node(self, index)
            self.__dict__["outputs"][index] = weakref.ref(node)
        return node

    def _tensor(self, name: str, value: Any, record: Any) -> Any:
        if value.__class__ is Unread:
            return wrap(MetaArray(value.shape, value.dtype, value.strides))
        if name == "kept" and hasattr(value, "strides"):
            return wrap(value)
        if record is None or type(record) is tuple and name not in self.op.tensor_params:
            return value
        if type(record) is tuple:  # a list of tensors
            start = self.op.tensor_index(self, name)
            made = []
            for i, (a, v) in enumerate(zip(value, record, strict=True)):
                t = wrap(a, self.parents[start + i])
                t._storage = v
                made.append(t)
            return made
        if name == "out" or name[:3] == "out" and name[3:].isdigit():
            parent: Any = self.output(int(name[3:] or 0)) if self.shape else self
        else:
            parent = self.parents[self.op.tensor_index(self, name)]
        made = wrap(value, parent)
        made._storage = record
        return made


def _placed_as(fn: Any, memory: Any) -> Any:
    """The rule on arrays `fn`, whose one gradient lies in memory as `memory` says of the gradient that arrives."""

    def rule(grad: Any, *args: Any) -> Any:
        made = fn(grad, *args)
        return made if made is None else in_memory_order(made, memory, (grad,))

    return rule


def zeros_grad(meta: Any, beside: Tensor | None = None) -> Tensor:
    """A gradient of zeros, on the device of `beside`."""
    shape, dtype = meta
    if beside is not None:
        return beside.new_zeros(shape, dtype=from_numpy_dtype(dtype))
    return wrap(np.zeros(shape, dtype))


class PrimitiveOp(Op):
    """An op with a kernel of its own.

    Rules are given by decorators on the op: `kernel` (arrays to array or tuple of arrays), `shape` (Tensors to
    ``(shape, dtype)`` or ``(shape, dtype, byte strides)``, for meta; a list of these for several results), `vjp` and `vjp_on_arrays`
    (gradient first, then the names they need: parameters, ``out``, ``<param>_shape``, ``needs_<param>``), `jvp`, `batch`.
    """

    kind = "primitive"
    node_base = PrimitiveNode
    is_view = False
    keeps = False
    records: tuple[PrimitiveOp, Any] | None = None  # see `recorded_as`
    index_tensors: str | None = None
    saves_plainly = False
    # How results lie in memory, see `memory.py`: an order for all, or a tuple of one for each, which may be another than row-major
    # where all operands are. None: meta says row-major, or what the shape rule says.
    memory: Any = None
    ordering: tuple[str, ...] = ()  # the tensor parameters that have a say in it

    def __init__(self, fn: Any, surface: int, namespace: str, aliases: Any, autocast: Any, linear_in: Any, returns: Any,
                 tensors: Any, check: Any) -> None:  # fmt: skip
        self.linear_in = linear_in
        self.returns = returns
        self.check = check
        self.kernel_rule: Any = None
        self.cuda_rule: Any = None
        self.shape_rule: Any = None
        self.vjp_rule: Any = None
        self.array_vjp_rule: Any = None
        self.array_vjp_of_first = self.array_vjp_of_all = False
        self.jvp_rule: Any = None
        self.stored: Any = None  # the plan that stores in the first argument
        self.inplace_rule: Any = None
        self.not_differentiable = ""  # why there is no vjp, where there is none
        self.vjp_names: tuple[str, ...] = ()
        self.gradient_reads: dict[str, tuple[str, ...]] = {}  # parameter -> what its gradient reads, as far as the declaration says it
        self.without_derivative: frozenset[str] = frozenset()  # tensor parameters, such as indices and masks
        self.array_vjp_names: tuple[str, ...] = ()
        self.saved_names: tuple[str, ...] = ()
        self.shown_names: tuple[str, ...] = ()
        self.return_type: Any = None
        super().__init__(fn, surface, namespace, aliases, autocast)
        self.tensor_params = tensors or self.params[:1]

    def kernel(self, fn: Any = None, *, device: str = "cpu") -> Any:
        """Give the kernel for arrays of `device`: 'cpu', 'cuda', or 'any' if it asks nothing of arrays but their methods."""
        if fn is None:
            return functools.partial(self.kernel, device=device)
        if device != "cuda":
            self.kernel_rule = fn
        if device != "cpu":
            self.cuda_rule = fn
        self.__dict__.pop("run_on_host", None)
        return fn

    def shape(self, fn: Any) -> Any:
        self.shape_rule = fn
        return fn

    def vjp(self, fn: Any = None, **reads: str | None) -> Any:
        """Give the vjp.

        Args:
            reads: what the gradient of a parameter reads of tensors, results and residuals, by their names, as ``input="weight"``, so
                that nodes save it only where that gradient is asked for. In the place of what is not saved, rules get a meta tensor, those
                on arrays an `Unread`, of a residual None. By default a gradient reads all that a rule names, but that of an operand in
                which the op is linear, beside others, not the operand itself. None of an operand that has no derivative, such as an
                index: nodes show no edge to what made it.
        """
        if fn is None:
            return functools.partial(self.vjp, **reads)
        self.gradient_reads = {name: tuple(names.split()) for name, names in reads.items() if names is not None}
        self.without_derivative = frozenset(name for name, names in reads.items() if names is None)
        self.vjp_rule = fn
        self.vjp_names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
        self._collect()
        return fn

    def vjp_on_arrays(self, fn: Any = None, *, only_first: bool = False, of_all: bool = False, memory: Any = None) -> Any:
        """The vjp on arrays, for first-order gradients of ops with one output; None from it leaves the gradient to the vjp.

        Args:
            only_first: of several outputs the first alone has a gradient, which is what `fn` gets.
            of_all: there are several outputs, and `fn` gets a list of their gradients, None where nobody asked.
            memory: an order of `memory.py`, for the only gradient of a rule whose vjp leaves it so, by the gradient that arrives.
        """
        if fn is None:
            return functools.partial(self.vjp_on_arrays, only_first=only_first, of_all=of_all, memory=memory)
        self.array_vjp_rule = fn if memory is None else _placed_as(fn, memory)
        self.array_vjp_of_first, self.array_vjp_of_all = only_first, of_all
        self.array_vjp_names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
        self.node_class.has_array_vjp = True
        self._collect()
        return fn

    def jvp(self, fn: Any) -> Any:
        self.jvp_rule = fn
        return fn

    def plan(self, rule: Any = None, *, stores: bool = False, **conditions: Any) -> Any:
        """`Op.plan`; with `stores`, ``rule(array, *args with arrays)`` stores in its first argument and says whether it did.

        That answers the in-place form as well; a second plan may answer the other form.
        """
        if rule is None:
            return functools.partial(self.plan, stores=stores, **conditions)
        if not stores:
            return super().plan(rule, **conditions)
        super().plan(rule, **conditions)
        self.stored, self.planned = self.planned, self.planned.with_rule(plans.copying(self, rule))
        return rule

    @functools.cached_property
    def run_inplace(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # written when it is first asked for
        general = self.inplace_rule or functools.partial(Op.run_inplace, self)
        return general if self.stored is None else plans.answer_in_place(self, self.stored, general)

    @functools.cached_property
    def histories(self) -> Any:
        """``fn(outs, kept, *args)``, which records several results of single tensors."""
        if self.records is not None:
            op, arguments = self.records
            return lambda outs, kept, *args: op.history(outs[0], kept, *arguments(*args))
        return nodes.histories(self)

    @functools.cached_property
    def history(self) -> Any:
        """``fn(made, kept, *args)``, which records one result of single tensors."""
        return nodes.history(self)

    def recorded_as(self, op: PrimitiveOp, arguments: Callable[..., tuple[Any, ...]]) -> None:
        """Let the first result have the history of `op`, which keeps what this one does; the other results have no derivative.

        Args:
            arguments: ``fn(*args)``, those of `op`.
        """
        self.records = op, arguments
        self.not_differentiable = f"its history is that of {op.name}"

    @property
    def has_history(self) -> bool:
        return self.vjp_rule is not None or self.records is not None

    def keeps_to_show(self, *names: str) -> None:
        """Let nodes keep what no rule reads, arguments and shapes that take no memory: PyTorch's node shows them."""
        self.shown_names = names
        self._collect()

    def _collect(self) -> None:
        names = dict.fromkeys((*self.vjp_names, *self.array_vjp_names, *self.shown_names))
        self.saved_names = tuple(n for n in names if n != "grad" and n[:6] != "needs_")
        # A view whose rules read nothing but its first argument's shape and plain arguments saves all of these, in order.
        plain = (self.params[0] + "_shape", *self.params[1:])
        self.saves_plainly = self.is_view and all(n in plain for n in self.saved_names)
        if self.saves_plainly:
            self.saved_names = plain
        index = {n: i for i, n in enumerate(self.saved_names)}
        # Where each argument of the rule on arrays comes from: None is the gradient, an int a saved value, a name a need.
        self.array_vjp_sources = [None if n == "grad" else index.get(n, n) for n in self.array_vjp_names]

    def reads_of(self, name: str) -> tuple[str, ...]:
        """What the gradient of parameter `name` reads of tensors, results and residuals; other arguments and shapes are always saved."""
        found = self.gradient_reads.get(name)
        if found is not None:
            return found
        linear = name in self.linear_in and len(self.linear_in) > 1
        return tuple(n for n in self.saved_names if n != name or not linear)

    def is_withheld(self, name: str) -> bool:
        """Whether what is saved under `name` is an array, which nodes do without if no gradient that is asked for reads it."""
        if name in self.params:
            return name in self.tensor_params or name == self.index_tensors
        return name == "kept" or name[:3] == "out" and (name == "out" or name[3:].isdigit())

    # -- forward

    def run(self, *args: Any) -> Any:
        return self.run_on_host(*args)

    @functools.cached_property
    def run_on_host(self) -> Any:
        """``fn(*args)``: `run`, written out for operands on the host when it is first asked for; all others it gives to `run_on`."""
        return on_host.run(self)

    def run_on(self, *args: Any) -> Any:
        """Compute and record, wherever the operands are."""
        if not self.are_on_cpu(args):
            answer = elsewhere(self, args)
            if answer is not NotImplemented:
                return answer
            args = self.tensors_of(args)
        refuse_beyond(self, args)
        if self.check is not None:
            args = self.check(*args) or args
        arrays = [a._array if isinstance(a, Tensor) else _to_arrays(a) if isinstance(a, _SEVERAL) else a for a in args]
        place = _place_of(arrays)
        if place == "meta":
            return self.finish(args, self.on_meta(args))
        rule = self.kernel_rule if place == "cpu" else self.cuda_kernel()
        token = ignore_fp_flags()
        try:
            result = rule(*arrays)
        finally:
            restore_fp_flags(token)
        result, kept = result if self.keeps else (result, None)
        if self.memory is not None and place == "cpu":
            result = self.in_order(result, arrays)
        return self.finish(args, result, kept)

    def cuda_kernel(self) -> Any:
        """The kernel for arrays of a CUDA device. Raises: NotImplementedError if there is none."""
        if self.cuda_rule is None:
            from ..._cuda import kernels as cuda_kernels

            self.cuda_rule = cuda_kernels.find(self)
        return self.cuda_rule

    def are_on_cpu(self, args: Any) -> bool:
        """Whether all tensor parameters are single Tensors on the CPU, or left out where they may be."""
        for i, optional in self.places:
            a = args[i]
            if isinstance(a, Tensor):
                if a._array.__class__ is not ndarray:
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
                                f"{self.public_name}(): expected Tensor as element {i} in argument '{name}', got {type(x).__name__}"
                            )
                elif a is not None or name not in self.defaults:
                    at = self.params.index(name) + 1
                    raise TypeError(f"{self.public_name}(): argument '{name}' (position {at}) must be Tensor, not {type(a).__name__}")
        common_device(self, [a for a in args if isinstance(a, Tensor)])
        return args

    def on_meta(self, args: Any) -> Any:
        """What the kernel would give, by the shape rule."""
        if self.shape_rule is None:
            raise NotImplementedError(f"{self.public_name}: no rule says the shape of its result, so it does not take meta tensors")
        made = self.shape_rule(*args)
        if isinstance(made, list):
            return tuple(self._of_spec(i, args, *each) for i, each in enumerate(made))
        return self._of_spec(0, args, *made)

    def _of_spec(self, place: int, args: Any, shape: Any, dtype: Any, strides: Any = None) -> MetaArray:
        shape = tuple(shape)
        if strides is None and self.memory is not None:
            order = self.memory[place] if type(self.memory) is tuple else self.memory
            strides = order(shape, dtype.numpy.itemsize, self.operands([_to_arrays(a) for a in args]))
        return MetaArray(shape, dtype.numpy, strides)

    def operands(self, arrays: Any) -> list[Any]:
        """The arrays among `arrays` that say how results lie in memory."""
        found: list[Any] = []
        for name, a in zip(self.params, arrays, strict=True):
            if name in self.ordering:
                found += a if isinstance(a, list) else [] if a is None else [a]
        return found

    def in_order(self, result: Any, arrays: Any) -> Any:
        """What the kernel returned, in the order of memory that the declaration says."""
        operands = self.operands(arrays)
        if type(self.memory) is tuple:
            if type(result) is not tuple:
                return placed(as_array(result), self.memory[0], operands)
            return tuple([placed(as_array(r), order, operands) for r, order in zip(result, self.memory, strict=True)])
        if type(result) is tuple:
            return tuple([in_memory_order(as_array(r), self.memory, operands) for r in result])
        return in_memory_order(as_array(result), self.memory, operands)

    def finish(self, args: Any, result: Any, kept: Any = None) -> Any:
        """Wrap what the kernel returned, and record."""
        if isinstance(result, (tuple, list)):
            outs = tuple(wrap(as_array(r)) for r in result)
            if self.has_history:
                self.record(outs, args, True, kept)
            if self.returns:
                return self.named(outs)
            return outs
        made = wrap(as_array(result))
        if self.vjp_rule is not None:
            self.record((made,), args, False, kept)
        return made

    def of_rows(self, args: Any, out: Any, moments: Any, how: Any) -> Any:
        if self.check is not None:
            args = self.check(*args) or args
        return self.finish(args, out, None if how.kept is None else how.kept(*moments))

    def named(self, outs: Any) -> Any:
        if self.return_type is None:
            from .. import _results

            self.return_type = _results.return_type(self.name, self.returns)
        return self.return_type(outs)

    # -- recording

    def record(self, outs: tuple[Tensor, ...], args: Any, several: bool, kept: Any = None) -> Any:
        if not _state.grad_enabled():
            return None
        if self.records is not None:
            op, arguments = self.records
            return op.record(outs[:1], arguments(*args), False, kept)
        parents: list[Any] = []
        found = False
        read: set[str] = set()                        # by gradients that are asked for
        for name, a in zip(self.params, args, strict=True):
            if name in self.tensor_params:
                for t in a if isinstance(a, (list, tuple)) else (a,):
                    n = None if t is None else t._node
                    if n is not None:
                        found = True
                        read.update(self.reads_of(name))
                    parents.append(n)
        if not found:
            return None
        if not any(from_numpy_dtype(o._array.dtype).category >= FLOATING for o in outs):
            return None
        saved, versions = [], []
        named = dict(zip(self.params, args, strict=True))
        if self.keeps:
            named["kept"] = kept
        for name in self.saved_names:
            value, record = self._save(name, named, outs)
            if name not in read and self.is_withheld(name):
                value, record = _without_elements(value, record)
            saved.append(value)
            versions.append(record)
        holds = any(v is not None for v in versions) or any(map(tape.holds_arrays, saved))
        cls = self.node_class if self.chosen_class is None else self.node_class_of(*args)
        node = new_node(cls, tuple(parents), tuple(saved), tuple(versions) if holds else (), len(outs) if several else 0)
        if several:
            nodes.attach(node, outs)
        else:
            outs[0]._node = node
        if self._has_lists(args):
            node.lengths = {
                n: (len(a) if isinstance(a, (list, tuple)) else 1) for n, a in named.items() if n in self.tensor_params
            }
        return node

    @functools.cached_property
    def node_class_of(self) -> Any:
        """``fn(*args)``: the class of the node of a call, by `shown_by`."""
        return nodes.written(self, "node_class_of", [f"def node_class_of({', '.join(self.params)}):", f"    return {self.chosen_class}"])

    def _has_lists(self, args: Any) -> bool:
        return any(n in self.tensor_params and isinstance(a, (list, tuple)) for n, a in zip(self.params, args, strict=True))

    def _save(self, name: str, named: dict[str, Any], outs: Any) -> tuple[Any, Any]:
        if name == "out":
            return outs[0]._array, outs[0]._storage
        if name[:3] == "out" and name[3:].isdigit():
            o = outs[int(name[3:])]
            return o._array, o._storage
        if name in named:
            value = named[name]
            if isinstance(value, Tensor):
                return value._array, value._storage
            if name in self.tensor_params and isinstance(value, (list, tuple)):
                return [t._array for t in value], tuple(t._storage for t in value)
            return value, tape.records_of(value) if name == self.index_tensors else None
        if name.endswith("_shape"):
            value = named[name[:-6]]
            if isinstance(value, (list, tuple)):
                return [t._array.shape for t in value], None
            return None if value is None else value._array.shape, None
        if name.endswith("_dtype"):
            return getattr(named[name[:-6]], "dtype", None), None  # None of a tensor that was left out
        if name.endswith("_device"):
            return getattr(named[name[:-7]], "device", None), None
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


def _without_elements(value: Any, record: Any) -> tuple[Any, Any]:
    """What a node keeps in the place of `value`, which no gradient that is asked for reads, and of its storage `record`."""
    if isinstance(value, (HeldArray, KindArray)):     # these are no memory, and rules may ask for more than where it would lie
        return value, record
    return (tape.unread(value) if hasattr(value, "strides") else None), None


_SEVERAL = (list, tuple)


_ON_HOST = frozenset((ndarray, int, float, bool, str, type(None)))


def _place_of(arrays: Any) -> str:
    """Where the arrays (or lists of them) among `arrays` are: 'meta' if any is there, else 'cuda', else 'cpu'."""
    found = "cpu"
    for a in arrays:
        for x in a if type(a) in _SEVERAL else (a,):
            kind = type(x)
            if kind is MetaArray:
                return "meta"
            if kind not in _ON_HOST and hasattr(x, "strides") and not isinstance(x, ndarray):
                found = "cuda"
    return found


def _to_arrays(a: Any) -> Any:
    if isinstance(a, Tensor):
        return a._array
    if isinstance(a, (list, tuple)) and a and isinstance(a[0], Tensor):
        return [t._array if isinstance(t, Tensor) else t for t in a]
    return a


def primitive(
    surface: int = FUNCTION,
    namespace: str = "",
    aliases: tuple[str, ...] = (),
    linear_in: tuple[str, ...] = (),
    returns: tuple[str, ...] | None = None,
    tensors: tuple[str, ...] | None = None,
    autocast: Autocast = None,
    check: Any = None,
    variadic: str | None = None,
    keeps: bool = False,
    numpy_names: bool | None = None,
    overlap: Overlap = None,
    index_tensors: str | None = None,
    memory: Any = None,
    ordering: tuple[str, ...] | None = None,
    operator: str | None = None,
    turns: tuple[str, ...] | None = None,
    samples: str = "",
    **facts: Unpack[Facts],
) -> Callable[[Any], PrimitiveOp]:
    """Declare an op with its own kernel; the decorated function gives signature and documentation, its body is unused.

    Args:
        tensors: parameters that are Tensors (or lists of them); the first parameter by default.
        linear_in: parameters the op is linear in, so that forward mode is the op itself.
        returns: field names when several results come as a named tuple.
        check: ``check(*args) -> args or None`` on Tensors, before the kernel.
        variadic: the parameter that may be given as several arguments, as in ``t.permute(0, 2, 1)``.
        index_tensors: the parameter that is a tuple of index tensors (or None): overwriting one before backward is noticed.
        keeps: whether the kernel returns ``(result, kept)``: something of its work for the rules to read as `kept`. An array is a Tensor
            to the rule on Tensors; there is none (None) where no kernel ran, and rules read none where modes look.
        numpy_names, overlap, operator, samples, facts: as for `composite`.
        memory: the order of memory of results, on every device: ROWS, LIKE or CHANNELS of `memory.py`; a tuple of orders, one for
            each result, where some are another than row-major for row-major operands, such as COLUMNS.
        ordering: the tensor parameters whose order it follows; all of them by default.
        turns: the tensor parameters in the order in which leaves among them get their gradients, where that is not the declared one.
    """

    def declare(fn: Any) -> PrimitiveOp:
        op = PrimitiveOp(fn, surface, namespace, aliases, autocast, linear_in, returns, tensors, check)
        op.variadic = variadic
        op.keeps = keeps
        op.set_overlap(overlap)
        if numpy_names is not None:
            op.numpy_names = numpy_names
        op.index_tensors = index_tensors
        op.memory, op.ordering = memory, op.tensor_params if ordering is None else ordering
        op.operator, op.samples = operator, samples
        op.state(facts)
        if turns is not None:
            op.node_class.turns = tuple(op.tensor_params.index(name) for name in turns)
        return op

    return declare

"""Recording a program op by op while it runs on tensors: `make_fx`.

The recorder is a dispatch mode. It knows the tensors whose values depend on the inputs by their memory, and each op that meets
one becomes a node. Nothing is taken for a constant that the program made out of its sight: that raises.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import itertools
import operator
import sys
import traceback
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from ... import _ops, _state
from ..._arrays import MetaArray, OpenShape, ndarray, root_of
from ..._errors import NotRecorded, ValuesAreMissing
from ..._interpreters import DECOMPOSE
from ..._kinds import KindArray
from ..._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensor,
    FakeTensorMode,
    lack_of_values,
    unset_fake_temporarily,
)
from ..._symbolic import SymBool, SymFloat, SymInt
from ...devices import Size, device
from ...nn import Module, Parameter
from ...ops import _dispatch
from ...ops._spec import AskedFor, Op
from ...random import fork_rng
from ...tensor import Tensor
from ...utils import _pytree as pytree
from ...utils._python_dispatch import OpOverload, TorchDispatchMode, overload_of, seen_as
from .._names import name_of_operator
from .._symbolic_trace import PH, Tracer, _Patcher
from ..graph_module import GraphModule
from ..interpreter import Interpreter
from ..node import Node, has_side_effect
from ..passes.functionalize import functionalize_graph
from ..passes.shape_prop import _extract_tensor_metadata
from ._choices import cond_op, differentiable_choice
from ._numbers import Numbers, has_symbols, holds_symbols
from ._recorded_calls import (
    METHODS_OF_VALUES,
    RECORDED_METHODS,
    Makers,
    ReadsValue,
    active,
    is_batched,
    one_example,
    patch_grad_modes,
    patch_makers,
    recorded_method,
    recording,
    refusal,
    refusing_method,
)

__all__ = [
    "PythonKeyTracer", "get_proxy_mode", "handle_sym_dispatch", "make_fx", "maybe_disable_thunkify", "maybe_enable_thunkify",
]  # fmt: skip

# Functions that make tensors of data: their results are constants of the program.
_OF_DATA = ("tensor", "as_tensor", "asarray", "from_numpy", "frombuffer", "from_dlpack", "scalar_tensor")


_SYMBOLIC = (SymInt, SymFloat, SymBool)


class _Unseen(NotRecorded):
    """A tensor turned up that nothing recorded has made."""


class _Closure(Exception):  # no error: it tells which tensor to hand in
    """A branch uses a recorded tensor that is none of its operands."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self.tensor = tensor


class _Asked(BaseException):  # no error, and none that a decomposition catches
    """A table of decompositions is asked."""


def _tensors(value: Any) -> list[Tensor]:
    return [x for x in pytree.tree_leaves(value) if isinstance(x, Tensor)]


def _parts_of(target: Any) -> Any:
    from ..._decomp.parts import parts_of  # which loads all decompositions

    return parts_of(target)


class InCalls(Interpreter):
    """Runs a graph so that the nodes `tracer` makes of each of its nodes are part of the same calls of modules."""

    def __init__(self, module: Module, tracer: PythonKeyTracer) -> None:
        super().__init__(module)
        self.tracer = tracer

    def run_node(self, n: Node) -> Any:
        self.tracer.module_stack = OrderedDict(n.meta.get("nn_module_stack", ()))
        self.tracer.come_from(n.stack_trace)
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        result = recording().run_again(target, args, kwargs)
        return super().call_function(target, args, kwargs) if result is NotImplemented else result

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        return recording().captured_as(value) if isinstance(value, Tensor) else value


def kept_whole(operator: Any) -> Callable[..., Any]:
    """For a table of decompositions: what leaves `operator` as it is in a graph that is run again, even if it is a composition."""
    return lambda *args, **kwargs: recording().whole(operator, args, kwargs)


class PythonKeyTracer(Tracer):
    """The tracer of `make_fx`: it goes into every module."""

    def __init__(self) -> None:
        super().__init__(autowrap_modules=())
        self._origin: str | None = None               # the stack trace of the node that is being recorded anew
        self._is_anew = False

    def create_node(
        self, kind: str, target: Any, args: Any, kwargs: Any, name: str | None = None, type_expr: Any = None
    ) -> Node:
        """Make a node; operators are called by their names without the overload, as those who read recordings expect."""
        return super().create_node(kind, target, args, kwargs, name_of_operator(target) if name is None else name, type_expr)

    def come_from(self, stack_trace: str | None) -> None:
        """Nodes that are made from here on come from these lines of the program."""
        self.record_stack_traces, self._is_anew, self._origin = True, True, stack_trace

    def _stack_of_node(self) -> str | None:
        return self._origin if self._is_anew else _stack_of_forwards()

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the module's code gives."""
        return forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """The attribute itself."""
        return attr_val


_PACKAGE = __file__.rpartition("fx")[0]
_LAYERS, _CALLS = f"{_PACKAGE}nn", inspect.getfile(Module)


def _stack_of_forwards() -> str | None:
    """The lines of modules' `forward` that run now, as Python prints them, the innermost last; those of our own layers among them."""
    frames = []
    frame: Any = sys._getframe(1)
    while frame is not None:
        code, caller = frame.f_code, frame.f_back
        is_forward = code.co_name == "forward" or caller is not None and caller.f_code.co_filename == _CALLS
        if is_forward and code.co_filename != _CALLS and code.co_filename.startswith(_LAYERS) >= code.co_filename.startswith(_PACKAGE):
            frames.append(traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name, lookup_line=False))
        frame = caller
    return "".join(traceback.format_list(frames[::-1])).strip() or None


class _Recorder(TorchDispatchMode):
    """Records ops on tensors that are known, into the graph of `tracer`."""

    sees_makers = True
    follows_results = True
    keeps_results = True                              # of operators that programs define, each of which is a node

    def __init__(
        self, tracer: PythonKeyTracer, fake: bool = False, outer: Any = None, table: Any = None, kept: list[Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.table = table or {}                      # functions that are recorded in the place of operators
        self.kept = kept                              # captured tensors as they were, for a recording that is to have no effects
        self.outer = outer                            # the recorder of the program that a branch is part of
        self.tracer, self.fake = tracer, fake         # whether it records fake tensors
        self.nodes: dict[Any, Node] = {}              # by memory
        self.by_tensor: dict[int, Any] = {}           # by identity: a weak reference, the memory and the node; those of aliases differ
        self.detached: dict[Node, Node] = {}          # what exported programs take where they ask for no history
        self.without_history: set[Node] = set()       # nodes made there
        self.earlier: list[tuple[Any, Node | None]] = []  # what was known of a memory before, for taking back
        self.owners: set[int] = set()                 # arrays whose memory known tensors are in
        self.held: list[Any] = []                     # keeps memory from being given out again
        self.constants: dict[int, str] = {}
        self.mode: FakeTensorMode | None = None       # whose tensors stand in for those that the program captures
        self.captured: dict[Any, Tensor] = {}         # by memory: of constants
        self.numbers = Numbers(tracer)                # nodes of symbolic numbers
        self.again: dict[str, Any] = {}               # what the metadata of nodes says that a checkpoint is around, see `run_checkpoint`
        self.checkpoints = 0
        self.stand_ins = FakeTensorMode()             # of the metadata, where the program runs on real tensors
        self.quiet = False                            # whether an op, or a method that is recorded, runs
        self.shown: Any = None                        # the first call of an operator that a function has shown, see `_showing`
        self.keeps_values = False                     # whether values that the program asks for are constants of the graph
        self.keeps_grad_modes = False                 # whether the graph switches the recording of histories as the program does
        self.keeps_layers = False                     # whether recurrent networks are operators, as in exported programs
        # What there was before: captured tensors are constants, all others have been made by the program.
        self.before = {id(x): x for x in _all_tensors()}

    # -- what is known

    def know(self, tensor: Tensor, node: Node) -> None:
        """From here on the memory of `tensor` is the value of `node`."""
        memory = _memory(tensor)
        self.earlier.append((memory, self.nodes.get(memory)))
        self.nodes[memory] = node
        self.by_tensor[id(tensor)] = weakref.ref(tensor), memory, node
        self.owners.add(id(_owner(tensor._array)))
        self.held.append((tensor._array, _owner(tensor._array)))
        env = tensor.fake_mode.shape_env if isinstance(tensor, FakeTensor) else None
        if env is None:
            node.meta["tensor_meta"] = _extract_tensor_metadata(tensor)
        else:
            with env.suppress_guards(), env.rules():
                node.meta["tensor_meta"] = _extract_tensor_metadata(tensor, not has_symbols(tensor._array))
            self.numbers.sizes_of(tensor, node)
        if isinstance(tensor, FakeTensor):
            node.meta["val"] = tensor
        elif type(tensor._array) is ndarray:
            with self.quietly():
                node.meta["val"] = self.stand_ins.from_tensor(tensor)

    def knows(self, value: Any) -> bool:
        """Whether `value` has a known tensor in it."""
        return any(isinstance(x, Tensor) and _memory(x) in self.nodes for x in pytree.tree_leaves(value))

    def argument(self, value: Any) -> Any:
        """`value` with nodes for tensors."""
        return pytree.tree_map(self._argument, value)

    def _argument(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            node = self._node_of(x)
            return node if _records_history() else self._without_history(node, x)
        if isinstance(x, OpenShape):
            return self.argument(tuple(x))
        if isinstance(x, _SYMBOLIC):
            return self.numbers.node_of(x)
        if isinstance(x, Size):
            return tuple(map(self._argument, x))
        if isinstance(x, AskedFor):                   # what was asked for is for nodes of the tape
            return self.argument(tuple(x))
        if self.numbers.sizes and holds_symbols(x):
            raise NotImplementedError(f"make_fx: symbolic sizes inside a {type(x).__name__}, which is recorded as it is, are not built")
        return x

    def _node_of(self, tensor: Tensor) -> Node:
        memory = _memory(tensor)
        reference, place, found = self.by_tensor.get(id(tensor), _UNKNOWN)
        if reference() is tensor and place == memory and not found._erased:
            return found
        found = self.nodes.get(memory)
        if found is not None:
            return found
        if self.outer is not None and self.outer.reaches(tensor):
            raise _Closure(tensor)
        if id(tensor) in self.before:
            return self.constant(tensor)
        captured = self.captured.get(_memory(tensor))
        if captured is not None:                      # a node of the tape has saved it
            return self.constant(captured)
        what = "a view of a recorded tensor" if id(_owner(tensor._array)) in self.owners else "a tensor"
        raise _Unseen(
            f"make_fx: {what}, of shape {tuple(tensor.shape)}, was made by what cannot be recorded; make it by a function or method "
            "of tensors, or before the program runs"
        )

    def _without_history(self, node: Node, tensor: Tensor) -> Node:
        """What stands for `node` where the program asks for no history: a value that is detached, so that the graph has none either."""
        if node in self.without_history or not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
            return node
        made = self.detached.get(node)
        if made is None:
            made = self.detached[node] = self.tracer.create_node("call_function", _ops.ops.aten.detach.default, (node,), {})
            made.meta.update({name: node.meta[name] for name in ("val", "tensor_meta") if name in node.meta})
            self.without_history.add(made)
        return made

    def _stand_in(self, tensor: Tensor) -> Tensor:
        """What operations see of a captured tensor."""
        if self.mode is None or isinstance(tensor, FakeTensor):
            return tensor
        with self.quietly():
            made = self.mode.from_tensor(tensor, static_shapes=True)
        self.held.append(made)
        return made

    def captured_as(self, tensor: Tensor) -> Tensor:
        """What operations see of a tensor that is known to be a constant of the program."""
        made = self._stand_in(tensor)
        self.captured[_memory(made)] = tensor
        return made

    def constant(self, tensor: Tensor) -> Node:
        """The node of a tensor that the program captures."""
        name = self.constants.get(id(tensor))
        if name is None:
            if self.kept is not None and not isinstance(tensor, FakeTensor):
                with self.quietly(), unset_fake_temporarily():
                    self.kept.append((tensor, tensor._version, tensor.detach().clone()))
            kind = "_param_constant" if isinstance(tensor, Parameter) else "_tensor_constant"
            name = self.constants[id(tensor)] = self.tracer.get_fresh_qualname(kind)
            if isinstance(tensor, Parameter):
                setattr(self.tracer.root, name, tensor)
            else:
                self.tracer.root.register_buffer(name, tensor)
            self.held.append(tensor)
            self.captured_as(tensor)
        return self.tracer.create_node("get_attr", name, (), {})

    def record_grad_mode(self) -> None:
        """A node that switches the recording of histories on or off, as the program has just done."""
        import flambeau

        if self.keeps_grad_modes and not self.quiet:
            self.tracer.create_node("call_function", flambeau._C._set_grad_enabled, (_state.local.recording.asked,), {})

    def record_asserts(self, env: Any) -> None:
        """Nodes for what was claimed of numbers that values decide: the graph raises where it does not hold."""
        import flambeau

        has_side_effect(flambeau._check)
        for each in env.deferred_runtime_asserts.values():
            for claim in each:
                if all(s in self.numbers.sizes or (s, int) in self.numbers.nodes for s in claim.expr.free_symbols):
                    self.tracer.create_node("call_function", flambeau._check, (self.numbers.built(claim.expr, env, bool),), {})

    def reaches(self, tensor: Tensor) -> bool:
        """Whether `tensor` is a value of the program recorded here, or of the one that this is part of."""
        return _memory(tensor) in self.nodes or self.outer is not None and self.outer.reaches(tensor)

    # -- what is recorded

    def item(self, tensor: FakeTensor) -> Any:
        """The symbolic number that stands for the value of `tensor`, which the program asks for; None if there is none."""
        with self.quietly():
            try:
                number = FakeTensor.item(tensor)
            except DataDependentOutputException:
                return None
        if isinstance(number, _SYMBOLIC):
            import flambeau

            self.record("call_function", flambeau.ops.aten._local_scalar_dense.default, (self._node_of(tensor),), {}, number)
        return number

    @property
    def records(self) -> bool:
        return not self.quiet

    def run_branches(self, pred: Any, branches: tuple[Any, Any], operands: Any) -> Any:
        """A node for the choice, with the graphs of both branches, if the program computes `pred`."""
        if self.quiet or not (self.knows(pred) or isinstance(pred, SymBool)):
            return NotImplemented
        leaves, spec = pytree.tree_flatten(tuple(operands))
        closures: list[Tensor] = []
        while True:
            try:
                with self.quietly():
                    graphs, shapes = zip(*[self._branch(f, leaves, spec, closures) for f in branches], strict=True)
                break
            except _Closure as found:
                closures.append(found.tensor)
        if shapes[0] != shapes[1]:
            raise RuntimeError(f"cond: both branches must give the same structure, shapes and dtypes, got {shapes[0]} and {shapes[1]}")
        given = (*leaves, *closures)
        is_derived = _state.grad_enabled() and any(x.requires_grad for x in given)
        result = differentiable_choice(self, pred, graphs, given) if is_derived else self.chosen(pred, graphs, given)
        return pytree.tree_unflatten(list(result), shapes[0][0])

    def chosen(self, pred: Any, graphs: tuple[GraphModule, ...], given: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """What the graph that `pred` chooses gives, recorded as one node."""
        nodes = self.argument(given)
        names = [self._submodule(name, graph) for name, graph in zip(("true_graph", "false_graph"), graphs, strict=True)]
        with self.quietly():
            result = (graphs[0] if self.fake or bool(pred) else graphs[1])(*given)
        held = [self.tracer.create_node("get_attr", name, (), {}) for name in names]
        return self.record("call_function", cond_op(), (self.argument(pred), *held, tuple(nodes)), {}, result)

    def run_checkpoint(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], settings: dict[str, Any]) -> Any:
        """What the function gives, recorded once: nodes say that they are to be computed again, see `partitioners`."""
        if self.quiet or self.again:
            return NotImplemented if self.quiet else function(*args, **kwargs)
        from ...utils.checkpoint import CheckpointPolicy

        self.checkpoints += 1
        self.again = {"recompute": CheckpointPolicy.MUST_RECOMPUTE, "ac_graph_id": self.checkpoints}
        try:
            return function(*args, **kwargs)
        finally:
            self.again = {}

    def run_repeated(self, op: Any, functions: tuple[Any, ...], example: Callable[[], Any], operands: tuple[Any, ...]) -> Any:
        """A node of the repetition, with graphs of what is repeated, if the program computes an operand."""
        if self.quiet or not self.knows(operands):
            return NotImplemented
        with self.quietly():
            leaves, spec = pytree.tree_flatten(example())
        if not all(isinstance(x, Tensor) for x in leaves):
            return NotImplemented
        name = op.__name__.removesuffix("_op")
        closures: list[Tensor] = []
        while True:
            try:
                with self.quietly():
                    made = [self._branch(f, leaves, spec, closures, name) for f in functions]
                break
            except _Closure as found:
                closures.append(found.tensor)
        with self.quietly():
            result = op(*[graph for graph, _ in made], *operands, tuple(closures))
        if any(x.requires_grad for x in result):      # its derivative is recorded step by step
            return NotImplemented
        names = [self._submodule(f"{name}_graph", graph) for graph, _ in made]
        nodes = self.argument((*operands, tuple(closures)))
        held = [self.tracer.create_node("get_attr", n, (), {}) for n in names]
        self.record("call_function", op, (*held, *nodes), {}, result)
        return result, made[-1][1][0]

    def _branch(self, f: Any, leaves: list[Any], spec: Any, closures: list[Tensor], name: str = "cond") -> tuple[GraphModule, Any]:
        """The graph of a branch, of operands and of the tensors it closes over, and what it gives. Operands may not be written to."""
        found: list[Any] = []

        def flat(*given: Any) -> Any:
            result = f(*pytree.tree_unflatten(list(given[: len(leaves)]), spec))
            parts, structure = pytree.tree_flatten(result)
            if not all(isinstance(x, Tensor) for x in parts):
                kinds = [type(x).__name__ for x in parts]
                raise RuntimeError(f"{name}: functions must give tensors, nested in containers or not, got {kinds}")
            found.append((structure, [(tuple(x.shape), x.dtype) for x in parts]))
            # Results are memory of their own, whichever branch is taken.
            owners = {id(_owner(x._array)) for x in given}
            return tuple([x.clone() if id(_owner(x._array)) in owners else x for x in parts])

        given = [x.detach().clone() for x in leaves] + closures
        before = [x._version for x in given]
        graph = _record(flat, tuple(given), contextlib.nullcontext(), self.fake, self, self.table)
        if [x._version for x in given] != before:
            what = "one of torch.cond branches" if name == "cond" else f"a function of {name}"
            raise RuntimeError(f"{name}: {what} might be modifying the input; make a copy of what it writes to")
        return graph, found[0]

    def run_functional(self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], views: bool) -> Any:
        """What `f` gives, recorded without in-place operations; what it writes to its arguments is copied there in the end."""
        if self.quiet:
            return NotImplemented
        leaves, spec = pytree.tree_flatten((args, kwargs))
        places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
        found: list[Any] = []

        def flat(*given: Any) -> Any:
            all_ = list(leaves)
            for i, x in zip(places, given, strict=False):
                all_[i] = x
            args, kwargs = pytree.tree_unflatten(all_, spec)
            parts, structure = pytree.tree_flatten(f(*args, **kwargs))
            found[:] = [structure]
            return tuple(parts)

        closures: list[Tensor] = []
        kept: list[Any] = []
        with self.quietly(), fork_rng():
            while True:
                copies = [leaves[i].detach().clone().requires_grad_(leaves[i].requires_grad) for i in places]
                kept += [(x, x._version, x.detach().clone()) for x in closures]
                try:
                    graph = _record(flat, (*copies, *closures), contextlib.nullcontext(), self.fake, self, self.table, kept)
                    break
                except _Closure as one:
                    closures.append(one.tensor)
                finally:
                    _put_back(kept)
            given = [*[leaves[i] for i in places], *map(self._stand_in, closures)]
            copied = tuple([x.detach().clone() for x in given])
            graph = functionalize_graph(graph, copied, views=views, stand_in=self._stand_in)
        self.before.update({id(x): x for x in vars(graph)["_buffers"].values()})
        result = InCalls(graph, self.tracer).run(*[leaves[i] for i in places], *closures, enable_io_processing=False)
        return pytree.tree_unflatten(list(result), found[0])

    def _submodule(self, name: str, graph: GraphModule) -> str:
        number = 0
        while hasattr(self.tracer.root, f"{name}_{number}"):
            number += 1
        setattr(self.tracer.root, f"{name}_{number}", graph)
        return f"{name}_{number}"

    def record(self, kind: str, target: Any, args: Any, kwargs: Any, result: Any) -> Any:
        """Make the node of a call that has given `result`, which is returned."""
        node = self.tracer.create_node(kind, target, args, kwargs)
        node.meta.update(self.again)
        if not _records_history():
            self.without_history.add(node)
        self._bind(result, node)
        made = next((x for x in pytree.tree_leaves(result) if isinstance(x, (FakeTensor, *_SYMBOLIC))), None)
        env = None if made is None else made.fake_mode.shape_env if isinstance(made, FakeTensor) else made.node.shape_env
        if env is not None and env.pending_fresh_unbacked_symbols:
            from .symbolic_shapes import compute_unbacked_bindings

            node.meta["unbacked_bindings"] = compute_unbacked_bindings(env, result)
        return result

    def make(self, name: str, public: Any, maker: Any, args: Any, kwargs: Any) -> Any:
        """What a function that makes tensors makes, recorded as its operator, or as a call of `public`; tensors of data are constants."""
        if self.quiet:
            return maker(*args, **kwargs)
        if any(map(is_batched, args)):               # of vmap, which makes what one example asks for
            return maker(*map(one_example, args), **kwargs)
        known = self.knows((args, kwargs))
        nodes, by_name = self.argument(tuple(args)), self.argument(kwargs)
        result, call = self.showing(name, maker, args, kwargs)
        if not isinstance(result, Tensor) or any(result is a for a in args):
            return result
        # The mode makes a fake tensor only of calls by its public name; what it asks for itself is of the meta device.
        if self.fake and name in _OF_DATA and type(result._array) is not MetaArray:
            result = self._stand_in(result)
        if call is not None:
            return self.record_call(call, result)
        if name in _OF_DATA and not known:
            with self.quietly(), unset_fake_temporarily():
                kept = (maker(*args, **kwargs) if self.fake else result).detach().clone()
            return self.record("call_function", _ops.ops.aten.lift_fresh_copy.default, (self.constant(kept),), {}, result)
        return self.record("call_function", public, nodes, by_name, result)

    def showing(self, name: str, f: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, Any]:
        """What `f`, a function that makes or fills a tensor, gives, unrecorded; and the call of the operator `name` that it is, or None."""
        before = self.quiet, self.shown
        self.quiet, self.shown = True, ()
        try:
            result = f(*args, **kwargs)
            call = self.shown or None
        finally:
            self.quiet, self.shown = before
        return result, call if call is not None and call[0]._opname == name else None

    def keep(self, tensor: Tensor, copied: Tensor) -> None:
        """Record that a history has `copied` what is about to be overwritten."""
        if self.knows(tensor):
            self.record("call_function", _ops.ops.aten.clone.default, (self._node_of(tensor),), {}, copied)

    def record_call(self, call: Any, result: Any) -> Any:
        """Make the node of a call of an operator, see `_aten.Call`, that has given `result`, which is returned."""
        target, args, kwargs = call
        # Within an operation fake tensors are plain ones of the meta device, which parts would name.
        plain = any(isinstance(x, Tensor) and not isinstance(x, FakeTensor) and type(x._array) is MetaArray for x in args)
        if target in self.table and not plain:
            parts = self._decomposed(self.table[target], args, kwargs)
            if parts is not NotImplemented:
                return parts
        if self.mode is not None:                     # within an operation it sees no functions
            result = self.mode.adopt(result, device(kwargs.get("device") or "cpu"))
        if "device" in kwargs and isinstance(result, FakeTensor):  # the mode asks for none, and says afterwards which was meant
            kwargs = {**kwargs, "device": result.device}
        return self.record("call_function", target, tuple(self.argument(args)), self.argument(kwargs), result)

    def run_maker(self, call: Any) -> Any:
        if self.quiet:
            if self.shown == ():
                self.shown = call
            return NotImplemented
        target, args, kwargs = call
        if any(map(is_batched, args)):
            if any(a.is_write for a in target._schema.arguments):
                return NotImplemented                 # vmap writes to all examples
            return self._decomposed(lambda: target(*map(one_example, args), **kwargs), (), {})
        with self.quietly():
            result = target(*args, **kwargs)
        return self.record_call(call, result)

    def _bind(self, result: Any, node: Node) -> None:
        if isinstance(result, Tensor):
            self.know(result, node)
        elif isinstance(result, _SYMBOLIC):
            self.numbers.know(result, node)
        elif isinstance(result, (tuple, list)):
            node.meta["parts"] = len(result)
            if any(isinstance(part, FakeTensor) for part in result):
                node.meta["val"] = result
            for i, part in enumerate(result):
                if isinstance(part, (Tensor, tuple, list, *_SYMBOLIC)):
                    self._bind(part, self.tracer.create_node("call_function", operator.getitem, (node, i), {}))

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """A region in which nothing is recorded."""
        before, self.quiet = self.quiet, True
        try:
            with _dispatch.below(self):
                yield
        finally:
            self.quiet = before

    def run(self, op: Op, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        if self.quiet:
            return NotImplemented
        if op.exported_as is not None and out is None and _state.local.exporting:
            result = self._decomposed(op.exported_as, (self._run_named, *args), {})
            if result is not NotImplemented:
                return result
        if op.in_parts is not None and out is None:
            return DECOMPOSE
        # Ops on captured tensors alone are recorded as well: those may hold other values when the graph runs.
        if op.kind == "composite" and not op.one_node and seen_as(op, args, out, inplace)[0] is None:
            return self._composition(op, args, out, inplace)
        return self._recorded(op, args, out, inplace)

    def run_operator(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.quiet or operator.is_composition:
            return NotImplemented
        if operator.setup_context is not None and _state.grad_enabled() and any(x.requires_grad for x in _tensors((args, kwargs))):
            return self._decomposed(operator.enter, (args, kwargs), {})  # what is computed for the derivative is recorded too
        return self.whole(operator.overload, args, kwargs)

    def run_backend(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]) -> Any:
        return run() if self.quiet else self.whole(operator.overload, args, kwargs)

    def run_whole(self, operator: Any, args: tuple[Any, ...]) -> Any:
        keeps = (self.keeps_layers or _state.local.exporting) and not self.quiet
        return self.whole(operator, args, {}) if keeps else NotImplemented

    def whole(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What `operator` gives, recorded as one node, even if it is a composition."""
        self._check_gives_no_value(operator)
        args, kwargs = operator._schema.without_defaults(args, kwargs)
        nodes, by_name = self.argument(args), self.argument(kwargs)
        with self.quietly():
            result = operator(*args, **kwargs)
        return self.record("call_function", operator, tuple(nodes), by_name, result)

    def _run_named(self, name: str, *args: Any) -> Any:
        packet, _, overload = name.partition(".")
        return self.run_whole(getattr(getattr(_ops.ops.aten, packet), overload or "default"), args)

    def _recorded(self, op: Op, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        target, args, kwargs = _call_of(op, args, out, inplace)
        if target in self.table:
            result = self._decomposed(self.table[target], args, kwargs)
            if result is not NotImplemented:
                return result
        elif self.table and (parts := _parts_of(target)) is not None and self._asks_table(parts, args, kwargs):
            return self._decomposed(parts, args, kwargs)
        self._check_gives_no_value(target)
        nodes, by_name = self.argument(args), self.argument(kwargs)
        with self.quietly():
            result = target(*args, **kwargs)
        return self.record("call_function", target, tuple(nodes), by_name, result)

    def _asks_table(self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether one of the operators that `f` calls with these arguments is in the table."""

        def ask(*_: Any, **__: Any) -> Any:
            raise _Asked

        leaves, spec = pytree.tree_flatten((args, kwargs))
        given = [x.detach() if isinstance(x, Tensor) else x for x in leaves]
        mode: Any = contextlib.nullcontext() if self.fake else FakeTensorMode(allow_non_fake_inputs=True)

        def flat(*given: Any) -> Any:
            args, kwargs = pytree.tree_unflatten(list(given), spec)
            return f(*args, **kwargs)

        try:
            with self.quietly(), fork_rng():
                given = [mode.from_tensor(x) if isinstance(x, Tensor) and not self.fake else x for x in given]
                _record(flat, tuple(given), mode, True, None, dict.fromkeys(self.table, ask))
        except _Asked:
            return True
        except (RuntimeError, NotImplementedError, ValueError, TypeError, IndexError):
            return False                              # of what is wrong the operator itself speaks
        return False

    def _check_gives_no_value(self, target: Any) -> None:
        """Raises: ReadsValue for an operator whose result is a Python value of elements, which no node can stand for."""
        if self.fake or self.keeps_values:            # fake tensors say so themselves
            return
        if target in (_ops.ops.aten.equal.default, _ops.ops.aten.allclose.default):
            raise ReadsValue(refusal(target))

    def run_again(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the table says of an operator that a graph names, which may be a composition; NotImplemented where it says nothing."""
        if self.quiet or target not in self.table:
            return NotImplemented
        return self._decomposed(self.table[target], args, kwargs)

    def _decomposed(self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What `f` makes of the arguments of an operator, recorded."""
        calls = _dispatch._local.calls
        before, calls.interpreters = calls.interpreters, (*calls.interpreters, self)
        try:
            return f(*args, **kwargs)
        finally:
            calls.interpreters = before

    def _composition(self, op: Op, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        """What the composition is made of is recorded; if its results come from elsewhere, the composition itself."""
        calls = _dispatch._local.calls
        last, count = self.tracer.graph._root._prev, len(self.earlier)
        before, calls.interpreters = calls.interpreters, (*calls.interpreters, self)
        region = lack_of_values()
        # What is stored in place is computed before it is stored: how the composition is recorded is known only then.
        stores = inplace and op.inplace_view is None
        begin = _state.next_seq() if stores else 0
        try:
            with region:
                result = _dispatch._composed(op, args, None, False) if stores else _dispatch._composed(op, args, out, inplace)
        except (_Unseen, ReadsValue, ValuesAreMissing):
            self._forget_since(last, count)
            calls.interpreters = before
            return self._recorded(op, args, out, inplace)
        finally:
            calls.interpreters = before
        if region.mattered:                           # with values it is made of other ops
            self._forget_since(last, count)
            return self._recorded(op, args, out, inplace)
        tensors = [x for x in pytree.tree_leaves(result) if isinstance(x, Tensor)]
        if all(_memory(x) in self.nodes or id(x) in self.before for x in tensors):
            return self._decomposed(_dispatch.store_composed, (op, args[0], result, begin), {}) if stores else result
        self._forget_since(last, count)
        if stores:
            return self._recorded(op, args, out, inplace)
        target, args, kwargs = _call_of(op, args, out, inplace)
        return self.record("call_function", target, tuple(self.argument(args)), self.argument(kwargs), result)

    def _forget_since(self, last: Node, count: int) -> None:
        """Take back what a composition has made that is recorded as a whole: the nodes after `last`, all but `count` of what is known.

        A part of it may have had the memory of an operand, as `detach` gives: what that memory was before holds again.
        """
        graph = self.tracer.graph
        while graph._root._prev is not last:
            graph.erase_node(graph._root._prev)
        self.numbers.forget_erased()
        while len(self.earlier) > count:
            memory, node = self.earlier.pop()
            if node is None:
                self.nodes.pop(memory, None)
            else:
                self.nodes[memory] = node


def recorder_in_force() -> Any:
    """What records operators in this thread, or None; it has `argument`, `quietly` and `record`."""
    found = (x for x in reversed(_dispatch._local.calls.interpreters) if isinstance(x, _Recorder) and not x.quiet)
    return next(found, None)


def _call_of(op: Op, args: tuple[Any, ...], out: Any, inplace: bool) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The target of a node for a call of `op`, and its arguments."""
    target, given, kwargs = seen_as(op, args, out, inplace)
    if target is None:                                # a composition that is no operator
        kwargs = {} if out is None or inplace else {"out": out}
        return _overload(op, inplace, bool(kwargs)), args, kwargs
    return target, given, kwargs


@functools.cache
def _overload(op: Op, inplace: bool, out: bool) -> OpOverload:
    return overload_of(op, inplace, out)


def _memory(tensor: Tensor) -> Any:
    """Equal for tensors that are the same elements of memory."""
    a = tensor._array
    if type(a) is MetaArray:
        return id(root_of(a)), _plain(a.offset), tuple(map(_plain, a.shape)), tuple(map(_plain, a.strides)), a.dtype
    if isinstance(a, KindArray):                      # which is never changed in its structure, and has no strides
        return id(a), a.shape, a.dtype
    place = a.__array_interface__["data"][0] if hasattr(a, "__array_interface__") else (id(root_of(a)), getattr(a, "offset", 0))
    return place, a.shape, a.strides, a.dtype


# What is known of a tensor of which nothing is.
_UNKNOWN: Any = (lambda: None, None, None)


def _records_history() -> bool:
    """Whether the program that is recorded asks for history, as far as its graph is to show that: exported ones do."""
    return _state.local.recording.asked or not _state.local.exporting


def _plain(n: Any) -> Any:
    """What tells a number: itself, or the expression of a symbolic one."""
    return n if n.__class__ is int else n.node._expr


def _put_back(kept: list[Any]) -> None:
    """Give captured tensors the values they had."""
    for tensor, version, values in kept:
        if tensor._version != version:
            tensor.detach().copy_(values)
    kept.clear()


def _all_tensors() -> Iterator[Tensor]:
    """Every tensor of the process. There may be millions of other objects, so nothing is called for each in Python."""
    kinds = {Tensor}
    while fresh := {sub for kind in kinds for sub in kind.__subclasses__()} - kinds:
        kinds |= fresh
    objects = gc.get_objects()
    return itertools.compress(objects, map(kinds.__contains__, map(type, objects)))


def _owner(a: Any) -> Any:
    while getattr(a, "base", None) is not None and hasattr(a.base, "dtype"):
        a = a.base
    return a


def _wrapper_of(f: Callable[..., Any], count: int, run: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the parameters of `f` that calls `run`; ``arg0``, ``arg1`` ... for what is no function of Python."""
    f = inspect.unwrap(f) if isinstance(f, FunctionType) else f
    if isinstance(f, FunctionType) and f.__code__.co_argcount == count and not f.__code__.co_flags & 0x0C:
        names = f.__code__.co_varnames[:count]
    else:
        names = tuple(f"arg{i}" for i in range(count))
    scope: dict[str, Any] = {"run": run}
    listed = ", ".join(names)
    exec(f"def wrapped({listed}):\n    return run({listed})\n", scope)  # our own text, of parameters' names
    return scope["wrapped"]


def make_fx(
    f: Callable[..., Any],
    decomposition_table: Any = None,
    tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False,
    *,
    pre_dispatch: bool = False,
    record_module_stack: bool = False,
    _allow_fake_constant: bool = False,
    _error_on_data_dependent_ops: bool = True,
) -> Callable[..., GraphModule]:
    """A function that runs `f` on its arguments and gives a GraphModule of the ops that ran, derivatives among them.

    Args:
        f: a function or Module.
        decomposition_table: functions by operator, each run in the place of the operator, on its arguments; see
            `flambeau._decomp.get_decompositions`. One that returns NotImplemented leaves the operator as it is.
        tracing_mode: ``real`` runs on the tensors given; ``fake`` on fake ones that stand for them, so that nothing is computed;
            ``symbolic`` on such with symbols for sizes and for ints among the arguments, so that the graph runs at other sizes:
            those for which the guards of its `shape_env` hold.
        _allow_non_fake_inputs: let the program capture real tensors when the mode is ``fake``.
        pre_dispatch: make nodes of `no_grad` and the like, so that the graph has a history where the program has one.
        record_module_stack, _allow_fake_constant, _error_on_data_dependent_ops: taken for PyTorch's sake where they
            ask for nothing that is not so.
    Raises: RuntimeError if the program asks for values of what it computes; NotImplementedError for the mode that is not built,
        and where a tensor was made by what cannot be recorded; AssertionError for captured tensors where they are not allowed.

    Numbers among the arguments are constants of the graph. Captured tensors become its attributes.

    >>> from flambeau.fx.experimental.proxy_tensor import make_fx
    >>> gm = make_fx(lambda x: fb.relu(x) * 2)(fb.ones(2))
    >>> gm(fb.tensor([3.0, -1.0]))
    tensor([6., 0.])
    """
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise AssertionError(f"tracing_mode must be real/fake/symbolic, got {tracing_mode}")
    @functools.wraps(f, updated=())
    def recorded(*args: Any) -> GraphModule:
        if tracing_mode == "real":
            return _record(f, args, contextlib.nullcontext(), False, None, decomposition_table, keeps_grad_modes=pre_dispatch)
        given = [x for x in pytree.tree_leaves(args) if isinstance(x, FakeTensor)]
        if tracing_mode == "fake":
            mode = given[0].fake_mode if given else FakeTensorMode(allow_non_fake_inputs=_allow_non_fake_inputs)
            fakes = pytree.tree_map(lambda x: mode.from_tensor(x) if isinstance(x, Tensor) else x, args)
            return _record(f, fakes, mode, True, None, decomposition_table, keeps_grad_modes=pre_dispatch)
        return record_symbolically(f, args, decomposition_table, None, _allow_non_fake_inputs, keeps_grad_modes=pre_dispatch)

    return recorded


def _symbolic_mode(allow_non_fake_inputs: bool, env: Any = None) -> FakeTensorMode:
    from ._shape_env import ShapeEnv  # which needs sympy

    return FakeTensorMode(allow_non_fake_inputs=allow_non_fake_inputs, shape_env=ShapeEnv() if env is None else env, static_shapes=True)


def record_symbolically(
    f: Any, args: Any, table: Any, contexts: Any, allow_non_fake_inputs: bool, env: Any = None, keeps_layers: bool = False,
    keeps_grad_modes: bool = False,
) -> GraphModule:  # fmt: skip
    """A graph of `f` with symbols for sizes.

    Args:
        contexts: the symbolic context of each leaf of `args`, which says of which sizes; None of all.
        env: the ShapeEnv of the symbols, where no argument is a fake tensor that has one; None for a new one.
        keeps_layers: record recurrent networks as one operator each, whose steps then are as many as a sequence has.
        keeps_grad_modes: make nodes of `no_grad` and the like.
    """
    given = [x for x in pytree.tree_leaves(args) if isinstance(x, FakeTensor)]
    mode = given[0].fake_mode if given else _symbolic_mode(allow_non_fake_inputs, env)
    arguments = _symbolic_arguments(mode, args, contexts)
    gm = _record(f, arguments, mode, True, None, table, keeps_layers=keeps_layers, keeps_grad_modes=keeps_grad_modes)
    gm.shape_env = mode.shape_env
    return gm


def record_with_values(f: Any, args: tuple[Any, ...], keeps_layers: bool = False) -> GraphModule:
    """A graph of `f` on real `args`, in which the values that the program asks for are constants; see `record_symbolically`."""
    return _record(f, args, contextlib.nullcontext(), False, keeps_values=True, keeps_layers=keeps_layers)


def _symbolic_arguments(mode: FakeTensorMode, args: Any, contexts: Any = None) -> Any:
    """`args` with fake tensors of symbolic sizes, and symbols for ints."""
    from ._sources import ConstantSource

    count = itertools.count()

    def symbolic(x: Any) -> Any:
        at = next(count)
        source = ConstantSource(f"input{at}")
        if isinstance(x, Tensor):
            return mode.from_tensor(x, static_shapes=False, source=source, symbolic_context=contexts and contexts[at])
        if type(x) is int:
            return mode.shape_env.create_symintnode(mode.shape_env.create_symbol(x, source, positive=None), hint=x, source=source)
        return x

    return pytree.tree_map(symbolic, args)


def _record(
    f: Callable[..., Any], args: tuple[Any, ...], mode: Any, fake: bool, outer: Any = None, table: Any = None, kept: Any = None,
    keeps_values: bool = False, keeps_layers: bool = False, keeps_grad_modes: bool = False,
) -> GraphModule:  # fmt: skip
    """A GraphModule of what `f` runs on `args`, `fake` tensors or real ones, in the context `mode`; a branch of what `outer` records.

    Functions of `table` are run in the place of operators. `kept` takes captured tensors as they were. Values that the program asks
    for are constants if it `keeps_values`, else they are refused. `no_grad` and the like are nodes if it `keeps_grad_modes`.
    """
    tracer = PythonKeyTracer()
    tracer.record_stack_traces = outer is not None and outer.tracer.record_stack_traces
    leaves, spec = pytree.tree_flatten(args)
    mode_env = getattr(mode, "shape_env", None)

    def run(*proxies: Any) -> Any:
        recorder = _Recorder(tracer, fake, outer, table, kept)
        recorder.keeps_values, recorder.keeps_layers, recorder.keeps_grad_modes = keeps_values, keeps_layers, keeps_grad_modes
        recorder.mode = mode if isinstance(mode, FakeTensorMode) else None
        for leaf, proxy in zip(leaves, pytree.tree_leaves(proxies), strict=True):
            if isinstance(leaf, (Tensor, *_SYMBOLIC)):
                recorder._bind(leaf, proxy.node)
        with _Patcher() as patcher:
            for name in (*RECORDED_METHODS, *METHODS_OF_VALUES):
                wrap = recorded_method if name in RECORDED_METHODS else refusing_method
                getattr(Tensor, name)
                for cls in (Tensor, FakeTensor):
                    if name in cls.__dict__:
                        patcher.patch_method(cls, name, wrap(name, cls.__dict__[name]))
            if keeps_grad_modes:
                patch_grad_modes(patcher)
            before, active.recorder = active.recorder, recorder
            outer_keep, _state.local.kept_copies = _state.local.kept_copies, recorder.keep
            makers = Makers(recorder)
            patch_makers(patcher, makers.makers)
            try:
                with mode, makers, recorder:
                    result = f(*pytree.tree_unflatten(leaves, spec))
                    if mode_env is not None and outer is None:
                        recorder.record_asserts(mode_env)
            finally:
                active.recorder, _state.local.kept_copies = before, outer_keep
        return pytree.tree_map(lambda x: tracer.proxy(recorder._argument(x)) if isinstance(x, (Tensor, *_SYMBOLIC)) else x, result)

    holes = pytree.tree_unflatten([PH] * len(leaves), spec)
    graph = tracer.trace(_wrapper_of(f, len(args), run), concrete_args=tuple(holes))  # type: ignore[arg-type]  # a tuple by position
    # What was made on the way and is used by nobody, such as attributes of captured tensors.
    for node in reversed(graph.nodes):
        if node.op in ("get_attr", "call_function") and not node.users and (node.op == "get_attr" or _is_getitem(node)):
            graph.erase_node(node)
    return GraphModule(tracer.root, graph, f.__name__ if hasattr(f, "__name__") else type(f).__name__)


def _is_getitem(node: Node) -> bool:
    return node.target is operator.getitem


def get_proxy_mode() -> Any:
    """The recorder of `make_fx` that runs in this thread, or None."""
    return active.recorder


def handle_sym_dispatch(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """What a function gives for symbolic numbers. Its node is made when an operation takes the number.

    Args:
        func, args, kwargs: a call on such numbers.
    Raises: AssertionError where nothing is recorded.
    """
    if get_proxy_mode() is None:
        raise AssertionError("handle_sym_dispatch: nothing is recorded in this thread; call it in a function that make_fx runs")
    return func(*args, **kwargs)


@contextlib.contextmanager
def maybe_enable_thunkify() -> Iterator[None]:
    """A region in which nodes for sizes are made only where they are needed, as they always are: it changes nothing."""
    yield


@contextlib.contextmanager
def maybe_disable_thunkify() -> Iterator[None]:
    """A region in which nodes for sizes could be made at once; they are made where they are needed, so it changes nothing."""
    yield

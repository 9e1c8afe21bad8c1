"""Graphs of a function and of its derivative, made before it runs: `aot_function`, `aot_module`."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import flambeau as fb

from .. import _logging, autograd
from .._on_demand import names_on_demand
from .._state import grad_enabled
from .._subclasses.fake_tensor import FakeTensor, FakeTensorConverter, FakeTensorMode
from .._symbolic import SymFloat, SymInt
from ..func.modules import functional_call
from ..fx.experimental._sources import ConstantSource
from ..fx.experimental.proxy_tensor import _symbolic_mode, make_fx
from ..fx.graph import Graph
from ..fx.graph_module import GraphModule
from ..fx.passes.functionalize import functionalize_graph
from ..nn import Module
from ..nn.parameter import Parameter
from ..tensor import Tensor
from ..utils import _pytree as pytree
from ._aot_memory import Arguments, Use, have_a_base, shared
from .partitioners import default_partition

__all__ = [
    "aot_function", "aot_module", "aot_module_simplified", "get_aot_compilation_context", "get_aot_graph_name",
    "get_graph_being_compiled", "make_boxed_compiler", "make_boxed_func",
]  # fmt: skip


_aot_graphs = _logging.getArtifactLogger("flambeau._functorch", "aot_graphs")
_joint_graphs = _logging.getArtifactLogger("flambeau._functorch", "aot_joint_graph")


class _Being(threading.local):
    """What this thread has compiled: `parts` names the graph that a compiler has in its hands, `count` those before it."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.count = 0


_being = _Being()
_numbers = itertools.count()


@contextlib.contextmanager
def _compiling(part: str) -> Iterator[None]:
    outer, _being.parts = _being.parts, [part]
    try:
        yield
    finally:
        _being.parts = outer
        _being.count += 1


def get_aot_compilation_context() -> tuple[list[str], str, int]:
    """Which graph a compiler of `aot_function` has been given: asked for by the compiler while it runs.

    Returns: the number of the function with what the graph is of it (``0_forward``, ``0_backward`` or ``0_inference``), in a list that is
        empty while no compiler runs; the model's name, which is ``model``; how many graphs this thread has compiled before.
    """
    return list(_being.parts), "model", _being.count


def get_aot_graph_name() -> str:
    """`get_aot_compilation_context` in one word, such as ``model__0_forward_0``, for names of files."""
    parts, model, count = get_aot_compilation_context()
    return f"{model}__{'_'.join(parts)}_{count}"


get_graph_being_compiled = get_aot_graph_name


def _tell(artifact: logging.Logger, graph: GraphModule, name: str = "") -> None:
    if artifact.isEnabledFor(logging.DEBUG):
        artifact.debug("%s\n%s", name or get_aot_graph_name(), graph.print_readable(print_output=False))


def make_boxed_func(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` as a function of one list of its arguments, which says so by `_boxed_call`."""

    def boxed(args: list[Any]) -> Any:
        return f(*args)

    boxed._boxed_call = True  # type: ignore[attr-defined]  # how PyTorch's programs tell
    return boxed


def make_boxed_compiler(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler whose results take one list of arguments."""

    @functools.wraps(compiler)
    def boxing(graph: GraphModule, inputs: Any) -> Any:
        return make_boxed_func(compiler(graph, inputs))

    return boxing


def _call(f: Any, args: list[Any]) -> list[Any]:
    made = f(args) if getattr(f, "_boxed_call", False) else f(*args)
    return list(made) if isinstance(made, (tuple, list)) else [made]


def joint_function(flat: Callable[..., list[Any]], wanted: list[bool], comes_back: list[bool]) -> Callable[..., list[Any]]:
    """The function that gives what `flat` gives, and then the derivative by each input: None for those that are not `wanted`.

    Its arguments are those of `flat` and then the gradients of the results that `comes_back` names.
    """
    count = len(wanted)

    def joint(*given: Any) -> list[Any]:
        primals, tangents = given[:count], given[count:]
        results = flat(*primals)
        sources = [x for x, asked in zip(primals, wanted, strict=True) if asked]
        back = [y for y, comes in zip(results, comes_back, strict=True) if comes]
        found = iter(autograd.grad(back, sources, list(tangents), allow_unused=True))
        return [*results, *[next(found) if asked else None for asked in wanted]]

    return joint


def graph_without_writes(
    mode: FakeTensorMode, f: Callable[..., Any], fakes: list[Any], tangents: list[Any], table: Any, name: str,
) -> tuple[GraphModule, list[int]]:  # fmt: skip
    """The graph of `f` without writes, and which inputs it would write to; their new values are its first results."""
    given = (*fakes, *tangents)
    gm = _traced(f, given, table)
    written: list[int] = []
    with mode:
        gm = functionalize_graph(gm, tuple([x.detach() if isinstance(x, Tensor) else x for x in given]), written=written)
    return _named(gm, fakes, tangents, name), written


def _traced(f: Callable[..., Any], given: Sequence[Any], table: Any) -> GraphModule:
    """The graph of `f`, which runs on tensors like `given`: it may change their shape and history."""
    own = [x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in given]
    # Sizes of fake tensors that are symbols stay symbols.
    return make_fx(lambda *args: tuple(f(*args)), decomposition_table=table, tracing_mode="fake", _allow_non_fake_inputs=True)(*own)


def _named(gm: GraphModule, fakes: list[Any], tangents: list[Any], name: str) -> GraphModule:
    """`gm` with inputs named as PyTorch's are, and their values."""
    names = [f"{name}_{i + 1}" if name == "primals" else f"{name}{i}_1" for i in range(len(fakes))]
    return _renamed(gm, [*names, *[f"tangents_{i + 1}" for i in range(len(tangents))]], (*fakes, *tangents))


@contextlib.contextmanager
def _counting_writes() -> Iterator[None]:
    """Tensors that are made count writes to them, by which those are seen; so no inference mode, and no gradients in the place of it."""
    if not autograd.grad_mode.is_inference_mode_enabled():
        yield
        return
    with autograd.inference_mode(False), autograd.no_grad():
        yield


class _Compiled:
    """A function of leaves, compiled for one signature of them; where sizes are symbols, `dynamic`, for all sizes that `fits` tells.

    If it is `of_graph`, a graph that `compile` has made, floats are symbols too, and sizes of parameters none.
    """

    def __init__(
        self, flat: Callable[..., list[Any]], leaves: list[Any], fw: Any, bw: Any, inference: Any, partition: Any, table: Any,
        functional: bool = True, dynamic: bool = False, of_graph: bool = False,
    ) -> None:  # fmt: skip
        self.flat, self.table, self.functional, self.of_graph = flat, table, functional, of_graph
        with _counting_writes():
            self._compile(leaves, fw, bw, inference, partition, dynamic)

    def _compile(self, leaves: list[Any], fw: Any, bw: Any, inference: Any, partition: Any, dynamic: bool) -> None:
        self.only_for: list[Any] | None = None
        self.dynamic = dynamic
        self._begin(dynamic)
        number = next(_numbers)
        groups = [group for group in shared(leaves) if have_a_base([leaves[i] for i in group])]
        self._look(leaves, groups)
        # What shares memory that nobody writes to is taken as it is.
        groups = [group for group in groups if self.arguments.places[group[0]][0] in self.use.written]
        self._view(leaves, groups)
        graph, values = self._traced()
        late = [g for g in shared(leaves) if g not in groups and any(self.arguments.places[i][0] in self.written for i in g)]
        if late:                                      # it was written through `data`, which counts nothing
            self._view(leaves, [*groups, *late])
            graph, values = self._traced()
        if not any(self.comes_back):
            with _compiling(f"{number}_inference"):
                _tell(_aot_graphs, graph)
                self.forward, self.backward = (inference or fw)(graph, values), None
        else:
            _tell(_joint_graphs, graph, f"model__{number}_joint")
            first, second = partition(graph, values, num_fwd_outputs=len(self.comes_back))
            with _compiling(f"{number}_forward"):
                _tell(_aot_graphs, first)
                self.forward = fw(first, values[: len(self.wanted)])
            with _compiling(f"{number}_backward"):
                _tell(_aot_graphs, second)
                self.backward = (bw or fw)(second, [n.meta.get("val") for n in second.graph.nodes if n.op == "placeholder"])
        self.tracked = [i for i, comes in enumerate(self.comes_back) if comes]
        self.function = self._function()
        self.placeholders = values[: len(self.wanted)]
        env = self.mode.shape_env
        self.guards = None if env is None else env.produce_guards_expression(self.placeholders)
        self.given = []                               # whose memory lives no longer

    def _begin(self, dynamic: bool) -> None:
        self.mode = _symbolic_mode(True) if dynamic else FakeTensorMode(allow_non_fake_inputs=True)
        self.mode.static_shapes = not dynamic

    def _view(self, leaves: list[Any], groups: list[list[int]]) -> None:
        """As `_look`. How leaves lie in shared memory is known for numbers only, so that no size is a symbol then."""
        self._begin(self.dynamic and not groups)      # symbols go by the arguments' places, where others may be now
        if groups:
            self.only_for = [_place(x) for x in leaves]
        self._look(leaves, groups)

    def fits(self, leaves: list[Any]) -> bool:
        """Whether the graphs are right for the sizes of `leaves`, whose number and dtypes are those they were made for."""
        if self.only_for is not None and self.only_for != [_place(x) for x in leaves]:
            return False
        return self.guards is None or self.mode.shape_env.evaluate_guards_expression(self.guards, self.arguments.of(leaves))

    def _numbers(self, arguments: list[Any]) -> Callable[[Any], int]:
        """A function that says what a symbolic size of the graphs is for `arguments`."""
        if self.mode.shape_env is None:
            return int
        bound = self.mode.shape_env.bind_symbols(self.placeholders, arguments)
        return lambda n: n if type(n) is int else int(n.node._expr.subs(bound))

    def _fakes(self) -> list[Any]:
        """What stands for the arguments, made anew: runs of the function change it."""
        self.mode.fake_tensor_converter = FakeTensorConverter()
        return [self._fake(x, i) for i, x in enumerate(self.given)]

    def _fake(self, x: Any, at: int) -> Any:
        env = self.mode.shape_env
        source = ConstantSource(f"input{at}")
        if self.of_graph and type(x) in (float, SymFloat) and env is not None:
            n = x if type(x) is float else float(x.node.shape_env.size_hint(x.node.expr))
            return env.create_symfloatnode(env.create_unspecified_symbol(n, source), hint=n, source=source)
        if type(x) in (int, SymInt) and env is not None:
            n, is_size = (x, None) if type(x) is int else _known_of(x)
            symbol = env.create_symbol(n, source, positive=is_size, do_not_specialize_zero_one=is_size is None)
            return env.create_symintnode(symbol, hint=n, source=source)
        if not isinstance(x, Tensor):
            return x
        if not isinstance(x, FakeTensor):
            static = True if self.of_graph and isinstance(x, Parameter) else None
            return self.mode.from_tensor(x, static_shapes=static, source=None if env is None else source)
        made = FakeTensor(self.mode, fb.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta"), x.device)
        return made.requires_grad_() if x.requires_grad else made

    def _look(self, leaves: list[Any], groups: list[list[int]]) -> None:
        """What the function does with `leaves`, of which `groups` are taken out of one argument each."""
        self.arguments = Arguments(leaves, groups)
        self.given = self.arguments.of(leaves)
        self.wanted = [isinstance(x, Tensor) and x.requires_grad and grad_enabled() for x in self.given]
        self.use = Use.of(self.flat, self.arguments, self._fakes(), self.wanted, self.mode)
        for i in self.use.copied:
            if self.given[i].is_leaf:
                raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")

    def _traced(self) -> tuple[GraphModule, list[Any]]:
        """The graph of the function, with its derivative if something comes back for it, and example inputs of that graph.

        Its first results are the new values of arguments that are written to, those without a new history first; then come what the
        function returns and the memories that its results share.
        """
        arguments, use, fakes = self.arguments, self.use, self._fakes()
        # Without an argument that has history there is nothing to come back to, even if the function asks for history inside.
        back = [r.kind == "value" and r.tracked and any(self.wanted) for r in use.results]
        bases = [k for k, itself in use.inner if not itself and any(self.wanted)]
        if not (any(back) or bases or use.copied or use.gains):

            def whole(*given: Any) -> list[Any]:
                return self.flat(*arguments.leaves(given))

            with autograd.no_grad():
                graph, self.written = self._graph(whole, fakes, [], "arg")
            self.comes_back = [False] * (len(self.written) + len(back))
            return graph, fakes
        with self.mode:
            given = [x.clone() if i in use.copied else x for i, x in enumerate(self._fakes())]
            results = self.flat(*arguments.leaves(given))
        explicit = use.copied if self.functional else [*use.gains, *use.copied]
        leaving = [
            *[given[i] for i in (*use.gains, *use.copied)], *[y for y, b in zip(results, back, strict=True) if b],
            *[results[k]._base for k in bases],
        ]  # fmt: skip
        tangents = [y.detach().clone() for y in leaving]
        self.strides = [x.stride() for x in tangents]  # which the graph's views go by
        count = len(fakes)

        def joint(*values: Any) -> list[Any]:
            primals, tangents = values[:count], values[count:]
            given = [x.clone() if i in use.copied else x for i, x in enumerate(primals)]
            results = self.flat(*arguments.leaves(given))
            new, inner = [given[i] for i in explicit], [results[k]._base for k in bases]
            sources = [x for x, asked in zip(primals, self.wanted, strict=True) if asked]
            leaving = [*[given[i] for i in (*use.gains, *use.copied)], *[y for y, b in zip(results, back, strict=True) if b], *inner]
            found = iter(autograd.grad(leaving, sources, list(tangents), allow_unused=True))
            return [*new, *results, *inner, *[next(found) if asked else None for asked in self.wanted]]

        graph, written = self._graph(joint, fakes, tangents, "primals")
        self.comes_back = [*[i in use.gains for i in written], *[True] * len(explicit), *back, *[True] * len(bases)]
        self.written = [*written, *explicit]
        inputs = list(graph.graph.find_nodes(op="placeholder"))
        for i in self.written:
            inputs[i].meta["written"] = True          # which partitions ask for
        return graph, [*fakes, *tangents]

    def _graph(self, f: Callable[..., Any], fakes: list[Any], tangents: list[Any], name: str) -> tuple[GraphModule, list[int]]:
        if self.functional:
            return graph_without_writes(self.mode, f, fakes, tangents, self.table, name)
        return _named(_traced(f, (*fakes, *tangents), self.table), fakes, tangents, name), []

    def _function(self) -> Any:
        compiled = self

        class CompiledFunctionBackward(autograd.Function):
            @staticmethod
            def forward(ctx: Any, *given: Any) -> Any:
                return tuple(_call(compiled.backward, list(given)))

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                raise RuntimeError("torch.compile with aot_autograd does not currently support double backward")

        class CompiledFunction(autograd.Function):
            @staticmethod
            def forward(ctx: Any, made: list[Any], number: Any, *arguments: Any) -> Any:
                computed = _call(compiled.forward, list(arguments))
                made += computed[: len(compiled.comes_back)]
                kept = computed[len(compiled.comes_back) :]
                ctx.places = [i for i, x in enumerate(kept) if isinstance(x, Tensor)]
                ctx.kept = [None if isinstance(x, Tensor) else x for x in kept]
                ctx.save_for_backward(*[kept[i] for i in ctx.places])
                ctx.strides = [tuple(map(number, stride)) for stride in compiled.strides]
                return tuple([made[i] for i in compiled.tracked])

            @staticmethod
            def backward(ctx: Any, *tangents: Any) -> Any:
                kept = list(ctx.kept)
                for i, x in zip(ctx.places, ctx.saved_tensors, strict=True):
                    kept[i] = x
                found = CompiledFunctionBackward.apply(*kept, *map(_laid_out, tangents, ctx.strides))
                return None, None, *(found if isinstance(found, tuple) else (found,))

        return CompiledFunction

    def __call__(self, leaves: list[Any]) -> list[Any]:
        arguments = self.arguments.of(leaves)
        number = self._numbers(arguments)
        made: list[Any] = []
        if self.backward is None:
            with autograd.no_grad():
                made = _call(self.forward, list(arguments))
        else:
            tracked = self.function.apply(made, number, *arguments)
            for i, y in zip(self.tracked, tracked if isinstance(tracked, tuple) else (tracked,), strict=True):
                made[i] = y
        self._write(leaves, arguments, made, number)
        return self._results(leaves, arguments, made[len(self.written) :], number)

    def _write(self, leaves: list[Any], arguments: list[Any], made: list[Any], number: Any) -> None:
        """Give arguments the new values that `made` begins with, and the shape that the function gives them.

        New values are those of the memory as the argument looked at it, but those of `copied` arguments have their new shape.
        """
        for i in self.use.copied:
            self._turn(arguments[i], i, number)
        for i, value, comes in zip(self.written, made, self.comes_back, strict=False):
            if comes:
                arguments[i].copy_(value)
            else:
                with autograd.no_grad():              # as data where the function counts no write
                    (arguments[i] if i in self.use.written else arguments[i].data).copy_(value)
                self.arguments.note_written(i, leaves)
        for i in self.use.changed:
            if i not in self.use.copied:
                self._turn(arguments[i], i, number)

    def _turn(self, x: Tensor, at: int, number: Any) -> None:
        """Give the argument `at` the shape that the function gives it."""
        look = self.use.changed.get(at)
        if look is not None:
            look = look.bound(number)
            x.as_strided_(look.shape, look.stride, x.storage_offset() + look.offset)

    def _results(self, leaves: list[Any], arguments: list[Any], made: list[Any], number: Any) -> list[Any]:
        """The results: those that look at the memory of arguments or of each other are made views of it."""
        count = len(self.use.results)
        added = iter(made[count:])
        # Nobody's history goes through them where none is asked for.
        bases = [] if self.backward is None else [made[k] if itself else next(added) for k, itself in self.use.inner]
        found: list[Any] = []
        for k, result in enumerate(self.use.results):
            if result.kind == "leaf":
                found.append(leaves[result.at])
            elif result.kind == "again":
                found.append(found[result.at])
            elif result.kind == "input":
                source, look = arguments[result.at], result.look.bound(number)
                if result.apart:
                    found.append(look.at(source.detach()).detach())
                else:
                    found.append(look.at(source if result.tracked or not source.requires_grad else source.detach()))
            elif result.kind == "inner" and self.backward is not None:
                found.append(result.look.bound(number).at(bases[result.at]))
            else:
                found.append(made[k])
        return found


def _known_of(n: SymInt) -> tuple[int, bool | None]:
    """The value at hand of a symbolic number, and True if it is no less than 0 in any case, else None."""
    env, expr = n.node.shape_env, n.node.expr
    return int(env.size_hint(expr)), True if env.bound_sympy(expr).lower >= 0 else None


def _laid_out(x: Any, strides: tuple[int, ...]) -> Any:
    """`x`, or a copy of it, with these strides."""
    if not isinstance(x, Tensor) or x.stride() == strides:
        return x
    return x.new_empty_strided(x.shape, strides).copy_(x)


def _renamed(gm: GraphModule, names: list[str], values: Sequence[Any]) -> GraphModule:
    """`gm` with inputs of these names."""
    graph, env = Graph(), {}
    given = iter(zip(names, values, strict=True))
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            name, value = next(given)
            env[node] = graph.placeholder(name)
            env[node].meta = {**node.meta, "val": value}
        elif node.op == "output":
            graph.output(tuple(_mapped(node.args[0], env)))
        else:
            env[node] = graph.node_copy(node, env.__getitem__)
    graph.eliminate_dead_code()
    return GraphModule(gm, graph, "joint")


def _mapped(results: Any, env: dict[Any, Any]) -> list[Any]:
    return [env.get(x, x) if not isinstance(x, (list, dict)) else x for x in results]


def _signature(x: Any, symbolic: bool) -> Any:
    """What graphs of a function are made for: all that is known of an argument but values, and but sizes if these are `symbolic`."""
    if isinstance(x, Tensor):
        return (x.dtype, x.dim(), x.device, x.requires_grad, x.is_leaf) if symbolic else _whole_signature(x)
    if symbolic and type(x) is int:
        return int
    return type(x), x if isinstance(x, (int, float, complex, str, bool, type(None))) else id(x)


def _place(x: Any) -> Any:
    """Where a tensor lies in its memory, and which other values are given."""
    return (tuple(x.shape), x.stride(), x.storage_offset()) if isinstance(x, Tensor) else x


def _whole_signature(x: Tensor) -> Any:
    return x.dtype, tuple(x.shape), x.stride(), x.device, x.requires_grad, x.is_leaf


def aot_function(
    fn: Callable[..., Any],
    fw_compiler: Callable[..., Any],
    bw_compiler: Callable[..., Any] | None = None,
    partition_fn: Callable[..., Any] = default_partition,
    decompositions: dict[Any, Any] | None = None,
    num_params_buffers: int = 0,
    keep_inference_input_mutations: bool = False,
    inference_compiler: Callable[..., Any] | None = None,
    *,
    dynamic: bool = False,
    enable_log: bool = True,
    disable_functionalization: bool = False,
) -> Callable[..., Any]:
    """`fn`, which when called has graphs made of itself and of its derivative, and runs what the compilers make of them.

    Args:
        fn: a function of tensors and other values, nested in containers, that gives the same. Captured tensors are attributes of
            the graphs; derivatives do not go there.
        fw_compiler: a function of a GraphModule and its example inputs, fake ones, that gives what is called instead, with the inputs as
            arguments or, if it has `_boxed_call`, with one list of them.
        bw_compiler: the same for the derivative; `fw_compiler` if there is none.
        partition_fn: how the joint graph is cut in two: `default_partition` or `min_cut_rematerialization_partition`.
        decompositions: what operators are recorded as, see `make_fx`.
        inference_compiler: the same as `fw_compiler`, where no derivative is needed.
        num_params_buffers, keep_inference_input_mutations, enable_log: taken for PyTorch's sake.
        dynamic: let sizes, and ints among the arguments, be symbols, so that one graph is for all sizes that its guards hold for.
        disable_functionalization: let graphs write as the function does.
    Raises: NotImplementedError for what is not built; RuntimeError for inputs that share memory which is written to and are no views
        of one tensor, and for a second derivative; what `make_fx` raises for programs whose values decide what they do.

    The graphs have no writes: what is written to inputs is a result of theirs, and copied afterwards. Inputs that share memory which is
    written to are views of one input of the graphs. Results that look at the memory of inputs or of other results are views of these.
    Graphs are made anew for each combination of shapes, strides, dtypes, needs of gradients, shared memory, and values of arguments
    that are no tensors.

    >>> from flambeau._functorch.compile import aot_function, nop
    >>> f = aot_function(lambda x: (x.sin() * 2).sum(), nop)
    >>> x = fb.zeros(2, requires_grad=True)
    >>> f(x).backward()
    >>> x.grad
    tensor([2., 2.])
    """
    cache: dict[Any, list[tuple[_Compiled, list[Any]]]] = {}

    @functools.wraps(fn, updated=())
    def compiled(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        key = (str(spec), grad_enabled(), str(shared(leaves)), *[_signature(x, dynamic) for x in leaves])
        known = cache.setdefault(key, [])
        found = next((entry for entry in known if entry[0].fits(leaves)), None)
        if found is None:
            structures: list[Any] = []

            def flat(*given: Any) -> list[Any]:
                args, kwargs = pytree.tree_unflatten(list(given), spec)
                results, structure = pytree.tree_flatten(fn(*args, **kwargs))
                structures[:] = [structure]
                return results

            made = _Compiled(
                flat, leaves, fw_compiler, bw_compiler, inference_compiler, partition_fn, decompositions, not disable_functionalization,
                dynamic,
            )  # fmt: skip
            # What is told apart by its identity is kept, so that nothing else gets it.
            found = made, [structures[0], *[x for x in leaves if not isinstance(x, Tensor)]]
            known.append(found)
        made, held = found
        return pytree.tree_unflatten(made(leaves), held[0])

    return compiled


def aot_module(mod: Module, *args: Any, **kwargs: Any) -> Module:
    """`mod` with its forward compiled by `aot_function`, whose arguments follow; parameters and buffers are inputs of the graphs."""

    def call(named: dict[str, Any], args: Any, kwargs: Any) -> Any:
        return functional_call(mod, named, args, kwargs)

    compiled = aot_function(call, *args, **kwargs)

    class AOTModule(Module):
        def __init__(self) -> None:
            super().__init__()
            self.orig_module = mod

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return compiled({**dict(mod.named_parameters()), **dict(mod.named_buffers())}, args, kwargs)

    return AOTModule()


def aot_module_simplified(
    mod: Module, args: Sequence[Any], fw_compiler: Callable[..., Any], bw_compiler: Callable[..., Any] | None = None,
    partition_fn: Callable[..., Any] = default_partition, decompositions: dict[Any, Any] | None = None,
    keep_inference_input_mutations: bool = False, inference_compiler: Callable[..., Any] | None = None, **_: Any,
) -> Callable[..., Any]:  # fmt: skip
    """The forward of `mod` compiled for `args` at once, as backends of compilers use it; parameters and buffers are inputs of the graphs.

    Args:
        mod: a module whose forward takes tensors and gives a tuple of them.
        args: values of its arguments, fake or real. With symbolic numbers among them all sizes are symbols of the graphs, which are made
            anew where their guards do not hold.
        fw_compiler, bw_compiler, partition_fn, decompositions, inference_compiler: as for `aot_function`.
        keep_inference_input_mutations: taken for PyTorch's sake.
    Raises: RuntimeError if the forward gives no tuple.
    """
    names = [n for n, _ in (*mod.named_parameters(), *mod.named_buffers())]

    def held() -> list[Any]:
        return [*[p for _, p in mod.named_parameters()], *[b for _, b in mod.named_buffers()]]

    def flat(*given: Any) -> list[Any]:
        results = functional_call(mod, dict(zip(names, given, strict=False)), tuple(given[len(names) :]))
        if not isinstance(results, (tuple, list)):
            raise RuntimeError("Graph output must be a (). Change the module to have tuple outputs, or use aot_module instead.")
        return list(results)

    dynamic = any(isinstance(x, (SymInt, SymFloat)) for x in args)

    def make(leaves: list[Any]) -> _Compiled:
        return _Compiled(flat, leaves, fw_compiler, bw_compiler, inference_compiler, partition_fn, decompositions, True, dynamic, dynamic)

    known = [make([*held(), *args])]

    def forward(*args: Any) -> list[Any]:
        leaves = [*held(), *args]
        made = next((one for one in known if one.fits(leaves)), None) if dynamic else known[0]
        if made is None:
            made = make(leaves)
            known.append(made)
        return made(leaves)

    forward.zero_grad = mod.zero_grad  # type: ignore[attr-defined]  # as PyTorch's has
    forward.named_parameters = mod.named_parameters  # type: ignore[attr-defined]
    forward.named_buffers = mod.named_buffers  # type: ignore[attr-defined]
    return forward


__getattr__, __dir__ = names_on_demand(__name__, {
    ".aot_export": ("BackwardSignature", "GraphSignature", "aot_export_joint_simple", "aot_export_module"),
})  # fmt: skip

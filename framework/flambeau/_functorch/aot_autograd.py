"""Graphs of a function and of its derivative, made before it runs: `aot_function`, `aot_module`."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import _logging, autograd
from .._on_demand import names_on_demand
from .._state import grad_enabled
from .._subclasses.fake_tensor import FakeTensorMode
from ..autograd.function import once_differentiable
from ..func.modules import functional_call
from ..fx.experimental.proxy_tensor import _owner, make_fx
from ..fx.graph import Graph
from ..fx.graph_module import GraphModule
from ..fx.passes.functionalize import functionalize_graph
from ..nn import Module
from ..tensor import Tensor
from ..utils import _pytree as pytree
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
    gm = make_fx(lambda *args: tuple(f(*args)), decomposition_table=table, tracing_mode="fake", _allow_non_fake_inputs=True)(*given)
    written: list[int] = []
    with mode:
        gm = functionalize_graph(gm, tuple([x.detach() if isinstance(x, Tensor) else x for x in given]), written=written)
    names = [f"{name}_{i + 1}" if name == "primals" else f"{name}{i}_1" for i in range(len(fakes))]
    return _renamed(gm, [*names, *[f"tangents_{i + 1}" for i in range(len(tangents))]], given), written


class _Compiled:
    """A function of leaves, compiled for one signature of them."""

    def __init__(
        self, flat: Callable[..., list[Any]], leaves: list[Any], fw: Any, bw: Any, inference: Any, partition: Any, table: Any,
    ) -> None:  # fmt: skip
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        number = next(_numbers)
        fakes = [self.mode.from_tensor(x) if isinstance(x, Tensor) else x for x in leaves]
        self.wanted = [isinstance(x, Tensor) and x.requires_grad and grad_enabled() for x in leaves]
        with self.mode:
            before = [x._version if isinstance(x, Tensor) else 0 for x in fakes]
            seen = flat(*fakes)
        self.same = [next((i for i, x in enumerate(fakes) if x is y and isinstance(y, Tensor)), None) for y in seen]
        self.comes_back = [isinstance(y, Tensor) and y.requires_grad and self.same[i] is None for i, y in enumerate(seen)]
        for x, version, wanted in zip(fakes, before, self.wanted, strict=True):
            if wanted and x._version != version:
                raise NotImplementedError("aot_function: writing to an input that requires grad is not built; write to a copy of it")
        fakes = [self.mode.from_tensor(x) if isinstance(x, Tensor) else x for x in leaves]
        if not any(self.comes_back):
            graph, self.written = graph_without_writes(self.mode, flat, fakes, [], table, "arg")
            with _compiling(f"{number}_inference"):
                _tell(_aot_graphs, graph)
                self.forward, self.backward = (inference or fw)(graph, fakes), None
        else:
            tangents = [y.detach().clone() for y, back in zip(seen, self.comes_back, strict=True) if back]
            self.strides = [x.stride() for x in tangents]  # which the graph's views go by
            both = joint_function(flat, self.wanted, self.comes_back)
            joint, self.written = graph_without_writes(self.mode, both, fakes, tangents, table, "primals")
            _tell(_joint_graphs, joint, f"model__{number}_joint")
            first, second = partition(joint, [*fakes, *tangents], num_fwd_outputs=len(self.written) + len(seen))
            with _compiling(f"{number}_forward"):
                _tell(_aot_graphs, first)
                self.forward = fw(first, fakes)
            with _compiling(f"{number}_backward"):
                _tell(_aot_graphs, second)
                self.backward = (bw or fw)(second, [n.meta.get("val") for n in second.graph.nodes if n.op == "placeholder"])
        self.count = len(self.written) + len(seen)
        self._refuse_shared(leaves)
        self.function = self._function()

    def _refuse_shared(self, leaves: list[Any]) -> None:
        for i in self.written:
            if any(isinstance(x, Tensor) and j != i and _owner(x._array) is _owner(leaves[i]._array) for j, x in enumerate(leaves)):
                raise NotImplementedError("aot_function: writing to an input that shares memory with another is not built; give copies")

    def _function(self) -> Any:
        compiled = self

        class CompiledFunction(autograd.Function):
            @staticmethod
            def forward(ctx: Any, *leaves: Any) -> Any:
                made = _call(compiled.forward, list(leaves))
                results, kept = made[: compiled.count], made[compiled.count :]
                ctx.places = [i for i, x in enumerate(kept) if isinstance(x, Tensor)]
                ctx.kept = [None if isinstance(x, Tensor) else x for x in kept]
                ctx.save_for_backward(*[kept[i] for i in ctx.places])
                back = [False] * len(compiled.written) + compiled.comes_back
                ctx.mark_non_differentiable(*[y for y, b in zip(results, back, strict=True) if isinstance(y, Tensor) and not b])
                return tuple(results)

            @staticmethod
            @once_differentiable
            def backward(ctx: Any, *grads: Any) -> Any:
                kept = list(ctx.kept)
                for i, x in zip(ctx.places, ctx.saved_tensors, strict=True):
                    kept[i] = x
                back = [False] * len(compiled.written) + compiled.comes_back
                tangents = [g for g, b in zip(grads, back, strict=True) if b]
                return tuple(_call(compiled.backward, [*kept, *map(_laid_out, tangents, compiled.strides)]))

        return CompiledFunction

    def __call__(self, leaves: list[Any]) -> list[Any]:
        made = list(self.function.apply(*leaves)) if self.backward is not None else _call(self.forward, list(leaves))
        with autograd.no_grad():
            for i, value in zip(self.written, made, strict=False):
                leaves[i].copy_(value)
        results = made[len(self.written) :]
        return [leaves[same] if same is not None else y for same, y in zip(self.same, results, strict=True)]


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


def _signature(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x.dtype, tuple(x.shape), x.stride(), x.device, x.requires_grad, x.is_leaf
    return type(x), x if isinstance(x, (int, float, complex, str, bool, type(None))) else id(x)


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
        dynamic, disable_functionalization: only False is built.
    Raises: NotImplementedError for what is not built: writing to inputs that require grad or share memory; what `make_fx` raises for
        programs whose values decide what they do. A second derivative raises RuntimeError.

    The graphs have no writes: what is written to inputs is a result of theirs, and copied afterwards. They are made anew for each
    combination of shapes, strides, dtypes, needs of gradients, and values of arguments that are no tensors.

    >>> from flambeau._functorch.compile import aot_function, nop
    >>> f = aot_function(lambda x: (x.sin() * 2).sum(), nop)
    >>> x = fb.zeros(2, requires_grad=True)
    >>> f(x).backward()
    >>> x.grad
    tensor([2., 2.])
    """
    if dynamic or disable_functionalization:
        raise NotImplementedError("aot_function: dynamic=True and disable_functionalization=True are not built yet; leave them out")
    cache: dict[Any, tuple[_Compiled, list[Any]]] = {}

    @functools.wraps(fn, updated=())
    def compiled(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        key = (str(spec), grad_enabled(), *[_signature(x) for x in leaves])
        if key not in cache:
            structures: list[Any] = []

            def flat(*given: Any) -> list[Any]:
                args, kwargs = pytree.tree_unflatten(list(given), spec)
                results, structure = pytree.tree_flatten(fn(*args, **kwargs))
                structures[:] = [structure]
                return results

            # What is told apart by its identity is kept, so that nothing else gets it.
            cache[key] = (
                _Compiled(flat, leaves, fw_compiler, bw_compiler, inference_compiler, partition_fn, decompositions),
                [structures[0], *[x for x in leaves if not isinstance(x, Tensor)]],
            )
        made, held = cache[key]
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
        args: values of its arguments, fake or real.
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

    made = _Compiled(flat, [*held(), *args], fw_compiler, bw_compiler, inference_compiler, partition_fn, decompositions)

    def forward(*args: Any) -> list[Any]:
        return made([*held(), *args])

    forward.zero_grad = mod.zero_grad  # type: ignore[attr-defined]  # as PyTorch's has
    forward.named_parameters = mod.named_parameters  # type: ignore[attr-defined]
    forward.named_buffers = mod.named_buffers  # type: ignore[attr-defined]
    return forward


__getattr__, __dir__ = names_on_demand(__name__, {
    ".aot_export": ("BackwardSignature", "GraphSignature", "aot_export_joint_simple", "aot_export_module"),
})  # fmt: skip

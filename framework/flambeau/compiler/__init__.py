"""`compile` and what programs ask of a compiler.

Python runs in every call of a compiled function; operations in it are recorded, and computed when something asks for them, see
`_recorder`. So results, side effects and exceptions are those of the function, and results have the same bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from .. import _state
from .._on_demand import names_on_demand
from . import _backends, config

__all__ = [
    "CacheInfo", "allow_in_graph", "assume_constant_result", "compile", "config", "cudagraph_mark_step_begin", "disable",
    "get_default_backend", "is_compiling", "is_dynamo_compiling", "is_exporting", "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe", "list_backends", "load_cache_artifacts", "load_compiled_function", "nested_compile_region", "reset",
    "save_cache_artifacts", "set_default_backend", "set_enable_guard_collectives", "set_stance", "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe", "skip_guard_on_globals_unsafe", "skip_guard_on_inbuilt_nn_modules_unsafe",
    "substitute_in_graph", "wrap_numpy",
]  # fmt: skip

_MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
_STANCES = (
    "default", "eager_then_compile", "aot_eager_then_compile", "force_eager", "eager_on_recompile", "fail_on_recompile",
)  # fmt: skip


def compile(  # PyTorch's name
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """`model`, a function or module, behind a wrapper as PyTorch's. Calls give what the function gives, to the bit.

    Chains of elementwise operations on large tensors run as one kernel from the third call of a path on, and their gradients as
    another; all else is computed as without `compile`. A `backend` of the program's own is given a graph of what was recorded, and what it
    returns computes the results.

    A module comes back as `flambeau._dynamo.OptimizedModule`, which shares the module's parameters and keeps the module
    as `_orig_mod`. Without `model` the result is a decorator.

    Args:
        model: what to compile, or None.
        fullgraph: raise `torch._dynamo.exc.Unsupported` when Python asks for a value, as `item()` and ``if x > 0`` do; with a backend
            of this package at the first call.
        dynamic: whether sizes are inputs of the graphs that a backend of the program's own is given, so that one is for many sizes: at once
            (True), never but for marked ones (False), or where a second call has other sizes (None). What this package compiles does not
            depend on sizes.
        shapes_spec: accepted.
        backend: the name of a backend, see `list_backends`, by default `get_default_backend`, or a function:
            ``backend(graph_module, example_inputs)`` returns a function of tensors like the example inputs, which returns the graph's
            results. Functions get `options` as a keyword.
        mode: "default"; "reduce-overhead", which replays a stable program without the Python that recorded it, see docs/compile.md;
            "max-autotune" or "max-autotune-no-cudagraphs", which time some calls with fused kernels and without, and stay with the faster.
        options: settings of the backend by name, instead of `mode`: those of `torch._inductor.config`, of which "triton.cudagraphs" is
            "reduce-overhead", and "verify_every", a number n: "reduce-overhead" with every n-th call looked at. "guard_filter_fn", a
            function that chooses guards, is accepted and not called: there are no guards.
        name: accepted; messages call the function by its own name.
        recompile_limit: how many graphs of one part of the function a backend of the program's own is given, in the place of
            `torch._dynamo.config.recompile_limit`.
        isolate_recompiles: accepted; what is recorded belongs to this wrapper in any case.
        disable: return `model` as it is.
    Raises: RuntimeError for an unknown mode or backend, or both of `mode` and `options`; TypeError for a "guard_filter_fn" that cannot be
        called; AssertionError if `model` cannot be called.
    """
    if model is None:
        settings: dict[str, Any] = {
            "fullgraph": fullgraph, "dynamic": dynamic, "backend": backend, "mode": mode, "name": name,
            "recompile_limit": recompile_limit, "isolate_recompiles": isolate_recompiles, "shapes_spec": shapes_spec,
        }  # fmt: skip
        return lambda found: compile(found, options=options, disable=disable, **settings)
    chosen = _check_settings(get_default_backend() if backend is None else backend, mode, options)
    chosen = chosen._replace(dynamic=dynamic)
    if recompile_limit is not None:
        chosen = chosen._replace(recompile_limit=recompile_limit)
    if disable:
        return model
    from .._dynamo import eval_frame

    assert callable(model), f"compile: model must be a function or Module, got {type(model).__name__}"
    return eval_frame.optimized(model, chosen, fullgraph)


def _check_settings(backend: Any, mode: Any, options: Any) -> _backends.Backend:
    if mode is not None and options is not None:
        raise RuntimeError("compile: either mode or options can be given, not both")
    if mode is not None and backend == "inductor" and mode not in _MODES:  # other backends have modes of their own
        raise RuntimeError(f"compile: unknown mode {mode!r}, it is one of {', '.join(_MODES)}")
    if options is not None and "guard_filter_fn" in options:
        options = dict(options)
        asked = options.pop("guard_filter_fn")
        if not callable(asked):
            raise TypeError(f"compile: options['guard_filter_fn'] must be a function of a list of guards, got {type(asked).__name__}")
    return _backends.chosen(backend, mode, options)


_default_backend: Any = "inductor"


def set_default_backend(backend: str | Callable[..., Any] | None) -> None:
    """Let `compile` use `backend` where none is named; None: "inductor" again. A name is looked up when it is used.

    Raises: TypeError for what is neither a name nor a function.

    >>> fb.compiler.set_default_backend("eager")
    >>> fb.compiler.get_default_backend()
    'eager'
    >>> fb.compiler.set_default_backend(None)
    """
    global _default_backend
    if backend is not None and not isinstance(backend, str) and not callable(backend):
        raise TypeError(f"set_default_backend: backend must be a string or callable, got {type(backend)}")
    _default_backend = "inductor" if backend is None else backend


def get_default_backend() -> str | Callable[..., Any]:
    """The backend that `compile` uses where none is named."""
    return _default_backend


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Let processes agree on whether guards hold: there are none, so it makes no difference. Returns what was set before."""
    global _guard_collectives
    before, _guard_collectives = _guard_collectives, bool(enabled)
    return before


_guard_collectives = False


def load_compiled_function(file: Any, *, f_globals: Any = None, external_data: Any = None) -> Any:
    """A function that `aot_compile` made and `save_compiled_function` wrote, from `file`, which is open for reading bytes.

    The file is data: loading it executes nothing. It has all tensors, so `f_globals` and `external_data` are accepted and not looked at.
    Raises: RuntimeError for a file that holds no such function.
    """
    from .._dynamo import aot_compile

    return aot_compile.load_compiled_function(file)


def reset() -> None:
    """Forget what was compiled and recorded."""
    from . import _functions

    _functions.reset_all()


def list_backends(exclude_tags: Iterable[str] | None = ("debug", "experimental")) -> list[str]:
    """The names of backends, sorted, without those of the excluded tags."""
    return _backends.names(frozenset(exclude_tags or ()))


def allow_in_graph(fn: Any) -> Any:
    """`fn`, a function or several: graphs for backends of a program's own have calls of it as one node.

    To know what it gives, it is called with tensors without memory once for each graph.
    Raises: AssertionError if it cannot be called.
    """
    from . import _marked

    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(one) for one in fn]
    assert callable(fn), f"allow_in_graph: fn must be a function, got {type(fn).__name__}"
    _marked.allow(fn)
    return fn


def assume_constant_result(fn: Any) -> Any:
    """`fn`: a compiler may take its result to be the same in every call."""
    fn._dynamo_marked_constant = True
    return fn


def substitute_in_graph(
    original_fn: Callable[..., Any], *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function stands in for `original_fn` when a compiler meets it. Returns it as it is.

    `can_constant_fold_through` (results of constants are constants) and `skip_signature_check` speak to the compiler.
    Functions are not traced here, but run, so `original_fn` itself is called.
    Raises: TypeError if either is no function, or they have other parameters; ValueError if something stands in for `original_fn` already.
    """
    if not callable(original_fn) or isinstance(original_fn, type):
        raise TypeError(f"substitute_in_graph: original_fn must be a function, got {original_fn!r}")

    def wrapper(traceable_fn: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(traceable_fn) or isinstance(traceable_fn, type):
            raise TypeError(f"substitute_in_graph: expected a function, got {traceable_fn!r}")
        if not skip_signature_check:
            _check_parameters(original_fn, traceable_fn)
        if id(original_fn) in _substituted:
            raise ValueError(f"substitute_in_graph: something stands in for {original_fn!r} already")
        _substituted[id(original_fn)] = original_fn
        return traceable_fn

    return wrapper


_substituted: dict[int, Any] = {}  # functions that something stands in for, by id


def _check_parameters(original_fn: Any, traceable_fn: Any) -> None:
    """Raise TypeError unless both have parameters of the same names, kinds and defaults; those of a builtin may be unknown."""
    import inspect

    try:
        expected, found = inspect.signature(original_fn), inspect.signature(traceable_fn)
    except (TypeError, ValueError):  # a builtin without a signature
        return
    # Whether a name may be given as a keyword makes no difference, as with functions written in C.
    either = {inspect.Parameter.POSITIONAL_ONLY: inspect.Parameter.POSITIONAL_OR_KEYWORD}
    first, second = ([(p.name, either.get(p.kind, p.kind)) for p in s.parameters.values()] for s in (expected, found))
    defaults, others = ([p.default for p in s.parameters.values()] for s in (expected, found))
    if first != second or any(a is not b and a != b for a, b in zip(defaults, others, strict=True)):
        raise TypeError(f"substitute_in_graph: {traceable_fn!r} has the parameters {found}, and {original_fn!r} has {expected}")


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """`fn` behind a wrapper: within compiled functions it runs as it is, and nothing in it is recorded. Without `fn`, a decorator.

    `recursive` says that what `fn` calls is left out too, which it is anyway; `reason` why.
    A module is returned as it is, after its `forward` was marked. Raises: AssertionError if it cannot be called.
    """
    if fn is None:
        return lambda found: disable(found, recursive, reason=reason)
    assert callable(fn), f"fn must be callable, got {type(fn).__name__}"
    if isinstance(fn, type) or hasattr(fn, "forward"):
        return fn

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        from . import _functions

        with _functions.not_recorded(why):
            return fn(*args, **kwargs)

    why = f"a call of {getattr(fn, '__name__', fn)}, which compiling leaves out{f': {reason}' if reason else ''}"
    wrapper._torchdynamo_disable = True  # type: ignore[attr-defined]
    wrapper._torchdynamo_orig_callable = fn  # type: ignore[attr-defined]
    return wrapper


def nested_compile_region(fn: Any = None, **settings: Any) -> Any:
    """`fn`: a compiler shall compile it once and use the result in every place. Without `fn`, a decorator."""
    return (lambda found: found) if fn is None else fn


class set_stance:  # PyTorch's name
    """Say what compiled functions do: a call, a context or a decorator.

    Args:
        stance: "default"; "force_eager" runs functions as they are; where a backend of the program's own would be given a graph, the first
            or another one, "eager_on_recompile" computes without it, and "fail_on_recompile" raises RuntimeError; "eager_then_compile" and
            "aot_eager_then_compile" run the first call of a function as it is, and give later ones to such a backend.
        force_backend: the backend for all compiled functions, only with the stance "default".
        skip_guard_eval_unsafe: accepted; there are no guards.
    Raises: RuntimeError for another stance, or `force_backend` with one that is not "default", or in a compiled function.
    """

    now: tuple[str, _backends.Backend | None] = ("default", None)  # the stance in force, and the backend for all

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None) -> None:
        if stance not in _STANCES:
            raise RuntimeError(f"set_stance: unknown stance {stance!r}, it is one of {', '.join(_STANCES)}")
        if force_backend is not None and stance != "default":
            raise RuntimeError(f"set_stance: force_backend goes with the stance 'default' alone, not with {stance!r}")
        self.wanted = stance, None if force_backend is None else _check_settings(force_backend, None, None)
        self._before = set_stance.now
        self.__enter__()

    def __enter__(self) -> None:
        if is_dynamo_compiling():
            raise RuntimeError("set_stance: a compiled function cannot change the stance; set it where the function is called")
        set_stance.now = self.wanted

    def __exit__(self, *error: Any) -> None:
        set_stance.now = self._before

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        self.__exit__()

        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._before = set_stance.now
            with self:
                return fn(*args, **kwargs)

        return wrapper


def cudagraph_mark_step_begin() -> None:
    """Tell recorded CUDA graphs that a new step begins: there are none."""


def is_compiling() -> bool:
    """Whether this thread is in a compiled function, or exports one."""
    return _state.local.calls.compiling or _state.local.exporting


def is_dynamo_compiling() -> bool:
    """Whether this thread is in a compiled function."""
    return _state.local.calls.compiling


def is_exporting() -> bool:
    """Whether this thread exports the code: `flambeau.export.export` runs it to record it."""
    return _state.local.exporting


class CacheInfo:
    """What artifacts hold: by kind, the keys of its entries in the cache. All of ours are compiled kernels, "inductor".

    >>> fb.compiler.CacheInfo().empty()
    True
    """

    def __init__(self, kernels: list[str] | None = None) -> None:
        self.artifacts: dict[str, list[str]] = {"inductor": list(kernels)} if kernels else {}

    @property
    def inductor_artifacts(self) -> list[str]:
        """Keys of compiled kernels."""
        return self.artifacts.get("inductor", [])

    def empty(self) -> bool:
        """Whether there are none."""
        return not any(self.artifacts.values())

    def __repr__(self) -> str:
        return f"CacheInfo(artifacts={self.artifacts})"


def _objects() -> Any:
    """The cache of compiled kernels on disk; None where nothing is compiled, or none is kept."""
    from flambeau_kernels.engine.machine_code import llvm

    if llvm.available() is not None:
        return None
    found = llvm.disk()
    return found if found.why_off is None else None


def save_cache_artifacts() -> tuple[bytes, CacheInfo] | None:
    """The kernels that this process has compiled or read from the cache, for a cache elsewhere, and what they are.

    Returns: bytes for `load_cache_artifacts`; None if there are no kernels, or no cache (``FLAMBEAU_CACHE=off``).
    """
    cache = _objects()
    raw, keys = (b"", []) if cache is None else cache.bundled()
    return (raw, CacheInfo(keys)) if keys else None


def load_cache_artifacts(serialized_artifacts: bytes) -> CacheInfo | None:
    """Put kernels that another process saved into the cache; those of another processor or version lie there unused.

    They are machine code, which is executed: load only bytes that you trust.

    Returns: what they are; None, with a warning, for damaged bytes and where there is no cache.
    Raises: TypeError for anything but bytes.
    """
    if not isinstance(serialized_artifacts, (bytes, bytearray, memoryview)):
        raise TypeError(f"load_cache_artifacts(): expected bytes, but got {type(serialized_artifacts).__name__}")
    cache = _objects()
    keys = None if cache is None else cache.unbundle(bytes(serialized_artifacts))
    if keys is None:
        import warnings

        reason = "there is no cache of compiled kernels" if cache is None else "the bytes are damaged, or no artifacts"
        warnings.warn(f"load_cache_artifacts: {reason}; nothing was loaded", stacklevel=2)
        return None
    return CacheInfo(keys)


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, which takes and returns numpy arrays, as a function of tensors."""
    from ..ops.creation.shared_memory import as_tensor
    from ..tensor import Tensor
    from ..utils._pytree import tree_map

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        arrays = tree_map(lambda x: x.numpy() if isinstance(x, Tensor) else x, (args, kwargs))
        result = fn(*arrays[0], **arrays[1])
        return tree_map(lambda x: as_tensor(x) if hasattr(x, "__array__") else x, result)

    return wrapper


__getattr__, __dir__ = names_on_demand(__name__, {
    "._guard_filters": (
        "keep_portable_guards_unsafe", "keep_tensor_guards_unsafe", "skip_all_guards_unsafe", "skip_guard_on_all_nn_modules_unsafe",
        "skip_guard_on_globals_unsafe", "skip_guard_on_inbuilt_nn_modules_unsafe",
    ),
})  # fmt: skip

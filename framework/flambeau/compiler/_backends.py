"""Backends of `compile`, by name: this package's own, those that programs register, and entry points `torch_dynamo_backends`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

__all__ = ["Backend", "chosen", "lookup_backend", "names", "register_backend"]


class Backend(NamedTuple):
    """A backend: `maker` makes a function of a GraphModule and example inputs; None for what this package computes itself.

    Of the latter, `replays` says that programs run without the Python that recorded them, `verify_every` how often that is checked,
    `freezes` that what follows from tensors that are no arguments is computed once, and `tunes` that calls are timed with fused kernels
    and without. Of the former, `recompile_limit` says how many graphs of one part of a function there are, None as the settings say, and
    `dynamic` whether sizes are inputs of graphs: at once, never, or None where they have changed.
    """

    name: str
    maker: Callable[..., Any] | None
    replays: bool = False
    verify_every: int = 0
    freezes: bool = False
    tunes: bool = False
    recompile_limit: int | None = None
    dynamic: bool | None = None


def _eager(gm: Any, example_inputs: Any, **settings: Any) -> Any:
    return gm.forward


def _late(name: str, *given: str) -> Callable[..., Any]:
    """A backend of `_debug_backends`, which is imported when it is given a graph."""

    def backend(gm: Any, example_inputs: Any, **settings: Any) -> Any:
        from . import _debug_backends

        found = getattr(_debug_backends, name)
        return (found(*given) if given else found)(gm, example_inputs)

    return backend


_DEBUG = ("debug",)
# By name, the function and the tags. The ones without a function fuse what they can and compute the rest as always.
_found: dict[str, tuple[Callable[..., Any] | None, tuple[str, ...]]] = {
    "eager": (_eager, _DEBUG), "aot_eager": (None, _DEBUG), "cudagraphs": (None, ()), "inductor": (None, ()),
    **dict.fromkeys(("eager_noexcept", "eager_debug", "pre_dispatch_eager", "aot_eager_default_partitioner"), (_eager, _DEBUG)),
    **dict.fromkeys(("aot_eager_decomp_partition", "aot_eager_decomp_partition_with_mode"), (_eager, _DEBUG)),
    "relu_compile_error_TESTING_ONLY": (_late("relu_compile_error"), _DEBUG),
    "relu_runtime_error_TESTING_ONLY": (_late("relu_runtime_error"), _DEBUG),
    "relu_accuracy_error_TESTING_ONLY": (_late("relu_accuracy_error"), _DEBUG),
    "openxla": (_late("of_another_package", "torch_xla"), ()), "openxla_eval": (_late("of_another_package", "torch_xla"), _DEBUG),
    "tvm": (_late("of_another_package", "apache-tvm"), ()),
}  # fmt: skip
_GROUP = "torch_dynamo_backends"


def _installed() -> dict[str, Any]:
    """The entry points of installed packages, by name."""
    from importlib.metadata import entry_points  # takes 10 ms to import

    return {entry.name: entry for entry in entry_points(group=_GROUP)}


def names(without: frozenset[str] = frozenset()) -> list[str]:
    """Names of the backends that have none of the tags `without`."""
    return sorted(set(_installed()) | {name for name, (_, tags) in _found.items() if not without.intersection(tags)})


def register_backend(compiler_fn: Any = None, name: str | None = None, tags: Iterable[str] = ()) -> Any:
    """Let `compile` find a function ``(graph_module, example_inputs)`` under `name`, its own by default. A decorator without it.

    Raises: AssertionError if it cannot be called, or the name is taken.
    """
    if compiler_fn is None:
        return functools.partial(register_backend, name=name, tags=tags)
    assert callable(compiler_fn), f"register_backend: compiler_fn must be a function, got {type(compiler_fn).__name__}"
    name = name or compiler_fn.__name__
    assert name not in _found, f"register_backend: there is a backend {name!r} already"
    _found[name] = compiler_fn, tuple(tags)
    return compiler_fn


def lookup_backend(compiler_fn: Any) -> Any:
    """The function ``(graph_module, example_inputs)`` of a backend, by name; a function as it is.

    Raises: InvalidBackend for a name that nothing goes by.
    """
    found = _function_of(compiler_fn)
    if found is not None:
        return found
    return _inductor if compiler_fn in ("inductor", "cudagraphs") else _eager


def _inductor(gm: Any, example_inputs: Any, **settings: Any) -> Any:
    from .._inductor.compile_fx import compile_fx

    return compile_fx(gm, example_inputs)


# Settings that name functions of graphs, for which there have to be some.
_PASSES = (
    "pre_grad_custom_pass", "joint_custom_pre_pass", "joint_custom_post_pass", "post_grad_custom_pre_pass", "post_grad_custom_post_pass",
)  # fmt: skip


def _with_passes(gm: Any, example_inputs: Any, passes: dict[str, Any]) -> Any:
    from .._inductor.compile_fx import compile_fx

    return compile_fx(gm, example_inputs, config_patches=passes)


def _function_of(compiler_fn: Any) -> Any:
    """As `lookup_backend`; None for what this package computes itself."""
    if not isinstance(compiler_fn, str):
        return compiler_fn
    if compiler_fn not in _found:
        entries = _installed()
        if compiler_fn not in entries:
            from .._dynamo.exc import InvalidBackend

            raise InvalidBackend(compiler_fn)
        _found[compiler_fn] = entries[compiler_fn].load(), ()
    return _found[compiler_fn][0]


def chosen(backend: Any, mode: Any, options: Any) -> Backend:
    """The backend that `compile` was asked for; one that is a function is given the mode or options, where they were given."""
    if isinstance(backend, Backend):
        return backend
    maker = _function_of(backend)
    if isinstance(backend, str) and backend in ("eager", "aot_eager"):
        return Backend(backend, None)                 # graphs that are run as they are compute what the function does
    if maker is None:
        return _own(backend, mode, options or {})
    if not isinstance(backend, str):
        if options:
            maker = functools.partial(maker, options=options)
        elif mode not in (None, "default"):
            maker = functools.partial(maker, mode=mode)
    name = backend if isinstance(backend, str) else getattr(backend, "__name__", type(backend).__name__)
    return Backend(name, maker)


def _own(name: str, mode: Any, options: dict[str, Any]) -> Backend:
    """A backend of this package with a mode, or with options.

    Raises: RuntimeError for options that are neither `verify_every` nor settings of `_inductor.config`.
    """
    from .._inductor import config

    options = {option.replace("-", "_"): value for option, value in options.items()}
    for option, value in options.items():
        if option == "verify_every":
            continue
        if not config.is_setting(option):
            raise RuntimeError(
                f"Unexpected optimization option {option}, known options are verify_every and the settings of torch._inductor.config, "
                "which torch._inductor.list_options() lists"
            )
        expected = config.get_type(option)
        if expected is not Any and not isinstance(value, expected):
            raise RuntimeError(f"Unexpected type of attr {option}, got {type(value).__name__} should be {expected.__name__}")
    every = options.get("verify_every", 0)
    if every.__class__ is not int or every < 0:
        raise RuntimeError(f"compile: options['verify_every'] must be a number of calls, 0 or more, got {every!r}")
    freezes = bool(options.get("freezing", config.freezing))
    replays = mode != "max-autotune-no-cudagraphs" and bool(options.get("triton.cudagraphs", config.triton.cudagraphs))
    passes = {name: options.get(name, getattr(config, name)) for name in _PASSES}
    if any(one is not None for one in passes.values()):
        return Backend(name, functools.partial(_with_passes, passes=passes))
    tunes = mode in ("max-autotune", "max-autotune-no-cudagraphs") or bool(options.get("max_autotune", config.max_autotune))
    return Backend(name, None, mode == "reduce-overhead" or every > 0 or replays or freezes, every, freezes, tunes)

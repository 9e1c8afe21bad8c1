"""Calling a module with other parameters and buffers than its own."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import flambeau as fb

__all__ = ["functional_call"]

Tensor = fb.Tensor
_ABSENT = object()


def functional_call(
    module: Any,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Deprecated in favour of `flambeau.func.functional_call`, which does the same.

    Arguments as for `func.functional_call`; `parameters_and_buffers` is one dict.
    """
    warnings.warn(
        "nn.utils.stateless.functional_call is deprecated; use flambeau.func.functional_call",
        FutureWarning,
        stacklevel=2,
    )
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)


def _functional_call(
    module: Any,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call `module` with the given tensors in place of those at their paths.

    Args:
        parameters_and_buffers: tensors by path. A buffer that the call replaces is replaced here.
        args: the positional arguments, a tuple, or a single one.
        tie_weights: whether a tensor given for one path of a shared parameter counts for its other paths.
        strict: whether every parameter and buffer must be given, and nothing else.
    Raises: ValueError if tied paths are given different tensors; RuntimeError for missing or unexpected paths.
    """
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights=tie_weights, strict=strict):
        return module(*args, **({} if kwargs is None else kwargs))


@contextlib.contextmanager
def _reparametrize_module(
    module: Any, parameters_and_buffers: dict[str, Tensor], *, tie_weights: bool = False, strict: bool = False
) -> Iterator[None]:
    """For a while, the given tensors stand at their paths in `module`."""
    given = _with_tied(module, parameters_and_buffers) if tie_weights else dict(parameters_and_buffers)
    if strict:
        _check_complete(module, given)
    homes = {path: _home(module, path) for path in given}
    originals = {path: registry.get(name, _ABSENT) for path, (registry, name) in homes.items()}
    try:
        for path, (registry, name) in homes.items():
            registry[name] = given[path]
        yield
    finally:
        for path, (registry, name) in homes.items():
            if path in parameters_and_buffers:
                parameters_and_buffers[path] = registry[name]
            if originals[path] is _ABSENT:
                del registry[name]
            else:
                registry[name] = originals[path]


def _with_tied(module: Any, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """`given`, extended to all other paths of the same parameters and buffers."""
    paths_of: dict[int, list[str]] = {}
    for named in (module.named_parameters, module.named_buffers):
        for path, tensor in named(remove_duplicate=False):
            paths_of.setdefault(id(tensor), []).append(path)
    extended = dict(given)
    for paths in paths_of.values():
        tensors = {path: given[path] for path in paths if path in given}
        if len({id(t) for t in tensors.values()}) > 1:
            raise ValueError(
                f"functional_call: {', '.join(tensors)} are the same parameter but were given different "
                "tensors; "
                "pass tie_weights=False to let them differ"
            )
        for path in paths if tensors else ():
            extended[path] = next(iter(tensors.values()))
    return extended


def _home(module: Any, path: str) -> tuple[dict[str, Any], str]:
    """The registry that holds the tensor at `path`, and its name there.

    What is no member goes to the plain attributes.
    """
    owner_path, _, name = path.rpartition(".")
    owner = module.get_submodule(owner_path)
    for registry in (owner._parameters, owner._buffers):
        if name in registry:
            return registry, name
    return owner.__dict__, name


def _check_complete(module: Any, given: dict[str, Tensor]) -> None:
    expected = {path for path, _ in module.named_parameters(remove_duplicate=False)}
    expected |= {path for path, _ in module.named_buffers(remove_duplicate=False)}
    unexpected, missing = sorted(given.keys() - expected), sorted(expected - given.keys())
    if unexpected or missing:
        parts = [
            f"{title} key(s): {', '.join(map(repr, keys))}"
            for title, keys in (("Unexpected", unexpected), ("Missing", missing))
            if keys
        ]
        raise RuntimeError(
            f"Error(s) in reparametrizing for {type(module).__name__}:\n\t" + "\n\t".join(parts)
        )

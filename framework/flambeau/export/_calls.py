"""Which modules are being called while a program is recorded: each node keeps the calls that it is part of."""

from __future__ import annotations

import contextlib
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from ..nn import Module
from ..utils import _pytree as pytree

__all__ = ["Call", "Calls", "real_path"]


class Call(NamedTuple):
    """One call of a module whose signature is kept: nodes and constants of its inputs and results, and their structures."""

    inputs: list[Any]
    in_spec: Any
    outputs: list[Any]
    out_spec: Any


def real_path(name: str) -> str:
    """The path of the module that the call `name` is of: ``a@1.b`` is a call of ``a.b``."""
    return ".".join(part.partition("@")[0] for part in name.split("."))


class Calls:
    """Watches calls of the modules of `root` while a recorder runs.

    A call goes by its module's path, with ``@n`` after the part that is called again within the same call; a module that another
    one than its owner calls is part of that one's call.

    Args:
        kept: paths of modules whose calls are kept in `signatures`, by name of the call.
    """

    def __init__(self, root: Module, kept: Collection[str]) -> None:
        self._paths = {id(module): path for path, module in root.named_modules()}
        missing = [path for path in kept if path not in self._paths.values()]
        if missing:
            raise AttributeError(f"export: preserve_module_call_signature names {missing[0]!r}, which is no submodule")
        self._kept, self._modules = frozenset(kept), list(root.modules())
        self._stack: list[str | None] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self.signatures: dict[str, Call] = {}

    @contextlib.contextmanager
    def watched(self, recorder: Any) -> Iterator[None]:
        """A region in which nodes that `recorder` makes know which calls they are part of."""
        tracer = recorder.tracer
        tracer.module_stack, tracer.record_stack_traces = OrderedDict(), True
        given: list[Any] = []

        def enter(module: Module, args: Any, kwargs: Any) -> None:
            name = self._name_of(module)
            self._stack.append(name)
            if name is not None:
                kind = f"{type(module).__module__}.{type(module).__qualname__}"
                tracer.module_stack[f"L__self__{name}"] = name, kind
            if name and real_path(name) in self._kept:
                leaves, spec = pytree.tree_flatten((args, kwargs))
                given.append(([recorder._argument(x) for x in leaves], spec))

        def leave(module: Module, args: Any, kwargs: Any, result: Any) -> None:
            name = self._stack.pop()
            if name is not None:
                tracer.module_stack.popitem()
            if name and real_path(name) in self._kept:
                leaves, spec = pytree.tree_flatten(result)
                inputs, in_spec = given.pop()
                self.signatures[name] = Call(inputs, in_spec, [recorder._argument(x) for x in leaves], spec)

        hooks = []
        for module in self._modules:
            hooks.append(module.register_forward_pre_hook(enter, prepend=True, with_kwargs=True))
            hooks.append(module.register_forward_hook(leave, with_kwargs=True, always_call=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            tracer.module_stack = OrderedDict()

    def _name_of(self, module: Module) -> str | None:
        """What the call goes by; None where it is part of its caller's."""
        path = self._paths.get(id(module))
        if path is None or not self._stack:
            return path
        caller = next(name for name in reversed(self._stack) if name is not None)
        prefix = f"{real_path(caller)}." if caller else ""
        if not path.startswith(prefix) or path == real_path(caller):
            return None
        within = path[len(prefix) :]
        count = self._counts[caller, within]
        self._counts[caller, within] += 1
        name = f"{within}@{count}" if count else within
        return f"{caller}.{name}" if caller else name

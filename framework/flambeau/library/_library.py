"""Libraries: namespaces that operators are defined in, and their kernels."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from .. import _missing, _ops
from .._schema import parse_schema
from .._tags import Tag
from .._warn import warn
from ..devices import device as _device
from ._operator import DEVICE_KEYS, EXPLICIT, FALLBACKS, IMPLICIT, KEYS, UNBUILT_KEYS, Kernel, Operator

__all__ = ["Library", "define", "fallthrough_kernel", "impl", "operator_of", "parse_qualname"]

# Namespaces that have their one library of kind "DEF"; PyTorch's own have theirs.
_defining = {"aten": "PyTorch's operators", "prims": "PyTorch's operators"}
# Kernels of operators that are not defined yet, by full name: what to do when they are.
_waiting: dict[str, list[Callable[[Operator], None]]] = {}
_kept: list[Library] = []  # libraries that functions of this package have made, which live as long as the process


def fallthrough_kernel() -> None:
    """What to register for a dispatch key that passes calls on. Raises: NotImplementedError when it is called."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


class Library:
    """A namespace to define operators in, or to register kernels of its operators; what it has registered ends with it.

    Args:
        ns: the namespace; "_" for fallbacks.
        kind: "DEF" for the one library that defines the namespace, "FRAGMENT" for one that defines further operators of it, "IMPL" for
            one that registers kernels.
        dispatch_key: the key that kernels are registered for where a call names none.
    Raises: ValueError for another kind, or the reserved namespace prim; RuntimeError for a second "DEF" of a namespace.

    >>> lib = fb.library.Library("docs_of_library", "DEF")
    >>> lib.define("double(Tensor x) -> Tensor")
    'double'
    >>> lib.impl("double", lambda x: x * 2, "CPU")
    >>> fb.ops.docs_of_library.double(fb.ones(2))
    tensor([2., 2.])
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("DEF", "FRAGMENT", "IMPL"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns == "prim" and kind != "IMPL":
            raise ValueError(f"Library: {ns} is a reserved namespace; give the library another name")
        if kind == "DEF":
            if ns in _defining:
                raise RuntimeError(
                    f"Only a single TORCH_LIBRARY can be used to register the namespace {ns}; please put all of your definitions in a "
                    "single Library(ns, 'DEF'). For implementations use the kind 'IMPL', and 'FRAGMENT' to define operators of one "
                    f"namespace in several places. It is defined by {_defining[ns]}"
                )
            _defining[ns] = f"the library of kind 'DEF' made first for {ns}"
        self.ns, self.kind, self.dispatch_key = ns, kind, _checked_key(dispatch_key) if dispatch_key else ""
        self._undo: list[Callable[[], None]] = []
        if kind == "DEF":
            self._undo.append(lambda: _forget_definition(ns))
        self._finalizer = weakref.finalize(self, _undo_all, self._undo)
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Tag | Sequence[Tag] = ()) -> str:
        """Define the operator of a schema. Returns: its name.

        Args:
            schema: ``name.overload(Tensor x, ...) -> Tensor``; the namespace is the library's.
            alias_analysis: "" or "CONSERVATIVE".
            tags: what is known of the operator.
        Raises: RuntimeError for a schema that cannot be read, an operator defined already, or a library of kind "IMPL".
        """
        return self._define(schema, alias_analysis, tags=tags).opname

    def _define(self, schema: str, alias_analysis: str = "", *, tags: Any = (), opaque: bool = False) -> Operator:
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        tags = (tags,) if isinstance(tags, Tag) else tuple(tags)
        for tag in tags:
            if not isinstance(tag, Tag):
                raise TypeError(f"define: tags are torch.Tag, but got {tag!r}")
        parsed = parse_schema(schema)
        namespace, _, name = parsed.name.rpartition("::")
        if self.kind == "IMPL":
            raise RuntimeError(
                f'def("{name}"): Cannot define an operator inside of a library of kind "IMPL". Define it in a library of kind "DEF" or '
                '"FRAGMENT"'
            )
        if namespace not in ("", self.ns):
            raise RuntimeError(
                f'def("{schema}"): Explicitly provided namespace ({namespace}) in schema string does not match namespace of enclosing '
                f"library ({self.ns})"
            )
        parsed.name = f"{self.ns}::{name}"
        overload = parsed.overload_name or "default"
        registered = getattr(_ops.ops, self.ns)._registered.get(name, {})
        if overload in registered:
            raise RuntimeError(
                f"Tried to register an operator ({parsed}) with the same name and overload name multiple times. Each overload's schema "
                "should only be registered with a single call to define(). The schema there is "
                f"{getattr(registered[overload], 'schema', 'a function without one')}"
            )
        operator = Operator(self.ns, parsed, tags, opaque)
        _ops.register(self.ns, name, operator, overload)
        self._undo.append(lambda ns=self.ns: _ops.unregister(ns, name, overload))
        for complete in _waiting.pop(f"{self.ns}::{name}.{overload}", []):
            complete(operator)
        return operator

    def impl(self, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """Register a kernel of an operator of this namespace.

        Args:
            op_name: the name, with the overload if it has one, or the overload itself.
            fn: takes what the operator takes, without what is left at its default; or `fallthrough_kernel`.
            dispatch_key: such as "CPU", "CUDA", "Meta", "Autograd", "AutocastCPU", "CompositeExplicitAutograd"; by default the library's,
                else "CompositeImplicitAutograd".
            with_keyset: whether `fn` takes the keys still to be asked first.
        Raises: TypeError if `fn` cannot be called; RuntimeError for an unknown key or another namespace; NotImplementedError for keys that
            are not built, and for PyTorch's own operators.
        """
        key = _checked_key(dispatch_key or self.dispatch_key or IMPLICIT)
        kernel = _kernel(fn, with_keyset)
        name = op_name.name() if isinstance(op_name, _ops.OpOverload) else str(op_name)
        namespace, _, rest = name.rpartition("::")
        if namespace not in ("", self.ns):
            raise RuntimeError(
                f'impl("{name}", ...): Explicitly provided namespace ({namespace}) in operator name does not match namespace of enclosing '
                f"library ({self.ns})"
            )
        if self.ns in ("aten", "prims") and rest.partition(".")[0] not in getattr(_ops.ops, self.ns)._registered:
            raise _missing.not_built(
                "library.Library.impl", f"kernels of built-in operators such as {self.ns}::{rest} cannot be replaced; define an operator"
            )
        plain, _, overload = rest.partition(".")
        self._when_defined(f"{self.ns}::{plain}.{overload or 'default'}", lambda operator: self._put(operator, key, kernel))

    def _put(self, operator: Operator, key: str, kernel: Kernel) -> None:
        if key in operator.kernels:
            warn(
                f"Overriding a previously registered kernel for the same operator and the same dispatch key\n"
                f"  operator: {operator.schema}\n"
                f"  dispatch key: {key}"
            )
        operator.kernels[key] = kernel
        self._undo.append(lambda: _take_back(operator.kernels, key, kernel))

    def _when_defined(self, qualname: str, complete: Callable[[Operator], None]) -> None:
        """Call `complete` with the operator, now or when it is defined."""
        found = _registered(qualname)
        if found is not None:
            complete(found)
        else:
            _waiting.setdefault(qualname, []).append(complete)

    def fallback(self, fn: Callable[..., Any], dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """Register what answers for a key where an operator defined by a library has no kernel for it.

        Args:
            fn: ``fn(op, *args, **kwargs)``, or `fallthrough_kernel`.
            dispatch_key: the key, by default the library's.
            with_keyset: whether `fn` takes the keys still to be asked first.
        Raises: RuntimeError if the library's namespace is not "_", TypeError if `fn` cannot be called.
        """
        key = _checked_key(dispatch_key or self.dispatch_key)
        if self.ns != "_":
            raise RuntimeError(f'Fallback can only be registered using library fragment on the global namespace "_" but it is {self.ns}')
        kernel = _kernel(fn, with_keyset)
        FALLBACKS[key] = kernel
        self._undo.append(lambda: _take_back(FALLBACKS, key, kernel))

    def _destroy(self) -> None:
        """Take back all that this library has registered."""
        self._finalizer()


def _forget_definition(ns: str) -> None:
    _defining.pop(ns, None)


def _undo_all(steps: list[Callable[[], None]]) -> None:
    while steps:
        steps.pop()()


def _take_back(table: dict[str, Kernel], key: str, kernel: Kernel) -> None:
    if table.get(key) is kernel:
        del table[key]


def _kernel(fn: Any, with_keyset: bool) -> Kernel:
    if not callable(fn):
        raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
    return Kernel(None if fn is fallthrough_kernel else fn, with_keyset)


def _checked_key(key: str) -> str:
    if key in KEYS:
        return key
    if key in UNBUILT_KEYS:
        raise _missing.not_built("library.Library", f"the dispatch key {key} means nothing here; use a device's, Autograd or Autocast")
    raise RuntimeError(f"could not parse dispatch key: {key}")


# -- operators by name ---------------------------------------------------------------------------------------------------


def parse_qualname(qualname: str) -> tuple[str, str]:
    """Namespace and name of ``namespace::name``. Raises: ValueError for what is none."""
    namespace, colons, name = qualname.partition("::")
    if not colons or "::" in name:
        raise ValueError(
            f'Expected `qualname` to be of the form "namespace::name", but got {qualname}. The qualname passed to the torch.library APIs '
            "must consist of a namespace and a name, e.g. aten::sin"
        )
    return namespace, name


def _registered(qualname: str) -> Operator | None:
    namespace, name = parse_qualname(qualname)
    plain, _, overload = name.partition(".")
    found = getattr(_ops.ops, namespace)._registered.get(plain, {}).get(overload or "default")
    return found if isinstance(found, Operator) else None


def operator_of(op: Any, caller: str) -> Operator:
    """The operator that `op` names or is.

    Args:
        op: ``namespace::name``, an overload, or what `custom_op` made.
        caller: the public function that asks, for the error.
    Raises: ValueError for what is no operator; NotImplementedError for PyTorch's own.
    """
    found = getattr(op, "_operator", None)
    if found is not None:
        return found
    if not isinstance(op, (str, _ops.OpOverload)):
        raise ValueError(f"{caller}({op}): got unexpected type for op: {type(op)}")
    name = op.name() if isinstance(op, _ops.OpOverload) else op
    made = _registered(name)
    if made is not None:
        return made
    if parse_qualname(name)[0] in ("aten", "prims"):
        raise _missing.not_built(f"library.{caller}", f"rules of built-in operators such as {name} cannot be replaced; define an operator")
    raise RuntimeError(f"{caller}({name}): there is no such operator; define it first, with torch.library.define or custom_op")


def library_for(qualname: str, lib: Library | None) -> Library:
    """The library that keeps a registration: `lib`, or one that lives as long as the process."""
    if lib is not None:
        return lib
    made = Library(parse_qualname(qualname)[0], "FRAGMENT")
    _kept.append(made)
    return made


def define(qualname: Any, schema: str, *rest: Any, lib: Library | None = None, tags: Tag | Sequence[Tag] = (), **kwargs: Any) -> Any:
    """Define an operator: ``define("ns::name", "(Tensor x) -> Tensor")``, or ``define(lib, schema)`` as a decorator of its kernel.

    Args:
        qualname: ``namespace::name``, or a `Library`.
        schema: the schema without the name; with it after a `Library`.
        lib: the library whose life the operator shares; without it it lives as long as the process.
        tags: what is known of the operator.
    Raises: ValueError for a name or schema of another form; RuntimeError as `Library.define` does.

    >>> fb.library.define("docs_of_define::half", "(Tensor x) -> Tensor")
    >>> fb.library.impl("docs_of_define::half", "cpu", lambda x: x / 2)
    >>> fb.ops.docs_of_define.half(fb.ones(2))
    tensor([0.5000, 0.5000])
    """
    if isinstance(qualname, Library):
        return _define_and_implement(qualname, schema, *rest, **kwargs)
    if rest or kwargs:
        raise TypeError("define(qualname, schema) takes lib= and tags= beside them")
    if not isinstance(qualname, str):
        raise ValueError(f"define(qualname, schema): expected qualname to be instance of str, got {type(qualname)}")
    _, name = parse_qualname(qualname)
    if not schema.lstrip().startswith("("):
        raise ValueError(f'define(qualname, schema, ...): expected schema to look like e.g. "(Tensor x) -> Tensor" but got "{schema}"')
    library_for(qualname, lib).define(name + schema, tags=tags)
    return None


def _define_and_implement(lib: Library, schema: str, alias_analysis: str = "") -> Any:
    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        operator = lib._define(schema, alias_analysis)
        lib.impl(operator.overload, fn)
        return fn

    return decorate


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Library | None = None, **kwargs: Any) -> Any:
    """Register a kernel for kinds of devices: ``impl("ns::name", "cpu")``, or ``impl(lib, name, dispatch_key)``; also a decorator.

    Args:
        qualname: ``namespace::name``, or a `Library`.
        types: "cpu", "cuda" and others, several of them, or "default" for all; the operator's name after a `Library`.
        func: the kernel; the dispatch key after a `Library`.
        lib: the library whose life the kernel shares.
    Raises: RuntimeError for what is no kind of device.
    """
    if isinstance(qualname, Library):
        key = kwargs.get("dispatch_key", func or "")

        def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
            qualname.impl(types, fn, key)
            return fn

        return decorate
    keys = [EXPLICIT if t == "default" else device_key(t) for t in ((types,) if isinstance(types, str) else types)]
    place = library_for(qualname, lib)

    def register(fn: Callable[..., Any]) -> None:
        for key in keys:
            place.impl(qualname, fn, key)

    return register if func is None else register(func)


def device_key(kind: str) -> str:
    """The dispatch key of a kind of device. Raises: RuntimeError for what is none."""
    return DEVICE_KEYS[_device(kind).type]

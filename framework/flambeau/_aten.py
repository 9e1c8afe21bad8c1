"""The operators of `torch.ops.aten`: their schemas, the public function that computes each, and which of them an op is.

Names, overloads and schemas are PyTorch's (`aten_index.json`, written by `.ci/make_aten_index.py`). An op is the operator of its
public name, or the one that its declaration names (`operator=`); the overload follows from the arguments of a call.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import math
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _missing, _state
from ._symbolic import SymBool, SymFloat, SymInt
from ._tags import Tag
from .devices import device

__all__ = ["Call", "call", "function_of", "index", "is_composition", "name_of", "operator_of", "public_function_of", "schema", "tags"]

_REDUCTIONS = ("none", "mean", "sum")  # as operators number them


@functools.cache
def index() -> dict[str, dict[str, str]]:
    """By operator and overload the schema less its name, marked as `.ci/make_aten_index.py` says."""
    return _read("aten_index.json")


@functools.cache
def _tagged() -> dict[str, frozenset[str]]:
    """The overloads of each tag; of `pt2_compliant_tag` those that lack it."""
    return {tag: frozenset(names.split()) for tag, names in _read("aten_tags.json").items()}


def _read(name: str) -> Any:
    import json  # few programs ask

    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return json.load(file)


def tags(name: str, overload: str) -> list[Tag]:
    """What is known of an overload, in the order of `Tag`."""
    full = f"{name}.{overload}"
    return [tag for tag in Tag if (full in _tagged().get(tag.name, ())) != (tag is Tag.pt2_compliant_tag)]


@functools.cache
def is_pointwise(op: Any) -> bool:
    """Whether each element of what the op makes depends on one element of each operand alone, as they broadcast."""
    if op.elements:
        return op.elements == "mapped"
    name = name_of(op)
    # Of `max` some overloads are; `equal` is so on the way to its answer.
    kinds = [tags(name, overload) for overload in index()[name] if not overload.endswith("out")] if name is not None else []
    return bool(kinds) and all(Tag.pointwise in kind and Tag.data_dependent_output not in kind for kind in kinds)


@functools.cache
def random_names() -> frozenset[str]:
    """Names of all functions and operators that draw random numbers: by their declaration, or the tag of the operator."""
    from .ops import _derive
    from .ops._spec import OPS

    _derive.load_all()
    tagged = {full.partition(".")[0].removesuffix("_") for full in _tagged()[Tag.nondeterministic_seeded.name]}
    return frozenset({op.name for op in OPS.values() if op.random} | tagged)


@functools.cache
def costly_names() -> frozenset[str]:
    """Names of all functions and operators that graphs do not compute a second time."""
    from .ops import _derive
    from .ops._spec import OPS

    _derive.load_all()
    return frozenset(name for op in OPS.values() if op.costly for name in (op.name, name_of(op)) if name)


@functools.cache
def schema(name: str, overload: str) -> Any:
    """The schema of an overload, as `flambeau.library` has it. Raises: AttributeError if it has none."""
    from ._schema import parse_schema

    text = index().get(name, {}).get(overload, "").lstrip("~#")
    if not text:
        raise AttributeError(f"aten.{name}.{overload} has no schema", name="_schema")
    return parse_schema(f"aten::{name}{'' if overload == 'default' else '.' + overload}{text}")


@functools.cache
def op_named(name: str) -> Any:
    """The op that is called `name`: the private one, where several are called so; None if there is none."""
    from .ops import _derive
    from .ops._spec import OPS

    _derive.load_all()
    found = [op for op in dict.fromkeys(OPS.values()) if op.name == name]
    return min(found, key=lambda op: (bool(op.surface), bool(op.namespace)), default=None)


@functools.cache
def _ops_by_operator() -> dict[str, list[Any]]:
    from .ops import _derive
    from .ops._spec import OPS

    _derive.load_all()
    found: dict[str, list[Any]] = {}
    for op in dict.fromkeys(OPS.values()):
        for name, _ in _names(op, False):
            found.setdefault(name, []).append(op)
    return found


def ops_of(name: str) -> list[Any]:
    """The ops whose calls may be of the operator `name`."""
    return _ops_by_operator().get(name, [])


@functools.cache
def schema_of(op: Any, inplace: bool = False, out: bool = False) -> Any:
    """The schema of an op as ``prims::<name>``, from its declaration: the types of arguments as far as that says them, else `Any`."""
    from ._schema import parse_schema

    given = [_declared(op, name) for name in op.positional]
    if inplace:
        given[0] = given[0].replace("Tensor ", "Tensor(a!) ", 1)
    named = [_declared(op, name) for name in op.keyword_only] + (["Tensor(a!) out"] if out else [])
    result = "Tensor" if op.kind in ("elementwise", "reduction") or op.kind == "view" and not op.several else "Any"
    if getattr(op, "returns", None):
        result = "(" + ", ".join(f"Tensor {field}" for field in op.returns) + ")"
    arguments = ", ".join(given + (["*", *named] if named else []))
    text = f"prims::{op.name}{'_' if inplace else ''}{'.out' if out else ''}({arguments}) -> {'Tensor(a!)' if inplace or out else result}"
    return parse_schema(text)


def _declared(op: Any, name: str) -> str:
    """The parameter of a declaration as a schema has it."""
    default = op.defaults.get(name, _REQUIRED)
    name = f"{name}_" if name in ("from", "as") else name
    tensors = getattr(op, "tensor_params", None) or (op.positional if op.kind == "elementwise" else op.positional[:1])
    if name in tensors:
        return f"Tensor {name}" if default is _REQUIRED else f"Tensor? {name}=None"
    if default is _REQUIRED:
        return f"Any {name}"
    kind = {bool: "bool", int: "int", float: "float", str: "str"}.get(type(default))
    if kind is None or default != default or default in (math.inf, -math.inf):
        return f"Any? {name}=None"
    return f"{kind} {name}=" + (f'"{default}"' if kind == "str" else repr(default))


def decomposed_by_pytorch(by_default: bool) -> frozenset[str]:
    """The overloads that PyTorch has decompositions of: in the table that exported programs take, or in the one that programs ask."""
    return _tagged()["decomposed by default" if by_default else "decomposed"]


def is_composition(name: str, overload: str) -> bool:
    """Whether PyTorch takes the overload apart before modes see it."""
    return index()[name][overload].startswith("~")


def call(name: str, overload: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of the operator `name`, given as its schema says. Raises: NotImplementedError if no public function computes it."""
    function = function_of(name)
    if function is None:
        raise _missing.not_built(f"ops.aten.{name}", "no public function here computes it")
    first, names = _given_by_name(name, overload)
    if len(args) > first:
        kwargs = {**dict(zip(names, args[first:], strict=False)), **kwargs}
        args = args[:first]
    return function(*args, **kwargs)


def direct(name: str, overload: str) -> tuple[Callable[..., Any] | None, int, tuple[str, ...]]:
    """What `call` calls, from which argument on it takes them by name, and the names; for texts that call it themselves."""
    function = function_of(name)
    return getattr(function, "by_position", function), *_given_by_name(name, overload)


@functools.cache
def _given_by_name(name: str, overload: str) -> tuple[int, tuple[str, ...]]:
    """From which argument on the public function of an operator takes them by name, and the names: there the orders differ."""
    positional, all_names = getattr(function_of(name), "takes", ((), ()))
    known = index().get(name, {})
    wanted = [a.name for a in schema(name, overload).arguments if not a.kwarg_only] if overload in known else []
    for at, one in enumerate(wanted):
        if at and one in all_names and positional[at : at + 1] != (one,):
            rest = wanted[at:]
            if all(other in all_names for other in rest):
                return at, tuple(rest)
            break
    return sys.maxsize, ()


# -- which operator a call of an op is -----------------------------------------------------------------------------------


class Call(NamedTuple):
    """A call of an op as that of an operator."""

    overload: Any  # of `torch.ops.aten`
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def operator_of(op: Any, args: tuple[Any, ...], out: Any = None, inplace: bool = False) -> Call | None:
    """The call of an operator that the call of `op` is; None if there is none.

    Args:
        args: a value for each parameter of the op.
    """
    kinds = tuple([_kind(a, op.defaults.get(name, _REQUIRED)) for name, a in zip(op.params, args, strict=True)])
    found = _found(op, kinds, out is not None and not inplace, inplace, _state.local.exporting)
    if found is None:
        return None
    overload, sources, read = found
    values = [value if at is None else _as_operators_take(args[at], kind) for at, value, kind in sources]
    count = len(read.positional)
    kwargs = {a.name: v for a, v in zip(read.keyword_only, values[count:], strict=False)}
    given, kwargs = read.without_defaults(tuple(values[:count]), kwargs)
    if out is not None and not inplace:
        kwargs |= _named_outs(read, out)
    return Call(overload, given, kwargs)


def call_of(name: str, given: dict[str, Any]) -> Call | None:
    """The call of the operator `name` with arguments by name, of which those that are None were not given; None if none fits."""
    from ._ops import ops

    given = {key: value for key, value in given.items() if value is not None}
    out = given.pop("out", None)
    kinds = {key: _kind(value, _REQUIRED)[0] for key, value in given.items()}
    for overload in _in_order(index().get(name, {})):
        read = schema(name, overload)
        wanted = [a for a in read.arguments if not a.is_out]
        known = {a.name for a in wanted}
        if any(a.is_out for a in read.arguments) != (out is not None) or not given.keys() <= known:
            continue
        if not all(_fits(a.type, kinds[a.name]) if a.name in given else a.has_default_value() for a in wanted):
            continue
        values = [_as_operators_take(given.get(a.name, a.default_value), a.type) for a in wanted]
        count = len(read.positional)
        kwargs = {a.name: v for a, v in zip(read.keyword_only, values[count:], strict=False)}
        args, kwargs = read.without_defaults(tuple(values[:count]), kwargs)
        return Call(getattr(getattr(ops.aten, name), overload), args, kwargs if out is None else kwargs | _named_outs(read, out))
    return None


def _in_order(overloads: dict[str, str]) -> list[str]:
    """Overloads that have a schema: where numbers are taken for tensors theirs comes first, then the one that has no name."""
    with_schema = [o for o, text in overloads.items() if len(text) > 1]
    return sorted(with_schema, key=lambda o: (not overloads[o].startswith("#"), o != "default"))


def _as_operators_take(value: Any, wanted: Any) -> Any:
    if wanted.kind == "Optional":
        wanted = wanted.inner[0]
    if value.__class__ is int and wanted.kind == "float":
        return float(value)
    if value.__class__ is str and wanted.kind == "int":
        return _REDUCTIONS.index(value)
    if value.__class__ is str and wanted.kind == "Device":
        return device(value)
    if value is not None and wanted.kind == "List" and wanted.size is not None and not isinstance(value, (list, tuple)):
        return [value] * wanted.size
    return list(value) if isinstance(value, tuple) else value


def _named_outs(read: Any, out: Any) -> dict[str, Any]:
    names = [a.name for a in read.keyword_only if a.is_write]
    return dict(zip(names, out if isinstance(out, (tuple, list)) else (out,), strict=False))


_REQUIRED = object()


def _kind(value: Any, default: Any) -> tuple[Any, bool]:
    """What decides between overloads: the class, of lists with those of the elements; and whether the value is the default."""
    if isinstance(value, _tensor_class()):
        return _tensor_class(), False
    if isinstance(value, (list, tuple)):
        return (list, frozenset([_kind(v, _REQUIRED)[0] for v in value])), False
    if isinstance(value, str) and value in _REDUCTIONS:
        return "reduction", value == default
    return type(value), type(value) is type(default) and value == default


@functools.cache
def _tensor_class() -> type:
    from .tensor import Tensor

    return Tensor


_FOUND: dict[Any, Any] = {}


def _found(op: Any, kinds: tuple[Any, ...], with_out: bool, inplace: bool, as_called: bool) -> Any:
    key = op, kinds, with_out, inplace, as_called
    if key not in _FOUND:
        _FOUND[key] = _find(op, kinds, with_out, inplace, as_called)
    return _FOUND[key]


def _find(op: Any, kinds: tuple[Any, ...], with_out: bool, inplace: bool, as_called: bool) -> Any:
    """The overload, where each argument of its schema comes from, and the schema; None if no overload takes such arguments.

    Args:
        as_called: exported programs have the operators that programs call, of which PyTorch takes some apart before modes see them.
    """
    from ._ops import ops

    names = [(*each, False) for each in _names(op, inplace)]
    if as_called and op.surface and op.operator != "":
        names.insert(0, (_plain_name(op, inplace), None, True))
    for name, template, taken_apart in names:
        overloads = index().get(name, {})
        for overload in _in_order(overloads):
            text = overloads[overload]
            if taken_apart != text.startswith("~") and (taken_apart or op.kind == "composite" and op.operator is None):
                continue
            read = schema(name, overload)
            if any(a.is_out for a in read.arguments) != with_out:
                continue
            sources = _sources(op, kinds, read, template, text.startswith("#"))
            if sources is not None:
                return getattr(getattr(ops.aten, name), overload), sources, read
    return None


def name_of(op: Any, inplace: bool = False) -> str | None:
    """The name of the operator that calls of `op` are, whatever their arguments; else that of the public function it works for; or None."""
    if op.namespace == "signal.windows":              # which are functions alone; an operator of random numbers has the name of one
        return None
    known = index()
    end = "_" if inplace else ""
    names = [name for name, _ in _names(op, inplace)]
    names += [f"{stem.replace('.', '_')}{ending}" for stem in (op.name, op.public_name) for ending in (end, "")]
    return next((name for name in names if name in known), None)


def _names(op: Any, inplace: bool) -> list[tuple[str, Any]]:
    """Names of operators that the op may be, each with the arguments that its declaration gives it, or None."""
    declared = op.operator
    if declared is not None:
        return [_template(op, text.strip(), inplace) for text in declared.split("|") if text.strip()]
    return [(_plain_name(op, inplace), None)]


def _plain_name(op: Any, inplace: bool) -> str:
    prefix = f"{op.namespace}_" if op.namespace in ("linalg", "special", "fft") else ""
    return f"{prefix}{op.name}{'_' if inplace else ''}"


def _template(op: Any, text: str, inplace: bool) -> tuple[str, Any]:
    """Of a declaration's ``name(parameter, ..., literal)`` the name, and for each argument a place or a literal."""
    name, bracket, _ = text.partition("(")
    name += "_" if inplace else ""
    if not bracket:
        return name, None
    called: Any = ast.parse(text, mode="eval").body
    places = {p: i for i, p in enumerate(op.params)}

    def source(node: Any) -> tuple[int | None, Any]:
        return (places[node.id], None) if isinstance(node, ast.Name) else (None, ast.literal_eval(node))

    return name, ([source(a) for a in called.args], {k.arg: source(k.value) for k in called.keywords})


def _sources(op: Any, kinds: tuple[Any, ...], read: Any, template: Any, numbers_as_tensors: bool) -> Any:
    """For each argument of the schema `read` the place of the parameter it is, or None and a value; and its type.

    What the operator does not take has its default in the call; else this is not the operator.
    """
    wanted = [a for a in read.arguments if not a.is_out]
    if template is not None:
        by_place, by_name = template
        if len(by_place) > len(read.positional):
            return None
        given = {a.name: s for a, s in zip(read.positional, by_place, strict=False)} | by_name
    else:
        names = {a.name for a in wanted}
        renamed = wanted[0].name if wanted and op.params and op.params[0] not in names else None
        given = {(renamed if i == 0 and renamed else n): (i, None) for i, n in enumerate(op.params)}
        given = {name: source for name, source in given.items() if name in names}
    taken = {at for at, _ in given.values()}
    if any(i not in taken and not kinds[i][1] for i in range(len(op.params))):
        return None
    sources = []
    for argument in wanted:
        if argument.name not in given and not argument.has_default_value():
            return None
        at, value = given.pop(argument.name, (None, argument.default_value))
        if at is not None and not _fits(argument.type, kinds[at][0], numbers_as_tensors and bool(sources)):
            if not (kinds[at][1] and argument.has_default_value()):
                return None
            at, value = None, argument.default_value
        kind = argument.type.inner[0] if argument.type.kind == "Optional" else argument.type
        sources.append((at, value, kind))
    return None if given else sources


_ACCEPTED: dict[str, tuple[type, ...]] = {
    "int": (int, SymInt), "SymInt": (int, SymInt), "float": (float, int, SymFloat, SymInt), "bool": (bool, SymBool), "str": (str,),
    "Scalar": (bool, int, float, complex, SymInt, SymFloat, SymBool), "complex": (complex, float, int),
    "number": (bool, int, float, complex, SymInt, SymFloat, SymBool),
}  # fmt: skip


def _fits(wanted: Any, kind: Any, numbers_as_tensors: bool = False) -> bool:
    """Whether values of `kind` are of the schema's type `wanted`."""
    if wanted.kind == "Optional":
        return kind is type(None) or _fits(wanted.inner[0], kind, numbers_as_tensors)
    if wanted.kind == "List":
        inner = wanted.inner[0]
        if isinstance(kind, tuple):
            return all(_fits(inner, k) for k in kind[1])
        return wanted.size is not None and inner.kind != "Tensor" and _fits(inner, kind)
    if wanted.kind == "Tensor":
        return kind is _tensor_class() or numbers_as_tensors and kind in _ACCEPTED["Scalar"]
    if kind == "reduction":
        return wanted.kind in ("int", "str")
    accepted = _ACCEPTED.get(wanted.kind)
    return kind in accepted if accepted is not None else isinstance(kind, type) and kind in _classes().get(wanted.kind, ())


@functools.cache
def _classes() -> dict[str, tuple[type, ...]]:
    import flambeau as fb

    return {"ScalarType": (fb.dtype,), "Device": (fb.device, str), "Layout": (fb.layout,), "MemoryFormat": (fb.memory_format,),
            "Generator": (fb.Generator,)}  # fmt: skip


# -- operators as public functions ---------------------------------------------------------------------------------------


@functools.cache
def function_of(name: str) -> Callable[..., Any] | None:
    """The public function that computes the operator `name`, with the operator's names of arguments; None if there is none."""
    found = public_function_of(name)
    if found is not None:
        return _as_operator(found)
    return importlib.import_module(f"{__package__}._decomp.table").written(name)


def public_function_of(name: str) -> Callable[..., Any] | None:
    """The public function that computes the operator `name`, as it is; None if there is none."""
    return _own().get(name) or _public(name) or _private(name) or _copying(name) or _writing(name)


def _public(name: str) -> Any:
    import flambeau as fb

    for prefix, home in (("linalg_", fb.linalg), ("special_", fb.special), ("fft_", fb.fft)):
        if name.startswith(prefix):
            return _attribute(home, name[len(prefix) :])
    if name.startswith("__") and name.endswith("__"):
        return getattr(fb.Tensor, name, None)
    for home in (fb, fb.nn.functional, fb.Tensor):
        found = None if name in _KINDS else _attribute(home, name)
        if callable(found) and not isinstance(found, type):
            return found
    return _attribute(fb.Tensor, name) if name in _KINDS else None


# Names of dtypes and of other things in the package, which are methods as operators.
_KINDS = frozenset(("bool", "float", "int", "half", "double", "long", "short", "device", "layout", "dtype"))


def _private(name: str) -> Any:
    """The function of an op that users do not see, declared by the operator's name."""
    from .ops import _derive
    from .ops._spec import OPS

    _derive.load_all()
    found = OPS.get(name)
    return None if found is None or found.surface else found.function


def _copying(name: str) -> Any:
    """What operators compute that PyTorch has for graphs without writes and views: they fill a copy at random, or copy a view."""
    import flambeau as fb

    from .utils._pytree import tree_map

    view = function_of(name.removesuffix("_copy")) if name.endswith("_copy") else None
    if view is not None:
        return lambda self, *args, **kwargs: tree_map(lambda x: x.clone(), view(self, *args, **kwargs))
    method = _attribute(fb.Tensor, f"{name.removesuffix('_functional')}_")
    return None if method is None else lambda self, *args, **kwargs: method(self.clone(), *args, **kwargs)


def _writing(name: str) -> Any:
    """An in-place operator that no function is the in-place form for: it writes what the plain one gives."""
    plain = name.removesuffix("_")
    function = function_of(plain) if plain != name and name in index() and plain in index() and not plain.endswith("_") else None
    return None if function is None else lambda self, *args, **kwargs: self.copy_(function(self, *args, **kwargs))


def _attribute(owner: Any, name: str) -> Any:
    """`owner.name` without noting that it is missing."""
    from .ops import _derive

    if owner.__name__ == "flambeau":
        found = _derive.public("", name)
        return getattr(owner, name) if found is None and name in owner._HOME else found
    if isinstance(owner, type):
        return getattr(owner, name) if name in dir(owner) else None
    return vars(owner).get(name) or _derive.lookup(owner.__name__.partition(".")[2], name)


def _as_operator(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` called as operators are: the first argument is `self`, a reduction is a number and the mean where none is given."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return function
    names = [name for name in parameters if name not in ("size_average", "reduce")]
    default = parameters["reduction"].default if "reduction" in names else None  # a word, or, in `torch`'s own functions, a number
    first = names[0] if names else "input"

    def call(*args: Any, **kwargs: Any) -> Any:
        if "self" in kwargs and first != "self":
            kwargs[first] = kwargs.pop("self")
        if default is not None:
            kwargs.update(zip(names, args, strict=False))
            args = ()
            if default is not inspect.Parameter.empty:
                kwargs.setdefault("reduction", _REDUCTIONS.index("mean"))
            if isinstance(default, str) and isinstance(kwargs["reduction"], int):
                kwargs["reduction"] = _REDUCTIONS[kwargs["reduction"]]
        return function(*args, **kwargs)

    if default is None:
        call.by_position = function  # type: ignore[attr-defined]  # the same where `self` is not given by name
    # The names of what is taken by position, and of everything.
    call.__dict__["takes"] = tuple(p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD), tuple(parameters)
    return call


@functools.cache
def _own() -> dict[str, Callable[..., Any]]:
    """Operators that no public function has, or whose function takes its arguments in another way."""
    from .ops import _derive

    _derive.load_all()
    return {**_own_layers(), **_own_rrelu(), **_own_views(), **_own_sizes(), **_own_makers(), **_own_products(), **_own_distinct(),
            **_own_parts()}  # fmt: skip


def _own_layers() -> dict[str, Callable[..., Any]]:
    """Layers and losses."""
    import flambeau as fb

    from .ops._spec import OPS

    def layer_norm(
        input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enable: bool = True
    ) -> Any:  # fmt: skip
        return fb.nn.functional.layer_norm(input, normalized_shape, weight, bias, eps)

    def softmax(self: Any, dim: int, half_to_float: bool = False) -> Any:
        return fb.softmax(self, dim, dtype=fb.float32 if half_to_float else None)

    def log_softmax(self: Any, dim: int, half_to_float: bool = False) -> Any:
        return fb.log_softmax(self, dim, dtype=fb.float32 if half_to_float else None)

    def embedding(weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
        place = None if padding_idx < 0 else padding_idx
        return fb.nn.functional.embedding(indices, weight, place, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)

    def nll_loss(self: Any, target: Any, weight: Any = None, reduction: str = "mean", ignore_index: int = -100) -> Any:
        return fb.nn.functional.nll_loss(self, target, weight, ignore_index=ignore_index, reduction=reduction)

    def elu(self: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
        return OPS["elu"].function(self, alpha, scale, input_scale)

    def elu_(self: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
        return self.copy_(elu(self, alpha, scale, input_scale))

    def max_unpool(n: int) -> Callable[..., Any]:
        def of_size(self: Any, indices: Any, output_size: Any, stride: Any = None, padding: Any = None) -> Any:
            # Windows a step apart that give this size: only the size counts for where the maxima go.
            kernel = [m - size + 1 for m, size in zip(output_size, self.shape[self.dim() - n :], strict=True)]
            return getattr(fb.nn.functional, f"max_unpool{n}d")(self, indices, kernel, 1, 0, output_size)

        return of_size

    def cross_entropy_loss(
        self: Any, target: Any, weight: Any = None, reduction: str = "mean", ignore_index: int = -100, label_smoothing: float = 0.0
    ) -> Any:  # fmt: skip
        more = {"ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing}
        return fb.nn.functional.cross_entropy(self, target, weight, **more)

    def fractional(pool: Any) -> Any:
        return lambda self, kernel_size, output_size, random_samples: pool(
            self, kernel_size, output_size, return_indices=True, _random_samples=random_samples
        )

    def with_indices(pool: Any) -> Any:
        return lambda self, output_size: pool(self, output_size, return_indices=True)

    def _convolution(
        self: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int,
        benchmark: bool = False, deterministic: bool = False, cudnn_enabled: bool = True, allow_tf32: bool = True,
    ) -> Any:  # fmt: skip
        return fb.convolution(self, weight, bias, stride, padding, dilation, transposed, output_padding, groups)

    def batch_norm_legit(input: Any, weight: Any, bias: Any, *given: Any, **named: Any) -> Any:
        # Overloads differ in whether running statistics come before these three.
        without = len(given) + len(named.keys() & {"running_mean", "running_var", "training", "momentum", "eps"}) == 3
        return fb.native_batch_norm(input, weight, bias, *((None, None) if without else ()), *given, **named)

    return {
        "_convolution": _convolution, "_native_batch_norm_legit": batch_norm_legit, "col2im": fb.nn.functional.fold,
        "adaptive_max_pool2d": with_indices(fb.nn.functional.adaptive_max_pool2d),
        "adaptive_max_pool3d": with_indices(fb.nn.functional.adaptive_max_pool3d), "elu": elu, "elu_": elu_,
        "cross_entropy_loss": cross_entropy_loss, "max_unpool2d": max_unpool(2), "max_unpool3d": max_unpool(3),
        "_prelu_kernel": OPS["prelu_kernel"].function, "fractional_max_pool2d": fractional(fb.nn.functional.fractional_max_pool2d),
        "fractional_max_pool3d": fractional(fb.nn.functional.fractional_max_pool3d), "im2col": fb.nn.functional.unfold,
        "log_sigmoid": fb.nn.functional.logsigmoid, "nll_loss": nll_loss, "nll_loss_nd": nll_loss, "nll_loss2d": nll_loss,
        "_softmax": softmax, "_log_softmax": log_softmax, "layer_norm": layer_norm, "embedding": embedding,
    }  # fmt: skip


def _own_views() -> dict[str, Callable[..., Any]]:
    """Parts of tensors, and tensors in other shapes."""

    def slice_(self: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
        parts = [slice(None)] * self.dim()
        parts[dim] = slice(start, end, step)
        return self[tuple(parts)]

    def index(self: Any, indices: Any) -> Any:
        return self[tuple(slice(None) if i is None else i for i in indices)]

    def view_sizes(self: Any, size: Any) -> Any:
        return self.view(size)

    return {
        "slice": slice_, "index": index, "view": view_sizes, "_unsafe_view": view_sizes, "reshape": lambda self, shape: self.reshape(shape),
        "expand": lambda self, size, *, implicit=False: self.expand(size),
        "expand_copy": lambda self, size, *, implicit=False: self.expand(size).clone(), "permute": lambda self, dims: self.permute(dims),
        "repeat": lambda self, repeats: self.repeat(repeats),
        "unfold": lambda self, dimension, size, step: self.unfold(dimension, size, step), "alias": lambda self: self.view(self.shape),
        "detach": lambda self: self.detach(), "lift_fresh": lambda self: self, "lift_fresh_copy": lambda self: self.clone(),
        "t": lambda self: self.t(),
    }  # fmt: skip


def _own_sizes() -> dict[str, Callable[..., Any]]:
    """What is asked of a tensor, which are no tensors."""

    def size(self: Any, dim: Any = None) -> Any:
        return self.size() if dim is None else self.size(dim)

    return {
        "is_same_size": lambda self, other: self.shape == other.shape, "sym_size": size, "size": size,
        "sym_numel": lambda self: self.numel(), "numel": lambda self: self.numel(),
        "sym_stride": lambda self, dim=None: self.stride() if dim is None else self.stride(dim),
        "stride": lambda self, dim=None: self.stride() if dim is None else self.stride(dim),
        "sym_storage_offset": lambda self: self.storage_offset(), "dim": lambda self: self.dim(), "item": lambda self: self.item(),
        "_local_scalar_dense": lambda self: self.item(),
    }  # fmt: skip


def _own_makers() -> dict[str, Callable[..., Any]]:
    """What makes tensors, or copies them."""
    import flambeau as fb

    from .ops._spec import OPS

    def to_copy(
        self: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, non_blocking: bool = False,
        memory_format: Any = None,
    ) -> Any:  # fmt: skip
        kept = fb.preserve_format if memory_format is None else memory_format
        return self.to(device=device, dtype=dtype, non_blocking=non_blocking, copy=True, memory_format=kept)

    def indices_of(triangle: Any) -> Any:
        def call(row: int, col: int, offset: int = 0, *, pin_memory: Any = None, **kwargs: Any) -> Any:
            made = triangle(row, col, offset, **{k: v for k, v in kwargs.items() if v is not None})
            return made.pin_memory() if pin_memory else made

        return call

    return {
        "zeros": lambda size, **kw: fb.zeros(size, **kw), "ones": lambda size, **kw: fb.ones(size, **kw),
        "empty": lambda size, **kw: fb.empty(size, **kw), "rand": lambda size, **kw: fb.rand(size, **kw),
        "randn": lambda size, **kw: fb.randn(size, **kw), "new_zeros": lambda self, size, **kw: self.new_zeros(size, **kw),
        "new_ones": lambda self, size, **kw: self.new_ones(size, **kw), "new_empty": lambda self, size, **kw: self.new_empty(size, **kw),
        "tril_indices": indices_of(fb.tril_indices), "triu_indices": indices_of(fb.triu_indices), "_to_copy": to_copy,
        "copy": lambda self, src, non_blocking=False: OPS["copy"].function(self, src),
        "pad_sequence": lambda sequences, *args, **kw: fb.nn.utils.rnn.pad_sequence(list(sequences), *args, **kw),
    }  # fmt: skip


def _own_products() -> dict[str, Callable[..., Any]]:
    """Products, distances and counts."""
    import flambeau as fb

    from .ops._spec import OPS

    def tensordot(self: Any, other: Any, dims_self: Any, dims_other: Any) -> Any:
        return fb.tensordot(self, other, (dims_self, dims_other))

    return {
        "einsum": lambda equation, tensors, *, path=None: fb.einsum(equation, tensors), "tensordot": tensordot,
        "histogram": lambda self, bins=100, **kwargs: fb.histogram(self, bins, **kwargs),
        "_pdist_forward": lambda self, p=2: OPS["pair_lengths"].function(self, p),
        "_cdist_forward": lambda x1, x2, p, compute_mode: OPS["lengths_between"].function(x1, x2, float(p), compute_mode),
    }  # fmt: skip


def _own_parts() -> dict[str, Callable[..., Any]]:
    """What PyTorch's functions are made of, under names that programs meet in graphs of it."""
    import flambeau as fb

    def index_put(self: Any, indices: Any, values: Any, accumulate: bool = False, unsafe: bool = False) -> Any:
        return self.index_put(indices, values, accumulate)

    def index_put_(self: Any, indices: Any, values: Any, accumulate: bool = False, unsafe: bool = False) -> Any:
        return self.index_put_(indices, values, accumulate)

    def masked_scatter_backward(grad_output: Any, mask: Any, sizes: Any) -> Any:
        found = grad_output.masked_select(mask)
        return fb.cat([found, grad_output.new_zeros(math.prod(sizes) - found.numel())]).view(sizes)

    def check_errors(info: Any, api_name: str, *, is_matrix: bool) -> None:
        if bool(info.any()):
            at = "" if is_matrix else f"(Batch element {int(info.flatten().nonzero()[0])}): "
            raise fb.linalg.LinAlgError(f"{api_name}: {at}the algorithm failed, LAPACK's info is {int(info[info != 0][0])}")

    def trilinear(i1: Any, i2: Any, i3: Any, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, unroll_dim: int = 1) -> Any:
        for d in range(i1.dim() + len(expand1)):
            i1, i2, i3 = (x.unsqueeze(d) if d in given else x for x, given in ((i1, expand1), (i2, expand2), (i3, expand3)))
        product = i1 * i2 * i3
        return product.sum(list(sumdim)) if sumdim else product

    def extremes(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        return tuple(fb.aminmax(self, dim=dim, keepdim=keepdim))

    return {
        "_stack": lambda tensors, dim=0: fb.stack(tensors, dim), "_conj": lambda self: self.conj(),
        "_conj_physical": lambda self: self.conj_physical(), "lift": lambda self: self,
        "_is_all_true": lambda self: self.all(), "_is_any_true": lambda self: self.any(), "_aminmax": extremes,
        "_index_put_impl": index_put, "_index_put_impl_": index_put_, "masked_scatter_backward": masked_scatter_backward,
        "_linalg_check_errors": check_errors, "_trilinear": trilinear, "_coalesce": lambda self: self.coalesce(),
        "_to_dense": lambda self, dtype=None, masked_grad=None: self.to_dense(dtype, masked_grad=masked_grad),
        "embedding_renorm": lambda self, indices, max_norm, norm_type: fb.embedding_renorm_(self.clone(), indices, max_norm, norm_type),
    }  # fmt: skip


def _own_distinct() -> dict[str, Callable[..., Any]]:
    """Distinct elements and slices: always with places and counts, which have no elements where they are not asked for."""
    import flambeau as fb

    from .ops._spec import OPS

    def asked(input: Any, consecutive: bool, dim: Any, inverse: bool, counts: bool) -> Any:
        found = OPS["distinct"].function(input.detach(), consecutive, dim)
        none = fb.empty(0, dtype=fb.int64, device=input.device)
        return found[0], found[1] if inverse else none, found[2] if counts else none

    def unique(self: Any, sorted: bool = True, return_inverse: bool = False) -> Any:
        return asked(self, False, None, return_inverse, False)[:2]

    def unique2(self: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
        return asked(self, False, None, return_inverse, return_counts)

    def unique_consecutive(self: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
        return asked(self, True, dim, return_inverse or dim is not None, return_counts or dim is not None)

    # Of slices PyTorch gives both in any case.
    def unique_dim(self: Any, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
        return asked(self, False, dim, True, True)

    def unique_dim_consecutive(self: Any, dim: int, return_inverse: bool = False, return_counts: bool = False) -> Any:
        return asked(self, True, dim, True, True)

    return {
        "_unique": unique, "_unique2": unique2, "unique_consecutive": unique_consecutive, "unique_dim": unique_dim,
        "unique_dim_consecutive": unique_dim_consecutive,
    }  # fmt: skip


def _own_rrelu() -> dict[str, Callable[..., Any]]:
    """The operators of `rrelu`, which take a generator, and those that leave in `noise` the slopes that training drew."""
    from .ops.layers.functional import rrelu_with_slopes

    def plain(inplace: bool) -> Any:
        def call(self: Any, lower: Any = 1 / 8, upper: Any = 1 / 3, training: bool = False, generator: Any = None) -> Any:
            return rrelu_with_slopes(self, lower, upper, training, inplace, generator)[0]

        return call

    def with_noise(inplace: bool, functional: bool = False) -> Any:
        def call(
            self: Any, noise: Any, lower: Any = 1 / 8, upper: Any = 1 / 3, training: bool = False, generator: Any = None
        ) -> Any:  # fmt: skip
            made, slopes = rrelu_with_slopes(self, lower, upper, training, inplace, generator)
            if functional:
                return made, noise.clone() if slopes is None else slopes
            if slopes is not None:
                noise.copy_(slopes)
            return made

        return call

    return {"rrelu": plain(False), "rrelu_": plain(True), "rrelu_with_noise": with_noise(False), "rrelu_with_noise_": with_noise(True),
            "rrelu_with_noise_functional": with_noise(False, functional=True)}  # fmt: skip

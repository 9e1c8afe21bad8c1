"""Nested containers as a list of leaves and a description of the nesting, and back."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

__all__ = [
    "KeyPath", "LeafSpec", "MappingKey", "GetAttrKey", "SequenceKey", "PyTree", "TreeSpec", "keystr", "register_pytree_node",
    "register_dataclass", "register_constant", "tree_all", "tree_all_only", "tree_any", "tree_any_only", "tree_flatten",
    "tree_flatten_with_path", "tree_is_leaf", "tree_iter", "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_",
    "tree_map_only", "tree_map_only_", "tree_map_with_path", "tree_structure", "tree_unflatten", "map_only",
    "arg_tree_leaves", "is_namedtuple", "is_namedtuple_class", "is_namedtuple_instance", "is_structseq", "is_structseq_class",
    "is_structseq_instance", "is_constant_class", "key_get", "treespec_dict", "treespec_dumps", "treespec_leaf", "treespec_loads",
    "treespec_pprint", "treespec_tuple", "pytree_to_str", "str_to_pytree",
]  # fmt: skip

PyTree = Any
KeyPath = tuple[Any, ...]
FlattenFunc = Callable[[Any], tuple[list[Any], Any]]
UnflattenFunc = Callable[[Iterable[Any], Any], Any]


class KeyEntry(Protocol):
    """A step on the way to a leaf: hashable, with a text, and `get` takes it."""

    def __eq__(self, other: object) -> bool: ...

    def __hash__(self) -> int: ...

    def __str__(self) -> str: ...

    def get(self, parent: Any) -> Any:
        """What this step leads to from `parent`."""
        ...


class NodeDef(NamedTuple):
    """How a container type comes apart and together: ``flatten(x) -> (children, context)``, ``unflatten(children, context)``."""

    type: type
    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None


SUPPORTED_NODES: dict[type, NodeDef] = {}


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """A step into a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        return sequence[self.idx]


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """A step into a mapping."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        return mapping[self.key]


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """A step to an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        return getattr(obj, self.name)


def keystr(kp: KeyPath) -> str:
    """The path as Python source: ``['a'][0].b``."""
    return "".join(str(k) for k in kp)


class TreeSpec:
    """The nesting of a tree without its leaves. Equal for trees of equal structure.

    `type` is None for a leaf, `context` what the container needs beside its children, such as keys.
    """

    __slots__ = ("type", "context", "children_specs", "num_leaves", "num_nodes", "num_children")

    def __init__(self, type: Any, context: Any, children_specs: Iterable[TreeSpec]) -> None:  # `type`: PyTorch's name
        self.type, self.context = type, context
        self.children_specs = children = list(children_specs)
        leaves, nodes = int(type is None), 1
        for child in children:
            leaves += child.num_leaves
            nodes += child.num_nodes
        self.num_leaves, self.num_nodes, self.num_children = leaves, nodes, len(children)

    def is_leaf(self) -> bool:
        return self.type is None

    def children(self) -> list[TreeSpec]:
        return self.children_specs.copy()

    def child(self, index: int) -> TreeSpec:
        return self.children_specs[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (self.type, self.context, self.children_specs) == (other.type, other.context, other.children_specs)

    def __hash__(self) -> int:
        return hash((self.type, repr(self.context), tuple(self.children_specs)))

    def __repr__(self, indent: int = 0) -> str:
        if self.is_leaf():
            return "*"
        # A child that is a container begins a line of its own, as do all children but the first.
        inner = " " * (indent + 2)
        children = f",\n{inner}".join(child.__repr__(indent + 2) for child in self.children_specs)
        return f"TreeSpec({self.type.__name__}, {self.context!r}, [{children}])"

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree of this structure with `leaves`. Raises: ValueError for another number of leaves."""
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(f"unflatten: the tree has {self.num_leaves} leaves, but {len(leaves)} were given")
        if self.type is None:
            return leaves[0]
        if self.num_leaves == self.num_children == self.num_nodes - 1:  # all children are leaves
            return SUPPORTED_NODES[self.type].unflatten_fn(leaves, self.context)
        return self._build(iter(leaves))

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.type is None:
            return next(leaves)
        return SUPPORTED_NODES[self.type].unflatten_fn([c._build(leaves) for c in self.children_specs], self.context)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The parts of `tree` at the leaves of this structure. Raises: ValueError where `tree` has another structure."""
        found: list[Any] = []
        self._match(tree, found)
        return found

    def _match(self, tree: Any, found: list[Any]) -> None:
        if self.type is None:
            found.append(tree)
            return
        kind = _kind(tree)
        if kind is None or kind is not self.type:
            raise ValueError(f"Type mismatch; expected {self.type!r}, but got {type(tree)!r}.")
        children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        if kind in (dict, OrderedDict, defaultdict):
            children = [tree[k] for k in self._keys()] if set(tree) == set(self._keys()) else None
        elif context != self.context:
            children = None
        if children is None or len(children) != self.num_children:
            raise ValueError(f"Node context or arity mismatch: expected {self!r}, but got {tree!r}")
        for spec, child in zip(self.children_specs, children, strict=True):
            spec._match(child, found)

    def _keys(self) -> list[Any]:
        return self.context[1] if self.type is defaultdict else self.context


class LeafSpec(TreeSpec):
    """The structure of a single leaf."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, None, [])


_LEAF = LeafSpec()


def _namedtuple_type(cls: type) -> bool:
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def _kind(tree: Any) -> type | None:
    """The registered container type of `tree`; None for a leaf."""
    cls = type(tree)
    if cls in SUPPORTED_NODES:
        return cls
    if cls in _leaf_classes:
        return None
    if _namedtuple_type(cls):
        return namedtuple  # type: ignore[return-value]
    if len(_leaf_classes) >= _MOST_CLASSES:
        _leaf_classes.clear()
    _leaf_classes.add(cls)
    return None


_leaf_classes: set[type] = set()  # those that are neither registered, when this was asked, nor named tuples
_MOST_CLASSES = 256


def tree_is_leaf(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether `tree` is no container, or `is_leaf` says it counts as one piece."""
    return (is_leaf is not None and is_leaf(tree)) or _kind(tree) is None


def tree_flatten(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of `tree`, depth first, and its structure."""
    leaves: list[Any] = []
    return leaves, _flatten_into(tree, leaves, is_leaf)


def _flatten_into(tree: Any, leaves: list[Any], is_leaf: Any) -> TreeSpec:
    kind = None if is_leaf is not None and is_leaf(tree) else _kind(tree)
    if kind is None:
        leaves.append(tree)
        return _LEAF
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    specs: list[TreeSpec] = []
    for child in children:
        if is_leaf is None and type(child) in _leaf_classes and type(child) not in SUPPORTED_NODES:
            leaves.append(child)
            specs.append(_LEAF)
        else:
            specs.append(_flatten_into(child, leaves, is_leaf))
    return TreeSpec(kind, context, specs)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """The tree of structure `treespec` with `leaves`."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"tree_unflatten(leaves, treespec): expected `treespec` to be a TreeSpec, but got {type(treespec)}.")
    return treespec.unflatten(leaves)


def tree_leaves(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of `tree`, depth first."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> Iterator[Any]:
    """An iterator over the leaves of `tree`."""
    yield from tree_leaves(tree, is_leaf)


def tree_structure(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The structure of `tree`."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """`tree` with `func` applied to each leaf, and to what `rests` have in its place."""
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *(spec.flatten_up_to(r) for r in rests)]
    return spec.unflatten([func(*row) for row in zip(*columns, strict=True)])


def tree_map_(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """Call `func` on each leaf for its effect; returns `tree`."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def map_only(type_or_pred: Any, /) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """A decorator: the function applies to values of a type (or types, or that pass a test), others stay as they are."""
    if isinstance(type_or_pred, (type, tuple)):
        test: Any = lambda x: isinstance(x, type_or_pred)  # noqa: E731
    else:
        test = type_or_pred

    def wrapper(func: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: func(x) if test(x) else x

    return wrapper


def tree_map_only(type_or_pred: Any, /, func: Callable[[Any], Any], tree: PyTree, is_leaf: Any = None) -> PyTree:
    """`tree_map` over leaves of a type, or that pass a test."""
    return tree_map(map_only(type_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(type_or_pred: Any, /, func: Callable[[Any], Any], tree: PyTree, is_leaf: Any = None) -> PyTree:
    """`tree_map_` over leaves of a type, or that pass a test."""
    return tree_map_(map_only(type_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: Any = None) -> bool:
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: Any = None) -> bool:
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(type_or_types: Any, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: Any = None) -> bool:
    return all(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, type_or_types))


def tree_any_only(type_or_types: Any, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: Any = None) -> bool:
    return any(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, type_or_types))


# -- with paths ----------------------------------------------------------------------------------------------------------


def tree_flatten_with_path(tree: PyTree, is_leaf: Any = None) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """As `tree_flatten`, each leaf with the path to it."""
    found: list[tuple[KeyPath, Any]] = []
    _walk((), tree, is_leaf, found)
    return found, tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree: PyTree, is_leaf: Any = None) -> list[tuple[KeyPath, Any]]:
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Any = None) -> PyTree:
    """As `tree_map`; `func` gets the path first."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten([func(path, leaf, *row) for (path, leaf), *row in zip(found, *columns, strict=True)])


def _walk(path: KeyPath, tree: Any, is_leaf: Any, found: list[Any]) -> None:
    kind = None if is_leaf is not None and is_leaf(tree) else _kind(tree)
    if kind is None:
        found.append((path, tree))
        return
    definition = SUPPORTED_NODES[kind]
    if definition.flatten_with_keys_fn is None:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {kind}. Give one to register_pytree_node.")
    for key, child in definition.flatten_with_keys_fn(tree)[0]:
        _walk((*path, key), child, is_leaf, found)


# -- registration --------------------------------------------------------------------------------------------------------


class _Serialized(NamedTuple):
    """How a container type is written: its name, and the context as what JSON can hold and back."""

    name: str | None
    dump: Callable[[Any], Any] | None
    load: Callable[[Any], Any] | None


SUPPORTED_SERIALIZED_TYPES: dict[type, _Serialized] = {}
SERIALIZED_TYPE_TO_PYTHON_TYPE: dict[str, type] = {}
CONSTANT_NODES: set[type] = set()


def register_pytree_node(
    cls: type,
    flatten_fn: Any,
    unflatten_fn: Any,
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Any = None,
    from_dumpable_context: Any = None,
    flatten_with_keys_fn: Any = None,
) -> None:
    """Make instances of `cls` containers.

    Args:
        flatten_fn: gives the children of an instance and its context, what is needed beside them to make it again.
        unflatten_fn: makes an instance from children and context.
        serialized_type_name: the name of `cls` in what `treespec_dumps` writes; without it such trees cannot be written.
        to_dumpable_context, from_dumpable_context: the context as what JSON can hold, and back. Give both or none.
        flatten_with_keys_fn: as `flatten_fn`, with pairs of key and child.
    Raises: ValueError if `cls` already is a container, or one of the two functions of contexts is given alone.
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    if (to_dumpable_context is None) != (from_dumpable_context is None):
        raise ValueError(
            f"register_pytree_node: both or none of to_dumpable_context and from_dumpable_context must be given for {cls}"
        )
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    SUPPORTED_SERIALIZED_TYPES[cls] = _Serialized(serialized_type_name, to_dumpable_context, from_dumpable_context)
    if serialized_type_name is not None:
        SERIALIZED_TYPE_TO_PYTHON_TYPE[serialized_type_name] = cls


def _register_pytree_node(
    cls: type, flatten_fn: Any, unflatten_fn: Any, to_str_fn: Any = None, maybe_from_str_fn: Any = None, **settings: Any
) -> None:
    """`register_pytree_node` by its old name, with two arguments that it takes no more."""
    register_pytree_node(cls, flatten_fn, unflatten_fn, **settings)


_private_register_pytree_node = register_pytree_node


def _deregister_pytree_node(cls: type) -> None:
    """Make instances of `cls` leaves again."""
    del SUPPORTED_NODES[cls]
    name = SUPPORTED_SERIALIZED_TYPES.pop(cls).name
    if name is not None:
        del SERIALIZED_TYPE_TO_PYTHON_TYPE[name]
    CONSTANT_NODES.discard(cls)


def _register_namedtuple(cls: type, *, serialized_type_name: str) -> None:
    """Give the named tuple `cls` a name under which `treespec_dumps` writes it."""
    SUPPORTED_SERIALIZED_TYPES[cls] = _Serialized(serialized_type_name, None, None)
    SERIALIZED_TYPE_TO_PYTHON_TYPE[serialized_type_name] = cls


def register_dataclass(
    cls: type,
    *,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Make instances of the dataclass `cls` containers of their fields."""
    names = field_names or [f.name for f in dataclasses.fields(cls) if f.init and f.name not in (drop_field_names or ())]

    def flatten(x: Any) -> Any:
        present = [n for n in names if getattr(x, n) is not None]
        return [getattr(x, n) for n in present], [present, [n for n in names if n not in present]]

    def unflatten(values: Any, context: Any) -> Any:
        return cls(**dict(zip(context[0], values, strict=True)), **dict.fromkeys(context[1]))

    def with_keys(x: Any) -> Any:
        values, context = flatten(x)
        return [(GetAttrKey(n), v) for n, v in zip(context[0], values, strict=True)], context

    register_pytree_node(cls, flatten, unflatten, flatten_with_keys_fn=with_keys, serialized_type_name=serialized_type_name)


def register_constant(cls: type) -> None:
    """Make instances of `cls` part of the structure: containers without leaves."""
    register_pytree_node(cls, lambda x: ([], x), lambda _, x: x, flatten_with_keys_fn=lambda x: ([], x))
    CONSTANT_NODES.add(cls)


def is_constant_class(cls: type) -> bool:
    """Whether `register_constant` was called for `cls`."""
    return cls in CONSTANT_NODES


# -- the containers that are known from the start. Packages call these functions by name. --------------------------------


def _list_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), None


def _list_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return [(SequenceKey(i), v) for i, v in enumerate(d)], None


def _list_unflatten(values: Iterable[Any], context: Any) -> list[Any]:
    return list(values)


_tuple_flatten, _tuple_flatten_with_keys = _list_flatten, _list_flatten_with_keys


def _tuple_unflatten(values: Iterable[Any], context: Any) -> tuple[Any, ...]:
    return tuple(values)


def _dict_flatten(d: Mapping[Any, Any]) -> tuple[list[Any], Any]:
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d: Mapping[Any, Any]) -> tuple[list[tuple[Any, Any]], Any]:
    return [(MappingKey(k), v) for k, v in d.items()], list(d)


def _dict_unflatten(values: Iterable[Any], context: Any) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


_ordereddict_flatten, _ordereddict_flatten_with_keys = _dict_flatten, _dict_flatten_with_keys


def _ordereddict_unflatten(values: Iterable[Any], context: Any) -> OrderedDict[Any, Any]:
    return OrderedDict(zip(context, values, strict=True))


_odict_flatten, _odict_unflatten = _ordereddict_flatten, _ordereddict_unflatten


def _namedtuple_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), type(d)


def _namedtuple_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return [(GetAttrKey(n), v) for n, v in zip(type(d)._fields, d, strict=True)], type(d)


def _namedtuple_unflatten(values: Iterable[Any], context: Any) -> Any:
    return context(values) if context.__module__.endswith("return_types") else context(*values)


def _namedtuple_dumped(context: Any) -> str:
    known = SUPPORTED_SERIALIZED_TYPES.get(context)
    if known is None or known.name is None:
        raise NotImplementedError(
            f"treespec_dumps: the named tuple {context} has no name to be written under; give it one by _register_namedtuple"
        )
    return known.name


def _namedtuple_loaded(context: str) -> type:
    if context not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
        raise NotImplementedError(f"treespec_loads: no named tuple is registered under the name {context!r}")
    return SERIALIZED_TYPE_TO_PYTHON_TYPE[context]


def _defaultdict_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), [d.default_factory, list(d)]


def _defaultdict_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return [(MappingKey(k), v) for k, v in d.items()], [d.default_factory, list(d)]


def _defaultdict_unflatten(values: Iterable[Any], context: Any) -> Any:
    return defaultdict(context[0], zip(context[1], values, strict=True))


def _defaultdict_dumped(context: Any) -> dict[str, Any]:
    factory, keys = context
    place = (None, None) if factory is None else (factory.__module__, factory.__qualname__)
    return {"default_factory_module": place[0], "default_factory_name": place[1], "dict_context": keys}


def _defaultdict_loaded(context: dict[str, Any]) -> list[Any]:
    module, name = context["default_factory_module"], context["default_factory_name"]
    factory = None if module is None else functools.reduce(getattr, name.split("."), importlib.import_module(module))
    return [factory, context["dict_context"]]


def _deque_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), d.maxlen


def _deque_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return [(SequenceKey(i), v) for i, v in enumerate(d)], d.maxlen


def _deque_unflatten(values: Iterable[Any], context: Any) -> Any:
    return deque(values, maxlen=context)


def _register(cls: Any, flatten: Any, unflatten: Any, with_keys: Any, name: str, dump: Any = None, load: Any = None) -> None:
    register_pytree_node(
        cls, flatten, unflatten, flatten_with_keys_fn=with_keys, serialized_type_name=name,
        to_dumpable_context=dump, from_dumpable_context=load,
    )  # fmt: skip


_register(list, _list_flatten, _list_unflatten, _list_flatten_with_keys, "builtins.list")
_register(tuple, _tuple_flatten, _tuple_unflatten, _tuple_flatten_with_keys, "builtins.tuple")
_register(dict, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys, "builtins.dict")
_register(OrderedDict, _ordereddict_flatten, _ordereddict_unflatten, _ordereddict_flatten_with_keys, "collections.OrderedDict")
_register(
    namedtuple, _namedtuple_flatten, _namedtuple_unflatten, _namedtuple_flatten_with_keys, "collections.namedtuple",
    _namedtuple_dumped, _namedtuple_loaded,
)  # fmt: skip
_register(
    defaultdict, _defaultdict_flatten, _defaultdict_unflatten, _defaultdict_flatten_with_keys, "collections.defaultdict",
    _defaultdict_dumped, _defaultdict_loaded,
)  # fmt: skip
_register(deque, _deque_flatten, _deque_unflatten, _deque_flatten_with_keys, "collections.deque")

BUILTIN_TYPES = frozenset(SUPPORTED_NODES)
STANDARD_DICT_TYPES = frozenset((dict, OrderedDict, defaultdict))


# -- questions and structures by hand ------------------------------------------------------------------------------------

Context = Any
_is_leaf = tree_is_leaf


def _get_node_type(tree: Any) -> Any:
    """The container type of `tree`: `namedtuple` for all named tuples."""
    return _kind(tree) or type(tree)


def is_namedtuple_class(cls: type) -> bool:
    """Whether `cls` is a named tuple: a tuple whose `_fields` are strings."""
    fields = getattr(cls, "_fields", None)
    if not isinstance(cls, type) or not issubclass(cls, tuple) or not isinstance(fields, tuple):
        return False
    return all(type(field) is str for field in fields) and callable(getattr(cls, "_make", None))


def is_namedtuple_instance(obj: object) -> bool:
    """Whether `obj` is a named tuple."""
    return is_namedtuple_class(type(obj))


_is_namedtuple_instance = is_namedtuple_instance


def is_namedtuple(obj: object | type) -> bool:
    """Whether `obj` is a named tuple or a class of them."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_class(cls: type) -> bool:
    """Whether `cls` is a tuple with named fields that Python's own C code makes, such as `time.struct_time`."""
    counts = ("n_fields", "n_sequence_fields", "n_unnamed_fields")
    return isinstance(cls, type) and cls.__bases__ == (tuple,) and all(type(getattr(cls, n, None)) is int for n in counts)


def is_structseq_instance(obj: object) -> bool:
    """Whether `obj` is of a class for which `is_structseq_class` holds."""
    return is_structseq_class(type(obj))


def is_structseq(obj: object | type) -> bool:
    """Whether `obj` is such a tuple or a class of them."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def key_get(obj: Any, kp: KeyPath) -> Any:
    """The part of `obj` that the path leads to."""
    for key in kp:
        obj = key.get(obj)
    return obj


def arg_tree_leaves(*args: PyTree, **kwargs: PyTree) -> list[Any]:
    """The leaves of all arguments, in the order they are written."""
    leaves: list[Any] = []
    for tree in (*args, *kwargs.values()):
        leaves += tree_leaves(tree)
    return leaves


def treespec_leaf() -> LeafSpec:
    """The structure of a leaf."""
    return _LEAF


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """The structure of a tuple whose items have these structures."""
    return TreeSpec(tuple, None, iterable)


def treespec_dict(mapping: Any = (), /, **kwargs: TreeSpec) -> TreeSpec:
    """The structure of a dict whose values have these structures."""
    specs = dict(mapping, **kwargs)
    return TreeSpec(dict, list(specs), specs.values())


def treespec_pprint(treespec: TreeSpec) -> str:
    """The structure as Python source, a star for each leaf."""
    return repr(treespec.unflatten([_Star()] * treespec.num_leaves))


class _Star:
    def __repr__(self) -> str:
        return "*"


# -- structures as text --------------------------------------------------------------------------------------------------

DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL = 1


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """The structure as JSON: a pair of the protocol's number, 1, and nested objects of type, context and children.

    Raises: TypeError for anything but a TreeSpec; NotImplementedError for a container type that has no name to be written
        under; ValueError for another protocol.
    """
    import json

    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"treespec_dumps: expected `treespec` to be a TreeSpec, but got {type(treespec)}.")
    if protocol not in (None, 1):
        raise ValueError(f"treespec_dumps: unknown protocol {protocol}, the only one is 1")
    return json.dumps([1, _dumped(treespec)])


def _dumped(spec: TreeSpec) -> dict[str, Any]:
    import json

    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    known = SUPPORTED_SERIALIZED_TYPES.get(spec.type)
    if known is None or known.name is None:
        raise NotImplementedError(
            f"treespec_dumps: {spec.type} has no name to be written under; give register_pytree_node a serialized_type_name"
        )
    if known.dump is not None:
        context = known.dump(spec.context)
    else:
        try:
            context = json.dumps(spec.context)
        except TypeError as error:
            raise TypeError(
                f"treespec_dumps: the context {spec.context!r} of {spec.type} cannot be written as JSON; give "
                "register_pytree_node a to_dumpable_context and a from_dumpable_context"
            ) from error
    return {"type": known.name, "context": context, "children_spec": [_dumped(child) for child in spec.children_specs]}


def treespec_loads(serialized: str) -> TreeSpec:
    """The structure that `treespec_dumps` wrote.

    Raises: ValueError for another protocol, NotImplementedError for a container type that is not registered.
    """
    import json

    protocol, schema = json.loads(serialized)
    if protocol != 1:
        raise ValueError(f"treespec_loads: unknown protocol {protocol}, the only one is 1")
    return _loaded(schema)


def _loaded(schema: dict[str, Any]) -> TreeSpec:
    import json

    if schema["type"] is None and schema["context"] is None and not schema["children_spec"]:
        return _LEAF
    if schema["type"] not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
        raise NotImplementedError(f"treespec_loads: no container type is registered under the name {schema['type']!r}")
    kind = SERIALIZED_TYPE_TO_PYTHON_TYPE[schema["type"]]
    load = SUPPORTED_SERIALIZED_TYPES[kind].load
    text: Any = schema["context"]
    return TreeSpec(kind, json.loads(text) if load is None else load(text), map(_loaded, schema["children_spec"]))


pytree_to_str, str_to_pytree = treespec_dumps, treespec_loads


def _broadcast_to_and_flatten(tree: PyTree, treespec: TreeSpec, is_leaf: Any = None) -> list[Any] | None:
    """One leaf of `tree` for each leaf of `treespec`, where `tree` may stop short; None if the two do not fit."""
    if treespec.is_leaf():
        return [tree] if tree_is_leaf(tree, is_leaf) else None
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if _kind(tree) is not treespec.type:
        return None
    children, context = SUPPORTED_NODES[treespec.type].flatten_fn(tree)
    if len(children) != treespec.num_children or context != treespec.context:
        return None
    found: list[Any] = []
    for child, spec in zip(children, treespec.children_specs, strict=True):
        part = _broadcast_to_and_flatten(child, spec, is_leaf)
        if part is None:
            return None
        found += part
    return found


def __getattr__(name: str) -> Any:
    from .. import _missing

    raise _missing.attribute_error(__name__, name)

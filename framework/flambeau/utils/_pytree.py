"""Nested containers as a list of leaves and a description of the nesting, and back."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

__all__ = [
    "KeyPath", "LeafSpec", "MappingKey", "GetAttrKey", "SequenceKey", "PyTree", "TreeSpec", "keystr", "register_pytree_node",
    "register_dataclass", "register_constant", "tree_all", "tree_all_only", "tree_any", "tree_any_only", "tree_flatten",
    "tree_flatten_with_path", "tree_is_leaf", "tree_iter", "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_",
    "tree_map_only", "tree_map_only_", "tree_map_with_path", "tree_structure", "tree_unflatten", "map_only",
]  # fmt: skip

PyTree = Any
KeyPath = tuple[Any, ...]


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
        self.type, self.context, self.children_specs = type, context, list(children_specs)
        leaf = type is None
        self.num_leaves = 1 if leaf else sum(c.num_leaves for c in self.children_specs)
        self.num_nodes = 1 + sum(c.num_nodes for c in self.children_specs)
        self.num_children = len(self.children_specs)

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

    def __repr__(self) -> str:
        if self.is_leaf():
            return "*"
        return f"TreeSpec({self.type.__name__}, {self.context!r}, {self.children_specs!r})"

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree of this structure with `leaves`. Raises: ValueError for another number of leaves."""
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(f"unflatten: the tree has {self.num_leaves} leaves, but {len(leaves)} were given")
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
    return namedtuple if _namedtuple_type(cls) else None  # type: ignore[return-value]


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
    return TreeSpec(kind, context, [_flatten_into(c, leaves, is_leaf) for c in children])


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
    """Make instances of `cls` containers. Raises: ValueError if they already are."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


_register_pytree_node = register_pytree_node


def register_dataclass(cls: type, *, field_names: list[str] | None = None, drop_field_names: list[str] | None = None) -> None:
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

    register_pytree_node(cls, flatten, unflatten, flatten_with_keys_fn=with_keys)


def register_constant(cls: type) -> None:
    """Make instances of `cls` part of the structure: containers without leaves."""
    register_pytree_node(cls, lambda x: ([], x), lambda _, x: x, flatten_with_keys_fn=lambda x: ([], x))


def _sequence(cls: type, make: Any) -> None:
    register_pytree_node(
        cls, lambda x: (list(x), None), lambda xs, _: make(xs),
        flatten_with_keys_fn=lambda x: ([(SequenceKey(i), v) for i, v in enumerate(x)], None),
    )  # fmt: skip


def _mapping(cls: type, make: Any) -> None:
    def with_keys(x: Mapping[Any, Any]) -> Any:
        return [(MappingKey(k), v) for k, v in x.items()], list(x)

    register_pytree_node(
        cls, lambda x: (list(x.values()), list(x)), lambda xs, keys: make(zip(keys, xs, strict=True)), flatten_with_keys_fn=with_keys
    )


_sequence(list, list)
_sequence(tuple, tuple)
_mapping(dict, dict)
_mapping(OrderedDict, OrderedDict)
register_pytree_node(
    namedtuple,  # type: ignore[arg-type]
    lambda x: (list(x), type(x)),
    lambda xs, cls: cls(xs) if cls.__module__.endswith("return_types") else cls(*xs),
    flatten_with_keys_fn=lambda x: ([(GetAttrKey(n), v) for n, v in zip(type(x)._fields, x, strict=True)], type(x)),
)
register_pytree_node(
    defaultdict,
    lambda x: (list(x.values()), [x.default_factory, list(x)]),
    lambda xs, context: defaultdict(context[0], zip(context[1], xs, strict=True)),
    flatten_with_keys_fn=lambda x: ([(MappingKey(k), v) for k, v in x.items()], [x.default_factory, list(x)]),
)
register_pytree_node(
    deque,
    lambda x: (list(x), x.maxlen),
    lambda xs, length: deque(xs, maxlen=length),
    flatten_with_keys_fn=lambda x: ([(SequenceKey(i), v) for i, v in enumerate(x)], x.maxlen),
)


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

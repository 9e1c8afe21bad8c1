"""Structures as text, paths, registration, and the questions that packages ask of containers."""

from __future__ import annotations

import collections
import time

import pytest

from flambeau.utils import _pytree as pytree

Point = collections.namedtuple("Point", "x y")
LEAF = '{"type": null, "context": null, "children_spec": []}'


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (None, f"[1, {LEAF}]"),
        ([1], f'[1, {{"type": "builtins.list", "context": "null", "children_spec": [{LEAF}]}}]'),
        ({"b": 1}, f'[1, {{"type": "builtins.dict", "context": "[\\"b\\"]", "children_spec": [{LEAF}]}}]'),
        (collections.deque([1], 3), f'[1, {{"type": "collections.deque", "context": "3", "children_spec": [{LEAF}]}}]'),
        (
            collections.defaultdict(list, {"z": 1}),
            '[1, {"type": "collections.defaultdict", "context": {"default_factory_module": "builtins", '
            f'"default_factory_name": "list", "dict_context": ["z"]}}, "children_spec": [{LEAF}]}}]',
        ),
    ],
)
def test_structures_are_written_as_pytorch_writes_them_and_read_back(tree, text):
    spec = pytree.tree_structure(tree)

    assert pytree.treespec_dumps(spec) == text
    assert pytree.treespec_loads(text) == spec


def test_named_tuples_are_written_under_the_name_they_were_given():
    spec = pytree.tree_structure(Point(1, 2))
    with pytest.raises(NotImplementedError, match="_register_namedtuple"):
        pytree.treespec_dumps(spec)

    pytree._register_namedtuple(Point, serialized_type_name="geometry.Point")
    try:
        assert '"context": "geometry.Point"' in pytree.treespec_dumps(spec)
        assert pytree.treespec_loads(pytree.treespec_dumps(spec)).unflatten([3, 4]) == Point(3, 4)
    finally:
        del pytree.SUPPORTED_SERIALIZED_TYPES[Point], pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE["geometry.Point"]


def test_a_registered_class_is_written_read_and_forgotten():
    class Pair:
        def __init__(self, a, b, kind):
            self.a, self.b, self.kind = a, b, kind

    pytree.register_pytree_node(
        Pair,
        lambda p: ([p.a, p.b], p.kind),
        lambda xs, kind: Pair(*xs, kind),
        serialized_type_name="tests.Pair",
        to_dumpable_context=lambda kind: {"kind": kind},
        from_dumpable_context=lambda found: found["kind"],
    )
    leaves, spec = pytree.tree_flatten(Pair(1, 2, "odd"))
    again = pytree.treespec_loads(pytree.treespec_dumps(spec)).unflatten(leaves)
    pytree._deregister_pytree_node(Pair)

    assert (again.a, again.b, again.kind) == (1, 2, "odd")
    assert pytree.tree_is_leaf(again)


def test_contexts_that_cannot_be_written_say_so():
    class Odd:
        pass

    with pytest.raises(ValueError, match="both or none"):
        pytree.register_pytree_node(Odd, list, list, to_dumpable_context=str)
    pytree.register_pytree_node(Odd, lambda o: ([], object()), lambda xs, c: Odd())
    spec = pytree.tree_structure(Odd())
    pytree._deregister_pytree_node(Odd)

    with pytest.raises(NotImplementedError, match="serialized_type_name"):
        pytree.treespec_dumps(spec)


def test_structures_print_a_container_to_a_line():
    spec = pytree.tree_structure([1, (2, {"a": 3})])

    assert repr(spec) == "TreeSpec(list, None, [*,\n  TreeSpec(tuple, None, [*,\n    TreeSpec(dict, ['a'], [*])])])"
    assert pytree.treespec_pprint(spec) == "[*, (*, {'a': *})]"


def test_structures_are_made_by_hand():
    leaf = pytree.treespec_leaf()

    assert pytree.treespec_tuple([leaf, leaf]) == pytree.tree_structure((1, 2))
    assert pytree.treespec_dict({"a": leaf}, b=leaf) == pytree.tree_structure({"a": 1, "b": 2})
    assert pytree.arg_tree_leaves(1, [2], k={"z": 3}) == [1, 2, 3]


def test_paths_lead_to_parts():
    path = (pytree.MappingKey("a"), pytree.SequenceKey(1), pytree.GetAttrKey("x"))

    assert pytree.key_get({"a": [0, Point(5, 6)]}, path) == 5
    assert pytree.keystr(path) == "['a'][1].x"


def test_named_tuples_are_told_from_tuples_of_python_itself():
    assert pytree.is_namedtuple(Point(1, 2))
    assert pytree.is_namedtuple_class(Point)
    assert not pytree.is_namedtuple((1, 2))
    assert pytree.is_structseq(time.localtime())
    assert pytree.is_structseq_class(time.struct_time)
    assert not pytree.is_structseq_instance(Point(1, 2))


def test_constants_are_known_as_such():
    class Setting:
        pass

    pytree.register_constant(Setting)
    leaves = pytree.tree_leaves(Setting())
    known = pytree.is_constant_class(Setting)
    pytree._deregister_pytree_node(Setting)

    assert (leaves, known, pytree.is_constant_class(Setting)) == ([], True, False)

"""Lists and dicts that cannot be changed: what a Node's arguments are made of, so that uses are counted whenever they change."""

from __future__ import annotations

from typing import Any, NoReturn

from ..utils import _pytree as pytree

__all__ = ["immutable_dict", "immutable_list"]


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        f"{type(self).__name__!r} object does not support mutation. If you are attempting to modify the kwargs or args of a "
        "torch.fx.Node object,\ninstead create a new copy of it and assign the copy to the node:\n\n"
        "    new_args = ...  # copy and mutate args\n    node.args = new_args"
    )


class immutable_list(list[Any]):
    """A list that cannot be changed, and may be hashed."""

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __delitem__ = __iadd__ = __imul__ = __setitem__ = _refuse

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]  # on purpose
        return hash(tuple(self))

    def __reduce__(self) -> Any:
        return immutable_list, (tuple(self),)


class immutable_dict(dict[str, Any]):
    """A dict that cannot be changed, and may be hashed."""

    clear = pop = popitem = setdefault = update = _refuse
    __delitem__ = __ior__ = __setitem__ = _refuse

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]  # on purpose
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return immutable_dict, (dict(self),)


def _list_flatten(x: Any) -> tuple[list[Any], Any]:
    return list(x), None


def _dict_flatten(x: Any) -> tuple[list[Any], Any]:
    return list(x.values()), list(x)


pytree.register_pytree_node(immutable_list, _list_flatten, lambda children, _: immutable_list(children))
pytree.register_pytree_node(immutable_dict, _dict_flatten, lambda children, keys: immutable_dict(zip(keys, children, strict=True)))

"""What a package holds in place of mocked modules; the importer of PyTorch runs it as well."""

from __future__ import annotations

__all__ = ["MOCK_BASE", "MOCK_MODULE"]

MOCK_MODULE = '''\
"""Stands for a module that was left out of this package."""
from _mock import MockedObject


def __getattr__(name):
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(name)
    return MockedObject(f"{__name__}.{name}")
'''

MOCK_BASE = '''\
"""The objects of modules that were left out of this package: they can be imported, and refuse any use."""


class MockedObject:
    def __init__(self, name):
        object.__setattr__(self, "_mocked_name", name)

    def __repr__(self):
        return f"MockedObject({object.__getattribute__(self, '_mocked_name')})"

    def __str__(self):
        return repr(self)


def _refusing(method):
    def refuse(self, *args, **kwargs):
        name = object.__getattribute__(self, "_mocked_name")
        raise NotImplementedError(f"Object '{name}' was mocked out during packaging but it is being used in {method}")

    return refuse


for _operator in (
    "abs add and call contains delattr delitem divmod enter eq exit float floordiv ge getattr getitem gt hash iadd iand "
    "ifloordiv ilshift imatmul imod imul index instancecheck int invert ior ipow irshift isub iter itruediv ixor le len "
    "lshift lt matmul mod mro_entries mul ne neg next or pos pow radd rand rdivmod reversed rfloordiv rlshift rmatmul rmod rmul "
    "ror round rpow rrshift rshift rsub rtruediv rxor setattr setitem sub subclasscheck truediv xor bool complex await aiter "
    "anext aenter aexit get set delete"
).split():
    setattr(MockedObject, f"__{_operator}__", _refusing(f"__{_operator}__"))
'''

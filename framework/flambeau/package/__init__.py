"""Packages: code, pickled objects, texts and binary data in one zip archive, loaded apart from what is installed.

Opening a package reads it as data. `PackageImporter.import_module` and `PackageImporter.load_pickle` run the code that the
package holds, so call them for packages you would run as a program; ``load_pickle(..., allow_code=False)`` reads tensors and
plain data alone and runs nothing.
"""

from __future__ import annotations

from ._directory import Directory
from ._exporter import EmptyMatchError, PackageExporter, PackagingError
from ._glob import GlobGroup
from ._importers import (
    Importer,
    ObjMismatchError,
    ObjNotFoundError,
    OrderedImporter,
    is_from_package,
    sys_importer,
)
from ._package_importer import PackageImporter

__all__ = [
    "Directory", "EmptyMatchError", "GlobGroup", "Importer", "ObjMismatchError", "ObjNotFoundError", "OrderedImporter",
    "PackageExporter", "PackageImporter", "PackagingError", "is_from_package", "sys_importer",
]  # fmt: skip


def __getattr__(name: str) -> object:
    from .. import _missing

    raise _missing.attribute_error(__name__, name)

"""Extensions in C++, CUDA and SYCL: they are built against PyTorch's library, which is not here, so building is refused.

Ops of your own are written in Python: `flambeau.library` registers them, `flambeau.kernels` compiles formulas and loops for them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any, NoReturn

from .. import _missing

__all__ = [
    "BuildExtension", "CUDAExtension", "CUDA_HOME", "CppExtension", "ROCM_HOME", "SyclExtension",
    "get_compiler_abi_compatibility_and_version",
    "include_paths", "is_ninja_available", "library_paths", "load", "load_inline", "verify_ninja_availability",
]  # fmt: skip

_ADVICE = (
    "extensions are compiled against PyTorch's C++ library, which Flambeau does not have; write the op in Python, as "
    "flambeau.library.custom_op, over tensor operations or kernels of flambeau.kernels"
)
CUDA_HOME: str | None = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
ROCM_HOME: str | None = os.environ.get("ROCM_HOME")


def _refuse(name: str) -> NoReturn:
    raise _missing.not_built(f"utils.cpp_extension.{name}", _ADVICE)


def CppExtension(name: str, sources: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """An extension in C++. Raises: NotImplementedError, which says what to use instead."""
    _refuse("CppExtension")


def CUDAExtension(name: str, sources: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """An extension in CUDA. Raises: NotImplementedError, which says what to use instead."""
    _refuse("CUDAExtension")


def SyclExtension(name: str, sources: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """An extension in SYCL. Raises: NotImplementedError, which says what to use instead."""
    _refuse("SyclExtension")


class BuildExtension:
    """The command that builds them. Raises: NotImplementedError when it is made, which says what to use instead."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("BuildExtension")

    @classmethod
    def with_options(cls, **options: Any) -> type[BuildExtension]:
        """This class with `options`, as the `cmdclass` of a setup script wants it."""
        return type("cls_with_options", (cls,), {"options": options})


def load(name: str, sources: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Build and import an extension from files. Raises: NotImplementedError, which says what to use instead."""
    _refuse("load")


def load_inline(name: str, cpp_sources: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Build and import an extension from texts. Raises: NotImplementedError, which says what to use instead."""
    _refuse("load_inline")


def include_paths(device_type: str = "cpu", torch_include_dirs: bool = True) -> list[str]:
    """Folders of headers to build against: none are here."""
    return []


def library_paths(device_type: str = "cpu", torch_include_dirs: bool = True, cross_target_platform: str | None = None) -> list[str]:
    """Folders of libraries to link with: none are here."""
    return []


def is_ninja_available() -> bool:
    """Whether the build tool ninja can be run."""
    found = shutil.which("ninja")
    return found is not None and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0


def verify_ninja_availability() -> None:
    """Nothing if ninja can be run. Raises: RuntimeError if not."""
    if not is_ninja_available():
        raise RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)")


def get_compiler_abi_compatibility_and_version(compiler: str) -> NoReturn:
    """Whether `compiler` fits PyTorch's library, and its version. Raises: NotImplementedError, as there is no such library."""
    _refuse("get_compiler_abi_compatibility_and_version")

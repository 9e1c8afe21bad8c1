"""What a report of a bug should say of the machine: ``python -m flambeau.utils.collect_env``."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

__all__ = ["SystemEnv", "get_env_info", "get_pretty_env_info", "main", "pretty_str", "run"]

# Packages that are listed.
COMMON_PATTERNS = ["flambeau", "torch", "numpy", "scipy", "llvmlite", "ml_dtypes", "ml-dtypes", "optree"]
CONDA_PATTERNS = ["cudatoolkit", "mkl"]
NVIDIA_PATTERNS = ["cupy", "cuda-", "cublas", "cudnn", "cufft", "curand", "cusolver", "cusparse", "nccl", "nvjitlink", "nvtx"]
ONEAPI_PATTERNS: list[str] = []
PIP_PATTERNS = ["mypy", "flake8", "numba", "onnx"]


class SystemEnv(NamedTuple):
    """What `get_env_info` finds; None, or a text that says so, for what is not there."""

    torch_version: Any
    is_debug_build: Any
    cuda_compiled_version: Any
    gcc_version: Any
    clang_version: Any
    cmake_version: Any
    os: Any
    libc_version: Any
    python_version: Any
    python_platform: Any
    is_cuda_available: Any
    cuda_runtime_version: Any
    cuda_module_loading: Any
    nvidia_driver_version: Any
    nvidia_gpu_models: Any
    cudnn_version: Any
    is_xpu_available: Any
    pip_version: Any
    pip_packages: Any
    conda_packages: Any
    hip_compiled_version: Any
    hip_runtime_version: Any
    miopen_runtime_version: Any
    caching_allocator_config: Any
    is_xnnpack_available: Any
    cpu_info: Any


_Run = Callable[[Any], tuple[int, str, str]]


# -- other programs ----------------------------------------------------------------------------------------------------------


def run(command: str | list[str]) -> tuple[int, str, str]:
    """The exit status of a command, and what it wrote to stdout and stderr; 127 where there is no such program."""
    try:
        done = subprocess.run(command, capture_output=True, shell=isinstance(command, str), timeout=60)
    except FileNotFoundError:
        return 127, "", f"Command not found: {command}"
    except subprocess.TimeoutExpired:
        return 124, "", f"Command took too long: {command}"
    return done.returncode, done.stdout.decode("utf-8", "replace").strip(), done.stderr.decode("utf-8", "replace").strip()


def run_and_read_all(run_lambda: _Run, command: Any) -> str | None:
    """What a command wrote to stdout; None where it failed."""
    status, out, _ = run_lambda(command)
    return out if status == 0 else None


def run_and_parse_first_match(run_lambda: _Run, command: Any, regex: str) -> str | None:
    """The first group of `regex` in what a command wrote to stdout; None where it failed or there is no match."""
    out = run_and_read_all(run_lambda, command)
    found = None if out is None else re.search(regex, out)
    return None if found is None else found.group(1)


def run_and_return_first_line(run_lambda: _Run, command: Any) -> str | None:
    """The first line that a command wrote to stdout; None where it failed."""
    out = run_and_read_all(run_lambda, command)
    return None if out is None else out.split("\n")[0]


# -- the machine -------------------------------------------------------------------------------------------------------------


def get_platform() -> str:
    """``'linux'``, ``'darwin'``, ``'win32'`` or ``'cygwin'``."""
    return sys.platform


def get_python_platform() -> str:
    """The system, its version and its C library in one word."""
    return platform.platform()


def get_libc_version() -> str:
    """The C library and its version; ``'N/A'`` where this is not Linux."""
    return "-".join(platform.libc_ver()) if get_platform() == "linux" else "N/A"


def get_lsb_version(run_lambda: _Run) -> str | None:
    """What lsb_release says the system is."""
    return run_and_parse_first_match(run_lambda, "lsb_release -a", r"Description:\t(.*)")


def check_release_file(run_lambda: _Run) -> str | None:
    """What the files of the system say it is."""
    return run_and_parse_first_match(run_lambda, "cat /etc/*-release", r'PRETTY_NAME="(.*)"')


def get_mac_version(run_lambda: _Run) -> str | None:
    """The version of macOS."""
    return run_and_parse_first_match(run_lambda, "sw_vers -productVersion", r"(.*)")


def get_windows_version(run_lambda: _Run) -> str | None:
    """The name and version of Windows."""
    return f"{platform.system()} {platform.version()}" if get_platform() in ("win32", "cygwin") else None


def get_os(run_lambda: _Run) -> str | None:
    """The system and its version."""
    machine = platform.machine()
    if get_platform() in ("win32", "cygwin"):
        return get_windows_version(run_lambda)
    if get_platform() == "darwin":
        version = get_mac_version(run_lambda)
        return None if version is None else f"macOS {version} ({machine})"
    if get_platform() != "linux":
        return get_platform()
    found = get_lsb_version(run_lambda) or check_release_file(run_lambda) or get_platform()
    return f"{found} ({machine})"


def get_cpu_info(run_lambda: _Run) -> str:
    """What the system's own program says of the processor, or what Python knows."""
    commands = {"linux": "lscpu", "darwin": "sysctl -n machdep.cpu.brand_string"}
    command = commands.get(get_platform())
    out = None if command is None else run_and_read_all(run_lambda, command)
    return out or platform.processor() or platform.machine()


def get_gcc_version(run_lambda: _Run) -> str | None:
    """The version of gcc."""
    return run_and_parse_first_match(run_lambda, "gcc --version", r"gcc (.*)")


def get_clang_version(run_lambda: _Run) -> str | None:
    """The version of clang."""
    return run_and_parse_first_match(run_lambda, "clang --version", r"clang version (.*)")


def get_cmake_version(run_lambda: _Run) -> str | None:
    """The version of cmake."""
    return run_and_parse_first_match(run_lambda, "cmake --version", r"cmake (.*)")


# -- devices -----------------------------------------------------------------------------------------------------------------


def get_nvidia_smi() -> str:
    """The program that tells of NVIDIA's devices."""
    return "nvidia-smi"


def get_nvidia_driver_version(run_lambda: _Run) -> str | None:
    """The version of NVIDIA's driver."""
    return run_and_parse_first_match(run_lambda, get_nvidia_smi(), r"Driver Version: (.*?) ")


def get_gpu_info(run_lambda: _Run) -> str | None:
    """The names of the CUDA devices, one in a line."""
    from .. import cuda

    if cuda.is_available():
        return "\n".join(f"GPU {i}: {cuda.get_device_name(i)}" for i in range(cuda.device_count()))
    out = run_and_read_all(run_lambda, f"{get_nvidia_smi()} -L")
    return None if out is None else re.sub(r" \(UUID: .+?\)", "", out)


def get_running_cuda_version(run_lambda: _Run) -> str | None:
    """The version of CUDA's compiler on this machine."""
    return run_and_parse_first_match(run_lambda, "nvcc --version", r"release .+ V(.*)")


def get_cudnn_version(run_lambda: _Run) -> str | None:
    """The version of cuDNN that can be used."""
    from ..backends import cudnn

    found = cudnn.version()
    return None if found is None else str(found)


def get_cuda_module_loading_config() -> str:
    """What the variable CUDA_MODULE_LOADING says, where there is a CUDA device."""
    from .. import cuda

    return os.environ.get("CUDA_MODULE_LOADING", "") if cuda.is_available() else "N/A"


def get_cachingallocator_config() -> dict[str, str]:
    """The variables that set PyTorch's pools of memory, and their values; they change nothing here."""
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def get_intel_gpu_detected(run_lambda: _Run) -> str:
    """``'N/A'``: there is no xpu device."""
    return "N/A"


def get_intel_gpu_driver_version(run_lambda: _Run) -> str:
    """``'N/A'``: there is no xpu device."""
    return "N/A"


def get_intel_gpu_onboard(run_lambda: _Run) -> str:
    """``'N/A'``: there is no xpu device."""
    return "N/A"


def is_xnnpack_available() -> str:
    """``'False'``: XNNPACK is not here."""
    from ..backends import xnnpack

    return str(xnnpack.enabled)


# -- packages ----------------------------------------------------------------------------------------------------------------


def _is_listed(name: str, patterns: Iterable[str]) -> bool:
    return any(pattern in name.lower() for pattern in patterns)


def get_pip_packages(run_lambda: _Run, patterns: Iterable[str] | None = None) -> tuple[str, str | None]:
    """The command that lists packages, and those that match: their names and versions, one in a line; None for none.

    Args:
        run_lambda: not used: Python knows its packages.
        patterns: parts of names.
    """
    from importlib.metadata import distributions

    wanted = [*COMMON_PATTERNS, *PIP_PATTERNS, *NVIDIA_PATTERNS] if patterns is None else list(patterns)
    found = {d.metadata["Name"]: d.version for d in distributions() if _is_listed(d.metadata["Name"] or "", wanted)}
    return f"pip{sys.version_info.major}", "\n".join(f"{name}=={found[name]}" for name in sorted(found)) or None


def get_conda_packages(run_lambda: _Run, patterns: Iterable[str] | None = None) -> str | None:
    """What conda lists that matches; None without conda."""
    wanted = [*COMMON_PATTERNS, *CONDA_PATTERNS, *NVIDIA_PATTERNS] if patterns is None else list(patterns)
    out = run_and_read_all(run_lambda, f"{os.environ.get('CONDA_EXE', 'conda')} list")
    if out is None:
        return None
    return "\n".join(line for line in out.splitlines() if not line.startswith("#") and _is_listed(line, wanted))


def get_linux_pkg_version(run_lambda: _Run, pkg_name: str) -> str:
    """The version of a package of the system; ``'N/A'`` where its programs do not know it."""
    for command, regex in (
        (f"dpkg-query -W -f='${{Version}}' {pkg_name}", r"(\S+)"),
        (f"rpm -q --qf '%{{VERSION}}' {pkg_name}", r"(\S+)"),
    ):
        found = run_and_parse_first_match(run_lambda, command, regex)
        if found is not None:
            return found
    return "N/A"


# -- all of it ---------------------------------------------------------------------------------------------------------------


def get_env_info() -> SystemEnv:
    """All that is told of this machine."""
    from .. import __version__, _missing, cuda

    pip_version, pip_packages = get_pip_packages(run)
    available = cuda.is_available()
    bits = 64 if sys.maxsize > 2**32 else 32
    return SystemEnv(
        torch_version=f"{_missing.API_VERSION}.0+flambeau (Flambeau {__version__})",
        is_debug_build="False",
        cuda_compiled_version=None,
        gcc_version=get_gcc_version(run),
        clang_version=get_clang_version(run),
        cmake_version=get_cmake_version(run),
        os=get_os(run),
        libc_version=get_libc_version(),
        python_version=f"{sys.version} ({bits}-bit runtime)".replace("\n", " "),
        python_platform=get_python_platform(),
        is_cuda_available=str(available),
        cuda_runtime_version=get_running_cuda_version(run),
        cuda_module_loading=get_cuda_module_loading_config(),
        nvidia_driver_version=get_nvidia_driver_version(run),
        nvidia_gpu_models=get_gpu_info(run),
        cudnn_version=get_cudnn_version(run),
        is_xpu_available="False",
        pip_version=pip_version,
        pip_packages=pip_packages,
        conda_packages=get_conda_packages(run),
        hip_compiled_version="N/A",
        hip_runtime_version="N/A",
        miopen_runtime_version="N/A",
        caching_allocator_config=get_cachingallocator_config(),
        is_xnnpack_available=is_xnnpack_available(),
        cpu_info=get_cpu_info(run),
    )


env_info_fmt = """
PyTorch version: {torch_version}
Is debug build: {is_debug_build}
CUDA used to build PyTorch: {cuda_compiled_version}
ROCM used to build PyTorch: {hip_compiled_version}

OS: {os}
GCC version: {gcc_version}
Clang version: {clang_version}
CMake version: {cmake_version}
Libc version: {libc_version}

Python version: {python_version}
Python platform: {python_platform}
Is CUDA available: {is_cuda_available}
CUDA runtime version: {cuda_runtime_version}
CUDA_MODULE_LOADING set to: {cuda_module_loading}
GPU models and configuration: {nvidia_gpu_models}
Nvidia driver version: {nvidia_driver_version}
cuDNN version: {cudnn_version}
Is XPU available: {is_xpu_available}
HIP runtime version: {hip_runtime_version}
MIOpen runtime version: {miopen_runtime_version}
Is XNNPACK available: {is_xnnpack_available}
Caching allocator config: {caching_allocator_config}

CPU:
{cpu_info}

Versions of relevant libraries:
{pip_packages}
{conda_packages}
""".strip()


def pretty_str(envinfo: SystemEnv) -> str:
    """`envinfo` as text for a report."""
    values = envinfo._asdict()
    for name, value in values.items():
        if value is None or value == {}:
            values[name] = "N/A" if value == {} else "No relevant packages" if name.endswith("_packages") else "Could not collect"
        elif "\n" in str(value) and name == "nvidia_gpu_models":
            values[name] = f"\n{value}\n"
    for name, prefix in (("pip_packages", f"[{envinfo.pip_version}] "), ("conda_packages", "[conda] ")):
        values[name] = "\n".join(prefix + line for line in str(values[name]).splitlines())
    return env_info_fmt.format(**values)


def get_pretty_env_info() -> str:
    """`get_env_info` as text for a report."""
    return pretty_str(get_env_info())


def main() -> None:
    """Print the report."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()

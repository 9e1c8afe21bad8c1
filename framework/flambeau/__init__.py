"""Flambeau: PyTorch's API as a pure-Python framework over JIT-compiled kernels.

Everything public is found here or in a submodule that loads on first use; importing this package loads numpy, ml_dtypes
and our own Python only.
"""

from __future__ import annotations

import os as _os
import warnings as _warnings
from typing import TYPE_CHECKING, Any

from ._on_demand import is_module as _is_module
from .autograd.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)  # fmt: skip
from .devices import (
    Size,
    channels_last,
    channels_last_3d,
    contiguous_format,
    device,
    jagged,
    layout,
    memory_format,
    preserve_format,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
)  # fmt: skip
from .dtypes import (
    bfloat16,
    bool,
    can_cast,
    cdouble,
    cfloat,
    chalf,
    complex32,
    complex64,
    complex128,
    double,
    dtype,
    finfo,
    float,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    get_default_dtype,
    half,
    iinfo,
    int,
    int8,
    int16,
    int32,
    int64,
    long,
    promote_types,
    set_default_dtype,
    short,
    uint8,
    uint16,
    uint32,
    uint64,
)  # fmt: skip
from .tensor import Tensor

__version__ = "0.1.0"

# numpy's floating-point warnings (overflow, invalid) have no counterpart in PyTorch; only those our modules cause are muted.
_warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"flambeau(\.|_kernels|$)")

_SUBMODULES = (
    "nn", "optim", "utils", "autograd", "amp", "func", "fft", "linalg", "special", "distributions", "random", "serialization",
    "cuda", "cpu", "backends", "version", "testing", "overrides", "jit", "fx", "export", "compiler", "distributed", "sparse",
    "nested", "masked", "onnx", "hub", "package", "profiler", "quantization", "ao", "futures", "multiprocessing", "mps", "xpu",
    "mtia", "accelerator", "array_api", "library", "monitor", "quasirandom", "return_types", "swap", "storage", "types", "signal",
    "safetensors", "kernels",
    "_utils", "_tensor", "torch_version", "functional", "__config__", "_higher_order_ops", "_subclasses", "warmup",
    "__future__", "_guards", "_logging", "_C", "_VF", "_custom_ops", "_dynamo", "_inductor", "_jit_internal", "_library", "_ops",
    "_tensor_str",
)  # fmt: skip
_NUMBERS = {"newaxis": None, "pi": 3.141592653589793, "e": 2.718281828459045, "inf": 1e400, "nan": 1e400 - 1e400}
_HOME = {
    "save": "serialization", "load": "serialization", "Generator": "random", "default_generator": "random",
    "manual_seed": "random", "seed": "random", "initial_seed": "random", "get_rng_state": "random", "set_rng_state": "random",
    "UntypedStorage": "storage", "TypedStorage": "storage", "set_printoptions": "_printing", "get_printoptions": "_printing",
    "autocast": "amp", "GradScaler": "amp", "vmap": "func", "compile": "compiler", "Function": "autograd",
    "is_autocast_available": "amp.autocast_mode", "is_autocast_enabled": "amp.autocast_mode",
    "set_autocast_enabled": "amp.autocast_mode", "get_autocast_dtype": "amp.autocast_mode",
    "set_autocast_dtype": "amp.autocast_mode", "is_autocast_cache_enabled": "amp.autocast_mode",
    "set_autocast_cache_enabled": "amp.autocast_mode", "clear_autocast_cache": "amp.autocast_mode",
    "autocast_increment_nesting": "amp.autocast_mode", "autocast_decrement_nesting": "amp.autocast_mode",
    "is_autocast_cpu_enabled": "amp.autocast_mode", "set_autocast_cpu_enabled": "amp.autocast_mode",
    "get_autocast_cpu_dtype": "amp.autocast_mode", "set_autocast_cpu_dtype": "amp.autocast_mode",
    "get_autocast_gpu_dtype": "amp.autocast_mode", "set_autocast_gpu_dtype": "amp.autocast_mode",
    "get_num_threads": "_settings", "set_num_threads": "_settings", "get_num_interop_threads": "_settings",
    "set_num_interop_threads": "_settings", "use_deterministic_algorithms": "_settings",
    "are_deterministic_algorithms_enabled": "_settings", "is_deterministic_algorithms_warn_only_enabled": "_settings",
    "set_deterministic_debug_mode": "_settings", "get_deterministic_debug_mode": "_settings",
    "set_float32_matmul_precision": "_settings", "get_float32_matmul_precision": "_settings", "set_flush_denormal": "_settings",
    "set_default_tensor_type": "_settings", "set_default_device": "_settings", "get_default_device": "_settings",
    "set_warn_always": "_settings", "is_warn_always_enabled": "_settings", "result_type": "_settings", "is_tensor": "_settings",
    "is_storage": "_settings", "is_complex": "_settings", "is_floating_point": "_settings", "is_nonzero": "_settings",
    "numel": "_settings", "is_conj": "_settings", "is_neg": "_settings", "typename": "_settings", "compiled_with_cxx11_abi": "_settings",
    "is_inference": "_settings", "is_signed": "_settings",
    "_assert": "_settings", "get_device_module": "accelerator", "from_file": "_settings", "sym_int": "_native_functions",
    "sym_float": "_native_functions", "sym_not": "_native_functions", "sym_max": "_native_functions",
    "sym_min": "_native_functions", "sym_ite": "_native_functions",
    "cond": "_higher_order_ops", "while_loop": "_higher_order_ops",
    "sym_sum": "_native_functions", "SymInt": "_symbolic", "SymFloat": "_symbolic", "SymBool": "_symbolic", "sym_sqrt": "_native_functions",
    "sym_fresh_size": "_symbolic",
    "_nested_tensor_from_tensor_list": "nested._construction", "_nested_tensor_from_mask": "nested._construction",
    "_nested_tensor_from_mask_left_aligned": "nested._construction",
    "Event": "_streams", "Stream": "_streams",
    "OutOfMemoryError": "_errors", "AcceleratorError": "_errors", "Tag": "_tags",
    "classes": "_ops", "legacy_contiguous_format": "devices", "_register_device_module": "utils.backend_registration", "ScriptModule": "_C",
    "Future": "futures", "StorageBase": "_C",
    "PyTorchFileReader": "_files.archive_files", "PyTorchFileWriter": "_files.archive_files",
}  # fmt: skip


_HOME.update(
    dict.fromkeys((
        "FatalError", "PRIVATE_OPS", "USE_GLOBAL_DEPS", "USE_RTLD_GLOBAL_WITH_LIBTORCH", "ccol_indices_copy", "classproperty",
        "col_indices_copy", "crow_indices_copy", "eig", "get_autocast_ipu_dtype", "get_autocast_xla_dtype", "get_file_path",
        "has_lapack", "has_mkl", "has_openmp", "has_spectral", "indices_copy", "init_num_threads", "int_repr", "is_autocast_ipu_enabled",
        "is_autocast_xla_enabled", "is_distributed", "lstsq", "matrix_rank", "prepare_multiprocessing_environment", "q_per_channel_axis",
        "q_per_channel_scales", "q_per_channel_zero_points", "q_scale", "q_zero_point", "row_indices_copy", "set_anomaly_enabled",
        "slice_copy", "slice_inverse", "solve", "split_copy", "symeig", "values_copy",
    ), "_more_names")
)  # fmt: skip
_HOME.update(
    dict.fromkeys((
        "AnyType", "AwaitType", "BoolType", "ComplexType", "DeviceObjType", "DictType", "FloatType", "FutureType", "InferredType",
        "IntType", "ListType", "NoneType", "NumberType", "OptionalType", "PyObjectType", "RRefType", "StreamObjType", "StringType",
        "SymBoolType", "SymIntType", "TensorType", "TupleType", "UnionType", "unify_type_list",
    ), "jit._type_names")
)  # fmt: skip
_HOME.update(
    {
        "Argument": "_schema", "Block": "jit._ir", "ClassType": "jit._types", "CompilationUnit": "jit", "DisableTorchFunction": "_C",
        "DisableTorchFunctionSubclass": "_C", "DispatchKey": "_C", "DispatchKeySet": "_C", "EnumType": "jit._types",
        "FunctionSchema": "_schema", "Future": "futures", "Graph": "jit._ir", "JITException": "jit._run", "Node": "jit._ir",
        "ScriptFunction": "jit", "ScriptObject": "_C", "StorageBase": "_C", "ThroughputBenchmark": "utils", "TracingState": "_C",
        "Type": "_schema", "Value": "jit._ir", "fork": "jit", "is_anomaly_check_nan_enabled": "autograd.anomaly_mode",
        "is_anomaly_enabled": "autograd.anomaly_mode", "parse_schema": "_schema", "thread_safe_generator": "random", "wait": "jit",
    }
)  # fmt: skip
_HOME.update(dict.fromkeys(("quint8", "qint8", "qint32", "quint4x2", "quint2x4"), "dtypes"))
_HOME.update(
    dict.fromkeys((
        "qscheme", "per_tensor_affine", "per_channel_affine", "per_tensor_symmetric", "per_channel_symmetric",
        "per_channel_affine_float_qparams",
    ), "devices")
)  # fmt: skip
_HOME.update(
    dict.fromkeys((
        "_assert_async", "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo", "_int_mm", "_log_softmax_backward_data",
        "_sample_dirichlet", "_softmax_backward_data", "_standard_gamma", "dsmm", "hsmm",
        "_check", "_check_index", "_check_is_size", "_check_not_implemented", "_check_tensor_all", "_check_tensor_all_with",
        "_check_type", "_check_value", "_check_with", "_grouped_mm", "_log_softmax", "_scaled_mm",
        "_segment_reduce", "_shape_as_tensor", "_softmax", "_weight_norm",
        "bilinear", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cosine_similarity", "ctc_loss",
        "cudnn_is_acceptable", "detach_", "embedding_bag", "embedding_renorm_", "fake_quantize_per_channel_affine",
        "fake_quantize_per_tensor_affine", "frobenius_norm", "get_device", "gru", "gru_cell", "hinge_embedding_loss",
        "is_vulkan_available", "kl_div", "lstm", "lstm_cell", "margin_ranking_loss", "native_dropout", "norm_except_dim",
        "nuclear_norm", "pairwise_distance", "pdist", "poisson_nll_loss", "rnn_relu", "rnn_relu_cell", "rnn_tanh",
        "rnn_tanh_cell", "segment_reduce", "spmm", "triplet_margin_loss", "unsafe_split_with_sizes",
    ), "_native_functions")
)  # fmt: skip

if TYPE_CHECKING:
    from ._functions import *  # noqa: F403  # generated: what the registry derives

    _NAMES_HERE: list[str]


def _is_offered(name: str) -> bool:
    """Whether a name that starts with an underscore is one that PyTorch's programs use."""
    return name in _SUBMODULES or name in _HOME or name.startswith("_foreach_")


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _NUMBERS:
        found: Any = _NUMBERS[name]
    elif name == "__all__":
        return _star()
    elif name.startswith("_") and not _is_offered(name) or name == "ops":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    elif name in _SUBMODULES and _is_module(f"{__name__}.{name}"):
        found = import_module(f".{name}", __name__)
    elif name.endswith("Storage") and not name.startswith(("Un", "Typed")):
        found = getattr(import_module(".storage", __name__), name)
    elif name in _HOME and _is_module(f"{__name__}.{_HOME[name]}"):
        found = getattr(import_module(f".{_HOME[name]}", __name__), name)
    else:
        from .ops import _derive

        found = _derive.public("", name)
        if found is None and name.endswith("Tensor"):
            found = _derive.load("creation.convert").typed_tensor(name)
        if found is None:
            from . import _missing

            raise _missing.attribute_error(__name__, name, import_module(__name__))
    globals()[name] = found
    return found


def _star() -> list[str]:
    """What ``from flambeau import *`` brings: as of PyTorch, every function, dtype and typed tensor, and no submodule."""
    from .ops import _derive

    at_home = {name for name, home in _HOME.items() if _is_module(f"{__name__}.{home}")}
    legacy = ("Bool", "Byte", "Char", "Double", "Float", "Int", "Long", "Short")
    typed = {name + kind for name in legacy for kind in ("Tensor", "Storage")}
    functions = {*_derive.function_names(""), *_derive.plain_functions()}
    functions.update([name + "_" for name in functions if _derive.lookup("", name + "_") is not None])
    names = {*_NAMES_HERE, *_NUMBERS, *at_home, *typed, *functions}
    return sorted(name for name in names if name[0] != "_")


def __dir__() -> list[str]:
    from .ops import _foreach
    from .ops.creation.convert import typed_tensors
    from .storage import STORAGE_DTYPES

    made_when_asked = {*_star(), *_foreach.names(), *typed_tensors(), *STORAGE_DTYPES}
    # The type of the version is a module under the name of torch alone.
    return sorted({*globals(), *_SUBMODULES, *_HOME, *made_when_asked} - {"_os", "_warnings", "torch_version"})


from .ops import install_operators as _install_operators  # noqa: E402  # below the names it may ask for

_install_operators()
if TYPE_CHECKING:
    from .ops.creation.from_values import tensor
else:
    del tensor  # the module, where users mean the function, which `__getattr__` gives them
if _os.environ.get("TORCH_LOGS"):
    from . import _logging  # noqa: F401  # which reads it

__all__ = [
    "Size", "Tensor", "bfloat16", "bool", "can_cast", "cdouble", "cfloat", "chalf", "channels_last", "channels_last_3d",
    "complex128", "complex32", "complex64", "contiguous_format", "device", "double", "dtype", "enable_grad", "finfo", "float",
    "float16", "float32", "float64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "get_default_dtype", "half", "iinfo", "inference_mode", "int", "int16", "int32", "int64", "int8", "is_grad_enabled",
    "is_inference_mode_enabled", "jagged", "layout", "long", "memory_format", "no_grad", "preserve_format", "promote_types",
    "set_default_dtype", "set_grad_enabled", "short", "sparse_bsc", "sparse_bsr", "sparse_coo", "sparse_csc", "sparse_csr",
    "strided", "tensor", "uint16", "uint32", "uint64", "uint8",
]  # fmt: skip
if not TYPE_CHECKING:
    # The whole list needs every op; `__getattr__` makes it for those who ask.
    _NAMES_HERE = globals().pop("__all__")

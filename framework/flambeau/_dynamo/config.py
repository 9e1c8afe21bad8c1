"""Settings of PyTorch's compiler that programs change: kept as set. Setting what is none raises AttributeError.

`disable`, `suppress_errors`, the limits, `error_on_recompile`, `debug_dir_root`, `repro_after` and `repro_level` have a meaning here; so
have, of graphs for many sizes, `automatic_dynamic_shapes`, `assume_static_by_default`, `specialize_int`, `specialize_float` and
`force_parameter_static_shapes`.
"""

from __future__ import annotations

import os
from typing import Any

from .._setting_modules import settings_of

verbose = False
suppress_errors = False
disable = False
recompile_limit = 8  # graphs of one part of a function; `cache_size_limit` is another name for it
accumulated_recompile_limit = 256  # graphs of a function; `accumulated_cache_size_limit`
fail_on_recompile_limit_hit = False
error_on_recompile = False
dynamic_shapes = True
assume_static_by_default = True
automatic_dynamic_shapes = True
force_parameter_static_shapes = True
force_nn_module_property_static_shapes = True
specialize_int = False
specialize_float = False
capture_scalar_outputs = False
capture_dynamic_output_shape_ops = False
allow_unspec_int_on_nn_module = False
allow_rnn = False
optimize_ddp: bool | str = True
guard_nn_modules = True
inline_inbuilt_nn_modules = True
skip_nnmodule_hook_guards = True
compiled_autograd = False
numpy_default_float = "float64"
trace_numpy = True
log_level = None
log_file_name = None
debug_dir_root = os.path.join(os.environ.get("TORCH_COMPILE_DEBUG_DIR", os.getcwd()), "torch_compile_debug")
allow_empty_graphs = False
allow_ignore_mark_dynamic = False
automatic_dynamic_local_pgo = True
automatic_dynamic_remote_pgo = None
caching_precompile = False
capture_autograd_function = True
capture_func_transforms = True
capture_profiler_record_function = False
capture_sparse_compute = True
dead_code_elimination = None
do_not_emit_runtime_asserts = False
dont_skip_tracing = False
enable_aot_compile = True
enable_compiler_collectives = False
enable_cpp_guard_manager = True
enable_faithful_generator_behavior = True
enable_trace_contextlib = True
error_on_nested_fx_trace = True
error_on_nested_jit_trace = True
fake_tensor_cache_enabled = True
graph_break_on_nn_param_ctor = True
ignore_logging_functions: set[Any] = set()
install_free_tensors = False
log_compilation_metrics = True
minimum_call_count = 1
nested_graph_breaks = False
nontraceable_tensor_subclasses: set[Any] = set()
numpy_default_complex = "complex128"
numpy_default_int = "int64"
only_allow_pt2_compliant_ops = False
optimize_ddp_lazy_compile = False
prefer_deferred_runtime_asserts_over_guards = False
prepare_freezing = False
raise_on_ctx_manager_usage = True
raise_on_unsafe_aot_autograd = False
record_runtime_overhead = True
reorderable_logging_functions: set[Any] = set()
replay_record_enabled = False
report_guard_failures = True
repro_forward_only = False
repro_ignore_non_fp = False
repro_tolerance = 1e-3
rewrite_assert_with_torch_assert = True
run_gc_after_compile = True
same_two_models_use_fp64 = True
skip_code_recursive_on_recompile_limit_hit = True
skip_fsdp_guards = True
skip_fwd_side_effects_in_bwd_under_checkpoint = False
skip_tensor_guards_with_matching_dict_tags = True
skip_torchrec = True
strict_precompile = False
trace_autograd_ops = False
traceable_tensor_subclasses: set[Any] = set()
use_graph_deduplication = False
use_lazy_graph_module = True
use_numpy_random_stream = False
verify_correctness = False
wrap_top_frame = False
repro_after: str | None = os.environ.get("TORCHDYNAMO_REPRO_AFTER")  # "dynamo" or "aot": write a script when a backend fails
repro_level = int(os.environ.get("TORCHDYNAMO_REPRO_LEVEL", "2"))  # 1 the whole graph, 2 or 3 the smallest, 4 also where numbers differ

patch = settings_of(
    __name__, ("annotations", "os", "Any", "settings_of"),
    {"cache_size_limit": "recompile_limit", "accumulated_cache_size_limit": "accumulated_recompile_limit"},
)  # fmt: skip

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
debug_backend_override = ""
debug_inductor_config_override = ""
debug_dynamo_config_override = ""
leaf_function_validate_outputs = False
leaf_function_check_escaped_gradients = False
replay_side_effects = True
generate_pycode = False
side_effect_replay_policy = "info"
automatic_dynamic_shapes_mark_as = "dynamic"
automatic_dynamic_exclusion_guard = False
log_graph_in_out_metadata = False
guard_nn_modules_using_dict_tags = True
cprofile = False
dynamo_profiler = False
skipfiles_inline_module_allowlist: dict[Any, Any] = {}
allowed_functions_module_string_ignorelist = {"torch.testing", "torch.distributions", "torch._prims", "torch._decomp", "torch._refs"}
force_unspec_int_unbacked_size_like_on_torchrec_kjt = False
use_lamba_guard_for_object_aliasing = True
skip_no_tensor_aliasing_guards_on_parameters = True
skip_guards_on_constant_func_defaults = False
assume_dunder_attributes_remain_unchanged = True
use_recursive_dict_tags_for_guards = False
max_saved_pointers_for_recursive_dict_tags_check = 256
force_compile_during_fx_trace = False
enable_cpp_symbolic_shape_guards = False
enable_trace_unittest = False
enable_trace_load_build_class = False
error_on_dynamo_callback_in_fullgraph_compiled_code = False
install_free_tensors_for_export = True
enable_cpp_framelocals_guard_eval = True
track_nodes_for_deduplication = False
graph_deduplication_lint = False
issue_3_13_0_warning = True
debug_force_nested_calls = False
debug_force_graph_break_on_leaf_return = False
debug_disable_compile_counter = False
record_compile_time_instruction_count = False
cudagraph_backend_keep_input_mutation = False
cudagraph_backend_support_input_mutation = False
inject_BUILD_SET_unimplemented_TESTING_ONLY = False
fake_tensor_cache_crosscheck_enabled = False
fake_tensor_disable_inference_mode = True
enable_dynamo_decompositions = True
inline_torch_dispatch_torch_compile = True
compiled_autograd_kwargs_override: dict[str, Any] = {}
enable_p2p_compilation = False
pt2_compile_id_prefix: str | None = None
constant_fold_autograd_profiler_enabled = False
enable_invoke_subgraph_regional_compile = False
inline_invoke_subgraph = False
inline_single_use_invoke_subgraph = True
invalidate_compile_context_weakrefs: bool | None = None
repro_after: str | None = os.environ.get("TORCHDYNAMO_REPRO_AFTER")  # "dynamo" or "aot": write a script when a backend fails
repro_level = int(os.environ.get("TORCHDYNAMO_REPRO_LEVEL", "2"))  # 1 the whole graph, 2 or 3 the smallest, 4 also where numbers differ

patch = settings_of(
    __name__, ("annotations", "os", "Any", "settings_of"),
    {"cache_size_limit": "recompile_limit", "accumulated_cache_size_limit": "accumulated_recompile_limit"},
    {
        "_shapes_spec": None,
        "_autograd_backward_strict_mode_banned_ops": ["layout", "is_neg", "is_conj", "is_pinned"],
        "_autograd_backward_strict_mode_conditional_banned_ops": ["stride", "storage_offset", "is_contiguous"],
        "_unsafe_skip_fsdp_module_guards": False,
        "_custom_ops_profile": None,
    },
    ("log_file_name", "automatic_dynamic_shapes_mark_as", "traceable_tensor_subclasses", "nontraceable_tensor_subclasses", "optimize_ddp"),
).patch  # fmt: skip

"""Settings of PyTorch's code generator that programs change: kept as set, and read by nothing."""

from __future__ import annotations

from types import SimpleNamespace

debug = False
freezing = False
cpp_wrapper = False
max_autotune = False
max_autotune_gemm = False
max_autotune_pointwise = False
coordinate_descent_tuning = False
coordinate_descent_check_all_directions = False
epilogue_fusion = True
fx_graph_cache = True
fx_graph_remote_cache = None
force_fuse_int_mm_with_mul = False
use_mixed_mm = True
conv_1x1_as_mm = False
split_reductions = True
fallback_random = False
shape_padding = True
compile_threads = 1
triton = SimpleNamespace(cudagraphs=False, cudagraph_trees=True, unique_kernel_names=True, cudagraph_skip_dynamic_graphs=False)
cpp = SimpleNamespace(threads=-1, simdlen=None, enable_kernel_profile=False)

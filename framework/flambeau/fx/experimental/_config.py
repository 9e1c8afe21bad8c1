"""Settings of PyTorch's symbolic shapes that programs change: kept as set. Nothing reads them, for guards are made otherwise here."""

from __future__ import annotations

from typing import Any

from ..._setting_modules import settings_of

no_data_dependent_graph_break = False
translation_validation = False
translation_validation_timeout = 600000
translation_validation_no_bisect = False
check_shape_env_recorded_events = False
extended_debug_guard_added: Any = None
extended_debug_create_symbol: Any = None
extended_debug_cpp = False
extended_debug_current_loc = False
print_specializations = False
inject_EVALUATE_EXPR_flip_equality_TESTING_ONLY = False
validate_shape_env_version_key = False
symbol_guard_limit_before_specialize: Any = None
use_duck_shape = True
meta_nonzero_assume_all_nonzero = False
backed_size_oblivious = False
unify_view_symbols_bso_meta = False
skip_dtype_check_in_meta_registrations = False
enrich_profiler_metadata = False
soft_pending_unbacked_not_found_error = False
aggressive_guard_free_semantics = 0

patch = settings_of(__name__, ("annotations", "Any", "settings_of")).patch

"""What errors call ops that users reach only through another function."""

from __future__ import annotations

SAID: dict[str, str] = {
    "adaptive_mean": "adaptive_avg_pool", "attend": "scaled_dot_product_attention", "bags_of_rows": "embedding_bag",
    "basic_index": "index", "cholesky_of": "linalg.cholesky", "clamp_above": "clamp", "clamp_below": "clamp", "clamp_both": "clamp",
    "conjugate": "conj", "cross_along": "linalg.cross", "cross_entropy_rows": "cross_entropy", "ctc": "ctc_loss",
    "det_of": "linalg.det", "deviation": "std", "eig_of": "linalg.eig", "eigh_of": "linalg.eigh", "eigvals_of": "linalg.eigvals",
    "eigvalsh_of": "linalg.eigvalsh", "expand_shape": "expand", "floor_quotient": "div", "fold_columns": "fold",
    "gather_columns": "unfold", "gelu_exact": "gelu", "gelu_tanh": "gelu", "geqrf_of": "geqrf",
    "getitem_op": "index", "imag_part": "imag", "index_fill_number": "index_fill", "index_fill_tensor": "index_fill",
    "inverse_of": "linalg.inv", "is_member": "isin", "ldl_of": "linalg.ldl_factor", "ldl_solution": "linalg.ldl_solve",
    "least_squares": "linalg.lstsq", "log_softmax_along": "log_softmax", "logaddexp_complex": "logaddexp",
    "logaddexp_real": "logaddexp", "logit_entropy": "binary_cross_entropy_with_logits", "logit_of": "logit",
    "logsumexp_over": "logsumexp", "lu_of": "linalg.lu_factor", "masked_fill_number": "masked_fill",
    "masked_fill_tensor": "masked_fill", "mean_squared_error": "mse_loss", "nll": "nll_loss",
    "nonzero_rows": "nonzero", "norm_over": "norm", "normalize_by_running": "batch_norm", "normalize_channels": "batch_norm",
    "normalize_groups": "group_norm", "normalize_trailing": "layer_norm", "pad_constant": "pad", "pad_mode": "pad",
    "places_in_sorted": "searchsorted", "polygamma_of": "polygamma", "pseudo_inverse": "linalg.pinv", "qr_of": "linalg.qr",
    "raise_to": "float_power", "real_part": "real", "replace_nonfinite": "nan_to_num", "resample": "interpolate",
    "round_to_decimals": "round", "round_to_integer": "round", "round_to_tens": "round", "rows_added": "index_add",
    "rrelu_with_noise": "rrelu", "scale_trailing": "rms_norm", "scatter_combine": "scatter_reduce", "scatter_src": "scatter",
    "scatter_value": "scatter", "slice_dim": "narrow", "slogdet_of": "linalg.slogdet", "softmax_along": "softmax",
    "solution_of": "linalg.solve", "split_sizes": "split_with_sizes", "squared_error": "mse_loss",
    "squeeze_dims": "squeeze", "svd_of": "linalg.svd", "svdvals_of": "linalg.svdvals", "to_copy": "to",
    "triangular_solution": "linalg.solve_triangular", "trunc_quotient": "div", "trunc_quotient_of_integers": "div",
    "unpool": "max_unpool", "variance": "var", "view_dtype": "view", "view_shape": "view", "window_max": "max_pool",
    "window_max_with_indices": "max_pool", "window_mean": "avg_pool",
}  # fmt: skip

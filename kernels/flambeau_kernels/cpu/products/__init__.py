"""Products of matrices of any layout; the loops of floats are in `gemm/`."""

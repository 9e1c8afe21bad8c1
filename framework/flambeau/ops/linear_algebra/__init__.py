"""Products, factorizations and functions of matrices."""

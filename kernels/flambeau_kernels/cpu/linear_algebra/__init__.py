"""Factors, eigenvalues and solutions of matrices, one large or many small; distances between rows."""

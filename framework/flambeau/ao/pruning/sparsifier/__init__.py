"""Sparsifiers: which weights are 0."""

"""Elementwise operations: one formula each."""

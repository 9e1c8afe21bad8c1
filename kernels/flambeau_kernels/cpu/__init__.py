"""Kernels written by hand for the CPU."""

"""Graphs of a function and of its derivative, made before it runs: what PyTorch has as ``functorch.compile``."""

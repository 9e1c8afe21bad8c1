"""Algorithms over processes: inputs of uneven length, communication hooks, averages of models."""

from .join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable"]

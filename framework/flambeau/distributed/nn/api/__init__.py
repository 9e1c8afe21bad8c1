"""Modules of other workers."""

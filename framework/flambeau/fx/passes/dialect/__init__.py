"""Passes over graphs of one dialect."""

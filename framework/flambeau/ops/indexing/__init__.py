"""Picking elements by index, and putting them."""

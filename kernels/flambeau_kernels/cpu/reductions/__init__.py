"""Reductions and running totals along dimensions, softmax among them."""

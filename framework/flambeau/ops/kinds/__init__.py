"""Tensors of other kinds of arrays: sparse and quantized ones."""

"""What sparse tensors are made of: their arrays, conversions between layouts, checks, and the kernels of operations for them.

`arrays` has the two kinds of arrays, and how a history goes through them; `layouts` converts; `rules` gives operations their kernels
for the kind "sparse". All of it is written over the values of a tensor, which are a dense Tensor: derivatives follow from that.
"""

"""Scalars in a kernel: what a formula's words and operators become in LLVM IR, and the vector mathematics.

`symbols.py` is the symbolic number a formula is run on, `words.py` the reading of the vocabulary, and the
remaining modules are elementary functions as straight-line code that LLVM turns into vector instructions: no
branches, no calls.
"""

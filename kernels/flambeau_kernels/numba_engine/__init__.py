"""The engine that numba compiles: formulas and kernels as functions of numba, called by the plans and the pool of `engine/`.

A kernel becomes the text of a Python function whose loops, conditions and variables numba compiles, and which users can read
(`FLAMBEAU_SHOW_KERNELS`, `fb.kernels.explain`). What is straight-line code in it, the list of instructions that formulas are traced to
and that the llvm engine has too (`scalar.symbols.Block`), becomes an intrinsic of numba: see `blocks.py`. So both engines
round alike, and the loops around are two texts that check each other.

Importing numba takes some 0.3 s, so nothing here is imported before a kernel is to be compiled by it.
"""

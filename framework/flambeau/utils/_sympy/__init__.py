"""Integer functions that sympy lacks, and ranges of numbers. Importing them imports sympy, which the framework else does without."""

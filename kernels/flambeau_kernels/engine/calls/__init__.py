"""Formulas, operations along dimensions and recorded programs as one native call, without a plan for each shape."""

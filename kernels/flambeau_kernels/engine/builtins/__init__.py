"""Python builtins written as LLVM IR, and the parts they are written from (`fastcall.py`, `pyabi.py`)."""

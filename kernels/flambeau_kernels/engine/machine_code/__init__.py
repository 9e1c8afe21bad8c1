"""LLVM IR to machine code: `llvm.py` compiles it for this processor, and keeps the objects on disk (`cache.py`)."""

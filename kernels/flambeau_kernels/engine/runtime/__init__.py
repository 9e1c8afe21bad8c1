"""What compiled code needs while it runs: memory (`allocator.py`), threads (`pool.py`) and objects that are never freed."""

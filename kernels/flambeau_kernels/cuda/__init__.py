"""CUDA kernels: the same formulas and reductions as on the CPU, written as LLVM IR and made PTX by LLVM itself.

Start reading at `launch.py`. `loops.py` and `reduce.py` write kernels as phases (`program.py`), `ptx.py` compiles them for a
device, and `simulator.py` stands for one: it runs the same phases on the host. Nothing here imports cupy until a device is used.
"""

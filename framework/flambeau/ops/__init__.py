"""Operations: one declaration each, in one module per family, in folders by subject; `_derive.py` makes the public functions from them."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

_PARENT = __name__.rpartition(".")[0]

_FOLDERS = {
    "pointwise": "unary binary comparisons powers integers ternary activation logarithm special",
    "reductions": "reduce scan sort count compare",
    "shapes": "reshape expand permute squeeze slices restride join repeat parts grid triangle misc names",
    "creation": "create new fill from_values shared_memory ranges convert",
    "sampling": "random gamma_draws",
    "indexing": "basic_index index getitem setitem select rows mask put",
    "linear_algebra": "products product_sums linear contract distance grouped matrix solve decompose lu spectral norms operators",
    "fourier": "fft windows operators",
    "layers": "functional fused attention recurrent embedding norm batch_norm group_norm conv padding "
              "pool_means pool_maxima pool_norms unpool pool_adaptive gradients",
    "images": "resampling grid_sampling vision gradients",
    "losses": "loss cross_entropy margin ctc gradients",
    "kinds": "sparse sparse_products quantize",
}
FAMILIES = tuple(f"{folder}.{name}" for folder, names in _FOLDERS.items() for name in names.split())


_ALWAYS = ("aten", "higher_order", "prims")           # namespaces that have operators before any is registered


def __getattr__(name: str) -> Any:
    """The operators of a namespace: ``fb.ops.mylib.f`` is what programs for PyTorch call ``torch.ops.mylib.f``."""
    # Who registers an operator has loaded `_ops`. Python asks for names before it imports modules of this folder.
    _ops = import_module(f"{_PARENT}._ops") if name in _ALWAYS else sys.modules.get(f"{_PARENT}._ops")
    if _ops is not None and (name in _ALWAYS or _ops.has_namespace(name)):
        return getattr(_ops.ops, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}: nothing is defined in an operators' namespace of that name")


def show_namespace(name: str) -> None:
    """Let ``fb.ops.<name>`` be the namespace of operators, also where a folder of declarations has that name.

    Modules of the folder are imported by their full names, which stay.
    """
    if name in _FOLDERS:
        import_module(f".{name}", __name__)           # so that no later import puts the folder there
        globals().pop(name, None)


def load_families() -> None:
    """Import every module of declarations."""
    for name in FAMILIES:
        import_module(f".{name}", __name__)


def install_operators() -> None:
    """Give `Tensor` its Python operators."""
    from . import _derive

    _derive.install_methods()
    for name in ("__getitem__", "__setitem__"):
        _derive.install_item(name)
    install = _derive.install_operator
    for name, op in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "div"), ("div", "div"), ("floordiv", "floor_divide"),
                     ("mod", "remainder"), ("pow", "pow"), ("matmul", "matmul"), ("and", "bitwise_and"), ("or", "bitwise_or"),
                     ("xor", "bitwise_xor"), ("lshift", "bitwise_left_shift"), ("rshift", "bitwise_right_shift")):  # fmt: skip
        install(f"__{name}__", op)
        install(f"__r{name}__", op, swapped=name not in ("add", "mul", "and", "or", "xor"))
        if name != "matmul":
            install(f"__i{name}__", op, inplace=True)
    for name, op in (("eq", "eq"), ("ne", "ne"), ("lt", "lt"), ("le", "le"), ("gt", "gt"), ("ge", "ge")):
        install(f"__{name}__", op)
    for name, op in (("neg", "neg"), ("pos", "positive"), ("abs", "abs")):
        _derive.install_unary(f"__{name}__", op)
    _derive.install_invert()

"""Write docs/ops.md: what each public operation takes and gives, asked of the registry and tried with the calls of its declaration.

    PYTHONPATH=framework:kernels python .ci/make_ops_page.py            # write the page
    PYTHONPATH=framework:kernels python .ci/make_ops_page.py --check    # status 1 if it would be another
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import flambeau as fb
from flambeau.ops import _derive, _spec
from flambeau.ops._spec.samples import Sample, function_of, reached_by, samples_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "ops.md"
DTYPES = (
    ("f32", fb.float32), ("f64", fb.float64), ("f16", fb.float16), ("bf16", fb.bfloat16), ("c64", fb.complex64), ("i64", fb.int64),
    ("u8", fb.uint8), ("bool", fb.bool),
)  # fmt: skip
HEAD = """# Operations

Every operation that programs can call by a name, as the registry has it (`.ci/make_ops_page.py` writes this page). What is composed of
others, plain functions of `nn.functional`, and creation are not all declared there; `help(fb.<name>)` tells about each.

- **forms**: f function, m method, i in place (`name_`), o `out=`.
- **dtypes** that the calls of the declaration are answered for. Floating operands are tried with each of them, others as they are.
- **derivatives**: `all` orders, `1` the first alone, `-` none. Forward mode and vmap follow from the same declaration.
- **autocast** on the CPU: `lower` computes in the lower precision, `float32` in float32, `widest` in the widest operand's.
- **cuda**: whether it has run on the simulated device (`tests/cuda/works.txt`).

All run on the compiled backends (`llvm`, `numba`) and on the reference one (`numpy`) alike.
"""


def _answers(op: Any, dtype: Any) -> bool:
    try:
        sample = samples_of(op, fb.float64)[0]
        moved = sample.with_tensors([t.to(dtype) for t in sample.tensors]) if sample.tensors else sample
        fb.manual_seed(0)
        function_of(op)(*moved.args, **moved.kwargs)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
        return False
    return True


def _orders(op: Any) -> str:
    sample: Sample = samples_of(op)[0]
    inputs = [t.detach().clone().requires_grad_() for t in sample.tensors]
    if not inputs:
        return "-"

    def total(values: Any) -> Any:
        parts = [v for v in _tensors(values) if v.requires_grad]
        return sum((v.abs() ** 2).sum() for v in parts) if parts else None

    try:
        fb.manual_seed(0)
        made = total(function_of(op)(*(moved := sample.with_tensors([t.clone() for t in inputs])).args, **moved.kwargs))
        if made is None:
            return "-"
        first = fb.autograd.grad(made, inputs, create_graph=True, allow_unused=True)
    except (NotImplementedError, RuntimeError):
        return "-"
    again = total([g for g in first if g is not None])
    try:
        if again is not None:
            fb.autograd.grad(again, inputs, allow_unused=True)
    except (NotImplementedError, RuntimeError):
        return "1"
    return "all"


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, fb.Tensor):
        return [value]
    return [t for v in value for t in _tensors(v)] if isinstance(value, (tuple, list)) else []


def page() -> str:
    """The text of the page."""
    _derive.load_all()
    works = set((ROOT / "tests" / "cuda" / "works.txt").read_text(encoding="utf-8").split())
    rows = []
    for op in sorted(dict.fromkeys(_spec.OPS.values()), key=lambda op: op.qualified):
        if not op.surface or reached_by(op):
            continue
        forms = "".join(letter for letter, bit in (("f", 1), ("m", 2), ("i", 4), ("o", 8)) if op.surface & bit)
        dtypes = " ".join(name for name, dtype in DTYPES if _answers(op, dtype))
        cast = op.autocast["cpu"]
        cast = "-" if cast in (None, "own") else cast
        name = f"`{op.qualified}`" + (f" ({', '.join(f'`{a}`' for a in op.aliases)})" if op.aliases else "")
        rows.append(f"| {name} | {forms} | {dtypes or '-'} | {_orders(op)} | {cast} | {'yes' if op.qualified in works else '-'} |")
    table = ["| operation | forms | dtypes | derivatives | autocast | cuda |", "|---|---|---|---|---|---|", *rows]
    return HEAD + f"\n{len(rows)} operations.\n\n" + "\n".join(table) + "\n"


def main() -> int:
    warnings.simplefilter("ignore")
    made = page()
    if "--check" in sys.argv:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == made
        print("docs/ops.md is up to date" if same else "docs/ops.md is another: run .ci/make_ops_page.py")
        return not same
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

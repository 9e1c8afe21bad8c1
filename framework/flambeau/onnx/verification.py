"""Whether a model in ONNX's format computes what the program does that it was exported from."""

from __future__ import annotations

import dataclasses
from typing import Any

import flambeau as fb

from .. import _missing
from ..tensor import Tensor
from ..utils import _pytree as pytree

__all__ = ["VerificationInfo", "verify_onnx_program"]

_EDGES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 1e6)
_SMALL = 1e-7  # beside which an expected value of 0 is seen


@dataclasses.dataclass
class VerificationInfo:
    """How far the value `name` is from what was expected.

    Args:
        expected_dtype, actual_dtype: what it should be of, and is.
        max_abs_diff, max_rel_diff: the largest difference, and the largest beside the expected value; infinite without elements.
        abs_diff_hist, rel_diff_hist: how many differences lie between powers of ten, ``(counts, edges)``.
    """

    name: str
    max_abs_diff: float
    max_rel_diff: float
    abs_diff_hist: tuple[Tensor, Tensor]
    rel_diff_hist: tuple[Tensor, Tensor]
    expected_dtype: fb.dtype
    actual_dtype: fb.dtype

    @classmethod
    def from_tensors(cls, name: str, expected: Any, actual: Any) -> VerificationInfo:
        """What is to say of `actual`, tensors or numbers both. Raises: RuntimeError for shapes that do not broadcast."""
        wanted, found = fb.as_tensor(expected), fb.as_tensor(actual)
        a, b = (x.to(fb.float32) if x.dtype is fb.bool else x for x in (wanted, found))
        apart = (a - b).abs()
        beside = apart / (a.abs() + _SMALL)
        largest, beside_largest = (x.max().item() if x.numel() else float("inf") for x in (apart, beside))
        edges = fb.tensor(_EDGES)
        counts, beside_counts = (fb.histogram(x.to(fb.float32).flatten(), edges) for x in (apart, beside))
        return cls(name, largest, beside_largest, counts, beside_counts, wanted.dtype, found.dtype)

    def asdict(self) -> dict[str, Any]:
        """The same as numbers, lists and words, which JSON can hold."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values |= {name: [x.tolist() for x in values[name]] for name in ("abs_diff_hist", "rel_diff_hist")}
        return values | {name: str(values[name]) for name in ("expected_dtype", "actual_dtype")}


def verify_onnx_program(
    onnx_program: Any, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None, compare_intermediates: bool = False
) -> list[VerificationInfo]:
    """Run a program and its model in ONNX's format on the same inputs, and compare their outputs, one after the other.

    The model is run by the reference evaluator of the package `onnx`.

    Args:
        onnx_program: has `exported_program`, what `export.export` gives, and `model_proto`, the model, such as `onnx.load` reads.
        args, kwargs: the inputs; the program's example inputs if None.
        compare_intermediates: not built: raises NotImplementedError.
    Raises: ImportError without `onnx`; ValueError where there are no inputs, or the two have different numbers of inputs or outputs.
    """
    if compare_intermediates:
        raise _missing.not_built("onnx.verification.verify_onnx_program(compare_intermediates=True)", "compare the outputs alone")
    try:
        from onnx.reference import ReferenceEvaluator  # pyright: ignore[reportMissingImports]  # a package that programs may lack
    except ModuleNotFoundError as error:
        raise ImportError('verify_onnx_program needs the package onnx: pip install "flambeau[onnx]"') from error

    program, graph = onnx_program.exported_program, onnx_program.model_proto.graph
    constants = {weight.name for weight in graph.initializer}
    fed, names = [x.name for x in graph.input if x.name not in constants], [x.name for x in graph.output]
    if args is None and kwargs is None:
        if program.example_inputs is None:
            raise ValueError("verify_onnx_program: the program has no example inputs; give args and kwargs")
        args, kwargs = program.example_inputs
    args, kwargs = args or (), kwargs or {}
    given, outputs = pytree.tree_leaves((args, kwargs)), pytree.tree_leaves(program.module()(*args, **kwargs))
    if len(given) != len(fed) or len(outputs) != len(names):
        raise ValueError(
            f"verify_onnx_program: the program has {len(given)} inputs and {len(outputs)} outputs, "
            f"the model inputs {fed} and outputs {names}"
        )
    arrays = [fb.as_tensor(x).detach().numpy() for x in given]
    made = ReferenceEvaluator(onnx_program.model_proto).run(None, dict(zip(fed, arrays, strict=True)))
    pairs = zip(names, outputs, made, strict=True)
    return [VerificationInfo.from_tensors(name, fb.as_tensor(x).detach(), fb.as_tensor(y)) for name, x, y in pairs]

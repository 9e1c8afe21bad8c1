"""Exports a program, runs the model, and compares with the program."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import flambeau as fb
from flambeau import onnx
from flambeau.utils import _pytree as pytree

try:
    import onnxruntime
except ImportError:
    onnxruntime = None


def exported(fn, *args, **settings):
    """The program of `fn` on `args`, whose model is valid."""
    pytest.importorskip("onnx.helper")  # `onnx` alone is also a folder of these tests
    import onnx as package

    program = onnx.export(fn, args, dynamo=True, **settings)
    package.checker.check_model(program.model_proto, full_check=True)
    return program


def reference(model):
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model)


def agree(fn, program, *args, tolerance=1e-5, runtime=True):
    """Assert that the model gives what `fn` does, by the evaluator of ONNX's package, and by onnxruntime where it is installed."""
    with fb.no_grad():
        expected = [x for x in pytree.tree_leaves(fn(*args)) if x is not None]
    for make in [reference, *([None] if onnxruntime is not None and runtime else [])]:
        program.initialize_inference_session(make)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")           # numpy's, of the reference evaluator: of log(0), of 1 / 0
            found = program(*args)
        assert len(found) == len(expected)
        for x, y in zip(expected, found, strict=True):
            x = fb.as_tensor(x)
            x = fb.view_as_real(x.resolve_conj()) if x.dtype.is_complex else x  # pairs, in a model
            assert (y.dtype, y.shape) == (x.dtype, x.shape)
            a, b = (np.asarray(z.detach().double() if z.dtype.is_floating_point else z.detach()) for z in (x, y))
            np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance, equal_nan=True)

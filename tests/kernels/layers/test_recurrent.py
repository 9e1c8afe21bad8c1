"""Compiled recurrent layers against their formula in float64, and their gradients against derivatives by a complex step.

A derivative along a direction v is the imaginary part of ``f(x + i e v) / e``, exact to rounding for tiny e, since all of the
formulas have meaning for complex numbers.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from flambeau_kernels.cpu import recurrent
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime import pool

pytestmark = pytest.mark.skipif(llvm.available() is not None, reason="nothing can be compiled here")

MODES = list(recurrent.GATES)
TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "float16": 6e-3, "bfloat16": 5e-2}
NAMES = ("x", "h0", "w_ih", "w_hh", "c0", "b_ih", "b_hh")


def arrays(mode, steps, batch, inputs, hidden, dtype=np.float32, sizes=None, bias=True, by_batch=False):
    """The arguments of a layer by name; packed with `sizes`."""
    rng = np.random.default_rng(hidden)
    gates = recurrent.GATES[mode] * hidden

    def draw(*shape, scale=1.0):
        return (rng.normal(size=shape) * scale).astype(dtype)

    shape = (steps, batch, inputs) if sizes is None else (sum(sizes), inputs)
    x = draw(batch, steps, inputs).swapaxes(0, 1) if by_batch else draw(*shape)
    return {
        "x": x, "h0": draw(batch, hidden), "w_ih": draw(gates, inputs, scale=inputs**-0.5),
        "w_hh": draw(gates, hidden, scale=hidden**-0.5), "c0": draw(batch, hidden) if mode == "LSTM" else None,
        "b_ih": draw(gates, scale=0.3) if bias else None, "b_hh": draw(gates, scale=0.3) if bias else None,
    }  # fmt: skip


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_formula(mode, given, sizes=None, backwards=False):
    """Outputs and last states, sequence by sequence."""
    x, h0, w_ih, w_hh, c0, b_ih, b_hh = (given[n] for n in NAMES)
    b_ih, b_hh = (np.zeros(len(w_ih)) if b is None else b for b in (b_ih, b_hh))
    kind = np.result_type(*(a for a in given.values() if a is not None))
    sizes_ = [x.shape[1]] * x.shape[0] if sizes is None else sizes
    flat = x.reshape(-1, x.shape[-1])
    starts = np.cumsum([0, *sizes_[:-1]])
    out = np.zeros((len(flat), h0.shape[1]), kind)
    last_h, last_c = np.zeros(h0.shape, kind), np.zeros(h0.shape, kind)
    for n in range(len(h0)):
        h, c = h0[n], None if c0 is None else c0[n]
        steps = [t for t, size in enumerate(sizes_) if n < size]
        for t in steps[::-1] if backwards else steps:
            a, b = flat[starts[t] + n] @ w_ih.T + b_ih, h @ w_hh.T + b_hh
            if mode == "LSTM":
                i, f, g, o = np.split(a + b, 4)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
            elif mode == "GRU":
                (ra, za, na), (rb, zb, nb) = np.split(a, 3), np.split(b, 3)
                z, new = sigmoid(za + zb), np.tanh(na + sigmoid(ra + rb) * nb)
                h = (1 - z) * new + z * h
            else:
                h = np.tanh(a + b) if mode == "RNN_TANH" else np.where((a + b).real > 0, a + b, 0)
            out[starts[t] + n] = h
        last_h[n] = h
        if c is not None:
            last_c[n] = c
    out = out.reshape(*x.shape[:-1], -1)
    return (out, last_h, last_c) if mode == "LSTM" else (out, last_h)


def compiled(mode, given, sizes=None, backwards=False, grads=None):
    """What `run` returns, and with `grads` the gradients by name."""
    made, kept = recurrent.run(*[given[n] for n in ("x", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh")], sizes, mode, backwards,
                               grads is not None)  # fmt: skip
    if grads is None:
        return made
    bias = given["b_ih"] is not None
    found = recurrent.run_grad(grads, given["x"], given["w_ih"], given["w_hh"], sizes, mode, backwards, kept,
                               (True, True, True, bias, bias))  # fmt: skip
    return made, dict(zip(NAMES, found, strict=True))


def wide(given, kind=np.float64):
    return {n: None if a is None else a.astype(kind) for n, a in given.items()}


def check(mode, given, sizes=None, backwards=False):
    """Results, and the gradient of each argument along random directions."""
    dtype = given["x"].dtype
    tolerance = TOLERANCE[dtype.name]
    expected = by_formula(mode, wide(given), sizes, backwards)
    rng = np.random.default_rng(1)
    grads = [rng.normal(size=e.shape).astype(dtype) for e in expected]
    made, found = compiled(mode, given, sizes, backwards, grads)
    plain = compiled(mode, given, sizes, backwards)
    for m, p, e in zip(made, plain, expected, strict=True):
        assert m.dtype == dtype
        assert m.tobytes() == p.tobytes()             # whether anything is kept changes nothing
        np.testing.assert_allclose(m.astype(np.float64), e, rtol=tolerance, atol=tolerance)
    for name, gradient in found.items():
        if given[name] is None:
            assert gradient is None
            continue
        assert (gradient.shape, gradient.dtype) == (given[name].shape, dtype)
        for _ in range(3):
            v = rng.normal(size=gradient.shape)
            moved = wide(given, np.complex128)
            moved[name] += 1e-30j * v
            along = sum((g.astype(np.float64) * e.imag).sum() for g, e in zip(grads, by_formula(mode, moved, sizes, backwards),
                                                                          strict=True)) / 1e-30  # fmt: skip
            size = np.linalg.norm(gradient.astype(np.float64)) * np.linalg.norm(v)
            assert abs((gradient.astype(np.float64) * v).sum() - along) <= tolerance * size, name


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (4, 3, 5, 7), (3, 9, 4, 32), (3, 17, 3, 33), (2, 2, 3, 70)])
@pytest.mark.parametrize("mode", MODES)
def test_shapes(mode, shape, backwards):
    check(mode, arrays(mode, *shape), backwards=backwards)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("mode", MODES)
def test_dtypes(mode, dtype):
    check(mode, arrays(mode, 4, 5, 6, 24, dtype))


@pytest.mark.parametrize("shape", [(5, 9, 4, 32), (3, 17, 3, 33), (2, 2, 3, 70)])
@pytest.mark.parametrize("mode", MODES)
def test_bfloat16_meets_weights_in_pairs_of_states_or_one_by_one(mode, shape):
    check(mode, arrays(mode, *shape, ml_dtypes.bfloat16), backwards=True)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("sizes", [[1], [3, 3, 2, 1], [12, 12, 5, 5, 1], [4, 4]])
@pytest.mark.parametrize("mode", MODES)
def test_packed_sequences(mode, sizes, backwards):
    check(mode, arrays(mode, len(sizes), sizes[0], 3, 19, sizes=sizes), sizes, backwards)


@pytest.mark.parametrize("mode", MODES)
def test_without_biases(mode):
    check(mode, arrays(mode, 3, 4, 5, 8, bias=False))


@pytest.mark.parametrize("mode", ["LSTM", "GRU"])
def test_sequences_that_lie_by_batch_give_results_that_do(mode):
    given = arrays(mode, 6, 10, 5, 16, by_batch=True)

    check(mode, given)
    assert compiled(mode, given)[0].swapaxes(0, 1).flags.c_contiguous


@pytest.mark.parametrize(("mode", "hidden", "dtype", "sizes"), [
    ("LSTM", 128, np.float64, None), ("LSTM", 128, np.float64, [4, 3, 1]), ("LSTM", 256, ml_dtypes.bfloat16, None),
    ("GRU", 512, np.float64, None), ("RNN_TANH", 512, np.float64, None),
])  # fmt: skip
def test_gates_that_would_fill_whole_pages(mode, hidden, dtype, sizes):
    check(mode, arrays(mode, 2 if sizes is None else 3, 4, 5, hidden, dtype, sizes=sizes, by_batch=sizes is None), sizes)


@pytest.mark.parametrize("mode", ["LSTM", "GRU"])
def test_operands_of_any_strides(mode):
    given = arrays(mode, 6, 10, 10, 16)
    strided = dict(given, x=np.repeat(given["x"], 2, 2)[..., ::2], h0=np.asfortranarray(given["h0"]),
                   w_hh=np.asfortranarray(given["w_hh"]), w_ih=np.repeat(given["w_ih"], 3, 0)[::3])  # fmt: skip

    for a, b in zip(compiled(mode, given), compiled(mode, strided), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_results_do_not_depend_on_the_number_of_threads(mode):
    given = arrays(mode, 20, 19, 40, 48)
    rng = np.random.default_rng(2)
    grads = [rng.normal(size=e.shape).astype(np.float32) for e in compiled(mode, given)]
    before = pool.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 4):
            pool.set_num_threads(threads)
            made, gradients = compiled(mode, given, grads=grads)
            found.append([a.tobytes() for a in (*made, *gradients.values()) if a is not None])
    finally:
        pool.set_num_threads(before)

    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("mode", MODES)
def test_a_nan_stays_in_its_sequence(mode):
    given = arrays(mode, 6, 9, 5, 16)
    given["x"][2, 4] = np.nan

    out = compiled(mode, given)[0]

    assert np.isnan(out[2:, 4]).all()
    assert not np.isnan(out[:2, 4]).any()
    assert not np.isnan(np.delete(out, 4, 1)).any()


@pytest.mark.parametrize("mode", MODES)
def test_inputs_that_saturate_the_gates(mode):
    given = arrays(mode, 3, 4, 5, 16, np.float64)
    given["x"] *= 1e3
    with np.errstate(over="ignore"):                  # of exp, whose reciprocal is 0 as it should be
        expected = by_formula(mode, given)

    for m, e in zip(compiled(mode, given), expected, strict=True):
        np.testing.assert_allclose(m, e, rtol=1e-12, atol=1e-30)

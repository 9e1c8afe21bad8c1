"""The Sobol sequence, plain and scrambled, beside PyTorch's and by its own properties."""

from __future__ import annotations

import pytest

import flambeau as fb


@pytest.mark.oracle
@pytest.mark.parametrize("options", [{}, {"scramble": True, "seed": 3}], ids=["plain", "scrambled"])
def test_points_are_pytorchs(oracle, options):
    found = []
    for lib in (oracle, fb):
        engine = lib.quasirandom.SobolEngine(5, **options)
        points = [repr(engine), engine.draw(3).tolist(), engine.draw(5).tolist()]
        points += [engine.fast_forward(4).draw(2).tolist(), engine.num_generated, engine.reset().draw(2).tolist()]
        found.append(points)

    assert found[1] == found[0]


@pytest.mark.oracle
def test_scrambling_draws_from_the_default_generator(oracle):
    found = []
    for lib in (oracle, fb):
        lib.manual_seed(7)
        found.append(lib.quasirandom.SobolEngine(2, scramble=True).draw(8).tolist())

    assert found[1] == found[0]


def test_every_interval_gets_its_share():
    points = fb.quasirandom.SobolEngine(40, scramble=True, seed=1).draw_base2(6)

    assert (points.sort(0).values * 64).floor().long().equal(fb.arange(64).unsqueeze(1).expand(64, 40))


def test_out_dtype_and_mistakes():
    engine, out = fb.quasirandom.SobolEngine(2), fb.empty(0)

    assert engine.draw(3, out=out, dtype=fb.float64) is out
    assert out.shape == (3, 2)
    with pytest.raises(ValueError, match="power of 2"):
        engine.draw_base2(2)
    with pytest.raises(ValueError, match=r"\[1, 21201\]"):
        fb.quasirandom.SobolEngine(0)
    with pytest.raises(ValueError, match="-1"):
        engine.draw(-1)

"""What is imported of `distributions`, and when."""

from __future__ import annotations

import flambeau as fb


def test_to_ask_for_one_distribution_imports_no_others(fresh_python) -> None:
    code = (
        "import sys, flambeau as fb\n"
        "isinstance(1, fb.distributions.Distribution), fb.distributions.Normal\n"
        "print(*(name for name in ('normal', 'wishart', 'kl', 'lkj_cholesky') if f'flambeau.distributions.{name}' in sys.modules))"
    )
    assert fresh_python("-c", code).split() == ["normal"]


def test_all_distributions_are_names_of_the_package() -> None:
    found = {name: getattr(fb.distributions, name) for name in fb.distributions.__all__}
    classes = [name for name, cls in found.items() if isinstance(cls, type) and issubclass(cls, fb.distributions.Distribution)]

    assert len(classes) == 42
    assert set(found) <= set(dir(fb.distributions))
    assert fb.distributions.constraints.positive is not None

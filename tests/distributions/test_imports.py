"""What is imported of `distributions`."""

from __future__ import annotations


def test_packages_that_go_through_the_attributes_of_the_package_find_all_distributions(fresh_python) -> None:
    """Pyro makes its classes from what it finds in ``torch.distributions.__dict__``, so none may be left for later."""
    code = (
        "import flambeau as fb, flambeau.distributions as D\n"
        "print(*(name for name in D.__all__ if name not in vars(D)))\n"
        "print(sum(isinstance(x, type) and issubclass(x, D.Distribution) for x in vars(D).values()) >= 40)"
    )
    assert fresh_python("-c", code).split() == ["True"]

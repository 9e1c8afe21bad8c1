"""Parameters for every distribution, the same for both frameworks."""

from __future__ import annotations

from typing import Any


def cases(lib: Any) -> dict[str, list[dict[str, Any]]]:
    """Name of the distribution -> sets of arguments, made with the tensors of `lib`."""
    t = lib.tensor
    both = {"loc": t([0.0, 1.0]), "scale": t([1.0, 2.0])}
    matrix = t([[2.0, 0.5], [0.5, 1.0]])
    classes: list[dict[str, Any]] = [
        {"probs": t([0.2, 0.5, 0.9])},
        {"logits": t([[0.2, -1.5, 3.0], [1.0, 2.0, 3.0]])},
    ]
    return {
        "Bernoulli": [{"probs": t([0.2, 0.5, 0.9])}, {"logits": t([[0.2, -1.5]])}, {"probs": 0.3}],
        "Beta": [
            {"concentration1": t([0.5, 2.0, 7.0]), "concentration0": t([1.5, 0.7, 3.0])},
            {"concentration1": 2.0, "concentration0": 3},
        ],
        "Binomial": [
            {"total_count": 10, "probs": t([0.2, 0.5, 0.9])},
            {"total_count": t([4.0, 4.0]), "logits": t([0.2, -1.5])},
        ],
        "Categorical": classes,
        "Cauchy": [both],
        "Chi2": [{"df": t([1.0, 4.5])}],
        "ContinuousBernoulli": [{"probs": t([0.1, 0.4995, 0.5, 0.9])}, {"logits": t([0.2, -1.5, 0.0])}],
        "Dirichlet": [{"concentration": t([0.5, 1.5, 3.0])}, {"concentration": t([[0.5, 0.7], [2.0, 3.0]])}],
        "Exponential": [{"rate": t([0.5, 3.0])}],
        "FisherSnedecor": [{"df1": t([1.0, 5.0]), "df2": t([3.0, 9.0])}],
        "Gamma": [{"concentration": t([0.3, 1.0, 8.0]), "rate": t([1.0, 2.0, 0.5])}],
        "GeneralizedPareto": [{"loc": t([0.1, 0.5, 0.0]), "scale": t([1.0, 2.0, 0.5]), "concentration": t([0.3, 0.0, -0.5])}],
        "Geometric": [{"probs": t([0.2, 1.0])}, {"logits": t([0.2, -1.0])}],
        "Gumbel": [both],
        "HalfCauchy": [{"scale": t([1.0, 2.0])}],
        "HalfNormal": [{"scale": t([1.0, 2.0])}],
        "InverseGamma": [{"concentration": t([0.3, 1.5, 8.0]), "rate": t([1.0, 2.0, 0.5])}],
        "Kumaraswamy": [{"concentration1": t([0.5, 2.0, 7.0]), "concentration0": t([1.5, 0.7, 3.0])}],
        "LKJCholesky": [{"dim": 3, "concentration": t([0.5, 2.0])}, {"dim": 2}],
        "Laplace": [both],
        "LogNormal": [both],
        "LogisticNormal": [both],
        "LowRankMultivariateNormal": [
            {"loc": t([0.0, 1.0]), "cov_factor": t([[1.0], [0.5]]), "cov_diag": t([1.0, 2.0])},
            {"loc": lib.zeros(3, 2), "cov_factor": t([[1.0], [0.5]]), "cov_diag": t([1.0, 2.0])},
        ],
        "Multinomial": [
            {"total_count": 5, "probs": t([0.2, 0.5, 0.9])},
            {"total_count": 3, "logits": t([[0.2, 0.5], [1.0, 2.0]])},
        ],
        "MultivariateNormal": [
            {"loc": t([0.0, 1.0]), "covariance_matrix": matrix},
            {"loc": lib.zeros(3, 2), "precision_matrix": matrix},
            {"loc": lib.zeros(2), "scale_tril": t([[[2.0, 0], [0.5, 1.0]], [[1.0, 0], [0.3, 1.0]]])},
        ],
        "NegativeBinomial": [
            {"total_count": t([3.0, 0.5]), "probs": t([0.2, 0.6])},
            {"total_count": 4, "logits": t([0.2, -1.0])},
        ],
        "Normal": [both, {"loc": 0.0, "scale": 1.0}],
        "OneHotCategorical": classes,
        "OneHotCategoricalStraightThrough": classes[:1],
        "Pareto": [{"scale": t([1.0, 2.0]), "alpha": t([0.5, 3.0])}],
        "Poisson": [{"rate": t([0.5, 3.0, 20.0])}],
        "RelaxedBernoulli": [{"temperature": t([0.7]), "probs": t([0.2, 0.6])}],
        "RelaxedOneHotCategorical": [{"temperature": t([0.7]), "probs": t([0.2, 0.6, 0.5])}],
        "StudentT": [{"df": t([0.5, 1.5, 4.0]), "loc": t([0.0, 1.0, 2.0]), "scale": 2.0}],
        "Uniform": [{"low": t([0.0, 1.0]), "high": t([1.0, 3.0])}],
        "VonMises": [{"loc": t([0.0, 1.0]), "concentration": t([0.5, 3.0])}],
        "Weibull": [{"scale": t([1.0, 2.0]), "concentration": t([0.5, 3.0])}],
        "Wishart": [{"df": t([3.0, 5.0]), "covariance_matrix": matrix}],
    }

"""Exponential families: entropy from the log normalizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flambeau as fb

from .distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """A distribution whose density is ``exp(<t(x), theta> - F(theta) + k(x))``.

    Subclasses give the natural parameters theta (`_natural_params`), the log normalizer F (`_log_normalizer`) and the mean of
    the carrier measure k (`_mean_carrier_measure`).
    """

    @property
    def _natural_params(self) -> tuple[fb.Tensor, ...]:
        raise NotImplementedError(f"{type(self).__name__}._natural_params")

    def _log_normalizer(self, *natural_params: fb.Tensor) -> fb.Tensor:
        raise NotImplementedError(f"{type(self).__name__}._log_normalizer")

    if TYPE_CHECKING:
        _mean_carrier_measure: Any  # a class attribute or a property
    else:

        @property
        def _mean_carrier_measure(self) -> Any:
            raise NotImplementedError(f"{type(self).__name__}._mean_carrier_measure")

    def entropy(self) -> fb.Tensor:
        """The entropy in nats: ``F(theta) - <theta, grad F(theta)> - E[k]``, of shape `batch_shape`.

        Source: Nielsen and Nock 2010, "Entropies and cross-entropies of exponential families".
        """
        with fb.enable_grad():
            params = [p.detach().requires_grad_() for p in self._natural_params]
            normalizer = self._log_normalizer(*params)
            slopes = fb.autograd.grad(normalizer.sum(), params, create_graph=True)
        made = normalizer - self._mean_carrier_measure
        for param, slope in zip(params, slopes, strict=True):
            made = made - (param * slope).reshape((*self._batch_shape, -1)).sum(-1)
        return made

"""Distributions that take probabilities or logits, whichever the caller has."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .utils import lazy_property, logits_to_probs, probs_to_logits

__all__ = ["BinaryChances", "ClassChances", "given_chances"]


def given_chances(probs: Any, logits: Any) -> str:
    """Which of the two was given, ``'probs'`` or ``'logits'``.

    Raises: ValueError unless it is exactly one.
    """
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")
    return "probs" if logits is None else "logits"


class BinaryChances:
    """`probs` and `logits` of an event, each from the other on first use."""

    @lazy_property
    def logits(self) -> fb.Tensor:
        """The log-odds ``log(probs / (1 - probs))``."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> fb.Tensor:
        """The probabilities."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self) -> fb.Size:
        """The shape of `probs` and of `logits`."""
        return self._given.size()

    @property
    def _given(self) -> fb.Tensor:
        """The parameter that was given: nothing is computed from the other where this one will do."""
        return vars(self)[self._given_name]  # type: ignore[attr-defined]


class ClassChances(BinaryChances):
    """`probs` and `logits` of the classes along the last dimension, each from the other on first use."""

    @lazy_property
    def logits(self) -> fb.Tensor:
        """The logarithms of the probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> fb.Tensor:
        """The probabilities; they add up to 1 along the last dimension."""
        return logits_to_probs(self.logits)

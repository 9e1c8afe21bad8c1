"""Gradient scaling: a large factor on the loss keeps small float16 gradients from vanishing."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from enum import Enum
from typing import Any

from ..devices import device as device_of_name
from ..dtypes import float16, float32
from ..ops._spec import OPS
from ..ops.creation.create import full
from ..tensor import Tensor

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """How far an optimizer is in its step."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


class GradScaler:
    """Scales losses, unscales gradients, skips steps whose gradients are not finite, and adapts the scale.

    Args:
        device: where parameters live.
        init_scale: the factor at the start.
        growth_factor: what the scale is multiplied by after `growth_interval` steps in a row with finite gradients.
        backoff_factor: what it is multiplied by after a step with inf or nan.
        enabled: False makes every method do nothing special.
    """

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        self._device = device
        self._enabled = enabled
        if device == "cuda" and enabled:
            from .autocast_mode import cuda_available

            if not cuda_available():
                warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2)
                self._enabled = False
        if not self._enabled:
            return
        if growth_factor <= 1.0:
            raise AssertionError(f"The growth factor must be > 1.0, got {growth_factor}")
        if backoff_factor >= 1.0:
            raise AssertionError(f"The backoff factor must be < 1.0, got {backoff_factor}")
        self._init_scale = init_scale
        self._scale: Tensor | None = None
        self._growth_factor, self._backoff_factor, self._growth_interval = growth_factor, backoff_factor, growth_interval
        self._init_growth_tracker = 0
        self._growth_tracker = 0
        self._per_optimizer_states: dict[int, dict[str, Any]] = {}

    def _state_of(self, optimizer: Any) -> dict[str, Any]:
        return self._per_optimizer_states.setdefault(id(optimizer), {"stage": OptState.READY, "found_inf": None})

    def _scale_tensor(self) -> Tensor:
        if self._scale is None:
            self._scale = full((), self._init_scale, dtype=float32, device=device_of_name(self._device))
            self._growth_tracker = self._init_growth_tracker
        return self._scale

    def _started(self, name: str) -> Tensor:
        if self._scale is None:
            raise AssertionError(f"Attempted {name} but _scale is None: call scale(loss) before, in the first iteration")
        return self._scale

    def scale(self, outputs: Any) -> Any:
        """`outputs` (a Tensor or an iterable of them) times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale_tensor().to(outputs.device)
        if isinstance(outputs, Iterable):
            scaled = [self.scale(x) for x in outputs]
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of `optimizer`'s parameters by the scale, to clip them for instance.

        Raises: RuntimeError when called twice since `update`, or after `step`; ValueError for float16 gradients.
        """
        if not self._enabled:
            return
        scale = self._started("unscale_")
        state = self._state_of(optimizer)
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        state["found_inf"] = self._unscale(optimizer, 1.0 / scale.item(), allow_half=False)
        state["stage"] = OptState.UNSCALED

    def _unscale(self, optimizer: Any, factor: float, allow_half: bool) -> bool:
        """Multiply gradients by `factor`; returns whether any is not finite."""
        found = False
        for group in optimizer.param_groups:
            for param in group["params"]:
                grad = param.grad
                if grad is None:
                    continue
                if grad.dtype is float16 and not allow_half:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                values = grad.detach()
                found = found or not bool(OPS["isfinite"].function(values).all())
                values.mul_(factor)
        return found

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step(*args, **kwargs)`` unless a gradient is inf or nan; unscales first if that is still to do.

        Raises: RuntimeError for a closure, and when called twice since `update`.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._started("step")
        state = self._state_of(optimizer)
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        state["stage"] = OptState.STEPPED
        return None if state["found_inf"] else optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Adapt the scale to what the steps since the last update met, or set it to `new_scale`."""
        if not self._enabled:
            return
        scale = self._started("update")
        if new_scale is not None:
            if isinstance(new_scale, Tensor) and (new_scale.numel() != 1 or new_scale.requires_grad):
                raise AssertionError("new_scale should be a float or a 1-element torch.cuda.FloatTensor with requires_grad=False.")
            scale.fill_(float(new_scale))
        else:
            seen = [s["found_inf"] for s in self._per_optimizer_states.values() if s["found_inf"] is not None]
            if not seen:
                raise AssertionError("No inf checks were recorded prior to update.")
            self._adapt(scale, any(seen))
        self._per_optimizer_states.clear()

    def _adapt(self, scale: Tensor, found_inf: bool) -> None:
        if found_inf:
            scale.mul_(self._backoff_factor)
            self._growth_tracker = 0
            return
        self._growth_tracker += 1
        if self._growth_tracker == self._growth_interval:
            grown = scale * self._growth_factor        # in the dtype of the scale, which may overflow
            if grown.isfinite():
                scale.copy_(grown)
            self._growth_tracker = 0

    # -- settings --------------------------------------------------------------------------------------------------------

    def get_scale(self) -> float:
        """The scale now; 1 when disabled."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._scale is None else self._growth_tracker

    def is_enabled(self) -> bool:
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The scale and its settings; empty when disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval, "_growth_tracker": self._get_growth_tracker(),
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned. Raises: RuntimeError for an empty one, which a disabled scaler saved."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.")
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_tracker = self._init_growth_tracker = state_dict["_growth_tracker"]

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError(
                    "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after scaler.update()."
                )
            state.update(_init_scale=self.get_scale(), _init_growth_tracker=self._get_growth_tracker(), _scale=None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

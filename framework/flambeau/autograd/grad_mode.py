"""Switching recording on and off, per thread."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from .. import _state

__all__ = [
    "enable_grad",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_grad_enabled",
    "set_multithreading_enabled",
]


class _Mode:
    """A context manager that is also a decorator of functions, generator functions and classes' methods."""

    def __call__(self, fn: Any) -> Any:
        if inspect.isclass(fn):
            fn.__init__ = self(fn.__init__)
            return fn
        if inspect.isgeneratorfunction(fn):
            return self._wrap_generator(fn)

        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return fn(*args, **kwargs)

        return wrapped

    def _wrap_generator(self, fn: Any) -> Any:
        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            # The mode holds while `fn` runs, also on errors thrown in and on its way out, and not where it waits.
            running = fn(*args, **kwargs)
            try:
                with self.clone():
                    value = next(running)
                while True:
                    try:
                        sent = yield value
                    except GeneratorExit:
                        with self.clone():
                            running.close()
                        raise
                    except BaseException as error:
                        with self.clone():
                            value = running.throw(error)
                    else:
                        with self.clone():
                            value = running.send(sent)
            except StopIteration as stop:
                return stop.value

        return wrapped

    def clone(self) -> Any:
        return type(self)()

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        raise NotImplementedError


_DecoratorContextManager = _Mode                       # PyTorch's name, which programs derive their own contexts from


class no_grad(_Mode):
    """Operations inside are not recorded."""

    def __new__(cls, orig_func: Any = None) -> Any:
        made = object.__new__(cls)
        made.before = True
        return made if orig_func is None else made(orig_func)

    def __enter__(self) -> None:
        self.before = _state.set_grad(False)

    def __exit__(self, *_: object) -> None:
        _state.set_grad(self.before)


class enable_grad(_Mode):
    """Operations inside are recorded, also within `no_grad`."""

    def __new__(cls, orig_func: Any = None) -> Any:
        made = object.__new__(cls)
        made.before = True
        return made if orig_func is None else made(orig_func)

    def __enter__(self) -> None:
        self.before = _state.set_grad(True)

    def __exit__(self, *_: object) -> None:
        _state.set_grad(self.before)


class set_grad_enabled(_Mode):
    """Record operations or not, by `mode`; as a plain call it stays in force."""

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        self.before = _state.set_grad(self.mode)

    def __call__(self, fn: Any) -> Any:
        _state.set_grad(self.before)
        return super().__call__(fn)

    def clone(self) -> Any:
        """Another one of the same mode, as decorators make for each call."""
        return set_grad_enabled(self.mode)

    def __repr__(self) -> str:
        return f"torch.autograd.grad_mode.set_grad_enabled(mode={self.mode})"

    def __enter__(self) -> None:
        _state.set_grad(self.mode)

    def __exit__(self, *_: object) -> None:
        _state.set_grad(self.before)


class inference_mode(_Mode):
    """As `no_grad`, also inside `enable_grad`. Tensors made inside are inference tensors.

    Outside of the mode these refuse to be saved for backward, to be written in place and to require grad; `clone()` makes
    ordinary ones of them. Views of ordinary tensors stay ordinary.
    """

    def __new__(cls, mode: Any = True) -> Any:
        made = object.__new__(cls)
        if isinstance(mode, bool):
            return made
        made.mode = True
        return made(mode)

    def __init__(self, mode: Any = True) -> None:
        self.mode = mode if isinstance(mode, bool) else True
        self.before = (True, False)

    def clone(self) -> Any:
        """Another one of the same mode, as decorators make for each call."""
        return inference_mode(self.mode)

    def __enter__(self) -> None:
        self.before = (_state.set_grad(not self.mode), _state.set_inference(self.mode))

    def __exit__(self, *_: object) -> None:
        _state.set_inference(self.before[1])
        _state.set_grad(self.before[0])


class set_multithreading_enabled(_Mode):
    """Accepted for compatibility: backward always runs in the calling thread."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def clone(self) -> Any:
        """Another one of the same mode, as decorators make for each call."""
        return set_multithreading_enabled(self.mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def is_grad_enabled() -> bool:
    """Whether operations of this thread are to be recorded; in inference mode none are."""
    return _state.local.recording.asked


def is_inference_mode_enabled() -> bool:
    """Whether this thread is in inference mode."""
    return _state.local.recording.inference

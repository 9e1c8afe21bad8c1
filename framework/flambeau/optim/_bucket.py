"""Many parameters stepped together: small ones as one flat array, large ones by launches that are planned once.

A step of a 16-element parameter is all overhead, so a `Bucket` gathers the small parameters and their gradients
into flat arrays, runs the formula once and scatters the result. Their state is not gathered: it lives in flat
arrays for good, and the tensors in ``optimizer.state`` are views of them. A large parameter is stepped where it
lies; what runs the formula on it and its state is kept. Whoever replaces a tensor of the state (a loaded
checkpoint, a user's edit) is noticed before the next step, and the bucket is made anew from what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, is_, itemgetter
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels import engines
from flambeau_kernels.formula import refuse
from flambeau_kernels.takeover import FORMULA, Waiting, of_elements

from .. import _state
from .._arrays import address
from ..autograd.tape import COUNT, STAMP
from ..tensor import wrap

ndarray = np.ndarray
array_of = attrgetter("_array")
# From this many elements on a parameter's own launch costs less than copying it to and fro.
MOST_ELEMENTS = 4096
_LAUNCH = 4.0                                         # what a launch of some 20 us costs, in calls on few elements


def fits_bucket(param: Any) -> bool:
    """Whether `param` may share a bucket: real, in row-major order, in host memory that may be written."""
    array = param._array
    return type(array) is ndarray and array.flags.carray and array.dtype.kind != "c"


def is_large(param: Any) -> bool:
    """Whether `param` is stepped where it lies."""
    return param._array.size >= MOST_ELEMENTS


def state_fits(param: Any, tensors: Sequence[Any], scalars: Sequence[Any]) -> bool:
    """Whether the state of `param` is of the kind that flat arrays hold: its shape and dtype, scalars 0-d."""
    array = param._array
    return all(
        type(t._array) is ndarray
        and t._array.shape == array.shape
        and t._array.dtype == array.dtype
        and not t.requires_grad
        for t in tensors
    ) and all(type(s._array) is ndarray and s._array.ndim == 0 and not s.requires_grad for s in scalars)


def overlapping(arrays: dict[int, Any]) -> set[int]:
    """The keys of contiguous arrays that share memory with another one."""
    found: set[int] = set()
    last, end = -1, 0
    for start, size, key in sorted((address(a), max(a.nbytes, 1), k) for k, a in arrays.items()):
        if start < end:
            found |= {last, key}
        if start + size > end:
            last, end = key, start + size
    return found


def _move(held: list[Any], ends: Any, shapes: list[tuple[int, ...]]) -> Any:
    """Put one kind of state into a flat array, and let its tensors look at their parts of it."""
    flat = np.empty(ends[-1], held[0]._array.dtype)
    record = wrap(flat)._storage
    for tensor, end, shape in zip(held, ends, shapes, strict=True):
        part = flat[end - tensor._array.size : end].reshape(shape)
        part[...] = tensor._array
        tensor._array, tensor._storage = part, record
    return flat


class Bucket:
    """Parameters of one dtype whose scalar state is equal.

    Args:
        params: the parameters.
        states: their entries of ``optimizer.state``.
        tensors, scalars: names of the state tensors of the parameter's shape, and of the 0-d ones.
    """

    def __init__(
        self,
        params: list[Any],
        states: list[dict[str, Any]],
        tensors: tuple[str, ...],
        scalars: tuple[str, ...],
    ) -> None:
        self.params, self.states = params, states
        self.names = (*tensors, *scalars)
        self.arrays = [p._array for p in params]
        self.dtype = self.arrays[0].dtype
        self.small = [i for i, p in enumerate(params) if not is_large(p)]
        self.large = [i for i, p in enumerate(params) if is_large(p)]
        bundled = [self.arrays[i] for i in self.small]
        ends = np.cumsum([a.size for a in bundled]).tolist()
        total = ends[-1] if ends else 0
        self.param, self.grad = np.empty(total, self.dtype), np.empty(total, self.dtype)
        self.targets = [a.reshape(-1) for a in bundled]
        self.sources = [self.param[end - a.size : end] for a, end in zip(bundled, ends, strict=True)]
        held = [states[i] for i in self.small] if tensors else []
        self.flat_state = tuple(_move([s[name] for s in held], ends, [a.shape for a in bundled]) for name in tensors) if bundled else ()
        each = range(1, len(params) + 1)
        self.flat_scalars = tuple(_move([s[name] for s in states], each, [()] * len(params)) for name in scalars)
        self.tensors = [[s[name] for s in states] for name in self.names]
        self.tensor_arrays = [list(map(array_of, column)) for column in self.tensors]
        # Of the flat arrays, and of the state of each large parameter.
        self.records = [column[0]._storage for column in self.tensors[len(tensors) :]]
        for column in self.tensors[: len(tensors)]:
            self.records += [column[i]._storage for i in (*self.small[:1], *self.large)]
        # Numbers are rounded once, here, to what the formula computes in; half types compute in float32.
        self.number = self.dtype.type if self.dtype.itemsize >= 4 else np.float32
        self.waiting = Waiting(FORMULA)
        # By formula and engine: what runs it on the flat arrays, the numbers it is handed, and all operands; False if nothing does.
        self.plans: dict[Any, Any] = {}
        # The same for each large parameter.
        self.plans_of_large: dict[Any, list[Any]] = {}

    def is_current(self) -> bool:
        """Whether parameters and state are still the objects, over the memory, of this bucket."""
        for param, array in zip(self.params, self.arrays, strict=True):
            if param._array is not array:
                return False
        if not self.names:
            return True
        try:
            for name, column, arrays in zip(self.names, self.tensors, self.tensor_arrays, strict=True):
                if not all(map(is_, map(itemgetter(name), self.states), column)):
                    return False
                if not all(map(is_, map(array_of, column), arrays)):
                    return False
        except KeyError:  # somebody took a tensor out of the state
            return False
        for flat in self.flat_scalars:
            values = flat.tolist()
            if values.count(values[0]) != len(values):
                return False
        return True

    def values(self) -> tuple[Any, ...]:
        """The scalar state, one numpy scalar per name."""
        return tuple([flat[0] for flat in self.flat_scalars])

    def step(self, formula: Any, numbers: Sequence[Any], values: Sequence[float], grads: list[Any]) -> None:
        """Run `formula` over all parameters, with arrays `grads`, and set the scalar state to `values`."""
        if formula.direct_ is not refuse and len(self.names) == len(self.flat_scalars):
            self._step_each(formula, numbers, grads)
        else:
            if self.small:
                self._step_flat(formula, numbers, [grads[i] for i in self.small] if self.large else grads)
            if self.large:
                self._step_large(formula, numbers, grads)
        for flat, value in zip(self.flat_scalars, values, strict=True):
            flat.fill(value)
        self._bump()

    def _step_large(self, formula: Any, numbers: Sequence[Any], grads: list[Any]) -> None:
        engine = engines.chosen()
        plans = self.plans_of_large.get((formula, engine))
        if plans is None:
            plans = self.plans_of_large[formula, engine] = [self._planned_alone(formula, len(numbers), i, grads[i]) for i in self.large]
        for i, (run, given, strides, written) in zip(self.large, plans, strict=True):
            param, *state = written
            grad = grads[i]
            if run is None or grad.strides != strides or grad.dtype is not self.dtype or grad.shape != param.shape:
                kernels.launch(formula, (param, grad, *state, *map(self.number, numbers)), written, self.dtype)
            else:
                given[0][:] = numbers
                run(param, grad, *state, *given[1:], *written)

    def _planned_alone(self, formula: Any, count: int, i: int, grad: Any) -> tuple[Any, ...]:
        """What runs `formula` on large parameter `i` and a gradient with the strides of `grad`, None if nothing does.

        Returns: that; the array of its `count` numbers, and each of them as 0-d; the strides; parameter and state, which are written.
        """
        written = (self.arrays[i], *(column[i] for column in self.tensor_arrays[: len(self.names) - len(self.flat_scalars)]))
        numbers = np.empty(count, self.number)
        each = [numbers[k : k + 1].reshape(()) for k in range(count)]
        run = None
        if grad.dtype is self.dtype and grad.shape == written[0].shape and all(a.flags.writeable for a in written):
            run = kernels.planned(formula, (written[0], grad, *written[1:], *each), written, self.dtype)
        return run, (numbers, *each), grad.strides, written

    def _step_flat(self, formula: Any, numbers: Sequence[Any], grads: list[Any]) -> None:
        np.concatenate(self.targets, out=self.param)
        np.concatenate(grads, axis=None, out=self.grad)
        engine = engines.chosen()
        plan = self.plans.get((formula, engine))
        if not plan:
            inputs = (self.param, self.grad, *self.flat_state, *map(self.number, numbers))
            kernels.launch(formula, inputs, (self.param, *self.flat_state), self.dtype)
            if plan is None and self.waiting.paid_for(_LAUNCH + of_elements(self.param.size)):
                self.plans[formula, engine] = self._compiled(formula, numbers)
        else:
            run, given, operands = plan
            given[:] = numbers
            run(*operands)
        for target, source in zip(self.targets, self.sources, strict=True):
            target[:] = source

    def _compiled(self, formula: Any, numbers: Sequence[Any]) -> Any:
        """What `_planned` gives; False without state, where `formula` is specialised, for `_step_each`."""
        if self.flat_state:
            return self._planned(formula, len(numbers))
        kernels.specialise(formula, (self.param, self.grad, *map(plain, numbers)), self.param, self.dtype)
        return False

    def _planned(self, formula: Any, count: int) -> Any:
        """What runs `formula` on the flat arrays with `count` numbers, the array of these, and all operands; False if nothing does."""
        given = np.empty(count, self.number)
        outs = (self.param, *self.flat_state)
        inputs = (self.param, self.grad, *self.flat_state, *[given[i : i + 1].reshape(()) for i in range(count)])
        run = kernels.planned(formula, inputs, outs, self.dtype, often=True)
        return False if run is None else (run, given, (*inputs, *outs))

    def _step_each(self, formula: Any, numbers: Sequence[Any], grads: list[Any]) -> None:
        """The same, one native call a parameter: without state that takes less than copying to and fro."""
        numbers, step = [x if x.__class__ is float else float(x) for x in numbers], formula.direct_
        for array, grad in zip(self.arrays, grads, strict=True):
            if step(array, grad, *numbers) is None:
                kernels.launch(formula, (array, grad, *map(self.number, numbers)), (array,), self.dtype)

    def _bump(self) -> None:
        now = _state.next_seq()
        for param in self.params:
            record = param._storage
            record[COUNT] += 1
            record[STAMP] = now
        for record in self.records:
            record[COUNT] += 1
            record[STAMP] = now


def plain(number: Any) -> Any:
    """A hyperparameter as direct calls take it: they round it to what the formula computes in themselves."""
    return number if number.__class__ is float else float(number)


def same(now: list[Any], before: list[Any]) -> bool:
    """Whether two lists hold the very same objects."""
    return len(now) == len(before) and all(map(is_, now, before))

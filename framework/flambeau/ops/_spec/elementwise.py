"""Elementwise ops: a scalar formula, how it is run, and what is recorded of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType
from typing import Any, Unpack

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.formula import Formula
from flambeau_kernels.takeover import FORMULA, Waiting

from ... import _arrays, _state, dtypes
from ..._arrays import MetaArray, ndarray
from ...autograd.making import if_read as saved_if_read
from ...autograd.making import making, seen_from
from ...autograd.tape import Node, Overwritten
from ...dtypes import FLOATING
from ...tensor import Tensor, bump, device_of, wrap
from .._promote import NUMBERS, Rule, common, result_type
from .base import EVERYWHERE, OPS, Autocast, Facts
from .derivatives import Derivatives, ElementwiseNode
from .few_elements import MOST_BY_NUMPY, computed_by_numpy, kinds_of, met_before, remember_for_numpy
from .history import rebase
from .names import unify
from .nodes import indented, written
from .overlap import refuse_partly_shared
from .shapes import broadcast_shapes, common_device, describe, elsewhere, refuse_beyond
from .writing import (
    cannot_be_cast,
    check_out,
    check_view,
    check_writable,
    kept_copy,
    raise_other_dtype,
    resize_out,
)

_new = object.__new__


def looks_at(what: str, of: str = "") -> Callable[[Any], Any]:
    """Decorator of checks: what decides whether they raise, apart from keyword-only arguments with other than their defaults.

    'dtypes' and the classes of numbers, or whether numbers are in the 'range' of the dtype, or the elements `of` a parameter where all
    operands are 'integers', or a 'number' as `number_is` says; other checks may look at any values, so they run at every call.
    """

    def marked(check: Any) -> Any:
        check.looks_at, check.elements_of = what, of
        return check

    return marked


def number_is(name: str, condition: str, message: str) -> Callable[..., None]:
    """The check that parameter `name`, where it is a number, satisfies the expression `condition`.

    Entry points test the condition itself, so that such an op has a builtin as others have.

    Args:
        message: of the RuntimeError; ``{}`` in it stands for the number.
    """
    holds = eval(f"lambda {name}: {condition}")       # text of a declaration

    @looks_at("number")
    def check(op: Any, *args: Any) -> None:
        value = args[op.params.index(name)]
        if not isinstance(value, Tensor) and not holds(value):
            raise RuntimeError(message.format(value))

    accepts: Any = check                              # a function with facts of its own
    accepts.number, accepts.holds = name, holds
    accepts.text = f"({name}.__class__ is float or {name}.__class__ is int) and {condition}"
    return check


# What `prepare` has said of operands on a CUDA device, by `_key_of` them, and the classes of arrays there.
_met: dict[Any, tuple[Any, Any, tuple[int, ...]]] = {}
_of_devices: set[type] = set()
_MOST_MET = 4096
kernels.plans_kept_elsewhere.append(_met.clear)


def _key_of(op: Any, arrays: tuple[Any, ...]) -> Any:
    """What `prepare` looks at where it reads no values; None if an operand is neither on a CUDA device nor a number."""
    first = arrays[0].__class__
    key: list[Any] = [op]
    count = len(op.positional)
    for i, a in enumerate(arrays):
        if a.__class__ is first:
            key += [a.shape, a.dtype, a.device.id]
        elif a.__class__ in (int, float, bool, complex):
            key += [a.__class__, a if i >= count else None]  # checks may read those that are given by name
        else:
            return None
    return tuple(key)


class ElementwiseOp(Derivatives):
    """A straight-line scalar formula over broadcast operands."""

    kind = "elementwise"
    elements = "mapped"
    node_base = ElementwiseNode
    formulas_by_dtype: Mapping[np.dtype, Formula] = MappingProxyType({})  # see `computed_in`

    def __init__(
        self, fn: Any, surface: int, namespace: str, aliases: Any, autocast: Any, dtype: Rule, partials: Any, vjps: Any,
        ufunc: Any, check: Any, scalar_first: bool, samples: Any, title: str | None,
    ) -> None:  # fmt: skip
        self.dtype_rule = dtype
        self.ufunc = ufunc
        self.formula, self.short = _formulas(fn, ufunc)
        self.check = check
        self.check_looks_at = "dtypes" if check is None else getattr(check, "looks_at", "values")
        self.scalar_first = scalar_first
        self.samples = samples
        super().__init__(fn, surface, namespace, aliases, autocast, partials, vjps)
        if title:
            self.shown_as(title)
        self.waiting = Waiting(FORMULA)
        self._linear: dict[tuple[Any, ...], list[tuple[str, ...]]] = {}
        self.names = unify if len(self.positional) <= 2 else None
        self.keyword_defaults = tuple(self.defaults[n] for n in self.keyword_only)
        self.reads = frozenset(name for p in self.params for name in self.reads_of(p))
        # Whether results have a history. Truth values have none, but what a comparison stores in numbers, in place, may.
        self.differentiable = self.records = (partials is not None or bool(vjps)) and dtype.__name__ != "to_bool"

    @property
    def answers_plain_tensors_alone(self) -> bool:
        return True                                   # the builtin of the formula takes no others

    def ways(self, asked: Any) -> list[Any]:
        found = super().ways(asked)
        if found is not None:
            return found
        from .pieces import everywhere

        ways = everywhere(asked)
        for names in self.linear_together(tuple([... if isinstance(a, Tensor) else a for a in asked.args])):
            given = {i: "sum" for i, name in enumerate(asked.names) if name in names}
            ways.append(asked.way(given, "sum"))
        return ways

    def linear_together(self, numbers: tuple[Any, ...]) -> list[tuple[str, ...]]:
        """The sets of operands in which the formula is linear together: their partials read none of them, and it adds up at some points.

        Args:
            numbers: the arguments, ``...`` for tensors.
        """
        found = self._linear.get(numbers)
        if found is None:
            from .pieces import subsets

            tensors = [name for name, value in zip(self.params, numbers, strict=True) if value is ...]
            found = [names for names in subsets(tensors) if self._is_linear(names, tensors, numbers)]
            if len(self._linear) < 1000:
                self._linear[numbers] = found
        return found

    def _is_linear(self, names: tuple[str, ...], tensors: list[str], numbers: tuple[Any, ...]) -> bool:
        if not self.differentiable or any(not self.has_gradient(name) or {"out", *names} & set(self.reads_of(name)) for name in names):
            return False
        others = [name for name in tensors if name not in names]
        rng = np.random.default_rng(0)
        u, v = rng.standard_normal((2, len(names), 64)) * 3
        u[:, :8] = v[:, :8] = 0.0                     # where nothing is left but what is added
        fixed = dict(zip(others, rng.choice([0.0, 1.0, -1.5, 2.0], (len(others), 64)), strict=True))

        def at(values: Any) -> Any:
            given = fixed | dict(zip(names, values, strict=True))
            out = np.empty(64)
            self.launch(tuple([given[n] if a is ... else a for n, a in zip(self.params, numbers, strict=True)]), out, out.dtype)
            return out

        with np.errstate(all="ignore"):
            return bool(np.allclose(at(u) + at(v), at(u + v), rtol=1e-12, atol=0, equal_nan=True))

    def computed_in(self, formulas: Mapping[dtypes.dtype, Formula]) -> None:
        """Say which dtypes have formulas of their own, and what these are: operands are converted first, and no builtins answer."""
        self.formulas_by_dtype = {d.numpy: formula for d, formula in formulas.items()}

    # -- forward

    def launch(self, arrays: tuple[Any, ...], out: Any, compute: Any) -> None:
        """Run the formula; the short one when every keyword-only argument has its default."""
        of_dtype = self.formulas_by_dtype.get(compute)
        if of_dtype is not None:
            operands = tuple([a.astype(compute) if isinstance(a, ndarray) else a for a in arrays])
            kernels.launch(of_dtype, operands, (out,), compute)
            return
        count = len(self.positional)
        if self.short is not None and all(
            a is d or a == d for a, d in zip(arrays[count:], self.keyword_defaults, strict=True)
        ):
            kernels.launch(self.short, arrays[:count], (out,), compute)
        else:
            kernels.launch(self.formula, arrays, (out,), compute)

    def prepare(self, args: Any) -> Any:
        """Check operands; returns ``(args, compute, result, shape, place)``."""
        first = args[0]
        if self.numbers_alone and isinstance(first, NUMBERS) and not any([isinstance(a, Tensor) for a in args]):  # noqa: C419
            first = wrap(np.array(first, dtypes.of_number(first).numpy))
            args = (first, *args[1:])
        if not isinstance(first, Tensor) and not (self.scalar_first and any(isinstance(a, Tensor) for a in args)):
            raise TypeError(f"{self.public_name}(): argument '{self.params[0]}' (position 1) must be Tensor, not {type(first).__name__}")
        for name, a in zip(self.params, args, strict=True):
            if not isinstance(a, Tensor) and not isinstance(a, NUMBERS):
                what = "numpy.ndarray; make it a Tensor with from_numpy()" if isinstance(a, np.ndarray) else type(a).__name__
                raise TypeError(f"{self.public_name}(): argument '{name}' must be Tensor or Number, not {what}")
        refuse_beyond(self, args)
        if self.check is not None:
            self.check(self, *args)
        compute, result = self.dtype_rule(self, args[: len(self.positional)])
        if result.itemsize == 1 and result.category == FLOATING and not self.float8:
            refuse_float8(self.name, result)
        return args, compute, result, broadcast_shapes(self, args), common_device(self, args)

    def accepts(self, args: Any) -> bool:
        """Whether a check that looks at a number has nothing against that one."""
        if self.check_looks_at != "number":
            return True
        value = args[self.params.index(self.check.number)]
        return value.__class__ in (int, float) and self.check.holds(value)

    def fails_by_elements(self, args: Any) -> bool:
        """Whether elements of operands like these decide whether a call raises."""
        if self.check_looks_at != "integers":
            return self.check_looks_at == "values"
        read = args[self.params.index(self.check.elements_of)]
        return isinstance(read, Tensor) and result_type(args[: len(self.positional)]).category < 2

    def run(self, *args: Any) -> Tensor:
        arrays = tuple([a._array if isinstance(a, Tensor) else a for a in args])
        if arrays[0].__class__ in _of_devices:
            return self._run_on_device(args, arrays)
        if any([a.__class__ is ndarray for a in args]):  # noqa: C419  # which are refused before anything is computed of them
            return self._run_anew(args)
        if self.forwarded and isinstance(args[0], Tensor) and args[0]._array.__class__ is ndarray:
            made = self.answer(*args)                 # what no builtin takes, such as a power that a number says
            if made is not None:
                return made
        formula, operands = self.formula_of(arrays)
        out = formula.direct(*operands) if self.accepts(args) else None
        if out is not None:
            made = wrap(out)
            if self.records:
                self.record(made, *args)
            return made
        out = computed_by_numpy(self, formula, operands, args)
        if out is not None:
            made = wrap(out)
            if self.records and out.dtype.kind == "f":
                self.record(made, *args)
            return made
        return self._run_anew(args)

    def _run_anew(self, args: tuple[Any, ...]) -> Tensor:
        """`run` of operands that nothing is known of."""
        answer = elsewhere(self, args)
        if answer is not NotImplemented:
            return answer
        given = args
        args, compute, result, shape, place = self.prepare(args)
        arrays = tuple(a._array if isinstance(a, Tensor) else a for a in args)
        if place == "meta":
            strides = _arrays.like_strides(shape, result.numpy.itemsize, [a for a in arrays if hasattr(a, "strides")])
            out = MetaArray(shape, result.numpy, strides)
        elif place == "cpu":
            out = _arrays.empty_like_layout(shape, result.numpy, [a for a in arrays if isinstance(a, ndarray)])
            self.launch(arrays, out, compute.numpy)
            if given is args:
                self._teach(arrays, out, compute)
        else:
            out = on_other_device(self, arrays, compute, result, shape)
            if given is args and arrays[0].__class__ is out.__class__:
                self._note_met(arrays, compute, result, shape)
        made = wrap(out)
        if result.category >= FLOATING and self.records:
            self.record(made, *args)
        return made

    def _note_met(self, arrays: tuple[Any, ...], compute: Any, result: Any, shape: tuple[int, ...]) -> None:
        """Let `_run_on_device` know what `prepare` has said of `arrays` on a CUDA device."""
        _of_devices.add(arrays[0].__class__)
        key = _key_of(self, arrays)
        if key is not None and self.check_looks_at == "dtypes" and self._same_by_dtypes(arrays, compute):
            if len(_met) >= _MOST_MET:
                _met.clear()
            _met[key] = (compute, result, shape)

    def _run_on_device(self, args: tuple[Any, ...], arrays: tuple[Any, ...]) -> Tensor:
        """`run` where the first operand is on a CUDA device; what `prepare` has said of operands like these is known."""
        found = _met.get(_key_of(self, arrays))
        if found is None:
            return self._run_anew(args)
        compute, result, shape = found
        made = wrap(on_other_device(self, arrays, compute, result, shape))
        if result.category >= FLOATING and self.records:
            self.record(made, *args)
        return made

    def formula_of(self, arrays: tuple[Any, ...]) -> tuple[Formula, tuple[Any, ...]]:
        """The formula that computes `arrays`, numbers among them, and its operands: keyword-only defaults have one without them."""
        if self.short is not None:
            count = len(self.positional)
            if all(a is d for a, d in zip(arrays[count:], self.keyword_defaults, strict=True)):
                return self.short, arrays[:count]
        return self.formula, arrays

    def _teach(self, arrays: tuple[Any, ...], out: Any, compute: Any) -> None:
        """Let the formula answer calls with operands like these by its builtins from now on."""
        if compute.numpy in self.formulas_by_dtype or not self._same_by_dtypes(arrays, compute):
            return
        if self.differentiable and out.dtype.kind in "biu" and any(isinstance(a, ndarray) and a.dtype.kind not in "biu" for a in arrays):
            return                                    # entry points record whatever has history
        formula, operands = self.formula_of(arrays)
        remember_for_numpy(self, formula, operands, out, compute.numpy)
        self.learn(formula, operands, out, compute.numpy)

    def _same_by_dtypes(self, arrays: Any, compute: Any) -> bool:
        """Whether dtypes and classes of numbers alone say that these operands are right and how they are computed."""
        if "launch" in self.__dict__ and not all(isinstance(a, ndarray) for a in arrays):
            return False                              # it chooses by values of numbers
        kinds = [a.dtype.kind for a in arrays if isinstance(a, ndarray)]
        if compute.numpy.kind in "biu" and not all(kind in "biu" for kind in kinds):
            return False                              # numpy says what becomes of numbers that are no integers
        looks_at = self.check_looks_at
        return looks_at in ("dtypes", "range", "number") or looks_at == "integers" and any(kind not in "biu" for kind in kinds)

    def learn(self, formula: Formula, operands: Any, out: Any, compute: Any) -> None:
        """Let `formula` take later calls with such operands directly.

        Only after some calls where the numpy tier has answered, with the same bits: compiling takes longer than a thousand calls on
        small operands, and loading LLVM does in a process that computes little. What is around a loop that is compiled already waits too.
        """
        by_numpy = kernels.has_one_answer(formula, compute) and kernels.is_left_to_numpy(formula, operands, out, compute)
        may_compile = self.waiting.paid_for() if by_numpy else kernels.calls_repay() or None
        if may_compile is None:
            return
        plan = met_before.get(kinds_of(formula, operands))
        if not may_compile:
            if plan is None or plan.sought:
                return
            plan.sought = True
        answers = kernels.specialise(formula, operands, out, compute, may_compile)
        if plan is not None:
            plan.by_numpy = not answers

    def store_at_once(self, out: Any, *args: Any) -> Any:
        return self.formula.enter_before(out, *args) if not self.keyword_only and self.accepts(args) else None

    def run_out(self, out: Any, *args: Any) -> Tensor:
        if not isinstance(out, Tensor):
            raise TypeError(f"{self.public_name}(): argument 'out' must be Tensor, not {type(out).__name__}")
        if self._write_by_numpy(out, args):
            return out
        answer = elsewhere(self, args, out)
        if answer is not NotImplemented:
            return answer
        args, compute, result, shape, place = self.prepare(args)
        with_grad = self.records and _state.grad_enabled() and any(isinstance(a, Tensor) and a._node is not None for a in args)
        check_out(self, out, result, device_of(out._array) if place == "cpu" and not out._lacks_values else place_of(place), with_grad)
        check_writable(self, out, out._array.shape != shape)
        if out.dtype is not result and self.exact_out:
            raise_other_dtype(self, result, out)
        refuse_partly_shared(self, out, args)
        if out._array.shape != shape:
            resize_out(self, out, shape)
        self._write(out, args, compute, result)
        return out

    def _write(self, target: Tensor, args: Any, compute: Any, result: Any) -> None:
        arrays = tuple(a._array if isinstance(a, Tensor) else a for a in args)
        out = target._array
        if type(out) is MetaArray:
            pass
        elif type(out) is not ndarray:
            kernels.store(out, on_other_device(self, arrays, compute, result, out.shape))
        else:
            if any(self._collides(a, out) for a in arrays):
                arrays = self._without_overlap(target, args, arrays)
            if result.numpy == out.dtype:
                formula, operands = self.formula_of(arrays)
                if operands[0] is not out or formula.direct_(*operands) is None:
                    self.launch(arrays, out, compute.numpy)
                    self._teach(arrays, out, compute)
            else:
                made = np.empty(out.shape, result.numpy)
                self.launch(arrays, made, compute.numpy)
                out[...] = kernels.cast(made, out.dtype)
        bump(target)

    def _without_overlap(self, target: Tensor, args: Any, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        """`arrays` with copies of those that `target` overlaps. Raises: RuntimeError where PyTorch refuses such operands."""
        refuse_partly_shared(self, target, args)
        return tuple(np.array(a) if self._collides(a, target._array) else a for a in arrays)

    @staticmethod
    def _collides(a: Any, out: ndarray) -> bool:
        """Whether `a` overlaps `out` without being exactly it."""
        if not isinstance(a, ndarray) or not np.may_share_memory(a, out):
            return False
        same = a.shape == out.shape and a.strides == out.strides and a.dtype == out.dtype
        return not (same and _arrays.address(a) == _arrays.address(out))

    # ``fn(target, args)``: whether each element gets the value it has, so that it does not matter if several lie at one place.
    stores_what_is_there: Any = None

    def _write_by_numpy(self, target: Any, args: tuple[Any, ...]) -> bool:
        """Store the result of few elements in `target` where nothing is recorded and no other operand lies there, or do nothing."""
        if not isinstance(target, Tensor):
            return False
        a, view = target._array, target._view_of
        if a.__class__ is not ndarray or a.size > MOST_BY_NUMPY or not a.flags.carray:
            return False
        if _state.MARKED and target._storage[0].__class__ is not int:  # who writes there is asked more
            return False
        if (target._node is not None or view is not None and view[0]._node is not None) and _state.grad_enabled():
            return False
        arrays = []
        for x in args:
            if isinstance(x, Tensor):
                if x._node is not None and _state.grad_enabled() or x is not target and np.may_share_memory(x._array, a):
                    return False
                x = x._array
            elif x.__class__ is ndarray:              # which is no operand
                return False
            arrays.append(x)
        formula, operands = self.formula_of(tuple(arrays))
        made = formula.direct(*operands) if self.accepts(args) else None
        if made is None:
            made = computed_by_numpy(self, formula, operands, args)
        if made is None or made.dtype is not a.dtype or made.shape != a.shape:
            return False
        a[...] = made
        bump(target)
        return True

    def run_inplace(self, target: Tensor, *args: Any) -> Tensor:
        if self._write_by_numpy(target, (target, *args)):
            return target
        answer = elsewhere(self, (target, *args), target, True)
        if answer is not NotImplemented:
            return answer
        check_writable(self, target, self.stores_what_is_there is not None and self.stores_what_is_there(target, args))
        recorded = self.has_gradient(self.params[0])
        if target._node is not None and (recorded or self.differentiable) and _state.grad_enabled():
            check_view(self, target)
        args, compute, result, shape, _ = self.prepare((target, *args))
        if shape != target._array.shape:
            raise RuntimeError(
                f"{self.public_name}_: output with shape {list(target.shape)} doesn't match the broadcast shape {list(shape)}\n"
                f"{describe(**dict(zip(self.params, args, strict=True)))}"
            )
        if not dtypes.can_cast(result, target.dtype):
            raise RuntimeError(f"{self.public_name}_: {cannot_be_cast(result, target.dtype)}")
        records = _state.grad_enabled() and (target.dtype.category >= FLOATING or recorded and not self.records)
        recorded = recorded or self.differentiable
        if records and not recorded and target._node is not None:
            OPS["Tensor.overwrite"].run_inplace(target, self.run(*args))
        elif records and recorded and any(isinstance(a, Tensor) and a._node is not None for a in args):
            check_view(self, target)
            before = wrap(target._array, target._node)
            before._storage = target._storage
            shown = wrap(target._array)
            self.record(shown, before, *args[1:])
            node = shown._node
            forget_overwritten_inputs(node, target)
            self._write(target, args, compute, result)
            node.seq = _state.next_seq()
            if node.versions and node.versions[0] is shown._storage:
                node.versions = (target._storage, *node.versions[1:])
            rebase(target, node)
        else:
            self._write(target, args, compute, result)
        return target

    # -- recording

    @functools.cached_property
    def record(self) -> Any:
        """``record(made, *args)`` gives `made` a node if an operand has one and this thread records. An op may have its own."""
        return self.written_record

    @functools.cached_property
    def written_record(self) -> Any:
        """`record` as it is written for each op."""
        return written(self, "record", self.record_text())

    def record_text(self) -> list[str]:
        """The lines of `record`."""
        first, *rest = self.positional
        is_tensor = "{0}.__class__ is Tensor or isinstance({0}, Tensor)".format
        all_tensors = dict.fromkeys(self.positional, True)
        if not rest:
            body = self._recording(all_tensors)
        elif len(rest) == 1:
            body = [f"if {is_tensor(rest[0])}:", *indented(self._recording(all_tensors)), "else:"]
            body += indented(self._recording({**all_tensors, rest[0]: False}))
            if self.scalar_first:
                number_first = self._recording({**all_tensors, first: False})
                body = [f"if not ({is_tensor(first)}):", *indented(number_first), *body]
        else:
            body = [f"t{i} = {is_tensor(n)}" for i, n in enumerate(self.positional)]
            body += self._recording({n: f"t{i}" for i, n in enumerate(self.positional)})
        return [f"def record(made, {', '.join(self.params)}):", *indented(body)]

    def recording(self, given: tuple[str, ...] | None = None) -> list[str]:
        """Lines of an entry point that record the new Tensor ``made`` of the arguments `given`, and return it."""
        given = given or self.params
        first, *rest = self.positional
        general = [f"record(made, {', '.join(given)})", "return made"]
        if not self.records:
            return ["made._node = None", "return made"]
        if len(rest) > 1:
            return general
        text = dict(zip(self.params, given, strict=True))
        all_tensors = dict.fromkeys(self.positional, True)
        lines = self._recording(all_tensors, 1, "made", text)
        if not rest:
            return lines
        (other,) = rest
        lines = [f"if {other}.__class__ is Tensor or {other}.__class__ is Parameter:", *indented(lines)]
        lines += [f"if {other}.__class__ in NUMBERS:", *indented(self._recording({**all_tensors, other: False}, 1, "made", text))]
        if self.scalar_first:
            lines = [f"if {first}.__class__ not in NUMBERS:", *indented(lines)]
        return [*lines, *general]

    def _recording(
        self, tensors: Mapping[str, bool | str], frames: int = 2, result: str = "None", given: dict[str, str] | None = None
    ) -> list[str]:
        """Lines that record ``made``, where `tensors` says of operands whether they are Tensors: True, False, or the text of a test.

        Args:
            frames: how many calls up the user's code is as a rule.
            result: text of what to return.
            given: text of the arguments, by parameter.
        """
        nodes: dict[str, str] = {}                    # of operands, the names of their nodes
        lines: list[str] = []
        for i, (name, known) in enumerate(tensors.items()):
            if known is not False:
                nodes[name] = f"n{i}"
                lines.append(f"n{i} = {name}._node" + (f" if {known} else None" if known is not True else ""))

        def if_read(name: str, value: str) -> str:
            """Text of `value`, which is saved under `name` if the gradient of an operand with a history reads it."""
            return saved_if_read(value, [node for operand, node in nodes.items() if name in self.reads_of(operand)], tuple(nodes.values()))

        arrays = {name: f"a{i}" for i, name in enumerate(tensors) if name in nodes}

        def of(name: str, attribute: str, otherwise: str = "None") -> str:
            known = tensors.get(name, False)
            value = f"{arrays[name]}.{attribute}" if attribute in ("shape", "dtype") and known is not False else f"{name}.{attribute}"
            return value if known is True else otherwise if known is False else f"({value} if {known} else {otherwise})"

        text = given or {}
        # Numbers that are given by name take no memory, and are shown whichever gradient is asked for.
        operands = [text.get(n, n) if n in self.keyword_only else if_read(n, arrays.get(n) or text.get(n, n)) for n in self.params]
        saved = [if_read("out", "made._array"), *operands]
        records = [if_read("out", "made._storage"), *(if_read(n, of(n, "_storage")) for n in self.params)]
        keeps = any(r != "None" for r in records)
        lines += [
            f"if {' and '.join(f'{n} is None' for n in nodes.values())} or not (GRAD or local.grad):",
            "    made._node = None",
            f"    return {result}",
            *(f"{a} = {n}._array" + (f" if {tensors[n]} else {n}" if tensors[n] is not True else "") for n, a in arrays.items()),
            *making(
                f"({', '.join(nodes.get(n, 'None') for n in self.params)},)",
                f"({', '.join(saved)},)",
                f"({', '.join(records)},)" if keeps else "()",
                f"({', '.join(of(n, 'shape') for n in self.params)},)",
                f"({', '.join(of(n, 'dtype') for n in self.params)},)",
                cls=self.node_class_for(*nodes) if all(known.__class__ is bool for known in tensors.values()) else "Node",
                place=seen_from(frames) if keeps else None,  # an error about what was saved names the line
            ),
        ]
        return [*lines, f"return {result}"]

def refuse_float8(name: str, d: Any) -> None:
    raise NotImplementedError(
        f'"{name}" not implemented for {d}: float8 types are for storage; convert with .to(torch.float32), compute, convert back'
    )


def _formulas(fn: Any, ufunc: Any) -> tuple[Formula, Formula | None]:
    """The formula over all parameters, and the one without the keyword-only ones if there are any."""
    code = fn.__code__
    extra = code.co_kwonlyargcount
    if not extra:
        return Formula(fn, ufunc=ufunc), None
    three_operands = FunctionType(
        code.replace(co_argcount=code.co_argcount + extra, co_kwonlyargcount=0), fn.__globals__, fn.__name__, None, fn.__closure__
    )
    defaults = [fn.__kwdefaults__[n] for n in code.co_varnames[code.co_argcount : code.co_argcount + extra]]
    if code.co_argcount == 2 and extra == 1:
        value = defaults[0]
        return Formula(three_operands), Formula(lambda a, b: three_operands(a, b, value), fn.__name__, ufunc)
    if ufunc is not None:
        raise TypeError(f"{fn.__name__}: a ufunc goes with at most one keyword-only parameter")
    return Formula(three_operands), None


def forget_overwritten_inputs(node: Node, target: Tensor) -> None:
    """As `forget_overwritten`, but the output is meant to be overwritten, and of the target itself a copy is kept."""
    if not node.versions:
        return
    out, first, *others = node.saved
    versions = node.versions
    if versions[1] is target._storage and (type(first) is MetaArray or hasattr(first, "copy")):
        kept = kept_copy(first)
        first = kept._array
        node.versions = (versions[0], kept._storage, *versions[2:])
    node.saved = (
        out,
        first,
        *(
            Overwritten(node.name()) if v is target._storage else s
            for s, v in zip(others, versions[2:], strict=True)
        ),
    )


def place_of(kind: str) -> Any:
    from ...devices import device

    return device(kind)


def on_other_device(op: Any, arrays: Any, compute: Any, result: Any, shape: Any) -> Any:
    """Evaluate on a CUDA device."""
    from ..._cuda import arrays as device_arrays

    return device_arrays.elementwise(op, arrays, compute.numpy, result.numpy, shape)


def elementwise(
    surface: int = EVERYWHERE,
    dtype: Rule = common,
    partials: dict[str, Callable[..., Any]] | None = None,
    vjp: dict[str, Callable[..., Any]] | None = None,
    ufunc: Any = None,
    namespace: str = "",
    aliases: tuple[str, ...] = (),
    check: Any = None,
    scalar_first: bool = False,
    autocast: Autocast = None,
    samples: Any = None,
    title: str | None = None,
    numpy_names: bool | None = None,
    operator: str | None = None,
    **facts: Unpack[Facts],
) -> Callable[[Any], ElementwiseOp]:
    """Declare an elementwise op; the decorated function is its scalar formula.

    Args:
        dtype: rule from `_promote` giving the compute and result dtypes.
        partials: for each differentiable parameter the partial derivative, a function of the names it reads (`out` or
            parameters); only those are saved. None: constant almost everywhere, results have no history. Empty: nobody has
            defined a derivative, results have a history and backward raises.
        vjp: where a product with the partial is not what is wanted (masks), the gradient itself, a function of `grad` first.
        ufunc: numpy ufunc that equals the formula when keyword-only parameters have their defaults.
        check: ``check(op, *args)`` raising on bad arguments.
        scalar_first: whether the first argument may be a number.
        samples: the bounds of numbers to try it with, (low, high), by default (-3, 3); or calls, see `samples.py`.
        title: name autograd nodes show, where it is not made from the op's.
        numpy_names, operator: as for `composite`.
        facts: as for every kind, see `Facts`.
    """

    def declare(fn: Any) -> ElementwiseOp:
        op = ElementwiseOp(
            fn, surface, namespace, aliases, autocast, dtype, partials, vjp, ufunc, check, scalar_first, samples, title
        )
        if numpy_names is not None:
            op.numpy_names = numpy_names
        op.operator = operator
        op.state(facts)
        return op

    return declare

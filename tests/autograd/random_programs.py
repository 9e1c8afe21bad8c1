"""Random programs of views, in-place operations, changes of geometry and hooks, run with PyTorch and with Flambeau.

A program is a list of lines of Python, in which ``torch`` is either library; its outcome is what can be seen of every tensor
after each line, and gradients and what hooks saw at the end. Outcomes must agree. A program that disagrees is made as short
as it can be and printed.

    python tests/autograd/random_programs.py --count 20000 --seed 1
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

Program = list[str]
LENGTH = 12                                           # lines of a program, apart from its leaves and its end
MOST_ELEMENTS = 200
HUGE = 1e9                                            # results beyond it say more about rounding than about history


# PyTorch does not know the history of some views once their base was written, and refuses to read them. Flambeau knows it.
# The others are errors of PyTorch itself: the gradient of `where` of a real and a complex tensor, and its own assertions.
GIVES_UP = (
    "is a view and its base or another view of its base has been modified", "created in no_grad mode and its base or another view",
    "Expected isFloatingType(grad.scalar_type())", "INTERNAL ASSERT FAILED",
)  # fmt: skip

# Where a change of geometry has left elements of a view outside of its base, PyTorch's backward does not find them any more, and it
# refuses its own way back through a fill of an expanded tensor.
GIVES_UP_IN_BACKWARD = (
    "setStorage: sizes [", "Tensor: invalid storage offset", "more than one element of the written-to tensor refers to a single memory"
)

# What lines are made of. {x} is the tensor, {y} another or a number that broadcasts to it, {z} one that is no number, {p} a part
# of {x} itself, {i} and {j} dimensions, {k} a dimension for `unsqueeze`, {n} 0, 1 or 2, {key} a basic index, {shape} a shape,
# {order} a permutation, {strided} arguments of `as_strided`.
VIEWS = """
    {x}[{key}]
    {x}[{key}]
    {x}[{key}]
    {x}.select({i}, {n})
    {x}.narrow({i}, 0, {n})
    {x}.narrow({i}, 1, {n})
    {x}.transpose({i}, {j})
    {x}.swapaxes({i}, {j})
    {x}.movedim({i}, {j})
    {x}.permute({order})
    {x}.t()
    {x}.T
    {x}.view({shape})
    {x}.view({shape})
    {x}.reshape({shape})
    {x}.view_as({x})
    {x}.flatten()
    {x}.flatten({i}, -1)
    {x}.ravel()
    {x}.unflatten({i}, (-1, 1))
    {x}.unflatten({i}, (2, -1))
    {x}.unsqueeze({k})
    {x}.squeeze()
    {x}.squeeze({i})
    {x}.expand(2, *{x}.shape)
    torch.broadcast_to({x}, (1, *{x}.shape))
    {x}.diagonal({n})
    {x}.unfold({i}, 2, {n})
    {x}.as_strided({strided})
    {x}.as_strided({strided})
    {x}.unbind({i})[-1]
    {x}.split(2, {i})[0]
    {x}.chunk(2, {i})[-1]
    {x}.tensor_split(2, {i})[0]
    {x}.detach()
    {x}.data
"""
VIEWS_OF_COMPLEX = """
    {x}.real
    {x}.imag
    torch.view_as_real({x})
"""
VIEWS_OF_PAIRS = """
    torch.view_as_complex({x})
"""
READS = """
    {x} * {y}
    {x} + {y}
    {x} - {y}
    {x} * {x}
    {x} * 0.5
    {x}.sin()
    {x}.sigmoid()
    {x}.clone()
    {x}.contiguous()
    {x}.clone(memory_format=torch.contiguous_format)
    {x}.mul(3).t().contiguous()
    {x}.sum()
    {x}.sum({i}, keepdim=True).contiguous()
    {x}.cumsum({i})
    {x}.flip({i})
    {x}.tril()
    {x}[[0, 0]].contiguous()
    torch.cat([{x}, {x}], {i}).contiguous()
    torch.stack([{x}, {x}], {i}).contiguous()
    torch.where({x}.detach().abs() > 0.5, {x}, {y})
"""
WRITES = """
    {x}.mul_({y})
    {x}.mul_(2)
    {x}.mul_({p})
    {x}.add_({y})
    {x}.add_(1)
    {x}.add_({p}, alpha=0.5)
    {x}.sub_({y})
    {x} += {y}
    {x} /= 2
    {x} /= {p}
    {x}.neg_()
    {x}.sin_()
    {x}.tanh_()
    {x}.sigmoid_()
    {x}.relu_()
    {x}.exp_().reciprocal_()
    {x}.clamp_(-1, 1)
    {x}.zero_()
    {x}.fill_(0.5)
    {x}.fill_({y})
    {x}.fill_({p})
    {x}.copy_({z})
    {x}.copy_({p})
    {x}.copy_({x}.detach())
    {x}.addcmul_({z}, {z})
    {x}.addcmul_({p}, {z})
    {x}.lerp_({z}, 0.5)
    {x}.cumsum_({i})
    {x}.tril_()
    {x}[{key}] = 0.25
    {x}[{key}] = {y}
    {x}[{key}] = {p}
    {x}[{key}] *= {y}
    {x}[{key}] += {p}
    {x}[[0, 0]] = 0.5
    {x}[[0, 0]] = {p}
    {x}[{x}.detach().abs() > 1] = {y}
    {x}.masked_fill_({x}.detach().abs() > 0.5, 0.5)
    {x}.masked_fill_({x}.detach().abs() > 1, {y})
    {x}.index_fill_({i}, torch.tensor([0]), 0.5)
    {x}.index_add_({i}, torch.tensor([0]), {x}.narrow({i}, 0, 1).clone())
    {x}.index_copy_({i}, torch.tensor([0]), {x}.narrow({i}, -1, 1).clone())
    {x}.index_put_((torch.tensor([0]),), {z}, accumulate=True)
    torch.mul({x}.detach(), 2, out={x})
"""
# PyTorch still does these to elements that share places, in its own order, and warns that it will not.
DEPRECATED = ("masked_fill_", "index_", "tril_", "[[0, 0]]", "abs() > 1]")
GEOMETRY = """
    {x}.t_()
    {x}.t_()
    {x}.transpose_({i}, {j})
    {x}.swapaxes_({i}, {j})
    {x}.swapdims_({i}, {j})
    {x}.squeeze_()
    {x}.squeeze_({i})
    {x}.unsqueeze_({k})
    {x}.unsqueeze_({k})
    {x}.as_strided_({strided})
    {x}.resize_(tuple(reversed({x}.shape)))
    {x}.resize_({x}.shape[:-1])
    {x}.detach_()
    {x}.set_({z})
    {x}.data = {x}.data * 2
"""
# PyTorch 2.13 ends the process when a hook is registered on a view whose history it has to renew, so that is done first.
HOOKS = """
    {x}.retain_grad()
    {x}.retain_grad()
    {x}.grad_fn, {x}.register_hook(note('{x}'))
    {x}.grad_fn, {x}.register_hook(twice('{x}'))
"""
OTHERS = """
    {x}.grad_fn
    {x}.requires_grad_()
    loss({x}).backward(retain_graph=True)
"""


def templates(table: str) -> list[str]:
    return [line.strip() for line in table.splitlines() if line.strip()]


# -- what programs may call ------------------------------------------------------------------------------------------------


def scope(lib: Any, log: list[Any]) -> dict[str, Any]:
    """The names a program may use; hooks write into `log`."""

    def leaf(start: float, shape: Any, strides: Any, offset: int, dtype: str, requires_grad: bool) -> Any:
        """A tensor over memory of its own, whose elements count up from `start` as they lie there."""
        last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
        real = [((start + 7 * k) % 23 - 11) / 8 for k in range(last + 2)]
        values = [complex(x, 0.5 - x / 2) for x in real] if dtype.startswith("complex") else real
        flat = lib.tensor(values, dtype=getattr(lib, dtype))
        made = lib.empty(0, dtype=flat.dtype).set_(flat, offset, shape, strides)
        return made.requires_grad_(requires_grad)

    def note(name: str) -> Callable[[Any], None]:
        return lambda grad: log.append((name, seen_gradient(grad)))

    def twice(name: str) -> Callable[[Any], Any]:
        def hook(grad: Any) -> Any:
            log.append((f"twice {name}", seen_gradient(grad)))
            return grad * 2

        return hook

    def loss(*tensors: Any) -> Any:
        """A real number that depends on every element of `tensors`, and on each in a way of its own."""
        total = lib.zeros((), dtype=lib.float64)
        for t in tensors:
            k = t.numel() % 5
            if t.dtype.is_complex:
                t = lib.view_as_real(t * (1 + 0.5j))
            weights = (lib.arange(t.numel(), dtype=lib.float64).reshape(t.shape) * 5 + k) % 7 - 2.5
            total = total + (t * weights + (t * 0.5).sin()).sum()
        return total

    return {"torch": lib, "leaf": leaf, "note": note, "twice": twice, "loss": loss}


@lru_cache(10000)
def compiled(line: str) -> CodeType:
    return compile(line, "<program>", "exec")


def values_of(t: Any) -> Any:
    return np.array(t.data.tolist(), dtype=complex if t.dtype.is_complex else float)


def seen_gradient(grad: Any) -> Any:
    return None if grad is None else (tuple(grad.shape), str(grad.dtype), values_of(grad))


def seen(t: Any) -> dict[str, Any]:
    """What can be seen of a tensor without asking for its history, which PyTorch would renew then."""
    return {
        "shape": tuple(t.shape), "dtype": str(t.dtype), "steps": steps(t), "offset": t.storage_offset() if t.numel() else None,
        "version": t._version, "values": values_of(t),
    }  # fmt: skip


def steps(t: Any) -> Any:
    """The strides that say where elements are."""
    return [s for s, n in zip(t.stride(), t.shape, strict=True) if n != 1] if t.numel() else None


def seen_at_the_end(t: Any) -> dict[str, Any]:
    history: dict[str, Any]
    try:
        history = {"requires_grad": t.requires_grad, "is_leaf": t.is_leaf}
    except RuntimeError as error:
        history = {"refused": str(error)}
    if history.get("is_leaf"):                        # of others the memory order is the engine's business
        history["steps"] = None if t.grad is None else steps(t.grad)
    return {**history, "grad": seen_gradient(t.grad)}


def run(lib: Any, program: Program) -> list[tuple[str, Any]]:
    """What can be seen of the program, line by line: the line, and the error's type, or the tensors and what hooks logged."""
    log: list[Any] = []
    names = scope(lib, log)
    known = set(names)
    story: list[tuple[str, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for line in program:
            error: Any = None
            try:
                exec(compiled(line), names)
            except NameError:
                error = "NameError"
            except Exception as e:  # of any type: it is what is compared
                error = (type(e).__name__, str(e))
            there = {name: seen(t) for name, t in names.items() if name not in known and isinstance(t, lib.Tensor)}
            # Hooks of one tensor are called in order; in which order those of different leaves are is the engine's business.
            derives = "backward(" in line or "autograd.grad(" in line
            if "loss(*[" in line:
                log.clear()
            story.append((line, {"error": error, "derives": derives, **there, "log": sorted(log, key=lambda entry: entry[0])}))
        there = {name: seen_at_the_end(t) for name, t in names.items() if name not in known and isinstance(t, lib.Tensor)}
        if any("create_graph" in line for line in program):
            # What of a second derivative is zero depends on nothing in PyTorch, so it is not seen by hooks on the way.
            there = {name: facts for name, facts in there.items() if facts.get("is_leaf")}
        story.append(("at the end", there))
    return story


# -- comparing -----------------------------------------------------------------------------------------------------------


class Undecided(Exception):
    """The programs cannot be compared any further."""


def difference(ours: Any, theirs: Any, loose: bool = False) -> str | None:
    """Where the outcomes first differ, in words; None if they do not. `loose` is for programs with numbers of single precision."""
    try:
        for (line, mine), (_, other) in zip(ours, theirs, strict=True):
            found = differs(mine, other, loose)
            if found:
                return f"{line}: {found}"
    except Undecided:
        pass
    return None


def differs(mine: Any, other: Any, loose: bool) -> str | None:
    if isinstance(other, dict) and "error" in other:
        a, b = mine.get("error"), other["error"]
        if isinstance(b, tuple) and any(text in b[1] for text in GIVES_UP):
            raise Undecided
        if isinstance(b, tuple) and other["derives"] and any(text in b[1] for text in GIVES_UP_IN_BACKWARD):
            raise Undecided
        kind = a[0] if isinstance(a, tuple) else a
        wanted = b[0] if isinstance(b, tuple) else b
        if kind != wanted:
            return f"error: Flambeau {a}, PyTorch {b}"
        if wanted and other["derives"]:
            raise Undecided                           # what had arrived where before it raised depends on the order of the engine
    if isinstance(other, dict):
        if "refused" in other:
            raise Undecided
        for key in other:
            if key == "error":
                continue
            if key not in mine:
                return f"{key}: missing"
            found = differs(mine[key], other[key], loose)
            if found:
                return f"{key}: {found}"
        return None
    if isinstance(other, (list, tuple)) and isinstance(mine, (list, tuple)):
        if len(mine) != len(other):
            return f"Flambeau {shown(mine)}, PyTorch {shown(other)}"
        for a, b in zip(mine, other, strict=True):
            found = differs(a, b, loose)
            if found:
                return found
        return None
    if isinstance(other, np.ndarray):
        if other.size and not (np.abs(other) < HUGE).all():
            raise Undecided
        near = (1e-3, 1e-4) if loose else (1e-6, 1e-9)
        if not isinstance(mine, np.ndarray) or mine.shape != other.shape or not np.allclose(mine, other, *near, equal_nan=True):
            return f"Flambeau {shown(mine)}, PyTorch {shown(other)}"
        return None
    return None if mine == other else f"Flambeau {shown(mine)}, PyTorch {shown(other)}"


def shown(value: Any) -> str:
    return " ".join(repr(value).split())[:300]


# -- making programs -----------------------------------------------------------------------------------------------------


class Maker:
    """Writes programs line by line, running them with PyTorch, so that most lines do something."""

    def __init__(self, lib: Any, seed: int) -> None:
        self.lib, self.rng = lib, random.Random(seed)
        self.count = 0
        self.names = scope(lib, [])
        self.own = set(self.names)
        # Places of storages with a view that has a hook, and of such as were written without recording: PyTorch forgets hooks of
        # views when the version of their base was counted up that way, Flambeau does not, so the two do not come together.
        self.hooked: set[int] = set()
        self.silent: set[int] = set()
        # Tensors with hooks, and those of them whose geometry was changed since: PyTorch registers further hooks of these where the
        # first ones are, and calls them with gradients of the former shape.
        self.with_hooks: set[str] = set()
        # Places of storages with a view that may reach outside of the view it was taken from: after a write without recording PyTorch
        # passes what arrives there on to the base.
        self.reaching: set[int] = set()
        self.reshaped: set[str] = set()
        self.program: Program = []

    def tensors(self) -> dict[str, Any]:
        return {n: t for n, t in self.names.items() if n not in self.own and isinstance(t, self.lib.Tensor)}

    def pick(self) -> tuple[str, Any]:
        there = list(self.tensors().items())
        return self.rng.choice(there[-3:] if self.rng.random() < 0.4 else there)

    def fresh(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def add(self, line: str, keep: float = 0.3) -> bool:
        """Run `line`, and keep it; one that raises only now and then. Returns whether it is kept."""
        try:
            exec(compiled(line), self.names)
        except Exception:  # of any type: the program is to raise it too
            if self.rng.random() > keep:
                return False
        self.program.append(line)
        return True

    def make(self) -> Program:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in "abc"[: self.rng.choice([1, 1, 2, 2, 3])]:
                self.add(f"{name} = {self.leaf()}")
            for _ in range(self.rng.randint(3, LENGTH)):
                self.step()
            self.end()
        return self.program

    def leaf(self) -> str:
        rng = self.rng
        shape = rng.choice([(2, 3), (3, 3), (3, 4), (4,), (2, 3, 2), (1, 3), (2, 1, 3), (6,), (), (2, 2), (0, 2)])
        order = list(range(len(shape)))
        if rng.random() < 0.4:
            rng.shuffle(order)
        strides, step = [0] * len(shape), rng.choice([1, 1, 1, 2])
        for d in reversed(order):
            strides[d] = step
            step *= max(shape[d], 1) + (rng.random() < 0.1)
        dtype = rng.choice(["float64"] * 8 + ["complex128", "float32"])
        return f"leaf({rng.randint(0, 9)}, {shape}, {tuple(strides)}, {rng.choice([0, 0, 0, 2])}, '{dtype}', {rng.random() < 0.75})"

    def step(self) -> None:
        rng = self.rng
        table = rng.choices((VIEWS, READS, WRITES, GEOMETRY, HOOKS, OTHERS), (34, 20, 30, 8, 6, 4))[0]
        for _ in range(4):
            name, t = self.pick()
            line = self.line(table, name, t)
            if line is not None and self.add(line):
                break

    def line(self, table: str, name: str, t: Any) -> str | None:
        """A line that does something of `table` with the tensor `t`."""
        rng = self.rng
        if table is VIEWS:
            extra = VIEWS_OF_COMPLEX * 3 if t.dtype.is_complex else VIEWS_OF_PAIRS if t.dim() and t.shape[-1] == 2 else ""
            text = self.filled(rng.choice(templates(table + extra)), name, t)
            line = f"{self.fresh()} = {text}"
        elif table is READS:
            text = "{x}.sum()" if t.numel() > MOST_ELEMENTS else rng.choice(templates(table))
            line = f"{self.fresh()} = {self.filled(text, name, t)}"
        elif table is WRITES:
            text = rng.choice(templates(table))
            if overlaps_itself(t) and (rng.random() < 0.9 or 0 not in t.stride() or any(part in text for part in DEPRECATED)):
                return None                           # what lies at one place without steps of 0, PyTorch writes one after the other
            if "index" in text and not t.numel():
                return None
            line = self.write(text, name, t)
        else:
            if table is HOOKS and not t.requires_grad and rng.random() < 0.9:
                return None
            text = rng.choice(templates(table))
            if any(call in text for call in ("set_(", ".data =", "requires_grad_", "detach_")) and self.shares_memory(t):
                return None
            if "resize_" in text and not has_room(t):
                return None                           # new elements are whatever was in memory
            if "detach_" in text and t.is_leaf or ".data =" in text and t.requires_grad:
                return None                           # hooks of leaves, and gradients of memory that was exchanged
            line = self.filled(text, name, t)
        if line is None or not t.numel() and ("as_strided" in line or "view_as_complex" in line):
            return None                               # what has no elements has no place, and any strides
        quiet = table in (VIEWS, READS, WRITES, GEOMETRY) and rng.random() < 0.05
        if table is GEOMETRY and self.is_seen_as_another_kind(t):
            return None                               # PyTorch passes gradients of pairs seen as complex numbers to where they were not
        if quiet and table is GEOMETRY and t.requires_grad and not t._is_view():
            return None                               # its history would be that of another shape
        place = t.untyped_storage().data_ptr()
        if table in (WRITES, GEOMETRY):
            if quiet or not t.requires_grad:
                if place in self.hooked or place in self.reaching:
                    return None
                self.silent.add(place)
            if t._is_view():                          # PyTorch renews the history of a view when it is read, and for some writes not
                line = f"{name}.grad_fn; {line}"
            if table is GEOMETRY and name in self.with_hooks:
                self.reshaped.add(name)
        elif table is VIEWS and "as_strided" in line and t._is_view():
            self.reaching.add(place)
        elif table is HOOKS:
            if name in self.reshaped or t._is_view() and place in self.silent:
                return None
            self.with_hooks.add(name)
            if t._is_view():
                self.hooked.add(place)
        return f"with torch.no_grad(): {line}" if quiet else line

    def shares_memory(self, t: Any) -> bool:
        """Whether another tensor lies in the memory of `t`. PyTorch counts writes to both together, whatever memory each has later."""
        mine = t.untyped_storage().data_ptr()
        return sum(x.untyped_storage().data_ptr() == mine for x in self.tensors().values()) > 1

    def is_seen_as_another_kind(self, t: Any) -> bool:
        """Whether a tensor of another dtype lies in the memory of `t`."""
        mine = t.untyped_storage().data_ptr()
        return any(x.dtype != t.dtype and x.untyped_storage().data_ptr() == mine for x in self.tensors().values())

    def filled(self, template: str, name: str, t: Any, **given: str) -> str:
        rng, n = self.rng, t.dim()
        parts = {
            "x": name, "y": "1.5", "z": name, "p": name, "i": self.dim(t), "j": self.dim(t), "k": self.dim(t, 1), "n": rng.randint(0, 2),
            "key": self.key(t), "strided": self.strided(), "order": tuple(rng.sample(range(n), n)),
            "shape": rng.choice([[-1], [*t.shape, 1], [1, *t.shape], [2, -1], [-1, 3], [3, 2], [2, 3], [*t.shape[:-1], -1, 1]]),
        }  # fmt: skip
        if "{y}" in template or "{z}" in template:
            y = self.operand(t)
            parts.update(y=y, z=y if is_tensor(y) else name)
        return template.format(**{**parts, **given})

    def dim(self, t: Any, extra: int = 0) -> int:
        n = t.dim() + extra
        return self.rng.randint(-n, n - 1) if n and self.rng.random() < 0.97 else self.rng.randint(-1, 0)

    def key(self, t: Any) -> str:
        """A basic index of `t`."""
        rng = self.rng
        parts = [
            rng.choice([
                str(rng.randint(-n, n - 1) if n else 0), ":", f"{rng.randint(0, n)}:", f":{rng.randint(0, n)}", f"::{rng.randint(1, 2)}",
                f"{rng.randint(0, n)}:{rng.randint(0, n)}", "None",
            ])
            for n in t.shape[: rng.randint(0, t.dim())]
        ]  # fmt: skip
        if not parts or rng.random() < 0.2:
            parts.insert(rng.randint(0, len(parts)), "...")
        return ", ".join(parts)

    def strided(self) -> str:
        """Arguments of `as_strided` that mostly stay inside the storage, and name no element twice."""
        rng = self.rng
        shape = rng.choice([(2,), (2, 2), (3,), (), (2, 1), (2, 3)])
        strides, step = [0] * len(shape), rng.choice([1, 1, 2])
        for d in rng.sample(range(len(shape)), len(shape)):
            strides[d] = step
            step *= shape[d] + rng.randint(0, 1)
        return f"{shape}, {tuple(strides)}{rng.choice(['', '', ', 0', ', 1', ', 2'])}"

    def operand(self, t: Any) -> str:
        """A tensor or number to compute with `t`."""
        rng = self.rng
        fitting = [n for n, x in self.tensors().items() if broadcasts(x.shape, t.shape)]
        if not fitting or rng.random() < 0.25:
            return rng.choice(["2", "0.5", "-1.5"])
        other = rng.choice(fitting)
        return other + rng.choices(["", ".detach()", ".clone()"], [6, 1, 3])[0]

    def write(self, template: str, name: str, t: Any) -> str | None:
        """A line that writes, or None where the outcome depends on the order in which PyTorch goes through shared memory."""
        view = self.rng.choice(templates(VIEWS)) if self.rng.random() < 0.3 else "{x}[{key}]"
        p, y = self.filled(view, name, t), self.operand(t)
        z = y if is_tensor(y) else name
        fixed = {slot: str(value) for slot, value in (("i", self.dim(t)), ("key", self.key(t)))}
        part = self.tensor(f"{name}[{fixed['key']}]") if "[{key}]" in template else None
        written = [t] if part is None else [t, part]
        if any(self.is_another_shape_of(x, operand) for x in written for operand in (p, y)):
            return None                               # PyTorch compares steps of dimensions of one element as well
        if "/=" in template and any(self.is_itself(t, operand) for operand in (p, y)):
            return None                               # of `x /= x` PyTorch does not keep what its gradient is made of
        line = self.filled(template, name, t, y=y, z=z, p=p, **fixed)
        apart = self.filled(template, name, t, y=copied(y), z=copied(z), p=copied(p), **fixed)
        return line if line == apart or self.same_values(line, apart) else None

    def tensor(self, text: str) -> Any:
        """The tensor that `text` means; None if that is another thing, or raises."""
        try:
            x = eval(text, self.names)
        except Exception:  # of any type: the program is to raise it too
            return None
        return x if isinstance(x, self.lib.Tensor) else None

    def is_another_shape_of(self, t: Any, operand: str) -> bool:
        """Whether `operand` has the elements of `t`, in another shape or with other steps."""
        x = self.tensor(operand)
        if x is None or x.numel() != t.numel() or x.data_ptr() != t.data_ptr():
            return False
        return (x.shape, x.stride()) != (t.shape, t.stride()) or "[" in operand

    def is_itself(self, t: Any, operand: str) -> bool:
        """Whether `operand` has the elements of `t`, in the same shape."""
        x = self.tensor(operand)
        return x is not None and (x.shape, x.data_ptr()) == (t.shape, t.data_ptr())

    def same_values(self, line: str, other: str) -> bool:
        """Whether both lines do the same to the values, or `line` raises.

        PyTorch refuses some operands that share memory with what is written, and for others its result depends on the order
        in which it goes through them. Flambeau reads all before it writes.
        """
        found = []
        for text in (line, other):
            try:
                found.append(self.values_after(text))
            except Exception:  # of any type: the program is to raise it too
                return True
        return all(np.array_equal(found[0][name], x, equal_nan=True) for name, x in found[1].items())

    def values_after(self, line: str) -> dict[str, Any]:
        """All values after `line` was run on copies of all memory."""
        lib, memory = self.lib, {}
        names = dict(self.names)
        for name, t in self.tensors().items():
            storage = t.untyped_storage()
            fresh = memory.setdefault(storage.data_ptr(), (storage, storage.clone()))[1]
            names[name] = lib.empty(0, dtype=t.dtype).set_(fresh, t.storage_offset(), t.shape, t.stride())
        exec(compiled(line), names)
        return {name: values_of(names[name]) for name in self.tensors()}

    def end(self) -> None:
        rng = self.rng
        candidates = []
        for name, t in self.tensors().items():
            try:
                if t.requires_grad and t.numel() <= MOST_ELEMENTS:
                    candidates.append(name)
            except RuntimeError:
                continue
        if not candidates:
            return
        chosen = candidates if rng.random() < 0.5 else rng.sample(candidates, rng.randint(1, len(candidates)))
        leaves = [n for n in "abc" if n in self.tensors()]
        leaves = [n for n in leaves if self.tensors()[n].is_leaf and self.tensors()[n].requires_grad]
        if leaves and rng.random() < 0.25:
            total, wanted = f"loss({', '.join(chosen)})", f"[{', '.join(leaves)}]"
            self.add(f"found = torch.autograd.grad({total}, {wanted}, create_graph=True, allow_unused=True)", 1)
            self.add("first = [x.detach().clone(memory_format=torch.contiguous_format) for x in found if x is not None]", 1)
            for k in range(len(leaves)):
                self.add(f"g{k} = first[{k}] if len(first) > {k} else None", 1)
            # PyTorch says of some gradients that are zero that they depend on nothing, so their number is not compared.
            self.add(f"loss(*[x for x in found if x is not None and x.requires_grad], {', '.join(leaves)}).backward()", 1)
        else:
            self.add(f"loss({', '.join(chosen)}).backward()", 1)


def is_tensor(operand: str) -> bool:
    return operand[0] in "abct"


def copied(operand: str) -> str:
    """`operand` without memory that anything else has."""
    return f"({operand}).clone()" if is_tensor(operand) else operand


def broadcasts(shape: Any, target: Any) -> bool:
    return len(shape) <= len(target) and all(n in (1, m) for n, m in zip(reversed(shape), reversed(target), strict=False))


def overlaps_itself(t: Any) -> bool:
    """Whether two elements of `t` may lie at one place."""
    step = 0
    for s, n in sorted(zip(t.stride(), t.shape, strict=True)):
        if n > 1:
            if s <= step:
                return True
            step += (n - 1) * s
    return False


def has_room(t: Any) -> bool:
    """Whether the memory of `t` holds as many elements from its offset on as it has, without its last dimension too."""
    most = max(t.numel(), math.prod(t.shape[:-1]))
    return (t.storage_offset() + most) * t.element_size() <= t.untyped_storage().nbytes()


# -- making failures short -----------------------------------------------------------------------------------------------


def shrunk(program: Program, fails: Callable[[Program], bool]) -> Program:
    """`program` without the lines it fails as well without."""
    size = max(len(program) // 2, 1)
    while True:
        at = 0
        while at < len(program):
            shorter = program[:at] + program[at + size :]
            if shorter and fails(shorter):
                program = shorter
            else:
                at += size
        if size == 1:
            return program
        size //= 2


class Comparison:
    """Both libraries, and what they make of programs."""

    def __init__(self, ours: Any, theirs: Any) -> None:
        self.ours, self.theirs = ours, theirs

    def __call__(self, program: Program) -> str | None:
        """Where the outcomes of `program` first differ."""
        return difference(run(self.ours, program), run(self.theirs, program), any("float32" in line for line in program))

    def shortest(self, program: Program) -> tuple[Program, str]:
        """A short program that differs as `program` does, and how."""
        first = self(program)
        assert first is not None
        program = shrunk(program, lambda p: self(p) is not None)
        return program, self(program) or first


def programs(lib: Any, seed: int, count: int) -> Iterator[tuple[int, Program]]:
    """Seed and program, `count` times."""
    for k in range(seed, seed + count):
        yield k, Maker(lib, k).make()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--count", type=int, default=20000, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="the first one's seed; the others follow")
    parser.add_argument("--stop-after", type=int, default=20, help="differences after which the search ends")
    parser.add_argument("--show", action="store_true", help="only print the program of that seed, and how its outcomes differ")
    given = parser.parse_args()
    import torch

    import flambeau

    torch.set_num_threads(1)
    compare = Comparison(flambeau, torch)
    if given.show:
        program = Maker(torch, given.seed).make()
        print("\n".join(program), compare(program), sep="\n")
        return 0
    found = tried = lines = 0
    for seed, program in programs(torch, given.seed, given.count):
        tried += 1
        lines += len(program)
        if compare(program) is not None:
            found += 1
            short, words = compare.shortest(program)
            print(f"# seed {seed}", *short, f"# {words}\n", sep="\n", flush=True)
            if found >= given.stop_after:
                break
    print(f"{tried} programs, {lines} lines, {found} differences")
    return min(found, 1)


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root / "framework"), str(root / "kernels")]
    sys.exit(main())

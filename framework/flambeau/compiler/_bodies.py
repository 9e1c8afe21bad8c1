"""Functions within a recorded function that are graphs of their own: branches of `cond`, and what `checkpoint` computes again.

Each is recorded in every call, as what is around it, by a recorder that computes nothing. All steps of bodies are in one tree, so two
bodies are the same program if they end at the same step. What a body reads of the function around it becomes an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from .. import _state
from .._interpreters import below, pop, push
from ..fx.node import Node
from ..tensor import Tensor
from ..utils import _pytree as pytree
from ..utils._pytree import tree_flatten
from ._calls import Called
from ._deferred import Deferred, pending_of
from ._recorder import ambient_now
from ._steps import Step
from ._whole import WholeRecorder, _looks

_local = _state.local


class NotWhole(BaseException):
    """A body is not one graph. No exception that programs catch."""


class BodyRecorder(WholeRecorder):
    """Records a body; `around` is the recorder of the function that it is in."""

    def __init__(self, around: WholeRecorder) -> None:
        super().__init__(_root(around.bodies), _no_program, None, around.title, around.bodies)

    def flush(self, why: str, asked: bool = False, ends: bool = False) -> None:
        raise NotWhole(why)

    def flush_for(self, asker: Deferred) -> None:
        raise NotWhole("a value was asked for")

    def _takes(self, a: Deferred, key: list[Any]) -> bool:
        number = self._numbers.get(id(a))
        if number is not None:
            key.append(-1 - number)
            return True
        look = pending_of(a)[2]
        self._numbers[id(a)] = len(self.inputs)
        self.inputs.append(a)
        self._counts.append(0)
        key.append((look._array.shape, look._array.strides, look._array.dtype, look.requires_grad))
        return True

    def _number_of(self, a: Deferred) -> int:
        return pending_of(a)[1] if self._holds(a) else -1 - self._numbers[id(a)]

    def _writes_to(self, step: Step) -> bool:
        return False                                  # it may not run, or run twice


def _root(bodies: dict[Any, Step]) -> Step:
    """Where bodies begin that are recorded in the mode of now, which decides whether their values require gradients."""
    return bodies.setdefault(ambient_now(), Step(None, [], (), None))


def _no_program(step: Step, wanted: tuple[int, ...], inputs: list[Tensor]) -> Any:
    raise NotWhole("a body is computed by the graph around it")


class Body(NamedTuple):
    """A recorded body: its last step, the values that it gives, its arguments, and its result with numbers in the place of tensors."""

    step: Step
    wanted: tuple[int, ...]
    inputs: list[Tensor]
    leaves: list[Any]
    spec: Any

    @staticmethod
    def of(around: WholeRecorder, call: Callable[[], Any]) -> Body | None:
        """The body that ``call()`` runs; None if it is not one graph of new tensors."""
        recorder = BodyRecorder(around)
        with below(around):
            push(recorder)
            try:
                leaves, spec = tree_flatten(call())
            except NotWhole:
                return None
            finally:
                pop(recorder)
                recorder.close()
        wanted: list[int] = []
        for one in leaves:
            if not isinstance(one, Tensor):
                continue
            if not isinstance(one, Deferred) or not recorder._holds(one) or pending_of(one)[1] in wanted:
                return None
            wanted.append(pending_of(one)[1])
        return Body(recorder.step, tuple(wanted), recorder.inputs, leaves, spec)

    def gives_as(self, other: Body) -> bool:
        """Whether both give tensors that look alike in the same places, and the same beside them."""
        if self.spec != other.spec or [_looks(x) for x in self.looks()] != [_looks(x) for x in other.looks()]:
            return False
        return all(
            isinstance(a, Tensor) is isinstance(b, Tensor) and (isinstance(a, Tensor) or a.__class__ is b.__class__ and a == b)
            for a, b in zip(self.leaves, other.leaves, strict=True)
        )

    def looks(self) -> list[Tensor]:
        """Tensors without memory that look as the values do."""
        known = {number: look for step in self.step.path() for number, look in step.numbered}
        return [known[number] for number in self.wanted]


class Choice(Called):
    """`cond` with these two bodies. Arguments: what decides, and what both read."""

    public_name = qualified = "cond"

    def __init__(self, bodies: tuple[Body, Body], places: tuple[tuple[int, ...], ...], count: int) -> None:
        self.ends = tuple([(body.step, body.wanted) for body in bodies])
        self.bodies = tuple([body.step for body in bodies])
        self.places, self.params = places, ("pred", *[f"operand{k}" for k in range(count)])
        self._results = [yes if yes.requires_grad else no for yes, no in zip(*[body.looks() for body in bodies], strict=True)]

    def look(self, *args: Any) -> Any:
        return list(self._results)

    def form(self) -> Any:
        return Choice, self.places, tuple([wanted for _, wanted in self.ends])

    def node(self, graph: Any, args: list[Any]) -> Any:
        from .._higher_order_ops.cond import cond_op

        pred, *operands = args
        held = [
            _module(graph, name, step, wanted, places, len(operands))
            for name, (step, wanted), places in zip(("cond_true", "cond_false"), self.ends, self.places, strict=True)
        ]
        return graph.call_function(cond_op, (pred, *held, tuple(operands)))


class Checkpointed(Called):
    """`checkpoint` of this body with settings."""

    public_name = qualified = "checkpoint"
    takes_numbers = True

    def __init__(self, body: Body, settings: tuple[tuple[str, Any], ...]) -> None:
        self.end, self.settings = (body.step, body.wanted), dict(settings)
        self.bodies = (body.step,)
        self.params = tuple([f"argument{k}" for k in range(len(body.inputs))])
        self._results = body.looks()

    def look(self, *args: Any) -> Any:
        return list(self._results)

    def form(self) -> Any:
        return Checkpointed, self.end[1], tuple(self.settings.items())

    def node(self, graph: Any, args: list[Any], constants: Any = MappingProxyType({})) -> Any:
        """`constants`: by their identity, those of the body with nodes of numbers in them, which are handed to it after its arguments."""
        from ..utils.checkpoint import tag_activation_checkpoint

        numbers = list({node: None for value in constants.values() for node in pytree.tree_leaves(value) if isinstance(node, Node)})
        count = len(args)
        held = _module(graph, "wrap_body", *self.end, tuple(range(count)), count, constants, numbers)
        return graph.call_function(tag_activation_checkpoint, (held, *args, *numbers), dict(self.settings))


def _module(
    graph: Any, stem: str, step: Step, wanted: tuple[int, ...], places: tuple[int, ...], count: int, constants: Any = None,
    numbers: Sequence[Any] = (),
) -> Any:  # fmt: skip
    """The node of a body as a module of `count` parameters, of which it reads those at `places`, and of further `numbers`."""
    from ._graphs import body_of

    root = graph.owning_module
    name = next(name for k in range(len(root._modules) + 1) if (name := f"{stem}_{k}") not in root._modules)
    root.add_module(name, body_of(step, wanted, places, count, constants, numbers))
    return graph.get_attr(name)

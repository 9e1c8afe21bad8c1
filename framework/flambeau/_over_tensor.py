"""Tensors whose elements an ordinary Tensor has, with its history; what is around it says how operations run on the elements."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

from ._ops import CalledOperator
from .autograd import backward, grad
from .overrides import DisableTorchFunctionSubclass, resolve_name
from .tensor import Tensor
from .utils._pytree import tree_map


class Answers(dict[str, Callable[..., Any]]):
    """How operations are answered, by their names; ``@answers("name")`` enters the decorated function."""

    def __call__(self, name: str, named: bool = False) -> Callable[[Any], Any]:
        """The decorated function is how the operation `name` is answered, whose name it is given first where `named`."""

        def register(answer: Any) -> Any:
            self[name] = functools.partial(answer, name) if named else answer
            return answer

        return register


def name_called(func: Any) -> str:
    """The name of the operation that the public function or method `func` calls, in place or not."""
    op = getattr(func, "flambeau_op", None)
    called = (resolve_name(func) or getattr(func, "__name__", "")).removesuffix(".__get__")
    name = op.name if op is not None else called.rpartition(".")[2]
    return name.rstrip("_") if not name.startswith("__") else name


class OverTensor(Tensor):
    """A tensor over `_elements`, another Tensor. `_answer_of` says how subclasses answer operations.

    Gradients and hooks are those of the elements; `_alike` makes a tensor like this one of other elements, such as the gradient.
    """

    _elements: Tensor

    @staticmethod
    def _answer_of(func: Any) -> Callable[[Any, Any, Any], Any] | None:
        """What answers calls of the public function `func`, from it and its arguments; None where operators run one by one."""
        raise NotImplementedError("OverTensor._answer_of")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "is_reflected", False):       # answers take operands in the order of the operation
            func, args = func.flambeau_op.method, args[::-1]
        if isinstance(func, CalledOperator):           # the function that it calls asks again
            return func.answer(args, kwargs or {})
        if func is grad or func is backward:
            return _differentiated(func, args, kwargs or {})
        answer = cls._answer_of(func)
        if answer is not None:
            return answer(func, args, kwargs or {})
        with DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    def _alike(self, elements: Tensor) -> Any:
        raise NotImplementedError(f"{type(self).__name__}._alike")

    def _made_of(self) -> tuple[Any, ...]:
        """The arguments of the class that make this tensor."""
        raise NotImplementedError(f"{type(self).__name__}._made_of")

    def __copy__(self) -> Any:
        return type(self)(*self._made_of())

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(*copy.deepcopy(self._made_of(), memo))
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), self._made_of()

    @property
    def requires_grad(self) -> bool:  # type: ignore[override]
        return self._elements.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._elements.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Let the elements have a gradient, or no longer; returns this tensor."""
        self._elements.requires_grad_(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        return self._elements.is_leaf

    @property
    def grad_fn(self) -> Any:
        return self._elements.grad_fn

    @property
    def grad(self) -> Any:  # type: ignore[override]
        found = self._elements.grad
        return None if found is None else self._alike(found)

    @grad.setter
    def grad(self, value: Any) -> None:
        self._elements.grad = elements_of(value)

    def detach(self) -> Any:
        """These elements without their history; in-place changes are seen on both sides."""
        return self._alike(self._elements.detach())

    def detach_(self) -> Any:
        """Forget the history of these elements."""
        self._elements = self._elements.detach()
        return self

    @property
    def data(self) -> Any:  # type: ignore[override]
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        self._elements.data = elements_of(value)

    @property
    def _version(self) -> int:  # type: ignore[override]
        return self._elements._version

    @property
    def retains_grad(self) -> bool:
        return self._elements.retains_grad

    def retain_grad(self) -> None:
        """Keep the gradient of these elements, which an operation has made."""
        self._elements.retain_grad()

    def register_hook(self, hook: Any) -> Any:
        """Call ``hook(grad)`` with the gradient of the elements."""
        return self._elements.register_hook(hook)

    def register_post_accumulate_grad_hook(self, hook: Any) -> Any:
        """Call ``hook(tensor)`` with this tensor once its gradient has been added to."""
        return self._elements.register_post_accumulate_grad_hook(lambda _: hook(self))

    def backward(self, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None) -> None:
        """Accumulate gradients from this tensor of one element, or from `gradient`."""
        wanted = None if inputs is None else [elements_of(x) for x in (inputs if isinstance(inputs, (list, tuple)) else (inputs,))]
        self._elements.backward(elements_of(gradient), retain_graph, create_graph, wanted)

    def item(self) -> Any:
        return self._elements.item()

    def __bool__(self) -> bool:
        return bool(self._elements)

    def __float__(self) -> float:
        return float(self._elements)

    def __int__(self) -> int:
        return int(self._elements)

    def tolist(self) -> Any:
        raise RuntimeError(f".tolist() is not supported for tensor subclasses, got {type(self).__name__}; make a plain Tensor of it first")

    def numpy(self, *, force: bool = False) -> Any:
        raise RuntimeError(f".numpy() is not supported for tensor subclasses, got {type(self).__name__}; make a plain Tensor of it first")


def _differentiated(func: Any, args: Any, kwargs: Any) -> Any:
    """`autograd.grad` or `backward` of the elements; gradients look like what they belong to."""
    found = func(*tree_map(elements_of, args), **tree_map(elements_of, kwargs))
    if func is backward:
        return None
    return tuple([g if g is None or not isinstance(x, OverTensor) else x._alike(g) for x, g in zip(args[1], found, strict=True)])


def elements_of(x: Any) -> Any:
    """The elements of an OverTensor; anything else as it is."""
    return x._elements if isinstance(x, OverTensor) else x

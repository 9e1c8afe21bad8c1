"""The op record: what a declaration says, the registry of all ops, and the forms every kind of op has."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels import hot_calls

from ... import _state
from ..._arrays import MetaArray, ndarray
from ...autograd.tape import Node
from ...tensor import Tensor, bump
from . import plans
from .history import rebase
from .overlap import refuse_shared
from .shapes import elsewhere
from .writing import (
    check_inplace,
    check_view,
    check_writable,
    forget_overwritten,
    refresh_saved_output,
    store_plainly,
    with_dtype_of,
    write_out,
)

FUNCTION, METHOD, INPLACE, OUT, FOREACH = 1, 2, 4, 8, 16
EVERYWHERE = FUNCTION | METHOD | INPLACE | OUT | FOREACH
NO_FOREACH = EVERYWHERE & ~FOREACH
VIEWED = FUNCTION | METHOD

# What numpy calls parameters, which PyTorch's native functions take too.
NUMPY_NAMES = {"input": ("x", "a", "x1"), "other": ("x2",), "dim": ("axis",), "keepdim": ("keepdims",)}
# Where what is written may share memory with an operand: only if it is that operand as it is, or not at all.
EXACTLY, NEVER = "exactly", "never"
# The class under autocast: on every device, or on the CPU and on CUDA.
Autocast = str | tuple[str | None, str | None] | None
Overlap = str | tuple[str | None, str | None] | dict[str, str] | None  # of all operands, of the first and the others, or by name


if TYPE_CHECKING:
    from typing import TypedDict
else:

    class TypedDict:
        """Bare annotations: what `typing` makes of each, every start of a program would wait for."""

        def __init_subclass__(cls, total: bool) -> None:
            pass


class Facts(TypedDict, total=False):
    """What the declaration of an op of any kind may say beside what its kind asks for: keywords of `@elementwise`, `@composite` ...

    Each is an attribute of the op. What is not said has the value of `Op`.
    """

    # The name in messages, where users reach the op through another: "linalg.inv" of `inverse_of`. Its own name by default.
    public_name: str
    # Further names of parameters, as PyTorch has them in overloads: {"indices_or_sections": ("indices", "sections")}.
    named_too: Mapping[str, tuple[str, ...]]
    # Orders of positional arguments that PyTorch's programs of old use; see `by_older_signature`.
    older: tuple[tuple[str, ...], ...]
    deprecation: str  # what the first call warns of
    # Parameters that PyTorch reads in Python, so that they may be of types that no schema of the operator has.
    read_in_python: tuple[str, ...]
    # ``fn(*args)``, what `__torch_function__` is given by position, where PyTorch's function hands on other arguments than its own.
    handed_on: Any
    # The operator that scripts call for its function of `nn.functional`, which PyTorch has in Python: "relu" or "ctc_loss.Tensor".
    scripted_as: str
    numbers_alone: bool  # of elementwise ops and compositions of one: whether all operands may be numbers, as in ``div(7, 2)``

    # Whether it draws random numbers; or the parameters that all have to be true for that, as ("training",) of dropout. Calls of
    # such an op differ though they look alike: graphs do not merge them, and `vmap` asks for its `randomness`.
    random: bool | tuple[str, ...]
    # Whether compiled functions may compute it later than it is called: of whatever values it neither fails nor has side effects, and its
    # results are in memory of their own. Elementwise operations and what works by rows are so without saying it.
    deferrable: bool
    shares_memory: bool  # of compositions: whether the result is the operand's memory, as a view's is, and nothing is computed
    costly: bool  # whether graphs keep its results for a derivative, and do not compute them again
    # Of elementwise ops of one operand: whether layers compute it in the pass of the matrix product before it.
    finishes_products: bool
    dynamic_shape: bool  # whether the shape of results depends on values, as that of `nonzero`, so that `vmap` refuses it
    # How elements of the result come from those of the operands: "mapped", each from those in its place, as they broadcast (of
    # elementwise ops this is known); "reduced", each from all along `dim` (of reductions too); "along", each from a line along `dim`,
    # which stays as long, as in softmax; "moved", each is one of them, as in permute, cat and gather. Or "", any other way.
    elements: str
    # What the dimensions of its results are called where those of operands have names: a rule of `_spec/names.py`. Elementwise ops of one
    # or two operands unify theirs; an op without a rule is not for tensors with names.
    names: Any
    # How it runs on all examples of a `vmap` at once: one of the rules of `ops/_batching.py`; `@op.batch` gives it one of its own.
    batch_rule: Any
    cuda: str  # of primitives: the kernel for CUDA arrays, a function of a module in `flambeau/_cuda/kernels`: "moves.gather"
    # What it computes of a quantized tensor: "as_operand", of its numbers, and the result is quantized as it is; "numbers", of its
    # numbers, a result that is no quantized tensor; "integers", the values of these in another order, and places. "": nothing, unless
    # `kernel_of("quantized")` says what.
    quantized: str
    float8: bool  # of elementwise ops: whether it moves values or changes their sign alone, so that float8, a format to store, is taken

    # Of ``out``.
    exact_out: bool  # whether it has to have the dtype of the result; else the result is converted, where promotion allows it
    other_dtype: str  # the message for an ``out`` of another dtype, where PyTorch has one for this op; {} is that dtype
    cast_error: type[Exception]  # raised where the result cannot be stored in an ``out`` of its dtype; RuntimeError by default
    truth_out: bool  # whether an ``out`` of bool or uint8 takes truth values, whichever of the two the result has
    dtype_of_out: bool  # whether the dtype of an ``out`` is what the parameter `dtype` stands for
    may_write_expanded: bool  # whether elements of the target of the in-place form may share a place, as in an expanded tensor
    refuses_expanded_out: bool  # whether that is refused also for an ``out`` of another shape, which others resize


class AskedFor(tuple):
    """A tuple that a primitive gets, made of what the public operation was asked for: nodes show what was `asked`."""

    asked: tuple[Any, ...]

    @classmethod
    def of(cls, items: Any, *asked: Any) -> AskedFor:
        """`items`, with what was `asked`."""
        made = cls(items)
        made.asked = asked
        return made


class ListForm(NamedTuple):
    """What `Op.on_lists` says."""

    run: Any = None
    store: Any = None
    vectors: bool = False


class _Titled(dict):
    """Title -> the class of nodes of the op that have it."""

    def __init__(self, op: Op) -> None:
        super().__init__()
        self.op = op

    def __missing__(self, title: str) -> Any:
        made = self[title] = type(title, (self.op.node_class,), {"title": title, "__slots__": ()})
        return made


class Registry(dict):
    """Public name -> op. A name that is not there yet loads the family that declares it."""

    def __missing__(self, key: str) -> Op:
        from .. import _derive

        if not _derive.load_family_of(key):
            raise KeyError(key)
        return dict.__getitem__(self, key)


OPS: Registry = Registry()


# What the texts written for ops (`_entry.py`, `nodes.py`, `plans.py`) call things of their own, beside names that begin with an underscore
# or are a letter and a number. Parameters stand in these texts under their names, so none of ours is called so. Those of programs' own
# operations may have any name: the forms that these have call none of these things.
NAMES_IN_TEXTS = frozenset((
    "are_arrays", "asarray", "ask_interpreters", "asked", "attach", "base", "bump", "bump_given", "call", "call_inplace", "calls",
    "check_refused", "check_versions", "code", "cut_up", "first", "fn", "follow", "forwards_to", "found", "frame", "general",
    "generator_of", "getframe", "holds_arrays", "hot_calls", "ignore_fp_flags", "in_force", "in_memory_order", "interpret", "kernels",
    "last", "leaf_of_nobody", "learn", "local", "made", "marked", "missing", "name_of", "ndarray", "new", "new_record", "new_tuple",
    "next_seq", "node", "one_memory", "outs", "parts", "pieces", "plain_dtype", "plans", "quick", "record", "record_view", "records_of",
    "renamed", "restore_fp_flags", "rule", "run", "run_out", "seq", "store", "store_plainly", "store_refused", "stored", "through_tensors",
    "titled", "typed", "unread", "users_place", "v", "wanted_parents", "weak", "with_history", "wrap_dims",
))  # fmt: skip


class Op:
    """One declared operation.

    `surface` says which forms exist, `namespace` where the function lives ('' for the package, 'nn.functional',
    'special', ...), `aliases` further public names, `autocast` the class of the op under autocast: 'lower' (runs in the
    lower precision), 'float32', 'widest', 'own' (as it is: one kernel in PyTorch, here operations that would be cast for), or None
    (follows its inputs); a pair of these is for the CPU and for CUDA.
    `overlap` says of which parameters an ``out``, or the target of the in-place form, may hold memory: `EXACTLY` or `NEVER`; of
    those it does not name, any.
    """

    kind = "op"
    # Whether it is found by its public name. Ops that programs make are reached by their function alone.
    public = True
    # Its kernels for arrays that are no strided memory, by the kind of array: ``fn(*args)`` on Tensors, see `kernel_of`.
    by_kind: Any = types.MappingProxyType({})
    # Calls to try it with, see `samples.py`; of elementwise ops also the bounds of their numbers.
    samples: Any = ""
    list_form = ListForm()
    inplace_view: Any = None  # the view op that the in-place form is made with

    # Of `Facts`.
    named_too: Mapping[str, tuple[str, ...]] = types.MappingProxyType({})
    older: tuple[tuple[str, ...], ...] = ()
    deprecation = ""
    read_in_python: tuple[str, ...] = ()
    handed_on: Any = None
    scripted_as = ""
    numbers_alone = False
    random: bool | tuple[str, ...] = False
    deferrable = shares_memory = False
    costly = False
    finishes_products = False
    dynamic_shape = False
    elements = ""
    names: Any = None
    batch_rule: Any = None
    undo_rule: Any = None                             # of views: see `undone`
    # ``fn(level, args)``: the operands of this op on the whole batch, with which it runs in place too.
    batch_operands: Any = None
    cuda = ""
    quantized = ""
    float8 = False
    exact_out = False
    other_dtype = ""
    cast_error: type[Exception] = RuntimeError
    truth_out = False
    dtype_of_out = False
    may_write_expanded = False
    refuses_expanded_out = False
    # The classes of nodes of calls with certain operands, see `shown_of`.
    node_classes: Mapping[frozenset[str], Any] = types.MappingProxyType({})
    chosen_class: str | None = None  # see `shown_by`
    chosen_from: Mapping[str, Any] = types.MappingProxyType({})

    def __init__(self, fn: Any, surface: int, namespace: str, aliases: tuple[str, ...], autocast: Autocast) -> None:
        code: CodeType = fn.__code__
        self.fn = fn
        self.name = fn.__name__.rstrip("_") if fn.__name__.endswith("__") else fn.__name__
        self.public_name = self.name
        self.doc = fn.__doc__ or ""
        self.surface = surface
        self.namespace = namespace
        self.aliases = aliases
        # By device.
        on_cpu, on_cuda = autocast if isinstance(autocast, tuple) else (autocast, autocast)
        self.autocast: dict[str, str | None] = {"cpu": on_cpu, "cuda": on_cuda}
        count = code.co_argcount
        self.positional: tuple[str, ...] = code.co_varnames[:count]
        self.keyword_only: tuple[str, ...] = code.co_varnames[count : count + code.co_kwonlyargcount]
        self.params = self.positional + self.keyword_only
        if not NAMES_IN_TEXTS.isdisjoint(self.params) and fn.__module__.partition(".")[0] == "flambeau":
            taken = ", ".join(sorted(NAMES_IN_TEXTS.intersection(self.params)))
            raise TypeError(f"{self.name}: texts written for ops have something else called {taken}; rename the parameter")
        self.dtype_at: int | None = self.params.index("dtype") if "dtype" in self.params else None
        defaults = fn.__defaults__ or ()
        self.defaults = dict(zip(self.positional[count - len(defaults) :], defaults, strict=True))
        self.defaults.update(fn.__kwdefaults__ or {})
        # The types that the declaration gives its parameters, as text: what is of another is refused, also where no schema says so.
        self.declared_types: dict[str, str] = {n: t for n, t in fn.__annotations__.items() if n in self.params}
        title = title_of(f"special_{self.name}" if namespace == "special" else self.name)
        self.node_class: Any = type(title, (self.node_base,), {"op": self, "title": title, "__slots__": ()})
        self.variadic: str | None = None  # the parameter that may be given as several arguments
        # The operator of `torch.ops.aten` it is, where that is not the one of its name: "slice(input, dim, start, stop, step)", and
        # others after "|"; "" for none. A composition that names one is seen as a whole by dispatch modes.
        self.operator: str | None = None
        self.reads_parts: Any = False                 # True, or a function of its parameters that says so; see `composite`
        self.one_node = False
        self.in_parts: Any = None  # ``fn(*args)``: the same by ops that are operators; what dispatch modes see in its place
        self.exported_as: Any = None  # see `exported`
        self.overlap: dict[str, str] = {}
        self.planned: Any = None  # what the declaration says of its plans, see `plans.py`
        self.planned_after: Any = None  # the same of plans that answer what those do not
        self.plans: dict[Any, Any] = {}  # those that were found, which settings may have to clear
        self.forwarded: tuple[Any, ...] = ()  # what answers before these
        self.forwards_to: Any = None  # ``fn(*args)``: another op that answers such calls, with its own derivative, and its arguments
        # ``fn(*looks)``: an `InRows` for calls that work by rows, or None. Such an op neither fails by values nor has side effects.
        self.in_rows: Any = None
        # See `put_off_within`: the rule, and the places of the parameters whose elements decide.
        self.bounds_of_elements: Any = None
        self.read_before: tuple[int, ...] = ()
        self.launches_rule: Any = None  # see `launches`
        self.vjp_launches_rule: Any = None  # see `vjp_launches`
        self.for_pieces: Any = None  # ``fn(*args)``: the arguments for pieces, where some say another thing about these
        self._declared_pieces: Any = None  # what `in_pieces` was given
        # ``fn(*arrays, then, beside)``: `then` of each element of the result and of `beside`, an array of the result's shape or None, in
        # one pass and with the bits of two; None for calls that it does not take. Such an op neither fails by values nor has side effects.
        self.finished_by: Any = None
        # A primitive's result from the elements in one place, as a formula of its parameters: chains that save nothing compute it so.
        self.of_elements: Any = None
        self.rounds_as_its_parts = False  # whether a composition has the bits of what it is made of, be it a product or several reductions
        self.numpy_names = namespace != "nn.functional"  # whether numpy's names are taken too: `axis` for `dim`, and others
        self._function: Any = None
        self._method: Any = None
        if self.public:
            register(self)

    def on_lists(self, run: Any = None, store: Any = None, vectors: bool = False) -> None:
        """Say how ``_foreach_<name>`` and ``_foreach_<name>_`` run on each tensor of a list, where not as function and method do.

        Args:
            run: ``fn(tensor, *args)``; None: the function.
            store: the same in place; None: the method.
            vectors: whether a vector among the arguments is a list of numbers, one for each tensor.
        """
        self.list_form = ListForm(run, store, vectors)

    def undone(self, fn: Any) -> Any:
        """Say what the source of a view is once the view has the value `new`: ``fn(new, source, *args)``, in operators alone.

        It takes the arguments of the operator, and gives None where several elements of the view are one of the source.
        """
        self.undo_rule = fn
        return fn

    def shown_as(self, title: str = "", /, hides: str = "", **saved: Any) -> None:
        """Name nodes of this op `title`, as PyTorch's operator has it, and what they save as it does.

        Args:
            title: by default it is made of the op's name.
            hides: what our rules read and PyTorch's do not, by our names.
            saved: PyTorch's name -> ours, as ``indices="out1"``; or a function that makes it of all that is saved, by our names; an
                `Operand` or `not_kept` for what we do not keep.
        """
        made = self.node_class
        if title:
            made.title = made.__name__ = made.__qualname__ = title
        made.saved_as, made.hidden = saved, frozenset(hides.split())

    def shown_of(self, title: str, *operands: str, **saved: Any) -> None:
        """Name nodes of calls `title` where exactly `operands` are Tensors; or, of a reduction, where ``dim`` is given as well.

        PyTorch counts the overloads of an operator in these names, as in ``PowBackward1`` of a power with a Tensor for an exponent.

        Args:
            saved: as for `shown_as`, of these calls alone.
        """
        made = type(title, (self.node_class,), {"title": title, "saved_as": {**self.node_class.saved_as, **saved}, "__slots__": ()})
        self.node_classes = {**self.node_classes, frozenset(operands): made}

    def shown_by(self, node_class: str, **constants: Any) -> None:
        """Choose the class of the node of each call of this primitive, where PyTorch has several operators for them.

        Args:
            node_class: text of an expression of parameters and `constants`; ``Node`` is the class that all have, ``titled[name]`` one
                of another name, of which `shown_for` says what it shows.
        """
        self.chosen_class, self.chosen_from = node_class, {"titled": self.classes_by_title, **constants}

    def shown_for(self, *titles: str, hides: str = "", edges: str = "", **saved: Any) -> None:
        """As `shown_as`, of the nodes that `shown_by` names so.

        Args:
            edges: the operands that PyTorch's node has edges for, in its order, where those are not all that have a derivative.
        """
        for title in titles:
            made = self.classes_by_title[title]
            made.edges = tuple(edges.split()) or made.edges
            made.saved_as, made.hidden = {**made.saved_as, **saved}, made.hidden | frozenset(hides.split())

    @functools.cached_property
    def classes_by_title(self) -> dict[Any, Any]:
        """The classes of nodes that have names of their own, by these."""
        return _Titled(self)

    def node_class_for(self, *operands: str) -> str:
        """What texts call the class of the node of a call with these `operands`, see `shown_of`."""
        found = self.node_classes.get(frozenset(operands))
        return "Node" if found is None else found.__name__

    @property
    def named_node_classes(self) -> dict[str, Any]:
        """The classes of its nodes, by what texts call them."""
        return {"Node": self.node_class, **{made.__name__: made for made in self.node_classes.values()}}

    def state(self, facts: Any) -> None:
        """Take over what a declaration says. Raises: TypeError for a word that is none of `Facts`."""
        for name, value in facts.items():
            if name not in Facts.__annotations__:
                raise TypeError(f"{self.name}: a declaration has no keyword {name!r}; it has {', '.join(Facts.__annotations__)}")
            setattr(self, name, value)

    def plan(
        self, rule: Any = None, *, by: str | None = None, tensors: tuple[str, ...] = (), beside: tuple[str, ...] = (),
        optional: tuple[str, ...] = (), most_by_numpy: int = 0, after: bool = False, **conditions: Any,
    ) -> Any:  # fmt: skip
        """Say how usual calls are answered: ``rule(*args)``, with arrays for the Tensors, is an array, several, or None for `run`.

        Args:
            by: None where `rule` computes. 'shape' where it finds a `Plan`, of the arguments as they are, for each kind of contiguous
                arrays and of plain arguments; 'strides' where there is one for each order of memory as well.
            tensors: the parameters that are Tensors. By default those of the declaration, of a composition the first one.
            beside: others of them, of which `dtypes` and `most` say nothing.
            optional: those that may be None, beside those that are it by default.
            after: it is a second plan, for calls that the first does not answer.
            most_by_numpy: elements up to which a few passes of numpy's over contiguous arrays of one floating dtype are taken.
            conditions: fields of `Planned`. `wraps` is the parameter that is a dimension of the first tensor, counted from the front for
                `rule`; `dims` one that is several, counted so for the history. `dtypes` are numpy's characters, one of which all arrays
                have; `most` elements have they at most, and at least one; `rows` wants them contiguous. `constant` tensors have no
                history. `quiet` ignores floating-point errors. `discrete` results have no history. `lists`: the tensor is a list of them.
                `returns` makes the result of several. `record` makes the history ``(made, kept, *tensors)`` of a composition, for which
                `rule` returns the result and what is kept if it is ``recorded``. `native` is asked first: text of the call of a builtin
                that takes and makes Tensors, where `names` have what it refers to, or an object with a builtin ``enter``. `builtin` is text
                of such a call on arrays, ``a_input`` and so on, before that of `rule`.
        """
        self._refuse_draw("a plan")
        if rule is None:
            return functools.partial(
                self.plan, by=by, tensors=tensors, beside=beside, optional=optional, most_by_numpy=most_by_numpy, after=after, **conditions
            )
        if most_by_numpy:
            conditions = {"dtypes": "fd", "most": most_by_numpy, "rows": True, "quiet": True} | conditions
        names = tensors or tuple(n for n in self.params if n in getattr(self, "tensor_params", self.params[:1]))
        may_lack = frozenset(n for n in (*names, *beside) if n in optional or n in self.defaults)
        if by is None and "native" not in conditions and hasattr(rule, "enter"):
            conditions["native"] = rule               # an `Along`, which takes Tensors as well
        setattr(self, "planned_after" if after else "planned", plans.Planned(rule, by, names, beside, may_lack, **conditions))
        self._forget_answers()
        return rule

    def _refuse_draw(self, what: str) -> None:
        """Raise TypeError for a draw with `out`: what answers first and has no place for its result would draw once more."""
        if self.random and self.surface & OUT:
            raise TypeError(f"{self.name}: it draws numbers and takes out=, so it cannot have {what}; give one to an op that it calls")

    def forwards(self, *ways: Any, to: Any = None) -> Any:
        """Say which ops answer usual calls, before a plan does.

        Args:
            ways: ``fn(*args)``, the result of another op or None; or an op of the same arguments.
            to: ``fn(*args)``, that other op, with its own derivative, and its arguments; or None. It looks at dtypes and shapes alone, so
                recorders ask it, and so does the in-place form of a composition.
        """
        self._refuse_draw("a way that forwards it")
        self.forwarded, self.forwards_to = ways, to
        self._forget_answers()
        return ways[0] if ways else to

    def _forget_answers(self) -> None:
        for name in ("answer", "answers"):
            self.__dict__.pop(name, None)

    @functools.cached_property
    def answers(self) -> tuple[Any, ...]:
        """Functions ``fn(*args)`` of which the first that is not None is the result of a usual call; they have done nothing otherwise."""
        found = [way.answer if isinstance(way, Op) else way for way in self.forwarded]
        return (*found, *[plans.answer(self, planned) for planned in (self.planned, self.planned_after) if planned is not None])

    @functools.cached_property
    def answer(self) -> Any:
        """``answer(*args)``: the result of a usual call, or None having done nothing. None where there is no such function."""
        found = self.answers
        return found[0] if len(found) == 1 else plans.first_of(found) if found else None

    @property
    def on_arrays(self) -> Any:
        """``fn(*args with arrays)``: the array of the result for usual arguments, or None; None where a plan asks for more than arrays."""
        planned = self.planned
        return planned.rule if planned is not None and planned.is_of_arrays else None

    def of_rows(self, args: Any, out: Any, moments: Any, how: Any) -> Any:
        """The result `out`, which a stage of `in_rows` has computed, as a Tensor with its history."""
        raise NotImplementedError(f"{self.public_name}: it does not work by rows")

    def batch(self, fn: Any) -> Any:
        """Say how the op runs on all examples of a `vmap` at once: ``fn(level, op, args)``, see `ops/_batching.py`.

        A composition with such a rule is not taken apart: what it checks of values, it checks of the whole batch.
        """
        self.batch_rule = fn
        return fn

    def launches(self, fn: Any) -> Any:
        """Say which launches the op is on arrays: ``fn(table, *args with arrays)`` calls them through a `LaunchTable`.

        It gives the array of the result, or None for calls that it does not take. They have the bits of the op's other ways, and which
        they are follows from shapes, strides, dtypes and plain arguments: a table is run again on other arrays of the same looks.
        """
        self.launches_rule = fn
        return fn

    def vjp_launches(self, fn: Any) -> Any:
        """The same of the vjp on arrays: ``fn(table, grad, ...)`` has the parameters of that rule and gives a tuple of gradients."""
        self.vjp_launches_rule = fn
        return fn

    def fails_by_elements(self, args: Any) -> bool:
        """Whether elements of operands like these decide whether a call raises."""
        return self.bounds_of_elements is not None

    def by_rows(self, fn: Any) -> Any:
        """Say how the op works by rows: ``fn(*looks)`` is an `InRows`, or None."""
        self.in_rows = fn
        return fn

    def put_off_within(self, *names: str) -> Any:
        """Say when compiled functions may compute the op later than it is called, which fails by elements of integers alone.

        ``fn(*args)`` gives for each tensor among the parameters `names`, in order, also of lists, the least element and that behind the
        greatest with which the op does not fail; or None where it may fail anyway. It reads looks and plain arguments. Such an op has no
        side effects, and its results are in memory of their own.
        """
        self.read_before = tuple([self.params.index(name) for name in names])

        def declare(fn: Any) -> Any:
            self.bounds_of_elements = fn
            return fn

        return declare

    def kernel_of(self, kind: str) -> Any:
        """Give the op a kernel for arrays of a `kind`: ``fn(*args)`` on Tensors, all parameters in order, which records what it does.

        The kernel of ``kind + "_"`` is the in-place form's: it stores in the first argument and returns that.
        """

        def declare(fn: Any) -> Any:
            self.by_kind = {**self.by_kind, kind: fn}
            return fn

        return declare

    def in_pieces(self, rule: Any = "", *, along: str = "") -> Any:
        """Say how the op runs on pieces of its operands: by a text, by the parameter whose dimensions it goes along, or by a function.

        The function, ``fn(asked)``, gives such a text or a list of ways; see `pieces.py`.
        """
        self._declared_pieces = along, rule
        return rule

    @functools.cached_property
    def pieces_rule(self) -> Any:
        """``fn(asked)``: the ways to run on pieces, see `pieces.py`; None where nothing is known."""
        if self._declared_pieces is None:
            return None
        from . import pieces  # which no start needs

        along, rule = self._declared_pieces
        return pieces.along(along) if along else pieces.of_text(rule) if isinstance(rule, str) else pieces.of_function(rule)

    def ways(self, asked: Any) -> list[Any] | None:
        """The ways to run a call on pieces of its operands, the whole among them; None if nothing is known of the op."""
        return None if self.pieces_rule is None else list(self.pieces_rule(asked))

    def decomposition(self, fn: Any) -> Any:
        """Say which operators give the same: ``fn(*args)`` calls their public functions."""
        self.in_parts = fn
        return fn

    def exported(self, fn: Any) -> Any:
        """Say what exported programs have where no operator is the op itself.

        ``fn(run, *args)`` answers the call, or gives NotImplemented; ``run(name, *args)`` is an operator, such as "lstm.input".
        """
        self.exported_as = fn
        return fn

    def answering(self, is_tensor: Any) -> list[str]:
        """Lines of the public function that return the answer to a usual call, or go on.

        Args:
            is_tensor: text that tests whether the parameter of a name is a plain Tensor.
        """
        return self.asking(self.params)

    @property
    def answers_plain_tensors_alone(self) -> bool:
        """Whether `answering` leaves operands of subclasses that want a say to what comes behind; those of other ops are asked before."""
        return not self.forwarded and self.planned is not None and self.planned.lists

    def asking(self, params: tuple[str, ...]) -> list[str]:
        """Lines that return what the first of `answers` that has one says to `params`, or go on."""
        lines: list[str] = []
        for i in range(len(self.answers)):
            call = [f"made = answer{i}({', '.join(params)})"]
            if i < len(self.forwarded) and not isinstance(self.forwarded[i], Op):
                call = plans.guarded(self, call[0])
            lines += [*call, "if made is not None:", "    return made"]
        return lines

    node_base: type[Node] = Node

    @property
    def qualified(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name

    @property
    def function(self) -> Any:
        """The public function."""
        if self._function is None:
            from .. import _entry

            self._function = _entry.make_function(self)
        return self._function

    @property
    def method(self) -> Any:
        """The method of Tensor, which has no `out`: the function, where there are not both."""
        if self.surface & (FUNCTION | METHOD) != FUNCTION | METHOD:
            return self.function
        if self._method is None:
            from .. import _entry

            self._method = _entry.make_function(self, METHOD)
        return self._method

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.kind} op {self.qualified}>"

    def run(self, *args: Any) -> Any:
        """Compute and record; `args` has every parameter, in order."""
        raise NotImplementedError

    def interpreted(self, *args: Any) -> Any:
        """`run`, for operands that a function transform may have wrapped."""
        from .. import _dispatch

        return _dispatch.interpret(self, args)

    @functools.cached_property
    def enter(self) -> Any:
        """``enter(*args)``: the answer to a call that modes, classes and interpreters have left to the op, by its fastest way."""
        from .. import _entry

        return _entry.make_enter(self)

    @functools.cached_property
    def enter_inplace(self) -> Any:
        """`enter`, storing in the first argument."""
        from .. import _entry

        return _entry.make_enter_inplace(self)

    def store_at_once(self, out: Any, *args: Any) -> Any:
        """Store the result of a usual call in the Tensor `out`, whose versions the caller counts, or return None having done nothing."""
        return None

    def enter_among_others(self, args: tuple[Any, ...]) -> Any:
        """`enter`; a composition under interpreters is taken apart, so that they see its parts."""
        return (self.run if self.kind == "composite" and _state.transformed() else self.enter)(*args)

    def run_out(self, out: Any, *args: Any) -> Any:
        """Compute into `out`, which is resized when its shape differs."""
        if self.dtype_of_out and isinstance(out, Tensor):
            args = with_dtype_of(self, out, args)
        result = self.enter_among_others(args)
        if isinstance(result, tuple):
            if not isinstance(out, (tuple, list)) or len(out) != len(result):
                raise TypeError(f"{self.public_name}(): out must be a tuple of {len(result)} Tensors")
            for target, value in zip(out, result, strict=True):
                write_out(self, target, value, args)
            return type(result)(out) if hasattr(result, "_fields") else tuple(out)
        if not _state.MARKED and hot_calls.store_in(out, result, *args):
            bump(out)
            return out
        return out if store_plainly(out, result, args) else write_out(self, out, result, args)

    def set_overlap(self, rule: Overlap) -> None:
        """Take over what a declaration says of memory in common."""
        if isinstance(rule, dict):
            self.overlap = rule
        elif rule is not None:
            first, others = (rule, rule) if isinstance(rule, str) else rule
            rules = dict.fromkeys(self.params, others) | {self.params[0]: first}
            self.overlap = {name: r for name, r in rules.items() if r is not None}

    def run_inplace(self, target: Tensor, *args: Any) -> Tensor:
        """Compute and store in `target`, which stays the same object."""
        answer = elsewhere(self, (target, *args), target, True)
        if answer is not NotImplemented:
            return answer
        check_writable(self, target)
        with_history = target._node is not None
        for a in args:
            if isinstance(a, Tensor) and a._node is not None:
                with_history = True
        if with_history and _state.grad_enabled():
            check_view(self, target)
        result = self.enter_among_others((target, *args))
        if result is target:                          # such as the conjugate of real numbers: its history stays what it is
            bump(target)
            return target
        a, made = target._array, result._array
        if made.dtype is not a.dtype or made.shape != a.shape:
            check_inplace(self, target, result)
        if self.overlap:
            refuse_shared(self, target, a.shape, (None, *args))
        node = result._node if with_history else None
        if node is not None:
            forget_overwritten(node, target)
        elif target._node is not None and _state.grad_enabled():  # what is stored does not depend on what was there
            return OPS["Tensor.overwrite"].run_inplace(target, result)
        if self.may_write_expanded and 0 in a.strides and type(a) is ndarray:
            store_changed(a, made)
        elif type(a) is not MetaArray and OPS["Tensor.overwrite"].formula.direct_(a, made) is None:
            kernels.store(a, made)
        bump(target)
        if node is not None:
            node.seq = _state.next_seq()
            refresh_saved_output(node, result, target)
            rebase(target, node)
        return target


def store_changed(a: ndarray, made: ndarray) -> None:
    """Store in `a`, whose elements may share places, those of `made` that differ: what an operation left as it was is not written."""
    differs = (made != a) & ((made == made) | (a == a))
    np.copyto(a, made, where=differs)


def title_of(name: str) -> str:
    """The name autograd nodes show, as PyTorch's: ``add`` -> ``AddBackward0``."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_") if part) + "Backward0"


def forget_unfinished() -> None:
    """Take back what modules declared whose import failed: it may lack its rules, and their next import declares it again."""
    for key, op in list(OPS.items()):
        module = op.fn.__module__ or ""
        if module.startswith("flambeau.ops.") and module not in sys.modules:
            del OPS[key]


def register(op: Op) -> None:
    for name in (op.name, *op.aliases):
        if "." in name:
            key = name
        else:
            key = f"{op.namespace}.{name}" if op.namespace else name
        # A module whose import was interrupted, by Ctrl-C say, declares what it declared before again.
        if key in OPS and OPS[key] is not op and OPS[key].fn.__code__ != op.fn.__code__:
            raise ValueError(f"op {key} is declared twice")
        OPS[key] = op

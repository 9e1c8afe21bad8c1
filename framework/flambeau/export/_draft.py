"""`draft_export`: a program where `export` refuses, with a report of what was taken from the example inputs."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import flambeau_kernels

from .._dynamo.exc import UserError
from .._interpreters import Interpreter
from .._library.fake_profile import OpProfile, unsafe_generate_fake_kernels
from .._subclasses import FakeTensorMode
from ..library._operator import EXPLICIT, IMPLICIT
from ..nn import Module
from ..nn.utils.stateless import _reparametrize_module
from ..ops import _dispatch
from ..random import fork_rng
from ..tensor import Tensor
from ..utils import _pytree as pytree
from ._trace import _Exporter, examined
from .dynamic_shapes import Dim, _DimHint, _DimHintType, sizes_of_inputs
from .exported_program import ExportedProgram

__all__ = ["DraftExportReport", "FailureReport", "FailureType", "draft_export"]

_log = logging.getLogger(__name__)
_OUR_FOLDERS = tuple(os.path.dirname(os.path.dirname(f)) + os.sep for f in (__file__, flambeau_kernels.__file__))


class FailureType(IntEnum):
    """What `export` would have refused."""

    MISSING_FAKE_KERNEL = 1
    DATA_DEPENDENT_ERROR = 2
    GUARD_ADDED = 3
    MISMATCHED_FAKE_KERNEL = 4

    def __str__(self) -> str:
        return self.name


@dataclass
class FailureReport:
    """One thing that was taken from the example inputs; `data` says what, `xfail` whether it was meant."""

    failure_type: FailureType
    data: dict[str, Any]
    xfail: bool = False

    def print(self, str_to_filename: Mapping[int, str]) -> str:
        """The text of it; `str_to_filename` has the files of its lines by number."""
        return f"{_TEXTS[self.failure_type](self.data)}{_place(self.data, str_to_filename)}"

    def __repr__(self) -> str:
        return f"FailureReport(failure_type={self.failure_type}, xfail={self.xfail}, data={self.data})"


_TEXTS = {
    FailureType.MISSING_FAKE_KERNEL: lambda data: (
        f"Missing fake kernel.\n    {data['op']} has no fake kernel: its results were given the ranks and dtypes that they have for the "
        "example inputs, and sizes that values decide. Give it one by torch.library.register_fake."
    ),
    FailureType.DATA_DEPENDENT_ERROR: lambda data: (
        f"Data dependent error.\n    The program asks for `{data['expr']}`, which depends on values of tensors. It was taken for "
        f"{data['result']}, as for the example inputs, and the graph asserts it. Say what holds by torch._check before, or choose by "
        "torch.cond."
    ),
    FailureType.GUARD_ADDED: lambda data: (
        f"Guard Added.\n    The program holds for {data['expr']} alone, where {data['symbol_to_sources']}; so the sizes that were to be "
        f"open are open as far as it allows. Export it with\n    dynamic_shapes = {data['new_dynamic_shapes']}"
    ),
    FailureType.MISMATCHED_FAKE_KERNEL: lambda data: (
        f"Mismatched fake kernel.\n    The fake kernel of {data['op']} is wrong for the example inputs: {data['reason']}. Its results were "
        "given the ranks and dtypes that they have, and sizes that values decide. Mend what was given to torch.library.register_fake."
    ),
}  # fmt: skip


def _place(data: Mapping[str, Any], files: Mapping[int, str]) -> str:
    lines = [f"        {files[at['filename']]}:{at['line']} in {at['name']}: {at['loc']}" for at in data.get("user_stack", ())]
    return "\n    The program was here:\n" + "\n".join(lines) if lines else ""


class DraftExportReport:
    """What `draft_export` took from the example inputs, as text and as `failures`.

    Args:
        failures: all of it.
        str_to_filename: the files of lines in them, by number.
        expressions_created: accepted; expressions are not followed to where they were made.
        op_profiles: for operators without a right fake kernel what `unsafe_generate_fake_kernels` makes one of.
    """

    def __init__(
        self, failures: list[FailureReport], str_to_filename: dict[int, str], expressions_created: dict[int, dict[str, Any]],
        op_profiles: dict[str, set[OpProfile]],
    ) -> None:  # fmt: skip
        self.failures, self.str_to_filename, self.expressions_created = failures, str_to_filename, expressions_created
        self.op_profiles = op_profiles

    def successful(self) -> bool:
        """Whether there is nothing to mend, so that `export` gives the same program."""
        return all(failure.xfail for failure in self.failures)

    def __repr__(self) -> str:
        return f"DraftExportReport({self.failures})"

    def __str__(self) -> str:
        if self.successful():
            return "draft_export: the program holds for other inputs as well; torch.export.export gives the same."
        texts = [f"{i}. {failure.print(self.str_to_filename)}" for i, failure in enumerate(self.failures, 1)]
        first = f"draft_export: {len(texts)} issue(s) found: the program is right for the example inputs, and may be wrong for others."
        return "\n\n".join([first, *texts])


def draft_export(
    mod: Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *, dynamic_shapes: Any = None,
    preserve_module_call_signature: tuple[str, ...] = (), strict: bool = False,
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:  # fmt: skip
    """`export` that goes on where the program asks for what a recording does not know, with what holds for the example inputs.

    Args: those of `export`. The module runs on copies of the inputs and of its state first, and again on what is asked for.
    Returns: a program whose `_report`, a `DraftExportReport`, says what to mend before `export` takes the module:
        values that Python asks for, which are asserted in the graph; sizes that cannot be as open as `dynamic_shapes` says, which are
        open as far as the program allows; and operators without a fake kernel, or with one that is wrong for these inputs.
    Raises: as `export` for inputs that do not fit.

    >>> class Doubled(fb.nn.Module):
    ...     def forward(self, x, times):
    ...         return x * 2 if times.item() > 1 else x
    >>> program = fb.export.draft_export(Doubled(), (fb.ones(2), fb.tensor(2)))
    >>> program._report.failures[0].failure_type.name, program.module()(fb.ones(2), fb.tensor(5))
    ('DATA_DEPENDENT_ERROR', tensor([2., 2.]))
    """
    kwargs, named, dynamic_shapes = examined(mod, args, kwargs, dynamic_shapes)
    sizes = sizes_of_inputs(named, dynamic_shapes)
    seen = _Seen(mod, args, kwargs)
    report = DraftExportReport([*seen.failures], {}, {}, seen.profiles)
    with unsafe_generate_fake_kernels(seen.profiles):
        exporter = _Drafter(mod, args, kwargs, named, sizes, preserve_module_call_signature, report, _SizesDoNotFit)
        try:
            program = exporter.program()
        except _SizesDoNotFit:
            new_shapes = _as_open_as_can_be(dynamic_shapes)
            guards = exporter.guards_added(new_shapes)
            report.failures[:] = [*seen.failures, *guards]
            sizes = sizes_of_inputs(named, new_shapes)
            exporter = _Drafter(mod, args, kwargs, named, sizes, preserve_module_call_signature, report, UserError)
            program = exporter.program()
    program._report = report
    if not report.successful():
        _log.warning("draft_export: %d issue(s) found; print(program._report) says what to mend", len(report.failures))
    return program


class _SizesDoNotFit(UserError):
    """Sizes are to be open, or wider, than the program is."""


def _as_open_as_can_be(dynamic_shapes: Any) -> Any:
    """`dynamic_shapes` in which all that is to be open may be closed, too."""

    def hint(what: Any) -> Any:
        is_open = isinstance(what, Dim) or isinstance(what, _DimHint) and what.type is not _DimHintType.STATIC
        return Dim.AUTO if is_open else what

    return pytree.tree_map(hint, dynamic_shapes, is_leaf=lambda x: isinstance(x, (Dim, _DimHint)))


class _Seen(Interpreter):
    """What a run on copies of the inputs and the state shows of operators whose fake kernel is missing or wrong."""

    def __init__(self, mod: Module, args: Any, kwargs: Any) -> None:
        self.profiles: dict[str, set[OpProfile]] = {}
        self.failures: list[FailureReport] = []
        state = {**dict(mod.named_parameters()), **dict(mod.named_buffers())}
        copies = {name: x.detach().clone() for name, x in state.items()}
        args, kwargs = pytree.tree_map(_copied, (args, kwargs))
        with _attributes_put_back(mod), fork_rng(), _reparametrize_module(mod, copies, tie_weights=True):
            _dispatch.push(self)
            try:
                mod(*args, **kwargs)
            finally:
                _dispatch.pop(self)

    def run_operator(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if operator.is_composition:
            return NotImplemented
        given = pytree.tree_map(_copied, (args, kwargs))
        result = operator.overload(*args, **kwargs)
        name = str(operator.overload)
        kind, data = FailureType.MISSING_FAKE_KERNEL, {"op": name}
        if _has_fake_kernel(operator):
            kind, reason = FailureType.MISMATCHED_FAKE_KERNEL, _difference(operator, given, result)
            if reason is None:
                return result
            data = {"op": name, "reason": reason}
        if name not in self.profiles:
            self.failures.append(FailureReport(kind, data))
        self.profiles.setdefault(name, set()).add(OpProfile.of(args, kwargs, result))
        return result


def _copied(x: Any) -> Any:
    return x.detach().clone() if isinstance(x, Tensor) else x


@contextlib.contextmanager
def _attributes_put_back(mod: Module) -> Iterator[None]:
    """A region after which modules have the plain attributes that they had."""
    before = [(part, dict(vars(part))) for part in mod.modules()]
    try:
        yield
    finally:
        for part, attributes in before:
            vars(part).clear()
            vars(part).update(attributes)


def _has_fake_kernel(operator: Any) -> bool:
    if operator.fake is not None or "Meta" in operator.kernels or not operator.schema.returns:
        return True
    return not operator.opaque and any(key in operator.kernels for key in (EXPLICIT, IMPLICIT))


def _difference(operator: Any, given: Any, result: Any) -> str | None:
    """How what the fake kernel of `operator` gives differs from its `result`; None where it does not, or does not say."""
    from ..fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True)
    args, kwargs = pytree.tree_map(lambda x: mode.from_tensor(x) if isinstance(x, Tensor) else x, given)
    with mode:
        fake = operator.overload(*args, **kwargs)
    for at, (x, y) in enumerate(zip(pytree.tree_leaves(fake), pytree.tree_leaves(result), strict=False)):
        if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
            continue
        if x.dtype is not y.dtype:
            return f"result {at} has dtype {y.dtype}, the fake one {x.dtype}"
        same = x.ndim == y.ndim and all(not isinstance(n, int) or n == m for n, m in zip(x.shape, y.shape, strict=True))
        if not same:
            return f"result {at} has shape {tuple(y.shape)}, the fake one {tuple(x.shape)}"
    return None


class _Drafter(_Exporter):
    """An exporter that finds what the program asks for by running the graph so far on copies of the inputs."""

    def __init__(
        self, mod: Module, args: Any, kwargs: Any, named: Any, sizes: Any, kept: Any, report: DraftExportReport, error: type[Exception]
    ) -> None:
        super().__init__(mod, args, kwargs, named, sizes, kept, error)
        self.report = report
        self.known: dict[Any, Any] = {}               # the values of symbols, for the example inputs

    def _flat(self, *tensors: Any) -> Any:
        from ..fx.experimental import proxy_tensor

        recorder = proxy_tensor.recording()
        self.env = recorder.mode.shape_env
        self.sources = {}                             # of symbols that are sizes of inputs, as expressions of ``L``
        for source, fake in zip(self.open.sources, tensors[len(self.state) :], strict=True):
            for d, n in enumerate(fake.shape):
                if not isinstance(n, int):
                    self.sources.setdefault(n.node._expr, f"{source}.size()[{d}]")
        self.env.decide = lambda expr: self._decided(recorder, expr)
        try:
            return super()._flat(*tensors)
        finally:
            self.env.decide = None

    def _decided(self, recorder: Any, expr: Any) -> Any:
        """What `expr`, of numbers that values decide, is for the example inputs."""
        import sympy

        if not expr.free_symbols <= self.known.keys() | self.env.var_to_val.keys():
            self.known.update(self._values(recorder))
        result = expr.xreplace(self.known | self.env.var_to_val)
        if not (result.is_number or result in (sympy.true, sympy.false)):
            return None
        stack = []
        for frame in traceback.extract_stack():
            if frame.filename == __file__ and frame.name == draft_export.__name__:
                stack = []                            # what is further out is no part of the module
            elif not frame.filename.startswith((*_OUR_FOLDERS, "<")):
                files = self.report.str_to_filename
                number = next((n for n, name in files.items() if name == frame.filename), len(files))
                files[number] = frame.filename
                stack.append({"line": frame.lineno, "name": frame.name, "filename": number, "loc": frame.line})
        sources = {str(s): self.sources[s] for s in expr.free_symbols if s in self.sources}
        data = {"expr": str(expr), "result": str(result), "user_stack": stack, "symbol_to_sources": sources, "occurrences": 1}
        self.report.failures.append(FailureReport(FailureType.DATA_DEPENDENT_ERROR, data))
        return result

    def _values(self, recorder: Any) -> dict[Any, Any]:
        """The values of the symbols that the graph so far makes."""
        import sympy

        from ..fx import Graph, GraphModule, Interpreter

        graph = Graph()
        copies: dict[Any, Any] = {}
        graph.graph_copy(recorder.tracer.graph, copies)
        makers = [node for node in recorder.tracer.graph.nodes if "unbacked_bindings" in node.meta]
        graph.output(tuple([copies[node] for node in makers]))
        inputs = [*(value for _, value in self.state.values()), *(self.leaves[i] for i in self.tensors)]
        root = copy.copy(recorder.tracer.root)
        with recorder.quietly(), _outside_of_modes(), fork_rng():
            inputs = list(map(_copied, inputs))
            made = Interpreter(GraphModule(root, graph)).run(*inputs, enable_io_processing=False)
        found = {}
        for node, value in zip(makers, made, strict=True):
            for symbol, path in (node.meta["unbacked_bindings"] or {}).items():
                found[symbol] = sympy.sympify(pytree.key_get(value, path))
        return found

    def guards_added(self, new_shapes: Any) -> list[FailureReport]:
        """A failure for each guard on sizes that were to be open: those that the program asked for itself, if there are any."""
        guards = [g for g in self.env.guards if g.expr.free_symbols <= self.sources.keys()]
        made = []
        for guard in [g for g in guards if g.sloc.by_program] or guards:
            sources = {str(s): self.sources[s] for s in guard.expr.free_symbols}
            data = {"expr": str(guard.expr), "symbol_to_sources": sources, "new_dynamic_shapes": new_shapes}
            made.append(FailureReport(FailureType.GUARD_ADDED, data))
        return made


def _outside_of_modes() -> contextlib.AbstractContextManager[Any]:
    """A region that computes with real tensors, whatever records around it."""
    from ..fx.experimental.proxy_tensor import unset_fake_temporarily

    return unset_fake_temporarily()

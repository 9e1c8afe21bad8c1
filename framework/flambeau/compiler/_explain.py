"""What a compiled function has recorded: as text, as a page, as messages, and as files of the debug folder."""

from __future__ import annotations

import html
import itertools
import logging
import os
import time
from typing import Any, NamedTuple

from .. import _logging
from ..autograd import tape
from ..tensor import Tensor

_recordings = logging.getLogger("flambeau.compiler")
_programs = logging.getLogger("flambeau._inductor")
_graph_breaks = _logging.getArtifactLogger("flambeau.compiler", "graph_breaks")
_recompiles = _logging.getArtifactLogger("flambeau.compiler", "recompiles")
_graph = _logging.getArtifactLogger("flambeau._dynamo", "graph")
_graph_code = _logging.getArtifactLogger("flambeau._dynamo", "graph_code")
_guards = _logging.getArtifactLogger("flambeau._dynamo", "guards")
_schedule = _logging.getArtifactLogger("flambeau._inductor", "schedule")
_fusion = _logging.getArtifactLogger("flambeau._inductor", "fusion")
_kernel_code = _logging.getArtifactLogger("flambeau._inductor", "kernel_code")
_output_code = _logging.getArtifactLogger("flambeau._inductor", "output_code")
_operators = tuple([_logging.getArtifactLogger("flambeau._functorch", name) for name in ("aot_graphs", "aot_joint_graph")])
_artifacts = (_graph, _graph_code, _guards, _graph_breaks, _recompiles, _schedule, _fusion, _kernel_code, _output_code, *_operators)


_END = "the end of the function"                      # why the last recording of a call ends


class Segment(NamedTuple):
    """Operations that were recorded one after the other and computed at once.

    `why` they were computed then, and `line` of the program; `operations` are their calls as text, `kernels` those of chains. Bytes
    of the results that are asked for, of those that fused kernels do not write, and of the most that is held at a time, results included,
    which is None for the function of a backend; seconds of the last call.
    """

    why: str
    line: str
    operations: list[str]
    kernels: list[str]
    calls: int
    bytes: int
    bytes_saved: int
    bytes_at_most: int | None
    seconds: float


class Replay(NamedTuple):
    """A call that runs without the Python that recorded it: how often it has, and the `launches` that native calls of tables make.

    `python` says what still runs in Python: operations of a table that are no launches, and parts of the call without a table, and why.
    """

    calls: int
    launches: int
    python: list[str]


class Change(NamedTuple):
    """Where a later call left the path of an earlier one: what came before, what was new, and what is different."""

    line: str
    before: str
    now: str
    what: str


class Explanation:
    """What a compiled function has recorded so far.

    `segments` in the order in which they were met, `changes` where something was recorded anew, `replays` what runs without recording in
    the mode "reduce-overhead". ``str()`` says it in words; `html` is one self-contained page, which notebooks show, and `save` writes it.
    """

    def __init__(self, function: Any) -> None:
        self.title = getattr(function.fn, "__qualname__", type(function.fn).__name__)
        self.segments: list[Segment] = []
        self.changes: list[Change] = []
        self.replays = [_replay(one) for one in function.replays.values() if one is not None and one.run is not None]
        waiting = [function.root]
        while waiting:
            step = waiting.pop()
            self.segments += [_segment(step, program) for program in step.programs.values()]
            branches = [(name, after) for name, after in step.after.items() if after is not None]
            for at in range(1, len(branches)):
                earlier = branches[:at]
                if step is function.root:             # where other segments begin too
                    earlier = [one for one in earlier if one[0][0] is branches[at][0][0]]
                if earlier:
                    self.changes.append(_change(earlier, branches[at]))
            waiting += [after for _, after in reversed(branches)]

    def __str__(self) -> str:
        count = len(self.segments)
        lines = [f"{self.title}: {count} recording{'s' * (count != 1)}"]
        for at, segment in enumerate(self.segments, 1):
            lines += [
                f"{at}. ended because: {segment.why} ({'called at ' if segment.why == _END else ''}{segment.line})",
                f"   {len(segment.operations)} operations, {segment.calls} calls, {segment.seconds * 1e6:.0f} us in the last timed, "
                f"results of {segment.bytes} bytes, {segment.bytes_saved} bytes not written"
                + (f", {segment.bytes_at_most} bytes at a time" if segment.bytes_at_most is not None else ""),
                *[f"   {line}" for line in segment.operations],
                *[f"   | {line}" for kernel in segment.kernels for line in kernel.splitlines()],
            ]
        for change in self.changes:
            lines += [f"recorded anew at {change.line}: {change.what}", f"   before: {change.before}", f"   now:    {change.now}"]
        for replay in self.replays:
            lines += [_summary(replay), *[f"   in Python: {line}" for line in replay.python]]
        return "\n".join(lines)

    def html(self) -> str:
        """The page: it refers to nothing outside itself."""
        e = html.escape
        most = max([s.seconds for s in self.segments], default=0) or 1
        rows = [_row(at, segment, most) for at, segment in enumerate(self.segments, 1)]
        rows += [
            f"<section><h2>recorded anew: {e(c.what)}</h2><p class=at>{e(c.line)}</p><div class=two><pre>{e(c.before)}</pre>"
            f"<pre>{e(c.now)}</pre></div></section>"
            for c in self.changes
        ]
        rows += [
            f"<section><h2>{e(_summary(r))}</h2>{''.join([f'<p class=at>in Python: {e(line)}</p>' for line in r.python])}</section>"
            for r in self.replays
        ]
        head = f"<head><meta charset=utf-8><title>{e(self.title)}</title><style>{_STYLE}</style></head>"
        return f"<!doctype html><html>{head}<body><h1>{e(self.title)}</h1>{''.join(rows)}</body></html>"

    def _repr_html_(self) -> str:
        return f'<iframe style="width:100%;height:30em;border:0" srcdoc="{html.escape(self.html())}"></iframe>'

    def save(self, path: Any) -> None:
        """Write the page to the file `path`."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html())


def _row(at: int, s: Segment, most: float) -> str:
    e = html.escape
    facts = [f"{len(s.operations)} operations", f"{s.calls} calls", f"{s.seconds * 1e6:.0f} µs in the last timed",
             f"{s.bytes:,} bytes of results", f"{s.bytes_saved:,} bytes not written"]  # fmt: skip
    if s.bytes_at_most is not None:
        facts.append(f"{s.bytes_at_most:,} bytes at a time")
    kernels = "".join(f"<pre class=k>{e(kernel)}</pre>" for kernel in s.kernels) or "<p>no fused kernel</p>"
    bar = f"<div class=bar style='width:{max(s.seconds / most, 0.01):.0%}'></div>"
    operations = e("\n".join(s.operations))
    return (
        f"<section><h2>{at}. {e(s.why)}</h2><p class=at>{e(s.line)}</p>{bar}<p>{' · '.join(facts)}</p>"
        f"<div class=two><pre>{operations}</pre><div>{kernels}</div></div></section>"
    )


_STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; color: #222 }
h2 { font-size: 1.05em; margin: .2em 0 }
section { border: 1px solid #ccc; border-radius: 6px; padding: .6em 1em; margin: 1em 0 }
pre { background: #f6f6f6; padding: .6em; overflow: auto; margin: 0 }
.k { background: #eef5ee; margin-bottom: .5em }
.two { display: grid; grid-template-columns: 1fr 1fr; gap: 1em }
.at { color: #666; margin: .2em 0 }
.bar { height: 6px; background: #c60; border-radius: 3px }
@media (prefers-color-scheme: dark) {
  body { background: #1b1b1b; color: #ddd } pre { background: #262626 } .k { background: #223022 }
}
"""


def operations_of(path: list[Any]) -> list[str]:
    """The steps of a path as lines: what is made, of what, and its looks."""
    lines = []
    for step in path:
        made = ", ".join([f"t{step.first + i}" for i in range(len(step.results))])
        given = ", ".join([_argument(ref) for ref in step.refs])
        if step.stores:
            lines.append(f"{step.op.qualified}_({given})  # writes to {_argument(step.refs[0])}")
            continue
        if not step.results:
            lines.append(f"{step.op.qualified}({given})")
            continue
        lines.append(f"{made} = {step.op.qualified}({given})  # {', '.join([looks_of(result) for result in step.results])}")
    return lines


def _argument(ref: Any) -> str:
    if ref.__class__ is int:
        return f"in{-1 - ref}" if ref < 0 else f"t{ref}"
    if isinstance(ref, (list, tuple)):
        return f"[{', '.join(map(_argument, ref))}]"
    return repr(ref.value)


def looks_of(result: Any) -> str:
    """Dtype and shape of a tensor, and whether it requires grad."""
    return f"{str(result.dtype).rpartition('.')[2]}{list(result.shape)}{' grad' if result.requires_grad else ''}"


def kernels_of(program: Any) -> list[str]:
    """The text of each fused kernel, forward and backward, below what it stands for."""
    found = []
    for chain in program.chains:
        found.append(f"# {chain.title}: {len(chain.steps)} operations as one\n{chain.text}")
        for history in chain.histories.values():
            gradients = [kernel for kernel in history.kernels.values() if kernel.text]
            found += [f"# its gradients, {len(kernel.runs)} operations as one\n{kernel.text}" for kernel in gradients]
    return found


def _segment(step: Any, program: Any) -> Segment:
    path = step.path()
    why, place = getattr(program, "ended", ("", None))
    metas = {s.first + i: result for s in path for i, result in enumerate(s.results)}
    size = sum(metas[number]._array.nbytes for number in program.wanted)
    saved = sum(chain.saved() * chain.itemsize for chain in program.chains)
    line, most = tape.shown_line(place), program.bytes_at_most
    return Segment(why, line, operations_of(path), kernels_of(program), program.calls, size, saved, most, program.seconds)


def _summary(replay: Replay) -> str:
    return f"replayed {replay.calls} times: {replay.launches} launches in native calls"


def _replay(found: Any) -> Replay:
    launches, python = 0, []
    for at, part in enumerate(found.parts):
        on_arrays = found.on_arrays.get(at)
        if on_arrays is not None and on_arrays.table is not None:
            launches += on_arrays.table.native
            python += on_arrays.table.others
        elif on_arrays is not None:
            python.append(f"a program of {len(found.parts[at].program.steps)} operations: {on_arrays.why}")
        elif hasattr(part, "program"):
            why = "it is frozen" if found.freezes else "results have histories"
            python.append(f"a program of {len(part.program.steps)} operations: {why}")
        elif part.name != "backward":
            python.append(f"{type(part.subject).__name__}.{part.name}()")
        elif at - 1 not in found.on_arrays:
            python.append("backward: the program before it gives more than what it begins at, or is fused")
    return Replay(found.replayed, launches, python)


def _change(earlier: list[Any], later: Any) -> Change:
    """How the step `later` is different from the most similar of those before it."""
    name, step = later
    nearest, before = max(earlier, key=lambda one: (one[0][0] is name[0], sum(a == b for a, b in zip(one[0], name, strict=False))))
    return Change(tape.shown_line(step.where), operations_of([before])[0], operations_of([step])[0], _difference(nearest, name))


def _difference(before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    if before[0] is not now[0]:
        return f"{now[0].public_name} in the place of {before[0].public_name}"
    for a, b in zip(before[1:], now[1:], strict=False):
        if a != b:
            if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b) == 4:
                parts = ("shape", "strides in bytes", "dtype", "whether it requires grad")
                return "; ".join([f"{part} {x} became {y}" for part, x, y in zip(parts, a, b, strict=True) if x != y])
            if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b) == 3:
                parts = ("recording gradients", "inference mode", "the default dtype")
                return "; ".join([f"{part}: {x} became {y}" for part, x, y in zip(parts, a, b, strict=True) if x != y])
            return f"an argument {a!r} became {b!r}"
    return "another number of arguments"


# -- messages and files --------------------------------------------------------------------------------------------------


def is_watched() -> bool:
    """Whether something of what there is to say of recordings is shown or written."""
    told = _recordings.isEnabledFor(logging.INFO) or _programs.isEnabledFor(logging.INFO)
    return told or any(artifact.isEnabledFor(logging.DEBUG) for artifact in _artifacts) or _writes_files()


def tell(text: str, *args: Any) -> None:
    """Say something to who reads any part of what is said here, once."""
    if _recordings.isEnabledFor(logging.INFO):
        _recordings.info(text, *args)
        return
    shown = [artifact for artifact in _artifacts if artifact.isEnabledFor(logging.DEBUG)]
    if shown:
        shown[0].debug(text, *args)


def warn(text: str, *args: Any) -> None:
    """Say something that who reads nothing else should know."""
    _recordings.warning(text, *args)


def shows_graphs() -> bool:
    """Whether `tell_graph` has readers."""
    return any(artifact.isEnabledFor(logging.DEBUG) for artifact in (_graph, _graph_code, _guards, *_operators))


def tell_graph(title: str, graph: Any) -> None:
    """Show a recording of the function `title` as a graph, and what its inputs are taken to be."""
    if _graph_code.isEnabledFor(logging.DEBUG):
        _graph_code.debug("TRACED GRAPH of %s\n%s", title, graph.print_readable(print_output=False))
    if _graph.isEnabledFor(logging.DEBUG):
        _graph.debug("TABULATED GRAPH of %s\n%s", title, graph.graph._tabulated())
    if _guards.isEnabledFor(logging.DEBUG):
        inputs = [(node.name, node.meta["example_value"]) for node in graph.graph.nodes if node.op == "placeholder"]
        looks = [f"{looks_of(x)}, strides {list(x.stride())}" if isinstance(x, Tensor) else "any number" for _, x in inputs]
        lines = [f"    {name}: {look}" for (name, _), look in zip(inputs, looks, strict=True)]
        _guards.debug("GUARDS of %s: the same operations in the same order with the same constants, and\n%s", title, "\n".join(lines))


def tell_operators(title: str, graph: Any) -> None:
    """Show a recording of the function `title` as graphs of operators, as `aot_function` shows them; nothing of it is run."""
    shown = [artifact for artifact in _operators if artifact.isEnabledFor(logging.DEBUG)]
    if not shown:
        return
    from .._functorch.aot_autograd import aot_module_simplified
    from ..random import fork_rng

    inputs = [node.meta["example_value"] for node in graph.graph.nodes if node.op == "placeholder"]
    try:
        with fork_rng():                              # operators that draw random numbers take none from the program
            aot_module_simplified(graph, inputs, lambda operators, _: operators)
    except Exception as error:                        # the program goes on: its results do not depend on what is shown
        shown[0].debug("no graph of operators of %s can be made: %s: %s", title, type(error).__name__, error)


def note(recorder: Any, step: Any, program: Any, why: str) -> None:
    """A recording that ended because of `why` has been made into a `program`."""
    # Most is text, which is made for those who read it.
    program.ended = why, tape.users_place()
    if recorder.is_told:
        return
    if _recordings.isEnabledFor(logging.INFO):
        operations = operations_of(step.path())
        line = tape.shown_line(program.ended[1])
        called = ", which was called" if why == _END else ""
        _recordings.info("%s: %d operations recorded, until %s%s at %s", recorder.title, len(operations), why, called, line)
        _recordings.debug("%s: recorded\n%s", recorder.title, "\n".join(operations))
    if _programs.isEnabledFor(logging.INFO):
        fused = sum(len(chain.steps) for chain in program.chains)
        _programs.info("%s: %d kernels for %d of the operations", recorder.title, len(program.chains), fused)
    if why != _END and _graph_breaks.isEnabledFor(logging.DEBUG):
        _graph_breaks.debug("Graph break in %s at %s\n    reason: %s", recorder.title, tape.shown_line(program.ended[1]), why)
    if _recompiles.isEnabledFor(logging.DEBUG):
        _tell_changes(recorder, step)
    if _schedule.isEnabledFor(logging.DEBUG):
        _schedule.debug("%s\n%s", recorder.title, "\n".join(_scheduled(step, program)))
    if _fusion.isEnabledFor(logging.DEBUG) or _kernel_code.isEnabledFor(logging.DEBUG):
        for chain in program.chains:
            _fusion.debug("%s: %d operations as one kernel of %d operands", chain.title, len(chain.steps), len(chain.operands))
            _kernel_code.debug("%s\n%s", chain.title, chain.text)
    if _output_code.isEnabledFor(logging.DEBUG):
        _output_code.debug("%s\n%s", recorder.title, "\n".join([*_scheduled(step, program), *kernels_of(program)]))
    if _writes_files():
        _write(recorder, step, program, why)


def _scheduled(step: Any, program: Any) -> list[str]:
    """What runs one after the other: kernels, and operations by themselves."""
    if not program.chains:
        return operations_of(step.path())
    return [operations_of([part])[0] if part.__class__ is step.__class__ else f"kernel {part.title}" for part in program.fused]


def _tell_changes(recorder: Any, step: Any) -> None:
    """Say where the path to `step` has left those that were recorded earlier."""
    for above in _above(step):
        branches = [(name, after) for name, after in above.after.items() if after is not None]
        earlier = [one for one in branches[:-1] if above.parent is not None or one[0][0] is branches[-1][0][0]]
        if earlier and branches[-1][1].count_programs() == 1:
            change = _change(earlier, branches[-1])
            _recompiles.debug("Recompiling %s: %s at %s", recorder.title, change.what, change.line)


def _above(step: Any) -> list[Any]:
    found = []
    while step.parent is not None:
        step = step.parent
        found.append(step)
    return found


def _writes_files() -> bool:
    if os.environ.get("TORCH_COMPILE_DEBUG", "0") == "1":
        return True
    from .._inductor import config

    return bool(config.debug or config.trace.enabled)


_runs = itertools.count()
_folder: str | None = None


def debug_folder() -> str:
    """The folder of this process, below `_inductor.config.trace.debug_dir` or `_dynamo.config.debug_dir_root`."""
    global _folder
    if _folder is None:
        from .._dynamo import config as settings
        from .._inductor import config

        root = config.trace.debug_dir or settings.debug_dir_root
        _folder = os.path.join(root, f"run_{time.strftime('%Y_%m_%d_%H_%M_%S')}-pid_{os.getpid()}")
    return _folder


def _write(recorder: Any, step: Any, program: Any, why: str) -> None:
    """Write the recording: its graph, its operations, what computes them, and a script that runs it on random numbers."""
    from .._dynamo.debug_utils import repro_script
    from ._graphs import graph_of_looks

    folder = os.path.join(debug_folder(), "torchinductor", f"model__{next(_runs)}_{_plain(recorder.title)}")
    os.makedirs(folder, exist_ok=True)
    graph, inputs = graph_of_looks(step, tuple(sorted(program.wanted)))
    texts = {
        "fx_graph_readable.py": graph.print_readable(print_output=False),
        "operations.txt": "\n".join(operations_of(step.path())),
        "output_code.py": "\n\n".join(kernels_of(program)) or "# no fused kernel",
        "ended.txt": f"{why}\n{tape.shown_line(program.ended[1])}",
        "fx_graph_runnable.py": repro_script(graph, inputs),
    }
    for name, text in texts.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text + "\n")


def _plain(title: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in title)[:60]

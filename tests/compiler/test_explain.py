"""What compiled functions say of themselves: `explain`, messages, the debug folder, scripts of what fails."""

from __future__ import annotations

import html.parser
import logging
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

import flambeau as fb
from flambeau._dynamo import debug_utils
from flambeau._functorch.compile import aot_function, minifier, nop
from flambeau.compiler import _explain, _functions, _programs, _recorder


@pytest.fixture(autouse=True)
def _small_chains_fuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_recorder, "RECORDED_FROM", 1024)
    monkeypatch.setattr(_programs, "FUSED_FROM", 1024)
    monkeypatch.setattr(_programs, "WORTH", 0)


def program(x: Any, n: float = 2.0) -> Any:
    y = (x * n + 1).relu()
    if y.sum() > 0:
        y = y.sin() * 3
    return y


def explained() -> Any:
    f = fb.compile(program)
    x = fb.ones(64, 64, requires_grad=True)
    for _ in range(4):
        f(x).sum().backward()
    f(fb.ones(64, 64))
    f(x, 5.0)
    return f.explain()


def test_explain_says_what_was_recorded_and_why_it_ended() -> None:
    found = explained()
    text = str(found)

    first = found.segments[0]
    assert first.why == "a value was asked for"
    assert "y.sum() > 0" in first.line
    assert len(first.operations) == 5
    assert "mul(in0, 2.0)" in first.operations[0]
    assert first.calls == 4
    assert first.seconds > 0
    assert first.bytes == 4 * 64 * 64 + 1             # y, and what the condition asks for
    assert first.bytes_saved == 2 * 4 * 64 * 64
    assert [kernel.splitlines()[0] for kernel in first.kernels] == [
        "# fused_mul_add_relu: 3 operations as one", "# its gradients, 3 operations as one",
    ]  # fmt: skip
    assert "relu" in text
    assert "whether it requires grad True became False" in {change.what for change in found.changes}
    assert "an argument 2.0 became 5.0" in {change.what for change in found.changes}


def test_the_page_of_an_explanation_stands_by_itself(tmp_path: pathlib.Path) -> None:
    found = explained()
    found.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")

    class Reader(html.parser.HTMLParser):
        tags: list[str] = []

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            self.tags.append(tag)
            assert not {"src", "href"} & {name for name, _ in attrs}

    Reader().feed(page)
    assert Reader.tags.count("section") == len(found.segments) + len(found.changes)
    assert "fused_mul_add_relu" in page
    assert "y.sum() &gt; 0" in page


def test_artifacts_of_the_log_tell_of_breaks_kernels_and_new_recordings(capsys: pytest.CaptureFixture[str]) -> None:
    f = fb.compile(program)
    fb._logging.set_logs(graph_breaks=True, recompiles=True, kernel_code=True, fusion=True)
    try:
        f(fb.ones(64, 64))
        f(fb.ones(64, 64), 5.0)
    finally:
        fb._logging.set_logs()
    shown = capsys.readouterr().err

    assert "Graph break in program at" in shown
    assert "fused_mul_add_relu: 3 operations as one kernel" in shown
    assert "def fused_mul_add_relu(" in shown
    assert "Recompiling program: an argument 2.0 became 5.0" in shown


def test_the_debug_folder_has_scripts_that_run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fb._inductor.config.trace, "debug_dir", str(tmp_path))
    monkeypatch.setattr(_explain, "_folder", None)
    with fb._inductor.config.patch("trace.enabled", True):
        fb.compile(lambda x, y: (x.view(-1)[:2048] * 2 + y.t().reshape(-1)[:2048]).exp(), fullgraph=True)(fb.ones(64, 64), fb.ones(64, 64))
    (script,) = tmp_path.glob("run_*/torchinductor/model__*/fx_graph_runnable.py")

    assert (script.parent / "operations.txt").read_text().count("\n") >= 6
    readable = (script.parent / "fx_graph_readable.py").read_text()
    compile(readable, "fx_graph_readable.py", "exec")
    assert re.search(r"# File: .*test_explain.py:\d+ in <lambda>, code: .*x.view\(-1\)\[:2048\] \* 2", readable)
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def failing(graph: Any, inputs: Any) -> Any:
    if any(node.target is fb.relu for node in graph.graph.nodes):
        raise ValueError("this backend knows no relu")
    return graph.forward


def test_a_failing_backend_leaves_a_script_of_the_smallest_graph(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fb._inductor.config.trace, "debug_dir", str(tmp_path))
    monkeypatch.setattr(_explain, "_folder", None)
    f = fb.compile(lambda x: ((x + 1).sin() * 2 - fb.relu(x.cos() * 3)).exp().sum(), backend=failing)
    with fb._dynamo.config.patch("repro_after", "dynamo"), pytest.raises(fb._dynamo.exc.BackendCompilerFailed, match="A script that shows"):
        f(fb.ones(4))
    (script,) = tmp_path.glob("run_*/minifier/repro_*.py")
    text = script.read_text()

    assert "torch.relu" in text
    assert "sin" not in text
    assert "ValueError: this backend knows no relu" in text


@pytest.mark.parametrize("level", [1, 2, 4])
def test_a_graph_that_fails_when_it_is_run_leaves_a_script_too(level: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fb._inductor.config.trace, "debug_dir", str(tmp_path))
    monkeypatch.setattr(_explain, "_folder", None)
    f = fb.compile(lambda x: ((x + 1).sin() * 2 - fb.relu(x.cos() * 3)).sum(), backend="relu_runtime_error_TESTING_ONLY")
    with fb._dynamo.config.patch(repro_after="dynamo", repro_level=level), pytest.raises(
        fb._dynamo.exc.BackendCompilerFailed, match=r"(?s)ReluRuntimeError.*A script that shows"
    ) as raised:
        f(fb.ones(4))
    (script,) = tmp_path.glob("run_*/minifier/repro_*.py")
    text = script.read_text()

    assert isinstance(raised.value.__cause__, AssertionError)
    assert "torch.relu" in text
    assert ("sin" in text) == (level < 2)             # from 2 on it is the smallest graph
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert ran.stderr.count("AssertionError: ReluRuntimeError") == 1


def test_numbers_of_a_backend_that_differ_are_found(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(graph: Any, inputs: Any) -> Any:
        for node in graph.graph.nodes:
            if node.target is fb.cos:
                node.target = fb.sin
        graph.recompile()
        return graph.forward

    monkeypatch.setattr(fb._inductor.config.trace, "debug_dir", str(tmp_path))
    monkeypatch.setattr(_explain, "_folder", None)
    f = fb.compile(lambda x: fb.cos(x + 1) * 2, backend=wrong)
    with fb._dynamo.config.patch(repro_after="aot", repro_level=4), pytest.raises(debug_utils.AccuracyError, match="other numbers"):
        f(fb.ones(4))
    assert list(tmp_path.glob("run_*/minifier/repro_*.py"))


def test_the_minifier_leaves_what_has_to_be_there() -> None:
    def f(x: Any, y: Any, z: Any) -> Any:
        a = (x + y).relu()
        b = (a * z).sin()
        return b.sum(), a.exp(), (b - z).tanh()

    gm = fb.fx.symbolic_trace(f)
    inputs = [fb.ones(3), fb.ones(3), fb.ones(3)]

    def called(graph: Any) -> set[str]:
        return {n.target for n in graph.graph.nodes if n.op == "call_method"}

    small, given = minifier(gm, inputs, lambda g, i: {"sin", "exp"} <= called(g))

    assert called(small) == {"sin", "exp"}
    assert len(given) <= 2
    small(*given)
    with pytest.raises(RuntimeError, match="does not fail"):
        minifier(gm, inputs, lambda g, i: False)


def test_two_models_are_compared_with_their_gradients() -> None:
    gm = fb.fx.symbolic_trace(lambda x: (x.sin() * 2).sum())
    x = [fb.randn(5, requires_grad=True)]

    assert debug_utils.same_two_models(gm, lambda x: (x.sin() + x.sin()).sum(), x)
    assert not debug_utils.same_two_models(gm, lambda x: (x.detach().sin() + x.sin()).sum(), x)
    assert debug_utils.same_two_models(gm, lambda x: (x.detach().sin() + x.sin()).sum(), x, only_fwd=True)
    assert not debug_utils.backend_accuracy_fails(gm, x, lambda graph, inputs: graph.forward)


def test_a_function_with_a_backend_of_its_own_is_explained() -> None:
    f = fb.compile(lambda x: (x * 2).relu(), backend=lambda graph, examples: graph.forward)
    for _ in range(3):
        f(fb.ones(3))

    found = f.explain()
    assert [(segment.calls, len(segment.operations), segment.bytes_at_most) for segment in found.segments] == [(3, 2, None)]
    assert "bytes at a time" not in str(found) + found.html()


def test_what_is_recorded_is_told_when_asked_for(capsys):
    fb._logging.set_logs(dynamo=logging.DEBUG, inductor=logging.INFO)
    try:
        fb.compile(lambda x: (x * 2).exp() + x)(fb.ones(64, 64))
    finally:
        fb._logging.set_logs()
    told = capsys.readouterr().err
    assert "3 operations recorded, until the end of the function" in told
    assert "exp" in told
    assert "kernels for" in told
    fb.compile(lambda x: (x * 2).exp() + x)(fb.ones(64, 64))
    assert capsys.readouterr().err == ""


def test_small_functions_are_shown_in_the_log_and_say_that_they_run_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    f = fb.compile(program)
    fb._logging.set_logs(graph_code=True, recompiles=True, graph_breaks=True, guards=True, schedule=True)
    try:
        results = [f(fb.ones(3)) for _ in range(3)]
        first = capsys.readouterr().err
        f(fb.ones(4))
        second = capsys.readouterr().err
    finally:
        fb._logging.set_logs()

    assert first.count("TRACED GRAPH of program") == 2  # of both segments, once
    assert "l_x_ * 2.0" in first
    assert "in program, code: y = (x * n + 1).relu()" in first  # the line of the program
    assert "l_x_: float32[3], strides [1]" in first
    assert first.count("Graph break in program at") == 1
    assert first.count("run as they do without compile") == 1
    assert "t0 = mul(in0, 2.0)" in first
    assert "Recompiling program: shape (3,) became (4,)" in second
    assert "run as they do" not in second
    assert all(fb.equal(result, program(fb.ones(3))) for result in results)
    assert set(f.explain.__self__.known.values()) == {_functions.PLAIN, _functions.SHOWN}


def test_large_functions_are_shown_once_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    f = fb.compile(lambda x: (x * 2).exp() + x)
    fb._logging.set_logs(graph_code=True, fusion=True, output_code=True)
    try:
        for _ in range(5):
            f(fb.ones(64, 64))
    finally:
        fb._logging.set_logs()
    shown = capsys.readouterr().err

    assert shown.count("TRACED GRAPH") == 1
    assert shown.count("3 operations as one kernel") == 1
    assert re.search("kernel \\w*mul_exp_add\\n.*def fused_mul_exp_add", shown, re.S)  # the output code
    assert "run as they do without compile" not in shown


def test_the_log_shows_the_graphs_of_aot_function(capsys: pytest.CaptureFixture[str]) -> None:
    f = aot_function(lambda x: x.sin().sum(), nop)
    fb._logging.set_logs(aot_graphs=True, aot_joint_graph=True)
    try:
        f(fb.ones(3, requires_grad=True))
    finally:
        fb._logging.set_logs()
    shown = capsys.readouterr().err

    assert [part for part in ("joint", "forward", "backward") if f"_{part}" in shown] == ["joint", "forward", "backward"]
    assert "tangents_1" in shown


def test_fullgraph_refuses_values_where_programs_are_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    f = fb.compile(lambda x: x * 2 if x.sum() > 0 else x, fullgraph=True, mode="reduce-overhead")
    for _ in range(2):
        with pytest.raises(fb._dynamo.exc.Unsupported, match="fullgraph=True"):
            f(fb.ones(3))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_operators_of_a_recording_are_shown(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    x = fb.ones(3, requires_grad=True)
    fb._logging.set_logs(aot_graphs=True)
    try:
        fb.compile(lambda x: x.sin() * 2, backend=backend)(x)
    finally:
        fb._logging.set_logs()
    text = capsys.readouterr().err
    assert "torch.ops.aten.sin.default" in text
    assert "torch.ops.aten.cos.default" in text       # of the derivative
    assert all(f"_{part}_" in text for part in ("forward", "backward"))


def test_showing_operators_changes_no_random_numbers() -> None:
    def f(x):
        return fb.nn.functional.dropout(x.sin(), 0.5)

    x, made = fb.ones(30), []
    for shown in (True, False):
        fb._logging.set_logs(aot_graphs=shown)
        try:
            fb.manual_seed(1)
            made.append(fb.compile(f)(x))
        finally:
            fb._logging.set_logs()
    assert fb.equal(*made)

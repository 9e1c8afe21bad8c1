"""`_logging.set_logs` and TORCH_LOGS: which messages are shown."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau as fb


@pytest.fixture(autouse=True)
def as_at_first():
    yield
    fb._logging.set_logs()


def test_messages_of_a_part_are_shown_from_its_level_on(capsys):
    logger = logging.getLogger("flambeau._dynamo.anything")
    fb._logging.set_logs(dynamo=logging.INFO)

    logger.debug("too small")
    logger.info("large enough")
    logging.getLogger("flambeau.onnx").info("of another part")

    shown = capsys.readouterr().err
    assert "large enough" in shown
    assert "too small" not in shown
    assert "another part" not in shown


def test_a_later_call_begins_anew():
    fb._logging.set_logs(all=logging.DEBUG, modules={"flambeau.fx": logging.ERROR})
    assert logging.getLogger("flambeau.fx.graph").getEffectiveLevel() == logging.ERROR
    assert logging.getLogger("flambeau.nn").getEffectiveLevel() == logging.DEBUG

    fb._logging.set_logs()

    assert logging.getLogger("flambeau").level == logging.getLogger("flambeau.fx").level == logging.NOTSET


def test_artifacts_are_shown_or_not(capsys):
    logger = fb._logging.getArtifactLogger("torch._dynamo.output_graph", "graph_code")
    logger.debug("hidden")
    fb._logging.set_logs(graph_code=True)
    logger.debug("def forward(self, x)")

    assert "def forward" in (shown := capsys.readouterr().err)
    assert "hidden" not in shown


def test_help_says_what_there_is_and_the_program_goes_on():
    program = "import flambeau as fb; print(fb.ones(2).sum().item())"
    for asked in ("help", "+help"):
        environment = {**os.environ, "TORCH_LOGS": asked}
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)

        assert ran.stdout == "2.0\n"
        assert re.search("graph_breaks +where a recording ended", ran.stderr)
        assert ("bytecode" in ran.stderr) == (asked == "+help")


@pytest.mark.oracle
def test_what_is_no_setting_is_refused_as_in_pytorch(oracle):
    cases = [{"dynamo": "x"}, {"dynamo": 15}, {"graph_code": 3}, {"foo": 3}, {"modules": {"no such": 10}}, {"onnx": True}]
    for case in cases:
        with pytest.raises((TypeError, ValueError)) as theirs:
            oracle._logging.set_logs(**case)
        with pytest.raises(theirs.type) as ours:
            fb._logging.set_logs(**case)
        assert type(ours.value) is type(theirs.value)


def test_the_environment_sets_levels_and_artifacts(fresh_python):
    program = (
        "import flambeau as fb, logging; names = ('_dynamo', 'onnx', 'export', 'fx');"
        "print([logging.getLogger('flambeau.' + n).level for n in names],"
        "fb._logging.getArtifactLogger('a', 'graph_code').isEnabledFor(10), fb._logging.getArtifactLogger('a', 'guards').isEnabledFor(10))"
    )

    shown = fresh_python("-c", program, TORCH_LOGS="+dynamo,-onnx,export,graph_code,+torch.fx")

    assert shown.split("\n")[0] == "[10, 40, 20, 10] True False"
    fresh_python("-c", "import flambeau", TORCH_LOGS="nonesuch", status=1)


def test_a_warning_is_logged_once(caplog):
    logger = logging.getLogger("flambeau.tests.once")
    for _ in range(3):
        fb._logging.warning_once(logger, "said %s", "once")

    assert [r.getMessage() for r in caplog.records] == ["said once"]


def test_an_artifact_of_which_there_is_nothing_to_show_says_so(caplog):
    with caplog.at_level(logging.WARNING):
        fb._logging.set_logs(ddp_graphs=True, graph_code=True)
        fb._logging.set_logs(ddp_graphs=True)
    fb._logging.set_logs()

    (record,) = caplog.records
    assert "ddp_graphs shows nothing in Flambeau: graphs are not cut" in record.getMessage()


def test_artifacts_that_count_as_written_are_those_that_something_writes():
    sources = Path(fb.__file__).parent.rglob("*.py")
    found = {name for path in sources for name in re.findall(r'getArtifactLogger\("[\w.]+", "(\w+)"\)', path.read_text(encoding="utf-8"))}

    assert found == fb._logging._WRITTEN.keys()

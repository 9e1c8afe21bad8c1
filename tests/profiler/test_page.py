"""The page of a profile, its tables and advice; the pages of documentation; and the command that profiles a script."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import flambeau as fb
from flambeau.autograd.profiler_util import EventList, FunctionEvent
from flambeau.profiler import _page, profile, record_function
from flambeau.utils.bottleneck import __main__ as bottleneck

nn = fb.nn
DOCS = Path(__file__).parent.parent.parent / "docs" / "profiler.md"
VOID = {"meta", "br"}


class Outline(HTMLParser):
    """Heads, and whether every element that begins also ends."""

    def __init__(self):
        super().__init__()
        self.open, self.heads, self.addresses = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.heads.append(data)


def outline(text):
    parser = Outline()
    parser.feed(text)
    parser.close()
    assert not parser.open
    return parser


def _everything():
    return profile(record_shapes=True, profile_memory=True, with_stack=True, with_flops=True, with_modules=True)


def test_pages_are_whole_and_need_nothing_else(tmp_path):
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    with _everything() as prof, record_function("<script>alert('&')</script>"):
        net(fb.ones(2, 8)).sum().backward()
    prof.export_html(str(tmp_path / "page.html"), title="a < b")
    text = (tmp_path / "page.html").read_text()
    found = outline(text)

    assert found.heads == ["What to look at", "By name", "By module", "By line", "Flame graph", "Timeline", "Memory"]
    assert not found.addresses
    assert "<script" not in text
    assert "<title>a &lt; b</title>" in text
    assert "Sequential_0.Linear_0" in text
    assert "AddmmBackward0" in text


def test_pages_of_long_profiles_are_bounded(tmp_path):
    x = fb.ones(2)
    with _everything() as prof:
        for i in range(6000):
            with record_function(f"a region with a name of its own {i}"):
                x + x
    prof.export_html(str(tmp_path / "page.html"))
    text = (tmp_path / "page.html").read_text()
    outline(text)

    assert len(text) < 800_000
    assert "of 12000 are shown" in text


def test_pages_say_what_was_not_recorded(tmp_path):
    with profile() as prof:
        fb.ones(2) + 1
    prof.export_html(str(tmp_path / "page.html"))
    text = (tmp_path / "page.html").read_text()
    outline(text)

    assert all(f"Give {name}=True" in text for name in ("with_modules", "with_stack", "profile_memory"))
    with pytest.raises(AssertionError, match="before exporting a page"):
        profile().export_html(str(tmp_path / "other.html"))


def test_tables_by_module_have_paths_and_calls():
    net = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 1)))
    with profile(with_modules=True) as prof:
        net(fb.ones(2, 8))
        net(fb.ones(2, 8))
    rows = {row.name: row for row in _page.by_module(prof.events())}

    assert set(rows) == {
        "Sequential_0", "Sequential_0.Linear_0", "Sequential_0.Sequential_1", "Sequential_0.Sequential_1.ReLU_0",
        "Sequential_0.Sequential_1.Linear_1",
    }  # fmt: skip
    assert all(row.calls == 2 and 0 < row.own <= row.total for row in rows.values())
    assert prof.module_table().splitlines()[2].startswith("Sequential_0 ")
    with pytest.raises(ValueError, match="with_stack=True"):
        prof.line_table()


def test_tables_by_line_count_backward_for_the_line_of_its_forward():
    x = fb.rand(100, 100, requires_grad=True)
    with profile(with_stack=True) as prof:
        line = sys._getframe().f_lineno + 1
        y = x @ x
        y.sum().backward()
    rows = {row.name: row for row in _page.by_line(prof.events())}
    product = rows[f"{__file__}({line}): test_tables_by_line_count_backward_for_the_line_of_its_forward"]
    backward = [e for e in prof.events() if e.name in ("MmBackward0", "MatmulBackward0")]

    assert len(backward) == 1
    assert backward[0].stack[0] == product.name
    assert product.calls == 2
    assert product.total > backward[0].cpu_time_total
    with pytest.raises(ValueError, match="with_modules=True"):
        profile().module_table()


def test_recursive_calls_are_counted_once():
    events = EventList([FunctionEvent(i, "f", 1, i, 100.0 - i) for i in range(3)])
    events._build_tree()

    assert _page.by_name(events) == [("f", 1, 100.0, 100.0, 0)]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ([("aten::mm", 0, 90)], "aten::mm took the most time itself: 90.000us in 1 calls, 90% of 100.000us"),
        ([("aten::mm", 0, 10)], "90% of the time lay between calls"),
        ([("enumerate(DataLoader)#x.__next__", 0, 50), ("aten::add", 60, 90)], "Loading data took 50% of the time"),
        ([("Optimizer.step#SGD.step", 0, 40), ("aten::add", 60, 90)], "Steps of optimizers took 40% of the time"),
        ([("aten::add", i / 20, i / 20 + 0.04) for i in range(2000)], "2000 calls took less than 5 us each"),
    ],
)
def test_advice_says_what_stands_out(names, says):
    events = EventList(
        [FunctionEvent(i, name, 1, begins, ends, is_user_annotation="#" in name) for i, (name, begins, ends) in enumerate(names)]
    )
    events._build_tree()

    assert any(sentence.startswith(says) for sentence in _page.advice(events, 100.0))


def test_advice_compares_with_the_peak_of_the_machine():
    event = FunctionEvent(0, "aten::mm", 1, 0.0, 1000.0, flops=10**9)
    events = EventList([event])
    events._build_tree()

    assert _page.advice(events, 1000.0, peak=4e12)[-1].endswith("25% of what a product of matrices reaches on this machine.")
    assert _page.measured_peak() > 1e7


def test_the_programs_of_the_page_run(tmp_path):
    space = {}
    for block in re.findall(r"^```python\n(.*?)^```", DOCS.read_text(), flags=re.MULTILINE | re.DOTALL):
        exec(block, space)


def test_scripts_are_summarized_by_both_profilers(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text("import sys\nimport flambeau as fb\nfb.ones(2) + 1\nprint('argument', *sys.argv[1:])\n")
    before = list(sys.argv), list(sys.path)
    bottleneck.main([str(script), "--flag", "3"])
    out = capsys.readouterr().out

    assert out.count("argument --flag 3") == 2
    assert "cProfile output" in out
    assert "aten::add" in out
    assert (sys.argv, sys.path) == before
    with pytest.raises(SystemExit, match="cannot read"):
        bottleneck.main([str(tmp_path / "absent.py")])

"""The page of a profile in a real browser: what is drawn, where, and in which colours."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau.profiler import _memory_profiler, profile, record_function

nn = fb.nn
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--window-size=1200,3000",
)  # fmt: skip

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser is installed")

# Put at the end of a copy of the page: what the browser has laid out, as text that can be read back.
LOOK = """<script>
const box = e => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom].map(Math.round); };
const all = s => [...document.querySelectorAll(s)];
const found = {
  heads: all("h2").map(e => [e.textContent, ...box(e)]),
  advice: all("li").map(e => e.innerText),
  tables: all("table").map(e => [box(e), [...e.querySelectorAll("tbody tr")].map(r => [...r.cells].map(c => c.innerText))]),
  drawings: all("svg").map(e => [e.getAttribute("aria-label"), box(e)]),
  bars: all("svg rect").map(e => [...box(e), e.closest("svg").getAttribute("aria-label"), e.parentElement.textContent]),
  areas: all("polygon").map(e => [getComputedStyle(e).fill, e.textContent]),
  axes: all(".axis").map(e => [box(e), e.innerText.split(/\\s+/)]),
  width: [document.documentElement.scrollWidth, document.documentElement.clientWidth],
};
const out = document.createElement("pre"); out.id = "found"; out.textContent = JSON.stringify(found); document.body.append(out);
</script>"""


def browse(folder: Path, *options: str) -> str:
    command = [str(BROWSER), *QUIET, f"--user-data-dir={folder / 'user'}", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return x + self.down(self.up(x).relu())


@pytest.fixture(scope="module")
def page(tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    net = nn.Sequential(Block(), Block(), nn.Linear(64, 4))
    optimizer = fb.optim.Adam(net.parameters())
    with profile(record_shapes=True, profile_memory=True, with_stack=True, with_flops=True, with_modules=True) as prof:
        for _ in range(3):
            with record_function("forward"):
                loss = net(fb.rand(512, 64)).square().mean()
            loss.backward()
            optimizer.step()
    prof.export_html(str(folder / "page.html"), title="Training")
    return folder / "page.html"


@pytest.fixture(scope="module")
def seen(page: Path) -> dict[str, Any]:
    looking = page.with_name("looking.html")
    looking.write_text(page.read_text().replace("</body>", LOOK + "</body>"))
    dumped = browse(page.parent, "--dump-dom", looking.as_uri())
    return json.loads(unescape(re.findall(r'<pre id="found">(.*?)</pre>', dumped, flags=re.DOTALL)[0]))


def test_sections_stand_below_each_other_and_fit_the_window(seen: dict[str, Any]) -> None:
    assert [head[0] for head in seen["heads"]] == [
        "What to look at", "By name", "By module", "By line", "Flame graph", "Timeline", "Memory",
    ]  # fmt: skip
    tops = [head[2] for head in seen["heads"]]
    assert tops == sorted(tops)
    assert seen["width"][0] <= seen["width"][1]
    assert [name for name, _ in seen["drawings"]] == ["flame graph", "timeline", "memory over time"]
    assert all(right - left > 900 and bottom - top > 15 for _, (left, top, right, bottom) in seen["drawings"])


def test_advice_is_in_sentences_with_the_share_of_the_measured_peak(seen: dict[str, Any]) -> None:
    advice = seen["advice"]

    assert all(sentence.endswith(".") for sentence in advice)
    assert any("% of what a product of matrices reaches on this machine" in sentence for sentence in advice)
    assert any(sentence.startswith("Memory was at most ") for sentence in advice)


def test_tables_have_modules_by_path_and_lines_with_their_text(seen: dict[str, Any]) -> None:
    by_name, by_module, by_line = [rows for _, rows in seen["tables"]]

    assert {"aten::linear", "AddmmBackward0", "forward", "Optimizer.step#Adam.step"} <= {row[0] for row in by_name}
    assert {"Sequential_0", "Sequential_0.Block_0", "Sequential_0.Block_0.Linear_0"} <= {row[0] for row in by_module}
    forward = next(row for row in by_line if row[0].split("\n")[0].endswith(": forward"))
    assert forward[0].split("\n")[1].strip() == "return x + self.down(self.up(x).relu())"
    assert int(forward[4]) > 0


def test_bars_lie_inside_their_drawings_and_below_what_they_ran_in(seen: dict[str, Any]) -> None:
    drawings = dict(seen["drawings"])
    for left, top, right, bottom, drawing, _ in seen["bars"]:
        around = drawings[drawing]
        assert around[0] - 1 <= left <= right <= around[2] + 1
        assert around[1] - 1 <= top < bottom <= around[3] + 1
    timeline = [bar for bar in seen["bars"] if bar[4] == "timeline"]
    forwards = [bar for bar in timeline if bar[5].startswith("forward")]
    products = [bar for bar in timeline if bar[5].startswith("aten::linear")]

    assert len(forwards) == 3
    assert products
    for left, top, right, *_ in products:
        assert any(f[0] - 1 <= left and right <= f[2] + 1 and f[1] < top for f in forwards)
    assert [len(words) for _, words in seen["axes"]] == [5, 5]


def test_memory_is_drawn_in_the_colours_of_its_owners(seen: dict[str, Any], page: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    kinds = {title.partition(":")[0] for _, title in seen["areas"]}
    assert {"parameter", "optimizer state", "activation", "gradient"} <= kinds
    browse(page.parent, f"--screenshot={page.with_suffix('.png')}", page.as_uri())
    pixels = np.asarray(image.open(page.with_suffix(".png")).convert("RGB"))
    left, top, right, bottom = dict(seen["drawings"])["memory over time"]
    inside = pixels[top:bottom, left:right].reshape(-1, 3)

    for kind in ("PARAMETER", "OPTIMIZER_STATE", "ACTIVATION", "GRADIENT"):
        color = _memory_profiler._COLORS[_memory_profiler.Category[kind]]
        wanted = [int(color[at : at + 2], 16) for at in (1, 3, 5)]
        assert (inside == wanted).all(1).sum() > 200, kind

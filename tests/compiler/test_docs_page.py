"""The page about compiled functions does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compile.md"


def test_the_programs_of_the_page_run() -> None:
    scope: dict[str, Any] = {"__name__": "page"}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), scope)


def test_the_page_says_what_each_setting_of_the_code_generator_means() -> None:
    from flambeau._inductor import config
    from flambeau._inductor._without_effect import WITHOUT_EFFECT

    text = PAGE.read_text().split("## Settings of `torch._inductor.config`")[1].split("\n## ")[0]
    tables = ["\n".join(row.split("|")[1] for row in part.splitlines() if row.startswith("| `")) for part in text.split("| settings |")]
    acting, others = [set(re.findall(r"`([\w.]+)`", table)) for table in tables]

    assert acting == set(config.names()) - set(WITHOUT_EFFECT)
    assert others <= set(WITHOUT_EFFECT)

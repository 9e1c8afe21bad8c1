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

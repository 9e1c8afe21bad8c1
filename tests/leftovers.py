"""What processes of tests may leave behind."""

from __future__ import annotations

import os
import re


def files_of_ended_processes() -> list[str]:
    """Files of shared memory whose maker is gone: a name has its number. Those of processes that live may be of tests beside this one."""
    named = [re.fullmatch(r"flambeau-(\d+)-.*", name) for name in os.listdir("/dev/shm")]
    return [match[0] for match in named if match and not os.path.exists(f"/proc/{match[1]}")]

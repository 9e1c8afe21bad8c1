"""Write framework/flambeau/aten_index.json: the operators of `torch.ops.aten` and their overloads, by name.

    python .ci/make_aten_index.py framework/flambeau/aten_index.json

An installed PyTorch is asked for the names of its operators, and for nothing else.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path


def main(out: str) -> None:
    import torch

    overloads = defaultdict(list)
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, name = full.partition("::")
        operator, _, overload = name.partition(".")
        if namespace == "aten":
            overloads[operator].append(overload or "default")
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(' '.join(found))}" for name, found in sorted(overloads.items()))
    Path(out).write_text("{\n" + lines + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])

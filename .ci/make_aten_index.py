"""Write framework/flambeau/aten_index.json, the operators of `torch.ops.aten` with their overloads and schemas, and their tags.

    python .ci/make_aten_index.py framework/flambeau/aten_index.json framework/flambeau/aten_tags.json

An installed PyTorch is asked for the names and schemas of its operators, for what is a composition of others to it, and which
overload a number goes to where tensors and numbers have overloads of their own. Of an operator the file has the overloads by name:
the schema without the name, after ``~`` if the overload is a composition, and after ``#`` if it takes numbers for tensors.
The other file has the overloads of each tag, and those that PyTorch has a decomposition of: in the table that programs ask, and
in the one that exported programs take by default.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any


def main(out: str, tags_out: str) -> None:
    import torch
    import torch.export

    write_tags(torch, tags_out)

    schemas = {f"{s.name}.{s.overload_name}" if s.overload_name else s.name: str(s) for s in torch._C._jit_get_all_schemas()}
    index: dict[str, dict[str, str]] = defaultdict(dict)
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, name = full.partition("::")
        operator, _, overload = name.partition(".")
        if namespace != "aten":
            continue
        schema = schemas.get(full)
        text = "" if schema is None else schema[schema.index("(") :]
        composed = torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd")
        index[operator][overload or "default"] = ("~" if composed else "") + text
    for operator, overloads in index.items():
        taken = _overload_of_numbers(torch, operator) if {"Tensor", "Scalar"} <= overloads.keys() else ""
        if taken == "Tensor":
            overloads["Tensor"] = "#" + overloads["Tensor"]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in sorted(index.items()))
    Path(out).write_text("{\n" + lines + "\n}\n", encoding="utf-8")


def write_tags(torch: Any, out: str) -> None:
    """Write the overloads of each tag, of `pt2_compliant_tag`, which nearly all have, those that lack it; and those with decompositions."""
    found: dict[str, list[str]] = defaultdict(list)
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, name = full.partition("::")
        operator, _, overload = name.partition(".")
        if namespace == "aten":
            tags = {tag.name for tag in getattr(getattr(torch.ops.aten, operator), overload or "default").tags}
            for tag in tags ^ {"pt2_compliant_tag"}:
                found[tag].append(f"{operator}.{overload or 'default'}")
    tables = {"decomposed": torch._decomp.decomposition_table, "decomposed by default": torch.export.default_decompositions()}
    for key, table in tables.items():
        found[key] = sorted([str(op).partition(".")[2] for op in table if str(op).startswith("aten.")])
    lines = ",\n".join(f'"{tag}": "{" ".join(names)}"' for tag, names in sorted(found.items()))
    Path(out).write_text("{\n" + lines + "\n}\n", encoding="utf-8")


def _overload_of_numbers(torch: Any, operator: str) -> str:
    """The overload that ``operator(tensor, 2)`` is seen as by a mode; "" if there is no such function."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    function = getattr(torch, operator, None) or getattr(torch.Tensor, operator, None)
    if function is None:
        return ""
    for tensor in (torch.ones(2), torch.ones(2, dtype=torch.int64)):
        try:
            with Mode():
                function(tensor, 2)
        except (TypeError, RuntimeError):
            continue
        return seen[0]._overloadname if seen and seen[0].overloadpacket.__name__ == operator else ""
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])

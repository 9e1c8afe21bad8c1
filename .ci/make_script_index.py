"""Write framework/flambeau/jit/script_index.json, the operators that scripts call and `torch.ops.aten` does not have.

    python .ci/make_script_index.py framework/flambeau/aten_index.json framework/flambeau/jit/script_index.json

An installed PyTorch is asked for the names and schemas of its operators. Of each operator in ``aten`` the file has, in the order in
which a script tries them, the overloads: a schema without its name, or "" if `aten_index.json` has it. Operators whose only
overload is there are left out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

# What a script says of its own: other names in `prim` belong to PyTorch's compilers.
_PRIM = (
    "abs device dtype data index is_cpu is_cuda is_sparse is_quantized is_meta itemsize layout max min name nbytes requires_grad "
    "is_nested rangelist type StringIndex EnumName EnumValue is_mkldnn is_xpu is_mps is_sparse_csr is_xla NumToTensor grad"
)
# Of any number of arguments, or of types that only the compiler of scripts has: it knows these calls itself.
_BY_COMPILER = ("...", "RRef(", "Future(", "__torch__.", "Await(")


def main(aten: str, out: str) -> None:
    import torch

    known = json.loads(Path(aten).read_text(encoding="utf-8"))
    names = sorted({s.name for s in torch._C._jit_get_all_schemas()})
    index: dict[str, dict[str, str]] = {}
    for name in names:
        namespace, _, operator = name.partition("::")
        if namespace != "aten" and not (namespace == "prim" and operator in _PRIM.split()):
            continue
        overloads = {}
        for schema in torch._C._jit_get_schemas_for_operator(name):
            text = str(schema)
            there = namespace == "aten" and (schema.overload_name or "default") in known.get(operator, {})
            if any(word in text for word in _BY_COMPILER):
                continue
            overloads[schema.overload_name or "default"] = "" if there else text[text.index("(") :]
        if len(overloads) > 1 or any(overloads.values()):
            index[name] = overloads
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in index.items())
    Path(out).write_text("{\n" + lines + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

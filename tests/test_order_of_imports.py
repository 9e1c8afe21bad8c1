"""Packages import from those before them in one order, inside functions too, so that each can be read without those behind it.

``python tests/test_order_of_imports.py`` lists the imports that go the other way.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import flambeau as fb

ROOT = Path(fb.__file__).parent

# The order that CONTRIBUTING.md tells, with the modules of each room; a package stands for all it holds that no other room names.
ORDER = {
    "kernels": "flambeau_kernels",
    "tensor": """
        tensor dtypes devices random version __future__ _arrays _dlpack _errors _inference
        _interpreters _kinds _logging _missing _names _no_device _on_demand _printing _shared_memory _state _streams _symbolic
        _tensor _tensor_str _html _warn utils._pytree _cuda
    """,
    "tape": "autograd.tape autograd.engine autograd.making autograd.reentrant",
    "ops": """
        ops storage types __config__ return_types _aten _ops _schema _settings _subclass _wrappers _tags _cuda.kernels
        utils._python_dispatch
    """,
    "autograd": "autograd amp fft func.batch_rules func.batching func.custom func.transforms func.vmap functional linalg special overrides",
    "nn": """
        nn optim utils distributions masked nested signal quasirandom hub serialization safetensors futures _files
        multiprocessing _over_tensor _jit_internal func
    """,
    # And what no other room names: fx, compiler, export, jit, onnx, distributed, cuda ...
    "graphs": """
        autograd._profiler_trace autograd._recorder autograd.profiler utils.bottleneck utils.mobile_optimizer
        utils.collect_env utils.debug_log utils.throughput_benchmark
        nn.intrinsic nn.parallel.distributed nn.qat nn.quantizable nn.quantized
    """,
    "swap": "swap __main__",
}
ROOMS = {module: rank for rank, modules in enumerate(ORDER.values()) for module in modules.split()}
REST = list(ORDER).index("graphs")

# Imports that go the other way, as "module > module", by why they do. This list only shrinks.
ALLOWED_FOR = {
    "a Tensor's own methods start the tape and the engine": """
        tensor > autograd.engine
        tensor > autograd.tape
    """,
    "what the first room offers under a Tensor's or a file's name is computed by later ones, when it is called": """
        storage > serialization
        tensor > _subclass
        tensor > _wrappers
        tensor > autograd
        tensor > ops._derive
        tensor > ops._dispatch
        tensor > ops.creation.new
        tensor > storage
    """,
    "streams and events of any kind of device are CUDA's where there is one": """
        _streams > cuda
    """,
    "a node shows what it has saved, and rules ask for gradients, by what programs use for that": """
        autograd.tape > autograd.graph
        ops._spec.history > autograd
        ops._spec.history > func.transforms
    """,
    "PyTorch has this module in `nn`; what it computes with is built behind it": """
        nn.modules.batchnorm > distributed.nn.functional
    """,
}
ALLOWED = frozenset(edge.strip() for edges in ALLOWED_FOR.values() for edge in edges.strip().splitlines())


def rank_of(module: str) -> int:
    """The place in `ORDER` of the room that `module` belongs to: that of the longest name it begins with."""
    parts = module.split(".")
    return next((ROOMS[name] for i in range(len(parts), 0, -1) if (name := ".".join(parts[:i])) in ROOMS), REST)


def modules() -> dict[str, Path]:
    """The path of each module, by its name within the package. The package itself hands on what the rooms have."""
    paths = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in ROOT.rglob("*.py")}
    found = {name.removesuffix(".__init__"): path for path, name in paths.items()}
    del found["__init__"]
    return found


def imported(text: str, package: str) -> Iterator[str]:
    """What imports of ours in a module of `package` name, as module or as module and name; those for type checkers do not count."""
    tree = ast.parse(text)
    for_checkers = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    unread = {id(n) for branch in for_checkers for n in ast.walk(branch)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or id(node) in unread:
            continue
        told = node.module.split(".") if node.module else []
        if node.level:
            parts = package.split(".") if package else []
            base = parts[: len(parts) - node.level + 1] + told
        elif told[0] == ROOT.name:
            base = told[1:]
        else:
            continue
        yield from (".".join([*base, alias.name]) for alias in node.names)


@functools.cache
def backwards() -> set[str]:
    """Every import of a room behind the importing one's."""
    known, found = modules(), set()
    for module, path in known.items():
        package = module if path.stem == "__init__" else module.rpartition(".")[0]
        for name in imported(path.read_text(encoding="utf-8"), package):
            target = name if name in known else name.rpartition(".")[0]
            if target and rank_of(target) > rank_of(module):
                found.add(f"{module} > {target}")
    return found


def test_imports_are_read_where_they_stand():
    text = (
        "from . import a\nfrom ..b import c\nfrom os import d\ndef f():\n    from ...d.e import g\n"
        "    from flambeau.i.j import k\nif TYPE_CHECKING:\n    from . import h\n"
    )

    assert list(imported(text, "x.y.z")) == ["x.y.z.a", "x.y.b.c", "x.d.e.g", "i.j.k"]


def test_a_module_belongs_to_the_room_that_names_it_most_closely():
    named = ["dtypes", "autograd.tape", "ops.pointwise.unary", "autograd.forward_ad", "nn.modules.conv", "fx.graph", "swap"]
    ranks = [rank_of(name) for name in named]

    assert ranks == sorted(set(ranks))


def test_rooms_import_from_those_before_them():
    new = backwards() - ALLOWED

    assert not new, f"these imports go against the order of CONTRIBUTING.md; move what they need to the earlier room: {sorted(new)}"


def test_the_list_of_imports_the_other_way_only_shrinks():
    gone = ALLOWED - backwards()

    assert not gone, f"these imports are gone; take them off the list: {sorted(gone)}"


if __name__ == "__main__":
    every = sorted(backwards(), key=lambda edge: [rank_of(part) for part in edge.split(" > ")])
    print("\n".join(every))
    print(len(every), "imports go the other way")

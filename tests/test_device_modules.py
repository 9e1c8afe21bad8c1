"""Every documented function of the modules of devices, called beside PyTorch's CPU build: the page of devices is what comes out.

``python tests/test_device_modules.py`` writes docs/device_modules.md anew.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import importlib
import inspect
import io
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import flambeau as fb
from flambeau import _missing

PAGE = Path(__file__).resolve().parent.parent / "docs" / "device_modules.md"
DEVICES = ("cpu", "cuda", "mps", "mtia", "xpu", "accelerator", "backends")
# Of the machine, or of the process: its outcome says nothing of the function.
PLANS = "torch.backends.cuda.cufft_plan_cache"  # its names are those of a device's, which it looks for
LEFT_OUT = {"torch.cuda._sanitizer.enable_cuda_sanitizer", "torch.backends.cpu.get_cpu_capability", PLANS}

# Arguments by the names of parameters that have no default; those not named are 0.
ARGUMENTS: dict[str, Callable[[Any], Any]] = {
    "new_state": lambda lib: lib.zeros(8, dtype=lib.uint8),
    "new_states": lambda lib: [lib.zeros(8, dtype=lib.uint8)],
    "fraction": lambda lib: 0.5,
    "tensor": lambda lib: lib.ones(2),
    "tensors": lambda lib: [lib.ones(2)],
    "inputs": lambda lib: [lib.ones(2)],
    "devices": lambda lib: [0],
    "s": lambda lib: lib.ones(2).untyped_storage(),
    "stream": lambda lib: None,
    "source": lambda lib: "kernel",
    "code_string": lambda lib: "template <typename T> T f(T x) { return x; }",
    "num_outputs": lambda lib: 1,
    "callables": lambda lib: lib.nn.Linear(2, 2),
    "sample_args": lambda lib: (lib.ones(2),),
    "filename": lambda lib: "absent.csv",
    "path_to_so_file": lambda lib: "absent.so",
    "alloc_fn_name": lambda lib: "take",
    "free_fn_name": lambda lib: "give",
    "obj": lambda lib: lib.ones(2),
    "msg": lambda lib: "text",
    "bwd": lambda lib: str,
    "params": lambda lib: lib.backends.cuda.SDPAParams(*[lib.ones(1, 1, 2, 2)] * 3, None, 0.0, False, False),
    "enabled": lambda lib: True,
    "_enabled": lambda lib: True,
    "val": lambda lib: True,
}  # fmt: skip

# Where both answer and the answers differ, or PyTorch's error is of another kind: why.
REASONS = {
    "a library that is not used here": ["backends.mkl.is_available", "backends.mkldnn.is_available", "backends.nnpack.is_available",
                                        "backends.nnpack.set_flags", "backends.openmp.is_available"],
    "text that does not fit is refused at once, not by the first call": ["cuda.jiterator._create_multi_output_jit_fn"],
    "not built: NotImplementedError says what to use": [
        "cuda.CUDAGraph", "cuda.graph", "cuda.graph_pool_handle", "cuda.make_graphed_callables", "cuda.CUDAPluggableAllocator",
    ],
    "there is nothing to collect": ["cuda.ipc_collect"],
    "a text says that no device is in use": ["cuda.memory_summary"],
    "the error names the device that is missing": ["cuda.ExternalStream", "cuda.tunable.mgpu_tune_gemm_in_file"],
    "the error names both arguments": ["cuda.comm.scatter"],
}  # fmt: skip
REASON_OF = {name: reason for reason, names in REASONS.items() for name in names}


class Outcome(NamedTuple):
    """What a call came to; `error` is what it raised."""

    text: str
    error: Exception | None = None
    warned: tuple[str, ...] = ()


class Row(NamedTuple):
    name: str
    theirs: Outcome
    ours: Outcome


def resolve(lib: Any, name: str) -> Any:
    """What `name`, which begins with ``torch.``, is in `lib`."""
    found, path = lib, lib.__name__
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)
    return found


def documented() -> list[str]:
    """The documented functions and values of the modules of devices, as they are named after ``torch.``."""
    listed = _missing._index()["names"]
    homes = [home for home in listed if home.split(".")[1:2] and home.split(".")[1] in DEVICES]
    return sorted({f"{home}.{name}" for home in homes for name in listed[home].split()} - LEFT_OUT)


def outcome(lib: Any, name: str, wanted: list[str]) -> Outcome:
    """What calling `name` comes to in `lib`, with an argument for each of the names in `wanted`."""
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        try:
            found = resolve(lib, name)
            result = found(*[ARGUMENTS.get(each, lambda lib: 0)(lib) for each in wanted]) if callable(found) else found
        except Exception as error:  # which kind it is, is the question
            return Outcome(f"raises {public_name(error)}", error.with_traceback(None))
    kinds = tuple(w.category.__name__ for w in caught)
    return Outcome(f"`{told(lib, result)}`" + "".join(f", {kind}" for kind in kinds), None, kinds)


def public_name(error: Exception) -> str:
    """The built-in type that users know `error` by."""
    return next(kind.__name__ for kind in type(error).__mro__ if getattr(builtins, kind.__name__, None) is kind)


def told(lib: Any, value: Any) -> str:
    """`value` in a few words; objects by the name of their class."""
    if isinstance(value, lib.Tensor):
        return f"a tensor of {value.numel()}"
    if isinstance(value, (list, tuple)) and value and not hasattr(value, "_fields"):
        return ", ".join(told(lib, each) for each in value)
    text = repr(value).replace("flambeau", "torch")
    made = re.match(r"<(?:[\w.]+\.)?(\w+) object|<(?:function|built-in).*|functools", text)
    if made:
        return made[1] and made[1].strip("_") or "a function"
    return text.replace("|", "/")


def rows(oracle: Any) -> list[Row]:
    """All functions that both have. A function is called with what PyTorch's demands."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None  # objects of PyTorch that were never whole complain when they end
    try:
        return _rows(oracle)
    finally:
        gc.collect()
        sys.unraisablehook = before


def _rows(oracle: Any) -> list[Row]:
    found = []
    for name in documented():
        try:
            theirs = None if name.startswith(PLANS + ".") else resolve(oracle, name)
        except ModuleNotFoundError:  # PyTorch has given it up since
            continue
        if isinstance(theirs, ModuleType) or theirs is not None and inspect.isclass(resolve(oracle, name.rpartition(".")[0])):
            continue
        wanted = required(theirs)
        found.append(Row(name.removeprefix("torch."), outcome(oracle, name, wanted), outcome(fb, name, wanted)))
    return found


def required(function: Any) -> list[str]:
    if not callable(function):
        return []
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of C, without a signature
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def verdict(row: Row) -> str:
    """'same', why not, or 'differs'."""
    if row.theirs.text == row.ours.text:
        return "same"
    if row.name in REASON_OF:
        return REASON_OF[row.name]
    theirs, ours = row.theirs.error, row.ours.error
    if isinstance(theirs, AttributeError) and "torch._C" in str(theirs) or "dummy base class" in str(theirs):
        # An answer that fits no device, or the error of every other call without one.
        return "PyTorch's build lacks the function" if ours is None or isinstance(ours, RuntimeError) else "differs"
    if theirs is not None and ours is not None and isinstance(ours, getattr(builtins, public_name(theirs))):
        return "same"  # an error of both types
    return "differs"


INTRODUCTION = """# Functions of device modules, beside PyTorch

Every documented function of `cpu`, `cuda`, `mps`, `mtia`, `xpu`, `accelerator` and `backends`, called on a machine without such a device,
by PyTorch's CPU build and by Flambeau. `tests/test_device_modules.py` makes the calls and this page. Questions have PyTorch's answers;
actions raise its type of exception. [Devices](devices.md) says what the modules are for.

A CUDA function that needs a device raises an error that is a RuntimeError and an AssertionError: PyTorch raises the second where it was
built without CUDA, the first where it finds no device.
"""


def page(found: list[Row]) -> str:
    """docs/device_modules.md."""
    lines = [INTRODUCTION]
    for device in DEVICES:
        there = [row for row in found if row.name.split(".")[0] == device]
        same = [row for row in there if verdict(row) == "same"]
        lines += [f"## {device}\n", f"{len(same)} of {len(there)} are the same:\n", "| call | both |", "|---|---|"]
        lines += [f"| `{row.name}` | {row.theirs.text} |" for row in same]
        if len(same) < len(there):
            lines += ["\nThe others:\n", "| call | PyTorch | Flambeau | why |", "|---|---|---|---|"]
            lines += [f"| `{row.name}` | {row.theirs.text} | {row.ours.text} | {verdict(row)} |" for row in there if row not in same]
        lines.append("")
    return "\n".join(lines)


@pytest.mark.oracle
@pytest.mark.skipif(fb.cuda.is_available(), reason="there is a CUDA device")
def test_modules_of_devices_answer_as_pytorch_without_them(oracle: Any) -> None:
    if oracle.version.cuda is not None or oracle.version.hip is not None:
        pytest.skip("the page is about PyTorch's CPU build")
    found = rows(oracle)

    assert [row for row in found if verdict(row) == "differs"] == []
    assert len(found) > 250
    assert PAGE.read_text() == page(found), "run: python tests/test_device_modules.py, and look at the difference"


def test_calls_that_need_cuda_raise_the_types_of_both_kinds_of_pytorch() -> None:
    if fb.cuda.is_available():
        pytest.skip("there is a CUDA device")
    for call in (fb.cuda.current_device, fb.ones(1).cuda, fb.nn.Linear(1, 1).cuda):
        for kind in (AssertionError, RuntimeError):
            with pytest.raises(kind, match=r"flambeau\[cuda\]"):
                call()


if __name__ == "__main__":
    import torch

    PAGE.write_text(page(rows(torch)))


def test_the_engine_of_quantized_operators_is_checked_and_kept(oracle):
    def asked(lib):
        module, found = lib.backends.quantized, []
        before = module.engine
        found.append((before, sorted(module.supported_engines)))
        for name in ("qnnpack", "none", "other", 3):
            try:
                module.engine = name
            except RuntimeError as error:
                found.append(str(error))
            found.append(module.engine)
        module.engine = before
        with pytest.raises(RuntimeError, match="Assignment not supported"):
            module.supported_engines = []
        return found

    assert asked(fb) == asked(oracle)


def test_switches_of_old_warnings_are_kept(oracle):
    def asked(lib):
        module, found = importlib.import_module(f"{lib.__name__}.utils.backcompat"), []
        for switch in (module.broadcast_warning, module.keepdim_warning):
            before, switch.enabled = switch.enabled, True
            found.append((before, switch.enabled))
            with pytest.raises(RuntimeError) as error:
                switch.enabled = 1
            found.append(str(error.value))
            switch.enabled = before
        return found

    assert asked(fb) == asked(oracle)

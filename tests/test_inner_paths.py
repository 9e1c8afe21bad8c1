"""Modules that programs import beside the documentation: all of their own names that PyTorch's have are found under the swap."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import warnings

import pytest

from flambeau.swap import _paths

# By the module that has no other: each of those in `_paths` is looked at as well.
MODULES = """
    torch.accelerator.memory torch.backends.kleidiai torch.backends.miopen torch.backends.xnnpack torch.cuda.nccl torch.cuda.nvtx
    torch.ao.quantization.quant_type torch.ao.quantization.quantize_jit torch.nn.intrinsic.modules.fused
    torch.nn.intrinsic.qat.modules.linear_relu torch.nn.intrinsic.quantized.dynamic.modules torch.nn.qat.dynamic.modules.linear
    torch.nn.quantizable.modules.activation torch.nn.quantized.dynamic.modules.rnn torch.nn.quantized.modules.functional_modules
    torch.quantization.fuse_modules torch.quantization.quant_type torch.quantization.quantize torch.quantization.quantize_fx
    torch.quantization.quantization_mappings
"""
# Names that mean nothing to programs, and modules of a later PyTorch's devices.
LEFT_OUT = {
    "torch.ao.nn.intrinsic.quantized.modules.conv_add": {"ConvAdd2d", "ConvAddReLU2d"},
    "torch.accelerator.graphs": {"Graph"},
    # Makes what only PyTorch's kernels read.
    "torch.ao.nn.quantized.dynamic.modules.rnn": {"pack_weight_bias"},
    "torch.nn.quantized.dynamic.modules.rnn": {"pack_weight_bias"},
}
IMPORTED = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
lacking = {}
for module, names in json.load(sys.stdin).items():
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        lacking[module] = str(error)
        continue
    missing = [name for name in names if not hasattr(found, name)]
    if missing:
        lacking[module] = missing
print(json.dumps(lacking))
"""


def own_names(module):
    """The names that PyTorch's module itself defines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = importlib.import_module(module)
    listed = set(getattr(found, "__all__", ()))
    defined = {name for name, value in vars(found).items() if getattr(value, "__module__", None) == module and name[0] != "_"}
    return sorted((listed | defined) - LEFT_OUT.get(module, set()))


def test_names_of_inner_modules_are_those_of_torch():
    pytest.importorskip("torch")
    wanted = {module: own_names(module) for module in sorted({*MODULES.split(), *_paths.INNER})}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], input=json.dumps(wanted), capture_output=True, text=True, timeout=300,
        env={**os.environ, "FLAMBEAU_AS_TORCH": "1"},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}
    assert sum(map(len, wanted.values())) > 100

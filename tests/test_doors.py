"""What other people's programs ask of the name of torch, group by group: names that are there, and what they do."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

NAMES = {
    "scripts": """
        jit.script jit.ignore jit.unused jit.export jit.is_scripting jit.is_tracing jit.ScriptModule jit.script_if_tracing jit._overload
        jit._overload_method jit.annotations
    """,
    "graphs": """
        fx.Proxy fx.Node fx.Graph fx.GraphModule fx.wrap _subclasses.FakeTensor _subclasses.fake_tensor.is_fake
        fx.experimental.proxy_tensor.get_proxy_mode export.export
    """,
    "private modules": """
        utils._pytree.register_pytree_node utils._pytree.tree_flatten utils._pytree.tree_unflatten utils._pytree.tree_map
        utils._pytree.tree_map_only utils._pytree.tree_flatten_with_path utils._pytree.tree_map_with_path utils._pytree.keystr
        utils._pytree.treespec_dumps utils._pytree.treespec_loads utils._pytree.LeafSpec utils.hooks.RemovableHandle
        _utils._get_device_index _C._log_api_usage_once _C._get_tracing_state _C._nn._parse_to _C._TensorMeta
        _C.DisableTorchFunctionSubclass _C._disabled_torch_function_impl _C.DispatchKeySet nn.common_types._size_2_t nn.factory_kwargs
        nn.grad.conv2d_weight _tensor_str.PRINT_OPTS utils.data.dataloader._BaseDataLoaderIter
        utils.data.dataloader._SingleProcessDataLoaderIter utils.data.dataloader._MultiProcessingDataLoaderIter
        _jit_internal.boolean_dispatch storage._load_from_bytes
    """,
    "compiling": """
        compile compiler.disable compiler.allow_in_graph compiler.is_compiling compiler.assume_constant_result _dynamo.disable
        _dynamo.allow_in_graph _dynamo.is_compiling _dynamo.mark_dynamic _dynamo.mark_static _dynamo.mark_static_address
        _dynamo.assume_constant_result _dynamo.OptimizedModule
    """,
    "rooms": """
        onnx.is_in_onnx_export onnx.symbolic_helper.parse_args distributed.is_available distributed.is_initialized nn.DataParallel
        nn.parallel.DistributedDataParallel distributed.tensor.DTensor multiprocessing.spawn ops.aten.add.Tensor ops.load_library hub.load
        library.Library utils.model_zoo.load_url ao.quantization.QuantStub ao.quantization.DeQuantStub futures.Future
        utils.tensorboard.SummaryWriter utils.flop_counter.FlopCounterMode profiler.profile cuda.CUDAGraph cuda.graph
        cuda.get_rng_state_all cuda.set_rng_state_all SymInt SymFloat OutOfMemoryError newaxis spmm serialization.MAP_LOCATION
    """,
    "functions": """
        embedding_bag bilinear cosine_similarity pdist pairwise_distance ctc_loss kl_div lstm gru rnn_tanh rnn_relu native_dropout
        segment_reduce binary_cross_entropy_with_logits cosine_embedding_loss hinge_embedding_loss margin_ranking_loss poisson_nll_loss
        triplet_margin_loss fake_quantize_per_tensor_affine fake_quantize_per_channel_affine
    """,
}  # fmt: skip
# Each prints what follows it.
BEHAVIOUR = {
    "arguments have numpy's names": (
        "x = torch.ones(2, 3)\n"
        "print(x.sum(axis=0).tolist(), torch.sum(a=x, axis=1, keepdims=True).tolist(), torch.exp(x=x * 0).sum().item(),\n"
        "    torch.add(x1=x, x2=x).sum().item())",
        "[2.0, 2.0, 2.0] [[3.0], [3.0]] 6.0 12.0",
    ),
    "files are read as data, and a class that cannot be built so is named": (
        "import io, pickle, uuid\n"
        "def read(what):\n"
        "    file = io.BytesIO(); torch.save(what, file); file.seek(0)\n"
        "    return torch.load(file, weights_only=False)\n"
        "print(read({'w': torch.ones(2)})['w'].tolist())\n"
        "try: read(uuid.UUID(int=1))\n"
        "except pickle.UnpicklingError as error:\n"
        "    print(*(word in str(error) for word in ('uuid.UUID', 'add_safe_globals', 'allow_unsafe_pickle',\n"
        "        'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD')))",
        "[1.0, 1.0] True True True True",
    ),
    "settings, paths, dates and decimal numbers of a checkpoint are data": (
        "import argparse, datetime, decimal, io, pathlib, types\n"
        "kept = [argparse.Namespace(rate=0.5), types.SimpleNamespace(a=1), pathlib.PurePosixPath('a/b'), decimal.Decimal('1.5'),\n"
        "    datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc), datetime.timedelta(3), datetime.date(2020, 1, 2)]\n"
        "for protocol in 2, 5:\n"
        "    file = io.BytesIO(); torch.save(kept, file, pickle_protocol=protocol); file.seek(0)\n"
        "    print(torch.load(file, weights_only=False) == kept, end=' ')\n"
        "file.seek(0)\n"
        "try: torch.load(file)\n"
        "except Exception as error: print('argparse.Namespace' in str(error))",
        "True True True",
    ),
    "modes see functions that a program used before it had any": (
        "torch.ones(1); torch.randn(1)\n"
        "from torch._subclasses.fake_tensor import FakeTensorMode, is_fake\n"
        "from torch.overrides import TorchFunctionMode\n"
        "class Names(TorchFunctionMode):\n"
        "    def __torch_function__(self, func, types, args=(), kwargs=None):\n"
        "        print(func.__name__, end=' ')\n"
        "        return func(*args, **(kwargs or {}))\n"
        "with Names(): torch.ones(1); torch.randn(1)\n"
        "with FakeTensorMode(): print(is_fake(torch.ones(2)))",
        "ones randn True",
    ),
    "modules below one that is no package are imported": (
        "import torch.cpu.amp.autocast_mode\n"
        "from torch.cuda.amp.grad_scaler import GradScaler, OptState\n"
        "print(hasattr(torch.cuda.amp, 'autocast_mode'), GradScaler is torch.cuda.amp.GradScaler,\n"
        "    OptState is torch.amp.grad_scaler.OptState)",
        "True True True",
    ),
    "whether casts are on is answered for any device": (
        "print(*(torch.is_autocast_enabled(d) for d in ('cpu', 'cuda', 'xpu', 'mps')))",
        "False False False False",
    ),
    "an optimizer may leave out the constructor of its class": (
        "class Mine(torch.optim.Optimizer):\n"
        "    def __init__(self): self.param_groups = []\n"
        "print(Mine().param_groups)",
        "[]",
    ),
    "a dataset may give a tuple of batches": (
        "class Lines(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 4\n"
        "    def __getitems__(self, at): return torch.tensor(at), torch.tensor(at) * 2\n"
        "loader = torch.utils.data.DataLoader(Lines(), 2, collate_fn=lambda batch: batch)\n"
        "print([[part.tolist() for part in batch] for batch in loader])",
        "[[[0, 1], [0, 2]], [[2, 3], [4, 6]]]",
    ),
    "an array of a tensor is the caller's": (
        "t = torch.zeros(4); a = t.numpy(); a.shape = 2, 2; a.flags.writeable = False; t.add_(1)\n"
        "print(tuple(t.shape), a.sum(), hasattr(t, '__array_interface__'))",
        "(4,) 4.0 False",
    ),
    "from_dlpack takes a device and copies": (
        "t = torch.ones(2); made = torch.from_dlpack(t, device='cpu', copy=True); t.zero_(); print(made.tolist())",
        "[1.0, 1.0]",
    ),
    "a scripted module is saved and loaded": (
        "import io\n"
        "model = torch.jit.script(torch.nn.Linear(2, 1)); file = io.BytesIO(); torch.jit.save(model, file); file.seek(0)\n"
        "print(torch.equal(torch.jit.load(file)(torch.ones(3, 2)), model(torch.ones(3, 2))))",
        "True",
    ),
    "operators are hashed and called": (
        "add = torch.ops.aten.add.Tensor; print({add: 1}[add], add(torch.ones(1), torch.ones(1), alpha=2).item())",
        "1 3.0",
    ),
}  # fmt: skip


def _run(program: str, *, report: bool = False) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "FLAMBEAU_AS_TORCH": "1", **({"FLAMBEAU_SWAP_REPORT": "1"} if report else {})}
    done = subprocess.run([sys.executable, "-P", "-c", program], env=settings, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done


@pytest.mark.parametrize("group", NAMES)
def test_names_that_programs_ask_for_are_there(group: str) -> None:
    program = f"""
import importlib, json, torch
def found(name):
    thing = torch
    for part in name.split("."):
        if not hasattr(thing, part):
            try: importlib.import_module(f"{{thing.__name__}}.{{part}}")
            except (ImportError, AttributeError): return False
        thing = getattr(thing, part)
    return True
print(json.dumps([name for name in {NAMES[group].split()!r} if not found(name)]))
"""

    assert json.loads(_run(program).stdout) == []


@pytest.mark.parametrize("behaviour", BEHAVIOUR)
def test_programs_find_the_behaviour_they_rely_on(behaviour: str) -> None:
    program, printed = BEHAVIOUR[behaviour]

    assert _run("import torch, torch.utils.data\n" + program).stdout.split() == printed.split()


def test_the_report_tells_looks_from_failures_and_names_of_later_releases() -> None:
    program = """
import importlib.util, torch
hasattr(torch, "looked_for_only")
importlib.util.find_spec("torch.looked_for_too")
try: torch.asked_in_vain
except AttributeError: pass
try: torch.backends.cuda.blas_workspace_size
except AttributeError: pass
"""
    said = _run(program, report=True).stderr

    failed, _, looked = said.partition("looked for and not there")
    assert "torch.asked_in_vain" in failed
    assert "torch.looked_for_only" in looked
    assert "torch.looked_for_too" in looked
    assert "torch.backends.cuda.blas_workspace_size  (in PyTorch 2.13, not in 2.7's documentation, not built; docs page " in failed


def test_dir_lists_what_modules_make_when_asked() -> None:
    asked = ("hub", "utils.model_zoo", "_tensor_str", "ops")
    program = f"import torch, importlib; print([n for m in {asked!r} for n in dir(getattr(torch, m, None) or " \
        "importlib.import_module('torch.' + m)) if n in ('PRINT_OPTS', 'aten', 'prims')])"

    assert _run(program).stdout.strip() == "['PRINT_OPTS', 'aten', 'prims']"


@pytest.mark.parametrize("name", ["flambeau", "torch"])
def test_classes_and_functions_are_found_by_name_in_the_dict_of_their_module(fresh_python, name):
    program = f"""
import sys
import {name} as fb
assert "flambeau.nn.modules.rnn" not in sys.modules and "flambeau.optim.adam" not in sys.modules
assert "LSTM" in fb.nn.__dict__ and fb.optim.__dict__["Adam"] is fb.optim.Adam
assert vars(fb.nn.modules)["Conv2d"] is fb.nn.Conv2d
for module, known in (fb.nn.functional, "gelu"), (fb.linalg, "svd"), (fb.fft, "rfft"), (fb.special, "erfinv"):
    assert vars(module)[known] is getattr(module, known)
assert sorted(n for n in vars(fb.optim) if n[0].isupper() and n != "TYPE_CHECKING") == sorted(n for n in fb.optim.__all__ if n[0].isupper())
"""
    fresh_python("-c", program, **({"FLAMBEAU_AS_TORCH": "1"} if name == "torch" else {}))

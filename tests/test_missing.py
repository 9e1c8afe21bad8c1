"""What PyTorch documents and Flambeau lacks, asked of tensors."""

from __future__ import annotations

import sys

import pytest

import flambeau as fb
from flambeau import _missing, swap
from flambeau.ops import _derive, _index


@pytest.fixture(autouse=True)
def _nothing_asked_before(monkeypatch):
    """A report of its own for each test, which leaves that of the process alone."""
    monkeypatch.setattr(_missing, "_asked", {})


@pytest.fixture
def _without_alignment(monkeypatch):
    """Methods that are documented, as if they were not built."""
    for name in _UNBUILT:
        monkeypatch.setattr(fb.Tensor, name, _derive._Unbuilt(name))


_UNBUILT = ("align_as", "align_to", "refine_names", "rename", "rename_")


@pytest.mark.usefixtures("_without_alignment")
def test_attributes_that_are_not_built_say_so_with_their_docs_page():
    with pytest.raises(AttributeError, match=r"torch\.Tensor\.align_to is not built yet \(PyTorch docs page \S+\)"):
        fb.ones(2).align_to  # noqa: B018  # asking is the test
    with pytest.raises(AttributeError, match=r"torch\.Tensor\.align_to is not built yet"):
        fb.Tensor.align_to  # noqa: B018  # asking is the test
    assert not hasattr(fb.Tensor, "align_to")


@pytest.mark.usefixtures("_without_alignment")
def test_the_report_names_the_line_that_asked():
    line = sys._getframe().f_lineno + 1
    asked = hasattr(fb.ones(2), "rename")

    assert not asked
    assert ("torch.Tensor.rename", __file__, line) in [(a.feature, a.file, a.line) for a in swap.report()]


def test_other_names_are_plain_attribute_errors():
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'nonsense'"):
        fb.ones(2).nonsense  # noqa: B018  # asking is the test

    assert "torch.Tensor.nonsense" not in [a.feature for a in swap.report()]


def test_unbuilt_attributes_are_not_listed_and_may_be_set():
    tensor = fb.ones(2)
    assert not set(_index.UNBUILT) & {*dir(tensor), *dir(fb.Tensor)}

    tensor.align_to = 3

    assert tensor.align_to == 3


def test_a_subclass_may_define_what_tensor_lacks():
    class Named(fb.Tensor):
        @property
        def align_to(self):
            return "affine"

    assert fb.ones(2).as_subclass(Named).align_to == "affine"


def test_a_star_import_brings_every_function_and_no_module() -> None:
    scope: dict[str, object] = {}

    exec("from flambeau import *", scope)

    for name in ("zeros", "randn", "add", "relu_", "float32", "Tensor", "FloatTensor", "LongStorage", "manual_seed", "pi", "load"):
        assert scope[name] is getattr(fb, name)
    assert not {"nn", "optim", "Any", "TYPE_CHECKING"} & set(scope)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("autograd", "grad"), ("autograd.forward_ad", "make_dual"), ("autograd.grad_mode", "no_grad"), ("special", "erf"),
        ("fft", "rfft"), ("fft", "fftfreq"), ("linalg", "solve"), ("linalg", "LinAlgError"), ("signal.windows", "hann"),
        ("nn", "Linear"), ("nn.functional", "relu"), ("nn.functional", "mse_loss"), ("storage", "UntypedStorage"),
    ],
)  # fmt: skip
def test_a_star_import_brings_the_names_that_are_found_on_first_use(module: str, name: str) -> None:
    scope: dict[str, object] = {}

    exec(f"from flambeau.{module} import *", scope)

    assert name in scope
    assert "Any" not in scope


def test_names_of_a_later_pytorch_are_told_from_names_of_none():
    with pytest.raises(AttributeError, match=r"torch\.optim\.Muon is in PyTorch 2\.\d+, not in 2\.7's documentation, and not built"):
        raise _missing.attribute_error("flambeau.optim", "Muon")
    with pytest.raises(AttributeError, match=r"torch\.optim\.Nonsense is not in PyTorch 2\.7's public API"):
        raise _missing.attribute_error("flambeau.optim", "Nonsense")
    assert _missing.is_newer("torch.hash_tensor")
    assert not _missing.is_newer("torch.add")


def test_the_report_tells_looks_from_uses():
    hasattr(fb.jit, "parallelize")
    with pytest.raises(AttributeError):
        fb.jit.parallelize  # noqa: B018  # asking is the test

    found = [(asked.feature, asked.how) for asked in swap.report()]

    assert found == [("torch.jit.parallelize", "looked for"), ("torch.jit.parallelize", "used")]
    assert str(swap.report()).splitlines()[0] == "flambeau.swap: 1 used and not there"


def test_a_submodule_that_is_imported_by_from_is_not_reported_as_missing(fresh_python):
    code = """
import flambeau.swap; flambeau.swap.install()
import importlib
from torch.onnx import symbolic_opset11
from torch.ao import quantization
importlib.import_module("torch.compiler._functions")
print(flambeau.swap.report())
"""
    assert fresh_python("-c", code).strip() == "flambeau.swap: everything the program asked of torch was there"


@pytest.mark.usefixtures("_without_alignment")
def test_a_line_of_the_report_stands_for_a_line_of_the_program():
    for name in _UNBUILT:
        assert not hasattr(fb.Tensor, name)

    printed = str(swap.report()).splitlines()

    assert printed[0] == "flambeau.swap: 5 looked for and not there"
    assert len(printed) == 2
    assert printed[1].startswith("  torch.Tensor.align_as, torch.Tensor.align_to, torch.Tensor.refine_names and 2 more  (docs page ")


def test_the_report_names_the_programs_line_and_not_that_of_importlib(fresh_python):
    code = """
import flambeau.swap; flambeau.swap.install()
import importlib
try:
    importlib.import_module("torch.nothing_of_this_name")
except ModuleNotFoundError:
    print(*[(asked.file, asked.line) for asked in flambeau.swap.report()])
"""
    assert fresh_python("-c", code).strip() == "('<string>', 5)"


def test_looking_for_a_name_that_is_not_there_imports_no_operations(fresh_python):
    code = (
        "import sys, flambeau as fb\n"
        "functional = fb.nn.functional\n"
        "hasattr(fb, 'ones'), hasattr(functional, 'relu')\n"
        "before = set(sys.modules)\n"
        "print(hasattr(fb, 'float4_of_later'), hasattr(functional, 'product_of_later'))\n"
        "print(sorted(name for name in sys.modules if name.startswith('flambeau.ops') and name not in before))\n"
    )
    assert fresh_python("-c", code).split("\n")[:2] == ["False False", "[]"]


def test_names_that_are_made_when_they_are_asked_for_are_listed(fresh_python) -> None:
    """Completion in notebooks offers them before their first use."""
    listed = fresh_python(
        "-c",
        "import flambeau as fb\n"
        "for module in fb, fb.nn, fb.cuda, fb.fx, fb.distributed:\n"
        "    names = dir(module)\n"
        "    assert not [name for name in names if not hasattr(module, name)], module\n"
        "    assert set(getattr(module, '__all__', ())) <= set(names), module\n"
        "print(*dir(fb), *dir(fb.nn), *dir(fb.cuda), *dir(fb.fx), *dir(fb.distributed))",
    ).split()
    wanted = "zeros rand arange relu_ FloatTensor BFloat16Storage pi _foreach_add_ DataParallel CUDAGraph experimental rpc HalfTensor"

    assert not set(wanted.split()) - set(listed)


def test_dir_of_a_module_lists_what_it_makes_or_imports_when_it_is_asked(fresh_python) -> None:
    code = """
import flambeau as fb
import flambeau.quantization
wanted = {
    fb.nn.utils: "prune parametrize parametrizations stateless", fb.nn.parallel: "DistributedDataParallel", fb.onnx: "utils verification",
    fb.cpu: "amp", fb.sparse: "FloatTensor sum", fb.cuda.sparse: "HalfTensor", fb.jit: "frontend", fb.functional: "einsum cdist",
    fb.ao: "quantization nn", fb.ao.quantization: "fx backend_config", fb.quantization: "observer QConfig fake_quantize",
    fb.ao.quantization.backend_config: "get_fbgemm_backend_config", fb.return_types: "topk max linalg_eigh", fb.utils: "data checkpoint",
    fb.cuda.random: "manual_seed_all get_rng_state", fb._dynamo: "decorators", fb.cuda.memory: "MemPool _snapshot host_memory_stats",
}
for module, names in wanted.items():
    missing = set(names.split()) - set(dir(module))
    assert not missing, (module.__name__, missing)
    assert not [name for name in dir(module) if not hasattr(module, name)], module
"""
    fresh_python("-c", code)


def test_modules_have_no_names_that_nobody_gave_them() -> None:
    """`hasattr` was true of every name of `cuda.random`."""
    assert not hasattr(fb.cuda.random, "name_that_nobody_gave")
    assert fb.cuda.random.manual_seed_all is fb.cuda.manual_seed_all


@pytest.mark.parametrize("name", ["optim", "nn", "nn.modules"])
def test_the_namespace_of_a_module_is_whole_when_a_program_goes_through_it(fresh_python, name) -> None:
    code = f"""
import sys
import flambeau, flambeau.swap
flambeau.swap.install()
import torch, torch.nn, torch.optim
assert "flambeau.optim.asgd" not in sys.modules and "flambeau.nn.modules.transformer" not in sys.modules
module = torch.{name}
made = {{name for name, value in module.__dict__.items() if isinstance(value, type)}}
assert made >= ({{"SGD", "Adam", "ASGD", "LBFGS"}} if module is torch.optim else {{"Linear", "ReLU", "Transformer", "LSTM"}}), made
assert vars(module) is module.__dict__
module.Own = 3
assert module.__dict__["Own"] == 3
"""
    fresh_python("-c", code)

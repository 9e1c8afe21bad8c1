"""Flambeau under the name of torch, always in a fresh process.

Most tests put a tiny package in the place of Flambeau's own, so that they say what the swap does and nothing
else. None needs PyTorch; `STAND_IN` is what a real torch would be for them, an importable package so named.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FRAMEWORK, KERNELS = ROOT / "framework", ROOT / "kernels"

TINY = {
    "__init__.py": '''
        """A tiny framework."""
        __version__ = "0.1"
        pi = 3
        def double(x): return 2 * x
        def __getattr__(name):
            import importlib
            if name in ("nn", "optim"):
                return importlib.import_module(f"tiny.{name}")
            raise AttributeError(name)
    ''',
    "nn/__init__.py": "from . import functional\nfrom .modules import Linear, BatchNorm2d",
    "nn/functional.py": "def relu(x): return max(x, 0)",
    "nn/modules/__init__.py": "from .linear import Linear\nfrom .norm import BatchNorm2d",
    "nn/modules/linear.py": "class Linear: pass",
    "nn/modules/norm.py": "class BatchNorm2d: pass",
    "optim/__init__.py": "class SGD: pass",
    "utils/__init__.py": "",
    "utils/data/__init__.py": "class DataLoader: pass",
    "linalg.py": "import not_installed_anywhere",
    "swap.py": "",
}
STAND_IN = {"torch/__init__.py": "__version__ = '9.9'\nreal = True", "torch/nn/__init__.py": ""}

INSTALL = """
    from flambeau.swap._alias import Alias
    alias = Alias("torch", "tiny", "2.7.0+tiny", hidden=frozenset({"swap"}))
    alias.install()
"""


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))


@pytest.fixture
def tiny(tmp_path):
    """A folder to run in, with the package `tiny` on the path."""
    write(tmp_path / "path" / "tiny", TINY)
    return tmp_path


def run(folder: Path, *arguments: str, env: dict[str, str] | None = None, status: int = 0, stdin: str = ""):
    """Run Python in `folder`, with this checkout and `folder/path` importable."""
    path = os.pathsep.join(map(str, (FRAMEWORK, KERNELS, folder / "path")))
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FLAMBEAU_")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=kept | {"PYTHONPATH": path} | (env or {}),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stderr
    return done


def run_code(folder: Path, code: str, **options):
    return run(folder, "-c", textwrap.dedent(INSTALL) + textwrap.dedent(code), **options)


def told(folder: Path, code: str, **options):
    """What `code`, run under the swap, leaves in `said`."""
    done = run_code(folder, textwrap.dedent(code) + "\nimport json\nprint(json.dumps(said))", **options)
    return json.loads(done.stdout.splitlines()[-1])


# Imports


def test_every_form_of_import_gives_the_very_modules_of_the_package(tiny):
    said = told(
        tiny,
        """
        import torch
        import torch.nn.functional as F
        from torch import nn
        from torch.utils.data import DataLoader
        import tiny, tiny.nn.functional, tiny.utils.data, sys
        said = [
            torch.nn is tiny.nn is nn is sys.modules["torch.nn"],
            F is tiny.nn.functional is sys.modules["torch.nn.functional"],
            DataLoader is tiny.utils.data.DataLoader,
            torch.double is tiny.double,
            nn.__name__ == nn.__spec__.name == "tiny.nn",
        ]
        """,
    )

    assert said == [True] * 5


def test_attributes_reach_submodules_that_nobody_imported(tiny):
    assert told(tiny, "import torch; said = torch.utils.data.DataLoader.__module__") == "tiny.utils.data"


def test_a_module_imported_by_attribute_is_in_sys_modules_too(tiny):
    code = "import torch, sys; torch.nn; said = sorted(name for name in sys.modules if 'torch' in name)"

    assert told(tiny, code) == [
        "torch",
        "torch.nn",
        "torch.nn.functional",
        "torch.nn.modules",
        "torch.nn.modules.linear",
    ]


def test_install_imports_nothing(tiny):
    assert told(tiny, "import sys; said = [m for m in sys.modules if m.startswith(('torch', 'tiny'))]") == []


def test_names_that_are_not_there_are_searched_for_once(tiny):
    said = told(
        tiny,
        """
        import importlib.util, torch.nn.modules
        searched, find_spec = [], importlib.util.find_spec
        importlib.util.find_spec = lambda name: searched.append(name) or find_spec(name)
        said = [[hasattr(torch.nn.modules, "swish") for _ in range(3)], searched]
        """,
    )

    assert said == [[False, False, False], ["tiny.nn.modules.swish"]]


def test_packages_are_not_asked_again_for_names_they_have_refused(tiny):
    said = told(
        tiny,
        """
        import tiny, torch
        asked, own = [], tiny.__getattr__
        tiny.__getattr__ = lambda name: asked.append(name) or own(name)
        said = [[hasattr(torch, "swish") for _ in range(3)], asked.count("swish")]
        """,
    )

    assert said == [[False, False, False], 1]


def test_a_name_that_comes_after_it_was_refused_is_found(tiny):
    said = told(
        tiny,
        """
        import tiny, torch
        said = [hasattr(torch, "late"), hasattr(torch, "late")]
        tiny.late = 3
        said += [hasattr(torch, "late"), torch.late]
        """,
    )

    assert said == [False, False, True, 3]


def test_names_loaded_on_first_use_are_looked_up_once(tiny):
    said = told(
        tiny,
        """
        import torch
        first = "optim" in vars(torch)
        torch.optim
        said = [first, "optim" in vars(torch)]
        """,
    )

    assert said == [False, True]


def test_a_broken_dependency_is_not_taken_for_a_missing_feature(tiny):
    said = told(
        tiny,
        """
        import torch
        said = []
        for use in ("import torch.linalg", "torch.linalg"):
            try:
                exec(use)
            except ModuleNotFoundError as error:
                said.append(error.name)
        """,
    )

    assert said == ["not_installed_anywhere"] * 2


# Questions about torch


def test_module_facts_are_those_of_a_module_named_torch(tiny):
    said = told(
        tiny,
        """
        import torch, tiny
        said = [torch.__name__, torch.__package__, torch.__spec__.name, torch.__file__ == tiny.__file__,
                list(torch.__path__) == list(tiny.__path__), "double" in dir(torch), torch.__doc__]
        """,
    )

    assert said[:3] == ["torch", "torch", "torch"]
    assert said[3:] == [True, True, True, "A tiny framework."]


def test_version_is_one_everywhere_and_the_package_keeps_its_own(tiny):
    said = told(
        tiny,
        """
        import importlib.metadata as metadata
        early = metadata.version("torch")
        import torch, torch.version, tiny
        from torch.torch_version import TorchVersion
        said = [early, torch.__version__, torch.version.__version__, metadata.distribution("Torch").version,
                metadata.metadata("torch")["Version"]]
        assert type(torch.version.__version__) is str and type(torch.__version__) is TorchVersion
        assert torch.version.cuda is torch.version.hip is None
        assert metadata.distribution("torch").metadata["Name"] == "torch"
        assert metadata.packages_distributions()["torch"][0] == "torch"
        assert "torch" in [d.name for d in metadata.distributions()]
        assert tiny.__version__ == "0.1"
        """,
    )

    assert said == ["2.7.0+tiny"] * 5


def test_find_spec_answers_before_and_after_the_import(tiny):
    said = told(
        tiny,
        """
        from importlib.util import find_spec
        import sys
        names = ["torch", "torch.nn", "torch.utils.data", "torch.onnx", "torch.nn.nothing"]
        ask = lambda: [find_spec(name) is not None for name in names]
        top = find_spec("torch")
        said = [top.name, top.origin, "torch" in sys.modules, ask()]
        import torch.utils.data
        said += [torch.__spec__.origin, ask()]
        """,
    )

    assert said[0] == "torch"
    assert said[1] == said[4] == str(tiny / "path" / "tiny" / "__init__.py")
    assert said[2] is False
    assert said[3] == said[5] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("v > '2.6'", True),
        ("v >= '2.10'", False),  # as text it would be
        ("v < '2.10.1'", True),
        ("v > '2.7.0'", True),  # a local version is later than none
        ("v == '2.7.0+flambeau'", True),
        ("v == '2.7.0'", False),
        ("v >= (2, 7)", True),
        ("v < [3]", True),
        ("v > '2.7.0rc1' > '2.7.0.dev1'", True),
        ("v < 'abc'", True),
        ("v == None", False),
        ("hash(v) == hash(str(v))", True),
        ("v.split('+')[1]", "flambeau"),
    ],
)
def test_version_compares_as_a_version(question, answer):
    from flambeau.swap._version import TorchVersion

    assert eval(question, {"v": TorchVersion("2.7.0+flambeau")}) == answer


def test_version_does_not_compare_with_a_number():
    from flambeau.swap._version import TorchVersion

    with pytest.raises(TypeError, match="TorchVersion"):
        TorchVersion("2.7.0") > 2.6  # noqa: B015 - the comparison is the point


def test_version_order_is_that_of_the_packaging_library():
    version = pytest.importorskip("packaging.version").Version
    from flambeau.swap._version import TorchVersion

    texts = ["1", "1.0", "1.10", "1.9", "1.9.1", "2.0", "2.0.post1"]
    texts += ["2.0a1", "2.0b2", "2.0rc1", "2.0.dev3", "2.0a1.dev2", "2.0+cpu", "2.0+cu121", "2.0+7"]
    for a in texts:
        for b in texts:
            assert (TorchVersion(a) < b) == (version(a) < version(b)), (a, b)
            assert (TorchVersion(a) == b) == (version(a) == version(b)), (a, b)


# Pickles


def test_pickled_references_resolve_wherever_pytorch_keeps_the_class(tiny):
    said = told(
        tiny,
        """
        import pickle, tiny.nn, tiny.optim
        load = lambda module, name: pickle.loads(f"c{module}\\n{name}\\n.".encode())
        said = [load("torch.nn.modules.linear", "Linear") is tiny.nn.Linear,
                load("torch.nn.modules.batchnorm", "BatchNorm2d") is tiny.nn.BatchNorm2d,
                load("torch.optim.sgd", "SGD") is tiny.optim.SGD,
                load("torch.utils.data.dataloader", "DataLoader") is load("torch.utils.data", "DataLoader")]
        """,
    )

    assert said == [True] * 4


def test_modules_only_pytorch_has_are_reached_by_attribute_too(tiny):
    said = told(
        tiny,
        """
        import torch, flambeau.swap
        try:
            torch.nn.modules.batchnorm.Nothing
        except AttributeError as error:
            said = [torch.nn.modules.batchnorm.BatchNorm2d is torch.nn.BatchNorm2d, str(error)]
        said.append([asked.feature for asked in flambeau.swap.report()])
        """,
    )

    assert said[0] is True
    assert said[1].startswith("torch.nn.modules.batchnorm.Nothing is not in PyTorch")
    assert said[2] == ["torch.nn.modules.batchnorm.Nothing"]


def test_our_own_pickles_bear_our_own_names(tiny):
    assert told(tiny, "import pickle, torch; said = pickle.dumps(torch.nn.Linear, 0).decode()").startswith(
        "ctiny.nn.modules.linear\nLinear\n"
    )


def test_resources_of_torch_are_those_of_the_package(tiny):
    code = "import importlib.resources as r; said = r.files('torch').joinpath('linalg.py').is_file()"
    assert told(tiny, code) is True


# What is missing


def test_missing_attribute_names_the_feature_and_its_docs_page(tiny):
    said = told(
        tiny,
        """
        import torch
        said = []
        nn = torch.nn
        for owner, name in [(torch, "cdist"), (nn, "LSTM"), (nn.functional, "gelu"), (torch, "nonsense"),
                            (torch, "_dynamo"), (torch, "swap")]:
            try:
                getattr(owner, name)
            except AttributeError as error:
                said.append(str(error))
        """,
    )

    assert said == [
        "torch.cdist is not built yet (PyTorch docs page torch)",
        "torch.nn.LSTM is not built yet (PyTorch docs page torch.nn)",
        "torch.nn.functional.gelu is not built yet (PyTorch docs page torch.nn.functional)",
        "torch.nonsense is not in PyTorch 2.7's public API (nearest: PyTorch docs page torch)",
        "torch._dynamo is private to PyTorch and does not exist here (nearest: PyTorch docs page torch)",
        "torch.swap is not in PyTorch 2.7's public API (nearest: PyTorch docs page torch)",
    ]


@pytest.mark.parametrize(
    ("statement", "kind", "words"),
    [
        ("import torch.onnx", "ModuleNotFoundError", "named 'torch.onnx': torch.onnx is not built yet"),
        ("import torch.swap", "ModuleNotFoundError", "torch.swap is not in PyTorch"),
        ("from torch import fft", "ImportError", "name 'fft' from 'torch': torch.fft is not built yet"),
        ("from torch.nn import LSTM", "ImportError", "'LSTM' from 'torch.nn': torch.nn.LSTM is not"),
        ("from torch.nn.functional import gelu", "ImportError", "gelu"),
    ],
)
def test_missing_import_names_the_feature(tiny, statement, kind, words):
    said = told(
        tiny,
        f"""
        try:
            exec({statement!r})
        except ImportError as error:
            said = [type(error).__name__, str(error)]
        """,
    )

    assert said[0] == kind
    assert words in said[1]


def test_python_still_suggests_the_nearest_name(tiny):
    assert "Did you mean: 'double'" in run_code(tiny, "import torch; torch.doubel", status=1).stderr


def test_report_lists_feature_file_and_line_once(tiny):
    script = """
        import torch
        for _ in range(3):
            hasattr(torch, "cdist")
        hasattr(torch, "__wrapped__")
        try:
            import torch.onnx
        except ImportError:
            pass
        from torch.nn import LSTM
    """
    write(tiny / "path", {"asking.py": script})

    said = told(
        tiny,
        """
        from importlib.util import find_spec
        import flambeau.swap
        try:
            import asking
        except ImportError:
            pass
        find_spec("torch.fx")
        said = flambeau.swap.report()
        text = str(said)
        assert "torch.onnx  (docs page torch.onnx)" in text and "asking.py:7" in text
        """,
    )

    assert [(feature, Path(file).name, line, how) for feature, _, file, line, how in said] == [
        ("torch.cdist", "asking.py", 4, "looked for"),
        ("torch.onnx", "asking.py", 7, "used"),
        ("torch.nn.LSTM", "asking.py", 10, "used"),
        ("torch.fx", "<string>", 12, "looked for"),
    ]


# Coming and going


def test_uninstall_leaves_modules_and_import_path_as_they_were(tiny):
    said = told(
        tiny,
        """
        import sys, tiny.nn, tiny.optim, tiny.utils.data, pickle, json, importlib.metadata
        alias.uninstall()
        sys.modules["torch.fx"] = None
        state = lambda: [dict(sys.modules), list(sys.meta_path), list(sys.path)]
        names = lambda: [dict(vars(m)) for n, m in sys.modules.items() if n.startswith("tiny")]
        before, inside = state(), names()
        alias.install()
        import torch, torch.nn.modules.batchnorm, torch.optim.sgd, torch.version
        hasattr(torch.nn, "LSTM"), torch.nn.Linear
        try:
            import torch.fx
        except ImportError as error:
            assert "not built yet" in str(error)
        alias.uninstall()
        after = state()
        said = [after == before, list(after[0]) == list(before[0]), names() == inside, torch.double(4)]
        """,
    )

    assert said == [True, True, True, 8]


def test_install_and_uninstall_may_be_repeated(tiny):
    said = told(
        tiny,
        """
        import sys
        alias.install()
        count = sys.meta_path.count(alias)
        import torch
        alias.uninstall(), alias.uninstall()
        said = [count, alias.installed, "torch" in sys.modules]
        alias.install()
        import torch as again
        said.append(again is not torch and again.double is torch.double)
        """,
    )

    assert said == [1, False, False, True]


def test_install_refuses_when_the_real_one_is_imported(tiny):
    write(tiny / "path", STAND_IN)

    done = run(tiny, "-c", "import torch, flambeau.swap\nflambeau.swap.install()", status=1)

    assert "RuntimeError: flambeau.swap: torch 9.9 is already imported" in done.stderr
    assert str(tiny / "path" / "torch" / "__init__.py") in done.stderr


def test_a_real_torch_is_left_alone_unless_asked(tiny):
    write(tiny / "path", STAND_IN)
    record = "Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n"
    write(tiny / "path", {"torch-9.9.dist-info/METADATA": record})

    untouched = """
        import importlib.metadata, flambeau, flambeau.swap, torch, torch.nn
        assert torch.real and importlib.metadata.version("torch") == "9.9" and not flambeau.swap.installed()
    """
    run(tiny, "-c", textwrap.dedent(untouched))
    run(tiny, "-c", textwrap.dedent(untouched), env={"FLAMBEAU_AS_TORCH": "0"})
    assert told(
        tiny,
        """
        import importlib.metadata, torch, torch.nn
        said = [hasattr(torch, "real"), importlib.metadata.version("torch"), torch.nn.__name__]
        alias.uninstall()
        import torch
        said += [torch.real, importlib.metadata.version("torch")]
        """,
    ) == [False, "2.7.0+tiny", "tiny.nn", True, "9.9"]


def test_swap_uninstalled_gives_back_an_installed_pytorch(tiny):
    pytest.importorskip("torch")
    assert told(
        tiny,
        """
        import torch
        said = [torch.__version__]
        alias.uninstall()
        import torch
        said += [torch.__name__, hasattr(torch, "_C"), torch.__version__ != said[0]]
        """,
    ) == ["2.7.0+tiny", "torch", True, True]


def test_ipython_extension_installs_and_uninstalls(tiny):
    code = """
        import flambeau.swap as extension
        extension.load_ipython_extension(None)
        print(extension.installed())
        extension.unload_ipython_extension(None)
        print(extension.installed())
    """
    assert run(tiny, "-c", textwrap.dedent(code)).stdout.split() == ["True", "False"]


# From the command line. These run Flambeau itself, but only ask its module for facts.

FACTS = """
    import sys, torch, flambeau
    print(__name__, sys.argv, sys.path[0])
    print(torch.__version__, torch.__name__, torch.__file__ == flambeau.__file__)
    if "--fail" in sys.argv:
        torch.nonsense
    if "--exit" in sys.argv:
        sys.exit(3)
"""


@pytest.mark.parametrize("form", ["script", "folder", "module", "command", "stdin"])
def test_python_m_flambeau_runs_a_program_as_python_would(tiny, form):
    write(tiny / "programs", {"facts.py": FACTS, "app/__main__.py": FACTS})
    write(tiny / "path", {"tool/__init__.py": "", "tool/__main__.py": FACTS})
    arguments = {
        "script": ["programs/facts.py", "-x", "1"],
        "folder": ["programs/app", "-x", "1"],
        "module": ["-m", "tool", "-x", "1"],
        "command": ["-c", textwrap.dedent(FACTS), "-x", "1"],
        "stdin": ["-", "-x", "1"],
    }[form]

    swapped = run(tiny, "-m", "flambeau", *arguments, stdin=textwrap.dedent(FACTS)).stdout.splitlines()
    write(tiny / "path", STAND_IN)
    plain = run(tiny, *arguments, stdin=textwrap.dedent(FACTS)).stdout.splitlines()

    assert swapped[0] == plain[0]
    assert swapped[1] == "2.7.0+flambeau torch True"
    assert plain[1] == "9.9 torch False"


def test_exit_status_and_errors_come_through(tiny):
    write(tiny, {"facts.py": FACTS})

    run(tiny, "-m", "flambeau", "facts.py", "--exit", status=3)
    failed = run(tiny, "-m", "flambeau", "facts.py", "--fail", status=1)

    assert "torch.nonsense is not in PyTorch" in failed.stderr
    assert 'facts.py", line 6' in failed.stderr


@pytest.mark.parametrize("arguments", [[], ["-m"], ["-z"], ["no_such_file.py"]])
def test_wrong_usage_is_explained(tiny, arguments):
    assert "flambeau" in run(tiny, "-m", "flambeau", *arguments, status=2).stderr


def test_report_is_printed_at_exit_when_asked_for(tiny):
    code = "import torch; hasattr(torch, 'nonsense')"

    done = run(tiny, "-m", "flambeau", "-c", code, env={"FLAMBEAU_SWAP_REPORT": "1"})

    assert "torch.nonsense  (docs page torch)  <string>:1" in done.stderr
    assert "nonsense" not in run(tiny, "-m", "flambeau", "-c", code).stderr


def test_torch_is_an_attribute_of_itself(tiny):
    assert told(tiny, "import torch; said = torch.torch is torch") is True


def test_packages_that_know_classes_by_their_module_know_tensors_and_loaders(tmp_path):
    code = """
        from flambeau import swap
        swap.install()
        import flambeau, torch
        known = (torch.Tensor, torch.nn.Parameter, torch.utils.data.DataLoader, torch.utils.data.IterableDataset)
        print(*(kind.__module__ for kind in known))
        print(type(torch.ones(2)), torch.nn.Parameter(torch.ones(1)), torch.typename(torch.ones(1)))
        swap.uninstall()
        print(*(kind.__module__ for kind in known))
        print(flambeau.nn.Parameter(flambeau.ones(1)))
    """
    printed = run(tmp_path, "-c", textwrap.dedent(code)).stdout

    assert printed.splitlines() == [
        "torch torch.nn.parameter torch.utils.data.dataloader torch.utils.data.dataset",
        "<class 'torch.Tensor'> Parameter containing:",
        "tensor([1.], requires_grad=True) torch.FloatTensor",
        "flambeau flambeau.nn.parameter flambeau.utils.data.dataloader flambeau.utils.data.dataset",
        "Parameter containing:",
        "tensor([1.], requires_grad=True)",
    ]


# At interpreter start


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """An interpreter whose site-packages hold what an editable install puts there."""
    import sysconfig
    import venv

    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, symlinks=True, with_pip=False)
    interpreter = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(subprocess.check_output([interpreter, "-c", ask], text=True).strip())
    (site / "_flambeau.pth").write_text(f"{FRAMEWORK}\n{KERNELS}\n{sysconfig.get_path('purelib')}\n")
    (site / "flambeau-as-torch.pth").write_bytes((FRAMEWORK / "flambeau-as-torch.pth").read_bytes())
    return interpreter


def start(python: Path, folder: Path, code: str, value: str | None, status: int = 0):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("FLAMBEAU_", "PYTHON"))}
    env |= {} if value is None else {"FLAMBEAU_AS_TORCH": value}
    command = [python, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stderr
    return done


def test_variable_makes_torch_flambeau_and_imports_nothing_until_then(python, tmp_path):
    code = """
        import sys
        print([m for m in sys.modules if m.startswith(("torch", "flambeau", "numpy"))])
        import torch
        print(torch.__version__, torch.__name__)
    """
    assert start(python, tmp_path, code, "1").stdout.splitlines() == ["[]", "2.7.0+flambeau torch"]


@pytest.mark.parametrize(
    ("question", "answer"),
    [("metadata.version('torch')", "2.7.0+flambeau"), ("util.find_spec('torch').name", "torch")],
)
def test_variable_answers_questions_before_any_import(python, tmp_path, question, answer):
    code = f"from importlib import metadata, util; print({question})"
    assert start(python, tmp_path, code, "1").stdout.strip() == answer


@pytest.mark.parametrize("value", [None, "", "0"])
def test_without_the_variable_nothing_is_loaded(python, tmp_path, value):
    write(tmp_path, STAND_IN)
    code = """
        import sys
        print("_flambeau_as_torch" in sys.modules, any("flambeau" in str(finder) for finder in sys.meta_path))
        import torch
        print(torch.real)
    """
    assert start(python, tmp_path, code, value).stdout.split() == ["False", "False", "True"]


def test_uninstall_undoes_the_variable_too(python, tmp_path):
    write(tmp_path, STAND_IN)
    code = "import flambeau.swap as s; s.uninstall(); import torch; print(torch.real)"
    assert start(python, tmp_path, code, "1").stdout.strip() == "True"


def test_a_value_that_is_neither_on_nor_off_is_an_error(python, tmp_path):
    assert "FLAMBEAU_AS_TORCH is 'maybe'" in start(python, tmp_path, "", "maybe").stderr


def test_no_real_torch_slips_in_when_flambeau_cannot_be_imported(python, tmp_path):
    write(tmp_path, STAND_IN)
    code = "import sys; sys.modules['flambeau'] = None; import torch"
    assert "flambeau" in start(python, tmp_path, code, "1", status=1).stderr.splitlines()[-1]


def test_processes_started_by_the_program_are_swapped_too(python, tmp_path):
    program = """
        import multiprocessing, torch
        def version(_): return torch.__version__
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(version, [0]))
    """
    write(tmp_path, {"program.py": program})
    env = {k: v for k, v in os.environ.items() if not k.startswith(("FLAMBEAU_", "PYTHON"))}

    command = [python, "-m", "flambeau", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)

    assert done.stdout.strip() == "['2.7.0+flambeau']", done.stderr


FUNCTORCH = """
    from flambeau import swap
    swap.install()
    import functorch.compile
    import torch
    from functorch import combine_state_for_ensemble, grad, make_functional, make_functional_with_buffers, make_fx, vmap

    x = torch.randn(5, 3)
    linear = torch.nn.Linear(3, 2)
    function, params = make_functional(linear)
    assert function(params, x).equal(linear(x))
    assert grad(lambda p: function(p, x).sum())(params)[1].tolist() == [5, 5]
    function, params, buffers = make_functional_with_buffers(torch.nn.BatchNorm1d(3), disable_autograd_tracking=True)
    assert (len(params), len(buffers)) == (2, 3) and not params[0].requires_grad
    try:
        function(params[:1], buffers, x)
    except ValueError as error:
        assert "the module has 2 (weight, bias), but 1 were given" in str(error)
    else:
        raise AssertionError("one parameter is not enough")
    models = [torch.nn.Linear(3, 2) for _ in range(4)]
    made = vmap(combine_state_for_ensemble(models)[0], (0, 0, None))(*combine_state_for_ensemble(models)[1:], x)
    assert torch.allclose(made, torch.stack([m(x) for m in models]), atol=1e-6)
    try:
        make_functional(torch.nn.BatchNorm1d(3))
    except RuntimeError as error:
        assert "make_functional_with_buffers" in str(error)
    else:
        raise AssertionError("a module with buffers is refused")
    assert functorch.compile.aot_function(torch.sin, functorch.compile.nop)(x).equal(x.sin())
    try:
        import functorch.dim
    except ModuleNotFoundError as error:
        assert error.name == "functorch.dim"
    else:
        raise AssertionError("functorch.dim is not there")
    swap.uninstall()
    import sys
    assert not any(name.partition(".")[0] == "functorch" for name in sys.modules)
"""


def test_functorch_is_there_under_its_own_name(tmp_path):
    run(tmp_path, "-c", textwrap.dedent(FUNCTORCH))


def test_asking_for_functorch_first_swaps_in(tmp_path):
    made = run(
        tmp_path, "-c",
        "import _flambeau_as_torch; _flambeau_as_torch.arm(); import functorch, torch; print(functorch.vmap.__module__, torch.__version__)",
        env={"FLAMBEAU_AS_TORCH": "1"},
    )  # fmt: skip
    assert made.stdout.split() == ["flambeau.func.vmap", "2.7.0+flambeau"]

"""What is installed, what importing it loads, and which way its packages depend on each other."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "flambeau": ROOT / "framework" / "flambeau",
    "flambeau_kernels": ROOT / "kernels" / "flambeau_kernels",
}
FOLDERS = {"framework", "kernels", "tests", "bench", "examples", "docs"}
FILES = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"}
START_UP = {"_flambeau_as_torch.py", "flambeau-as-torch.pth"}


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel of this checkout, built with the backend that is installed here."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", folder, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory) -> tuple[Path, Path]:
    """What to put on the path so that Python starts as if the wheel, and no other Flambeau, were installed."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "packages")
    # As for a folder of installed packages, the start-up files in it are read.
    (folder / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({str(folder / 'packages')!r})\n")
    return folder, folder / "packages"


def test_the_wheel_is_pure_python(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")


def test_the_wheel_holds_every_source_file_and_nothing_else(wheel):
    expected = set(START_UP)
    for name, folder in PACKAGES.items():
        files = (file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
        expected |= {f"{name}/{file.relative_to(folder)}" for file in files}

    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}

    assert held == expected


def test_the_wheel_declares_types_licence_and_dependencies(wheel, project):
    archive = zipfile.ZipFile(wheel)
    (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
    metadata = message_from_string(archive.read(f"{info}/METADATA").decode())
    needed = {Requirement(text).name for text in metadata.get_all("Requires-Dist") if "extra ==" not in text}

    assert needed == {"llvmlite", "ml-dtypes", "numba", "numpy", "scipy"}
    assert set(metadata.get_all("Provides-Extra")) == set(project["project"]["optional-dependencies"])
    assert archive.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert {f"{name}/py.typed" for name in PACKAGES} <= set(archive.namelist())


def test_an_installed_wheel_trains_a_step(site, fresh_python):
    program = """
import flambeau as fb
w = fb.ones(2, requires_grad=True)
(w * fb.tensor([2.0, 3.0])).sum().backward()
fb.optim.SGD([w], lr=0.5).step()
print(fb.__file__, w.tolist())
"""

    out = fresh_python("-c", program, path=site)

    assert out.split(maxsplit=1) == [str(site[1] / "flambeau" / "__init__.py"), "[0.0, -0.5]\n"]


def test_an_installed_wheel_stands_in_for_torch_when_asked_to(site, fresh_python):
    program = "import torch; print(torch.__version__, torch.ones(2).sum().item())"

    version, total = fresh_python("-c", program, path=site, FLAMBEAU_AS_TORCH="1").split()

    assert version.endswith("+flambeau")
    assert total == "2.0"


def test_start_up_loads_nothing_of_ours_unless_asked(site, fresh_python):
    program = "import sys; print([name for name in sys.modules if 'flambeau' in name])"

    assert fresh_python("-c", program, path=site) == "[]\n"


def test_importing_loads_few_modules_and_nothing_that_compiles(fresh_python):
    """Time differs between machines; what is loaded does not. The number may only fall."""
    program = "import sys, numpy, ml_dtypes; known = set(sys.modules); import flambeau; print(*sorted(set(sys.modules) - known))"

    loaded = fresh_python("-c", program).split()

    ours = [name for name in loaded if name.split(".")[0] in PACKAGES]
    assert [name for name in ours if name.startswith("flambeau_kernels.engine.")] == []
    assert len(ours) <= 72
    allowed = {"__future__", "_heapq", "copy", "dataclasses", "heapq", "importlib._abc", "importlib.util", "threading"}
    assert set(loaded) - set(ours) <= allowed


@pytest.mark.slow
def test_an_editable_install_imports_from_the_checkout(tmp_path):
    pytest.importorskip("hatchling")
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--target", tmp_path]
    done = subprocess.run([*pip, "-e", ROOT], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr

    paths = [line for file in tmp_path.glob("_flambeau.pth") for line in file.read_text().split()]

    assert paths == [str(ROOT / "framework"), str(ROOT / "kernels")]
    assert (tmp_path / "flambeau-as-torch.pth").exists()
    assert not (tmp_path / "_flambeau_as_torch.py").exists()  # a copy would go stale


def test_import_loads_only_light_modules(fresh_python):
    fresh_python(ROOT / ".ci" / "import_check.py")


def imported_roots(file: Path) -> set[str]:
    """Top-level packages that a file imports anywhere, inside functions too."""
    roots = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            roots.add((node.module or "").split(".")[0])
    return roots


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [("flambeau_kernels", {"flambeau", "torch"}), ("flambeau", {"torch"})],
)
def test_dependencies_point_one_way(package, forbidden):
    offenders = {
        str(file.relative_to(ROOT)): found
        for file in PACKAGES[package].rglob("*.py")
        if (found := imported_roots(file) & forbidden)
    }

    assert offenders == {}


def test_top_level_names_are_those_of_the_design():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")

    names = {path.split("/")[0] for path in listed.stdout.splitlines() if not path.startswith(".")}

    assert names == FOLDERS | FILES

"""Scripts in packages: written beside other pickles, and read by PyTorch as its are here."""

from __future__ import annotations

import io
import pickle
import sys
import zipfile

import pytest

import flambeau as fb
from flambeau.package import PackageExporter, PackageImporter


class Scaled(fb.nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.linear = fb.nn.Linear(3, 2)
        self.factor = factor
        self.table = fb.arange(2.0)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return fb.relu(self.linear(x)) * self.factor + self.table


def packaged(**objects):
    file = io.BytesIO()
    with PackageExporter(file) as exporter:
        exporter.extern("torch.**")
        for name, value in objects.items():
            exporter.save_pickle("res", f"{name}.pkl", value)
    file.seek(0)
    return file


def test_scripts_and_modules_that_have_them_come_back_with_their_memory_shared():
    script = fb.jit.script(Scaled(2.0))
    whole = fb.nn.Sequential(fb.nn.Linear(4, 3), script)
    traced = fb.jit.trace(fb.nn.Linear(3, 1), fb.ones(1, 3))
    importer = PackageImporter(packaged(script=script, whole=whole, pair=[script, script, script.linear.weight], traced=traced))
    x = fb.randn(5, 3)

    again = importer.load_pickle("res", "script.pkl")
    first, second, weight = importer.load_pickle("res", "pair.pkl")

    assert isinstance(again, fb.jit.RecursiveScriptModule)
    assert again.code == script.code
    assert fb.equal(again(x), script(x))
    assert fb.equal(importer.load_pickle("res", "whole.pkl")(fb.ones(1, 4)), whole(fb.ones(1, 4)))
    assert fb.equal(importer.load_pickle("res", "traced.pkl")(x), traced(x))
    assert first is second
    assert first.linear.weight.data_ptr() == weight.data_ptr()


def test_a_script_is_data_and_a_module_around_it_is_not():
    script = fb.jit.script(Scaled(0.5))
    importer = PackageImporter(packaged(script=script, whole=fb.nn.Sequential(script)))

    assert fb.equal(importer.load_pickle("res", "script.pkl", allow_code=False)(fb.ones(1, 3)), script(fb.ones(1, 3)))
    with pytest.raises(pickle.UnpicklingError, match="Sequential, which is not known to be plain data"):
        importer.load_pickle("res", "whole.pkl", allow_code=False)


@pytest.mark.parametrize("broken", ["missing", "damaged", "bomb"])
def test_a_script_whose_files_are_damaged_is_named(broken):
    given, file = packaged(script=fb.jit.script(Scaled(1.0))), io.BytesIO()
    with zipfile.ZipFile(given) as before, zipfile.ZipFile(file, "w") as after:
        for name in before.namelist():
            data = before.read(name)
            if name.endswith("ts_code/0/data.pkl"):
                if broken == "missing":
                    continue
                data = data[:-20] if broken == "damaged" else data
            if broken == "bomb" and "ts_code/code/" in name:
                after.writestr(name, bytes(1 << 27), zipfile.ZIP_DEFLATED)
                continue
            after.writestr(name, data)
    file.seek(0)

    with pytest.raises((RuntimeError, EOFError), match=r"no script number|ends|pickle|are the most"):
        PackageImporter(file).load_pickle("res", "script.pkl")


def test_pytorch_reads_scripts_of_our_packages_and_we_its(tmp_path):
    torch = pytest.importorskip("torch")
    exporting = pytest.importorskip("torch.package.package_exporter")
    scaled = sys.modules[__name__].Scaled(3.0)
    ours = tmp_path / "ours.pt"
    ours.write_bytes(packaged(script=fb.jit.script(scaled)).getvalue())
    x = fb.randn(2, 3)

    theirs = torch.package.PackageImporter(str(ours)).load_pickle("res", "script.pkl")

    assert torch.allclose(theirs(torch.tensor(x.numpy())), torch.tensor(scaled(x).detach().numpy()))

    with pytest.warns(DeprecationWarning, match="deprecated"):
        script = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh()))
    before, exporting._gate_torchscript_serialization = exporting._gate_torchscript_serialization, False
    try:
        with torch.package.PackageExporter(str(tmp_path / "theirs.pt")) as exporter:
            exporter.extern("torch.**")
            exporter.save_pickle("res", "script.pkl", script)
    finally:
        exporting._gate_torchscript_serialization = before
    read = PackageImporter(str(tmp_path / "theirs.pt")).load_pickle("res", "script.pkl")
    assert fb.allclose(read(x), fb.tensor(script(torch.tensor(x.numpy())).detach().numpy()))

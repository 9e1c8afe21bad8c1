"""Archives of scripts: what is saved comes back, PyTorch's archives are read and it reads ours, and damaged ones are refused."""

# Scripts are written in all of Python that they take, the old names of types among it.
# ruff: noqa: UP006, UP045

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any, Dict, List, Optional  # noqa: UP035  # as old programs do

import pytest

import flambeau as fb
from flambeau import jit

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


class Net(fb.nn.Module):
    names: Dict[str, int]

    def __init__(self) -> None:
        super().__init__()
        self.conv = fb.nn.Conv2d(1, 3, 3)
        self.norm = fb.nn.BatchNorm2d(3)
        self.head = fb.nn.Sequential(fb.nn.Linear(3, 4), fb.nn.ReLU(), fb.nn.Linear(4, 2))
        self.tied = self.head[0]
        self.register_buffer("shift", fb.ones(2))
        self.register_buffer("table", fb.arange(3), persistent=False)
        self.names = {"b": 2, "a": 1}
        self.sizes = [1, 2, 3]
        self.label = "net"
        self.pair = (1, 2.5)

    def forward(self, x, more: Optional[fb.Tensor] = None, repeat: int = 1):
        x = fb.relu(self.norm(self.conv(x))).mean((2, 3))
        x = self.head(x) + self.shift
        for i in range(repeat):
            if i % 2 == 0:
                x = x * self.sizes[i] + fb.tensor([0.5, 0.25])
            else:
                continue
        if more is not None:
            x = x + more
        found: List[int] = []
        found.append(self.names["b"])
        return x, found, self.label + "!", self.pair

    @jit.export
    def count(self, n: int) -> int:
        while n < 10:
            n += 3
        return n


X = fb.linspace(0, 1, 50).reshape(2, 1, 5, 5)


def there_and_back(script: Any, **kwargs: Any) -> Any:
    buffer = io.BytesIO()
    jit.save(script, buffer)
    buffer.seek(0)
    return jit.load(buffer, **kwargs)


def net() -> Any:
    fb.manual_seed(0)
    return Net().eval()


def test_a_module_comes_back_with_its_methods_parameters_and_attributes() -> None:
    model = net()
    script = jit.script(model)
    again = there_and_back(script)

    assert isinstance(again, jit.RecursiveScriptModule)
    for args in ((X,), (X, fb.ones(2)), (X, None, 3)):
        (got, *rest), (expected, *others) = again(*args), model(*args)
        assert fb.equal(got, expected)
        assert rest == others
    assert again.count(2) == 11
    assert again.names == {"b": 2, "a": 1}
    assert again.training is False
    assert again.tied.weight is again.head[0].weight or fb.equal(again.tied.weight, again.head[0].weight)
    states = [{n: v.tolist() for n, v in s.state_dict().items()} for s in (again, script)]
    assert states[0] == states[1] | {"table": [0, 1, 2]}  # archives do not say which buffers states leave out
    assert all(isinstance(p, fb.nn.Parameter) and p.requires_grad for p in again.parameters())
    assert fb.equal(there_and_back(again)(X)[0], model(X)[0])


def test_functions_traces_and_frozen_modules_come_back() -> None:
    @jit.script
    def scaled(x, by: float = 2.0, flip: bool = False):
        return -x * by if flip else x * by

    again = there_and_back(scaled)
    assert fb.equal(again(X), X * 2)
    assert fb.equal(again(X, flip=True, by=3.0), X * -3)
    model = net()
    traced = jit.trace(lambda x: model.conv(x).sigmoid() + model.conv.bias.sum().detach(), X)
    assert fb.equal(there_and_back(traced)(X), traced(X))
    part = jit.trace(model.head, fb.ones(1, 3))
    assert fb.equal(there_and_back(part)(fb.ones(5, 3)), model.head(fb.ones(5, 3)))
    frozen = jit.freeze(jit.script(model.head))
    assert fb.equal(there_and_back(frozen)(fb.ones(1, 3)), model.head(fb.ones(1, 3)))


def test_files_are_whole_or_not_there_and_have_more_files(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    jit.save(jit.script(net()), path, _extra_files={"notes.txt": "hello", "raw": b"\xff\x00"})
    more: dict[str, Any] = {"notes.txt": "", "raw": "", "none": ""}
    jit.load(path, _extra_files=more)

    assert more == {"notes.txt": b"hello", "raw": b"\xff\x00", "none": b""}
    assert zipfile.ZipFile(path).namelist()[0].startswith("model/")
    assert [p.name for p in tmp_path.iterdir()] == ["model.pt"]
    with pytest.raises(ValueError, match="does not exist"):
        jit.load(tmp_path / "none.pt")


def test_map_location_says_where_tensors_go() -> None:
    again = there_and_back(jit.script(net()), map_location="meta")

    assert again.conv.weight.is_meta


def test_python_functions_cannot_be_saved() -> None:
    class Calls(fb.nn.Module):
        def forward(self, x):
            return self.by_python(x)

        @jit.ignore
        def by_python(self, x: fb.Tensor) -> fb.Tensor:
            return x.add(len(x.tolist()))

    script = jit.script(Calls())

    assert script(fb.ones(2)).tolist() == [3.0, 3.0]
    with pytest.raises(RuntimeError, match="Could not export Python function call 'by_python'"):
        jit.save(script, io.BytesIO())


# -- faults --------------------------------------------------------------------------------------------------------------


def archive(changes: dict[str, bytes | None]) -> io.BytesIO:
    """An archive of a small module, with other files in the place of some of its own."""
    buffer = io.BytesIO()
    jit.save(jit.script(fb.nn.Linear(2, 2)), buffer)
    made = io.BytesIO()
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(made, "w") as new:
        code = next(n for n in old.namelist() if n.endswith(".py")).partition("/")[2]
        if CODE in changes:
            changes[code] = changes.pop(CODE)
        for name in old.namelist():
            short = name.partition("/")[2]
            data = changes.pop(short, old.read(name))
            if data is not None:
                new.writestr(name, data)
        for short, data in changes.items():
            if data is not None:
                new.writestr(f"archive/{short}", data)
    made.seek(0)
    return made


class Harmful:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('run')",)


CODE = "the file of code"


@pytest.mark.parametrize(
    "changes",
    [
        {"data.pkl": None}, {"constants.pkl": None}, {"data.pkl": b""}, {"data.pkl": b"\x80\x02c__torch__\nNone\n."},
        {"data.pkl": pickle.dumps(Harmful(), 2)}, {"constants.pkl": pickle.dumps(Harmful(), 2)}, {"data/0": b"\0" * 3},
        {CODE: b"class Linear(Module):\n  def forward(self, x: Tensor) -> Tensor:\n    return x.f()\n"},
        {CODE: b"import os\nos.system('exit')\n"}, {CODE: b"class Linear(Module:\n"},
        {CODE: b"class Linear(Module):\n  def forward(self: Tensor, x: Tensor) -> Tensor:\n    return __import__('os')\n"},
        {CODE: b"class Linear(Module):\n  weight : __torch__.Missing\n"},
    ],
)  # fmt: skip
def test_damaged_and_harmful_archives_are_refused(changes: dict[str, bytes | None]) -> None:
    with pytest.raises((RuntimeError, pickle.UnpicklingError, EOFError, SyntaxError, KeyError)):
        jit.load(archive(dict(changes)))


def test_files_that_are_no_archives_are_refused() -> None:
    with pytest.raises(RuntimeError, match="failed reading zip archive"):
        jit.load(io.BytesIO(b"nothing of the kind"))
    buffer = io.BytesIO()
    fb.save({"a": fb.ones(2)}, buffer)
    buffer.seek(0)
    with pytest.raises(RuntimeError, match=r"load\(\) reads files of save"):
        jit.load(buffer)


def test_cut_archives_are_refused() -> None:
    data = archive({}).getvalue()
    for end in range(0, len(data), max(len(data) // 40, 1)):
        with pytest.raises((RuntimeError, pickle.UnpicklingError, EOFError, KeyError)):
            jit.load(io.BytesIO(data[:end]))


# -- with PyTorch --------------------------------------------------------------------------------------------------------


def theirs(x: Any) -> Any:
    torch = pytest.importorskip("torch")
    return torch.tensor(x.detach().numpy()) if isinstance(x, fb.Tensor) else x


LAYERS = [
    ("Linear(4, 3)", (2, 4)), ("Conv2d(4, 6, 3, padding=1)", (2, 4, 8, 8)), ("ConvTranspose2d(4, 6, 3, stride=2)", (2, 4, 8, 8)),
    ("BatchNorm2d(4)", (2, 4, 8, 8)), ("LayerNorm(8)", (2, 4, 8)), ("GroupNorm(2, 4)", (2, 4, 8)), ("GELU('tanh')", (2, 4)),
    ("MaxPool2d(2)", (2, 4, 8, 8)), ("AdaptiveAvgPool2d(2)", (2, 4, 8, 8)), ("AdaptiveMaxPool2d(2)", (2, 4, 8, 8)),
    ("Flatten()", (2, 4, 8)), ("Upsample(scale_factor=2, mode='bilinear')", (2, 4, 8, 8)), ("MultiheadAttention(4, 2)", (3, 2, 4)),
    ("TransformerEncoderLayer(4, 2, 8, batch_first=True)", (2, 3, 4)), ("GRUCell(4, 3)", (2, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=[n for n, _ in LAYERS])
def test_archives_go_both_ways_between_pytorch_and_here(layer: str, shape: Any) -> None:
    torch = pytest.importorskip("torch")
    fb.manual_seed(0)
    ours = eval(f"fb.nn.{layer}", {"fb": fb}).eval()
    other = eval(f"nn.{layer}", {"nn": torch.nn}).eval()
    other.load_state_dict({k: theirs(v) for k, v in ours.state_dict().items()})
    x = fb.rand(*shape)
    args = (x, x, x) if layer.startswith("Multihead") else (x,)
    expected = fb.utils._pytree.tree_leaves(ours(*args))
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(other), buffer)
    buffer.seek(0)
    read = fb.utils._pytree.tree_leaves(jit.load(buffer).eval()(*args))
    buffer = io.BytesIO()
    jit.save(jit.script(ours), buffer)
    buffer.seek(0)
    written = torch.utils._pytree.tree_leaves(torch.jit.load(buffer).eval()(*map(theirs, args)))

    assert len(read) == len(written) == len(expected)
    for a, b, c in zip(read, written, expected, strict=True):
        fb.testing.assert_close(a, c, rtol=1e-5, atol=1e-6)
        fb.testing.assert_close(fb.tensor(b.detach().numpy()), c, rtol=1e-5, atol=1e-6)


def test_traces_go_both_ways_between_pytorch_and_here() -> None:
    torch = pytest.importorskip("torch")

    def program(lib: Any) -> Any:
        return lambda x, y: (lib.relu(x).reshape(x.size(0), -1) * y[0], {"sum": (x - 1).sum(-1)})

    x, y = fb.rand(2, 3, 4), (fb.rand(12), fb.rand(1))
    expected = program(fb)(x, y)
    buffer = io.BytesIO()
    jit.save(jit.trace(program(fb), (x, y), strict=False), buffer)
    buffer.seek(0)
    written = torch.jit.load(buffer)(theirs(x), tuple(map(theirs, y)))
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.trace(program(torch), (theirs(x), tuple(map(theirs, y))), strict=False), buffer)
    buffer.seek(0)
    read = jit.load(buffer)(x, y)

    fb.testing.assert_close(fb.tensor(written[0].numpy()), expected[0])
    fb.testing.assert_close(fb.tensor(written[1]["sum"].numpy()), expected[1]["sum"])
    fb.testing.assert_close(read[0], expected[0])
    fb.testing.assert_close(read[1]["sum"], expected[1]["sum"])


def test_pytorch_reads_a_whole_model_and_reads_back_what_it_wrote_of_it() -> None:
    torch = pytest.importorskip("torch")
    model = net()
    buffer = io.BytesIO()
    jit.save(jit.script(model), buffer)
    buffer.seek(0)
    loaded = torch.jit.load(buffer)
    got, found, label, pair = loaded(theirs(X), None, 2)
    expected = model(X, None, 2)

    fb.testing.assert_close(fb.tensor(got.detach().numpy()), expected[0], rtol=1e-5, atol=1e-6)
    assert (found, label, pair) == expected[1:]
    assert loaded.count(2) == 11
    buffer = io.BytesIO()
    torch.jit.save(loaded, buffer)
    buffer.seek(0)
    again = jit.load(buffer)
    assert fb.equal(again(X, None, 2)[0], expected[0])
    assert again.count(2) == 11


def test_load_hands_archives_of_scripts_to_jit_load(tmp_path):
    net, path = jit.script(fb.nn.Linear(5, 2)), tmp_path / "net.pt"
    net.save(path)

    for options in ({}, {"map_location": "cpu"}, {"mmap": True}):
        with pytest.warns(UserWarning, match=r"dispatching to 'torch\.jit\.load'"):
            again = fb.load(path, weights_only=False, **options)
        assert isinstance(again, jit.ScriptModule)
        assert fb.equal(again(X), net(X))


def test_load_of_weights_alone_refuses_archives_of_scripts(tmp_path):
    path = tmp_path / "net.pt"
    jit.script(fb.nn.Linear(5, 2)).save(path)

    for options in ({}, {"weights_only": True}):
        with pytest.warns(UserWarning, match=r"jit\.load"), pytest.raises(RuntimeError, match="weights_only=True"):
            fb.load(path, **options)


@pytest.mark.oracle
def test_load_reads_scripts_of_pytorch_behind_other_bytes(oracle):
    theirs, file = oracle.jit.script(oracle.nn.Linear(5, 2)), io.BytesIO()
    file.write(b"what stands before")
    start = file.tell()
    oracle.jit.save(theirs, file)
    file.seek(start)

    with pytest.warns(UserWarning, match=r"jit\.load"):
        ours = fb.load(file, weights_only=False)

    assert ours.weight.tolist() == theirs.weight.tolist()

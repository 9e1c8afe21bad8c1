"""Packages written and loaded: what is in them, whose modules code finds, and what happens when something is wrong."""

from __future__ import annotations

import importlib.resources
import io
import os
import pickle
import re
import sys
import textwrap
import threading
import traceback
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flambeau as fb
from flambeau.package import (
    EmptyMatchError,
    GlobGroup,
    ObjMismatchError,
    ObjNotFoundError,
    OrderedImporter,
    PackageExporter,
    PackageImporter,
    PackagingError,
    is_from_package,
    sys_importer,
)

MODULES = {
    "pkgtoy/__init__.py": "X = 1\n",
    "pkgtoy/net.py": """
        import {lib} as lib
        import {lib}.nn.functional as F
        from {lib} import nn
        from .sub.leaf import twice

        class Net(nn.Module):
            class Inner:
                value = 3

            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(2, 3)

            def forward(self, x):
                return twice(F.relu(self.fc(x)))

        def plain(x):
            return x + 1
    """,
    "pkgtoy/sub/__init__.py": "",
    "pkgtoy/sub/leaf.py": """
        import json
        def twice(x):
            return x * 2
        def fail():
            raise ValueError("from the leaf")
    """,
    "pkgtoy/own.py": """
        class Own:
            def __init__(self, text):
                self.text = text
            def __reduce_package__(self, exporter):
                name = f"own-generated._{{exporter.get_unique_id()}}"
                exporter.save_text(name, "own.txt", self.text)
                return unpacked, (name,)
        def unpacked(importer, name):
            return Own(importer.load_text(name, "own.txt") + " again")
    """,
}


def write_modules(folder: Path, lib: str) -> None:
    for name, text in MODULES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text).replace("{lib}", lib).replace("{{", "{").replace("}}", "}"))


def forget_modules() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pkgtoy"]:
        del sys.modules[name]


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module `pkgtoy.net`, written for Flambeau."""
    write_modules(tmp_path / "code", "flambeau")
    monkeypatch.syspath_prepend(tmp_path / "code")
    forget_modules()
    import pkgtoy.net

    yield pkgtoy.net
    forget_modules()


def packed(*steps: Any, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    with PackageExporter(file, **options) as exporter:
        for step in steps:
            step(exporter)
    file.seek(0)
    return file


def test_a_model_comes_back_with_its_own_code_and_equal_results(toy: Any, tmp_path: Path) -> None:
    net, x = toy.Net(), fb.randn(4, 2)
    with PackageExporter(tmp_path / "net.pt") as exporter:
        exporter.intern("pkgtoy.**")
        exporter.save_pickle("model", "net.pkl", net)

    importer = PackageImporter(tmp_path / "net.pt")
    again = importer.load_pickle("model", "net.pkl")

    assert fb.equal(again(x), net(x))
    assert type(again) is not toy.Net
    assert type(again).__module__ == f"{importer.id()}.pkgtoy.net"
    assert re.fullmatch(r"<torch_package_\d+>", importer.id())
    assert isinstance(again, fb.nn.Module)
    assert is_from_package(again)
    assert is_from_package(importer.import_module("pkgtoy.net"))
    assert not is_from_package(net)
    assert not is_from_package(toy)
    assert not any("torch_package" in name for name in sys.modules)


def test_two_importers_of_a_package_share_nothing(toy: Any) -> None:
    data = packed(lambda e: (e.intern("pkgtoy.**"), e.save_module("pkgtoy.net"))).getvalue()
    one, other = PackageImporter(io.BytesIO(data)), PackageImporter(io.BytesIO(data))

    first, second = one.import_module("pkgtoy.net"), other.import_module("pkgtoy.net")
    first.plain = None

    assert one.id() != other.id()
    assert second.plain(1) == 2
    assert first is one.import_module("pkgtoy.net")
    assert first is not second
    assert first.Net is not second.Net


def test_packaged_code_sees_the_package_and_not_what_is_installed(toy: Any) -> None:
    data = packed(lambda e: e.save_source_string("pkgtoy.sub.leaf", "def twice(x): return x * 20\n"),
                  lambda e: e.intern("pkgtoy.**"),
                  lambda e: e.save_source_string("user", "from pkgtoy.sub import leaf\ndef missing():\n    import pkgtoy.own\n",
                                                 dependencies=False))  # fmt: skip
    user = PackageImporter(data).import_module("user")

    assert user.leaf.twice(1) == 20
    with pytest.raises(ModuleNotFoundError, match=r"'pkgtoy.own' in self-contained archive"):
        user.missing()


def test_modules_of_a_package_know_where_they_are(toy: Any) -> None:
    importer = PackageImporter(packed(lambda e: (e.intern("pkgtoy.**"), e.save_module("pkgtoy.net"))))

    net, above = importer.import_module("pkgtoy.net"), importer.import_module("pkgtoy")

    assert net.__name__ == f"{importer.id()}.pkgtoy.net"
    assert net.__file__ == f"{importer.id()}.pkgtoy/net.py"
    assert (net.__package__, above.__package__) == ("pkgtoy", "pkgtoy")
    assert "__torch_package__" in vars(net)
    assert above.net is net
    assert above.__path__ == []
    assert "class Net" in importer.get_source("pkgtoy.net")
    assert importer.python_version() == ".".join(map(str, sys.version_info[:3]))


def test_tracebacks_show_lines_of_packaged_code(toy: Any) -> None:
    importer = PackageImporter(packed(lambda e: (e.intern("pkgtoy.**"), e.save_module("pkgtoy.sub.leaf"))))
    try:
        importer.import_module("pkgtoy.sub.leaf").fail()
    except ValueError:
        shown = traceback.format_exc()

    assert 'raise ValueError("from the leaf")' in shown
    assert f"{importer.id()}.pkgtoy/sub/leaf.py" in shown


def test_a_module_whose_code_raises_is_not_kept() -> None:
    importer = PackageImporter(packed(lambda e: e.save_source_string("bad", "raise OSError('at import')")))

    for _ in range(2):
        with pytest.raises(OSError, match="at import"):
            importer.import_module("bad")
    assert "bad" not in importer.modules


def test_texts_bytes_and_resources(toy: Any) -> None:
    code = """
        import importlib.resources
        import my_res
        import torch_package_importer
        def by_resources():
            return importlib.resources.files(my_res).joinpath("a.txt").read_text(encoding="utf-8")
        def by_importer():
            return torch_package_importer.load_text("my_res", "a.txt")
    """
    importer = PackageImporter(packed(
        lambda e: e.save_text("my_res", "a.txt", "häuser"),
        lambda e: e.save_text("my_res.sub", "b.txt", "b"),
        lambda e: e.save_binary("my_res", "c.bin", b"\0\xff"),
        lambda e: e.save_source_string("reader", textwrap.dedent(code)),
    ))  # fmt: skip

    assert importer.load_text("my_res", "a.txt") == "häuser"
    assert importer.load_text("my_res", "a.txt", "ascii", "replace") == "h\ufffd\ufffduser"
    assert importer.load_binary("my_res", "c.bin") == b"\0\xff"
    reader = importer.import_module("reader")
    assert reader.by_resources() == reader.by_importer() == "häuser"
    resources = importer.get_resource_reader("my_res")
    assert sorted(resources.contents()) == ["a.txt", "c.bin", "sub"]
    assert resources.is_resource("a.txt")
    assert not resources.is_resource("sub")
    assert importer.get_resource_reader("nothing") is None
    inside = importlib.resources.files(importer.import_module("my_res"))
    assert sorted(each.name for each in inside.iterdir()) == ["a.txt", "c.bin", "sub"]


def test_memory_that_tensors_share_is_shared_and_changes_in_between_are_kept() -> None:
    w = fb.arange(4.0)
    data = packed(
        lambda e: e.save_pickle("m", "pair.pkl", [w, w[1:]]),
        lambda e: e.save_pickle("m", "same.pkl", w),
        lambda e: w.add_(1),
        lambda e: e.save_pickle("m", "later.pkl", w),
    )
    importer = PackageImporter(data)

    whole, part = importer.load_pickle("m", "pair.pkl")
    whole[1] = 9

    assert part.tolist() == [9.0, 2.0, 3.0]
    assert importer.load_pickle("m", "same.pkl").tolist() == [0.0, 1.0, 2.0, 3.0]
    assert importer.load_pickle("m", "later.pkl").tolist() == [1.0, 2.0, 3.0, 4.0]
    assert sum(name.endswith(".storage") for name in zipfile.ZipFile(data).namelist()) == 2


def test_tensors_load_where_they_are_told_and_without_running_code(toy: Any) -> None:
    importer = PackageImporter(packed(
        lambda e: e.intern("pkgtoy.**"),
        lambda e: e.save_pickle("m", "t.pkl", {"a": fb.ones(2), "b": fb.nn.Parameter(fb.zeros(1))}),
        lambda e: e.save_pickle("m", "net.pkl", toy.Net()),
        lambda e: e.save_pickle("m", "own.pkl", __import__("pkgtoy.own").own.Own("x")),
    ))  # fmt: skip

    assert importer.load_pickle("m", "t.pkl", map_location="meta")["a"].is_meta
    assert importer.load_pickle("m", "t.pkl", allow_code=False)["a"].tolist() == [1.0, 1.0]
    for name in ("net.pkl", "own.pkl"):
        with pytest.raises(pickle.UnpicklingError):
            importer.load_pickle("m", name, allow_code=False)
    assert not [name for name in importer.modules if name.startswith("pkgtoy")]


def test_opening_a_package_runs_nothing() -> None:
    data = packed(lambda e: e.save_source_string("m", "raise SystemExit('ran')"),
                  lambda e: e.save_source_string("m2", "raise SystemExit('ran')", is_package=True),
                  lambda e: e.save_text("m2", "a.txt", "a"))  # fmt: skip
    importer = PackageImporter(data)

    assert importer.load_text("m2", "a.txt") == "a"
    assert importer.file_structure().has_file("m2/__init__.py")
    with pytest.raises(SystemExit):
        importer.import_module("m")


def test_objects_may_package_themselves(toy: Any) -> None:
    from pkgtoy.own import Own

    own = Own("hey")
    importer = PackageImporter(packed(
        lambda e: (e.intern("pkgtoy.**"), e.save_pickle("c", "1.pkl", [own, own])), lambda e: e.save_pickle("c", "2.pkl", own)
    ))  # fmt: skip

    first, second = importer.load_pickle("c", "1.pkl")

    assert first is second
    assert first.text == importer.load_pickle("c", "2.pkl").text == "hey again"
    assert importer.load_text("own-generated._0", "own.txt") == "hey"


def test_functions_and_inner_classes_are_found_by_name(toy: Any) -> None:
    for protocol in (2, 3, 4):
        importer = PackageImporter(packed(
            lambda e, protocol=protocol: (
                e.intern("pkgtoy.**"),
                e.save_pickle("m", "o.pkl", [toy.plain, toy.Net.Inner, fb.float32, fb.nn.ReLU()], pickle_protocol=protocol),
            )
        ))  # fmt: skip
        plain, inner, dtype, relu = importer.load_pickle("m", "o.pkl")

        assert plain(1) == 2
        assert inner.value == 3
        assert dtype is fb.float32
        assert relu(fb.tensor([-1.0])).tolist() == [0.0]


def test_what_was_loaded_can_be_packaged_again(toy: Any) -> None:
    first = PackageImporter(packed(lambda e: (e.intern("pkgtoy.**"), e.save_pickle("m", "net.pkl", toy.Net()))))
    net = first.load_pickle("m", "net.pkl")

    with pytest.raises(pickle.PicklingError, match="is not the object found as pkgtoy"):
        packed(lambda e: e.save_pickle("m", "net.pkl", net))
    again = packed(lambda e: (e.intern("pkgtoy.**"), e.save_pickle("m", "net.pkl", net)), importer=(first, sys_importer))

    x = fb.randn(3, 2)
    assert fb.equal(PackageImporter(again).load_pickle("m", "net.pkl")(x), net(x))


def test_importers_name_objects(toy: Any) -> None:
    importer = PackageImporter(packed(lambda e: (e.intern("pkgtoy.**"), e.save_module("pkgtoy.net"))))
    packaged = importer.import_module("pkgtoy.net").Net
    both = OrderedImporter(importer, sys_importer)

    assert sys_importer.get_name(toy.Net) == importer.get_name(packaged) == both.get_name(packaged) == ("pkgtoy.net", "Net")
    assert importer.whichmodule(packaged, "Net") == f"{importer.id()}.pkgtoy.net"
    assert both.import_module("pkgtoy.own").Own
    assert both.import_module("pkgtoy").X == 1
    with pytest.raises(ObjMismatchError):
        both.get_name(toy.Net)
    with pytest.raises(ObjNotFoundError):
        importer.get_name(both.import_module("pkgtoy.own").Own)
    with pytest.raises(ModuleNotFoundError):
        both.import_module("pkgtoy_no_such")


# -- actions -------------------------------------------------------------------------------------------------


def test_mocked_modules_can_be_imported_and_not_used(toy: Any) -> None:
    importer = PackageImporter(packed(lambda e: (e.mock("pkgtoy.sub.*"), e.intern("pkgtoy.**"), e.save_module("pkgtoy.net"))))
    net = importer.import_module("pkgtoy.net")

    assert repr(net.twice) == f"MockedObject({importer.id()}.pkgtoy.sub.leaf.twice)"
    for use in (lambda: net.twice(1), lambda: net.twice.a, lambda: net.twice + 1, lambda: net.twice[0], lambda: bool(net.twice)):
        with pytest.raises(NotImplementedError, match=r"leaf\.twice' was mocked out during packaging but it is being used in __"):
            use()
    with pytest.raises(NotImplementedError):
        class _Below(net.twice):
            pass


@pytest.mark.parametrize(
    ("setup", "message"),
    [
        (lambda e: e.save_module("pkgtoy.net"), r"did not match against any action pattern.*\n    pkgtoy\.sub\.leaf\n"),
        (lambda e: (e.deny("pkgtoy.sub.*"), e.save_module("pkgtoy.net")), r"was denied by a pattern.*\n    pkgtoy\.sub\.leaf\n"),
        (lambda e: (e.mock("**"), e.save_pickle("m", "n.pkl", sys.modules["pkgtoy.net"].Net())),
         r"was mocked out, but is still being used[^$]*\n    pkgtoy\.net\n[^$]*'Net'"),
        (lambda e: e.save_module("math"), r"is a C extension module[^$]*\n    math\n"),
        (lambda e: e.save_source_string("bad", "x = (1"), r"Dependency resolution failed[^$]*\n    bad\n.*never closed"),
        (lambda e: e.save_source_string("bad", "from .. import x"), r"bad\n.*beyond top-level package"),
        (lambda e: e.save_source_string("m", "import sys"), r"any action pattern[^$]*\n    sys\n.*standard library"),
        (lambda e: e.save_source_string("m", "import numpy"), r"any action pattern[^$]*\n    numpy\n"),
    ],
)  # fmt: skip
def test_a_package_that_cannot_be_written_says_why_and_leaves_no_file(
    toy: Any, tmp_path: Path, setup: Any, message: str
) -> None:
    path = tmp_path / "p.pt"
    path.write_bytes(b"before")
    with pytest.raises(PackagingError, match=message), PackageExporter(path) as exporter:
        setup(exporter)

    assert path.read_bytes() == b"before"
    assert sorted(os.listdir(tmp_path)) == ["code", "p.pt"]


def test_the_way_to_a_broken_module_is_shown_on_request(toy: Any) -> None:
    with pytest.raises(PackagingError, match=r"A path to pkgtoy\.sub\.leaf: m -> pkgtoy\.net -> pkgtoy\.sub\.leaf"):
        packed(lambda e: (e.intern("pkgtoy.net"), e.save_source_string("m", "import pkgtoy.net")), debug=True)


def test_the_first_pattern_that_matches_counts_and_what_the_environment_has_needs_none(toy: Any) -> None:
    exporter = PackageExporter(io.BytesIO())
    exporter.mock("pkgtoy.sub.*")
    exporter.intern(["pkgtoy.sub.leaf", "pkgtoy.*"], exclude="pkgtoy.own")
    exporter.mock("json")
    exporter.save_source_string("m", "import pkgtoy.net, pkgtoy.sub.leaf, json, not_installed_anywhere")
    exporter.close()

    assert exporter.mocked_modules() == ["pkgtoy.sub.leaf"]
    assert exporter.interned_modules() == ["m", "pkgtoy.net"]
    assert exporter.externed_modules() == ["flambeau", "flambeau.nn", "flambeau.nn.functional", "json"]
    assert exporter.denied_modules() == []


def test_the_graph_of_dependencies_can_be_asked(toy: Any) -> None:
    with PackageExporter(io.BytesIO()) as exporter:
        exporter.intern("pkgtoy.**")
        exporter.save_pickle("model", "net.pkl", toy.Net())

        assert exporter.get_rdeps("pkgtoy.sub.leaf") == ["pkgtoy.net"]
        assert exporter.get_rdeps("pkgtoy.net") == ["<model.net.pkl>"]
        assert exporter.get_rdeps("nothing") == []
        assert '"pkgtoy.net" -> "pkgtoy.sub.leaf";\n' in exporter.dependency_graph_string()
        ways = exporter.all_paths("<model.net.pkl>", "json")
        assert ways == (
            'digraph G {\nrankdir = LR;\nnode [shape=box];\n"<model.net.pkl>" -> "pkgtoy.net";\n'
            '"pkgtoy.net" -> "pkgtoy.sub.leaf";\n"pkgtoy.sub.leaf" -> "json";\n}\n'
        )
        with pytest.raises(ValueError, match="nothing is not in the digraph"):
            exporter.all_paths("nothing", "json")
        assert [exporter.get_unique_id(), exporter.get_unique_id()] == ["0", "1"]


def test_patterns_that_must_match_do(toy: Any) -> None:
    for action in ("intern", "extern", "mock"):
        with pytest.raises(EmptyMatchError, match="did not match any modules"):
            packed(lambda e, action=action: getattr(e, action)("zzz.*", allow_empty=False))
        packed(lambda e, action=action: (getattr(e, action)("pkgtoy.sub.*", allow_empty=False), e.intern("pkgtoy.**"),
                                         e.add_dependency("pkgtoy.net")))  # fmt: skip


def test_hooks_hear_of_each_module_in_order_until_removed(toy: Any) -> None:
    heard: list[tuple[str, str]] = []
    with PackageExporter(io.BytesIO()) as exporter:
        exporter.mock("pkgtoy.sub.*")
        exporter.intern("pkgtoy.**")
        exporter.register_intern_hook(lambda e, name: heard.append(("intern", name)))
        exporter.register_mock_hook(lambda e, name: heard.append(("mock", name)))
        exporter.register_extern_hook(lambda e, name: heard.append(("extern", name)))
        exporter.register_extern_hook(lambda e, name: heard.append(("gone", name))).remove()
        exporter.save_module("pkgtoy.net")

    assert heard[0] == ("intern", "pkgtoy.net")
    assert ("mock", "pkgtoy.sub.leaf") in heard
    assert ("extern", "flambeau.nn") in heard
    assert "gone" not in [kind for kind, _ in heard]


def test_source_may_be_given_as_text_file_or_folder(toy: Any, tmp_path: Path) -> None:
    code = tmp_path / "code" / "pkgtoy"
    data = packed(
        lambda e: e.extern("**"),
        lambda e: e.save_module("pkgtoy.sub.leaf"),
        lambda e: e.save_source_string("pkgtoy.sub.leaf", "def twice(x): return 0\n"),
        lambda e: e.save_source_string("sub.pack", "A = 1\n", is_package=True),
        lambda e: e.save_source_file("one", code / "sub" / "leaf.py"),
        lambda e: e.save_source_file("two", str(code), dependencies=False),
    )
    names = {name.partition("/")[2] for name in zipfile.ZipFile(io.BytesIO(data.getvalue())).namelist()}
    importer = PackageImporter(data)

    assert {"sub/pack/__init__.py", "one.py", "two/__init__.py", "two/net.py", "two/own.py", "two/sub/leaf.py"} <= names
    assert importer.import_module("pkgtoy.sub.leaf").twice(5) == 0
    assert importer.import_module("two.net").plain(1) == 2
    with pytest.raises(FileNotFoundError):
        packed(lambda e: e.save_source_file("x", str(tmp_path / "none.py")))


def test_imports_of_every_form_are_found() -> None:
    from flambeau.package._dependencies import imported_modules

    source = """
        import a.b, c as d
        from e import f, g as h
        from . import i
        from .j import k
        from .. import l
        from m import *
        def later():
            if 0:
                import n
            __import__("o.p")
            __import__("q" + "r")
    """
    there = {"a.b", "c", "e", "e.f", "x.y.i", "x.y", "x.y.j", "x", "x.l", "m", "n", "o.p", "q"}

    assert imported_modules(textwrap.dedent(source), "x.y.z", False, there.__contains__) == [
        "a.b", "c", "e.f", "e", "x.y.i", "x.y.j", "x.l", "m", "n", "o.p",
    ]  # fmt: skip
    assert imported_modules("from . import i", "x.y", True, there.__contains__) == ["x.y.i"]


# -- patterns and trees --------------------------------------------------------------------------------------


def test_patterns_match_as_in_pytorch(oracle: Any) -> None:
    from torch.package import GlobGroup as TheirGroup

    patterns = ["torch.**", "torch.*", "torch*.**", "**", "a.**.b", "f*baz*", "*", "a?", "**.a", "[a]", "a", "a.*.b", "**.a.**"]
    names = ["torch", "torch.nn", "torch.nn.f", "torchvision", "torchvision.a.b", "a", "a.b", "a.c.b", "a.c.d.b", "fbaz", "f.baz",
             "fooxbazq", "ab", "a?", "b.a", "b.c.a", "[a]", "x.a.y"]  # fmt: skip
    for pattern in patterns:
        ours = [name for name in names if GlobGroup(pattern).matches(name)]
        assert ours == [name for name in names if TheirGroup(pattern).matches(name)], pattern
    assert GlobGroup("a/**", separator="/").matches("a/b/c")
    assert not GlobGroup(["a.*", "b"], exclude="a.c").matches("a.c")
    with pytest.raises(ValueError, match="entire path segment"):
        GlobGroup("a**")


def test_the_tree_of_files_is_drawn(tmp_path: Path) -> None:
    with PackageExporter(tmp_path / "t.pt") as exporter:
        exporter.save_text("models", "a.txt", "a")
        exporter.save_text("models.deep", "b.txt", "b")
        exporter.save_source_string("code", "x = 1")
    importer = PackageImporter(tmp_path / "t.pt")

    assert str(importer.file_structure(include=["**/*.txt", "*.py"])) == (
        f"─── {tmp_path}/t.pt\n    ├── models\n    │   ├── deep\n    │   │   └── b.txt\n    │   └── a.txt\n    └── code.py\n"
    )
    assert not importer.file_structure(exclude="**/*.txt").has_file("models/a.txt")
    tree = importer.file_structure()
    assert tree.has_file("models/deep/b.txt")
    assert tree.has_file("models/deep")
    assert not tree.has_file("b.txt")
    assert tree.has_file(".data/extern_modules")


# -- faults --------------------------------------------------------------------------------------------------


def test_an_error_inside_the_block_leaves_nothing(tmp_path: Path) -> None:
    kept = io.BytesIO(b"before")
    for target in (tmp_path / "p.pt", kept):
        with pytest.raises(ZeroDivisionError), PackageExporter(target) as exporter:
            exporter.save_text("a", "b", "c" * (1 // 0))

    assert os.listdir(tmp_path) == []
    assert kept.getvalue() == b"before"


@pytest.mark.parametrize(
    ("package", "resource"), [("../a", "b"), ("a", "../b"), ("a", "b/c"), ("a\0", "b"), ("a", "b\0"), ("a", ""), ("", "b"),
                              ("a..b", "c"), ("a", ".."), ("a\\b", "c")],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(package: str, resource: str) -> None:
    exporter, importer = PackageExporter(io.BytesIO()), PackageImporter(packed(lambda e: e.save_text("a", "x", "y")))

    for use in (exporter.save_text, exporter.save_binary):
        with pytest.raises(ValueError, match="must be"):
            use(package, resource, "text")
    for use in (importer.load_text, importer.load_binary, importer.load_pickle):
        with pytest.raises(ValueError, match="must be"):
            use(package, resource)
    exporter.close()


@pytest.mark.parametrize("name", ["p/../evil.py", "../evil.py", "/evil.py", "p/a\0.py", "p\\evil.py"])
def test_archives_with_names_that_lead_elsewhere_are_refused(name: str) -> None:
    from flambeau._files.archive import ArchiveWriter

    file = io.BytesIO()
    writer = ArchiveWriter(file, "p")
    writer.add(".data/extern_modules", b"\n")
    writer._folder, _, last = name.rpartition("/")
    writer.add(last, b"x = 1")
    writer.close()
    file.seek(0)

    with pytest.raises(RuntimeError, match="unsafe name"):
        PackageImporter(file)


def test_damaged_packages_are_refused_wherever_they_are_cut(toy: Any) -> None:
    whole = packed(lambda e: (e.intern("pkgtoy.**"), e.save_pickle("m", "n.pkl", toy.Net()))).getvalue()

    for end in (0, 3, 100, len(whole) // 2, len(whole) - 30, len(whole) - 1):
        with pytest.raises(RuntimeError):
            PackageImporter(io.BytesIO(whole[:end]))
    at = whole.index(b"class Net")
    importer = PackageImporter(io.BytesIO(whole[:at] + b"klass" + whole[at + 5 :]))
    with pytest.raises(RuntimeError, match="damaged"):
        importer.import_module("pkgtoy.net")


def test_what_is_no_package_is_refused(tmp_path: Path) -> None:
    fb.save({"a": 1}, tmp_path / "a.pt")

    with pytest.raises(RuntimeError, match="extern_modules"):
        PackageImporter(tmp_path / "a.pt")
    with pytest.raises(RuntimeError, match="cannot open"):
        PackageImporter(tmp_path / "none.pt")
    with pytest.raises(AttributeError, match=r"no read"):
        PackageImporter(5)
    with pytest.raises(AttributeError, match="write"):
        PackageExporter(5)


def test_what_is_not_there_is_named() -> None:
    importer = PackageImporter(packed(lambda e: e.save_text("a", "b", "c")))

    with pytest.raises(RuntimeError, match="a/zz"):
        importer.load_text("a", "zz")
    with pytest.raises(ModuleNotFoundError, match="'nope' in self-contained archive") as raised:
        importer.import_module("nope")
    assert raised.value.name == "nope"
    with pytest.raises(ValueError, match="Empty module name"):
        importer.import_module("")
    with pytest.raises(ModuleNotFoundError, match="json"):
        importer.import_module("json")
    with pytest.raises(ModuleNotFoundError, match="nope"):
        packed(lambda e: e.save_module("nope"))
    with pytest.raises(TypeError, match="__name__"):
        packed(lambda e: e.save_module(fb))


def test_external_modules_may_be_forbidden() -> None:
    data = packed(lambda e: e.save_source_string("m", "import json"))

    with pytest.raises(ImportError, match=r"needs the external module 'json'.*disallowed"):
        PackageImporter(data, module_allowed=lambda name: name != "json")


def test_files_are_written_once_and_never_after_the_end() -> None:
    exporter = PackageExporter(io.BytesIO())
    exporter.save_text("a", "b", "1")
    with pytest.raises(AssertionError, match="'a/b'"):
        exporter.save_text("a", "b", "2")
    with pytest.raises(AssertionError, match="'a/b'"):
        exporter.save_pickle("a", "b", fb.ones(2))
    with pytest.raises(pickle.PicklingError, match="lambda"):
        exporter.save_pickle("a", "c", lambda: 1)
    exporter.close()
    exporter.close()
    with pytest.raises(RuntimeError, match="closed"):
        exporter.save_text("a", "d", "1")


def test_a_folder_that_a_package_was_unpacked_to_is_a_package(toy: Any, tmp_path: Path) -> None:
    path = tmp_path / "n.pt"
    with PackageExporter(path) as exporter:
        exporter.intern("pkgtoy.**")
        exporter.save_pickle("m", "n.pkl", toy.Net())
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "out")
    edited = tmp_path / "out" / "n" / "pkgtoy" / "sub" / "leaf.py"
    edited.write_text("def twice(x): return x * 0\n")

    net = PackageImporter(tmp_path / "out" / "n").load_pickle("m", "n.pkl")

    assert net(fb.ones(1, 2)).tolist() == [[0.0, 0.0, 0.0]]


def test_threads_may_load_from_one_importer(toy: Any) -> None:
    importer = PackageImporter(packed(lambda e: e.intern("pkgtoy.**"), lambda e: e.save_pickle("m", "n.pkl", toy.Net()),
                                      *(lambda e, n=n: e.save_text("t", str(n), str(n) * 1000) for n in range(8))))  # fmt: skip
    kinds: set[Any] = set()
    wrong: list[Any] = []

    def work(n: int) -> None:
        for _ in range(20):
            if importer.load_text("t", str(n)) != str(n) * 1000:
                wrong.append(n)
            kinds.add(type(importer.load_pickle("m", "n.pkl")))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong
    assert len(kinds) == 1


# -- with PyTorch --------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
def test_packages_of_pytorch_run_here(oracle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.package import PackageExporter as TheirExporter

    write_modules(tmp_path / "code", "torch")
    monkeypatch.syspath_prepend(tmp_path / "code")
    forget_modules()
    import pkgtoy.net
    import pkgtoy.own

    theirs = pkgtoy.net.Net()
    x = oracle.randn(4, 2)
    with TheirExporter(str(tmp_path / "theirs.pt")) as exporter:
        exporter.intern("pkgtoy.**")
        exporter.mock("unused.**")
        exporter.save_pickle("model", "net.pkl", theirs)
        exporter.save_pickle("model", "own.pkl", pkgtoy.own.Own("hey"))
        exporter.save_pickle("model", "t.pkl", {"x": x, "half": x.half(), "view": x[1:]})
        exporter.save_text("res", "a.txt", "hi")
    forget_modules()

    importer = PackageImporter(tmp_path / "theirs.pt")
    ours = importer.load_pickle("model", "net.pkl")

    assert isinstance(ours, fb.nn.Module)
    assert importer.import_module("pkgtoy.net").lib is fb
    assert fb.allclose(ours(fb.tensor(x.tolist())), fb.tensor(theirs(x).tolist()))
    assert importer.load_pickle("model", "own.pkl").text == "hey again"
    loaded = importer.load_pickle("model", "t.pkl", allow_code=False)
    assert loaded["x"].tolist() == x.tolist()
    assert loaded["half"].dtype is fb.float16
    assert loaded["view"].untyped_storage().data_ptr() == loaded["x"].untyped_storage().data_ptr()
    assert importer.load_text("res", "a.txt") == "hi"
    assert importer.python_version() == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
def test_packages_written_here_run_in_pytorch(oracle: Any, tmp_path: Path, fresh_python: Any) -> None:
    from torch.package import PackageImporter as TheirImporter

    write_modules(tmp_path / "code", "torch")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path / "code")!r})
import torch
import pkgtoy.net, pkgtoy.own
from torch.package import PackageExporter
torch.manual_seed(0)
net, x = pkgtoy.net.Net(), torch.randn(4, 2)
with PackageExporter({str(tmp_path / "ours.pt")!r}) as exporter:
    exporter.mock("pkgtoy.own")
    exporter.intern("pkgtoy.**")
    exporter.save_pickle("model", "net.pkl", net)
    exporter.save_pickle("model", "t.pkl", {{"x": x, "y": net(x).detach(), "half": x.half(), "view": x[1:]}})
    exporter.save_source_string("user", "from pkgtoy.own import Own")
    exporter.save_text("res", "a.txt", "hi")
print(torch.__version__)
"""
    assert "flambeau" in fresh_python("-c", program, FLAMBEAU_AS_TORCH="1")

    importer = TheirImporter(str(tmp_path / "ours.pt"))
    net, data = importer.load_pickle("model", "net.pkl"), importer.load_pickle("model", "t.pkl")

    assert isinstance(net, oracle.nn.Module)
    assert oracle.allclose(net(data["x"]), data["y"])
    assert data["half"].dtype is oracle.float16
    assert data["view"].data_ptr() == data["x"].data_ptr() + 8
    assert importer.load_text("res", "a.txt") == "hi"
    with pytest.raises(NotImplementedError, match="mocked out"):
        importer.import_module("user").Own()


def test_modules_of_pytorch_keep_their_hooks() -> None:
    """Hooks that came with a module were in its tables, but calls did not look for them."""
    net = fb.nn.Linear(1, 1)
    state = {**net.__getstate__(), "_forward_hooks": {0: lambda module, args, out: out * 0}}
    state.pop("_watched")
    again = fb.nn.Linear.__new__(fb.nn.Linear)

    again.__setstate__(state)

    assert again(fb.ones(1, 1)).item() == 0

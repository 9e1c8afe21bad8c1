"""The hub: repositories in folders and behind a server on this machine, weights by URL, and what goes wrong there."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import json
import os
import threading
import zipfile

import pytest

import flambeau as fb
from flambeau import hub

CONF = '''
dependencies = ["math"]
from helper import SIZE

def tiny(width=SIZE):
    """A tiny model."""
    import flambeau as fb
    return fb.nn.Linear(width, 1)

def _hidden():
    pass
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A hub's folder of its own."""
    monkeypatch.setattr(hub, "_hub_dir", str(tmp_path / "hub"))
    return tmp_path


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server on the loopback address that stands for GitHub; yields ``(address, files, asked)``."""
    files: dict[str, bytes] = {}
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            content = files.get(self.path)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{running.server_port}"
    monkeypatch.setattr(hub, "_GITHUB", address)
    monkeypatch.setattr(hub, "_GITHUB_API", address + "/api")
    yield address, files, asked
    running.shutdown()
    running.server_close()


def archive(**files: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as packed:
        for name, text in files.items():
            packed.writestr(f"owner-name-123/{name}.py", text)
    return made.getvalue()


@pytest.fixture
def published(server):
    _, files, _ = server
    files["/owner/name/zipball/v1"] = archive(hubconf=CONF, helper="SIZE = 3")
    files["/api/repos/owner/name/branches?per_page=100&page=1"] = b"[]"
    files["/api/repos/owner/name/tags?per_page=100&page=1"] = json.dumps([{"name": "v1", "commit": {"sha": "ab"}}]).encode()
    return server


def test_a_folder_is_loaded(tmp_path):
    (tmp_path / "hubconf.py").write_text(CONF, encoding="utf-8")
    (tmp_path / "helper.py").write_text("SIZE = 3", encoding="utf-8")

    assert hub.load(str(tmp_path), "tiny", source="local").in_features == 3
    assert hub.load(str(tmp_path), "tiny", 5, source="local").in_features == 5


def test_a_repository_is_downloaded_once(published, folder, capsys):
    for _ in range(2):
        assert hub.list("owner/name:v1", trust_repo=True) == ["tiny"]
    assert hub.help("owner/name:v1", "tiny") == "A tiny model."
    assert hub.load("owner/name:v1", "tiny").in_features == 3
    assert published[2].count("/owner/name/zipball/v1") == 1
    assert "Using cache" in capsys.readouterr().err


def test_a_repository_is_fetched_again_when_asked(published, folder):
    _, files, asked = published
    # A name of its own: what other repositories imported as `helper` stays imported.
    conf = CONF.replace("helper", "helper_of_two")
    files["/owner/name/zipball/v1"] = archive(hubconf=conf, helper_of_two="SIZE = 3")
    assert hub.load("owner/name:v1", "tiny", trust_repo=True).in_features == 3
    files["/owner/name/zipball/v1"] = archive(hubconf=conf, helper_of_two="SIZE = 4")

    assert hub.load("owner/name:v1", "tiny", trust_repo="check").in_features == 3
    assert hub.load("owner/name:v1", "tiny", trust_repo="check", force_reload=True).in_features == 4
    assert asked.count("/owner/name/zipball/v1") == 2


def test_a_branch_of_a_fork_is_refused(published, folder):
    with pytest.raises(ValueError, match="Cannot find v2"):
        hub.load("owner/name:v2", "tiny", trust_repo=True)


def test_code_is_not_run_unless_it_is_trusted(published, folder, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda text: "n")

    with pytest.raises(PermissionError, match="not trusted"):
        hub.load("owner/name:v1", "tiny")
    assert not any("zipball" in path for path in published[2])


def test_the_branch_is_main_or_master(published, folder):
    assert hub._parsed("owner/name") == ("owner", "name", "master")
    published[1]["/owner/name/tree/main/"] = b""
    assert hub._parsed("owner/name") == ("owner", "name", "main")


@pytest.mark.parametrize("name", ["name", "a/b/c", "../x", "a/b:../c", "a/b:x;y"])
def test_names_that_are_none_are_refused(name):
    with pytest.raises(ValueError, match="owner/name"):
        hub.load(name, "tiny", trust_repo=True)


def test_missing_things_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"hubconf\.py"):
        hub.load(str(tmp_path), "tiny", source="local")
    (tmp_path / "hubconf.py").write_text("dependencies = ['nowhere_to_be_found']\ndef tiny(): pass", encoding="utf-8")
    with pytest.raises(RuntimeError, match="nowhere_to_be_found"):
        hub.load(str(tmp_path), "tiny", source="local")
    (tmp_path / "hubconf.py").write_text("", encoding="utf-8")
    with pytest.raises(RuntimeError, match="Cannot find callable tiny"):
        hub.load(str(tmp_path), "tiny", source="local")
    with pytest.raises(ValueError, match="Unknown source"):
        hub.load(str(tmp_path), "tiny", source="elsewhere")


def test_an_archive_that_is_none_leaves_nothing(published, folder):
    published[1]["/owner/name/zipball/v1"] = b"no archive"

    with pytest.raises(zipfile.BadZipFile):
        hub.load("owner/name:v1", "tiny", trust_repo=True)
    assert os.listdir(hub.get_dir()) == ["trusted_list"]


def test_weights_come_by_url_and_are_checked(server, folder):
    address, files, asked = server
    made = io.BytesIO()
    fb.save({"weight": fb.ones(2)}, made)
    digest = hashlib.sha256(made.getvalue()).hexdigest()[:8]
    files[f"/m-{digest}.pt"] = files["/m-00000000.pt"] = made.getvalue()
    fetch = functools.partial(hub.load_state_dict_from_url, progress=False, check_hash=True)

    for _ in range(2):
        assert fetch(f"{address}/m-{digest}.pt")["weight"].tolist() == [1, 1]
    assert len(asked) == 1
    with pytest.raises(RuntimeError, match="invalid hash"):
        fetch(f"{address}/m-00000000.pt")
    assert os.listdir(os.path.join(hub.get_dir(), "checkpoints")) == [f"m-{digest}.pt"]
    assert fb.utils.model_zoo.load_url is hub.load_state_dict_from_url


def test_where_the_hub_is(monkeypatch):
    monkeypatch.setattr(hub, "_hub_dir", None)
    monkeypatch.setenv("TORCH_HOME", "/some/where")
    assert hub.get_dir() == "/some/where/hub"
    monkeypatch.delenv("TORCH_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert hub.get_dir() == "/cache/torch/hub"
    hub.set_dir("/mine")
    assert hub.get_dir() == "/mine"

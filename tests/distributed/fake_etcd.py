"""A small server that speaks what `python-etcd` asks of an etcd server (API of version 2): for tests alone.

    python fake_etcd.py --listen-client-urls http://127.0.0.1:2379

takes the place of the command `etcd`; what else that takes is ignored.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse


class _Keys:
    """Paths with their values and the number of their last change."""

    def __init__(self) -> None:
        self.lock, self.index, self.nodes = threading.Lock(), itertools.count(1), {}
        self.last = 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Etcd-Index", str(self.server.keys.last))  # type: ignore[attr-defined]
        self.end_headers()
        self.wfile.write(data)

    def _error(self, status: int, code: int, message: str, path: str) -> None:
        self._answer(status, {"errorCode": code, "message": message, "cause": path, "index": self.server.keys.last})  # type: ignore[attr-defined]

    def _node(self, path: str) -> dict[str, Any]:
        value, index = self.server.keys.nodes[path]  # type: ignore[attr-defined]
        return {"key": path, "value": value, "modifiedIndex": index, "createdIndex": index}

    def _run(self, method: str) -> None:
        url = urlparse(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        given = {k: v[-1] for k, v in parse_qs(url.query).items()}
        given |= {k: v[-1] for k, v in parse_qs(self.rfile.read(length).decode(), keep_blank_values=True).items()}
        if url.path == "/version":
            self._answer(200, {"etcdserver": "3.4.0", "etcdcluster": "3.4.0"})
            return
        if url.path == "/v2/machines":
            data = f"http://{self.headers['Host']}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            return
        path = "/" + url.path.removeprefix("/v2/keys").strip("/")
        keys = self.server.keys  # type: ignore[attr-defined]
        with keys.lock:
            getattr(self, f"_{method}")(keys, path, given)

    def _get(self, keys: Any, path: str, given: dict[str, str]) -> None:
        if path in keys.nodes:
            self._answer(200, {"action": "get", "node": self._node(path)})
            return
        inside = [self._node(p) for p in keys.nodes if p.startswith(path.rstrip("/") + "/")]
        if path != "/" and not inside:
            self._error(404, 100, "Key not found", path)
            return
        self._answer(200, {"action": "get", "node": {"key": path, "dir": True, "nodes": inside, "modifiedIndex": 1, "createdIndex": 1}})

    def _refused(self, keys: Any, path: str, given: dict[str, str]) -> bool:
        there = keys.nodes.get(path)
        if given.get("prevExist") == "false" and there is not None:
            self._error(412, 105, "Key already exists", path)
        elif there is None and ("prevIndex" in given or given.get("prevExist") == "true"):
            self._error(404, 100, "Key not found", path)
        elif "prevIndex" in given and there[1] != int(given["prevIndex"]):
            self._error(412, 101, "Compare failed", path)
        else:
            return False
        return True

    def _put(self, keys: Any, path: str, given: dict[str, str]) -> None:
        if not self._refused(keys, path, given):
            keys.last = next(keys.index)
            keys.nodes[path] = given.get("value", ""), keys.last
            self._answer(201, {"action": "set", "node": self._node(path)})

    def _delete(self, keys: Any, path: str, given: dict[str, str]) -> None:
        if path not in keys.nodes:
            self._error(404, 100, "Key not found", path)
        elif not self._refused(keys, path, given):
            gone = self._node(path)
            keys.last = next(keys.index)
            del keys.nodes[path]
            self._answer(200, {"action": "delete", "node": {**gone, "value": None}, "prevNode": gone})

    def do_GET(self) -> None:
        self._run("get")

    def do_PUT(self) -> None:
        self._run("put")

    def do_POST(self) -> None:
        self._run("put")

    def do_DELETE(self) -> None:
        self._run("delete")


def serve(host: str = "127.0.0.1", port: int = 0) -> ThreadingHTTPServer:
    """A server, which runs in threads until ``shutdown()``; its port is ``server_port``."""
    server = ThreadingHTTPServer((host, port), _Handler)
    server.daemon_threads = True
    server.keys = _Keys()  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


if __name__ == "__main__":
    url = urlparse(sys.argv[sys.argv.index("--listen-client-urls") + 1])
    serve(url.hostname or "", url.port or 0)
    threading.Event().wait()

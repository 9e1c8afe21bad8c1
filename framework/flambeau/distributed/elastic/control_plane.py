"""Commands that a worker answers while it runs, over HTTP on a Unix socket.

    with worker_main():
        train()

``curl --unix-socket $TORCH_WORKER_SERVER_SOCKET -X POST http://worker/handler/dump_traceback`` shows what its threads do.
"""

from __future__ import annotations

import contextlib
import json
import os
import socketserver
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

__all__ = ["worker_main"]

_SOCKET = "TORCH_WORKER_SERVER_SOCKET"


def _ping() -> tuple[str, str]:
    return "text/plain", "pong\n"


def _dump_traceback() -> tuple[str, str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}")
    return "text/plain", "\n".join(parts)


def _ledger() -> tuple[str, str]:
    from .. import ledger

    return "application/json", json.dumps(ledger(), default=str)


_HANDLERS: dict[str, Callable[[], tuple[str, str]]] = {
    "dump_traceback": _dump_traceback,
    "ledger": _ledger,
    "ping": _ping,
}


class _Request(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path != "/handler/":
            self._answer(404, "text/plain", f"GET /handler/ lists the commands; there is no {self.path}\n")
            return
        self._answer(200, "application/json", json.dumps(sorted(_HANDLERS)))

    def do_POST(self) -> None:
        handler = _HANDLERS.get(self.path.removeprefix("/handler/"))
        if handler is None:
            self._answer(404, "text/plain", f"no command {self.path}; commands: {', '.join(sorted(_HANDLERS))}\n")
            return
        self._answer(200, *handler())

    def _answer(self, status: int, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def address_string(self) -> str:
        """Who asks: a Unix socket has no address."""
        return "unix"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what a worker prints is its own."""


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@contextlib.contextmanager
def worker_main() -> Iterator[None]:
    """Inside of it the worker answers commands at the path in ``TORCH_WORKER_SERVER_SOCKET``; without that nothing is different.

    Commands are ``ping``, ``dump_traceback`` (what each thread does) and ``ledger`` (the last collectives, as JSON). The socket is open
    to this user alone.

    Raises: OSError if the path is taken or cannot be made.
    """
    path = os.environ.get(_SOCKET)
    if not path:
        yield
        return
    before = os.umask(0o177)
    try:
        server = _Server(path, _Request)
    finally:
        os.umask(before)
    threading.Thread(target=server.serve_forever, name="control-plane", daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        os.unlink(path)

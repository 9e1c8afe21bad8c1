"""Tells a monitor over HTTP whether an agent still looks at its workers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["HealthCheckServer", "create_healthcheck_server"]


class HealthCheckServer:
    """Answers each GET by status 200 while the agent is alive, and by 503 when it is not.

    It listens on 127.0.0.1, or where ``FLAMBEAU_BIND`` says. A program may define `start` and `stop` otherwise.

    Args:
        alive_callback: when the agent last looked at its workers, in seconds since 1970.
        port: where to listen; 0 takes one that is free, see `port`.
        timeout: seconds after which an agent that has not looked is taken for dead.
    """

    def __init__(self, alive_callback: Callable[[], int], port: int, timeout: int) -> None:
        self._alive_callback, self._port, self._timeout = alive_callback, port, timeout
        self._server: ThreadingHTTPServer | None = None

    @property
    def alive_callback(self) -> Callable[[], int]:
        """When the agent last looked at its workers, in seconds since 1970."""
        return self._alive_callback

    @alive_callback.setter
    def alive_callback(self, value: Callable[[], int]) -> None:
        self._alive_callback = value

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._port if self._server is None else self._server.server_port

    def start(self) -> None:
        """Begin to answer.

        Raises: OSError if the port is taken.
        """
        checks = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                age = time.time() - checks.alive_callback()
                alive = age <= checks._timeout
                text = f"the agent looked at its workers {age:.0f} s ago\n".encode()
                self.send_response(200 if alive else 503)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: monitors ask often."""

        self._server = ThreadingHTTPServer((os.environ.get("FLAMBEAU_BIND", "127.0.0.1"), self._port), Handler)
        threading.Thread(target=self._server.serve_forever, name="health-check", daemon=True).start()

    def stop(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def create_healthcheck_server(alive_callback: Callable[[], int], port: int, timeout: int) -> HealthCheckServer:
    """The server of an agent.

    Args:
        alive_callback, port, timeout: as for `HealthCheckServer`.
    """
    return HealthCheckServer(alive_callback, port, timeout)

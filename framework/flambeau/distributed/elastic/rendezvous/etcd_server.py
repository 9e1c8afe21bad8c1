"""An etcd server of a program's own: the command ``etcd``, started and stopped."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from typing import Any

from .etcd_store import etcd

__all__ = ["EtcdServer", "find_free_port", "stop_etcd"]

_HOST = "127.0.0.1"


def find_free_port() -> socket.socket:
    """A socket on a port of this machine that was free; close it before the port is used."""
    found = socket.socket()
    found.bind((_HOST, 0))
    return found


def stop_etcd(process: Any, data_dir: str | None = None) -> None:
    """End the server `process`, and remove its folder `data_dir` if one is given."""
    if process is not None and process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()
    if data_dir:
        shutil.rmtree(data_dir, ignore_errors=True)


class EtcdServer:
    """A server for tests and for jobs of one machine; it listens on loopback, on a port that is free.

    The command is ``etcd`` of the path, or what ``TORCHELASTIC_ETCD_BINARY_PATH`` says; a server that knows the API of version 2.

    Args:
        data_dir: where it keeps its data; a folder that is removed afterwards if None.
    """

    def __init__(self, data_dir: str | None = None) -> None:
        self._host, self._port = _HOST, -1
        self._data_dir = data_dir
        self._process: Any = None

    def get_host(self) -> str:
        """The address that it listens on."""
        return self._host

    def get_port(self) -> int:
        """The port that it listens on; -1 before it is started."""
        return self._port

    def get_endpoint(self) -> str:
        """``host:port``."""
        return f"{self._host}:{self._port}"

    def get_client(self) -> Any:
        """An ``etcd.Client`` of it."""
        return etcd().Client(host=self._host, port=self._port, version_prefix="/v2", read_timeout=10)

    def start(self, timeout: int = 60, num_retries: int = 3, stderr: int | Any | None = None) -> None:
        """Start it, and wait until it answers.

        Args:
            timeout: seconds to wait.
            num_retries: how often it is started anew, on another port.
            stderr: as for `subprocess.Popen`.
        Raises: FileNotFoundError without the command; TimeoutError if it does not answer.
        """
        binary = os.environ.get("TORCHELASTIC_ETCD_BINARY_PATH") or shutil.which("etcd")
        if binary is None or not os.path.exists(binary):
            raise FileNotFoundError(
                f"EtcdServer: there is no command {binary or 'etcd'}; install etcd, or say in TORCHELASTIC_ETCD_BINARY_PATH where it is"
            )
        etcd()
        for last in (*[False] * num_retries, True):
            try:
                self._start(binary, timeout, stderr)
            except TimeoutError:
                self.stop()
                if last:
                    raise
            else:
                atexit.register(self.stop)
                return

    def _start(self, binary: str, timeout: float, stderr: Any) -> None:
        with find_free_port() as client, find_free_port() as peer:
            self._port, other = client.getsockname()[1], peer.getsockname()[1]
        self._own_folder = None if self._data_dir else tempfile.mkdtemp(prefix="flambeau_etcd_")
        url = f"http://{self._host}:{self._port}"
        command = [
            binary, "--enable-v2", "--data-dir", self._data_dir or self._own_folder, "--listen-client-urls", url, "--advertise-client-urls",
            url, "--listen-peer-urls", f"http://{self._host}:{other}",
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr or subprocess.DEVNULL)
        self._wait_for(timeout)

    def _wait_for(self, timeout: float) -> None:
        module, end = etcd(), time.monotonic() + timeout
        client = module.Client(host=self._host, port=self._port, version_prefix="/v2", read_timeout=5)
        while time.monotonic() < end:
            status = self._process.poll()
            if status is not None:
                raise TimeoutError(f"EtcdServer: the server at {self.get_endpoint()} ended with status {status} before it answered")
            try:
                client.read("/")
            except (module.EtcdException, OSError):
                time.sleep(0.05)
            else:
                return
        raise TimeoutError(f"EtcdServer: the server at {self.get_endpoint()} did not answer within {timeout} s")

    def stop(self) -> None:
        """End it; what it kept is removed unless `data_dir` was given."""
        stop_etcd(self._process, getattr(self, "_own_folder", None))
        self._process = None

"""Addresses where machines meet."""

from __future__ import annotations

import re
import socket

__all__ = ["parse_rendezvous_endpoint"]


def parse_rendezvous_endpoint(endpoint: str | None, default_port: int) -> tuple[str, int]:
    """Host and port of ``host:port``, ``[IPv6]:port`` or ``host``.

    Args:
        endpoint: the text; localhost if it is empty or None.
        default_port: the port if the text has none.
    Raises: ValueError for a host or a port that cannot be one.
    """
    text = (endpoint or "").strip()
    if not text:
        return "localhost", default_port
    host, colon, port = text, "", ""
    bracketed = re.fullmatch(r"\[([^\]]*)\](?:(:)(.*))?", text)
    if bracketed:
        host, colon, port = bracketed[1], bracketed[2] or "", bracketed[3] or ""
    elif ":" in text:
        host, colon, port = text.rpartition(":")
    if not re.fullmatch(r"[\w.-]+|[0-9A-Fa-f:.]+", host):
        raise ValueError(
            f"The hostname of the rendezvous endpoint '{endpoint}' must be a dot-separated list of labels, an IPv4 address, or an "
            "IPv6 address."
        )
    if not colon:
        return host, default_port
    if not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535:
        raise ValueError(f"The port number of the rendezvous endpoint '{endpoint}' must be an integer between 0 and 65535.")
    return host, int(port)


def is_this_machine(host: str) -> bool:
    """Whether `host` is a name or an address of the machine that this process runs on."""
    try:
        addresses = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    for address in addresses:
        family = socket.AF_INET6 if ":" in str(address) else socket.AF_INET
        # A system lets a program listen at its own addresses only.
        with socket.socket(family, socket.SOCK_STREAM) as found:
            try:
                found.bind((address, 0))
            except OSError:
                continue
            return True
    return False

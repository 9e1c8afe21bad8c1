"""Machines of a job meet: `RendezvousHandler.next_rendezvous` waits for enough of them and tells each its rank.

Kinds are ``static`` (ranks are given), ``c10d`` (machines come and go, and meet in a store) and what a program registers in
`rendezvous_handler_registry`.
"""

from __future__ import annotations

from .api import *  # noqa: F403  # the public names, all of them listed there
from .api import __all__ as __all__

"""The kinds of rendezvous that are there from the start."""

from __future__ import annotations

from .api import RendezvousHandler, RendezvousParameters, rendezvous_handler_registry

__all__ = ["get_rendezvous_handler"]


def _static(params: RendezvousParameters) -> RendezvousHandler:
    from .static_tcp_rendezvous import create_rdzv_handler

    return create_rdzv_handler(params)


def _c10d(params: RendezvousParameters) -> RendezvousHandler:
    from .c10d_rendezvous_backend import create_backend
    from .dynamic_rendezvous import create_handler

    backend, store = create_backend(params)
    return create_handler(store, backend, params)


def _etcd(params: RendezvousParameters) -> RendezvousHandler:
    from .etcd_rendezvous import create_rdzv_handler

    return create_rdzv_handler(params)


rendezvous_handler_registry.register("static", _static)
rendezvous_handler_registry.register("c10d", _c10d)
rendezvous_handler_registry.register("etcd", _etcd)
rendezvous_handler_registry.register("etcd-v2", _etcd)


def get_rendezvous_handler(params: RendezvousParameters) -> RendezvousHandler:
    """The handler that `params` describe, of a kind that `rendezvous_handler_registry` has.

    Args:
        params: the kind, where to meet, and how many.
    Raises: ValueError for an unknown kind; ImportError for etcd without the package `python-etcd`.
    """
    return rendezvous_handler_registry.create_handler(params)

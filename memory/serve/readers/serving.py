"""Serve a store by a process that writes and several that read."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from tempfile import TemporaryDirectory

from memory.serve import create_app
from memory.serve.options import ServiceSettings
from memory.serve.readers.pool import ReaderPool
from memory.serve.running import ANSWER_S, BACKLOG, GRACE_S, address_of, listen, run_app, with_hosts
from memory.store import MemoryStore
from sparse_core.common.service_manager import ServiceManager


def serve_with_readers(
    store: MemoryStore,
    settings: ServiceSettings,
    readers: int,
    *,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, see :func:`memory.serve.running.serve`.

    Readers answer reading requests and forward others to this process, which does not listen on the port
    itself.

    Args:
        store: open store in a folder; the caller closes it afterwards.
        settings, ready: see :func:`memory.serve.running.serve`.
        readers: number of processes that answer reading requests.

    Raises:
        ImportError: uvicorn or FastAPI is not installed.
        ValueError: the address needs a token, or the store is on a server, which needs no readers.
        OSError: the service cannot listen on the address.
        StoreError: a reader did not start.
    """
    settings = with_hosts(settings)
    if store.database.shared:
        raise ValueError("readers need a store in a folder. Start several services of a server instead")
    # Readers check the rate; to this process all of them are one client.
    app = create_app(store, token=settings.token, options=replace(settings.limits, rate=0.0))
    manager = ServiceManager()
    with (
        closing(manager),
        listen(settings.host, settings.port, shared=True, accept=False) as reserved,
        TemporaryDirectory(prefix="recall-") as folder,
        _listen_within(f"{folder}/writer") as inner,
    ):
        own = asdict(replace(settings, port=reserved.getsockname()[1]))
        parameters = {"folder": str(store.folder), "writer": f"{folder}/writer", "settings": own}
        pool = ReaderPool(readers, parameters, stop_s=GRACE_S + 2 * ANSWER_S, accessed=store.accesses.add)
        try:
            pool.start()
            address = address_of(settings.host, reserved)
            if ready is not None:
                ready(address)
            manager.ready(address)
            run_app(app, settings, inner, manager=manager, ending=pool.stop)
        finally:
            pool.stop()


def _listen_within(path: str) -> socket.socket:
    """Return a Unix socket for the other processes of this service."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener

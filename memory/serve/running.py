"""Run the service until the process is stopped."""

from __future__ import annotations

import asyncio
import errno
import gc
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import torch

from memory.serve import create_app
from memory.serve.limits.connections import protocol
from memory.serve.logs import log_config
from memory.serve.options import LOOPBACK_NAMES, ServiceSettings
from memory.store import MemoryStore
from sparse_core.common import blas
from sparse_core.common.service_manager import ServiceManager

#: Seconds for open requests to finish before they are interrupted.
GRACE_S = 15
#: Seconds for interrupted requests to answer.
ANSWER_S = 5
BACKLOG = 2048
#: Maximum open files in addition to connections.
_FILES = 512


def is_loopback(host: str) -> bool:
    """True if only this computer can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def with_hosts(settings: ServiceSettings) -> ServiceSettings:
    """Return the settings with the allowed hosts; raise ``ValueError`` if a public address has no token."""
    hosts = None
    if is_loopback(settings.host):
        hosts = tuple(dict.fromkeys((*LOOPBACK_NAMES, settings.host)))
    elif settings.token is None:
        raise ValueError(
            f"other computers can reach {settings.host}, so a token is needed. Set $RECALL_TOKEN or --token,"
            " or use --host 127.0.0.1"
        )
    return replace(settings, limits=replace(settings.limits, hosts=hosts))


def serve(
    store: MemoryStore, settings: ServiceSettings, *, ready: Callable[[str], None] | None = None
) -> None:
    """Serve until SIGINT or SIGTERM; open requests then have ``GRACE_S`` to finish. Call it in the main
    thread.

    Args:
        store: open store; the caller closes it afterwards.
        settings: how to serve it.
        ready: called with the address of the page when the service accepts requests.

    Raises:
        ImportError: uvicorn or FastAPI is not installed.
        ValueError: the address needs a token.
        OSError: the service cannot listen on the address.
    """
    settings = with_hosts(settings)
    app = create_app(store, token=settings.token, options=settings.limits)
    manager = ServiceManager()
    with closing(manager), listen(settings.host, settings.port) as listener:
        address = address_of(settings.host, listener)
        if ready is not None:
            ready(address)
        manager.ready(address)
        run_app(app, settings, listener, manager=manager)


def address_of(host: str, listener: socket.socket) -> str:
    """Return the address of the page."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}/"


def run_app(
    app: Any,
    settings: ServiceSettings,
    listener: socket.socket,
    *,
    manager: ServiceManager | None = None,
    started: Callable[[Callable[[], None]], None] | None = None,
    ending: Callable[[], None] | None = None,
) -> None:
    """Run an application of :func:`memory.serve.create_app` until SIGINT or SIGTERM.

    Args:
        app: the application.
        settings: its limits, and what it logs.
        listener: socket that accepts connections.
        manager: service manager to notify.
        started: called when the application accepts requests, with a function that ends it.
        ending: called in a thread before the application stops to accept requests.
    """
    try:
        import uvicorn
    except ModuleNotFoundError as error:
        raise ImportError("recall serve needs uvicorn. Install it: pip install 'sparsight[serve]'") from error

    class Server(uvicorn.Server):
        """Server that ends event streams on shutdown and notifies the service manager."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Start to accept requests."""
            await super().startup(sockets)
            if started is not None:
                started(self._end)

        async def on_tick(self, counter: int) -> bool:
            """Notify the service manager."""
            if manager is not None:
                manager.alive()
            return await super().on_tick(counter)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            """End event streams and open requests, then the service."""
            if manager is not None:
                manager.stopping()
            if ending is not None:
                await asyncio.to_thread(ending)
            app.state.service.feed.stop()
            asyncio.get_running_loop().call_later(GRACE_S, app.state.service.interrupt)
            await super().shutdown(sockets)

        def _end(self) -> None:
            self.should_exit = True

    limits, verbosity = settings.limits, settings.verbosity
    config = uvicorn.Config(
        app,
        http=protocol(limits.header_timeout_s, limits.body_timeout_s, limits.max_connections),
        log_config=log_config(verbosity=verbosity, as_json=settings.json_log),
        log_level="error" if verbosity < 0 else "warning",
        access_log=False,  # It would contain tokens.
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=GRACE_S + ANSWER_S,
    )
    torch.set_num_threads(limits.compute_threads)
    blas.set_threads(limits.compute_threads)
    _raise_file_limit(limits.max_connections + _FILES)
    # Later collections need not visit what was imported, which would take 0.2 s.
    gc.collect()
    gc.freeze()
    with _ignore_repeated_signals():
        Server(config).run(sockets=[listener])


def _raise_file_limit(wanted: int) -> None:
    """Raise the limit of open files, because connections beyond it fail."""
    try:
        import resource
    except ImportError:
        return  # This system has no such limit.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def listen(host: str, port: int, *, shared: bool = False, accept: bool = True) -> socket.socket:
    """Return a socket of an address.

    Args:
        host, port: the address.
        shared: True if several processes listen on it; the system spreads the connections.
        accept: False only reserves the address.

    Raises:
        OSError: the address cannot be used.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        if accept:
            listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        hint = ". Choose another --port, or 0 for any free port" if error.errno == errno.EADDRINUSE else ""
        raise OSError(error.errno, f"cannot listen on {host} port {port}: {error.strerror}{hint}") from error
    return listener


@contextmanager
def _ignore_repeated_signals() -> Iterator[None]:
    """Ignore the signals that uvicorn raises again after shutdown, so that the store can be closed."""
    before = {number: signal.signal(number, _ignore) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore(number: int, frame: object) -> None:
    return None

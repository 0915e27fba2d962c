"""Run the service until it is asked to end."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import torch

from memory.serve import create_app
from memory.serve.limits.connections import protocol
from memory.serve.logs import log_config
from memory.serve.options import LOOPBACK_NAMES, ServeOptions
from memory.store import MemoryStore
from sparse_core import blas
from sparse_core.service_manager import ServiceManager

#: Seconds that open requests have to finish; then they are interrupted, and the store is closed.
GRACE_S = 15
#: Seconds that interrupted ones have to answer so.
ANSWER_S = 5
_BACKLOG = 2048
#: Files that the process has open beside its connections, at most.
_FILES = 512


def is_loopback(host: str) -> bool:
    """Whether only this computer reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def options_for(host: str, token: str | None, options: ServeOptions) -> ServeOptions:
    """The options for an address.

    Raises:
        ValueError: others could reach it, and there is no token.
    """
    if is_loopback(host):
        return replace(options, hosts=tuple(dict.fromkeys((*LOOPBACK_NAMES, host))))
    if token is None:
        raise ValueError(
            f"{host} can be reached from other computers: give --token or $RECALL_TOKEN, or stay on 127.0.0.1"
        )
    return replace(options, hosts=None)


def serve(
    store: MemoryStore,
    *,
    host: str = "127.0.0.1",
    port: int = 8713,
    token: str | None = None,
    options: ServeOptions | None = None,
    verbose: bool = False,
    json_log: bool = False,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; open requests then have ``GRACE_S`` to finish. Only in the main thread.

    Args:
        store: open; the caller closes it afterwards.
        host: to listen at; other than the loopback interface only with a token.
        port: 0 for any that is free.
        token: see :func:`memory.serve.create_app`.
        options: limits.
        verbose: a line of the log for each request.
        json_log: lines of the log as JSON.
        ready: called with the address of the page once requests are taken.

    Raises:
        ImportError: uvicorn or FastAPI is not installed.
        ValueError: the address needs a token.
        OSError: the address cannot be listened at.
    """
    try:
        import uvicorn
    except ModuleNotFoundError as error:
        raise ImportError("serving needs uvicorn: pip install 'sparsight[serve]'") from error

    limits = options_for(host, token, options or ServeOptions())
    app = create_app(store, token=token, options=limits)
    listener, manager = _listen(host, port), ServiceManager()

    class Server(uvicorn.Server):
        """Ends the streams of those who follow, which else would never be done; tells that it is alive."""

        async def on_tick(self, counter: int) -> bool:
            """Several times a second, as long as requests are taken."""
            manager.alive()
            return await super().on_tick(counter)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            """End what is open, then the service."""
            manager.stopping()
            app.state.service.feed.stop()
            asyncio.get_running_loop().call_later(GRACE_S, app.state.service.interrupt)
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        http=protocol(limits.header_timeout_s, limits.body_timeout_s, limits.max_connections),
        # One more than there may be: the server refuses from the number on.
        limit_concurrency=limits.max_connections + 1,
        log_config=log_config(verbose=verbose, as_json=json_log),
        log_level="warning",
        access_log=False,  # It would name tokens.
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=GRACE_S + ANSWER_S,
    )
    shown = f"[{host}]" if ":" in host else host
    torch.set_num_threads(limits.compute_threads)
    blas.set_threads(limits.compute_threads)
    _raise_file_limit(limits.max_connections + _FILES)
    with _signals_let_pass(), listener, closing(manager):
        address = f"http://{shown}:{listener.getsockname()[1]}/"
        if ready is not None:
            ready(address)
        manager.ready(address)
        Server(config).run(sockets=[listener])


def _raise_file_limit(wanted: int) -> None:
    """Let the process have so many files open where the system lets it: a connection that finds none ends."""
    try:
        import resource
    except ImportError:
        return  # Not on this system, which has no such limit.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        hint = ": take another port, or 0 for any that is free" if error.errno == errno.EADDRINUSE else ""
        raise OSError(error.errno, f"cannot listen at {host} port {port}: {error.strerror}{hint}") from error
    return listener


@contextmanager
def _signals_let_pass() -> Iterator[None]:
    """The server raises the signals that ended it once more when it is done, to be heard by whoever runs it.

    Here they have been heard: the store is to be closed next.
    """
    before = {number: signal.signal(number, _heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _heard(number: int, frame: object) -> None:
    return None

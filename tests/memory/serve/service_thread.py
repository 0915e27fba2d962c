"""A service in a thread of the test: a process takes seconds to start."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from memory.serve import create_app
from memory.store import MemoryStore


@contextmanager
def serving(store: MemoryStore) -> Iterator[str]:
    """Serve a store within the context; yield the address."""
    app = create_app(store)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            app.state.service.feed.stop()
            server.should_exit = True
            thread.join()

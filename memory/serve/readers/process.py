"""Program of a reader, which :mod:`memory.serve.readers.pool` starts.

The first line of standard input holds the settings as JSON. The reader ends when the input is closed.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from memory.serve import create_app
from memory.serve.options import ServeOptions
from memory.serve.readers.pool import READY
from memory.serve.running import listen, run_app
from memory.store import MemoryStore


def main() -> int:
    """Serve until the input is closed or a signal arrives."""
    settings = json.loads(sys.stdin.readline())
    hosts = settings["options"].pop("hosts")
    options = ServeOptions(hosts=None if hosts is None else tuple(hosts), **settings["options"])
    with MemoryStore.open(Path(settings["folder"]), readonly=True) as store:
        app = create_app(store, token=settings["token"], options=options, writer=settings["writer"])
        listener = listen(settings["host"], settings["port"], shared=True)

        def started(end: Callable[[], None]) -> None:
            print(READY, flush=True)
            threading.Thread(target=_wait_for_end, args=(end,), daemon=True).start()

        run_app(
            app, options, [listener], started=started,
            verbosity=settings["verbosity"], json_log=settings["json_log"],
        )  # fmt: skip
    return 0


def _wait_for_end(end: Callable[[], None]) -> None:
    sys.stdin.read()
    end()


if __name__ == "__main__":
    raise SystemExit(main())

"""Program of a reader, which :mod:`memory.serve.readers.pool` starts.

The first line of standard input holds the settings as JSON. The reader ends when the input is closed.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from memory.search.accesses import Accesses
from memory.serve import create_app
from memory.serve.options import ServeOptions, ServiceSettings
from memory.serve.running import listen, run_app
from memory.store import MemoryStore

#: Line that a reader prints when it accepts connections.
READY = "ready"
#: Seconds between reports of accesses.
_REPORT_S = 1.0


def main() -> int:
    """Serve until the input is closed or a signal arrives."""
    parameters = json.loads(sys.stdin.readline())
    limits = parameters["settings"].pop("limits")
    hosts = limits.pop("hosts")
    limits = ServeOptions(hosts=None if hosts is None else tuple(hosts), **limits)
    settings = ServiceSettings(limits=limits, **parameters["settings"])
    with MemoryStore.open(Path(parameters["folder"]), readonly=True) as store:
        app = create_app(store, token=settings.token, options=limits, writer=parameters["writer"])

        store.accesses.collect()
        ended = threading.Event()
        reporting = threading.Thread(target=_report, args=(store.accesses, ended))

        def started(end: Callable[[], None]) -> None:
            print(READY, flush=True)
            reporting.start()
            threading.Thread(target=_wait_for_end, args=(end,), daemon=True).start()

        with listen(settings.host, settings.port, shared=True) as listener:
            run_app(app, settings, listener, started=started)
        ended.set()
        if reporting.is_alive():
            reporting.join()
    return 0


def _report(accesses: Accesses, ended: threading.Event) -> None:
    """Print the accesses of every second, which the process that writes stores."""
    last = False
    while not last:
        last = ended.wait(_REPORT_S)
        counts = accesses.take()
        if counts:
            try:
                print(json.dumps(counts), flush=True)
            except BrokenPipeError:
                return  # The process that writes has ended.


def _wait_for_end(end: Callable[[], None]) -> None:
    sys.stdin.read()
    end()


if __name__ == "__main__":
    raise SystemExit(main())

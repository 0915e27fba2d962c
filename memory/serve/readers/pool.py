"""Reader processes of a service: started, watched and stopped by the process that writes."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from memory.errors import StoreError
from memory.serve.readers.process import READY

_LOG = logging.getLogger(__name__)
#: Seconds before a reader that ended is started again.
_PAUSE_S = 1.0


class ReaderPool:
    """Reader processes that share a port.

    A reader ends when its standard input is closed, so none outlives the process that writes, however that
    ends. A reader that ends by itself is started again.

    Args:
        count: number of processes.
        settings: JSON values for :func:`memory.serve.readers.process.main`.
        stop_s: seconds in which readers must end after they were asked to.
        accessed: called with the numbers of accesses by memory id that a reader counted.
    """

    def __init__(
        self,
        count: int,
        settings: Mapping[str, Any],
        *,
        stop_s: float,
        accessed: Callable[[Mapping[int, int]], None],
    ) -> None:
        self._accessed = accessed
        self._settings = json.dumps(dict(settings))
        self._stop_s = stop_s
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[str]] = []
        self._threads: list[threading.Thread] = []
        self._count = count

    @property
    def pids(self) -> list[int]:
        """Process ids of the running readers."""
        with self._lock:
            return [process.pid for process in self._processes if process.poll() is None]

    def start(self) -> None:
        """Start the readers and wait until all accept connections.

        Raises:
            StoreError: a reader ended instead.
        """
        try:
            for process in [self._spawn() for _ in range(self._count)]:
                if not _is_ready(process):
                    raise StoreError(
                        f"a reader of the service ended with status {process.wait()}. Its log has the reason"
                    )
                thread = threading.Thread(target=self._watch, args=(process,), daemon=True)
                thread.start()
                self._threads.append(thread)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ask all readers to end, and wait for them; a second call does nothing."""
        self._stopping.set()
        with self._lock:
            processes = list(self._processes)
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(self._stop_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for thread in self._threads:
            thread.join()
        for process in processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _spawn(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "memory.serve.readers.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the process that writes only, which ends in order.
        )
        with self._lock:
            self._processes.append(process)
        assert process.stdin is not None
        try:
            process.stdin.write(self._settings + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # It ended already, which the caller notices.
        return process

    def _watch(self, process: subprocess.Popen[str]) -> None:
        """Read the accesses that a reader counts, and start it again if it ends."""
        while True:
            assert process.stdout is not None
            for line in process.stdout:
                if line.endswith("}\n"):  # A killed reader may leave a part of a line.
                    self._accessed({int(id): count for id, count in json.loads(line).items()})
            status = process.wait()
            if self._stopping.wait(_PAUSE_S):
                return
            _LOG.error("a reader of the service ended with status %s and is started again", status)
            with self._lock:
                self._processes.remove(process)
            process = self._spawn()
            _is_ready(process)
            if self._stopping.is_set():
                process.terminate()


def _is_ready(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline().strip() == READY

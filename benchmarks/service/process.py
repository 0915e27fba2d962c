"""``recall serve`` in a separate process that can be killed and restarted."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.lib.environment import ROOT

#: Program of a client of the service.
CLIENT = Path(__file__).with_name("client.py")
_START_S = 120.0
_END_S = 120.0
_PAGE = 1000


class Service:
    """``recall serve`` of a store.

    Args:
        folder: of the store.
        log: file for its standard error.
        options: further options of the command.
    """

    def __init__(self, folder: Path, log: Path, *options: str) -> None:
        self._options = options
        self._folder = folder
        self._log = log
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self._process: subprocess.Popen[str] | None = None
        #: Seconds from the last start to the first request that was taken.
        self.start_s = 0.0

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it takes requests.

        Raises:
            RuntimeError: the service did not start; the message holds its output.
        """
        begun = time.monotonic()
        command = [sys.executable, "-m", "memory.cli", "serve", str(self._folder)]
        command += ["--port", str(self.port), "--rate", "0", "--json", *self._options]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        while time.monotonic() - begun < _START_S:
            if self._process.poll() is not None:
                break
            try:
                self.get("/api/health")
            except OSError:
                time.sleep(0.02)
                continue
            self.start_s = time.monotonic() - begun
            return
        raise RuntimeError(f"the service did not start: {self._log.read_text()[-500:]}")

    def kill(self) -> None:
        """End it as a power cut would, without any chance to write."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def end(self) -> None:
        """Ask it to end, as Ctrl-C does.

        Raises:
            RuntimeError: it ended in another way than it should.
        """
        assert self._process is not None
        if self._process.poll() is None:
            self._process.terminate()
        self._process.communicate(timeout=_END_S)
        if self._process.returncode != 0:
            raise RuntimeError(f"the service ended with {self._process.returncode}")

    def abandon(self) -> None:
        """End the process in any state."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def get(self, path: str) -> Any:
        """The JSON of an answer."""
        return self.ask("GET", path, None)

    def ask(self, method: str, path: str, body: str | None) -> Any:
        """The JSON of an answer.

        Raises:
            RuntimeError: it is no success.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request(method, path, body, {"content-type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text)

    def captions(self) -> dict[int, str]:
        """The caption of every memory by its id, read page by page."""
        found: dict[int, str] = {}
        cursor = ""
        while True:
            page = self.get(f"/api/memories?order=oldest&limit={_PAGE}{cursor}")
            found |= {memory["id"]: memory["caption"] for memory in page["memories"]}
            if page["cursor"] is None:
                return found
            cursor = f"&cursor={page['cursor']}"

    def resident_bytes(self) -> int:
        """Memory of the process now.

        Raises:
            OSError: the system does not tell.
        """
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))

"""The shared store: PostgreSQL where it can be started, and ``recall serve`` in front of it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from memory import MemoryStore
from memory.persistence.postgres import server as local
from yard.world import DIM


class Shared:
    """Started on entering, ended on leaving.

    Args:
        folder: without a server.
        work: for files.

    Attributes:
        kind: of the store, in words.
        address: of the service.
    """

    def __init__(self, work: Path, *, folder: bool) -> None:
        self._work, self._folder = work, folder
        self._server: Path | None = None

    def __enter__(self) -> Shared:
        """Start the server where there is one, and the service."""
        store = str(self._work / "shared")
        self.kind = "a folder"
        if not self._folder and find_spec("pg0") and find_spec("psycopg"):
            # Not below a folder that only this user may read: root runs the server as another.
            self._server = Path(tempfile.mkdtemp(prefix="fleet-server-"))
            self._server.chmod(0o755)
            store = local.start(self._server)
            self.kind = "PostgreSQL with pgvector"
        with MemoryStore.open(store, dim=DIM):
            pass
        self._service = subprocess.Popen(
            [sys.executable, "-m", "memory.cli", "serve", store, "--port=0", "--rate=0", "--json"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._service.stdout is not None
        self.address = json.loads(self._service.stdout.readline())["address"].rstrip("/")
        return self

    def __exit__(self, *exception: object) -> None:
        """End both."""
        self._service.terminate()
        self._service.communicate()
        if self._server is not None:
            local.stop(self._server)

    def consolidate(self) -> int:
        """Make one of what several saw; how many became fewer."""
        return len(self._post("/api/consolidate", {})["merged"])

    def ask(self, question: str) -> str:
        """The answer in a sentence."""
        return str(self._post("/api/ask", {"question": question, "now": "newest"})["sentence"])

    def memories(self) -> list[dict[str, Any]]:
        """All of them."""
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = self._get(f"/api/memories?limit=1000{cursor}")
            found += page["memories"]
            if page["cursor"] is None:
                return found
            cursor = f"&cursor={page['cursor']}"

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(self.address + path, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            self.address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

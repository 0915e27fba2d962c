"""``recall serve`` in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path


class Served:
    """``recall serve`` in a process of its own."""

    def __init__(self, folder: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        command = [
            sys.executable,
            "-m",
            "memory.cli",
            "serve",
            str(folder),
            "--port",
            "0",
            "--json",
            *options,
        ]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate()[1])
        self.address = json.loads(line)["address"]

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Ask it to end; its exit status and remarks."""
        self.process.send_signal(number)
        _, remarks = self.process.communicate(timeout=300)
        return self.process.returncode, remarks

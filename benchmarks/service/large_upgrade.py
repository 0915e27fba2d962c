"""Upgrade of a store's schema while processes of the older release use it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.lib.environment import ROOT
from memory import MemoryStore

_CLIENT = Path(__file__).with_name("release_client.py")
#: Memories before the upgrade, length of vectors, and seconds of each phase.
_ROWS, _DIM, _PHASE_S = 100_000, 16, 5.0


class _Program:
    """The client, in one release.

    Attributes:
        opened_s: seconds that opening the store took.
        report: its last line, after :meth:`end`.
    """

    def __init__(self, checkout: Path, what: str, place: Path | str, rows: int) -> None:
        words = [sys.executable, str(_CLIENT), what, str(place), str(_DIM), str(rows)]
        words.append(str(2 * rows if checkout == ROOT else rows))
        self._process = subprocess.Popen(
            words, cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the {what} of {checkout.name} ended with {self._process.wait()}")
        self.opened_s = json.loads(line)["opened_s"]
        self.report: dict[str, Any] = {}

    def end(self) -> dict[str, Any]:
        """Close its input and return the figures that are published."""
        if not self.report:
            output, _ = self._process.communicate(timeout=120)
            self.report = json.loads(output)
        errors = self.report["errors"]
        return {
            "calls": self.report["calls"],
            "longest_ms": self.report["longest_ms"],
            "errors": len(errors),
            **({"first_error": errors[0]} if errors else {}),
        }

    def kill(self) -> None:
        """End it in any state."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def upgrade(older: Path, folder: Path, kind: str, place: Path | str, *, rows: int = _ROWS) -> dict[str, Any]:
    """Upgrade a store of an older release, with readers of both releases at work.

    On a server a writer of the older release continues too. In a folder it ends first, because a folder has
    one writer.

    Args:
        older: checkout of the older release.
        folder: where a folder's store is made.
        kind: ``"folder"`` or ``"server"``.
        place: address of the server.
        rows: memories before the upgrade.

    Returns:
        ``upgrade_s`` until the newer release had opened the store, figures of each program, and ``lost``,
        the acknowledged memories that are not there at the end.
    """
    if kind == "folder":
        place = folder / "upgrade"
        shutil.rmtree(place, ignore_errors=True)
    else:
        from benchmarks.service.fleet import schema

        place = schema(str(place), f"upgrade_{time.time_ns()}")
    with ExitStack() as stack:

        def start(checkout: Path, what: str) -> _Program:
            return stack.enter_context(_program(checkout, what, place, rows))

        writer, reader = start(older, "write"), start(older, "read")
        time.sleep(_PHASE_S)
        found: dict[str, Any] = {"rows": rows}
        if kind == "folder":
            writer.end()
        fresh = start(ROOT, "write")
        found["upgrade_s"] = round(fresh.opened_s, 2)
        time.sleep(_PHASE_S)
        fresh_reader = start(ROOT, "read")
        time.sleep(_PHASE_S)
        found["older writer"] = writer.end()
        found["older reader"] = reader.end()
        time.sleep(_PHASE_S)
        found["newer writer"], found["newer reader"] = fresh.end(), fresh_reader.end()
        acknowledged = {*range(rows), *writer.report["acknowledged"], *fresh.report["acknowledged"]}
    with MemoryStore.open(place) as store:
        there = {memory.time_ns // 10**9 for memory in store.database.stream(store.database.ids())}
        found |= {"lost": len(acknowledged - there), "check": "ok" if store.check().ok else "damaged"}
    return found


@contextmanager
def _program(checkout: Path, what: str, place: Path | str, rows: int) -> Iterator[_Program]:
    program = _Program(checkout, what, place, rows)
    try:
        yield program
    finally:
        program.kill()

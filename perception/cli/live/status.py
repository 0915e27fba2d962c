"""Status lines of ``perceive live``: one per second, as text or JSON."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from perception.cli.console import OUTPUT
from perception.cli.scans.options import WarningFilter
from perception.live import Figures
from sparse_core.common.console import LOG, REMARKS

#: Counters that are printed only if they are not zero.
_TROUBLES = {
    "dropped": "dropped", "skipped": "skipped", "unreadable": "unreadable", "late": "late",
    "without_pose": "without pose", "reconnects": "reconnects", "restarts": "restarts",
    "unpublished": "unpublished",
}  # fmt: skip


class LiveRemarks:
    """Warnings on standard error, from any thread; those that differ only in numbers are logged once."""

    def __init__(self) -> None:
        self._filter = WarningFilter()
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        """Log a warning, unless it was logged before."""
        with self._lock:
            new = self._filter.new((text,))
        for one in new:
            LOG.warning(one)


class StatusLines(threading.Thread):
    """Thread that prints the figures of a run once per second, until :meth:`end`.

    Args:
        figures: figures of the run.
        as_json: True prints JSON on standard output instead of text on standard error.
        on_line: called with each line of text.
    """

    def __init__(self, figures: Figures, *, as_json: bool, on_line: Callable[[str], None]) -> None:
        super().__init__(name="status", daemon=True)
        self._figures, self._as_json, self._on_line = figures, as_json, on_line
        self._over = threading.Event()

    def run(self) -> None:
        """Print lines until the end."""
        while not self._over.wait(1.0):
            now = self._figures.now()
            words = in_words(now)
            self._on_line(words)
            if self._as_json:
                _print_json({"time_ns": time.time_ns(), **now})
            elif not LOG.isEnabledFor(logging.INFO):
                continue
            elif REMARKS.is_terminal:
                # Replace the last line.
                print(f"\r\x1b[2K{words}", end="", flush=True)
            else:
                LOG.info(words)

    def end(self) -> None:
        """Stop, and print the summary of the run."""
        self._over.set()
        self.join()
        whole = self._figures.summary()
        if self._as_json:
            _print_json({"time_ns": time.time_ns(), "summary": True, **whole})
            return
        if REMARKS.is_terminal:
            print("\r\x1b[2K", end="")
        OUTPUT.print(
            f"{whole['done']} of {whole['arrived']} scans in {whole['seconds']:.1f} s: {in_words(whole)};"
            f" {whole['objects']} objects",
            highlight=False, markup=False, soft_wrap=True,
        )  # fmt: skip


def in_words(figures: dict[str, Any]) -> str:
    """Return a line of text; counters of problems appear only if not zero."""
    parts = [f"{figures['scans_per_s']:.1f} scans/s"]
    if figures["latency_p50_ms"] is not None:
        parts.append(f"latency {figures['latency_p50_ms']:.0f} ms, p99 {figures['latency_p99_ms']:.0f} ms")
    parts.append(f"{figures['tracks']} tracks")
    if "memories" in figures:
        parts.append(f"{figures['memories']} memories")
    parts += [f"{figures[name]} {words}" for name, words in _TROUBLES.items() if figures[name]]
    return ", ".join(parts)


def _print_json(values: dict[str, Any]) -> None:
    print(json.dumps(values), flush=True)

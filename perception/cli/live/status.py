"""What ``perceive live`` tells while it runs: a line a second, or JSON."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from perception.cli.console import OUTPUT, REMARKS
from perception.cli.scans.options import WarningFilter
from perception.live import Figures

#: What is told only where it happened.
_TROUBLES = {
    "dropped": "dropped", "passed_over": "passed over", "unreadable": "unreadable", "late": "late",
    "without_pose": "without pose", "reconnects": "reconnects", "restarts": "restarts",
    "unpublished": "unpublished",
}  # fmt: skip


class LiveRemarks:
    """Remarks on standard error, from any thread; those that differ in numbers alone are said once."""

    def __init__(self) -> None:
        self._said = WarningFilter()
        self._writing = threading.Lock()

    def __call__(self, text: str) -> None:
        """Say it, if it was not said before."""
        with self._writing:
            new = self._said.new((text,))
        for one in new:
            REMARKS.print(one, style="yellow", highlight=False, markup=False, soft_wrap=True)


class StatusLines(threading.Thread):
    """Tells the figures once a second until :meth:`end`.

    Args:
        figures: of the run.
        as_json: lines of JSON on standard output, in place of one line on the terminal.
        told: called with each line in words.
    """

    def __init__(self, figures: Figures, *, as_json: bool, told: Callable[[str], None]) -> None:
        super().__init__(name="status", daemon=True)
        self._figures, self._as_json, self._told = figures, as_json, told
        self._over = threading.Event()

    def run(self) -> None:
        """Tell, until it is over."""
        while not self._over.wait(1.0):
            now = self._figures.now()
            words = in_words(now)
            self._told(words)
            if self._as_json:
                _print_json({"time_ns": time.time_ns(), **now})
            elif REMARKS.is_terminal:
                # In place of the line before.
                print(f"\r\x1b[2K{words}", end="", flush=True)
            else:
                REMARKS.print(words, highlight=False, markup=False, soft_wrap=True)

    def end(self) -> None:
        """The last line: the whole run."""
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
            f" {whole['things']} things",
            highlight=False, markup=False, soft_wrap=True,
        )  # fmt: skip


def in_words(figures: dict[str, Any]) -> str:
    """A line; troubles are in it where there were some."""
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

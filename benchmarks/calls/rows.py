"""Rows of the benchmark of calls: time of a call, its target, and the time of another side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.lib.timing import Summary, paired_ratio


def timed(call: str, samples_ms: Sequence[float], aim_ms: float | None = None, **more: Any) -> dict[str, Any]:
    """A call that takes milliseconds.

    Args:
        call: what is called, in words.
        samples_ms: wall clock, one a call.
        aim_ms: for the median.
        more: further fields, as of :func:`beside`.
    """
    summary = Summary.of(samples_ms)
    return {
        "call": call,
        "unit": "ms",
        "value": round(summary.median_ms, 4),
        "p99": round(summary.p99_ms, 4),
        "count": summary.count,
        "aim": aim_ms,
        "met": None if aim_ms is None else summary.median_ms <= aim_ms,
        **more,
    }


def rated(call: str, a_second: float, aim: float | None = None, **more: Any) -> dict[str, Any]:
    """A rate per second."""
    met = None if aim is None else a_second >= aim
    return {"call": call, "unit": "a second", "value": round(a_second, 1), "aim": aim, "met": met, **more}


def beside(other: str, theirs_ms: Sequence[float], ours_ms: Sequence[float]) -> dict[str, Any]:
    """Time of the other side over ours, interleaved."""
    return {"other": other, "times": paired_ratio(theirs_ms, ours_ms)["median"]}

"""The report of the doctor, as data and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from perception.io.transform import ScanTransform
from perception.scans.finding import Finding
from sparse_core.common.table import Table, cell

_COLOURS = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_ORDER = ("error", "warning", "info")
_SHOWN_FRAMES = 5


@dataclass(frozen=True)
class NumberRange:
    """Smallest, median and largest of some numbers; zeros without numbers."""

    low: float = 0.0
    median: float = 0.0
    high: float = 0.0


@dataclass(frozen=True)
class Statistics:
    """Statistics of a data set.

    Attributes:
        frames: frames with a readable scan.
        points: points per frame.
        boxes: labelled boxes per class, without DontCare.
        points_per_box: points inside the boxes of each class.
        axes: ranges of x, y and z over all frames, in the unit of the files.
        intensity: range of intensity, as in the files.
    """

    frames: int
    points: NumberRange
    boxes: Mapping[str, int]
    points_per_box: Mapping[str, NumberRange]
    axes: Mapping[str, NumberRange]
    intensity: NumberRange


@dataclass(frozen=True)
class DoctorReport:
    """Findings, errors first, and statistics of a data set.

    Attributes:
        root: folder of the data set.
        findings: findings.
        statistics: statistics of the scans as read.
        read_with: transform with which scans were read.
    """

    root: str
    findings: tuple[Finding, ...]
    statistics: Statistics
    read_with: ScanTransform = field(default_factory=ScanTransform)

    @property
    def transform(self) -> ScanTransform:
        """Transform with which the scans should be read (``load_point_cloud(transform=...)``)."""
        made = self.read_with
        for finding in self.findings:
            if finding.transform is not None:
                made = made.then(finding.transform)
        return made

    @property
    def ok(self) -> bool:
        """True if no finding is an error."""
        return not any(finding.severity == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"root": self.root, "ok": self.ok} | {
            "findings": [_plain(finding) for finding in self.findings],
            "options": self.transform.options,
            "statistics": asdict(self.statistics),
        }


def _plain(finding: Finding) -> dict[str, Any]:
    kept = asdict(finding) | {"frames": list(finding.frames), "options": finding.options}
    del kept["transform"]
    return kept


def sorted_findings(findings: list[Finding]) -> tuple[Finding, ...]:
    """Sort findings by severity, then in the order of the checks."""
    return tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.severity)))


def format_report(report: DoctorReport) -> RenderableType:
    """Format the report as tables and paragraphs for a ``rich`` console."""
    parts: list[RenderableType] = [Text(report.root, style="bold"), _numbers(report.statistics)]
    if report.statistics.boxes:
        parts.append(_classes(report.statistics))
    parts += map(format_finding, report.findings)
    if any(finding.transform for finding in report.findings):
        parts.append(
            Text(f"To read the scans correctly: perceive detect {report.transform.options}", style="bold")
        )
    parts.append(format_summary(report.findings))
    return Group(*parts)


def format_summary(findings: Sequence[Finding]) -> Text:
    """Format the numbers of errors, warnings and notes."""
    counts = {name: sum(finding.severity == name for finding in findings) for name in _ORDER}
    verdict = "Fix the errors first." if counts["error"] else "No errors."
    nouns = {"error": "error", "warning": "warning", "info": "note"}
    parts = [f"{counts[name]} {noun}{'' if counts[name] == 1 else 's'}" for name, noun in nouns.items()]
    summary = f"{', '.join(parts)}. {verdict}"
    return Text(summary, style="bold red" if counts["error"] else "bold green")


def _numbers(statistics: Statistics) -> Table:
    ranges = {"points per frame": statistics.points, **statistics.axes, "intensity": statistics.intensity}
    rows = [(name, *_cells(numbers, ".6g")) for name, numbers in ranges.items()]
    return Table(("", "min", "median", "max"), rows, title=f"{statistics.frames} frames")


def _classes(statistics: Statistics) -> Table:
    rows = [
        (name, count, *_cells(statistics.points_per_box.get(name, NumberRange()), ".0f"))
        for name, count in statistics.boxes.items()
    ]
    return Table(("class", "boxes", "points per box: min", "median", "max"), rows)


def _cells(numbers: NumberRange, spec: str) -> list[str]:
    return [cell(value, spec) for value in (numbers.low, numbers.median, numbers.high)]


def format_finding(finding: Finding) -> Text:
    """Format a finding as a paragraph with its fix."""
    text = Text.assemble(
        (f"{finding.severity} [{finding.check}] ", _COLOURS[finding.severity]), finding.message
    )
    if finding.frames:
        rest = len(finding.frames) - _SHOWN_FRAMES
        text.append(f"\n  frames: {', '.join(finding.frames[:_SHOWN_FRAMES])}")
        text.append(f" and {rest} more" if rest > 0 else "")
    text.append(f"\n  fix: {finding.fix}")
    return text.append(f" Or detect with {finding.options}" if finding.options else "")

"""Findings of checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perception.io.transform import ScanTransform

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Finding:
    """One finding of a check.

    Attributes:
        severity: ``"error"`` makes training or detection useless, ``"warning"`` probably harms it,
            ``"info"`` is informational.
        check: name of the check, such as ``"units"``.
        message: the problem.
        fix: how to fix it.
        frames: ids of the affected frames; empty for the data set as a whole.
        transform: transform of the scans that fixes it, or None.
    """

    severity: Severity
    check: str
    message: str
    fix: str
    frames: tuple[str, ...] = ()
    transform: ScanTransform | None = None

    @property
    def options(self) -> str:
        """Options of ``perceive detect`` that fix it, or ""."""
        return "" if self.transform is None else self.transform.options


def with_frames(*findings: Finding) -> list[Finding]:
    """Return the findings that affect frames."""
    return [finding for finding in findings if finding.frames]

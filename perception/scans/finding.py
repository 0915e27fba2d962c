"""What a check noticed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perception.io.transform import ScanTransform

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Finding:
    """One thing that a check noticed.

    Attributes:
        severity: ``"error"`` makes training or detection useless, ``"warning"`` probably harms it,
            ``"info"`` is good to know.
        check: name of the check, for example ``"units"``.
        message: what is wrong, in words.
        fix: what to do about it.
        frames: ids of the frames concerned; empty where it concerns the data set as a whole.
        transform: what mends it when the scans are read; None where nothing of the kind does.
    """

    severity: Severity
    check: str
    message: str
    fix: str
    frames: tuple[str, ...] = ()
    transform: ScanTransform | None = None

    @property
    def options(self) -> str:
        """Options of ``perceive detect`` that mend it; empty where there are none."""
        return "" if self.transform is None else self.transform.options


def with_frames(*findings: Finding) -> list[Finding]:
    """Those of checks of single frames that concern any: the others noticed nothing."""
    return [finding for finding in findings if finding.frames]

"""Checks for copies of scans, within or across splits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from perception.data.types import SEPARATE_SPLITS
from perception.scans.finding import Finding, with_frames


def fingerprint(xyz: npt.NDArray[np.float32]) -> bytes:
    """Return a hash of the points in order."""
    return hashlib.blake2b(np.ascontiguousarray(xyz).tobytes(), digest_size=16).digest()


def check_repeated_scans(prints: Mapping[str, bytes], lists: Mapping[str, Iterable[str]]) -> list[Finding]:
    """Find frames with the scan of another frame, by fingerprints of scans and frames of splits."""
    same: dict[bytes, list[str]] = {}
    for frame_id, value in prints.items():
        same.setdefault(value, []).append(frame_id)
    groups = [ids for ids in same.values() if len(ids) > 1]
    member = {frame_id: split for split in SEPARATE_SPLITS if split in lists for frame_id in lists[split]}
    leaking = [ids for ids in groups if len({member[name] for name in ids if name in member}) > 1]
    others = [ids for ids in groups if ids not in leaking]
    return with_frames(
        Finding(
            "error",
            "splits",
            f"{len(leaking)} scans are in two splits under different names, so training data is tested.",
            "Remove the copies from one of the splits.",
            tuple(name for ids in leaking for name in ids),
        ),
        Finding(
            "warning",
            "duplicates",
            f"{sum(map(len, others))} frames hold only {len(others)} different scans.",
            "Check whether scans were exported twice, and keep one copy of each.",
            tuple(name for ids in others for name in ids),
        ),
    )

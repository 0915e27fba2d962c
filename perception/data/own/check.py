"""Checks for files without counterpart, and frames in two splits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations

from perception.data.types import SEPARATE_SPLITS
from perception.scans.finding import Finding, with_frames


def check_files(
    scans: Collection[str], labelled: Collection[str] | None, lists: Mapping[str, Collection[str]]
) -> list[Finding]:
    """Find listed frames and labels without scan, scans without labels, and splits that share frames.

    Args:
        scans: frames with a scan.
        labelled: frames with labels; None without labels in the description.
        lists: frames by split.
    """
    findings = []
    for split, listed in lists.items():
        missing = tuple(frame_id for frame_id in listed if frame_id not in scans)
        message = f"The list of split {split} names {len(missing)} frames without a scan."
        fix = "Add the scans, or remove the frames from the list."
        findings.append(Finding("error", "files", message, fix, missing))
    for first, second in combinations([name for name in SEPARATE_SPLITS if name in lists], 2):
        shared = tuple(sorted(set(lists[first]) & set(lists[second])))
        message = f"Splits {first} and {second} share {len(shared)} frames, so training data is tested."
        fix = "Remove them from one split, or delete the lists and run `perceive init --force`."
        findings.append(Finding("error", "splits", message, fix, shared))
    if labelled is None:
        message = "dataset.yaml names no labels, so only the scans were checked."
        fix = "For detection, do nothing. For training, set labels.path and labels.format."
        return [*with_frames(*findings), Finding("info", "labels", message, fix)]
    both = set(labelled) & set(scans)
    orphans, unlabelled = tuple(sorted(set(labelled) - both)), tuple(sorted(set(scans) - both))
    message = f"{len(orphans)} labelled frames have no scan of the same name."
    fix = "Add the scans, or name labels like their scans. Names must match up to the suffix."
    findings.append(Finding("warning" if both else "error", "files", message, fix, orphans))
    message = f"{len(unlabelled)} scans have no labels."
    fix = "Label them, or add an empty list of labels if they show no object."
    findings.append(Finding("warning", "files", message, fix, unlabelled))
    return with_frames(*findings)

"""Which files of a folder of one's own data have no counterpart, and which frames stand in two splits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations

from perception.data.types import SEPARATE_SPLITS
from perception.scans.finding import Finding, with_frames


def check_files(
    scans: Collection[str], labelled: Collection[str] | None, lists: Mapping[str, Collection[str]]
) -> list[Finding]:
    """Listed frames and labels without scan, scans without labels, splits that share frames.

    Args:
        scans: names of the frames with a scan.
        labelled: names of those with labels; None: the description names no labels.
        lists: frames by split.
    """
    findings = []
    for split, listed in lists.items():
        missing = tuple(frame_id for frame_id in listed if frame_id not in scans)
        message = f"The list of split {split} names {len(missing)} frames that have no scan."
        fix = "Add the scans, or take the frames out of the list."
        findings.append(Finding("error", "files", message, fix, missing))
    for first, second in combinations([name for name in SEPARATE_SPLITS if name in lists], 2):
        shared = tuple(sorted(set(lists[first]) & set(lists[second])))
        message = (
            f"Splits {first} and {second} share {len(shared)} frames: what is trained on is tested with."
        )
        fix = "Take them out of one of both; without lists `perceive init --force` makes new ones."
        findings.append(Finding("error", "splits", message, fix, shared))
    if labelled is None:
        message = "dataset.yaml names no labels: only the scans were checked."
        fix = "Nothing to do for detection; for training say where they are (labels.path, labels.format)."
        return [*with_frames(*findings), Finding("info", "labels", message, fix)]
    both = set(labelled) & set(scans)
    orphans, unlabelled = tuple(sorted(set(labelled) - both)), tuple(sorted(set(scans) - both))
    message = f"{len(orphans)} labelled frames have no scan of the same name."
    fix = "Add the scans, or give labels the names of their scans; names must agree up to the suffix."
    findings.append(Finding("warning" if both else "error", "files", message, fix, orphans))
    message = f"{len(unlabelled)} scans have no labels."
    fix = "Label them, or give them an empty list of labels if they truly show no object."
    findings.append(Finding("warning", "files", message, fix, unlabelled))
    return with_frames(*findings)

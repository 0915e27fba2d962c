"""Which classes the labels have, and whether those that are meant are among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches

from perception.doctor.label_facts import LabelFacts
from perception.doctor.wording import LabelWords
from perception.scans.finding import Finding, Severity

#: With fewer boxes than this a class is told to have few.
FEW_BOXES = 50


def check_classes(
    frames: Sequence[LabelFacts], classes: Sequence[str], known: Sequence[str], words: LabelWords
) -> list[Finding]:
    """Names that no configuration knows, classes without boxes or with few.

    Args:
        frames: the measured frames.
        classes: classes that training or detection is meant for.
        known: classes that the data set's labels use.
        words: for the fixes.
    """
    counts = Counter(name for frame in frames for name in frame.types)
    if not counts:
        what = "The label files hold no box at all (DontCare left out)."
        return [Finding("error", "classes", what, words.empty)]
    unknown = [name for name in counts if name not in known and name not in classes]
    findings = [_unknown(name, counts[name], frames, [*known, *classes]) for name in unknown]
    misspelt = {_meant(name, classes) for name in counts if name not in classes}
    missing = [name for name in classes if name not in counts and name not in misspelt]
    if missing:
        none_left = not any(name in counts for name in classes)
        what = f"No box of class {', '.join(missing)} in the label files."
        fix = (
            "A class without boxes cannot be learnt and has no AP: leave it out of the config, or add labels."
        )
        if none_left:
            fix += f" The labels hold {', '.join(f'{name} ({count})' for name, count in counts.items())}."
        findings.append(Finding("warning", "classes", what, fix))
    rare = [f"{name} ({counts[name]})" for name in classes if 0 < counts[name] < FEW_BOXES]
    if rare:
        what = f"Few boxes of class {', '.join(rare)}: fewer than {FEW_BOXES} are too little data."
        fix = "Expect misses, rough boxes and a noisy AP there; add labels or simulated scenes."
        findings.append(Finding("info", "classes", what, fix))
    return findings


def _unknown(name: str, count: int, frames: Sequence[LabelFacts], known: Sequence[str]) -> Finding:
    meant = _meant(name, known)
    ids = tuple(frame.frame_id for frame in frames if name in frame.types)
    if meant is None:
        names = ", ".join(dict.fromkeys(known))
        fix = f"Rename it to one of {names}, or name it in the classes of the config."
        return Finding("warning", "classes", f"{count} boxes have the unknown class {name!r}.", fix, ids)
    same = meant.lower() == name.lower()
    severity: Severity = "error" if same else "warning"
    compared = "class names are compared letter by letter"
    fix = f"Write {meant}: {compared}."
    if not same:
        fix = f"If it is {meant}, write it so ({compared}); else name it in the classes of the config."
    what = f"{count} boxes have the class {name!r}, which is not {meant!r}."
    return Finding(severity, "classes", what, fix, ids)


def _meant(name: str, known: Sequence[str]) -> str | None:
    """The known name of the nearest spelling; None where none is near."""
    lower = {other.lower(): other for other in known}
    near = get_close_matches(name.lower(), lower, n=1, cutoff=0.75)
    return lower[near[0]] if near else None

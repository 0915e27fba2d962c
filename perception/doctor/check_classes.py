"""Which classes the labels have, and whether those that are meant are among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from perception.class_names import nearest_class, same_class
from perception.doctor.label_facts import LabelFacts
from perception.doctor.wording import LabelWords
from perception.scans.finding import Finding

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
    renamed = {name: same_class(name, classes) for name in counts if name not in classes}
    unknown = [name for name, same in renamed.items() if same is not None or name not in known]
    findings = [_unknown(name, counts[name], frames, classes, known, words) for name in unknown]
    nearest = {nearest_class(name, classes) for name in unknown}
    missing = [name for name in classes if name not in counts and name not in nearest]
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


def _unknown(
    name: str,
    count: int,
    frames: Sequence[LabelFacts],
    classes: Sequence[str],
    known: Sequence[str],
    words: LabelWords,
) -> Finding:
    """Report a name that no configuration knows: an error where it means a class under another name."""
    same, ids = same_class(name, classes), tuple(frame.frame_id for frame in frames if name in frame.types)
    if same is not None:
        what = (
            f"{count} boxes have the class {name!r}, which the config calls {same!r}: they would not count."
        )
        return Finding("error", "classes", what, words.rename.format(name=name, meant=same), ids)
    names = list(dict.fromkeys([*classes, *known]))
    near = nearest_class(name, names)
    what = f"{count} boxes have the unknown class {name!r}."
    if near is None:
        fix = f"Rename it to one of {', '.join(names)}, or name it in the classes of the config."
    else:
        what = f"{count} boxes have the class {name!r}, which is not {near!r}."
        fix = f"{words.rename.format(name=name, meant=near)} Else name it in the classes of the config."
    return Finding("warning", "classes", what, fix, ids)


def check_trained_classes(classes: Sequence[str], trained: Sequence[str], weights: str) -> list[Finding]:
    """Report classes that weights know under another name, which fine-tuning would learn anew.

    Args:
        classes: to train.
        trained: classes of the weights.
        weights: what these are called.
    """
    findings = []
    for name in classes:
        same = None if name in trained else same_class(name, trained)
        if same is None:
            continue
        what = f"The weights {weights} know the class {name!r} as {same!r}; from them it would start anew."
        fix = (
            f"Map it to {same} under classes in dataset.yaml (or rename the labels) and write {same} in the"
            " classes of the config; `perceive init --force` does both."
        )
        if same in classes:
            fix = f"Map {name} to {same} under classes in dataset.yaml, or give it a name of another meaning."
        findings.append(Finding("error", "classes", what, fix))
    return findings

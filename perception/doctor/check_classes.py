"""Checks of class names and box counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from perception.class_names import nearest_class, same_class
from perception.doctor.label_facts import LabelFacts
from perception.doctor.wording import LabelWords
from perception.scans.finding import Finding

#: A class with fewer boxes has too few.
FEW_BOXES = 50


def check_classes(
    frames: Sequence[LabelFacts], classes: Sequence[str], known: Sequence[str], words: LabelWords
) -> list[Finding]:
    """Find unknown class names, and classes with no or few boxes.

    Args:
        frames: measured frames.
        classes: classes to train or detect.
        known: classes of the data set's labels.
        words: fixes for the label format.
    """
    counts = Counter(name for frame in frames for name in frame.types)
    if not counts:
        what = "The label files contain no box (DontCare does not count)."
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
            "A class without boxes cannot be trained and has no AP. Remove it from the config, or add labels."
        )
        if none_left:
            fix += f" The labels contain {', '.join(f'{name} ({count})' for name, count in counts.items())}."
        findings.append(Finding("warning", "classes", what, fix))
    rare = [f"{name} ({counts[name]})" for name in classes if 0 < counts[name] < FEW_BOXES]
    if rare:
        what = f"Few boxes of class {', '.join(rare)}: training needs at least {FEW_BOXES}."
        fix = "Add labels or simulated scenes. Otherwise expect missed objects and a noisy AP."
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
    """Report an unknown class name; it is an error if it is another name of a class."""
    same, ids = same_class(name, classes), tuple(frame.frame_id for frame in frames if name in frame.types)
    if same is not None:
        what = f"{count} boxes have the class {name!r}, which the config calls {same!r}, so they are ignored."
        return Finding("error", "classes", what, words.rename.format(name=name, meant=same), ids)
    names = list(dict.fromkeys([*classes, *known]))
    near = nearest_class(name, names)
    what = f"{count} boxes have the unknown class {name!r}."
    add = f"add {name!r} to the classes of the config"
    if near is None:
        fix = f"Rename it to one of {', '.join(names)}, or {add}." if names else f"{add.capitalize()}."
    else:
        what = f"{count} boxes have the class {name!r}, which is not {near!r}."
        fix = f"{words.rename.format(name=name, meant=near)} Or {add}."
    return Finding("warning", "classes", what, fix, ids)


def check_trained_classes(classes: Sequence[str], trained: Sequence[str], weights: str) -> list[Finding]:
    """Report classes that the weights know by another name, so that fine-tuning starts them from scratch.

    Args:
        classes: classes to train.
        trained: classes of the weights.
        weights: name of the weights.
    """
    findings = []
    for name in classes:
        same = None if name in trained else same_class(name, trained)
        if same is None:
            continue
        what = f"The weights {weights} know {name!r} as {same!r}, so training would start it from scratch."
        fix = (
            f"Map {name} to {same} under classes in dataset.yaml, and write {same} in the classes of the"
            " config; `perceive init --force` does both."
        )
        if same in classes:
            fix = f"Map {name} to {same} under classes in dataset.yaml, or give it another name."
        findings.append(Finding("error", "classes", what, fix))
    return findings

"""Names of classes: which names mean the same class, and errors that name the nearest one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

#: Names of data sets and labelling tools by the class that they mean, folded as :func:`_folded` does.
#: Sources: the class lists of KITTI, nuScenes, Waymo Open, Argoverse 2, DAIR-V2X and Cityscapes.
_SYNONYMS = {
    "Car": "car auto automobile sedan suv passengercar regularvehicle vehicle",
    "Pedestrian": "pedestrian person people human walker pedestrianadult adultpedestrian pedestrianchild"
    " childpedestrian pedestrianconstructionworker pedestrianpoliceofficer constructionworker policeofficer",
    "Cyclist": "cyclist bicyclist rider bikerider bicyclerider",
    "Motorcyclist": "motorcyclist motorbiker motorbikerider motorcyclerider",
    "Van": "van",
    "Truck": "truck lorry",
    "Bus": "bus busrigid busbendy",
    "Tram": "tram streetcar",
}
_MEANING = {name: known for known, names in _SYNONYMS.items() for name in names.split()}
#: First words of names that only say what kind of thing follows, as in ``human.pedestrian.adult``.
_PREFIXES = {"type", "vehicle", "human", "object", "agent"}
#: Names that stand for a class only where no other name of the labels does.
_GENERIC = {"vehicle", "vehicles", "typevehicle", "regularvehicle"}


def well_known(name: str) -> str | None:
    """Return the class that a name usually means: ``"Car"`` for ``"vehicle.car"``; None if it means none."""
    words = [word for word in re.split(r"[^0-9a-z]+", name.casefold()) if word]
    while words:
        for form in _forms("".join(words)):
            if form in _MEANING:
                return _MEANING[form]
        if words[0] not in _PREFIXES:
            return None
        words = words[1:]
    return None


def same_class(name: str, known: Iterable[str]) -> str | None:
    """Return the known class that a name means: another case, plural, separator or synonym of it.

    Args:
        name: of a class.
        known: names of classes; a name that is among them means itself.

    Returns:
        One of ``known``; None if the name means none of them.
    """
    names = list(known)
    if name in names:
        return name
    forms = _forms(_folded(name))
    for other in names:
        if forms & _forms(_folded(other)):
            return other
    meaning = well_known(name)
    return next((other for other in names if meaning is not None and well_known(other) == meaning), None)


def nearest_class(name: str, known: Iterable[str]) -> str | None:
    """Return the known class that a name means or resembles; None if none is near."""
    names = list(known)
    same = same_class(name, names)
    if same is not None:
        return same
    folded = {_folded(other): other for other in names}
    near = get_close_matches(_folded(name), folded, n=1, cutoff=0.7)
    return folded[near[0]] if near else None


def unknown_class(name: str, known: Iterable[str]) -> str:
    """Return the message for a class that is not known; it names the nearest one and all of them."""
    names = list(known)
    near = nearest_class(name, names)
    advice = "" if near is None else f" Did you mean {near!r}?"
    return f"unknown class {name!r}.{advice} Known classes: {', '.join(names) or 'none'}"


def check_known(names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse names that are not among the known classes.

    Raises:
        ValueError: the message names the nearest class.
    """
    classes = list(known)
    for name in names:
        if name not in classes:
            raise ValueError(unknown_class(name, classes))


def mapped_classes(names: Sequence[str], trained: Sequence[str]) -> dict[str, str]:
    """Map names of labels to classes: to a trained class where a name means one, else to its usual spelling.

    Args:
        names: of the labels, the most frequent first.
        trained: classes that weights know.

    Returns:
        The class of each name, in the order of ``names``.
    """
    found: dict[str, str] = {}
    exact = {same_class(name, trained) for name in names if _folded(name) not in _GENERIC}
    for name in names:
        meant = same_class(name, trained)
        if meant is not None and _folded(name) in _GENERIC and meant in exact:
            meant = None
        if meant is None:
            forms = _forms(_folded(name))
            meant = next((found[other] for other in found if forms & _forms(_folded(other))), name)
        found[name] = meant
    return found


def _folded(name: str) -> str:
    """Return a name without case and separators."""
    return re.sub(r"[\W_]+", "", name.casefold())


def _forms(folded: str) -> set[str]:
    """Return a folded name and what it may be the plural of."""
    forms = {folded}
    if len(folded) > 3 and folded.endswith("s") and not folded.endswith("ss"):
        forms.add(folded[:-1])
        if folded.endswith("es"):
            forms.add(folded[:-2])
        if folded.endswith("ies"):
            forms.add(f"{folded[:-3]}y")
    return forms

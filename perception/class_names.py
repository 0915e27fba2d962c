"""Class names: synonyms across data sets, and errors that suggest the nearest name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

#: Synonyms by class, in the form of :func:`_folded`.
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
#: Category prefixes, as in ``human.pedestrian.adult``.
_PREFIXES = {"type", "vehicle", "human", "object", "agent"}
#: Names that map to a class only if no other label name does.
_GENERIC = {"vehicle", "vehicles", "typevehicle", "regularvehicle"}


def well_known(name: str) -> str | None:
    """Return the common class for a name, such as ``"Car"`` for ``"vehicle.car"``; None if unknown."""
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
    """Return the class in ``known`` that differs from ``name`` by case, plural, separator or synonym only.

    Returns:
        One of ``known``, or None.
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
    """Return the class in ``known`` that equals or resembles a name, or None."""
    names = list(known)
    same = same_class(name, names)
    if same is not None:
        return same
    folded = {_folded(other): other for other in names}
    near = get_close_matches(_folded(name), folded, n=1, cutoff=0.7)
    return folded[near[0]] if near else None


def unknown_class(name: str, known: Iterable[str]) -> str:
    """Return the message for an unknown class, with the nearest one and all known ones."""
    names = list(known)
    near = nearest_class(name, names)
    advice = "" if near is None else f" Did you mean {near!r}?"
    return f"unknown class {name!r}.{advice} Known classes: {', '.join(names) or 'none'}"


def check_known(names: Iterable[str], known: Iterable[str]) -> None:
    """Check that all names are known classes.

    Raises:
        ValueError: unknown class; the message suggests the nearest one.
    """
    classes = list(known)
    for name in names:
        if name not in classes:
            raise ValueError(unknown_class(name, classes))


def mapped_classes(names: Sequence[str], trained: Sequence[str]) -> dict[str, str]:
    """Map label names to trained classes, and others to their most frequent spelling.

    Args:
        names: label names, most frequent first.
        trained: classes of the weights.

    Returns:
        Class by name, in the order of ``names``.
    """
    found: dict[str, str] = {}
    exact = {same_class(name, trained) for name in names if _folded(name) not in _GENERIC}
    for name in names:
        matching = same_class(name, trained)
        if matching is not None and _folded(name) in _GENERIC and matching in exact:
            matching = None
        if matching is None:
            forms = _forms(_folded(name))
            matching = next((found[other] for other in found if forms & _forms(_folded(other))), name)
        found[name] = matching
    return found


def _folded(name: str) -> str:
    """Return a name in lower case without separators."""
    return re.sub(r"[\W_]+", "", name.casefold())


def _forms(folded: str) -> set[str]:
    """Return a folded name and its possible singulars."""
    forms = {folded}
    if len(folded) > 3 and folded.endswith("s") and not folded.endswith("ss"):
        forms.add(folded[:-1])
        if folded.endswith("es"):
            forms.add(folded[:-2])
        if folded.endswith("ies"):
            forms.add(f"{folded[:-3]}y")
    return forms

"""Where scans, labels and lists of frames lie in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from perception.data.own import DESCRIPTION_NAME, FORMATS, LabelFormat
from perception.data.own.formats import recognised_format
from perception.describe.splits import made_by_init
from perception.errors import DataError
from perception.io.point_cloud import is_point_cloud, known_suffixes

_DEEPEST = 3
_MOST_FOLDERS = 500
_LABEL_FILES = (".json", ".csv", ".xml")
#: In names of folders whose files say something else about a scan.
_NO_LABELS = ("calib", "pose", "image", "oxts", "meta")


class FolderScans(NamedTuple):
    """The folder with the most scans.

    Attributes:
        folder: it.
        paths: its scans in order.
        others: further folders of scans.
    """

    folder: Path
    paths: tuple[Path, ...]
    others: tuple[Path, ...]


class FoundLabels(NamedTuple):
    """Labels of the scans.

    Attributes:
        path: of the folder or file.
        kind: their format.
        shared: scans that have labels.
    """

    path: Path
    kind: type[LabelFormat]
    shared: int


def find_scans(root: Path) -> FolderScans:
    """The scans of a folder, or of the folder below it that has the most.

    Raises:
        DataError: there are none.
    """
    found = {folder: tuple(sorted(filter(is_point_cloud, folder.iterdir()))) for folder in _folders(root)}
    found = {folder: paths for folder, paths in found.items() if paths}
    if not found:
        raise DataError(
            f"{root}: no {known_suffixes()} file in this folder or below; name the folder of data"
        )
    best = max(found, key=lambda folder: len(found[folder]))
    return FolderScans(best, found[best], tuple(folder for folder in found if folder != best))


def find_labels(root: Path, scans: FolderScans) -> FoundLabels | None:
    """Return the labels that have the names of the most scans; None where no file looks like labels.

    Raises:
        DataError: files that look like labels have no known format, or other names than the scans.
    """
    names = {path.stem for path in scans.paths}
    best, damaged, strange = None, [], []
    for path in _label_places(root):
        kind = recognised_format(path)
        if kind is None:
            continue
        try:
            labelled = set(kind(path).frame_ids())
        except DataError as error:
            damaged.append(str(error))
            continue
        shared = len(names & labelled)
        if not shared:
            strange.append(
                f"{path}: labels of {kind.tool}, but none has the name of a scan: labels are called"
                f" {', '.join(sorted(labelled)[:2])}, scans {', '.join(sorted(names)[:2])}"
            )
        elif best is None or shared > best.shared:
            best = FoundLabels(path, kind, shared)
    if best is None:
        problems = [*damaged, *strange, *_unknown_labels(root, names)]
        if problems:
            raise DataError(
                f"{problems[0]}; known formats: {', '.join(FORMATS)} (docs/own-data.md). Export the labels in"
                " one of them under the names of the scans, or describe the scans alone (--no-labels)"
            )
    return best


def _unknown_labels(root: Path, names: set[str]) -> list[str]:
    """Return a sentence for each folder of text files that are called like the scans."""
    found = []
    for folder in _folders(root):
        if any(word in folder.name.lower() for word in _NO_LABELS):
            continue
        files = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in (*_LABEL_FILES, ".txt")]
        files = [path for path in files if {path.stem, Path(path.stem).stem} & names]
        if files:
            found.append(
                f"{folder}: {len(files)} files such as {files[0].name} are called like the scans, but no"
                " known format of labels matches them"
            )
    return found


def find_lists(root: Path) -> Path | None:
    """Return the folder of ``train.txt``: ``ImageSets``, ``splits`` or another one.

    Lists that ``perceive init`` made, and that nobody has changed since, do not count: they are made again.
    """
    there = (folder for folder in _folders(root) if (folder / "train.txt").is_file())
    return next((folder for folder in there if not made_by_init(folder)), None)


def relative(path: Path, root: Path) -> str:
    """The path as written in a description in ``root``."""
    return path.relative_to(root).as_posix()


def _label_places(root: Path) -> Iterator[Path]:
    for folder in _folders(root):
        yield folder
        for path in sorted(folder.iterdir()):
            one_for_all = path.suffix.lower() in _LABEL_FILES and path.is_file()
            if one_for_all and path.name != DESCRIPTION_NAME:
                yield path


def _folders(root: Path) -> Iterator[Path]:
    """The folder and those below it, sorted, nearer ones first; hidden ones are left out."""
    if not root.is_dir():
        raise DataError(
            f"{root}: {'not a folder' if root.exists() else 'no such folder'}; name a folder of data"
        )
    level, seen = [root], 0
    for _ in range(_DEEPEST + 1):
        below: list[Path] = []
        for folder in level:
            seen += 1
            if seen > _MOST_FOLDERS:
                return
            yield folder
            with os.scandir(folder) as entries:
                below += [
                    Path(entry) for entry in entries if entry.is_dir() and not entry.name.startswith(".")
                ]
        level = sorted(below)

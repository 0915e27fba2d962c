"""Search for scans, labels and lists of frames in a folder."""

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
#: Parts of folder names whose files are not labels.
_NO_LABELS = ("calib", "pose", "image", "oxts", "meta")


class FolderScans(NamedTuple):
    """The folder with the most scans.

    Attributes:
        folder: the folder.
        paths: its scans in order.
        others: further folders of scans.
    """

    folder: Path
    paths: tuple[Path, ...]
    others: tuple[Path, ...]


class FoundLabels(NamedTuple):
    """Labels of the scans.

    Attributes:
        path: folder or file.
        kind: format.
        shared: number of scans with labels.
    """

    path: Path
    kind: type[LabelFormat]
    shared: int


def find_scans(root: Path) -> FolderScans:
    """Find the subfolder with the most scans; raise ``DataError`` without scans."""
    found = {folder: tuple(sorted(filter(is_point_cloud, folder.iterdir()))) for folder in _folders(root)}
    found = {folder: paths for folder, paths in found.items() if paths}
    if not found:
        raise DataError(
            f"{root}: no {known_suffixes()} file in this folder or its subfolders. Name the folder of your"
            " data."
        )
    best = max(found, key=lambda folder: len(found[folder]))
    return FolderScans(best, found[best], tuple(folder for folder in found if folder != best))


def find_labels(root: Path, scans: FolderScans) -> FoundLabels | None:
    """Find the labels that match the most scans; None if no file looks like labels.

    Raises:
        DataError: files look like labels, but have an unknown format or do not match the scans.
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
                f"{path}: {kind.tool} labels, but no label has the name of a scan. Labels are named"
                f" {', '.join(sorted(labelled)[:2])}, scans {', '.join(sorted(names)[:2])}"
            )
        elif best is None or shared > best.shared:
            best = FoundLabels(path, kind, shared)
    if best is None:
        problems = [*damaged, *strange, *_unknown_labels(root, names)]
        if problems:
            raise DataError(
                f"{problems[0].removesuffix('.')}. Name labels like their scans, in one of the formats"
                f" {', '.join(FORMATS)} (docs/own-data.md). Or describe only the scans with --no-labels."
            )
    return best


def _unknown_labels(root: Path, names: set[str]) -> list[str]:
    """Return a message for each folder of text files that are named like the scans."""
    found = []
    for folder in _folders(root):
        if any(word in folder.name.lower() for word in _NO_LABELS):
            continue
        files = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in (*_LABEL_FILES, ".txt")]
        files = [path for path in files if {path.stem, Path(path.stem).stem} & names]
        if files:
            found.append(
                f"{folder}: {len(files)} files such as {files[0].name} are named like the scans, but match no"
                " known label format"
            )
    return found


def find_lists(root: Path) -> Path | None:
    """Find the folder of ``train.txt``, except unchanged lists of ``perceive init``, which are replaced."""
    there = (folder for folder in _folders(root) if (folder / "train.txt").is_file())
    return next((folder for folder in there if not made_by_init(folder)), None)


def relative(path: Path, root: Path) -> str:
    """Return a path relative to ``root``, for a description."""
    return path.relative_to(root).as_posix()


def _label_places(root: Path) -> Iterator[Path]:
    for folder in _folders(root):
        yield folder
        for path in sorted(folder.iterdir()):
            one_for_all = path.suffix.lower() in _LABEL_FILES and path.is_file()
            if one_for_all and path.name != DESCRIPTION_NAME:
                yield path


def _folders(root: Path) -> Iterator[Path]:
    """Yield the folder and its subfolders, level by level, without hidden ones."""
    if not root.is_dir():
        raise DataError(
            f"{root}: {'not a folder' if root.exists() else 'no such folder'}. Name the folder of your data."
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

"""``perceive detect --crops``: camera pictures of objects, for search by text."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perception.data.camera import CameraCalibration
from perception.data.crops import LEAST_PIXELS, Rectangle, seen_rectangles, turned_calibration
from perception.data.images import IMAGE_SUFFIXES
from perception.data.kitti import read_calibration
from perception.data.types import Frame
from perception.errors import DataError
from perception.io.transform import ScanTransform
from perception.types import Detections
from sparse_core.common.files import replacing

#: Folder of the crops, next to ``detections.jsonl``.
FOLDER = "crops"
#: JPEG quality, from 1 to 95.
_QUALITY = 90


def add_crop_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--crops``, ``--images``, ``--calibration`` and ``--crop-pixels``."""
    group = parser.add_argument_group("pictures of the objects (for recall import --image-encoder)")
    group.add_argument(
        "--crops",
        action="store_true",
        help=f"save a picture of each object in OUT/{FOLDER}, from the camera of the data set",
    )
    group.add_argument(
        "--images", type=Path, metavar="FOLDER", help="folder of pictures with the names of the scans"
    )
    group.add_argument(
        "--calibration",
        type=Path,
        metavar="PATH",
        help="camera calibration in KITTI's format: one file, or a folder with one file per scan",
    )
    group.add_argument(
        "--crop-pixels",
        type=int,
        metavar="N",
        help=f"smallest width and height of a picture in pixels (default: {LEAST_PIXELS})",
    )


class Crops:
    """Pictures of objects, cut from camera images, with counts.

    Args:
        options: options of the command.
        transform: transform of the scans; calibrations refer to the axes before it.

    Raises:
        ValueError: options conflict.
        DataError: a folder or file is missing or unreadable.
    """

    def __init__(self, options: argparse.Namespace, transform: ScanTransform) -> None:
        given = {"--images": options.images, "--calibration": options.calibration}
        given["--crop-pixels"] = options.crop_pixels
        for name, value in given.items():
            if value is not None and not options.crops:
                raise ValueError(f"{name} needs --crops. Add it, or leave {name} out.")
        if options.crops and options.out is None:
            raise ValueError("--crops needs --out FOLDER for the pictures. Add it.")
        self._wanted, self._out = bool(options.crops), options.out
        self._transform = transform
        self._least_pixels = LEAST_PIXELS if options.crop_pixels is None else options.crop_pixels
        if self._least_pixels < 1:
            raise ValueError(f"--crop-pixels must be at least 1, got {self._least_pixels}")
        self._images = None if options.images is None else _named(options.images, IMAGE_SUFFIXES, "picture")
        self._calibrations: dict[str, Path] | CameraCalibration | None = None
        if options.calibration is not None and options.calibration.is_dir():
            self._calibrations = _named(options.calibration, (".txt",), "calibration")
        elif options.calibration is not None:
            self._calibrations = read_calibration(options.calibration)
        self._counts: Counter[str] = Counter()
        self._without: Counter[str] = Counter()

    def fields(self, name: str, frame: Frame | None, detections: Detections) -> dict[str, Any]:
        """Write the crops of a scan; return the field ``crops``, or nothing without a picture.

        Args:
            name: name of the frame.
            frame: the frame of the data set that holds the scan, if any.
            detections: detections of the scan.

        Raises:
            DataError: the picture or its calibration is unreadable.
        """
        if not self._wanted:
            return {}
        image = self._image(name, frame)
        if image is None:
            self._without["picture"] += 1
            return {}
        calibration = self._calibration(name, frame)
        if calibration is None:
            self._without["calibration"] += 1
            return {}
        return {"crops": self._cut(name, image, calibration, detections)}

    def take_counts(self) -> dict[str, int]:
        """Return and reset the counts, for :meth:`add_counts` in another process."""
        counts = {**self._counts, **{f"without {what}": count for what, count in self._without.items()}}
        self._counts.clear()
        self._without.clear()
        return counts

    def add_counts(self, counts: Mapping[str, int]) -> None:
        """Add the counts of another process."""
        for name, count in counts.items():
            what = name.removeprefix("without ")
            (self._counts if what == name else self._without)[what] += count

    def summary(self) -> str | None:
        """Return how many objects have a crop and why others have none; None without ``--crops``."""
        if not self._wanted:
            return None
        parts = [f"pictures of {self._counts['cut']} of {self._counts.total()} objects"]
        if self._counts["outside"]:
            parts.append(f"{self._counts['outside']} out of the camera's view")
        if self._counts["small"]:
            parts.append(f"{self._counts['small']} smaller than {self._least_pixels} pixels (--crop-pixels)")
        for what, option in (("picture", "--images FOLDER"), ("calibration", "--calibration PATH")):
            if self._without[what]:
                scans = "scan" if self._without[what] == 1 else "scans"
                parts.append(f"{self._without[what]} {scans} without a {what} (add {option})")
        return "; ".join(parts)

    def _image(self, name: str, frame: Frame | None) -> Path | None:
        if self._images is not None:
            return self._images.get(name)
        return None if frame is None else frame.image

    def _calibration(self, name: str, frame: Frame | None) -> CameraCalibration | None:
        if isinstance(self._calibrations, CameraCalibration):
            return self._calibrations
        if self._calibrations is not None:
            return read_calibration(self._calibrations[name]) if name in self._calibrations else None
        return frame.calibration if frame is not None and frame.calibrated else None

    def _cut(
        self, name: str, image: Path, calibration: CameraCalibration, detections: Detections
    ) -> list[str | None]:
        """Write crops; return their names relative to the folder of records, None for unseen objects."""
        # Imported here because it takes long and few runs need it.
        from PIL import Image, UnidentifiedImageError

        turned = turned_calibration(calibration, self._transform)
        names: list[str | None] = []
        try:
            with Image.open(image) as opened:
                picture = opened.convert("RGB")
        except (UnidentifiedImageError, OSError) as error:
            raise DataError(
                f"{image}: not a readable picture ({error}). Replace it, or delete it to detect without"
                " crops."
            ) from error
        (self._out / FOLDER).mkdir(parents=True, exist_ok=True)
        found = seen_rectangles(detections.boxes, turned, picture.size, least_pixels=self._least_pixels)
        for row, part in enumerate(found):
            self._counts[part if isinstance(part, str) else "cut"] += 1
            names.append(f"{FOLDER}/{name}-{row:03d}.jpg" if isinstance(part, Rectangle) else None)
            if isinstance(part, Rectangle):
                with replacing(self._out / FOLDER / f"{name}-{row:03d}.jpg", durable=False) as temporary:
                    picture.crop(part).save(temporary, format="JPEG", quality=_QUALITY)
        return names


def _named(folder: Path, suffixes: tuple[str, ...], what: str) -> dict[str, Path]:
    """Return the files of a folder by name without suffix."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. Name the folder with one {what} per scan.")
    found = {path.stem: path for path in sorted(folder.iterdir()) if path.suffix.lower() in suffixes}
    if not found:
        raise DataError(
            f"{folder}: no {what} in this folder. Name a folder of {' or '.join(suffixes)} files."
        )
    return found

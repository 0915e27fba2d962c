"""Pictures of cameras beside scans: which files they are, and how large they are."""

from __future__ import annotations

from pathlib import Path

from perception.data.camera import DEFAULT_IMAGE_SIZE, CameraCalibration
from perception.errors import DataError

#: Suffixes of pictures, lower case.
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
#: The middle of a camera lies within this part of the size of the picture from its principal point.
_OFF_MIDDLE = 0.15


def find_image(folder: Path, name: str) -> Path | None:
    """The picture of a name without suffix in a folder; None where there is none."""
    suffixes = (*IMAGE_SUFFIXES, *map(str.upper, IMAGE_SUFFIXES))
    return next((path for suffix in suffixes if (path := folder / f"{name}{suffix}").is_file()), None)


def read_image_size(path: Path) -> tuple[int, int]:
    """Width and height in pixels, from the head of the file.

    Raises:
        DataError: it is no picture that can be read.
    """
    # Takes long to import, and few need it.
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as opened:
            return opened.size
    except (UnidentifiedImageError, OSError) as error:
        raise DataError(f"{path}: no picture that can be read ({error}); copy it again") from error


def assumed_image_size(calibration: CameraCalibration) -> tuple[int, int]:
    """Width and height in pixels of a picture that is not there.

    That of KITTI where the camera's principal point is near its middle; else twice the principal point.
    """
    focus, middle = calibration.image_from_camera[:2, 2], DEFAULT_IMAGE_SIZE
    near = all(
        abs(at - size / 2) <= _OFF_MIDDLE * size for at, size in zip(focus.tolist(), middle, strict=True)
    )
    width, height = middle if near else (max(1, round(2 * float(at))) for at in focus)
    return width, height

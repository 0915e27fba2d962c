"""Camera pictures of scans: their files and sizes."""

from __future__ import annotations

from pathlib import Path

from perception.data.camera import DEFAULT_IMAGE_SIZE, CameraCalibration
from perception.errors import DataError

#: Suffixes of pictures, lower case.
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
#: Largest distance of principal point and picture centre, relative to the size.
_OFF_MIDDLE = 0.15


def find_image(folder: Path, name: str) -> Path | None:
    """Return the picture of a name without suffix in a folder, or None."""
    suffixes = (*IMAGE_SUFFIXES, *map(str.upper, IMAGE_SUFFIXES))
    return next((path for suffix in suffixes if (path := folder / f"{name}{suffix}").is_file()), None)


def read_image_size(path: Path) -> tuple[int, int]:
    """Read width and height in pixels from the header; raise ``DataError`` for an unreadable picture."""
    # Imported here because it takes long and few callers need it.
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as opened:
            return opened.size
    except (UnidentifiedImageError, OSError) as error:
        raise DataError(f"{path}: not a readable picture ({error}). Copy it again.") from error


def assumed_image_size(calibration: CameraCalibration) -> tuple[int, int]:
    """Guess width and height in pixels of a missing picture.

    It is KITTI's size if the principal point is near its centre, else twice the principal point.
    """
    focus, middle = calibration.image_from_camera[:2, 2], DEFAULT_IMAGE_SIZE
    near = all(
        abs(at - size / 2) <= _OFF_MIDDLE * size for at, size in zip(focus.tolist(), middle, strict=True)
    )
    width, height = middle if near else (max(1, round(2 * float(at))) for at in focus)
    return width, height

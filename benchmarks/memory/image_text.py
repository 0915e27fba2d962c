"""Words that find what a camera saw: encoders of images and texts on crops of labelled objects.

    python -m benchmarks.memory.image_text --data ../shared/data/nuscenes --encoder class-names

Each object of a nuScenes scene that the camera sees is cut out of its picture; the name of every class asks
for its objects. Reported: average precision per class, its mean and that of chance, the share of crops whose
class is the best text, and the time of both sides. Nothing is trained on them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import number, result, save, show, table
from benchmarks.lib.scenes import default_data
from memory.encode import open_image_text_encoder

#: Minimum side of a crop in pixels, and minimum share of the box inside the picture.
_LEAST_PIXELS, _LEAST_INSIDE = 24, 0.5
#: Margin of a crop on each side, as a share of the size of the box.
_MARGIN = 0.1
#: Query text of each class; nuScenes' names are not everyday words.
_WORDS = {
    "car": "car", "truck": "truck", "trailer": "trailer", "bus.": "bus", "barrier": "barrier",
    "construction": "construction vehicle", "trafficcone": "traffic cone", "motorcycle": "motorcycle",
    "bicycle": "bicycle", "pedestrian": "pedestrian",
}  # fmt: skip


class Crop(NamedTuple):
    """An object in a picture.

    Attributes:
        path: of the picture.
        corners: left, top, right, bottom in pixels, inside the picture.
        word: its class.
    """

    path: Path
    corners: tuple[int, int, int, int]
    word: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "image_text", quick="every eighth crop")
    parser.add_argument(
        "--data", type=Path, default=default_data().parent / "nuscenes", help="nuScenes folder"
    )
    parser.add_argument("--encoder", default="class-names", help="name or folder of a model")
    options = parse(parser, arguments)
    configure(torch.device(options.device), options.threads)
    crops = load_crops(options.data)[:: 8 if options.quick else 1]
    values = measured(options, crops)
    save(values, options)
    rows = [
        [word, f"{facts['crops']}", number(facts["average_precision"], 3), number(facts["chance"], 3)]
        for word, facts in values["classes"].items()
    ]
    title = f"{options.encoder}: mean AP {values['mean_ap']:.3f}, chance {values['mean_chance']:.3f}"
    notes = [
        f"{len(crops)} crops of {options.data.name}; best text is the class of {values['top_1']:.1%};"
        f" {values['image_ms']:.1f} ms an image, {values['text_ms']:.1f} ms a text"
    ]
    columns = ["asked for", "crops", "average precision", "chance"]
    show(values, [table(title, columns, rows)], notes, as_json=options.json)
    return 0


def measured(options: argparse.Namespace, crops: Sequence[Crop]) -> dict[str, Any]:
    """The result file of an encoder."""
    encoder = open_image_text_encoder(options.encoder, device=options.device)
    words = sorted({crop.word for crop in crops})
    start = time.perf_counter()
    asked = encoder.encode_texts(words)
    between = time.perf_counter()
    seen = encoder.encode_images(pixels(crop) for crop in crops)
    end = time.perf_counter()
    scores, labels = seen @ asked.T, np.array([crop.word for crop in crops])
    classes = {
        word: {
            "crops": int((labels == word).sum()),
            "average_precision": average_precision(scores[:, column], labels == word),
            "chance": float((labels == word).mean()),
        }
        for column, word in enumerate(words)
    }
    return result(
        "image_text",
        torch.device(options.device),
        {"encoder": Path(options.encoder).name, "crops": len(crops), "threads": options.threads},
        classes=classes,
        mean_ap=float(np.mean([facts["average_precision"] for facts in classes.values()])),
        mean_chance=float(np.mean([facts["chance"] for facts in classes.values()])),
        top_1=float((np.array(words)[scores.argmax(axis=1)] == labels).mean()),
        image_ms=1e3 * (end - between) / len(crops),
        text_ms=1e3 * (between - start) / len(words),
    )


def average_precision(scores: NDArray[np.float32], right: NDArray[np.bool_]) -> float:
    """Mean of the precision at every right answer, best scores first."""
    ordered = right[np.argsort(-scores, kind="stable")]
    return float((np.cumsum(ordered) / np.arange(1, len(ordered) + 1))[ordered].mean())


def pixels(crop: Crop) -> NDArray[np.uint8]:
    """(H, W, 3) of a crop, with some of what is around it."""
    from PIL import Image

    left, top, right, bottom = crop.corners
    across, down = _MARGIN * (right - left), _MARGIN * (bottom - top)
    with Image.open(crop.path) as picture:
        low = max(0, round(left - across)), max(0, round(top - down))
        high = min(picture.width, round(right + across)), min(picture.height, round(bottom + down))
        return np.array(picture.convert("RGB").crop((*low, *high)))


def load_crops(folder: Path) -> list[Crop]:
    """Objects of ten classes that the front camera of a nuScenes folder sees well enough.

    Raises:
        SystemExit: it is no such folder.
    """
    tables = next(folder.glob("v1.0-*"), None)
    if tables is None:
        raise SystemExit(f"{folder}: no nuScenes data (a folder v1.0-* is missing)")

    def rows(name: str) -> list[dict[str, Any]]:
        loaded: list[dict[str, Any]] = json.loads((tables / f"{name}.json").read_text(encoding="utf-8"))
        return loaded

    category = {row["token"]: row["name"] for row in rows("category")}
    kind = {row["token"]: category[row["category_token"]] for row in rows("instance")}
    sensors = {row["token"]: row for row in rows("calibrated_sensor")}
    poses = {row["token"]: row for row in rows("ego_pose")}
    cameras = {
        row["sample_token"]: row
        for row in rows("sample_data")
        if "CAM_FRONT/" in row["filename"] and row["is_key_frame"]
    }
    crops = []
    for box in rows("sample_annotation"):
        picture = cameras.get(box["sample_token"])
        word = next((word for part, word in _WORDS.items() if part in kind[box["instance_token"]]), None)
        if picture is None or word is None or "rack" in kind[box["instance_token"]]:
            continue
        sensor, pose = sensors[picture["calibrated_sensor_token"]], poses[picture["ego_pose_token"]]
        corners = _inside(_projected(box, sensor, pose), picture["width"], picture["height"])
        if corners is not None:
            crops.append(Crop(folder / picture["filename"], corners, word))
    print(dict(Counter(crop.word for crop in crops)), file=sys.stderr)
    return crops


def _projected(box: dict[str, Any], sensor: dict[str, Any], pose: dict[str, Any]) -> NDArray[np.float64]:
    """(3, 8) corners: pixels right and down, metres ahead."""
    width, length, height = box["size"]
    signs = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]).T
    points = signs * np.array([[length], [width], [height]]) / 2
    points = _rotation(box["rotation"]) @ points + np.array(box["translation"])[:, None]
    for frame in (pose, sensor):
        points = _rotation(frame["rotation"]).T @ (points - np.array(frame["translation"])[:, None])
    seen = np.array(sensor["camera_intrinsic"]) @ points
    found: NDArray[np.float64] = np.concatenate(
        [seen[:2] / np.where(seen[2] > 0, seen[2], np.nan), points[2:]]
    )
    return found


def _inside(points: NDArray[np.float64], width: int, height: int) -> tuple[int, int, int, int] | None:
    """The rectangle around them; None where too little of it can be seen."""
    if points[2].min() < 0.5:
        return None
    low, high = points[:2].min(axis=1), points[:2].max(axis=1)
    least, most = np.clip(low, 0, [width, height]), np.clip(high, 0, [width, height])
    shown = most - least
    if shown.min() < _LEAST_PIXELS or shown.prod() < _LEAST_INSIDE * (high - low).prod():
        return None
    left, top, right, bottom = (round(float(value)) for value in (*least, *most))
    return left, top, right, bottom


def _rotation(quaternion: Sequence[float]) -> NDArray[np.float64]:
    w, x, y, z = quaternion
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

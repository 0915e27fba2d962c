"""Memory of an indoor RGB-D sequence, which has no detectable objects: places only."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.progress import track

from drive.comparison import size_of
from drive.report.picture import DriveSummary, draw_drive
from drive.robot import Tally
from memory import Memory, MemoryStore, Query
from memory.encode import DepthEncoder, ImageEncoder, depth_points
from memory.errors import DataError

SECOND_NS = 10**9
MAP, RATE_HZ = "indoor", 6.0
#: Depth values without a reading.
_NO_READING = (0, 65535)
#: Greatest distance and rotation between views of the same place.
SAME_M, SAME_DEG = 0.5, 30.0


def remember_rgbd(
    folder: Path, store_folder: Path, picture: Path, *, show: bool
) -> tuple[dict[str, Any], Tally]:
    """Remember the views of a sequence, and search for views that were held out.

    Every tenth frame is a query instead of a memory: by its depth image, by its colour image, and for
        comparison by a
    random guess. The only ground truth is the poses.

    Args:
        folder: ``frame-*.depth.png``, ``.color.jpg`` and ``.pose.txt``, and ``camera-intrinsics.txt``.
        store_folder: of a new store.
        picture: PNG to write.
        show: show a progress bar.

    Returns:
        Figures, and the tally of the observations.

    Raises:
        DataError: the folder contains no such sequence.
    """
    names = sorted(path.name.removesuffix(".depth.png") for path in folder.glob("*.depth.png"))
    if not names or not (folder / "camera-intrinsics.txt").is_file():
        raise DataError(
            f"{folder}: not an RGB-D sequence; expected *.depth.png, *.color.jpg, *.pose.txt and"
            " camera-intrinsics.txt"
        )
    intrinsics = np.loadtxt(folder / "camera-intrinsics.txt")
    depth_encoder, image_encoder = DepthEncoder(), _image_encoder()
    tally, asked, path, points = Tally(), [], [], 0
    with MemoryStore.open(store_folder, dim=depth_encoder.dim) as store:
        for number, name in enumerate(track(names, "remembering", disable=not show)):
            pose = np.loadtxt(folder / f"{name}.pose.txt")
            depth = read_depth(folder / f"{name}.depth.png")
            started = time.perf_counter()
            cloud = depth_points(depth, intrinsics, step=4)
            points += len(cloud)
            vector = depth_encoder.encode(depth, intrinsics)
            vectors = {}
            if image_encoder is not None:
                vectors["image"] = image_encoder.encode([folder / f"{name}.color.jpg"])[0]
            tally.detection_ms.append(1e3 * (time.perf_counter() - started))
            memory = _view(pose, number, name, vector, vectors)
            path.append(memory.position[:2])
            if number % 10 == 5:
                asked.append(memory)
                continue
            started = time.perf_counter()
            result = store.observe_logged([memory])
            tally.observe_ms.append(1e3 * (time.perf_counter() - started))
            tally.offered += 1
            tally.kept += result.kept[0].id is not None
            tally.displaced += len(result.displaced)
            if result.kept[0].id is None:
                tally.dropped[result.kept[0].reason.split(",")[0]] += 1
            tally.timeline.append((tally.offered, len(store)))
        done = store.consolidate(now_ns=len(names) * SECOND_NS)
        tally.merges, tally.merged = len(done.merged), sum(len(ids) - 1 for _, ids in done.merged)
        views = store.query(Query(k=10_000))
        same = np.array([[_same(memory, hit.memory) for hit in views] for memory in asked])
        report = {
            "frames": len(names),
            "points_a_cloud": round(points / len(names)),
            "memories": len(store),
            "found_again": {
                shown: _found_again(store, asked, encoder)
                for encoder, shown in (("default", "depth"), ("image", "image"))
                if encoder == "default" or image_encoder is not None
            },
            "could_be_found": float(same.any(axis=1).mean()) if asked else None,
            "guessed": float(same.mean()) if asked else None,
            "asked": len(asked),
        }  # fmt: skip
        title = f"{tally.offered} views, {len(store)} kept as places"
        kept = [hit.memory for hit in views]
        report["picture"] = str(draw_drive(picture, DriveSummary(title, path, tally.timeline, kept)))
    report["bytes"] = size_of(store_folder)
    return report, tally


def read_depth(path: Path) -> NDArray[np.float64]:
    """Read a depth image as (H, W) metres; 0 without a reading."""
    with Image.open(path) as file:
        millimetres = np.asarray(file, np.float64)
    return np.where(np.isin(millimetres, _NO_READING), 0.0, millimetres / 1e3)


def _view(
    pose: NDArray[np.float64],
    number: int,
    name: str,
    vector: NDArray[np.float32],
    vectors: dict[str, NDArray[np.float32]],
) -> Memory:
    """Return a view as a place; poses of the sequence have y down, like a camera."""
    forward = pose[:3, 2]
    return Memory(
        time_ns=round(number / RATE_HZ * SECOND_NS),
        position=(float(pose[0, 3]), float(pose[2, 3]), float(-pose[1, 3])),
        yaw=math.atan2(forward[2], forward[0]),
        map_id=MAP,
        kind="place",
        caption="view of a room",
        embedding=vector,
        embeddings=vectors,
        evidence=name,
        provenance="depth-encoder",
    )


def _same(one: Memory, other: Memory) -> bool:
    turn = math.degrees(abs(math.remainder(one.yaw - other.yaw, 2 * math.pi)))
    return math.dist(one.position, other.position) <= SAME_M and turn <= SAME_DEG


def _found_again(store: MemoryStore, asked: list[Memory], encoder: str) -> float:
    """Return the share of the views whose most similar memory shows the same place."""
    right = 0
    for memory in asked:
        vector = memory.embedding if encoder == "default" else memory.embeddings[encoder]
        (hit, *_) = store.query(Query(embedding=vector, encoder=encoder, k=1))
        right += _same(memory, hit.memory)
    return right / max(len(asked), 1)


def _image_encoder() -> ImageEncoder | None:
    """Return the colour image encoder, or None if its weights are not installed."""
    try:
        return ImageEncoder()
    except ImportError:
        return None

"""Finding places again: recall@1 on a real indoor sequence, by photographs and by depth alone.

    python -m benchmarks.memory.places

Every fifth frame is held out and looked for among the others; a match within 0.5 m is right. With a gap,
frames so close in time to the query are no candidates, so that the answer must come from another visit.
Baselines: downscaled photographs and depth images compared per pixel, the previous frame (which needs no
image), and a random frame. Data: ``$SPARSIGHT_DATA/rgbd_indoor``, by default
``../shared/data/rgbd_indoor``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import Progress

from benchmarks.lib.environment import data_root
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.publish.screen import tables
from memory.encode import DepthEncoder, ImageEncoder, place_recall

_RADIUS_M = 0.5
_EVERY = 5
#: Frames of the sequence, which are a sixth of a second apart.
_GAPS = (0, 5, 20)
_SMALL = (24, 32)


class Frames(NamedTuple):
    """A sequence.

    Attributes:
        colour: files.
        depth_m: (N, H, W) float32, every fourth row and column; NaN where there is no reading.
        intrinsics: (3, 3) of that.
        poses: (N, 4, 4) world_from_camera.
    """

    colour: list[Path]
    depth_m: NDArray[np.float32]
    intrinsics: NDArray[np.float64]
    poses: NDArray[np.float64]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    configure(torch.device("cpu"), options.threads)
    notes: list[str] = []
    frames = read_frames(options.data, 60 if options.quick else None)
    sides: dict[str, dict[str, Any]] = {}
    ways = _ways(frames, options, notes)
    with Progress(disable=options.json) as progress:
        for name, encode in progress.track(ways.items(), description="encoding"):
            start = time.perf_counter()
            vectors = encode()
            spent = (time.perf_counter() - start) * 1e3 / len(vectors)
            sides[name] = {
                "dim": int(vectors.shape[1]),
                "ms_a_frame": round(spent, 2),
                "gaps": [_recalled(frames.poses, vectors, gap) for gap in _GAPS],
            }
    for name in ("frame before", "random frame"):
        sides[name] = {
            "dim": None,
            "ms_a_frame": None,
            "gaps": [_blind(frames.poses, name, gap, options.seed) for gap in _GAPS],
        }
    values = result(
        "places",
        torch.device("cpu"),
        {
            "frames": len(frames.poses),
            "every": _EVERY,
            "radius_m": _RADIUS_M,
            "threads": options.threads,
            "seed": options.seed,
            "quick": options.quick,
        },
        sides=sides,
        notes=[*notes, "times include reading and scaling of photographs; depth images are in memory"],
    )
    save(values, options)
    show(values, tables(values, "memory-places"), values["notes"], as_json=options.json)
    return 0


def data_folder() -> Path:
    """Return the default folder of the sequence."""
    return data_root() / "rgbd_indoor"


def read_frames(folder: Path, most: int | None = None) -> Frames:
    """Read a sequence.

    Args:
        folder: with ``NAME.color.jpg``, ``NAME.depth.png`` (millimetres; 0 and 65535 are no readings),
            ``NAME.pose.txt`` and ``camera-intrinsics.txt``.
        most: frames, the first ones.

    Raises:
        FileNotFoundError: there is no such sequence.
    """
    from PIL import Image

    names = sorted(path.name.removesuffix(".pose.txt") for path in folder.glob("*.pose.txt"))[:most]
    if not names:
        raise FileNotFoundError(
            "no indoor sequence: set SPARSIGHT_DATA to the folder that holds rgbd_indoor/"
        )
    depths = []
    for name in names:
        with Image.open(folder / f"{name}.depth.png") as file:
            raw = np.array(file)[::4, ::4].astype(np.float32)
        raw[(raw == 0) | (raw == 65535)] = np.nan
        depths.append(raw / 1000)
    return Frames(
        [folder / f"{name}.color.jpg" for name in names],
        np.stack(depths),
        np.loadtxt(folder / "camera-intrinsics.txt") / np.array([[4.0], [4.0], [1.0]]),
        np.stack([np.loadtxt(folder / f"{name}.pose.txt") for name in names]),
    )


def small_images(images: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """(N, cells) means over a coarse grid less the image's mean, so that the cosine is a correlation."""
    rows = []
    for image in images:
        filled = np.where(np.isfinite(image), image, np.nanmean(image))
        scaled = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(filled)[None, None], _SMALL)
        flat = scaled.numpy().ravel()
        rows.append(flat - flat.mean())
    return np.stack(rows).astype(np.float32)


def _ways(
    frames: Frames, options: argparse.Namespace, notes: list[str]
) -> dict[str, Callable[[], NDArray[np.float32]]]:
    """Encoders of all frames, by name."""
    ways: dict[str, Callable[[], NDArray[np.float32]]] = {}
    try:
        whole, grid = ImageEncoder(), ImageEncoder(grid=(2, 3))
        whole.encode(frames.colour[:2])
        ways["image encoder"] = lambda: whole.encode(frames.colour)
        ways["image encoder, 2 x 3 cells"] = lambda: grid.encode(frames.colour)
    except ImportError as error:
        notes.append(str(error))
    encoder = DepthEncoder()

    def depths() -> NDArray[np.float32]:
        return np.stack([encoder.encode(depth, frames.intrinsics) for depth in frames.depth_m])

    depth_only = {"depth alone": depths, "small depth images": lambda: small_images([*frames.depth_m])}
    return ways | depth_only | {"small photographs": lambda: small_images(_greys(frames.colour))}


def _greys(files: Sequence[Path]) -> list[NDArray[np.float32]]:
    from PIL import Image

    found = []
    for path in files:
        with Image.open(path) as file:
            found.append(np.array(file.convert("L"), dtype=np.float32))
    return found


def _recalled(poses: NDArray[np.float64], vectors: NDArray[np.float32], gap: int) -> dict[str, Any]:
    found = place_recall(poses, vectors, _RADIUS_M, every=_EVERY, gap=gap)
    return {"gap_frames": gap, **_rounded(found.to_json())}


def _blind(poses: NDArray[np.float64], name: str, gap: int, seed: int) -> dict[str, Any]:
    """Matches without looking: the last frame that is allowed, or one of all at random."""
    places = poses[:, :3, 3]
    rows = np.arange(len(places))
    query, known = rows[rows % _EVERY == _EVERY - 1], rows[rows % _EVERY != _EVERY - 1]
    generator = np.random.default_rng(seed)
    right, away, answerable = 0, [], 0
    for row in query.tolist():
        allowed = known[np.abs(known - row) > gap]
        if not len(allowed):
            continue
        distance = np.linalg.norm(places[allowed] - places[row], axis=1)
        before = allowed[allowed < row]
        if name == "random frame":
            chosen = int(generator.integers(len(allowed)))
        else:
            chosen = int(np.searchsorted(allowed, before[-1])) if len(before) else 0
        away.append(float(distance[chosen]))
        if distance.min() <= _RADIUS_M:
            answerable += 1
            right += distance[chosen] <= _RADIUS_M
    return {
        "gap_frames": gap,
        "recall_at_1": round(right / answerable, 4) if answerable else 0.0,
        "queries": len(query),
        "answerable": answerable,
        "median_distance_m": round(float(np.median(away)), 4) if away else None,
    }


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Four digits; no number where no match was allowed."""
    finite = {n: None if isinstance(v, float) and not np.isfinite(v) else v for n, v in values.items()}
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in finite.items()}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "places", quick="the first 60 frames")
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of the sequence")
    return parse(parser, arguments)


if __name__ == "__main__":
    raise SystemExit(main())

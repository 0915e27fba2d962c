"""Print digests of detections for several numbers of threads; run by ``test_threads.py``."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Sequence

import numpy as np
import torch

from perception import Detector
from perception.run.precision import has_bfloat16
from perception.types import Detections
from sparse_core.conv.convolution.cpu.compiled import PLANNING

#: x, y, z minimum, then maximum, in metres: the part of a scan that dense networks look at.
NEAR_M = (0.0, -7.68, -3.0, 16.64, 7.68, 1.0)
#: Numbers of threads with every way, and with few.
THREADS = {"every": (1, 2, 3, 4), "few": (1, 3)}


def digest(found: Sequence[Detections]) -> str:
    """Return a digest of boxes, scores and embeddings."""
    made = hashlib.sha256()
    for one in found:
        assert len(one.boxes), "a frame without boxes shows nothing"
        for part in (one.boxes, one.scores, one.embeddings):
            made.update(b"" if part is None else np.ascontiguousarray(part).tobytes())
    return made.hexdigest()


def ways(scans: Sequence[torch.Tensor], *, every: bool) -> dict[str, Callable[[], Sequence[Detections]]]:
    """Return the ways to compute frames on a CPU, by name: those of different products, or every one.

    bfloat16 runs only where every way does: smaller instruction sets emulate it, which no detector chooses.
    """
    sparse = Detector.from_pretrained("pointpillars-kitti").with_score_threshold(0.0)
    detectors = {
        "sparse": sparse,
        "dense": Detector.from_pretrained("pointpillars-kitti-dense").with_range(NEAR_M),
    }
    if every and has_bfloat16():
        detectors["bfloat16"] = Detector.from_pretrained("pointpillars-kitti", precision="bfloat16")
    if every:
        detectors["unbounded"] = sparse.with_range(None)
    made: dict[str, Callable[[], Sequence[Detections]]] = {}
    for name, detector in detectors.items():
        each = detector.with_score_threshold(0.0)
        made[name] = lambda each=each: [each(scan) for scan in scans]  # type: ignore[misc]
    if not every:
        return made
    made["batch"] = lambda: sparse.detect_batch([*scans, *scans])

    def without_planning() -> Sequence[Detections]:
        library = PLANNING.library
        try:
            PLANNING.library = lambda: None  # type: ignore[method-assign]
            return [sparse(scan) for scan in scans]
        finally:
            PLANNING.library = library  # type: ignore[method-assign]

    made["arrays"] = without_planning

    def with_autocast() -> Sequence[Detections]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return [detectors["dense"].with_score_threshold(0.0)(scans[0])]

    made["autocast"] = with_autocast
    return made


def main(path: str, which: str) -> None:
    """Print ``{way: [digest for each number of threads]}`` as JSON."""
    every = which == "every"
    scans = [torch.from_numpy(points) for points in np.load(path).values()]
    scans = scans if every else scans[-1:]
    found: dict[str, list[str]] = {}
    for name, way in ways(scans, every=every).items():
        for count in THREADS[which]:
            torch.set_num_threads(count)
            found.setdefault(name, []).append(digest(way()))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

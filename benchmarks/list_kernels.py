"""Write down which kernels first frames of the shipped weights compile, for cores to compile side by side.

    python benchmarks/list_kernels.py        # on a GPU; writes perception/run/kernels.json

To be run anew when a kernel of a frame, or what it is compiled for, has changed: entries that fit nothing are
compiled for nothing, and what the list lacks is compiled at its launch.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
# What is in a cache would not be compiled, and not be measured.
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()

import torch  # noqa: E402

from benchmarks.scenes import default_data, load_frames  # noqa: E402
from perception.detector import Detector  # noqa: E402
from perception.run import graph  # noqa: E402
from sparse_core.ahead import recorded  # noqa: E402

WEIGHTS = ("pointpillars-kitti", "pointpillars-anywhere")
LISTED = ROOT / "perception" / "run" / "kernels.json"


def main() -> int:
    """Write the list, the slowest first, so that none of these begins last."""
    graph.compile_ahead = lambda listed, device_index: None  # type: ignore[assignment,attr-defined]
    points = torch.as_tensor(load_frames(default_data(), 1).points[0])
    times: dict[str, float] = {}
    entries: dict[str, dict[str, Any]] = {}
    for name in WEIGHTS:
        with recorded() as found:
            Detector.from_pretrained(name, device="cuda")(points)
        for entry in found:
            seconds = entry.pop("seconds")
            key = json.dumps(entry)
            entries[key], times[key] = entry, max(times.get(key, 0.0), seconds)
        print(f"{name}: {len(found)} kernels")
    lines = sorted(entries, key=lambda key: -times[key])
    LISTED.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    print(f"{LISTED}: {len(lines)} kernels, {sum(times.values()):.1f} s one after the other")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Write down which kernels first frames of the shipped weights compile, for cores to compile side by side.

    python -m benchmarks.detector.list_kernels          # on a GPU; writes perception/run/kernels.json
    python -m benchmarks.detector.list_kernels --add    # on another kind of GPU, which chooses other tiles
    python -m benchmarks.detector.list_kernels --pack   # anywhere; compiles the list with this Triton

Run it again when a kernel of a frame or its compile options change. Stale entries waste compile time; missing
entries are compiled at their first launch. A test fails when a pack does not match the sources.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

# A cached kernel would not be compiled and therefore not be listed.
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()

import torch

from benchmarks.lib.environment import ROOT
from benchmarks.lib.scenes import default_data, load_frames
from perception.detector import Detector
from perception.run import graph
from sparse_core.kernels.ahead import job_of, recorded
from sparse_core.kernels.kernel_packs import pack_path, write_pack

WEIGHTS = ("pointpillars-kitti", "pointpillars-anywhere")
LISTED = ROOT / "perception" / "run" / "kernels.json"
#: Fuller scans choose other tiles.
SCANS = 8
#: Hopper, which the kernels are written for.
CAPABILITY = 90


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--add", action="store_true", help="keep what the list has")
    parser.add_argument("--pack", action="store_true", help="compile the list")
    parser.add_argument("--data", type=Path, default=default_data(), help="KITTI folder; simulated if absent")
    options = parser.parse_args()
    if options.pack:
        jobs = [job_of(entry, CAPABILITY) for entry in json.loads(LISTED.read_text())]
        path = pack_path(LISTED, CAPABILITY)
        print(f"{path}: {write_pack(path, jobs):,} bytes")
    else:
        _list(options.data, json.loads(LISTED.read_text()) if options.add else [])
    return 0


def _list(data: Path, known: list[dict[str, Any]]) -> None:
    """Write the list, the slowest first, so that none of these begins last."""
    graph.compile_ahead = lambda listed, device_index: None  # type: ignore[assignment,attr-defined]
    clouds = [torch.as_tensor(points) for points in load_frames(data, SCANS).points]
    lines = [json.dumps(entry) for entry in known]
    times = dict.fromkeys(lines, 0.0)
    for name in WEIGHTS:
        for cloud in clouds:
            with recorded() as found:
                Detector.from_pretrained(name, device="cuda")(cloud)
            for entry in found:
                seconds = entry.pop("seconds")
                line = json.dumps(entry)
                times[line] = max(times.get(line, 0.0), seconds)
            print(f"{name}: {len(found)} kernels more")
    # Those that were known keep their places; of the new ones the slowest go first.
    lines += sorted((line for line in times if line not in lines), key=lambda line: -times[line])
    LISTED.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    print(f"{LISTED}: {len(lines)} kernels, {sum(times.values()):.1f} s one after the other")


if __name__ == "__main__":
    raise SystemExit(main())

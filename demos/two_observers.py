"""A vehicle and a roadside unit see one street; each remembers, and both share one memory.

Each observer stores what it saw in a store of its own. Both are synchronized into one store. The roadside
unit's position is wrong by about a metre; the objects that both saw correct it. Then the memories of one
object are merged. The page shows both observers, the objects, who saw which, and who could not have seen it.

    python demos/two_observers.py                   # a simulated street: needs Open3D (extra 'simulate')
    python demos/two_observers.py --detect          # the same with our detector instead of the visible boxes
    python demos/two_observers.py --data DAIR       # a real intersection: folder of DAIR-V2X
    python demos/two_observers.py --data DAIR --detect
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from observers.judging import Score, judge
from observers.page import write_page
from observers.scenes import SharedScene, dair_scene, detecting, simulated_scene
from observers.sharing import SharedMemory, share, witnesses
from rich.console import Console

from memory.errors import RecallError
from memory.merging.motion import Motion
from perception.errors import DataError
from sparse_core.common.commands import failure, reported_file_errors


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--data", type=Path, metavar="DAIR", help="folder with vehicle-side, infrastructure-side, cooperative"
    )
    add("--detect", action="store_true", help="use the detector instead of the labels or the visible boxes")
    add("--weights", default="pointpillars-anywhere", help="weights of the detector")
    add("--frames", type=int, default=40, help="simulated scans of each observer (40)")
    add("--seed", type=int, default=3, help="seed of the simulated street (3)")
    add("--out", type=Path, default=Path("out/observers"), help="folder for the page and the shared store")
    add("--json", action="store_true", help="print the figures as JSON and nothing else")
    options = parser.parse_args()
    if options.frames < 2:
        parser.error("--frames must be at least 2")
    if options.data is not None and not (options.data / "cooperative").is_dir():
        parser.error(f"--data {options.data}: no folder cooperative. Leave out --data to simulate a street")
    if (options.out / "shared").exists():
        parser.error(f"--out {options.out} already contains a store; choose a new folder")
    try:
        report = run(options)
    except (RecallError, DataError, OSError, ValueError, ImportError) as error:
        raise SystemExit(f"two_observers: {failure(error)}") from error
    if options.json:
        print(json.dumps(report, indent=2))
        return
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    for line in report["said"]:
        console.print(line)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Observe, remember, share, align, merge and draw; return the figures."""
    detect = detecting(options.weights) if options.detect else None
    if options.data is None:
        scene = simulated_scene(options.seed, detect, frames=options.frames)
    else:
        scene = dair_scene(options.data, detect)
    # The clocks of DAIR-V2X agree, and the labels of these seconds are too few to show a difference.
    shared = share(scene.observers, options.out, trust_clocks=options.data is not None)
    with tempfile.TemporaryDirectory() as scratch:
        trusting = share(scene.observers, Path(scratch), align=False)
    moved = shared.motion or Motion()
    vehicle, roadside = (observer.name for observer in scene.observers)
    scores = {
        f"{vehicle} alone": judge(shared.alone[vehicle], scene.truth),
        f"{roadside} alone": judge([moved.memory(one) for one in shared.alone[roadside]], scene.truth),
        "both, as the poses say": judge(trusting.memories, scene.truth),
    }
    if shared.motion is not None:
        scores["both, aligned"] = judge(shared.memories, scene.truth)
    said = sentences(scene, shared, scores)
    page = write_page(options.out / "observers.html", scene, shared, scores, said)
    return {
        "scene": scene.title,
        "memories": len(shared.memories),
        "objects": shared.objects,
        "scores": {name: score.to_json() for name, score in scores.items()},
        "aligned": None if shared.motion is None else list(shared.motion),
        "page": str(page),
        "store": str(options.out / "shared"),
        "said": [
            *said,
            f"page: {page}",
            f"next: recall ask {options.out / 'shared'} 'how many cars are there?'",
        ],
    }


def sentences(scene: SharedScene, shared: SharedMemory, scores: dict[str, Score]) -> list[str]:
    """Return what happened, in words."""
    moved = shared.motion or Motion()
    seen = [witnesses(memory, scene.observers, moved) for memory in shared.memories]
    both = sum(set(one.values()) == {"saw it"} for one in seen)
    scans = sum(len(observer.records) for observer in scene.observers)
    boxes = sum(len(record["boxes"]) for observer in scene.observers for record in observer.records)
    x, y = scene.offset_m
    found = [
        f"{scans} scans with {boxes:,} boxes became {shared.before} memories of two observers, merged to"
        f" {len(shared.memories)} of {shared.objects} objects; both saw {both}.",
        f"The roadside unit is off by ({x:.2f}, {y:.2f}) m by the labels; "
        + (
            f"the map is {shared.motion}."
            if shared.motion is not None
            else f"it was not aligned: {shared.refused}"
        ),
    ]
    for name in (observer.name for observer in scene.observers):
        why = Counter(one[name] for one in seen if one[name] != "saw it")
        reasons = ", ".join(f"{count} {words}" for words, count in sorted(why.items()))
        found.append(f"What the {name} did not see: {reasons or 'nothing'}.")
    for name, score in scores.items():
        found.append(f"{name}: precision {score.precision:.3f}, recall {score.recall:.3f}")
    return found


if __name__ == "__main__":
    with reported_file_errors("two_observers"):
        main()

"""Two observers of one intersection and one memory: DAIR-V2X, judged by its joint labels.

    python -m benchmarks.memory.objects.two_observers

A vehicle and a roadside unit see the same intersection. Each remembers what it saw in a store of its own;
`recall sync` brings both into one store, `align` estimates the error of the roadside unit's position and
clock, and `consolidate` merges. Boxes are the labels of each side without identities, or those of our
detector. A simulated street has exact truth. Then the poses, clocks and messages of the roadside unit are
disturbed, and each process is killed. Data: ``$SPARSIGHT_DATA/dair_v2x``, by default below
``../shared/data``.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.lib.demos import demo_module
from benchmarks.lib.environment import data_root
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.memory.objects.scan_times import scan_delay_s
from benchmarks.publish.screen import tables
from memory.merging.motion import Motion
from memory.merging.robots import seen_by
from memory.merging.tracks import things_of

#: Disturbances of the roadside unit, by name: of its clock alone, and all.
CLOCKS: dict[str, dict[str, Any]] = {
    "clock 0.1 s late": {"clock_s": 0.1},
    "clock 0.2 s late": {"clock_s": 0.2},
    "clock 0.5 s late": {"clock_s": 0.5},
    "clock 1 s late": {"clock_s": 1.0},
    "clock 0.5 s early": {"clock_s": -0.5},
    "clock 0.5 s late, shifted by 1 m, turned by 1 degree": {
        "clock_s": 0.5,
        "shift_m": (1.0, 0.0),
        "turn_rad": math.radians(1.0),
    },
}
DISTURBED: dict[str, dict[str, Any]] = {
    **CLOCKS,
    "shifted by 1 m": {"shift_m": (1.0, 0.0)},
    "shifted by 2 m": {"shift_m": (0.0, -2.0)},
    "turned by 1 degree": {"turn_rad": math.radians(1.0)},
    "turned by 3 degrees": {"turn_rad": math.radians(3.0)},
    "30 % of the frames lost": {"lost": 0.3},
    "60 % of the frames lost": {"lost": 0.6},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "two_observers", quick="a simulated street of a second, nothing killed")
    data = data_root()
    parser.add_argument("--data", type=Path, default=data, help="folder of dair_v2x")
    parser.add_argument("--weights", default="pointpillars-anywhere", help="of our detector")
    parser.add_argument("--kills", type=int, default=3, help="of each process")
    options = parse(parser, arguments)
    configure(torch.device("cpu"), 1)
    scenes = demo_module("observers", "scenes")
    folder = options.data / "dair_v2x"
    if not options.quick and not folder.is_dir():
        parser.error(f"--data {options.data}: no dair_v2x in it")
    studies, disturbed, killed = [], [], None
    if options.quick:
        scene = scenes.simulated_scene(frames=10)
        studies.append(study(scene, "simulated, visible boxes"))
        named = ("clock 0.5 s late", "shifted by 1 m")
        disturbed = disturbances(scene, "simulated", {name: DISTURBED[name] for name in named})
        delay_s = None
    else:
        delay_s = scan_delay_s(folder / "vehicle-side")
        labels = scenes.dair_scene(folder, None)
        studies.append(study(only_pairs(labels), "labels, 28 frames"))
        studies.append(study(labels, "labels, all 82 frames"))
        found = scenes.dair_scene(folder, scenes.detecting(options.weights))
        studies.append(study(found, "our detector, all 82 frames"))
        studies.append(study(scenes.simulated_scene(), "simulated, visible boxes, 80 frames"))
        street = scenes.simulated_scene(frames=80)
        disturbed = disturbances(found, "our detector", DISTURBED)
        disturbed += disturbances(street, "simulated, visible boxes, 160 frames", CLOCKS)
        killed = kills(found, options.kills)
    values = result(
        "two_observers",
        torch.device("cpu"),
        {"quick": options.quick, "threads": 1, "weights": options.weights, "kills": options.kills},
        studies=studies,
        disturbed=disturbed,
        killed=killed,
        scan_delay_s=delay_s,
        notes=[
            "precision: share of the objects stated at a labelled time that are labelled, each counted once",
            "doubled: further memories of a labelled object; both: objects that both observers saw",
            "clocks trusted: align looks for no difference of the clocks",
            "clock: seconds that align added to the roadside unit's times; none if it could not be compared",
            "scan_delay_s: median time of a labelled object's points after the time of the vehicle's scan",
            "offset: from the roadside unit's map to the vehicle's, at the objects that both labelled",
        ],
    )
    save(values, options)
    block = tables(values, "two-observers", "two-observers-disturbed")
    show(values, block, values["notes"], as_json=options.json)
    return 0


def only_pairs(scene: Any) -> Any:
    """Return a scene with the frames of the labelled times alone."""
    first, last = scene.truth[0].time_ns - 5 * 10**7, scene.truth[-1].time_ns + 5 * 10**7
    observers = tuple(
        one._replace(records=[each for each in one.records if first <= each["timestamp_ns"] <= last])
        for one in scene.observers
    )
    return scene._replace(observers=observers)


def study(scene: Any, name: str) -> dict[str, Any]:
    """Compare either observer alone, and both with and without tracks and alignment."""
    sharing, judging = demo_module("observers", "sharing"), demo_module("observers", "judging")
    boxes = [len(record["boxes"]) for one in scene.observers for record in one.records]
    sides: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        whole = sharing.share(scene.observers, Path(folder))
    moved = whole.motion or Motion()
    for number, (side, alone) in enumerate(whole.alone.items()):
        memories = [moved.memory(memory) for memory in alone] if number else alone
        sides[f"{side} alone"] = _row(memories, scene, judging)
    for words, how in (
        ("both, a memory per box", {"tracks": False, "align": False}),
        ("both, as the poses say", {"align": False}),
    ):
        with tempfile.TemporaryDirectory() as folder:
            shared = sharing.share(scene.observers, Path(folder), **how)
        sides[words] = _row(shared.memories, scene, judging, before=shared.before)
    with tempfile.TemporaryDirectory() as folder:
        trusting = sharing.share(scene.observers, Path(folder), trust_clocks=True)
    rows = {"both, aligned, clocks trusted": trusting, "both, aligned": whole}
    for words, shared in rows.items():
        sides[words] = {
            **_row(shared.memories, scene, judging, before=shared.before),
            "aligned": aligned(scene, shared),
            "refused": shared.refused,
        }
    witnesses = [sharing.witnesses(memory, scene.observers, moved) for memory in whole.memories]
    return {
        "name": name,
        "scene": scene.title,
        "frames": [len(one.records) for one in scene.observers],
        "boxes": sum(boxes),
        "labels_at_a_time": [min(sizes := [len(one.labels) for one in scene.truth]), max(sizes)],
        "stated_offset_m": list(scene.stated_m),
        "labelled_offset_m": list(scene.offset_m),
        "sides": sides,
        "witnesses": {
            one.name: dict(Counter(each[one.name] for each in witnesses)) for one in scene.observers
        },
    }


def aligned(scene: Any, shared: Any) -> dict[str, Any] | None:
    """Return the shift of an alignment in the middle of what both could see, its turn and its clock."""
    motion = shared.motion
    if motion is None:
        return None
    middle = np.mean([box[:2] for one in scene.truth for box in one.boxes], axis=0)
    ((x, y),) = motion.points(middle[None]) - middle
    return {
        "shift_m": [round(float(x), 3), round(float(y), 3)],
        "turn_deg": math.degrees(motion.yaw_rad),
        "clock_s": round(motion.clock_ns / 1e9, 4) if shared.clock_known else None,
    }


def _row(memories: Sequence[Any], scene: Any, judging: Any, before: int | None = None) -> dict[str, Any]:
    both = {
        thing
        for memory, thing in zip(memories, things_of(memories), strict=True)
        if len(seen_by(memory)) == len(scene.observers)
    }
    return {
        "memories": len(memories),
        "objects": len(set(things_of(memories))),
        "before": before,
        "both": len(both),
        **judging.judge(memories, scene.truth).to_json(),
    }


def disturbances(scene: Any, boxes: str, disturbed: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Share the memory while the second observer is wrong in some way.

    Args:
        scene: what both saw.
        boxes: name of the source of the boxes.
        disturbed: disturbances by name.
    """
    sharing, judging, scenes = (demo_module("observers", name) for name in ("sharing", "judging", "scenes"))
    vehicle, roadside = scene.observers
    cases: dict[str, tuple[Any, dict[str, Any]]] = {
        "nothing": (scene.observers, {}),
        "every message twice": (scene.observers, {"send_twice": True}),
        "the vehicle's messages arrive last": (scene.observers, {"last_first": True}),
    }
    for name, how in disturbed.items():
        cases[name] = ((vehicle, scenes.disturbed(roadside, **how)), {})
    rows = []
    for name, (observers, how) in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            shared = sharing.share(observers, Path(folder), **how)
        with tempfile.TemporaryDirectory() as folder:
            trusting = sharing.share(observers, Path(folder), align=False, **how)
        rows.append(
            {
                "boxes": boxes,
                "name": name,
                "refused": shared.refused,
                "aligned": aligned(scene, shared),
                "with": _row(shared.memories, scene, judging),
                "without": _row(trusting.memories, scene, judging),
            }
        )
    return rows


def kills(scene: Any, each: int) -> dict[str, Any]:
    """Share the memory by commands, each of which is killed some times, and compare with undisturbed ones."""
    killing = demo_module("observers", "killing")
    found = []
    for kills_of_each in (0, each):
        with tempfile.TemporaryDirectory() as folder:
            found.append(killing.share_by_commands(scene.observers, Path(folder), kills=kills_of_each))
    calm, killed = (
        sorted((m.label, m.kind, m.count, *(round(at, 6) for at in m.place)) for m in one.memories)
        for one in found
    )
    return {"killed": found[1].kills, "memories": len(killed), "same": calm == killed}


if __name__ == "__main__":
    raise SystemExit(main())

"""Train the scene encoder on simulated drives and measure its place recognition.

Every scene is driven through several times with other poses, other traffic and some parked cars gone. A view
of a place consists of detections and columns of points, with wide and with narrow columns. Training pulls
views of one place together. Tokens attend within a radius, so that sets of thousands stay cheap. Held-out
scenes are never trained on; one drive through them is the memory, and the next one provides the queries.

    python demos/train_place_encoder.py                     # a few minutes on two CPU cores
    python demos/train_place_encoder.py --scenes 400 --steps 1500
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from memory.encode import (
    STRUCTURE,
    SceneEncoder,
    SceneEncoderConfig,
    SceneTokens,
    TrainingOptions,
    detection_tokens,
    structure_tokens,
    train_scene_encoder,
)
from perception.simulate import Scene, SceneConfig, Spot, build_scene
from perception.simulate.annotation import tight_box
from perception.simulate.mesh import merge_meshes
from perception.simulate.raycast import RayCaster
from sparse_core.common.commands import reported_file_errors
from sparse_core.common.files import write_file

#: Positions along the street, metres, far enough apart to be distinct places.
PLACES_M = np.arange(-45.0, 46.0, 6.0)
HEIGHT_M, RANGE_M = 1.73, 60.0
#: Width of narrow columns; wide ones use the default of :func:`structure_tokens`.
NARROW_M = 1.0
ELEVATION, AZIMUTH = np.radians(np.linspace(5.0, -18.0, 24)), np.radians(np.arange(-180.0, 180.0, 1.0))
LEVEL = np.cos(ELEVATION)[:, None]
DIRECTIONS = np.stack(
    np.broadcast_arrays(LEVEL * np.cos(AZIMUTH), LEVEL * np.sin(AZIMUTH), np.sin(ELEVATION)[:, None]), axis=-1
).reshape(-1, 3)
#: First seed of the held-out scenes.
HELD_OUT_SEED = 1_000_000
COLUMNS = [*SceneEncoderConfig().classes, "other"]


def drive(scene: Scene, number: int, rng: np.random.Generator) -> list[tuple[SceneTokens, SceneTokens]]:
    """Return each place with wide and with narrow columns; every third drive goes the other way."""
    back = number % 3 == 2
    time_s = 15.0 * number + float(rng.uniform(0, 10))
    present = [item for item in scene.objects if item.speed_m_s > 0 or number == 0 or rng.random() < 0.8]
    poses = [item.world_from_object(scene.ground, time_s) for item in present]
    meshes = [item.mesh.transformed(pose) for item, pose in zip(present, poses, strict=True)]
    world = merge_meshes([scene.static, *meshes])
    sizes = [len(scene.static), *(len(mesh) for mesh in meshes)]
    owner = np.repeat(np.arange(-1, len(meshes)), sizes)
    robot = []
    for along in PLACES_M + rng.normal(0, 0.7, len(PLACES_M)):
        lateral = scene.start.v * (-1.0 if back else 1.0) + float(rng.normal(0, 0.4))
        heading = (np.pi if back else 0.0) + float(rng.normal(0, 0.06))
        robot.append(scene.world_from_lidar(Spot(float(along), lateral, heading), HEIGHT_M))
    ahead = [DIRECTIONS @ pose[:3, :3].T for pose in robot]
    rays = [
        np.hstack([np.broadcast_to(p[:3, 3], way.shape), way]) for p, way in zip(robot, ahead, strict=True)
    ]
    hits = RayCaster(world, threads=1).cast(np.concatenate(rays).astype(np.float32))
    views = []
    for k, pose in enumerate(robot):
        part = slice(k * len(DIRECTIONS), (k + 1) * len(DIRECTIONS))
        distance = hits.distance_m[part] + rng.normal(0, 0.02, len(DIRECTIONS))
        seen = (distance < RANGE_M) & (rng.random(len(distance)) < 0.9)
        points = DIRECTIONS[seen] * distance[seen, None]
        count = np.bincount(owner[hits.triangle[part][seen]] + 1, minlength=len(meshes) + 1)[1:]
        found = np.flatnonzero(count >= 5)
        found = found[rng.random(len(found)) < 0.9]
        boxes = [_box(present[i].mesh.vertices, np.linalg.inv(pose) @ poses[i], rng) for i in found]
        scores = 1 - np.exp(-count[found] / 30.0)
        labels = [present[i].label for i in found]
        seen_objects = detection_tokens(np.reshape(boxes, (-1, 7)), labels, scores)
        narrow = structure_tokens(points, cell_m=NARROW_M, most=4096)
        views.append((seen_objects + structure_tokens(points), seen_objects + narrow))
    return views


def _box(vertices: np.ndarray, robot_from_object: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return an object's box in the robot's frame with detector noise."""
    box = tight_box(vertices, 0.0).astype(np.float64)
    box[:3] = robot_from_object[:3, :3] @ box[:3] + robot_from_object[:3, 3]
    box[6] = np.arctan2(robot_from_object[1, 0], robot_from_object[0, 0]) + rng.normal(0, 0.05)
    box[:3] += rng.normal(0, 0.1, 3)
    box[3:6] *= rng.uniform(0.95, 1.05, 3)
    return box


def places_of(seed: int, drives: int) -> list[list[SceneTokens]]:
    """Return the views of each place of a seed's scene, two per drive."""
    scene = build_scene(seed, SceneConfig(extent_m=75.0))
    rng = np.random.default_rng([seed, 11])
    places = zip(*(drive(scene, n, rng) for n in range(drives)), strict=True)
    return [[view for both in place for view in both] for place in places]


def simulate(seeds: range, drives: int, workers: int, show: bool, what: str) -> list[list[SceneTokens]]:
    """Return the places of all scenes, in seed order."""
    # Fresh processes: a fork would copy the threads of torch half way.
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        made = pool.map(partial(places_of, drives=drives), seeds)
        scenes = list(track(made, what, total=len(seeds), disable=not show))
    return [place for scene in scenes for place in scene]


def class_histogram(scenes: list[SceneTokens]) -> np.ndarray:
    """Return a baseline descriptor: the mean of one-hot classes, as unit vectors."""
    rows = np.zeros((len(scenes), len(COLUMNS)))
    for row, scene in zip(rows, scenes, strict=True):
        for label in scene.labels:
            row[COLUMNS.index(label if label in COLUMNS else "other")] += 1
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def occupancy_grid(scenes: list[SceneTokens]) -> np.ndarray:
    """Return a baseline descriptor: column heights in a bird's-eye grid of 8 m cells, as unit vectors."""
    rows = np.zeros((len(scenes), 12, 12))
    for row, scene in zip(rows, scenes, strict=True):
        fixed = np.array([label == STRUCTURE for label in scene.labels], bool)
        cell = np.floor(scene.boxes[fixed, :2] / 8.0).astype(int) + 6
        inside = ((cell >= 0) & (cell < 12)).all(axis=1)
        np.add.at(row, tuple(cell[inside].T), scene.boxes[fixed, 5][inside])
    flat = rows.reshape(len(scenes), -1)
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-9)


def recall_at_1(memory: np.ndarray, asked: np.ndarray) -> float:
    """Return the share of the queries whose nearest vector belongs to the same place."""
    return float(((asked @ memory.T).argmax(axis=1) == np.arange(len(asked))).mean())


def measure(encoder: SceneEncoder, places: list[list[SceneTokens]]) -> dict[str, dict[str, float]]:
    """Measure recall@1 by method, for later drives in the same and in the opposite direction."""

    def detections(scenes: list[SceneTokens]) -> np.ndarray:
        objects = [[i for i, name in enumerate(one.labels) if name != STRUCTURE] for one in scenes]
        return encoder.encode([one.take(rows) for one, rows in zip(scenes, objects, strict=True)])

    methods: dict[str, tuple[Any, int]] = {
        "scene encoder": (encoder.encode, 1),
        "scene encoder, wide columns": (encoder.encode, 0),
        "scene encoder, detections only": (detections, 0),
        "class histogram": (class_histogram, 0),
        "occupancy grid": (occupancy_grid, 0),
    }
    table = {}
    for name, (method, narrow) in methods.items():
        first, later, back = (method([views[2 * k + narrow] for views in places]) for k in range(3))
        table[name] = {"same_way": recall_at_1(first, later), "other_way": recall_at_1(first, back)}
    return table


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--scenes", type=int, default=120, help="number of training scenes, with 16 places each (120)")
    add("--held-out", type=int, default=20, help="number of test scenes (20)")
    add("--steps", type=int, default=700, help="training steps (700)")
    add("--radius", type=float, default=8.0, help="attention radius of tokens, metres (8)")
    add("--places", type=int, default=64, help="places per batch (64)")
    add("--reverse", type=float, default=0.1, help="chance that a view is reversed (0.1)")
    add("--seed", type=int, default=0, help="seed of the training (0)")
    add("--workers", type=int, default=2, help="simulation processes (2)")
    add("--out", type=Path, default=Path("out/place_encoder"))
    add("--json", action="store_true", help="print the results as JSON and nothing else")
    options = parser.parse_args()
    show = not options.json and sys.stderr.isatty()
    options.out.mkdir(parents=True, exist_ok=True)
    first = HELD_OUT_SEED + options.seed
    train = simulate(range(first - options.scenes, first), 3, options.workers, show, "driving")
    held = simulate(range(first, first + options.held_out), 3, options.workers, show, "held-out drives")
    settings = TrainingOptions(
        steps=options.steps, places=options.places, reverse=options.reverse, seed=options.seed
    )
    config = SceneEncoderConfig(radius_m=options.radius)
    result = train_scene_encoder(
        train, config=config, options=settings, checkpoint=options.out / "checkpoint.pt", progress=show
    )
    encoder = result.encoder
    table = measure(encoder, held)
    card = {
        "model": "set encoder of scenes",
        "data": f"simulated drives: {options.scenes} scenes, {len(train)} places, 3 drives each",
        "parameters": sum(p.numel() for p in encoder.parameters()),
        "training": {"steps": options.steps, "places": options.places, "reverse": options.reverse,
                     "radius_m": options.radius, "seed": options.seed,
                     "final_loss": float(np.mean(result.losses[-20:]))},
        "held_out": {"scenes": options.held_out, "places": len(held), "recall_at_1": table},
    }  # fmt: skip
    encoder.save(options.out / "scene-encoder.safetensors", card=card)
    text = json.dumps(card, indent=2)
    write_file(options.out / "scene-encoder.json", text + "\n")
    if options.json:
        print(text)
        return
    shown = Table("recall@1, %", box=None, pad_edge=False)
    for heading in ("same way, later", "the other way"):
        shown.add_column(heading, justify="right")
    for name, row in table.items():
        shown.add_row(name, f"{100 * row['same_way']:.1f}", f"{100 * row['other_way']:.1f}")
    Console().print(shown)
    print(f"{len(held)} places of {options.held_out} held-out scenes; weights and card in {options.out}")


if __name__ == "__main__":
    with reported_file_errors("train_place_encoder"):
        main()

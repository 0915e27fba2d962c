"""Pedestrians in several poses and cyclists, built from limbs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perception.simulate.mesh import Mesh, capsule, cylinder, merge_meshes, tubes
from perception.simulate.surface import Material


def sample_pedestrian(rng: np.random.Generator, *, walking: bool | None = None) -> Mesh:
    """Return a pedestrian: walking or standing, adult or child, with or without a bag.

    The origin is on the ground under the centre, x forward.
    """
    walks = bool(rng.random() < 0.65) if walking is None else walking
    height = (
        float(rng.uniform(1.15, 1.5))
        if rng.random() < 0.08
        else float(np.clip(rng.normal(1.73, 0.09), 1.5, 1.98))
    )
    stride = float(rng.uniform(0.12, 0.42) * rng.choice([-1.0, 1.0])) if walks else 0.04
    swing = float(rng.uniform(0.15, 0.4)) if walks else float(rng.choice([0.02, 0.02, 0.9]))
    bag = str(rng.choice(["none", "backpack", "hand"], p=[0.6, 0.25, 0.15]))
    cloth = rng.uniform(0.06, 0.5, 2)
    parts = [*_legs(stride, float(cloth[0])), *_torso_and_head(float(cloth[1]))]
    parts += _arms(stride, swing, float(cloth[1]))
    if bag == "backpack":
        parts.append(capsule((-0.2, 0, 1.1), (-0.2, 0, 1.32), 0.14, Material.CLOTH, 0.2))
    elif bag == "hand":
        parts.append(capsule((-0.1, 0.36, 0.55), (0.12, 0.36, 0.55), 0.11, Material.CLOTH, 0.35))
    scale = height / 1.75
    turn = np.diag([scale, scale * float(rng.uniform(0.82, 1.04)), scale, 1.0])
    return _centered(merge_meshes(parts).transformed(turn))


def sample_cyclist(rng: np.random.Generator) -> Mesh:
    """Return a rider on a bicycle, with the origin on the ground under the centre, x forward."""
    lean = float(rng.uniform(0.08, 0.32))
    crank = float(rng.uniform(0, 2 * np.pi))
    cloth = rng.uniform(0.06, 0.5, 2)
    scale = float(rng.normal(0.97, 0.04))
    parts = [*bicycle_parts(float(rng.uniform(0.15, 0.5))), *_rider(lean, crank, cloth)]
    if rng.random() < 0.3:
        parts.append(capsule((-0.42, -0.12, 0.72), (-0.42, 0.12, 0.72), 0.16, Material.CLOTH))
    return _centered(merge_meshes(parts).transformed(np.diag([1.02 * scale, 0.96 * scale, scale, 1.0])))


def _centered(mesh: Mesh) -> Mesh:
    return mesh.resized(*(mesh.vertices.max(0) - mesh.vertices.min(0)).tolist())


def _legs(stride_m: float, reflectivity: float) -> list[Mesh]:
    parts = []
    for side in (-1.0, 1.0):
        foot = side * stride_m
        hip, knee = (0.0, side * 0.1, 0.92), (0.55 * foot + 0.05, side * 0.1, 0.49)
        ankle = (foot, side * 0.1, 0.09)
        parts.append(capsule(hip, knee, 0.095, Material.CLOTH, reflectivity, end_radius=0.07))
        parts.append(capsule(knee, ankle, 0.07, Material.CLOTH, reflectivity, end_radius=0.05))
        parts.append(capsule(ankle, (foot + 0.16, side * 0.11, 0.06), 0.055, Material.RUBBER, 0.12))
    return parts


def _torso_and_head(reflectivity: float) -> list[Mesh]:
    chest = [
        capsule((0.0, side * 0.09, 0.98), (0.02, side * 0.12, 1.36), 0.125, Material.CLOTH, reflectivity)
        for side in (-1.0, 1.0)
    ]
    neck = capsule((0.02, 0, 1.42), (0.03, 0, 1.52), 0.06, Material.SKIN)
    head = capsule((0.04, 0, 1.59), (0.04, 0, 1.645), 0.105, Material.SKIN)
    return [*chest, neck, head]


def _arms(stride_m: float, swing_rad: float, reflectivity: float) -> list[Mesh]:
    """Return arms that swing against the legs; a large angle on a standing person means holding a
    telephone.
    """
    parts = []
    for side in (-1.0, 1.0):
        angle = -side * np.sign(stride_m) * swing_rad
        shoulder = np.array([0.02, side * 0.23, 1.38])
        elbow = shoulder + 0.29 * np.array([np.sin(angle), side * 0.15, -np.cos(angle)])
        bend = angle + 0.35 + max(0.0, swing_rad - 0.5)
        hand = elbow + 0.27 * np.array([np.sin(bend), side * 0.05, -np.cos(bend)])
        parts.append(capsule(shoulder, elbow, 0.055, Material.CLOTH, reflectivity, sides=6))
        parts.append(capsule(elbow, hand, 0.045, Material.CLOTH, reflectivity, sides=6))
    return parts


def bicycle_parts(reflectivity: float = 0.3) -> list[Mesh]:
    """Return frame, wheels and handlebar of a bicycle of 1.75 m, x forward, wheels on z = 0."""
    rear, front, radius = (-0.52, 0.0, 0.35), (0.54, 0.0, 0.35), 0.34
    crank, saddle, head = (-0.08, 0.0, 0.32), (-0.2, 0.0, 0.95), (0.38, 0.0, 0.88)
    frame = tubes([rear, crank, saddle, rear], 0.022, Material.METAL, reflectivity)
    front_frame = tubes([saddle, head, crank], 0.025, Material.METAL, reflectivity)
    fork = tubes([front, head, (0.36, 0.0, 1.03)], 0.022, Material.METAL, reflectivity)
    bar = tubes(
        [(0.3, -0.28, 1.04), (0.36, 0.0, 1.03), (0.3, 0.28, 1.04)], 0.02, Material.METAL, reflectivity
    )
    plate = capsule((-0.27, 0, 0.97), (-0.08, 0, 0.97), 0.05, Material.RUBBER, 0.1)
    lamp = cylinder((-0.6, 0, 0.72), (-0.62, 0, 0.72), 0.04, Material.REFLECTOR)
    wheels = [_wheel(center, radius) for center in (rear, front)]
    return [frame, front_frame, fork, bar, plate, lamp, *wheels]


def _wheel(center: tuple[float, float, float], radius: float) -> Mesh:
    """Return a tyre and a few spokes; most rays pass between them."""
    angles = np.linspace(0, 2 * np.pi, 15)
    rim = [(center[0] + radius * np.cos(a), 0.0, center[2] + radius * np.sin(a)) for a in angles]
    spokes = [tubes([center, rim[k]], 0.006, Material.METAL, 0.2) for k in range(0, 14, 2)]
    return merge_meshes([tubes(rim, 0.022, Material.RUBBER, 0.1), *spokes])


def _rider(lean_rad: float, crank_rad: float, cloth: npt.NDArray[np.float64]) -> list[Mesh]:
    jacket, trousers = (float(value) for value in cloth)
    hip = np.array([-0.2, 0.0, 1.02])
    along = np.array([np.sin(lean_rad + 0.15), 0.0, np.cos(lean_rad + 0.15)])
    shoulder, head = hip + 0.46 * along, hip + 0.66 * along + np.array([0.06, 0.0, 0.0])
    parts = [
        capsule(
            hip + np.array([0, side * 0.08, 0]),
            shoulder + np.array([0, side * 0.12, -0.05]),
            0.12,
            Material.CLOTH,
            jacket,
        )
        for side in (-1.0, 1.0)
    ]
    parts.append(capsule(head, head + np.array([0.01, 0, 0.06]), 0.11, Material.SKIN))
    for side in (-1.0, 1.0):
        turn = crank_rad + (np.pi if side > 0 else 0.0)
        pedal = np.array([-0.08 + 0.17 * np.cos(turn), side * 0.13, 0.32 + 0.17 * np.sin(turn)])
        knee = (hip + pedal) / 2 + np.array([0.2, 0.0, 0.08])
        thigh = hip + np.array([0, side * 0.1, 0])
        parts.append(capsule(thigh, knee, 0.085, Material.CLOTH, trousers, end_radius=0.065))
        parts.append(capsule(knee, pedal, 0.06, Material.CLOTH, trousers, end_radius=0.045))
        arm = shoulder + np.array([0, side * 0.2, -0.02])
        grip = np.array([0.3, side * 0.27, 1.06])
        elbow = (arm + grip) / 2 + np.array([0.0, side * 0.04, -0.06])
        parts.append(capsule(arm, elbow, 0.052, Material.CLOTH, jacket, sides=6))
        parts.append(capsule(elbow, grip, 0.042, Material.SKIN, sides=6))
    return parts

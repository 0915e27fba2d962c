"""Rigid motions of the plane with a shift of the clock, from one robot's map into another."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.merging.robots import SEEN_BY, seen_by
from memory.merging.tracks import TRACKS
from memory.types import Memory, Visit


class Motion(NamedTuple):
    """Rotation about the vertical through the origin, then a shift; z stays. Times are shifted as well.

    Attributes:
        yaw_rad: counter-clockwise from +x.
        x_m, y_m: shift.
        clock_ns: nanoseconds added to all times.
    """

    yaw_rad: float = 0.0
    x_m: float = 0.0
    y_m: float = 0.0
    clock_ns: int = 0

    def points(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (N, 2) or (N, 3) float64 points in metres after the motion."""
        found = points.copy()
        found[:, :2] = points[:, :2] @ self.turn()[:2, :2].T + (self.x_m, self.y_m)
        return found

    def turn(self) -> NDArray[np.float64]:
        """Return the (3, 3) float64 rotation."""
        sine, cosine = math.sin(self.yaw_rad), math.cos(self.yaw_rad)
        return np.array([[cosine, -sine, 0.0], [sine, cosine, 0.0], [0.0, 0.0, 1.0]])

    def yaw(self, yaw_rad: float) -> float:
        """Return a direction after the motion, in [-pi, pi]."""
        return math.remainder(yaw_rad + self.yaw_rad, math.tau)

    def after(self, first: Motion) -> Motion:
        """Return the motion that applies ``first`` and then this one."""
        ((x, y),) = self.points(np.array([[first.x_m, first.y_m]])).tolist()
        return Motion(self.yaw(first.yaw_rad), x, y, self.clock_ns + first.clock_ns)

    def inverse(self) -> Motion:
        """Return the inverse motion."""
        back = Motion(-self.yaw_rad)
        ((x, y),) = back.points(np.array([[-self.x_m, -self.y_m]])).tolist()
        return Motion(-self.yaw_rad, x, y, -self.clock_ns)

    def memory(self, memory: Memory) -> Memory:
        """Return a memory with its pose, covariance and times moved; the same object for the identity."""
        if self == Motion():
            return memory
        if self.clock_ns:
            memory = _at_other_times(memory, self.clock_ns)
        velocity = memory.velocity
        if velocity is not None:
            x, y, z = (self.turn() @ velocity).tolist()
            velocity = (x, y, z)
        if memory.position is None:
            return dataclasses.replace(memory, yaw=self.yaw(memory.yaw), velocity=velocity)
        ((x, y, z),) = self.points(np.array([memory.position])).tolist()
        covariance = memory.covariance
        if covariance is not None:
            covariance = self.turn() @ covariance @ self.turn().T
        return dataclasses.replace(
            memory, position=(x, y, z), yaw=self.yaw(memory.yaw), covariance=covariance, velocity=velocity
        )

    def __str__(self) -> str:
        """Return a text for people."""
        text = f"shifted by ({self.x_m:.2f}, {self.y_m:.2f}) m"
        if self.yaw_rad != 0.0:
            text = f"turned by {math.degrees(self.yaw_rad):.2f} degrees, {text} at the map's origin"
        if self.clock_ns:
            late = "behind" if self.clock_ns > 0 else "ahead"
            text += f", its clock is {abs(self.clock_ns) / 1e9:.3f} s {late}"
        return text


def _at_other_times(memory: Memory, clock_ns: int) -> Memory:
    """Return a memory with all its times shifted, those of its payload included."""
    payload: dict[str, Any] = dict(memory.payload)
    shares = seen_by(memory)
    if shares:
        payload[SEEN_BY] = {
            robot: [share.first_ns + clock_ns, share.last_ns + clock_ns, share.sights]
            for robot, share in shares.items()
        }
    if isinstance(payload.get(TRACKS), Mapping):
        payload[TRACKS] = {
            name: [at + clock_ns if type(at) is int else at for at in span]
            if isinstance(span, list | tuple)
            else span
            for name, span in payload[TRACKS].items()
        }
    first, last = memory.first_seen_ns, memory.last_seen_ns
    return dataclasses.replace(
        memory,
        time_ns=memory.time_ns + clock_ns,
        first_seen_ns=None if first is None else first + clock_ns,
        last_seen_ns=None if last is None else last + clock_ns,
        visits=tuple(
            Visit(visit.first_ns + clock_ns, visit.last_ns + clock_ns, visit.sights)
            for visit in memory.visits
        ),
        payload=payload,
    )

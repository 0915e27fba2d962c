"""Rigid motions of the plane, from one map into another."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.types import Memory


class Motion(NamedTuple):
    """Rotation about the vertical through the origin, then a shift; z stays.

    Attributes:
        yaw_rad: counter-clockwise from +x.
        x_m, y_m: shift.
    """

    yaw_rad: float = 0.0
    x_m: float = 0.0
    y_m: float = 0.0

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
        return Motion(self.yaw(first.yaw_rad), x, y)

    def inverse(self) -> Motion:
        """Return the inverse motion."""
        back = Motion(-self.yaw_rad)
        ((x, y),) = back.points(np.array([[-self.x_m, -self.y_m]])).tolist()
        return Motion(-self.yaw_rad, x, y)

    def memory(self, memory: Memory) -> Memory:
        """Return a memory with its pose and covariance moved; the same object for the identity."""
        if self == Motion():
            return memory
        if memory.position is None:
            return dataclasses.replace(memory, yaw=self.yaw(memory.yaw))
        ((x, y, z),) = self.points(np.array([memory.position])).tolist()
        covariance = memory.covariance
        if covariance is not None:
            covariance = self.turn() @ covariance @ self.turn().T
        return dataclasses.replace(
            memory, position=(x, y, z), yaw=self.yaw(memory.yaw), covariance=covariance
        )

    def __str__(self) -> str:
        """Return a text for people."""
        shift = f"shifted by ({self.x_m:.2f}, {self.y_m:.2f}) m"
        if self.yaw_rad == 0.0:
            return shift
        return f"turned by {math.degrees(self.yaw_rad):.2f} degrees, {shift} at the map's origin"

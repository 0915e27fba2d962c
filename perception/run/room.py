"""Capacities of the CUDA graph of a frame: first guess and growth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from perception.config import DetectorConfig
from perception.stages.neck import list_reach, work_share

#: Smallest capacities for points and pillars of a frame.
_LEAST_POINTS, _LEAST_PILLARS = 1 << 15, 1 << 13
#: Growth beyond what a frame needs.
_SLACK = 1.25
#: Cells of the neck's map per batch up to which the neck is dense, because launches cost more than cells.
_DENSE_CELLS = 1 << 13
#: Share of the dense neck's work above which lists of cells do not pay.
_MOST_SHARE = 0.6


class Room(NamedTuple):
    """Capacities of a graph.

    Attributes:
        batch_size: frames.
        points: points per frame.
        capacities: active cells of each level, for the whole batch.
        nearby: cells of each list near active cells, for the whole batch; empty for a dense neck.
    """

    batch_size: int
    points: int
    capacities: tuple[int, ...]
    nearby: tuple[int, ...] = ()

    @property
    def limits(self) -> tuple[int, ...]:
        """Capacities of all levels and lists."""
        return (*self.capacities, *self.nearby)

    def active(self, numbers: list[int]) -> list[int]:
        """Return the active cells of all levels and lists from ``FrameBoxes.numbers``."""
        return numbers[2 * self.batch_size :][: len(self.limits)]

    def holds(self, other: Room) -> bool:
        """Return True if no capacity of the other is larger; a dense neck holds any lists."""
        if other.points > self.points or not all(map(int.__le__, other.capacities, self.capacities)):
            return False
        if not self.nearby:
            return True
        return bool(other.nearby) and all(map(int.__le__, other.nearby, self.nearby))

    def with_points(self, points: int, config: DetectorConfig) -> Room:
        """Return the room with a capacity for so many points per frame."""
        # The first scans of a drive have few past scans, so later ones would need a larger graph.
        return self._replace(points=_rounded(points, _LEAST_POINTS * config.pillars.sweeps))


def first_room(config: DetectorConfig, batch_size: int, *, sparse: bool, grows: bool) -> Room:
    """Return the capacities of a first graph.

    Args:
        config: configuration of the network.
        batch_size: frames.
        sparse: True for a sparse backbone; a dense one has capacities for pillars only.
        grows: True if a frame that does not fit gets a larger graph.
    """
    first = _LEAST_PILLARS * batch_size
    levels = len(config.backbone.channels) if sparse else 1
    lists = list_reach(config.neck.blocks) + 1
    if config.pillars.open:
        # The number of cells is unbounded, so a graph that cannot grow starts larger.
        first *= 1 if grows else 4
        return Room(batch_size, 0, (first,) * levels, (first,) * lists)
    rows, columns = config.pillars.grid_shape
    cells = _neck_cells(config, batch_size)
    most = [
        batch_size * math.ceil(rows / 2**level) * math.ceil(columns / 2**level) for level in range(levels)
    ]
    room = Room(batch_size, 0, tuple(min(count, first) for count in most))
    if not sparse or config.neck.blocks == 0 or cells <= _DENSE_CELLS:
        return room
    # A graph that cannot grow has room for every cell.
    near = min(cells, first) if grows else cells
    return room._replace(nearby=(near,) * lists)


def needed_room(room: Room, numbers: list[int], config: DetectorConfig) -> Room | None:
    """Return the capacities that a batch needs; None if it fitted.

    Args:
        room: capacities of the graph that ran.
        numbers: its ``FrameBoxes.numbers``.
        config: configuration of the network.
    """
    active = room.active(numbers)
    fits = all(map(int.__le__, active, room.limits))
    if fits and (not room.nearby or config.pillars.open):
        return None
    levels, lists = active[: len(room.capacities)], active[len(room.capacities) :]
    needed = room._replace(capacities=_grown(levels, room.capacities))
    if config.pillars.open:
        needed = needed._replace(nearby=_grown(lists, room.nearby))
    elif lists:
        cells = _neck_cells(config, room.batch_size)
        near = tuple(min(cells, count) for count in _grown(lists, room.nearby))
        needed = needed._replace(nearby=() if work_share(lists, cells) > _MOST_SHARE else near)
    return None if needed == room else needed


def _neck_cells(config: DetectorConfig, batch_size: int) -> int:
    rows, columns = config.pillars.grid_shape
    return batch_size * rows * columns // config.backbone.stride**2


def _grown(active: Sequence[int], capacities: Sequence[int]) -> tuple[int, ...]:
    """Increase the capacities that active cells exceed."""
    return tuple(
        _rounded(int(count * _SLACK), _LEAST_PILLARS) if count > room else room
        for count, room in zip(active, capacities, strict=True)
    )


def _rounded(count: int, least: int) -> int:
    """Round up to 2**n or 1.5 * 2**n, at least ``least``."""
    if count <= least:
        return least
    power = 1 << (count - 1).bit_length()
    return power * 3 // 4 if count <= power * 3 // 4 else power

"""Why an observer did not see what another one saw."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from memory.merging.trajectories import trajectory_of
from memory.observe.views import Views, expected_visible
from memory.types import Memory

#: ``"in view"``: it should have seen the object. ``"hidden"``: something stood in front of it. ``"out of
#: view"``: too far away or beside the field of view. ``"not looking"``: no view at that time.
Visibility = Literal["in view", "hidden", "out of view", "not looking"]
#: Share of the views in which an object must be visible, so that a gap between two others does not count.
_SHARE = 0.5


def visibility_of(memory: Memory, views: Views) -> Visibility:
    """Return whether an observer should have seen an object.

    A moving object is looked for where it was at the time of each view, a static one at its place from its
    first to its last observation.

    Args:
        memory: an object, or an event with a trajectory; in the map of the views.
        views: of the observer; without ``free_m``, nothing hides an object.
    """
    if memory.position is None:
        return "not looking"
    rows = np.flatnonzero((views.time_ns >= memory.first_sight_ns) & (views.time_ns <= memory.last_sight_ns))
    if not len(rows):
        return "not looking"
    looks = views.select(rows)
    places = np.tile(np.array(memory.position, np.float64), (len(rows), 1))
    trajectory = trajectory_of(memory)
    if trajectory is not None:
        places[:, :2] = trajectory.at(looks.time_ns)
    # The centre of a long object lies behind its surface.
    size = memory.payload.get("size_m")
    margin_m = max(0.3, max(size) / 2.0) if isinstance(size, list) and size else 0.3
    if np.diagonal(expected_visible(looks, places, margin_m=margin_m)).mean() >= _SHARE:
        return "in view"
    open_views = replace(looks, free_m=None)
    return "hidden" if np.diagonal(expected_visible(open_views, places)).mean() >= _SHARE else "out of view"

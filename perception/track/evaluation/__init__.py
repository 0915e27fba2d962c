"""Tracking metrics: CLEAR MOT over recall (AB3DMOT) and HOTA (TrackEval) for KITTI, AMOTA for nuScenes."""

from __future__ import annotations

from perception.track.evaluation.clear import ClearMeasures, clear_measures
from perception.track.evaluation.hota import HotaMeasures, hota_measures
from perception.track.evaluation.nuscenes import NuScenesTracking, nuscenes_measures
from perception.track.evaluation.table import SequencePair, load_sequences

__all__ = [
    "ClearMeasures",
    "HotaMeasures",
    "NuScenesTracking",
    "SequencePair",
    "clear_measures",
    "hota_measures",
    "load_sequences",
    "nuscenes_measures",
]

"""Evaluation of tracks: by KITTI's rules CLEAR MOT averaged over recall (AB3DMOT) and HOTA (TrackEval), by
nuScenes' rules AMOTA and what belongs to it."""

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

"""Evaluation of tracks by KITTI's rules: CLEAR MOT averaged over recall (AB3DMOT), and HOTA (TrackEval)."""

from __future__ import annotations

from perception.track.evaluation.clear import ClearMeasures, clear_measures
from perception.track.evaluation.hota import HotaMeasures, hota_measures
from perception.track.evaluation.table import SequencePair, load_sequences

__all__ = [
    "ClearMeasures",
    "HotaMeasures",
    "SequencePair",
    "clear_measures",
    "hota_measures",
    "load_sequences",
]

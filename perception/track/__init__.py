"""Tracking: identities, velocities and histories of objects from detections, frame by frame."""

from __future__ import annotations

from perception.track.config import ClassConfig, TrackerConfig
from perception.track.prediction import TrackPredictor
from perception.track.recording import DelayedTracker, Moment, track_recording
from perception.track.tracker import Tracker
from perception.track.tracks import Tracks

__all__ = [
    "ClassConfig",
    "DelayedTracker",
    "Moment",
    "TrackPredictor",
    "Tracker",
    "TrackerConfig",
    "Tracks",
    "track_recording",
]

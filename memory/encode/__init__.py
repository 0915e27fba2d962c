"""Encoders of scenes, text, images and depth images.

Text and images need an optional package each (``pip install 'sparsight[text]'``, ``'sparsight[image]'``),
which is imported on first use; scenes and depth images need none.

    scene = detection_tokens(boxes, labels, scores) + structure_tokens(points)
    vector = SceneEncoder.pretrained().encode([scene])[0]
"""

import warnings
from typing import Any

from memory.encode.class_names import ClassNameEncoder
from memory.encode.depth import DepthEncoder, depth_points
from memory.encode.image import ImageEncoder
from memory.encode.image_text import ImageTextEncoder, PruningExamples, open_image_text_encoder
from memory.encode.scene import SceneEncoder, SceneEncoderConfig, TokenBatch
from memory.encode.text import TextEncoder
from memory.encode.tokens import (
    STRUCTURE,
    SceneTokens,
    column_tokens,
    detection_tokens,
    structure_tokens,
)
from memory.encode.training import TrainingOptions, TrainingResult, train_scene_encoder

__all__ = [
    "STRUCTURE",
    "ClassNameEncoder",
    "DepthEncoder",
    "ImageEncoder",
    "ImageTextEncoder",
    "PruningExamples",
    "SceneEncoder",
    "SceneEncoderConfig",
    "SceneTokens",
    "TextEncoder",
    "TokenBatch",
    "TrainingOptions",
    "TrainingResult",
    "column_tokens",
    "depth_points",
    "detection_tokens",
    "open_image_text_encoder",
    "structure_tokens",
    "train_scene_encoder",
]


def __getattr__(name: str) -> Any:
    if name == "Calibration":
        warnings.warn("Calibration is now PruningExamples", DeprecationWarning, stacklevel=2)
        return PruningExamples
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

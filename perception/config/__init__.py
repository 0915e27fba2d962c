"""Configuration: one frozen dataclass per stage, saved beside results.

YAML files have the same nesting as :class:`DetectorConfig` and :class:`TrainConfig`; unknown fields and
values out of range are errors that name the field.
"""

from perception.config.backbone import AnchorConfig, BackboneConfig, CanvasConfig, CentreConfig
from perception.config.detector import (
    DetectorConfig,
    EmbeddingConfig,
    HeadConfig,
    Limits,
    NeckConfig,
    NmsConfig,
    RefineConfig,
)
from perception.config.files import from_dict, load_config, save_config, to_dict
from perception.config.pillars import PillarConfig
from perception.config.training import AugmentConfig, TrainConfig

__all__ = [
    "AnchorConfig",
    "AugmentConfig",
    "BackboneConfig",
    "CanvasConfig",
    "CentreConfig",
    "DetectorConfig",
    "EmbeddingConfig",
    "HeadConfig",
    "Limits",
    "NeckConfig",
    "NmsConfig",
    "PillarConfig",
    "RefineConfig",
    "TrainConfig",
    "from_dict",
    "load_config",
    "save_config",
    "to_dict",
]

"""Configuration: one frozen dataclass per stage, saved with the results.

YAML files mirror :class:`DetectorConfig` and :class:`TrainConfig`. An unknown field or a value out of range
raises a ``ConfigError`` that names the field.
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

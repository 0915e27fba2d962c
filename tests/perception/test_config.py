"""Configurations: defaults, YAML, and errors that name the field."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import perception
from perception.config import (
    BackboneConfig,
    DetectorConfig,
    PillarConfig,
    TrainConfig,
    from_dict,
    load_config,
    save_config,
    to_dict,
)
from perception.errors import ConfigError
from perception.train.identity import IdentityConfig

CONFIGS = sorted((Path(perception.__file__).parent / "configs").glob("*.yaml"))
#: Of detectors; the other kind of training has a file of its own.
SHIPPED = [path for path in CONFIGS if path.stem != "embedding"]


@pytest.mark.parametrize(
    "text",
    [
        "steps: " + "[" * 1100,
        "steps: " + "- " * 1500,
        "steps: " + "9" * 5000,
        "learning_rate: 0x" + "f" * 5000,
        "steps: 2001-99-99",
        "- 1",
        "7",
    ],
    ids=["brackets", "dashes", "digits", "large float", "date", "list", "number"],
)
def test_a_damaged_file_is_a_config_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"run\.yaml") as caught:
        load_config(TrainConfig, path)
    assert len(str(caught.value)) < 1000


def test_a_folder_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(TrainConfig, tmp_path)


def test_defaults_describe_kitti() -> None:
    config = DetectorConfig()
    assert config.pillars.grid_shape == (496, 432)
    assert config.backbone.stride == 8
    assert config.head.classes == ("Car", "Pedestrian", "Cyclist")
    assert from_dict(DetectorConfig, {}) == config
    assert from_dict(TrainConfig, {}) == TrainConfig()


def test_fields_left_out_keep_their_defaults() -> None:
    config = from_dict(DetectorConfig, {"nms": {"iou": 0.2}, "backbone": {"kind": "dense"}})
    assert config == DetectorConfig(
        nms=replace(DetectorConfig().nms, iou=0.2), backbone=BackboneConfig(kind="dense")
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"colour": 1}, "unknown field colour; known: .*pillars"),
        ({"pillars": {"colour": 1}}, r"unknown field pillars\.colour; known: .*range_m"),
        ({"pillars": 3}, "pillars.* must be a mapping"),
        ({"pillars": {"pillar_size_m": "wide"}}, r"pillars\.pillar_size_m must be float, got 'wide'"),
        ({"pillars": {"pillar_size_m": 0}}, r"pillars\.pillar_size_m must be positive"),
        ({"pillars": {"pillar_size_m": True}}, r"pillars\.pillar_size_m must be float"),
        ({"pillars": {"max_pillars": 1.5}}, r"pillars\.max_pillars must be int"),
        ({"pillars": {"channels": 0}}, r"pillars\.channels"),
        ({"pillars": {"channels": 15}}, r"pillars\.channels must be positive and even"),
        ({"pillars": {"range_m": [0, 1]}}, r"pillars\.range_m must be six numbers"),
        ({"pillars": {"range_m": 5}}, r"pillars\.range_m must be a list"),
        ({"pillars": {"range_m": None, "z_range_m": [1, -3]}}, r"pillars\.z_range_m must be the lowest z"),
        ({"pillars": {"range_m": None, "origin_m": [0]}}, r"pillars\.origin_m must be two finite numbers"),
        ({"pillars": {"z_range_m": [-3, 1]}}, r"pillars\.z_range_m must be null where range_m is given"),
        ({"pillars": {"range_m": None}, "backbone": {"dilating": False}}, r"range_m must be six numbers"),
        ({"pillars": {"range_m": [0, -8, -3, 0, 8, 1]}}, r"pillars\.range_m must be minimum"),
        ({"pillars": {"range_m": [0, -8, -3, float("inf"), 8, 1]}}, r"pillars\.range_m"),
        ({"pillars": {"range_m": [0, -8, -3, 16.16, 8, 1]}}, r"pillars\.range_m must be a multiple of 8"),
        (
            {"pillars": {"range_m": [0, -40, -3, 80, 40, 1]}},
            r"Nearest valid ranges: x from 0 to 79\.36 or 80\.64; y from -40 to 39\.36 or 40\.64",
        ),
        (
            {"head": {"sizes_m": {"car": [4, 2, 1.5]}}},
            r"head\.sizes_m: unknown class 'car'\. Did you mean 'Car'",
        ),
        (
            {"backbone": {"kind": "thin"}},
            r"backbone\.kind must be one of sparse, dense, anchors, centres; got 'thin'",
        ),
        ({"backbone": {"blocks": [1, 1]}}, r"backbone\.channels and backbone\.blocks"),
        ({"backbone": {"channels": [0, 8, 8]}}, r"backbone\.channels must be positive"),
        ({"neck": {"channels": -1}}, r"neck\.channels"),
        ({"head": {"classes": []}}, r"head\.classes"),
        ({"head": {"classes": ["Car", "Car"]}}, r"head\.classes must be distinct"),
        ({"head": {"classes": ["Car", 3]}}, r"head\.classes must be str, got 3"),
        ({"head": {"top_k": 0}}, r"head\.top_k"),
        ({"nms": {"iou": 1.5}}, r"nms\.iou must be in \[0, 1\], got 1\.5"),
        ({"nms": {"score_threshold": float("nan")}}, r"nms\.score_threshold"),
        ({"nms": {"footprints_m": {"Car": [4.0]}}}, r"nms\.footprints_m of Car must be two finite numbers"),
        (
            {"nms": {"footprints_m": {"Car": [4, 0]}}},
            r"nms\.footprints_m of Car must be two positive lengths",
        ),
        (
            {"nms": {"size_offsets_m": {"Car": [0.2, 0.1]}}},
            r"nms\.size_offsets_m of Car must be three finite numbers",
        ),
        ({"nms": {"size_offsets_m": {"Tram": [1, 0, 0]}}}, r"nms\.size_offsets_m: unknown class 'Tram'"),
        ({"nms": {"footprints_m": {"Tram": [9, 3]}}}, r"nms\.footprints_m: unknown class 'Tram'"),
        ({"refine": {"enabled": 1}}, r"refine\.enabled must be true or false, got 1"),
        ({"refine": {"proposals": 0}}, r"refine\.proposals"),
        ({"refine": {"channels": []}}, r"refine\.channels"),
    ],
)
def test_detector_errors_name_the_field(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_dict(DetectorConfig, values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 0}, "steps must be positive"),
        ({"batch_size": "2"}, "batch_size must be int"),
        ({"precision": "float8"}, "precision must be one of float32, bfloat16, float16"),
        ({"extra_share": 1.0}, "extra_share"),
        ({"learning_rate": -1}, "learning_rate"),
        ({"workers": -1}, "workers"),
        ({"detector": {"nms": {"iou": 2}}}, r"nms\.iou"),
        ({"detector": {"head": {"size": 2}}}, r"unknown field detector\.head\.size"),
        ({"augment": {"paste": {"Car": "many"}}}, r"augment\.paste must be int, got 'many'"),
        ({"augment": {"scale": 2}}, r"augment\.scale"),
    ],
)
def test_training_errors_name_the_field(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_dict(TrainConfig, values)


def test_errors_apply_to_python_too() -> None:
    with pytest.raises(ConfigError, match="pillar_size_m"):
        PillarConfig(pillar_size_m=-1)


def test_whole_numbers_are_fine_as_floats() -> None:
    assert from_dict(PillarConfig, {"pillar_size_m": 1}).pillar_size_m == 1.0


def test_yaml_there_and_back(tmp_path: Path, tiny_config: DetectorConfig) -> None:
    config = TrainConfig(detector=tiny_config, steps=7, learning_rate=1e-4)
    path = tmp_path / "config.yaml"
    save_config(config, path)
    assert load_config(TrainConfig, path) == config
    assert yaml.safe_load(path.read_text()) == to_dict(config)
    assert from_dict(TrainConfig, to_dict(config)) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: [1", "not a YAML file"),
        ("- 1\n- 2\n", "must be a mapping"),
        ("steps: -1\n", "steps must be positive"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"broken\.yaml.*{message}"):
        load_config(TrainConfig, path)
    with pytest.raises(ConfigError, match=r"none\.yaml: no such"):
        load_config(TrainConfig, tmp_path / "none.yaml")


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    assert load_config(TrainConfig, tmp_path / "empty.yaml") == TrainConfig()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_configurations_load(path: Path) -> None:
    assert load_config(TrainConfig, path).detector.name == path.stem


def test_the_shipped_training_of_vectors_loads() -> None:
    (path,) = set(CONFIGS) - set(SHIPPED)
    assert load_config(IdentityConfig, path).trains == path.stem


def test_the_shipped_twins_differ_in_the_backbone_only() -> None:
    sparse, dense = (
        load_config(TrainConfig, SHIPPED[0].parent / f"pointpillars-kitti{end}.yaml")
        for end in ("", "-dense")
    )
    twin = replace(
        sparse.detector,
        name="pointpillars-kitti-dense",
        backbone=replace(sparse.detector.backbone, kind="dense"),
    )
    assert replace(sparse, detector=twin) == dense

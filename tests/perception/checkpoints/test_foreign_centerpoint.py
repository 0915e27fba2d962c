"""CenterPoint of OpenPCDet as weights: outputs of its own definition, what is left out, errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from foreign_centerpoint import Definition, found, random_state

from perception import Detector
from perception.checkpoints.foreign import convert_weights
from perception.checkpoints.weights import load_weights
from perception.cli import main
from perception.config import CanvasConfig, CentreConfig, DetectorConfig, HeadConfig, NeckConfig, RefineConfig
from perception.errors import CheckpointError, ConfigError, ScanWarning
from perception.model.canvas import canvas_section
from perception.model.centres import CentreNetwork
from perception.nms import rotated_nms_exact
from perception.run.canvas import CentreSteps

pytestmark = pytest.mark.usefixtures("one_thread")

WAYMO = Definition()
#: Two groups, whose classes are not in the order of all; a map coarser than the second stage; no biases.
GROUPS = Definition(
    groups=(("Cyclist",), ("Vehicle", "Pedestrian")), strides=(2, 2, 2), up_strides=(0.5, 1, 2),
    bias=False, heat_layers=3, filters=(8,), speeds=True, threshold=0.6,
)  # fmt: skip
FEATURES = Definition(features=5, filters=(8, 12, 8), most=40, kept=3, threshold=0.84)
RELATIVE = Definition(features=5, absolute=False, limits=(-80.0, -80.0, -10.0, 80.0, 80.0, 10.0),
                      threshold=0.7)  # fmt: skip
#: Ages of points and velocities, as for nuScenes.
SWEEPS = replace(FEATURES, speeds=True, sweeps=10, threshold=0.75)
AGES = replace(RELATIVE, speeds=True, sweeps=10)
MODELS = {
    "waymo": WAYMO, "groups": GROUPS, "features": FEATURES, "relative": RELATIVE, "sweeps": SWEEPS,
    "ages": AGES,
}  # fmt: skip


def model_yaml(model: Definition) -> dict[str, Any]:
    """A model file of OpenPCDet."""
    branches = {name: {"out_channels": width, "num_conv": 2} for name, width in model.branches.items()}
    voxels = {
        "NAME": "transform_points_to_voxels",
        "VOXEL_SIZE": [model.voxel, model.voxel, 6.0],
        "MAX_POINTS_PER_VOXEL": model.points,
        "MAX_NUMBER_OF_VOXELS": {"train": 10, "test": 40000},
    }
    return {
        "CLASS_NAMES": list(model.classes),
        "DATA_CONFIG": {
            "POINT_CLOUD_RANGE": [*model.low, *model.high],
            "DATA_PROCESSOR": [voxels],
            "MAX_SWEEPS": model.sweeps,
            "POINT_FEATURE_ENCODING": {
                "used_feature_list": ["x", "y", "z", "intensity", *(["timestamp"] * (model.sweeps > 1))]
            },
        },
        "MODEL": {
            "NAME": "CenterPoint",
            "VFE": {
                "NAME": "PillarVFE", "WITH_DISTANCE": False, "USE_ABSLOTE_XYZ": model.absolute,
                "USE_NORM": True, "NUM_FILTERS": list(model.filters),
            },
            "MAP_TO_BEV": {"NAME": "PointPillarScatter", "NUM_BEV_FEATURES": model.filters[-1]},
            "BACKBONE_2D": {
                "NAME": "BaseBEVBackbone",
                "LAYER_NUMS": list(model.blocks),
                "LAYER_STRIDES": list(model.strides),
                "NUM_FILTERS": list(model.channels),
                "UPSAMPLE_STRIDES": list(model.up_strides),
                "NUM_UPSAMPLE_FILTERS": list(model.ups),
            },
            "DENSE_HEAD": {
                "NAME": "CenterHead",
                "CLASS_AGNOSTIC": False,
                "CLASS_NAMES_EACH_HEAD": [list(group) for group in model.groups],
                "SHARED_CONV_CHANNEL": model.shared,
                "USE_BIAS_BEFORE_NORM": model.bias,
                "NUM_HM_CONV": model.heat_layers,
                "SEPARATE_HEAD_CFG": {"HEAD_ORDER": list(branches), "HEAD_DICT": branches},
                "TARGET_ASSIGNER_CONFIG": {"FEATURE_MAP_STRIDE": model.stride},
                "POST_PROCESSING": {
                    "SCORE_THRESH": model.threshold,
                    "POST_CENTER_LIMIT_RANGE": list(model.limits),
                    "MAX_OBJ_PER_SAMPLE": model.most,
                    "NMS_CONFIG": {
                        "NMS_TYPE": "nms_gpu", "NMS_THRESH": model.overlap,
                        "NMS_PRE_MAXSIZE": 4096, "NMS_POST_MAXSIZE": model.kept,
                    },
                },
            },
            "POST_PROCESSING": {"RECALL_THRESH_LIST": [0.3, 0.5, 0.7]},
        },
    }  # fmt: skip


def checkpoint(folder: Path, model: Definition) -> tuple[dict[str, torch.Tensor], Path, Path]:
    """Tensors of a model, the file of them and that of the configuration."""
    state = random_state(model, 1)
    torch.save({"model_state": {**state, "global_step": torch.tensor(3)}, "epoch": 30}, folder / "model.pth")
    (folder / "model.yaml").write_text(yaml.safe_dump(model_yaml(model)))
    return state, folder / "model.pth", folder / "model.yaml"


def cloud(seed: int) -> np.ndarray:
    """Crowded and lone pillars, points out of range and one that is none."""
    random = np.random.default_rng(seed)
    points = random.uniform([-6, -6, -2.2, 0], [6, 6, 4.2, 1], (500, 4))
    crowd = random.uniform([4, 1, -1, 0], [4.5, 1.5, 0, 1], (60, 4))
    together = random.permutation(np.concatenate([points, crowd])).astype(np.float32)
    together[5, 1] = np.nan
    return together


def of_the_program(model: Definition, points: np.ndarray) -> np.ndarray:
    """As many numbers a point as it reads: further ones are 0."""
    return np.pad(points, ((0, 0), (0, model.features - 4)))


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_the_program(tmp_path: Path, name: str) -> None:
    model = MODELS[name]
    state, weights, config = checkpoint(tmp_path, model)
    out = tmp_path / "own.safetensors"
    assert main(["convert-weights", str(weights), str(out), "--config", str(config)]) == 0
    points = cloud(3)
    if model.sweeps > 1:
        points = np.column_stack([points, np.random.default_rng(4).uniform(0, 0.5, len(points))])
        points = points.astype(np.float32)
    wanted = found(model, state, points if model.sweeps > 1 else of_the_program(model, points))

    network = load_weights(out).fold()
    steps = CentreSteps(network)
    with torch.inference_mode():
        (level,) = steps.levels
        canvas = level[1](steps.encode(steps.locate([torch.from_numpy(points)])))
        candidates = steps.candidates(canvas.features)
    scores = torch.cat([group.scores for group in wanted])
    boxes = torch.cat([group.boxes for group in wanted])
    torch.testing.assert_close(candidates.scores, scores, rtol=0, atol=1e-4)
    torch.testing.assert_close(candidates.boxes.double(), boxes, rtol=0, atol=1e-4)
    if model.speeds:
        assert candidates.velocities is not None
        speeds = torch.cat([group.velocities for group in wanted])
        torch.testing.assert_close(candidates.velocities, speeds, rtol=0, atol=1e-4)
        assert speeds.abs().max() > 0.1
    labels = [model.classes[label] for label in candidates.labels]
    assert labels == [label for group in wanted for label in group.labels]

    detections = Detector(network)(points)
    reported = []
    for group in wanted:
        kept = rotated_nms_exact(group.boxes, group.scores, model.overlap, max_output=model.kept)
        reported += [
            (float(group.scores[row]), group.boxes[row], group.labels[row], group.velocities[row])
            for row in kept
        ]
    reported.sort(key=lambda entry: -entry[0])
    assert len(detections) == len(reported) >= 3
    np.testing.assert_allclose(detections.scores, [entry[0] for entry in reported], rtol=0, atol=1e-4)
    np.testing.assert_allclose(
        detections.boxes, np.stack([entry[1] for entry in reported]), rtol=0, atol=1e-4
    )
    assert detections.labels == [entry[2] for entry in reported]
    assert (detections.velocities is None) == (not model.speeds)
    if detections.velocities is not None:
        speeds = np.stack([entry[3] for entry in reported])
        np.testing.assert_allclose(detections.velocities, speeds, rtol=0, atol=1e-4)


def test_what_is_cut_off_is_tested() -> None:
    """Scores, limits and the number of places each leave something out of these models."""
    points = cloud(3)
    state = random_state(WAYMO, 1)
    wide = replace(WAYMO, limits=(-80.0,) * 3 + (80.0,) * 3)
    counts = [
        len(found(model, state, points)[0].scores)
        for model in (WAYMO, wide, replace(wide, threshold=0.0), replace(wide, threshold=0.0, most=10_000))
    ]
    assert counts[0] < counts[1] < counts[2] == WAYMO.most < counts[3]


def test_what_is_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, weights, config = checkpoint(tmp_path, replace(WAYMO, features=5, speeds=True))
    out = tmp_path / "own.safetensors"
    assert main(["convert-weights", str(weights), str(out), "--config", str(config)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{out}: CenterPoint from OpenPCDet for Vehicle, Pedestrian, Cyclist",
        "left out: the fifth number of each point (elongation, time): treated as 0",
    ]
    for model in (WAYMO, GROUPS, SWEEPS):
        _, weights, config = checkpoint(tmp_path, model)
        assert convert_weights(weights, config).left_out == ()


@pytest.mark.parametrize("points", [np.zeros((0, 4), np.float32), np.full((4, 4), np.nan, np.float32)])
def test_nothing_gives_nothing(tmp_path: Path, points: np.ndarray) -> None:
    _, weights, config = checkpoint(tmp_path, replace(GROUPS, threshold=0.0))
    assert len(Detector(convert_weights(weights, config).network)(points)) == 0


def test_a_limit_of_places_is_reported(tmp_path: Path) -> None:
    """The model keeps ``WAYMO.most`` places; more are above the threshold."""
    _, weights, config = checkpoint(tmp_path, replace(WAYMO, threshold=0.0))
    detector = Detector(convert_weights(weights, config).network)
    with pytest.warns(ScanWarning, match=rf"limit of {WAYMO.most} peaks \(head.top_k\)"):
        found = detector(cloud(3))
    assert "head.top_k" in found.limits_reached
    assert detector.with_limits(1000)(cloud(3)).limits_reached == ()


def test_a_batch_is_its_frames(tmp_path: Path) -> None:
    _, weights, config = checkpoint(tmp_path, GROUPS)
    detector = Detector(convert_weights(weights, config).network)
    points = [cloud(1), cloud(2)[:40], np.zeros((0, 4), np.float32)]
    for one, part in zip(detector.detect_batch(points), points, strict=True):
        np.testing.assert_array_equal(one.boxes, detector(part).boxes)


def test_scans_are_detected_with_the_file(tmp_path: Path) -> None:
    _, weights, config = checkpoint(tmp_path, WAYMO)
    out, scan = tmp_path / "own.safetensors", tmp_path / "scan.bin"
    cloud(3).tofile(scan)
    assert main(["convert-weights", str(weights), str(out), "--config", str(config)]) == 0
    assert main(["detect", str(scan), "--weights", str(out), "--out", str(tmp_path / "boxes")]) == 0
    assert list((tmp_path / "boxes").rglob("*"))


def changed(model: Definition, change: Callable[[dict[str, Any]], Any]) -> str:
    """The model file with a change to the section ``MODEL``."""
    values = model_yaml(model)
    change(values["MODEL"])
    return yaml.safe_dump(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model["VFE"].update(NAME="DynPillarVFE"), r"VFE\.NAME must be 'PillarVFE'"),
        (lambda model: model["VFE"].update(USE_NORM=False), r"VFE\.USE_NORM"),
        (lambda model: model["VFE"].update(NUM_FILTERS=[7, 8]), r"hidden_channels"),
        (lambda model: model.update(BACKBONE_3D={"NAME": "VoxelResBackBone8x"}), r"MODEL\.BACKBONE_3D"),
        (lambda model: model.update(ROI_HEAD={"NAME": "PVRCNNHead"}), r"MODEL\.ROI_HEAD"),
        (lambda model: model["MAP_TO_BEV"].update(NAME="PointPillarScatter3d"), r"MAP_TO_BEV\.NAME"),
        (lambda model: model["BACKBONE_2D"].update(UPSAMPLE_STRIDES=[1, 2, 4, 2]), r"UPSAMPLE_STRIDES"),
        (lambda model: model["BACKBONE_2D"].update(UPSAMPLE_STRIDES=[0.4, 1, 2]), r"up_strides"),
        (lambda model: model["BACKBONE_2D"].update(NAME="BaseBEVResBackbone"), r"BACKBONE_2D\.NAME"),
        (lambda model: model["DENSE_HEAD"].update(NAME="AnchorHeadSingle"), r"NAME must be 'CenterHead'"),
        (
            lambda model: model["DENSE_HEAD"].update(CLASS_NAMES_EACH_HEAD=[["Vehicle"], ["Van"]]),
            r"CLASS_NAMES_EACH_HEAD: groups without",
        ),
        (
            lambda model: model["DENSE_HEAD"].update(CLASS_NAMES_EACH_HEAD=[["Vehicle"]]),
            r"CLASS_NAMES_EACH_HEAD, in order",
        ),
        (
            lambda model: model["DENSE_HEAD"]["SEPARATE_HEAD_CFG"]["HEAD_DICT"].update(
                iou={"out_channels": 1, "num_conv": 2}
            ),
            r"HEAD_DICT",
        ),
        (lambda model: model["DENSE_HEAD"]["SEPARATE_HEAD_CFG"]["HEAD_DICT"].pop("rot"), r"'rot'"),
        (
            lambda model: model["DENSE_HEAD"]["TARGET_ASSIGNER_CONFIG"].update(FEATURE_MAP_STRIDE=4),
            r"FEATURE_MAP_STRIDE must be 1, got 4",
        ),
        (
            lambda model: model["DENSE_HEAD"]["POST_PROCESSING"]["NMS_CONFIG"].update(NMS_TYPE="circle_nms"),
            r"NMS_TYPE must be 'nms_gpu'",
        ),
        (
            lambda model: model["DENSE_HEAD"]["POST_PROCESSING"]["NMS_CONFIG"].update(NMS_PRE_MAXSIZE=9),
            r"NMS_PRE_MAXSIZE must be at least 60, got 9",
        ),
        (
            lambda model: model["DENSE_HEAD"]["POST_PROCESSING"].pop("MAX_OBJ_PER_SAMPLE"),
            r"CenterPoint of OpenPCDet: 'MAX_OBJ_PER_SAMPLE' is missing",
        ),
    ],
)
def test_fields_that_do_not_fit_are_named(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    _, weights, config = checkpoint(tmp_path, WAYMO)
    config.write_text(changed(WAYMO, change))
    with pytest.raises(ConfigError, match=message):
        convert_weights(weights, config)


def test_checkpoints_that_do_not_fit(tmp_path: Path) -> None:
    state, weights, config = checkpoint(tmp_path, WAYMO)
    with pytest.raises(ConfigError, match=r"CenterPoint.*--config"):
        convert_weights(weights)
    with pytest.raises(ConfigError, match="cannot read"):
        convert_weights(weights, tmp_path / "another.yaml")
    values = model_yaml(WAYMO)
    values["DATA_CONFIG"]["DATA_PROCESSOR"] = []
    config.write_text(yaml.safe_dump(values))
    with pytest.raises(ConfigError, match="'transform_points_to_voxels' is missing"):
        convert_weights(weights, config)
    config.write_text(yaml.safe_dump(model_yaml(replace(WAYMO, shared=12))))
    with pytest.raises(CheckpointError, match="another configuration"):
        convert_weights(weights, config)
    config.write_text(yaml.safe_dump(model_yaml(WAYMO)))
    torch.save({"model_state": {**state, "roi_head.reg.weight": torch.zeros(3, 3)}}, weights)
    with pytest.raises(CheckpointError, match=r"unsupported layers: roi_head\.reg\.weight"):
        convert_weights(weights, config)
    state["vfe.pfn_layers.0.linear.weight"] = torch.zeros(6, 14)
    torch.save({"model_state": state}, weights)
    with pytest.raises(CheckpointError, match="unsupported 14 features"):
        convert_weights(weights, config)


def test_sections_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="five counts"):
        CentreConfig(layers=(2, 2))
    with pytest.raises(ConfigError, match="six numbers"):
        CentreConfig(centres_m=(1.0,))
    with pytest.raises(ConfigError, match="positive and even"):
        CanvasConfig(kind="centres", hidden_channels=(3,))
    # The map is coarser than the coarsest stage.
    assert CentreConfig(strides=(1, 1, 2), up_strides=(0.25, 0.25, 0.5)).stride == 4
    bare = DetectorConfig(
        backbone=CentreConfig(groups=(("Car",),)),
        neck=NeckConfig(blocks=0),
        refine=RefineConfig(enabled=False),
    )
    with pytest.raises(ConfigError, match=r"backbone\.groups must contain each"):
        CentreNetwork(bare)
    network = CentreNetwork(replace(bare, head=HeadConfig(classes=("Car",), channels=8)))
    assert canvas_section(network.config).map_stride == 2
    with pytest.raises(ConfigError, match="'centres' cannot be trained here"):
        network.maps(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'anchors' or 'centres'"):
        canvas_section(DetectorConfig())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("name", MODELS)
def test_boxes_on_a_gpu_are_those_of_a_cpu(tmp_path: Path, name: str) -> None:
    _, weights, config = checkpoint(tmp_path, MODELS[name])
    wanted = Detector(convert_weights(weights, config).network)(cloud(3))
    with torch.backends.cudnn.flags(allow_tf32=False):
        found_there = Detector(convert_weights(weights, config).network, device="cuda")(cloud(3))
    assert found_there.labels == wanted.labels
    np.testing.assert_allclose(found_there.scores, wanted.scores, rtol=0, atol=1e-4)
    np.testing.assert_allclose(found_there.boxes[:, :6], wanted.boxes[:, :6], rtol=0, atol=1e-3)

"""Weights of other programs: outputs of their own definitions, errors, and nothing executed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from foreign_pointpillars import Definition, forward, random_state

from perception import Detector
from perception.checkpoints import foreign
from perception.checkpoints.foreign import convert_weights
from perception.checkpoints.weights import load_weights
from perception.cli import main
from perception.config import (
    AnchorConfig,
    DetectorConfig,
    HeadConfig,
    NeckConfig,
    NmsConfig,
    PillarConfig,
    RefineConfig,
    to_dict,
)
from perception.errors import CheckpointError, ConfigError, ScanWarning
from perception.model.anchors import AnchorNetwork
from perception.nms import rotated_nms_exact
from perception.run.canvas import AnchorSteps

pytestmark = pytest.mark.usefixtures("one_thread")
FLAVOURS = ("openpcdet", "mmdetection3d", "zhulf0804")
CLASSES = ("Pedestrian", "Cyclist", "Car")


def openpcdet_yaml(model: Definition) -> dict[str, Any]:
    """A model file of OpenPCDet."""
    sets = [
        {"class_name": name, "anchor_sizes": [list(size)], "anchor_rotations": [0, 1.57],
         "anchor_bottom_heights": [bottom], "align_center": False}
        for name, size, bottom in zip(CLASSES, model.sizes, model.bottoms, strict=True)
    ]  # fmt: skip
    voxels = {
        "NAME": "transform_points_to_voxels",
        "VOXEL_SIZE": [model.voxel, model.voxel, 4],
        "MAX_POINTS_PER_VOXEL": model.points,
        "MAX_NUMBER_OF_VOXELS": {"train": 10, "test": 40000},
    }
    return {
        "CLASS_NAMES": list(CLASSES),
        "DATA_CONFIG": {"POINT_CLOUD_RANGE": [*model.low, *model.high], "DATA_PROCESSOR": [voxels]},
        "MODEL": {
            "VFE": {"NAME": "PillarVFE", "WITH_DISTANCE": False, "USE_NORM": True, "NUM_FILTERS": [8]},
            "BACKBONE_2D": {
                "LAYER_NUMS": list(model.blocks),
                "LAYER_STRIDES": [2, 2, 2],
                "NUM_FILTERS": list(model.channels),
                "UPSAMPLE_STRIDES": [1, 2, 4],
                "NUM_UPSAMPLE_FILTERS": list(model.ups),
            },
            "DENSE_HEAD": {
                "NAME": "AnchorHeadSingle",
                "USE_DIRECTION_CLASSIFIER": True,
                "DIR_OFFSET": 0.78539,
                "DIR_LIMIT_OFFSET": 0.0,
                "NUM_DIR_BINS": 2,
                "ANCHOR_GENERATOR_CONFIG": sets,
            },
            "POST_PROCESSING": {
                "SCORE_THRESH": 0.1,
                "NMS_CONFIG": {
                    "MULTI_CLASSES_NMS": False,
                    "NMS_THRESH": 0.01,
                    "NMS_PRE_MAXSIZE": 4096,
                    "NMS_POST_MAXSIZE": 500,
                },
            },
        },
    }


def own_config(model: Definition) -> dict[str, Any]:
    """A configuration for the programs whose own are Python files."""
    offset = -np.pi / 2 if model.flavour == "mmdetection3d" else 0.0
    config = DetectorConfig(
        name=model.flavour,
        pillars=PillarConfig(range_m=(*model.low, *model.high), pillar_size_m=model.voxel, channels=8),
        backbone=AnchorConfig(
            channels=model.channels, blocks=model.blocks, up_channels=model.ups, bottoms_m=model.bottoms,
            centred=True, clockwise=model.flavour == "zhulf0804", direction_offset_rad=offset,
            points=model.points, per_class=True,
        ),
        head=HeadConfig(classes=CLASSES, sizes_m=dict(zip(CLASSES, model.sizes, strict=True)), top_k=100),
        nms=NmsConfig(iou=0.01, score_threshold=0.1, max_boxes=50),
        neck=NeckConfig(blocks=0), refine=RefineConfig(enabled=False),
    )  # fmt: skip
    return to_dict(config)


def checkpoint(
    folder: Path, flavour: str, seed: int = 1
) -> tuple[Definition, dict[str, torch.Tensor], Path, Path]:
    """A model, its tensors, the file of them and that of the configuration."""
    model = Definition(flavour)
    state = random_state(model, seed)
    stored = {
        "openpcdet": {"model_state": state, "epoch": 80, "it": 1},
        "mmdetection3d": {"state_dict": state, "meta": {}},
    }
    torch.save(stored.get(flavour, state), folder / "model.pth")
    config = openpcdet_yaml(model) if flavour == "openpcdet" else own_config(model)
    (folder / "model.yaml").write_text(yaml.safe_dump(config))
    return model, state, folder / "model.pth", folder / "model.yaml"


def cloud(seed: int) -> np.ndarray:
    """Crowded and lone pillars, points out of range and one that is none."""
    random = np.random.default_rng(seed)
    points = random.uniform([-1, -6, -3.2, 0], [11, 6, 1.2, 1], (400, 4))
    crowd = random.uniform([4, 1, -1, 0], [4.5, 1.5, 0, 1], (60, 4))
    together = random.permutation(np.concatenate([points, crowd])).astype(np.float32)
    together[5, 1] = np.nan
    return together


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_outputs_are_those_of_the_program(tmp_path: Path, flavour: str) -> None:
    model, state, weights, config = checkpoint(tmp_path, flavour)
    assert (
        main(["convert-weights", str(weights), str(tmp_path / "own.safetensors"), "--config", str(config)])
        == 0
    )
    points = cloud(3)
    boxes, scores = forward(model, state, points)

    network = load_weights(tmp_path / "own.safetensors").fold()
    steps = AnchorSteps(network)
    with torch.inference_mode():
        (level,) = steps.levels
        canvas = level[1](steps.encode(steps.locate([torch.from_numpy(points)])))
        found = steps.anchor_head(canvas.features, len(boxes))
    order = scores.amax(1).argsort(descending=True, stable=True)
    assert found.scores.amax(1).diff().amax() <= 0
    # The same anchors, by place: every found box has its own among the oracle's.
    nearest = torch.cdist(found.scores.double(), scores.double()).argmin(1)
    assert len(nearest.unique()) == len(order)
    torch.testing.assert_close(found.scores, scores[nearest], rtol=0, atol=1e-4)
    torch.testing.assert_close(found.boxes[:, :6].double(), boxes[nearest][:, :6], rtol=0, atol=1e-4)
    turn = torch.remainder(found.boxes[:, 6] - boxes[nearest][:, 6] + np.pi, 2 * np.pi) - np.pi
    assert turn.abs().max() < 1e-4

    detections = Detector(network)(points)
    wanted = suppressed(flavour, boxes, scores)
    assert len(detections) == len(wanted[0]) > 5
    np.testing.assert_allclose(detections.scores, wanted[1], rtol=0, atol=1e-4)
    np.testing.assert_allclose(detections.boxes[:, :6], wanted[0][:, :6], rtol=0, atol=1e-4)
    assert detections.labels == [CLASSES[label] for label in wanted[2]]


def suppressed(
    flavour: str, boxes: torch.Tensor, scores: torch.Tensor
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the program reports: OpenPCDet of all classes together, the others of each on its own."""
    if flavour == "openpcdet":
        best, labels = scores.max(1)
        rows = (best >= 0.1).nonzero()[:, 0]
        kept = rows[rotated_nms_exact(boxes[rows], best[rows], 0.01, max_output=500)]
        return boxes[kept].numpy(), best[kept].numpy(), labels[kept].numpy()
    chosen = scores.amax(1).topk(100).indices
    found = []
    for label in range(3):
        rows = chosen[scores[chosen, label] > 0.1]
        kept = rows[rotated_nms_exact(boxes[rows], scores[rows, label], 0.01)]
        found += [(boxes[row].numpy(), float(scores[row, label]), label) for row in kept]
    found = sorted(found, key=lambda entry: -entry[1])[:50]
    return tuple(np.array(part) for part in zip(*found, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize("points", [np.zeros((0, 4), np.float32), np.full((4, 4), np.nan, np.float32)])
def test_nothing_gives_nothing(tmp_path: Path, points: np.ndarray) -> None:
    *_, weights, config = checkpoint(tmp_path, "openpcdet")
    assert len(Detector(convert_weights(weights, config)[0])(points)) == 0


@pytest.mark.parametrize("flavour", ["openpcdet", "mmdetection3d"])
def test_a_limit_of_anchors_is_reported(tmp_path: Path, flavour: str) -> None:
    """One class per anchor in OpenPCDet, several in the others."""
    *_, weights, config = checkpoint(tmp_path, flavour)
    detector = Detector(convert_weights(weights, config)[0])
    with pytest.warns(ScanWarning, match=r"limit of .* peaks \(head.top_k\)"):
        few = detector.with_limits(0.05)(cloud(3))
    assert "head.top_k" in few.limits_reached
    assert detector.with_limits(1000)(cloud(3)).limits_reached == ()
    assert detector.with_limits(0.05)(np.zeros((0, 4), np.float32)).limits_reached == ()


def test_another_range_and_a_batch(tmp_path: Path) -> None:
    """Anchors follow the range: away from its edges a smaller one sees the same."""
    *_, weights, config = checkpoint(tmp_path, "mmdetection3d")
    detector = Detector(convert_weights(weights, config)[0])
    wide, near = (0.0, -5.12, -3.0, 20.48, 5.12, 1.0), (0.0, -5.12, -3.0, 10.24, 5.12, 1.0)
    elsewhere = detector.with_range(wide)
    steps, wider = AnchorSteps(detector.network), AnchorSteps(elsewhere.network)
    # Rows of the wider map are twice as long; the third cell of the second row is the same place.
    assert steps.anchor_head.anchors(torch.tensor([6 * (16 + 2)])).allclose(
        wider.anchor_head.anchors(torch.tensor([6 * (32 + 2)]))
    )
    points = [cloud(1), cloud(2)[:40], np.zeros((0, 4), np.float32)]
    alone = [detector.with_range(near)(part) for part in points]
    for one, other in zip(detector.detect_batch(points), alone, strict=True):
        np.testing.assert_array_equal(one.boxes, other.boxes)


def test_what_kitti_models_of_the_programs_are() -> None:
    """Without a configuration: as published, told by the names of tensors."""
    for name, classes in (("vfe", "Car"), ("voxel_encoder", "Pedestrian")):
        program = next(known for known in foreign._PROGRAMS if known.encoder[0].startswith(name))
        network = AnchorNetwork(program.config(None, {}))
        assert network.config.head.classes[0] == classes
        assert network.get_submodule("head").scores.weight.shape == (18, 384, 1, 1)


def test_a_pickle_that_would_execute_is_refused(tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    class Harmful:
        """Writes a file when it is read."""

        def __reduce__(self) -> Any:
            return (Path.touch, (ran,))

    torch.save({"model_state": {"vfe": Harmful()}}, tmp_path / "harmful.pth")
    with pytest.raises(CheckpointError, match=r"would run code.*save the tensors only") as told:
        convert_weights(tmp_path / "harmful.pth")
    # Torch's advice to execute it is not passed on.
    assert "weights_only" not in str(told.value)
    assert not ran.exists()


def test_errors_say_what_is_wrong(tmp_path: Path) -> None:
    _, state, weights, config = checkpoint(tmp_path, "openpcdet")
    values = yaml.safe_load(config.read_text())
    values["MODEL"]["DENSE_HEAD"]["NAME"] = "AnchorHeadMulti"
    config.write_text(yaml.safe_dump(values))
    with pytest.raises(ConfigError, match=r"DENSE_HEAD\.NAME must be 'AnchorHeadSingle'"):
        convert_weights(weights, config)
    with pytest.raises(CheckpointError, match="another configuration"):
        convert_weights(weights)
    config.write_text("MODEL: {}\n")
    with pytest.raises(ConfigError, match="DATA_CONFIG"):
        convert_weights(weights, config)
    torch.save({"a.weight": torch.zeros(1)}, weights)
    with pytest.raises(CheckpointError, match=r"its first tensors are a\.weight"):
        convert_weights(weights)
    torch.save({"state_dict": state, "meta": {"mmdet3d_version": "0.17.1"}}, weights)
    with pytest.raises(CheckpointError, match=r"0\.17\.1"):
        convert_weights(weights)
    weights.write_bytes(b"no checkpoint")
    with pytest.raises(CheckpointError, match=r"[Cc]opy it again, or pass the \.pth file"):
        convert_weights(weights)
    missing = tmp_path / "missing.pth"
    with pytest.raises(
        CheckpointError, match=r"missing\.pth: no such checkpoint; check the path: expected a"
    ):
        convert_weights(missing)
    with pytest.raises(CheckpointError, match=rf"a folder, not a checkpoint: .* such as {weights}$"):
        convert_weights(tmp_path)


def test_heads_that_are_not_those_of_the_tensors(tmp_path: Path) -> None:
    """CenterPoint of mmdetection3d is refused by name; OpenPCDet's has its own file of tests."""
    _, state, weights, config = checkpoint(tmp_path, "openpcdet")
    name = "pts_bbox_head.task_heads.0.heatmap.1.weight"
    torch.save({"state_dict": {**state, name: torch.zeros(1, 8, 3, 3)}}, weights)
    with pytest.raises(CheckpointError, match=r"a CenterPoint of mmdetection3d.*Only OpenPCDet's"):
        convert_weights(weights)
    # As in OpenPCDet's own files, which have no anchors at all.
    values = yaml.safe_load(config.read_text())
    values["MODEL"]["DENSE_HEAD"] = {"NAME": "CenterHead", "SHARED_CONV_CHANNEL": 64}
    config.write_text(yaml.safe_dump(values))
    torch.save({"model_state": state}, weights)
    with pytest.raises(ConfigError, match=r"DENSE_HEAD\.NAME must be 'AnchorHeadSingle', got 'CenterHead'"):
        convert_weights(weights, config)


def test_a_layer_too_many(tmp_path: Path) -> None:
    _, state, weights, config = checkpoint(tmp_path, "mmdetection3d")
    state["neck.extra.weight"] = torch.zeros(3, 3)
    torch.save({"state_dict": state}, weights)
    with pytest.raises(CheckpointError, match=r"neck\.extra\.weight"):
        convert_weights(weights, config)


def test_strides_must_meet() -> None:
    with pytest.raises(ConfigError, match="one resolution"):
        AnchorConfig(up_strides=(1, 2, 2))
    with pytest.raises(ConfigError, match="needs a range"):
        AnchorNetwork(DetectorConfig(backbone=AnchorConfig()))
    with pytest.raises(ConfigError, match="equal length"):
        replace(AnchorConfig(), strides=(2, 2))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_boxes_on_a_gpu_are_those_of_a_cpu(tmp_path: Path, flavour: str) -> None:
    *_, weights, config = checkpoint(tmp_path, flavour)
    wanted = Detector(convert_weights(weights, config)[0])(cloud(3))
    with torch.backends.cudnn.flags(allow_tf32=False):
        found = Detector(convert_weights(weights, config)[0], device="cuda")(cloud(3))
    assert found.labels == wanted.labels
    np.testing.assert_allclose(found.scores, wanted.scores, rtol=0, atol=1e-4)
    np.testing.assert_allclose(found.boxes[:, :6], wanted.boxes[:, :6], rtol=0, atol=1e-3)

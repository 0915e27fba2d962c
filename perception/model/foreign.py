"""PointPillars weights of other programs as weights of this one, the same numbers in another order.

What is read: checkpoints of OpenPCDet (``pointpillar``), mmdetection3d from 1.0 on (PointPillars on KITTI)
and zhulf0804's PointPillars, told apart by the names of their tensors. They become a network of kind
``anchors`` (:mod:`perception.model.anchors`), whose layers are theirs. Checkpoints are pickles; nothing in
them is executed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from perception.config import (
    DetectorConfig,
    HeadConfig,
    NeckConfig,
    NmsConfig,
    PillarConfig,
    RefineConfig,
    load_config,
)
from perception.errors import CheckpointError, ConfigError
from perception.model.anchors import BOX_CODE, POINT_FEATURES, AnchorConfig, AnchorNetwork
from perception.model.weights import PICKLES
from sparse_core.surgery import shapes_of, state_difference

_KITTI = PillarConfig(max_pillars=40_000)
_SIZES_M: dict[str, tuple[float, ...]] = {
    "Car": (3.9, 1.6, 1.56),
    "Pedestrian": (0.8, 0.6, 1.73),
    "Cyclist": (1.76, 0.6, 1.73),
}
_BOTTOMS_M = {"Car": -1.78, "Pedestrian": -0.6, "Cyclist": -0.6}


@dataclass(frozen=True)
class _Program:
    """How a program names its tensors.

    Attributes:
        name: of the program.
        encoder, stages, ups, head: beginnings of names; ``encoder`` of the layer and of its norm.
        first: number of the first convolution within a stage.
        codes: what the convolution of box codes is called.
        config: what is computed, of the file given with ``--config`` or None, and of the state dict.
        wide_first: boxes are coded width first.
    """

    name: str
    encoder: tuple[str, str]
    stages: str
    ups: str
    head: str
    first: int
    codes: str
    config: Callable[[Path | None, Mapping[str, Tensor]], DetectorConfig]
    wide_first: bool = False


def convert_weights(path: str | Path, config: str | Path | None = None) -> tuple[AnchorNetwork, str]:
    """The network of a checkpoint.

    Args:
        path: checkpoint of ``torch.save``.
        config: OpenPCDet's YAML file of the model, by default its ``kitti_models/pointpillar.yaml``; for the
            others a configuration of kind ``anchors``, by default what they use for KITTI.

    Returns:
        A float32 network in evaluation mode, and the name of the program.

    Raises:
        CheckpointError: no checkpoint, one of another model, or one that only code could read.
        ConfigError: a configuration that asks for what is not supported; names the field.
    """
    path = Path(path)
    state = _state(path)
    program = next((known for known in _PROGRAMS if f"{known.encoder[0]}.weight" in state), None)
    if program is None:
        names = ", ".join(sorted(state)[:3]) or "none"
        raise CheckpointError(
            f"{path}: no PointPillars of {', '.join(known.name for known in _PROGRAMS)};"
            f" its tensors are {names} …"
        )
    network = AnchorNetwork(program.config(None if config is None else Path(config), state))
    renamed = _renamed(program, network, state, path)
    difference = state_difference(
        shapes_of(network.state_dict()), shapes_of(renamed), owner="the configuration"
    )
    if difference is not None:
        raise CheckpointError(f"{path}: weights of another configuration: {difference}")
    network.load_state_dict(renamed)
    return network.eval(), program.name


def _state(path: Path) -> dict[str, Tensor]:
    """Tensors by name."""
    if not path.is_file():
        what = "a folder, not a checkpoint" if path.is_dir() else "no such checkpoint; check the path"
        beside = sorted(entry.name for entry in path.glob("*.pt*")) if path.is_dir() else []
        raise CheckpointError(
            f"{path}: {what}: expected a file of torch.save (.pth or .pt)"
            + (f", such as {path / beside[0]}" if beside else "")
        )
    with path.open("rb") as file:
        begins = file.read(2)
    try:
        if begins not in PICKLES:
            raise ValueError("neither an archive nor a pickle")
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # Before and behind it torch advises to execute what is in the file.
        reason = next((line for line in str(error).split("\n") if "GLOBAL" in line), "no plain tensors")
        raise CheckpointError(
            f"{path}: only code could read it ({reason.strip().rstrip('.')}); where it was made, save its"
            " tensors alone: torch.save({'state_dict': torch.load(path)['state_dict']}, new_path)"
        ) from error
    except (RuntimeError, EOFError, KeyError, ValueError) as error:
        raise CheckpointError(
            f"{path}: no checkpoint of torch.save, or one that was cut off: copy it again, or name the .pth"
            " file that the training wrote"
        ) from error
    if isinstance(stored, Mapping):
        meta = stored.get("meta")
        version = str(meta.get("mmdet3d_version", "")) if isinstance(meta, Mapping) else ""
        if version.startswith("0."):
            raise CheckpointError(
                f"{path}: of mmdetection3d {version}, which has other axes; use weights of 1.0 or later"
            )
        for name in ("model_state", "state_dict", "model"):
            if isinstance(inner := stored.get(name), Mapping):
                stored = inner
                break
    if not isinstance(stored, Mapping):
        raise CheckpointError(f"{path}: holds a {type(stored).__name__}, no tensors by name")
    return {str(name): value.float() for name, value in stored.items() if isinstance(value, Tensor)}


def _renamed(
    program: _Program, network: AnchorNetwork, state: Mapping[str, Tensor], path: Path
) -> dict[str, Tensor]:
    """The state dict under this network's names."""
    layer, norm = program.encoder
    names = {"encoder.points.linear": layer, "encoder.points.norm": norm}
    section = network.config.backbone
    for stage, blocks in enumerate(section.blocks):
        for block in range(blocks + 1):
            place = program.first + 3 * block
            names[f"backbone.stages.{stage}.{block}.conv"] = f"{program.stages}.{stage}.{place}"
            names[f"backbone.stages.{stage}.{block}.norm"] = f"{program.stages}.{stage}.{place + 1}"
        names[f"backbone.ups.{stage}.conv"] = f"{program.ups}.{stage}.0"
        names[f"backbone.ups.{stage}.norm"] = f"{program.ups}.{stage}.1"
    names["head.scores"] = f"{program.head}.conv_cls"
    names["head.codes"] = f"{program.head}.{program.codes}"
    names["head.directions"] = f"{program.head}.conv_dir_cls"
    renamed, used = {}, set()
    for own, value in network.state_dict().items():
        module, _, kind = own.rpartition(".")
        theirs = f"{names[module]}.{kind}"
        used.add(theirs)
        if kind == "num_batches_tracked":
            renamed[own] = value
        elif theirs in state:
            renamed[own] = state[theirs]
    # What else is there and no counter of steps is a layer that would be left out.
    left = sorted(
        name for name, value in state.items() if name not in used and value.ndim and "num_batches" not in name
    )
    if left:
        raise CheckpointError(f"{path}: layers that are not supported: {', '.join(left[:3])}")
    if (weight := renamed.get("encoder.points.linear.weight")) is not None:
        renamed["encoder.points.linear.weight"] = _point_columns(weight.flatten(1), path)
    if program.wide_first:
        order = torch.tensor([0, 1, 2, 4, 3, 5, 6])
        for kind in ("weight", "bias"):
            codes = renamed[f"head.codes.{kind}"]
            by_anchor = codes.view(-1, BOX_CODE, *codes.shape[1:])
            renamed[f"head.codes.{kind}"] = by_anchor[:, order].reshape(codes.shape)
    return renamed


def _point_columns(weight: Tensor, path: Path) -> Tensor:
    """Weights (C, any) of a point's features as weights of :data:`POINT_FEATURES`."""
    width = weight.shape[1]
    if width == POINT_FEATURES:
        return weight
    columns = weight.new_zeros(len(weight), POINT_FEATURES)
    if width == POINT_FEATURES - 3:
        # Without absolute positions.
        columns[:, 3:] = weight
    elif width == POINT_FEATURES - 1:
        # In mmdetection3d offsets from the middle stand in the places of x and y, and again at the end.
        columns[:, 2:7] = weight[:, 2:7]
        columns[:, 7:9] = weight[:, :2] + weight[:, 7:]
    else:
        raise CheckpointError(f"{path}: points of {width} features; supported are 7, 9 and 10")
    return columns


def _widths(config: DetectorConfig, state: Mapping[str, Tensor], known: str) -> DetectorConfig:
    """The configuration with the classes that the head has: all three of KITTI, or the car alone."""
    section = config.backbone
    assert isinstance(section, AnchorConfig)
    if known not in state or len(state[known]) != len(section.yaws_rad):
        return config
    return replace(
        config,
        head=replace(config.head, classes=("Car",), sizes_m={"Car": _SIZES_M["Car"]}),
        backbone=replace(section, bottoms_m=(_BOTTOMS_M["Car"],)),
    )


def _kitti(name: str, classes: tuple[str, ...], top_k: int, nms: NmsConfig, **section: Any) -> DetectorConfig:
    bottoms = tuple(_BOTTOMS_M[label] for label in classes)
    return DetectorConfig(
        name=name,
        pillars=_KITTI,
        backbone=AnchorConfig(bottoms_m=bottoms, **section),
        head=HeadConfig(classes=classes, sizes_m={label: _SIZES_M[label] for label in classes}, top_k=top_k),
        nms=nms,
        neck=NeckConfig(blocks=0),
        refine=RefineConfig(enabled=False),
    )


def _aligned(name: str, **section: Any) -> Callable[[Path | None, Mapping[str, Tensor]], DetectorConfig]:
    """What mmdetection3d and its descendant compute on KITTI."""

    def make(path: Path | None, state: Mapping[str, Tensor]) -> DetectorConfig:
        if path is not None:
            return load_config(DetectorConfig, path)
        nms = NmsConfig(iou=0.01, score_threshold=0.1, max_boxes=50)
        classes = ("Pedestrian", "Cyclist", "Car")
        config = _kitti(name, classes, 100, nms, centred=True, per_class=True, **section)
        return _widths(config, state, "bbox_head.conv_cls.weight")

    return make


def _openpcdet(path: Path | None, state: Mapping[str, Tensor]) -> DetectorConfig:
    """What a model file of OpenPCDet asks for."""
    if path is None:
        nms = NmsConfig(iou=0.01, score_threshold=0.1, max_boxes=500)
        return _kitti("openpcdet-pointpillar", ("Car", "Pedestrian", "Cyclist"), 4096, nms)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        return _of_openpcdet(path, values)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: no YAML file: {error}") from error
    except (KeyError, TypeError, IndexError) as error:
        raise ConfigError(
            f"{path}: not a PointPillar of OpenPCDet: {error} is missing or of another form"
        ) from error


def _of_openpcdet(path: Path, values: Any) -> DetectorConfig:
    model, data = values["MODEL"], values["DATA_CONFIG"]
    vfe, maps, head, post = (model[part] for part in ("VFE", "BACKBONE_2D", "DENSE_HEAD", "POST_PROCESSING"))
    nms, sets = post["NMS_CONFIG"], head["ANCHOR_GENERATOR_CONFIG"]
    voxels = next(step for step in data["DATA_PROCESSOR"] if step["NAME"] == "transform_points_to_voxels")
    size_x, size_y, _ = voxels["VOXEL_SIZE"]
    supported = {
        "VFE.NAME": (vfe["NAME"], "PillarVFE"),
        "VFE.WITH_DISTANCE": (vfe["WITH_DISTANCE"], False),
        "VFE.USE_NORM": (vfe["USE_NORM"], True),
        "VFE.NUM_FILTERS": (len(vfe["NUM_FILTERS"]), 1),
        "DENSE_HEAD.NAME": (head["NAME"], "AnchorHeadSingle"),
        "DENSE_HEAD.USE_DIRECTION_CLASSIFIER": (head["USE_DIRECTION_CLASSIFIER"], True),
        "DENSE_HEAD.NUM_DIR_BINS": (head["NUM_DIR_BINS"], 2),
        "DENSE_HEAD.DIR_LIMIT_OFFSET": (float(head["DIR_LIMIT_OFFSET"]), 0.0),
        "POST_PROCESSING.NMS_CONFIG.MULTI_CLASSES_NMS": (nms["MULTI_CLASSES_NMS"], False),
        "DATA_CONFIG: pillars that are square": (size_x, size_y),
        "BACKBONE_2D.UPSAMPLE_STRIDES of whole numbers": (
            [stride for stride in maps["UPSAMPLE_STRIDES"] if stride != int(stride)],
            [],
        ),
    }
    for entry in sets:
        supported[f"anchors of {entry['class_name']}: sizes and heights"] = (
            (len(entry["anchor_sizes"]), len(entry["anchor_bottom_heights"])),
            (1, 1),
        )
        for name in ("anchor_rotations", "align_center"):
            supported[f"{name} of {entry['class_name']}"] = (entry.get(name, False), sets[0].get(name, False))
    for field, (found, wanted) in supported.items():
        if found != wanted:
            raise ConfigError(f"{path}: {field} must be {wanted!r}, got {found!r}")
    return DetectorConfig(
        name="openpcdet-pointpillar",
        pillars=PillarConfig(
            range_m=tuple(map(float, data["POINT_CLOUD_RANGE"])),  # type: ignore[arg-type]
            pillar_size_m=float(size_x),
            channels=int(vfe["NUM_FILTERS"][0]),
            max_pillars=int(voxels["MAX_NUMBER_OF_VOXELS"]["test"]),
        ),
        backbone=AnchorConfig(
            channels=tuple(maps["NUM_FILTERS"]),
            blocks=tuple(maps["LAYER_NUMS"]),
            strides=tuple(maps["LAYER_STRIDES"]),
            up_channels=tuple(maps["NUM_UPSAMPLE_FILTERS"]),
            up_strides=tuple(int(stride) for stride in maps["UPSAMPLE_STRIDES"]),
            bottoms_m=tuple(float(entry["anchor_bottom_heights"][0]) for entry in sets),
            yaws_rad=tuple(map(float, sets[0]["anchor_rotations"])),
            centred=bool(sets[0].get("align_center", False)),
            direction_offset_rad=float(head["DIR_OFFSET"]),
            points=int(voxels["MAX_POINTS_PER_VOXEL"]),
        ),
        head=HeadConfig(
            classes=tuple(values["CLASS_NAMES"]),
            sizes_m={entry["class_name"]: tuple(map(float, entry["anchor_sizes"][0])) for entry in sets},
            top_k=int(nms["NMS_PRE_MAXSIZE"]),
        ),
        nms=NmsConfig(
            iou=float(nms["NMS_THRESH"]),
            score_threshold=float(post["SCORE_THRESH"]),
            max_boxes=int(nms["NMS_POST_MAXSIZE"]),
        ),
        neck=NeckConfig(blocks=0),
        refine=RefineConfig(enabled=False),
    )


_PROGRAMS = (
    _Program(
        name="OpenPCDet",
        encoder=("vfe.pfn_layers.0.linear", "vfe.pfn_layers.0.norm"),
        stages="backbone_2d.blocks",
        ups="backbone_2d.deblocks",
        head="dense_head",
        first=1,
        codes="conv_box",
        config=_openpcdet,
    ),
    _Program(
        name="mmdetection3d",
        encoder=("voxel_encoder.pfn_layers.0.linear", "voxel_encoder.pfn_layers.0.norm"),
        stages="backbone.blocks",
        ups="neck.deblocks",
        head="bbox_head",
        first=0,
        codes="conv_reg",
        config=_aligned("mmdetection3d-pointpillars", direction_offset_rad=-torch.pi / 2),
    ),
    _Program(
        name="zhulf0804",
        encoder=("pillar_encoder.conv", "pillar_encoder.bn"),
        stages="backbone.multi_blocks",
        ups="neck.decoder_blocks",
        head="head",
        first=0,
        codes="conv_reg",
        config=_aligned("zhulf0804-pointpillars", clockwise=True, direction_offset_rad=0.0),
        wide_first=True,
    ),
)

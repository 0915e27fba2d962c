"""Import PointPillars and CenterPoint checkpoints of other programs.

Supported are OpenPCDet (``pointpillar``, ``centerpoint_pillar``), mmdetection3d from 1.0 on (PointPillars on
KITTI) and zhulf0804's PointPillars. Tensor names identify the program. The result is a network of kind
``anchors`` (:mod:`perception.model.anchors`) or ``centres`` (:mod:`perception.model.centres`) with the same
layers. Checkpoints are pickles; no code in them is executed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from perception.checkpoints.openpcdet import CENTRE_GROUPS, centre_names, centre_values, openpcdet_config
from perception.checkpoints.weights import PICKLES
from perception.config import (
    AnchorConfig,
    CanvasConfig,
    DetectorConfig,
    HeadConfig,
    NeckConfig,
    NmsConfig,
    PillarConfig,
    RefineConfig,
    load_config,
)
from perception.errors import CheckpointError, ConfigError
from perception.model.anchors import BOX_CODE
from perception.model.canvas import POINT_FEATURES, canvas_section
from perception.model.centres import CentreNetwork
from perception.model.network import Network
from perception.registry import make_network
from sparse_core.common.surgery import shapes_of, state_difference

_KITTI = PillarConfig(max_pillars=40_000)
_SIZES_M: dict[str, tuple[float, ...]] = {
    "Car": (3.9, 1.6, 1.56),
    "Pedestrian": (0.8, 0.6, 1.73),
    "Cyclist": (1.76, 0.6, 1.73),
}
#: Weight of the first point layer in OpenPCDet.
_OPENPCDET_POINTS = "vfe.pfn_layers.0.linear.weight"
_BOTTOMS_M = {"Car": -1.78, "Pedestrian": -0.6, "Cyclist": -0.6}


@dataclass(frozen=True)
class _Program:
    """Tensor names of a program.

    Attributes:
        name: name of the program.
        encoder, stages, ups, head: prefixes of names; ``encoder`` has one for the layer and one for its norm.
        first: index of the first convolution in a stage.
        codes: name of the convolution of box codes.
        config: makes the configuration from the path of ``--config`` or None, and the state dict.
        wide_first: box codes have the width before the length.
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


class ConvertedWeights(NamedTuple):
    """A converted checkpoint.

    Attributes:
        network: float32 network in evaluation mode.
        program: program that wrote the checkpoint.
        left_out: descriptions of dropped parts of the checkpoint.
    """

    network: Network
    program: str
    left_out: tuple[str, ...]


def convert_weights(path: str | Path, config: str | Path | None = None) -> ConvertedWeights:
    """Convert a checkpoint of another program.

    Args:
        path: checkpoint of ``torch.save``.
        config: for OpenPCDet the YAML file of the model; default: ``kitti_models/pointpillar.yaml``, none for
            CenterPoint. For other programs a configuration of kind ``anchors``; default: theirs for KITTI.

    Raises:
        CheckpointError: not a checkpoint, an unsupported model, or a checkpoint that needs code to load.
        ConfigError: an unsupported configuration; names the field.
    """
    path = Path(path)
    state = _state(path)
    _refuse_mmdetection3d_centres(path, state)
    program = next((known for known in _PROGRAMS if f"{known.encoder[0]}.weight" in state), None)
    if program is None:
        names = ", ".join(sorted(state)[:3]) or "none"
        raise CheckpointError(
            f"{path}: not a PointPillars of {', '.join(known.name for known in _PROGRAMS)};"
            f" its first tensors are {names}"
        )
    network = make_network(program.config(None if config is None else Path(config), state))
    state, left_out = _without_more(state, path, ages=network.config.pillars.sweeps > 1)
    renamed = _renamed(program, network, state, path)
    difference = state_difference(
        shapes_of(network.state_dict()), shapes_of(renamed), owner="the configuration"
    )
    if difference is not None:
        raise CheckpointError(f"{path}: weights of another configuration: {difference}")
    network.load_state_dict(renamed)
    return ConvertedWeights(network.eval(), program.name, left_out)


def _state(path: Path) -> dict[str, Tensor]:
    """Load the tensors of a checkpoint by name."""
    if not path.is_file():
        problem = "a folder, not a checkpoint" if path.is_dir() else "no such checkpoint; check the path"
        inside = sorted(entry.name for entry in path.glob("*.pt*")) if path.is_dir() else []
        raise CheckpointError(
            f"{path}: {problem}: expected a file of torch.save (.pth or .pt)"
            + (f", such as {path / inside[0]}" if inside else "")
        )
    with path.open("rb") as file:
        begins = file.read(2)
    try:
        if begins not in PICKLES:
            raise ValueError("neither an archive nor a pickle")
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # Quote this line only, because the rest of torch's message advises to run code of the file.
        reason = next((line for line in str(error).split("\n") if "GLOBAL" in line), "no plain tensors")
        raise CheckpointError(
            f"{path}: loading it would run code ({reason.strip().rstrip('.')}). On the machine that wrote it,"
            " save the tensors only: torch.save({'state_dict': torch.load(path)['state_dict']}, new_path)"
        ) from error
    except (RuntimeError, EOFError, KeyError, ValueError) as error:
        raise CheckpointError(
            f"{path}: not a checkpoint of torch.save, or a truncated file. Copy it again, or pass the .pth"
            " file of the training"
        ) from error
    if isinstance(stored, Mapping):
        meta = stored.get("meta")
        version = str(meta.get("mmdet3d_version", "")) if isinstance(meta, Mapping) else ""
        if version.startswith("0."):
            raise CheckpointError(
                f"{path}: mmdetection3d {version} has other axes. Use weights of version 1.0 or later."
            )
        for name in ("model_state", "state_dict", "model"):
            if isinstance(inner := stored.get(name), Mapping):
                stored = inner
                break
    if not isinstance(stored, Mapping):
        raise CheckpointError(f"{path}: expected tensors by name, got a {type(stored).__name__}")
    return {str(name): value.float() for name, value in stored.items() if isinstance(value, Tensor)}


def _refuse_mmdetection3d_centres(path: Path, state: Mapping[str, Tensor]) -> None:
    """Raise for a CenterPoint of mmdetection3d, whose other tensors match its PointPillars."""
    beginning = "pts_bbox_head.task_heads."
    if any(name.startswith(beginning) for name in state):
        raise CheckpointError(
            f"{path}: a CenterPoint of mmdetection3d ({beginning}…). Only OpenPCDet's is supported."
        )


def _without_more(
    state: Mapping[str, Tensor], path: Path, *, ages: bool
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Drop unsupported inputs; return the other tensors and descriptions of the dropped ones.

    Args:
        ages: the fifth number of a point is its age.
    """
    kept, left_out = dict(state), list[str]()
    if (weight := state.get(_OPENPCDET_POINTS)) is not None:
        if (width := weight.shape[1]) not in (7, 8, 10, 11):
            raise CheckpointError(f"{path}: unsupported {width} features per point; expected 7, 8, 10 or 11")
        # The fifth number follows the intensity, which comes first without absolute positions.
        if (further := {8: 1, 11: 4}.get(width)) is not None and not ages:
            left_out.append("the fifth number of each point (elongation, time): treated as 0")
            kept[_OPENPCDET_POINTS] = torch.cat([weight[:, :further], weight[:, further + 1 :]], dim=1)
    return kept, tuple(left_out)


def _renamed(
    program: _Program, network: Network, state: Mapping[str, Tensor], path: Path
) -> dict[str, Tensor]:
    """Rename the state dict to this network's names."""
    centres = isinstance(network, CentreNetwork)
    names = _names(program, canvas_section(network.config))
    names |= centre_names(network) if centres else _anchor_names(program)
    renamed, used = {}, set()
    for own, value in network.state_dict().items():
        module, _, kind = own.rpartition(".")
        theirs = f"{names[module]}.{kind}"
        used.add(theirs)
        if kind == "num_batches_tracked":
            renamed[own] = value
        elif theirs in state:
            renamed[own] = state[theirs]
    if centres:
        used |= centre_values(renamed, names, state)
    # All other tensors, except counters, belong to unsupported layers.
    left = sorted(
        name for name, value in state.items() if name not in used and value.ndim and "num_batches" not in name
    )
    if left:
        raise CheckpointError(f"{path}: unsupported layers: {', '.join(left[:3])}")
    if (weight := renamed.get("encoder.points.linear.weight")) is not None:
        renamed["encoder.points.linear.weight"] = _point_columns(
            weight.flatten(1), POINT_FEATURES + network.config.pillars.columns - 4, path
        )
    if program.wide_first:
        order = torch.tensor([0, 1, 2, 4, 3, 5, 6])
        for kind in ("weight", "bias"):
            codes = renamed[f"head.codes.{kind}"]
            by_anchor = codes.view(-1, BOX_CODE, *codes.shape[1:])
            renamed[f"head.codes.{kind}"] = by_anchor[:, order].reshape(codes.shape)
    return renamed


def _names(program: _Program, section: CanvasConfig) -> dict[str, str]:
    """Return the program's names of the modules up to the map."""
    layer, norm = program.encoder
    names = {"encoder.points.linear": layer, "encoder.points.norm": norm}
    for number in range(len(section.hidden_channels)):
        for part, first in (("linear", layer), ("norm", norm)):
            names[f"encoder.further.{number}.{part}"] = first.replace(".0.", f".{number + 1}.")
    for stage, blocks in enumerate(section.blocks):
        for block in range(blocks + 1):
            place = program.first + 3 * block
            names[f"backbone.stages.{stage}.{block}.conv"] = f"{program.stages}.{stage}.{place}"
            names[f"backbone.stages.{stage}.{block}.norm"] = f"{program.stages}.{stage}.{place + 1}"
        names[f"backbone.ups.{stage}.conv"] = f"{program.ups}.{stage}.0"
        names[f"backbone.ups.{stage}.norm"] = f"{program.ups}.{stage}.1"
    return names


def _anchor_names(program: _Program) -> dict[str, str]:
    return {
        "head.scores": f"{program.head}.conv_cls",
        "head.codes": f"{program.head}.{program.codes}",
        "head.directions": f"{program.head}.conv_dir_cls",
    }


def _point_columns(weight: Tensor, wanted: int, path: Path) -> Tensor:
    """Convert weights (C, any) of ``wanted`` point features to the order of :data:`POINT_FEATURES`."""
    width = weight.shape[1]
    if width == wanted:
        return weight
    columns = weight.new_zeros(len(weight), wanted)
    if width == wanted - 3:
        # Without absolute positions.
        columns[:, 3:] = weight
    elif width == POINT_FEATURES - 1 and wanted == POINT_FEATURES:
        # mmdetection3d has offsets from the pillar centre in place of x and y, and again at the end.
        columns[:, 2:7] = weight[:, 2:7]
        columns[:, 7:9] = weight[:, :2] + weight[:, 7:]
    else:
        raise CheckpointError(f"{path}: unsupported {width} features per point; expected 7, 9 or 10")
    return columns


def _widths(config: DetectorConfig, state: Mapping[str, Tensor], known: str) -> DetectorConfig:
    """Return the configuration with the classes of the head: all three of KITTI, or cars only."""
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
    """Return the KITTI configuration of mmdetection3d and of zhulf0804's PointPillars."""

    def make(path: Path | None, state: Mapping[str, Tensor]) -> DetectorConfig:
        if path is not None:
            return load_config(DetectorConfig, path)
        nms = NmsConfig(iou=0.01, score_threshold=0.1, max_boxes=50)
        classes = ("Pedestrian", "Cyclist", "Car")
        config = _kitti(name, classes, 100, nms, centred=True, per_class=True, **section)
        return _widths(config, state, "bbox_head.conv_cls.weight")

    return make


def _openpcdet(path: Path | None, state: Mapping[str, Tensor]) -> DetectorConfig:
    """Return the configuration of a model file of OpenPCDet."""
    centres = any(name.startswith(CENTRE_GROUPS) for name in state)
    if path is not None:
        return openpcdet_config(path, centres=centres)
    if centres:
        raise ConfigError(
            f"OpenPCDet's CenterPoint ({CENTRE_GROUPS}…) needs the YAML file of the model: pass --config."
        )
    nms = NmsConfig(iou=0.01, score_threshold=0.1, max_boxes=500)
    return _kitti("openpcdet-pointpillar", ("Car", "Pedestrian", "Cyclist"), 4096, nms)


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

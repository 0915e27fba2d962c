"""Convert OpenPCDet model files to configurations, and the weights of its centre head."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from perception.config import (
    AnchorConfig,
    CentreConfig,
    DetectorConfig,
    HeadConfig,
    NeckConfig,
    NmsConfig,
    PillarConfig,
    RefineConfig,
)
from perception.errors import ConfigError
from perception.model.centres import BRANCHES, VELOCITY
from perception.model.layers import NORM_EPSILON, DenseUnit
from perception.model.network import Network

#: Prefix of tensor names of the groups of a centre head.
CENTRE_GROUPS = "dense_head.heads_list."
#: OpenPCDet's names of the branches, in the order of ``CentreConfig.layers``.
_BRANCH_NAMES = dict(
    zip(("heat", *BRANCHES, *VELOCITY), ("hm", "center", "center_z", "dim", "rot", "vel"), strict=True)
)
#: Epsilon of batch norms of the centre head: torch's default, unlike in other layers.
_HEAD_EPSILON = 1e-5


def openpcdet_config(path: Path, *, centres: bool) -> DetectorConfig:
    """Convert a model file to a configuration.

    Args:
        path: YAML file.
        centres: expect a centre head, else an anchor head.

    Raises:
        ConfigError: missing file, or an unsupported value; names the field.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        return _config(path, values, centres)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the file ({error.strerror or error})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a YAML file: {error}") from error
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        kind = "CenterPoint" if centres else "PointPillar"
        raise ConfigError(
            f"{path}: not a {kind} of OpenPCDet: {error} is missing or has another type"
        ) from error


def _require(path: Path, supported: Mapping[str, tuple[Any, Any]]) -> None:
    """Raise for the first field whose value (first) differs from the supported one (second)."""
    for field, (found, wanted) in supported.items():
        if found != wanted:
            raise ConfigError(f"{path}: {field} must be {wanted!r}, got {found!r}")


def _config(path: Path, values: Any, centres: bool) -> DetectorConfig:
    model, data = values["MODEL"], values["DATA_CONFIG"]
    head = model["DENSE_HEAD"]
    # Check the head first, because other heads have other fields.
    _require(path, {"DENSE_HEAD.NAME": (head["NAME"], "CenterHead" if centres else "AnchorHeadSingle")})
    vfe, maps = model["VFE"], model["BACKBONE_2D"]
    steps = {step["NAME"]: step for step in data["DATA_PROCESSOR"]}
    voxels = steps["transform_points_to_voxels"]
    size_x, size_y, _ = voxels["VOXEL_SIZE"]
    columns = data.get("POINT_FEATURE_ENCODING", {}).get("used_feature_list", ["x", "y", "z", "intensity"])
    _require(
        path,
        {
            "MODEL.BACKBONE_3D": (model.get("BACKBONE_3D"), None),
            "MODEL.ROI_HEAD": (model.get("ROI_HEAD"), None),
            "VFE.NAME": (vfe["NAME"], "PillarVFE"),
            "VFE.WITH_DISTANCE": (vfe["WITH_DISTANCE"], False),
            "VFE.USE_NORM": (vfe["USE_NORM"], True),
            "MAP_TO_BEV.NAME": (
                model.get("MAP_TO_BEV", {}).get("NAME", "PointPillarScatter"),
                "PointPillarScatter",
            ),
            "BACKBONE_2D.NAME": (maps.get("NAME", "BaseBEVBackbone"), "BaseBEVBackbone"),
            "BACKBONE_2D.UPSAMPLE_STRIDES: their number": (
                len(maps["UPSAMPLE_STRIDES"]),
                len(maps["LAYER_NUMS"]),
            ),
            "DATA_CONFIG: pillars that are square": (size_x, size_y),
            "DATA_CONFIG.POINT_FEATURE_ENCODING.used_feature_list, its first four": (
                list(columns[:4]),
                ["x", "y", "z", "intensity"],
            ),
        },
    )
    *hidden, last = vfe["NUM_FILTERS"]
    # Fields of both kinds of detector.
    section = {
        "channels": tuple(maps["NUM_FILTERS"]),
        "blocks": tuple(maps["LAYER_NUMS"]),
        "hidden_channels": tuple(hidden),
        "strides": tuple(maps["LAYER_STRIDES"]),
        "up_channels": tuple(maps["NUM_UPSAMPLE_FILTERS"]),
        "up_strides": tuple(map(float, maps["UPSAMPLE_STRIDES"])),
        "points": int(voxels["MAX_POINTS_PER_VOXEL"]),
    }
    backbone, heads, nms = (_centres if centres else _anchors)(path, values, section)
    return DetectorConfig(
        name="openpcdet-centerpoint" if centres else "openpcdet-pointpillar",
        pillars=PillarConfig(
            range_m=tuple(map(float, data["POINT_CLOUD_RANGE"])),  # type: ignore[arg-type]
            pillar_size_m=float(size_x),
            channels=int(last),
            max_pillars=int(voxels["MAX_NUMBER_OF_VOXELS"]["test"]),
            sweeps=int(data.get("MAX_SWEEPS", 1)) if list(columns[4:]) == ["timestamp"] else 1,
        ),
        backbone=backbone,
        head=heads,
        nms=nms,
        neck=NeckConfig(blocks=0),
        refine=RefineConfig(enabled=False),
    )


def _anchors(path: Path, values: Any, section: dict[str, Any]) -> tuple[AnchorConfig, HeadConfig, NmsConfig]:
    head, post = values["MODEL"]["DENSE_HEAD"], values["MODEL"]["POST_PROCESSING"]
    nms, sets = post["NMS_CONFIG"], head["ANCHOR_GENERATOR_CONFIG"]
    supported: dict[str, tuple[Any, Any]] = {
        "DENSE_HEAD.USE_DIRECTION_CLASSIFIER": (head["USE_DIRECTION_CLASSIFIER"], True),
        "DENSE_HEAD.NUM_DIR_BINS": (head["NUM_DIR_BINS"], 2),
        "DENSE_HEAD.DIR_LIMIT_OFFSET": (float(head["DIR_LIMIT_OFFSET"]), 0.0),
        "POST_PROCESSING.NMS_CONFIG.MULTI_CLASSES_NMS": (nms["MULTI_CLASSES_NMS"], False),
    }
    for entry in sets:
        supported[f"anchors of {entry['class_name']}: sizes and heights"] = (
            (len(entry["anchor_sizes"]), len(entry["anchor_bottom_heights"])),
            (1, 1),
        )
        for name in ("anchor_rotations", "align_center"):
            supported[f"{name} of {entry['class_name']}"] = (entry.get(name, False), sets[0].get(name, False))
    _require(path, supported)
    return (
        AnchorConfig(
            bottoms_m=tuple(float(entry["anchor_bottom_heights"][0]) for entry in sets),
            yaws_rad=tuple(map(float, sets[0]["anchor_rotations"])),
            centred=bool(sets[0].get("align_center", False)),
            direction_offset_rad=float(head["DIR_OFFSET"]),
            **section,
        ),
        HeadConfig(
            classes=tuple(values["CLASS_NAMES"]),
            sizes_m={entry["class_name"]: tuple(map(float, entry["anchor_sizes"][0])) for entry in sets},
            top_k=int(nms["NMS_PRE_MAXSIZE"]),
        ),
        NmsConfig(
            iou=float(nms["NMS_THRESH"]),
            score_threshold=float(post["SCORE_THRESH"]),
            max_boxes=int(nms["NMS_POST_MAXSIZE"]),
        ),
    )


def _centres(path: Path, values: Any, section: dict[str, Any]) -> tuple[CentreConfig, HeadConfig, NmsConfig]:
    head, classes = values["MODEL"]["DENSE_HEAD"], tuple(values["CLASS_NAMES"])
    post, branches = head["POST_PROCESSING"], dict(head["SEPARATE_HEAD_CFG"]["HEAD_DICT"])
    nms, most = post["NMS_CONFIG"], int(post["MAX_OBJ_PER_SAMPLE"])
    own_branches = BRANCHES | (VELOCITY if _BRANCH_NAMES["velocity"] in branches else {})
    layers = [head["NUM_HM_CONV"], *(branches[_BRANCH_NAMES[name]]["num_conv"] for name in own_branches)]
    groups = [[name for name in group if name in classes] for group in head["CLASS_NAMES_EACH_HEAD"]]
    own = CentreConfig(
        groups=tuple(tuple(group) for group in groups),
        layers=tuple(map(int, layers)),
        centres_m=tuple(map(float, post["POST_CENTER_LIMIT_RANGE"])),
        **section,
    )
    place = "DENSE_HEAD.POST_PROCESSING.NMS_CONFIG"
    _require(
        path,
        {
            "DENSE_HEAD.CLASS_NAMES_EACH_HEAD: groups without a class": (groups.count([]), 0),
            "DENSE_HEAD.CLASS_NAMES_EACH_HEAD, in order": (
                sorted(name for group in groups for name in group),
                sorted(classes),
            ),
            "DENSE_HEAD.SEPARATE_HEAD_CFG.HEAD_DICT, its out_channels": (
                {name: branch["out_channels"] for name, branch in branches.items()},
                {_BRANCH_NAMES[name]: width for name, width in own_branches.items()},
            ),
            "DENSE_HEAD.TARGET_ASSIGNER_CONFIG.FEATURE_MAP_STRIDE": (
                head["TARGET_ASSIGNER_CONFIG"]["FEATURE_MAP_STRIDE"],
                own.map_stride,
            ),
            f"{place}.NMS_TYPE": (nms["NMS_TYPE"], "nms_gpu"),
        },
    )
    if nms["NMS_PRE_MAXSIZE"] < most:
        raise ConfigError(
            f"{path}: {place}.NMS_PRE_MAXSIZE must be at least {most}, got {nms['NMS_PRE_MAXSIZE']}"
        )
    return (
        own,
        HeadConfig(
            classes=classes,
            top_k=most,
            channels=int(head["SHARED_CONV_CHANNEL"]),
            velocity="velocity" in own_branches,
        ),
        NmsConfig(
            iou=float(nms["NMS_THRESH"]),
            score_threshold=float(post["SCORE_THRESH"]),
            max_boxes=int(nms["NMS_POST_MAXSIZE"]),
        ),
    )


def centre_names(network: Network) -> dict[str, str]:
    """Return OpenPCDet's names of the modules of a centre head, by their names here."""
    names = {"head.shared.conv": "dense_head.shared_conv.0", "head.shared.norm": "dense_head.shared_conv.1"}
    for name, module in network.named_modules():
        if not name.startswith("head.groups.") or name.count(".") != 4:
            continue
        _, _, group, branch, number = name.split(".")
        theirs = f"{CENTRE_GROUPS}{group}.{_BRANCH_NAMES[branch]}.{number}"
        if isinstance(module, DenseUnit):
            names |= {f"{name}.conv": f"{theirs}.0", f"{name}.norm": f"{theirs}.1"}
        else:
            names[name] = theirs
    return names


def centre_values(
    renamed: dict[str, Tensor], names: Mapping[str, str], state: Mapping[str, Tensor]
) -> set[str]:
    """Convert the values of a centre head in place; return the names of further tensors that were used.

    Args:
        renamed: state dict with the names here; changed.
        names: result of :func:`centre_names`.
        state: tensors by OpenPCDet's names.
    """
    used = set()
    for own in names:
        if not own.startswith("head."):
            continue
        if own.endswith(".norm") and f"{own}.weight" in renamed:
            spread = renamed[f"{own}.running_var"]
            ratio = torch.sqrt((spread + NORM_EPSILON) / (spread + _HEAD_EPSILON))
            renamed[f"{own}.weight"] = renamed[f"{own}.weight"] * ratio
            before = f"{names[own.removesuffix('norm') + 'conv']}.bias"
            if before in state:
                used.add(before)
                renamed[f"{own}.running_mean"] = renamed[f"{own}.running_mean"] - state[before]
        elif own.startswith("head.groups.") and f"{own}.bias" in renamed:
            branch = own.split(".")[3]
            if branch == "heading":
                # OpenPCDet has the cosine first.
                for kind in ("weight", "bias"):
                    renamed[f"{own}.{kind}"] = renamed[f"{own}.{kind}"].flip(0)
            elif branch == "centre":
                # OpenPCDet measures centres from the corner of the cell, this head from its centre.
                renamed[f"{own}.bias"] = renamed[f"{own}.bias"] - 0.5
    return used

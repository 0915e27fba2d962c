"""Names that others rely on."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

PUBLIC = {
    "sparse_core.conv": {
        "CoordinateTable",
        "KernelMap",
        "SparseConv2d",
        "SparseConv3d",
        "SparseTensor",
        "SubmanifoldConv2d",
        "SubmanifoldConv3d",
        "build_table",
        "sparse_convolution",
        "strided_map",
        "submanifold_map",
    },
    "sparse_core.errors": {"SparseError", "ImplementationError", "CapacityWarning"},
    "perception": {"Boxes3D", "Detections", "Detector", "PointCloud"},
    "perception.boxes": {"rotated_iou_3d", "rotated_iou_bev"},
    "perception.nms": {"rotated_nms"},
    "perception.evaluate.kitti": {"evaluate_kitti"},
    "perception.io": {"load_point_cloud"},
}


@pytest.mark.parametrize("module", PUBLIC)
def test_promised_names_exist(module: str) -> None:
    found = importlib.import_module(module)
    assert {name for name in PUBLIC[module] if not hasattr(found, name)} == set()


@pytest.mark.parametrize("module", ["sparse_core.conv", "perception"])
def test_surface_of_a_package_is_exactly_what_is_promised(module: str) -> None:
    assert set(importlib.import_module(module).__all__) == PUBLIC[module]


def test_every_all_is_complete_and_resolves(source_files: dict[str, Path]) -> None:
    listed = 0
    for name, path in source_files.items():
        if not re.search(r"^__all__", path.read_text(), flags=re.MULTILINE):
            continue
        module = importlib.import_module(name)
        listed += 1
        assert len(set(module.__all__)) == len(module.__all__), name
        assert [entry for entry in module.__all__ if not hasattr(module, entry)] == [], name
        if path.name == "__init__.py":
            defined = {
                key
                for key, value in vars(module).items()
                if not key.startswith("_")
                and (inspect.isclass(value) or inspect.isfunction(value))
                and value.__module__.partition(".")[0] == name.partition(".")[0]
            }
            assert defined - set(module.__all__) == set(), f"{name} shows names that __all__ leaves out"
    assert listed >= 4


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("perception:Detector.from_pretrained", ["name_or_path", "device"]),
        ("perception:Detector.__call__", ["self", "cloud"]),
        ("perception.nms:rotated_nms", ["boxes", "scores", "iou_threshold"]),
        ("sparse_core.conv:build_table", ["coordinates", "spatial_shape"]),
        ("sparse_core.conv:sparse_convolution", ["features", "weight", "kernel_map"]),
    ],
)
def test_positional_parameters(name: str, parameters: list[str]) -> None:
    signature = inspect.signature(pkgutil.resolve_name(name))
    kinds = signature.parameters.values()
    assert [entry.name for entry in kinds if entry.kind is entry.POSITIONAL_OR_KEYWORD] == parameters


@pytest.mark.parametrize("package", ["sparse_core", "perception"])
def test_packages_are_typed(repository: Path, package: str) -> None:
    assert (repository / package / "py.typed").is_file()

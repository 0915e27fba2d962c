"""Exported files, run by what they are for: onnxruntime without torch, torch.export, and C++."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.cpp_extension import include_paths

from perception import Detector
from perception.config import DetectorConfig, NmsConfig
from perception.export import export_network
from perception.model.network import Network
from perception.train.data.frames import TrainingFrame
from perception.types import Detections

pytestmark = pytest.mark.usefixtures("one_thread")
Street = Callable[[int], TrainingFrame]

#: What a robot without torch runs.
_RUN_ONNX = """
import sys
import numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
for path in sys.argv[2:]:
    boxes, scores, labels = session.run(None, {"points": numpy.load(path)})
    numpy.savez(path.replace(".npy", ".npz"), boxes=boxes, scores=scores, labels=labels)
assert "torch" not in sys.modules
print(session.get_modelmeta().custom_metadata_map["classes"])
"""


@pytest.fixture
def network(tiny_config: DetectorConfig) -> Network:
    """Few boxes, whose suppression is unrolled; one stage of refinement."""
    torch.manual_seed(7)
    return Network(
        replace(
            tiny_config,
            head=replace(tiny_config.head, top_k=6),
            nms=NmsConfig(score_threshold=0.005),
            refine=replace(tiny_config.refine, proposals=4, iterations=1),
        )
    ).eval()


def assert_same(boxes: np.ndarray, scores: np.ndarray, wanted: Detections) -> None:
    assert len(wanted) > 0
    np.testing.assert_allclose(boxes, wanted.boxes, rtol=0, atol=1e-4)
    np.testing.assert_allclose(scores, wanted.scores, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_torch_export(network: Network, street: Street, tmp_path: Path) -> None:
    path = export_network(network, tmp_path / "frame.pt2", "torch-export")
    details = {"detector.json": ""}
    frame = torch.export.load(path, extra_files=details).module()
    assert json.loads(details["detector.json"])["name"] == "tiny"
    detector = Detector(network)
    for seed in range(2):
        points = street(seed).points[seed:]
        boxes, scores, _ = frame(torch.from_numpy(points))
        assert_same(boxes.detach().numpy(), scores.detach().numpy(), detector(points))
    assert frame(torch.zeros(0, 4))[0].shape == (0, 7)


@pytest.mark.slow
def test_onnx_without_torch(network: Network, street: Street, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    path = export_network(network, tmp_path / "frame.onnx")
    frames = [street(0).points, street(1).points[:500], np.zeros((0, 4), np.float32), street(2).points[:1]]
    files = [tmp_path / f"{number}.npy" for number in range(len(frames))]
    for file, points in zip(files, frames, strict=True):
        np.save(file, points)
    printed = subprocess.run(
        [sys.executable, "-c", _RUN_ONNX, path, *files], check=True, capture_output=True, text=True
    ).stdout
    assert json.loads(printed) == ["Car", "Pedestrian"]
    detector = Detector(network)
    for file, points in zip(files[:2], frames, strict=False):
        found = np.load(file.with_suffix(".npz"))
        wanted = detector(points)
        assert_same(found["boxes"], found["scores"], wanted)
        assert [network.config.head.classes[label] for label in found["labels"]] == wanted.labels
    assert np.load(files[2].with_suffix(".npz"))["boxes"].shape == (0, 7)


def test_onnx_says_what_to_install(network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"sparsight\[onnx\]"):
        export_network(network, tmp_path / "frame.onnx")


def test_no_such_format(network: Network, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one of onnx"):
        export_network(network, tmp_path / "frame", "tflite")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_compiled_for_cpp(network: Network, street: Street, tmp_path: Path) -> None:
    package = export_network(network, tmp_path / "frame.pt2", "aoti")
    scans = [tmp_path / f"{seed}.bin" for seed in range(3)]
    clouds = [street(0).points, street(1).points[:300], np.zeros((0, 4), np.float32)]
    for scan, points in zip(scans, clouds, strict=True):
        points.tofile(scan)
    printed = subprocess.run(
        [_build(tmp_path / "detect"), package, *scans], check=True, capture_output=True, text=True
    ).stdout
    lines = [line.split() for line in printed.splitlines()]
    detector = Detector(network)
    for scan, points in zip(scans[:2], clouds, strict=False):
        own = np.array([[float(part) for part in line[1:]] for line in lines if line[0] == str(scan)])
        assert_same(own[:, 2:], own[:, 1], detector(points))
    assert len(lines) == sum(line[0] != str(scans[2]) for line in lines)


def _build(program: Path) -> Path:
    """The example, by the compiler alone."""
    source = Path(__file__).parents[3] / "demos" / "robot" / "detect.cpp"
    libraries = Path(torch.__file__).parent / "lib"
    flags = [f"-I{path}" for path in include_paths()]
    flags += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", "-std=c++20", "-O0"]
    flags += [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-ltorch", "-ltorch_cpu", "-lc10"]
    subprocess.run(["g++", source, "-o", program, *flags], check=True)
    return program

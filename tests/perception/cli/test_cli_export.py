"""``perceive export``: what it writes and says, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from perception.checkpoints.weights import save_weights
from perception.cli import main
from perception.model.network import Network


@pytest.fixture
def weights(tiny_network: Network, tmp_path: Path) -> Path:
    path = tmp_path / "tiny.safetensors"
    save_weights(tiny_network, path)
    return path


def test_backbone_in_another_range(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(weights), "--format", "onnx-spconv", "--range=0,-4,-3,8,4,1"]) == 0
    assert "tiny.onnx" in capsys.readouterr().out
    coarse = onnx.load(tmp_path / "tiny.onnx").graph.output[1]
    assert [side.dim_value for side in coarse.type.tensor_type.shape.dim] == [1, 16, 4, 4]


def test_without_a_range(weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "frame.pt2")
    assert main(["export", str(weights), "--format", "torch-export", "--out", out, "--range", "none"]) == 2
    assert "six numbers" in capsys.readouterr().err

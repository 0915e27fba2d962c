"""``SparseConvolution`` nodes, computed one by one as their attributes say, on a masked dense grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from perception.errors import ConfigError
from perception.export import export_network
from perception.model.network import Network
from sparse_core.conv import SparseTensor

pytestmark = pytest.mark.usefixtures("one_thread")


def run_nodes(model: Any, canvas: Tensor, active: Tensor) -> dict[str, Tensor]:
    """Outputs by name: features (1, C, X, Y, Z) on a grid and the mask of its active cells, node by node."""
    from onnx import helper, numpy_helper

    weights = {
        entry.name: torch.tensor(numpy_helper.to_array(entry)).float() for entry in model.graph.initializer
    }
    grids, cells = {"0": canvas}, {"0": active}
    for node in model.graph.node:
        said = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
        source, (made,) = node.input[0], node.output
        if node.op_type == "SparseConvolution":
            assert list(grids[source].shape[2:]) == said["input_spatial_shape"]
            kernel = weights[node.input[1]].permute(0, 4, 1, 2, 3)
            where = {"stride": said["stride"], "padding": said["padding"]}
            value = F.conv3d(grids[source], kernel, weights[node.input[2]], **where)
            reached = F.conv3d(cells[source], torch.ones(1, 1, *said["kernel_size"]), **where) > 0
            cells[made] = cells[source] if said["subm"] else reached.float()
            value = torch.relu(value) if said["activation"] == b"ReLU" else value
            grids[made] = value * cells[made]
            assert list(value.shape[2:]) == said["output_spatial_shape"]
            assert cells[made].sum() <= said["output_bound"]
        elif node.op_type == "Add":
            grids[made], cells[made] = grids[source] + grids[node.input[1]], cells[source]
        elif node.op_type == "Relu":
            grids[made], cells[made] = torch.relu(grids[source]), cells[source]
        elif node.op_type == "ScatterDense":
            grids[made] = grids[source]
            assert list(grids[made].shape) == said["output_shape"]
        else:
            change = torch.permute if node.op_type == "Transpose" else torch.reshape
            grids[made] = change(grids[source], tuple(said["dims"]))
    return {entry.name: grids[entry.name] for entry in model.graph.output}


def test_nodes_compute_the_backbone(tiny_network: Network, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    path = export_network(tiny_network, tmp_path / "backbone.onnx", "onnx-spconv")
    model = onnx.load(path)
    assert {node.op_type for node in model.graph.node} == {
        "SparseConvolution", "Add", "Relu", "ScatterDense", "Transpose", "Reshape",
    }  # fmt: skip
    rows, columns = tiny_network.config.pillars.grid_shape
    generator = np.random.default_rng(0)
    chosen = np.sort(generator.choice(rows * columns, 90, replace=False))
    cells = torch.tensor([[0, cell // columns, cell % columns] for cell in chosen], dtype=torch.int32)
    features = torch.rand(90, 16)
    canvas, active = torch.zeros(1, 16, rows, columns, 1), torch.zeros(1, 1, rows, columns, 1)
    canvas[0, :, cells[:, 1].long(), cells[:, 2].long(), 0] = features.T
    active[0, 0, cells[:, 1].long(), cells[:, 2].long(), 0] = 1.0
    with torch.no_grad():
        found = run_nodes(model, canvas, active)
        wanted = tiny_network.backbone(SparseTensor(features, cells, (rows, columns), 1))
    # Weights of the file are half precision.
    torch.testing.assert_close(found["fine"], wanted.fine, rtol=0, atol=2e-3)
    torch.testing.assert_close(found["coarse"], wanted.coarse, rtol=0, atol=2e-3)
    assert wanted.coarse.abs().max() > 0.5


def test_only_sparse_networks(tiny_network: Network, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    tiny_network.backbone = torch.nn.Identity()
    with pytest.raises(ConfigError, match="sparse"):
        export_network(tiny_network, tmp_path / "backbone.onnx", "onnx-spconv")

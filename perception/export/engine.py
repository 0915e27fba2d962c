"""Export of the sparse backbone as ONNX with ``SparseConvolution`` nodes for NVIDIA's libspconv.

The engine (Lidar_AI_Solution, ``3DSparseConvolution``) is three-dimensional and uses half precision. A cell
is (row, column, 0) here, and kernels are 3 x 3 x 1. Inputs are pillar features and cells, outputs the two
maps of the neck. Encoder, neck and head are not included.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from perception.errors import ConfigError
from perception.model.backbone import SparseBackbone
from perception.model.layers import SparseBlock, SparseUnit
from perception.model.network import Network
from sparse_core.common.files import write_file

#: Opset of the engine's own exporter.
_OPSET = 11


class _Graph:
    """Nodes and weights of the ONNX graph."""

    def __init__(self) -> None:
        from onnx import helper

        self.helper = helper
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.tensors = 1

    def _named(self) -> str:
        self.tensors += 1
        return str(self.tensors - 1)

    def _stored(self, value: Tensor, name: str) -> str:
        halves = value.detach().half().contiguous().numpy()
        kind = self.helper.np_dtype_to_tensor_dtype(halves.dtype)
        self.weights.append(self.helper.make_tensor(name, kind, halves.shape, halves.tobytes(), raw=True))
        return name

    def convolution(
        self,
        source: str,
        unit: SparseUnit,
        rulebook: str,
        *,
        shape: tuple[int, int],
        stride: int = 1,
        relu: bool | None = None,
    ) -> str:
        """Add a unit on a grid of this shape; ``relu`` overrides the unit's. Return the output's name."""
        relu = unit.relu if relu is None else relu
        name, made = f"conv{sum(node.op_type == 'SparseConvolution' for node in self.nodes)}", self._named()
        weight = unit.conv.weight.detach()[:, :, :, None]
        size = (weight.shape[1], weight.shape[2], 1)
        if size == (1, 1, 1):
            # The engine is reported to compute 1x1x1 kernels wrongly, so pad the kernel with zeros.
            weight, size = torch.nn.functional.pad(weight, (0, 0, 1, 1)), (1, 1, 3)
        assert unit.conv.bias is not None
        rows, columns = ((side + stride - 1) // stride for side in shape)
        channels, inputs = len(weight), weight.shape[-1]
        stored = [self._stored(weight, f"sp{name}.weight"), self._stored(unit.conv.bias, f"sp{name}.bias")]
        self.nodes.append(
            self.helper.make_node(
                "SparseConvolution",
                [source, *stored],
                [made],
                name,
                ndim=3,
                input_spatial_shape=[*shape, 1],
                output_spatial_shape=[rows, columns, 1],
                in_channels=inputs,
                out_channels=channels,
                kernel_size=size,
                # The grid has no more cells.
                output_bound=rows * columns,
                stride=[stride, stride, 1],
                dilation=[1, 1, 1],
                padding=[part // 2 for part in size],
                transposed=0,
                inverse=0,
                output_padding=[0, 0, 0],
                groups=1,
                subm=int(stride == 1),
                rulebook=rulebook,
                activation="ReLU" if relu else "None",
                input_shape=[1, inputs],
                output_shape=[1, channels],
            )
        )  # fmt: skip
        return made

    def block(self, source: str, block: SparseBlock, rulebook: str, *, shape: tuple[int, int]) -> str:
        """Add a residual block; the second ReLU follows the sum."""
        hidden = self.convolution(source, block.first, rulebook, shape=shape)
        second = self.convolution(hidden, block.second, rulebook, shape=shape, relu=False)
        number = sum(node.op_type == "Add" for node in self.nodes)
        added, made = self._named(), self._named()
        self.nodes.append(self.helper.make_node("Add", [second, source], [added], f"add{number}"))
        self.nodes.append(self.helper.make_node("Relu", [added], [made], f"relu{number}"))
        return made

    def map(self, source: str, name: str, channels: int, *, shape: tuple[int, int]) -> Any:
        """Add a dense output map (1, channels, rows, columns)."""
        rows, columns = shape
        dense, turned = self._named(), self._named()
        number = sum(node.op_type == "ScatterDense" for node in self.nodes)
        make = self.helper.make_node
        self.nodes += [
            make("ScatterDense", [source], [dense], f"scatter{number}", input_spatial_shape=[*shape, 1],
                 format="xyz", output_shape=[1, channels, rows, columns, 1]),
            make("Transpose", [dense], [turned], f"transpose{number}", dims=[0, 1, 4, 2, 3]),
            make("Reshape", [turned], [name], f"reshape{number}", dims=[1, channels, rows, columns]),
        ]  # fmt: skip
        return self.helper.make_tensor_value_info(name, 10, [1, channels, rows, columns])


def export_engine(network: Network, path: Path) -> None:
    """Write the backbone of a folded sparse network; outputs are ``fine`` and ``coarse``."""
    backbone, config = network.backbone, network.config
    if not isinstance(backbone, SparseBackbone) or not config.backbone.dilating:
        raise ConfigError(
            "this format needs backbone.kind: sparse and dilating strided layers (backbone.dilating: true)"
        )
    shape = config.pillars.grid_shape
    graph = _Graph()
    features = "0"
    for level, stage in enumerate(backbone.stages):
        assert isinstance(stage, nn.Sequential)
        for place, layer in enumerate(stage):
            if isinstance(layer, SparseBlock):
                features = graph.block(features, layer, f"subm{level}", shape=shape)
            else:
                assert isinstance(layer, SparseUnit)
                strides = level > 0 and place == 0
                rulebook = f"down{level}" if strides else f"subm{level}"
                features = graph.convolution(
                    features, layer, rulebook, shape=shape, stride=2 if strides else 1
                )
                shape = _halved(shape) if strides else shape
    fine = graph.convolution(features, backbone.lateral, "lateral", shape=shape)
    coarse = graph.convolution(features, backbone.down, "down", shape=shape, stride=2)
    helper = graph.helper
    outputs = [
        graph.map(fine, "fine", config.neck.out_channels, shape=shape),
        graph.map(coarse, "coarse", config.neck.channels, shape=_halved(shape)),
    ]
    pillars = helper.make_tensor_value_info("0", 10, ["pillars", config.pillars.channels])
    made = helper.make_graph(graph.nodes, "backbone", [pillars], outputs, graph.weights)
    model = helper.make_model(made, opset_imports=[helper.make_operatorsetid("ai.onnx", _OPSET)])
    write_file(path, model.SerializeToString())


def _halved(shape: tuple[int, int]) -> tuple[int, int]:
    return (shape[0] + 1) // 2, (shape[1] + 1) // 2

"""Whole frames in one CUDA graph each: the sparse detector, and its dense twin tuned as well as we can."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.variants import StaticMaps
from perception.backbone import DenseBackbone
from perception.config import DetectorConfig
from perception.detector import Detector
from perception.fast.frame import FrameRunner, Room
from perception.fast.head import fixed_heat
from perception.fast.network import FastNetwork
from perception.network import Network
from perception.types import Detections
from sparse_core.conv.grid import FixedGrid, padded_width, pyramid
from sparse_core.dispatch import module_available

SPARSE, DENSE = "sparse", "dense twin"
#: Sides by package.
LIBRARIES = {"spconv": "spconv, layer by layer", "spconv_triton": "spconv-triton, layer by layer"}


class DenseFrames(FastNetwork):
    """The dense twin with the same pillars, head, refinement and suppression; its maps are compiled.

    Args:
        network: folded, with a dense backbone.
        sparse: folded sparse twin of the same sizes, whose other parts are packed and then replaced.
        batch_size, capacities, dtype: see :class:`FastNetwork`.
    """

    def __init__(
        self,
        network: Network,
        sparse: Network,
        *,
        batch_size: int,
        capacities: tuple[int, ...],
        dtype: torch.dtype,
    ) -> None:
        assert isinstance(network.backbone, DenseBackbone)
        # Head, encoder and refinement are the dense network's own.
        parts = {name: getattr(sparse, name) for name in ("encoder", "neck", "head", "refinements")}
        for name in parts:
            setattr(sparse, name, getattr(network, name))
        try:
            super().__init__(sparse, batch_size=batch_size, capacities=capacities, dtype=dtype)
        finally:
            for name, part in parts.items():
                setattr(sparse, name, part)
        maps = StaticMaps(network.backbone, network.neck).to(dtype)
        maps = maps.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.maps = torch.compile(self._dense_maps(maps), dynamic=False, fullgraph=True)

    def _dense_maps(self, maps: StaticMaps) -> Callable[[Tensor, Tensor], Tensor]:
        rows, columns = self.config.pillars.grid_shape
        line = padded_width(columns)
        batch = self.batch_size

        def run(features: Tensor, cells: Tensor) -> Tensor:
            # Cells without a row go to a place behind the canvas.
            inside = torch.where(cells < 0, batch * rows * columns, cells // line * columns + cells % line)
            canvas = features.new_zeros(batch * rows * columns + 1, features.shape[1])
            canvas = canvas.index_put((inside,), features)
            image = canvas[:-1].view(batch, rows, columns, -1).permute(0, 3, 1, 2)
            found: Tensor = maps(image)
            return found.permute(0, 2, 3, 1).reshape(-1, found.shape[1])

        return run

    def _tables(self, values: dict[str, object], grids: list[FixedGrid]) -> None:
        """No tables: nothing is looked up."""

    def _grids(self, bits: Tensor) -> list[FixedGrid]:
        shape = self.config.pillars.grid_shape
        return pyramid(bits, shape, self.batch_size, self.capacities[:1], [], impl=self.impl)

    def settle(self, active: Sequence[int]) -> None:
        """Nothing to choose: the maps are compiled."""

    def _level(self, level: int) -> Callable[..., None]:
        return lambda state: None

    def _neck(self, state: object) -> None:
        values = state.values  # type: ignore[attr-defined]
        values["map"] = self.maps(values["level -1"], values["grids"][0].cells)
        values["heat"] = fixed_heat(values["map"], self.heat, spatial_shape=self.fine_shape, impl=self.impl)


class DenseRunner(FrameRunner):
    """Frames of the dense twin.

    Args:
        network: folded, dense.
        sparse: its folded sparse twin.
        dtype: of the features.
    """

    def __init__(self, network: Network, sparse: Network, *, dtype: torch.dtype) -> None:
        super().__init__(sparse, dtype=dtype, config=_sparse(network.config))
        self.dense = network

    def _build(self, room: Room) -> DenseFrames:
        return DenseFrames(
            self.dense,
            self.network,
            batch_size=room.batch_size,
            capacities=room.capacities * len(self.config.backbone.channels),
            dtype=self.dtype,
        )

    def _guess(self, batch_size: int) -> tuple[int, ...]:
        # Only pillars are active cells here.
        return super()._guess(batch_size)[:1]


class LibraryRunner:
    """The sparse detector, layer by layer, with spconv's layers or those of a library with its interface.

    It has the methods of a runner and of its graph that the benchmark calls.

    Args:
        network: sparse, folded, on the GPU.
        package: ``"spconv"`` or ``"spconv_triton"``.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """

    def __init__(self, network: Network, package: str) -> None:
        if not module_available(package):
            raise ModuleNotFoundError(f"{package} is not installed")
        self.package = package
        config = network.config
        vendor = replace(config, backbone=replace(config.backbone, impl="vendor"))
        built = Network(vendor).to(next(network.parameters()).device).eval().fold()
        built.load_state_dict(network.state_dict())
        self.detector = Detector(built, device=next(network.parameters()).device, fast=False)
        self.clouds: list[Tensor] = []

    def __call__(self, clouds: Sequence[Tensor]) -> list[Detections]:
        with _as_spconv(self.package):
            return self.detector.detect_batch(clouds)

    def graph_for(self, clouds: Sequence[Tensor]) -> LibraryRunner:
        """There is none: the sizes of each frame are read back to the host."""
        return self

    def load(self, clouds: Sequence[Tensor]) -> None:
        """Keep what :meth:`replay` detects in."""
        self.clouds = list(clouds)

    def replay(self) -> None:
        """Detect."""
        self(self.clouds)


@contextmanager
def _as_spconv(package: str) -> Iterator[None]:
    """Let ``import spconv`` give another package."""
    if package == "spconv":
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = ("", ".core", ".pytorch")
        modules = {f"spconv{part}": importlib.import_module(package + part) for part in parts}
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def _sparse(config: DetectorConfig) -> DetectorConfig:
    return replace(config, backbone=replace(config.backbone, kind="sparse"))

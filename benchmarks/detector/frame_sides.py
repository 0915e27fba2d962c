"""Sides of the benchmark of whole frames that are no part of the package: other libraries' layers."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from torch import Tensor

from perception.detector import Detector
from perception.model.network import Network
from perception.types import Detections
from sparse_core.libraries import module_available

#: Sides by package.
LIBRARIES = {"spconv": "spconv, layer by layer", "spconv_triton": "spconv-triton, layer by layer"}


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

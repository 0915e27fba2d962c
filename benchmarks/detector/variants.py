"""The opponents of the detector benchmark: one network, computed sparsely or densely in several ways."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from perception import Detector
from perception.checkpoints.weights import load_weights
from perception.config import DetectorConfig, TrainConfig, load_config
from perception.model.backbone import DenseBackbone
from perception.model.network import Network
from perception.registry import make_network
from perception.stages.backbone.dense import StaticMaps
from perception.types import Detections, FloatArray
from sparse_core.conv import SparseTensor
from sparse_core.kernels.op import Impl

Execution = Literal["eager", "compiled", "graph"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Variant:
    """One row of the table.

    Attributes:
        kind: sparse, or its dense baseline.
        impl: implementation of the sparse layers.
        precision: float32, or the half type named: sparse frames on a CPU have it of their own, others by
            autocast.
        execution: ``"compiled"`` runs the dense backbone and neck, whose shapes never change, through
            ``torch.compile``; ``"graph"`` puts them into a CUDA graph as well.
        ranged: the range of the case; False: none, cells are found by keys.
    """

    kind: Literal["sparse", "dense"]
    impl: Impl = "auto"
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    execution: Execution = "eager"
    ranged: bool = True

    @property
    def name(self) -> str:
        """Name in the table."""
        words: list[str] = [self.kind]
        if self.impl != "auto":
            words.append("spconv" if self.impl == "vendor" else self.impl)
        if self.execution != "eager":
            words.append("compiled" if self.execution == "compiled" else "compiled+graph")
        if self.precision != "float32":
            words.append({"bfloat16": "bf16", "float16": "fp16"}[self.precision])
        if not self.ranged:
            words.append("without range")
        return " ".join(words)

    @property
    def baseline_name(self) -> str:
        """The sparse row of the same precision, which this row is compared with."""
        return Variant("sparse", precision=self.precision).name


def variants_for(device: torch.device, *, compiled: bool) -> list[Variant]:
    """All rows for a device.

    Args:
        device: decides the half type and whether there are CUDA graphs.
        compiled: include the rows that need ``torch.compile``.
    """
    half: Literal["bfloat16", "float16"] = "float16" if device.type == "cuda" else "bfloat16"
    best: Execution = "graph" if device.type == "cuda" else "compiled"
    rows = [
        Variant("sparse"),
        Variant("sparse", impl="vendor"),
        Variant("dense"),
        Variant("sparse", precision=half),
        Variant("dense", precision=half),
    ]
    if device.type == "cuda":
        # spconv has half-precision kernels for the GPU only.
        rows.insert(4, Variant("sparse", impl="vendor", precision=half))
    if compiled:
        rows.insert(3, Variant("dense", execution=best))
        rows.append(Variant("dense", precision=half, execution=best))
    return rows


@dataclass(frozen=True)
class WeightSource:
    """Origin of the weights; they change the time of NMS and refinement, not that of layers.

    Attributes:
        sparse: shipped name or file of the sparse network; None for random weights of ``config``.
        dense: file of the dense baseline; None: random backbone, else the sparse weights.
        config: configuration to build if there is no sparse file.
        seed: of random weights.
    """

    sparse: str | None
    dense: str | None
    config: DetectorConfig
    seed: int = 0

    @classmethod
    def open(cls, sparse: str, dense: str | None, config_file: Path | None, *, seed: int = 0) -> WeightSource:
        """``sparse`` may be ``"random"``: then ``config_file``, for training, says what to build."""
        if sparse != "random":
            return cls(sparse, dense, load_weights(sparse).config, seed)
        config = load_config(TrainConfig, config_file).detector if config_file else DetectorConfig()
        return cls(None, dense, config, seed)

    def network(self, variant: Variant, config: DetectorConfig) -> Network:
        """The network of a variant on a grid of any size."""
        backbone = replace(config.backbone, kind=variant.kind, impl=variant.impl)
        built = replace(config, backbone=backbone)
        if not variant.ranged:
            built = built.with_range(None)
        torch.manual_seed(self.seed)
        if variant.kind == "sparse":
            return (
                make_network(built).eval() if self.sparse is None else load_weights(self.sparse, config=built)
            )
        if self.dense is not None:
            return load_weights(self.dense, config=built)
        network = make_network(built).eval()
        if self.sparse is not None:
            shared = load_weights(
                self.sparse, config=replace(config, backbone=replace(backbone, kind="sparse"))
            )
            kept = {
                name: value for name, value in shared.state_dict().items() if not name.startswith("backbone.")
            }
            network.load_state_dict(kept, strict=False)
        return network


class CompiledMaps(nn.Module):
    """Placeholder for the dense backbone, which includes the neck.

    Args:
        maps: the static part, in its own type.
        dtype: that type.
        graph: replay a CUDA graph of the compiled code.
    """

    def __init__(self, maps: StaticMaps, *, dtype: torch.dtype, graph: bool) -> None:
        super().__init__()
        self.dtype = dtype
        self.graph_wanted = graph
        # Freezing folds the weights into the layout that the kernels like best (CPU only).
        options: dict[str, Any] = {} if graph else {"freezing": True}
        self.run = torch.compile(maps, dynamic=False, fullgraph=True, options=options)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.graph_input: Tensor | None = None
        self.graph_output: Tensor | None = None
        #: Device memory of the graph's own pool.
        self.pool_bytes = 0

    def forward(self, pillars: SparseTensor) -> Tensor:
        """(M, C) pillar features to the map that the head reads."""
        with torch.autocast(pillars.features.device.type, enabled=False):
            features = pillars.features.to(self.dtype)
            canvas = pillars.with_features(features).to_dense(channels_last=True)
            if not self.graph_wanted:
                output = self.run(canvas)
                assert isinstance(output, Tensor)
                return output
            if self.graph is None:
                self._capture(canvas)
            assert self.graph is not None
            assert self.graph_input is not None
            assert self.graph_output is not None
            self.graph_input.copy_(canvas)
            self.graph.replay()
            return self.graph_output

    def _capture(self, canvas: Tensor) -> None:
        self.graph_input = canvas.clone(memory_format=torch.channels_last)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.run(self.graph_input)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        reserved = torch.cuda.memory_reserved()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.graph_output = self.run(self.graph_input)
        self.pool_bytes = torch.cuda.memory_reserved() - reserved
        self.graph = graph


class Runner:
    """A detector of one variant, ready to be timed.

    Args:
        variant: the row.
        source: weights.
        config: grid and stages; the source's own if left out.
        device: where to run.
    """

    def __init__(
        self,
        variant: Variant,
        source: WeightSource,
        device: torch.device,
        config: DetectorConfig | None = None,
    ) -> None:
        self.variant = variant
        self.device = device
        #: True if the detector itself takes the precision.
        self.own = device.type == "cpu" and variant.kind == "sparse" and variant.impl == "auto"
        self.detector = Detector(
            source.network(variant, config or source.config),
            device=device,
            precision=variant.precision if self.own else None,
        )
        if variant.execution != "eager":
            self._compile()

    def _compile(self) -> None:
        network = self.detector.network
        assert isinstance(network.backbone, DenseBackbone)
        dtype = _DTYPES[self.variant.precision]
        maps = StaticMaps(network.backbone, network.neck).to(dtype)
        compiled = CompiledMaps(maps, dtype=dtype, graph=self.variant.execution == "graph")
        # The modules' types are those of the detector's own parts; the composition only calls them.
        setattr(network, "backbone", compiled)  # noqa: B010
        setattr(network, "neck", nn.Identity())  # noqa: B010

    def __call__(self, points: FloatArray) -> Detections:
        """Points in host memory to detections in host memory."""
        with self._autocast():
            return self.detector(points)

    def stages(self, points: FloatArray) -> dict[str, float]:
        """Milliseconds of each stage of one frame; a GPU is synchronised between them."""
        with self._autocast():
            return self.detector.profile(points, repeats=1)

    @property
    def graph_pool_bytes(self) -> int:
        """Device memory that a CUDA graph keeps for itself; 0 without one."""
        backbone: object = self.detector.network.backbone
        return backbone.pool_bytes if isinstance(backbone, CompiledMaps) else 0

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.variant.precision == "float32" or self.own:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=_DTYPES[self.variant.precision])


class OutOfTimeError(RuntimeError):
    """A variant took too long to get ready."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise ``OutOfTimeError`` in the body after this long; only the main thread can be interrupted."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def expire(number: int, frame: FrameType | None) -> None:
        raise OutOfTimeError(f"not ready after {seconds:.0f} s")

    previous: Any = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def prepare(build: Callable[[], Runner], points: FloatArray, *, limit_s: float) -> Runner | str:
    """Build a runner and run it once, which compiles what is to be compiled.

    Returns:
        The runner, or why this variant cannot run here: a row with a note beats a benchmark that stops.
    """
    try:
        with deadline(limit_s):
            runner = build()
            runner(points)
    except (RuntimeError, ImportError, NotImplementedError, AssertionError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')[:200]}"
    return runner

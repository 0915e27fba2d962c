"""Export formats: files that detect objects without this package."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from perception.config import to_dict
from perception.export.frame import ExportSteps
from perception.model.network import Network
from sparse_core.common.files import replacing, write_file

#: Names of input and output tensors.
INPUTS, OUTPUTS = ("points",), ("boxes", "scores", "labels")
#: First ONNX opset with a maximum in scatter.
_OPSET = 18


def trace_frame(network: Network) -> torch.export.ExportedProgram:
    """Trace the whole frame of a folded network on the CPU, for any number of points.

    Input: (N, 4) float32 x, y, z (metres, LiDAR frame), intensity in [0, 1]. Output, best score first: boxes
    (M, 7) float32, scores (M,) float32, labels (M,) int64 indices of ``head.classes``.

    Raises:
        ConfigError, CheckpointError: see :class:`~perception.export.frame.ExportSteps`.
    """
    steps = ExportSteps(network).eval()
    # Use a number of points that is no size of the network, so that the tracer keeps it symbolic.
    example = torch.zeros(1009, 4, dtype=torch.float32)
    example[:, 0] = torch.linspace(*steps.grid.range_m[::3][:2], len(example), dtype=torch.float32)
    with torch.no_grad(), _silence():
        points = {0: torch.export.Dim("points", min=0)}
        return torch.export.export(steps, (example,), dynamic_shapes=(points,), strict=False)


def export_torch(network: Network, path: Path) -> None:
    """Write a ``torch.export`` program; run it by ``torch.export.load(path).module()(points)``."""
    program = trace_frame(network)
    # Save to memory first: on a full disk torch would abort the process.
    content = io.BytesIO()
    with _silence():
        torch.export.save(program, content, extra_files={"detector.json": _description(network)})
    write_file(path, content.getbuffer())


def export_onnx(network: Network, path: Path) -> None:
    """Write ONNX of opset 18 with JSON metadata ``classes`` and ``detector`` (the configuration).

    Raises:
        ImportError: onnx or onnxscript is missing.
    """
    _require("onnx", "onnxscript")
    program = trace_frame(network)
    with _silence():
        made = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=_OPSET,
            input_names=INPUTS,
            output_names=OUTPUTS,
            verbose=False,
        )
    assert made is not None
    made.model.metadata_props["classes"] = json.dumps(network.config.head.classes)
    made.model.metadata_props["detector"] = _description(network)
    with replacing(path) as temporary:
        made.save(temporary)


def export_aoti(network: Network, path: Path) -> None:
    """Compile for this machine's CPU; ``torch::inductor::AOTIModelPackageLoader`` runs the file.

    Raises:
        RuntimeError: no C++ compiler.
    """
    program = trace_frame(network)
    # Save to memory first, as in export_torch.
    content = io.BytesIO()
    with _silence():
        torch._inductor.aoti_compile_and_package(program, package_path=content)
    write_file(path, content.getbuffer())


def export_spconv(network: Network, path: Path) -> None:
    """Write the sparse backbone for NVIDIA's libspconv; see :mod:`perception.export.engine`.

    Raises:
        ImportError: onnx is missing.
    """
    _require("onnx")
    from perception.export.engine import export_engine

    export_engine(network, path)


#: Export functions by format.
FORMATS: dict[str, Callable[[Network, Path], None]] = {
    "onnx": export_onnx,
    "onnx-spconv": export_spconv,
    "torch-export": export_torch,
    "aoti": export_aoti,
}
#: File suffixes by format.
SUFFIXES = {"onnx": ".onnx", "onnx-spconv": ".onnx", "torch-export": ".pt2", "aoti": ".pt2"}


def export_network(network: Network, path: str | Path, file_format: str = "onnx") -> Path:
    """Write a network as a file that maps points to reported boxes.

    Args:
        network: network on the CPU; it is folded, so it cannot be trained further.
        path: file to write; an existing file is replaced when the new one is complete.
        file_format: one of :data:`FORMATS`.

    Raises:
        ValueError: unknown format.
        ConfigError, CheckpointError, ImportError: see the function of the format.
    """
    if file_format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}; got {file_format!r}")
    path = Path(path)
    FORMATS[file_format](network.fold(), path)
    return path


def _description(network: Network) -> str:
    return json.dumps(to_dict(network.config))


def _require(*modules: str) -> None:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"ONNX needs {' and '.join(missing)}: pip install 'sparsight[onnx]'")


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Suppress output, warnings and log messages of exporters."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)

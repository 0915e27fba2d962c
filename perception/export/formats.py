"""A detector as a file that runs without this package: points in, boxes out."""

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

#: Names of the tensors.
INPUTS, OUTPUTS = ("points",), ("boxes", "scores", "labels")
#: Of ONNX operators: the first whose scattering takes a maximum.
_OPSET = 18


def traced(network: Network) -> torch.export.ExportedProgram:
    """The frame of a folded network on the CPU, for any number of points.

    Takes (N, 4) float32 x, y, z (metres, LiDAR frame) and intensity in [0, 1]; gives boxes (M, 7) float32,
    scores (M,) float32 and labels (M,) int64, numbers of ``head.classes``, best score first.

    Raises:
        ConfigError, CheckpointError: as :class:`~perception.export.frame.ExportSteps`.
    """
    steps = ExportSteps(network).eval()
    # More than one point and other numbers than any size of the network, so that it stays one of its own.
    example = torch.zeros(1009, 4, dtype=torch.float32)
    example[:, 0] = torch.linspace(*steps.grid.range_m[::3][:2], len(example), dtype=torch.float32)
    with torch.no_grad(), _quietly():
        points = {0: torch.export.Dim("points", min=0)}
        return torch.export.export(steps, (example,), dynamic_shapes=(points,), strict=False)


def export_torch(network: Network, path: Path) -> None:
    """As a program of ``torch.export``: ``torch.export.load(path).module()(points)``."""
    program = traced(network)
    # By way of memory: on a full disk torch ends the process.
    content = io.BytesIO()
    with _quietly():
        torch.export.save(program, content, extra_files={"detector.json": _description(network)})
    write_file(path, content.getbuffer())


def export_onnx(network: Network, path: Path) -> None:
    """As ONNX of opset 18; metadata hold ``classes`` and ``detector``, the configuration, as JSON.

    Raises:
        ImportError: onnx or onnxscript is missing; says what to install.
    """
    _require("onnx", "onnxscript")
    program = traced(network)
    with _quietly():
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
    """Compiled for this machine's processor: ``torch::inductor::AOTIModelPackageLoader`` runs it.

    Raises:
        RuntimeError: there is no C++ compiler.
    """
    program = traced(network)
    # By way of memory, as in export_torch.
    content = io.BytesIO()
    with _quietly():
        torch._inductor.aoti_compile_and_package(program, package_path=content)
    write_file(path, content.getbuffer())


def export_spconv(network: Network, path: Path) -> None:
    """The sparse backbone alone, as NVIDIA's libspconv reads it; see :mod:`perception.export.engine`.

    Raises:
        ImportError: onnx is missing; says what to install.
    """
    _require("onnx")
    from perception.export.engine import export_engine

    export_engine(network, path)


#: What is written, by name.
FORMATS: dict[str, Callable[[Network, Path], None]] = {
    "onnx": export_onnx,
    "onnx-spconv": export_spconv,
    "torch-export": export_torch,
    "aoti": export_aoti,
}
#: How their files end.
SUFFIXES = {"onnx": ".onnx", "onnx-spconv": ".onnx", "torch-export": ".pt2", "aoti": ".pt2"}


def export_network(network: Network, path: str | Path, file_format: str = "onnx") -> Path:
    """Write a network's whole frame, from points to boxes with their scores as they are reported.

    Args:
        network: of random or trained weights, on the CPU; it is folded and must not be trained further.
        path: of the file; one that is there is replaced once the new one is complete.
        file_format: of :data:`FORMATS`.

    Raises:
        ValueError: no such format.
        ConfigError, CheckpointError, ImportError: as the format's own function.
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
def _quietly() -> Iterator[None]:
    """Without what exporters say of themselves."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)

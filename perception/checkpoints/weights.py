"""Weights files: half-precision or compressed safetensors, with the configuration inside."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from perception.checkpoints import hub
from perception.checkpoints.ranges import ranges_of_header, ranges_to_header
from perception.config import DetectorConfig, NmsConfig, from_dict, to_dict
from perception.errors import CheckpointError, ConfigError
from perception.model.embedding import (
    EMBEDDING_SUFFIX,
    embedding_path,
    fitting_config,
    load_embedding,
    save_embedding,
)
from perception.model.network import Network
from perception.registry import make_network
from sparse_core.common.files import replacing
from sparse_core.common.surgery import shapes_of, state_difference

WEIGHTS_DIRECTORY = Path(__file__).parent.parent / "weights"
#: Format in the header of compressed files; importing the constant would import all of compression.
COMPRESSED_FORMAT = "sparsight-compressed"
_CONFIG_KEY = "sparsight.detector"
#: First bytes of torch.save files: ZIP archives, or pickles of old versions.
PICKLES = (b"PK", b"\x80\x02")


def shipped_weights() -> list[str]:
    """Return the names of shipped weights."""
    names = (path.stem for path in WEIGHTS_DIRECTORY.glob("*.safetensors"))
    return sorted(name for name in names if not name.endswith(EMBEDDING_SUFFIX))


def resolve_weights(name_or_path: str | Path) -> Path:
    """Return the file of a shipped name, a path, or ``organisation/name`` on the Hugging Face hub.

    The hub is not asked if there is a local folder ``organisation``.

    Raises:
        CheckpointError: neither a shipped name, nor a file, nor a repository.
    """
    shipped = WEIGHTS_DIRECTORY / f"{name_or_path}.safetensors"
    if shipped.is_file():
        return shipped
    path = Path(name_or_path)
    if path.is_file():
        return path
    if path.is_dir():
        inside = sorted(entry.name for entry in path.glob("*.safetensors"))
        found = f"pass {path / inside[0]}" if inside else "it has no .safetensors file"
        raise CheckpointError(f"{path}: a folder, not a weights file; {found}")
    if hub.names_repository(str(name_or_path)) and not path.parent.is_dir():
        return hub.download(str(name_or_path))
    names = ", ".join(shipped_weights()) or "none"
    raise CheckpointError(
        f"no weights {str(name_or_path)!r}: neither a file nor shipped; shipped names are: {names}"
    )


def save_weights(network: Network, path: str | Path, *, dtype: torch.dtype = torch.float16) -> None:
    """Write a network and its configuration; replace an existing file when the new one is complete.

    Args:
        network: network that is not folded.
        path: file to write.
        dtype: dtype of floating-point tensors.

    Raises:
        ValueError: a folded network, or values beyond the dtype (NaN; in half precision above 65504).
    """
    tensors = {
        name: (value.to(dtype) if value.is_floating_point() else value).contiguous().cpu()
        for name, value in network.state_dict().items()
    }
    if not any(name.endswith("running_mean") for name in tensors):
        raise ValueError("this network is folded for inference. Save it before you make a Detector of it.")
    for name, value in tensors.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise ValueError(f"cannot save the network: {name} has values beyond {dtype}")
    with replacing(Path(path)) as temporary:
        save_file(tensors, temporary, metadata={_CONFIG_KEY: json.dumps(to_dict(network.config))})


def save_calibrated(
    name_or_path: str | Path,
    path: str | Path,
    maps: Mapping[str, Sequence[float]],
    *,
    offsets_m: Mapping[str, Sequence[float]] | None = None,
    thresholds: Mapping[str, float] | None = None,
) -> None:
    """Copy weights with calibrated scores and sizes; tensors stay equal bit for bit.

    Maps and offsets apply after existing ones. Reporting thresholds are mapped too, so that the same boxes
    are reported. An embedding head is copied as well.

    Args:
        name_or_path: shipped name or ``.safetensors`` file.
        path: new file.
        maps: by class, scale and bias for ``nms.score_maps``.
        offsets_m: by class, metres of the scans for ``nms.size_offsets_m``.
        thresholds: by class, new reporting thresholds of mapped scores.

    Raises:
        CheckpointError: unknown weights, a corrupt file, or compressed weights.
        ConfigError: an invalid map, offset or threshold.
    """
    source = resolve_weights(name_or_path)
    tensors, metadata = _contents(source)
    if metadata.get("format") == COMPRESSED_FORMAT:
        raise CheckpointError(f"{source}: compressed weights. Calibrate the uncompressed weights instead.")
    config = _stored_config(source, metadata)
    nms = _resized(_calibrated(config.nms, maps), offsets_m or {}, config.pillars.shrink)
    nms = replace(nms, report_thresholds={**nms.report_thresholds, **(thresholds or {})})
    metadata[_CONFIG_KEY] = json.dumps(to_dict(replace(config, nms=nms)))
    _write_copy(source, Path(path), tensors, metadata)


def save_quantised(name_or_path: str | Path, path: str | Path, ranges: Mapping[str, float]) -> None:
    """Copy weights with ranges for int8; tensors stay equal bit for bit, and an embedding head is copied.

    Args:
        name_or_path: shipped name or ``.safetensors`` file, also of compressed weights.
        path: new file.
        ranges: see :func:`perception.checkpoints.ranges.measure_ranges`.

    Raises:
        CheckpointError: unknown weights, or a corrupt file.
    """
    source = resolve_weights(name_or_path)
    tensors, metadata = _contents(source)
    _write_copy(source, Path(path), tensors, {**metadata, **ranges_to_header(ranges)})


def _contents(source: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return tensors and header of a file."""
    try:
        with safe_open(str(source), framework="pt") as stored:
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
            return tensors, dict(stored.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{source}: {_why_unreadable(source, error)}") from error


def _write_copy(source: Path, path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """Write tensors and header, and a copy of the source's embedding head."""
    head = load_embedding(source)
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata=metadata)
    if head is not None:
        save_embedding(head, path)


def _calibrated(nms: NmsConfig, maps: Mapping[str, Sequence[float]]) -> NmsConfig:
    joined, thresholds = dict(nms.score_maps), dict(nms.report_thresholds)
    for name, (scale, bias) in maps.items():
        before = joined.get(name, (1.0, 0.0))
        joined[name] = (scale * before[0], scale * before[1] + bias)
        if 0 < (score := thresholds.get(name, 0.0)) < 1:
            thresholds[name] = 1 / (1 + math.exp(-scale * math.log(score / (1 - score)) - bias))
    return replace(nms, score_maps=joined, report_thresholds=thresholds)


def _resized(nms: NmsConfig, offsets_m: Mapping[str, Sequence[float]], shrink: float) -> NmsConfig:
    joined = dict(nms.size_offsets_m)
    for name, added in offsets_m.items():
        before = joined.get(name, (0.0, 0.0, 0.0))
        joined[name] = tuple(old + new / shrink for old, new in zip(before, added, strict=True))
    return replace(nms, size_offsets_m=joined)


def push_to_hub(
    name_or_path: str | Path, repository: str, *, licence: str = "other", private: bool = True
) -> str:
    """Upload weights with a model card to the Hugging Face hub; see :func:`perception.checkpoints.hub.push`.

    Args:
        name_or_path: shipped name or ``.safetensors`` file.
        repository: ``organisation/name``.
        licence: licence of the weights as a hub identifier.
        private: visibility of a new repository.

    Returns:
        The address of the repository.

    Raises:
        CheckpointError, ImportError, ValueError, OSError: see :func:`load_weights` and ``hub.push``.
    """
    path = resolve_weights(name_or_path)
    network, head_path = load_weights(path), embedding_path(path)
    embedding = head_path if head_path.is_file() else None
    return hub.push(path, embedding, network.config, repository, licence=licence, private=private)


def load_weights(name_or_path: str | Path, *, config: DetectorConfig | None = None) -> Network:
    """Load a network from weights.

    Compressed weights give a folded network (:mod:`perception.checkpoints.compression`). An embedding head
    next to the file becomes part of the network.

    Args:
        name_or_path: shipped name, ``.safetensors`` file, or ``organisation/name`` on the hub.
        config: configuration to use instead of the stored one; it must fit the weights. It loads an embedding
            head only if ``embedding.enabled``.

    Returns:
        A float32 network on the CPU, in evaluation mode.

    Raises:
        CheckpointError: unknown weights, a corrupt file, or weights of another configuration.
    """
    path = resolve_weights(name_or_path)
    network = _load(path, config)
    if config is None or config.embedding.enabled:
        network.add_embedding(load_embedding(path))
    return network


def _load(path: Path, config: DetectorConfig | None) -> Network:
    """Load a network without its embedding head."""
    try:
        with safe_open(str(path), framework="pt") as stored:
            metadata = stored.metadata() or {}
            if metadata.get("format") == COMPRESSED_FORMAT:
                from perception.checkpoints.compression import load_compressed_weights

                network = load_compressed_weights(path, config=config)
                network.ranges = _ranges(path, metadata, network)
                return network
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path}: {_why_unreadable(path, error)}") from error
    if config is None:
        config = _stored_config(path, metadata)
    network = make_network(fitting_config(config, tensors))
    _check_tensors(path, network.state_dict(), tensors)
    network.load_state_dict(
        {name: value.float() if value.is_floating_point() else value for name, value in tensors.items()}
    )
    network.ranges = _ranges(path, metadata, network)
    return network.eval()


def _ranges(path: Path, metadata: dict[str, str], network: Network) -> dict[str, float] | None:
    try:
        return ranges_of_header(metadata, network)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _why_unreadable(path: Path, error: Exception) -> str:
    """Describe the problem of a file that is not readable as safetensors, and the fix."""
    with suppress(OSError), path.open("rb") as file:
        if file.read(2) in PICKLES:
            return (
                "a file of torch.save, not a weights file; perceive train writes weights.safetensors next to"
                " its checkpoint.pt"
            )
    if isinstance(error, OSError):
        return f"cannot read the file ({error.strerror or error}); check its permissions"
    return f"not a safetensors file, or a truncated one ({error})"


def _stored_config(path: Path, metadata: dict[str, str]) -> DetectorConfig:
    try:
        return from_dict(DetectorConfig, json.loads(metadata[_CONFIG_KEY]))
    except KeyError:
        raise CheckpointError(f"{path}: no detector configuration ({_CONFIG_KEY} is missing)") from None
    except (json.JSONDecodeError, ConfigError) as error:
        raise CheckpointError(f"{path}: invalid stored configuration: {error}") from error


def _check_tensors(path: Path, expected: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> None:
    difference = state_difference(shapes_of(expected), shapes_of(found), owner="the configuration")
    if difference is not None:
        raise CheckpointError(f"{path}: weights of another configuration: {difference}")
    for name in expected:
        if found[name].is_floating_point() and not bool(torch.isfinite(found[name]).all()):
            raise CheckpointError(f"{path}: damaged file: {name} has NaN or infinite values")

"""Weights on the Hugging Face hub, in a repository ``organisation/name`` (extra ``hub``).

A repository has ``model.safetensors`` with the configuration inside, ``config.json``, the model card
``README.md``, and ``model-embedding.safetensors`` if there is an embedding head. huggingface_hub reads the
server and credentials from ``HF_ENDPOINT``, ``HF_TOKEN`` and ``HF_HUB_OFFLINE``.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import tempfile
from pathlib import Path

import yaml

from perception.config import DetectorConfig, to_dict
from perception.errors import CheckpointError
from perception.scans.tensors import measured_range_m
from sparse_core.common.files import write_file

MODEL_FILE = "model.safetensors"
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
#: HTTP status codes for a repository that is missing or not accessible.
_REFUSED = (401, 403, 404)
_NOT_GIVEN = "check the name, and HF_TOKEN if the repository is private"
_UNREACHED = "check the network, or set HF_ENDPOINT to another server"
_UNREACHED_OFFLINE = "it is not in the cache, and HF_HUB_OFFLINE is set: unset it to download"
_LOCAL = f"To load local weights, pass their path, for a folder of hub files FOLDER/{MODEL_FILE}"


def names_repository(name: str) -> bool:
    """Return True for ``organisation/name`` that is not a weights file."""
    return _REPOSITORY.fullmatch(name) is not None and not name.endswith(".safetensors")


def download(repository: str) -> Path:
    """Download the weights of a repository and return their path in huggingface_hub's cache.

    Raises:
        CheckpointError: huggingface_hub is missing, the hub is unreachable, or the repository or its weights
            do not exist.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        raise CheckpointError(
            f"no file {repository!r}. To load it from the Hugging Face hub: pip install 'sparsight[hub]'"
        )
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(repository, allow_patterns=["model*.safetensors"]))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        if not isinstance(error, HfHubHTTPError):
            advice = _UNREACHED_OFFLINE if constants.HF_HUB_OFFLINE else _UNREACHED
        elif error.response.status_code in _REFUSED:
            advice = _NOT_GIVEN
        else:
            advice = "try again later"
        raise CheckpointError(
            f"no file {repository!r}, and the hub ({constants.ENDPOINT}) failed: {reason.rstrip('.')};"
            f" {advice}. {_LOCAL}"
        ) from error
    if not (folder / MODEL_FILE).is_file():
        raise CheckpointError(
            f"{repository} on the hub has no {MODEL_FILE}, so it is not a Sparsight detector"
        )
    return folder / MODEL_FILE


def push(
    path: Path,
    embedding: Path | None,
    config: DetectorConfig,
    repository: str,
    *,
    licence: str,
    private: bool,
) -> str:
    """Upload weights with a model card, and create the repository if needed.

    Args:
        path: weights file.
        embedding: file of the embedding head, or None.
        config: configuration of the weights.
        repository: ``organisation/name``.
        licence: licence of the weights as a hub identifier, such as ``apache-2.0`` or ``other``.
        private: visibility of a new repository.

    Returns:
        The address of the repository.

    Raises:
        ImportError: huggingface_hub is missing.
        ValueError: invalid repository name.
        OSError: the hub refuses the upload or is unreachable.
    """
    if not names_repository(repository):
        raise ValueError(f"repository must be organisation/name, got {repository!r}")
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ImportError("the Hugging Face hub needs huggingface_hub: pip install 'sparsight[hub]'")
    from huggingface_hub import HfApi

    api = HfApi(library_name="sparsight")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copyfile(path, folder / MODEL_FILE)
        if embedding is not None:
            shutil.copyfile(embedding, folder / f"model{embedding.name.removeprefix(path.stem)}")
        write_file(folder / "config.json", json.dumps(to_dict(config), indent=2) + "\n")
        write_file(folder / "README.md", model_card(config, repository, licence=licence))
        address = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Weights and card")
    return str(address)


def model_card(config: DetectorConfig, repository: str, *, licence: str) -> str:
    """Return a model card: YAML metadata, usage and properties, without claims about accuracy."""
    metadata = {
        "library_name": "sparsight",
        "license": licence,
        "pipeline_tag": "object-detection",
        "tags": ["lidar", "point-cloud", "3d-object-detection", config.backbone.kind],
    }
    pillars, classes = config.pillars, config.head.classes
    where = (
        "none in x and y"
        if pillars.range_m is None
        else ", ".join(
            f"{axis} {low:g} to {high:g} m"
            for axis, low, high in zip("xyz", *measured_range_m(pillars), strict=True)
        )
    )
    rows = {
        "Classes": ", ".join(classes),
        "Input": "(N, 4) float32: x forward, y left, z up (metres, LiDAR frame), intensity in [0, 1]",
        "Range": where,
        "Pillars": f"{pillars.pillar_size_m * pillars.shrink:g} m",
        "Kind": config.backbone.kind,
        "Output": "boxes x, y, z, length, width, height (metres), yaw (radians); scores; class names",
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    return f"""---
{yaml.safe_dump(metadata, sort_keys=False).strip()}
---

# {config.name}

A detector of objects in LiDAR scans.

```python
from perception import Detector

detector = Detector.from_pretrained("{repository}")
detections = detector("scan.bin")
```

    perceive detect scan.bin --weights {repository}

| | |
|---|---|
{table}
"""

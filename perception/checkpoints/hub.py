"""Weights on the Hugging Face hub: a repository ``organisation/name`` with a model card (extra ``hub``).

A repository holds ``model.safetensors``, its configuration inside, beside it ``model-embedding.safetensors``
where there is a head for vectors of boxes, ``config.json`` and ``README.md``, the card. Where the hub is and
who asks are huggingface_hub's own settings (``HF_ENDPOINT``, ``HF_TOKEN``, ``HF_HUB_OFFLINE``).
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
from sparse_core.files import write_file

MODEL_FILE = "model.safetensors"
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
#: HTTP's answers to who may not see a repository, or for one that is not there.
_REFUSED = (401, 403, 404)
_NOT_GIVEN = "check the name, and HF_TOKEN if the repository is private"
_UNREACHED = "check the network, or name another server that has it in HF_ENDPOINT"
_UNREACHED_OFFLINE = "it was not fetched before, and HF_HUB_OFFLINE forbids to ask: unset it"
_LOCAL = (
    f"Weights on this machine are named by their path: a folder of the hub's files as FOLDER/{MODEL_FILE}"
)


def names_repository(name: str) -> bool:
    """Whether a name is ``organisation/name``, and no file of weights."""
    return _REPOSITORY.fullmatch(name) is not None and not name.endswith(".safetensors")


def download(repository: str) -> Path:
    """The file of weights of a repository, in huggingface_hub's cache.

    Raises:
        CheckpointError: huggingface_hub is missing, the hub cannot be reached, there is no such repository,
            or no weights are in it; says what to do.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        raise CheckpointError(
            f"no file {repository!r}; to ask the Hugging Face hub for it: pip install 'sparsight[hub]'"
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
            f"no file {repository!r}, and none from the hub ({constants.ENDPOINT}): {reason.rstrip('.')};"
            f" {advice}. {_LOCAL}"
        ) from error
    if not (folder / MODEL_FILE).is_file():
        raise CheckpointError(f"{repository} on the hub holds no {MODEL_FILE}: no detector of this program")
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
    """Upload weights with a card; a repository that is not there is made.

    Args:
        path: file of weights.
        embedding: file of the head for vectors of boxes, or None.
        config: of the weights.
        repository: ``organisation/name``.
        licence: of the weights, as the hub names it (``apache-2.0``, ``cc-by-nc-sa-4.0``, ``other`` …).
        private: of a repository that is made.

    Returns:
        The address of the repository.

    Raises:
        ImportError: huggingface_hub is missing.
        ValueError: no name of a repository.
        OSError: the hub refuses, or cannot be reached.
    """
    if not names_repository(repository):
        raise ValueError(f"a repository is named organisation/name, got {repository!r}")
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
    """A card in the hub's format: metadata as YAML, then how it is used and what it is, in Markdown.

    It claims nothing of accuracy: nobody measured it here.
    """
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
            for axis, low, high in zip("xyz", pillars.range_m[:3], pillars.range_m[3:], strict=True)
        )
    )
    rows = {
        "Classes": ", ".join(classes),
        "Input": "(N, 4) float32: x forward, y left, z up (metres, LiDAR frame), intensity in [0, 1]",
        "Range": where,
        "Pillars": f"{pillars.pillar_size_m:g} m",
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

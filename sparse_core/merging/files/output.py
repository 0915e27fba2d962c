"""Output of a merged model: shards, their index, and companion files of its base."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from sparse_core.merging.files.models import INDEX_NAME
from sparse_core.merging.files.tensor_files import TensorKind

#: Companion files of a model's weights, copied from the base's folder.
_COMPANIONS = (
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "added_tokens.json",
    "special_tokens_map.json",
    "merges.txt",
    "tokenizer*",
    "vocab*",
    "chat_template*",
    "*.tiktoken",
)


def plan_shards(kinds: dict[str, TensorKind], place: Path, most: int) -> dict[str, list[str]]:
    """Return the tensor names of each file, wider types first, as the format's alignment requires."""
    groups: list[list[str]] = [[]]
    filled = 0
    for name, kind in kinds.items():
        if place.suffix != ".safetensors" and groups[-1] and filled + kind.nbytes > most:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += kind.nbytes
    sorted_groups = [sorted(group, key=lambda name: -kinds[name].dtype.itemsize) for group in groups]
    if place.suffix == ".safetensors":
        return {place.name: sorted_groups[0]}
    if len(groups) == 1:
        return {"model.safetensors": sorted_groups[0]}
    total = len(groups)
    return {
        f"model-{number:05d}-of-{total:05d}.safetensors": group
        for number, group in enumerate(sorted_groups, start=1)
    }


def write_index(folder: Path, shards: dict[str, list[str]], nbytes: int) -> None:
    """Write the index of shards: the file of each tensor."""
    weight_map = {name: file for file, shard in shards.items() for name in shard}
    index = {"metadata": {"total_size": nbytes}, "weight_map": weight_map}
    (folder / INDEX_NAME).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def copy_companions(source: Path, folder: Path) -> None:
    """Copy configuration and tokenizer files if the source is a folder."""
    if source.is_dir():
        for pattern in _COMPANIONS:
            for file in source.glob(pattern):
                if file.is_file():
                    shutil.copyfile(file, folder / file.name)

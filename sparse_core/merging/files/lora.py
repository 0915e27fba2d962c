"""LoRA adapters of PEFT, added to a model's weights as they are read from disk."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sparse_core.merging.files.tensor_files import TensorFileReader

_PREFIX = "base_model.model."
_PAIRS = ((".lora_A.weight", ".lora_B.weight"), (".lora_embedding_A", ".lora_embedding_B"))
#: Unsupported fields that change what an adapter computes.
_NOT_FOLLOWED = ("use_dora", "use_qalora", "lora_bias", "megatron_config", "layer_replication")


class _Pair(NamedTuple):
    """Names of both factors in the adapter's file, and the factor of their product."""

    down: str
    up: str
    scale: float
    turned: bool


class LoraAdapter:
    """Additions to, or replacements of, a model's tensors by an adapter (Hu et al. 2021).

    A weight (out, in) becomes ``weight + alpha / r · B @ A``, with ``alpha / sqrt(r)`` if the adapter's
    configuration sets ``use_rslora``.

    Args:
        folder: holds ``adapter_config.json`` and ``adapter_model.safetensors``, as PEFT writes them.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._config_file = folder / "adapter_config.json"
        weights = folder / "adapter_model.safetensors"
        for file in (self._config_file, weights):
            if not file.is_file():
                raise FileNotFoundError(f"{file}: no such file; give the adapter's folder as PEFT writes it")
        self._reader = TensorFileReader(weights)
        config = self._read_config()
        self._pairs: dict[str, _Pair] = {}
        self._whole: dict[str, str] = {}
        names = dict.fromkeys(self._reader.tensors)
        for down in [name for name in names if name.endswith((_PAIRS[0][0], _PAIRS[1][0]))]:
            ends = next(pair for pair in _PAIRS if down.endswith(pair[0]))
            module = down.removesuffix(ends[0])
            up = module + ends[1]
            if up not in names:
                raise ValueError(f"{weights}: {down} has no counterpart {up}")
            embedding = ends == _PAIRS[1]
            scale = self._scale(
                config, module.removeprefix(_PREFIX), self._reader.tensors[down].kind.shape[0]
            )
            turned = embedding or bool(config.get("fan_in_fan_out"))
            self._pairs[f"{module.removeprefix(_PREFIX)}.weight"] = _Pair(down, up, scale, turned)
            del names[down], names[up]
        for name in names:
            if ".lora_" in name or not name.startswith(_PREFIX):
                raise ValueError(f"{weights}: tensor {name!r} does not belong to a PEFT LoRA")
            self._whole[name.removeprefix(_PREFIX).replace(".modules_to_save", "")] = name

    def check(self, shapes: dict[str, tuple[int, ...]], base: str) -> None:
        """Raise ``ValueError`` unless the adapter's tensors fit the ``shapes`` of the model ``base``."""
        for name in (*self._pairs, *self._whole):
            if name not in shapes:
                raise ValueError(f"{self.path}: the LoRA changes {name!r}, which {base} does not have")
            found = self._shape(name)
            if found != shapes[name]:
                raise ValueError(
                    f"{self.path}: the LoRA gives {name!r} the shape {found}, {base} has {shapes[name]}"
                )

    def apply(self, name: str, value: Tensor) -> Tensor:
        """Return the tensor with the adapter added in float32 or better; unaffected tensors unchanged."""
        if name in self._whole:
            return self._reader.read(self._whole[name])
        if name not in self._pairs:
            return value
        pair = self._pairs[name]
        dtype = torch.promote_types(value.dtype, torch.float32)
        product = self._reader.read(pair.up).to(dtype) @ self._reader.read(pair.down).to(dtype)
        return value.to(dtype) + (product.T if pair.turned else product) * pair.scale

    def _shape(self, name: str) -> tuple[int, ...]:
        if name in self._whole:
            return self._reader.tensors[self._whole[name]].kind.shape
        pair = self._pairs[name]
        up, down = (self._reader.tensors[factor].kind.shape for factor in (pair.up, pair.down))
        if len(up) != 2 or len(down) != 2 or up[1] != down[0]:
            raise ValueError(
                f"{self.path}: the factors of {name!r} have shapes {up} and {down}, which do not multiply"
            )
        return (down[1], up[0]) if pair.turned else (up[0], down[1])

    def _read_config(self) -> dict[str, Any]:
        try:
            config = json.loads(self._config_file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{self._config_file}: not valid JSON ({error})") from error
        if not isinstance(config, dict) or config.get("peft_type") != "LORA":
            kind = config.get("peft_type") if isinstance(config, dict) else type(config).__name__
            raise ValueError(f"{self._config_file}: peft_type: expected LORA, got {kind!r}")
        for field in _NOT_FOLLOWED:
            if config.get(field):
                raise ValueError(
                    f"{self._config_file}: {field} is not supported: merge the adapter with PEFT first"
                )
        return config

    def _scale(self, config: dict[str, Any], module: str, rank: int) -> float:
        """Return the factor of a module: alpha / r, or alpha / sqrt(r)."""
        alpha = _match_pattern(config.get("alpha_pattern"), module, config.get("lora_alpha"))
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not math.isfinite(alpha):
            raise ValueError(f"{self._config_file}: lora_alpha: expected a number, got {alpha!r}")
        if rank < 1:
            raise ValueError(f"{self.path}: the LoRA of {module!r} has no rank")
        return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _match_pattern(patterns: Any, module: str, default: Any) -> Any:
    """Return the value of the first pattern that matches the end of the module's name (PEFT's rule)."""
    for key, value in (patterns or {}).items():
        if re.fullmatch(rf"(.*\.)?({key})", module):
            return value
    return default

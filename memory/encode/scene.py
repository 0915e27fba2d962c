"""Scenes as vectors, by a Transformer over the tokens around the robot."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

from memory.encode.tokens import STRUCTURE, SceneTokens
from sparse_core.attention import SparseTransformer, SparseTransformerLayer, from_distance
from sparse_core.common.files import read_tensors, replacing

KIND, VERSION = "sparsight-scene-encoder", "1"
WEIGHTS = Path(__file__).parent / "weights" / "scene-encoder.safetensors"
#: Plane waves of a position: wavelengths in metres, and number of directions over 180 degrees. Sums of waves
#: along x and y alone cannot distinguish all layouts.
_WAVES_M, _DIRECTIONS = (6.0, 10.0, 18.0, 32.0, 56.0, 100.0), 8
_WAVES = 2 * len(_WAVES_M) * _DIRECTIONS
_FEATURES = _WAVES + 15
_BLOCK = 32
#: Cell size of the curve along which tokens are sorted, in metres.
_CELL_M = 0.5
#: Maximum tokens per batch.
_TOKENS = 1 << 14


@dataclass(frozen=True)
class SceneEncoderConfig:
    """Sizes of a scene encoder.

    Attributes:
        dim: vector length.
        width: token width.
        layers, heads: of the Transformer.
        hidden: width of its feed-forward layers.
        gates: number of weightings that summarise the layout of the tokens.
        classes: labels with their own embedding; other labels share one.
        radius_m: a token attends to tokens within this distance and to the summary token, which attends
            to all, by :func:`sparse_core.attention.sparse_attention`; ``None`` for all tokens.

    Raises:
        ValueError: a size is not positive, or a class is repeated.
    """

    dim: int = 256
    width: int = 96
    layers: int = 2
    heads: int = 4
    hidden: int = 192
    gates: int = 6
    classes: tuple[str, ...] = ("Car", "Pedestrian", "Cyclist", "Van", "Truck", STRUCTURE)
    radius_m: float | None = None

    def __post_init__(self) -> None:
        for name in ("dim", "width", "layers", "heads", "hidden", "gates"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        object.__setattr__(self, "classes", tuple(self.classes))
        if len(set(self.classes)) != len(self.classes):
            raise ValueError(f"classes must differ, got {self.classes}")
        if self.radius_m is not None and not self.radius_m > 0:
            raise ValueError(f"radius_m must be positive, got {self.radius_m}")


class TokenBatch(NamedTuple):
    """Scenes of different sizes, padded at the end.

    Attributes:
        classes: (B, N) int64 rows of the embedding.
        boxes: (B, N, 7) float32.
        scores: (B, N) float32.
        lengths: (B,) int64 number of tokens of each scene.
    """

    classes: Tensor
    boxes: Tensor
    scores: Tensor
    lengths: Tensor


class SceneEncoder(nn.Module):
    """Encoder of scenes; vectors are similar for the same place.

    It is a Set Transformer without positions (Lee et al. 2019), so the order of the tokens does not matter,
    except for rounding. A learned summary token gives empty scenes a vector too.

    Args:
        config: sizes.
        seed: seed of the initial weights.
    """

    def __init__(self, config: SceneEncoderConfig | None = None, *, seed: int = 0) -> None:
        super().__init__()
        self.config = SceneEncoderConfig() if config is None else config
        self.card: dict[str, Any] = {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._build(self.config)
        # Independent of torch's default dtype.
        self.float()

    def _build(self, config: SceneEncoderConfig) -> None:
        self.kinds = nn.Embedding(len(config.classes) + 1, config.width)
        self.features = nn.Sequential(
            nn.Linear(_FEATURES, config.width), nn.GELU(), nn.Linear(config.width, config.width)
        )
        self.summary = nn.Parameter(torch.randn(config.width) * 0.02)
        layers = [
            SparseTransformerLayer(config.width, config.heads, hidden=config.hidden)
            for _ in range(config.layers)
        ]
        self.transformer = SparseTransformer(layers, norm=nn.LayerNorm(config.width))
        self.gates = nn.Linear(config.width, config.gates)
        self.layout_norm = nn.LayerNorm(config.gates * _WAVES)
        self.head = nn.Linear(2 * config.width + config.gates * _WAVES, config.dim)

    @classmethod
    def pretrained(cls, *, device: torch.device | str = "cpu") -> SceneEncoder:
        """Load the packaged encoder; ``card`` describes its training and measurements."""
        return cls.load(WEIGHTS, device=device)

    @classmethod
    def load(cls, path: str | Path, *, device: torch.device | str = "cpu") -> SceneEncoder:
        """Read a file of :meth:`save`.

        Raises:
            FileNotFoundError: the file is missing.
            ValueError: the file is damaged, of another kind or of another version.
        """
        stored = read_tensors(Path(path), kind=KIND, version=VERSION, writer="SceneEncoder.save")
        try:
            encoder = cls(SceneEncoderConfig(**json.loads(stored.header["config"])))
            encoder.load_state_dict({name: values.float() for name, values in stored.tensors.items()})
            encoder.card = json.loads(stored.header.get("card", "{}"))
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{path}: config and weights do not fit this release ({error})") from error
        return encoder.to(device).eval()

    def save(self, path: str | Path, *, card: Mapping[str, Any] | None = None) -> None:
        """Write weights in half precision and the configuration as safetensors.

        Args:
            path: output file, replaced only when complete.
            card: facts about the training as JSON; by default those loaded before.
        """
        if card is not None:
            self.card = dict(card)
        header = {
            "format": KIND,
            "version": VERSION,
            "config": json.dumps(dataclasses.asdict(self.config)),
            "card": json.dumps(self.card),
        }
        tensors = {name: value.detach().cpu().half() for name, value in self.state_dict().items()}
        with replacing(Path(path)) as temporary:
            save_file(tensors, temporary, metadata=header)

    def batch(self, scenes: Sequence[SceneTokens]) -> TokenBatch:
        """Pad scenes to one length, on the device of the weights."""
        lengths = [len(scene) for scene in scenes]
        shape = (len(scenes), max([1, *lengths]))
        classes, boxes, scores = np.zeros(shape, np.int64), np.zeros((*shape, 7), np.float32), np.zeros(shape)
        row = {name: number for number, name in enumerate(self.config.classes)}
        for k, scene in enumerate(scenes):
            classes[k, : len(scene)] = [row.get(label, len(row)) for label in scene.labels]
            boxes[k, : len(scene)] = scene.boxes
            scores[k, : len(scene)] = scene.scores
        device = self.summary.device
        return TokenBatch(
            torch.from_numpy(classes).to(device),
            torch.from_numpy(boxes).to(device),
            torch.from_numpy(scores).float().to(device),
            torch.tensor(lengths, dtype=torch.int64, device=device),
        )

    def encode(self, scenes: Sequence[SceneTokens], *, batch_size: int = 64) -> NDArray[np.float32]:
        """Encode scenes.

        Args:
            scenes: any number, of any size.
            batch_size: maximum scenes per batch; scenes of similar size form a batch.

        Returns:
            (scenes, dim) float32 unit vectors in order.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        vectors = np.zeros((len(scenes), self.config.dim), np.float32)
        order = sorted(range(len(scenes)), key=lambda k: len(scenes[k]))
        training = self.training
        self.eval()
        try:
            with torch.inference_mode():
                start = 0
                while start < len(order):
                    # The last scene is the largest.
                    end = min(start + batch_size, len(order))
                    while end - start > 1 and (end - start) * len(scenes[order[end - 1]]) > _TOKENS:
                        end -= 1
                    rows, start = order[start:end], end
                    vectors[rows] = self(self.batch([scenes[k] for k in rows])).cpu().numpy()
        finally:
            self.train(training)
        return vectors

    def forward(self, batch: TokenBatch) -> Tensor:
        """Return (B, dim) unit vectors, differentiable."""
        structure = self.config.classes.index(STRUCTURE) if STRUCTURE in self.config.classes else -1
        shown = token_features(batch.boxes, batch.scores, batch.classes != structure)
        tokens = self.features(shown) + self.kinds(batch.classes)
        summary = self.summary.expand(len(tokens), 1, -1)
        sequence, lengths = torch.cat([summary, tokens], dim=1), batch.lengths + 1
        if self.config.radius_m is None:
            states = self.transformer(sequence, lengths=lengths)
        else:
            states = self._near(sequence, batch, self.config.radius_m)
        # The padding is zero after the last norm, so it does not change the sum.
        mean = states[:, 1:].sum(dim=1) / batch.lengths.clamp(min=1)[:, None]
        layout = self._layout(states[:, 1:], shown[..., :_WAVES], batch.lengths)
        vectors: Tensor = self.head(torch.cat([states[:, 0], mean, layout], dim=1))
        return nn.functional.normalize(vectors, dim=1)

    def _layout(self, states: Tensor, waves: Tensor, lengths: Tensor) -> Tensor:
        """Return the (B, gates * waves) Fourier transform of the token places, weighted by their states."""
        exists = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
        weight = nn.functional.softplus(self.gates(states)) * exists[..., None]
        total = weight.transpose(1, 2) @ waves / weight.sum(dim=1).clamp(min=1e-6)[..., None]
        normed: Tensor = self.layout_norm(total.flatten(1))
        return normed

    def _near(self, sequence: Tensor, batch: TokenBatch, radius_m: float) -> Tensor:
        """Apply layers in which tokens attend to their neighbours; the padding is zero.

        All scenes form one sequence without padding: the summary of each, then its tokens along a curve, so
        that blocks contain neighbours.
        """
        counts = batch.lengths + 1
        scene, token = (torch.arange(sequence.shape[1], device=counts.device) < counts[:, None]).nonzero().T
        places = nn.functional.pad(batch.boxes[..., :2], (0, 0, 1, 0))[scene, token]
        order = _along_curve(places, scene, token)
        pattern = from_distance(places[order], radius=radius_m, block_size=_BLOCK, lengths=counts, count=1)
        rows = (scene * sequence.shape[1] + token)[order]
        flat = sequence.flatten(0, 1)
        packed = self.transformer(flat.index_select(0, rows)[None], pattern=pattern)[0]
        return torch.zeros_like(flat).index_copy(0, rows, packed).view_as(sequence)


def token_features(boxes: Tensor, scores: Tensor, directed: Tensor) -> Tensor:
    """Return (..., features) float32 of tokens.

    Args:
        boxes: (..., 7).
        scores: (...).
        directed: (...) bool, True if front and back differ.
    """
    x, y, z, length, width, height, yaw = boxes.unbind(dim=-1)
    range_m = torch.hypot(x, y)
    direction = torch.arange(_DIRECTIONS, dtype=torch.float32, device=boxes.device) * (math.pi / _DIRECTIONS)
    along = x[..., None] * direction.cos() + y[..., None] * direction.sin()
    waves = 2 * math.pi / torch.tensor(_WAVES_M, device=boxes.device, dtype=torch.float32)
    phase = (along[..., None] * waves).flatten(-2)
    near = range_m.clamp(min=1.0)
    sizes = [torch.log1p(side) for side in (length, width, height)]
    turns = [torch.sin(yaw) * directed, torch.cos(yaw) * directed, torch.sin(2 * yaw), torch.cos(2 * yaw)]
    rest = [x / 50, y / 50, z / 3, range_m / 50, torch.log1p(range_m) / 4, x / near, y / near, *sizes, *turns]
    return torch.cat([phase.sin(), phase.cos(), torch.stack([*rest, scores], dim=-1)], dim=-1)


def _along_curve(positions: Tensor, scene: Tensor, token: Tensor) -> Tensor:
    """Return the order by scene: the summary (token 0), then the others along a Morton curve."""
    cell = ((positions / _CELL_M).floor().long() + (1 << 15)).clamp(0, (1 << 16) - 1)
    key = torch.zeros_like(cell[:, 0])
    for bit in range(16):
        key |= ((cell[:, 0] >> bit & 1) << (2 * bit)) | ((cell[:, 1] >> bit & 1) << (2 * bit + 1))
    # The key has 30 bits for the scene, above 32 bits for the place and one for the summary.
    return torch.argsort((scene << 33) + torch.where(token > 0, key + 1, 0), stable=True)

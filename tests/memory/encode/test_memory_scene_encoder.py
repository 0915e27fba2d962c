"""The encoder of scenes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.encode import scene as encoding
from memory.encode.scene import WEIGHTS, SceneEncoder, SceneEncoderConfig
from memory.encode.tokens import SceneTokens
from sparse_core.attention import BlockPattern, from_distance

SMALL = SceneEncoderConfig(dim=32, width=32, layers=2, heads=2, hidden=48, gates=2)


def scene(count: int, seed: int = 0) -> SceneTokens:
    """Random tokens, some of a class without an embedding of its own."""
    rng = np.random.default_rng([seed, count])
    names = [*SMALL.classes, "Tram"]
    places = np.column_stack([rng.uniform(-40, 40, (count, 2)), rng.normal(0, 1, count)])
    boxes = np.column_stack([places, rng.uniform(0.5, 5, (count, 3)), rng.uniform(-3, 3, count)])
    return SceneTokens(tuple(rng.choice(names, count)), boxes, rng.random(count))


def test_vectors_are_unit_and_of_the_stated_width() -> None:
    vectors = SceneEncoder(SMALL).encode([scene(5), scene(0), scene(70)])
    assert vectors.shape == (3, 32)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-5)


def test_no_scenes() -> None:
    assert SceneEncoder(SMALL).encode([]).shape == (0, 32)


@pytest.mark.parametrize("radius_m", [None, 15.0])
@given(st.integers(1, 90), st.integers(0, 2**31))
@settings(max_examples=6)
def test_the_order_of_tokens_does_not_matter(radius_m: float | None, count: int, seed: int) -> None:
    encoder = SceneEncoder(
        SceneEncoderConfig(dim=32, width=32, layers=2, heads=2, hidden=48, radius_m=radius_m)
    )
    tokens = scene(count, seed)
    other = tokens.take(np.random.default_rng(seed).permutation(count))
    np.testing.assert_allclose(encoder.encode([tokens]), encoder.encode([other]), atol=2e-5)


@pytest.mark.parametrize("radius_m", [None, 15.0])
def test_a_scene_has_the_same_vector_alone_and_in_a_ragged_batch(radius_m: float | None) -> None:
    config = SceneEncoderConfig(dim=32, width=32, layers=2, heads=2, hidden=48, radius_m=radius_m)
    encoder = SceneEncoder(config)
    scenes = [scene(count) for count in (3, 40, 0, 17, 65)]
    together = encoder.encode(scenes)
    alone = np.concatenate([encoder.encode([one]) for one in scenes])
    np.testing.assert_allclose(together, alone, atol=2e-5)
    np.testing.assert_allclose(together, encoder.encode(scenes, batch_size=2), atol=2e-5)


def test_a_radius_that_reaches_everything_is_dense_attention() -> None:
    dense = SceneEncoder(SMALL)
    wide = SceneEncoder(SceneEncoderConfig(**{**SMALL.__dict__, "radius_m": 500.0}))
    wide.load_state_dict(dense.state_dict())
    scenes = [scene(50), scene(7)]
    np.testing.assert_allclose(dense.encode(scenes), wide.encode(scenes), atol=2e-5)
    near = SceneEncoder(SceneEncoderConfig(**{**SMALL.__dict__, "radius_m": 5.0}))
    near.load_state_dict(dense.state_dict())
    assert np.abs(near.encode(scenes) - dense.encode(scenes)).max() > 1e-4


def test_tokens_attend_to_the_radius_and_the_summary_of_their_scene(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[torch.Tensor, BlockPattern]] = []

    def watched(positions: torch.Tensor, **options: Any) -> BlockPattern:
        seen.append((positions, from_distance(positions, **options)))
        return seen[-1][1]

    monkeypatch.setattr(encoding, "from_distance", watched)
    SceneEncoder(SceneEncoderConfig(**{**SMALL.__dict__, "radius_m": 12.0})).encode([scene(75), scene(30)])
    ((positions, pattern),) = seen
    near = torch.cdist(positions.double(), positions.double()) <= 12.0
    first = torch.tensor([k in (0, 31) for k in range(107)])
    one = torch.arange(107) < 31
    expected = (near | first | first[:, None]) & (one == one[:, None])
    assert torch.equal(pattern.to_token_mask().reshape(107, 107), expected)


def test_many_tokens_are_not_encoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = SceneEncoder(SceneEncoderConfig(**{**SMALL.__dict__, "radius_m": 12.0}))
    scenes = [scene(count) for count in (20, 3, 0, 41, 20, 90)]
    together = encoder.encode(scenes)
    monkeypatch.setattr(encoding, "_TOKENS", 45)
    np.testing.assert_allclose(encoder.encode(scenes), together, atol=2e-5)


def test_gradients_reach_every_weight_and_ignore_padding() -> None:
    encoder = SceneEncoder(SMALL)
    batch = encoder.batch([scene(4), scene(9)])
    poisoned = batch._replace(boxes=batch.boxes.clone())
    poisoned.boxes[0, 4:] = 1e6
    assert torch.equal(encoder(batch), encoder(poisoned))
    encoder(batch)[:, 0].sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())


def test_the_same_seed_gives_the_same_weights_and_leaves_torch_alone() -> None:
    before = torch.get_rng_state()
    one, same, other = SceneEncoder(SMALL, seed=3), SceneEncoder(SMALL, seed=3), SceneEncoder(SMALL, seed=4)
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.head.weight, other.head.weight)


def test_a_saved_encoder_comes_back_up_to_half_precision(tmp_path: Path) -> None:
    encoder = SceneEncoder(SMALL)
    encoder.save(tmp_path / "e.safetensors", card={"steps": 3})
    loaded = SceneEncoder.load(tmp_path / "e.safetensors")
    assert loaded.config == encoder.config
    assert loaded.card == {"steps": 3}
    assert not loaded.training
    scenes = [scene(10), scene(33)]
    np.testing.assert_allclose(loaded.encode(scenes), encoder.encode(scenes), atol=5e-3)
    loaded.save(tmp_path / "again.safetensors")
    again = SceneEncoder.load(tmp_path / "again.safetensors")
    assert again.card == {"steps": 3}
    np.testing.assert_array_equal(again.encode(scenes), loaded.encode(scenes))


def test_damaged_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none"):
        SceneEncoder.load(tmp_path / "none.safetensors")
    file = tmp_path / "e.safetensors"
    SceneEncoder(SMALL).save(file)
    raw = file.read_bytes()
    file.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(ValueError, match=r"e\.safetensors"):
        SceneEncoder.load(file)
    file.write_bytes(raw.replace(b'\\"width\\": 32', b'\\"width\\": 64'))
    with pytest.raises(ValueError, match="do not fit"):
        SceneEncoder.load(file)


@pytest.mark.parametrize(
    "wrong", [{"width": 0}, {"classes": ("Car", "Car")}, {"radius_m": 0.0}, {"radius_m": float("nan")}]
)
def test_bad_sizes(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SceneEncoderConfig(**wrong)  # type: ignore[arg-type]


def test_the_shipped_encoder_is_small_and_says_what_it_reaches() -> None:
    encoder = SceneEncoder.pretrained()
    assert WEIGHTS.stat().st_size < 10_000_000
    assert sum(p.numel() for p in encoder.parameters()) < 3_000_000
    assert encoder.config.dim == 256
    assert encoder.card == json.loads(WEIGHTS.with_suffix(".json").read_text(encoding="utf-8"))
    recall = encoder.card["held_out"]["recall_at_1"]
    assert recall["scene encoder"]["same_way"] > recall["class histogram"]["same_way"] + 0.3


def test_the_shipped_encoder_knows_a_place_again() -> None:
    """From half a metre aside, with tokens missing, a scene is nearer to itself than to any other."""
    encoder, rng = SceneEncoder.pretrained(), np.random.default_rng(5)
    scenes = [scene(60, seed) for seed in range(40)]
    again = []
    for one in scenes:
        boxes = one.boxes.copy()
        boxes[:, :2] += rng.normal(0, 0.4, 2) + rng.normal(0, 0.1, (len(one), 2))
        again.append(SceneTokens(one.labels, boxes, one.scores).take(rng.permutation(len(one))[:50]))
    found = (encoder.encode(again) @ encoder.encode(scenes).T).argmax(axis=1)
    assert (found == np.arange(40)).mean() > 0.9

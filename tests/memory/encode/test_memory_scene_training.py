"""Training of the encoder of scenes."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from memory.encode import training
from memory.encode.scene import SceneEncoder, SceneEncoderConfig
from memory.encode.tokens import STRUCTURE, SceneTokens
from memory.encode.training import TrainingOptions, changed_views, contrast, train_scene_encoder
from sparse_core.common.interruption import Interrupted

CONFIG = SceneEncoderConfig(dim=16, width=32, layers=1, heads=2, hidden=32, gates=2)
OPTIONS = TrainingOptions(steps=8, places=8, save_every=4, seed=7)


def places(count: int = 12) -> list[list[SceneTokens]]:
    """Places with three views each."""
    found = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        number = int(rng.integers(4, 15))
        boxes = np.column_stack([rng.uniform(-30, 30, (number, 2)), rng.random((number, 5))])
        names = tuple(rng.choice(CONFIG.classes, number))
        found.append([SceneTokens(names, boxes, rng.random(number)) for _ in range(3)])
    return found


def test_the_loss_is_the_cross_entropy_of_the_pairs() -> None:
    vectors = functional.normalize(
        torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), dim=1
    ).double()
    similar = vectors[:3] @ vectors[3:].T / 0.1
    rows = [float(torch.logsumexp(similar[k], 0) - similar[k, k]) for k in range(3)]
    columns = [float(torch.logsumexp(similar[:, k], 0) - similar[k, k]) for k in range(3)]
    assert float(contrast(vectors, 0.1)) == pytest.approx((np.mean(rows) + np.mean(columns)) / 2)


def test_training_lowers_the_loss_and_is_deterministic() -> None:
    options = TrainingOptions(steps=25, places=8, seed=1, detections_only=0.0)
    one = train_scene_encoder(places(), config=CONFIG, options=options)
    other = train_scene_encoder(places(), config=CONFIG, options=options)
    assert one.losses == other.losses
    assert np.mean(one.losses[-5:]) < 0.6 * np.mean(one.losses[:5])
    assert not one.encoder.training


def test_a_signal_stops_after_the_step_with_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = training._step

    def signalled(*arguments: Any) -> float:
        if arguments[-1] == 1:
            signal.raise_signal(signal.SIGINT)
        return step(*arguments)

    monkeypatch.setattr(training, "_step", signalled)
    file = tmp_path / "checkpoint.pt"
    with pytest.raises(Interrupted, match=r"interrupted at step 2 of 8, saved in .*\.pt") as raised:
        train_scene_encoder(places(), config=CONFIG, options=OPTIONS, checkpoint=file)
    assert raised.value.exit_status == 130
    monkeypatch.undo()
    rest = train_scene_encoder(places(), config=CONFIG, options=OPTIONS, checkpoint=file)
    assert rest.losses == train_scene_encoder(places(), config=CONFIG, options=OPTIONS).losses


def test_an_interrupted_training_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = train_scene_encoder(places(), config=CONFIG, options=OPTIONS)
    file = tmp_path / "checkpoint.pt"
    part = train_scene_encoder(places(), config=CONFIG, options=OPTIONS, checkpoint=file, stop_after=5)
    assert len(part.losses) == 5
    rest = train_scene_encoder(places(), config=CONFIG, options=OPTIONS, checkpoint=file)
    assert rest.losses == whole.losses
    for a, b in zip(rest.encoder.parameters(), whole.encoder.parameters(), strict=True):
        assert torch.equal(a, b)


def test_checkpoints_of_other_trainings_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.pt"
    train_scene_encoder(places(), config=CONFIG, options=OPTIONS, checkpoint=file, stop_after=1)
    with pytest.raises(ValueError, match="other settings"):
        train_scene_encoder(
            places(), config=CONFIG, options=TrainingOptions(steps=3, places=8), checkpoint=file
        )
    file.write_bytes(b"no checkpoint")
    with pytest.raises(ValueError, match="not a checkpoint"):
        train_scene_encoder(places(), config=CONFIG, options=OPTIONS, checkpoint=file)


def test_views_are_moved_as_a_robot_would_move() -> None:
    batch = SceneEncoder(CONFIG).batch([one[0] for one in places(6)])
    still = {"drop": 0, "spurious": 0, "jitter_m": 0, "detections_only": 0, "reverse": 0}
    options = TrainingOptions(**still, shift_m=1.0, turn_rad=0.3)
    moved = changed_views(batch, options, np.random.default_rng(0))
    assert torch.equal(moved.lengths, batch.lengths)
    for k, length in enumerate(batch.lengths.tolist()):
        before, after = batch.boxes[k, :length].double(), moved.boxes[k, :length].double()
        assert torch.allclose(torch.pdist(before[:, :2]), torch.pdist(after[:, :2]), atol=1e-4)
        turn = (before[0, 6] - after[0, 6]).item()
        between = before[1, :2] - before[0, :2]
        cosine, sine = np.cos(turn), np.sin(turn)
        turned = torch.tensor([[cosine, sine], [-sine, cosine]], dtype=torch.float64) @ between
        assert torch.allclose(turned, after[1, :2] - after[0, :2], atol=1e-4)


def test_views_lose_tokens_behind_their_end() -> None:
    batch = SceneEncoder(CONFIG).batch([one[0] for one in places(6)])
    structure = CONFIG.classes.index(STRUCTURE)
    options = TrainingOptions(drop=0.0, spurious=0.0, detections_only=1.0)
    bare = changed_views(batch, options, np.random.default_rng(0), structure=structure)
    for k, length in enumerate(bare.lengths.tolist()):
        kept = batch.classes[k, : batch.lengths[k]]
        assert torch.equal(bare.classes[k, :length], kept[kept != structure])
    dropped = changed_views(batch, TrainingOptions(drop=1.0), np.random.default_rng(0))
    assert (dropped.lengths < batch.lengths).any()


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"places": 1}, {"temperature": 0.0}, {"drop": 1.5}, {"shift_m": -1.0}]
)
def test_bad_options(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        TrainingOptions(**wrong)  # type: ignore[arg-type]


def test_too_few_places_or_views() -> None:
    with pytest.raises(ValueError, match="8 places"):
        train_scene_encoder(places(5), config=CONFIG, options=OPTIONS)
    short = places()
    short[3] = short[3][:1]
    with pytest.raises(ValueError, match="place 3"):
        train_scene_encoder(short, config=CONFIG, options=OPTIONS)

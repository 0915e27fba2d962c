"""The head's training: the loss by its formula, what is learned, and runs that go on."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from perception.errors import CheckpointError, ConfigError, DataError
from perception.evaluate.retrieval import retrieval, vector_distances
from perception.train.identity import IdentityConfig, IdentityTrainer, contrastive_loss, vectors_of
from perception.train.identity.observations import Observations
from sparse_core.common.interruption import Interrupted

SHORT = IdentityConfig(towns=0, held_towns=0, steps=30, objects=6, sights=3, checkpoint_every=10)


def made_up(objects: int = 12, seed: int = 0, sights: int = 5) -> Observations:
    """Objects whose features have a part of their own among much that changes."""
    random = np.random.default_rng(seed)
    owner = np.repeat(np.arange(objects), sights)
    features = random.normal(0, 2, (len(owner), 256)) + 5
    features[:, :16] += 6 * random.normal(0, 1, (objects, 16))[owner]
    return Observations(
        features.astype(np.float32),
        np.ones((len(owner), 7), np.float32),
        owner % 2,
        np.array([f"street {number}" for number in owner]),
        np.full(len(owner), "street"),
        np.tile(np.arange(float(sights)), objects),
        np.zeros(len(owner), np.bool_),
    )


def test_the_loss_is_its_formula() -> None:
    torch.manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.randn(6, 8, dtype=torch.float64), dim=1)
    objects = torch.tensor([0, 0, 0, 1, 1, 2]).repeat_interleave(1)
    objects[5] = 1
    expected = 0.0
    for i in range(6):
        others = [j for j in range(6) if j != i]
        whole = sum(torch.exp(vectors[i] @ vectors[j] / 0.2) for j in others)
        same = [j for j in others if objects[j] == objects[i]]
        expected -= sum(float(torch.log(torch.exp(vectors[i] @ vectors[j] / 0.2) / whole)) for j in same) / (
            len(same) * 6
        )
    assert float(contrastive_loss(vectors, objects, 0.2)) == pytest.approx(expected)


def test_what_is_learned_holds_for_others() -> None:
    # The same part of the features tells objects apart, of which none was learned from.
    others = made_up(seed=1)

    def known(trainer: IdentityTrainer) -> float:
        vectors = vectors_of(trainer.head(), torch.from_numpy(others.features))
        found = retrieval(vector_distances(vectors), others.objects, others.scenes, others.times_s)
        return found.mean_ap

    trainer = IdentityTrainer(replace(SHORT, steps=40, objects=24, learning_rate=0.01), made_up(60))
    before = known(trainer)
    assert trainer.run()
    assert known(trainer) > before + 0.2


def test_the_head_alone_gives_the_vectors_that_were_trained() -> None:
    sights = made_up()
    trainer = IdentityTrainer(SHORT, sights)
    trainer.run()
    features = torch.from_numpy(sights.features)
    np.testing.assert_allclose(
        vectors_of(trainer.head(), features), vectors_of(trainer.network, features), atol=1e-5
    )


def test_a_run_that_goes_on_is_the_same_run(tmp_path: Path) -> None:
    sights = made_up()
    whole = IdentityTrainer(SHORT, sights)
    losses: list[float] = []
    assert whole.run(lambda step, steps, loss: losses.append(loss))
    assert len(losses) == 30
    assert losses[-1] < losses[0]
    left = iter([False] * 17)
    first = IdentityTrainer(SHORT, sights, tmp_path)
    assert not first.run(out_of_time=lambda: next(left, True))
    second = IdentityTrainer(SHORT, sights, tmp_path)
    assert second.step == 17
    assert second.run()
    for one, other in zip(whole.head().parameters(), second.head().parameters(), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(CheckpointError, match=r"belongs to a run with another 'temperature'"):
        IdentityTrainer(replace(SHORT, temperature=0.3), sights, tmp_path)
    with pytest.raises(CheckpointError, match="another 'number of observations'"):
        IdentityTrainer(SHORT, made_up(objects=11), tmp_path)
    (tmp_path / "checkpoint.pt").write_bytes(b"PK nothing")
    with pytest.raises(CheckpointError, match=r"checkpoint.pt: damaged"):
        IdentityTrainer(SHORT, sights, tmp_path)


def test_a_signal_stops_after_the_step_with_a_checkpoint(tmp_path: Path) -> None:
    sights = made_up()

    def on_step(step: int, steps: int, loss: float) -> None:
        if step == 3:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted, match=r"interrupted at step 3 of 30, saved in .*to resume") as raised:
        IdentityTrainer(SHORT, sights, tmp_path).run(on_step)
    assert raised.value.exit_status == 143
    assert IdentityTrainer(SHORT, sights, tmp_path).step == 3


def test_too_little_to_learn_from() -> None:
    with pytest.raises(DataError, match="only 1 objects"):
        IdentityTrainer(SHORT, made_up(objects=1))
    with pytest.raises(DataError, match="only 0 objects"):
        IdentityTrainer(SHORT, made_up()[np.zeros(0, np.int64)])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("steps", 0, "steps must be positive, got 0"),
        ("towns", -1, "towns must not be negative"),
        ("objects", 1, "objects must be at least 2"),
        ("dropout", 1.0, r"dropout must be in \[0, 1\)"),
    ],
)
def test_settings_out_of_range(name: str, value: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(SHORT, **{name: value})  # type: ignore[arg-type]

"""When masks are chosen anew, how many entries flip, when they freeze; and a whole training run."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sparse_core.nm.masks import nm_mask
from sparse_core.nm.pattern import Block, NMPattern
from sparse_core.nm.pruning.selection import magnitude_masks
from sparse_core.nm.training.estimators import MaskedModel, attach_masks
from sparse_core.nm.training.refresh import MaskRefresher


def masked_model(seed: int = 0) -> MaskedModel:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))
    return attach_masks(model, magnitude_masks(model))


def disturb(handle: MaskedModel, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in handle.weights.values():
            weight.copy_(torch.randn(weight.shape, generator=generator))


def test_masks_are_refreshed_every_few_steps_and_frozen() -> None:
    handle = masked_model()
    refresher = MaskRefresher(handle, NMPattern(2, 4), every=3, freeze_after=8)
    refreshed, frozen = [], []
    for step in range(12):
        disturb(handle, step)
        before = {name: mask.clone() for name, mask in handle.masks.items()}
        found = refresher.step()
        refreshed.append(found.refreshed)
        frozen.append(found.frozen)
        assert found.step == step
        flips = {name: (mask != before[name]).float().mean() for name, mask in handle.masks.items()}
        if found.refreshed:
            for name, weight in handle.weights.items():
                assert torch.equal(handle.masks[name], nm_mask(weight, 2, 4))
                assert found.layers[name] == pytest.approx(float(flips[name]))
            # Layers count by their weights: 128 and 32.
            assert float(found.share) == pytest.approx(
                (128 * float(flips["0"]) + 32 * float(flips["2"])) / 160
            )
            assert found.share > 0
        else:
            assert found.layers == {}
            assert float(found.share) == 0.0
            assert not any(flips.values())
    assert [step for step, done in enumerate(refreshed) if done] == [0, 3, 6, 8]
    assert frozen == [False] * 8 + [True] * 4
    assert handle.frozen


def test_patterns_by_name_and_scores_by_function() -> None:
    handle = masked_model()
    seen: list[str] = []

    def smallest(name: str, weight: Tensor) -> Tensor:
        seen.append(name)
        assert not weight.requires_grad
        return -weight.abs()

    MaskRefresher(handle, {"0": NMPattern(1, 8), "2": None}, score=smallest).step()
    assert seen == ["0", "2"]
    assert torch.equal(handle.masks["0"], nm_mask(handle.weights["0"], 1, 8, -handle.weights["0"].abs()))
    assert handle.masks["2"].all()
    MaskRefresher(handle, Block(8, 0.5)).step()
    assert handle.masks["0"].sum() == 64


def test_state_dict_resumes() -> None:
    handle = masked_model()
    refresher = MaskRefresher(handle, every=2, freeze_after=5)
    for _ in range(3):
        refresher.step()
    again = MaskRefresher(masked_model(), every=2, freeze_after=5)
    again.load_state_dict(refresher.state_dict())
    again.handle.model.load_state_dict(handle.model.state_dict())
    for step in range(3, 8):
        disturb(handle, step)
        disturb(again.handle, step)
        a, b = refresher.step(), again.step()
        assert (a.step, a.refreshed, a.frozen, float(a.share)) == (
            b.step,
            b.refreshed,
            b.frozen,
            float(b.share),
        )
    assert a.frozen
    assert all(torch.equal(mask, again.handle.masks[name]) for name, mask in handle.masks.items())


def test_nan_is_reported_unless_asked_not_to() -> None:
    handle = masked_model()
    with torch.no_grad():
        handle.weights["0"][1, 2] = float("nan")
    with pytest.raises(ValueError, match=r"NaN at \(1, 2\)"):
        MaskRefresher(handle).step()
    MaskRefresher(handle, check_nan=False).step()
    assert not handle.masks["0"][1, 2]


def test_bad_refreshers() -> None:
    handle = masked_model()
    with pytest.raises(ValueError, match="at least 1 step"):
        MaskRefresher(handle, every=0)
    with pytest.raises(ValueError, match="freeze_after must be at least step 0"):
        MaskRefresher(handle, freeze_after=-1)
    with pytest.raises(ValueError, match="no pattern for layers 2"):
        MaskRefresher(handle, {"0": NMPattern(2, 4)})
    with pytest.raises(ValueError, match="score must be 'magnitude' or a function"):
        MaskRefresher(handle, score="wanda")  # type: ignore[arg-type]

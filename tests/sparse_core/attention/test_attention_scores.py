"""Scores changed by a function: against dense attention in float64, FlexAttention and the formulas."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sparse_core.attention import (
    alibi,
    bigbird,
    local_window,
    random_blocks,
    relative_positions,
    soft_cap,
    sparse_attention,
)
from sparse_core.errors import ImplementationError

LENGTH, HEADS = 70, 4


def operands(key_heads: int = HEADS, dim: int = 16) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, HEADS, LENGTH, dim), (2, key_heads, LENGTH, dim), (2, key_heads, LENGTH, dim))
    made = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [tensor.requires_grad_() for tensor in made]


def functions() -> dict[str, Any]:
    table = torch.randn(HEADS, 11, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return {
        "alibi": alibi(HEADS),
        "relative": relative_positions(table),
        "soft cap": soft_cap(2.0),
        "by entry": lambda scores, batch, head, query, key: scores * (1 + batch) + (query == key),
    }


def dense(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, function: Any) -> Tensor:
    k, v = (part.repeat_interleave(HEADS // part.shape[1], 1) for part in (k, v))
    scores = q @ k.mT * q.shape[3] ** -0.5
    index = torch.meshgrid(*(torch.arange(size) for size in scores.shape), indexing="ij")
    scores = function(scores, *index).masked_fill(~mask, -torch.inf)
    return torch.softmax(scores, 3) @ v


@pytest.mark.parametrize("key_heads", [4, 2])
@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("name", functions())
def test_equals_dense_attention(name: str, per_head: bool, key_heads: int) -> None:
    function = functions()[name]
    pattern = bigbird(LENGTH, 9, 2, 1, 16, heads=HEADS if per_head else 1)
    given = operands(key_heads)
    results = []
    for out in (
        sparse_attention(*given, pattern, score_mod=function),
        dense(*given, pattern.to_token_mask(), function),
    ):
        results.append([out, *torch.autograd.grad((out * torch.cos(out)).sum(), given)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_what_is_learned_gets_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = local_window(LENGTH, 20, 16)
    gradients = []
    for kept in (1 << 24, 0):  # kept scores, and computed again
        monkeypatch.setattr("sparse_core.attention.reference.KEPT_SCORES", kept)
        table = torch.zeros(HEADS, 41, dtype=torch.float64, requires_grad=True)
        out = sparse_attention(*operands(), pattern, score_mod=relative_positions(table))
        gradients.append(torch.autograd.grad((out * torch.cos(out)).sum(), table)[0])
    assert torch.equal(*gradients)
    again = torch.zeros(HEADS, 41, dtype=torch.float64, requires_grad=True)
    out = dense(*operands(), pattern.to_token_mask(), relative_positions(again))
    expected = torch.autograd.grad((out * torch.cos(out)).sum(), again)[0]
    torch.testing.assert_close(gradients[0], expected, rtol=0, atol=1e-12)
    assert float(expected.abs().max()) > 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a warning of torch's compiler
def test_flex_attention_takes_the_same_functions(device: torch.device) -> None:
    pattern = random_blocks(LENGTH, 0.5, 16, device=device) | local_window(LENGTH, 5, 16, device=device)
    given = [tensor.detach().float().to(device) for tensor in operands()]
    made = {"alibi": alibi(HEADS, device=device), "soft cap": soft_cap(2.0)}
    for function in made.values():
        found, expected = (
            sparse_attention(*given, pattern, score_mod=function, impl=impl)
            for impl in ("vendor", "reference")
        )
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)
        assert float((expected - sparse_attention(*given, pattern, impl="reference")).abs().max()) > 1e-3


def test_with_lengths_and_dropout() -> None:
    given = [tensor.detach() for tensor in operands()]
    lengths = torch.tensor([LENGTH, 33])
    pattern = local_window(LENGTH, 20, 16)
    found = sparse_attention(
        *given, pattern, score_mod=alibi(HEADS), query_lengths=lengths, key_lengths=lengths
    )
    short = [tensor[1:, :, :33] for tensor in given]
    alone = sparse_attention(*short, local_window(33, 20, 16), score_mod=alibi(HEADS))
    torch.testing.assert_close(found[1:, :, :33], alone, rtol=0, atol=1e-12)
    assert not bool(found[1, :, 33:].any())
    dropped = [
        sparse_attention(*given, pattern, score_mod=soft_cap(3.0), dropout_p=0.5, seed=4) for _ in "ab"
    ]
    assert torch.equal(*dropped)


def test_slopes_are_the_papers() -> None:
    zero, place = torch.zeros(()), torch.tensor(0)

    def slopes(heads: int) -> list[float]:
        function = alibi(heads)
        return [-float(function(zero, place, torch.tensor(head), place, place + 1)) for head in range(heads)]

    assert slopes(8) == [2.0**-power for power in range(1, 9)]
    # For 12 heads: those of 8 heads, and every second one of 16.
    assert slopes(12) == pytest.approx(
        [2.0**-power for power in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    )


def test_bad_arguments() -> None:
    given = operands()
    for impl in ("triton", "cuda"):
        with pytest.raises(ImplementationError, match="not support score_mod"):
            sparse_attention(*given, local_window(LENGTH), score_mod=soft_cap(1.0), impl=impl)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="limit must be above 0"):
        soft_cap(0.0)
    with pytest.raises(ValueError, match="heads must be at least 1"):
        alibi(0)
    with pytest.raises(ValueError, match="reach"):
        relative_positions(torch.zeros(2, 4))


@pytest.mark.parametrize("heads", [HEADS // 2, 2 * HEADS])
def test_functions_for_another_number_of_heads_are_refused(heads: int) -> None:
    for function in (alibi(heads), relative_positions(torch.zeros(heads, 3))):
        with pytest.raises(ValueError, match=f"made for {heads} heads but q has {HEADS}"):
            sparse_attention(*operands(), local_window(LENGTH, 20, 16), score_mod=function)

# %% [markdown]
# # Block-sparse attention in a GPT
#
# A small language model reads Python source code, letter by letter. Its attention is dense, or a block
# pattern: a window of the last 64 letters plus the first letters of the text. Which pattern suits what, and
# from which length it is faster, is in [docs/attention.md](../docs/attention.md).

# %%
import argparse
import textwrap
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from sparse_core.attention import (
    BlockPattern,
    SparseTransformer,
    SparseTransformerLayer,
    full,
    global_tokens,
    local_window,
)

LENGTH, WIDTH, HEADS, BLOCK, STEPS = 512, 64, 4, 32, 60
text = "".join(Path(module.__file__).read_text() for module in (argparse, textwrap))
letters = torch.tensor([min(ord(letter), 127) for letter in text])
training, held_out = letters[:-20_000], letters[-20_000:]

# %% [markdown]
# ## Patterns
#
# Patterns are combined on blocks and exact to the token; `causal()` removes later tokens.

# %%
PATTERNS = {
    "dense": full(LENGTH, BLOCK).causal(),
    "window": (local_window(LENGTH, 64, BLOCK) | global_tokens(LENGTH, 4, BLOCK)).causal(),
}
for name, pattern in PATTERNS.items():
    print(f"{name}: {pattern.blocks} blocks of {(LENGTH // BLOCK) ** 2}")


# %% [markdown]
# ## The model
#
# The layers take the pattern once; everything else is a standard GPT.


# %%
class Gpt(nn.Module):
    """Two transformer layers over letters and positions."""

    def __init__(self, pattern: BlockPattern) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(128, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layers = [SparseTransformerLayer(WIDTH, HEADS) for _ in range(2)]
        self.layers = SparseTransformer(layers, pattern, norm=nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, 128)

    def forward(self, text: Tensor) -> Tensor:
        """Return scores of the next letters for (batch, LENGTH) letters."""
        return self.head(self.layers(self.letter(text) + self.place.weight))


def batch(source: Tensor, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return pieces of the text, and the same pieces shifted by one letter."""
    starts = torch.randint(len(source) - LENGTH - 1, (size,), generator=generator)
    pieces = torch.stack([source[start : start + LENGTH + 1] for start in starts.tolist()])
    return pieces[:, :-1], pieces[:, 1:]


def loss_of(model: Gpt, pieces: Tensor, following: Tensor) -> Tensor:
    """Return the loss in nats per letter."""
    return nn.functional.cross_entropy(model(pieces).flatten(0, 1), following.flatten())


# %% [markdown]
# ## Train both
#
# Both use the same seed and the same pieces. Another part of the source is held out.

# %%
losses = {}
for name, pattern in PATTERNS.items():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = Gpt(pattern)
    optimiser = torch.optim.AdamW(model.parameters(), 4e-3)
    started = time.perf_counter()
    for _ in range(STEPS):
        loss = loss_of(model, *batch(training, 8, generator))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    took = time.perf_counter() - started
    model.eval()
    with torch.no_grad():
        losses[name] = loss_of(model, *batch(held_out, 16, torch.Generator().manual_seed(1))).item()
    print(f"{name}: {losses[name]:.3f} nats per held-out letter, {1e3 * took / STEPS:.0f} ms per step")

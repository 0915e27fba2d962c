# %% [markdown]
# # 2:4 sparsity in a transformer
#
# Set two of every four weights to zero, recover the accuracy by fine-tuning, and save the packed model. The
# transformer is small and learns to sort digits in a few seconds. 2:4 is faster for large layers on GPUs
# with sparse tensor cores, see [docs/two-four.md](../docs/two-four.md).

# %%
import copy
from pathlib import Path

import torch
from torch import Tensor, nn

from sparse_core.nm import attach_masks, load_packed, prune, save_packed, sparsify

LENGTH, DIGITS, WIDTH = 12, 10, 64
generator = torch.Generator().manual_seed(0)
torch.manual_seed(0)


def batch(size: int) -> tuple[Tensor, Tensor]:
    """Return digits (size, LENGTH) and the same digits sorted."""
    digits = torch.randint(DIGITS, (size, LENGTH), generator=generator)
    return digits, digits.sort(1).values


class Sorter(nn.Module):
    """Two torch encoder layers between an embedding and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(DIGITS, WIDTH), nn.Parameter(torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, DIGITS)

    def forward(self, digits: Tensor) -> Tensor:
        """Return (batch, LENGTH, DIGITS) scores for (batch, LENGTH) digits."""
        return self.head(self.encoder(self.embed(digits) + self.place))


def train(model: nn.Module, steps: int, rate: float) -> None:
    """Train with Adam on fresh batches."""
    optimiser = torch.optim.Adam(model.parameters(), rate)
    model.train()
    for _ in range(steps):
        digits, wanted = batch(64)
        loss = nn.functional.cross_entropy(model(digits).flatten(0, 1), wanted.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


test_digits, test_sorted = batch(2000)


def accuracy(model: nn.Module) -> float:
    """Return the share of digits in the right position."""
    model.eval()
    with torch.no_grad():
        return (model(test_digits).argmax(2) == test_sorted).float().mean().item()


# %% [markdown]
# ## Dense

# %%
dense = Sorter()
train(dense, 300, 2e-3)
print(f"dense: {accuracy(dense):.1%}")

# %% [markdown]
# ## Prune
#
# Prune by magnitude; `score="wanda"` and `score="sparsegpt"` also use inputs of calibration batches. Only the
# encoder layers are pruned, because the embedding and the classifier are small and most sensitive.

# %%
pruned = copy.deepcopy(dense)
report = prune(pruned, 2, 4, select=r"encoder\.")
print(f"pruned, {len(report.layers)} layers: {accuracy(pruned):.1%}")

# %% [markdown]
# ## Fine-tune with the zeros kept

# %%
masks = attach_masks(pruned, report.masks)
train(pruned, 100, 1e-3)
masks.remove()  # the zeros stay, in ordinary weights
print(f"fine-tuned: {accuracy(pruned):.1%}")

# %% [markdown]
# ## Pack
#
# Linear layers become packed layers, which store half of the weights with two bits of position each.

# %%
packed = copy.deepcopy(pruned)
sparsify(packed, select=r"encoder\..*linear")
file = save_packed(packed, Path("sorter.safetensors"))
torch.save(dense.state_dict(), "dense.pt")
again = load_packed(file, Sorter())
print(f"packed: {accuracy(packed):.1%}, read again: {accuracy(again):.1%}")
print(f"{Path('dense.pt').stat().st_size / 1e3:.0f} kB became {file.stat().st_size / 1e3:.0f} kB")

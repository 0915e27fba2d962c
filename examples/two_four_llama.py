# %% [markdown]
# # 2:4 sparsity in a Llama of transformers
#
# Prune a language model to 2:4 with SparseGPT, fine-tune it against the dense model, and generate with packed
# layers. The model has random weights and learns to count in a few seconds; the steps are those of a large
# one. Needs `pip install transformers`. When it pays: [docs/two-four.md](../docs/two-four.md).

# %%
import copy
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from sparse_core.nm import DistillationLoss, attach_masks, load_packed, prune, save_packed, sparsify

VOCABULARY, LENGTH = 16, 16
device = "cuda" if torch.cuda.is_available() else "cpu"
config = LlamaConfig(
    vocab_size=VOCABULARY,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    eos_token_id=None,
)
torch.manual_seed(0)
generator = torch.Generator().manual_seed(0)


def batch(size: int) -> Tensor:
    """Return (size, LENGTH) tokens: each sequence counts in steps of its own, and starts again at zero."""
    start = torch.randint(VOCABULARY, (size, 1), generator=generator)
    step = torch.randint(1, 5, (size, 1), generator=generator)
    return ((start + step * torch.arange(LENGTH)) % VOCABULARY).to(device)


def loss_of(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the cross entropy of the next tokens. The first two tokens decide the step."""
    return nn.functional.cross_entropy(logits[:, 1:-1].flatten(0, 1), tokens[:, 2:].flatten())


def train(model: nn.Module, steps: int, rate: float, teacher: nn.Module | None = None) -> None:
    """Train with Adam on fresh batches, with soft labels of a teacher if there is one."""
    distillation = None if teacher is None else DistillationLoss(teacher, alpha=0.5)
    optimiser = torch.optim.Adam(model.parameters(), rate)
    model.train()
    for _ in range(steps):
        tokens = batch(64)
        logits = model(input_ids=tokens).logits
        loss = loss_of(logits, tokens)
        if distillation is not None:
            loss = distillation(logits, {"input_ids": tokens}, loss)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


test_tokens = batch(1000)


def accuracy(model: nn.Module) -> float:
    """Return the share of next tokens that are predicted."""
    model.eval()
    with torch.no_grad():
        predicted = model(input_ids=test_tokens).logits[:, 1:-1].argmax(2)
    return (predicted == test_tokens[:, 2:]).float().mean().item()


# %% [markdown]
# ## Dense
#
# Load your own model here instead: `LlamaForCausalLM.from_pretrained(FOLDER)`.

# %%
dense = LlamaForCausalLM(config).to(device)
train(dense, 300, 3e-3)
print(f"dense: {accuracy(dense):.1%}")

# %% [markdown]
# ## Prune with calibration
#
# SparseGPT changes the weights that stay, so that each layer's output for typical inputs changes little.
# `score="wanda"` only chooses. All projections are pruned; the embedding and the vocabulary layer stay dense.

# %%
pruned = copy.deepcopy(dense)
calibration = [{"input_ids": batch(16)} for _ in range(8)]
report = prune(pruned, 2, 4, score="sparsegpt", calibration=calibration, select=r"_proj$")
print(f"pruned, {len(report.layers)} layers: {accuracy(pruned):.1%}")

# %% [markdown]
# ## Fine-tune with distillation
#
# The masks keep the zeros, and the dense model's outputs are soft labels.

# %%
masks = attach_masks(pruned, report.masks)
train(pruned, 100, 1e-3, teacher=dense)
masks.remove()  # the zeros stay, in ordinary weights
print(f"fine-tuned: {accuracy(pruned):.1%}")

# %% [markdown]
# ## Pack
#
# `quantise=True` packs int8. The folder is in the format that llm-compressor writes and transformers reads.

# %%
packed = copy.deepcopy(pruned).eval()
conversion = sparsify(packed, select=r"_proj$")
print(f"{len(conversion.converted)} packed layers: {accuracy(packed):.1%}")
folder = Path("counting-llama")
config.save_pretrained(folder)  # config.json, which will name the format
save_packed(packed, folder, format="sparse-24-bitmask")
again = load_packed(folder, LlamaForCausalLM(config).to(device)).eval()

# %% [markdown]
# ## Generate
#
# A static cache has the same shapes at every token. On a GPU `torch.compile` then records each token as one
# CUDA graph; on a CPU it is not worth the wait here.

# %%
if device == "cuda":
    packed.forward = torch.compile(packed.forward, mode="reduce-overhead", dynamic=False)
prompt = torch.tensor([[3, 6]], device=device)  # counts in threes
options = {"max_new_tokens": 8, "do_sample": False, "cache_implementation": "static", "pad_token_id": 0}
if device == "cpu":
    options["disable_compile"] = True
written = packed.generate(input_ids=prompt, **options)
print(f"{prompt[0].tolist()} continues {written[0, 2:].tolist()}")
same = torch.equal(again.generate(input_ids=prompt, **options), written)
print(f"the same tokens after saving and loading: {same}")

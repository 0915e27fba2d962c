# %% [markdown]
# # A graph network by sparse products
#
# Two GCN layers of PyTorch Geometric learn the group of each node. One line makes them pass messages by
# sparse products; results and gradients stay the same. Needs `pip install 'sparsight[graphs]'`.

# %%
import copy
import time

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCN

from sparse_core.graphs import use_spmm

NODES, GROUPS, WIDTH = 5000, 5, 64
torch.manual_seed(0)
group = torch.randint(GROUPS, (NODES,))
features = torch.randn(NODES, WIDTH) + 1.5 * nn.functional.one_hot(group, WIDTH)

# %% [markdown]
# Each node has about ten edges, most of them within its group.

# %%
source = torch.randint(NODES, (40 * NODES,))
target = torch.randint(NODES, (40 * NODES,))
kept = (group[source] == group[target]) | (torch.rand(len(source)) < 0.05)
edges = torch.stack([source[kept], target[kept]]).unique(dim=1)

# %% [markdown]
# The switch. `cached=True` normalizes the edges once.

# %%
plain = GCN(WIDTH, WIDTH, num_layers=2, out_channels=GROUPS, cached=True)
model = copy.deepcopy(plain)
print("layers with sparse products:", use_spmm(model))
print("same results:", torch.allclose(model(features, edges), plain(features, edges), atol=1e-4))


# %%
def train(network: nn.Module, steps: int = 25) -> float:
    """Train on half of the nodes and return the milliseconds of a step."""
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    started = time.perf_counter()
    for _ in range(steps):
        loss = nn.functional.cross_entropy(network(features, edges)[::2], group[::2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return 1e3 * (time.perf_counter() - started) / steps


def accuracy(network: nn.Module) -> float:
    """Return the share of the other half that is right."""
    found: Tensor = network(features, edges)[1::2].argmax(dim=1)
    return float((found == group[1::2]).float().mean())


for name, network in (("PyTorch Geometric", plain), ("sparse products", model)):
    took = train(network)
    print(f"{name}: {took:.0f} ms a step, accuracy {accuracy(network):.1%}")

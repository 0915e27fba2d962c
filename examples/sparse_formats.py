# %% [markdown]
# # Which sparse format?
#
# The same matrix in every suitable format: its size, the time of a product, and the recommendation of
# `choose_format` with its reason.

# %%
import time

import torch

from sparse_core.formats import BSR, CSR, ELL, HYB, CompactCSR, SlicedELL, choose_format
from sparse_core.formats.generators import generate
from sparse_core.linalg import spmv

FORMATS = (CSR, CompactCSR, ELL, SlicedELL, HYB, BSR)
MATRICES = ("poisson-2d:256", "power-law:10000", "block-sparse:2048x2048x32")


# %% [markdown]
# Every product is compared with scipy's in float64 before timing. CompactCSR has a larger error, because it
# stores values in 16 bits. On a CPU, all formats but BSR are converted once and multiplied as CSR; a GPU has
# a kernel for each format.


# %%
def best_ms(matrix: object, x: torch.Tensor, repeats: int = 15) -> float:
    """Return the fastest of several products, in milliseconds."""
    took = []
    for _ in range(repeats):
        started = time.perf_counter()
        spmv(matrix, x)
        took.append(time.perf_counter() - started)
    return 1e3 * min(took)


for name in MATRICES:
    matrix = generate(name)
    x = torch.rand(matrix.shape[1], generator=torch.Generator().manual_seed(0), dtype=matrix.dtype)
    expected = torch.from_numpy(matrix.to_scipy().astype("float64") @ x.double().numpy())
    choice = choose_format(matrix)
    print(
        f"\n{name}: {matrix.shape[0]} x {matrix.shape[1]}, {matrix.nnz} entries, {matrix.sparsity:.2%} zeros"
    )
    for kind in FORMATS:
        try:
            held = matrix.to(kind)
        except ValueError as error:
            print(f"  {kind.__name__:<11} {error}")
            continue
        error = (spmv(held, x).double() - expected).norm() / expected.norm()
        star = "  <- recommended" if choice.format is kind else ""
        measured = f"{held.nbytes / 1e6:7.2f} MB {best_ms(held, x):8.3f} ms  error {error:.0e}"
        print(f"  {kind.__name__:<11} {measured}{star}")
    print(f"  {choice.name}: {choice.reason}")

"""Block-sparse attention on a GPU: Triton kernels, a CUDA kernel for Hopper, and the lists that both read."""

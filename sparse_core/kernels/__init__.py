"""Declaration, compilation, choice and launch of kernels; every op of :mod:`sparse_core` uses it."""

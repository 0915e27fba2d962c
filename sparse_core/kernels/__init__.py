"""How kernels are declared, compiled, chosen and launched; used by every op of :mod:`sparse_core`."""

<<<<<<< 79ab2b4ceda8a5e25f637cb7f747bde0f99d3256
"""How kernels are declared, compiled, chosen and launched; used by every op of :mod:`sparse_core`."""
=======
"""Kernels: the choice of an implementation, compilation and launches."""
>>>>>>> fa09e6cbf5f449d6ec715870fed5e9a728d3da6a

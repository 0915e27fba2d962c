"""How ops choose an implementation, compile kernels and launch them."""

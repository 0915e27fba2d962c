"""Kernels: the choice of an implementation, compilation and launches."""

"""Factorisations: incomplete ones as preconditioners, direct ones as solvers, and orderings for both."""

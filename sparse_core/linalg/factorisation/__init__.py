"""Factorisations: incomplete ones to precondition with, direct ones to solve with, and orderings for both."""

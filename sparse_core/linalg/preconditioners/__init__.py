"""Preconditioners: relaxations and algebraic multigrid."""

"""Preconditioners: relaxations, algebraic multigrid, and the protocol that they and factorisations follow."""

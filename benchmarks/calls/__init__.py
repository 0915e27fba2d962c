"""Cost of a call of each product, from a fresh process to a busy machine."""

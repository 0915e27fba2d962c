"""What a call of each product costs, from a fresh process to a busy machine."""

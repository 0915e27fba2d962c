"""Less computation for easy inputs: early exits, conditional blocks, experts, and a latency budget."""

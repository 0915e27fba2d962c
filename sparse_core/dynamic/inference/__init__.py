"""Less work where it is enough: early exits, conditional blocks, experts, and a latency budget."""

"""2:4 layers, dynamic sparsity and pruning."""

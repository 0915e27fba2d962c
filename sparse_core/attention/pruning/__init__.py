"""Dynamic pruning: patterns that follow the importance of blocks during training."""

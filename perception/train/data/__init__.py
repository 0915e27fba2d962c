"""Training frames: batches, augmentation, pasted objects and pseudo-labels."""

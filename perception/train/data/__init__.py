"""Frames for training: batches, augmentation, pasted objects and pseudo-labels."""

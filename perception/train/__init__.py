"""Training of detectors: frames, augmentation, targets, losses and the training loop."""

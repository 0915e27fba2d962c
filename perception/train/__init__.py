"""Training of detectors: frames, augmentation, targets, losses and the loop."""

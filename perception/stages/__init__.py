"""The stages of a frame, each an operation with several implementations."""

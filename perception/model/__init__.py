"""The trainable network, its layers, and thinned variants of it."""

"""Training with a fixed number of connections that are exchanged: RigL, SET and structured variants."""

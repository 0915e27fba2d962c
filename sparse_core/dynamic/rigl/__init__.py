"""Training with a fixed number of connections that move: RigL, SET and their structured kin."""

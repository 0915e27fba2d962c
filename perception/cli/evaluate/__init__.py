"""``perceive eval``: results judged by a protocol."""

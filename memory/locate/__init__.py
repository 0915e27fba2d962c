"""Relocalization: where a robot without a pose is, from one scan and the memories of a store."""

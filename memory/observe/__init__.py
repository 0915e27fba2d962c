"""Observation: what a robot sees is scored, kept or counted, and compared with what is known."""

"""Observation: scoring, storing or counting what a robot sees."""

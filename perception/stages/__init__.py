"""Stages of a frame, each with several implementations."""

"""Memories of physical objects: each remembered car explained, and two observers of one scene."""

"""Long-term memory for robots. Nothing is public yet: see the roadmap in README."""

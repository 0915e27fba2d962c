"""Three robots in one yard, each with a memory of its own, and what they share."""

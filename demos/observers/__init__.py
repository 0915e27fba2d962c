"""Two observers of one scene, who share a memory."""

"""Parts of the demo ``remember.py``: the town, the drive, what is kept of it, how that is judged."""

"""Parts of the demos ``remember.py`` and ``month.py``: town, drive, memory, questions and their
evaluation.
"""

"""Answers with a guaranteed error: yes, no or unknown, calibrated by the store's own history."""

"""Matching of the words of a question to labels, places and landmarks of the store."""

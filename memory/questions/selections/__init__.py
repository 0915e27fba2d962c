"""Answers about the objects of a list that meet conditions, and several answers in one."""

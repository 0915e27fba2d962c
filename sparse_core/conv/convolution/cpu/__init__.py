"""Convolution on a CPU with one plan per level: blocks of rows, or tiles near active cells."""

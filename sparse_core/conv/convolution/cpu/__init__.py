"""Convolution on a CPU over plans made once a level: blocks of rows, or tiles near active cells."""

"""The scans that commands are given, and the options that describe them."""

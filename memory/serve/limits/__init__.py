"""Limits on connections, on the rate of requests, and on their bodies."""

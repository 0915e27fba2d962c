"""Run tasks in worker processes, local or on a Ray cluster."""

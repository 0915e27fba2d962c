"""Words of a question that the store cannot check, and that its answer therefore names."""

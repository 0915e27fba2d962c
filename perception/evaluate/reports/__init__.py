"""Tables and figures of evaluation results."""

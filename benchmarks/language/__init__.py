"""Language models with 2:4 layers."""

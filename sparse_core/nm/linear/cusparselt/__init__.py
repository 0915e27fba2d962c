"""Direct bindings of NVIDIA's cuSPARSELt: cached plans and checked algorithms."""

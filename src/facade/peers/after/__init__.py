"""What is left of a run among sites, and how sites compare."""

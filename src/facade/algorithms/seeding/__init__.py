"""How FACADE's heads start, and what happens to those that nobody uses."""

"""Models, and all arithmetic on stacks of them."""

"""Data: sources, skews, partitions, and the federation made of them."""

"""A site at work: the round loop over a network, and what it keeps on disk."""

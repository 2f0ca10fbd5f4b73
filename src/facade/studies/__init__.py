"""Studies of our own: many small runs of one question, kept as a line each, and a page drawn from these lines alone."""

"""For tests of one's own algorithms and models: runs under control, and what each of them must keep."""

"""Every figure and table of the paper, computed again and set beside what was published."""

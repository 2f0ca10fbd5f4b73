"""What sites say to each other, and what is checked when it arrives."""

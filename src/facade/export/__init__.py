"""A model to take home, and which one fits a new site."""

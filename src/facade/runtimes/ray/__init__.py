"""Nodes, or whole runs, spread over a Ray cluster."""

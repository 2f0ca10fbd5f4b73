"""Confusion matrices to numbers: metrics, statistics, tables, the fairness gate."""

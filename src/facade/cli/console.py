"""Where the command line prints: results on standard output, everything else on standard error."""

from __future__ import annotations

from rich.console import Console

out = Console(markup=False, highlight=False)
"""What is printed may hold paths and names that look like markup."""
err = Console(stderr=True, markup=False, highlight=False)

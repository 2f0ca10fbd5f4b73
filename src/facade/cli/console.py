"""Where the command line prints: results on standard output, everything else on standard error."""

from __future__ import annotations

from rich.console import Console

out = Console()
err = Console(stderr=True)

"""What can go wrong with a cluster."""

from __future__ import annotations

from facade.errors import FacadeError


class ClusterError(FacadeError):
    """The cluster cannot be used, or fails again and again."""

"""What can go wrong with data."""

from __future__ import annotations

from facade.errors import FacadeError


class DataError(FacadeError):
    """Data are missing, damaged, or not what was asked for; nothing half-written is left."""

    exit_code = 2

"""Names for types that occur everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
"""Numbers of nodes, rows or clusters."""
Row = dict[str, Any]
"""One recorded fact, as a line of JSON holds it."""

"""What this process has to compute with."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS does not let processes be tied to cores


def cpu() -> str:
    """The processor's name."""
    lines = (_described() or "").splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def has_bf16_instructions() -> bool:
    """Whether the processor computes in bfloat16 itself; where the system does not say, it is taken to."""
    described = _described()
    return described is None or "bf16" in described


def _described() -> str | None:
    """What Linux says of the processor; other systems say nothing."""
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return None

# SPDX-License-Identifier: Apache-2.0
"""How much memory there is, so that what needs more is refused before it is taken."""

import os
import re
from pathlib import Path

from forebay.errors import RefusedInput
from forebay.units import format_bytes


def facts(meminfo: str) -> dict[str, int]:
    """The numbers of /proc/meminfo; sizes are in KiB."""
    return {key: int(value) for key, value in re.findall(r"^(\w+):\s+(\d+)", meminfo, re.M)}


def available_bytes() -> int:
    """What can be had without swapping."""
    try:
        return facts(Path("/proc/meminfo").read_text())["MemAvailable"] * 1024
    except (OSError, KeyError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def require(needed_bytes: int, field: str, value: object, what: str, remedy: str) -> None:
    """Refuses `value` where `what` needs more memory than there is."""
    there = available_bytes()
    if needed_bytes > there:
        found = f"{what} need {format_bytes(needed_bytes)} of memory, and {format_bytes(there)} are available"
        raise RefusedInput(field, value, f"{found}; {remedy}")

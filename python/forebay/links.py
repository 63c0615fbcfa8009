# SPDX-License-Identifier: Apache-2.0
"""PCI Express links by the names that drive URIs give them, and what each carries one way.

The names and the rates are those of src/memory/link_speed.cpp, which the extension does not export: a lane carries 8,
16 or 32 GT/s after a line code of 128/130, or 64 GT/s with 242 of 256 bytes of a flit. No packet's header is taken off.
"""

import difflib

from forebay.errors import RefusedInput

_LANE_BYTES_PER_SECOND = {
    3: 8e9 / 8 * 128 / 130,
    4: 16e9 / 8 * 128 / 130,
    5: 32e9 / 8 * 128 / 130,
    6: 64e9 / 8 * 242 / 256,
}

LINK_BYTES_PER_SECOND = {
    f"gen{generation}x{lanes}": rate * lanes
    for generation, rate in _LANE_BYTES_PER_SECOND.items()
    for lanes in (4, 8, 16)
}
"""What each link carries in one direction, in bytes a second."""


def link_bytes_per_second(field: str, name: str) -> float:
    """What the link `name` carries. Refuses a name that no link has, and says which name is the nearest."""
    if name in LINK_BYTES_PER_SECOND:
        return LINK_BYTES_PER_SECOND[name]
    known = list(LINK_BYTES_PER_SECOND)
    near = difflib.get_close_matches(name.lower(), known, 1, 0.0)[0]
    raise RefusedInput(field, name, f"must be one of {', '.join(known)}; did you mean {near}?")

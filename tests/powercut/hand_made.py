# SPDX-License-Identifier: Apache-2.0
"""Records of disks that no disk has made."""

from pathlib import Path

import numpy as np
import write_log
from write_log import Flag

FLUSH = (0, b"", Flag.FLUSH)


def write(path: Path, entries: list[tuple], sector_bytes: int = 512) -> None:
    """Writes a record. Each entry is (sector, data), (sector, data, flags), or (sector, sectors, Flag.DISCARD)."""
    content = write_log.HEADER.pack(write_log.MAGIC, write_log.VERSION, len(entries), sector_bytes)
    content = content.ljust(sector_bytes, b"\0")
    for sector, data, *flags in entries:
        flag = flags[0] if flags else 0
        count = data if flag & Flag.DISCARD else len(data) // sector_bytes
        content += write_log.ENTRY.pack(sector, count, flag, 0).ljust(sector_bytes, b"\0")
        content += b"" if flag & Flag.DISCARD else bytes(data)
    path.write_bytes(content)


def rows(*values: int) -> bytes:
    """Sectors, each of which is full of one value."""
    return b"".join(bytes([value]) * 512 for value in values)


def disk(*values: int) -> np.ndarray:
    """The same, as a disk."""
    return np.frombuffer(rows(*values), np.uint8).reshape(-1, 512).copy()

# SPDX-License-Identifier: Apache-2.0
"""Reads the record of a disk's writes, in the format of Linux's dm-log-writes and QEMU's ``blklogwrites``.

The first sector is a header: magic, version, number of entries (64 bits each) and bytes of a sector (32 bits). Then
come the entries. Each has a sector of its own, which starts with the first sector that was written, how many, flags,
and the length of a mark's text (64 bits each). The written data follows, unless the entry is a discard.
"""

import struct
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

import numpy as np

MAGIC = 0x6A736677736872
VERSION = 1
HEADER = struct.Struct("<QQQI")
ENTRY = struct.Struct("<QQQQ")


class Flag(IntFlag):
    """What an entry is besides a write."""

    FLUSH = 1  # what the disk had completed before is on the medium
    FUA = 2  # so is the data of this entry
    DISCARD = 4
    MARK = 8


class WrongLogError(Exception):
    """A file that is no such record, or is cut short: the message says where."""


@dataclass(frozen=True)
class Entry:
    """One request that the disk has completed; they come in the order in which they did."""

    sector: int
    flags: Flag
    rows: np.ndarray  # the written data, one sector a row; what a discard leaves is zeros


@dataclass(frozen=True)
class WriteLog:
    """The record of one disk."""

    sector_bytes: int
    entries: list[Entry]


def read(path: Path) -> WriteLog:
    """Reads the whole record; its data stays in the file until it is used."""
    if path.stat().st_size < HEADER.size:
        raise WrongLogError(f"{path}: too short for a header")
    content = np.memmap(path, np.uint8, "r")
    magic, version, count, sector_bytes = HEADER.unpack(content[: HEADER.size].tobytes())
    if magic != MAGIC:
        raise WrongLogError(f"{path}: magic {magic:#x}, not {MAGIC:#x}")
    if version != VERSION:
        raise WrongLogError(f"{path}: version {version}, not {VERSION}")
    if sector_bytes < ENTRY.size or sector_bytes & (sector_bytes - 1):
        raise WrongLogError(f"{path}: sectors of {sector_bytes} bytes")
    entries = []
    at = sector_bytes
    for index in range(count):
        head = content[at : at + sector_bytes]
        at += sector_bytes
        if len(head) < sector_bytes:
            raise WrongLogError(f"{path}: ends before entry {index} of {count}")
        sector, sectors, flags, _ = ENTRY.unpack(head[: ENTRY.size].tobytes())
        if flags & ~0xF:
            raise WrongLogError(f"{path}: entry {index} has the flags {flags:#x}")
        if flags & Flag.DISCARD:
            rows = np.broadcast_to(np.uint8(0), (sectors, sector_bytes))
        else:
            end = at + sectors * sector_bytes
            if end > len(content):
                raise WrongLogError(f"{path}: ends within entry {index} of {count}")
            rows = content[at:end].reshape(sectors, sector_bytes)
            at = end
        entries.append(Entry(sector, Flag(flags), rows))
    return WriteLog(sector_bytes, entries)

# SPDX-License-Identifier: Apache-2.0
"""How much of a file the page cache holds, and how to make it hold nothing or all of it."""

import ctypes
import mmap
import os
from pathlib import Path

PIECE = 8 << 20
_FAILED = ctypes.c_void_p(-1).value


def drop(path: Path) -> None:
    """Drops what the cache holds of a file, after what is dirty has been written. Needs no privilege."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def fill(path: Path) -> None:
    """Reads a whole file, so that the cache holds as much of it as there is room for."""
    buffer = bytearray(PIECE)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def cached_share(path: Path) -> float:
    """The part of a file's pages that the cache holds, from 0 to 1."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == _FAILED:
            raise OSError(ctypes.get_errno(), "mmap", str(path))
        pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        flags = ctypes.create_string_buffer(pages)
        failed = libc.mincore(address, size, flags)
        libc.munmap(address, size)
        if failed:
            raise OSError(ctypes.get_errno(), "mincore", str(path))
        return sum(flag & 1 for flag in flags.raw) / pages
    finally:
        os.close(descriptor)

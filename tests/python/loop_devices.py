# SPDX-License-Identifier: Apache-2.0
"""Block devices over files, for tests that run as root."""

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

_CONFIGURE, _GET_FREE = 0x4C0A, 0x4C82  # of <linux/loop.h>
_READ_ONLY, _DETACH_WHEN_CLOSED = 1, 4


@contextlib.contextmanager
def loop_device(file: Path, block_bytes: int = 512, *, read_only: bool = False) -> Iterator[str]:
    """The path of a device over a file. The system detaches it once it is closed, however this process ends.

    Skips the test where there can be none.
    """
    with contextlib.ExitStack() as opened:

        def open_(path: str | Path, how: int) -> int:
            descriptor = os.open(path, how | os.O_CLOEXEC)
            opened.callback(os.close, descriptor)
            return descriptor

        try:
            backing = open_(file, os.O_RDONLY if read_only else os.O_RDWR)
            control = open_("/dev/loop-control", os.O_RDWR)
            flags = _DETACH_WHEN_CLOSED | (_READ_ONLY if read_only else 0)
            # struct loop_config: the file, the size of a block, a struct loop_info64 with its flags, reserved words.
            config = struct.pack("II 52x I 176x 64x", backing, block_bytes, flags)
            while True:
                path = f"/dev/loop{fcntl.ioctl(control, _GET_FREE)}"
                device = open_(path, os.O_RDWR)
                try:
                    fcntl.ioctl(device, _CONFIGURE, config)
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY:  # another program took it meanwhile
                        raise
        except OSError as error:
            pytest.skip(f"no loop device can be made here: {error}")
        yield path

# SPDX-License-Identifier: Apache-2.0
"""What a check of `forebay doctor` finds, and where it looks."""

import ctypes
import errno
import mmap
import os
import resource
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

OK, WARNING, MISSING = "ok", "warning", "missing"

_IO_URING_SETUP = 425  # the number of the system call on every architecture but alpha
_IO_URING_PARAMS_BYTES = 120
_DIRECT = os.O_DIRECT | os.O_CLOEXEC


@dataclass(frozen=True)
class Check:
    """One finding. `cause` and `remedy` are empty where all is well."""

    name: str
    status: str
    found: str
    cause: str = ""
    remedy: str = ""


def _io_uring_errno() -> int:
    """Sets an io_uring up and closes it; 0 or the error."""
    libc = ctypes.CDLL(None, use_errno=True)
    parameters = ctypes.create_string_buffer(_IO_URING_PARAMS_BYTES)
    descriptor = libc.syscall(_IO_URING_SETUP, 1, parameters)
    if descriptor < 0:
        return ctypes.get_errno()
    os.close(descriptor)
    return 0


def _direct_errno(path: Path) -> int:
    """Moves one block with O_DIRECT: reads from a file, or writes to a new one in a folder; 0 or the error."""
    try:
        descriptor = _new_direct_file(path) if path.is_dir() else os.open(path, os.O_RDONLY | os.O_NONBLOCK | _DIRECT)
        try:
            with mmap.mmap(-1, mmap.PAGESIZE) as block:  # begins at a page, as O_DIRECT wants it
                if path.is_dir():
                    os.pwritev(descriptor, [block], 0)
                else:
                    os.preadv(descriptor, [block], 0)
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _new_direct_file(folder: Path) -> int:
    """A file that is gone once it is closed."""
    try:
        return os.open(folder, os.O_RDWR | os.O_TMPFILE | _DIRECT, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):  # a file system without nameless files, such as NFS
            raise
    descriptor, name = tempfile.mkstemp(dir=folder)
    os.close(descriptor)
    try:
        return os.open(name, os.O_RDWR | _DIRECT)
    finally:
        Path(name).unlink()


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _memlock_bytes() -> int | None:
    """How many bytes this process may lock; None where there is no limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if limit == resource.RLIM_INFINITY else limit


@dataclass(frozen=True)
class Machine:
    """Where to look, so that a test can show another machine."""

    root: Path = Path("/")
    which: Callable[[str], str | None] = shutil.which
    path: Path = Path()  # the folder or file whose file system is asked
    io_uring_errno: Callable[[], int] = _io_uring_errno
    direct_errno: Callable[[Path], int] = _direct_errno
    loads: Callable[[str], bool] = _loads
    memlock_bytes: Callable[[], int | None] = _memlock_bytes

    def read(self, path: str) -> str | None:
        """A file of the operating system, or None where it is not there or not readable."""
        try:
            return (self.root / path).read_text(errors="replace")
        except OSError:
            return None

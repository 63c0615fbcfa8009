# SPDX-License-Identifier: Apache-2.0
"""Files that users name. They are refused, with their field and what is wrong, before anything waits or starts."""

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from forebay.errors import OperationFailed, RefusedInput

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a block device",
}
# O_NONBLOCK: opening a pipe whose other end is closed does not block. O_NOCTTY: a terminal stays another process's.
_OPEN = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


@contextlib.contextmanager
def reading(field: str, path: Path | str, remedy: str = "check the path") -> Iterator[BinaryIO]:
    """Opens an ordinary file. Refuses others, and what cannot be opened or, within the block, read."""
    try:
        kind = _kind(path)
        if kind:
            raise RefusedInput(field, path, f"is {kind}; give an ordinary file")
        with os.fdopen(os.open(path, os.O_RDONLY | _OPEN), "rb") as file:
            yield file
    except FileNotFoundError:
        raise RefusedInput(field, path, f"no such file; {remedy}") from None
    except OSError as error:
        raise RefusedInput(field, path, f"cannot be read: {error.strerror or error}; {remedy}") from None


def size_of(file: BinaryIO) -> int:
    """The length of an open file in bytes."""
    return os.fstat(file.fileno()).st_size


@contextlib.contextmanager
def writing(field: str, path: Path | str) -> Iterator[BinaryIO]:
    """Opens a file to write over, which `check_file_to_write` let pass."""
    with _failing(field, path), _opened(path, os.O_TRUNC) as file:
        yield file


@contextlib.contextmanager
def replacing(field: str, path: Path | str) -> Iterator[BinaryIO]:
    """As `writing`, but an ordinary file keeps what it had until the block has ended, also if the process is killed."""
    if Path(path).exists() and not Path(path).is_file():  # a device or a pipe
        with writing(field, path) as file:
            yield file
        return
    whole = os.path.realpath(path)
    part = f"{whole}.part"
    with _failing(field, path):
        try:
            with _opened(part, os.O_TRUNC) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            Path(part).replace(whole)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def making(field: str, path: Path | str) -> Iterator[BinaryIO]:
    """Opens a new file, which `check_new_file` let pass; where the block fails, there is none."""
    with _failing(field, path), _opened(path, os.O_EXCL) as file:
        try:
            yield file
            file.flush()
        except BaseException:
            Path(path).unlink()
            raise


def check_file_to_write(field: str, path: Path | str) -> None:
    """Refuses a file that cannot be made or written over."""
    try:
        kind = _kind(path)
    except FileNotFoundError:
        check_new_file(field, os.path.realpath(path) if Path(path).is_symlink() else path)
        return
    except OSError as error:
        raise RefusedInput(field, path, f"cannot be a file: {error.strerror}; name another file") from None
    if kind not in ("", "a pipe", "a device"):
        raise RefusedInput(field, path, f"is {kind}; name a file")
    try:
        descriptor = os.open(path, os.O_WRONLY | _OPEN)
    except OSError as error:
        why = "is a pipe that no program reads" if kind == "a pipe" else f"is not writable: {error.strerror}"
        raise RefusedInput(field, path, f"{why}; name another file") from None
    if kind != "a pipe":  # its reader would take this for the end
        os.close(descriptor)


def check_new_file(field: str, path: Path | str) -> None:
    """Refuses a file that is there, or that cannot be made."""
    try:
        with _opened(path, os.O_EXCL):  # permissions do not tell: not root's, not those of /proc
            Path(path).unlink()
    except FileExistsError:
        raise RefusedInput(field, path, "exists; name another file, or remove it first") from None
    except FileNotFoundError:
        parent = Path(path).parent
        found = f"no file can be made in {parent}; name another"
        missing = f"there is no directory {parent}; create it first"
        raise RefusedInput(field, path, found if parent.is_dir() else missing) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise RefusedInput(field, path, f"cannot be made: {why}; name another file") from None


def make_folder_of(field: str, path: Path | str) -> None:
    """Makes the folder that a file is to be in; refuses a file whose folder cannot be."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RefusedInput(field, path, f"its folder cannot be made: {error.strerror}; name another file") from None


def make_folder(field: str, folder: Path) -> None:
    """Makes a folder, with those above it. Refuses one that cannot be made, or that nothing can be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise RefusedInput(field, folder, f"is no folder to write to: {why}; name another folder") from None


def _kind(path: Path | str) -> str:
    """What a file is that is no ordinary one; throws OSError for what cannot be looked at."""
    try:
        mode = Path(path).stat().st_mode
    except ValueError as error:  # a NUL
        raise OSError(0, str(error)) from None
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "not an ordinary file")


@contextlib.contextmanager
def _opened(path: Path | str, how: int) -> Iterator[BinaryIO]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | _OPEN | how, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        os.set_blocking(descriptor, True)
        yield file


@contextlib.contextmanager
def _failing(field: str, path: Path | str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OperationFailed(f"{field}: '{path}': cannot be written: {error.strerror or error}") from error

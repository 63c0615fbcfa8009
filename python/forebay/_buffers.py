# SPDX-License-Identifier: Apache-2.0
"""Checks of what callers give to be read or written, made at the call."""

import operator
import re
import sys
from typing import Any, SupportsIndex

from forebay.errors import RefusedInput

if sys.version_info >= (3, 12):
    from collections.abc import Buffer
else:
    Buffer = Any  # type checkers take NumPy's arrays for buffers from 3.12 on

_NAMES = re.compile(r":[^:]*:")  # of the fields of a structure
_POINTERS = re.compile(r"[OPz&X]|Z(?![fdg])")


def flat(buffer: "Buffer", *, writable: bool) -> memoryview:
    """Returns the bytes of a buffer.

    Args:
        buffer: What the caller gave; it may be any object.
        writable: Whether the bytes will be written to.

    Returns:
        A contiguous view of bytes, which keeps the buffer alive.

    Raises:
        RefusedInput: The object has no such buffer, or its bytes mean nothing on a drive.
    """
    dtype = getattr(buffer, "dtype", None)
    what = type(buffer).__name__ if dtype is None else f"{type(buffer).__name__} of {dtype}"
    try:
        view = memoryview(buffer)
    except (TypeError, ValueError, BufferError) as error:
        raise RefusedInput("buffer", what, _remedy(dtype, error)) from None
    if _POINTERS.search(_NAMES.sub("", view.format)):
        remedy = "holds pointers, which mean nothing on a drive; convert it to numbers, for instance with .astype('f8')"
        raise RefusedInput("buffer", what, remedy)
    if not view.c_contiguous:
        copy = "read into a contiguous array, then copy from it" if writable else "pass numpy.ascontiguousarray(array)"
        raise RefusedInput("buffer", what, f"is not contiguous in memory; {copy}")
    if writable and view.readonly:
        raise RefusedInput("buffer", what, "is read-only; pass one that can be written, such as a bytearray")
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def _remedy(dtype: object, error: Exception) -> str:
    if getattr(dtype, "kind", "") in ("m", "M"):
        return "holds dates or times, for which Python has no buffer; pass them as integers: array.view('i8')"
    if isinstance(error, TypeError):
        return (
            "has no buffer in host memory; pass a bytearray, a memoryview or a NumPy array "
            "(tensor.numpy() of a tensor on the CPU)"
        )
    return f"has no buffer ({error}); pass a view of it as bytes: array.view('u1')"


def whole(field: str, value: SupportsIndex, most: int = 2**63 - 1) -> int:
    """Returns a whole number.

    Args:
        field: The name of the argument.
        value: What the caller gave. A ``bool`` is no number here.
        most: The largest number that is allowed.

    Raises:
        RefusedInput: It is not a whole number from 0 to ``most``.
    """
    remedy = f"must be a whole number from 0 to {most}"
    try:
        number = operator.index(value)
    except TypeError:
        raise RefusedInput(field, value, remedy) from None
    if isinstance(value, bool) or not 0 <= number <= most:
        raise RefusedInput(field, value, remedy)
    return number


def within(field: str, offset: SupportsIndex, size: int, of: str, of_bytes: int) -> int:
    """Returns the offset of a range of ``size`` bytes.

    Args:
        field: The name of the argument.
        offset: What the caller gave.
        size: How many bytes are to be moved.
        of: What the range must lie in, in words.
        of_bytes: The size of that.

    Raises:
        RefusedInput: The offset is not a whole number, or the range ends beyond ``of_bytes``.
    """
    at = whole(field, offset)
    if at + size > of_bytes:
        remedy = (
            f"{size} bytes from there end beyond the {of_bytes} bytes of {of}; lower the offset or pass fewer bytes"
        )
        raise RefusedInput(field, at, remedy)
    return at


def text(field: str, value: str, remedy: str = "must be a string") -> str:
    """Returns a string that C++ can hold.

    Args:
        field: The name of the argument.
        value: What the caller gave.
        remedy: What to say if it is not a string.

    Raises:
        RefusedInput: It is not a string, holds a NUL character, or cannot be written as UTF-8.
    """
    if not isinstance(value, str):
        raise RefusedInput(field, value, remedy)
    if "\0" in value:
        raise RefusedInput(field, value.replace("\0", "\\0"), "holds a NUL character; take it out")
    try:
        value.encode()
    except UnicodeEncodeError:
        shown = value.encode(errors="backslashreplace").decode()
        raise RefusedInput(field, shown, "holds a surrogate, which UTF-8 cannot have; take it out") from None
    return value

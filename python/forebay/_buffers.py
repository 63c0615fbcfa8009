# SPDX-License-Identifier: Apache-2.0
"""What callers give to be read or written, checked at the call."""

import operator
import re
from typing import Any, SupportsIndex

from forebay.errors import RefusedInput

_NAMES = re.compile(r":[^:]*:")  # of the fields of a structure
_POINTERS = re.compile(r"[OPz&X]|Z(?![fdg])")


def flat(buffer: Any, *, writable: bool) -> memoryview:  # noqa: ANN401 (collections.abc.Buffer is Python 3.12's)
    """The bytes of a buffer. Refuses what has none, or whose bytes mean nothing on a drive."""
    dtype = getattr(buffer, "dtype", None)
    what = type(buffer).__name__ if dtype is None else f"{type(buffer).__name__} of {dtype}"
    try:
        view = memoryview(buffer)
    except (TypeError, ValueError, BufferError) as error:
        raise RefusedInput("buffer", what, _remedy(dtype, error)) from None
    if _POINTERS.search(_NAMES.sub("", view.format)):
        remedy = "holds pointers, which mean nothing on a drive; convert it to numbers, such as .astype('f8')"
        raise RefusedInput("buffer", what, remedy)
    if not view.c_contiguous:
        remedy = "is not contiguous; " + ("read into one that is" if writable else "give numpy.ascontiguousarray(it)")
        raise RefusedInput("buffer", what, remedy)
    if writable and view.readonly:
        raise RefusedInput("buffer", what, "is read-only; give one that can be written, such as a bytearray")
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def _remedy(dtype: object, error: Exception) -> str:
    if getattr(dtype, "kind", "") in ("m", "M"):
        return "has no buffer in Python; give it as integers: .view('i8')"
    if isinstance(error, TypeError):
        return "is no buffer; give a bytearray, a memoryview or a NumPy array (of a tensor on the CPU: .numpy())"
    return f"has no buffer ({error}); give a view of it as bytes: .view('u1')"


def whole(field: str, value: SupportsIndex, most: int = 2**63 - 1) -> int:
    """A number from 0 to `most`; refuses any other, and what is no whole number."""
    remedy = f"must be a whole number, 0 to {most}"
    try:
        number = operator.index(value)
    except TypeError:
        raise RefusedInput(field, value, remedy) from None
    if isinstance(value, bool) or not 0 <= number <= most:
        raise RefusedInput(field, value, remedy)
    return number


def within(field: str, offset: SupportsIndex, size: int, there: int) -> int:
    """The offset of a range of `size` bytes; refuses one that does not lie in the `there` bytes."""
    at = whole(field, offset)
    if at + size > there:
        raise RefusedInput(field, at, f"{size} bytes from there end beyond the {there} bytes that there are")
    return at


def text(field: str, value: str, remedy: str = "must be text") -> str:
    """A string that C++ can have; refuses what is none, a NUL, and what is no Unicode."""
    if not isinstance(value, str):
        raise RefusedInput(field, value, remedy)
    if "\0" in value:
        raise RefusedInput(field, value.replace("\0", "\\0"), "must have no NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RefusedInput(field, value.encode(errors="backslashreplace").decode(), "must be UTF-8") from None
    return value
